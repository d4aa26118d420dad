"""Margin distribution of many classes: the subproblem by brute force, equality with two classes, descent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics.pairwise import rbf_kernel

from tithe import Block
from tithe.odm import LinearODMClassifier, ODMClassifier
from tithe.odm.kernels.many_classes import best_multipliers
from tithe.odm.objective import MarginObjective
from tithe.odm.solvers.kernel_classes import KernelMulticlassDual
from tithe.odm.solvers.kernel_matrix import Gram, KernelFunction
from tithe.odm.solvers.linear_classes import LinearMulticlassDual
from tithe.odm.solvers.many_classes import solve_many_classes


def three(n: int = 60, d: int = 3, seed: int = 0, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(k, d))[y], y


def least_squares(H: np.ndarray, c: np.ndarray) -> np.ndarray:
    """argmin over x >= 0 of x H x / 2 - c x."""
    low = np.linalg.cholesky(H)
    return nnls(low.T, np.linalg.solve(low, c), maxiter=100 * len(c))[0]


def block_by_brute_force(rest, y, rival, level, own, soft, stiff, low, high):
    """v of the best multipliers, from the same problem in a = -alpha (without a_y) and beta, both not negative."""
    k = len(rest)
    others = [c for c in range(k) if c != y]
    # v = A a + B beta, alpha_y = sum of a
    V = np.zeros((k, k))
    for j, c in enumerate(others):
        V[c, j], V[y, j] = -1.0, 1.0
    V[y, k - 1] = -1.0
    if rival >= 0:
        V[rival, k - 1] += 1.0
    s = np.zeros(k)
    s[: k - 1] = 1.0
    H = own * V.T @ V + soft * np.outer(s, s) + stiff * np.diag(np.eye(k)[k - 1])
    linear = V.T @ rest - low * s + (high + (0.0 if rival >= 0 else level)) * np.eye(k)[k - 1]
    x = least_squares(H + 1e-13 * np.eye(k), -linear)
    return V @ x, x[-1]


@pytest.mark.parametrize("with_rival", [True, False])
def test_the_subproblem_of_a_row_equals_brute_force(with_rival) -> None:
    rng = np.random.default_rng(0)
    active = 0
    for _ in range(400):
        k = int(rng.integers(2, 8))
        table = np.empty((k, 5))  # columns of a table, as the solver has them: other arrays would be compiled for anew
        rest, v, *spare = table.T
        rest[:], y = rng.normal(size=k) * rng.choice([0.3, 3.0]), int(rng.integers(k))
        rival = int(rng.choice([c for c in range(k) if c != y])) if with_rival else -1
        level, own, soft, stiff = rng.normal(), rng.uniform(0.1, 3.0), rng.uniform(0.05, 3.0), rng.uniform(0.05, 5.0)
        beta = best_multipliers(rest, y, rival, level, own, soft, stiff, 0.8, 1.2, v, *spare)
        wanted, wanted_beta = block_by_brute_force(rest, y, rival, level, own, soft, stiff, 0.8, 1.2)
        np.testing.assert_allclose(v, wanted, atol=1e-6)
        assert beta == pytest.approx(wanted_beta, abs=1e-6)
        active += beta > 1e-9
    assert 50 < active < 390


def test_without_an_upper_side_it_equals_a_quadratic_program_with_weights() -> None:
    X, y = three(18)
    n, k, lam, theta = len(y), 3, 20.0, 0.2
    weight = np.random.default_rng(1).uniform(0.5, 2.0, n)
    model = ODMClassifier(lam, 0.0, theta, gamma=0.5, random_state=0).fit(X, y, weight)
    K = rbf_kernel(X, gamma=0.5) + 1.0
    cost = lam * weight / (weight.sum() * (1 - theta) ** 2)
    V = np.zeros((n * k, n * (k - 1)))  # v[i, l] for multipliers a[i, j]
    for i in range(n):
        for j, c in enumerate(c for c in range(k) if c != y[i]):
            V[i * k + c, i * (k - 1) + j], V[i * k + y[i], i * (k - 1) + j] = -1.0, 1.0
    H = V.T @ np.kron(K, np.eye(k)) @ V + np.kron(np.diag(1.0 / cost), np.ones((k - 1, k - 1)))
    a = least_squares(H + 1e-12 * np.eye(len(H)), np.full(len(H), 1.0 - theta))
    scores = K @ (V @ a).reshape(n, k)
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-5)


def test_two_classes_together_are_the_machine_of_two_classes_at_twice_lam() -> None:
    X, y = three(90, k=2)
    function = KernelFunction(kernel="rbf", gamma=0.5)
    dual = KernelMulticlassDual(
        gram=Gram(function, X, constant=1.0, cache_bytes=1e9),
        label=y.astype(np.int64),
        cost=np.full(90, 50.0 / (90 * 0.8**2)),
        n_classes=2,
        mu=0.5,
        theta=0.2,
        rng=np.random.default_rng(0),
    )
    solve_many_classes(dual, nonconvex="cccp", tol=1e-15, asked_tol=1e-9, max_iter=3000)
    pair = ODMClassifier(100.0, 0.5, 0.2, gamma=0.5).fit(X, y)
    scores = dual.scores()
    np.testing.assert_allclose(scores[:, 1] - scores[:, 0], pair.decision_function(X), atol=1e-6)
    np.testing.assert_allclose(scores.sum(axis=1), 0.0, atol=1e-9)


@pytest.mark.parametrize("lam", [10.0, 1e3])
def test_rivals_that_stay_never_make_the_objective_worse(lam) -> None:
    X, y = load_digits(return_X_y=True)
    model = ODMClassifier(lam, 1.0, 0.0, gamma=1e-3, tol=1e-5, random_state=0).fit(X[:600], y[:600])
    curve = np.array(model.objective_curve_)
    assert len(curve) > 1
    assert (np.diff(curve) <= 1e-5 * curve[:-1]).all()
    assert model.gap_ <= 1e-5 * curve[-1] * 1.1
    fixed = ODMClassifier(lam, 1.0, 0.0, gamma=1e-3, tol=1e-5, random_state=0, nonconvex="fixed_score").fit(
        X[:600], y[:600]
    )
    assert fixed.objective_curve_[-1] == min(fixed.objective_curve_) >= curve[-1] * (1 - 1e-4)


def test_names_of_classes_do_not_matter() -> None:
    X, y = three(45)
    model = ODMClassifier().fit(X, y)
    other = ODMClassifier().fit(X, np.array(["c", "a", "b"])[y])
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(X)[:, [2, 0, 1]], atol=1e-7)
    assert (other.predict(X) == np.array(["c", "a", "b"])[model.predict(X)]).all()


def test_weights_are_duplicated_rows() -> None:
    X, y = three(45)
    times = np.random.default_rng(2).integers(1, 4, 45)
    model = ODMClassifier(random_state=0).fit(X, y, times)
    doubled = ODMClassifier(random_state=0).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(model.decision_function(X), doubled.decision_function(X), atol=1e-6)


@pytest.mark.parametrize("thin", [False, True])
def test_rows_and_their_kernel_give_the_same_machine(thin) -> None:
    X, y = three(60)
    cost, common = np.full(60, 30.0 / (60 * 0.8**2)), {"n_classes": 3, "mu": 0.5, "theta": 0.2}
    label = y.astype(np.int64)
    rows = sparse.csr_matrix(X) if thin else X
    by_rows = LinearMulticlassDual(X=rows, constant=1.0, label=label, cost=cost, **common)
    gram = Gram(KernelFunction(kernel="linear"), X, constant=1.0, cache_bytes=1e9)
    by_kernel = KernelMulticlassDual(gram=gram, label=label, cost=cost, rng=np.random.default_rng(0), **common)
    for dual in (by_rows, by_kernel):
        solve_many_classes(dual, nonconvex="cccp", tol=1e-12, asked_tol=1e-3, max_iter=20_000)
    np.testing.assert_allclose(by_rows.scores(), by_kernel.scores(), atol=1e-4)


def test_margins_compare_with_the_best_other_class() -> None:
    X, y = three(60)
    model = ODMClassifier().fit(X, y)
    scores = model.decision_function(X)
    wanted = [s[c] - max(np.delete(s, c)) for s, c in zip(scores, y, strict=True)]
    np.testing.assert_allclose(model.margins(X, y), wanted)
    assert model.margin_distribution_.mean == pytest.approx(np.mean(wanted))
    assert model.dual_coef_.shape == (3, len(model.support_))


def test_a_free_intercept_is_for_two_classes() -> None:
    X, y = three()
    with pytest.raises(ValueError, match="two classes only"):
        ODMClassifier(intercept_scaling=np.inf).fit(X, y)


def test_rows_at_the_origin_have_no_say() -> None:
    X, y = three(30)
    padded, labels = np.vstack([X, np.zeros((5, 3))]), np.concatenate([y, [0, 1, 2, 0, 1]])
    model = ODMClassifier(kernel="linear", fit_intercept=False).fit(padded, labels)
    assert np.isfinite(model.decision_function(padded)).all()
    assert model.gap_ <= 1e-5 * model.objective_curve_[-1]


def test_stiff_problems_are_solved_to_the_gap() -> None:
    """Rows far from the origin and a large lam: single rows alone would take thousands of rounds."""
    X, y = load_iris(return_X_y=True)
    model = ODMClassifier(1000.0, kernel="linear", random_state=0).fit(X, y)
    assert model.gap_ <= 1e-5 * model.objective_curve_[-1]
    assert model.score(X, y) > 0.95
    objective = MarginObjective(lam=1000.0, mu=model.mu, theta=model.theta, classes=(0, 1, 2))
    primal, _ = objective.minimise(Block(X=X, y=y.astype(np.int32)))
    value = objective.evaluate(Block(X=X, y=y.astype(np.int32)), primal).value
    assert min(model.objective_curve_) <= value * 1.001


def test_linear_machine_of_many_classes_by_both_ways() -> None:
    X, y = three(300, 4, k=4)
    soft = LinearODMClassifier(10.0, 0.5, 0.2, tol=1e-8, random_state=0).fit(X, y)
    assert soft.gap_ <= 1e-8 * soft.objective_curve_[-1]
    np.testing.assert_allclose(soft.coef_, soft.dual_coef_ @ X[soft.support_], atol=1e-4)
    kernel = ODMClassifier(10.0, 0.5, 0.2, kernel="linear", tol=1e-8, random_state=0).fit(X, y)
    np.testing.assert_allclose(soft.decision_function(X), kernel.decision_function(X), atol=1e-3)
    stiff = LinearODMClassifier(1e5, 0.5, 0.2, random_state=0).fit(X, y)
    assert stiff.gap_ <= 1e-4 * stiff.objective_curve_[-1]
    assert stiff.certificate_.bound <= stiff.objective_curve_[-1]
    fixed = LinearODMClassifier(10.0, 0.5, 0.2, nonconvex="fixed_score", random_state=0).fit(X, y)
    assert min(fixed.objective_curve_) >= soft.objective_curve_[-1] * (1 - 1e-3)
    np.testing.assert_allclose(soft.margins(X, y).mean(), soft.margin_distribution_.mean)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_machine_that_was_stopped_early_is_no_worse_than_none() -> None:
    X, y = load_iris(return_X_y=True)
    model = ODMClassifier(2.0**20, kernel="poly", max_iter=20, random_state=0).fit(X, y)
    assert model.objective_curve_[-1] <= 2.0**19 * (1 + 1e-9)
