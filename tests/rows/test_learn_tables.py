"""Schemas of whole tables: whatever the types, cuts and order of columns."""

import itertools
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest
from example_table import text_table, typed_table

from tithe.rows.learn import SAMPLE_ROWS, learn_schema, spread_rows
from tithe.rows.schema import WIDEST_DENSE
from tithe.rows.uses import TableOptions


def learned(values, name="x", **options):
    """The column of a table that has one more."""
    table = pa.table({name: values, "beside": np.random.default_rng(0).normal(size=len(values))})
    return next(c for c in learn_schema(table, TableOptions(**options)).columns if c.name == name)


def test_texts_and_types_give_the_same_schema_and_rows():
    typed = typed_table()
    schemas = [learn_schema(typed), learn_schema(text_table(typed)), learn_schema(text_table(typed, "?"))]
    assert schemas[0] == schemas[1] == schemas[2]
    X = schemas[0].encode(typed)
    assert X.dtype == np.float64 and np.isfinite(X).all()
    assert (schemas[0].encode(text_table(typed)) == X).all()


def test_frames_give_the_same_schema_and_rows():
    polars = pytest.importorskip("polars")
    from tithe.rows.schema import frame_table

    typed = typed_table()
    schema = learn_schema(typed)
    for frame in (typed.to_pandas(), polars.from_arrow(typed)):
        table = frame_table(frame)
        assert learn_schema(table) == schema
        assert (schema.encode(table) == schema.encode(typed)).all()


def test_cuts_of_batches_do_not_matter():
    typed = typed_table()
    schema = learn_schema(typed)
    for size in (1, 7, 64):
        assert learn_schema(pa.Table.from_batches(typed.to_batches(max_chunksize=size))) == schema
    pieces = [schema.encode(batch) for batch in typed.to_batches(max_chunksize=7)]
    assert (np.concatenate(pieces) == schema.encode(typed)).all()


def test_cuts_of_dictionaries_do_not_matter():
    plain = pa.table({"x": ["b", "a", "b", "c"] * 10})
    batches = [
        pa.record_batch([b.column(0).dictionary_encode()], names=["x"]) for b in plain.to_batches(max_chunksize=3)
    ]
    assert learn_schema(pa.Table.from_batches(batches)) == learn_schema(plain)


def test_float32_where_it_is_exact():
    small = {"a": pa.array([1, 2, 4], pa.int8()), "b": pa.array([0.5, 1, 3], pa.float32()), "c": ["x", "y", "x"]}
    assert learn_schema(pa.table(small)).dtype == "float32"
    assert learn_schema(pa.table({**small, "d": [1.0, 2.0, 4.0]})).dtype == "float64"
    assert learn_schema(pa.table({**small, "d": [1, 2, 4]})).dtype == "float64"


def test_scaled_in_double_precision():
    values = np.random.default_rng(0).normal(1e6, 1, 100).astype(np.float32)
    table = pa.table({"x": values})
    schema = learn_schema(table)
    column = schema.columns[0].encoding
    wanted = ((values.astype(np.float64) - column.center) * (1 / column.spread)).astype(np.float32)
    assert (schema.encode(table).ravel() == wanted).all()


def test_target_weight_and_row_id_are_no_features():
    table = pa.table({"y": [0, 1, 0], "w": [1.0, 2.0, 3.0], "r": [5, 6, 9], "x": [1.0, 2.0, 4.0]})
    schema = learn_schema(table, target="y", weight="w", row_id="r")
    assert schema.feature_names == ["x"]
    assert [row[:2] for row in schema.describe()[1:]] == [("y", "target"), ("w", "weight"), ("r", "row id")]


def test_columns_and_exclude():
    table = pa.table({"a": [1, 2, 4], "b": [3, 1, 2], "c": [9, 7, 8]})
    assert learn_schema(table, TableOptions(columns=["c", "a"])).feature_names == ["c", "a"]
    schema = learn_schema(table, TableOptions(exclude=["b"]))
    assert schema.feature_names == ["a", "c"]
    assert ("b", "excluded", "left out") in schema.describe()


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="both in columns and in exclude"):
        TableOptions(columns=["a"], exclude=["a"])
    with pytest.raises(ValueError, match="exclude is a list"):
        TableOptions(exclude="a")
    with pytest.raises(ValueError, match="scale must be one of"):
        TableOptions(scale="minmax")
    with pytest.raises(ValueError, match="2 columns are named 'a'"):
        learn_schema(pa.table([[1, 2], [3, 4]], names=["a", "a"]))
    with pytest.raises(ValueError, match="no rows"):
        learn_schema(pa.table({"a": pa.array([], pa.int64())}))


def test_sample_is_spread_over_all_rows():
    runs = spread_rows(10**6)
    assert runs[0][0] == 0 and runs[-1][1] == 10**6
    assert sum(last - first for first, last in runs) == SAMPLE_ROWS
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(runs))
    assert spread_rows(100) == [(0, 100)] and spread_rows(0) == []


def test_a_sample_of_many_rows_decides():
    n = SAMPLE_ROWS * 2
    column = learned(np.where(np.arange(n) < n - 3, 1.0, 2.0))
    assert column.what == "number"  # the last rows are in the sample


def test_random_tables_always_give_finite_rows():
    rng = np.random.default_rng(5)
    pools = [
        ["1", "2.5", "", "?", "-3e4", "abc"],
        ["red", "blue", "NA", "other", "missing"],
        ["2020-01-01", "2021-06-07T08:00Z", "", "2020-02-30"],
        ["yes", "no", "", "Y"],
        ["a b", "c d e", "f", ""],
    ]
    for _ in range(40):
        n = int(rng.integers(2, 60))
        table = pa.table({f"c{j}": rng.choice(pool, n).tolist() for j, pool in enumerate(pools)})
        try:
            schema = learn_schema(table)
        except ValueError as error:
            assert "No column is left" in str(error)
            continue
        more = pa.table({f"c{j}": rng.choice(pools[(j + 1) % 5], 9).tolist() for j in range(5)})
        for rows in (table, more):
            X = schema.encode(rows)
            assert X.shape == (rows.num_rows, len(schema.feature_names)) and np.isfinite(X).all()
            assert (np.concatenate([schema.encode(b) for b in rows.to_batches(max_chunksize=4)]) == X).all()
        assert len(set(schema.feature_names)) == schema.n_features


def test_many_values_make_rows_sparse():
    rng = np.random.default_rng(0)
    values = [f"v{i}" for i in rng.integers(0, 700, 3000)]
    table = pa.table({"a": values, "b": values[::-1], "c": rng.normal(size=3000), "d": [None, "u", "w"] * 1000})
    schema = learn_schema(table, TableOptions(categories="onehot", max_categories=700, n_hashes=900))
    assert schema.sparse and schema.n_features > WIDEST_DENSE
    X = schema.encode(table)
    assert X.has_canonical_format and X.shape == (3000, schema.n_features)
    dense = np.empty(X.shape, schema.dtype)
    schema.encode_into(table, dense)
    assert (X.toarray() == dense).all()
    assert X.nnz <= 4 * 3000


def test_plain_numbers_are_all_kept():
    table = pa.table({"id": np.arange(30), "c": [5.0] * 30, "__index_level_0__": np.arange(30)})
    schema = learn_schema(table, TableOptions(scale="none"))
    assert schema.feature_names == ["id", "c"]
    assert schema.encode(table)[:, 0].tolist() == list(range(30))


def test_named_columns_are_kept_even_if_constant():
    table = pa.table(
        {"a": [1, 1], "b": ["x", "x"], "c": [True, True], "d": [datetime(2020, 1, 1)] * 2, "e": [["1"], ["2"]]}
    )
    schema = learn_schema(table, TableOptions(columns=["a", "b", "c", "d"]))
    assert all(column.encoding is not None for column in schema.columns[:4])
    with pytest.raises(ValueError, match="Column 'e' is list<item: string>, which is no feature"):
        learn_schema(table, TableOptions(columns=["e"]))
