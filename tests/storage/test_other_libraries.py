"""Models of other libraries in our files: trees of scikit-learn, boosters in the formats of their libraries."""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.feature_selection import SelectKBest, f_classif, mutual_info_classif
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from tithe import CoresetEstimator, CoresetKMeans, FileFormatError, load_model, save_model
from tithe.storage.foreign import _unzipped, _zipped, booster_from, booster_text, shell_bytes, shell_from
from tithe.storage.values import packed, unpacked

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=(400, 2)), RNG.integers(0, 5, size=400)])
LABELS = np.where(X[:, 0] + X[:, 2] > 2.0, "yes", "no")
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0]))
SEED = {"random_state": 0}
TREES: dict[str, Callable[[], Any]] = {
    "tree": lambda: DecisionTreeClassifier(**SEED).fit(X, LABELS),
    "forest": lambda: RandomForestClassifier(5, **SEED).fit(X, LABELS),
    "extra trees": lambda: ExtraTreesRegressor(5, **SEED).fit(X, COUNTS),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=5, **SEED).fit(X, LABELS),
    "bagging": lambda: BaggingRegressor(n_estimators=3, **SEED).fit(X, COUNTS),
    "adaboost": lambda: AdaBoostClassifier(n_estimators=3, **SEED).fit(X, LABELS),
    "isolation forest": lambda: IsolationForest(n_estimators=5, **SEED).fit(X),
    "histograms": lambda: HistGradientBoostingRegressor(loss="poisson", max_iter=5, **SEED).fit(X, COUNTS),
    "categories": lambda: HistGradientBoostingClassifier(max_iter=5, categorical_features=[2], **SEED).fit(X, LABELS),
}


def after(step: Any) -> Any:
    return make_pipeline(step, DecisionTreeClassifier(**SEED)).fit(X, LABELS)


PIPELINES: dict[str, Callable[[], Any]] = {
    "gaps filled": lambda: after(SimpleImputer()),
    "bins": lambda: after(KBinsDiscretizer(3, encode="ordinal")),
    "columns chosen": lambda: after(SelectKBest(f_classif, k=2)),
    "columns chosen by information": lambda: after(SelectKBest(mutual_info_classif, k=2)),
}


@pytest.mark.parametrize("name", [*TREES, *PIPELINES])
def test_models_of_scikit_learn_are_kept_whole(name: str) -> None:
    model = {**TREES, **PIPELINES}[name]()
    again = unpacked(packed(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def _set_nodes(tree: Any, field: str, node: int, value: Any) -> None:
    """Change one number of a tree of scikit-learn, as a file could."""
    state = tree.__getstate__()
    nodes = state["nodes"].copy()
    nodes[field][node] = value
    tree.__setstate__({**state, "nodes": nodes})


TREE_LIES: dict[str, Callable[[Any], None]] = {
    "a child that is not there": lambda tree: _set_nodes(tree, "left_child", 0, 10**6),
    "a circle": lambda tree: _set_nodes(tree, "right_child", 0, 0),
    "one child twice": lambda tree: _set_nodes(tree, "right_child", 0, 1),
    "an unknown column": lambda tree: _set_nodes(tree, "feature", 0, 3),
    "another depth": lambda tree: tree.__setstate__({**tree.__getstate__(), "max_depth": 1}),
}


@pytest.mark.parametrize("name", TREE_LIES)
def test_trees_that_lie_are_refused(name: str) -> None:
    model = TREES["forest"]()
    TREE_LIES[name](model.estimators_[2].tree_)
    with pytest.raises(FileFormatError, match=r"tree|nodes"):
        unpacked(packed(model))


@pytest.mark.parametrize(("field", "value"), [("left", 10**6), ("right", 0), ("feature_idx", 7), ("bitset_idx", 99)])
def test_histograms_that_lie_are_refused(field: str, value: int) -> None:
    model = TREES["categories"]()
    trees = [tree for (tree,) in model._predictors if tree.nodes["is_categorical"].any()]
    nodes = trees[0].nodes
    nodes[field][int(np.flatnonzero(nodes["is_categorical"])[0])] = value
    with pytest.raises(FileFormatError, match=r"tree|nodes|columns|categories"):
        unpacked(packed(model))


def _boosters() -> dict[str, Callable[[], BaseEstimator]]:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    return {
        "lightgbm": lambda: lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, **SEED),
        "xgboost": lambda: xgboost.XGBRegressor(n_estimators=5, **SEED),
    }


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("piped", [False, True])
def test_boosters_are_kept_in_the_format_of_their_library(tmp_path, library: str, piped: bool) -> None:
    booster = _boosters()[library]()
    y = LABELS if library == "lightgbm" else COUNTS
    estimator = make_pipeline(StandardScaler(), booster) if piped else booster
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CoresetEstimator(estimator, coreset_size=200, **SEED).fit(X, y)
        save_model(model, tmp_path / "model.tithe")
        again = load_model(tmp_path / "model.tithe")
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    with zipfile.ZipFile(tmp_path / "model.tithe") as archive:
        models = [archive.read(name) for name in archive.namelist() if name.startswith("models/")]
    if library == "lightgbm":
        assert any(text.startswith(b"tree\nversion=") for text in models)
    else:
        assert any(text.startswith(b"{") and "learner" in json.loads(text) for text in models)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_damaged_booster_is_refused(library: str) -> None:
    model = _boosters()[library]().fit(X, COUNTS if library == "xgboost" else LABELS)
    with zipfile.ZipFile(io.BytesIO(packed(model))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    cut = next(name for name, text in members.items() if text.startswith((b"tree", b'{"learner')))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content[: len(content) // 3] if name == cut else content)
    with pytest.raises(FileFormatError):
        unpacked(file.getvalue())


BOOSTER_LIES = {
    "lightgbm": (rb"left_child=\d+", b"left_child=77"),
    "xgboost": (rb'"left_children":\[\d+', b'"left_children":[77'),
}


@pytest.mark.parametrize("library", BOOSTER_LIES)
def test_a_booster_that_lies_is_refused(library: str) -> None:
    model = _boosters()[library]().fit(X, COUNTS if library == "xgboost" else LABELS)
    pattern, lie = BOOSTER_LIES[library]
    text = booster_text(model.booster_ if library == "lightgbm" else model.get_booster())
    lying, n_lies = re.subn(pattern, lie, text, count=1)
    assert n_lies == 1
    with pytest.raises(FileFormatError, match=r"nodes|tree"):
        booster_from(library, lying)


def test_learners_of_ours_inside_a_pipeline_are_kept_without_their_rows() -> None:
    model = make_pipeline(StandardScaler(), CoresetKMeans(3, coreset_size=100, **SEED)).fit(X)
    slim, whole = unpacked(packed(model, rows=False)), unpacked(packed(model))
    for again in (slim, whole):
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert not hasattr(slim[-1], "coreset_") and len(whole[-1].coreset_) == 100
    assert hasattr(model[-1], "coreset_")


def test_equal_models_have_equal_bytes() -> None:
    rows = sparse.csr_matrix(X)

    def models() -> list[Any]:
        words = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge()).fit(LABELS[:, None], COUNTS)
        neighbors = KNeighborsClassifier(algorithm="brute").fit(rows, LABELS)
        return [TREES["forest"](), TREES["categories"](), words, neighbors]

    ballast = [object() for _ in range(1000)]  # other memory addresses
    for one, other in zip(models(), models(), strict=True):
        assert sha256(packed(one)).digest() == sha256(packed(other)).digest()
    assert ballast


def test_settings_of_estimators_are_not_those_of_a_file() -> None:
    clusters = KMeans(2, n_init=1, verbose=9, **SEED).fit(X)
    clusters._n_threads = -5  # would end the process
    models = [
        make_pipeline(StandardScaler(), clusters, memory="a folder of pickles"),
        BaggingRegressor(n_estimators=3, n_jobs=12, **SEED).fit(X, COUNTS),
    ]
    pipe, bagging = (unpacked(packed(model)) for model in models)
    assert pipe.memory is None and bagging.n_jobs is None
    assert pipe[-1].verbose == 0 and pipe[-1]._n_threads > 0


@pytest.mark.parametrize("name", ["coef_", "intercept_", "values of leaves"])
def test_numbers_that_are_not_finite_are_refused(name: str) -> None:
    model: Any = Ridge().fit(X, COUNTS)
    if name == "values of leaves":
        model = DecisionTreeRegressor(**SEED).fit(X, COUNTS)
        model.tree_.value[3] = np.nan
    else:
        setattr(model, name, np.full_like(getattr(model, name), np.inf))
    with pytest.raises(FileFormatError, match="not finite"):
        unpacked(packed(model))


def _list(content: list[Any], number: int) -> dict[str, Any]:
    kind = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    return {**kind, "content": content, "__id__": number}


def test_lists_that_stand_for_more_than_a_file_holds_are_refused() -> None:
    members = _unzipped(shell_bytes(StandardScaler().fit(X), []))
    schema = json.loads(members["schema.json"])
    nested = _list([], 10**6)
    for number in range(10**6 + 1, 10**6 + 40):  # 2^40 lists to look at
        nested = _list([nested, {"__id__": number - 1}], number)
    for lie, fault in ((nested, "too many"), (_list([{"__id__": 7**9}], 7**9), "holds itself")):
        schema["content"]["content"]["copy"] = lie
        with pytest.raises(FileFormatError, match=fault):
            shell_from(_zipped({**members, "schema.json": json.dumps(schema).encode()}), [])


def test_records_that_are_no_list_are_refused_before_a_tree_is_made_of_them() -> None:
    """scikit-learn reads the first axis of the nodes in compiled code: without one the process ended."""
    data = shell_bytes(TREES["tree"](), [])
    members = _unzipped(data)
    for name, content in members.items():
        if content.startswith(b"\x93NUMPY") and np.load(io.BytesIO(content)).dtype.names:
            file = io.BytesIO()
            np.save(file, np.load(io.BytesIO(content))[0].reshape(()))
            members[name] = file.getvalue()
    with pytest.raises(FileFormatError, match="records are no list"):
        shell_from(_zipped(members), [])


def test_classes_that_are_missing_are_refused() -> None:
    model = TREES["forest"]()
    model.classes_ = model.classes_[:1]
    with pytest.raises(FileFormatError, match="classes are missing"):
        unpacked(packed(model))
