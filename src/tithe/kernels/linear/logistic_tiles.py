"""Compiled loops of the logistic and the softmax loss: losses, gradient by class, curvature.

Rows are taken in tiles: margins first, then everything that bends (exponentials and logarithms as
polynomials, so that the compiler can work on several rows at a time), then the sums. Everything is
added up in float64. Functions that divide are compiled with ``error_model="numpy"``: with the default,
every division is a branch that may raise, and the compiler takes one row at a time.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_FAST = {"contract", "reassoc", "nsz"}
_TILE = 512
WIDE, _WIDE_TILE = 64, 256  # columns from which sums over many classes are products of matrices, of that many rows
BY_CLASS = 32  # classes up to which gradients are added up by class
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # ln 2 = their sum, to 90 bits
_LOWEST = -700.0  # exp of anything smaller is as good as nothing


@njit(cache=True, nogil=True, fastmath=_FAST)
def _exp(x, bits, n):  # type: ignore[no-untyped-def]
    """x <- exp(x) for x <= 0, to an ulp or two: 2^k times a polynomial in what is left, |r| <= ln(2)/2."""
    for i in range(n):
        v = max(x[i], _LOWEST)
        k = np.floor(v * _LOG2E + 0.5)
        r = (v - k * _LN2_HIGH) - k * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        x[i] = p * r + 1.0
        bits[i] = (np.int64(k) + 1023) << 52
    power = bits.view(np.float64)
    for i in range(n):
        x[i] *= power[i]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _log1p(q):  # type: ignore[no-untyped-def]
    """ln(1 + q) for 0 <= q <= 1: twice the area tangent of q / (2 + q), whose square is at most 1/9."""
    w = q / (2.0 + q)
    s = w * w
    p = 1.0 / 33.0
    p = p * s + 1.0 / 31.0
    p = p * s + 1.0 / 29.0
    p = p * s + 1.0 / 27.0
    p = p * s + 1.0 / 25.0
    p = p * s + 1.0 / 23.0
    p = p * s + 1.0 / 21.0
    p = p * s + 1.0 / 19.0
    p = p * s + 1.0 / 17.0
    p = p * s + 1.0 / 15.0
    p = p * s + 1.0 / 13.0
    p = p * s + 1.0 / 11.0
    p = p * s + 1.0 / 9.0
    p = p * s + 1.0 / 7.0
    p = p * s + 1.0 / 5.0
    p = p * s + 1.0 / 3.0
    p = p * s + 1.0
    return 2.0 * w * p


@njit(cache=True, nogil=True, fastmath=_FAST)
def _margins_dense(X, start, r, theta, margins):  # type: ignore[no-untyped-def]
    d = X.shape[1]
    for k in range(theta.shape[0]):
        for i in range(r):
            total = theta[k, d]
            for j in range(d):
                total += X[start + i, j] * theta[k, j]
            margins[k, i] = total


@njit(cache=True, nogil=True, fastmath=_FAST)
def _margins_csr(data, indices, indptr, start, r, theta, margins):  # type: ignore[no-untyped-def]
    d = theta.shape[1] - 1
    for k in range(theta.shape[0]):
        for i in range(r):
            total = theta[k, d]
            for p in range(indptr[start + i], indptr[start + i + 1]):
                total += data[p] * theta[k, indices[p]]
            margins[k, i] = total


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _bend_two(y, weight, start, r, margins, spare, bits, cost, pull, bend, counts, part):  # type: ignore[no-untyped-def]
    """Two classes, one margin: losses, residuals and curvatures of a tile."""
    one, margin, wrong, curve = y[start : start + r], margins[0], pull[0], bend[0]
    for i in range(r):
        margin[i] = margin[i] if one[i] == 1 else -margin[i]
        spare[i] = -abs(margin[i])
    _exp(spare, bits, r)
    for i in range(r):
        t = margin[i]
        q = spare[i]
        inverse = 1.0 / (1.0 + q)
        wrong[i] = q * inverse if t > 0.0 else inverse  # the chance given to the other class
        curve[i] = wrong[i] * (1.0 - wrong[i])
        spare[i] = _log1p(q) - min(t, 0.0)  # the loss
    if cost.size > 0:
        cost[start : start + r] = spare[:r]
    u0 = u1 = l0 = l1 = h0 = h1 = 0.0
    if weight.size > 0:
        share = weight[start : start + r]
        for i in range(r):
            u, first = share[i], share[i] if one[i] == 1 else 0.0
            entropy = spare[i] + wrong[i] * margin[i]
            u0 += u
            l0 += u * spare[i]
            h0 += u * entropy
            u1 += first
            l1 += first * spare[i]
            h1 += first * entropy
            wrong[i] *= u
            curve[i] *= u
    else:
        u0 = float(r)
        for i in range(r):
            first = 1.0 if one[i] == 1 else 0.0
            entropy = spare[i] + wrong[i] * margin[i]
            l0 += spare[i]
            h0 += entropy
            u1 += first
            l1 += first * spare[i]
            h1 += first * entropy
    for i in range(r):
        wrong[i] = -wrong[i] if one[i] == 1 else wrong[i]
    counts[part, 0, 0] += u0 - u1
    counts[part, 0, 1] += l0 - l1
    counts[part, 0, 2] += h0 - h1
    counts[part, 1, 0] += u1
    counts[part, 1, 1] += l1
    counts[part, 1, 2] += h1


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _bend_many(y, weight, start, r, margins, spare, bits, cost, pull, bend, counts, part):  # type: ignore[no-untyped-def]
    """K classes, K margins: losses, residuals and curvatures of a tile."""
    n_classes = margins.shape[0]
    for i in range(r):
        top = margins[0, i]
        for k in range(1, n_classes):
            top = max(top, margins[k, i])
        spare[i] = top
    for k in range(n_classes):
        for i in range(r):
            pull[k, i] = margins[k, i] - spare[i]
        _exp(pull[k], bits, r)
    for i in range(r):
        total = 0.0
        for k in range(n_classes):
            total += pull[k, i]
        c = y[start + i]
        u = weight[start + i] if weight.size > 0 else 1.0
        # the other classes alone: what is left of 1 would be lost to rounding where the loss is small
        others = total - pull[c, i]
        if others < 0.5 * pull[c, i]:
            others = 0.0
            for k in range(n_classes):
                others += pull[k, i] if k != c else 0.0
        loss = spare[i] - margins[c, i]
        loss += np.log1p(others) if loss == 0.0 else np.log(total)
        entropy = loss
        for k in range(n_classes):
            p = pull[k, i] / total
            residual = -others / total if k == c else p
            entropy -= residual * margins[k, i]
            pull[k, i] = u * residual
            bend[k, i] = u * p * (others / total if k == c else 1.0 - p)
        if cost.size > 0:
            cost[start + i] = loss
        counts[part, c, 0] += u
        counts[part, c, 1] += u * loss
        counts[part, c, 2] += u * max(entropy, 0.0)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_dense(X, start, r, y, pull, bend, centre, gradient, diagonal, part):  # type: ignore[no-untyped-def]
    d = X.shape[1]
    for i in range(r):
        c = y[start + i] if gradient.shape[1] > 1 else 0
        for k in range(pull.shape[0]):
            p = pull[k, i]
            gradient[part, c, k, d] += p
            if diagonal.shape[0] == 0:
                for j in range(d):
                    gradient[part, c, k, j] += p * X[start + i, j]
                continue
            b = bend[k, i]
            diagonal[part, k, d] += b
            for j in range(d):
                x = np.float64(X[start + i, j])
                gradient[part, c, k, j] += p * x
                x -= centre[j]
                diagonal[part, k, j] += b * x * x


@njit(cache=True, nogil=True, fastmath=_FAST)
def _add_csr(data, indices, indptr, start, r, y, pull, bend, gradient, diagonal, part):  # type: ignore[no-untyped-def]
    d = gradient.shape[3] - 1
    for i in range(r):
        c = y[start + i] if gradient.shape[1] > 1 else 0
        for k in range(pull.shape[0]):
            p, b = pull[k, i], bend[k, i]
            for at in range(indptr[start + i], indptr[start + i + 1]):
                x = np.float64(data[at])
                gradient[part, c, k, indices[at]] += p * x
                if diagonal.shape[0] > 0:
                    diagonal[part, k, indices[at]] += b * x * x
            gradient[part, c, k, d] += p
            if diagonal.shape[0] > 0:
                diagonal[part, k, d] += b


@njit(cache=True, nogil=True, fastmath=_FAST)
def sweep_dense(X, y, weight, theta, centre, cost, counts, gradient, diagonal, first, last, rows):  # type: ignore[no-untyped-def]
    n, size = X.shape[0], theta.shape[0]
    margins, pull, bend = np.empty((size, _TILE)), np.empty((size, _TILE)), np.empty((size, _TILE))
    spare, bits = np.empty(_TILE), np.empty(_TILE, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE):
            r = min(stop - start, _TILE)
            _margins_dense(X, start, r, theta, margins)
            if size == 1:
                _bend_two(y, weight, start, r, margins, spare, bits, cost, pull, bend, counts, part)
            else:
                _bend_many(y, weight, start, r, margins, spare, bits, cost, pull, bend, counts, part)
            if gradient.shape[0] > 0:
                _add_dense(X, start, r, y, pull, bend, centre, gradient, diagonal, part)


@njit(cache=True, nogil=True, fastmath=_FAST)
def _sort_tile(X, y, start, r, n_classes, edges, place, tile):  # type: ignore[no-untyped-def]
    """Rows of a tile in float64, in the order of their classes; ``edges`` says where each class begins."""
    edges[:] = 0
    for i in range(r):
        edges[y[start + i] + 1] += 1
    for c in range(n_classes):
        edges[c + 1] += edges[c]
    for i in range(r):
        c = y[start + i]
        place[i] = edges[c]
        edges[c] += 1
        for j in range(X.shape[1]):
            tile[place[i], j] = X[start + i, j]
    for c in range(n_classes, 0, -1):
        edges[c] = edges[c - 1]
    edges[0] = 0


@njit(cache=True, nogil=True, fastmath=_FAST)
def sweep_wide(X, y, weight, theta, centre, cost, counts, gradient, diagonal, first, last, rows):  # type: ignore[no-untyped-def]
    """Many classes and many columns: margins and sums are products of matrices, class by class."""
    n, d = X.shape
    size = theta.shape[0]
    coefficients = np.ascontiguousarray(theta[:, :d])
    tile, turned = np.empty((_WIDE_TILE, d)), np.empty((size, _WIDE_TILE))
    margins, pull, bend = np.empty((size, _TILE)), np.empty((size, _TILE)), np.empty((size, _TILE))
    spare, bits = np.empty(_TILE), np.empty(_TILE, np.int64)
    edges, place = np.zeros(size + 1, np.int64), np.empty(_WIDE_TILE, np.int64)
    sums, part_of = np.empty((size, d)), np.empty(size * _WIDE_TILE)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _WIDE_TILE):
            r = min(stop - start, _WIDE_TILE)
            _sort_tile(X, y, start, r, size, edges, place, tile)
            found = np.dot(coefficients, tile[:r].T)
            for k in range(size):
                for i in range(r):
                    margins[k, i] = found[k, place[i]] + theta[k, d]
            _bend_many(y, weight, start, r, margins, spare, bits, cost, pull, bend, counts, part)
            if gradient.shape[0] == 0:
                continue
            for k in range(size):
                for i in range(r):
                    turned[k, place[i]] = pull[k, i]
            groups = gradient.shape[1]
            for c in range(groups):
                a, b = (edges[c], edges[c + 1]) if groups > 1 else (0, r)
                if a == b:
                    continue
                own = part_of[: size * (b - a)].reshape(size, b - a)
                for k in range(size):
                    for i in range(b - a):
                        own[k, i] = turned[k, a + i]
                np.dot(own, tile[a:b], sums)
                for k in range(size):
                    for j in range(d):
                        gradient[part, c, k, j] += sums[k, j]
                    for i in range(b - a):
                        gradient[part, c, k, d] += own[k, i]
            if diagonal.shape[0] > 0:
                own = part_of[: size * r].reshape(size, r)
                for k in range(size):
                    for i in range(r):
                        own[k, place[i]] = bend[k, i]
                        diagonal[part, k, d] += bend[k, i]
                for i in range(r):
                    for j in range(d):
                        tile[i, j] = (tile[i, j] - centre[j]) ** 2
                np.dot(own, tile[:r], sums)
                for k in range(size):
                    for j in range(d):
                        diagonal[part, k, j] += sums[k, j]


@njit(cache=True, nogil=True, fastmath=_FAST)
def sweep_csr(data, indices, indptr, y, weight, theta, cost, counts, gradient, diagonal, first, last, rows):  # type: ignore[no-untyped-def]
    n, size = indptr.shape[0] - 1, theta.shape[0]
    margins, pull, bend = np.empty((size, _TILE)), np.empty((size, _TILE)), np.empty((size, _TILE))
    spare, bits = np.empty(_TILE), np.empty(_TILE, np.int64)
    for part in range(first, last):
        stop = min(n, (part + 1) * rows)
        for start in range(part * rows, stop, _TILE):
            r = min(stop - start, _TILE)
            _margins_csr(data, indices, indptr, start, r, theta, margins)
            if size == 1:
                _bend_two(y, weight, start, r, margins, spare, bits, cost, pull, bend, counts, part)
            else:
                _bend_many(y, weight, start, r, margins, spare, bits, cost, pull, bend, counts, part)
            if gradient.shape[0] > 0:
                _add_csr(data, indices, indptr, start, r, y, pull, bend, gradient, diagonal, part)
