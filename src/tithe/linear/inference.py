"""Standard errors and confidence intervals of the coefficients of linear models, from passes over all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
from scipy import stats

from tithe.core.data import Array, Block
from tithe.core.errors import warn_caller
from tithe.core.linear_algebra import MAX_COORDINATES, curvature_blocks
from tithe.core.parallel import single_blas_thread
from tithe.core.passes import AddsUp, DataPass
from tithe.core.state_checks import Floats, Integer, Number, Optional, Storable
from tithe.linear.objective import LinearModelObjective

_NEAR = 0.1  # standard errors: a Newton step of this length leaves next to nothing
_FAR = 0.1  # standard errors from the smallest loss from which reports say so
_LEAST = 1e-8  # of the inverse curvature, as a variance
_MOST_PASSES = 8
_NULL = 1e-11  # eigenvalue of the scaled curvature, over the largest, up to which a direction is not determined
_TOUCHED = 1e-5  # part that a coordinate has in such a direction from which it is not determined


@dataclass(frozen=True, kw_only=True, eq=False)
class Inference(Storable):
    """Estimates with their covariances: (p, p) for the p = k (d + 1) parameters, row by row, intercepts last.

    With H the curvature of the losses of all rows at the minimum, P that of the penalty and J the sum of products of
    the rows' gradients, the covariance is (H + P)^-1 H (H + P)^-1 by the model (times the variance of the residuals for
    least squares, and Huber's formula for his loss), and (H + P)^-1 J (H + P)^-1 whatever the distribution of y is
    (robust, "sandwich"; White 1980, HC0). Where the columns do not determine a coefficient, it is NaN.

    With a penalty both are about the coefficients that it shrinks, and not about those without a penalty: their
    intervals miss these by ``shrinkage``, which is -(H + P)^-1 P theta to first order.

    Attributes
    ----------
    estimate : (k, d + 1)
        The parameters with the smallest loss on these rows. Those of the model are near: see ``distance``.
    covariance, robust_covariance : (p, p)
        ``covariance`` is None for losses that are no likelihood.
    shrinkage : (k, d + 1)
        What the penalty adds to the estimates; 0 without one.
    degrees : float
        Of freedom of Student's distribution; infinite where the normal one is used.
    distance : float
        How many standard errors the parameters of the model are from ``estimate``, at the most.
    n_rows, passes : int

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetRidge
    >>> X = np.arange(6.0)[:, None]
    >>> model = CoresetRidge(alpha=0.0).fit(X, [1.0, 2.0, 4.0, 3.0, 5.0, 6.0])
    >>> found = model.infer(X, [1.0, 2.0, 4.0, 3.0, 5.0, 6.0])
    >>> found.standard_error.round(3), found.interval().round(2)[0, 0]
    (array([[0.167, 0.504]]), array([0.48, 1.41]))
    """

    estimate: Annotated[Array, Floats("k", "d")]
    covariance: Annotated[Array | None, Optional(Floats("p", "p", any_value=True))]
    robust_covariance: Annotated[Array, Floats("p", "p", any_value=True)]
    shrinkage: Annotated[Array, Floats("k", "d", any_value=True)]
    degrees: Annotated[float, Number(least=0.0, finite=False)]
    distance: Annotated[float, Number(least=0.0, finite=False)]
    n_rows: Annotated[int, Integer(least=1)]
    passes: Annotated[int, Integer(least=1)]

    def _errors(self, covariance: Array) -> Array:
        errors: Array = np.sqrt(np.maximum(np.diag(covariance), 0.0)).reshape(self.estimate.shape)
        return errors

    @property
    def standard_error(self) -> Array | None:
        """By the model: (k, d + 1); None for losses that are no likelihood."""
        return None if self.covariance is None else self._errors(self.covariance)

    @property
    def robust_error(self) -> Array:
        """Whatever the distribution of y is: (k, d + 1)."""
        return self._errors(self.robust_covariance)

    def error(self, *, robust: bool = False) -> Array:
        """The standard errors by the model where there are some, or the robust ones: (k, d + 1)."""
        by_model = self.standard_error
        return self.robust_error if robust or by_model is None else by_model

    def z(self, *, robust: bool = False) -> Array:
        """Estimates over their standard errors: (k, d + 1)."""
        errors = self.error(robust=robust)
        return np.divide(self.estimate, errors, out=np.full_like(errors, np.nan), where=errors > 0.0)

    def p_value(self, *, robust: bool = False) -> Array:
        """The chance of a z as far from 0 if the coefficient were 0: (k, d + 1)."""
        chance: Array = 2.0 * self._distribution(robust).sf(np.abs(self.z(robust=robust)))
        return chance

    def interval(self, level: float = 0.95, *, robust: bool = False) -> Array:
        """Confidence intervals: (k, d + 1, 2)."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
        reach = self._distribution(robust).ppf(0.5 + 0.5 * level) * self.error(robust=robust)
        return np.stack([self.estimate - reach, self.estimate + reach], axis=-1)

    def _distribution(self, robust: bool) -> Any:
        return stats.norm() if robust or not np.isfinite(self.degrees) else stats.t(self.degrees)

    def columns(self) -> dict[str, Array]:
        """What reports show of each parameter: (k, d + 1) each; robust z and intervals where it has no model."""
        interval, by_model = self.interval(), self.standard_error
        return {
            **({} if by_model is None else {"standard_error": by_model}),
            "robust_error": self.robust_error,
            "z": self.z(),
            "p_value": self.p_value(),
            "low": interval[..., 0],
            "high": interval[..., 1],
        }

    def about(self) -> dict[str, Any]:
        """How the standard errors were found, and what they mean."""
        errors = self.error()
        shares = np.divide(np.abs(self.shrinkage), errors, out=np.zeros_like(errors), where=errors > 0.0)
        shrunk = float(shares.max(initial=0.0))
        said = ["standard_error is by the model, robust_error holds for any distribution of the target."]
        if self.covariance is None:
            said = ["This loss is no likelihood: there are robust standard errors only."]
        if shrunk > 0.0:
            said.append(
                "The penalty shrinks the coefficients, and intervals are about the shrunk ones: it moves them by up to "
                f"{shrunk:.2g} standard errors."
            )
        if self.distance > _FAR:
            said.append(
                f"The coefficients of the model are up to {self.distance:.2g} standard errors from those with the "
                "smallest loss, about which the intervals are: a smaller tol brings them nearer."
            )
        if np.isnan(errors).any():
            said.append("Coefficients without a standard error are not determined: other columns tell all of theirs.")
        numbers = {"n_rows": self.n_rows, "passes": self.passes, "distance": self.distance, "shrinkage": shrunk}
        return {"meaning": " ".join(said), **numbers}

    def against(self, output: int) -> Self:
        """The differences to one of several classes: k - 1 rows, in the order of the others."""
        k, size = self.estimate.shape
        if not 0 <= output < k or k < 2:
            raise ValueError(f"There are {k} outputs: one of several, from 0 on, can be compared with the others.")
        change = np.delete(np.eye(k), output, axis=0)
        change[:, output] = -1.0
        wide = np.kron(change, np.eye(size))
        return replace(
            self,
            estimate=change @ self.estimate,
            covariance=None if self.covariance is None else wide @ self.covariance @ wide.T,
            robust_covariance=wide @ self.robust_covariance @ wide.T,
            shrinkage=change @ self.shrinkage,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums(AddsUp):
    """Of one pass, without units and penalty, columns less the centre: p = k (d + 1)."""

    gradient: Array  # (k, d + 1)
    curvature: Array  # (p, p)
    products: Array  # (p, p), of the gradients of rows
    gram: Array | None  # (d + 1, d + 1) of the columns, where the model's covariance needs it
    numbers: Array  # rows, their weight; of the first score: second derivatives, their squares, squared first ones


def sums_at(
    objective: LinearModelObjective[Any], params: Array, centre: Array | None, counts: bool, block: Block
) -> _Sums:
    weight, r = block.weights(), objective._residuals(block, params)
    each = weight if counts else weight * weight
    second, cross = objective._second_derivatives(block, params)

    def gram(diagonal: Array, mixed: Any) -> Array:
        blocks = curvature_blocks(block, diagonal, mixed, centre, exact=True)
        assert blocks is not None
        return blocks[0]  # type: ignore[no-any-return]

    gradient = np.array(objective.sums(block, params).gradient)
    if centre is not None:
        gradient[:, :-1] -= np.outer(gradient[:, -1], centre)
    curvature, of_columns = gram(second, cross), None
    if objective.error_model == "location":
        of_columns = curvature if objective.constant_curvature else gram(weight[:, None], None)
    bend = np.divide(second[:, 0], weight, out=np.zeros(len(block)), where=weight > 0.0)
    numbers = [np.count_nonzero(weight), weight.sum(), weight @ bend, weight @ bend**2, weight @ r[:, 0] ** 2]
    return _Sums(
        gradient=gradient,
        curvature=curvature,
        products=gram(each[:, None] * r * r, lambda a, b, at: each[at] * r[at, a] * r[at, b]),
        gram=of_columns,
        numbers=np.array(numbers, np.float64),
    )


class Place:
    """The Newton step and the covariances at parameters, from the sums of a pass there."""

    def __init__(
        self, objective: LinearModelObjective[Any], sums: _Sums, params: Array, centre: Array | None, counts: bool
    ) -> None:
        self.objective, self.sums, self.shape, self.centre = objective, sums, params.shape, centre
        self.free = np.flatnonzero(objective._free_coordinates(params.shape))
        self.n_rows, self.weight = int(sums.numbers[0]), float(sums.numbers[1])
        k, size = params.shape
        unit, (coefficient, intercept) = objective.unit(self.weight), objective.penalty()
        penalty = np.tile(np.append(np.full(size - 1, coefficient), intercept) / unit, (k, 1))
        penalty[k - objective.n_scales :] = 0.0
        self.penalty = penalty.ravel()
        root, null = inverse_root(self._kept(sums.curvature + np.diag(self.penalty) + self._shift()))
        self.root, inverse = self._raw(root), root @ root.T
        self.unknown = self._touched(*null)
        pull = self.penalty[self.free] * params.ravel()[self.free]
        self.step = self._raw(inverse @ (sums.gradient.ravel()[self.free] + pull))
        self.shrinkage = -self._raw(inverse @ pull)
        self.robust = self._covariance(inverse @ self._kept(sums.products) @ inverse)
        n = self.weight if counts else float(self.n_rows)
        self.by_model, self.degrees = self._by_model(inverse, n)
        errors = np.diag(self.robust if self.by_model is None else self.by_model)
        # where only the penalty knows a coefficient it has no error, and a step is measured by the penalty
        floor = _LEAST * np.diag(self._covariance(inverse))
        self.errors = np.sqrt(np.maximum(errors, floor)).reshape(-1, size)

    def _by_model(self, inverse: Array, n: float) -> tuple[Array | None, float]:
        """The covariance by the model, and the degrees of freedom; ``n`` observations."""
        if self.objective.error_model == "likelihood":
            return self._covariance(inverse @ self._kept(self.sums.curvature) @ inverse), np.inf
        if self.sums.gram is None:
            return None, np.inf
        # errors of one distribution, whatever the row: H is about its mean second derivative times the gram matrix
        size = self.shape[1]
        free = self.free[self.free < size]
        gram, penalty = self.sums.gram[np.ix_(free, free)], np.diag(self.penalty[free])
        _, weight, bend, bends, squares = self.sums.numbers
        mean = bend / weight
        inverse, _ = _inverse(mean * gram + penalty)
        spent = float(np.sum(inverse * (mean * gram)))
        degrees = max(n - spent, 0.0)
        spread = max(bends / weight - mean * mean, 0.0) / (mean * mean) if mean > 0.0 else np.inf
        factor = squares / degrees if degrees > 0.0 else np.nan
        factor *= (1.0 + spent / n * spread) ** 2  # Huber (1981), section 7.6
        wide = np.zeros((len(self.free), len(self.free)))
        wide[: len(free), : len(free)] = factor * (inverse @ gram @ inverse)
        return self._covariance(wide), degrees

    def _kept(self, matrix: Array) -> Array:
        return matrix[np.ix_(self.free, self.free)]

    def _shift(self) -> Array:
        """With many classes, a curvature along the changes of all scores by the same number, which have none."""
        k, size = self.shape
        if self.objective.n_classes <= 2:
            return np.zeros((1, 1))
        along = np.diag(self.sums.curvature).reshape(k, size).mean(axis=0)
        return np.kron(np.full((k, k), 1.0 / k), np.diag(np.where(along > 0.0, along, 1.0)))

    def _wide(self, kept: Array) -> Array:
        """Values (m, ...) of the free coordinates among all, 0 for the others: (k, d + 1, ...)."""
        k, size = self.shape
        wide = np.zeros((k * size, *kept.shape[1:]))
        wide[self.free] = kept
        return wide.reshape(k, size, *kept.shape[1:])

    def _raw(self, kept: Array) -> Array:
        """The same for columns as they came, not less the centre: the intercepts change."""
        wide = self._wide(kept)
        if self.centre is not None:
            wide[:, -1] -= np.einsum("j,kj...->k...", self.centre, wide[:, :-1])
        return wide

    def _covariance(self, kept: Array) -> Array:
        """The covariance of the linear scores: NaN where a coordinate is not determined."""
        k, size = self.shape
        half = self._raw(kept).reshape(k * size, -1)
        covariance = self._raw(np.ascontiguousarray(half.T)).reshape(k * size, -1)
        covariance[self.unknown] = covariance[:, self.unknown] = np.nan
        last = (k - self.objective.n_scales) * size
        return np.ascontiguousarray(covariance[:last, :last])

    def _touched(self, null: Array, scale: Array) -> Array:
        """Which coordinates have a part in the directions ``scale * null`` (m, r), which nothing determines: (p,)."""
        touched = self._wide(np.abs(null).max(axis=1, initial=0.0)) > _TOUCHED
        if self.centre is not None:  # an intercept is a sum of terms, in which such directions may cancel
            along = scale[:, None] * null
            wide = np.abs(self._wide(along))
            terms = wide[:, -1] + np.einsum("j,kjr->kr", np.abs(self.centre), wide[:, :-1])
            touched[:, -1] |= (np.abs(self._raw(along)[:, -1]) > _TOUCHED * terms).any(axis=1)
        return touched.ravel()

    def length(self, step: Array) -> float:
        """The largest part of a step (k, d + 1) in standard errors."""
        step = np.abs(step[: len(self.errors)])
        shares = np.divide(step, self.errors, out=np.zeros_like(step), where=self.errors > 0.0)
        return float(shares.max(initial=0.0))


def _inverse(matrix: Array) -> tuple[Array, tuple[Array, Array]]:
    """The inverse of a curvature (m, m) on the directions that it determines; the others (m, r), and their scale."""
    root, others = inverse_root(matrix)
    return root @ root.T, others


def inverse_root(matrix: Array) -> tuple[Array, tuple[Array, Array]]:
    """R (m, m - r) with R R' the inverse; and what `_inverse` returns as well."""
    diagonal = np.diag(matrix)
    scale = np.divide(1.0, np.sqrt(np.maximum(diagonal, 0.0)), out=np.ones(len(matrix)), where=diagonal > 0.0)
    values, vectors = np.linalg.eigh(matrix * np.outer(scale, scale))
    known = values > _NULL * max(float(values[-1]), 0.0)
    return scale[:, None] * vectors[:, known] / np.sqrt(values[known]), (vectors[:, ~known], scale)


def infer(
    objective: LinearModelObjective[Any], data: DataPass, params: Array, few: Block, *, counts: bool = True
) -> Inference:
    """Standard errors at the minimum of the loss on all rows: in one pass, or more where ``params`` are not near it.

    ``few`` are some of the rows. See `CoresetLinearModel.infer` for ``counts``.
    """
    if params.size > MAX_COORDINATES:
        raise ValueError(
            f"Standard errors need the covariance of all coefficients: of {MAX_COORDINATES:,} at most, and these are "
            f"{params.size:,}. Leave columns out, or fit fewer classes."
        )
    centre, start, last, before = objective.centre(data.or_few(few)), params, np.inf, data.n_passes
    with single_blas_thread():
        for _ in range(_MOST_PASSES):
            sums = data.total(partial(sums_at, objective, params, centre, counts))
            place = Place(objective, sums, params, centre, counts)
            length = place.length(place.step)
            if not length < last:
                break
            params, last = params - place.step, length
            if length <= _NEAR:
                break
    if not last <= _NEAR:
        warn_caller(
            f"The standard errors are of a place that is {last:.2g} of them from the smallest loss, which may not "
            "exist: set a penalty, or a smaller tol."
        )
    n_linear = len(place.errors)
    return Inference(
        estimate=np.ascontiguousarray(params[:n_linear]),
        covariance=place.by_model,
        robust_covariance=place.robust,
        shrinkage=np.ascontiguousarray(place.shrinkage[:n_linear]),
        degrees=place.degrees,
        distance=place.length(params - start),
        n_rows=place.n_rows,
        passes=data.n_passes - before,
    )
