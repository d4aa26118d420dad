from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tithe import Block, CoresetKMeans, CoresetKMedians

BOTH = pytest.mark.parametrize("kind", [CoresetKMeans, CoresetKMedians])


@BOTH
def test_a_fit_from_a_coreset(kind, skewed: Block) -> None:
    model = kind(n_clusters=8, coreset_size=1000, random_state=0).fit(skewed.X)
    assert model.cluster_centers_.shape == (8, 6)
    assert model.labels_.shape == (60_000,)
    assert len(model.coreset_) <= 1000
    np.testing.assert_array_equal(skewed.X[model.sample_indices_], model.coreset_.X)
    np.testing.assert_array_equal(model.predict(skewed.X), model.labels_)
    assert model.score(skewed.X) == pytest.approx(-model.inertia_)
    power = 2 if kind is CoresetKMeans else 1
    exact = (model.transform(skewed.X).min(axis=1) ** power).sum()
    assert model.inertia_ == pytest.approx(exact, rel=1e-9)


def test_as_good_as_scikit_learn_and_better_than_uniform(skewed: Block) -> None:
    best = min(KMeans(8, n_init=1, random_state=s).fit(skewed.X).inertia_ for s in range(3))
    ours = [CoresetKMeans(8, coreset_size=1000, random_state=s).fit(skewed.X).inertia_ for s in range(5)]
    uniform = [
        CoresetKMeans(8, coreset_size=1000, construction="uniform", calibrate=False, random_state=s)
        .fit(skewed.X)
        .inertia_
        for s in range(5)
    ]
    assert np.median(ours) <= 1.02 * best
    assert np.median(ours) < np.median(uniform)


@BOTH
def test_polish_never_raises_the_cost(kind, skewed: Block) -> None:
    model = kind(n_clusters=8, coreset_size=200, polish=6, random_state=1).fit(skewed.X)
    assert np.all(np.diff(model.objective_curve_) < 0)
    assert 1 < len(model.objective_curve_) <= 7
    plain = kind(n_clusters=8, coreset_size=200, polish=0, random_state=1).fit(skewed.X)
    assert plain.objective_curve_ == [model.objective_curve_[0]]
    assert model.certificate_.passes <= 7
    assert plain.certificate_.passes == 1


@BOTH
def test_certificate_is_exact_and_says_so(kind, skewed: Block) -> None:
    model = kind(n_clusters=5, coreset_size=500, random_state=0).fit(skewed.X)
    again = model.certify(skewed.X)
    assert again.kind == model.certificate_.kind == "exact"
    assert again.value == pytest.approx(model.inertia_)
    assert again.coreset_error == pytest.approx(model.certificate_.coreset_error)
    assert "on all 60,000 rows" in str(again)
    other = model.certify(skewed.X[:100], sample_weight=np.full(100, 2.0))
    assert other.value == pytest.approx(2 * -model.score(skewed.X[:100]))


def test_fitted_cost_on_the_coreset_is_optimistic_and_not_reported(skewed: Block) -> None:
    """Medians over seeds: the coreset flatters the solution fitted to it; inertia_ does not."""
    models = [CoresetKMeans(30, coreset_size=300, polish=0, random_state=s).fit(skewed.X) for s in range(7)]
    assert np.median([m.certificate_.coreset_error for m in models]) < 0


@BOTH
def test_weights_equal_repeated_rows_on_small_data(kind) -> None:
    rng = np.random.default_rng(0)
    X, times = rng.normal(size=(60, 2)), rng.integers(1, 4, 60)
    a = kind(n_clusters=3, random_state=0).fit(X, sample_weight=times)
    b = kind(n_clusters=3, random_state=0).fit(np.repeat(X, times, axis=0)[rng.permutation(times.sum())])
    np.testing.assert_allclose(a.cluster_centers_, b.cluster_centers_, rtol=1e-9)


@BOTH
def test_same_seed_same_model(kind, skewed: Block) -> None:
    a, b = (kind(n_clusters=4, coreset_size=300, random_state=3).fit(skewed.X) for _ in range(2))
    assert np.array_equal(a.cluster_centers_, b.cluster_centers_)


def test_medians_shrug_off_outliers_that_move_means() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 2))
    X[:30] = 1e5
    mean = CoresetKMeans(1, coreset_size=2000, random_state=0).fit(X).cluster_centers_[0]
    median = CoresetKMedians(1, coreset_size=2000, random_state=0).fit(X).cluster_centers_[0]
    assert np.abs(median).max() < 0.1 < np.abs(mean).max()


@BOTH
def test_csr_frames_and_pipelines(kind, skewed: Block) -> None:
    csr = kind(n_clusters=4, coreset_size=500, random_state=0).fit(sparse.csr_matrix(skewed.X))
    dense = kind(n_clusters=4, coreset_size=500, random_state=0).fit(skewed.X)
    assert csr.inertia_ == pytest.approx(dense.inertia_, rel=0.05)
    frame = pd.DataFrame(skewed.X, columns=list("abcdef"))
    model = kind(n_clusters=4, coreset_size=500, random_state=0).fit(frame)
    np.testing.assert_array_equal(model.cluster_centers_, dense.cluster_centers_)
    assert list(model.feature_names_in_) == list("abcdef")
    pipe = make_pipeline(StandardScaler(), kind(n_clusters=4, coreset_size=500, random_state=0)).fit(frame)
    assert pipe.predict(frame[:3]).shape == (3,)


@BOTH
def test_degenerate_data(kind) -> None:
    same = kind(n_clusters=3, coreset_size=50, random_state=0).fit(np.full((200, 2), 4.0))
    assert same.inertia_ == 0.0
    assert same.certificate_.coreset_error == 0.0
    two = kind(n_clusters=3, coreset_size=50, random_state=0).fit(np.repeat([[0.0], [1.0]], 100, axis=0))
    assert two.inertia_ == 0.0
    with pytest.raises(ValueError, match=r"n_samples=2 should be >= n_clusters=3"):
        kind(n_clusters=3).fit(np.zeros((2, 1)))
    huge = kind(n_clusters=3, coreset_size=50, random_state=0).fit(
        (np.random.default_rng(0).normal(size=(500, 2)) * 1e30).astype(np.float32)
    )
    assert np.isfinite(huge.inertia_)


@BOTH
@pytest.mark.parametrize("polish", [-1, 1.5, "yes", True])
def test_bad_polish(kind, polish) -> None:
    with pytest.raises(ValueError, match="polish"):
        kind(n_clusters=2, polish=polish).fit(np.random.default_rng(0).normal(size=(10, 2)))


@BOTH
@pytest.mark.parametrize("k", [0, 2.5, "x"])
def test_bad_number_of_clusters(kind, k) -> None:
    with pytest.raises(ValueError, match="n_clusters"):
        kind(n_clusters=k).fit(np.random.default_rng(0).normal(size=(10, 2)))


@BOTH
def test_bad_parameters_are_refused_on_small_data_too(kind) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    for options, message in (
        ({"construction": "bogus"}, "no construction"),
        ({"engine": "bogus"}, "no engine"),
        ({"calibrate": 1}, "calibrate"),
        ({"tol": "x"}, "tol"),
        ({"n_init": 0}, "n_init"),
        ({"coreset_size": 2, "n_clusters": 5}, "fewer than"),
    ):
        with pytest.raises(ValueError, match=message):
            kind(**{"n_clusters": 2, **options}).fit(X)
