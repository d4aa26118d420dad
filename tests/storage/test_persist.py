from __future__ import annotations

import os
import pkgutil
import sys
import zipfile
from importlib import import_module
from inspect import isabstract

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge

import tithe
from tithe import (
    Block,
    CoresetEstimator,
    CoresetKMeans,
    FileFormatError,
    build_coreset,
    load_coreset,
    load_model,
    save_coreset,
    save_model,
)
from tithe.core.files import replacing
from tithe.objectives import KMeansObjective
from tithe.storage.values import _class_of


@pytest.fixture
def coreset(skewed: Block) -> tithe.Coreset:
    return build_coreset(skewed.X, objective=KMeansObjective(n_clusters=4), coreset_size=200, random_state=0)


def same(a: tithe.Coreset, b: tithe.Coreset) -> None:
    for x, y in ((a.weights(), b.weights()), (a.row_ids(), b.row_ids()), (a.totals, b.totals), (a.pilot, b.pilot)):
        np.testing.assert_array_equal(x, y)
    assert (a.n_seen, a.weight_seen, a.key, dict(a.provenance)) == (b.n_seen, b.weight_seen, b.key, dict(b.provenance))
    assert a.X.dtype == b.X.dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip(coreset, tmp_path, dtype) -> None:
    import dataclasses

    coreset = dataclasses.replace(coreset, X=coreset.X.astype(dtype), y=np.arange(len(coreset)))
    save_coreset(coreset, tmp_path / "c.parquet")
    back = load_coreset(tmp_path / "c.parquet")
    same(coreset, back)
    np.testing.assert_array_equal(coreset.X, back.X)
    np.testing.assert_array_equal(coreset.y, back.y)


def test_round_trip_csr_and_strings(tmp_path) -> None:
    X = sparse.random(500, 30, density=0.1, format="csr", random_state=0)
    coreset = build_coreset(
        X,
        np.where(np.arange(500) % 2, "a", "b"),
        objective=KMeansObjective(n_clusters=3),
        coreset_size=50,
        random_state=0,
    )
    save_coreset(coreset, tmp_path / "c.parquet")
    back = load_coreset(tmp_path / "c.parquet")
    same(coreset, back)
    assert (coreset.X != back.X).nnz == 0
    assert back.y.tolist() == coreset.y.tolist()


def test_any_tool_reads_it(coreset, tmp_path) -> None:
    save_coreset(coreset, tmp_path / "c.parquet", feature_names=list("abcdef"))
    for frame in (pd.read_parquet(tmp_path / "c.parquet"), pl.read_parquet(tmp_path / "c.parquet").to_pandas()):
        assert list(frame.columns) == [*"abcdef", "sample_weight", "row_id"]
        np.testing.assert_array_equal(frame["sample_weight"], coreset.weights())


def test_bad_feature_names(coreset, tmp_path) -> None:
    for names in (["a"], ["a"] * 6, [*"abcde", "sample_weight"]):
        with pytest.raises(ValueError, match="feature_names"):
            save_coreset(coreset, tmp_path / "c.parquet", feature_names=names)
    assert os.listdir(tmp_path) == []


def test_damaged_files_of_every_length(coreset, tmp_path) -> None:
    path = tmp_path / "c.parquet"
    save_coreset(coreset, path)
    whole = path.read_bytes()
    for length in (0, 3, 4, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"c\.parquet"):
            load_coreset(path)


def test_flipped_bytes_never_give_a_wrong_coreset(coreset, tmp_path) -> None:
    path = tmp_path / "c.parquet"
    save_coreset(coreset, path)
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    caught = 0
    for at in rng.integers(4, len(whole) - 8, 60):
        damaged = whole.copy()
        damaged[at] ^= 0x55
        path.write_bytes(damaged)
        try:
            back = load_coreset(path)
        except FileFormatError:
            caught += 1
        else:  # a byte that carries no data: statistics, padding, a name of the writer
            np.testing.assert_array_equal(back.weights(), coreset.weights())
            np.testing.assert_array_equal(back.X, coreset.X)
    assert caught > 30


def test_files_of_other_programs(coreset, tmp_path) -> None:
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"a": [1.0]}), plain)
    with pytest.raises(FileFormatError, match="not a coreset"):
        load_coreset(plain)
    text = tmp_path / "text.parquet"
    text.write_text("hello, world\n" * 50)
    with pytest.raises(FileFormatError, match="not a whole Parquet"):
        load_coreset(text)
    with pytest.raises(FileNotFoundError, match="no file"):
        load_coreset(tmp_path / "missing.parquet")
    with pytest.raises(FileNotFoundError):
        load_coreset(tmp_path)


@pytest.mark.parametrize(
    "metadata", [b"not json", b"[]", b"{}", b'{"format": 99}', b'{"format": 1}', b'{"format": 1, "layout": "dense"}']
)
def test_metadata_that_lies(tmp_path, metadata: bytes) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"x0": [1.0], "sample_weight": [1.0]}).replace_schema_metadata({b"tithe": metadata}), path)
    with pytest.raises(FileFormatError):
        load_coreset(path)


GOOD = {
    "format": 1,
    "layout": "dense",
    "dtype": "float64",
    "features": ["x0"],
    "n_seen": 2,
    "weight_seen": 2.0,
    "key": [0, 0],
    "totals": None,
    "pilot": None,
    "provenance": {},
}


@pytest.mark.parametrize(
    "lie",
    [
        {"key": []},
        {"n_seen": float("inf")},
        {"n_seen": -5},
        {"weight_seen": float("nan")},
        {"dtype": "int8"},
        {"dtype": "O"},
        {"layout": "csr"},
        {"features": ["x1"]},
        {"totals": {"shape": [7], "float64": "AAAA"}},
        {"provenance": None},
    ],
)
def test_any_single_lie_is_a_format_error(tmp_path, lie: dict) -> None:
    import json

    def write(about: dict) -> None:
        table = pa.table({"x0": [1.0, 2.0], "sample_weight": [1.0, 1.0], "row_id": [0, 1]})
        pq.write_table(table.replace_schema_metadata({b"tithe": json.dumps(about)}), tmp_path / "c.parquet")

    write(GOOD)
    assert len(load_coreset(tmp_path / "c.parquet")) == 2
    write(GOOD | lie)
    with pytest.raises(FileFormatError, match="damaged"):
        load_coreset(tmp_path / "c.parquet")


@pytest.mark.parametrize("column", ["x0", "sample_weight", "row_id"])
def test_missing_values_and_no_rows(tmp_path, column: str) -> None:
    import json

    values = {"x0": [1.0], "sample_weight": [1.0], "row_id": [0]}
    for table in (pa.table(values | {column: [None]}), pa.table(values).slice(0, 0)):
        pq.write_table(table.replace_schema_metadata({b"tithe": json.dumps(GOOD)}), tmp_path / "c.parquet")
        with pytest.raises(FileFormatError, match="damaged"):
            load_coreset(tmp_path / "c.parquet")


def test_column_numbers_out_of_bounds(tmp_path) -> None:
    import json

    lists = {"columns": pa.array([[2**30]], pa.list_(pa.int32())), "values": [[1.0]]}
    table = pa.table(lists | {"sample_weight": [1.0], "row_id": [0]})
    pq.write_table(
        table.replace_schema_metadata({b"tithe": json.dumps(GOOD | {"layout": "csr"})}), tmp_path / "c.parquet"
    )
    with pytest.raises(FileFormatError, match="damaged"):
        load_coreset(tmp_path / "c.parquet")


class HomemadeRidge(Ridge):
    """Of a type that no version of skops trusts."""


def test_a_model_that_could_not_be_loaded_is_not_saved(tmp_path, skewed: Block) -> None:
    X = skewed.X[:200]
    model = CoresetEstimator(HomemadeRidge(), random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="was not saved"):
        save_model(model, tmp_path / "m.tithe")
    assert os.listdir(tmp_path) == []


def test_models_round_trip(skewed: Block, tmp_path) -> None:
    X = skewed.X[:3000]
    kmeans = CoresetKMeans(3, coreset_size=200, random_state=0).fit(X)
    logistic = CoresetEstimator(LogisticRegression(), coreset_size=300, random_state=0).fit(X, X[:, 0] > 0)
    for model in (kmeans, logistic):
        save_model(model, tmp_path / "m.tithe", rows=True)
        back = load_model(tmp_path / "m.tithe")
        np.testing.assert_array_equal(back.predict(X), model.predict(X))
        assert back.coreset_.n_seen == 3000
    assert load_model(tmp_path / "m.tithe").classes_.tolist() == [False, True]


def test_a_model_that_would_run_code_is_refused(tmp_path) -> None:
    from sklearn.preprocessing import FunctionTransformer
    from skops import io

    with zipfile.ZipFile(tmp_path / "evil.tithe", "w") as archive:
        archive.writestr("values.json", '{"format": 1, "about": {}, "value": {"skops": [0, []]}}')
        archive.writestr("models/0", io.dumps(FunctionTransformer(os.system)))
    with pytest.raises(FileFormatError, match="not a type of tithe"):
        load_model(tmp_path / "evil.tithe")


@pytest.mark.parametrize(
    ("name", "trusted"),
    [
        ("tithe.clustering.learners.CoresetKMeans", True),
        ("tithe.core.data.Coreset", True),
        ("tithe.clustering.learners._CoresetClusterer", False),  # no object is made of it
        ("tithe.fit.base.Coreset", False),  # only imported there
        ("tithe.core.files.os", False),
        ("tithe.core.files.replacing", False),
        ("tithe.rows.datasets.DatasetSource", False),  # opens files
        ("tithe.core.files.os.system", False),
        ("tithe.no_such_module.Thing", False),
        ("os.system", False),
        ("antigravity.Storable", False),
    ],
)
def test_types_that_may_be_loaded_are_storable_classes_of_this_package(name: str, trusted: bool) -> None:
    if trusted:
        assert _class_of(name).__name__ == name.rpartition(".")[2]
    else:
        with pytest.raises(FileFormatError, match="not a type of tithe"):
            _class_of(name)
    assert "antigravity" not in sys.modules  # other modules are not even imported


def test_every_estimator_in_the_package_can_be_loaded() -> None:
    found = 0
    for folder in ("clustering", "dictionary", "linear", "meta", "odm", "online"):
        package = import_module(f"tithe.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"tithe.{folder}."):
            for name, cls in vars(import_module(module.name)).items():
                ours = isinstance(cls, type) and cls.__module__ == module.name and not name.startswith("_")
                if ours and issubclass(cls, BaseEstimator) and not isabstract(cls):
                    found += 1
                    assert _class_of(f"{module.name}.{name}") is cls
    assert found >= 15


def test_damaged_models(tmp_path, skewed: Block) -> None:
    path = tmp_path / "m.tithe"
    save_model(CoresetKMeans(2, random_state=0).fit(skewed.X[:50]), path)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2):
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match="not a whole model"):
            load_model(path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "missing.tithe")


def test_a_write_that_fails_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]
