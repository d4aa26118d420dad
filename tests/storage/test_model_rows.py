"""What a model file holds: no training rows, unless it is told to keep them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tithe
from tithe import load_model, save_model
from tithe.core.errors import RowsNotSavedError
from tithe.dictionary import KSVD, ImageDenoiser
from tithe.odm import LinearODMClassifier
from tithe.online import PACO

rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 4)) + 8.0 * rng.integers(3, size=(3000, 1))
Y = (X[:, 0] - X[:, 1] + rng.logistic(size=3000) > 0).astype(int)
SMALL: dict[str, Any] = {"coreset_size": 200, "random_state": 0}

MODELS = {
    "kmeans": tithe.CoresetKMeans(3, **SMALL),
    "medians": tithe.CoresetKMedians(3, **SMALL),
    "logistic": tithe.CoresetLogisticRegression(**SMALL),
    "ridge": tithe.CoresetRidge(**SMALL),
    "odm": LinearODMClassifier(**SMALL),
    "ksvd": KSVD(5, max_iter=3, **SMALL),
    "paco": PACO(4, summary_size=50, random_state=0),
    "estimator": tithe.CoresetEstimator(LogisticRegression(), **SMALL),
    "one of ours inside a pipeline": tithe.CoresetEstimator(
        make_pipeline(StandardScaler(), tithe.CoresetLogisticRegression(coreset_size=100)), **SMALL
    ),
    "search": tithe.CoresetSearchCV(tithe.CoresetLogisticRegression(), {"C": [0.1, 1.0]}, cv=2, **SMALL),
}


def n_rows_in(path: Path) -> int:
    """How many training rows stand in the file, in single or double precision."""
    data = path.read_bytes()
    return sum(row.tobytes() in data or row.astype(np.float32).tobytes() in data for row in X)


def answers(model: Any, rows: Any) -> list[np.ndarray[Any, Any]]:
    methods = ("predict", "predict_proba", "decision_function", "transform")
    return [getattr(model, method)(rows) for method in methods if hasattr(model, method)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_file_holds_no_training_rows(name: str, tmp_path) -> None:
    model, path = MODELS[name].fit(X, Y), tmp_path / "model.tithe"
    save_model(model, path, rows=True)
    assert n_rows_in(path) > 10 or name == "one of ours inside a pipeline"
    save_model(model, path)
    assert n_rows_in(path) == 0
    again = load_model(path)
    for one, other in zip(answers(model, X), answers(again, X), strict=True):
        np.testing.assert_array_equal(one, other)
    save_model(again, path)  # once more, from what was loaded
    np.testing.assert_array_equal(answers(load_model(path), X)[0], answers(model, X)[0])
    assert hasattr(model, "summary_" if name == "paco" else "coresets_" if name == "search" else "coreset_")


def test_scaled_rows_inside_a_pipeline_are_left_out(tmp_path) -> None:
    """The rows of the inner learner are scaled, so they are looked for by their own bytes."""
    model = MODELS["one of ours inside a pipeline"].fit(X, Y)
    inner = model.estimator_[-1].coreset_.X
    for rows in (True, False):
        save_model(model, tmp_path / "model.tithe", rows=rows)
        data = (tmp_path / "model.tithe").read_bytes()
        assert any(row.tobytes() in data for row in inner) is rows
    assert model.estimator_[-1].coreset_.X is inner  # the model itself is unchanged


@pytest.mark.parametrize("name", ["kmeans", "logistic", "estimator"])
def test_what_needs_the_rows_says_how_to_keep_them(name: str, tmp_path) -> None:
    model, path = MODELS[name].fit(X, Y), tmp_path / "model.tithe"
    save_model(model, path)
    again = load_model(path)
    assert not hasattr(again, "coreset_") and not hasattr(again, "sample_indices_")
    with pytest.raises(RowsNotSavedError, match=r"rows=True"):
        again.certify(X, Y)
    assert again.score(X, Y) == model.score(X, Y)
    save_model(model, path, rows=True)
    assert load_model(path).certify(X, Y) == model.certify(X, Y)
    assert again.fit(X, Y).certify(X, Y) == model.certify(X, Y)  # a fit starts anew


@pytest.mark.parametrize(
    "make",
    [
        lambda: tithe.CoresetKMeans(3, **SMALL),
        lambda: tithe.CoresetLogisticRegression(**SMALL),
        lambda: tithe.CoresetSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2, **SMALL),
        lambda: PACO(4, summary_size=50, random_state=0),
    ],
)
def test_a_stream_that_was_not_saved_cannot_go_on(make, tmp_path) -> None:
    given = {"classes": [0, 1]} if isinstance(make(), tithe.CoresetLogisticRegression) else {}
    model, path = make().partial_fit(X, Y, **given), tmp_path / "model.tithe"
    save_model(model, path)
    assert n_rows_in(path) == 0
    again = load_model(path)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with pytest.raises(RowsNotSavedError, match=r"rows=True"):
        again.partial_fit(X, Y, **given)
    save_model(model, path, rows=True)
    again = load_model(path).partial_fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), model.partial_fit(X, Y).predict(X))


def test_a_stream_without_a_solution_is_not_lost(tmp_path) -> None:
    model = tithe.CoresetKMeans(30, **SMALL).partial_fit(X[:5])
    with pytest.raises(ValueError, match="rows=True"):
        save_model(model, tmp_path / "model.tithe")
    save_model(model, tmp_path / "model.tithe", rows=True)
    assert load_model(tmp_path / "model.tithe").partial_fit(X).solve().cluster_centers_.shape == (30, 4)


def test_patches_of_a_picture_are_left_out(tmp_path) -> None:
    picture = np.kron(rng.uniform(50, 200, size=(6, 6)), np.ones((6, 6))) + rng.normal(size=(36, 36))
    model = ImageDenoiser(
        5, patch_size=3, n_components=12, coreset_size=50, max_iter=2, refine_iter=0, random_state=0
    ).fit(picture)
    save_model(model, tmp_path / "model.tithe")
    again = load_model(tmp_path / "model.tithe")
    assert not hasattr(again, "coreset_")
    np.testing.assert_array_equal(again.denoise(picture), model.denoise(picture))


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("learner", [tithe.CoresetKMeans, tithe.CoresetLogisticRegression])
def test_models_of_sparse_rows_are_saved(learner, rows: bool, tmp_path) -> None:
    S = sparse.random(2000, 30, density=0.1, random_state=1, format="csr")
    y = (S[:, [0]].toarray().ravel() > 0).astype(int)
    model = learner(coreset_size=150, random_state=0).fit(S, y)
    save_model(model, tmp_path / "model.tithe", rows=rows)
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").predict(S), model.predict(S))
