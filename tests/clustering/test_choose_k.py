from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

from tithe import choose_k
from tithe.clustering.objective import ClusteringObjective


def planted(seed: int, *, n: int = 20_000, most: int = 30) -> tuple[np.ndarray, int]:
    """Normal clouds of unequal sizes, widths and shapes; the nearest two are 5 to 10 standard deviations apart."""
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(2, most + 1)), round(2 * 25 ** rng.random())
    width = rng.uniform(0.6, 1.6, k)
    centers = rng.uniform(-1, 1, (k, d))
    gaps = np.linalg.norm(centers[:, None] - centers, axis=2) / (width[:, None] + width)
    centers *= rng.uniform(2.5, 5) / gaps[np.triu_indices(k, 1)].min()
    label = rng.choice(k, n, p=(rng.dirichlet(np.full(k, 3.0)) + 0.25 / k) / 1.25)
    shape = width[:, None] * rng.uniform(0.7, 1.3, (k, d))
    return centers[label] + rng.normal(size=(n, d)) * shape[label], k


@pytest.fixture(scope="module")
def blobs() -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.uniform(-50, 50, size=(11, 3))
    return np.concatenate([c + rng.normal(scale=0.05, size=(1500, 3)) for c in centers])


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 8))])
def test_planted_clusters_are_counted(seed: int) -> None:
    X, k = planted(seed, n=3000, most=12)
    result = choose_k(X, coreset_size=1500, random_state=seed)
    assert (result.k, result.met) == (k, True)
    assert len(result.centers[k]) == k


@pytest.mark.slow
def test_planted_clusters_are_counted_in_nine_of_ten() -> None:
    right = 0
    for seed in range(100, 140):
        X, k = planted(seed)
        right += choose_k(X, random_state=seed).k == k
    assert right >= 36


@pytest.mark.parametrize("objective", ["kmeans", pytest.param("kmedian", marks=pytest.mark.slow)])
def test_six_blobs_are_six(objective: str) -> None:
    X = make_blobs(4000, centers=6, n_features=5, random_state=1)[0]
    for rows in (1e-6 * X + 1.0, sparse.csr_array(X)):
        assert choose_k(rows, objective=objective, coreset_size=500, random_state=0).k == 6


@pytest.mark.parametrize("d", [1, 2, pytest.param(20, marks=pytest.mark.slow)])
def test_one_cloud_is_one_cluster(d: int) -> None:
    rng = np.random.default_rng(d)
    for X in (rng.normal(size=(3000, d)), rng.random((3000, d))):
        assert choose_k(X, coreset_size=1000, random_state=0).k == 1


@pytest.mark.slow
def test_long_clusters_are_not_cut_and_groups_of_groups_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    long = rng.normal(size=(3000, 2)) * [5.0, 1.0] + [[0.0, 12.0]] * rng.integers(3, size=(3000, 1))
    assert choose_k(long, coreset_size=1500, random_state=0).k == 3
    nested = np.add.outer([0.0, 1000.0], [0.0, 50.0, 100.0]).ravel()[rng.integers(6, size=3000)]
    assert choose_k((nested + rng.normal(size=3000))[:, None], coreset_size=1500, random_state=0).k == 6


def test_weights_count_as_repeated_rows_do() -> None:
    X = make_blobs(3000, centers=5, n_features=4, random_state=0)[0]
    weight = np.random.default_rng(0).integers(1, 4, size=len(X)).astype(float)
    assert choose_k(X, sample_weight=weight, coreset_size=1000, random_state=0).k == 5


def test_more_clusters_than_are_allowed_is_warned_of() -> None:
    X = np.random.default_rng(0).normal(size=(3000, 1)) + 100.0 * np.arange(30).repeat(100)[:, None]
    with pytest.warns(UserWarning, match="up to 8 satisfies rule='separation'; the answer is 8"):
        result = choose_k(X, max_clusters=8, coreset_size=1000, random_state=0)
    assert (result.k, result.met) == (8, False)


def test_the_result_prints_in_one_line(blobs: np.ndarray) -> None:
    result = choose_k(blobs, coreset_size=1000, random_state=0)
    assert repr(result) == "KCurve(k=11, rule='separation', met=True, votes={11: 8}, tried={11, 16, 32, 64, 128})"


def test_rows_without_clusters_have_no_clear_number() -> None:
    """Long tails look like clusters, and which ones depends on the rows drawn."""
    X = np.random.default_rng(0).exponential(size=(8000, 4))
    with pytest.warns(UserWarning, match="There is no clear number of clusters: . of 8 coresets have"):
        result = choose_k(X, coreset_size=1000, random_state=0)
    assert not result.met and sum(result.votes.values()) == 8 and next(iter(result.votes)) == result.k
    assert result.coreset.total_weight == pytest.approx(8000)


@pytest.mark.parametrize("objective", ["kmeans", "kmedian"])
def test_budget_is_met_by_the_smallest_k(blobs: np.ndarray, objective: str) -> None:
    noise = len(blobs) * (0.0075 if objective == "kmeans" else 0.08)
    result = choose_k(
        blobs, rule="budget", budget=3 * noise, max_clusters=40, objective=objective, coreset_size=2000, random_state=0
    )
    assert result.k == 11 and result.met
    assert result.curve[11] <= 3 * noise < result.curve[10]


def test_budget_out_of_reach_is_said(blobs: np.ndarray) -> None:
    with pytest.warns(UserWarning, match="up to 6 satisfies rule='budget'"):
        result = choose_k(blobs, rule="budget", budget=1e-9, max_clusters=6, coreset_size=500, random_state=0)
    assert (result.k, result.met) == (6, False)


def test_relative_rule_stops_when_doubling_brings_little() -> None:
    """Eight corners of a box of sides 200, 60 and 18: each doubling up to eight saves most of the cost."""
    corners = np.array([[x, y, z] for x in (-100, 100) for y in (-30, 30) for z in (-9, 9)], float)
    X = np.concatenate([c + np.random.default_rng(0).normal(size=(1000, 3)) for c in corners])
    result = choose_k(X, rule="relative", eta=0.5, max_clusters=64, coreset_size=2000, random_state=0)
    assert result.k == 8 and result.met
    assert list(result.curve) == [1, 2, 4, 8, 16]


def test_a_last_step_that_is_no_doubling_decides_nothing() -> None:
    X = np.random.default_rng(0).normal(size=(3000, 2))
    for most in (32, 33, 63):
        with pytest.warns(UserWarning, match="the answer is 32"):
            result = choose_k(X, rule="relative", max_clusters=most, coreset_size=1000, random_state=0)
        assert (result.k, result.met) == (32, False)


def test_penalty_finds_the_valley(blobs: np.ndarray) -> None:
    result = choose_k(blobs, rule="penalty", penalty=1000.0, max_clusters=40, coreset_size=2000, random_state=0)
    assert result.k == 11


def test_curve_never_rises_and_solutions_belong_to_it(blobs: np.ndarray) -> None:
    result = choose_k(blobs, rule="penalty", penalty=50.0, max_clusters=30, coreset_size=1000, random_state=1)
    costs = list(result.curve.values())
    assert list(result.curve) == sorted(result.curve)
    assert np.all(np.diff(costs) <= 1e-9 * costs[0])
    assert all(len(result.centers[k]) == k for k in result.curve)


@pytest.mark.parametrize("objective", ["kmeans", "kmedian"])
@pytest.mark.parametrize("options", [{"rule": "budget", "budget": 150.0}, {"rule": "penalty", "penalty": 15.0}])
def test_the_curve_never_rises_even_if_the_solver_gives_any_rows(options, objective: str, monkeypatch) -> None:
    """Random rows as centres: costs of a larger k are often higher, and some k are tried after larger ones."""
    X = np.random.default_rng(0).normal(size=(300, 2))

    def any_rows(self, block, *, rng, init=None):
        return block.X[rng.integers(len(block), size=self.n_clusters)]

    monkeypatch.setattr(ClusteringObjective, "solve", any_rows)
    for seed in range(2):
        result = choose_k(X, max_clusters=30, objective=objective, coreset_size=300, random_state=seed, **options)
        costs = np.array(list(result.curve.values()))
        assert np.all(np.diff(costs) <= 0.0) and len(costs) > 4
        for k, cost in result.curve.items():
            gaps = np.linalg.norm(X[:, None] - result.centers[k], axis=2).min(axis=1)
            assert len(result.centers[k]) == k
            assert cost == pytest.approx((gaps**2 if objective == "kmeans" else gaps).sum())
        assert result.met
        if options["rule"] == "budget":
            assert result.curve[result.k] <= 150.0 < min(c for k, c in result.curve.items() if k < result.k)


def test_a_rule_without_its_number_is_refused_before_rows_are_read() -> None:
    with pytest.raises(ValueError, match="budget, the cost to get below, must be"):
        choose_k(iter(()), rule="budget")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "magic"}, "rule must be"),
        ({"rule": "budget"}, "budget, the cost to get below"),
        ({"rule": "penalty"}, "penalty, the cost of one more cluster"),
        ({"rule": "relative", "eta": 2.0}, "eta"),
        ({"rule": "penalty", "penalty": float("nan")}, "penalty"),
        ({"rule": "budget", "budget": float("nan")}, "budget"),
        ({"max_clusters": 0}, "max_clusters"),
        ({"max_clusters": "8"}, "max_clusters"),
        ({"objective": "generic"}, "objective must be"),
    ],
)
def test_bad_arguments(blobs: np.ndarray, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_k(blobs, **options)


def test_the_rows_of_a_coreset_are_no_answer(blobs: np.ndarray) -> None:
    """A centre on each of the rows that were kept costs nothing on them, which says nothing of all rows."""
    with pytest.warns(UserWarning, match="Raise coreset_size"):
        result = choose_k(blobs, rule="penalty", penalty=1e-9, coreset_size=20, random_state=0)
    assert not result.met


def test_all_points_equal() -> None:
    result = choose_k(np.ones((100, 2)), coreset_size=50, random_state=0)
    assert result.k == 1 and result.curve[1] == 0.0
