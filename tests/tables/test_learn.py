"""What each column is told to be, and what becomes of it."""

import itertools
import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from example_table import text_table, typed_table

from tithe.tables.learn import SAMPLE_ROWS, learn_schema, spread_rows
from tithe.tables.options import TableOptions
from tithe.tables.schema import WIDEST_DENSE


def learned(values, name="x", **options):
    """The column of a table that has one more."""
    table = pa.table({name: values, "beside": np.random.default_rng(0).normal(size=len(values))})
    return next(c for c in learn_schema(table, TableOptions(**options)).columns if c.name == name)


def encoded(values, **options):
    table = pa.table({"x": values, "beside": np.random.default_rng(0).normal(size=len(values))})
    schema = learn_schema(table, TableOptions(**options))
    width = next(c for c in schema.columns if c.name == "x").width
    return schema.feature_names[:width], schema.encode(table)[:, :width]


def test_every_kind_is_told():
    kinds = {column.name: column.what for column in learn_schema(typed_table()).columns}
    assert kinds == {
        "customer_id": "identifier",
        "age": "number",
        "income": "number",
        "mass": "number",
        "colour": "category",
        "member": "boolean",
        "joined": "date",
        "born": "date",
        "remark": "text",
        "country": "constant",
        "nothing": "all gaps",
        "place": "category",
    }


# -- numbers ---------------------------------------------------------------------------------------


def test_standard_scale_is_that_of_scikit_learn():
    values = np.random.default_rng(1).normal(5, 3, 100)
    _, X = encoded(values)
    np.testing.assert_allclose(X.ravel(), (values - values.mean()) / values.std(), rtol=1e-12, atol=1e-12)


def test_robust_scale_does_not_see_outliers():
    values = np.append(np.arange(99.0)[np.random.default_rng(0).permutation(99)], 1e12)
    encoding = learned(values, scale="robust").encoding
    assert encoding.center == np.median(values)
    assert encoding.spread == pytest.approx((74.25 - 24.75) / 1.349)


def test_robust_scale_without_a_middle_half_is_the_deviation():
    values = np.array([0.0] * 90 + [1.0] * 10)
    assert learned(values, scale="robust").encoding.spread == pytest.approx(values.std())


def test_no_scale_leaves_numbers_as_they_are():
    values = [3.0, 1.0, 2.5]
    assert encoded(values, scale="none")[1].ravel().tolist() == values


@pytest.mark.parametrize("factor", [1e30, 1e200, 1e-200, 1e306])
def test_extreme_scales(factor):
    values = np.random.default_rng(2).normal(size=50) * factor
    _, X = encoded(values)
    assert abs(X.mean()) < 1e-9 and X.std() == pytest.approx(1)


def test_odd_text_in_a_column_of_numbers_is_a_gap():
    values = [str(i * 7 % 31) for i in range(99)] + ["unknown"]
    names, X = encoded(values, scale="none", impute="zero")
    assert names == ["x", "x missing"]
    assert X[:, 1].sum() == 1 and X[-1].tolist() == [0, 1]


def test_text_with_too_many_odd_values_is_no_number():
    values = [str(i % 5) for i in range(90)] + ["unknown"] * 10
    assert learned(values).what == "category"


@pytest.mark.parametrize(("impute", "fill"), [("median", 2.0), ("mean", 5.0), ("zero", 0.0)])
def test_gaps_are_filled_and_marked(impute, fill):
    names, X = encoded([1.0, 2.0, 12.0, None, math.inf, math.nan], scale="none", impute=impute)
    assert names == ["x", "x missing"]
    assert X.tolist() == [[1, 0], [2, 0], [12, 0], [fill, 1], [fill, 1], [fill, 1]]


def test_filled_gaps_are_scaled_like_numbers():
    _, X = encoded([1.0, 2.0, 6.0, None], impute="mean")
    assert X[3].tolist() == [0, 1]


def test_without_imputation_gaps_stay_and_are_not_marked():
    for values in ([1.0, None, 3.0], ["a", None, "a"], [True, None, False]):
        names, X = encoded(values, impute="none")
        assert not any("missing" in name for name in names)
        assert np.isnan(X).any(axis=1).tolist() == [False, True, False]


def test_whole_numbers_with_few_values_stay_numbers():
    assert learned([1, 2, 3, 1, 2, 3] * 10).what == "number"


# -- truth, categories, text -----------------------------------------------------------------------


@pytest.mark.parametrize(("yes", "no"), [("yes", "no"), ("True", "False"), ("t", "f"), ("Y", "n"), (True, False)])
def test_truth(yes, no):
    names, X = encoded([yes, no, no, None])
    assert names == ["x", "x missing"]
    assert X.tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]


def test_one_feature_for_each_value():
    names, X = encoded(["b", "a", " b ", "a", None])
    assert names == ["x=a", "x=b", "x missing"]
    assert X.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_rare_values_are_others():
    names, X = encoded(["a"] * 20 + ["b"] * 10 + ["c"])
    assert names == ["x=a", "x=b", "x=other"]
    assert X[-1].tolist() == [0, 0, 1]


def test_most_frequent_values_are_kept():
    values = [f"v{i}" for i in range(10) for _ in range(i + 5)]
    names, _ = encoded(values, max_categories=2, categories="onehot")
    assert names == ["x=v8", "x=v9", "x=other"]


def test_a_value_named_other_does_not_clash():
    names, _ = encoded(["other"] * 20 + ["a"] * 20 + ["rare"])
    assert names == ["x=a", "x=other", "x=other values"]


def test_unseen_values_are_zeros_where_there_are_no_others():
    table = pa.table({"x": ["a", "b"] * 20})
    assert learn_schema(table).encode(pa.table({"x": ["c", None, "a"]})).tolist() == [[0, 0], [0, 0], [1, 0]]


def test_auto_hashes_where_frequent_values_cover_little():
    rng = np.random.default_rng(0)
    even = [f"v{i}" for i in rng.integers(0, 300, 3000)]
    skewed = [f"v{i}" for i in np.minimum(rng.geometric(0.5, 3000), 300)] + [f"w{i}" for i in range(200)]
    assert learned(even).encoding.n_hashes == 32
    assert learned(even, categories="onehot").encoding.n_hashes == 0
    assert learned(skewed).encoding.n_hashes == 0
    names, X = encoded(even, n_hashes=8)
    assert names == [f"x#{i}" for i in range(8)]
    assert (X.sum(axis=1) == 1).all()


def test_hash_marks_gaps():
    names, X = encoded(["a", "b", None] * 10, categories="hash", n_hashes=2)
    assert names == ["x#0", "x#1", "x missing"]
    assert X[2].tolist() == [0, 0, 1]


def test_text_can_be_refused():
    with pytest.raises(ValueError, match="Column 'x' is text"):
        learned(["a", "b", "a"], categories="error")


def test_words_are_hashed():
    values = [f"some words {i}" for i in range(50)]
    names, X = encoded(values, n_hashes=4)
    assert names == [f"x#{i}" for i in range(4)]
    np.testing.assert_allclose(X.sum(axis=1), 3 / math.sqrt(3), rtol=1e-6)
    assert learned(values).what == "text"


def test_numbers_that_came_as_categories_are_categories():
    for values in ([3, 1, 3, 1], ["3", "1", "3", "1"]):
        assert encoded(pa.array(values).dictionary_encode())[0] == ["x=1", "x=3"]


# -- identifiers, constants ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["id", "ID", "row_id", "customer_id", "customerId", "uuid", "order-key", "index"])
def test_distinct_whole_numbers_named_like_identifiers(name):
    values = np.random.default_rng(0).permutation(50)
    assert learned(values, name=name).what == "identifier"
    assert learned(values.astype(float).astype(str), name=name).what == "identifier"
    assert learned(values % 25, name=name).what == "number"
    assert learned(values + 0.5, name=name).what == "number"


@pytest.mark.parametrize("name", ["price", "humid", "paid", "monkey"])
def test_other_names_are_no_identifiers(name):
    assert learned(np.random.default_rng(0).permutation(50), name=name).what == "number"


@pytest.mark.parametrize("step", [1, 5])
def test_whole_numbers_that_count_up(step):
    assert learned(np.arange(7, 7 + 30 * step, step)).what == "identifier"
    assert learned(np.arange(30)[::-1]).what == "number"
    assert learned(np.arange(30.0) / 4).what == "number"
    assert learned([1, 2, 3]).what == "number"  # too few to tell


def test_counting_up_is_seen_in_a_sample_of_many_rows():
    values = np.arange(SAMPLE_ROWS + 12_345)
    assert learned(values).what == "identifier"
    assert learned(values[np.random.default_rng(0).permutation(len(values))]).what == "number"


@pytest.mark.parametrize("name", ["__index_level_0__", "Unnamed: 0", ""])
def test_index_of_a_frame(name):
    assert learned([0, 1, 2], name=name).what == "identifier"


def test_text_index_of_a_frame():
    assert learned(["a", "b", "a"], name="__index_level_0__").what == "identifier"


def test_distinct_words_are_identifiers():
    assert learned([f"a{i}" for i in range(30)]).what == "identifier"
    assert learned([f"a{i % 15}" for i in range(30)]).what == "category"


def test_named_columns_are_never_identifiers():
    table = pa.table({"id": np.arange(30), "name": [f"a{i}" for i in range(30)]})
    schema = learn_schema(table, TableOptions(columns=["name", "id"]))
    assert [c.what for c in schema.columns] == ["category", "number"]


@pytest.mark.parametrize("values", [[5, 5, 5], ["a", "a", "a"], [True, True, True], [datetime(2020, 1, 1)] * 3])
def test_constants_are_left_out(values):
    assert learned(values).what == "constant"
    gap = [*values[:2], None]
    assert learned(gap).encoding is not None


@pytest.mark.parametrize("values", [pa.nulls(3), pa.nulls(3, pa.string()), ["", "?", "NA"], [math.nan] * 3])
def test_gaps_alone_are_left_out(values):
    assert learned(values).what == "all gaps"


@pytest.mark.parametrize("values", [[[1], [2], [3]], [{"a": 1}] * 3, [b"a", b"b", b"c"]])
def test_types_that_are_no_features_are_left_out(values):
    column = learned(values)
    assert column.encoding is None and "no feature" in column.what


def test_no_feature_left():
    with pytest.raises(ValueError, match=r"No column is left as a feature \('a': constant"):
        learn_schema(pa.table({"a": [1, 1]}))


# -- dates -----------------------------------------------------------------------------------------


def test_parts_of_dates():
    start = datetime(2022, 1, 1)
    days = [start + timedelta(days=int(d)) for d in range(0, 720, 10)]
    names, X = encoded(days, scale="none")
    assert names == ["x", "x year sin", "x year cos", "x week sin", "x week cos"]
    assert X[0, 0] == (start - datetime(1970, 1, 1)).days
    np.testing.assert_allclose(X[0, 1:3], [0, 1], atol=1e-12)
    np.testing.assert_allclose(X[:, 1] ** 2 + X[:, 2] ** 2, 1)
    np.testing.assert_allclose(X[7, 3:], X[0, 3:], atol=1e-12)  # ten weeks later


def test_time_of_day_where_it_varies():
    hours = [datetime(2022, 1, 1, tzinfo=UTC) + timedelta(hours=6 * h) for h in range(40)]
    names, X = encoded(hours)
    assert names[-2:] == ["x day sin", "x day cos"]
    np.testing.assert_allclose(X[:4, -2:], [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-6)


def test_only_cycles_that_are_seen_whole():
    days = [datetime(2022, 3, 1) + timedelta(days=d) for d in range(60)]
    assert encoded(days)[0] == ["x", "x week sin", "x week cos"]
    assert encoded(days[:5])[0] == ["x"]


def test_dates_as_a_number_dropped_or_refused():
    days = [datetime(2022, 1, d) for d in range(1, 25)]
    assert encoded(days, dates="number")[0] == ["x"]
    assert learned(days, dates="drop").encoding is None
    with pytest.raises(ValueError, match="Column 'x' holds dates"):
        learned(days, dates="error")


def test_gaps_in_dates():
    names, X = encoded(["2022-01-01", "2022-01-03", "?", "2022-01-08"], scale="none")
    assert names[-1] == "x missing"
    assert X[2].tolist() == [18995.0, 0, 0, 1]


# -- the whole table -------------------------------------------------------------------------------


def test_texts_and_types_give_the_same_schema_and_rows():
    typed = typed_table()
    schemas = [learn_schema(typed), learn_schema(text_table(typed)), learn_schema(text_table(typed, "?"))]
    assert schemas[0] == schemas[1] == schemas[2]
    X = schemas[0].encode(typed)
    assert X.dtype == np.float64 and np.isfinite(X).all()
    assert (schemas[0].encode(text_table(typed)) == X).all()


def test_frames_give_the_same_schema_and_rows():
    polars = pytest.importorskip("polars")
    from tithe.tables.frames import frame_table

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
        assert learn_schema(typed.to_batches(max_chunksize=size)) == schema
    pieces = [schema.encode(batch) for batch in typed.to_batches(max_chunksize=7)]
    assert (np.concatenate(pieces) == schema.encode(typed)).all()


def test_cuts_of_dictionaries_do_not_matter():
    plain = pa.table({"x": ["b", "a", "b", "c"] * 10})
    batches = [
        pa.record_batch([b.column(0).dictionary_encode()], names=["x"]) for b in plain.to_batches(max_chunksize=3)
    ]
    assert learn_schema(batches) == learn_schema(plain)


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
    table = pa.table({"a": [1, 2], "y": [0, 1]})
    for options in ({"columns": ["z"]}, {"exclude": ["z"]}):
        with pytest.raises(ValueError, match=r"There is no column 'z'\. The columns are a, y"):
            learn_schema(table, TableOptions(**options))
    with pytest.raises(ValueError, match="'y' is asked for twice"):
        learn_schema(table, TableOptions(columns=["y"]), target="y")
    with pytest.raises(ValueError, match="both in columns and in exclude"):
        TableOptions(columns=["a"], exclude=["a"])
    with pytest.raises(ValueError, match="exclude is a list"):
        TableOptions(exclude="a")
    with pytest.raises(ValueError, match="scale must be one of"):
        TableOptions(scale="minmax")
    with pytest.raises(ValueError, match="2 columns are named 'a'"):
        learn_schema(pa.table([[1, 2], [3, 4]], names=["a", "a"]))
    with pytest.raises(ValueError, match="no rows"):
        learn_schema([])


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
        {"a": [1, 1], "b": ["x", "x"], "c": [True, True], "d": [datetime(2020, 1, 1)] * 2, "e": [[1], [2]]}
    )
    schema = learn_schema(table, TableOptions(columns=["a", "b", "c", "d"]))
    assert all(column.encoding is not None for column in schema.columns[:4])
    with pytest.raises(ValueError, match="Column 'e' is list<item: int64>, which is no feature"):
        learn_schema(table, TableOptions(columns=["e"]))
