"""The band in which margins cost nothing, and the costs outside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tithe.core.data import Array


@dataclass(kw_only=True)
class Band:
    """Margins from ``low`` = 1 - theta to ``high`` = 1 + theta; rows below cost C = ``cost`` (n,), rows above mu C."""

    cost: Array
    mu: float
    theta: float

    @property
    def low(self) -> float:
        return 1.0 - self.theta

    @property
    def high(self) -> float:
        return 1.0 + self.theta

    @cached_property
    def soft(self) -> Array:
        """1 / C: (n,)."""
        inverse: Array = 1.0 / self.cost
        return inverse

    def stiff_at(self, mu: float) -> Array:
        """1 / (mu C): (n,), infinite without an upper side."""
        with np.errstate(over="ignore"):  # a tiny mu
            return self.soft / mu if mu > 0.0 else np.full(len(self.cost), np.inf)
