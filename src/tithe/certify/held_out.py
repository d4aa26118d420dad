"""How sure a mean over rows is."""

from __future__ import annotations

import numpy as np

from tithe.certify import Certificate
from tithe.core.data import Array

_NORMAL, _CONFIDENCE = 1.959964, 0.95


def mean_certificate(sums: Array, scale: float, n_rows: int, small: float) -> Certificate:
    """From sums of u, u e, u^2, u^2 e and u^2 e^2 over the rows, e the error of a row as a multiple of ``scale``."""
    weight, total, w2, w2e, w2ee = sums
    mean = total / weight
    spread = max(0.0, w2ee - 2.0 * mean * w2e + mean * mean * w2) ** 0.5 / weight
    mean, spread = mean * scale, spread * scale
    low, high = max(0.0, mean - _NORMAL * spread), mean + _NORMAL * spread
    relative = small / mean - 1.0 if mean > 0 else (0.0 if small == 0 else np.inf)
    return Certificate(
        kind="estimate",
        value=float(mean),
        relative=float(relative),
        confidence=_CONFIDENCE,
        interval=(float(low), float(high)),
        n_rows=n_rows,
        passes=1,
        sentence=(
            f"The mean squared error is {mean:.6g} on these {n_rows} rows (95 % for rows of their kind: {low:.6g} to "
            f"{high:.6g}); training ended with {small:.6g}, which is {relative:+.2%} off."
        ),
    )
