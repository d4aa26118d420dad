"""`CoresetEstimator` on frames: rows are reduced as numbers, and the estimator gets them as they are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tithe import CoresetEstimator, CoresetSearchCV, EncodingWarning, load_model, open_dataset, save_model
from tithe.core.data import Block
from tithe.meta.ensembles import learning_weights
from tithe.rows.learn import learn_schema
from tithe.rows.schema import frame_view

SMALL: dict[str, Any] = {"coreset_size": 300, "random_state": 0}


@pytest.fixture
def frame(rng: np.random.Generator) -> pd.DataFrame:
    """A number with gaps, a category, and a number of another scale."""
    n = 2000
    rows = pd.DataFrame({"age": rng.normal(40.0, 10.0, n), "city": pd.Categorical(rng.choice(["Graz", "Linz"], n))})
    rows["income"] = 1000.0 * rng.exponential(size=n)
    rows.loc[::17, "age"] = np.nan
    return rows


@pytest.fixture
def labels(frame, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    score = (frame["age"].fillna(40.0) - 40.0) / 5.0 + 2.0 * (frame["city"] == "Graz") - 1.0
    return np.where(score + rng.logistic(size=len(frame)) > 0, "yes", "no")


def test_trees_get_gaps_and_categories(frame, labels) -> None:
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=20, random_state=0)
    model = CoresetEstimator(trees, **SMALL).fit(frame, labels)
    assert list(model.estimator_.feature_names_in_) == ["age", "city", "income"]
    assert model.estimator_.is_categorical_.tolist() == [False, True, False]
    rows, coreset = model.sample_indices_, model.coreset_
    alone = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=20, random_state=0)
    weights = learning_weights(alone, coreset)
    np.testing.assert_allclose(weights, coreset.weights() / coreset.weights().mean())
    alone.fit(frame.iloc[rows], labels[rows], sample_weight=weights)
    np.testing.assert_array_equal(model.predict_proba(frame), alone.predict_proba(frame))
    turned = frame[["income", "city", "age"]].assign(more=1)
    np.testing.assert_array_equal(model.predict(turned), alone.predict(frame))
    assert model.score(frame, labels) == alone.score(frame, labels) > 0.75
    certificate = model.certify(frame, labels)
    aside = model.validation_indices_
    assert certificate.n_rows == len(aside) == 100
    assert certificate.value == alone.score(frame.iloc[aside], labels[aside])
    with pytest.raises(ValueError, match="no column 'city'"):
        model.predict(frame.drop(columns="city"))


def test_a_pipeline_for_frames_is_saved(frame, labels, tmp_path) -> None:
    filled = frame.assign(age=frame["age"].fillna(40.0), city=frame["city"].astype(str))
    columns = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["age", "income"]))
    model = CoresetEstimator(make_pipeline(columns, LogisticRegression()), **SMALL).fit(filled, labels)
    assert model.score(filled, labels) > 0.7
    save_model(model, tmp_path / "model.tithe")
    again = load_model(tmp_path / "model.tithe")
    np.testing.assert_array_equal(again.predict_proba(filled), model.predict_proba(filled))
    (age, *_, city) = sorted(again.schema_.describe(), key=lambda row: row[0] == "city")
    assert age[0] == "age" and city[1].startswith("category")


def test_polars_rows_stay_polars(rng: np.random.Generator) -> None:
    frame = pl.DataFrame({"a": rng.normal(size=1000), "b": rng.normal(size=1000)})
    model = CoresetEstimator(Ridge(), **SMALL).fit(frame, frame["a"].to_numpy())
    assert list(model.estimator_.feature_names_in_) == ["a", "b"]
    assert model.predict(frame).shape == (1000,)


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers what ``fit`` was given."""

    def __init__(self, categorical_features=None):
        self.categorical_features = categorical_features

    def fit(self, X, y, sample_weight=None, eval_set=None, verbose=None):
        self.classes_, self.given_, self.eval_set_ = np.unique(y), X, eval_set
        return self

    def predict(self, X):
        self.seen_ = X
        return np.repeat(self.classes_[:1], len(X))


def test_arguments_of_fit_are_passed_on(frame, labels) -> None:
    new = [(frame[:10], labels[:10])]
    model = CoresetEstimator(Recorder(), **SMALL).fit(frame, labels, eval_set=new)
    assert model.estimator_.eval_set_ is new
    pd.testing.assert_frame_equal(model.estimator_.given_, frame.iloc[model.sample_indices_])


def test_arrays_stay_arrays(rng: np.random.Generator) -> None:
    X = rng.normal(size=(1000, 2))
    model = CoresetEstimator(Recorder(), **SMALL).fit(X, X[:, 0] > 0)
    np.testing.assert_array_equal(model.estimator_.given_, X[model.sample_indices_])


@pytest.mark.parametrize(
    ("estimator", "polish", "name"),
    [
        (LogisticRegression(), 0, "logistic"),
        (LogisticRegression(), 1, "generic"),
        (Ridge(), 0, "least_squares"),
        (KMeans(3), 0, "generic"),
    ],
)
def test_the_objective_follows_from_the_estimator(estimator, polish: int, name: str, skewed: Block) -> None:
    X = skewed.X[:2000]
    y = X[:, 0] > 0 if isinstance(estimator, LogisticRegression) else X[:, 0]
    model = CoresetEstimator(estimator, polish=polish, **SMALL).fit(X, y)
    assert model.coreset_.provenance["objective"] == name


def test_rows_of_a_file_have_their_gaps_and_categories_again(frame, labels, tmp_path) -> None:
    frame.assign(label=labels, when=pd.Timestamp("2024-01-01")).to_csv(tmp_path / "rows.csv", index=False)
    source = open_dataset(tmp_path / "rows.csv", target="label")
    model = CoresetEstimator(Recorder(categorical_features="from_dtype"), **SMALL).fit(source)
    given = model.estimator_.given_
    expected = frame.iloc[model.sample_indices_].reset_index(drop=True)
    assert list(given.columns) == ["age", "city", "income"] and given["city"].dtype == "category"
    pd.testing.assert_frame_equal(given, expected, check_exact=False, rtol=1e-9)
    new = frame[:20].assign(city="Wien")
    assert model.predict(new[["city", "income", "age"]]).shape == (20,)
    assert model.estimator_.seen_["city"].isna().all() and model.estimator_.seen_["age"].isna().sum() == 2
    assert isinstance(CoresetEstimator(Recorder(), **SMALL).fit(source).estimator_.given_, np.ndarray)
    pipe = make_pipeline(make_column_transformer((OneHotEncoder(), ["city"])), LogisticRegression())
    by_name = CoresetEstimator(pipe, **SMALL).fit(source)
    assert by_name.score(source.sample(None, rng=np.random.default_rng(0)).X, labels) > 0.6


def test_words_and_other_values_of_a_view(rng: np.random.Generator) -> None:
    text = [f"{a} {b} row {i}" for i, (a, b) in enumerate(rng.choice(["red", "blue", "green"], (200, 2)))]
    colour = ["other", "rare", *np.repeat(["red", "blue"], 99), None, None]
    table = pa.table({"text": [*text, "", ""], "colour": colour, "flag": [True, None] * 101})
    schema = learn_schema(table)
    view = frame_view(schema, schema.encode(table))
    assert list(view.columns) == [*(f"text#{i}" for i in range(32)), "colour", "flag"]
    assert view["colour"][:3].tolist() == ["other", "other", "red"]
    assert view["colour"].isna().sum() == 2 and view["flag"].isna().sum() == 101
    sparse_rows = schema.encode_sparse(table)
    pd.testing.assert_frame_equal(frame_view(schema, sparse_rows).reset_index(drop=True), view)


class NumbersOnly(Recorder):
    """Refuses labels that are not 0, 1, ..., as XGBoost does."""

    def fit(self, X, y, sample_weight=None, eval_set=None):
        if not np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
            raise ValueError("Invalid classes")
        return super().fit(X, y, sample_weight, eval_set)


def test_labels_become_numbers_for_an_estimator_that_refuses_them(frame, labels) -> None:
    model = CoresetEstimator(NumbersOnly(), **SMALL).fit(frame, labels, eval_set=[(frame[:9], labels[:9])])
    assert model.classes_.tolist() == ["no", "yes"] and set(model.predict(frame)) == {"no"}
    assert model.score(frame, labels) == np.mean(labels == "no")
    assert model.estimator_.eval_set_[0][1].tolist() == (labels[:9] == "yes").astype(int).tolist()
    with pytest.raises(ValueError, match="eval_set"):
        CoresetEstimator(NumbersOnly(), **SMALL).fit(frame, labels, eval_set=[(frame[:1], ["maybe"])])


# -- gaps in arrays, text, and what libraries refuse ---------------------------------------------


GAPPY = [
    HistGradientBoostingClassifier(max_iter=10, random_state=0),
    LGBMClassifier(n_estimators=10, verbosity=-1, n_jobs=1),
    make_pipeline(SimpleImputer(), LogisticRegression()),
]


@pytest.mark.parametrize("estimator", GAPPY, ids=lambda e: type(e).__name__)
def test_gaps_of_arrays_reach_estimators_that_take_them(estimator) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = X[:, 0] + (X[:, 1] > 0) + rng.logistic(size=3000) > 0.5
    X[rng.random(X.shape) < 0.1] = np.nan
    model = CoresetEstimator(estimator, coreset_size=1000, random_state=0).fit(X, y)
    assert model.n_features_in_ == 3 and model.score(X, y) > 0.6
    np.testing.assert_array_equal(model.predict(X[:9]), model.predict(pd.DataFrame(X[:9], columns=["x0", "x1", "x2"])))
    full = np.nan_to_num(X)
    assert model.predict(full[:5]).shape == (5,) and not hasattr(model.fit(full, y), "feature_names_in_")
    search = CoresetSearchCV(estimator, {}, coreset_size=500, cv=2, random_state=0).fit(X, y)
    assert search.best_score_ > 0.6 and search.predict(X[:5]).shape == (5,)
    streamed = CoresetEstimator(estimator, coreset_size=1000, random_state=0)
    streamed.partial_fit(X[:1500], y[:1500], classes=[False, True]).partial_fit(X[1500:], y[1500:])
    assert streamed.score(X, y) > 0.6


def test_gaps_of_arrays_are_refused_by_estimators_that_take_none() -> None:
    with pytest.raises(ValueError, match="NaN"):
        CoresetEstimator(LogisticRegression()).fit(np.array([[1.0], [np.nan]] * 50), [0, 1] * 50)


def mixed_frame(n: int = 3000) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    names = ['price [usd], "x"', "b:{1}", "letter", "code", "day"]
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    codes = [f"c{i}" for i in rng.integers(0, 300, n)]
    columns = [rng.normal(size=n), rng.normal(size=n), rng.choice(list("abc"), n), codes, days]
    frame = pd.DataFrame(dict(zip(names, columns, strict=True)))
    frame.loc[::7, "b:{1}"] = np.nan
    return frame, np.where(columns[0] + 2 * (columns[2] == "a") + rng.logistic(size=n) > 1, "yes", "no")


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(max_iter=300),
        RandomForestClassifier(10, random_state=0),
        GaussianNB(),
        HistGradientBoostingClassifier(max_iter=10, random_state=0),
        LGBMClassifier(n_estimators=10, verbosity=-1, n_jobs=1),
    ],
    ids=lambda e: type(e).__name__,
)
def test_frames_of_everything_reach_every_estimator(estimator, tmp_path) -> None:
    """Text, dates and gaps; signs in names that LightGBM refuses; more categories than histogram boosting takes."""
    frame, y = mixed_frame()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EncodingWarning)
        model = CoresetEstimator(estimator, coreset_size=1000, random_state=0).fit(frame, y)
        search = CoresetSearchCV(estimator, {}, coreset_size=500, cv=2, random_state=0).fit(frame, y)
    assert set(model.predict(frame[:50])) <= {"yes", "no"} and model.certificate_ is not None
    assert set(search.predict(frame[:50])) <= {"yes", "no"}
    save_model(model, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").predict(frame), model.predict(frame))
    assert len(model.feature_names_in_) == 5
