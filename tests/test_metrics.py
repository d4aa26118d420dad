from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse

from tithe import Block, build_coreset, distortion, propose_size
from tithe.core.data import effective_sample_size
from tithe.objectives import KMeansObjective, KMedianObjective, LogisticObjective, MarginObjective
from tithe.reduce import sizing
from tithe.reduce.distortion import hard_queries, random_queries, ratio_error
from tithe.reduce.sizing import extrapolate_size, theoretical_size

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
    assert theoretical_size("kmeans", 0.1, n_features=3).size > 0
    with pytest.raises(ValueError, match="about centres"):
        theoretical_size("generic", 0.1, n_features=3)


def test_the_data_itself_has_no_distortion(skewed: Block) -> None:
    assert distortion(skewed, skewed, KMEANS, n_fits=1, climb=0).worst == 0.0


def test_queries_do_not_depend_on_anything_but_their_seed(skewed: Block) -> None:
    a, b = (random_queries(skewed, KMeansObjective(n_clusters=4), n_bases=2, seed=1) for _ in range(2))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a[0], random_queries(skewed, KMeansObjective(n_clusters=4), n_bases=2, seed=2)[0])


class TestSizeFor:
    def test_formulas(self) -> None:
        k, d, eps, delta = 10, 5, 0.1, 0.05
        alpha = 8 * (math.log(k) + 2)
        one = theoretical_size(KMeansObjective(n_clusters=k), eps, delta, n_features=d, queries="one")
        total = 6 * alpha + 4 * 2 * k  # the pilot has 2 k centres
        assert one.total_sensitivity == pytest.approx(total)
        assert one.size == math.ceil(2 * total * (1 + eps / 3) * math.log(2 / delta) / eps**2)
        every = theoretical_size(KMedianObjective(n_clusters=k), eps, delta, n_features=d)
        total = 2 * alpha + 2 * k
        dimension = d * k * math.log(k)
        assert every.size == math.ceil(total * (dimension * math.log(total) + math.log(1 / delta)) / eps**2)
        assert every.constant == 1.0 and "constant taken as 1" in every.formula
        rings = theoretical_size(
            KMedianObjective(n_clusters=k), 0.5, 0.1, n_features=d, construction="rings", n_rows=1000
        )
        layers = math.ceil(math.log2(4 * 1000))
        draws = math.ceil(math.log(2 * k * (layers + 1) / 0.1) / (2 * (0.5 / 18) ** 2))
        assert rings.size == draws * k * (layers + 1)

    @pytest.mark.parametrize("construction", ["sensitivity", "lightweight", "rings"])
    def test_less_error_needs_more_rows(self, construction: str) -> None:
        sizes = [
            theoretical_size(KMEANS, e, n_features=3, construction=construction, n_rows=10**6).size
            for e in (0.4, 0.2, 0.1)
        ]
        assert sizes[0] < sizes[1] < sizes[2]
        assert sizes[2] / sizes[1] == pytest.approx(4, rel=0.1)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"eps": 0.0}, "eps"),
            ({"delta": 1.0}, "delta"),
            ({"construction": "uniform"}, "No bound"),
            ({"construction": "rings"}, "n_rows"),
            ({"queries": "some"}, "queries"),
        ],
    )
    def test_bad_arguments(self, options: dict, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            theoretical_size(KMEANS, **({"eps": 0.1, "n_features": 2} | options))

    def test_agrees_with_distortion_on_a_planted_problem(self) -> None:
        """A small far cluster that the query leaves out carries the cost: what sensitivities are about.

        The error of the plain draw that is exceeded with probability delta keeps to eps, and is
        within one order of magnitude of it.
        """
        rng = np.random.default_rng(0)
        centers = rng.normal(scale=20, size=(4, 2)) * np.array([[1], [1], [1], [20]])
        sizes = (30_000, 20_000, 10_000, 600)
        X = np.concatenate([c + rng.normal(size=(n, 2)) for c, n in zip(centers, sizes, strict=True)])
        X = X[rng.permutation(len(X))]
        eps, delta = 0.3, 0.1
        size = theoretical_size(KMEANS, eps, delta, n_features=2, queries="one").size
        assert size < len(X) / 4
        results = [
            distortion(
                X,
                build_coreset(X, objective=KMEANS, coreset_size=size, calibrate=False, random_state=seed),
                KMEANS,
                queries={"three centres": [centers[:3]]},
            ).worst
            for seed in range(60)
        ]
        assert eps / 10 <= np.quantile(results, 1 - delta) <= eps


def test_pilot_rule() -> None:
    assert extrapolate_size(0.1, 100, 0.05) == 400
    assert extrapolate_size(0.0, 100, 0.05) == 1
    with pytest.raises(ValueError, match="positive"):
        extrapolate_size(0.1, 100, 0.0)


def test_a_larger_eps_never_proposes_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits come from five draws of each size and go up and down; here by a factor of up to 20."""
    X = np.random.default_rng(0).normal(size=(4000, 2))
    monkeypatch.setattr(sizing, "hard_queries", lambda *_, seed: [])  # no limit is measured here
    proposed: list[int] = []
    for trial in range(10):

        def limit(self: object, size: int, trial: int = trial) -> float:
            return float(np.exp(3.0 * np.random.default_rng([trial, size]).random()) / np.sqrt(size))

        monkeypatch.setattr(sizing._CostTrial, "limit", limit)
        sizes = []
        for eps in (0.02, 0.05, 0.1, 0.2, 0.4):
            size, said = propose_size(X, objective=KMEANS, eps=eps, random_state=0)
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
    size, limit = propose_size(X, y, objective=objective, eps=0.2, random_state=0)
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
        queries = hard_queries(Block(X=rows, y=y), objective, seed=0)
        assert all(q.shape == shape and np.isfinite(q).all() for q in queries)
        assert not queries[0].any()
        costs = np.array([objective.cost(Block(X=X[7:8], y=y[7:8]), q)[0] for q in queries])
        assert costs.max() > 2.0  # some query makes the far row costly
