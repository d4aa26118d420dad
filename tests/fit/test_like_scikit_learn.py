"""Parameters and attributes that users of scikit-learn expect, compared with scikit-learn's own."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
import sklearn
from leaf_source import LeafSource
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

from tithe import CoresetEstimator, CoresetKMeans, CoresetKMedians, CoresetLogisticRegression
from tithe.odm import LinearODMClassifier, ODMClassifier

BOTH = pytest.mark.parametrize("kind", [CoresetKMeans, CoresetKMedians])


def labelled(n: int, n_classes: int, seed: int = 0, noise: float = 1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal([0.0, 1.0, 2.0, 0.0], size=(n, 4))
    y = (X @ rng.normal(size=(4, n_classes)) + noise * rng.gumbel(size=(n, n_classes))).argmax(axis=1)
    return X, y, rng.exponential(size=n)


# -- logistic regression without a penalty -----------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("n", "options"), [(2000, {}), (30_000, {"coreset_size": 3000, "tol": 1e-10})])
def test_without_a_penalty_the_fit_is_that_of_scikit_learn(n_classes, n, options) -> None:
    X, y, weight = labelled(n, n_classes)
    full = LogisticRegression(C=np.inf, tol=1e-9, max_iter=1000).fit(X, y, weight)
    model = CoresetLogisticRegression(C=np.inf, random_state=0, **options).fit(X, y, weight)
    np.testing.assert_allclose(model.coef_, full.coef_, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(X[:50]), full.predict_proba(X[:50]), atol=1e-5)
    certificate = model.certify(X, y, weight)
    assert certificate.kind == "estimate" and certificate.relative_excess < 1e-6
    assert certificate.bound is None or certificate.bound >= certificate.value  # no finite bound but the loss itself


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("size", ["auto", 300])
def test_without_a_penalty_separable_classes_are_warned_of(n_classes, size) -> None:
    X, y, _ = labelled(3000, n_classes, noise=0.0)
    model = CoresetLogisticRegression(C=np.inf, coreset_size=size, max_iter=60, random_state=0)
    with pytest.warns(ConvergenceWarning, match="no minimum"):
        model.fit(X, y)
    assert np.isfinite(model.coef_).all() and model.score(X, y) == 1.0
    assert model.certificate_.kind == "bound" and model.certificate_.relative_excess == 1.0
    assert "no smallest one" in str(model.certificate_)
    with pytest.warns(ConvergenceWarning, match="no minimum"):
        model.fit(LeafSource.cut(X, y, at=[700, 1500]))
    with pytest.warns(ConvergenceWarning, match="no minimum"):
        assert np.isfinite(model.partial_fit(X, y, classes=range(n_classes)).solve().coef_).all()


def test_a_penalty_makes_separable_classes_no_trouble() -> None:
    X, y, _ = labelled(3000, 2, noise=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CoresetLogisticRegression(C=10.0, random_state=0).fit(X, y)
    for bad in (0.0, -np.inf, np.nan):
        with pytest.raises(ValueError, match="C must be"):
            CoresetLogisticRegression(C=bad).fit(X, y)


# -- precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [5000, 400])
def test_results_have_the_precision_that_scikit_learn_gives(dtype, size) -> None:
    X, y, _ = labelled(2000, 3)
    X = X.astype(dtype)
    peer = LogisticRegression().fit(X, y)
    sklearn_version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
    model = CoresetLogisticRegression(coreset_size=size, random_state=0).fit(X, y)
    for ours, theirs in ((model.coef_, peer.coef_), (model.intercept_, peer.intercept_)):
        assert ours.dtype == dtype
        assert ours.dtype == theirs.dtype or sklearn_version < (1, 8)  # which gave double precision
    for method in ("decision_function", "predict_proba", "predict_log_proba"):
        same = getattr(model, method)(X).dtype == getattr(peer, method)(X).dtype
        assert same or sklearn_version < (1, 8)
    again = model.set_params(warm_start=True).fit(X, y)
    assert again.coef_.dtype == dtype and again.certificate_.relative_excess < 1e-4
    streamed = CoresetLogisticRegression(coreset_size=size, random_state=0).partial_fit(X, y, classes=range(3))
    assert streamed.solve().coef_.dtype == dtype
    clusters = CoresetKMeans(3, coreset_size=size, random_state=0).fit(X)
    assert clusters.cluster_centers_.dtype == KMeans(3).fit(X).cluster_centers_.dtype == dtype
    assert LinearODMClassifier().fit(X, y).coef_.dtype == np.float64  # as LinearSVC


# -- clusters ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blobs() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(3000, 2)) + 4.0 * rng.integers(5, size=(3000, 1))).astype(np.float64)


def test_given_centres_lead_where_scikit_learn_gets_from_them(blobs) -> None:
    start = blobs[:5]
    ours = CoresetKMeans(5, init=start, tol=0.0, max_iter=300).fit(blobs)
    theirs = KMeans(5, init=start, n_init=1, tol=0.0).fit(blobs)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    assert ours.inertia_ == pytest.approx(theirs.inertia_)


@BOTH
def test_starts_by_name_by_array_and_by_function(kind, blobs) -> None:
    asked = []

    def first_rows(X, n_clusters, random_state):
        asked.append((X.shape, random_state.randint(2**31)))
        return X[:n_clusters]

    def fit(X=blobs, **options):
        return kind(4, coreset_size=500, random_state=0, **options).fit(X)

    best = fit(n_init=20).inertia_
    for options in ({}, {"init": "random"}, {"init": first_rows}, {"init": blobs[:4].tolist()}):
        model = fit(**options)
        assert best * 0.999 <= model.inertia_ < 1.5 * best
        np.testing.assert_array_equal(model.cluster_centers_, fit(**options).cluster_centers_)
        assert fit(sparse.csr_matrix(blobs), **options).inertia_ < 1.6 * best
    assert len(asked) == 3 * 8 and 450 < asked[0][0][0] <= 500 and len({seed for _, seed in asked[:8]}) == 8
    asked.clear()
    fit(init=first_rows, n_init=3)
    assert len(asked) == 3
    streamed = kind(4, coreset_size=500, init=blobs[:4], random_state=0).partial_fit(blobs)
    assert streamed.solve().cluster_centers_.shape == (4, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(init=blobs[:4], n_init=1)
        fit(init=blobs[:4], n_init="auto")
    with pytest.warns(RuntimeWarning, match="one search"):
        fit(init=blobs[:4], n_init=10)


def test_starts_that_cannot_be_used_are_refused(blobs) -> None:
    for options, message in (
        ({"init": "kmeans++"}, "init must be 'k-means"),
        ({"init": blobs[:3]}, "give one centre for each of 4"),
        ({"init": np.zeros((4, 3))}, r"initial centers \(4, 3\) must be \(4, 2\)"),
        ({"init": lambda X, n_clusters, random_state: X[:2]}, r"\(2, 2\) must be \(4, 2\)"),
        ({"init": np.full((4, 2), np.nan)}, "NaN"),
        ({"n_init": "many"}, "n_init"),
        ({"verbose": -1}, "verbose"),
    ):
        with pytest.raises(ValueError, match=message):
            CoresetKMeans(4, **options).fit(blobs)


def test_verbose_prints_rows_and_costs(blobs, capsys) -> None:
    CoresetKMeans(4, coreset_size=500, random_state=0).fit(blobs)
    assert capsys.readouterr().out == ""
    model = CoresetKMeans(4, coreset_size=500, verbose=1, random_state=0).fit(blobs)
    lines = capsys.readouterr().out.splitlines()
    assert "of 3000 rows" in lines[0] and len(lines) == 1 + len(model.objective_curve_)
    assert f"{model.inertia_:.6g}" in lines[-1]


@BOTH
def test_fewer_distinct_rows_than_clusters_are_warned_of(kind) -> None:
    X = np.repeat([[0.0, 1.0], [5.0, 5.0]], 300, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\) found smaller than n_clusters \(3\)"):
        KMeans(3).fit(X)
    for size in (50, 5000):
        model = kind(3, coreset_size=size, random_state=0)
        with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\) found smaller than n_clusters \(3\)"):
            model.fit(X)
        assert model.cluster_centers_.shape == (3, 2) and model.inertia_ == 0.0
        with pytest.warns(ConvergenceWarning, match="distinct clusters"):
            model.fit(LeafSource.cut(X, at=[100]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.set_params(n_clusters=2).fit(X)


# -- margin machines ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_a_linear_machine_has_coefficients(n_classes, layout) -> None:
    X, y, weight = labelled(150, n_classes)
    weight[::7] = 0.0
    names = np.array(["a", "b", "c"])[y]
    model = ODMClassifier(kernel="linear", random_state=0).fit(layout(X), names, weight)
    assert model.coef_.shape == ((1 if n_classes == 2 else n_classes), 4)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(scores.squeeze(), model.decision_function(X), rtol=1e-9, atol=1e-9)
    peer = SVC().fit(X, names)
    assert model.n_support_.shape == peer.n_support_.shape and model.n_support_.dtype == peer.n_support_.dtype
    assert model.n_support_.tolist() == [(names[model.support_] == name).sum() for name in model.classes_]


def test_other_machines_have_none() -> None:
    X, y, _ = labelled(60, 2)
    model = ODMClassifier(random_state=0).fit(X, y)
    assert not hasattr(model, "coef_") and model.n_support_.sum() == len(model.support_)
    with pytest.raises(AttributeError, match="only with kernel='linear'"):
        model.coef_  # noqa: B018
    assert not hasattr(ODMClassifier(kernel="linear"), "coef_")
    given = ODMClassifier(kernel="precomputed", random_state=0).fit(X @ X.T, y)
    assert not hasattr(given, "coef_") and given.n_support_.sum() == len(given.support_)


def test_decision_values_are_near_the_optimum_by_default() -> None:
    """More rows than are solved to rounding: the default tolerance is what decides for two classes."""

    def errors(n_classes: int, n: int, *tolerances: float) -> list[float]:
        X, y, _ = labelled(n, n_classes)
        exact = ODMClassifier(tol=1e-8, random_state=0).fit(X, y).decision_function(X)
        fits = (ODMClassifier(tol=tol, random_state=0).fit(X, y) for tol in tolerances)
        return [float(np.abs(fit.decision_function(X) - exact).max()) for fit in fits]

    default = ODMClassifier().tol
    near, far = errors(2, 1100, default, 1e-3)
    assert near < 2e-3 < far
    assert errors(3, 400, default)[0] < 2e-3  # pivots end at the optimum, whatever the tolerance


# -- the inner estimator of a CoresetEstimator --------------------------------------------------


def test_attributes_of_the_inner_estimator_are_read_from_it() -> None:
    X, y, _ = labelled(2000, 3)
    model = CoresetEstimator(LogisticRegression(), coreset_size=300, random_state=0)
    assert not any(hasattr(model, name) for name in ("estimator_", "classes_", "n_features_in_", "feature_names_in_"))
    with pytest.raises(NotFittedError, match="estimator_"):
        model.estimator_  # noqa: B018
    model.fit(X, y)
    assert model.classes_ is model.estimator_.classes_ and model.n_features_in_ == 4
    assert not any(hasattr(model, name) for name in ("coef_", "n_iter_", "labels_", "feature_names_in_", "densify"))
    assert not hasattr(CoresetEstimator(Ridge(), coreset_size=300, random_state=0).fit(X, X[:, 0]), "classes_")


def test_copies_and_streams_of_a_coreset_estimator() -> None:
    X, _, _ = labelled(2000, 3)
    model = CoresetEstimator(Ridge(), coreset_size=300, random_state=0)
    for before in (clone(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert not hasattr(before, "estimator_") and before.get_params()["estimator__alpha"] == 1.0
    model.partial_fit(X, X @ [1.0, 2.0, 0.0, 0.0])
    assert not any(hasattr(model, name) for name in ("feature_names_in_", "labels_", "estimator_", "nothing_"))
    assert hasattr(model, "predict") and not hasattr(model, "transform") and "Ridge" in model._repr_html_()
    model.partial_fit(X, X @ [1.0, 2.0, 0.0, 0.0])
    for other in (model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_allclose(other.solve().estimator_.coef_, [1.0, 2.0, 0.0, 0.0], atol=0.1)
    assert not hasattr(clone(model), "estimator_")
