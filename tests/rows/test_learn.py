"""What each column is told to be, and what becomes of it."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from example_table import typed_table

from tithe.rows.learn import SAMPLE_ROWS, learn_schema
from tithe.rows.uses import TableOptions


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
    assert learned(even).encoding.n_hashes == 0  # there are ten rows of each value
    assert learned(even, max_categories=100).encoding.n_hashes == 1024
    assert learned(even, max_categories=100, categories="onehot").encoding.n_hashes == 0
    assert learned(skewed, max_categories=100).encoding.n_hashes == 0
    names, X = encoded(even, max_categories=100, n_hashes=8)
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
    np.testing.assert_allclose((X**2).sum(axis=1), 1.0, rtol=1e-6)
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


@pytest.mark.parametrize("values", [[["1"], ["2"], ["3"]], [{"a": 1}] * 3, [b"a", b"b", b"c"]])
def test_types_that_are_no_features_are_left_out(values):
    column = learned(values)
    assert column.encoding is None and "no feature" in column.what


def test_no_feature_left():
    with pytest.raises(ValueError, match=r"No column is left as a feature \('a': constant"):
        learn_schema(pa.table({"a": [1, 1]}))


# -- dates -----------------------------------------------------------------------------------------


def waves(cycle):
    return [f"x {cycle} {wave}{h}" for h in ("", " 2", " 3") for wave in ("sin", "cos")]


def test_parts_of_dates():
    start = datetime(2022, 1, 1)
    days = [start + timedelta(days=int(d)) for d in range(0, 720, 10)]
    names, X = encoded(days, scale="none")
    assert names == ["x", *waves("year"), *waves("week")]
    assert X[0, 0] == (start - datetime(1970, 1, 1)).days
    np.testing.assert_allclose(X[0, 1:3], [0, 1], atol=1e-12)
    for h in (1, 2, 3):
        np.testing.assert_allclose(X[:, 2 * h - 1] ** 2 + X[:, 2 * h] ** 2, 1 / h**2)
    np.testing.assert_allclose(X[7, 7:], X[0, 7:], atol=1e-12)  # ten weeks later


def test_time_of_day_where_it_varies():
    hours = [datetime(2022, 1, 1, tzinfo=UTC) + timedelta(hours=6 * h) for h in range(40)]
    names, X = encoded(hours)
    assert names[-6:] == waves("day")
    np.testing.assert_allclose(X[:4, -6:-4], [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-6)


def test_only_cycles_that_are_seen():
    days = [datetime(2022, 3, 1) + timedelta(days=d) for d in range(100)]
    assert encoded(days)[0] == ["x", *waves("year"), *waves("week")]
    assert encoded(days[:60])[0] == ["x", *waves("week")]
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
    assert X[2].tolist() == [18995.0, *[0] * 6, 1]
