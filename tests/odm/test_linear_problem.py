"""The linear problem: value, gradient, curvature, and gaps that hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from margin_data import dual_value, margin_problem, margin_rows
from scipy import sparse

from tithe.core.parallel import limit_threads
from tithe.odm.kernels.linear import column_squares, gram, row_squares
from tithe.odm.solvers.linear_solvers import newton


def direct_value(problem, v):
    """P, written down as it stands in the docstring."""
    X = problem.X.toarray() if sparse.issparse(problem.X) else problem.X
    u = problem.signs * (X @ v[:-1] + problem.constant * v[-1])
    loss = np.maximum(1 - problem.theta - u, 0) ** 2 + problem.mu * np.maximum(u - 1 - problem.theta, 0) ** 2
    return 0.5 * v @ (problem.ridge * v) + 0.5 * problem.cost @ loss


KINDS = [{}, {"constant": 0.0}, {"constant": 2.5}, {"free": True}]


@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("sparse_rows", [False, True])
@pytest.mark.parametrize(("mu", "theta"), [(0.5, 0.2), (0.0, 0.3), (1.0, 0.0)])
def test_value_gradient_and_curvature(other, sparse_rows, mu, theta, rng) -> None:
    problem = margin_problem(mu=mu, theta=theta, **other)
    if sparse_rows:
        problem = replace(problem, X=sparse.csr_matrix(problem.X))
    v = rng.normal(size=problem.size)
    point = problem.evaluate(v)
    assert point.value == pytest.approx(direct_value(problem, v), rel=1e-13)
    for j in range(problem.size):
        step = np.zeros(problem.size)
        step[j] = 1e-6
        slope = (direct_value(problem, v + step) - direct_value(problem, v - step)) / 2e-6
        assert point.gradient[j] == pytest.approx(slope, rel=1e-5, abs=1e-6)
    bends = problem.curvatures(point.margins)
    half = np.tril(problem.hessian(bends))
    whole = half + np.tril(half, -1).T + np.diag(problem.ridge)
    np.testing.assert_allclose(problem.curve(bends, v), whole @ v, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("mu", [0.0, 0.4, 1.0])
def test_gap_is_primal_less_dual(mu, rng) -> None:
    problem = margin_problem(mu=mu)
    for _ in range(20):
        point = problem.evaluate(0.3 * rng.normal(size=problem.size))
        duals = problem.multipliers(point.margins)
        exact = direct_value(problem, point.params) - dual_value(problem, duals)
        assert 0.5 * point.gradient @ point.gradient == pytest.approx(exact, rel=1e-10)
        gamma = rng.normal(size=len(problem)) * problem.cost
        gamma = np.maximum(gamma, 0.0) if mu == 0.0 else gamma
        v = problem.combine(gamma)
        split = problem.duality_gap(gamma, problem.margins(v))
        assert split == pytest.approx(direct_value(problem, v) - dual_value(problem, gamma), rel=1e-9)


@pytest.mark.parametrize("other", KINDS)
def test_gap_bounds_the_excess(other, rng) -> None:
    problem = margin_problem(**other)
    best = newton(problem, tol=1e-14, max_iter=50, rng=rng)
    assert best.converged
    for far in (1.0, 1e-2, 1e-4):
        point = problem.evaluate(best.point.params + far * rng.normal(size=problem.size))
        assert -1e-10 <= point.value - best.point.value <= point.gap * (1 + 1e-9)
    assert best.gap <= 1e-14 * best.point.value


def test_single_precision_is_added_up_in_double() -> None:
    X, signs, weight = margin_rows()
    single = margin_problem(rows=(X.astype(np.float32), signs, weight))
    double = margin_problem(rows=(X.astype(np.float32).astype(np.float64), signs, weight))
    v = np.linspace(-1, 1, double.size)
    np.testing.assert_allclose(single.evaluate(v).gradient, double.evaluate(v).gradient, rtol=1e-13)


@pytest.mark.bits
def test_any_number_of_threads_gives_the_same_bits() -> None:
    X, signs, weight = margin_rows(20_000, 30)
    problem = margin_problem(rows=(X, signs, weight))
    v = np.linspace(-1, 1, problem.size)
    found = []
    for n in (1, 2, 5):
        with limit_threads(n):
            point = problem.evaluate(v)
            found.append(
                (point.gradient.tobytes(), point.value, problem.hessian(problem.curvatures(point.margins)).tobytes())
            )
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_outer_products(dtype, rng) -> None:
    X = (rng.normal(size=(3000, 12)) * (rng.random((3000, 12)) < 0.4)).astype(dtype)
    weight = rng.normal(size=3000) * (rng.random(3000) < 0.7)
    rows = np.column_stack([X.astype(np.float64), np.ones(3000)])
    for given in (X, sparse.csr_matrix(X)):
        np.testing.assert_allclose(np.tril(gram(given, weight)), np.tril((rows * weight[:, None]).T @ rows), atol=1e-9)
        np.testing.assert_allclose(column_squares(given, weight), (weight @ rows**2)[:-1], atol=1e-9)
        np.testing.assert_allclose(row_squares(given), (rows**2).sum(axis=1) - 1.0, atol=1e-12)
