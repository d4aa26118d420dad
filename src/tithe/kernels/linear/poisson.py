"""Compiled losses of Poisson regression, with exponentials and logarithms as polynomials.

The compiler works on several rows at a time that way. The result is correct to an ulp or two. ``error_model="numpy"``:
with the default every division is a branch that may raise, and the compiler takes one row at a time. Sums are not
reassociated: ln 2 is subtracted in two parts, which keeps digits that would be lost.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tithe.core.data import Array

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # ln 2 = their sum, to 90 bits
_MIN_EXPONENT, _MAX_EXPONENT = -700.0, 709.0  # exp of anything smaller is negligible, of anything larger infinite
_TINY = float(np.finfo(np.float64).tiny)  # 0 ln 0 is 0
_BITS_OF_ROOT_HALF = 0x3FE6A09E667F3BCD  # sqrt(1/2) as an integer


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"}, error_model="numpy")
def _terms(score, y, bits, as_number, loss, y_bits, first, mean):
    n = score.shape[0]  # as_number and y_bits are the memory of bits and loss
    for i in range(n):  # exp(score) = 2^k times a polynomial in what is left, |r| <= ln(2)/2
        v = min(max(score[i], _MIN_EXPONENT), _MAX_EXPONENT)
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
        mean[i] = p * r + 1.0
        bits[i] = (np.int64(k) + 1023) << 52
    for i in range(n):
        mean[i] = mean[i] * as_number[i] if score[i] <= _MAX_EXPONENT else np.inf
        loss[i] = max(y[i], _TINY)
    for i in range(n):  # y = 2^k m with m between sqrt(1/2) and sqrt(2)
        k = (y_bits[i] - _BITS_OF_ROOT_HALF) >> 52
        bits[i] = y_bits[i] - (k << 52)
        first[i] = np.float64(k)
    for i in range(n):  # ln m is twice the area tangent of (m - 1) / (m + 1), whose square is at most .03
        w = (as_number[i] - 1.0) / (as_number[i] + 1.0)
        s = w * w
        p = 1.0 / 21.0
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
        log_y = 2.0 * w * p + first[i] * _LN2_LOW + first[i] * _LN2_HIGH
        loss[i] = max(mean[i] + y[i] * (log_y - 1.0 - score[i]), 0.0)
        first[i] = mean[i] - y[i]


def poisson_terms(score: Array, y: Array) -> tuple[Array, Array, Array]:
    """exp(z) - y z + y ln y - y for scores z (n,) and targets (n,), and its first and second derivatives in z."""
    loss, first, mean = np.empty(len(score)), np.empty(len(score)), np.empty(len(score))
    bits = np.empty(len(score), np.int64)  # a view that is made in compiled code takes longer to compile
    _terms(score, np.ascontiguousarray(y), bits, bits.view(np.float64), loss, loss.view(np.int64), first, mean)
    return loss, first, mean
