"""What people write is read as what it means, and what can be read in two ways is said."""

from __future__ import annotations

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tithe
from tithe.rows.forms import parsed_amounts, parsed_dates, parsed_spans
from tithe.rows.learn import learn_schema
from tithe.rows.schema import TableSchema, frame_table
from tithe.rows.values import days_of

RNG = np.random.default_rng(0)
NUMBERS = np.round(np.exp(RNG.normal(7, 2, 60)), 2)


def learned(values, **more):
    """The first column of a table, and its rows in the units of the column."""
    table = pa.table({"x": values, "beside": RNG.normal(size=len(values))})
    schema = learn_schema(table, **more)
    assert TableSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    return schema.columns[0], schema.original_units(schema.encode(table))[:, : schema.columns[0].width]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: f"${x:,.2f}",
        lambda x: f"{x:,.2f} €",
        lambda x: f"USD {x:,.2f}",
        lambda x: f"{x:,.2f}%",
        lambda x: f"{x:,.2f}".replace(",", "'"),
        lambda x: f"{x:,.2f}".replace(",", " ").replace(".", ","),
        lambda x: f"{x:,.2f}".replace(",", "_").replace(".", ",").replace("_", "."),
        lambda x: f"{x:.2f} kr".replace(".", ","),
    ],
)
def test_amounts_are_numbers(write):
    column, units = learned([write(x) for x in NUMBERS])
    assert column.what == "number" and not column.doubt
    np.testing.assert_allclose(units[:, 0], NUMBERS, rtol=1e-12)


def test_thousands_millions_and_billions():
    texts = pa.array(
        ["$1.2M", "$50.0K", "-€3k", "$2bn", "4 million USD", "($1.5b)", "1.2M", "70k", "$1e3K", "5 m", "5m"]
    )
    wanted = [1.2e6, 5e4, -3e3, 2e9, 4e6, -1.5e9, 1.2e6, 7e4, np.nan, np.nan, np.nan]
    np.testing.assert_array_equal(parsed_amounts(texts, "point"), wanted)
    for mark, doubt in (("$", ""), ("", "K, M and B are taken as thousands, millions and billions")):
        column, units = learned([f"{mark}{x / 1e3:.5f}K" for x in NUMBERS])
        assert column.what == "number" and column.doubt == doubt
        np.testing.assert_allclose(units[:, 0], NUMBERS, rtol=1e-12)


@pytest.mark.parametrize(
    "texts", [["$50.00", "$1,250.50", "$7.00"] * 9, ["2013-05-01", "2013-06-02", "2013-06-03"] * 9]
)
def test_categories_of_amounts_and_dates_are_read_as_their_texts_are(texts):
    column, units = learned(texts)
    for ordered in (False, True):
        values = pa.array(pd.Categorical(texts, sorted(set(texts)), ordered=ordered))
        as_category, same = learned(values)
        assert as_category == column
        np.testing.assert_array_equal(same, units)


def test_categories_of_plain_numbers_stay_categories():
    for texts in (["1", "2", "3"] * 9, ["1", "2", "3", "x"] * 9):
        column, _ = learned(pa.array(texts).dictionary_encode())
        assert column.what == "category" and not column.doubt


def test_signs_of_amounts():
    texts = pa.array(["-$5", "$-5", "(5.00)", "\u22125", "+5", "5-", "$", "", None])
    np.testing.assert_array_equal(parsed_amounts(texts, "point"), [-5, -5, -5, -5, 5, *[np.nan] * 4])


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["1,234", "2,345", "9,870"] * 9, "commas are taken to group thousands"),
        (["$1.234", "$2.345", "$9.870"] * 9, "its points are taken to begin decimals, but may group thousands"),
        (["$5.50", "€6.10", "$7.25"] * 9, "$ and € are taken as one unit"),
        (["5%", "7%", "0.08"] * 9, "some values have a per cent sign"),
        (["03/04/2025", "05/06/2025", "11/12/2025"] * 9, "read with the month first, but may have the day first"),
        (["31/12/25", "30/11/24", "29/10/23"] * 9, "years of two digits"),
        (["18. März 2014", "19. März 2014", "1. Mai 2015"] * 9, "looks like dates in a form that is not read"),
        (["0x1F", "0xFF", "0x0a"] * 9, "looks like hexadecimal numbers"),
        (["$5 to 7", "$3 to 9", "$1 to 2"] * 9, "looks like amounts of money in a form that is not read"),
        (["20140418T133900+0200", "20140419T133900"] * 9, "times of another zone, such as +0200, are taken"),
        (["1991 W06", "1991 W07", "1991 W08"] * 9, "looks like dates in a form that is not read"),
        ([f"{i} km" for i in range(12)] * 3, "looks like amounts with a unit"),
        (["[1.0, 2.5]", "[0.1, 7]", "[3, 4e-5]"] * 9, "looks like vectors written as text"),
        (["1.5", "2", "3", "none of it"] * 9, "75% of the texts are numbers, others are such as 'none of it'"),
        (["007", "012", "123"] * 9, "leading zeros"),
        (["20130131", "20130201", "20130915"] * 9, "look like dates, but are taken as numbers"),
        (["Apr-14", "May-14", "Jan-99"] * 9, "years of two digits"),
        (["Fri Apr 18 13:39:00 +0200 2014", "Sat Apr 19 13:39:00 +0000 2014"] * 9, "such as +0200, are taken"),
        (["13-Feb-65", "14-Feb-65", "28-Mar-99"] * 9, "years of two digits"),
        ([str(2**60 + i * 7) for i in (5, 1, 3)], "whole numbers above 2**53 are rounded"),
        ([f"{2**60 + i * 7:,}" for i in (5, 1, 3)], "whole numbers above 2**53 are rounded"),
        ([f"0.1{i}{'1' * 20}" for i in (5, 1, 3)], "numbers with more digits than float64 holds are rounded"),
        (["2020-01-01T10:00+02:00", "2020-05-01T10:00+02:00"] * 9, "times of another zone, such as +02:00, are taken"),
        (["1/31/2020 10:00 -0500", "2/1/2020 1:00 +00:00"] * 9, "times of another zone, such as -0500, are taken"),
        (["2020-01-01 10:00:00.0000001", "2020-01-01 10:00:00.0000002"] * 9, "less than a microsecond apart"),
    ],
)
def test_what_can_be_read_in_two_ways_is_said(texts, said):
    column, _ = learned(texts)
    assert said in column.doubt


@pytest.mark.parametrize(
    ("pattern", "order"),
    [
        ("%m/%d/%Y %H:%M", "mdy"),
        ("%m-%d-%Y %I:%M %p", "mdy"),
        ("%d/%m/%Y %H:%M:%S", "dmy"),
        ("%d.%m.%Y %H:%M", ""),
        ("%Y/%m/%d %H:%M", "dmy"),
        ("%d %b %Y %H:%M", "dmy"),
        ("%B %d, %Y %I:%M %p", "dmy"),
        ("%a, %d %b %Y %H:%M:%S GMT", "dmy"),
        ("%d-%b-%Y", "dmy"),
        ("%Y%m%dT%H%M%S", "dmy"),
        ("%a %b %d %H:%M:%S %Y", "dmy"),
        ("%a %b %d %H:%M:%S +0000 %Y", "dmy"),
        ("%Y%m%dT%H%MZ", "dmy"),
    ],
)
def test_dates_in_many_forms(pattern, order):
    moments = [datetime.datetime(2013, 1, 1) + datetime.timedelta(hours=37 * i, minutes=i) for i in range(60)]
    column, units = learned([moment.strftime(pattern) for moment in moments])
    assert column.what == "date" and not column.doubt and not column.n_odd
    assert column.encoding.order == order
    wanted = days_of(pa.array([datetime.datetime.strptime(m.strftime(pattern), pattern) for m in moments]), ())
    np.testing.assert_allclose(units[:, 0], wanted, rtol=0, atol=1e-9)


def test_dates_have_the_bits_of_typed_ones():
    moment = datetime.datetime(2013, 7, 4, 15, 30, 5, 250_000)
    texts = ["7/4/2013 15:30:05.25", "07-04-2013 03:30:05.25 PM", "4 Jul 2013 15:30:05.25", "7/4/13 17:30:05.25 +02:00"]
    assert parsed_dates(pa.array(texts), "mdy").tolist() == [days_of(pa.array([moment]), ())[0]] * len(texts)


def test_months_and_quarters():
    texts = pa.array(["1939 Jan", "May 2013", "2013-05", "2013 Q2", "May-13", "2/30/2013", "13/13/2013", "maybe 3"])
    days = parsed_dates(texts, "mdy")
    wanted = [
        np.datetime64(day).astype(int) for day in ("1939-01-01", "2013-05-01", "2013-05-01", "2013-04-01", "2013-05-01")
    ]
    assert days[:5].tolist() == wanted and np.isnan(days[5:]).all()


def test_times_and_durations():
    hours = RNG.uniform(0, 24, 40)
    for values in (
        [f"{int(h)}:{int(h % 1 * 60):02}" for h in hours],
        [datetime.time(int(h), int(h % 1 * 60)) for h in hours],
        [f"{datetime.time(int(h), int(h % 1 * 60)):%I:%M %p}" for h in hours],
        [f"{datetime.time(int(h), int(h % 1 * 60)):%I:%M:%S %p}".lower() for h in hours],
        [f"{datetime.time(int(h), int(h % 1 * 60)):%I:%M%p}".replace("M", ".m.") for h in hours],
    ):
        column, units = learned(values)
        assert column.what == "time" and units.shape[1] == 7
        np.testing.assert_allclose(units[:, 0], np.floor(hours * 60) / 60, atol=1e-9)
    spans = [datetime.timedelta(minutes=int(m)) for m in RNG.integers(1, 9000, 40)]
    for values in (
        spans,
        [str(pd.Timedelta(span)) for span in spans],
        [f"{s.total_seconds() / 60:.0f} min" for s in spans],
    ):
        column, units = learned(values)
        assert column.what == "number" and column.encoding.form == "seconds"
        np.testing.assert_allclose(units[:, 0], [span.total_seconds() for span in spans])
    assert np.isnan(parsed_spans(pa.array(["5m", "10:75", "13:00 pm", "x", "3 S", "P1M", "P1Y2M"]))).all()


@pytest.mark.parametrize(
    ("write", "unit", "form"),
    [
        ("{}s", 1, "seconds"),
        ("{} s", 1, "seconds"),
        ("{} weeks", 604_800, "seconds"),
        ("{}.5 hours", 3600, "seconds"),
        ("P{}W", 604_800, "seconds"),
        ("{} months", 1, "months"),
        ("{} yrs", 12, "months"),
        ("P{}M", 1, "months"),
    ],
)
def test_durations_in_one_unit(write, unit, form):
    numbers = RNG.integers(1, 99, 40)
    column, units = learned([write.format(i) for i in numbers])
    assert column.what == "number" and column.encoding.form == form and not column.doubt
    np.testing.assert_allclose(units[:, 0], unit * (numbers + 0.5 * (".5" in write)))


def test_decades_are_no_durations():
    assert learned(["60s", "70s", "80s", "90s"] * 9)[0].what == "category"


def test_texts_that_nobody_would_write_have_no_form():
    long = pa.array([f"${'1' * 201}", f"1 Jan 2020{' ' * 200}", f"{' ' * 200}1:30", "1"])
    assert np.isnan(parsed_amounts(long, "point")).tolist() == [True, True, True, False]
    assert np.isnan(parsed_dates(long, "mdy")).all() and np.isnan(parsed_spans(long)).all()


@pytest.mark.parametrize(
    "text", ["A1", "Q1", "v1.2", "10-20", "3rd", "4x4", "C 001", "5m", "1/2", "10.0.0.1", "may", "12:5"]
)
def test_codes_stay_categories(text):
    assert learned([text, f"{text}b"] * 15)[0].what == "category"


def test_losses_by_type():
    assert "2 infinite values" in learned([1.0, np.inf, 3.0, -np.inf, 4.0])[0].doubt
    assert "above 2**53" in learned([2**60 + i * 7 for i in (5, 1, 3)])[0].doubt
    assert (
        "above 2**53" in learned([2**53 + 1, 5, 3])[0].doubt
        and "above 2**53" in learned(["9007199254740993", "5"])[0].doubt
    )
    assert "more digits" in learned([decimal.Decimal(f"0.{i}{'1' * 20}") for i in (5, 1, 3)])[0].doubt
    moments = pd.to_datetime(["2020-01-01 10:00", "2020-05-01 13:00", "2020-07-01 09:00"])
    assert "zone Asia/Tokyo are taken in UTC" in learned(pa.array(moments.tz_localize("Asia/Tokyo")))[0].doubt
    assert "microsecond" in learned(pa.array(pd.to_datetime([10**18, 10**18 + 1])))[0].doubt
    assert "microsecond" in learn_schema(pa.table({"x": pa.array(pd.to_datetime([1, 2])), "y": [1, 2]})).losses()[0]
    sizes = pd.Categorical(["S", "M", "L"] * 9, ["S", "M", "L"], ordered=True)
    assert "order of its categories" in learned(pa.array(sizes))[0].doubt


def test_nothing_is_said_of_values_that_keep_all_their_digits():
    for values in (
        [f"{x:.17g}" for x in NUMBERS],
        [f"{x:.30f}" for x in NUMBERS],
        [f"{x:.18e}" for x in NUMBERS],
        [f"{x:.2f}" + "0" * 20 for x in NUMBERS],
        [decimal.Decimal(str(x)) for x in NUMBERS],
        [f"2020-01-01T10:{i}:00+00:00" for i in range(10, 60)],
        pa.array(pd.to_datetime(["2020-01-01 10:00", "2020-05-01 13:00"], utc=True)),
        pa.array(pd.to_timedelta(np.arange(50) * 10**15)),
        pa.array(pd.Categorical(["S", "L"] * 9, ["S", "L"], ordered=True)),
    ):
        assert not learned(values)[0].doubt


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([pd.Timestamp("2020-01-01"), 1.5] * 15, "others are such as '1.5'"),
        ([pd.Timestamp("2020-01-01")] * 29 + [1.5], "'1.5', are not readable"),
        ([datetime.timedelta(3), 2] * 15, "others are such as '2'"),
        ([datetime.datetime(2020, 1, 1), pd.Timestamp("2020-01-01 10:00+09:00")] * 15, "times of another zone"),
        ([2**70 + 1, 2**71 + 1] * 15, "whole numbers above 2**53 are rounded"),
    ],
)
def test_objects_of_several_types_are_not_taken_for_one(values, said):
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object), "beside": RNG.normal(size=30)})
    assert said in learn_schema(frame_table(frame)).losses()[0]


def test_a_moment_among_days_keeps_its_time():
    days = pd.Series([datetime.date(2020, 1, 1), pd.Timestamp("2020-01-02 12:00"), None], dtype=object)
    _, units = learned(frame_table(pd.DataFrame({"x": days})).column("x"))
    assert units[:2, 0].tolist() == [18262, 18263.5]


# -- vectors ---------------------------------------------------------------------------------------


def embeddings(n: int = 40, k: int = 6):
    return RNG.normal(3, 2, (n, k)).astype(np.float32)


def test_vectors_in_every_kind_of_table(tmp_path):
    rows = embeddings()
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    table = pa.table({"v": fixed, "a": np.arange(40.0) ** 2})
    pq.write_table(table, tmp_path / "t.parquet")
    frame = pd.DataFrame({"v": list(rows), "a": np.arange(40.0) ** 2})
    listed = table.set_column(0, "v", [pa.array(rows.tolist(), pa.large_list(pa.float32()))])
    X = []
    for where in (table, tmp_path / "t.parquet", frame, listed):
        source = tithe.open_dataset(where)
        assert source.feature_names[:7] == [*(f"v[{i}]" for i in range(6)), "a"]
        assert source.schema.uses()[0].use == "vector" and not source.schema.losses()
        X.append(np.concatenate([task().X for task in source.tasks()]))
    for other in X[1:]:
        np.testing.assert_array_equal(other, X[0])
    ratio = (X[0][:, :6] - X[0][0, :6])[1:] / (rows - rows[0])[1:]  # one factor: angles and relative distances stay
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-4)


def test_vectors_of_polars_and_duckdb():
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    rows = embeddings()
    frame = polars.DataFrame(
        {"v": polars.Series(rows, dtype=polars.Array(polars.Float32, 6)), "a": np.arange(40.0) ** 2}
    )
    wanted = tithe.open_dataset(pd.DataFrame({"v": list(rows), "a": np.arange(40.0) ** 2}))
    query = duckdb.from_arrow(frame.to_arrow())
    for where in (frame, frame.lazy(), query):
        source = tithe.open_dataset(where)
        for task, other in zip(source.tasks(), wanted.tasks(), strict=True):
            np.testing.assert_array_equal(task().X, other().X)


def test_gaps_in_vectors_are_marked():
    values = [[1.0, 2.0], None, [3.0, np.nan], [5.0, 4.0]]
    column, units = learned(values)
    assert column.n_gaps == 2 and column.width == 3
    assert units[:, 2].tolist() == [0, 1, 1, 0] and units[0, :2].tolist() == [1, 2] and units[2, 0] == 3


def test_vectors_of_unequal_length_are_refused_by_name():
    with pytest.raises(ValueError, match=r"Column 'x' holds lists of 1 to 3 numbers.*exclude=\['x'\]"):
        learned([[1.0], [1.0, 2.0, 3.0]])
    schema = learn_schema(pa.table({"x": [[1.0, 2.0], [3.0, 1.0]]}))
    with pytest.raises(ValueError, match="Column 'x' holds lists of 3 numbers, but one length of 2 is needed"):
        schema.encode(pa.table({"x": [[1.0, 2.0, 3.0]]}))


@pytest.mark.parametrize("long", ["1" * 10**6 + "x", "z" * 10**6])
def test_a_message_quotes_the_beginning_of_a_long_value(long: str) -> None:
    for n_numbers in (60, 68):
        column, _ = learned(["1.5", "2", "7", "-3"] * (n_numbers // 4) + [long] * (70 - n_numbers))
        said = column.doubt + column.odd_value
        assert long[:20] in said and len(said) < 300
