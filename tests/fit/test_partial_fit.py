"""Rows that keep coming."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from leaf_source import LeafSource
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from tithe import (
    Block,
    CoresetEstimator,
    CoresetHuberRegressor,
    CoresetKMeans,
    CoresetKMedians,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
    CoresetSearchCV,
    load_model,
    save_model,
)
from tithe.dictionary import KSVD
from tithe.fit.base import FittedAttribute
from tithe.odm import LinearODMClassifier

CLASSES = ["maybe", "no", "yes"]


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Enough rows for a stream to reduce a leaf and begin another."""
    rng = np.random.default_rng(5)
    n = 80_000
    X = rng.normal(size=(n, 4)) * [0.5, 1.0, 2.0, 4.0] + 3.0
    y = ((X - 3.0) @ rng.normal(size=(4, 3)) + rng.gumbel(size=(n, 3))).argmax(axis=1)
    weight = rng.exponential(size=n)
    weight[::11] = 0.0
    return X, np.array(CLASSES)[y], weight


def makers():
    yield "kmeans", lambda: CoresetKMeans(4, coreset_size=400, random_state=3), {}
    yield "kmedians", lambda: CoresetKMedians(4, coreset_size=400, random_state=3), {}
    yield "logistic", lambda: CoresetLogisticRegression(coreset_size=400, random_state=3), {"classes": CLASSES}
    # the default of lam takes many times as long
    yield "odm", lambda: LinearODMClassifier(lam=10.0, coreset_size=400, random_state=3), {"classes": CLASSES}
    inner = LogisticRegression()
    yield "any", lambda: CoresetEstimator(inner, coreset_size=400, random_state=3), {"classes": CLASSES}
    grid = {"C": [1e-4, 1.0]}
    yield (
        "search",
        lambda: CoresetSearchCV(LogisticRegression(), grid, coreset_size=400, cv=2, random_state=3),
        {"classes": CLASSES},
    )


# kernels of the linear machine take long to compile
ALL = pytest.mark.parametrize(
    ("make", "first"),
    [pytest.param(m, f, id=name, marks=[pytest.mark.slow] if name == "odm" else []) for name, m, f in makers()],
)


def fed(model, X, y, weight, edges, first):
    for a, b in pairwise(edges):
        model.partial_fit(X[a:b], y[a:b], weight[a:b], **first)
    return model


def solution(model) -> np.ndarray:
    model.solve()
    if isinstance(model, CoresetSearchCV):
        return np.concatenate([model.cv_results_["mean_test_score"], model.best_estimator_.estimator_.coef_.ravel()])
    if isinstance(model, CoresetEstimator):
        return model.estimator_.coef_
    return model.cluster_centers_ if hasattr(model, "cluster_centers_") else model.coef_


@ALL
@pytest.mark.parametrize("layout", [np.asarray, pytest.param(sparse.csr_matrix, marks=pytest.mark.slow)])
def test_pieces_are_no_matter(make, first, layout, rows) -> None:
    X, y, weight = layout(rows[0]), rows[1], rows[2]
    n = len(y)
    whole = fed(make(), X, y, weight, [0, n], first)
    pieces = fed(make(), X, y, weight, [0, 1, 2, 12, 30_000, 65_535, 65_536, 70_000, n], first)
    looked = fed(make(), X, y, weight, [0, 40_000], first)
    solution(looked)  # a solution in between changes nothing
    fed(looked, X, y, weight, [40_000, 70_001, n], first)
    for other in (pieces, looked):
        np.testing.assert_array_equal(solution(other), solution(whole))
        np.testing.assert_array_equal(other.predict(X[:500]), whole.predict(X[:500]))
    if not isinstance(whole, CoresetSearchCV):
        assert len(whole.coreset_) <= 400 and whole.coreset_.weight_seen == pytest.approx(weight.sum())
        np.testing.assert_array_equal(layout(rows[0])[whole.sample_indices_].shape, whole.coreset_.X.shape)
        assert abs(layout(rows[0])[whole.sample_indices_] - whole.coreset_.X).max() == 0.0
    assert not hasattr(whole, "labels_") and not hasattr(whole, "nothing_")


@pytest.mark.slow
def test_solutions_are_good(rows) -> None:
    X, y, weight = rows
    for name, make, first in makers():
        model = fed(make().set_params(coreset_size=2000), X, y, weight, [0, 33_333, 80_000], first).solve()
        full = make().fit(X, y, sample_weight=weight)
        if name.startswith("km"):
            assert model.score(X, None, weight) > 1.05 * full.score(X, None, weight)
            assert model.inertia_ == pytest.approx(-model.score(X, None, weight), rel=0.1)
            assert model.certificate_ is None and model.certify(X, None, weight).kind == "exact"
        else:
            assert model.score(X, y, weight) > full.score(X, y, weight) - 0.01
            assert model.classes_.tolist() == CLASSES
        if name == "logistic":
            certificate = model.certify(X, y, weight)
            assert model.certificate_ is None and certificate.relative_excess < 0.01 and certificate.n_rows == 80_000
            assert model.coreset_.provenance["calibrated"] == 1
        if name == "any":
            assert model.certify(X, y, weight).n_rows == np.count_nonzero(weight)  # nothing was set aside


@ALL
@pytest.mark.parametrize("weighted", [False, True])
def test_few_rows_are_all_used_as_fit_would(make, first, weighted: bool, rows) -> None:
    X, y, weight = (part[:390] for part in rows)
    weight = weight if weighted else np.ones(390)
    model = fed(make(), X, y, weight, [0, 5, 6, 200, 390], first)
    if isinstance(model, CoresetSearchCV):
        fit = make().fit(LeafSource.cut(X, y, weight if weighted else None, at=[3, 100]))
    else:
        fit = make().fit(X, y, sample_weight=weight if weighted else None)
    np.testing.assert_allclose(solution(model), solution(fit), rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), fit.predict(X))


@ALL
def test_copies_go_on(make, first, rows, tmp_path) -> None:
    X, y, weight = (part[:70_000] for part in rows)
    half = fed(make(), X, y, weight, [0, 68_000], first)
    straight = fed(copy.deepcopy(half), X, y, weight, [68_000, 70_000], first)
    solution(half)
    save_model(half, tmp_path / "model.tithe", rows=True)
    for other in (pickle.loads(pickle.dumps(half)), load_model(tmp_path / "model.tithe")):
        np.testing.assert_array_equal(other.predict(X[:500]), half.predict(X[:500]))
        fed(other, X, y, weight, [68_000, 70_000], first)
        np.testing.assert_array_equal(solution(other), solution(straight))
    assert clone(half).stream_ is None
    with pytest.raises(NotFittedError):
        check_is_fitted(clone(half))
    check_is_fitted(half)


@ALL
def test_fit_and_partial_fit_start_anew(make, first, rows) -> None:
    X, y, weight = (part[:2000] for part in rows)
    model = make().fit(X[:1000] * 9.0, y[:1000])
    fed(model, X, y, weight, [0, 2000], first)
    np.testing.assert_array_equal(solution(model), solution(fed(make(), X, y, weight, [0, 2000], first)))
    model.fit(X, y, sample_weight=weight)
    assert model.stream_ is None
    np.testing.assert_array_equal(solution(model), solution(make().fit(X, y, sample_weight=weight)))


@ALL
def test_names_and_numbers_of_columns(make, first, rows) -> None:
    X, y = rows[0][:600], rows[1][:600]
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = make().partial_fit(frame[:300], pd.Series(y[:300]), **first).partial_fit(frame[300:], y[300:])
    assert list(model.feature_names_in_) == list("abcd") and model.n_features_in_ == 4
    np.testing.assert_array_equal(solution(model), solution(make().partial_fit(X, y, **first)))
    assert model.predict(frame[:3]).shape == (3,)
    with pytest.raises(ValueError, match="feature names should match"):
        model.partial_fit(frame.rename(columns={"a": "z"}), y)
    with pytest.raises(ValueError, match="3 features"):
        make().partial_fit(X, y, **first).partial_fit(X[:, :3], y)


def test_what_is_refused_changes_nothing(rows) -> None:
    X, y, weight = (part[:500] for part in rows)
    model = CoresetLogisticRegression(coreset_size=200, random_state=0)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="requires y"):
        model.partial_fit(X, classes=CLASSES)
    assert model.stream_ is None
    model.partial_fit(X, y, weight, classes=CLASSES)
    known = model.solve().coef_
    with pytest.raises(ValueError, match="not the same"):
        model.partial_fit(X, y, classes=["no", "yes"])
    with pytest.raises(ValueError, match="not among the 3 classes"):
        model.partial_fit(X, np.full(500, "never"))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.partial_fit(np.full((500, 4), np.nan), y)
    np.testing.assert_array_equal(model.coef_, known)
    assert model.stream_.n_rows == 500
    for options in ({"polish": 2}, {"construction": "bogus"}, {"class_weight": "balanced"}, {"coreset_size": 0.1}):
        with pytest.raises(ValueError, match=r"polish|bogus|dict|integer"):
            CoresetLogisticRegression(**options).partial_fit(X, y, classes=CLASSES)
    with pytest.raises(ValueError, match="polish"):
        CoresetKMeans(3, polish=1).partial_fit(X)
    with pytest.raises(ValueError, match="number of folds"):
        CoresetSearchCV(Ridge(), {"alpha": [1.0]}, cv=KFold(3)).partial_fit(X, X[:, 0])
    with pytest.raises(ValueError, match="y contains NaN"):
        CoresetEstimator(Ridge()).partial_fit(X, np.full(500, np.nan))


def test_a_solution_needs_rows_enough(rows) -> None:
    X, y, _ = rows
    model = CoresetKMeans(5, random_state=0).partial_fit(X[:3])
    with pytest.raises(ValueError, match=r"n_samples=3 should be >= n_clusters=5"):
        model.predict(X)
    assert model.partial_fit(X[3:100]).solve().cluster_centers_.shape == (5, 4)
    late = CoresetLogisticRegression(random_state=0)
    late.partial_fit(X[:500][y[:500] != "yes"], y[:500][y[:500] != "yes"], classes=CLASSES)
    with pytest.raises(ValueError, match="Class 'yes' has no row"):
        late.predict(X[:5])
    late.partial_fit(X[500:900], y[500:900])
    assert late.predict(X[:5]).shape == (5,)


def test_class_weights_and_pieces_of_no_weight(rows) -> None:
    X, y, weight = (part[:900] for part in rows)
    wanted = {"no": 3.0, "yes": 0.5}
    model = CoresetLogisticRegression(class_weight=wanted, random_state=0)
    model.partial_fit(X, y, weight, classes=CLASSES).partial_fit(X, y, np.zeros(900))
    again = CoresetLogisticRegression(class_weight=wanted, random_state=0).fit(X, y, weight)
    np.testing.assert_allclose(model.solve().coef_, again.coef_, rtol=1e-6)


def test_a_piece_unlike_the_first_reaches_no_stream_of_a_search(rows) -> None:
    X = rows[0][:600]
    y = X @ [1.0, 2.0, -1.0, 0.0]

    def search(*pieces):
        model = CoresetSearchCV(Ridge(), {"alpha": [1.0, 9.0]}, coreset_size=100, cv=2, random_state=0)
        for a, b, dtype in pieces:
            model.partial_fit(X[a:b].astype(dtype), y[a:b])
        return model

    model = search((0, 300, np.float32))
    with pytest.raises(ValueError, match="does not fit into"):
        model.partial_fit(X[300:], y[300:])
    assert {stream.n_rows for stream in model.stream_.streams[-1:]} == {300}
    model.partial_fit(X[300:].astype(np.float32), y[300:])
    straight = search((0, 600, np.float32)).solve()
    model.solve()
    np.testing.assert_array_equal(model.cv_results_["mean_test_score"], straight.cv_results_["mean_test_score"])
    # whoever gets the first row, all go on in its precision
    for first in range(3):
        search((first, first + 1, np.float64), (3, 4, np.float32), (4, 5, np.float32), (5, 600, np.float64))


def test_search_without_refit_and_for_numbers(rows) -> None:
    X = rows[0][:3000]
    y = X @ [1.0, 2.0, -1.0, 0.0] + np.random.default_rng(0).normal(size=3000)
    search = CoresetSearchCV(Ridge(), {"alpha": [1.0, 1e6]}, coreset_size=300, cv=3, refit=False, random_state=0)
    search.partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:]).solve()
    assert search.best_params_ == {"alpha": 1.0} and search.n_splits_ == 3
    results = search.cv_results_
    assert not hasattr(search, "best_estimator_") and search.solve().cv_results_ is results  # searched once
    winner = search.set_params(refit=True).partial_fit(X[:1], y[:1]).solve().best_estimator_
    assert isinstance(winner, CoresetEstimator) and winner.coreset_.n_seen == 3001
    assert winner.coreset_.row_ids().max() <= 3000 and search.certificate_ is None
    clusters = (
        CoresetSearchCV(CoresetKMeans(random_state=0), {"n_clusters": [1, 3]}, coreset_size=300, cv=2, random_state=0)
        .partial_fit(X)
        .solve()
    )
    assert clusters.best_params_ == {"n_clusters": 3} and clusters.best_estimator_.certificate_ is None
    assert not hasattr(clusters.best_estimator_, "labels_") and clusters.best_estimator_.coreset_.n_seen == 3000


def test_parameters_that_change_on_the_way_are_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(500, 2))
    model = CoresetKMeans(n_clusters=3, random_state=0).partial_fit(rows)
    model.set_params(n_clusters=5)
    with pytest.raises(ValueError, match="have changed"):
        model.partial_fit(rows)


def test_a_source_is_no_batch() -> None:
    source = LeafSource([Block(X=np.zeros((5, 2)), indices=np.arange(5))])
    model = CoresetKMeans(n_clusters=1, random_state=0)
    with pytest.raises(ValueError, match="leaf by leaf"):
        model.partial_fit(source)
    with pytest.raises(ValueError, match="leaf by leaf"):
        model.fit(np.zeros((5, 2))).predict(source)


def too_early():
    """Learners that were given rows, but not those that a solution needs; an attribute of theirs; what is missing."""
    rng = np.random.default_rng(0)
    X, one = rng.normal(size=(3, 4)), np.full(3, "no")
    for kind in (CoresetKMeans, CoresetKMedians):
        yield kind(5, random_state=0).partial_fit(X), "cluster_centers_", "n_samples=3 should be >= n_clusters=5"
    for kind in (CoresetLogisticRegression, LinearODMClassifier):
        yield kind(random_state=0).partial_fit(X, one, classes=CLASSES), "coef_", "Class 'maybe' has no row"
    yield KSVD(5, random_state=0).partial_fit(X, sample_weight=np.zeros(3)), "components_", "There are no rows"
    inner = CoresetEstimator(LogisticRegression()).partial_fit(X, one, classes=CLASSES)
    yield inner, "estimator_", "at least 2 classes"
    yield inner, "classes_", "at least 2 classes"
    search = CoresetSearchCV(Ridge(), {"alpha": [1.0]}, cv=5, random_state=0)
    yield search.partial_fit(X[:1], [1.0]), "best_estimator_", "fold"


@pytest.mark.parametrize(("model", "name", "missing"), [pytest.param(*case, id=str(case[:2])) for case in too_early()])
def test_a_solution_that_cannot_be_had_yet_is_an_attribute_that_is_not_there(model, name, missing) -> None:
    known = {name for name in dir(type(model)) if isinstance(getattr(type(model), name), FittedAttribute)}
    for attribute in {*known, name, "sample_indices_", "nothing_"}:
        assert not hasattr(model, attribute), attribute
    with pytest.raises(NotFittedError, match=r"solve\(\)") as raised:
        getattr(model, name)
    assert type(model).__name__ in str(raised.value)
    with pytest.raises(NotFittedError, match=missing):
        model.solve()
    assert model._fitted_values is None  # it can go on
    method = "transform" if isinstance(model, KSVD) else "predict"
    with pytest.raises(NotFittedError, match=missing):
        getattr(model, method)(np.zeros((3, 4)))


def pending():
    """Learners that have rows and were not asked for a solution yet."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.choice(["no", "yes"], size=300)
    for kind in (CoresetKMeans, CoresetKMedians, KSVD):
        yield kind(3, random_state=0).partial_fit(X)
    for kind in (CoresetLogisticRegression, LinearODMClassifier):
        yield kind(random_state=0).partial_fit(X, y, classes=["no", "yes"])
    for kind in (CoresetRidge, CoresetHuberRegressor):
        yield kind(random_state=0).partial_fit(X, X[:, 0])
    yield CoresetPoissonRegressor(random_state=0).partial_fit(X, np.exp(X[:, 0]))
    yield CoresetEstimator(LogisticRegression()).partial_fit(X, y, classes=["no", "yes"])
    yield CoresetSearchCV(Ridge(), {"alpha": [1.0]}, cv=2, random_state=0).partial_fit(X, X[:, 0])


@pytest.mark.parametrize("model", [pytest.param(model, id=type(model).__name__) for model in pending()])
def test_looking_at_a_model_fits_nothing(model) -> None:
    check_is_fitted(model)
    attributes = {name for name in dir(type(model)) if isinstance(getattr(type(model), name), FittedAttribute)}
    assert len(attributes) >= 4 and not any(hasattr(model, name) for name in attributes)
    assert not any(hasattr(model, name) for name in ("nothing_", "feature_names_in_", "sample_indices_"))
    assert hasattr(model, "partial_fit") and (hasattr(model, "predict") or hasattr(model, "transform"))
    repr(model), model._repr_html_(), pickle.dumps(model), clone(model)
    assert model._fitted_values is None
    with pytest.raises(NotFittedError, match=r"solve\(\)"):
        model.coreset_ if not isinstance(model, CoresetSearchCV) else model.coresets_


@pytest.mark.parametrize("model", [pytest.param(model, id=type(model).__name__) for model in pending()])
def test_a_method_that_needs_the_solution_computes_it_once(model) -> None:
    def known() -> dict[str, object]:
        return model._fitted_values

    X = np.random.default_rng(1).normal(size=(5, 4))
    model.transform(X) if isinstance(model, KSVD) else model.predict(X)
    found = known()
    assert found and not {"labels_", "calibrated_", "sensitivity_model_"} & found.keys()
    assert model.solve() is model and known() is found
    model.summary(), model.charts()
    assert known() is found


def test_an_attribute_that_a_fit_alone_sets_is_no_reason_to_call_solve() -> None:
    model = CoresetKMeans(2, random_state=0).partial_fit(np.eye(9))
    with pytest.raises(AttributeError) as raised:
        model.labels_  # noqa: B018
    assert "solve" not in str(raised.value)
    with pytest.raises(NotFittedError):
        CoresetKMeans(2).solve()


def test_a_warm_start_after_partial_fit_fits_nothing_in_between(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = X @ [1.0, 2.0, -1.0, 0.0] + rng.normal(size=400)
    model, solved = CoresetRidge(warm_start=True, random_state=0).partial_fit(X, y), []
    solve = CoresetRidge._solve_stream
    monkeypatch.setattr(CoresetRidge, "_solve_stream", lambda learner: solved.append(1) or solve(learner))
    model.fit(X, y)
    assert not solved
    np.testing.assert_array_equal(model.coef_, CoresetRidge(random_state=0).fit(X, y).coef_)


def test_learners_have_no_getattr() -> None:
    for model in pending():
        assert not any("__getattr__" in vars(kind) for kind in type(model).__mro__)
