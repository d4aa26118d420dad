from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from tithe import Block, build_coreset
from tithe.core import linear_algebra
from tithe.core.linear_algebra import effective_support
from tithe.objectives import LogisticObjective
from tithe.reduce.calibration import calibrate
from tithe.testing import objective_checks
from tithe.testing.checks import small_problem

TWO, THREE = LogisticObjective(classes=(0, 1)), LogisticObjective(classes=(0, 1, 2))
CHECKS = [
    pytest.param(check, id=f"{objective.n_classes}-{name}")
    for objective in (TWO, THREE, replace(TWO, fit_intercept=False, C=0.1))
    for name, check in objective_checks(objective)
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


def problem(rng: np.random.Generator, n: int, d: int, n_classes: int = 2) -> Block:
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    margins = X @ (rng.normal(size=(d, n_classes)) / 10.0 ** rng.uniform(-1, 1, (d, 1))) + rng.normal(size=n_classes)
    y = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)
    y[:n_classes] = np.arange(n_classes)
    return Block(X=X, y=y.astype(np.int32), sample_weight=rng.integers(1, 4, n).astype(np.float64))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_solution_equals_scikit_learn(n_classes: int, fit_intercept: bool, rng: np.random.Generator) -> None:
    block = problem(rng, 500, 4, n_classes)
    objective = LogisticObjective(classes=tuple(range(n_classes)), C=0.7, fit_intercept=fit_intercept)
    ours = objective.solve(block, rng=rng)
    model = LogisticRegression(C=0.7, fit_intercept=fit_intercept, solver="newton-cholesky", tol=1e-12, max_iter=500)
    theirs = model.fit(block.X, block.y, sample_weight=block.sample_weight)
    np.testing.assert_allclose(ours[:, :-1], theirs.coef_, rtol=1e-6, atol=1e-8)
    gap = ours[:, -1] - theirs.intercept_
    np.testing.assert_allclose(gap - gap.mean() * (n_classes > 2), 0.0, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradient_and_value_agree(n_classes: int, rng: np.random.Generator) -> None:
    block = problem(rng, 300, 3, n_classes)
    objective = LogisticObjective(classes=tuple(range(n_classes)), C=2.0)
    at = rng.normal(size=(objective.n_scores, 4)) * 0.3
    gradient = objective.evaluate(block, at).gradient
    for index in np.ndindex(at.shape):
        ahead, behind = at.copy(), at.copy()
        ahead[index] += 1e-5
        behind[index] -= 1e-5
        slope = (objective.evaluate(block, ahead).value - objective.evaluate(block, behind).value) / 2e-5
        # softmax: the sum over classes of the intercepts' gradients is zero, and set so
        assert slope == pytest.approx(gradient[index], rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_metric_is_the_second_derivative(n_classes: int, rng: np.random.Generator) -> None:
    block = problem(rng, 400, 3, n_classes)
    objective = LogisticObjective(classes=tuple(range(n_classes)))
    at = rng.normal(size=(objective.n_scores, 4)) * 0.2
    if n_classes > 2:
        at -= at.mean(axis=0)  # steps of a softmax add up to zero, and so must the place
    step = objective.metric(block, at).solve(objective.evaluate(block, at).gradient)
    # Newton's equation: the gradient's change along the step is the gradient itself
    ahead = objective.evaluate(block, at - 1e-6 * step).gradient
    change = (objective.evaluate(block, at).gradient - ahead) / 1e-6
    np.testing.assert_allclose(change, objective.evaluate(block, at).gradient, rtol=1e-3, atol=1e-2)
    bent = (block.weights() * objective.directional_curvature(block, at, step)).sum() + np.sum(
        step[:, :-1] ** 2
    ) / objective.C
    assert bent == pytest.approx(float(np.vdot(step, change)), rel=1e-3)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_bound_is_never_violated(fit_intercept: bool, rng: np.random.Generator) -> None:
    """At arbitrary places, for two and more classes, weighted, at any strength of the penalty."""
    for trial in range(60):
        n_classes = 2 + trial % 3
        block = problem(rng, int(rng.integers(10, 120)), int(rng.integers(1, 5)), n_classes)
        objective = LogisticObjective(
            classes=tuple(range(n_classes)), C=10.0 ** rng.uniform(-3, 3), fit_intercept=fit_intercept
        )
        best = objective.solve(block, rng=rng)
        least = objective.evaluate(block, best).value
        for scale in (0.0, 1e-3, 0.1, 2.0):
            at = best + scale * rng.normal(size=best.shape)
            if not fit_intercept:
                at[:, -1] = 0.0
            there = objective.evaluate(block, at)
            assert there.value - least <= there.bound * (1 + 1e-9) + 1e-9 * least
        assert objective.evaluate(block, best).bound <= 1e-5 * least


def test_without_intercept_the_bound_is_the_square_of_the_gradient(rng: np.random.Generator) -> None:
    block = problem(rng, 200, 3)
    objective = LogisticObjective(classes=(0, 1), C=0.01, fit_intercept=False)
    at = objective.solve(block, rng=rng) + np.array([[0.01, -0.02, 0.01, 0.0]])
    results = objective.evaluate(block, at)
    assert results.bound == pytest.approx(0.5 * objective.C * float(np.sum(results.gradient**2)), rel=1e-8)


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
    np.testing.assert_allclose(small, full, rtol=1e-6, atol=1e-6 * block.total_weight)
    default = TWO.evaluate(coreset, coreset.pilot).gradient
    np.testing.assert_allclose(default, full, atol=1e-3 * block.total_weight)


def test_totals_are_taken_at_the_solution_where_rows_can_be_read_again(rng: np.random.Generator) -> None:
    block = problem(rng, 5000, 3)
    once = build_coreset(block.X, block.y, objective=TWO, coreset_size=500, random_state=0)
    parts = np.array_split(np.arange(5000), 3)
    gone = build_coreset(((block.X[p], block.y[p]) for p in parts), objective=TWO, coreset_size=500, random_state=0)
    for coreset in (once, gone):
        np.testing.assert_allclose(
            TWO.survey(Block(X=block.X, y=block.y), coreset.pilot).totals, coreset.totals, rtol=1e-9, atol=1e-9
        )
        best = TWO.evaluate(Block(X=block.X, y=block.y), TWO.solve(Block(X=block.X, y=block.y), rng=rng)).value
        assert TWO.evaluate(Block(X=block.X, y=block.y), TWO.solve(coreset, rng=rng)).value < 1.02 * best


def test_labels_of_any_kind_reach_the_coreset(rng: np.random.Generator) -> None:
    block = problem(rng, 3000, 2, 3)
    names = np.array(["blue", "green", "red"])[block.y]
    coreset = build_coreset(block.X, names, objective="logistic", coreset_size=300, random_state=0)
    plain = build_coreset(block.X, block.y, objective="logistic", coreset_size=300, random_state=0)
    assert coreset.y is not None and set(coreset.y) == {"blue", "green", "red"}
    np.testing.assert_array_equal(coreset.row_ids(), plain.row_ids())
    np.testing.assert_allclose(coreset.weights(), plain.weights(), rtol=1e-9)
    assert np.array_equal(coreset.y, names[coreset.row_ids()])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_totals_are_the_sums_of_all_moments(n_classes: int, rng: np.random.Generator) -> None:
    block = problem(rng, 500, 3, n_classes)
    objective = LogisticObjective(classes=tuple(range(n_classes)))
    at = rng.normal(size=(objective.n_scores, 4))
    values = objective.moments(block, at).values
    assert values.shape[1] == n_classes + objective.n_scores * 4
    np.testing.assert_allclose(block.weights() @ values, objective.survey(block, at).totals[0], rtol=1e-9, atol=1e-8)


def test_csr_equals_dense(rng: np.random.Generator) -> None:
    block = problem(rng, 800, 5, 3)
    rows = replace(block, X=sparse.csr_matrix(block.X))
    np.testing.assert_allclose(THREE.solve(rows, rng=rng), THREE.solve(block, rng=rng), rtol=1e-6, atol=1e-7)
    at = THREE.solve(block, rng=rng)
    np.testing.assert_allclose(THREE.moments(rows, at).values, THREE.moments(block, at).values, atol=1e-12)


def test_wide_rows_use_blocks_and_diagonals(rng: np.random.Generator) -> None:
    """More coordinates than a whole curvature is kept for: three classes of 400 and of 1200 columns."""
    for d in (400, 1200):
        X = sparse.random(300, d, density=0.05, random_state=0, format="csr")
        y = (np.asarray(X[:, :3].sum(axis=1)).ravel() > 0).astype(np.int32) + (X[:, 3].toarray().ravel() > 0)
        block = Block(X=X, y=y.astype(np.int32))
        results = THREE.evaluate(block, THREE.solve(block, rng=rng))
        assert results.bound <= 1e-4 * results.value


@pytest.mark.parametrize("bad", [0, -1.0, -np.inf, np.nan, "x", None, [1.0]])
def test_bad_penalties(bad) -> None:
    with pytest.raises(ValueError, match="C must be"):
        LogisticObjective(C=bad)


def test_unknown_and_missing_labels() -> None:
    block = small_problem()
    with pytest.raises(ValueError, match="not among the 2 classes"):
        LogisticObjective(classes=("no", "yes")).cost(block, np.zeros((1, 4)))
    with pytest.raises(ValueError, match="give y"):
        LogisticObjective().for_rows(Block(X=block.X))
    with pytest.raises(ValueError, match="only one class"):
        LogisticObjective().for_rows(replace(block, y=np.zeros(len(block))))
    with pytest.raises(ValueError, match="classes"):
        _ = LogisticObjective().n_classes
    with pytest.raises(ValueError, match="not among"):
        TWO.cost(replace(block, y=np.full(len(block), 2, np.int32)), np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([0.0, 1.0, np.nan] * 10), "NaN"),
        (np.array([0.0, 1.0, np.inf] * 10), "infinity"),
        (np.array([0, "a", 1.5] * 10, object), "different kinds"),
        (np.array([0, "a", None] * 10, object), "no value in 10 of 30 rows, first in row 2"),
        (np.zeros(30), "classes=..."),
    ],
)
def test_labels_that_are_none(y, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_coreset(np.ones((30, 1)), y, objective="logistic", coreset_size=5)
    for bad in ((0, 0, 1), (1,)):
        with pytest.raises(ValueError, match="at least two"):
            LogisticObjective(classes=bad)


def test_half_precision_labels(rng: np.random.Generator) -> None:
    block = problem(rng, 500, 2)
    objective = LogisticObjective().for_rows(replace(block, y=block.y.astype(np.float16)))
    assert objective.n_classes == 2


def test_a_class_that_comes_late_in_a_stream_must_be_named(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(200_000, 2)), np.repeat([0, 1, 2], [90_000, 90_000, 20_000])
    batches = [(X[a : a + 20_000], y[a : a + 20_000]) for a in range(0, 200_000, 20_000)]
    with pytest.raises(ValueError, match="classes="):
        build_coreset(batches, objective="logistic", coreset_size=500)
    coreset = build_coreset(batches, objective=THREE, coreset_size=500, random_state=0)
    assert coreset.y is not None and set(coreset.y) == {0, 1, 2}


def test_the_first_look_at_many_rows_goes_by_weight(monkeypatch, rng: np.random.Generator) -> None:
    for name, value in {"_MAX_ALL_SCORED": 5000, "_MIN_SCORED": 2000, "_RARE_CLASS_ROWS": 50}.items():
        monkeypatch.setattr(f"tithe.reduce.draws.{name}", value)
    X, y = rng.normal(size=(12_000, 2)), np.repeat([0, 1], [11_000, 1000]).astype(np.int32)
    weight = rng.pareto(1.1, 12_000) + 0.01
    weight[-1000:-5] = 0.0  # a class of which five rows count
    results = []
    for seed in range(60):
        drawn = build_coreset(
            X, y, sample_weight=weight, objective=TWO, coreset_size=300, calibrate=False, random_state=seed
        )
        assert drawn.y is not None and (drawn.y == 1).sum() == 5
        results.append(drawn.weights().sum() / weight.sum() - 1.0)
    assert np.std(results) < 0.1 and abs(np.mean(results)) < 4 * np.std(results) / np.sqrt(60)


def test_solution_is_the_minimum_of_a_general_minimiser(rng: np.random.Generator) -> None:
    block = problem(rng, 150, 2, 3)
    results = THREE.evaluate(block, THREE.solve(block, rng=rng)).value

    def value(flat: np.ndarray) -> float:
        return THREE.evaluate(block, flat.reshape(3, 3)).value

    best = minimize(value, np.zeros(9), method="BFGS", options={"gtol": 1e-6})
    assert results <= best.fun * (1 + 1e-9)


def test_many_classes_keep_a_gradient_and_lose_only_the_bound(rng: np.random.Generator) -> None:
    block = problem(rng, 3000, 3, 40)
    objective = LogisticObjective().for_rows(block)
    best = objective.evaluate(block, objective.solve(block, rng=rng))
    assert np.linalg.norm(best.gradient) < 1e-3 and best.bound == best.value
    wide = Block(X=np.tile(block.X, (1, 30)), y=block.y)
    rows = Block(X=sparse.csr_matrix(wide.X), y=block.y)
    at = rng.normal(size=(40, 91)) * 0.1
    a, b = (objective.evaluate(x, at, diagonal=True) for x in (wide, rows))
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-9, atol=1e-9)


def test_a_continuous_target_is_refused() -> None:
    with pytest.raises(ValueError, match="no classes"):
        build_coreset(np.zeros((50, 1)), np.linspace(0, 1, 50), objective="logistic", coreset_size=10)


@pytest.mark.parametrize("kind", ["dense", "centred", "sparse"])
def test_effective_support_is_that_of_its_formula(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, size=(5000, 3)).astype(np.float32) * (rng.random((5000, 3)) < [1.0, 0.1, 0.01])
    bend, centre = rng.random((5000, 1)), np.array([0.5, -1.0, 2.0]) if kind == "centred" else None
    part = bend * np.square(np.column_stack([X - (0.0 if centre is None else centre), np.ones(5000)]))
    expected = part.sum(axis=0) ** 2 / np.square(part).sum(axis=0)
    rows = sparse.csr_matrix(X) if kind == "sparse" else X
    assert np.allclose(effective_support(rows, bend, centre), expected, rtol=1e-5)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_the_curvature_of_many_classes_leaves_out_next_to_nothing(layout: str, monkeypatch) -> None:
    """That of rows between few classes beside that of all: as matrices, and never larger."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(6000, 4)) * [1.0, 0.1, 100.0, 1.0], rng.integers(0, 6, 6000)
    X[:, 0] += 8.0 * y
    X[:5, 1] *= 1000.0  # rows far out
    weight = rng.integers(0, 3, len(y)).astype(np.float64)
    rows = Block(X=sparse.csr_matrix(X) if layout == "csr" else X, y=y, sample_weight=weight)
    objective = LogisticObjective(classes=tuple(range(6)), fit_intercept=True)
    params = objective.loose_tolerance().solve(rows, rng=rng)
    centre = objective.centre(rows)
    whole = objective.curvature(rows, params, centre)[0]
    monkeypatch.setattr(linear_algebra, "EXACT_WORK", 0)
    few = objective.curvature(rows, params, centre)[0]
    scale = 1.0 / np.sqrt(np.diag(whole))
    assert np.abs((few - whole) * scale * scale[:, None]).max() < 2e-3
    left_out = np.linalg.eigvalsh((whole - few) * scale * scale[:, None])
    assert left_out.min() > -1e-5 and 0.0 < left_out.max() < 5e-3
