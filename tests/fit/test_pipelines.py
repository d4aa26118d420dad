"""Pipelines and other meta-estimators on coresets: where the weights go."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
import sklearn
from leaf_source import LeafSource
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.metadata_routing import get_routing_for_object

from tithe import CoresetEstimator, CoresetLogisticRegression, CoresetSearchCV

Data = tuple[np.ndarray, np.ndarray, np.ndarray]
GRID = {"model__C": [1e-4, 1e-2, 1.0]}


@pytest.fixture(scope="module")
def classes() -> Data:
    """Columns of very different scales."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 4)) * [1.0, 100.0, 0.01, 5.0] + [0.0, 50.0, 3.0, -7.0]
    chance = 1 / (1 + np.exp(-(X[:, 0] - X[:, 1] / 50.0 + 100.0 * (X[:, 2] - 3.0))))
    return X, np.where(rng.random(6000) < chance, "rare", "usual"), rng.exponential(size=6000)


def pipeline(model) -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("model", model)])


def weighted_scale(X: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.sqrt(np.average((X - np.average(X, axis=0, weights=weight)) ** 2, axis=0, weights=weight))


def test_every_step_that_takes_weights_gets_them(classes: Data) -> None:
    X, y, weight = classes
    model = CoresetEstimator(
        pipeline(LogisticRegression()), objective="generic", coreset_size=1000, validation_fraction=0.0, random_state=0
    ).fit(X, y, weight)
    coreset = model.coreset_
    np.testing.assert_allclose(model.estimator_["scale"].scale_, weighted_scale(X, weight), rtol=1e-3)  # of all rows
    scaled = StandardScaler().fit(coreset.X, sample_weight=coreset.weights()).transform(coreset.X)
    again = LogisticRegression().fit(scaled, y[coreset.row_ids()], sample_weight=coreset.weights())
    np.testing.assert_array_equal(model.estimator_["model"].coef_, again.coef_)
    assert model.classes_.tolist() == ["rare", "usual"]
    assert model.score(X, y, weight) == model.estimator_.score(X, y, sample_weight=weight)


def test_nested_pipelines_and_steps_that_take_no_weights(classes: Data) -> None:
    X, y, weight = classes
    inner = make_pipeline(StandardScaler(), PCA(3))
    nested = Pipeline([("first", inner), ("none", "passthrough"), ("last", make_pipeline(LogisticRegression()))])
    options = {"objective": "generic", "coreset_size": 1000, "validation_fraction": 0.0, "random_state": 0}
    model = CoresetEstimator(nested, **options).fit(X, y, weight)
    scaler = model.estimator_["first"]["standardscaler"]
    np.testing.assert_allclose(scaler.scale_, weighted_scale(X, weight), rtol=1e-3)
    weights = model.coreset_.weights()
    rows = model.estimator_[:-1].transform(model.coreset_.X)
    again = LogisticRegression().fit(rows, y[model.sample_indices_], sample_weight=weights)
    np.testing.assert_array_equal(model.estimator_["last"][0].coef_, again.coef_)


def test_polish_certificate_stream_and_source_of_a_pipeline(classes: Data) -> None:
    X, y, _ = classes
    options = {"coreset_size": 400, "random_state": 0}
    model = CoresetEstimator(pipeline(LogisticRegression()), polish=1, **options).fit(X, y)
    assert model.certify(X, y).n_rows == 300
    stream = CoresetEstimator(pipeline(LogisticRegression()), **options)
    stream.partial_fit(X[:3000], y[:3000], classes=["rare", "usual"]).partial_fit(X[3000:], y[3000:])
    assert stream.score(X, y) > 0.75
    source = LeafSource.cut(X, y, at=[1000, 3000])
    search = CoresetSearchCV(pipeline(LogisticRegression()), GRID, cv=3, **options).fit(source)
    assert search.score(X, y) > 0.75 and search.certificate_.kind == "estimate"
    search.partial_fit(X, y)
    assert search.score(X, y) > 0.75 and search.best_estimator_.coreset_.n_seen == 6000
    with pytest.raises(ValueError, match="requires y"):
        search.fit(X)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_search_on_all_rows_is_scikit_learns(classes: Data, weighted: bool) -> None:
    X, y, weight = (part[:900] for part in classes)
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    options = {"cv": cv, "scoring": ["neg_log_loss", "accuracy"], "refit": "neg_log_loss", "return_train_score": True}
    ours = CoresetSearchCV(pipeline(LogisticRegression()), GRID, **options)
    if weighted:
        ours.fit(X, y, sample_weight=weight)
        with sklearn.config_context(enable_metadata_routing=True):
            scale = StandardScaler().set_fit_request(sample_weight=True)
            model = LogisticRegression().set_fit_request(sample_weight=True)
            scoring = {
                name: sklearn.metrics.get_scorer(name).set_score_request(sample_weight=True)
                for name in options["scoring"]
            }
            routed = Pipeline([("scale", scale), ("model", model)])
            theirs = GridSearchCV(routed, GRID, **{**options, "scoring": scoring}).fit(X, y, sample_weight=weight)
    else:
        ours.fit(X, y)
        theirs = GridSearchCV(pipeline(LogisticRegression()), GRID, **options).fit(X, y)
    assert list(ours.cv_results_) == list(theirs.cv_results_)
    for key in ours.cv_results_:
        if key.startswith(("split", "mean_t", "std_t", "rank")):
            np.testing.assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-12, err_msg=key)
    assert ours.best_params_ == theirs.best_params_
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-12)


def test_steps_are_fitted_in_the_fold_and_the_search_is_as_good_as_a_full_one(classes: Data) -> None:
    X, y, _ = classes
    cv = StratifiedKFold(3)
    options = {"cv": cv, "scoring": "neg_log_loss"}
    search = CoresetSearchCV(pipeline(LogisticRegression()), GRID, coreset_size=800, random_state=0, **options)
    search.fit(X, y)
    coreset = search.coresets_[1]
    model = pipeline(LogisticRegression(C=1.0))
    weight = {f"{step}__sample_weight": coreset.weights() for step in ("scale", "model")}
    model.fit(coreset.X, y[coreset.row_ids()], **weight)
    test = list(cv.split(X, y))[1][1]
    expected = sklearn.metrics.get_scorer("neg_log_loss")(model, X[test], y[test])
    assert search.cv_results_["split1_test_score"][2] == pytest.approx(expected, rel=1e-9)
    full = GridSearchCV(pipeline(LogisticRegression()), GRID, refit=False, **options).fit(X, y)
    assert search.best_index_ == full.best_index_
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], full.cv_results_["mean_test_score"], rtol=0.02)


def test_steps_are_candidates_too(classes: Data) -> None:
    X, y, weight = (part[:900] for part in classes)
    grid = [
        {"scale": ["passthrough", StandardScaler()], "model": [LogisticRegression(), LinearSVC()]},
        {"model": [SVC(kernel="linear")], "model__C": [1.0]},
    ]
    search = CoresetSearchCV(pipeline(Ridge()).set_params(model=LogisticRegression()), grid, cv=2, coreset_size=300)
    search.fit(X, y, weight)
    assert len(search.cv_results_["params"]) == 5
    assert search.cv_results_["param_model"].dtype == object
    assert isinstance(search.best_params_["model"], (LogisticRegression, LinearSVC, SVC))
    grid = {"model": [LogisticRegression(), KNeighborsClassifier()]}
    with pytest.raises(ValueError, match="last step of the pipeline, KNeighborsClassifier, takes no sample_weight"):
        search.set_params(param_grid=grid).fit(X, y)


def test_a_learner_of_this_package_at_the_end_is_not_reduced_twice(classes: Data) -> None:
    X, y, weight = classes
    sizes = []

    def spy(model, X, y) -> float:
        sizes.append(len(model["model"].coreset_))
        return 0.0

    inner = CoresetLogisticRegression(coreset_size=50, random_state=0)
    search = CoresetSearchCV(pipeline(inner), GRID, coreset_size=500, scoring=spy, cv=2, random_state=0)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        search.fit(X, y, weight)
    assert sizes == [len(coreset) for coreset in search.coresets_ for _ in GRID["model__C"]]
    assert len(search.best_estimator_.estimator_["model"].coreset_) == len(search.best_estimator_.coreset_) > 300
    with pytest.raises(ValueError, match="model__coreset_size of CoresetLogisticRegression cannot be searched"):
        search.set_params(param_grid={"model__coreset_size": [10]}).fit(X, y)


def test_metadata_routing_takes_weights_where_they_are_requested(classes: Data) -> None:
    X, y, weight = classes
    with sklearn.config_context(enable_metadata_routing=True):
        asks = LogisticRegression().set_fit_request(sample_weight=True)
        unscaled = pipeline(asks).set_params(scale=StandardScaler().set_fit_request(sample_weight=False))
        nested = Pipeline([("scale", StandardScaler().set_fit_request(sample_weight=True)), ("rest", unscaled)])
        each = OneVsRestClassifier(asks)
        for inner in (nested, each):
            options = {"objective": "generic", "coreset_size": 1000, "validation_fraction": 0.0, "random_state": 0}
            model = CoresetEstimator(inner, **options).fit(X, y, weight)
            coreset = model.coreset_
            again = clone(inner).fit(coreset.X, y[coreset.row_ids()], sample_weight=coreset.weights())
            np.testing.assert_array_equal(model.predict_proba(X[:9]), again.predict_proba(X[:9]))
            assert 0.5 < model.score(X, y, weight) < 1.0
        scaled = CoresetEstimator(nested, **options).fit(X, y, weight).estimator_["scale"].scale_
        np.testing.assert_allclose(scaled, weighted_scale(X, weight), rtol=1e-3)
        search = CoresetSearchCV(each, {"estimator__C": [1e-4, 1.0]}, coreset_size=300, cv=2, n_jobs=2, random_state=0)
        warned = pytest.warns(UserWarning, match="no sample_weight")  # of the score, which requests none
        with joblib.parallel_config(backend="threading"), warned:
            search.fit(X, y, weight)
        assert np.isfinite(search.best_score_)
        with pytest.raises(ValueError, match="LogisticRegression, requests no sample_weight"):
            CoresetEstimator(pipeline(LogisticRegression())).fit(X, y)
    with pytest.raises(ValueError, match=r"OneVsRestClassifier.fit\(\) takes no sample_weight.* enable metadata rout"):
        CoresetEstimator(OneVsRestClassifier(LogisticRegression())).fit(X, y)


class RbfRows(TransformerMixin, BaseEstimator):
    """Kernel values with the rows of the fit."""

    def fit(self, X, y=None):
        self.rows_ = X
        return self

    def transform(self, X):
        return np.exp(-((X[:, None] - self.rows_[None]) ** 2).sum(axis=2))


def test_a_precomputed_kernel_is_refused_unless_a_step_computes_it(classes: Data) -> None:
    X, y = classes[0][:300, [0, 3]], classes[1][:300]
    kernel = RbfRows().fit(X).transform(X)
    bagging = BaggingClassifier(SVC(kernel="precomputed"))
    for inner in (SVC(kernel="precomputed"), make_pipeline(SVC(kernel="precomputed")), bagging):
        with pytest.raises(ValueError, match="takes a precomputed matrix"):
            CoresetEstimator(inner, coreset_size=50).fit(kernel, y)
        with pytest.raises(ValueError, match="takes a precomputed matrix"):
            CoresetSearchCV(inner, {}, coreset_size=50).fit(kernel, y)
    with pytest.raises(ValueError, match="takes a precomputed matrix"):
        CoresetSearchCV(SVC(), {"kernel": ["rbf", "precomputed"]}, coreset_size=50).fit(kernel, y)
    model = CoresetEstimator(make_pipeline(RbfRows(), SVC(kernel="precomputed")), coreset_size=100, random_state=0)
    assert model.fit(X, y).predict(X).shape == (300,)


@pytest.mark.parametrize(
    "inner",
    [pipeline(KNeighborsClassifier()), pipeline("passthrough"), make_pipeline(StandardScaler(), PCA(2))],
)
def test_a_last_step_without_weights_is_refused(classes: Data, inner) -> None:
    for model in (CoresetEstimator(inner), CoresetSearchCV(inner, {}, scoring="accuracy")):
        with pytest.raises(ValueError, match=r"last step of the pipeline, .* takes no sample_weight"):
            model.fit(*classes[:2])


def test_transformers_and_clusterers_at_the_end(classes: Data) -> None:
    X, y, _ = classes
    scaler = CoresetEstimator(make_pipeline(FunctionTransformer(), StandardScaler()), coreset_size=300).fit(X)
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(X[:5])), X[:5])
    chosen = make_pipeline(SelectKBest(k=2), LogisticRegression())
    assert CoresetEstimator(chosen, coreset_size=300, random_state=0).fit(X, y).score(X, y) > 0.6
    clusters = pipeline(KMeans(n_init=1, random_state=0))
    grid = {"model__n_clusters": [1, 3]}
    search = CoresetSearchCV(clusters, grid, coreset_size=300, cv=2, random_state=0).fit(X)
    assert search.best_params_ == {"model__n_clusters": 3} and search.predict(X[:7]).shape == (7,)


def test_how_a_fit_is_watched_is_not_routed() -> None:
    for model in (CoresetEstimator(Ridge()), CoresetLogisticRegression(), CoresetSearchCV(Ridge(), {"alpha": [1.0]})):
        routing = get_routing_for_object(model)
        routed = set(getattr(routing, "_self_request", routing).fit.requests)  # a search routes to others as well
        assert "sample_weight" in routed and not routed & {"checkpoint", "progress"}
