"""Small machines for the tests of paths: rows of two classes, and machines trained from nothing."""

from __future__ import annotations

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from tithe.odm.solvers.kernel_matrix import GivenKernel, Gram
from tithe.odm.solvers.two_classes import Dual, solve_two_classes

SETTINGS = [  # lam, mu, theta
    (1.0, 0.5, 0.2),
    (100.0, 0.5, 0.2),
    (100.0, 0.0, 0.3),
    (100.0, 1.0, 0.0),
    (1e4, 0.1, 0.0),
    (1e4, 0.7, 0.8),
]


def two_classes(n: int = 60, seed: int = 0, *, duplicates: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, signs and weights; with ``duplicates`` half of the rows occur twice, some with both signs."""
    rng = np.random.default_rng(seed)
    sign = np.where(rng.integers(0, 2, n) == 1, 1.0, -1.0)
    X = rng.normal(size=(n, 3)) + 0.4 * sign[:, None]
    if duplicates:
        X[n // 2 :] = X[: n - n // 2]
    return X, sign, rng.uniform(0.2, 3.0, n)


def kernel_of(X: np.ndarray) -> np.ndarray:
    lower = np.tril(rbf_kernel(X, gamma=0.5))  # scikit-learn's is not symmetric to the last bit
    return lower + np.tril(lower, -1).T + 1.0


def trained(kernel: np.ndarray, sign: np.ndarray, cost: np.ndarray, mu: float, theta: float) -> np.ndarray:
    """y gamma of a machine trained from nothing, to rounding error."""
    if len(sign) == 0:
        return np.zeros(0)
    gram = Gram(GivenKernel(matrix=kernel), np.arange(len(sign)), cache_bytes=1e9)
    dual = Dual(gram=gram, sign=sign, cost=cost, mu=mu, theta=theta)
    solve_two_classes(dual, tol=1e-20, max_iter=1000, rng=np.random.default_rng(0), free=False)
    return sign * dual.gamma
