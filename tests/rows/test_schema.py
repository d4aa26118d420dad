"""A schema is stored, read again, and applied to other rows."""

import copy
import json
import random
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from example_table import text_table, typed_table

from tithe import CoresetKMeans, EncodingWarning, open_dataset
from tithe.core.errors import FileFormatError
from tithe.rows.learn import learn_schema
from tithe.rows.schema import TableSchema
from tithe.rows.uses import TableOptions
from tithe.storage.values import packed, unpacked


@pytest.fixture(scope="module")
def schema():
    return learn_schema(typed_table(), TableOptions(na=["-1"]))


def test_json_round_trip(schema):
    text = json.dumps(schema.to_json(), allow_nan=False)
    assert TableSchema.from_json(json.loads(text)) == schema


def test_stored_with_a_model(schema):
    assert unpacked(packed(schema)) == schema


def test_other_order_more_columns_and_other_types(schema):
    typed = typed_table()
    X = schema.encode(typed)
    shuffled = text_table(typed).select(typed.column_names[::-1]).append_column("more", pa.nulls(typed.num_rows))
    assert (schema.encode(shuffled) == X).all()
    assert (schema.encode(typed.to_batches()[0]) == X).all()


def test_missing_column_is_named(schema):
    with pytest.raises(ValueError, match=r"There is no column 'colour'\. The columns are customer_id, age"):
        schema.encode(typed_table().drop_columns(["colour"]))
    left_out = typed_table().drop_columns(["customer_id", "country", "nothing"])
    assert (schema.encode(left_out) == schema.encode(typed_table())).all()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("age", [[1]]),
        ("age", [date(2020, 1, 1)]),
        ("joined", [5]),
        ("colour", [[1]]),
        ("member", [{"a": 1}]),
        ("remark", [b"x"]),
    ],
)
def test_column_of_another_type_is_named(schema, name, values):
    typed = typed_table(1)
    wrong = typed.set_column(typed.column_names.index(name), name, [pa.array(values)])
    with pytest.raises(ValueError, match=f"Column '{name}' is .*when the schema was learned"):
        schema.encode(wrong)


@pytest.mark.parametrize(("name", "what"), [("age", "numbers"), ("joined", "dates")])
def test_text_instead_of_numbers_is_named(schema, name, what):
    typed = typed_table(30)
    wrong = typed.set_column(typed.column_names.index(name), name, [pa.array(["Vienna"] * 30)])
    with pytest.raises(ValueError, match=f"Column '{name}' holds text such as 'Vienna', but it held {what}"):
        schema.encode(wrong)
    assert np.isfinite(schema.encode(wrong.slice(0, 5))).all()  # a few are odd values


def test_gaps_that_were_not_there_when_learned():
    table = pa.table({"a": [1.0, 2.0, 6.0], "b": ["u", "v", "u"], "c": [True, False, True]})
    X = learn_schema(table).encode(pa.table({"a": [None], "b": ["?"], "c": pa.nulls(1, pa.bool_())}))
    median = (2.0 - 3.0) / np.std([1, 2, 6])
    np.testing.assert_allclose(X, [[median, 0, 0, 1]])


def test_gaps_where_rows_with_gaps_are_bad(schema):
    table = pa.table({"a": [1.0, 2.0, 6.0]})
    bare = learn_schema(table, TableOptions(impute="none"))
    out = np.empty((2, 1))
    assert not bare.encode_into(pa.table({"a": [np.inf, 1.0]}), out)
    assert np.isnan(out[0, 0]) and np.isfinite(out[1, 0])
    assert bare.encode_into(pa.table({"a": [3.0, 1.0]}), out)


def test_own_gap_texts_are_stored(schema):
    typed = typed_table(2)
    at = typed.column_names.index("age")
    rows = [typed.set_column(at, "age", [pa.array([age, 30])]) for age in (-1, None)]
    assert (schema.encode(rows[0]) == schema.encode(rows[1])).all()


def test_original_units(schema):
    typed = typed_table()
    points = schema.original_units(schema.encode(typed))
    column = schema.feature_names.index("income")
    np.testing.assert_allclose(points[:, column], typed.column("income").to_numpy(), rtol=1e-12)
    first_day = schema.feature_names.index("born")
    days = [(d - date(1970, 1, 1)).days for d in typed.column("born").drop_null().to_pylist()]
    present = ~typed.column("born").is_null().to_numpy()
    np.testing.assert_allclose(points[present, first_day], days, rtol=1e-12)
    colours = [i for i, name in enumerate(schema.feature_names) if name.startswith("colour=")]
    assert set(np.unique(points[:, colours])) == {0.0, 1.0}
    with pytest.raises(ValueError, match="features"):
        schema.original_units(np.zeros((2, 3)))


def test_description_names_every_column(schema):
    rows = schema.describe()
    assert [row[0] for row in rows] == typed_table().column_names
    about = {name: (what, done) for name, what, done in rows}
    assert about["customer_id"] == ("identifier", "left out")
    assert about["colour"][1] == "one feature for each of 3 values; gaps are marked"
    assert about["age"][0].startswith("number, ") and "gaps in 200 rows" in about["age"][0]


def test_column_of_a_feature(schema):
    names = [schema.column_of(i) for i in range(schema.n_features)]
    assert list(dict.fromkeys(names)) == schema.reads
    assert all(feature.startswith(name) for feature, name in zip(schema.feature_names, names, strict=True))


def test_feature_names_are_distinct():
    table = pa.table({"a=b": [1.0, 2.0, 5.0], "a": ["b", "c", "b"]})
    assert learn_schema(table).feature_names == ["a=b", "a=b_", "a=c"]


def _damaged(data, rng):
    """One value anywhere in JSON data replaced by another."""
    data = copy.deepcopy(data)
    holder, key = {"all": data}, "all"
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.85:
        holder = holder[key]
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    holder[key] = rng.choice([None, -1, 10**30, "x", [], {}, [1], True, 0.5, float("nan"), float("inf"), ["b", "a"]])
    return holder[key] if holder is not data and "all" in holder else data


def test_damaged_json_is_refused_or_harmless(schema):
    good, rng, n_refused = schema.to_json(), random.Random(0), 0
    table = typed_table(5)
    for _ in range(600):
        data = _damaged(good, rng)
        try:
            read = TableSchema.from_json(data)
        except FileFormatError:
            n_refused += 1
            continue
        try:
            X = read.encode(table)
        except ValueError:  # it names columns that are not there
            continue
        assert X.shape == (5, len(read.feature_names))
    assert n_refused > 300


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"format": 2},
        {"dtype": "int8"},
        {"target": "age"},
        {"na": "x"},
    ],
)
def test_contradictions_in_json_are_refused(schema, change):
    with pytest.raises(FileFormatError):
        TableSchema.from_json({**schema.to_json(), **change})


def test_a_lie_in_a_stored_schema_is_refused(schema):
    wrong = copy.deepcopy(schema)
    age = next(column for column in wrong.columns if column.name == "age")
    object.__setattr__(age.encoding, "spread", 0.0)
    with pytest.raises(FileFormatError, match="spread"):
        unpacked(packed(wrong))


def test_a_number_too_large_for_single_precision_is_not_finite():
    table = pa.table({"a": pa.array([1, 2, 4], pa.int8())})
    out = np.empty((1, 1), np.float32)
    for scale in ("none", "standard"):
        schema = learn_schema(table, TableOptions(scale=scale))
        assert schema.dtype == "float32" and not schema.encode_into(pa.table({"a": [1e300]}), out)


def test_days_of_clusters_are_dates():
    days = np.repeat(["2001-01-17", "2003-06-02"], 30)
    frame = pa.table({"when": days, "size": np.tile([1.0, 2.0, 3.0], 20)})
    model = CoresetKMeans(2, random_state=0).fit(open_dataset(frame))
    assert model.schema_.day_features == {0}
    assert {row["center"]["when"] for row in model.summary()["clusters"]} == set(days)


def test_text_among_numbers_is_a_gap_that_is_told():
    values = [str(i / 7) for i in range(100)]
    values[3], values[50], values[60] = "12 kg", "?", "12 mg"
    with pytest.warns(EncodingWarning, match=r"'a': 2 of 100 values, such as '12 (kg|mg)', are not readable"):
        schema = open_dataset(pa.table({"a": values, "b": ["x", "y"] * 50})).schema
    assert schema.describe()[0][1].startswith("number, 3 gaps in 100 rows, of them 2 such as")
    assert TableSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_zero_stays_zero_in_the_units_of_a_column():
    values = np.r_[np.zeros(50), np.random.default_rng(0).normal(size=50)]
    schema = learn_schema(pa.table({"a": values}))
    units = schema.original_units(schema.encode(pa.table({"a": [0.0, values[-1]]})))
    assert units[0, 0] == 0.0 and units[1, 0] == pytest.approx(values[-1])


@pytest.mark.parametrize("kind", ["complex128", "complex64", "object", "longdouble"])
def test_columns_that_arrow_does_not_know_are_refused_by_name(kind):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": np.array([1.0, 2.0] if kind == "longdouble" else [1j, 2.0], kind)})
    remedy = r"Drop it from the frame\." if kind == "longdouble" else "Drop it.*, or make columns of its real"
    with pytest.raises(ValueError, match=rf"Column 'b' holds values of the type .*, which are no features\. {remedy}"):
        open_dataset(frame)
