"""Loops over the patches of pictures, whole ones and those with missing pixels."""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import over_parts, part_rows

_BAND_COLUMNS = 256  # columns of a picture that one part adds to


@njit(cache=True, nogil=True)
def _cut(plane, top, left, side, centered, X, energy, first, last, rows):
    n, d = X.shape
    for i in range(first * rows, min(n, last * rows)):
        y, x = top[i], left[i]
        total = 0.0
        at = 0
        for a in range(side):
            for b in range(side):
                value = plane[y + a, x + b]
                X[i, at] = value
                total += value
                at += 1
        mean = X.dtype.type(total / d) if centered else X.dtype.type(0.0)
        square = 0.0
        for j in range(d):
            value = X[i, j] - mean
            X[i, j] = value
            square += np.float64(value) * value
        energy[i] = square


def cut_patches(plane: Array, top: Array, left: Array, side: int, *, centered: bool) -> tuple[Array, Array]:
    """Patches (n, side * side) of a picture at their corners, ``centered`` or not, and their energies (n,) float64."""
    n = len(top)
    X, energy = np.empty((n, side * side), plane.dtype), np.empty(n)
    rows = part_rows(n, 1)
    over_parts(
        lambda first, last: _cut(plane, top, left, side, centered, X, energy, first, last, rows),
        -(-n // rows),
        serial=X.size < 500_000,
    )
    return X, energy


@njit(cache=True, nogil=True)
def _add(rows, tops, lefts, side, into, first, last):
    width = into.shape[1]
    across = lefts.shape[0]
    for part in range(first, last):
        start, stop = part * _BAND_COLUMNS, min(width, (part + 1) * _BAND_COLUMNS)
        j0 = np.searchsorted(lefts, start - side + 1)
        j1 = np.searchsorted(lefts, stop)
        for i in range(tops.shape[0]):
            for j in range(j0, j1):
                x = lefts[j]
                low, high = max(0, start - x), min(side, stop - x)
                for a in range(side):
                    for b in range(low, high):
                        into[tops[i] + a, x + b] += rows[i * across + j, a * side + b]


def add_patches(rows: Array, tops: Array, lefts: Array, side: int, into: Array) -> None:
    """Adds the patches (len(tops) * len(lefts), side * side) to a picture ``into``, both corners ascending.

    Patches are added to a pixel in the order of the rows: the result has the same bits for any batches and threads.
    """
    over_parts(
        lambda first, last: _add(rows, tops, lefts, side, into, first, last),
        -(-into.shape[1] // _BAND_COLUMNS),
        serial=rows.size < 500_000,
    )


_FAST = {"contract", "reassoc", "nsz", "nnan"}
_MIN_KNOWN_SHARE = 0.05  # squared share of an atom that must lie on known entries, apart from the atoms chosen before
_KNOWN_PER_ATOM = 4  # known entries for each atom that may be chosen


@njit(cache=True, nogil=True, fastmath=_FAST)
def _masked_norms(atoms, mask, n_known, norms):
    """Squares of the atoms on the known entries, less what a constant explains of them."""
    for c in range(atoms.shape[0]):
        square, total = 0.0, 0.0
        for j in range(atoms.shape[1]):
            value = mask[j] * atoms[c, j]
            square += value * value
            total += value
        norms[c] = square - total * total / n_known


@njit(cache=True, nogil=True, fastmath=_FAST)
def _choose(atoms, rest, norms):
    """The atom that would take most out of the residual, -1 if none would take anything."""
    best, pick = rest.dtype.type(0.0), -1
    for c in range(atoms.shape[0]):
        if norms[c] > _MIN_KNOWN_SHARE:
            total = rest.dtype.type(0.0)
            for j in range(atoms.shape[1]):
                total += atoms[c, j] * rest[j]
            gain = total * total / norms[c]
            if gain > best:
                best, pick = gain, c
    return pick


@njit(cache=True, nogil=True, fastmath=_FAST)
def _orthogonal(atom, mask, Q, count, R):
    """The masked atom less its shares in the directions before it, made unit; its squared length before that."""
    d = atom.shape[0]
    for j in range(d):
        Q[count, j] = mask[j] * atom[j]
    for t in range(count):
        share = 0.0
        for j in range(d):
            share += Q[t, j] * Q[count, j]
        R[t, count] = share
        for j in range(d):
            Q[count, j] -= share * Q[t, j]
    square = 0.0
    for j in range(d):
        square += Q[count, j] * Q[count, j]
    if square > _MIN_KNOWN_SHARE:
        R[count, count] = np.sqrt(square)
        for j in range(d):
            Q[count, j] /= R[count, count]
    return square


@njit(cache=True, nogil=True, fastmath=_FAST)
def _complete(X, known, atoms, max_atoms, allowed, filled, first, last, rows):
    n, d = X.shape
    k = atoms.shape[0]
    mask, rest, norms = np.empty(d), np.empty(d), np.empty(k, atoms.dtype)
    ones, rounded = np.ones(d, atoms.dtype), np.empty(d, atoms.dtype)
    Q, R, shares = np.empty((max_atoms + 1, d)), np.zeros((max_atoms + 1, max_atoms + 1)), np.empty(max_atoms + 1)
    picks, x = np.empty(max_atoms + 1, np.int64), np.empty(max_atoms + 1)
    for i in range(first * rows, min(n, last * rows)):
        n_known = np.int64(0)  # a plain 0 is a type of its own, for which all that is called is compiled again
        for j in range(d):
            mask[j] = 1.0 if known[i, j] else 0.0
            rest[j] = X[i, j] if known[i, j] else 0.0
            n_known += 1 if known[i, j] else 0
        _masked_norms(atoms, mask, n_known, norms)
        n_allowed = min(max_atoms, n_known // _KNOWN_PER_ATOM)
        count, pick = np.int64(0), -1
        while True:  # the constant comes first, then atoms
            atom = ones if count == 0 else atoms[pick]
            if _orthogonal(atom, mask, Q, count, R) <= _MIN_KNOWN_SHARE:
                norms[pick] = 0.0
            else:
                picks[count] = pick
                share = 0.0
                for j in range(d):
                    share += Q[count, j] * rest[j]
                shares[count] = share
                error = 0.0
                for j in range(d):
                    rest[j] -= share * Q[count, j]
                    error += rest[j] * rest[j]
                if count > 0:
                    norms[pick] = 0.0
                count += 1
                if count > n_allowed or error <= allowed * n_known:
                    break
            for j in range(d):
                rounded[j] = rest[j]
            pick = _choose(atoms, rounded, norms)
            if pick < 0:
                break
        for t in range(count - 1, -1, -1):
            total = shares[t]
            for s in range(t + 1, count):
                total -= R[t, s] * x[s]
            x[t] = total / R[t, t]
        for j in range(d):
            value = x[0]
            for t in range(1, count):
                value += x[t] * atoms[picks[t], j]
            filled[i, j] = value


def complete_rows(X: Array, known: Array, atoms: Array, *, n_nonzero: int, allowed: float = 0.0) -> Array:
    """Rows (n, d) reconstructed from codes of their known entries: a constant and at most ``n_nonzero`` atoms.

    A row takes atoms until the mean squared error of its known entries is ``allowed`` or less, or there is an atom for
    every four of them.
    """
    n = len(X)
    filled = np.empty_like(X)
    rows = part_rows(n, 1)
    over_parts(
        lambda first, last: _complete(X, known, atoms, n_nonzero, allowed, filled, first, last, rows),
        -(-n // rows),
        serial=X.size < 50_000,
    )
    return filled


@njit(cache=True, nogil=True)
def add_at(rows, top, left, side, total, count):
    """Adds patches (n, side * side) to a picture at their upper left corners, and counts them."""
    for i in range(len(top)):
        for a in range(side):
            for b in range(side):
                total[top[i] + a, left[i] + b] += rows[i, a * side + b]
                count[top[i] + a, left[i] + b] += 1
