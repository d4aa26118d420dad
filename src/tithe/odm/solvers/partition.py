"""Two classes and many rows: machines of parts of the rows, merged into the machine of all rows.

After Wang et al., "Scalable optimal margin distribution machine" (IJCAI 2023). Every part looks like the whole, so
the mean of the machines of all parts is near the machine of all rows. What is left is done by a few products with the
whole kernel matrix (`SubspaceSearch`), which is never stored beyond the cache.

Measured on 8,000 rows of Covertype (relative gaps): the mean of 4 machines is at .029, that of 16 at .13, and one
product later they are at 7e-6 and 3e-5. Parts are therefore merged in pairs only up to 4,096 rows, where that is cheap,
and then all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from tithe.core.data import Array
from tithe.core.engine import Engine
from tithe.core.parallel import single_blas_thread
from tithe.core.seeding import rng_for
from tithe.odm.solvers.kernel_matrix import Gram
from tithe.odm.solvers.landmarks import Landmarks, choose_landmarks, chunks_of
from tithe.odm.solvers.subspace import SubspaceSearch
from tithe.odm.solvers.two_classes import MAX_DIRECT_ROWS, Dual, KernelSolution, solve_two_classes

PARTITIONS = ("stratified", "random", "kmeans")
_MIN_LIMIT, _MAX_LIMIT, _ROWS_PER_LANDMARK = 1000, 2000, 25  # of the number of landmarks, which save products
_ENOUGH = 0.1  # share of 1 / C: landmarks that take less than this from the trace hardly speed up a step
_N_STRATA = 50  # landmarks that rows are grouped around
_MAX_PART_ROWS = 4096  # rows of a part, and of merged parts that are solved again
_MAX_CLUSTERED_ROWS = 5000  # rows that k-means learns its centres from
_PART_TOL = 0.02  # relative gap of a part: the mean of the parts is about as far from the solution
_PART_ROUNDS = 4  # of a part, even if the gap is larger then
_MAX_PRODUCTS = 60  # with the whole matrix, after which the direct solver takes over


def solve_partitioned(
    dual: Dual,
    *,
    n_parts: int | None,
    partition: str,
    engine: Engine,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
) -> KernelSolution:
    """The machine to a relative gap of ``tol``, from machines of ``n_parts`` parts; None: of at most 4,096 rows each.

    With one part this is `solve_two_classes`.
    """
    n_rows = len(dual.sign)
    n_parts = -(-n_rows // _MAX_PART_ROWS) if n_parts is None else min(n_parts, n_rows)
    if n_parts == 1:
        return solve_two_classes(dual, tol=tol, max_iter=max_iter, rng=rng, free=False)
    seed = int(rng.integers(0, 2**63))
    few_rows = n_rows <= MAX_DIRECT_ROWS
    limit = _N_STRATA if few_rows else min(max(_MIN_LIMIT, n_rows // _ROWS_PER_LANDMARK), _MAX_LIMIT)
    landmarks = choose_landmarks(
        dual.gram,
        rng_for(seed, "landmarks"),
        max_landmarks=min(n_rows, limit),
        enough=_ENOUGH * float(np.median(dual.soft)),
    )
    if not len(landmarks.rows):  # the kernel is zero
        return solve_two_classes(dual, tol=tol, max_iter=max_iter, rng=rng, free=False)
    parts = parts_of(dual, landmarks, n_parts, partition, rng_for(seed, "deal"))
    gamma = merged_parts(dual, parts, engine, seed)
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
        intercept=0.0,
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


def parts_of(dual: Dual, landmarks: Landmarks, n_parts: int, partition: str, rng: np.random.Generator) -> list[Array]:
    """Positions of the rows of each part, in random order; no part is empty."""
    if partition == "kmeans":
        label = _clusters(landmarks.basis[:, :_N_STRATA], n_parts, rng)
        clusters = [rng.permutation(np.flatnonzero(label == k)) for k in range(n_parts)]
        # a cluster may have most of the rows, and the matrix of a part is held: it is cut
        most = 2 * -(-len(label) // n_parts)
        pieces = [np.array_split(rows, -(-len(rows) // most)) for rows in clusters if len(rows)]
        return [rows for cluster in pieces for rows in cluster]
    if partition == "stratified":
        stratum = strata(dual.gram, landmarks.rows[:_N_STRATA], dual.sign)
    else:
        stratum = np.zeros(len(dual.sign), np.int64)
    return deal(stratum, n_parts, rng)


def strata(gram: Gram, landmarks: Array, sign: Array) -> Array:
    """The landmark nearest to each row in the space of the kernel, crossed with the class: (n,)."""
    distance = gram.diagonal()[landmarks] - 2.0 * gram.columns(landmarks)  # less the row's own square, always the same
    number: Array = 2 * distance.argmin(axis=1) + (sign > 0.0)
    return number


def deal(stratum: Array, n_parts: int, rng: np.random.Generator) -> list[Array]:
    """Deal the rows of each stratum, shuffled, to the parts in turn; the next stratum begins where one ended.

    Sizes of parts differ by one row at most, and so do the numbers of rows of any stratum in them.
    """
    shuffled = rng.permutation(len(stratum))
    order = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    return [rng.permutation(order[k::n_parts]) for k in range(n_parts)]


def _clusters(basis: Array, n_clusters: int, rng: np.random.Generator) -> Array:
    """The nearest of some centres for each row of ``basis``, which are found by k-means on a sample of the rows."""
    sample = rng.choice(len(basis), min(len(basis), _MAX_CLUSTERED_ROWS), replace=False)
    kmeans = KMeans(n_clusters, n_init=1, random_state=int(rng.integers(2**31)))
    with threadpool_limits(1), catch_warnings():  # sums of several threads would depend on their number
        simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters
        centres = kmeans.fit(basis[sample].astype(np.float64)).cluster_centers_
    squares = np.einsum("ij,ij->i", centres, centres)
    chunks = chunks_of(len(basis))
    return np.concatenate([(squares - 2.0 * (basis[at] @ centres.T)).argmin(axis=1) for at in chunks])


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
    """Multipliers of all rows: the mean of the machines of the parts, each weighted by its share of the costs.

    Parts are merged in pairs, and solved again from there, while the result has no more than 4,096 rows.
    """
    gamma = solve_level(dual, parts, None, engine, seed)
    while len(parts) > 2 and len(parts[0]) + len(parts[1]) <= _MAX_PART_ROWS:
        parts = [np.concatenate(parts[k : k + 2]) for k in range(0, len(parts), 2)]
        gamma = solve_level(dual, parts, gamma, engine, seed)
    return gamma


def solve_level(dual: Dual, parts: list[Array], gamma: Array | None, engine: Engine, seed: int) -> Array:
    """The mean of the machines of the parts, which start at the multipliers ``gamma`` of all rows."""
    total = float(dual.cost.sum())
    shares = [float(dual.cost[rows].sum()) / total for rows in parts]

    def tasks(first: int) -> Iterator[Callable[[], Part]]:
        for rows, share in zip(parts[first:], shares[first:], strict=True):
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
    for rows, share, result in zip(parts, shares, map_with_retry(engine, tasks, solve_part, len(parts)), strict=True):
        merged[rows] = share * result
    return merged


def map_with_retry(
    engine: Engine, tasks: Callable[[int], Iterator[Any]], work: Callable[[Any, int], Any], n_tasks: int
) -> Iterator[Any]:
    """Results of the engine, in order; the part that fails is tried once more, then a RuntimeError says which it was.

    ``tasks(first)`` gives the tasks from number ``first`` on. An error in the rows or the kernel, a ValueError, is
    raised as it is.
    """
    n_done, last_failure = 0, -1
    while n_done < n_tasks:
        try:
            for result in engine.map(tasks(n_done), partial(_numbered, work, n_done)):
                yield result
                n_done += 1
        except ValueError:
            raise
        except Exception as error:
            if last_failure == n_done:
                raise RuntimeError(
                    f"Part {n_done + 1} of {n_tasks} failed twice with {type(error).__name__}: {error}. The machine is "
                    "not fitted. Check the workers of the engine, or use engine='serial'."
                ) from error
            last_failure = n_done


def _numbered(work: Callable[[Any, int], Any], first: int, task: Any, number: int) -> Any:
    return work(task, first + number)
