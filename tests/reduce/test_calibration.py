"""The tests of calibration that cannot be faked."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tithe import Block, build_coreset
from tithe.core.data import Moments
from tithe.objectives import KMeansObjective, KMedianObjective
from tithe.reduce.calibration import calibrate


@pytest.fixture
def problem(rng: np.random.Generator) -> tuple[np.ndarray, Moments, np.ndarray]:
    """A draw of 400 of 5000 rows in two groups: weights, moments of the drawn rows, full totals."""
    a = np.column_stack([np.ones(5000), rng.normal(size=(5000, 3)) + 2.0])
    group = rng.integers(0, 2, 5000)
    totals = np.array([a[group == g].sum(axis=0) for g in (0, 1)])
    rows = rng.choice(5000, 400, replace=False)
    return np.full(400, 12.5), Moments(values=a[rows], groups=group[rows], n_basic=2), totals


def sums(weight: np.ndarray, moments: Moments) -> np.ndarray:
    groups = np.zeros(len(weight), int) if moments.groups is None else moments.groups
    out = np.zeros((groups.max() + 1, moments.values.shape[1]))
    np.add.at(out, groups, moments.values * weight[:, None])
    return out


def test_totals_are_reproduced(problem) -> None:
    weight, moments, totals = problem
    new, report = calibrate(weight, moments, totals, ridge=0.0, guard=False)
    np.testing.assert_allclose(sums(new, moments), totals, rtol=1e-9)
    assert report.residual < 1e-9 < report.before
    assert report.n_totals == report.n_known == totals.size
    assert (new > 0).all()


def test_twice_changes_nothing(problem) -> None:
    weight, moments, totals = problem
    once, _ = calibrate(weight, moments, totals, ridge=0.0, guard=False)
    np.testing.assert_allclose(calibrate(once, moments, totals, ridge=0.0, guard=False)[0], once, rtol=1e-8)


def test_recorded_residual_is_the_true_one(problem) -> None:
    weight, moments, totals = problem
    moments = Moments(values=moments.values, groups=None, n_basic=2)
    totals = totals.sum(axis=0, keepdims=True)
    new, report = calibrate(weight, moments, totals)
    centred = moments.values - weight @ moments.values / weight.sum()
    centred[:, 0] = 1.0
    scale = np.sqrt(weight @ centred**2 / weight.sum())
    shift = np.concatenate([[0.0], (weight @ moments.values / weight.sum())[1:]])
    goal = (totals[0] - shift * totals[0, 0]) / scale
    error = np.abs(new @ (centred / scale) - goal).max() / totals[0, 0]
    assert report.residual == pytest.approx(error, rel=1e-3)
    assert 0 < report.residual < 2e-3 * report.before


def test_no_ridge_limit_and_infinite_ridge(problem) -> None:
    weight, moments, _totals = problem
    one = Moments(values=moments.values)
    total = sums(weight, one) * np.array([1.0, 1.1, 0.95, 1.02])
    new, _ = calibrate(weight, one, total, ridge=1e12, guard=False)
    np.testing.assert_allclose(new, weight, rtol=1e-6)


def test_infeasible_totals_leave_finite_positive_weights(problem) -> None:
    weight, moments, _ = problem
    impossible = np.array([[5000.0, 1e9, -1e9, 1e9], [1e9, -5.0, 0.0, 0.0]])
    for guard in (False, True):
        new, report = calibrate(weight, moments, impossible, guard=guard)
        assert np.isfinite(new).all() and (new > 0).all()
        assert report.largest_change <= 20.0 * (1 + 1e-9)


def test_a_group_nothing_was_drawn_from(problem) -> None:
    """Its weight and its cost are not lost, and the report says what the other groups were moved by."""
    weight, moments, totals = problem
    missed = np.array([[900.0, 2000.0, 0.0, 0.0]])
    new, report = calibrate(weight, moments, np.vstack([totals, missed]))
    reached = sums(new, moments)[:, :2].sum(axis=0)
    np.testing.assert_allclose(reached, totals[:, :2].sum(axis=0) + missed[0, :2], rtol=1e-3)
    assert new.sum() == pytest.approx(totals[:, 0].sum() + 900.0, rel=1e-12)
    assert report.n_totals < report.n_known
    assert report.residual == pytest.approx(900.0 / 5000.0, rel=0.2)
    assert calibrate(weight, moments, totals)[1].residual < 1e-3


def test_few_rows_for_many_clusters_keep_the_total_weight(rng: np.random.Generator) -> None:
    """With 100 rows for 40 pilot clusters some have none: a union of such coresets lost a tenth of the cost."""
    centers = rng.normal(size=(20, 6)) * 4.0
    parts = [centers[rng.integers(20, size=1500)] + rng.normal(size=(1500, 6)) for _ in range(6)]
    objective = KMeansObjective(n_clusters=20)
    coresets = [
        build_coreset(part, objective=objective, coreset_size=100, random_state=i) for i, part in enumerate(parts)
    ]
    for coreset in coresets:
        assert coreset.weights().sum() == pytest.approx(1500.0, rel=1e-9)
    X, weight = np.concatenate([c.X for c in coresets]), np.concatenate([c.weights() for c in coresets])
    full = objective.cost(Block(X=np.concatenate(parts)), centers).sum()
    assert objective.cost(Block(X=X), centers) @ weight == pytest.approx(full, rel=0.04)


def test_permutations(problem, rng: np.random.Generator) -> None:
    weight, moments, totals = problem
    new, _ = calibrate(weight, moments, totals)
    rows = rng.permutation(400)
    columns = np.array([0, 1, 3, 2])
    other = Moments(values=moments.values[rows][:, columns], groups=moments.groups[rows], n_basic=2)
    np.testing.assert_allclose(calibrate(weight[rows], other, totals[:, columns])[0], new[rows], rtol=1e-9)


def test_repeated_rows_equal_weights(problem, rng: np.random.Generator) -> None:
    weight, moments, totals = problem
    times = rng.integers(1, 4, 400)
    new, _ = calibrate(weight * times, moments, totals, guard=False)
    again = Moments(values=moments.values.repeat(times, axis=0), groups=moments.groups.repeat(times), n_basic=2)
    spread, _ = calibrate(weight.repeat(times), again, totals, guard=False)
    np.testing.assert_allclose(np.add.reduceat(spread, np.concatenate([[0], np.cumsum(times)[:-1]])), new, rtol=1e-9)


def test_a_total_that_was_never_drawn_is_not_chased(rng: np.random.Generator) -> None:
    """A column that is constant among the drawn rows, because the rare rows were missed, steers nothing."""
    values = np.column_stack([np.ones(200), rng.random(200), np.full(200, -0.01)])
    totals = np.array([[2000.0, 1000.0, 500.0]])  # rare rows of 50 were missed: their sum is not -20
    new, _ = calibrate(np.full(200, 10.0), Moments(values=values, n_basic=2), totals)
    assert new.sum() == pytest.approx(2000.0)
    assert (new / 10.0).min() > 0.2 and (new / 10.0).max() < 5.0


@pytest.mark.parametrize("objective", [KMeansObjective(n_clusters=4), KMedianObjective(n_clusters=4)])
def test_gradient_of_the_calibrated_coreset_is_the_full_one(objective, skewed: Block) -> None:
    """With every total steered exactly, cost and gradient at the pilot are those of the full data."""
    coreset = build_coreset(skewed.X, objective=objective, coreset_size=4000, calibrate=False, random_state=1)
    pilot = objective.pilot(skewed, rng=np.random.default_rng(0))[:4]
    totals = objective.survey(skewed, pilot).totals
    weight, report = calibrate(coreset.weights(), objective.moments(coreset, pilot), totals, ridge=0.0, guard=False)
    assert report.share_clipped == 0.0
    tuned = objective.survey(Block(X=coreset.X, sample_weight=weight), pilot).totals
    np.testing.assert_allclose(tuned, totals, rtol=1e-8, atol=1e-8 * np.abs(totals).max())


@pytest.mark.bits
def test_tree_totals_equal_batch_totals(skewed: Block) -> None:
    """One order of summation, the tree's: the same bits for every chunking, and the batch's sum to 1e-12."""
    rows = np.tile(skewed.X, (4, 1))
    objective = KMeansObjective(n_clusters=4)
    results = []
    for chunks in (3, 17, 60):
        for engine in ("serial", "threads"):
            coreset = build_coreset(
                np.array_split(rows, chunks), objective=objective, coreset_size=500, engine=engine, random_state=2
            )
            results.append(coreset)
    for other in results[1:]:
        assert np.array_equal(other.totals, results[0].totals)
        assert np.array_equal(other.weights(), results[0].weights())
    batch = objective.survey(Block(X=rows), results[0].pilot).totals
    np.testing.assert_allclose(results[0].totals, batch, rtol=1e-12, atol=1e-12 * np.abs(batch).max())


def test_moments_are_copied_three_times_at_the_most(rng: np.random.Generator) -> None:
    values = np.column_stack([np.ones(4000), rng.normal(size=(4000, 30))])
    weight, totals = rng.uniform(50.0, 150.0, 4000), 100.0 * values.sum(axis=0)[None]
    tracemalloc.start()
    _, report = calibrate(weight, Moments(values=values), totals)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.n_totals == 31
    assert peak < 4 * values.nbytes
