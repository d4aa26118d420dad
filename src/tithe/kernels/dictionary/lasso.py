"""Codes with a penalty on the sum of their absolute values, by coordinate descent on the Gram matrix."""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.kernels.dictionary.correlations import ATOM_MULTIPLE, as_panels, correlate, correlation_rows
from tithe.kernels.parts import part_rows

_FAST = {"contract", "reassoc", "nsz"}
_TOLERANCE = {"float64": 1e-10, "float32": 1e-5}  # relative to the signal's norm: no coefficient moves by more
_MAX_SWEEPS = 20_000

# for what is called for every row and makes no array: without counting references, which would take half the time
_row_njit = njit(cache=True, nogil=True, fastmath=_FAST, _nrt=False)  # type: ignore[call-overload]


@_row_njit
def _subtract(alpha, i, gram, at, factor):
    for c in range(alpha.shape[1]):
        alpha[i, c] -= factor * gram[at, c]


@_row_njit
def _descend_on_chosen(alpha, i, gram, penalty, positive, close, picks, x, count):
    """Coordinate descent on the chosen atoms until none moves; ``alpha`` holds the correlations of the residual."""
    for _ in range(_MAX_SWEEPS):
        moved = 0.0
        for t in range(count):
            c = picks[t]
            correlation = alpha[i, c] + x[t] * gram[c, c]
            new = max(0.0, abs(correlation) - penalty) / gram[c, c]
            if correlation < 0.0:
                new = 0.0 if positive else -new
            change = new - x[t]
            if change != 0.0:
                _subtract(alpha, i, gram, c, alpha.dtype.type(change))
                x[t] = new
                moved = max(moved, abs(change))
        if moved <= close:
            return


@njit(cache=True, nogil=True)
def _thin_out(atoms, picks, x, count):
    """Reduce a code of more atoms than columns to an equally good one of d atoms; returns their number.

    Among d + 1 atoms there are z with sum_t z_t atom_t = 0. Along z, on the side where |x|_1 does not grow, nothing
    changes but x, until an entry vanishes.
    """
    d = atoms.shape[1]
    chosen_atoms = np.empty((d, d + 1))
    while count > d:
        for t in range(d + 1):
            for j in range(d):
                chosen_atoms[j, t] = atoms[picks[t], j]
        z = np.linalg.svd(chosen_atoms, full_matrices=True)[2][d]
        side = -1.0 if (np.sign(x[: d + 1]) * z).sum() > 0.0 else 1.0
        step, dropped = np.inf, -1
        for t in range(d + 1):
            fall = -side * z[t] * np.sign(x[t])
            if fall > 0.0 and abs(x[t]) / fall < step:
                step, dropped = abs(x[t]) / fall, t
        if dropped < 0:  # no entry falls by more than rounding
            dropped = np.argmin(np.abs(x[: d + 1]))
            step = 0.0
        for t in range(d + 1):
            x[t] += side * step * z[t]
        count -= 1
        picks[dropped], x[dropped] = picks[count], x[count]
    return count


@njit(cache=True, nogil=True, fastmath=_FAST)
def _descend(alpha, i, atoms, gram, penalty, positive, close, picks, x, taken):
    """One signal: the atom that violates the conditions most joins, until none does."""
    count = np.int64(0)
    for c in range(len(taken)):
        taken[c] = False
    for _ in range(4 * alpha.shape[1]):
        best, size = -1, penalty + close
        for c in range(alpha.shape[1]):
            correlation = alpha[i, c] if positive else abs(alpha[i, c])
            if correlation > size and not taken[c]:
                best, size = c, correlation
        if best < 0 or count == len(picks):
            break
        picks[count], x[count], taken[best] = best, 0.0, True
        count += 1
        _descend_on_chosen(alpha, i, gram, penalty, positive, close, picks, x, count)
        n_kept = np.int64(0)  # a plain 0 is a type of its own, for which _thin_out is compiled again
        for t in range(count):
            if x[t] != 0.0:
                picks[n_kept], x[n_kept] = picks[t], x[t]
                n_kept += 1
            else:
                taken[picks[t]] = False
        count = n_kept
        if count > atoms.shape[1]:
            count = _thin_out(atoms, picks, x, count)
            taken[:] = False
            for t in range(count):
                taken[picks[t]] = True
    return count


@njit(cache=True, nogil=True, fastmath=_FAST)
def _code(X, first, last, alpha, atoms, gram, penalty, positive, relative, into):
    """Codes of rows first to last, whose correlations are the first rows of ``alpha``."""
    chosen, values, error, residual = into
    d, k, max_atoms = X.shape[1], gram.shape[0], chosen.shape[1]
    # on its way a code may have more entries than it ends with
    picks, x, rest, taken = np.empty(k, np.int64), np.empty(k), np.empty(d), np.empty(k, np.bool_)
    for row in range(first, last):
        energy = 0.0
        for j in range(d):
            rest[j] = X[row, j]
            energy += rest[j] * rest[j]
        close = relative * np.sqrt(energy)
        count = _descend(alpha, row - first, atoms, gram, penalty, positive, close, picks, x, taken)
        for t in range(max_atoms):
            chosen[row, t] = picks[t] if t < count else -1
            values[row, t] = x[t] if t < count else 0.0
        for t in range(count):
            for j in range(d):
                rest[j] -= x[t] * atoms[picks[t], j]
        square = 0.0
        for j in range(d):
            square += rest[j] * rest[j]
        error[row] = square
        if residual.shape[0] > 0:
            for j in range(d):
                residual[row, j] = rest[j]


def lasso_codes(
    X: Array,
    atoms: Array,
    *,
    penalty: float,
    positive: bool = False,
    with_residual: bool = False,
    into: tuple[Array, Array, Array, Array] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Codes that minimise |y - a D|^2 / 2 + penalty |a|_1 for each row y of ``X``, as `pursue` returns them.

    A code has at most min(k, d) entries: more are never needed.
    """
    n, d = X.shape
    max_atoms, k = min(len(atoms), d), -(-len(atoms) // ATOM_MULTIPLE) * ATOM_MULTIPLE
    X = np.ascontiguousarray(X)
    atoms = np.concatenate([atoms, np.zeros((k - len(atoms), d))]).astype(X.dtype)  # no atom of zeros is ever chosen
    exact = atoms.astype(np.float64)
    if into is None:
        residual = np.empty((n if with_residual else 0, d), X.dtype)
        into = np.empty((n, max_atoms), np.int32), np.empty((n, max_atoms), X.dtype), np.empty(n), residual
    panels, rows, chunk_rows = as_panels(atoms), part_rows(n, 1), correlation_rows(k, X.itemsize)
    close = _TOLERANCE[X.dtype.name]
    with single_blas_thread():
        gram = np.ascontiguousarray(exact @ exact.T).astype(X.dtype)

    def run(first: int, last: int) -> None:
        alpha, stop = np.empty((chunk_rows, k), X.dtype), min(n, last * rows)
        for start in range(first * rows, stop, chunk_rows):
            end = min(stop, start + chunk_rows)
            correlate(X, panels, start, end, alpha)
            _code(X, start, end, alpha, atoms, gram, penalty, positive, close, into)

    over_parts(run, -(-n // rows), serial=n * k * d < 1_000_000)
    return into
