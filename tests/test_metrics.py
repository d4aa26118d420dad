from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from tithe import Block, build_coreset, distortion, propose_size
from tithe.certify import sizing
from tithe.certify.sizing import extrapolate_size
from tithe.core.data import effective_sample_size
from tithe.objectives import KMeansObjective, LogisticObjective, MarginObjective
from tithe.reduce.distortion import Distortion, random_queries, ratio_error

KMEANS = KMeansObjective(n_clusters=4)


def test_effective_sample_size() -> None:
    assert effective_sample_size(np.ones(7)) == pytest.approx(7)
    assert effective_sample_size(np.array([1.0, 0.0, 0.0])) == pytest.approx(1)
    assert effective_sample_size(np.zeros(3)) == 0.0


@pytest.mark.parametrize(
    ("small", "full", "want"),
    [(1.1, 1.0, 0.1), (1.0, 1.1, 0.1), (0.0, 0.0, 0.0), (1.0, 0.0, math.inf), (0.0, 1.0, math.inf)],
)
def test_ratio_error(small: float, full: float, want: float) -> None:
    assert ratio_error(small, full) == pytest.approx(want)


def test_arguments_in_the_wrong_order_are_refused(skewed: Block) -> None:
    coreset = build_coreset(skewed.X, objective=KMEANS, coreset_size=100, random_state=0)
    with pytest.raises(ValueError, match="takes all rows first"):
        distortion(coreset, skewed.X, KMEANS)


def test_families_are_reported_apart(skewed: Block) -> None:
    coreset = build_coreset(skewed.X, objective=KMEANS, coreset_size=800, random_state=0)
    report = distortion(skewed, coreset, KMEANS, climb=5)
    assert set(report.values) == {"full", "coreset", "random", "rough", "climb"}
    assert len(report.values["random"]) == 20
    assert report.worst == max(v.max() for v in report.values.values())
    assert report.values["climb"][0] >= report.values["rough"][0]
    assert "lower bound" in str(report)
    assert report.worst < 0.2


def test_arrays_and_names_will_do(skewed: Block) -> None:
    X = skewed.X[:500].round().astype(int)
    coreset = build_coreset(X, objective="kmeans", coreset_size=100, random_state=0)
    assert distortion(X, coreset, "kmeans", n_fits=1, n_bases=1, climb=0).worst < 1.0


@pytest.mark.parametrize(("over", "under"), [(0.25, 0.0), (0.0, 0.2), (0.25, 0.2)])
def test_transfer_factor_is_reached_in_the_worst_case(over: float, under: float) -> None:
    """The best of two solutions is overestimated, the other underestimated: both cost the same on the coreset."""
    full, small = np.array([1.0, 0.0]), np.array([1.0 + over, 0.0])
    full[1] = (1.0 + over) / (1.0 - under)
    small[1] = full[1] * (1.0 - under)
    report = Distortion(values={"own": np.array([ratio_error(a, b) for a, b in zip(small, full, strict=True)])})
    factor = report.transfer_factor()
    assert full[1] <= factor * (1 + 1e-12)
    assert report.worst == pytest.approx(0.25)
    if over and under:
        assert full[1] == pytest.approx(factor)
    assert report.transfer_factor(3.0) == pytest.approx(3.0 * factor)


def test_transfer_factor_on_rows(skewed: Block) -> None:
    block = skewed.take(np.arange(600))
    coreset = build_coreset(block.X, objective=KMEANS, coreset_size=60, calibrate=False, random_state=0)
    rng = np.random.default_rng(0)
    best, ours = KMEANS.solve(block, rng=rng), KMEANS.solve(coreset, rng=rng)
    costs = [float(KMEANS.cost(block, q) @ block.weights()) for q in (best, ours)]
    small = [float(KMEANS.cost(coreset, q) @ coreset.weights()) for q in (best, ours)]
    report = distortion(block, coreset, KMEANS, queries={"own": [best, ours]})
    assert costs[1] / costs[0] <= report.transfer_factor(max(1.0, small[1] / small[0]))


def test_the_data_itself_has_no_distortion(skewed: Block) -> None:
    assert distortion(skewed, skewed, KMEANS, n_fits=1, climb=0).worst == 0.0


def test_queries_do_not_depend_on_anything_but_their_seed(skewed: Block) -> None:
    a, b = (random_queries(skewed, KMeansObjective(n_clusters=4), n_bases=2, seed=1) for _ in range(2))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a[0], random_queries(skewed, KMeansObjective(n_clusters=4), n_bases=2, seed=2)[0])


def test_pilot_rule() -> None:
    assert extrapolate_size(0.1, 100, 0.05) == 400
    assert extrapolate_size(0.0, 100, 0.05) == 1
    with pytest.raises(ValueError, match="positive"):
        extrapolate_size(0.1, 100, 0.0)


def test_a_larger_eps_never_proposes_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits come from twenty draws of each size and go up and down; here by a factor of up to 20."""
    X = np.random.default_rng(0).normal(size=(4000, 2))
    monkeypatch.setattr(KMeansObjective, "hard_params", lambda *_, rng: [])  # no limit is measured here
    proposed: list[int] = []
    for trial in range(10):

        def limit(self: object, size: int, enough: float = 0.0, trial: int = trial) -> float:
            return float(np.exp(3.0 * np.random.default_rng([trial, size]).random()) / np.sqrt(size))

        monkeypatch.setattr(sizing._Trial, "limit", limit)
        sizes = []
        for eps in (0.02, 0.05, 0.1, 0.2, 0.4):
            size, said = propose_size(X, objective=KMEANS, eps=eps, promise="costs", random_state=0)
            assert said <= eps or size == len(X)
            sizes.append(size)
        assert sizes == sorted(sizes, reverse=True)
        proposed += sizes
    assert min(proposed) < 1000 < max(s for s in proposed if s < len(X))  # below and above what is tried first
    with pytest.raises(ValueError, match="pilot_size must be at least 1"):
        propose_size(X, objective=KMEANS, eps=0.1, pilot_size=0)


def test_the_limit_of_a_proposal_is_above_what_further_draws_have() -> None:
    """Margins with a few far rows: queries of one's own making, on coresets of the proposed size."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, size=(4000, 4))
    y = (X[:, 0] - X[:, 1] + rng.logistic(size=4000) > 0).astype(np.int32)
    objective = MarginObjective(classes=(0, 1))
    size, limit = propose_size(X, y, objective=objective, eps=0.2, promise="costs", random_state=0)
    assert limit <= 0.2 and size < 4000
    block = Block(X=X, y=y)
    subset = objective.solve(block.take(np.arange(25)), rng=rng)
    far = X[np.argmax((X**2).sum(axis=1))]
    toward = np.append(far / (far @ far), 0.0)[None]
    queries = [subset, 10.0 * subset, 0.0 * subset, 3.0 * toward, -3.0 * toward]
    queries += [objective.strengthened(factor).solve(block, rng=rng) for factor in (1e-3, 1e3)]
    worst = [
        distortion(
            block,
            build_coreset(X, y, objective=objective, coreset_size=size, random_state=50 + seed),
            objective,
            queries={"own": queries},
        ).worst
        for seed in range(6)
    ]
    assert max(worst) <= 0.2


@pytest.mark.parametrize("objective", [LogisticObjective(classes=(0, 1)), LogisticObjective(classes=(0, 1, 2))])
def test_hard_queries_of_linear_models(objective: LogisticObjective) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    X[7] = 100.0
    y = rng.integers(0, objective.n_classes, 300).astype(np.int32)
    shape = (objective.n_scores, 4)
    for rows in (X, sparse.csr_matrix(X)):
        queries = objective.hard_params(Block(X=rows, y=y), rng=np.random.default_rng(0))
        assert all(q.shape == shape and np.isfinite(q).all() for q in queries)
        assert not queries[0].any()
        costs = np.array([objective.cost(Block(X=X[7:8], y=y[7:8]), q)[0] for q in queries])
        assert costs.max() > 2.0  # some query makes the far row costly
