"""Sparse codes of signals of which only some entries are known, and predictions of the other entries.

With a mask m_i of its own for each signal, the Gram matrix of the masked atoms differs from signal to signal, so
correlations are taken from the residual directly: k d products for each atom that is chosen.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array
from tithe.core.parallel import over_parts
from tithe.kernels.parts import part_rows

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

    A row takes atoms until the mean squared error of its known entries is ``allowed`` or less, or there is an atom
    for every four of them. Atoms that are zero on the known entries are not taken: their coefficients could not be
    estimated. Every row needs a known entry.
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
def _add_at(rows, top, left, side, total, count):
    for i in range(len(top)):
        for a in range(side):
            for b in range(side):
                total[top[i] + a, left[i] + b] += rows[i, a * side + b]
                count[top[i] + a, left[i] + b] += 1


def add_at(rows: Array, top: Array, left: Array, side: int, total: Array, count: Array) -> None:
    """Adds patches (n, side * side) to a picture at their upper left corners, and counts them."""
    _add_at(rows, top, left, side, total, count)
