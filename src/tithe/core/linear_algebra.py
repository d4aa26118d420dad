"""Conjugate gradients, a jittered Cholesky factorisation, and the curvature of losses of linear scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cholesky

from tithe.core.data import Array, Block
from tithe.core.gram import row_reach, weighted_gram
from tithe.core.parallel import over_parts

MAX_COORDINATES = 1000  # coordinates beyond which a curvature is kept in blocks, or as a diagonal
_CHUNK_ROWS = 16_384
_GRAM_ROWS = 2048  # multiplied at a time: their products stay in the cache
_MAX_CHUNKS = 8  # runs of rows that a curvature is added up in
EXACT_WORK = 20_000_000  # products up to which all are taken in double precision
_LEFT_OUT = 1e-3  # of the mean curvature of a score, that rows may have and yet be left out
_DENSE_SHARE = 0.1  # share of stored entries from which sparse rows are better multiplied as dense ones


def growing(first: float) -> Iterator[float]:
    """first, 100 first, 10,000 first, ... without end."""
    while True:
        yield first
        first *= 100.0


def jittered_cholesky(matrix: Array, jitters: Iterable[float]) -> Array:
    """The lower Cholesky factor of ``matrix + jitter * identity`` for the first jitter that makes it definite.

    Raises `scipy.linalg.LinAlgError` if none does.
    """
    for jitter in jitters:
        try:
            lower: Array = cholesky(matrix + jitter * np.eye(len(matrix)), lower=True, check_finite=False)
            return lower
        except LinAlgError:
            continue
    raise LinAlgError("The matrix is not positive definite.")


def conjugate_gradients(
    product: Callable[[Array], Array],
    right: Array,
    *,
    precondition: Callable[[Array], Array],
    is_small: Callable[[Array, float], bool],
    max_steps: int,
    start: Array | None = None,
) -> tuple[Array, bool]:
    """x with A x = right for a positive definite A, and whether A was definite along all directions tried.

    Parameters
    ----------
    product : callable
        A times a vector.
    precondition : callable
        An approximate inverse of A times a vector.
    is_small : callable
        Takes the residual r and r . precondition(r); the iteration stops when it returns True.
    """
    if start is None:
        x, residual = np.zeros_like(right), right.copy()
    else:
        x, residual = start.copy(), right - product(start)
    preconditioned = precondition(residual)
    direction, size = preconditioned, float(residual @ preconditioned)
    for _ in range(max_steps):
        if size == 0.0 or is_small(residual, size):
            break
        image = product(direction)
        curvature = float(direction @ image)
        if not curvature > 0.0:
            return x, False
        length = size / curvature
        x += length * direction
        residual -= length * image
        preconditioned = precondition(residual)
        previous, size = size, float(residual @ preconditioned)
        direction = preconditioned + (size / previous) * direction
    return x, True


def curvature_cost(block: Block, n_margins: int) -> int:
    """Products that `curvature_blocks` takes."""
    size = block.n_features + 1
    if size > MAX_COORDINATES:
        return 0
    pairs = n_margins * (n_margins + 1) // 2 if n_margins * size <= MAX_COORDINATES else n_margins
    if sparse.issparse(block.X) and block.X.nnz <= _DENSE_SHARE * len(block) * block.n_features:
        work: int = pairs * block.X.nnz * -(-block.X.nnz // len(block))
        return work
    return pairs * len(block) * size * size


def curvature_blocks(
    block: Block,
    second: Array,
    cross: Callable[[int, int, Any], Array],
    centre: Array | None = None,
    *,
    exact: bool = False,
) -> Array | None:
    """The whole second derivative (1, k(d+1), k(d+1)), its blocks (k, d+1, d+1), or None where too wide.

    For scores a and b, rows count with bend_a, bend (n, k), if a = b, and else with ``cross(a, b, rows)``;
    both contain their weights. Columns are those of the rows less ``centre``. What is next to nothing may be left out
    unless the result is to be ``exact``.
    """
    k, size = second.shape[1], block.n_features + 1
    if size > MAX_COORDINATES:
        return None
    is_full = k * size <= MAX_COORDINATES
    sparse_rows = sparse.issparse(block.X) and block.X.nnz <= _DENSE_SHARE * len(block) * block.n_features
    if not exact and k == 1 and (sparse_rows or curvature_cost(block, 1) > EXACT_WORK):
        return weighted_gram(block.X, np.ascontiguousarray(second[:, 0]), centre)[None]
    if not exact and k > 2 and is_full and curvature_cost(block, k) > EXACT_WORK:
        return _of_differences(block, second, cross, centre)[None]
    pairs = [(a, b) for a in range(k) for b in (range(a, k) if is_full else (a,))]
    # one margin: runs of rows side by side; more: pairs of margins. Sums never depend on the number of threads
    chunk = max(_CHUNK_ROWS // 8, -(-len(block) // _MAX_CHUNKS)) if k == 1 else len(block)
    tasks = [(pair, start) for pair in pairs for start in range(0, len(block), chunk)]
    products: list[Array] = [np.empty(0)] * len(tasks)

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            (a, b), start = tasks[number]
            at = slice(start, start + chunk)
            mixed = second[at, a] if a == b else cross(a, b, at)
            products[number] = _gram(block.X[at], mixed, centre)

    over_parts(run, len(tasks), serial=len(block) * size * len(pairs) < 50_000)
    if not is_full:
        return np.array(products)
    hessian = np.zeros((k, size, k, size))
    for ((a, b), _), product in zip(tasks, products, strict=True):
        hessian[a, :, b] += product
        if a != b:
            hessian[b, :, a] += product.T
    return hessian.reshape(1, k * size, k * size)


def _of_differences(
    block: Block, second: Array, cross: Callable[[int, int, Any], Array], centre: Array | None
) -> Array:
    """The same for losses that do not change where all scores of a row do: sums over pairs of scores, (k(d+1), k(d+1)).

    H = sum over a < b of w_ab (e_a - e_b)(e_a - e_b)^T x x^T with w_ab = -``cross(a, b)``. Most rows are between few
    classes: those whose w_ab is next to nothing are left out, no more than a thousandth of what a class has. H is then
    too small by as little, and certificates are too large rather than too small.
    """
    k, size = second.shape[1], block.n_features + 1
    hessian = np.zeros((k, size, k, size))
    least, reach = _LEFT_OUT / k * second.mean(axis=0), np.maximum(1.0, row_reach(block.X, centre))
    order = np.argsort(least)
    for rank, a in enumerate(order):
        near = np.flatnonzero(second[:, a] * reach > least[a])  # w_ab is at most the curvature of either score
        for b in order[rank + 1 :]:
            weight = -cross(a, b, near)
            if (weight >= 0.0).all():
                kept = weight * reach[near] > least[a]
                product = weighted_gram(block.X[near[kept]], weight[kept], centre)
            else:
                product = _gram(block.X, -cross(a, b, slice(None)), centre)
            hessian[a, :, a] += product
            hessian[b, :, b] += product
            hessian[a, :, b] -= product
            hessian[b, :, a] -= product
    return hessian.reshape(k * size, k * size)


def effective_support(X: Any, second: Array, centre: Array | None = None) -> Array:
    """Effective number of rows behind the diagonal of the curvature, (sum b)^2 / sum b^2: (k, d + 1).

    b = bend (x - centre, 1)^2.
    """
    is_sparse = sparse.issparse(X)
    origin = 0.0 if is_sparse or centre is None else centre
    if is_sparse:
        largest = np.abs(X).max(axis=0).toarray().ravel()
    else:
        largest = np.maximum(np.abs(X.max(axis=0) - origin), np.abs(X.min(axis=0) - origin))
    scale = 1.0 / np.where(largest > 0.0, largest, 1.0)  # fourth powers overflow sooner than anything else
    k, d = second.shape[1], X.shape[1]
    sums = np.column_stack([np.zeros((k, d)), second.sum(axis=0)])
    squares = np.column_stack([np.zeros((k, d)), (second * second).sum(axis=0)])
    step = _CHUNK_ROWS if is_sparse else _GRAM_ROWS
    for start in range(0, X.shape[0], step):
        at = slice(start, start + step)
        rows = X[at].astype(np.float64)
        if is_sparse:
            rows = rows.multiply(scale).tocsr()
            square = rows.multiply(rows)
            fourth = square.multiply(square)
        else:
            rows -= origin
            rows *= scale
            square = np.square(rows, out=rows)
        sums[:, :-1] += (square.T @ second[at]).T
        if not is_sparse:
            fourth = np.square(square, out=square)
        squares[:, :-1] += (fourth.T @ second[at] ** 2).T
    support: Array = np.divide(sums * sums, squares, out=np.zeros_like(sums), where=squares > 0.0)
    return support


def _gram(X: Any, weight: Array, centre: Array | None) -> Array:
    """sum of weight (x - centre, 1)(x - centre, 1)^T: (d + 1, d + 1)."""
    d = X.shape[1]
    gram = np.zeros((d + 1, d + 1))
    if sparse.issparse(X) and X.nnz > _DENSE_SHARE * X.shape[0] * d:
        X = X.toarray()
    if sparse.issparse(X):
        rows = X.astype(np.float64, copy=False)
        gram[:d, :d] = (rows.multiply(weight[:, None]).tocsr().T @ rows).toarray()
        gram[:d, d] = gram[d, :d] = rows.T @ weight
        gram[d, d] = weight.sum()
        return gram
    # with the roots of the weights this is a product of rows with themselves, which takes half the work
    root = np.sqrt(weight) if (weight >= 0.0).all() else None
    unweighted = bool((weight == 1.0).all())
    wide = np.ones((min(len(weight), _GRAM_ROWS), d + 1))
    for start in range(0, len(weight), _GRAM_ROWS):
        stop = min(start + _GRAM_ROWS, len(weight))
        rows = wide[: stop - start]
        np.subtract(X[start:stop], 0.0 if centre is None else centre, out=rows[:, :d])
        if root is None:
            gram += (rows * weight[start:stop, None]).T @ rows
        else:
            rows[:, d] = 1.0
            if not unweighted:
                rows *= root[start:stop, None]
            gram += rows.T @ rows
    return gram
