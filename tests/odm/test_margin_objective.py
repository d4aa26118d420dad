from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC, LinearSVR

from tithe import Block, CoresetStream, build_coreset, distortion, propose_size
from tithe.certify import certify_gap, polish_by_descent
from tithe.core.passes import DataPass
from tithe.objectives import MarginObjective
from tithe.reduce.calibration import calibrate
from tithe.testing import objective_checks
from tithe.testing.checks import small_problem

TWO, THREE = MarginObjective(classes=(0, 1)), MarginObjective(classes=(0, 1, 2))
FREE = {"intercept_scaling": np.inf}
CHECKS = [
    pytest.param(check, id=f"{label}-{name}")
    for label, objective in {
        "two": TWO,
        "three": THREE,
        "free": replace(TWO, **FREE, lam=10.0),
        "three-free": replace(THREE, **FREE),
        "no-intercept": replace(TWO, fit_intercept=False, mu=0.0),
    }.items()
    for name, check in objective_checks(objective)
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


def problem(rng: np.random.Generator, n: int, d: int, n_classes: int = 2) -> Block:
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, n_classes)) + rng.normal(size=n_classes)
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    y[:n_classes] = np.arange(n_classes)
    return Block(X=X, y=y.astype(np.int32), sample_weight=rng.integers(1, 4, n).astype(np.float64))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_two_classes_equal_the_machines_of_scikit_learn(fit_intercept: bool, rng: np.random.Generator) -> None:
    block = problem(rng, 300, 4)
    lam, theta, weight = 20.0, 0.3, block.weights()
    C = lam / (2.0 * weight.sum() * (1.0 - theta) ** 2)
    common = {"C": C, "tol": 1e-9, "max_iter": 200_000, "fit_intercept": fit_intercept, "intercept_scaling": 2.0}
    given = MarginObjective(classes=(0, 1), lam=lam, theta=theta, fit_intercept=fit_intercept, intercept_scaling=2.0)
    hinge = replace(given, mu=0.0).solve(block, rng=rng)[0]
    theirs = LinearSVC(loss="squared_hinge", dual=True, **common).fit(block.X, block.y, weight)
    np.testing.assert_allclose(hinge[:-1], (1.0 - theta) * theirs.coef_[0], atol=1e-6)
    np.testing.assert_allclose(hinge[-1], (1.0 - theta) * np.ravel(theirs.intercept_)[0], atol=1e-6)
    tube = replace(given, mu=1.0).solve(block, rng=rng)[0]
    signs = 2.0 * block.y - 1.0
    theirs = LinearSVR(epsilon=theta, loss="squared_epsilon_insensitive", dual=True, **common)
    theirs = theirs.fit(block.X, signs, weight)
    np.testing.assert_allclose(tube[:-1], theirs.coef_, atol=1e-6)
    if not fit_intercept:
        ridge = replace(given, mu=1.0, theta=0.0).solve(block, rng=rng)[0]
        theirs = Ridge(alpha=weight.sum() / lam, fit_intercept=False).fit(block.X, signs, weight)
        np.testing.assert_allclose(ridge[:-1], theirs.coef_, atol=1e-9)


def test_a_free_intercept_equals_ridge_with_one(rng: np.random.Generator) -> None:
    block = problem(rng, 300, 3)
    ours = MarginObjective(classes=(0, 1), lam=5.0, mu=1.0, theta=0.0, **FREE).solve(block, rng=rng)[0]
    theirs = Ridge(alpha=block.total_weight / 5.0).fit(block.X, 2.0 * block.y - 1.0, block.sample_weight)
    np.testing.assert_allclose(ours, [*theirs.coef_, theirs.intercept_], atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_weight_two_is_a_row_twice_and_the_unit_of_weights_is_no_matter(n_classes, rng: np.random.Generator) -> None:
    block = problem(rng, 200, 3, n_classes)
    objective = MarginObjective(classes=tuple(range(n_classes)), lam=30.0)
    at = rng.normal(size=(objective.n_scores, 4))
    times = block.weights().astype(int)
    twice = Block(X=np.repeat(block.X, times, axis=0), y=np.repeat(block.y, times))
    scaled = replace(block, sample_weight=1e6 * block.weights())
    here = objective.evaluate(block, at)
    for other in (twice, scaled):
        there = objective.evaluate(other, at)
        assert there.value == pytest.approx(here.value, rel=1e-12)
        assert there.bound == pytest.approx(here.bound, rel=1e-9)
        np.testing.assert_allclose(there.gradient, here.gradient, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(objective.solve(other, rng=rng), objective.solve(block, rng=rng), atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("given", [{}, FREE, {"fit_intercept": False}])
def test_gradient_and_curvature_are_derivatives_of_the_value(n_classes, given, rng: np.random.Generator) -> None:
    block = problem(rng, 300, 3, n_classes)
    objective = MarginObjective(classes=tuple(range(n_classes)), lam=7.0, **given)
    at = rng.normal(size=(objective.n_scores, 4)) * 0.5
    at -= at.mean(axis=0) * (n_classes > 2)
    at[:, -1] *= objective.fit_intercept
    here = objective.evaluate(block, at)
    for index in np.ndindex(at.shape[0], 3 + objective.fit_intercept):
        ahead, behind = at.copy(), at.copy()
        ahead[index] += 1e-6
        behind[index] -= 1e-6
        slope = (objective.evaluate(block, ahead).value - objective.evaluate(block, behind).value) / 2e-6
        assert slope == pytest.approx(here.gradient[index], rel=1e-4, abs=1e-4)
    step = objective.metric(block, at, centre=objective.centre(block)).solve(here.gradient)
    change = (here.gradient - objective.evaluate(block, at - 1e-9 * step).gradient) / 1e-9
    np.testing.assert_allclose(change, here.gradient, rtol=1e-3, atol=1e-3)  # Newton's equation
    unit = objective.lam / (2.0 * block.total_weight * (1.0 - objective.theta) ** 2)
    bent = unit * float(block.weights() @ objective.directional_curvature(block, at, step)) + np.sum(step[:, :-1] ** 2)
    bent += np.sum(step[:, -1] ** 2) / objective.intercept_scaling**2
    assert bent == pytest.approx(float(np.vdot(step, change)), rel=1e-3)


@pytest.mark.parametrize("given", [{}, FREE, {"fit_intercept": False}, {"intercept_scaling": 5.0}])
def test_the_bound_is_never_violated(given, rng: np.random.Generator) -> None:
    """At arbitrary places, for two and more classes, weighted, at any strength of the penalty."""
    for trial in range(40):
        n_classes = 2 + trial % 3
        block = problem(rng, int(rng.integers(10, 120)), int(rng.integers(1, 5)), n_classes)
        objective = MarginObjective(
            classes=tuple(range(n_classes)),
            lam=10.0 ** rng.uniform(-2, 4),
            mu=float(rng.choice([0.0, 0.5, 1.0])),
            theta=float(rng.choice([0.0, 0.2, 0.8])),
            **given,
        )
        best = objective.solve(block, rng=rng)
        least = objective.evaluate(block, best).value
        for scale in (0.0, 1e-3, 0.1, 2.0):
            at = best + scale * rng.normal(size=best.shape)
            at[:, -1] *= objective.fit_intercept
            there = objective.evaluate(block, at)
            assert there.value - least <= there.bound * (1 + 1e-9) + 1e-9 * least
            assert there.bound <= there.value
            if n_classes == 2 and given != FREE:
                ends = there.gradient * np.append(np.ones(at.shape[1] - 1), objective.intercept_scaling)
                assert there.bound <= 0.5 * float(np.sum(ends**2)) * (1 + 1e-9) + 1e-24 * there.value
        if n_classes == 2:
            assert objective.evaluate(block, best).bound <= 1e-9 * least


def test_more_classes_reach_what_a_general_minimiser_finds(rng: np.random.Generator) -> None:
    block = problem(rng, 150, 2, 3)
    results = THREE.evaluate(block, THREE.solve(block, rng=rng)).value

    def value(flat: np.ndarray) -> float:
        return THREE.evaluate(block, flat.reshape(3, 3)).value

    starts = [np.zeros(9), THREE.solve(block, rng=rng).ravel(), *(rng.normal(size=9) for _ in range(3))]
    best = min(minimize(value, x, method="Powell", options={"xtol": 1e-8, "maxiter": 10_000}).fun for x in starts)
    assert results <= best * (1 + 1e-4)


def test_two_classes_with_a_score_each_are_two_classes_at_twice_lam(rng: np.random.Generator) -> None:
    """A third class that no row belongs to and that a far intercept keeps silent leaves the two others."""
    block = problem(rng, 400, 3)
    given = {"lam": 8.0, "fit_intercept": False}
    three = MarginObjective(classes=(0, 1, 2), **given)
    one = MarginObjective(classes=(0, 1), **{**given, "lam": 16.0}).solve(block, rng=rng)
    pair = np.vstack([-0.5 * one, 0.5 * one, np.zeros_like(one)])
    pair[2, -1] = -1e6
    half = MarginObjective(classes=(0, 1), **{**given, "lam": 16.0}).evaluate(block, one).value
    assert three.evaluate(block, pair).value == pytest.approx(0.5 * half, rel=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("lam", [0.1, 30.0])
def test_sensitivity_is_an_upper_bound(n_classes: int, lam: float, rng: np.random.Generator) -> None:
    """No parameters give a row a larger share of the whole value, its penalty included."""
    for _ in range(5):
        block = problem(rng, 14, 2, n_classes)
        objective = MarginObjective(classes=tuple(range(n_classes)), lam=lam, mu=1.0)
        pilot = objective.pilot(block, rng=rng)
        score = objective.sensitivity(block, objective.survey(block, pilot))
        unit = lam / (2.0 * block.total_weight * (1.0 - objective.theta) ** 2)
        shape = (objective.n_scores, 3)
        queries = [rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 3) for _ in range(300)]
        queries += [pilot + rng.normal(size=shape) * 10.0 ** rng.uniform(-3, 1) for _ in range(100)]
        queries += [objective.solve(block.take(rng.choice(14, 7, replace=False)), rng=rng) for _ in range(2)]
        for at in queries:
            share = unit * block.weights() * objective.cost(block, at) / objective.evaluate(block, at).value
            assert (share <= score * (1 + 1e-9)).all()


def test_calibrated_coreset_has_the_gradient_of_all_rows(rng: np.random.Generator) -> None:
    block = problem(rng, 6000, 3)
    coreset = build_coreset(
        block.X, block.y, sample_weight=block.sample_weight, objective=TWO, coreset_size=600, random_state=0
    )
    assert coreset.totals is not None and coreset.pilot is not None
    weight, _ = calibrate(
        coreset.weights(), TWO.moments(coreset, coreset.pilot), coreset.totals, ridge=0.0, guard=False
    )
    exact = replace(coreset, sample_weight=weight)
    full, small = (TWO.evaluate(b, coreset.pilot).gradient for b in (block, exact))
    np.testing.assert_allclose(small, full, rtol=1e-6, atol=1e-6 * TWO.lam)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_calibration_gains_on_the_plain_draw(n_classes: int, rng: np.random.Generator) -> None:
    block = problem(rng, 20_000, 4, n_classes)
    objective = MarginObjective(classes=tuple(range(n_classes)))
    least = objective.evaluate(block, objective.solve(block, rng=rng)).value
    excess = {}
    for calibrated in (False, True):
        results = []
        for seed in range(3):
            coreset = build_coreset(
                block.X,
                block.y,
                sample_weight=block.sample_weight,
                objective=objective,
                coreset_size=800,
                calibrate=calibrated,
                random_state=seed,
            )
            results.append(objective.evaluate(block, objective.solve(coreset, rng=rng)).value / least - 1.0)
        excess[calibrated] = np.median(results)
    assert 0.0 <= excess[True] < 0.5 * excess[False]


def test_streams_distortion_and_sizes_know_the_objective(rng: np.random.Generator) -> None:
    block = problem(rng, 6000, 3)
    stream = CoresetStream("margin", coreset_size=400, leaf_size=1500, random_state=0)
    small = stream.push(block.X, block.y, block.sample_weight).coreset()
    assert small.weights().sum() == pytest.approx(block.total_weight, rel=1e-6)
    assert distortion(block, small, TWO, random_state=1).worst < 1.0
    assert propose_size(block.X, block.y, objective="margin", eps=0.3, random_state=0)[0] >= 50


@pytest.mark.parametrize("n_classes", [2, 3])
def test_certify_and_polish(n_classes: int, rng: np.random.Generator) -> None:
    block = problem(rng, 20_000, 4, n_classes)
    objective = MarginObjective(classes=tuple(range(n_classes)))
    coreset = build_coreset(block.X, block.y, objective=objective, coreset_size=500, calibrate=False, random_state=0)
    start = objective.solve(coreset, rng=rng)
    rows = Block(X=block.X, y=block.y)
    least = objective.evaluate(rows, objective.solve(rows, rng=rng)).value
    first = objective.evaluate(rows, start).value
    said = certify_gap(objective, DataPass(rows), start, coreset)
    assert said.bound is not None and first - least <= said.bound
    done = polish_by_descent(objective, DataPass(rows), coreset, start, polish=2, tol=0.0, calibrate=True, rng=rng)
    assert all(a >= b for a, b in zip(done.curve, done.curve[1:], strict=False))
    assert done.curve[-1] - least < 0.2 * (first - least)


def test_csr_equals_dense(rng: np.random.Generator) -> None:
    for objective in (TWO, THREE):
        block = problem(rng, 800, 5, objective.n_classes)
        rows = replace(block, X=sparse.csr_matrix(block.X))
        at = objective.solve(block, rng=rng)
        np.testing.assert_allclose(objective.solve(rows, rng=rng), at, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(objective.moments(rows, at).values, objective.moments(block, at).values, atol=1e-12)
        survey = [objective.survey(b, at) for b in (rows, block)]
        np.testing.assert_allclose(*(objective.sensitivity(block, s) for s in survey), rtol=1e-9)


def test_wide_rows_and_many_classes(rng: np.random.Generator) -> None:
    X = sparse.random(300, 1200, density=0.05, random_state=0, format="csr")
    y = (np.asarray(X[:, :20].sum(axis=1)).ravel() > 0.5).astype(np.int32)
    two = replace(TWO, mu=0.5, theta=0.2)
    results = two.evaluate(Block(X=X, y=y), two.solve(Block(X=X, y=y), rng=rng))
    assert results.bound <= 1e-4 * results.value
    block = problem(rng, 3000, 3, 40)
    objective = MarginObjective(**FREE).for_rows(block)
    best = objective.evaluate(block, objective.pilot(block, rng=rng))
    assert best.bound == pytest.approx(best.value, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("lam", bad) for bad in (0, -1.0, np.inf, np.nan, "x", None, True)),
        *(("mu", bad) for bad in (-0.1, 1.1, np.nan, "x")),
        *(("theta", bad) for bad in (-0.1, 1.0, np.nan, None)),
        *(("intercept_scaling", bad) for bad in (0.0, -1.0, np.nan)),
        ("max_iter", 0),
    ],
)
def test_bad_parameters(name: str, bad) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        MarginObjective(**{name: bad})


def test_rows_that_contradict_each_other_and_one_class_alone(rng: np.random.Generator) -> None:
    twins = Block(X=np.repeat(rng.normal(size=(20, 2)), 2, axis=0), y=np.tile([0, 1], 20).astype(np.int32))
    for objective in (TWO, replace(TWO, **FREE)):
        np.testing.assert_allclose(objective.solve(twins, rng=rng), 0.0, atol=1e-9)
        alone = Block(X=rng.normal(size=(30, 2)), y=np.ones(30, np.int32))
        results = objective.evaluate(alone, objective.solve(alone, rng=rng))
        assert results.bound <= 1e-6 * max(results.value, 1e-6)


def test_columns_of_any_scale(rng: np.random.Generator) -> None:
    block = problem(rng, 400, 3)

    def least(scale: float) -> float:
        there = replace(block, X=block.X * np.array([1.0, scale, 1.0]))
        return TWO.evaluate(there, TWO.solve(there, rng=rng)).value

    assert least(1e-30) == pytest.approx(least(0.0), rel=1e-9)
    assert least(1e30) == pytest.approx(least(1e6), rel=1e-6)


def test_the_contract_sees_small_rows() -> None:
    block = small_problem()
    assert TWO.row_margins(block, np.zeros((1, 4))).shape == (len(block),)


@pytest.mark.parametrize("seed", range(3))
def test_classes_weigh_what_they_weigh_whatever_is_drawn(seed: int) -> None:
    """Positives far from the others: those on the wrong side are drawn often, and the rest of them hardly ever."""
    rng = np.random.default_rng(seed)
    y = (rng.random(20_000) < 0.01).astype(np.int32)
    X = rng.normal(size=(20_000, 5)) + 4.0 * y[:, None] * (np.arange(5) < 3)
    plain, exact = (
        build_coreset(X, y, objective="margin", coreset_size=200, calibrate=calibrate, random_state=seed)
        for calibrate in (False, True)
    )
    assert abs(plain.weights()[plain.y == 1].sum() / y.sum() - 1.0) > 0.01
    np.testing.assert_allclose(np.bincount(exact.y, exact.weights()), np.bincount(y), rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 3, 6])
def test_what_a_newton_step_leaves_is_not_underrated_where_columns_are_nearly_collinear(seed: int) -> None:
    """A few rows far off change sides on the way, and have most of the curvature across the line of the others."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2000, 1)) + 0.03 * rng.normal(size=(2000, 6))
    X[:6] += 20.0 * rng.normal(size=(6, 6))
    y = (X @ rng.normal(size=6) + 3.0 * rng.logistic(size=2000) > 0.0).astype(np.int32)
    y[:6] = rng.integers(0, 2, 6)
    block, objective = Block(X=X, y=y), MarginObjective(classes=(0, 1), lam=1000.0, mu=0.05, theta=0.8, tol=1e-13)
    least = objective.evaluate(block, objective.solve(block, rng=rng)).value
    params = objective.solve(block.take(np.append(np.arange(0, 6, 2), rng.choice(2000, 200))), rng=rng)
    point = objective.evaluate(block, params)
    sums = objective.drift_sums(block, params, objective.metric(block, params).solve(point.gradient))
    at_least, at_most = sums[4:] / sums[1]
    assert at_least * (1.0 - 1e-6) <= point.value - least <= at_most * (1.0 + 1e-3)
