"""Two classes and many rows: machines of parts of the rows, merged into the machine of all rows.

After Wang et al., "Scalable optimal margin distribution machine" (IJCAI 2023). Every part looks like the whole, so
the mean of the machines of all parts is near the machine of all rows. What is left is done by a few products with the
whole kernel matrix (`SubspaceSearch`), which is never stored beyond the cache. Parts are merged in pairs only up to
4,096 rows, where that is cheap, and then all at once (docs/tried_and_lost.md has the measurements).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, solve_triangular

from tithe.core.data import Array
from tithe.core.linear_algebra import conjugate_gradients
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.core.params import Instance, OneOf, WholeNumber, check_value
from tithe.core.passes import Engine
from tithe.core.registry import make
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Storable
from tithe.odm.solvers.kernel_matrix import Gram, kernel_not_psd_error, step_length
from tithe.odm.solvers.two_classes import MAX_DIRECT_ROWS, Dual, KernelSolution, solve_two_classes

CHUNK_ROWS = 2048  # rows that are worked on at a time; sums belong to these chunks, whatever the number of threads
_N_CANDIDATES = 128  # rows drawn in each round
_MIN_RESIDUAL = 1e-4  # share of the mean diagonal below which a row is spanned by the landmarks, in single precision
_N_GRAM_SUMS = 8  # sums over chunks that are kept side by side


def chunks_of(n_rows: int) -> list[slice]:
    return [slice(k, min(n_rows, k + CHUNK_ROWS)) for k in range(0, n_rows, CHUNK_ROWS)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Landmarks:
    """K = B B^T + E, B = ``basis`` (n, r) from columns of a few ``rows``; ``residual`` (n,) is the diagonal of E."""

    rows: Array
    basis: Array
    residual: Array

    def times(self, v: Array) -> Array:
        """B v: (n,)."""
        result, v = np.empty(len(self.basis)), v.astype(self.basis.dtype)
        chunks = chunks_of(len(result))

        def work(first: int, last: int) -> None:
            for at in chunks[first:last]:
                result[at] = self.basis[at] @ v

        over_parts(work, len(chunks))
        return result

    def transposed_times(self, x: Array) -> Array:
        """B^T x: (r,)."""
        chunks = chunks_of(len(self.basis))
        parts = np.empty((len(chunks), self.basis.shape[1]))
        x = x.astype(self.basis.dtype)

        def work(first: int, last: int) -> None:
            for number in range(first, last):
                parts[number] = x[chunks[number]] @ self.basis[chunks[number]]

        over_parts(work, len(chunks))
        return np.asarray(parts.sum(axis=0))

    def weighted_gram(self, weight: Array) -> Array:
        """B^T diag(weight) B, weights not negative: (r, r)."""
        chunks, size = chunks_of(len(self.basis)), self.basis.shape[1]
        n_sums = min(_N_GRAM_SUMS, len(chunks))
        sums = np.zeros((n_sums, size, size))
        root = np.sqrt(weight).astype(self.basis.dtype)

        def work(first: int, last: int) -> None:
            for part in range(first, last):
                for at in chunks[part::n_sums]:
                    scaled = self.basis[at] * root[at, None]
                    sums[part] += scaled.T @ scaled

        over_parts(work, n_sums)
        return np.asarray(sums.sum(axis=0))


def choose_landmarks(gram: Gram, rng: np.random.Generator, *, max_landmarks: int, enough: float) -> Landmarks:
    """Landmarks by a pivoted Cholesky factorisation with random pivots, in O(n r^2): the largest are outliers.

    Pivots are drawn in proportion to what earlier landmarks leave of the diagonal. Ends when another landmark lowers
    the trace of E by less than ``enough``.
    """
    n = len(gram)
    residual = gram.diagonal()
    smallest = _MIN_RESIDUAL * float(residual.mean())
    basis = np.empty((n, max_landmarks), gram.function.dtype)
    chosen: list[int] = []
    while len(chosen) < max_landmarks:
        live = np.where(residual > smallest, residual, 0.0)
        live[chosen] = 0.0
        n_drawn = min(_N_CANDIDATES, max_landmarks - len(chosen), int(np.count_nonzero(live)))
        if n_drawn == 0:
            break
        drawn = rng.choice(n, n_drawn, replace=False, p=live / live.sum())
        before = residual.sum()
        new = _add_pivots(gram, basis, len(chosen), drawn, residual, rng)
        chosen.extend(new)
        if not new or before - residual.sum() < enough * len(new):
            break
    size = len(chosen)
    return Landmarks(
        rows=np.array(chosen, np.int64), basis=np.ascontiguousarray(basis[:, :size]), residual=np.maximum(residual, 0.0)
    )


def _add_pivots(
    gram: Gram, basis: Array, size: int, drawn: Array, residual: Array, rng: np.random.Generator
) -> list[int]:
    """Add columns to the basis for some of the ``drawn`` rows, and lower ``residual``; returns these rows."""
    candidates, known = gram.rows.take(drawn), basis[drawn, :size].copy()
    square = np.asarray(gram.function.rectangle(candidates, candidates), np.float64) + gram.constant
    known_square = known.astype(np.float64)
    square -= known_square @ known_square.T
    kept = _accepted(square, residual[drawn], rng)
    if not len(kept):
        return []
    block = square[np.ix_(kept, kept)]
    try:
        low = cholesky(block, lower=True, check_finite=False)
    except LinAlgError:
        raise kernel_not_psd_error() from None
    candidates, known = candidates.take(kept), known[kept]
    inverse = solve_triangular(low, np.eye(len(kept)), lower=True).T.astype(basis.dtype)
    chunks = chunks_of(len(gram))

    def work(first: int, last: int) -> None:
        for at in chunks[first:last]:
            columns = gram.function.rectangle(gram.rows.take(at), candidates)
            columns += gram.constant
            columns -= basis[at, :size] @ known.T
            new = basis[at, size : size + len(kept)]
            np.matmul(columns, inverse, out=new)
            residual[at] -= np.einsum("ij,ij->i", new, new, dtype=np.float64)

    over_parts(work, len(chunks))
    return [int(row) for row in drawn[kept]]


def _accepted(square: Array, drawn_residual: Array, rng: np.random.Generator) -> Array:
    """Positions of the drawn rows that are kept: each with the share of its residual that the kept ones leave it."""
    square = square.copy()
    chances = rng.random(len(square))
    kept = []
    for i in range(len(square)):
        pivot = square[i, i]
        if pivot < 1e-3 * drawn_residual[i] or chances[i] * drawn_residual[i] > pivot:
            continue
        kept.append(i)
        column = square[:, i] / pivot**0.5
        square -= np.outer(column, column)
    return np.array(kept, np.int64)


_MAX_STEPS = 50
_ROUNDING = 1e-13  # share of all costs below which a decrease is rounding


def multipliers(dual: Dual, margins: Array, lower: Array, upper: Array) -> Array:
    """lower [low - u]+ - upper [u - high]+: minus the derivative of the losses of these margins."""
    return np.asarray(lower * np.maximum(dual.low - margins, 0.0) - upper * np.maximum(margins - dual.high, 0.0))


def curvature(dual: Dual, margins: Array, lower: Array, upper: Array) -> Array:
    """The derivative of `multipliers`, with its sign changed."""
    return np.asarray(np.where(margins < dual.low, lower, np.where(margins > dual.high, upper, 0.0)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Span:
    """Multipliers gamma = lengths @ directions, whose margins are u = Q gamma = lengths @ products.

    The primal value is P = gamma . u / 2 + sum of the losses of the margins, the dual value, with C = ``dual.cost``,

        D = sum over gamma > 0 of (low gamma - gamma^2 / 2 C)
            + sum over gamma < 0 of (high gamma - gamma^2 / 2 mu C) - gamma . u / 2.

    Directions and products are (k, n).
    """

    dual: Dual
    directions: Array
    products: Array

    def primal(self, lengths: Array) -> float:
        margins = lengths @ self.products
        return float(self.dual.loss(margins).sum()) + 0.5 * float((lengths @ self.directions) @ margins)

    def dual_value(self, lengths: Array) -> float:
        dual, gamma = self.dual, lengths @ self.directions
        goal, ridge = np.where(gamma > 0.0, dual.low, dual.high), np.where(gamma > 0.0, dual.inverse_cost, 0.0)
        ridge = np.where(gamma < 0.0, dual.inverse_upper, ridge)
        return float(goal @ gamma - 0.5 * (ridge * gamma) @ gamma - 0.5 * gamma @ (lengths @ self.products))

    def lowest_primal(self, lengths: Array) -> Array:
        """Newton's method on P, from these lengths on: it is smooth but for its curvature."""
        dual, upper = self.dual, self.dual.mu * self.dual.cost
        gram = self.directions @ self.products.T
        gram = 0.5 * (gram + gram.T)
        scale = 1.0 / np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
        products, gram = self.products * scale[:, None], gram * scale[:, None] * scale
        lengths = lengths / scale
        for _ in range(_MAX_STEPS):
            margins = lengths @ products
            gradient = gram @ lengths - products @ multipliers(dual, margins, dual.cost, upper)
            hessian = gram + (products * curvature(dual, margins, dual.cost, upper)) @ products.T
            step = np.linalg.lstsq(hessian, -gradient, rcond=1e-13)[0]
            if not -float(gradient @ step) > _ROUNDING * float(dual.cost.sum()):
                break
            lengths = lengths + _primal_length(dual, gram, products, lengths, step) * step
        return np.asarray(lengths * scale)


def _primal_length(dual: Dual, gram: Array, products: Array, lengths: Array, step: Array) -> float:
    margins, straight, change = lengths @ products, gram @ step, step @ products

    def slope(t: float) -> float:
        pull = multipliers(dual, margins + t * change, dual.cost, dual.mu * dual.cost)
        return float((lengths + t * step) @ straight) - float(pull @ change)

    return step_length(slope)


_N_SUMS = 16  # sums of a product that are kept side by side; they do not depend on the number of threads
_MODEL_TOL = 1e-3  # share of its first gradient at which a step of the model is accepted
_MAX_MODEL_STEPS = 30
_MAX_CG_STEPS = 12  # with an old factorisation, after which a new one is made
_CG_ACCURACY = 0.03  # share of the residual at which they stop


def symmetric_product(gram: Gram, coefficients: Array) -> Array:
    """K @ coefficients: (n, k). A square that is not held is computed once and used for both its sides."""
    (slices, square_of), n = gram.upper_squares(), len(gram)
    values = coefficients.astype(gram.function.dtype)
    n_sums = min(_N_SUMS, len(slices))
    sums = np.zeros((n_sums, n, values.shape[1]))

    def work(first: int, last: int) -> None:
        for part in range(first, last):
            total = sums[part]
            for a in range(part, len(slices), n_sums):
                for b in range(a, len(slices)):
                    square = square_of(a, b)
                    total[slices[a]] += square @ values[slices[b]]
                    if a != b:
                        total[slices[b]] += square.T @ values[slices[a]]

    over_parts(work, n_sums)
    return np.asarray(sums.sum(axis=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Point:
    """Multipliers, their margins Q gamma and the primal value: what the machine of these multipliers costs."""

    gamma: Array
    margins: Array
    primal: float


@dataclass(kw_only=True, eq=False)
class SubspaceSearch:
    """Minimises P over the span of all directions so far (`Span`).

    Every pass over K adds two directions: a step that solves the problem with B B^T + diag(E) for K (`Landmarks`),
    whose result is a good dual point (``stepped``), and one towards the multipliers that belong to the present
    margins. ``best`` is the best primal point of the span; no machine costs less than ``bound``, the best dual value.
    """

    dual: Dual
    landmarks: Landmarks
    bound: float = -np.inf
    n_products: int = 0
    best: Point = field(init=False)
    stepped: Point = field(init=False)
    _span: Span = field(init=False)
    _lengths: Array = field(init=False)
    _factor: tuple[Array, bool] | None = None

    def __post_init__(self) -> None:
        nothing = np.zeros((0, len(self.dual.sign)))
        self._span = Span(dual=self.dual, directions=nothing, products=nothing)
        self._lengths = np.zeros(0)

    def start(self, gamma: Array) -> None:
        """Begin with the span of these multipliers and those of the model alone."""
        zero = np.zeros(len(gamma))
        self._expand(Point(gamma=zero, margins=zero, primal=np.inf), [self._model_step(zero, zero), gamma])

    def step(self) -> None:
        """Two more directions from the best point, then the best points of the larger span."""
        gamma, margins, dual = self.best.gamma, self.best.margins, self.dual
        lacking = multipliers(dual, margins, dual.cost, dual.mu * dual.cost) - gamma
        damped = lacking / (1.0 + self.landmarks.residual * dual.cost)
        self._expand(self.best, [self._model_step(gamma, margins), damped])

    def solution(self, tol: float) -> Point | None:
        """A point whose value is within ``tol`` of itself of the bound, or None; rather the last step."""
        for point in (self.stepped, self.best):
            if point.primal - self.bound <= tol * point.primal:
                return point
        return None

    def _expand(self, start: Point, changes: list[Array]) -> None:
        """Add directions that lead away from ``start``, and find the best points of the span."""
        dual, known = self.dual, self._lengths
        signed = dual.sign[:, None] * np.array(changes).T
        products = (dual.sign[:, None] * symmetric_product(dual.gram, signed)).T
        self.n_products += 1
        self._span = Span(
            dual=dual,
            directions=np.vstack([self._span.directions, changes]),
            products=np.vstack([self._span.products, products]),
        )
        candidates = [np.append(known, place) for place in np.eye(len(changes))]
        self.stepped = self._point(candidates[0])
        dual.gamma, dual.score = self.stepped.gamma, dual.sign * self.stepped.margins
        dual.gap()  # checks the kernel
        self._lengths = self._span.lowest_primal(np.append(known, np.full(len(changes), 1.0 / len(changes))))
        self.best = self._point(self._lengths)
        self.bound = max(self.bound, *map(self._span.dual_value, candidates))

    def _point(self, lengths: Array) -> Point:
        span = self._span
        return Point(gamma=lengths @ span.directions, margins=lengths @ span.products, primal=span.primal(lengths))

    def _model_step(self, gamma: Array, margins: Array) -> Array:
        """The change of the multipliers that solves the problem with the model in place of the matrix.

        All multipliers follow from v = B^T change: a smooth convex problem in v, for Newton's method.
        """
        dual, model = self.dual, self.landmarks
        lower, upper = dual.cost, dual.mu * dual.cost
        lower, upper = lower / (1.0 + model.residual * lower), upper / (1.0 + model.residual * upper)
        u, v = margins - model.residual * gamma, np.zeros(model.basis.shape[1])
        first = np.inf
        for number in range(_MAX_MODEL_STEPS):
            gradient = v - model.transposed_times(dual.sign * (multipliers(dual, u, lower, upper) - gamma))
            size = float(np.linalg.norm(gradient))
            first = size if number == 0 else first
            if size <= _MODEL_TOL * first and number > 0:
                break
            step = self._newton_direction(gradient, curvature(dual, u, lower, upper))
            change = dual.sign * model.times(step)
            length = self._model_length(v, u, step, change, gamma, lower, upper)
            v, u = v + length * step, u + length * change
        return multipliers(dual, u, lower, upper) - gamma

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
        return np.asarray(-cho_solve(self._factor, gradient, check_finite=False))

    def _model_length(
        self, v: Array, u: Array, step: Array, change: Array, gamma: Array, lower: Array, upper: Array
    ) -> float:
        start, growth = float(v @ step) + float(gamma @ change), float(step @ step)

        def slope(t: float) -> float:
            return start + t * growth - float(multipliers(self.dual, u + t * change, lower, upper) @ change)

        return step_length(slope)


_MIN_LIMIT, _MAX_LIMIT, _ROWS_PER_LANDMARK = 1000, 2000, 25  # of the number of landmarks, which save products
_ENOUGH = 0.1  # share of 1 / C: landmarks that take less than this from the trace hardly speed up a step
_N_STRATA = 50  # landmarks that rows are grouped around
_MAX_PART_ROWS = 4096  # rows of a part, and of merged parts that are solved again
_PART_TOL = 0.02  # relative gap of a part: the mean of the parts is about as far from the solution
_PART_ROUNDS = 4  # of a part, even if the gap is larger then
_MAX_PRODUCTS = 60  # with the whole matrix, after which the direct solver takes over


@dataclass(frozen=True, kw_only=True)
class PartitionSolver(Storable):
    """A machine of two classes from machines of parts of the rows, each with its share of every class and region.

    Parameters
    ----------
    n_parts : int or "auto"
        "auto": parts of at most 4,096 rows. With one part all rows are solved at once.
    engine : Engine, {"serial", "threads"} or None
        Solves the parts; None is "serial". Every engine gives the same bits.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import ODMClassifier, PartitionSolver
    >>> X = np.random.default_rng(0).normal(size=(600, 2))
    >>> model = ODMClassifier(solver=PartitionSolver(n_parts=3), random_state=0).fit(X, X[:, 0] > 0)
    >>> model.score(X, X[:, 0] > 0) > 0.95
    True
    """

    n_parts: int | str = "auto"
    engine: Any = None

    def __post_init__(self) -> None:
        check_value("n_parts", self.n_parts, OneOf("auto") | WholeNumber(least=1))
        check_value("engine", make("engine", self.engine or "serial"), Instance(Engine, "an engine"))

    def solve(self, dual: Dual, *, tol: float, max_iter: int, rng: np.random.Generator) -> KernelSolution:
        """The machine to a relative gap of ``tol``. With one part this is `solve_two_classes`."""
        n_rows = len(dual.sign)
        n_parts = -(-n_rows // _MAX_PART_ROWS) if isinstance(self.n_parts, str) else min(self.n_parts, n_rows)
        if n_parts == 1:
            return solve_two_classes(dual, tol=tol, max_iter=max_iter, rng=rng, free=False)
        seed = int(rng.integers(0, 2**63))
        few_rows = n_rows <= MAX_DIRECT_ROWS
        limit = _N_STRATA if few_rows else min(max(_MIN_LIMIT, n_rows // _ROWS_PER_LANDMARK), _MAX_LIMIT)
        landmarks = choose_landmarks(
            dual.gram,
            rng_for(seed, "landmarks"),
            max_landmarks=min(n_rows, limit),
            enough=_ENOUGH * float(np.median(dual.inverse_cost)),
        )
        if not len(landmarks.rows):  # the kernel is zero
            return solve_two_classes(dual, tol=tol, max_iter=max_iter, rng=rng, free=False)
        stratum = strata(dual.gram, landmarks.rows[:_N_STRATA], dual.sign)
        parts = deal(stratum, n_parts, rng_for(seed, "deal"))
        gamma = merged_parts(dual, parts, make("engine", self.engine or "serial"), seed)
        if few_rows:
            return _finish(dual, gamma, tol, max_iter, rng, 0)
        return _search(dual, landmarks, gamma, tol, max_iter, rng)


def _search(
    dual: Dual, landmarks: Landmarks, gamma: Array, tol: float, max_iter: int, rng: np.random.Generator
) -> KernelSolution:
    """Products with the whole matrix until the gap is small."""
    search = SubspaceSearch(dual=dual, landmarks=landmarks)
    search.start(gamma)
    while (point := search.solution(tol)) is None:
        if search.n_products >= min(max_iter, _MAX_PRODUCTS):
            return _finish(dual, search.best.gamma, tol, max_iter - search.n_products, rng, search.n_products)
        search.step()
    return KernelSolution(
        coefficients=(dual.sign * point.gamma)[None],
        scores=(dual.sign * point.margins)[:, None],
        function=dual.gram.function,
        gap=max(0.0, point.primal - search.bound),
        primal=point.primal,
        curve=[point.primal],
        n_iter=search.n_products,
    )


def _finish(
    dual: Dual, gamma: Array, tol: float, max_iter: int, rng: np.random.Generator, n_products: int
) -> KernelSolution:
    """The direct solver, from these multipliers on."""
    dual.gamma = gamma if dual.mu > 0.0 else np.maximum(gamma, 0.0)
    dual.renew()
    solution = solve_two_classes(dual, tol=tol, max_iter=max(1, max_iter), rng=rng, free=False)
    return replace(solution, n_iter=solution.n_iter + n_products)


# -- parts -------------------------------------------------------------------------------------


def strata(gram: Gram, landmarks: Array, sign: Array) -> Array:
    """The landmark nearest to each row in the space of the kernel, crossed with the class: (n,)."""
    distance = gram.diagonal()[landmarks] - 2.0 * gram.columns(landmarks)  # less the row's own square, always the same
    return np.asarray(2 * distance.argmin(axis=1) + (sign > 0.0))


def deal(stratum: Array, n_parts: int, rng: np.random.Generator) -> list[Array]:
    """Deal the rows of each stratum, shuffled, to the parts in turn; the next stratum begins where one ended."""
    shuffled = rng.permutation(len(stratum))
    order = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    return [rng.permutation(order[k::n_parts]) for k in range(n_parts)]


# -- machines of parts -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """The problem of some of the rows, with costs as if they were all, and where to start. It can be pickled."""

    function: Any
    X: Any
    constant: float
    sign: Array
    cost: Array
    mu: float
    theta: float
    gamma: Array | None
    seed: int
    cache_bytes: float

    def __call__(self) -> Part:
        return self


def solve_part(part: Part, number: int) -> Array:
    """The multipliers of part ``number``: (n,)."""
    size = len(part.sign)
    gram = Gram(part.function, part.X, constant=part.constant, cache_bytes=min(8.0 * size * size, part.cache_bytes))
    dual = Dual(gram=gram, sign=part.sign, cost=part.cost, mu=part.mu, theta=part.theta)
    with single_blas_thread():  # another process does not know that the caller has asked for it
        if part.gamma is not None:
            dual.gamma = part.gamma
            dual.renew()
        rng = rng_for(part.seed, "part", size, number)
        solve_two_classes(dual, tol=_PART_TOL, max_iter=_PART_ROUNDS, rng=rng, free=False)
    return dual.gamma


def merged_parts(dual: Dual, parts: list[Array], engine: Engine, seed: int) -> Array:
    """Multipliers of all rows: the weighted mean of the machines of parts, merged in pairs up to 4,096 rows."""
    gamma = solve_level(dual, parts, None, engine, seed)
    while len(parts) > 2 and len(parts[0]) + len(parts[1]) <= _MAX_PART_ROWS:
        parts = [np.concatenate(parts[k : k + 2]) for k in range(0, len(parts), 2)]
        gamma = solve_level(dual, parts, gamma, engine, seed)
    return gamma


def solve_level(dual: Dual, parts: list[Array], gamma: Array | None, engine: Engine, seed: int) -> Array:
    """The mean of the machines of the parts, which start at the multipliers ``gamma`` of all rows."""
    total = float(dual.cost.sum())
    shares = [float(dual.cost[rows].sum()) / total for rows in parts]

    def tasks() -> Iterator[Part]:
        for rows, share in zip(parts, shares, strict=True):
            function, X = dual.gram.function.restricted(dual.gram.X[rows])
            yield Part(
                function=function,
                X=X,
                constant=dual.gram.constant,
                sign=dual.sign[rows],
                cost=dual.cost[rows] / share,
                mu=dual.mu,
                theta=dual.theta,
                gamma=None if gamma is None else gamma[rows] / share,
                seed=seed,
                cache_bytes=0.5 * dual.gram.cache_bytes,  # two parts may be solved at once
            )

    merged = np.zeros(len(dual.sign))
    for rows, share, result in zip(parts, shares, engine.map(tasks(), solve_part), strict=True):
        merged[rows] = share * result
    return merged
