"""`ODMClustering`: shapes that k-means cannot tell apart, constraints, weights, coresets, files, errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel

import tithe
from tithe.odm import ODMClustering

MOONS = make_moons(120, noise=0.06, random_state=0)
RINGS = make_circles(120, noise=0.05, factor=0.4, random_state=0)


def _clusters(X, *, n_clusters=2, **options) -> ODMClustering:
    return ODMClustering(n_clusters, random_state=0, **options).fit(X)


@pytest.mark.parametrize(("X", "truth"), [MOONS, RINGS], ids=["moons", "rings"])
def test_shapes_that_k_means_cannot_tell_apart(X, truth) -> None:
    means = KMeans(2, n_init=5, random_state=0).fit_predict(X)
    assert adjusted_rand_score(truth, means) < 0.6
    model = _clusters(X)
    assert adjusted_rand_score(truth, model.labels_) >= 0.95
    assert adjusted_rand_score(truth, model.predict(X)) >= 0.95
    assert 0.5 * model.objective_ < model.relaxed_bound_ <= model.objective_
    assert model.relaxed_bound_ <= model.relaxed_value_ <= model.objective_ * (1 + 1e-6)
    assert model.certificate_.kind == "bound"
    assert model.certificate_.value == pytest.approx(model.objective_ - model.relaxed_bound_)
    assert f"below {model.relaxed_bound_:.6g}" in str(model.certificate_)


def test_more_clusters() -> None:
    X, truth = make_blobs(90, centers=4, random_state=3)
    model = _clusters(X, n_clusters=4)
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    assert adjusted_rand_score(truth, model.predict(X)) == 1.0
    assert model.relaxed_bound_ is None and model.certificate_ is None
    assert model.decision_function(X).shape == (90, 4)


def test_links_hold_and_change_the_clusters() -> None:
    X, truth = MOONS
    other = np.flatnonzero(truth == 1)[:2]
    must, cannot = [(int(np.flatnonzero(truth == 0)[0]), int(other[0]))], [(int(other[0]), int(other[1]))]
    labels = _clusters(X, must_link=must, cannot_link=cannot).labels_
    assert labels[must[0][0]] == labels[must[0][1]]
    assert labels[cannot[0][0]] != labels[cannot[0][1]]
    blobs, _ = make_blobs(40, centers=3, random_state=0)
    many = _clusters(blobs, n_clusters=3, must_link=[(0, 1), (1, 2)], cannot_link=[(0, 3), (3, 4)]).labels_
    assert many[0] == many[1] == many[2] != many[3] != many[4]


@pytest.mark.parametrize("balance", [0.0, 0.2, 0.8])
def test_the_balance_holds(balance: float) -> None:
    X = np.concatenate([np.zeros((4, 1)), np.full((36, 1), 5.0)]) + np.random.default_rng(0).normal(size=(40, 1))
    sizes = np.bincount(_clusters(X, balance=balance).labels_, minlength=2)
    assert abs(sizes[0] - sizes[1]) <= 40 * balance
    if balance == 0.8:
        assert sorted(np.bincount(_clusters(X, balance=balance, fit_intercept=True).labels_)) == [4, 36]


@pytest.mark.parametrize("X", [np.zeros((6, 2)), np.random.default_rng(0).normal(size=(30, 2)), np.eye(7)])
def test_there_is_never_a_single_cluster(X) -> None:
    for balance in (0.3, 0.99):
        assert set(_clusters(X, balance=balance).labels_) == {0, 1}


def test_opposite_labels_and_the_order_of_rows_change_nothing() -> None:
    X, _ = MOONS
    order = np.random.default_rng(0).permutation(len(X))
    first, second = _clusters(X), _clusters(X[order])
    np.testing.assert_array_equal(first.labels_[order], second.labels_)
    np.testing.assert_allclose(first.decision_function(X), second.decision_function(X), atol=1e-3)
    assert first.objective_ == pytest.approx(second.objective_, rel=1e-5)


def test_a_weight_of_two_is_a_row_twice_and_none_is_no_row() -> None:
    rng = np.random.default_rng(0)
    X, _ = make_moons(40, noise=0.05, random_state=1)
    weight = rng.integers(0, 3, 40)
    weighted, repeated = (
        ODMClustering(random_state=0).fit(X, sample_weight=weight),
        _clusters(np.repeat(X, weight, axis=0)),
    )
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-6)
    np.testing.assert_array_equal(np.repeat(weighted.labels_, weight), repeated.labels_)
    assert weighted.objective_ == pytest.approx(repeated.objective_)


def test_many_rows_are_clustered_by_a_coreset_within_the_constraints() -> None:
    X, truth = make_moons(3000, noise=0.06, random_state=0)
    must, cannot = [(0, 5), (7, 2900)], [(11, 12)]
    model = _clusters(X, coreset_size=150, must_link=must, cannot_link=cannot, balance=0.1)
    labels = model.labels_
    assert len(model.sample_indices_) <= 150 and {0, 5, 7, 2900, 11, 12} <= set(model.sample_indices_)
    assert all(labels[i] == labels[j] for i, j in must) and all(labels[i] != labels[j] for i, j in cannot)
    assert abs(np.bincount(labels)[0] - 1500) <= 150
    assert adjusted_rand_score(truth, labels) > 0.9
    assert "of 3000 rows" in str(model.certificate_)
    blobs, groups = make_blobs(900, centers=3, random_state=3)
    assert adjusted_rand_score(groups, _clusters(blobs, n_clusters=3, coreset_size=60).labels_) > 0.95


def test_other_kernels_and_sparse_rows() -> None:
    X, truth = make_blobs(60, centers=2, random_state=3)
    linear = _clusters(X, kernel="linear")
    assert adjusted_rand_score(truth, linear.labels_) == 1.0
    given = ODMClustering(kernel="precomputed", random_state=0).fit(rbf_kernel(X, gamma=0.1))
    named = _clusters(X, gamma=0.1)
    assert given.objective_ == pytest.approx(named.objective_)
    np.testing.assert_allclose(
        np.abs(given.decision_function(rbf_kernel(X, gamma=0.1))), np.abs(named.decision_function(X))
    )
    np.testing.assert_array_equal(_clusters(sparse.csr_matrix(X), gamma=0.1).labels_, named.labels_)


def test_a_saved_model_predicts_the_same(tmp_path) -> None:
    X, _ = RINGS
    model = _clusters(X, must_link=[(0, 1)] if RINGS[1][0] == RINGS[1][1] else None)
    tithe.save_model(model, tmp_path / "model.tithe")
    loaded = tithe.load_model(tmp_path / "model.tithe")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert str(loaded.certificate_) == str(model.certificate_)
    loaded.machine_ = _clusters(X[:, :1]).machine_
    tithe.save_model(loaded, tmp_path / "model.tithe")
    with pytest.raises(tithe.FileFormatError, match="other columns"):
        tithe.load_model(tmp_path / "model.tithe")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"must_link": [(0, 1), (1, 2)], "cannot_link": [(0, 2)]}, "along the rows"),
        ({"must_link": [(3, 3)]}, "must_link links row 3 with itself"),
        ({"cannot_link": [(3, 99)]}, "cannot_link names row 99"),
        ({"must_link": [(0, k) for k in range(1, 18)]}, "20 together.*differ by at least 16"),
        ({"balance": 1.0}, "balance must be"),
        ({"n_clusters": 21}, "n_samples=20 should be >= n_clusters=21"),
    ],
)
def test_what_cannot_be_is_refused(options, message: str) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=message):
        ODMClustering(**options).fit(X)
