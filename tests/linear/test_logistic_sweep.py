from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import log_softmax, softmax

from tithe.core.labels import distinct_labels, label_numbers
from tithe.core.parallel import limit_threads
from tithe.linear.logistic_kernels import logistic_sweep


def _problem(n: int, d: int, n_classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    y = rng.integers(0, n_classes, n).astype(np.int32)
    theta = rng.normal(size=(1 if n_classes == 2 else n_classes, d + 1)) * 2.0 / np.sqrt(d)
    return X, y, theta, rng.exponential(size=n)


def _by_hand(X, y, theta, u, n_classes):
    design = np.column_stack([X, np.ones(len(X))])
    margins = design @ theta.T
    both = np.column_stack([np.zeros(len(X)), margins]) if n_classes == 2 else margins
    chance, logs = softmax(both, axis=1), log_softmax(both, axis=1)
    residual = (chance - np.eye(n_classes)[y])[:, 1:] if n_classes == 2 else chance - np.eye(n_classes)[y]
    own = chance[:, 1:] if n_classes == 2 else chance
    gradient = np.array([(residual * u[:, None])[y == c].T @ design[y == c] for c in range(n_classes)])
    entropy = -(chance * logs).sum(axis=1)
    return (
        -logs[np.arange(len(y)), y],
        np.bincount(y, u * entropy, n_classes),
        gradient,
        (own * (1 - own) * u[:, None]).T @ design**2,
    )


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("d", [1, 5, 80])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_sweep_equals_the_formulas(n_classes: int, d: int, layout: str) -> None:
    X, y, theta, u = _problem(2500, d, n_classes)
    loss, entropy, gradient, diagonal = _by_hand(X, y, theta, u, n_classes)
    rows = sparse.csr_matrix(X) if layout == "csr" else X
    cost, sums = logistic_sweep(rows, y, theta, n_classes=n_classes, weight=u, diagonal=True)
    np.testing.assert_allclose(cost, loss, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.count, np.bincount(y, u, n_classes), rtol=1e-12)
    np.testing.assert_allclose(sums.loss, np.bincount(y, u * loss, n_classes), rtol=1e-10)
    np.testing.assert_allclose(sums.entropy, entropy, rtol=1e-9)
    np.testing.assert_allclose(sums.by_class, gradient, rtol=1e-9, atol=1e-9)
    assert sums.diagonal is not None
    np.testing.assert_allclose(sums.diagonal, diagonal, rtol=1e-9, atol=1e-9)


def test_two_classes_equal_softmax_of_two() -> None:
    X, y, theta, u = _problem(3000, 4, 2)
    one, sums = logistic_sweep(X, y, theta, n_classes=2, weight=u)
    two, both = logistic_sweep(X, y, np.vstack([0 * theta, theta]), n_classes=2, weight=u)
    np.testing.assert_allclose(one, two, rtol=1e-12)
    np.testing.assert_allclose(sums.by_class[:, 0], both.by_class[:, 1], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(sums.entropy, both.entropy, rtol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_extreme_margins_stay_finite_and_right(n_classes: int) -> None:
    X = np.array([[-1e4], [-40.0], [-1e-9], [0.0], [40.0], [1e4]])
    y = np.zeros(6, np.int32)
    theta = np.zeros((1 if n_classes == 2 else 3, 2))
    theta[-1, 0] = 1.0
    cost, sums = logistic_sweep(X, y, theta, n_classes=n_classes, diagonal=True)
    rest = 0.0 if n_classes == 2 else 1.0
    expected = np.logaddexp(np.log1p(rest), X[:, 0])
    np.testing.assert_allclose(cost, expected, rtol=1e-12, atol=1e-17)
    assert np.isfinite(sums.by_class).all() and np.isfinite(sums.entropy).all() and sums.entropy.min() >= 0.0


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.bits
def test_threads_are_no_matter(n_classes: int) -> None:
    X, y, theta, u = _problem(150_000, 6, n_classes)
    results = []
    for n in (1, 2, 3):
        with limit_threads(n):
            results.append(logistic_sweep(X.astype(np.float32), y, theta, n_classes=n_classes, weight=u, diagonal=True))
    for cost, sums in results[1:]:
        assert np.array_equal(cost, results[0][0])
        assert np.array_equal(sums.by_class, results[0][1].by_class)
        assert np.array_equal(sums.diagonal, results[0][1].diagonal)


@pytest.mark.parametrize(
    "y",
    [
        np.array([3, 1, 1, 7], np.int8),
        np.array([-1, 1, 1, -1]),
        np.array([True, False, True]),
        np.array([2.0, 0.0, 2.0]),
        np.array([0.5, 0.25, 0.5]),
        np.array([10**17, 10**17 + 1]),
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], object),
        np.array([1e300, -1e300, 1e300]),
        np.array([0, 10**9, 5]),
    ],
)
def test_labels_are_numbered_as_numpy_would(y: np.ndarray) -> None:
    labels, numbers = np.unique(y, return_inverse=True)
    results = distinct_labels(y)
    codes = label_numbers(y, results)
    assert np.array_equal(results, labels) and results.dtype == labels.dtype
    assert np.array_equal(codes, numbers) and codes.dtype == np.int32
    assert np.array_equal(distinct_labels(y), labels)
    assert np.array_equal(label_numbers(y, labels[:1]), np.where(numbers == 0, 0, -1))
