"""Which parameters of kernel machines are tried: drawn at random first, then near the best so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tithe.core.data import Array

LAM_RANGE = (2.0**2, 2.0**16)
GAMMA_RANGE = (2.0**-4, 2.0**4)  # times 1 / (columns times variance)
MUS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
THETAS = (0.0, 0.2, 0.4, 0.6, 0.8)
_LAM_STEP, _GAMMA_STEP = 1.5, 1.0  # standard deviations of a step from the best, in powers of two
_STAY_CHANCE = 0.5  # that mu, theta or gamma is that of the best


@dataclass(frozen=True, order=True)
class Candidate:
    """``gamma`` is in units of 1 / (columns times variance), and None for kernels without it."""

    gamma: float | None
    lam: float
    mu: float
    theta: float


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """lam and gamma are log-uniform within their ranges, mu and theta each one of some values.

    gamma is a power of two within its range, or of its root near the best, so that candidates share kernel matrices.
    """

    lams: tuple[float, float]
    mus: Sequence[float]
    thetas: Sequence[float]
    gammas: tuple[float, float] | None

    def draw(self, n: int, rng: np.random.Generator) -> list[Candidate]:
        """Candidates from all over the space: each parameter takes its values evenly."""
        low, high = np.log2(self.lams)
        lams = np.exp2(_spread(low, high, n, rng))
        if self.gammas is None:
            gammas: list[float | None] = [None] * n
        else:
            powers = self._powers(1.0)
            gammas = np.exp2(powers[_even(len(powers), n, rng)]).tolist()
        mus, thetas = (np.asarray(values)[_even(len(values), n, rng)].tolist() for values in (self.mus, self.thetas))
        return [
            Candidate(gamma=gamma, lam=float(lam), mu=float(mu), theta=float(theta))
            for gamma, lam, mu, theta in zip(gammas, lams, mus, thetas, strict=True)
        ]

    def near(self, best: Candidate, n: int, rng: np.random.Generator) -> list[Candidate]:
        """Candidates around the best: lam and gamma a few steps away, mu and theta neighbouring values."""
        return [self._neighbour(best, rng) for _ in range(n)]

    def _neighbour(self, best: Candidate, rng: np.random.Generator) -> Candidate:
        low, high = np.log2(self.lams)
        lam = float(np.exp2(np.clip(np.log2(best.lam) + _LAM_STEP * rng.normal(), low, high)))
        mu, theta = (
            value if rng.random() < _STAY_CHANCE else _next_value(value, values, rng)
            for value, values in ((best.mu, self.mus), (best.theta, self.thetas))
        )
        changed = replace(best, lam=lam, mu=mu, theta=theta)
        if best.gamma is None or rng.random() < _STAY_CHANCE:
            return changed
        powers = self._powers(0.5)
        wanted = np.log2(best.gamma) + _GAMMA_STEP * rng.normal()
        return replace(changed, gamma=float(np.exp2(powers[np.abs(powers - wanted).argmin()])))

    def _powers(self, step: float) -> Array:
        assert self.gammas is not None
        low, high = np.log2(self.gammas)
        return np.linspace(low, high, 1 + round((high - low) / step))


def _spread(low: float, high: float, n: int, rng: np.random.Generator) -> Array:
    """Numbers between low and high, one in each of n equal parts, in random order."""
    parts: Array = (rng.permutation(n) + rng.random(n)) / max(1, n)
    return low + (high - low) * parts


def _even(n_values: int, n: int, rng: np.random.Generator) -> Array:
    """n positions in random order; every value occurs equally often, up to one."""
    rounds = [rng.permutation(n_values) for _ in range(-(-n // n_values))]
    return rng.permutation(np.concatenate(rounds)[:n])


def _next_value(value: float, values: Sequence[float], rng: np.random.Generator) -> float:
    ordered = np.sort(np.asarray(values, np.float64))
    place = int(np.abs(ordered - value).argmin()) + (1 if rng.random() < 0.5 else -1)
    return float(ordered[np.clip(place, 0, len(ordered) - 1)])
