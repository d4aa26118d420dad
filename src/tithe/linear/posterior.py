"""Bayesian linear models on weighted rows: the posterior with a Gaussian prior, by Laplace and by samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.data import Array, Block, Rng
from tithe.core.linear_algebra import MAX_COORDINATES
from tithe.core.parallel import single_blas_thread
from tithe.core.params import WholeNumber, check_value
from tithe.linear.inference import Place, sums_at
from tithe.linear.objective import LinearModelObjective

_WARM_UP = 100  # steps that the length of a step is found in
_ANGLES = (1.0, 2.2)  # of a path: about a quarter of a turn, after which little is left of where it began
_FIRST, _SHORTEST, _LONGEST = 0.35, 1e-3, 0.6  # lengths, in standard deviations
_REDUNDANT = 1e-12  # of the largest deviation, what rounding leaves of none
_WANTED = 0.85  # share of paths that are accepted


@dataclass(frozen=True, kw_only=True, eq=False)
class Posterior:
    """The posterior of the parameters (k, d + 1) of a linear model, intercepts last.

    The density is that of exp(-sum_i u_i f_i - penalty): the likelihood of rows with their weights, and the normal
    prior whose logarithm the penalty is: coefficients of mean 0 and variance C for logistic regression. Intercepts have
    a flat prior; with more than two classes parameters add up to zero over the classes. A coreset in place of all rows
    has nearly the same density (Huggins, Campbell and Broderick, 2016).

    Samples are those of Hamiltonian Monte Carlo in coordinates in which the Laplace approximation is a standard normal
    distribution: paths of random length, accepted or rejected, so that the samples have the exact density.

    Attributes
    ----------
    mode : (k, d + 1)
    laplace : (p, p)
        The inverse curvature at the mode: the covariance of the Laplace approximation.
    samples : (n, k, d + 1)
    accepted : float
        Share of paths. Far below 0.8, the samples are too alike.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50_000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + rng.logistic(size=50_000) > 0
    >>> found = CoresetLogisticRegression(coreset_size=2000, random_state=0).fit(X, y).posterior(n_samples=500)
    >>> found.mean.round(1)[0, :3], found.deviation.round(2)
    (array([ 1. , -2. ,  0.5]), array([[0.01, 0.02, 0.01, 0.01]]))
    """

    mode: Array
    laplace: Array
    samples: Array
    accepted: float

    @property
    def mean(self) -> Array:
        """(k, d + 1), of the samples."""
        mean: Array = self.samples.mean(axis=0)
        return mean

    @property
    def deviation(self) -> Array:
        """Standard deviations (k, d + 1), of the samples."""
        deviation: Array = self.samples.std(axis=0, ddof=1)
        return deviation

    def interval(self, level: float = 0.95) -> Array:
        """The middle of the samples of each parameter: (k, d + 1, 2)."""
        tail = 0.5 * (1.0 - level)
        interval: Array = np.moveaxis(np.quantile(self.samples, [tail, 1.0 - tail], axis=0), 0, -1)
        return interval


def sample_posterior(objective: LinearModelObjective[Any], rows: Block, n_samples: int, rng: Rng) -> Posterior:
    """The posterior of a model whose losses are minus the logarithms of a likelihood, for weighted rows in memory."""
    check_value("n_samples", n_samples, WholeNumber(least=2))
    coded, rows = objective._with_label_codes(rows)
    with single_blas_thread():
        mode, _ = coded.minimise(rows)
        if mode.size > MAX_COORDINATES:
            raise ValueError(
                f"A posterior of {mode.size:,} parameters needs a covariance: at most {MAX_COORDINATES:,}."
            )
        centre = coded.centre(rows)
        place = Place(coded, sums_at(coded, mode, centre, True, rows), mode, centre, True)
        root, unit = _balanced(place.root, many=coded.n_classes > 2), coded.unit(rows.total_weight)

        def slope_at(z: Array) -> tuple[float, Array]:
            """Minus the logarithm of the density, and its derivatives in z."""
            point = coded.evaluate(rows, mode + root @ z)
            return point.value / unit, np.einsum("kjr,kj->r", root, point.gradient) / unit

        z, length, n_accepted = np.zeros(root.shape[-1]), _FIRST, 0
        value, slope = slope_at(z)
        samples = np.empty((n_samples, *mode.shape))
        for step in range(-_WARM_UP, n_samples):
            moved = rng.standard_normal(len(z))
            energy, there, push = value + 0.5 * float(moved @ moved), z, slope
            for _ in range(max(1, round(rng.uniform(*_ANGLES) / length))):
                moved = moved - 0.5 * length * push
                there = there + length * moved
                new, push = slope_at(there)
                moved = moved - 0.5 * length * push
            chance = float(np.exp(np.clip(energy - new - 0.5 * float(moved @ moved), -700.0, 0.0)))
            if rng.random() < chance:
                z, value, slope = there, new, push
                n_accepted += step >= 0
            if step < 0:
                length = float(np.clip(length * np.exp(0.2 * (chance - _WANTED)), _SHORTEST, _LONGEST))
            else:
                samples[step] = mode + root @ z
    flat = root.reshape(mode.size, -1)
    return Posterior(mode=mode, laplace=flat @ flat.T, samples=samples, accepted=n_accepted / n_samples)


def _balanced(root: Array, *, many: bool) -> Array:
    """The root of the covariance (k, d + 1, r); for many classes without what moves all of them alike."""
    if not many:
        return root
    flat = (root - root.mean(axis=0)).reshape(-1, root.shape[-1])
    left, sizes, _ = np.linalg.svd(flat, full_matrices=False)
    kept = sizes > _REDUNDANT * sizes[0]
    balanced: Array = (left[:, kept] * sizes[kept]).reshape(*root.shape[:2], -1)
    return balanced
