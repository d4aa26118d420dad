"""All solvers of the linear problem find the same place, and know how far off they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from margin_data import dual_value, margin_problem, margin_rows
from scipy import sparse
from scipy.optimize import minimize

from tithe.core.parallel import limit_threads
from tithe.odm.solvers import linear_solvers
from tithe.odm.solvers.linear_solvers import SOLVERS, chosen, coordinate_descent, solve


def solved(problem, solver="newton", tol=1e-12, **other):
    return solve(problem, solver=solver, tol=tol, rng=np.random.default_rng(1), **{"max_iter": 3000, **other})


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize(("lam", "mu", "theta"), [(3.0, 0.5, 0.2), (300.0, 1.0, 0.1), (1000.0, 0.0, 0.6)])
def test_solvers_agree_to_the_gap(solver, sparse_rows, lam, mu, theta) -> None:
    problem = margin_problem(lam, mu, theta)
    best = solved(problem, tol=1e-15).point
    if sparse_rows:
        problem = replace(problem, X=sparse.csr_matrix(problem.X))
    found = solved(problem, solver, tol=1e-7)
    assert found.converged and found.gap <= 1e-7 * found.point.value
    assert found.point.value - best.value <= found.gap + 1e-12 * best.value
    assert np.linalg.norm(found.point.params - best.params) <= np.sqrt(2.0 * found.gap) + 1e-9
    np.testing.assert_allclose(found.duals, problem.multipliers(best.margins), atol=1e-2 * problem.cost.max())
    assert all(b <= a * (1 + 1e-9) for a, b in zip(found.curve, found.curve[1:], strict=False)) or solver == "dcd"


@pytest.mark.parametrize("free", [False, True])
def test_equals_a_quadratic_program(free, rng) -> None:
    """The slacks written out, weighted, and handed to a solver that knows nothing of margins."""
    X, signs, weight = margin_rows(18, 2, seed=4)
    problem = margin_problem(20.0, 0.6, 0.15, rows=(X, signs, weight), free=free)
    n, size = len(problem), problem.size
    Z = signs[:, None] * np.column_stack([X, np.ones(n)])
    bend = np.concatenate([problem.ridge, problem.cost, problem.mu * problem.cost])
    constraints = [
        {"type": "ineq", "fun": lambda p: Z @ p[:size] - 1 + problem.theta + p[size : size + n]},
        {"type": "ineq", "fun": lambda p: 1 + problem.theta + p[size + n :] - Z @ p[:size]},
    ]
    options = {"ftol": 1e-15, "maxiter": 1000}
    start = np.concatenate([np.zeros(size), np.full(n, 1.0), np.zeros(n)])
    found = minimize(
        lambda p: 0.5 * bend @ (p * p), start, jac=lambda p: bend * p, constraints=constraints, options=options
    )
    best = solved(problem)
    assert best.point.value == pytest.approx(found.fun, rel=1e-6)
    np.testing.assert_allclose(best.point.params, found.x[:size], atol=1e-5)


def test_free_intercept_is_the_limit_of_a_large_constant() -> None:
    free = solved(margin_problem(free=True))
    near = solved(margin_problem(constant=1e4))
    assert free.converged and free.gap <= 1e-12 * free.point.value
    np.testing.assert_allclose(free.point.params[:-1], near.point.params[:-1], rtol=1e-6)
    assert free.point.params[-1] == pytest.approx(1e4 * near.point.params[-1], rel=1e-6)
    assert abs(free.duals @ margin_rows()[1]) < 1e-9
    for solver in set(SOLVERS) - {"newton"}:
        with pytest.raises(ValueError, match="intercept_scaling=inf"):
            solved(margin_problem(free=True), solver)
    assert chosen(margin_problem(free=True)) == "newton"


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_every_step_of_coordinate_descent_raises_the_dual_value(mu, rng) -> None:
    problem = margin_problem(50.0, mu, rows=margin_rows(60, 3))
    gamma, v = np.zeros(60), np.zeros(problem.size)
    value = 0.0
    for i in rng.integers(60, size=200):
        problem.coordinate_epoch(np.array([i]), gamma, v)
        after = dual_value(problem, gamma)
        assert after >= value - 1e-12
        value = after
    np.testing.assert_allclose(v, problem.combine(gamma), atol=1e-12)


def test_coordinate_descent_hands_over_where_it_stalls() -> None:
    rows = margin_rows(500, 5)
    rows = (rows[0] * [1, 1, 1, 1e-3, 1e-4], *rows[1:])
    problem = margin_problem(2.0**20, rows=rows)
    found = solved(problem, "dcd", tol=1e-10)
    assert found.converged and found.n_iter < 200
    stopped = coordinate_descent(problem, tol=1e-10, max_iter=3, rng=np.random.default_rng(0))
    assert not stopped.converged and stopped.n_iter == 3
    v = problem.combine(stopped.duals)
    gap = problem.duality_gap(stopped.duals, problem.margins(v))
    assert gap == pytest.approx(stopped.gap)


@pytest.mark.parametrize("sparse_rows", [False, True])
def test_conjugate_gradients_where_the_curvature_is_too_wide(monkeypatch, sparse_rows) -> None:
    problem = margin_problem(1000.0, rows=margin_rows(2000, 30))
    best = solved(problem).point
    if sparse_rows:
        problem = replace(problem, X=sparse.csr_matrix(problem.X))
    for name in ("_MAX_DIRECT_DENSE", "_MAX_DIRECT_SPARSE"):
        monkeypatch.setattr(linear_solvers, name, 5)
    for free in (False, True):
        found = solved(replace(problem, free=free), tol=1e-11)
        assert found.converged
        if not free:
            np.testing.assert_allclose(found.point.params, best.params, atol=1e-6)


def test_a_start_from_some_rows_changes_nothing_but_the_way(monkeypatch) -> None:
    problem = margin_problem(rows=margin_rows(5000, 8))
    plain = solved(problem)
    monkeypatch.setattr(linear_solvers, "_MIN_ROWS_FOR_START", 1000)
    begun = solved(problem)
    np.testing.assert_allclose(begun.point.params, plain.point.params, atol=1e-6)
    assert begun.n_iter < plain.n_iter


def test_warm_starts_take_fewer_rounds() -> None:
    problem = margin_problem(200.0)
    best = solved(problem).point.params
    for solver in SOLVERS:
        assert solved(problem, solver, tol=1e-6, start=best).n_iter <= 2


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.bits
def test_any_number_of_threads(solver) -> None:
    problem = margin_problem(rows=margin_rows(6000, 12))
    found = []
    for n in (1, 2):
        with limit_threads(n):
            found.append(solved(problem, solver, tol=1e-5).point.params.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_scales_give_the_right_answer(scale) -> None:
    X, signs, weight = margin_rows()
    problem = margin_problem(rows=(X * scale, signs, weight), constant=0.0)
    found = solved(problem, "auto")
    assert found.converged
    if scale > 1.0:  # the penalty is nothing: least squares of margins
        plain = solved(margin_problem(1e12, rows=(X, signs, weight), constant=0.0))
        np.testing.assert_allclose(found.point.params * scale, plain.point.params, rtol=1e-6)
    else:  # nothing to be gained but 1e-58 of P(0)
        assert found.point.value == pytest.approx(problem.evaluate(np.zeros(problem.size)).value)


def test_what_overflows_is_refused() -> None:
    X, signs, weight = margin_rows()
    for solver in ("auto", *SOLVERS):
        with pytest.raises(ValueError, match="Rescale"):
            solved(margin_problem(rows=(X * 1e200, signs, weight)), solver)


def test_unknown_solvers_are_refused() -> None:
    with pytest.raises(ValueError, match="'dcd'"):
        solved(margin_problem(), "simplex")
