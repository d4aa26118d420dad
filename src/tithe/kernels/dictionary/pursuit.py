"""Orthogonal matching pursuit of many signals at once: Batch-OMP, plain and non-negative.

All correlations of some signals come from one product of matrices, with the same bits wherever a signal
stands (`correlate`). From there on a signal needs no row of the dictionary any more, only of its Gram
matrix: with q_t the new direction, orthogonal to those before, the correlations V_t = D q_t of all atoms
follow from the Gram matrix by the same step of Gram and Schmidt that gives q_t, and what is left of the
correlations is alpha - (q_t . y) V_t. The entries of the Cholesky factor can be read off V (Rubinstein,
Zibulevsky and Elad 2008 solve for them).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.kernels.dictionary.correlations import ATOM_MULTIPLE, as_panels, correlate, correlation_rows
from tithe.kernels.parts import part_rows

Codes = tuple[Array, Array, Array, Array]  # atoms chosen, coefficients, squared errors, residuals

_FAST = {"contract", "reassoc", "nsz", "nnan"}
_RECOMPUTED_SHARE = {
    "float64": 1e-8,
    "float32": 1e-3,
}  # share of the energy that is only known from the residual itself
_MIN_SQUARE = {"float64": 1e-14, "float32": 1e-5}  # squared distance from the chosen atoms' span that counts as none
_LANES = ATOM_MULTIPLE  # the atoms are filled up with zeros to a multiple of it
_ROUNDINGS = 64.0  # correlations below this multiple of the rounding of the signal's norm count as zero

# for what is called for every row and makes no array: without counting references, which would take half the time
_row_njit = njit(cache=True, nogil=True, fastmath=_FAST, _nrt=False)  # type: ignore[call-overload]


@_row_njit
def _solve_up(low, dots, count, x):
    """x with low' x = along, low the lower triangle of the Cholesky factor."""
    for t in range(count - 1, -1, -1):
        total = dots[t]
        for s in range(t + 1, count):
            total -= low[s, t] * x[s]
        x[t] = total / low[t, t]


@_row_njit
def _residual(rows, i, atoms, picks, x, count, rest):
    """The residual of a signal with the chosen atoms; returns its square."""
    d = rows.shape[1]
    for j in range(d):
        rest[j] = rows[i, j]
    for t in range(count):
        value, c = x[t], picks[t]
        for j in range(d):
            rest[j] -= value * atoms[c, j]
    square = 0.0
    for j in range(d):
        square += rest[j] * rest[j]
    return square


# The next three run over all atoms, and are where the time goes. Compilers do not turn a largest value with its
# place into vector instructions, so lanes keep the largest value of every sixteenth atom.


@_row_njit
def _largest(alpha, i, lanes):
    for j in range(_LANES):
        lanes[j] = 0.0
    for b in range(0, alpha.shape[1], _LANES):
        for j in range(_LANES):
            size = abs(alpha[i, b + j])
            lanes[j] = size if size > lanes[j] else lanes[j]


@_row_njit
def _find(alpha, i, lanes, floor):
    """The atom with the largest correlation, -1 if it is below the floor."""
    a, b = lanes[0], lanes[1]
    for j in range(2, _LANES, 2):
        a = lanes[j] if lanes[j] > a else a
        b = lanes[j + 1] if lanes[j + 1] > b else b
    top = a if a > b else b
    if top > floor:
        lane = 0
        while lanes[lane] != top:
            lane += 1
        for c in range(lane, alpha.shape[1], _LANES):
            if abs(alpha[i, c]) == top:
                return c
    return -1


@_row_njit
def _advance(alpha, i, V, last, gram, at, low, step, lanes):
    """The new direction against all atoms, its share taken out of the correlations, and the largest of these."""
    number = alpha.dtype.type
    k = alpha.shape[1]
    scale = number(1.0 / low[last, last])
    w = number(low[last, 0] if last > 0 else 0.0)
    for c in range(k):
        V[last, c] = gram[at, c] - w * V[0, c]
    for t in range(1, last):
        w = number(low[last, t])
        for c in range(k):
            V[last, c] -= w * V[t, c]
    for j in range(_LANES):
        lanes[j] = 0.0
    for b in range(0, k, _LANES):
        for j in range(_LANES):
            v = V[last, b + j] * scale
            V[last, b + j] = v
            rest = alpha[i, b + j] - step * v
            alpha[i, b + j] = rest
            size = abs(rest)
            lanes[j] = size if size > lanes[j] else lanes[j]


@_row_njit
def _omp(
    rows, row, i, atoms, gram, alpha, energy, limit, target, cancels, thin, floor, V, lanes, low, dots, picks, x, rest
):
    """Chooses and solves for one signal; returns how many atoms it took. Its correlations are used up."""
    error = energy
    count = np.int64(0)
    _largest(alpha, i, lanes)
    while count < limit:
        c = _find(alpha, i, lanes, floor)
        if c < 0:
            break
        square = np.float64(gram[c, c])
        for t in range(count):
            w = np.float64(V[t, c])
            low[count, t] = w
            square -= w * w
        if square <= thin:
            break
        side = np.sqrt(square)
        dots[count] = alpha[i, c] / side
        low[count, count] = side
        picks[count] = c
        error -= dots[count] * dots[count]
        count += 1
        if target > 0.0 and error < cancels * energy:
            _solve_up(low, dots, count, x)
            error = _residual(rows, row, atoms, picks, x, count, rest)
        if count == limit or (target > 0.0 and error <= target):
            break
        _advance(alpha, i, V, count - 1, gram, c, low, alpha.dtype.type(dots[count - 1]), lanes)
        for t in range(count):
            alpha[i, picks[t]] = 0.0
    _solve_up(low, dots, count, x)
    return count


@_row_njit
def _least_squares(gram, picks, b, active, n_active, thin, low, dots, s):
    """The plain solution on the active atoms; the number of one that depends on those before, or -1."""
    for p in range(n_active):
        row = picks[active[p]]
        for q in range(p):
            total = np.float64(gram[row, picks[active[q]]])
            for t in range(q):
                total -= low[p, t] * low[q, t]
            low[p, q] = total / low[q, q]
        square = np.float64(gram[row, row])
        total = b[active[p]]
        for t in range(p):
            square -= low[p, t] * low[p, t]
            total -= low[p, t] * dots[t]
        if square <= thin:
            return p
        low[p, p] = np.sqrt(square)
        dots[p] = total / low[p, p]
    _solve_up(low, dots, n_active, s)
    return -1


@_row_njit
def _nnls(gram, picks, b, count, thin, slack, x, inside, active, low, dots, s):
    """Lawson and Hanson's method on the chosen atoms, from the solution without the newest one."""
    inside[count - 1] = True
    for _ in range(10 * count):  # it needs some two rounds for each atom; rounding must not make it turn for ever
        n_active = np.int64(0)  # a plain 0 is a type of its own, for which all that is called is compiled again
        for t in range(count):
            if inside[t]:
                active[n_active] = t
                n_active += 1
        dependent = _least_squares(gram, picks, b, active, n_active, thin, low, dots, s)
        if dependent >= 0:
            inside[active[dependent]] = False
            x[active[dependent]] = 0.0
            continue
        share = 1.0
        for p in range(n_active):
            if s[p] <= 0.0:
                share = min(share, x[active[p]] / (x[active[p]] - s[p]) if x[active[p]] > 0.0 else 0.0)
        for p in range(n_active):
            t = active[p]
            x[t] += share * (s[p] - x[t])
            if s[p] <= 0.0 and x[t] <= slack:
                inside[t] = False
                x[t] = 0.0
        if share < 1.0:
            continue
        largest, enter = slack, -1
        for t in range(count):
            if not inside[t]:
                gradient = b[t]
                for p in range(n_active):
                    gradient -= gram[picks[t], picks[active[p]]] * x[active[p]]
                if gradient > largest:
                    largest, enter = gradient, t
        if enter < 0:
            return
        inside[enter] = True


@njit(cache=True, nogil=True, fastmath=_FAST)
def _positive(rows, i, atoms, gram, alpha, limit, target, thin, floor, corr, low, dots, picks, x, rest, b):
    """Non-negative pursuit of one signal: the atom of largest correlation, then least squares >= 0 on all chosen."""
    inside, active, s = np.zeros(limit, np.bool_), np.empty(limit, np.int64), np.empty(limit)
    for c in range(len(corr)):
        corr[c] = alpha[c]
    count = 0
    while count < limit:
        j = np.argmax(corr)
        if not corr[j] > floor:
            break
        picks[count] = j
        b[count] = alpha[j]
        x[count] = 0.0
        count += 1
        _nnls(gram, picks, b, count, thin, floor, x, inside, active, low, dots, s)
        if target > 0.0 and _residual(rows, i, atoms, picks, x, count, rest) <= target:
            break
        for c in range(len(corr)):
            corr[c] = alpha[c]
        for t in range(count):
            value = alpha.dtype.type(x[t])
            for c in range(len(corr)):
                corr[c] -= value * gram[picks[t], c]
        for t in range(count):
            corr[picks[t]] = 0.0
    n_kept = 0  # atoms that were chosen and then not needed are left out
    for t in range(count):
        if x[t] > 0.0:
            picks[n_kept], x[n_kept] = picks[t], x[t]
            n_kept += 1
    return n_kept


@_row_njit
def _put(row, picks, x, count, rest, into):
    chosen, values, _error, residual = into
    for t in range(chosen.shape[1]):
        chosen[row, t] = picks[t] if t < count else -1
        values[row, t] = x[t] if t < count else 0.0
    if residual.shape[0] > 0:
        for j in range(len(rest)):
            residual[row, j] = rest[j]


# Two functions, as most callers need only the first, and a function that is not called is not compiled. Both find
# codes of rows first to last, whose correlations are the first rows of alpha.


@njit(cache=True, nogil=True, fastmath=_FAST)
def _code(X, first, last, alpha, atoms, gram, limit, target, cancels, thin, slack, into):
    V, lanes = np.zeros((limit, gram.shape[0]), atoms.dtype), np.empty(_LANES, atoms.dtype)
    low, dots, x = np.empty((limit, limit)), np.empty(limit), np.empty(limit)
    picks, rest = np.empty(limit, np.int64), np.empty(X.shape[1])
    for row in range(first, last):
        energy = 0.0
        for j in range(X.shape[1]):
            energy += np.float64(X[row, j]) * X[row, j]
        floor, count = slack * np.sqrt(energy), 0
        if energy > target:
            count = _omp(
                X, row, row - first, atoms, gram, alpha, energy, limit, target, cancels, thin, floor, V, lanes,
                low, dots, picks, x, rest,
            )  # fmt: skip
        into[2][row] = _residual(X, row, atoms, picks, x, count, rest)
        _put(row, picks, x, count, rest, into)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _code_positive(X, first, last, alpha, atoms, gram, limit, target, cancels, thin, slack, into):
    corr = np.empty(gram.shape[0], atoms.dtype)
    low, dots, x, b = np.empty((limit, limit)), np.empty(limit), np.empty(limit), np.empty(limit)
    picks, rest = np.empty(limit, np.int64), np.empty(X.shape[1])
    for row in range(first, last):
        energy = 0.0
        for j in range(X.shape[1]):
            energy += np.float64(X[row, j]) * X[row, j]
        floor, count = slack * np.sqrt(energy), 0
        if energy > target:
            products = alpha[row - first]
            count = _positive(
                X, row, atoms, gram, products, limit, target, thin, floor, corr, low, dots, picks, x, rest, b
            )
        into[2][row] = _residual(X, row, atoms, picks, x, count, rest)
        _put(row, picks, x, count, rest, into)


def code_arrays(n: int, limit: int, d: int, dtype: Any, *, with_residual: bool) -> Codes:
    """Arrays for the codes of n signals, to be used again: new memory costs as much as a pursuit."""
    residual = np.empty((n if with_residual else 0, d), dtype)
    return np.empty((n, limit), np.int32), np.empty((n, limit), dtype), np.empty(n), residual


def pursue(
    X: Array,
    atoms: Array,
    *,
    n_nonzero: int,
    target: float = 0.0,
    positive: bool = False,
    with_residual: bool = False,
    into: Codes | None = None,
) -> Codes:
    """Sparse codes of the rows of ``X`` (n, d) in the unit rows of ``atoms`` (k, d), greedily.

    A row takes atoms until it has ``n_nonzero`` of them, its squared error is ``target`` or less, or
    no atom can reduce the error. ``positive``: with coefficients >= 0 only.

    Returns the atoms chosen (n, n_nonzero) int32, -1 where fewer were needed, their coefficients, the
    squared errors (n,) float64, computed from the residuals, and these (n, d), or (0, d) if they are not
    wanted. ``into``: arrays of `code_arrays` or of an earlier call that are used again.
    """
    n, d = X.shape
    k = -(-len(atoms) // _LANES) * _LANES
    X = np.ascontiguousarray(X)
    atoms = np.concatenate([atoms, np.zeros((k - len(atoms), d))]).astype(X.dtype)
    exact = atoms.astype(np.float64)
    into = code_arrays(n, n_nonzero, d, X.dtype, with_residual=with_residual) if into is None else into
    panels, rows, chunk_rows = as_panels(atoms), part_rows(n, 1), correlation_rows(k, X.itemsize)
    limits = _RECOMPUTED_SHARE[X.dtype.name], _MIN_SQUARE[X.dtype.name], _ROUNDINGS * float(np.finfo(X.dtype).eps)
    with single_blas_thread():
        gram = np.ascontiguousarray(exact @ exact.T).astype(X.dtype)

    code = _code_positive if positive else _code

    def run(first: int, last: int) -> None:
        alpha, stop = np.empty((chunk_rows, k), X.dtype), min(n, last * rows)
        for start in range(first * rows, stop, chunk_rows):
            end = min(stop, start + chunk_rows)
            correlate(X, panels, start, end, alpha)
            code(X, start, end, alpha, atoms, gram, n_nonzero, target, *limits, into)

    over_parts(run, -(-n // rows), serial=n * k * (d + n_nonzero) < 4_000_000)
    return into
