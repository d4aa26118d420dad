"""Optimal margin distribution, two classes: the solution followed exactly while thresholds or multipliers move.

Rows are below the band (`BELOW`), inside (`INSIDE`), above (`ABOVE`), or their multipliers are prescribed (`FIXED`).
With S the rows outside the band, N all others, K the kernel matrix, D the diagonal of 1 / C or 1 / (mu C), and
R = (K_SS + D_S)^-1, the *tableau* is the symmetric matrix

    T_SS = -R,    T_SN = R K_SN,    T_NN = K_NN - K_NS R K_SN.

A row that enters or leaves S changes it by one term +-v v^T. These terms are collected and added to the matrix by the
caller: a change of S then costs a column of T, and the matrix itself is only read. Of symmetric matrices the lower
triangle is used alone, as time goes into reading them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

BELOW, INSIDE, ABOVE, FIXED = 1, 0, -1, 2  # sides; the first and third are the signs of the multipliers
DONE, TERMS_FULL, NOT_A_KERNEL, TOO_MANY = 0, 1, 2, 3  # how a path ended
_COLUMN_COST = 8  # rows of the triangle that are read in the time of a column
_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True, nogil=True, fastmath=_FAST)
def _column(matrix, stale, diagonal, terms, signs, n_terms, p, column):
    """Column p of the tableau: that of the matrix, where it still holds, and the terms."""
    n = len(diagonal)
    if stale[p]:
        column[:] = 0.0
    else:
        for j in range(p):
            column[j] = 0.0 if stale[j] else matrix[p, j]
        for j in range(p, n):
            column[j] = 0.0 if stale[j] else matrix[j, p]
    for k in range(n_terms):
        factor = signs[k] * terms[k, p]
        if factor != 0.0:
            for j in range(n):
                column[j] += factor * terms[k, j]
    column[p] = diagonal[p]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_term(column, p, root, own, sign, stale, diagonal, terms, signs, n_terms):
    """T becomes T + sign v v^T with v = column / root, and v_p = own / root; row p of all that was before is zero."""
    for k in range(n_terms):
        terms[k, p] = 0.0
    stale[p] = True
    signs[n_terms] = sign
    term = terms[n_terms]
    for j in range(len(column)):
        term[j] = column[j] / root
    term[p] = own / root
    for j in range(len(column)):
        diagonal[j] += sign * term[j] * term[j]


@njit(cache=True, nogil=True)
def _pivot(matrix, stale, diagonal, shift, terms, signs, n_terms, p, ridge, speed, rate, column, enters):
    """Row p enters S or leaves it; ``speed`` is that of its threshold, signed. ``rate`` = T x follows.

    False if K is no kernel.
    """
    _column(matrix, stale, diagonal, terms, signs, n_terms, p, column)
    pivot, sign = (column[p] + ridge, -1.0) if enters else (-column[p], 1.0)
    if not pivot > 0.0:
        return False
    factor = (rate[p] - speed) / pivot if enters else rate[p] / pivot
    for j in range(len(rate)):
        rate[j] += sign * column[j] * factor
    rate[p] = factor if enters else factor + speed
    _add_term(column, p, np.sqrt(pivot), sign, sign, stale, diagonal, terms, signs, n_terms)
    diagonal[p], shift[p] = (-1.0 / pivot, 0.0) if enters else (1.0 / pivot - ridge, -ridge)
    return True


@njit(cache=True, nogil=True)
def release(matrix, stale, diagonal, shift, terms, signs, n_terms, rows, side, soft, stiff):
    """Take ``rows`` out of S; returns the number of terms, for which there must be space, or -1 on failure."""
    column, rate = np.empty(len(side)), np.zeros(len(side))
    for p in rows:
        if side[p] == BELOW or side[p] == ABOVE:
            ridge = soft[p] if side[p] == BELOW else stiff[p]
            if not _pivot(matrix, stale, diagonal, shift, terms, signs, n_terms, p, ridge, 0.0, rate, column, False):
                return -1
            n_terms += 1
        side[p] = FIXED
    return n_terms


@njit(cache=True, nogil=True, fastmath=_FAST)
def symmetric_product(matrix, x, result, first, last):
    """result += the part of matrix @ x that rows ``first`` to ``last`` of the lower triangle contribute."""
    for i in range(first, last):
        row, factor, total = matrix[i], x[i], 0.0
        for j in range(i):
            total += row[j] * x[j]
            result[j] += factor * row[j]
        result[i] += total + factor * row[i]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _product(matrix, stale, shift, terms, signs, n_terms, x, result, column):
    """result = T x."""
    n = len(x)
    n_used = 0
    for j in range(n):
        result[j] = 0.0
        column[j] = 0.0 if stale[j] else x[j]
        n_used += column[j] != 0.0
    if _COLUMN_COST * n_used > n:
        symmetric_product(matrix, column, result, 0, n)
    elif n_used:
        for p in range(n):
            if column[p] != 0.0:
                for j in range(p):
                    result[j] += column[p] * matrix[p, j]
                for j in range(p, n):
                    result[j] += column[p] * matrix[j, p]
    for j in range(n):
        result[j] = shift[j] * x[j] + (0.0 if stale[j] else result[j])
    for k in range(n_terms):
        factor = 0.0
        for j in range(n):
            factor += terms[k, j] * x[j]
        factor *= signs[k]
        if factor != 0.0:
            for j in range(n):
                result[j] += factor * terms[k, j]


@njit(cache=True, nogil=True)
def _next_event(gamma, margin, side, sign, rate, low, high, low_speed, high_speed, remaining):
    """(time, row, new side) of the next row that changes sides, or row -1: the first of several (Bland's rule)."""
    time, row, new_side = remaining, -1, INSIDE
    for j in range(len(gamma)):
        if side[j] == INSIDE:
            moved = sign[j] * rate[j]
            closing = low_speed[j] - moved
            if closing > 0.0:
                wait = max(margin[j] - low[j], 0.0) / closing
                if wait < time:
                    time, row, new_side = wait, j, BELOW
            closing = moved - high_speed[j]
            if closing > 0.0 and high[j] < np.inf:
                wait = max(high[j] - margin[j], 0.0) / closing
                if wait < time:
                    time, row, new_side = wait, j, ABOVE
        elif side[j] != FIXED:
            closing = side[j] * sign[j] * rate[j]  # the multiplier moves by -sign * rate
            if closing > 0.0:
                wait = max(side[j] * gamma[j], 0.0) / closing
                if wait < time:
                    time, row, new_side = wait, j, INSIDE
    return time, row, new_side


@njit(cache=True, nogil=True)
def follow(
    matrix, stale, diagonal, shift, terms, signs, n_terms,
    gamma, margin, side, sign, soft, stiff,
    low, high, low_speed, high_speed, fixed_speed,
    remaining, max_events,
):  # fmt: skip
    """Follow the solution for a time ``remaining``; returns (status, number of terms, remaining time, events).

    The matrix is only read. Thresholds move with constant speeds, and multipliers of FIXED rows with ``fixed_speed``.
    If the terms are full the caller makes space and calls again.
    """
    n = len(gamma)
    x, rate, column = np.zeros(n), np.empty(n), np.empty(n)
    for j in range(n):
        if side[j] == BELOW:
            x[j] = sign[j] * low_speed[j]
        elif side[j] == ABOVE:
            x[j] = sign[j] * high_speed[j]
        elif side[j] == FIXED:
            x[j] = sign[j] * fixed_speed[j]
    _product(matrix, stale, shift, terms, signs, n_terms, x, rate, column)
    events = 0
    while True:
        if n_terms == len(terms):
            return TERMS_FULL, n_terms, remaining, events
        time, row, new_side = _next_event(gamma, margin, side, sign, rate, low, high, low_speed, high_speed, remaining)
        for j in range(n):
            if side[j] == INSIDE:
                margin[j] += time * sign[j] * rate[j]
            elif side[j] == FIXED:
                gamma[j] += time * fixed_speed[j]
                margin[j] += time * sign[j] * rate[j]
            else:
                gamma[j] -= time * sign[j] * rate[j]
            low[j] += time * low_speed[j]
            high[j] += time * high_speed[j]
        remaining -= time
        if row < 0:
            return DONE, n_terms, 0.0, events
        if events == max_events:
            return TOO_MANY, n_terms, remaining, events
        below = new_side == BELOW or side[row] == BELOW
        ridge = soft[row] if below else stiff[row]
        speed = sign[row] * (low_speed[row] if below else high_speed[row])
        gamma[row] = 0.0
        margin[row] = low[row] if below else high[row]
        enters = new_side != INSIDE
        if not _pivot(matrix, stale, diagonal, shift, terms, signs, n_terms, row, ridge, speed, rate, column, enters):
            return NOT_A_KERNEL, n_terms, remaining, events
        side[row] = new_side
        n_terms += 1
        events += 1


@njit(cache=True, nogil=True, fastmath=_FAST)
def add_terms(matrix, terms, signs, first, last):
    """Rows ``first`` to ``last`` of the lower triangle += sum of signs_k v_k v_k^T, in place; four terms at a time."""
    n_terms = len(terms)
    whole = n_terms // 4 * 4
    for i in range(first, last):
        row = matrix[i]
        for k in range(0, whole, 4):
            f0, f1 = signs[k] * terms[k, i], signs[k + 1] * terms[k + 1, i]
            f2, f3 = signs[k + 2] * terms[k + 2, i], signs[k + 3] * terms[k + 3, i]
            t0, t1, t2, t3 = terms[k], terms[k + 1], terms[k + 2], terms[k + 3]
            for j in range(i + 1):
                row[j] += (f0 * t0[j] + f1 * t1[j]) + (f2 * t2[j] + f3 * t3[j])
        for k in range(whole, n_terms):
            factor, term = signs[k] * terms[k, i], terms[k]
            for j in range(i + 1):
                row[j] += factor * term[j]
