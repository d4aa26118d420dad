"""Many classes and a large lam: block pivots end where coordinate descent would take thousands of sweeps."""

from __future__ import annotations

import numpy as np
import pytest

from tithe.odm import ODMClassifier
from tithe.odm.solvers import kernel_classes
from tithe.odm.solvers.kernel_classes import KernelMulticlassDual, n_free, solve_by_pivots
from tithe.odm.solvers.kernel_matrix import Gram, KernelFunction


def overlapping(n: int = 250, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    y = np.digitize(np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.4 * rng.normal(size=n), [-1.0, 0.0, 1.0])
    return X, y


def started(lam: float, X: np.ndarray, y: np.ndarray, *, mu: float = 0.5) -> KernelMulticlassDual:
    """A few sweeps at the lower side, then rivals if there is an upper side."""
    gram = Gram(KernelFunction(kernel="rbf", gamma=0.2), X, constant=1.0, cache_bytes=1e9)
    cost = np.full(len(y), lam / (len(y) * 0.8**2))
    dual = KernelMulticlassDual(
        gram=gram, label=y, cost=cost, n_classes=4, mu=mu, theta=0.2, rng=np.random.default_rng(0)
    )
    for _ in range(5):
        dual.sweep()
    if mu > 0.0:
        dual.mu_now = mu
        dual.choose_rivals("cccp")
        dual.sweep()
    return dual


@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("lam", [1e3, 1e6])
def test_pivots_solve_the_convex_problem(lam, mu) -> None:
    dual = started(lam, *overlapping(), mu=mu)
    assert solve_by_pivots(dual, 1e-10)
    gap, primal, _ = dual.measure()
    assert gap <= 1e-10 * primal


def test_rows_that_occur_twice_are_no_obstacle() -> None:
    X, y = overlapping(120)
    dual = started(1e5, np.vstack([X, X]), np.concatenate([y, y]))
    assert solve_by_pivots(dual, 1e-8)
    gap, primal, _ = dual.measure()
    assert gap <= 1e-8 * primal


def test_a_search_that_fails_changes_nothing(monkeypatch) -> None:
    dual = started(1e5, *overlapping())
    value, beta, measured = dual.value.copy(), dual.beta.copy(), dual.measure()
    monkeypatch.setattr(kernel_classes, "_MAX_PIVOTS", 2)
    assert not solve_by_pivots(dual, 1e-10)
    np.testing.assert_array_equal(dual.value, value)
    np.testing.assert_array_equal(dual.beta, beta)
    np.testing.assert_allclose(dual.measure(), measured)
    monkeypatch.setattr(kernel_classes, "MAX_FREE", n_free(dual) - 1)
    assert not solve_by_pivots(dual, 1e-10)


def test_a_large_lam_takes_few_rounds() -> None:
    X, y = overlapping(200)
    machine = ODMClassifier(1e6, random_state=0).fit(X, y)
    assert machine.n_iter_ < 100
    assert machine.gap_ <= machine.tol * machine.objective_curve_[-1]
