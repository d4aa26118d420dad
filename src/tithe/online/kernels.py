"""Loops of the chains that add, remove and move centres."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

WEIGHT, PREDICTED, ROW_CURB, NEAR, SECOND = range(5)  # places in the ``columns`` of the past
N, K, NEWEST, AWAKE = range(4)  # in ``state``: rows held, centres, the newest of the last anchors, rows with all steps
RATE, LAG, CURB, CURB_MOST, ETA, ETA_SHARE, SURPRISE, NOISE, USUAL = range(9)  # places in ``schedule``
LATEST = 8  # anchors at the end that are replaced by rows of large loss, if there are more anchors than this
LOG_BALL, BALL, RADIUS = range(3)  # places in ``prior``
SLACK = 1.0 + 1e-12  # on the radius: norms differ in the last digits by the order of their sums
_AWAKE, _LONG_AWAKE = 4, 16  # rows for which the chain takes all its steps, from one of large or of surprising loss on
_SWAP_SHARE = 1.0 / 16.0  # share of the steps that propose all centres
UNIFORM = 0.3  # share of births anywhere in the ball; the others come near the anchors
_NEWEST_SHARE = 0.25  # of the others; a quarter go to all of the last anchors, and half to the first ones
_DOF = 3.0  # of the Student law
LARGEST = 8  # centres up to which the permanent of the symmetric form is computed
_LLOYD_STEPS, _PIECE_STEPS = 10, 3  # steps of a search for means, and for small pieces
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
def _normals(dice, out):
    for i in range(0, out.shape[0], 2):
        radius, angle = math.sqrt(-2.0 * math.log(_uniform(dice))), 2.0 * math.pi * _uniform(dice)
        out[i] = radius * math.cos(angle)
        if i + 1 < out.shape[0]:
            out[i + 1] = radius * math.sin(angle)


@njit(cache=True, nogil=True)
def _square(point):
    total = 0.0
    for j in range(point.shape[0]):
        total += point[j] * point[j]
    return total


@njit(cache=True, nogil=True)
def _draw_student(dice, center, tau, out):
    """m + sqrt(2) tau g / sqrt(chi2_3 / 3)."""
    normals = np.empty(3)
    _normals(dice, normals)
    stretch = math.sqrt(2.0 * _DOF / _square(normals)) * tau
    _normals(dice, out)
    for j in range(out.shape[0]):
        out[j] = center[j] + stretch * out[j]


@njit(cache=True, nogil=True)
def _square_gap(point, others, a):
    total = 0.0
    for j in range(point.shape[0]):
        gap = point[j] - others[a, j]
        total += gap * gap
    return total


@njit(cache=True, nogil=True)
def _log_student_of(point, places, a, tau, log_constant):
    """The log density of a draw round place ``a``."""
    total = _square_gap(point, places, a)
    return log_constant - 0.5 * (_DOF + point.shape[0]) * math.log1p(total / (2.0 * _DOF * tau * tau))


@njit(cache=True, nogil=True)
def _log_student(point, draws, a):
    """The log density of a draw round anchor ``a``."""
    anchors, taus, log_constants, _, _ = draws
    return _log_student_of(point, anchors, a, taus[a], log_constants[a])


@njit(cache=True, nogil=True)
def _way(dice, jumps, k):
    """0, 1 or 2: one centre less, as many, or one more."""
    chance = _uniform(dice)
    return 2 if chance < jumps[k, 2] else (0 if chance < jumps[k, 2] + jumps[k, 0] else 1)


@njit(cache=True, nogil=True)
def _draw_birth(dice, draws, newest, ball, out):
    anchors, taus, _, _, _ = draws
    if anchors.shape[0] == 0 or _uniform(dice) < UNIFORM:
        _normals(dice, out)
        stretch = ball * _uniform(dice) ** (1.0 / out.shape[0]) / math.sqrt(_square(out))
        for j in range(out.shape[0]):
            out[j] *= stretch
    else:
        n_old = anchors.shape[0] - LATEST if anchors.shape[0] > LATEST else anchors.shape[0]
        a, chance = int(_uniform(dice) * n_old), _uniform(dice)
        if n_old < anchors.shape[0] and chance >= 0.5:
            a = n_old + (newest if chance > 1.0 - _NEWEST_SHARE else int(_uniform(dice) * LATEST))
        _draw_student(dice, anchors[a], taus[a], out)


@njit(cache=True, nogil=True)
def log_birth_density(point, draws, newest, log_ball):
    """The log density of a new centre: uniform in the ball, or Student round one of the anchors."""
    anchors = draws[0]
    if anchors.shape[0] == 0:
        return log_ball
    top, total = math.log(UNIFORM) + log_ball, 1.0
    n_old = anchors.shape[0] - LATEST if anchors.shape[0] > LATEST else anchors.shape[0]
    share = (0.5 if n_old < anchors.shape[0] else 1.0) / n_old
    for a in range(anchors.shape[0]):
        if a >= n_old:
            share = (0.5 - _NEWEST_SHARE) / LATEST + (_NEWEST_SHARE if a == n_old + newest else 0.0)
        term = math.log((1.0 - UNIFORM) * share) + _log_student(point, draws, a)
        if term > top:
            total = total * math.exp(top - term) + 1.0
            top = term
        else:
            total += math.exp(term - top)
    return top + math.log(total)


@njit(cache=True, nogil=True)
def _distances(rows, n, point, out):
    """Squared distances of n rows to a point; three columns at a time, to read ``out`` less often."""
    for i in range(n):
        out[i] = 0.0
    n_tripled = rows.shape[0] - rows.shape[0] % 3
    for j in range(0, n_tripled, 3):
        for i in range(n):
            a, b, c = rows[j, i] - point[j], rows[j + 1, i] - point[j + 1], rows[j + 2, i] - point[j + 2]
            out[i] = out[i] + a * a + b * b + c * c
    for j in range(n_tripled, rows.shape[0]):
        for i in range(n):
            gap = rows[j, i] - point[j]
            out[i] += gap * gap


@njit(cache=True, nogil=True)
def _losses(rows, n, centers, k, gap, out, labels):
    """Squared distance of every row to the nearest of k centres, and which one that is."""
    for i in range(n):
        out[i] = np.inf
    for c in range(k):
        _distances(rows, n, centers[c], gap)
        for i in range(n):
            labels[i] = c if gap[i] < out[i] else labels[i]
            out[i] = gap[i] if gap[i] < out[i] else out[i]


@njit(cache=True, nogil=True)
def _copy(point, into, c):
    """into[c] = point, by a loop: copies of whole arrays take seconds to compile."""
    for j in range(point.shape[0]):
        into[c, j] = point[j]


@njit(cache=True, nogil=True)
def _rank(past, i, k):
    """Nearest and second nearest centre of one row, by its distances to all."""
    _, columns, labels, gaps = past
    best, next_best, at, next_at = np.inf, np.inf, -1, -1
    for c in range(k):
        gap = gaps[c, i]
        if gap < best:
            best, next_best, at, next_at = gap, best, c, at
        elif gap < next_best:
            next_best, next_at = gap, c
    columns[NEAR, i], columns[SECOND, i], labels[0, i], labels[1, i] = best, next_best, at, next_at


@njit(cache=True, nogil=True)
def measure_gaps(past, n, centers, k):
    """Fill in the distances of n rows to k centres."""
    rows, _, _, gaps = past
    for c in range(k):
        _distances(rows, n, centers[c], gaps[c])


@njit(cache=True, nogil=True)
def look_at_all(past, centers, state):
    """Fill in the distances, the nearest and second nearest centres of all rows held."""
    measure_gaps(past, state[N], centers, state[K])
    for i in range(state[N]):
        _rank(past, i, state[K])


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def _change(past, n, c, gap):
    """S after centre ``c`` (-1: none, -2: all) has gone and one at the distances ``gap`` has come, less S.

    The change of g(l) = l + curb/2 (l - predicted)^2 of a row is found without subtracting large numbers.
    """
    _, columns, labels, _ = past
    weight, predicted, curb = columns[WEIGHT], columns[PREDICTED], columns[ROW_CURB]
    near, second, label, total = columns[NEAR], columns[SECOND], labels[0], 0.0
    least = np.inf if c == -2 else 0.0
    for i in range(n):  # without branches, so that several rows are taken at once
        old = near[i]
        new = second[i] if label[i] == c else max(old, least)
        new = min(gap[i], new)
        total += weight[i] * ((new - old) * (1.0 + 0.5 * curb[i] * (new + old - 2.0 * predicted[i])))
    return total


@njit(cache=True, nogil=True)
def _put(past, centers, state, k, c, point, gap):
    """Put centre ``c`` at ``point``; there are k then. Rows that had it, or one that is gone, are assigned again."""
    _, columns, labels, gaps = past
    _copy(point, centers, c)
    state[K] = k
    for i in range(state[N]):
        gaps[c, i] = gap[i]
    for i in range(state[N]):
        if labels[0, i] == c or labels[1, i] == c or labels[0, i] >= k or labels[1, i] >= k:
            _rank(past, i, k)
        elif gap[i] < columns[NEAR, i]:
            columns[SECOND, i], labels[1, i] = columns[NEAR, i], labels[0, i]
            columns[NEAR, i], labels[0, i] = gap[i], c
        elif gap[i] < columns[SECOND, i]:
            columns[SECOND, i], labels[1, i] = gap[i], c
    return 1


@njit(cache=True, nogil=True)
def _nearest_anchor(point, anchors, n_cut):
    best, at = np.inf, 0
    for a in range(n_cut):
        total = _square_gap(point, anchors, a)
        if total < best:
            best, at = total, a
    return at


@njit(cache=True, nogil=True)
def _draw_move(dice, centers, c, k, draws, ball, width, point):
    """A random walk from centre ``c``, or a draw round the anchor nearest to it: ln of reverse over forward density."""
    anchors, taus, _, n_cut, _ = draws
    if n_cut == 0 or _uniform(dice) < 0.5:
        # the scale depends on k, which a move does not change, and not on the centres: the walk is symmetric
        width = min(width * 2.0 ** (6.0 * _uniform(dice) - 3.0), ball)
        _normals(dice, point)
        for j in range(centers.shape[1]):
            point[j] = centers[c, j] + width * point[j]
        return 0.0
    a = _nearest_anchor(centers[c], anchors, n_cut)
    _draw_student(dice, anchors[a], taus[a], point)
    b = _nearest_anchor(point, anchors, n_cut)
    return _log_student(centers[c], draws, b) - _log_student(point, draws, a)


@njit(cache=True, nogil=True)
def _try_one(past, centers, state, draws, prior, jumps, jump_ratios, law, dice, point, gap):
    """Propose to add, to remove or to move one centre; returns whether it was done."""
    (rows, _, _, gaps), n, k, log_ball = past, state[N], state[K], prior[LOG_BALL]
    rate, total, way, gone = law[0], law[2], _way(dice, jumps, k), -1
    log_ratio = jump_ratios[k, way] + (way - 1) * (log_ball - law[1])
    if way == 2:
        _draw_birth(dice, draws, state[NEWEST], prior[BALL], point)
    else:
        gone = min(int(_uniform(dice) * k), k - 1)
    if way == 1:
        width = 2.38 * math.sqrt(k / (2.0 * point.shape[0] * rate * total)) if rate * total > 0.0 else np.inf
        log_ratio += _draw_move(dice, centers, gone, k, draws, prior[BALL], width, point)
    log_uniform = math.log(_uniform(dice))
    if way == 0:
        for j in range(point.shape[0]):
            point[j] = centers[gone, j]
        for i in range(n):
            gap[i] = np.inf
    elif _square(point) > prior[BALL] * prior[BALL]:
        return 0
    else:
        _distances(rows, n, point, gap)
    log_ratio -= rate * _change(past, n, gone, gap)
    if way != 1:  # a bound of the density decides most births and deaths
        bound = log_ball if way == 0 else math.log(UNIFORM) + log_ball
        for log_constant in draws[2]:
            bound = max(bound, log_constant) if way == 0 else bound
        if log_uniform >= log_ratio + (1 - way) * bound + 1e-9 * abs(bound):
            return 0
        log_ratio += (1 - way) * log_birth_density(point, draws, state[NEWEST], log_ball)
    if log_uniform >= log_ratio:
        return 0
    if way == 0:  # the last centre takes its place
        for j in range(point.shape[0]):
            point[j] = centers[k - 1, j]
        for i in range(n):
            gap[i] = gaps[k - 1, i]
    return _put(past, centers, state, k + way - 1, k if way == 2 else gone, point, gap)


@njit(cache=True, nogil=True)
def _log_matched(centers, k, draws, in_order):
    """ln of the density of k draws, one round each anchor of the level; -inf unless they match one by one."""
    anchors, _, _, _, levels = draws
    level, total, taken = levels[k], 0.0, np.zeros(k, np.bool_)
    if level[0] < 0:
        return -np.inf
    for c in range(k):
        best, at = np.inf, 0
        for m in range(k):
            distance = _square_gap(centers[c], anchors, level[m])
            if distance < best:
                best, at = distance, m
        if taken[at] or (in_order and at != c):
            return -np.inf
        taken[at] = True
        total += _log_student(centers[c], draws, level[at])
    return total


@njit(cache=True, nogil=True)
def _try_swap(past, centers, state, draws, prior, jumps, jump_ratios, law, dice, gap):
    """Propose all centres, round the anchors of a level of k, k + 1 or k - 1: the paper's step, unordered."""
    rows, (anchors, taus, _, _, levels) = past[0], draws
    n, k, way = state[N], state[K], _way(dice, jumps, state[K])
    log_backward, new_k = _log_matched(centers, k, draws, np.bool_(False)), k + way - 1
    if log_backward == -np.inf or levels[new_k, 0] < 0:
        return 0
    trial = np.empty((new_k, centers.shape[1]))
    for c in range(new_k):
        _draw_student(dice, anchors[levels[new_k, c]], taus[levels[new_k, c]], trial[c])
        if _square(trial[c]) > prior[BALL] * prior[BALL]:
            return 0
    log_forward, log_uniform = _log_matched(trial, new_k, draws, np.bool_(True)), math.log(_uniform(dice))
    if log_forward == -np.inf:
        return 0
    new_near, labels = np.empty(n), np.empty(n, np.int32)
    _losses(rows, n, trial, new_k, gap, new_near, labels)
    change = _change(past, n, np.int64(-2), new_near)
    orders = math.lgamma(new_k + 1.0) - math.lgamma(k + 1.0)  # in which a set of centres may stand
    ratio = (new_k - k) * (prior[LOG_BALL] - law[1]) + orders + log_backward - log_forward + jump_ratios[k, way]
    if log_uniform >= -law[0] * change + ratio:
        return 0
    for c in range(new_k):
        _copy(trial[c], centers, c)
    state[K] = new_k
    look_at_all(past, centers, state)
    return 1


@njit(cache=True, nogil=True)
def _take_row(x, past, centers, state, clock, draws, schedule, decay, law):
    """Predict a row and take it in; returns its loss. ``law`` becomes that of the chain after it."""
    (rows, columns, _, gaps), anchors, i = past, draws[0], state[N]
    for s in range(i if decay < 1.0 else 0):
        columns[WEIGHT, s] *= decay
    for j in range(x.shape[0]):
        rows[j, i] = x[j]
    for c in range(state[K]):
        gaps[c, i] = _square_gap(x, centers, c)
    _rank(past, i, state[K])
    loss = columns[NEAR, i]
    curb = schedule[CURB] if schedule[LAG] == np.inf else schedule[CURB] / math.sqrt(max(1.0, clock[0]))
    if curb * loss > schedule[CURB_MOST]:
        curb = schedule[CURB_MOST] / loss
    columns[WEIGHT, i], columns[PREDICTED, i], columns[ROW_CURB, i] = 1.0, loss, curb
    state[N], state[AWAKE] = i + 1, max(state[AWAKE] - 1, 0)
    if loss > schedule[USUAL]:
        state[AWAKE] = max(state[AWAKE], _AWAKE)
    if loss > schedule[SURPRISE] and anchors.shape[0] > LATEST:
        if loss > schedule[NOISE]:
            columns[WEIGHT, i] = 0.0  # until the next survey, unless one of the last was near
            for a in range(anchors.shape[0] - LATEST, anchors.shape[0]):
                if _square_gap(x, anchors, a) <= schedule[NOISE]:
                    columns[WEIGHT, i] = 1.0
        state[NEWEST] = (state[NEWEST] + 1) % LATEST
        _copy(x, anchors, anchors.shape[0] - LATEST + state[NEWEST])
        if columns[WEIGHT, i] > 0.0:
            state[AWAKE] = _LONG_AWAKE
    clock[0] = clock[0] * decay + 1.0
    rate = schedule[RATE] / math.sqrt(max(1.0, clock[0] - schedule[LAG]))
    law[0], law[1], law[2] = rate, schedule[ETA] + schedule[ETA_SHARE] * rate * clock[0], clock[0]
    return loss


@njit(cache=True, nogil=True)
def run_chain(X, first_row, seed, past, centers, state, clock, draws, prior, jumps, jump_ratios, schedule, decay, law,
              n_steps, n_calm, n_centers, losses, accepted):  # fmt: skip
    """Predict, take in and sample after every row of X; returns how many came before one beyond the radius.

    If X is empty, it only samples after row ``first_row``. ``past`` is (rows, columns, labels, gaps), the last of them
    the squared distances of rows to centres (p, room); ``draws`` (anchors, taus, log_constants, n_cut, levels) says
    where centres are drawn. ``law`` is lambda = schedule[RATE] / sqrt(max(1, W - schedule[LAG])), the penalty of a
    centre, and W, the weight of the past. ``clock`` is the weight of all rows so far, and the norm of the row that
    stopped it. While state[AWAKE] counts down, a row is followed by ``n_steps`` steps, else by ``n_calm``.
    """
    dice, point, gap = np.empty(1, np.uint64), np.empty(centers.shape[1]), np.empty(past[0].shape[1])
    n_rows = X.shape[0]
    for r in range(max(n_rows, 1)):
        if n_rows > 0:
            norm = math.sqrt(_square(X[r]))
            if norm > prior[RADIUS] * SLACK:
                clock[1] = norm
                return r
            n_centers[r] = state[K]
            losses[r] = _take_row(X[r], past, centers, state, clock, draws, schedule, decay, law)
        _set_dice(dice, seed, first_row + r, np.int64(0))
        count, steps = 0, n_steps if state[AWAKE] > 0 else n_calm
        for _ in range(steps):
            if _uniform(dice) < _SWAP_SHARE:
                count += _try_swap(past, centers, state, draws, prior, jumps, jump_ratios, law, dice, gap)
            else:
                count += _try_one(past, centers, state, draws, prior, jumps, jump_ratios, law, dice, point, gap)
        accepted[r] = count / max(steps, 1)
    return n_rows


@njit(cache=True, nogil=True)
def _seed_means(rows, weight, n, k, dice, gap, near, out):
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
        near[i] = 1.0
    for c in range(k):
        mass = 0.0
        for i in range(n):
            mass += weight[i] * near[i]
        _copy(mean, out, c)
        if mass <= 0.0:
            continue
        target, at = _uniform(dice) * mass, n - 1
        for i in range(n):
            target -= weight[i] * near[i]
            if target <= 0.0:
                at = i
                break
        for j in range(d):
            out[c, j] = rows[j, at]
        _distances(rows, n, out[c], gap)
        for i in range(n):
            near[i] = gap[i] if c == 0 or gap[i] < near[i] else near[i]
    return mean


@njit(cache=True, nogil=True)
def _sums(rows, weight, n, k, near, labels, sums):
    """Mass, loss and sum of the rows of each centre: (k, 2 + d); returns the loss of all."""
    cost = 0.0
    for c in range(k):
        for j in range(sums.shape[1]):
            sums[c, j] = 0.0
    for i in range(n):
        c = labels[i]
        sums[c, 0] += weight[i]
        sums[c, 1] += weight[i] * near[i]
        cost += weight[i] * near[i]
        for j in range(rows.shape[0]):
            sums[c, 2 + j] += weight[i] * rows[j, i]
    return cost


@njit(cache=True, nogil=True)
def _lloyd(rows, weight, n, means, k, mean, n_steps, gap, near, labels):
    """A few steps of k-means from ``means``, which are replaced; empty ones go to ``mean``. Returns cost and sums."""
    sums, cost, previous = np.empty((k, 2 + rows.shape[0])), np.inf, np.inf
    for step in range(n_steps + 1):
        _losses(rows, n, means, k, gap, near, labels)
        cost = _sums(rows, weight, n, k, near, labels, sums)
        if step == n_steps or cost >= previous:
            break
        previous = cost
        for c in range(k):
            for j in range(rows.shape[0]):
                means[c, j] = sums[c, 2 + j] / sums[c, 0] if sums[c, 0] > 0.0 else mean[j]
    return cost, sums


@njit(cache=True, nogil=True)
def cut_in_pieces(rows, weight, k, seed, row):
    """D^2 draws and a few steps of k-means on rows (d, n): centres (k, d), and their `_sums`."""
    n = rows.shape[1]
    dice, gap, near, labels = np.empty(1, np.uint64), np.empty(n), np.empty(n), np.empty(n, np.int32)
    means = np.empty((k, rows.shape[0]))
    _set_dice(dice, seed, row, np.int64(-1))
    mean = _seed_means(rows, weight, n, k, dice, gap, near, means)
    return means, _lloyd(rows, weight, n, means, k, mean, _PIECE_STEPS, gap, near, labels)[1]


@njit(cache=True, nogil=True)
def _means_of(rows, weight, n, k, row, seed, means, stamps, gap):
    """k-means of the past, once for each k after a row: a function of row and k, not of the state of the chain."""
    if stamps[k] == row:
        return
    dice, fresh, near, labels = np.empty(1, np.uint64), np.empty((k, rows.shape[0])), np.empty(n), np.empty(n, np.int32)
    _set_dice(dice, seed, row, 1 + k)
    mean = _seed_means(rows, weight, n, k, dice, gap, near, fresh)
    cost = _lloyd(rows, weight, n, fresh, k, mean, _LLOYD_STEPS, gap, near, labels)[0]
    if stamps[k] < 0 or cost < _lloyd(rows, weight, n, means[k], k, mean, _LLOYD_STEPS, gap, near, labels)[0]:
        for c in range(k):
            _copy(fresh[c], means[k], c)
    stamps[k] = row


@njit(cache=True, nogil=True)
def _draw(dice, anchors, k, tau, shuffle, out):
    for c in range(k):
        _draw_student(dice, anchors[c], tau, out[c])
    if shuffle:
        for c in range(k - 1, 0, -1):
            partner = min(int(_uniform(dice) * (c + 1)), c)
            for j in range(out.shape[1]):
                out[c, j], out[partner, j] = out[partner, j], out[c, j]


@njit(cache=True, nogil=True)
def log_proposal(centers, anchors, k, tau, log_constant, symmetric):
    """ln of the density of k centres: in the order of the places, or in any order (permanent / k!)."""
    if not symmetric:
        total = 0.0
        for c in range(k):
            total += _log_student_of(centers[c], anchors, c, tau, log_constant)
        return total
    table, shift = np.empty((k, k)), 0.0
    for c in range(k):
        top = -np.inf
        for m in range(k):
            table[c, m] = _log_student_of(centers[c], anchors, m, tau, log_constant)
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
    inside = True
    for c in range(k):
        inside &= _square(centers[c]) <= ball * ball
    return inside


@njit(cache=True, nogil=True)
def swap_chain(row, seed, past, centers, state, means, stamps, tau, log_constant, symmetric, fresh, prior, jumps,
               jump_ratios, rate, eta, n_steps):  # fmt: skip
    """Steps of the chain after row number ``row``; returns how many were accepted.

    ``means[k]`` are kept from row to row as a start for the next search, and ``stamps[k]`` is the row they belong to.
    """
    rows, columns, _, _ = past
    weight, losses, n = columns[WEIGHT], columns[NEAR], state[N]
    dice, trial = np.empty(1, np.uint64), np.empty_like(centers)
    trial_losses, gap, labels = np.empty(n), np.empty(n), np.empty(n, np.int32)
    _set_dice(dice, seed, row, np.int64(0))
    k = state[K]
    _means_of(rows, weight, n, k, row, seed, means, stamps, gap)
    for _ in range(_MAX_START_DRAWS if fresh else 0):
        _draw(dice, means[k], k, tau, symmetric, trial)
        if _all_inside(trial, k, prior[BALL]):
            for c in range(k):
                _copy(trial[c], centers, c)
            break
    _losses(rows, n, centers, k, gap, losses, labels)
    log_backward = log_proposal(centers, means[k], k, tau, log_constant, symmetric)
    accepted = 0
    for _ in range(n_steps):
        way = _way(dice, jumps, k)
        new_k = k + way - 1
        _means_of(rows, weight, n, new_k, row, seed, means, stamps, gap)
        _draw(dice, means[new_k], new_k, tau, symmetric, trial)
        log_uniform = math.log(_uniform(dice))
        if not _all_inside(trial, new_k, prior[BALL]):
            continue
        _losses(rows, n, trial, new_k, gap, trial_losses, labels)
        change = _change(past, n, np.int64(-2), trial_losses)
        log_forward = log_proposal(trial, means[new_k], new_k, tau, log_constant, symmetric)
        ratio = (prior[LOG_BALL] - eta) * (new_k - k) + log_backward - log_forward + jump_ratios[k, way]
        if log_uniform >= -rate * change + ratio:
            continue
        for c in range(new_k):
            _copy(trial[c], centers, c)
        for i in range(n):
            losses[i] = trial_losses[i]
        k, log_backward = new_k, log_forward
        accepted += 1
    state[K] = k
    return accepted


@njit(cache=True, nogil=True)
def ward_tree(centers, weights):
    """Repeatedly join the two clusters whose union costs least, a b / (a + b) |c_a - c_b|^2.

    Returns nodes (2p - 1, d), the p given ones first, their weights, the pairs joined (p - 1, 2) and their costs.
    """
    p, d = centers.shape
    nodes, mass = np.empty((2 * p - 1, d)), np.empty(2 * p - 1)
    pairs, costs = np.empty((p - 1, 2), np.int64), np.empty(p - 1)
    alive = np.zeros(2 * p - 1, np.bool_)
    for a in range(p):  # loops, since copies of whole arrays take seconds to compile
        alive[a], mass[a] = True, weights[a]
        for j in range(d):
            nodes[a, j] = centers[a, j]
    price = np.empty((2 * p - 1, 2 * p - 1))
    for new in range(2 * p - 1):
        if new >= p:
            best, left, right = np.inf, -1, -1
            for a in range(new):
                for b in range(a):
                    if alive[a] and alive[b] and price[a, b] < best:
                        best, left, right = price[a, b], b, a
            alive[left] = alive[right] = False
            alive[new] = True
            mass[new] = mass[left] + mass[right]
            for j in range(d):
                nodes[new, j] = (mass[left] * nodes[left, j] + mass[right] * nodes[right, j]) / mass[new]
            pairs[new - p, 0], pairs[new - p, 1], costs[new - p] = left, right, best
        for a in range(new):
            if alive[a]:
                total = 0.0
                for j in range(d):
                    gap = nodes[a, j] - nodes[new, j]
                    total += gap * gap
                price[new, a] = mass[a] * mass[new] / (mass[a] + mass[new]) * total
    return nodes, mass, pairs, costs
