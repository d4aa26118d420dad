"""The relaxation over labelings: against an independent solver and against all labelings listed."""

from __future__ import annotations

import numpy as np
import pytest
from label_checks import holds
from scipy.optimize import minimize

from tithe.core.parallel import single_blas_thread
from tithe.odm.solvers import label_search
from tithe.odm.solvers.kernel_matrix import landmark_features
from tithe.odm.solvers.label_machines import FeatureProblem, MarginProblem
from tithe.odm.solvers.label_search import (
    LabelSearch,
    distinct,
    lower_bound,
    mix,
    refine,
    relax,
    search_labels,
    spectral_starts,
    squares_of,
)
from tithe.odm.solvers.labelings import Balance, Labelings, checked_links, linked_groups


def _problem(rng, n=None, *, lam=None, mu=0.5, links=(None, None)):
    n = int(rng.integers(5, 11)) if n is None else n
    X = rng.normal(size=(n, 2))
    K = np.exp(-rng.uniform(0.2, 3.0) * ((X[:, None] - X) ** 2).sum(axis=2))
    mean = K.mean(axis=0)
    lam = 10.0 ** rng.uniform(0.0, 4.0) if lam is None else lam
    cost = np.full(n, lam / n / 0.64)
    problem = MarginProblem(matrix=K - mean - mean[:, None] + mean.mean(), cost=cost, mu=mu, theta=0.2, tol=1e-11)
    tied = linked_groups(*(checked_links(pairs, n, "links") for pairs in links), np.zeros(n))
    return problem, Labelings(tied, Balance.of_clusters(np.ones(n), 0.3)), K


def _by_slsqp(problem, labels):
    """max over gamma and s of -A(gamma) - s / 2 with s >= y^T H y for every labeling: the QCQP, by SciPy."""
    n, low, high = len(problem.cost), 1.0 - problem.theta, 1.0 + problem.theta
    matrices = np.array([problem.matrix * np.outer(y, y) for y in labels])

    def value(v):
        a, b, s = v[:n], v[n : 2 * n], v[-1]
        return (
            0.5 * s + 0.5 * (a**2 / problem.cost).sum() + 0.5 * (b**2 / (problem.mu * problem.cost)).sum()
            - low * a.sum() + high * b.sum()
        )  # fmt: skip

    def slack(v):
        gamma = v[:n] - v[n : 2 * n]
        return v[-1] - np.einsum("tij,i,j->t", matrices, gamma, gamma)

    start = np.concatenate([np.full(n, 0.1), np.zeros(n), [10.0]])
    result = minimize(
        value,
        start,
        method="SLSQP",
        bounds=[(0.0, None)] * (2 * n) + [(None, None)],
        constraints={"type": "ineq", "fun": slack},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return -result.fun


def test_the_relaxation_equals_the_program_over_all_labelings() -> None:
    rng = np.random.default_rng(0)
    with single_blas_thread():
        for _ in range(4):
            problem, labelings, _ = _problem(rng, int(rng.integers(5, 8)), lam=10.0 ** rng.uniform(0, 2))
            every = distinct(np.array(list(labelings.every())))
            start = labelings.best(rng.normal(size=len(problem.cost)))[None]
            relaxed = relax(problem, labelings, start, LabelSearch(max_cuts=50, n_restarts=5, tol=1e-9), rng)
            assert relaxed.value == pytest.approx(_by_slsqp(problem, every), rel=1e-6)
            # no labeling is violated
            q = squares_of(problem, every, relaxed.gamma)
            assert q.max() - relaxed.share @ squares_of(problem, relaxed.labels, relaxed.gamma) <= 1e-6 * q.max()


def test_the_alternation_reaches_the_best_mixture_and_never_rises() -> None:
    rng = np.random.default_rng(1)
    with single_blas_thread():
        problem, labelings, _ = _problem(rng, 7, lam=300.0)
        every = distinct(np.array(list(labelings.every())))
        share = np.full(len(every), 1.0 / len(every))
        first = problem.solve_mixture((every.T * share) @ every).value
        mixed = mix(problem, every, share, None, tol=1e-11)
        assert mixed.value <= first
        assert mixed.share.min() >= 0.0 and mixed.share.sum() == pytest.approx(1.0)
        assert mixed.value == pytest.approx(_by_slsqp(problem, every), rel=1e-6)


@pytest.mark.parametrize("listed", [16, 0])  # labelings are listed, or bounded by unit vectors
def test_the_bound_is_below_every_labeling(monkeypatch: pytest.MonkeyPatch, listed: int) -> None:
    monkeypatch.setattr(label_search, "MAX_LISTED_GROUPS", listed)
    rng, tight = np.random.default_rng(2), []
    with single_blas_thread():
        for trial in range(8):
            links = (None, None) if trial % 2 else ([(0, 1)], [(1, 2)])
            problem, labelings, _ = _problem(rng, mu=0.5 if trial % 3 else 0.0, links=links)
            every = np.array(list(labelings.every()))
            smallest = min(problem.solve(y).value for y in distinct(every))
            relaxed = relax(problem, labelings, every[:1], LabelSearch(max_cuts=30, n_restarts=5, tol=1e-6), rng)
            bound = lower_bound(problem, labelings, relaxed.gamma, relaxed.matrix(), rng)
            assert bound <= smallest * (1 + 1e-9)
            if listed:
                assert bound <= relaxed.value * (1 + 1e-9)
            # any multipliers give a bound
            random = np.abs(rng.normal(size=len(relaxed.gamma)))
            assert lower_bound(problem, labelings, random, np.eye(len(random)), rng) <= smallest * (1 + 1e-9)
            tight.append(bound / smallest)
    assert np.median(tight) > 0.7  # it says something


def _hits(rng, count):
    hits = 0
    with single_blas_thread():
        for _ in range(count):
            problem, labelings, K = _problem(rng)
            n = len(K)
            smallest = min(problem.solve(y).value for y in distinct(np.array(list(labelings.every()))))
            solution = search_labels(
                problem,
                labelings,
                spectral_starts(labelings, K, np.full(n, 1.0 / n)),
                LabelSearch(),
                rng,
            )
            assert holds(labelings, 2.0 * solution.codes - 1.0)
            assert solution.bound <= smallest * (1 + 1e-9)
            hits += solution.value <= smallest * (1 + 1e-6)
    return hits


def test_the_read_out_meets_the_best_labels() -> None:
    assert _hits(np.random.default_rng(3), 10) >= 9


@pytest.mark.slow
def test_the_read_out_meets_the_best_labels_in_95_of_100_problems() -> None:
    assert _hits(np.random.default_rng(4), 100) >= 95


def test_refinement_lowers_the_value_and_keeps_the_constraints() -> None:
    rng = np.random.default_rng(5)
    with single_blas_thread():
        for _ in range(5):
            problem, labelings, _ = _problem(rng, 20, links=([(0, 1), (1, 5)], [(5, 7)]))
            start = labelings.best(rng.normal(size=20))
            machine = refine(problem, labelings, start)
            assert holds(labelings, machine.sign)
            assert machine.value <= problem.solve(start).value * (1 + 1e-9)
            assert machine.value == pytest.approx(problem.solve(machine.sign).value, rel=1e-8)


@pytest.mark.parametrize("mu", [0.5, 0.0])
def test_features_give_the_machines_of_their_kernel(mu: float) -> None:
    rng = np.random.default_rng(6)
    with single_blas_thread():
        problem, labelings, _ = _problem(rng, 15, lam=200.0, mu=mu)
        K = problem.matrix + 0.1 * np.eye(15)
        kernel = MarginProblem(matrix=K, cost=problem.cost, mu=mu, theta=0.2, tol=1e-12)
        features = landmark_features(K, np.arange(15), [1e-10])
        by_features = FeatureProblem(features=features, cost=problem.cost, mu=mu, theta=0.2, tol=1e-14)
        y = labelings.best(rng.normal(size=15))
        ours, theirs = by_features.solve(y), kernel.solve(y)
        assert ours.value == pytest.approx(theirs.value, rel=1e-7)
        np.testing.assert_allclose(ours.margins(), theirs.margins(), atol=1e-5)
        np.testing.assert_allclose(by_features.costs_without(ours), kernel.costs_without(theirs), atol=1e-5)


def test_a_row_is_judged_by_the_machine_without_it() -> None:
    rng = np.random.default_rng(7)
    with single_blas_thread():
        problem, labelings, _ = _problem(rng, 8, lam=5.0)
        y = labelings.best(rng.normal(size=8))
        machine = problem.solve(y)
        difference = problem.costs_without(machine)
        for i in range(8):
            others = np.delete(np.arange(8), i)
            without = MarginProblem(
                matrix=problem.matrix[np.ix_(others, others)], cost=problem.cost[others], mu=0.5, theta=0.2, tol=1e-12
            ).solve(y[others])
            outside = lambda u: (u < 0.8).astype(int) - (u > 1.2)  # noqa: E731
            if not np.array_equal(outside(without.margins()), outside(machine.margins()[others])):
                continue  # exact only if no other row enters or leaves the band
            score = problem.matrix[i, others] @ (y[others] * without.gamma)
            flipped = y.copy()
            flipped[i] = -y[i]
            # fitting the others to the row can only make it cheaper than its loss at the machine without it
            assert abs(difference[i]) <= abs(problem.loss(-score)[i] - problem.loss(score)[i]) + 1e-9
            assert np.sign(difference[i]) == np.sign(score)
