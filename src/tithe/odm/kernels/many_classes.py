"""Optimal margin distribution, many classes: exact steps on all multipliers of a row, and the gap.

A row i of class y has multipliers alpha_l <= 0 for l != y, alpha_y = minus their sum, and beta >= 0 of the upper
side. Its coefficients are v = alpha - beta e_y, and + beta e_q where q, a fixed rival, bounds the upper side
(``rival[i] >= 0``); else the upper side compares with the fixed number ``level[i]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_FAST = {"contract", "reassoc", "nsz"}
_MAX_INSERTION_SORT = 48  # numbers up to which sorting by insertion is the fastest
_BETA_TOLERANCE = 1e-13  # of the scale of beta: where the search for it ends
_MAX_ROOT_STEPS = 200
_MIN_MOVEMENT_SHARE = 1e-3  # share of the first sweep's movement below which another is not worth its time


@njit(cache=True, nogil=True)
def _sort_descending(numbers, n):
    if n > _MAX_INSERTION_SORT:
        ascending = np.sort(numbers[:n])
        for i in range(n):
            numbers[i] = ascending[n - 1 - i]
        return
    for i in range(1, n):
        value = numbers[i]
        j = i - 1
        while j >= 0 and numbers[j] < value:
            numbers[j + 1] = numbers[j]
            j -= 1
        numbers[j + 1] = value


@njit(cache=True, nogil=True)
def _multiplier(shift, own_label, numerator, denominator, spare):
    """nu = (flat + sum of pull over Phi) / (steep + |Phi|), Phi = {l != own class: pull_l > nu}."""
    n = np.int64(0)  # a plain 0 is another type, for which the sort would be compiled again
    for label in range(len(shift)):
        if label != own_label:
            spare[n] = shift[label]
            n += 1
    _sort_descending(spare, n)
    total, count = numerator, denominator
    nu = total / count
    for k in range(n):
        if nu >= spare[k]:
            break
        total += spare[k]
        count += 1.0
        nu = total / count
    return nu


@njit(cache=True, nogil=True)
def _lower_side(shift, label, square, soft, alpha, spare):
    """alpha of one row by case 1 of the subproblem: the upper side is idle or its multiplier is fixed."""
    ridge = square + soft
    nu = _multiplier(shift, label, square * shift[label] / ridge, square / ridge, spare)
    _alphas(shift, label, square, nu, alpha)
    return nu


@njit(cache=True, nogil=True)
def _alphas(shift, label, square, nu, alpha):
    total = 0.0
    for candidate in range(len(shift)):
        if candidate != label:
            alpha[candidate] = min(0.0, (nu - shift[candidate]) / square)
            total -= alpha[candidate]
    alpha[label] = total


@njit(cache=True, nogil=True)
def _with_level(rest, label, square, soft, stiff, low, high, level, alpha, shift, spare):
    """alpha and beta where the upper side compares with a fixed number: cases 1 and 2, exactly one is consistent."""
    for candidate in range(len(rest)):
        shift[candidate] = rest[candidate] + (0.0 if candidate == label else low)
    nu = _lower_side(shift, label, square, soft, alpha, spare)
    ridge, lack = square + soft, level + high - rest[label]
    if stiff == np.inf or nu <= shift[label] + ridge * lack / square:
        return 0.0
    upper_ridge = square + stiff
    both = ridge * upper_ridge - square * square
    numerator = (square * square * lack + square * upper_ridge * shift[label]) / both
    nu = _multiplier(shift, label, numerator, square * upper_ridge / both, spare)
    _alphas(shift, label, square, nu, alpha)
    return max(0.0, (square * alpha[label] - lack) / upper_ridge)


@njit(cache=True, nogil=True)
def _with_rival(rest, label, rival, square, soft, stiff, low, high, alpha, shift, spare):
    """alpha and beta where the upper side compares with the score of a rival.

    The derivative by beta rises and is linear in pieces: false position, halving the end that stays (Illinois).
    """
    for candidate in range(len(rest)):
        shift[candidate] = rest[candidate] + (0.0 if candidate == label else low)
    _lower_side(shift, label, square, soft, alpha, spare)
    if stiff == np.inf:
        return 0.0
    base = rest[rival] - rest[label] + high
    left, at_left = 0.0, square * (alpha[rival] - alpha[label]) + base
    if at_left >= 0.0:
        return 0.0
    # alpha_q - alpha_y falls by at most 2 beta, so the derivative rises by at least stiff
    right = -at_left / stiff
    at_right, last, beta, weight = 0.0, 0, right, 1.0
    for step in range(_MAX_ROOT_STEPS):
        shift[rival] = rest[rival] + low + square * beta
        shift[label] = rest[label] - square * beta
        _lower_side(shift, label, square, soft, alpha, spare)
        slope = square * (alpha[rival] - alpha[label]) + (2.0 * square + stiff) * beta + base
        if slope == 0.0:
            break
        if slope > 0.0:
            weight = 0.5 if last == 1 else 1.0
            right, at_right, last = beta, slope, 1
            at_left *= weight
        else:
            weight = 0.5 if last == -1 else 1.0
            left, at_left, last = beta, slope, -1
            at_right *= weight
        if step == 0 and slope < 0.0:
            break  # rounding alone: the end of the bracket is the root
        if right - left <= _BETA_TOLERANCE * right:
            break
        beta = right - at_right * (right - left) / (at_right - at_left)
        if not left < beta < right:
            beta = 0.5 * (left + right)
    return beta


@njit(cache=True, nogil=True)
def _at_origin(rest, label, soft, low, alpha):
    strongest = 1 if label == 0 else 0
    for candidate in range(len(rest)):
        alpha[candidate] = 0.0
        if candidate != label and rest[candidate] > rest[strongest]:
            strongest = candidate
    alpha[label] = max(0.0, low - rest[label] + rest[strongest]) / soft
    alpha[strongest] = -alpha[label]


@njit(cache=True, nogil=True)
def best_multipliers(rest, label, rival, level, square, soft, stiff, low, high, change, alpha, shift, spare):
    """v into ``change``, and beta: the best of one row, from its scores ``rest`` without it and k(x, x)."""
    if square <= 0.0:  # a row at the origin: its multipliers change no score, and follow from its loss
        beta = 0.0
        _at_origin(rest, label, soft, low, alpha)
    elif rival >= 0:
        beta = _with_rival(rest, label, rival, square, soft, stiff, low, high, alpha, shift, spare)
    else:
        beta = _with_level(rest, label, square, soft, stiff, low, high, level, alpha, shift, spare)
    for candidate in range(len(rest)):
        change[candidate] = alpha[candidate]
    change[label] -= beta
    if rival >= 0:
        change[rival] += beta
    return beta


@njit(cache=True, nogil=True, fastmath=_FAST)
def descend_rows(matrix, places, numbers, label, rival, level, score, value, beta, soft, stiff, low, high):
    """Sweeps over some rows of the kernel matrix, in place: see `RowPanel`. score and value are (K, n)."""
    n_classes, n = score.shape
    rest, change, alpha, shift, spare = np.empty((5, n_classes))
    first = 0.0
    for sweep in range(len(numbers)):
        moved = 0.0
        for k in range(numbers.shape[1]):
            i, place = numbers[sweep, k], places[sweep, k]
            diag = matrix[place, i]
            for c in range(n_classes):
                rest[c] = score[c, i] - diag * value[c, i]
            beta[i] = best_multipliers(
                rest, label[i], rival[i], level[i], diag, soft[i], stiff[i], low, high, change, alpha, shift, spare
            )
            for c in range(n_classes):
                step = change[c] - value[c, i]
                if step != 0.0:
                    value[c, i] = change[c]
                    moved += diag * step * step
                    for j in range(n):
                        score[c, j] += step * matrix[place, j]
        if sweep == 0:
            first = moved
        if moved <= _MIN_MOVEMENT_SHARE * first:
            return


@njit(cache=True, nogil=True)
def smoothed_rows(score, pull, label, rival, level, cost, kappa, mu, low, high, alpha, beta, first, last):
    """alpha (n, K) and beta (n,) of rows first to last at these scores; returns the sum of their smoothed losses.

    The lower side is max over alpha of minus (sigma |alpha - pull|^2 / 2 + the dual loss + alpha . score), up to a
    number, sigma = kappa / C: its alpha are the multipliers of a row at the scores less sigma times ``pull`` and with
    sigma for k(x, x). The upper side is smooth by itself.
    """
    n_classes = score.shape[1]
    shift, spare = np.empty(n_classes), np.empty(n_classes)
    total = 0.0
    for i in range(first, last):
        y, soft = label[i], 1.0 / cost[i]
        sigma = kappa * soft
        strongest = -np.inf
        for c in range(n_classes):
            shift[c] = score[i, c] - sigma * pull[i, c]
            if c != y:
                shift[c] += low
                strongest = max(strongest, shift[c])
        if shift[y] >= strongest:
            alpha[i] = 0.0
        else:
            _lower_side(shift, y, sigma, soft, alpha[i], spare)
            total -= 0.5 * soft * alpha[i, y] ** 2
            for c in range(n_classes):
                total -= alpha[i, c] * (0.5 * sigma * alpha[i, c] + shift[c])
        over = score[i, y] - (score[i, rival[i]] if rival[i] >= 0 else level[i]) - high
        beta[i] = mu * cost[i] * over if over > 0.0 else 0.0
        total += 0.5 * beta[i] * max(0.0, over)
    return total


@njit(cache=True, nogil=True)
def smoothed_curves(change, rows, label, rival, alpha, beta, cost, kappa, mu, out):
    """What a change of the scores (r, K) of some rows does to minus their coefficients: into ``out`` (r, K)."""
    n_classes = change.shape[1]
    for place in range(len(rows)):
        i = rows[place]
        y, sigma = label[i], kappa / cost[i]
        for c in range(n_classes):
            out[place, c] = 0.0
        if alpha[i, y] > 0.0:
            share = kappa / (1.0 + kappa)  # sigma / (sigma + 1 / C)
            mean, count = share * change[place, y], share
            for c in range(n_classes):
                if c != y and alpha[i, c] < 0.0:
                    mean += change[place, c]
                    count += 1.0
            mean /= count
            total = 0.0
            for c in range(n_classes):
                if c != y and alpha[i, c] < 0.0:
                    out[place, c] = (change[place, c] - mean) / sigma
                    total += out[place, c]
            out[place, y] = -total
        if beta[i] > 0.0:
            other = change[place, rival[i]] if rival[i] >= 0 else 0.0
            curve = mu * cost[i] * (change[place, y] - other)
            out[place, y] += curve
            if rival[i] >= 0:
                out[place, rival[i]] -= curve


@njit(cache=True, nogil=True)
def smoothed_diagonals(rows, label, rival, alpha, beta, cost, kappa, mu, out):
    """The diagonals of what `smoothed_curves` multiplies by: into ``out`` (r, K)."""
    n_classes = out.shape[1]
    share = kappa / (1.0 + kappa)
    for place in range(len(rows)):
        i = rows[place]
        y, sigma, count = label[i], kappa / cost[i], share
        for c in range(n_classes):
            out[place, c] = 0.0
            if c != y and alpha[i, c] < 0.0:
                count += 1.0
        if alpha[i, y] > 0.0:
            for c in range(n_classes):
                if c != y and alpha[i, c] < 0.0:
                    out[place, c] = (1.0 - 1.0 / count) / sigma
            out[place, y] = (count - share) * share / (sigma * count)
        if beta[i] > 0.0:
            out[place, y] += mu * cost[i]
            if rival[i] >= 0:
                out[place, rival[i]] += mu * cost[i]


@njit(cache=True, nogil=True)
def best_rivals(score, label, rival, level):
    """The strongest other class of every row (n,) and its score (n,), from scores (n, K)."""
    for i in range(len(label)):
        best = -1
        for c in range(score.shape[1]):
            if c != label[i] and (best < 0 or score[i, c] > score[i, best]):
                best = c
        rival[i] = best
        level[i] = score[i, best]


@njit(cache=True, nogil=True)
def classes_gap(score, value, beta, label, rival, level, cost, mu, low, high):
    """(gap, loss of the convex problem, loss of the true one, value . score): sums of parts that are not negative."""
    gap, loss, true_loss, norm = 0.0, 0.0, 0.0, 0.0
    for i in range(len(label)):
        y, c, upper = label[i], cost[i], mu * cost[i]
        true_score = score[i, y]
        best = -np.inf
        for candidate in range(score.shape[1]):
            norm += value[i, candidate] * score[i, candidate]
            if candidate != y:
                best = max(best, score[i, candidate])
        lower = max(0.0, low - true_score + best)
        alpha_sum = 0.0
        for candidate in range(score.shape[1]):
            if candidate != y:
                alpha = value[i, candidate] - (beta[i] if candidate == rival[i] else 0.0)
                alpha_sum -= alpha
                gap -= alpha * (lower - (low - true_score + score[i, candidate]))
        gap += 0.5 * c * (lower - alpha_sum / c) ** 2
        over = true_score - (score[i, rival[i]] if rival[i] >= 0 else level[i]) - high
        excess = max(0.0, over)
        if upper > 0.0:
            gap += (
                0.5 * upper * (over - beta[i] / upper) ** 2 if over >= 0.0 else beta[i] * (beta[i] / (2 * upper) - over)
            )
        loss += 0.5 * c * lower * lower + 0.5 * upper * excess * excess
        true_excess = max(0.0, true_score - best - high)
        true_loss += 0.5 * c * lower * lower + 0.5 * upper * true_excess * true_excess
    return gap, loss, true_loss, norm
