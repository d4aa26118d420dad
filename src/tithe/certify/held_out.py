"""Certificates of a mean squared error over rows."""

from __future__ import annotations

from tithe.certify.certificate import Certificate, coreset_clause, relative_error
from tithe.core.data import Array

_NORMAL, _CONFIDENCE = 1.959964, 0.95


def mean_certificate(sums: Array, scale: float, n_rows: int, small: float) -> Certificate:
    """From sums of u, u e, u^2, u^2 e and u^2 e^2 over the rows, e the error of a row as a multiple of ``scale``."""
    weight, total, w2, w2e, w2ee = sums
    mean = total / weight
    spread = max(0.0, w2ee - 2.0 * mean * w2e + mean * mean * w2) ** 0.5 / weight
    mean, spread = mean * scale, spread * scale
    low, high = max(0.0, mean - _NORMAL * spread), mean + _NORMAL * spread
    return Certificate(
        kind="estimate",
        quantity="mse",
        value=float(mean),
        coreset_error=float(relative_error(small, mean)),
        confidence=_CONFIDENCE,
        interval=(float(low), float(high)),
        n_rows=n_rows,
        passes=1,
        sentence=(
            f"The mean squared error is {mean:.6g} on these {n_rows} rows (95 % for rows of their kind: {low:.6g} to "
            f"{high:.6g}){coreset_clause(small, mean, said_by='training ended with')}."
        ),
    )
