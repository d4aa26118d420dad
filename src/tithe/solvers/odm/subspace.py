"""Few passes over a large kernel matrix: steps with a low-rank model of it, and the best point of all directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq

from tithe.core.data import Array
from tithe.core.parallel import over_parts
from tithe.solvers.linear_algebra import conjugate_gradients
from tithe.solvers.odm.kernel_matrix import Gram
from tithe.solvers.odm.landmarks import Landmarks
from tithe.solvers.odm.two_classes import Dual

_N_SUMS = 16  # sums of a product that are kept side by side; they do not depend on the number of threads
_MODEL_TOL = 1e-3  # share of its first gradient at which a step of the model is accepted
_MAX_MODEL_STEPS = 30
_MAX_CG_STEPS = 12  # with an old factorisation, after which a new one is made
_CG_ACCURACY = 0.03  # share of the residual at which they stop
_MAX_POINT_STEPS = 50
_ROUNDING = 1e-13  # share of all costs below which a decrease is rounding


def symmetric_product(gram: Gram, coefficients: Array) -> Array:
    """K @ coefficients: (n,). A square that is not held is computed once and used for both its sides."""
    (slices, square_of), n = gram.upper_squares(), len(gram)
    values = coefficients.astype(gram.function.dtype)
    n_sums = min(_N_SUMS, len(slices))
    sums = np.zeros((n_sums, n))

    def work(first: int, last: int) -> None:
        for part in range(first, last):
            total = sums[part]
            for a in range(part, len(slices), n_sums):
                for b in range(a, len(slices)):
                    square = square_of(a, b)
                    total[slices[a]] += square @ values[slices[b]]
                    if a != b:
                        total[slices[b]] += values[slices[a]] @ square

    over_parts(work, n_sums)
    product: Array = sums.sum(axis=0)
    return product


def _length(slope: Callable[[float], float]) -> float:
    """Where an increasing slope is zero, at most 1, to a thousandth: the length of a Newton step."""
    return 1.0 if slope(1.0) <= 0.0 else float(brentq(slope, 0.0, 1.0, xtol=1e-3)) if slope(0.0) < 0.0 else 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """Multipliers, their margins Q gamma and the primal value: what the machine of these multipliers costs."""

    gamma: Array
    margins: Array
    primal: float


@dataclass(kw_only=True, eq=False)
class SubspaceSearch:
    """Minimises P over the span of all directions so far, each of which takes one product with the kernel matrix.

    A step replaces the matrix K by B B^T + diag(E) (`Landmarks`) and solves the problem that this makes of the
    multipliers, the choice of the rows outside the band included. Its result, multipliers that belong to margins of
    the model, is a good dual point (``stepped``); the primal one is the best of the span of all steps (``best``).
    ``bound`` is the largest dual value seen, so no machine costs less.
    """

    dual: Dual
    landmarks: Landmarks
    bound: float = -np.inf
    n_products: int = 0
    best: Point = field(init=False)
    stepped: Point = field(init=False)
    _directions: list[Array] = field(default_factory=list)
    _products: list[Array] = field(default_factory=list)
    _lengths: Array = field(default_factory=lambda: np.zeros(0))
    _factor: tuple[Array, bool] | None = None

    def start(self, gamma: Array) -> None:
        """Begin at these multipliers; the best point is then the best of their ray."""
        zero = np.zeros(len(gamma))
        self._move(zero, zero, gamma)

    def step(self) -> None:
        """A step of the model from the best point, then the best point of the larger span."""
        gamma, margins = self.best.gamma, self.best.margins
        self._move(gamma, margins, self._model_step(gamma, margins))

    def solution(self, tol: float) -> Point | None:
        """A point whose value is within ``tol`` of itself of the bound, or None.

        The last step is preferred to the best point: its multipliers are zero for all rows inside the band.
        """
        for point in (self.stepped, self.best):
            if point.primal - self.bound <= tol * point.primal:
                return point
        return None

    def _move(self, gamma: Array, margins: Array, change: Array) -> None:
        """Add a direction that leads from ``gamma`` to a dual point, and find the best point of the span."""
        dual = self.dual
        product = dual.sign * symmetric_product(dual.gram, dual.sign * change)
        self.n_products += 1
        self._directions.append(change)
        self._products.append(product)
        dual.gamma, dual.score = gamma + change, dual.sign * (margins + product)
        gap, primal = dual.gap()
        self.stepped = Point(gamma=dual.gamma, margins=margins + product, primal=primal)
        self.bound = max(self.bound, primal - gap)
        self._lengths = self._best_lengths(np.append(self._lengths, 1.0))
        gamma, margins = self._lengths @ np.array(self._directions), self._lengths @ np.array(self._products)
        loss = 0.5 * float(dual.cost @ np.maximum(dual.low - margins, 0.0) ** 2)
        loss += 0.5 * dual.mu * float(dual.cost @ np.maximum(margins - dual.high, 0.0) ** 2)
        self.best = Point(gamma=gamma, margins=margins, primal=loss + 0.5 * float(gamma @ margins))

    def _best_lengths(self, lengths: Array) -> Array:
        """How far to go along each direction: Newton's method on P, in as many variables as there are directions."""
        products = np.array(self._products)
        gram = np.array(self._directions) @ products.T
        gram = 0.5 * (gram + gram.T)
        scale = 1.0 / np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
        products, gram = products * scale[:, None], gram * scale[:, None] * scale
        lengths = lengths / scale
        for _ in range(_MAX_POINT_STEPS):
            step = self._lengths_step(gram, products, lengths)
            if step is None:
                break
            lengths = lengths + step
        return lengths * scale

    def _lengths_step(self, gram: Array, products: Array, lengths: Array) -> Array | None:
        """A Newton step as long as is best, or None if it does not lead down."""
        dual = self.dual
        margins = lengths @ products
        gradient = gram @ lengths - products @ self._multipliers(margins)
        hessian = gram + (products * _curvature(dual, margins, dual.cost, dual.mu * dual.cost)) @ products.T
        step = np.linalg.lstsq(hessian, -gradient, rcond=1e-13)[0]
        if not -float(gradient @ step) > _ROUNDING * float(dual.cost.sum()):
            return None
        straight, change = gram @ step, step @ products

        def slope(t: float) -> float:
            return float((lengths + t * step) @ straight) - float(self._multipliers(margins + t * change) @ change)

        result: Array = _length(slope) * step
        return result

    def _multipliers(self, margins: Array) -> Array:
        """Minus the derivative of the losses."""
        dual = self.dual
        return _multipliers(dual, margins, dual.cost, dual.mu * dual.cost)

    def _model_step(self, gamma: Array, margins: Array) -> Array:
        """The change of the multipliers that solves the problem with the model in place of the matrix.

        With q = diag(E) and v = B^T change, all multipliers follow from v. This makes a smooth convex problem in as
        many variables as there are landmarks, for Newton's method.
        """
        dual, model = self.dual, self.landmarks
        soft, stiff = dual.cost, dual.mu * dual.cost
        soft, stiff = soft / (1.0 + model.residual * soft), stiff / (1.0 + model.residual * stiff)
        u, v = margins - model.residual * gamma, np.zeros(model.basis.shape[1])
        first = np.inf
        for number in range(_MAX_MODEL_STEPS):
            gradient = v - model.transposed_times(dual.sign * (_multipliers(dual, u, soft, stiff) - gamma))
            size = float(np.linalg.norm(gradient))
            first = size if number == 0 else first
            if size <= _MODEL_TOL * first and number > 0:
                break
            step = self._newton_direction(gradient, _curvature(dual, u, soft, stiff))
            change = dual.sign * model.times(step)
            length = self._model_length(v, u, step, change, gamma, soft, stiff)
            v, u = v + length * step, u + length * change
        return _multipliers(dual, u, soft, stiff) - gamma

    def _newton_direction(self, gradient: Array, weight: Array) -> Array:
        """-(I + B^T diag(weight) B)^-1 gradient: conjugate gradients with the last factorisation, or a new one."""
        model = self.landmarks
        if self._factor is not None:
            factor, n_steps = self._factor, 0

            def product(x: Array) -> Array:
                nonlocal n_steps
                n_steps += 1
                return x + model.transposed_times(weight * model.times(x))

            start = float(gradient @ cho_solve(factor, gradient, check_finite=False))
            step, _ = conjugate_gradients(
                product,
                -gradient,
                precondition=lambda x: cho_solve(factor, x, check_finite=False),
                is_small=lambda _, size: size <= _CG_ACCURACY**2 * start,
                max_steps=_MAX_CG_STEPS,
            )
            if n_steps < _MAX_CG_STEPS:
                return step
        hessian = model.weighted_gram(weight)
        hessian[np.diag_indices_from(hessian)] += 1.0
        self._factor = cho_factor(hessian, lower=True, check_finite=False, overwrite_a=True)
        step = -cho_solve(self._factor, gradient, check_finite=False)
        return step

    def _model_length(
        self, v: Array, u: Array, step: Array, change: Array, gamma: Array, soft: Array, stiff: Array
    ) -> float:
        start, growth = float(v @ step) + float(gamma @ change), float(step @ step)

        def slope(t: float) -> float:
            return start + t * growth - float(_multipliers(self.dual, u + t * change, soft, stiff) @ change)

        return _length(slope)


def _multipliers(dual: Dual, margins: Array, soft: Array, stiff: Array) -> Array:
    """soft [low - u]+ - stiff [u - high]+."""
    values: Array = soft * np.maximum(dual.low - margins, 0.0) - stiff * np.maximum(margins - dual.high, 0.0)
    return values


def _curvature(dual: Dual, margins: Array, soft: Array, stiff: Array) -> Array:
    values: Array = np.where(margins < dual.low, soft, np.where(margins > dual.high, stiff, 0.0))
    return values
