"""The same values give the same bits, whatever type they came with."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from tithe.rows.values import coded_texts, days_of, numbers_of, parsed_days, parsed_numbers, truths_of, words_of


@pytest.mark.parametrize("gap", ["", "?", "NA", "n/a", "N/A", "-", "null", "NULL", "nan", "  ", " ? "])
def test_usual_gap_texts(gap):
    assert np.isnan(numbers_of(pa.array(["1", gap]), ())).tolist() == [False, True]
    assert coded_texts(pa.array(["a", gap]), ())[0].tolist() == [0, -1]
    assert np.isnan(days_of(pa.array(["2020-01-01", gap]), ())).tolist() == [False, True]
    assert np.isnan(truths_of(pa.array(["yes", gap]), ())).tolist() == [False, True]


@pytest.mark.parametrize(
    "values", [pa.array([1.5, -999.0]), pa.array(["1.5", "-999"]), pa.array(["1.5", "-999"]).dictionary_encode()]
)
def test_own_gap_texts_hold_for_numbers_too(values):
    assert np.isnan(numbers_of(values, ("-999",))).tolist() == [False, True]
    assert not np.isnan(numbers_of(values, ())).any()


@pytest.mark.parametrize("text", ["1", "-1", "+5", "1e5", "0.5", "5.", "1E-3", " 7 "])
def test_numbers_are_parsed_as_python_does(text):
    assert numbers_of(pa.array([text, "oops"]), ()).tolist()[0] == float(text)


@pytest.mark.parametrize("text", ["1_0", "0x10", "1,5", "1e", "--5", "abc", "inf", "-Infinity", "1e400", "١"])
def test_odd_texts_are_gaps(text):
    parsed = parsed_numbers(pa.array([text, "2"]))
    assert np.isnan(parsed[0]) and parsed[1] == 2


def test_infinity_is_a_gap():
    assert np.isnan(numbers_of(pa.array([np.inf, -np.inf, np.nan, 1.0]), ())).tolist() == [True, True, True, False]


def test_numbers_of_other_types():
    for type_ in (pa.int8(), pa.uint64(), pa.float16(), pa.decimal128(21, 2)):
        values = pa.array([1, None, 3]).cast(type_)
        np.testing.assert_array_equal(numbers_of(values, ()), [1, np.nan, 3])
    np.testing.assert_array_equal(numbers_of(pa.array([True, None, False]), ()), [1, np.nan, 0])


@pytest.mark.parametrize(("yes", "no"), [("true", "false"), ("Yes", "NO"), ("t", "F"), ("Y", "n"), (" TRUE ", "False")])
def test_words_for_truth(yes, no):
    np.testing.assert_array_equal(truths_of(pa.array([yes, no, "maybe", None]), ()), [1, 0, np.nan, np.nan])


def test_whole_numbers_have_one_text():
    for values in ([1, 2, None], [1.0, 2.0, None]):
        codes, texts = coded_texts(pa.array(values), ())
        assert [texts[c] if c >= 0 else None for c in codes] == ["1", "2", None]


def test_days_of_one_moment_in_every_type():
    moment = datetime.datetime(2023, 7, 4, 12, 30, 5, 250_000, tzinfo=datetime.UTC)
    wanted = moment.timestamp() / 86_400
    for unit in ("ms", "us", "ns"):
        for zone in (None, "UTC", "America/New_York"):
            assert days_of(pa.array([moment]).cast(pa.timestamp(unit, zone)), ())[0] == wanted
    texts = [
        "2023-07-04T12:30:05.25Z",
        "2023-07-04 12:30:05.250000",
        "2023-07-04 12:30:05.250000000",
        "2023-07-04T14:30:05.25+02:00",
        "2023-07-04T08:00:05.25-0430",
        "2023-07-04 13:30:05.25+01",
    ]
    assert days_of(pa.array(texts), ()).tolist() == [wanted] * len(texts)


def test_dates_without_time():
    day = datetime.date(1969, 12, 30)
    for values in (
        pa.array([day]),
        pa.array([day]).cast(pa.date64()),
        pa.array(["1969-12-30"]),
        pa.array(["30.12.1969"]),
    ):
        assert days_of(values, ()).tolist() == [-2.0]


_NO_DATES = ["2023-02-30", "2023-13-01", "2023-1-1", "4.7.2023", "04/07/2023", "31.13.2023", "2023-07-04T25:00", "1970"]


@pytest.mark.parametrize("text", _NO_DATES)
def test_texts_that_are_no_dates(text):
    parsed = parsed_days(pa.array([text, "1970-01-02"]))
    assert np.isnan(parsed[0]) and parsed[1] == 1


def test_words():
    counts, words = words_of(pa.array(["Late, and LATE!", "", None, "Über-gut"]))
    assert counts.tolist() == [3, 0, 0, 2]
    assert words.to_pylist() == ["late", "and", "late", "über", "gut"]


def test_gaps_alone_are_no_numbers_and_no_dates() -> None:
    """A batch in which a column of amounts or dates has gaps alone."""
    for n in (0, 3):
        gaps = pa.array([None] * n, pa.string())
        for form in ("", "point", "comma", "seconds"):
            assert np.isnan(numbers_of(gaps, (), form)).all() and len(numbers_of(gaps, (), form)) == n
        for order in ("", "mdy", "dmy"):
            assert np.isnan(days_of(gaps, (), order)).all()
