from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from tithe import Block
from tithe.objectives import MarginObjective
from tithe.odm.solvers.linear_problem import LinearProblem
from tithe.odm.solvers.linear_solvers import CoresetSVRG, coreset_svrg, gradient_bound, newton, svrg

LAM, MU, THETA = 5.0, 0.5, 0.2


def _rows(n: int = 1500, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) + 0.5 * rng.normal(size=n) > 0.3, 1.0, -1.0)
    return X, y, rng.integers(1, 4, n).astype(np.float64)


def _problem(X, y, weight, lam: float = LAM) -> LinearProblem:
    return LinearProblem(X=X, signs=y, cost=lam * weight / (weight.sum() * (1 - THETA) ** 2), mu=MU, theta=THETA)


def _options(seed: int = 0, **more):
    return {"tol": 1e-24, "max_iter": 400, "rng": np.random.default_rng(seed), **more}


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("shrink", [None, 0.7])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_the_limit_is_the_weighted_machine_on_the_cover(everywhere: bool, shrink, layout: str) -> None:
    X, y, weight = _rows()
    problem = _problem(sparse.csr_matrix(X) if layout == "csr" else X, y, weight)
    found = coreset_svrg(problem, radius=0.6, shrink=shrink, everywhere=everywhere, **_options())
    assert found.cover_converged and not found.converged and found.cover.radius <= 0.6
    z = y[:, None] * np.column_stack([X, np.ones(len(X))])
    near = cdist(z, z[found.cover.centres]).argmin(axis=1)
    mass = np.bincount(near, weights=weight, minlength=len(found.cover.centres))
    objective = MarginObjective(classes=(0, 1), lam=LAM, mu=MU, theta=THETA)
    cover = Block(X=X[found.cover.centres], y=(y[found.cover.centres] > 0).astype(np.int32), sample_weight=mass)
    limit = objective.solve(cover, rng=np.random.default_rng(0))[0]
    np.testing.assert_allclose(found.point.params, limit, atol=1e-10)


@pytest.mark.parametrize("radius", [2.0, 1.0, 0.5, 0.25])
def test_the_bound_on_the_gradient_holds_and_so_does_the_certificate(radius: float) -> None:
    X, y, weight = _rows()
    problem = _problem(X, y, weight)
    best = newton(problem, tol=1e-15, max_iter=100, rng=np.random.default_rng(0)).point
    found = coreset_svrg(problem, radius=radius, **_options())
    v = found.point.params
    bound = gradient_bound(problem, v, found.cover.radius)
    assert found.cover.gradient_norm <= bound == found.cover.gradient_bound  # the gradient of the cover is zero at v
    assert np.linalg.norm(v - best.params) <= found.cover.gradient_norm * (1 + 1e-9)
    assert found.point.value - best.value <= found.gap * (1 + 1e-9)
    assert np.linalg.norm(v) <= np.sqrt(LAM)


def test_a_smaller_radius_brings_a_better_solution() -> None:
    problem = _problem(*_rows(4000))
    found = [coreset_svrg(problem, radius=r, **_options()) for r in (1.5, 0.5, 0.1)]
    certificates = [one.cover.gradient_norm for one in found]
    assert certificates == sorted(certificates, reverse=True) and certificates[-1] < 0.1 * certificates[0]


def test_radius_zero_is_plain_svrg() -> None:
    X, y, weight = _rows(400)
    problem = _problem(X, y, weight)
    plain = svrg(problem, tol=0.0, max_iter=4, rng=np.random.default_rng(3), start=None)
    same = coreset_svrg(problem, radius=0.0, shrink=None, tol=0.0, max_iter=4, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(same.point.params, plain.point.params)
    assert same.cover.n_gradients == 400 + 4 * 3 * 400


def test_rows_that_are_equal_are_taken_together() -> None:
    X, y, weight = _rows(200)
    times = weight.astype(int)
    problem = _problem(np.repeat(X, times, axis=0), np.repeat(y, times), np.ones(times.sum()))
    found = coreset_svrg(problem, radius=0.0, **_options())
    assert len(found.cover.centres) == 200
    best = newton(_problem(X, y, weight), tol=1e-15, max_iter=100, rng=np.random.default_rng(0)).point
    np.testing.assert_allclose(found.point.params, best.params, atol=1e-9)


def test_finishing_on_all_rows_reaches_the_minimum_of_all_rows() -> None:
    problem = _problem(*_rows())
    best = newton(problem, tol=1e-15, max_iter=100, rng=np.random.default_rng(0)).point
    rough = coreset_svrg(problem, radius=1.0, **_options(tol=1e-6))
    found = coreset_svrg(problem, radius=1.0, finish=200, **_options(tol=1e-12))
    assert rough.point.value > best.value * (1 + 1e-6) and rough.cover_converged and not rough.converged
    assert found.converged and found.point.value <= best.value * (1 + 1e-11)
    assert found.cover.sizes[-1] == len(problem) and found.cover.n_gradients > rough.cover.n_gradients


def test_fewer_gradients_than_plain_svrg_for_the_same_accuracy() -> None:
    X, y, weight = _rows(20_000)
    problem = _problem(X, y, weight)
    plain = svrg(problem, tol=1e-3, max_iter=50, rng=np.random.default_rng(0), start=None)
    found = coreset_svrg(problem, size=1000, tol=1e-3, max_iter=50, rng=np.random.default_rng(0))
    correct = [np.mean(problem.margins(one.point.params) > 0) for one in (plain, found)]
    assert abs(correct[0] - correct[1]) <= 0.002
    assert 5 * found.cover.n_gradients <= len(problem) * (1 + 3 * plain.n_iter)


def test_a_walk_that_leads_uphill_goes_over_to_the_cover(monkeypatch) -> None:
    problem = _problem(*_rows())
    calls = []

    def astray(rows: LinearProblem, start: np.ndarray, *rest, **options) -> np.ndarray:
        calls.append(len(rows))
        return start + (100.0 if len(rows) == len(problem) else 0.0)

    monkeypatch.setattr(LinearProblem, "walked", astray)
    found = coreset_svrg(
        problem, radius=0.6, shrink=None, everywhere=True, tol=0.0, max_iter=3, rng=np.random.default_rng(0)
    )
    assert found.cover.switched and calls == [len(problem), len(found.cover.centres), len(found.cover.centres)]
    assert np.all(found.point.params == 0.0) and len(found.curve) == 3


@pytest.mark.parametrize(
    "bad",
    [{"finish": -1}, {"radius": np.nan}, {"radius": "x"}, {"step_rows": "some"}],
)
def test_bad_options(bad) -> None:
    name = next(iter(bad))
    with pytest.raises(ValueError, match=f"{name} must be"):
        CoresetSVRG(**bad)
