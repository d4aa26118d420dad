"""How much the values of a category, or the words of a text, say about the target: the scale of their features.

With many values and few rows of each, a linear model with 0/1 features gives each value an effect of its own, most of
which is noise: a penalty |w|^2 / 2 is a prior with variance 1 for effects that are far smaller. A feature of s in place
of 1 makes that variance s^2. The best s^2 is tau^2 / sigma^2 (Robbins 1956, as empirical Bayes), with the variance
tau^2 of the effects and the variance sigma^2 of y without them; for the logits of a class with share p it is
tau^2 / (p (1 - p))^2. Classes count by their p (1 - p). tau^2 is found by the method of moments: for categories that of
a one-way layout, for words that of Haseman and Elston (1972), with K = Z Z^T for their features Z and centred y

    tau^2 = sum_{i != j} y_i y_j K_ij / sum_{i != j} K_ij^2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tithe.core.data import Array

_FEW_VALUES = 20  # their effects are known well, or the table is small
_MANY_ROWS = 500  # of a value: its effect outweighs the penalty anyway
_LEAST = 0.1
_MOST_OF_WORDS = 1.5
_N_PROBES = 16


def effect_scale(codes: Array, kinds: Array, *, is_class: bool) -> float:
    """The s of a category: ``codes`` are its values (n,), -1 for gaps, ``kinds`` the target, NaN where it is missing.

    >>> rng = np.random.default_rng(0)
    >>> codes, noise = rng.integers(0, 100, 3000), rng.normal(size=3000)
    >>> effect_scale(codes, noise, is_class=False), effect_scale(codes, codes + noise, is_class=False)
    (0.1, 1.0)
    """
    known = np.flatnonzero((codes >= 0) & np.isfinite(kinds))
    codes, kinds = numbered(codes[known]), kinds[known]
    times = np.bincount(codes)
    if not _FEW_VALUES < len(times) < len(codes) < _MANY_ROWS * len(times):
        return 1.0
    return _scale(kinds, lambda target: _variances(codes, times, target), is_class, 1.0)


def numbered(codes: Array) -> Array:
    """Whole numbers from 0 on as those without the numbers that do not occur: (n,).

    >>> numbered(np.array([5, 2, 5]))
    array([1, 0, 1])
    """
    places: Array = np.cumsum(np.bincount(codes) > 0) - 1
    return places[codes]


def words_scale(Z: Any, kinds: Array, *, is_class: bool) -> float:
    """The s of a text: ``Z`` are the features of its words, CSR (n, width), ``kinds`` as in `effect_scale`."""
    known = np.flatnonzero(np.isfinite(kinds))
    Z, kinds = Z[known], kinds[known]
    squares = np.asarray(Z.multiply(Z).sum(axis=1)).ravel()
    probes = np.random.default_rng(0).choice([-1.0, 1.0], (len(kinds), _N_PROBES))
    pairs = float(np.square(Z @ (Z.T @ probes)).sum()) / _N_PROBES - float(np.square(squares).sum())
    if pairs <= 0.0:
        return 1.0

    def variances(target: Array) -> tuple[float, float]:
        away = target - target.mean()
        between = (float(np.square(Z.T @ away).sum()) - float((away * away * squares).sum())) / pairs
        return max(0.0, between), float(np.mean(away * away) - between * squares.mean())

    return _scale(kinds, variances, is_class, _MOST_OF_WORDS)


def _scale(kinds: Array, variances: Callable[[Array], tuple[float, float]], is_class: bool, most: float) -> float:
    """The s of all classes, or of numbers, by the variance of effects and that of the rest for a target."""
    targets = [kinds == kind for kind in np.unique(kinds)] if is_class else [kinds]
    ratios, shares = [], []
    for target in targets:
        between, within = variances(target.astype(np.float64))
        share = float(target.mean() * (1.0 - target.mean())) if is_class else float(target.var())
        if share > 0.0:
            ratios.append(between / share**2 if is_class else between / within if within > 0.0 else np.inf)
            shares.append(share)
    if not ratios:
        return 1.0
    return round(float(np.clip(np.sqrt(np.average(ratios, weights=shares)), _LEAST, most)), 2)


def _variances(codes: Array, times: Array, target: Array) -> tuple[float, float]:
    """The variance of the means of the groups, without that of their noise, and the variance within the groups."""
    n, k = len(target), len(times)
    means = np.bincount(codes, target) / times
    within = float(np.square(target - means[codes]).sum()) / (n - k)
    between = float((times * (means - target.mean()) ** 2).sum()) / (k - 1)
    usual = (n - float(np.square(times).sum()) / n) / (k - 1)  # rows of a group
    return max(0.0, between - within) / usual, within
