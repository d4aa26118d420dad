"""Chains that propose all centres, round the k-means solutions of the past: the paper's, and its symmetric form."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

N, K = 0, 1  # places in ``state``: rows held, centres
LOG_BALL, BALL = 0, 1  # places in ``prior``
LARGEST = 8  # centres up to which the permanent of the symmetric form is computed
_DOF = 3.0  # degrees of freedom of the Student distribution
_LLOYD_STEPS = 10  # steps of a search
_MAX_START_DRAWS = 100  # to start a chain inside the ball


@njit(cache=True, nogil=True)
def _uniform(dice):
    """SplitMix64: a number in (0, 1), both ends left out."""
    dice[0] += np.uint64(0x9E3779B97F4A7C15)
    z = dice[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(12)) + 0.5) * (1.0 / 4503599627370496.0)


@njit(cache=True, nogil=True)
def _set_dice(dice, seed, row, purpose):
    """Throw for one purpose after one row of one seed."""
    dice[0] = np.uint64(seed) + np.uint64(row) * np.uint64(0xD1342543DE82EF95)
    dice[0] += np.uint64(purpose) * np.uint64(0xA0761D6478BD642F)
    start = _uniform(dice) * 4503599627370496.0
    dice[0] ^= np.uint64(start) << np.uint64(12)


@njit(cache=True, nogil=True)
def _normal(dice):
    return math.sqrt(-2.0 * math.log(_uniform(dice))) * math.cos(2.0 * math.pi * _uniform(dice))


@njit(cache=True, nogil=True)
def _losses(rows, n, centers, k, out):
    """Squared distance of every row to the nearest of k centres."""
    d = rows.shape[0]
    for i in range(n):
        best = np.inf
        for c in range(k):
            total = 0.0
            for j in range(d):
                gap = rows[j, i] - centers[c, j]
                total += gap * gap
            best = total if total < best else best
        out[i] = best


@njit(cache=True, nogil=True)
def _seed_means(rows, weight, n, k, dice, gap, out):
    """D^2 seeding; if all rows lie on the centres so far, the mean of all rows is repeated."""
    d = rows.shape[0]
    mean, total = np.zeros(d), 0.0
    for i in range(n):
        total += weight[i]
        for j in range(d):
            mean[j] += weight[i] * rows[j, i]
    for j in range(d):
        mean[j] /= total
    for i in range(n):
        gap[i] = 1.0
    for c in range(k):
        mass = 0.0
        for i in range(n):
            mass += weight[i] * gap[i]
        for j in range(d):
            out[c, j] = mean[j]
        if mass <= 0.0:
            continue
        target, at = _uniform(dice) * mass, n - 1
        for i in range(n):
            target -= weight[i] * gap[i]
            if target <= 0.0:
                at = i
                break
        for j in range(d):
            out[c, j] = rows[j, at]
        for i in range(n):
            distance = 0.0
            for j in range(d):
                difference = rows[j, i] - out[c, j]
                distance += difference * difference
            gap[i] = distance if c == 0 or distance < gap[i] else gap[i]
    return mean


@njit(cache=True, nogil=True)
def _lloyd(rows, weight, n, means, k, mean):
    """A few steps of k-means from ``means``, which are replaced; empty ones go to ``mean``. Returns the last cost."""
    d = rows.shape[0]
    sums, mass = np.empty((k, d)), np.empty(k)
    cost, previous = np.inf, np.inf
    for step in range(_LLOYD_STEPS + 1):
        cost = 0.0
        for c in range(k):
            mass[c] = 0.0
            for j in range(d):
                sums[c, j] = 0.0
        for i in range(n):
            best, at = np.inf, 0
            for c in range(k):
                total = 0.0
                for j in range(d):
                    gap = rows[j, i] - means[c, j]
                    total += gap * gap
                if total < best:
                    best, at = total, c
            cost += weight[i] * best
            mass[at] += weight[i]
            for j in range(d):
                sums[at, j] += weight[i] * rows[j, i]
        if step == _LLOYD_STEPS or cost >= previous:
            break
        previous = cost
        for c in range(k):
            for j in range(d):
                means[c, j] = sums[c, j] / mass[c] if mass[c] > 0.0 else mean[j]
    return cost


@njit(cache=True, nogil=True)
def _copy(source, k, out):
    for c in range(k):
        for j in range(source.shape[1]):
            out[c, j] = source[c, j]


@njit(cache=True, nogil=True)
def _means_of(rows, weight, n, k, row, seed, means, stamps, gap):
    """k-means of the past, once for each k after a row: a function of row and k, not of the state of the chain."""
    if stamps[k] == row:
        return
    dice, fresh = np.empty(1, np.uint64), np.empty((k, rows.shape[0]))
    _set_dice(dice, seed, row, 1 + k)
    mean = _seed_means(rows, weight, n, k, dice, gap, fresh)
    cost = _lloyd(rows, weight, n, fresh, k, mean)
    if stamps[k] < 0 or cost < _lloyd(rows, weight, n, means[k], k, mean):
        _copy(fresh, k, means[k])
    stamps[k] = row


@njit(cache=True, nogil=True)
def _draw(dice, anchors, k, tau, shuffle, out):
    d = out.shape[1]
    for c in range(k):
        chi = 0.0
        for _ in range(3):
            normal = _normal(dice)
            chi += normal * normal
        stretch = math.sqrt(2.0 * _DOF / chi) * tau
        for j in range(d):
            out[c, j] = anchors[c, j] + stretch * _normal(dice)
    if shuffle:
        for c in range(k - 1, 0, -1):
            partner = min(int(_uniform(dice) * (c + 1)), c)
            for j in range(d):
                out[c, j], out[partner, j] = out[partner, j], out[c, j]


@njit(cache=True, nogil=True)
def _log_student(point, centre, tau, log_constant):
    total = 0.0
    for j in range(point.shape[0]):
        gap = point[j] - centre[j]
        total += gap * gap
    return log_constant - 0.5 * (_DOF + point.shape[0]) * math.log1p(total / (2.0 * _DOF * tau * tau))


@njit(cache=True, nogil=True)
def log_proposal(centers, anchors, k, tau, log_constant, symmetric):
    """ln of the density of k centres: in the order of the places, or in any order (permanent / k!)."""
    if not symmetric:
        total = 0.0
        for c in range(k):
            total += _log_student(centers[c], anchors[c], tau, log_constant)
        return total
    table, shift = np.empty((k, k)), 0.0
    for c in range(k):
        top = -np.inf
        for m in range(k):
            table[c, m] = _log_student(centers[c], anchors[m], tau, log_constant)
            top = max(top, table[c, m])
        for m in range(k):
            table[c, m] = math.exp(table[c, m] - top)
        shift += top - math.log(c + 1.0)
    ways = np.zeros(1 << k)  # ways[set]: of giving the first |set| centres the places of the set
    ways[0] = 1.0
    for taken in range(1 << k):
        c = 0
        for m in range(k):
            c += (taken >> m) & 1
        if c == k or ways[taken] == 0.0:
            continue
        for m in range(k):
            if not (taken >> m) & 1:
                ways[taken | (1 << m)] += ways[taken] * table[c, m]
    final = ways[(1 << k) - 1]
    return shift + math.log(final) if final > 0.0 else -np.inf


@njit(cache=True, nogil=True)
def _all_inside(centers, k, ball):
    for c in range(k):
        total = 0.0
        for j in range(centers.shape[1]):
            total += centers[c, j] * centers[c, j]
        if total > ball * ball:
            return False
    return True


@njit(cache=True, nogil=True)
def swap_chain(row, seed, past, centers, state, means, stamps, tau, log_constant, symmetric, fresh, prior, jumps,
               jump_ratios, rate, eta, n_steps):  # fmt: skip
    """Steps of the chain after row number ``row``; returns how many were accepted.

    The law is that of the inverse temperature ``rate`` and the penalty ``eta`` of a centre. ``past`` is (rows, columns,
    labels); the columns begin with weight, prediction and curb. ``means[k]`` are kept from row to row as a start for
    the next search, and ``stamps[k]`` is the row they belong to. A ``fresh`` chain starts at a draw with the present
    number of centres.
    """
    rows, columns, _ = past
    weight, predicted, curb = columns[0], columns[1], columns[2]
    n = state[N]
    dice, trial = np.empty(1, np.uint64), np.empty_like(centers)
    losses, trial_losses, gap = np.empty(n), np.empty(n), np.empty(n)
    _set_dice(dice, seed, row, np.int64(0))
    k = state[K]
    _means_of(rows, weight, n, k, row, seed, means, stamps, gap)
    for _ in range(_MAX_START_DRAWS if fresh else 0):
        _draw(dice, means[k], k, tau, symmetric, trial)
        if _all_inside(trial, k, prior[BALL]):
            _copy(trial, k, centers)
            break
    _losses(rows, n, centers, k, losses)
    log_backward = log_proposal(centers, means[k], k, tau, log_constant, symmetric)
    accepted = 0
    for _ in range(n_steps):
        chance = _uniform(dice)
        way = 2 if chance < jumps[k, 2] else (0 if chance < jumps[k, 2] + jumps[k, 0] else 1)
        new_k = k + way - 1
        _means_of(rows, weight, n, new_k, row, seed, means, stamps, gap)
        _draw(dice, means[new_k], new_k, tau, symmetric, trial)
        log_uniform = math.log(_uniform(dice))
        if not _all_inside(trial, new_k, prior[BALL]):
            continue
        _losses(rows, n, trial, new_k, trial_losses)
        change = 0.0
        for i in range(n):
            step = (trial_losses[i] - losses[i]) * (
                1.0 + 0.5 * curb[i] * (trial_losses[i] + losses[i] - 2.0 * predicted[i])
            )
            change += weight[i] * step
        log_forward = log_proposal(trial, means[new_k], new_k, tau, log_constant, symmetric)
        if (
            log_uniform
            >= -rate * change + (prior[LOG_BALL] - eta) * (new_k - k) + log_backward - log_forward + jump_ratios[k, way]
        ):
            continue
        _copy(trial, new_k, centers)
        for i in range(n):
            losses[i] = trial_losses[i]
        k, log_backward = new_k, log_forward
        accepted += 1
    state[K] = k
    return accepted
