"""Loops over the atoms of a dictionary: updates, and distances of subspaces."""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import over_parts, part_rows, single_blas_thread

_RUN_USERS = 4096  # users whose sums are added in one go
_MAX_SERIAL_NUMBERS = 2_000_000  # numbers in the residuals of all users up to which one thread is faster
_NONNEGATIVE_ROUNDS = 30  # alternations of a non-negative atom and its coefficients where the best pair is wanted
_POWER_STEPS = 10  # of the power method: a rough direction is enough
_FAST = {"contract", "reassoc", "nsz"}


def users_of(chosen: Array, values: Array, k: int) -> tuple[Array, Array, Array]:
    """Codes by atom: where its users start (k + 1,), the users (rows, ascending) and their coefficients."""
    used = chosen >= 0
    first = np.concatenate([[0], np.count_nonzero(used, axis=1).cumsum()])
    by_atom = sparse.csr_matrix((values[used], chosen[used], first), shape=(len(chosen), k)).tocsc()
    return by_atom.indptr.astype(np.int64), by_atom.indices.astype(np.int64), by_atom.data


@njit(cache=True, nogil=True, fastmath=_FAST)
def _weighted_sums(residual, users, x, weight, start, stop, old, trial, refit, positive, sums, first, last):
    """sum w x E of each run, with the present coefficients x, or, with ``refit``, those of the trial atom."""
    d = old.shape[0]
    overlap = 0.0
    for j in range(d):
        overlap += trial[j] * old[j]
    for run in range(first, last):
        for j in range(d):
            sums[run, j] = 0.0
        square = 0.0
        for p in range(start + run * _RUN_USERS, min(stop, start + (run + 1) * _RUN_USERS)):
            i = users[p]
            value = np.float64(x[p])
            if refit:
                value *= overlap
                for j in range(d):
                    value += trial[j] * residual[i, j]
                if positive:
                    value = max(0.0, value)
            w = value * weight[i] if weight.size > 0 else value
            square += w * x[p]
            for j in range(d):
                sums[run, j] += w * residual[i, j]
        for j in range(d):
            sums[run, j] += square * old[j]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _second_moments(residual, users, x, weight, start, stop, old, sums, first, last):
    """sum w E E' of each run, the lower triangle."""
    d = old.shape[0]
    e = np.empty(d)
    for run in range(first, last):
        sums[run] = 0.0
        for p in range(start + run * _RUN_USERS, min(stop, start + (run + 1) * _RUN_USERS)):
            i = users[p]
            w = weight[i] if weight.size > 0 else 1.0
            for j in range(d):
                e[j] = residual[i, j] + x[p] * old[j]
            for j in range(d):
                f = w * e[j]
                for m in range(j + 1):
                    sums[run, j, m] += f * e[m]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _update_codes(residual, users, x, start, stop, old, new, positive, first, last):
    """The users' coefficients of the new atom, and their residuals."""
    d = old.shape[0]
    overlap = 0.0
    for j in range(d):
        overlap += new[j] * old[j]
    for run in range(first, last):
        for p in range(start + run * _RUN_USERS, min(stop, start + (run + 1) * _RUN_USERS)):
            i = users[p]
            old_value = np.float64(x[p])
            value = old_value * overlap
            for j in range(d):
                value += new[j] * residual[i, j]
            if positive:
                value = max(0.0, value)
            x[p] = value
            for j in range(d):
                residual[i, j] += old_value * old[j] - value * new[j]


# The following functions use loops, as operations on whole arrays take seconds to compile.


@njit(cache=True, nogil=True)
def _direction(sums, n_runs, positive, old, new):
    """The unit vector along the sum of the runs, without its negative part if ``positive``; if zero, the old atom."""
    d, largest = new.shape[0], 0.0
    for j in range(d):
        new[j] = 0.0
    for run in range(n_runs):
        for j in range(d):
            new[j] += sums[run, j]
    lost = False
    for j in range(d):
        if positive and new[j] < 0.0:
            new[j] = 0.0
        size = abs(new[j])
        lost |= not size < np.inf
        largest = size if size > largest else largest
    if lost or largest == 0.0:
        for j in range(d):
            new[j] = old[j]
        return
    square = 0.0
    for j in range(d):  # squares of large numbers would overflow
        new[j] /= largest
        square += new[j] * new[j]
    length = np.sqrt(square)
    for j in range(d):
        new[j] /= length


def _principal(sums: Array, old: Array) -> Array:
    """The top eigenvector of the sum of the runs, on the old atom's side."""
    total = np.zeros(sums.shape[1:])
    for run in sums:
        total += run
    largest = np.abs(total).max()
    if not 0.0 < largest < np.inf:
        return old
    with single_blas_thread():
        new: Array = np.linalg.eigh(total / largest)[1][:, -1]
    return -new if (new * old).sum() < 0.0 else new


def update_atoms(
    residual: Array,
    starts: Array,
    users: Array,
    x: Array,
    weight: Array | None,
    atoms: Array,
    order: Array,
    *,
    positive: bool = False,
    exact: bool = False,
) -> None:
    """One update of every atom that has users, in the given order; residuals, coefficients and atoms change in place.

    ``starts``, ``users`` and ``x`` come from `users_of`. ``exact`` takes the best atom rather than one step towards
    it.
    """
    u = np.empty(0) if weight is None else weight
    eigenvectors, rounds = exact and not positive, _NONNEGATIVE_ROUNDS if exact else 1
    for c in order:
        _update_one(residual, starts[c], starts[c + 1], users, x, u, atoms, c, positive, eigenvectors, rounds)


def _update_one(residual, start, stop, users, x, u, atoms, c, positive, eigenvectors, rounds):
    d, n_runs = atoms.shape[1], -(-int(stop - start) // _RUN_USERS)
    if n_runs == 0:
        return
    old, new = atoms[c].copy(), atoms[c].copy()
    if eigenvectors:
        square = np.empty((n_runs, d, d))
        over_parts(lambda a, b: _second_moments(residual, users, x, u, start, stop, old, square, a, b), n_runs)
        new = np.ascontiguousarray(_principal(square, old))
    else:
        sums = np.empty((n_runs, d))
        for turn in range(rounds):
            trial, refit = new.copy(), turn > 0
            over_parts(
                lambda a, b, trial=trial, refit=refit: _weighted_sums(
                    residual, users, x, u, start, stop, old, trial, refit, positive, sums, a, b
                ),
                n_runs,
            )
            _direction(sums, n_runs, positive, old, new)
    over_parts(lambda a, b: _update_codes(residual, users, x, start, stop, old, new, positive, a, b), n_runs)
    atoms[c] = new


def main_direction(residual: Array, users: Array, weight: Array | None, start: Array) -> tuple[Array, float]:
    """A unit vector v (d,) along which the users' residuals lie most, and sum_i w_i (r_i . v)^2."""
    d, n_runs = len(start), -(-len(users) // _RUN_USERS)
    u = np.empty(0) if weight is None else weight
    sums, zeros, x = np.empty((n_runs, d)), np.zeros(d), np.zeros(len(users))
    direction, square = start.copy(), 0.0
    for _ in range(_POWER_STEPS):
        trial = direction.copy()

        def run_sums(first: int, last: int, trial: Array = trial) -> None:
            _weighted_sums(residual, users, x, u, 0, len(users), zeros, trial, True, False, sums, first, last)

        over_parts(run_sums, n_runs, serial=len(users) * d < _MAX_SERIAL_NUMBERS)
        square = float(np.add.reduce(np.add.reduce(sums) * trial))
        _direction(sums, n_runs, False, trial, direction)
    return direction, square


def row_keys(X: Array, seed: int) -> Array:
    """Random numbers (n,) uint64 by the leading digits of rows: the same for any order, and for copies."""
    double = X.dtype == np.float64
    bits, drop = np.ascontiguousarray(X).view(np.uint64 if double else np.uint32), np.uint64(24 if double else 8)
    keys = np.full(len(X), seed, np.uint64)
    for column in bits.T:
        keys ^= (column.astype(np.uint64) + (np.uint64(1) << (drop - np.uint64(1)))) >> drop
        keys += np.uint64(0x9E3779B97F4A7C15)
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
    return keys


# called for every row: without counting references, which would take half the time
@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"}, _nrt=False)  # type: ignore[call-overload]
def _squared_residual(X, i, bases, g, residual):
    """The squared residual of the projection of a row onto subspace g."""
    d = X.shape[1]
    for j in range(d):
        residual[j] = X[i, j]
    for b in range(bases.shape[1]):
        share = 0.0
        for j in range(d):
            share += bases[g, b, j] * residual[j]
        for j in range(d):
            residual[j] -= share * bases[g, b, j]
    square = 0.0
    for j in range(d):
        square += residual[j] * residual[j]
    return square


@njit(cache=True, nogil=True)
def _nearest_subspaces(X, bases, labels, error, first, last, rows):
    residual = np.empty(X.shape[1])
    for part in range(first, last):
        for i in range(part * rows, min(X.shape[0], (part + 1) * rows)):
            error[i], labels[i] = np.inf, 0
            for g in range(bases.shape[0]):
                square = _squared_residual(X, i, bases, g, residual)
                if square < error[i]:
                    error[i], labels[i] = square, g


def subspace_errors(X: Array, bases: Array) -> tuple[Array, Array]:
    """The nearest of the subspaces (g, j, d), each spanned by j orthonormal rows, and the squared distance: (n,)."""
    n = len(X)
    labels, error = np.empty(n, np.int32), np.empty(n)
    bases = np.ascontiguousarray(bases, np.float64)
    rows = part_rows(n, 1)
    serial = n * bases.size < 500_000
    over_parts(lambda a, b: _nearest_subspaces(X, bases, labels, error, a, b, rows), -(-n // rows), serial=serial)
    return labels, error
