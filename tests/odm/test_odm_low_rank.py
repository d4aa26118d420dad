"""Many classes, a kernel of low rank, a large lam: Newton reaches the gap where sweeps and pivots do not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tithe.odm import LinearODMClassifier, ODMClassifier
from tithe.odm.solvers.kernel_classes import KernelMulticlassDual, low_rank_factor, solve_by_weights
from tithe.odm.solvers.kernel_matrix import Gram, KernelFunction


def groups(n: int, d: int, k: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(k, d))[y], y


def started(function: KernelFunction, lam: float, mu: float, *, nonconvex: str = "cccp") -> KernelMulticlassDual:
    """A few sweeps at the lower side, then rivals if there is an upper side."""
    X, y = groups(90, 3, 4)
    gram = Gram(function, X, constant=1.0, cache_bytes=1e9)
    dual = KernelMulticlassDual(
        gram=gram, label=y, cost=np.full(90, lam / 90), n_classes=4, mu=mu, theta=0.2, rng=np.random.default_rng(0)
    )
    for _ in range(3):
        dual.sweep()
    if mu > 0.0:
        dual.mu_now = mu
        dual.choose_rivals(nonconvex)
    return dual


@pytest.mark.parametrize("nonconvex", ["cccp", "fixed_score"])
@pytest.mark.parametrize("mu", [0.0, 0.5])
@pytest.mark.parametrize("lam", [1.0, 1e7])
def test_newton_solves_the_convex_problem(lam: float, mu: float, nonconvex: str) -> None:
    dual = started(KernelFunction(kernel="linear"), lam, mu, nonconvex=nonconvex)
    factor = low_rank_factor(dual.gram, 4)
    assert factor is not None
    assert factor.shape == (90, 4)
    accepted = 1e-7 if lam == 1.0 else 1e-6  # rounding of multipliers of 10^5
    assert solve_by_weights(dual, factor, 1e-12, accepted)
    gap, primal, _ = dual.measure()
    assert gap <= accepted * primal


def test_newton_and_sweeps_agree() -> None:
    by_newton, by_sweeps = (started(KernelFunction(kernel="linear"), 10.0, 0.5) for _ in range(2))
    factor = low_rank_factor(by_newton.gram, 4)
    assert factor is not None
    assert solve_by_weights(by_newton, factor, 1e-12, 1e-9)
    for _ in range(100):
        by_sweeps.sweep()
    np.testing.assert_allclose(by_newton.scores(), by_sweeps.scores(), atol=1e-4)


def test_a_search_that_fails_changes_nothing() -> None:
    dual = started(KernelFunction(kernel="linear"), 1e5, 0.5)
    value, beta, measured = dual.value.copy(), dual.beta.copy(), dual.measure()
    factor = low_rank_factor(dual.gram, 4)
    assert factor is not None
    assert not solve_by_weights(dual, factor, 0.0, 0.0)
    np.testing.assert_array_equal(dual.value, value)
    np.testing.assert_array_equal(dual.beta, beta)
    np.testing.assert_allclose(dual.measure(), measured)


def test_the_factor_is_that_of_a_low_rank_alone() -> None:
    X, _ = groups(90, 3, 4)
    plane = Gram(KernelFunction(kernel="poly", gamma=0.1, coef0=1.0, degree=2), X, constant=1.0, cache_bytes=1e9)
    factor = low_rank_factor(plane, 4)
    assert factor is not None
    assert factor.shape == (90, 10)
    np.testing.assert_allclose(factor @ factor.T, plane.columns(np.arange(90)), atol=1e-8)
    assert low_rank_factor(Gram(KernelFunction(kernel="rbf", gamma=5.0), X, cache_bytes=1e9), 4) is None
    single = Gram(KernelFunction(kernel="linear", dtype=np.float32), X, cache_bytes=1e9)
    assert low_rank_factor(single, 4) is None


@pytest.mark.parametrize(("kernel", "mu", "theta"), [("linear", 0.5, 0.2), ("poly", 1.0, 0.0), ("linear", 0.05, 0.8)])
@pytest.mark.parametrize("lam", [1e5, 1e7])
def test_a_large_lam_and_a_low_rank_reach_the_gap(kernel: str, mu: float, theta: float, lam: float) -> None:
    X, y = groups(150, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = ODMClassifier(lam, mu, theta, kernel=kernel, gamma=0.1, degree=2, random_state=0).fit(X, y)
    assert model.gap_ <= 1e-5 * model.objective_curve_[-1]
    assert model.n_iter_ < 100
    assert model.objective_curve_[-1] <= 0.5 * lam


def test_the_gap_is_that_of_the_last_problem_if_an_earlier_round_is_the_best() -> None:
    """A fixed score of the rival may raise the objective. The search has ended then: there is nothing to warn of."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 3
    X += 5.0 * rng.normal(size=(3, 2))[y]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = ODMClassifier(50.0, 0.01, kernel="linear", nonconvex="fixed_score", random_state=0).fit(X, y)
    curve = model.objective_curve_
    assert curve[-1] == curve[0] < curve[-2]
    assert model.gap_ <= 1e-5 * curve[0]


@pytest.mark.parametrize("nonconvex", ["cccp", "fixed_score"])
@pytest.mark.parametrize("lam", [1e3, 1e5])
def test_few_rows_and_columns_of_a_linear_machine_reach_the_gap(lam: float, nonconvex: str) -> None:
    X, y = groups(90, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = LinearODMClassifier(lam, 0.5, 0.2, nonconvex=nonconvex, random_state=0).fit(X, y)
    assert model.gap_ <= 1e-4 * model.objective_curve_[-1]
