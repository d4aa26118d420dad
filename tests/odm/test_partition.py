"""Machines of parts, merged: the same machine as all rows at once, whatever the parts and whoever solves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from margin_data import rings
from scipy import sparse
from scipy.optimize import minimize
from sklearn.metrics.pairwise import rbf_kernel

from tithe.core.parallel import limit_threads
from tithe.core.passes import SerialEngine
from tithe.engines.threads import ThreadEngine
from tithe.odm import ODMClassifier, PartitionSolver
from tithe.odm.base import row_costs
from tithe.odm.solvers import partition
from tithe.odm.solvers.kernel_matrix import Gram, KernelFunction
from tithe.odm.solvers.partition import Part, Span, choose_landmarks, deal, merged_parts, strata
from tithe.odm.solvers.two_classes import Dual, solve_two_classes


def ring_dual(n: int = 300, *, lam: float = 100.0, mu: float = 0.5, theta: float = 0.2, weight: Any = None) -> Dual:
    X, y = rings(n)
    gram = Gram(KernelFunction(kernel="rbf", gamma=0.5), X, constant=1.0, cache_bytes=1e8)
    return Dual(gram=gram, sign=2.0 * y - 1.0, cost=row_costs(weight, n, lam, theta), mu=mu, theta=theta)


@pytest.fixture
def many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a few hundred rows for too many to be solved directly."""
    monkeypatch.setattr(partition, "MAX_DIRECT_ROWS", 100)


# -- the same machine --------------------------------------------------------------------------


@pytest.mark.parametrize(("lam", "mu", "theta"), [(100.0, 0.5, 0.2), (3000.0, 0.0, 0.0), (1000.0, 1.0, 0.8)])
@pytest.mark.usefixtures("many_rows")
def test_merged_parts_are_the_machine_of_all_rows(lam: float, mu: float, theta: float) -> None:
    X, y = rings(1100)
    options = {"lam": lam, "mu": mu, "theta": theta, "tol": 1e-6, "random_state": 0}
    direct = ODMClassifier(solver="direct", **options).fit(X, y)
    merged = ODMClassifier(solver=PartitionSolver(n_parts=6), **options).fit(X, y)
    assert merged.gap_ <= 1e-6 * merged.objective_curve_[-1]
    assert merged.objective_curve_[-1] - direct.objective_curve_[-1] <= merged.gap_
    # |f - f*| <= sqrt(2 gap k(x, x)), for both machines
    bound = 2.0**0.5 * (np.sqrt(2.0 * merged.gap_) + np.sqrt(2.0 * direct.gap_))
    assert np.abs(merged.decision_function(X) - direct.decision_function(X)).max() <= bound


@pytest.mark.usefixtures("many_rows")
def test_a_point_of_the_search_costs_what_it_says() -> None:
    dual = ring_dual(1500, lam=1000.0)
    solver = partition.PartitionSolver(n_parts=3)
    solution = solver.solve(dual, tol=1e-3, max_iter=100, rng=np.random.default_rng(0))
    check = ring_dual(1500, lam=1000.0)
    check.gamma = check.sign * solution.coefficients[0]
    check.renew()
    _, primal = check.gap()
    np.testing.assert_allclose(solution.scores[:, 0], check.score, rtol=1e-9, atol=1e-9)
    assert primal == pytest.approx(solution.primal, rel=1e-9)
    exact = ring_dual(1500, lam=1000.0)
    smallest = solve_two_classes(exact, tol=1e-9, max_iter=200, rng=np.random.default_rng(0), free=False).primal
    assert 0.0 < solution.primal - smallest <= solution.gap <= 1e-3 * solution.primal


@pytest.mark.usefixtures("many_rows")
def test_the_direct_solver_finishes_where_steps_do_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "_MAX_PRODUCTS", 1)
    X, y = rings(1100)
    model = ODMClassifier(3000.0, solver=PartitionSolver(n_parts=3), tol=1e-8, random_state=0).fit(X, y)
    assert model.gap_ <= 1e-8 * model.objective_curve_[-1]
    assert model.n_iter_ > 1


def test_one_part_is_the_direct_solver() -> None:
    X, y = rings()
    direct, parts = (
        ODMClassifier(solver=solver, random_state=3).fit(X, y) for solver in ("direct", PartitionSolver(n_parts=1))
    )
    assert np.array_equal(direct.dual_coef_, parts.dual_coef_)
    assert np.array_equal(direct.support_, parts.support_)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_fewer_rows_than_parts(n: int) -> None:
    X, y = np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 2
    options = {"lam": 10.0, "gamma": 0.1, "random_state": 0}
    model = ODMClassifier(solver=PartitionSolver(n_parts=20), **options).fit(X, y)
    direct = ODMClassifier(solver="direct", **options).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), direct.decision_function(X), atol=1e-8)


def test_equal_rows() -> None:
    X, y = np.ones((60, 3)), np.arange(60) % 3 > 0
    model = ODMClassifier(solver=PartitionSolver(n_parts=4), random_state=0).fit(X, y)
    assert model.predict(X).all()


@pytest.mark.usefixtures("many_rows")
def test_rows_without_features() -> None:
    model = ODMClassifier(kernel="linear", fit_intercept=False, solver=PartitionSolver(n_parts=3), random_state=0)
    assert not model.fit(np.zeros((200, 2)), np.arange(200) % 2).dual_coef_ @ model.support_vectors_.any(axis=1)


def test_weights_are_repetitions() -> None:
    X, y = rings(200)
    weight = np.random.default_rng(1).integers(0, 4, 200)
    options = {"solver": PartitionSolver(n_parts=3), "gamma": 0.5, "random_state": 0}
    weighted = ODMClassifier(**options).fit(X, y, sample_weight=weight)
    repeated = ODMClassifier(**options).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-7)


@pytest.mark.usefixtures("many_rows")
def test_precomputed_kernels_and_sparse_rows() -> None:
    X, y = rings(300)
    X[np.abs(X) < 0.3] = 0.0
    options = {"solver": PartitionSolver(n_parts=3), "tol": 1e-8, "random_state": 0}
    dense = ODMClassifier(gamma=0.5, **options).fit(X, y)
    as_csr = ODMClassifier(gamma=0.5, **options).fit(sparse.csr_matrix(X), y)
    given = ODMClassifier(kernel="precomputed", **options).fit(rbf_kernel(X, gamma=0.5), y)
    scores = dense.decision_function(X)
    np.testing.assert_allclose(as_csr.decision_function(sparse.csr_matrix(X)), scores, atol=2e-3)
    np.testing.assert_allclose(given.decision_function(rbf_kernel(X, gamma=0.5)), scores, atol=2e-3)


def test_what_parts_cannot_do_is_refused() -> None:
    X, y = rings(90)
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        ODMClassifier(solver="partition").fit(X, np.arange(90) % 3)
    with pytest.raises(ValueError, match="penalised intercept"):
        ODMClassifier(solver="partition", intercept_scaling=np.inf).fit(X, y)
    with pytest.raises(ValueError, match="only one class"):
        ODMClassifier(solver="partition").fit(X, np.zeros(90))
    with pytest.raises(ValueError, match="solver"):
        ODMClassifier(solver="parts").fit(X, y)
    for wrong in ({"n_parts": 0}, {"engine": "abacus"}, {"engine": 3}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PartitionSolver(**wrong)


# -- bounds of the mean of the parts -----------------------------------------------------------


def test_the_minimum_lies_between_the_parts_and_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """sum (m_k / m) P_k(w_k) <= P* <= P(mean of the w_k)."""
    monkeypatch.setattr(partition, "_PART_TOL", 1e-9)
    monkeypatch.setattr(partition, "_MAX_PART_ROWS", 10)  # parts are not merged before they are averaged
    dual, rng = ring_dual(weight=np.random.default_rng(2).uniform(0.5, 2.0, 300)), np.random.default_rng(0)
    landmarks = choose_landmarks(dual.gram, rng, max_landmarks=50, enough=0.0)
    parts, values = deal(strata(dual.gram, landmarks.rows, dual.sign), 5, rng), []
    solve = partition.solve_part

    def recorded(part: Part, number: int) -> np.ndarray:
        gamma = solve(part, number)
        gram = Gram(part.function, part.X, constant=part.constant, cache_bytes=1e8)
        local = Dual(gram=gram, sign=part.sign, cost=part.cost, mu=part.mu, theta=part.theta)
        local.gamma = gamma
        local.renew()
        values.append(local.gap()[1])
        return gamma

    monkeypatch.setattr(partition, "solve_part", recorded)
    dual.gamma = merged_parts(dual, parts, SerialEngine(), 0)
    dual.renew()
    _, mean_value = dual.gap()
    shares = [dual.cost[rows].sum() / dual.cost.sum() for rows in parts]
    smallest = solve_two_classes(
        ring_dual(weight=np.random.default_rng(2).uniform(0.5, 2.0, 300)), tol=1e-12, max_iter=500, rng=rng, free=False
    ).primal
    assert np.dot(shares, values) < smallest < mean_value
    assert mean_value < 1.3 * smallest  # multipliers that were not scaled would make this many times as large


def test_parts_are_merged_in_pairs_from_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, starts = [], []
    solve = partition.solve_part

    def recorded(part: Part, number: int) -> np.ndarray:
        sizes.append(len(part.sign))
        starts.append(part.gamma is not None)
        return solve(part, number)

    monkeypatch.setattr(partition, "solve_part", recorded)
    dual = ring_dual(400)
    merged_parts(dual, deal(np.zeros(400, int), 8, np.random.default_rng(0)), SerialEngine(), 0)
    assert sizes == [50] * 8 + [100] * 4 + [200] * 2
    assert starts == [False] * 8 + [True] * 6


# -- strata ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_parts", [2, 7, 16])
def test_every_part_has_its_share_of_every_stratum(n_parts: int) -> None:
    dual, rng = ring_dual(333), np.random.default_rng(0)
    landmarks = choose_landmarks(dual.gram, rng, max_landmarks=10, enough=0.0)
    stratum = strata(dual.gram, landmarks.rows, dual.sign)
    assert len(np.unique(stratum)) > 10
    parts = deal(stratum, n_parts, rng)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(333))
    assert np.ptp([len(rows) for rows in parts]) <= 1
    counts = np.array([np.bincount(stratum[rows], minlength=stratum.max() + 1) for rows in parts])
    assert (np.ptp(counts, axis=0) <= 1).all()


def test_strata_are_the_nearest_landmarks_and_the_classes() -> None:
    dual = ring_dual(50)
    K = rbf_kernel(dual.gram.X, gamma=0.5)
    landmarks = np.array([3, 10, 20])
    nearest = (1.0 + 1.0 - 2.0 * K[:, landmarks]).argmin(axis=1)
    assert np.array_equal(strata(dual.gram, landmarks, dual.sign), 2 * nearest + (dual.sign > 0))


def test_landmarks_leave_what_their_residual_says() -> None:
    dual = ring_dual(300)
    K = rbf_kernel(dual.gram.X, gamma=0.5) + 1.0
    landmarks = choose_landmarks(dual.gram, np.random.default_rng(0), max_landmarks=30, enough=0.0)
    rest = K - landmarks.basis @ landmarks.basis.T
    np.testing.assert_allclose(np.diag(rest), landmarks.residual, atol=1e-10)
    assert np.linalg.eigvalsh(rest).min() > -1e-10
    np.testing.assert_allclose(rest[landmarks.rows], 0.0, atol=1e-8)
    assert np.trace(rest) < 0.01 * np.trace(K)
    x = np.random.default_rng(1).uniform(size=300)
    np.testing.assert_allclose(
        landmarks.weighted_gram(x), landmarks.basis.T @ (landmarks.basis * x[:, None]), atol=1e-10
    )
    few = choose_landmarks(dual.gram, np.random.default_rng(0), max_landmarks=300, enough=10.0)
    assert len(few.rows) < 300


def test_a_product_uses_both_sides_of_a_square() -> None:
    X, _ = rings(530)
    x = np.random.default_rng(0).normal(size=(530, 2))
    for cache_bytes in (0.0, 256 * 530 * 8, 1e8):
        gram = Gram(KernelFunction(kernel="rbf", gamma=0.5), X, cache_bytes=cache_bytes)
        np.testing.assert_allclose(partition.symmetric_product(gram, x), rbf_kernel(X, gamma=0.5) @ x, atol=1e-10)


@pytest.mark.parametrize(("mu", "theta"), [(0.5, 0.2), (1.0, 0.0), (0.05, 0.8)])
def test_the_best_point_of_a_span(mu: float, theta: float) -> None:
    dual = ring_dual(120, mu=mu, theta=theta)
    rng = np.random.default_rng(0)
    Q = (rbf_kernel(dual.gram.X, gamma=0.5) + 1.0) * dual.sign[:, None] * dual.sign
    solution = ODMClassifier(lam=100.0, mu=mu, theta=theta, gamma=0.5, tol=1e-10).fit(dual.gram.X, dual.sign)
    exact = np.zeros(120)
    exact[solution.support_] = solution.dual_coef_[0] * dual.sign[solution.support_]
    directions = np.array(
        [exact + 0.3 * rng.normal(size=120) * (exact != 0.0) * np.abs(exact).mean() for _ in range(3)]
    )
    span = Span(dual=dual, directions=directions, products=directions @ Q)
    starts = [np.array(start) for start in ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.3, 0.3, 0.3))]
    lowest = [span.primal(span.lowest_primal(start)) for start in starts]
    found = minimize(span.primal, starts[2], method="Nelder-Mead", options={"fatol": 1e-10, "xatol": 1e-8}).fun
    np.testing.assert_allclose(lowest, found, rtol=1e-6)
    assert min(lowest) >= solution.objective_curve_[-1] - solution.gap_
    assert max(span.dual_value(start) for start in starts) <= solution.objective_curve_[-1]


# -- engines -----------------------------------------------------------------------------------


@pytest.mark.bits
@pytest.mark.usefixtures("many_rows")
def test_the_same_bits_for_every_engine_and_number_of_threads() -> None:
    X, y = rings(5200)
    options = {"solver": PartitionSolver(n_parts=5), "tol": 1e-3, "random_state": 0}
    reference = ODMClassifier(**options).fit(X, y)
    with limit_threads(1):
        alone = ODMClassifier(**options).fit(X, y)
    options["solver"] = PartitionSolver(n_parts=5, engine=ThreadEngine(3))
    threads = ODMClassifier(**options).fit(X, y)
    for model in (alone, threads):
        assert np.array_equal(model.dual_coef_, reference.dual_coef_)
