"""Losses of regressions: derivatives, sums, and what is proved and estimated about the smallest value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from tithe import Block
from tithe.certify.gap import CurvatureRows, gap_at
from tithe.core.data import Array
from tithe.core.parallel import limit_threads
from tithe.linear.regression_objectives import SingleScoreObjective
from tithe.objectives import HuberObjective, LeastSquaresObjective, PoissonObjective
from tithe.testing import objective_checks

ALL = [LeastSquaresObjective(alpha=2.0), PoissonObjective(alpha=0.1), HuberObjective(alpha=0.5)]
CHECKS = [pytest.param(check, id=f"{o.name}-{name}") for o in ALL for name, check in objective_checks(o)]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


def problem(rng: np.random.Generator, n: int = 300, d: int = 4, *, counts: bool = True) -> Block:
    X = rng.normal(size=(n, d)) * rng.uniform(0.2, 2.0, d) + rng.normal(size=d)
    score = (X - X.mean(axis=0)) @ rng.normal(size=d) * 0.4
    y = rng.poisson(np.exp(score)).astype(float) if counts else score + rng.standard_t(2, n)
    return Block(X=X, y=y, sample_weight=rng.integers(0, 4, n).astype(float))


def place(objective: SingleScoreObjective, rng: np.random.Generator, d: int) -> Array:
    params = 0.3 * rng.normal(size=(objective.n_scores, d + 1))
    if objective.n_scores == 2:
        params[1] = np.append(np.zeros(d), 1.2)
    return params


@pytest.mark.parametrize("layout", ["dense", "csr", "float32"])
@pytest.mark.parametrize("objective", ALL, ids=lambda o: o.name)
def test_gradient_and_curvature_are_derivatives(objective, layout, rng) -> None:
    block = problem(rng)
    if layout == "csr":
        block = replace(block, X=sparse.csr_matrix(np.where(rng.random(block.X.shape) < 0.5, block.X, 0.0)))
    elif layout == "float32":
        block = replace(block, X=block.X.astype(np.float32))
    at = place(objective, rng, 4)
    point = objective.evaluate(block, at, diagonal=True)
    hessian = objective.curvature(block, at)[0]
    free = objective._free_coordinates(at.shape).ravel()
    penalty = np.zeros(at.shape)
    penalty[0, :-1] = objective.penalty()[0]
    for j in np.flatnonzero(free):
        step = np.zeros(at.size)
        step[j] = 1e-6
        high, low = (objective.evaluate(block, at + sign * step.reshape(at.shape)) for sign in (1, -1))
        assert (high.value - low.value) / 2e-6 == pytest.approx(point.gradient.ravel()[j], rel=1e-5, abs=1e-5)
        change = (high.gradient - low.gradient).ravel()[free] / 2e-6
        wanted = hessian[j][free] + np.diag(penalty.ravel())[j][free]
        np.testing.assert_allclose(change, wanted, rtol=1e-4, atol=1e-4 * np.abs(hessian).max())
    np.testing.assert_allclose(point.diagonal.ravel()[free], np.diag(hessian)[free], rtol=1e-9)


@pytest.mark.bits
@pytest.mark.parametrize("layout", ["dense", "csr", "float32"])
@pytest.mark.parametrize("objective", ALL, ids=lambda o: o.name)
def test_threads_change_no_bit(objective, layout, rng) -> None:
    block = problem(rng, 30_000, 6)
    if layout != "dense":
        block = replace(block, X=block.X.astype(np.float32) if layout == "float32" else sparse.csr_matrix(block.X))
    at = place(objective, rng, 6)
    results = []
    for n_threads in (1, 2, 5):
        with limit_threads(n_threads):
            cost, sums = objective._loss_pass(block, at, diagonal=True)
        results.append([cost, sums.table, sums.by_sign, sums.diagonal])
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def _random_problem(rng: np.random.Generator, number: int) -> tuple[SingleScoreObjective, Block]:
    n, d = int(rng.integers(8, 120)), int(rng.integers(1, 8))
    block = problem(rng, n, d, counts=number % 3 == 1)
    assert block.y is not None
    if number % 3 != 1 and number % 2:
        block.y[rng.integers(n)] *= 1e3  # an outlier
    if number % 5 == 0:
        block.X[:, 0] *= 100.0
    alpha = 10.0 ** rng.uniform(-3, 2)
    kind = (LeastSquaresObjective, PoissonObjective, HuberObjective)[number % 3]
    return kind(alpha=alpha, fit_intercept=bool(number % 7), tol=1e-14), block


@pytest.mark.slow
def test_no_certificate_of_500_problems_is_violated() -> None:
    """Bounds hold always, exact ones to rounding, and estimates as often as they say."""
    rng = np.random.default_rng(1)
    covered: dict[str, list[bool]] = {"poisson": [], "huber": []}
    for number in range(500):
        objective, block = _random_problem(rng, number)
        best, _ = objective.minimise(block)
        least = objective.evaluate(block, best).value
        away = rng.normal(size=best.shape) * 10.0 ** rng.uniform(-4, 0) / (1.0 + np.abs(block.X).max())
        params = best + np.where(objective._free_coordinates(best.shape), away, 0.0)
        if objective.name == "huber":
            params[1, -1] = best[1, -1] * np.exp(away[1, -1])
        point = objective.evaluate(block, params)
        excess = point.value - least
        rounding = 1e-12 * abs(point.value)
        assert -rounding <= excess <= point.bound + rounding, (number, objective.name)
        assert 0.0 <= point.bound <= point.value
        curvature = CurvatureRows.all_of(objective, block, params)
        certificate = gap_at(objective, point, curvature, params, objective.centre(block)).certificate(1, passes=1)
        assert "inf" not in certificate.sentence
        if objective.name == "least_squares":
            assert certificate.kind == "exact"
            assert certificate.value == pytest.approx(excess, rel=1e-6, abs=10 * rounding)
        elif certificate.kind == "bound":
            assert excess <= certificate.value + rounding
        elif excess > 100 * rounding:
            low, high = certificate.interval
            covered[objective.name].append(low <= excess * (1 + 1e-6) and excess <= high * (1 + 1e-6))
    for inside in covered.values():
        assert len(inside) > 100
        assert np.mean(inside) >= 0.97


@pytest.mark.slow
def test_huber_gives_no_interval_where_few_rows_have_a_curvature() -> None:
    """With 8 rows and 4 columns, intervals missed the truth by up to eight orders of magnitude."""
    rng, objective, inside = np.random.default_rng(0), HuberObjective(tol=1e-14), []
    for number in range(18):
        block = problem(rng, 8 if number < 10 else 80, 4, counts=False)
        least = objective.evaluate(block, objective.minimise(block)[0]).value
        params, _ = objective.minimise(block.take(np.sort(rng.choice(len(block), len(block) // 2, replace=False))))
        point = objective.evaluate(block, params)
        gap = gap_at(objective, point, CurvatureRows.all_of(objective, block, params), params, objective.centre(block))
        excess = point.value - least
        assert excess <= gap.bound + 1e-11 * point.value
        if gap.interval is not None:
            inside.append(gap.interval[0] <= excess <= gap.interval[1])
    assert len(inside) >= 5 and all(inside)


def test_queries_have_finite_losses(rng) -> None:
    block = problem(rng, counts=False)
    objective = HuberObjective()
    queries = [*objective.hard_params(block, rng=rng), *objective.random_params(block, n_bases=1, rng=rng)]
    assert len(queries) > 20
    assert all(np.isfinite(objective.cost(block, query)).all() for query in queries)
    assert all(not query[1, :-1].any() for query in queries)


def test_no_penalty_leaves_the_value_as_bound(rng) -> None:
    for objective in ALL:
        point = replace(objective, alpha=0.0).evaluate(problem(rng), place(objective, rng, 4))
        assert point.bound == point.value


def test_poisson_goes_on_where_the_exponential_overflows(rng) -> None:
    block = problem(rng)
    objective = PoissonObjective(alpha=0.1, tol=1e-14)
    far = np.full((1, 5), 1000.0)
    assert not np.isfinite(objective.evaluate(block, far).value)
    np.testing.assert_allclose(objective.minimise(block, init=far)[0], objective.minimise(block)[0], atol=1e-6)


def test_huber_has_a_minimum_where_rows_are_fitted_exactly(rng) -> None:
    X = rng.normal(size=(50, 3))
    params = HuberObjective(tol=1e-12).solve(Block(X=X, y=X @ [1.0, 2.0, 3.0] - 1.0), rng=rng)
    np.testing.assert_allclose(params[0], [1.0, 2.0, 3.0, -1.0], atol=1e-6)
    assert 0.0 < params[1, -1] < 1e-6


@pytest.mark.parametrize(
    ("kind", "wrong", "name"),
    [(LeastSquaresObjective, {"alpha": -1.0}, "alpha"), (HuberObjective, {"epsilon": 0.5}, "epsilon")],
)
def test_wrong_parameters_are_refused(kind, wrong, name) -> None:
    with pytest.raises(ValueError, match=name):
        kind(**wrong)


def test_random_solutions_where_a_column_is_constant() -> None:
    """The standard deviation of a constant column need not be 0 in floating point, and its reciprocal is no step."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(999, 2)), np.full(999, -0.1)])
    assert 0.0 < X.std(axis=0)[2] < 1e-12
    rows = Block(X=X, y=X[:, 0] + rng.normal(size=999))
    for params in LeastSquaresObjective().random_params(rows, n_bases=2, rng=rng):
        assert np.abs(params).max() < 1e4
