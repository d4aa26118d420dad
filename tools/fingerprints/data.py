"""Small fixed problems. Nothing here may change: every hash hangs on it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from scipy import sparse

N = 3000
Pair = tuple[np.ndarray, np.ndarray]


@cache
def clouds(n: int = N, d: int = 4) -> np.ndarray:
    """Rows in four clusters, one of them small and far away."""
    rng = np.random.default_rng(1)
    centers = np.vstack([rng.normal(scale=4.0, size=(3, d)), np.full((1, d), 25.0)])
    return centers[rng.choice(4, size=n, p=(0.5, 0.3, 0.19, 0.01))] + rng.normal(size=(n, d))


@cache
def weights(n: int = N) -> np.ndarray:
    return np.random.default_rng(2).uniform(0.5, 2.0, size=n)


@cache
def two_classes(n: int = N, d: int = 5) -> Pair:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1)
    return X, (X @ np.linspace(1.0, -0.5, d) - 1.0 + rng.logistic(size=n) > 0).astype(np.int64)


@cache
def three_classes(n: int = N, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, 3)) + rng.gumbel(size=(n, 3))
    return X, np.array(["ant", "bee", "cat"])[scores.argmax(axis=1)]


@cache
def few_entries(n: int = N, d: int = 30) -> sparse.csr_matrix:
    """Sparse rows; their classes are those of `two_classes`."""
    X = sparse.random(n, d, density=0.1, format="csr", random_state=5)
    X.data += 0.5
    return X


@cache
def numbers(n: int = N, d: int = 5) -> Pair:
    """A linear target with a few wild values."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n, d))
    y = X @ np.arange(1.0, d + 1.0) + 3.0 + rng.normal(size=n)
    y[::97] += 40.0
    return X, y


@cache
def counts(n: int = N, d: int = 4) -> Pair:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(n, d)) * 0.5
    return X, rng.poisson(np.exp(X @ np.linspace(-0.5, 0.8, d) + 0.5)).astype(np.float64)


@cache
def signals(n: int = 1200, d: int = 8) -> np.ndarray:
    """Sparse combinations of ten atoms."""
    rng = np.random.default_rng(8)
    codes = rng.normal(size=(n, 10)) * (rng.random((n, 10)) < 0.2)
    return codes @ rng.normal(size=(10, d)) + 0.02 * rng.normal(size=(n, d))


@cache
def picture(colours: bool = False) -> np.ndarray:
    """Edges and a slope, with noise of 15 grey levels."""
    rows, columns = np.mgrid[:32, :40]
    gray = 90.0 + 70.0 * (columns > 18) + rows
    clean = np.stack([gray, 220 - gray, gray / 2 + 40], axis=2) if colours else gray
    noisy = clean + 15.0 * np.random.default_rng(9).normal(size=clean.shape)
    return noisy.clip(0, 255).round().astype(np.uint8)


@cache
def table(n: int = 1500, gaps: bool = True) -> pd.DataFrame:
    """Numbers, whole numbers, text, dates, a weight and a label; some values are missing."""
    rng = np.random.default_rng(10)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.exponential(size=n), "n": rng.integers(0, 50, size=n)})
    frame["town"] = rng.choice(["Rome", "Oslo", "Lima, Peru", 'a "quoted" one'], size=n)
    frame["day"] = np.datetime64("2024-01-01") + rng.integers(0, 400, size=n).astype("timedelta64[D]")
    frame["label"] = np.where(frame["a"] - frame["b"] + rng.logistic(size=n) > -0.5, "yes", "no")
    frame["price"] = 3.0 * frame["a"] + frame["b"] + rng.normal(size=n)
    frame["visits"] = rng.poisson(np.exp(0.4 * frame["a"]))
    frame["w"] = rng.uniform(0.5, 2.0, size=n)
    if gaps:
        frame["a"] = frame["a"].mask(rng.random(n) < 0.03)
        frame["town"] = frame["town"].mask(rng.random(n) < 0.02)
    return frame
