"""What a schema says about each column, and what it finds in rows that are unlike those it was learned from."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from example_table import text_table, typed_table

import tithe
from tithe.rows.learn import learn_schema
from tithe.rows.schema import ColumnUse, ColumnWatch
from tithe.rows.uses import TableOptions

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"size": np.tile([1.0, 2.0, 4.0], 10), "code": [f"a{i}" for i in range(30)]})


def test_every_column_has_a_use() -> None:
    schema = learn_schema(typed_table())
    uses = {use.name: use for use in schema.uses()}
    assert list(uses) == typed_table().column_names
    assert uses["age"].use == "number" and uses["member"].use == "yes/no" and uses["joined"].use == "date"
    assert uses["customer_id"] == ColumnUse("customer_id", "left out", 0, "identifier", uses["customer_id"].loss)
    assert sum(use.features for use in uses.values()) == schema.n_features
    assert schema.losses()[0].startswith("'customer_id': left out")
    assert all(name in repr(schema) and f"<td>{name}</td>" in schema._repr_html_() for name in uses)


def test_large_numbers_have_grouped_digits_and_no_exponents() -> None:
    incomes = np.exp(RNG.normal(15.0, 3.0, 200))
    schema = learn_schema(
        pa.table({"x": incomes, "minus": -incomes, "day": 1e7 + np.arange(200) % 7, "gaps": [None, *incomes[1:]]})
    )
    detail = schema.uses()[0].detail
    assert f"asinh((x - {np.median(incomes):,.0f}) / " in detail and "asinh((x + " in schema.uses()[1].detail
    assert "e+" not in repr(schema) and f"become {np.median(incomes[1:]):,.0f}" in schema.uses()[3].detail


def test_html_obeys_no_text() -> None:
    assert "<b>" not in learn_schema(pa.table({"<b>": [1.0, 2.0, 4.0]}))._repr_html_()


def test_losses_are_a_warning_or_an_error() -> None:
    with pytest.warns(tithe.EncodingWarning, match="'code': left out"):
        tithe.open_dataset(FRAME)
    with pytest.raises(ValueError, match=r"strict=True.*\n- 'code': left out"):
        tithe.open_dataset(FRAME, strict=True)
    with pytest.warns(tithe.EncodingWarning, match="'code': left out") as caught:
        tithe.CoresetKMeans(2, random_state=0).fit(FRAME)
    assert len(caught) == 1 and caught[0].filename == __file__


def test_watch_counts_what_training_rows_had_not() -> None:
    typed = typed_table()
    schema = learn_schema(typed)
    for table in (typed, text_table(typed)):
        assert all((w.unseen, w.unreadable, w.outside) == (0, 0, 0) for w in schema.watch(table))
    age = pa.array(["?", "old", "1e9", "40"])
    rows = (
        text_table(typed.slice(0, 4)).set_column(1, "age", [age]).set_column(4, "colour", [["pink", None, "red", ""]])
    )
    watched = {watch.name: watch for watch in schema.watch(rows)}
    assert watched["age"] == ColumnWatch("age", rows=4, gaps=2, unreadable=1, outside=1, had_gaps=True)
    assert watched["colour"] == ColumnWatch("colour", rows=4, gaps=2, unseen=1, had_gaps=True)


def test_watch_counts_texts_of_new_words_alone() -> None:
    texts = [f"the order {word} came late" for word in "abcdefghijklmnopqrstuvwxyz"]
    schema = learn_schema(pa.table({"x": texts}))
    assert schema.columns[0].what == "text" and not schema.watch(pa.table({"x": texts}))[0].fault
    rows = ["Order!", "nobody knows", "...", None, "nobody knows", "knows nobody late"]
    assert schema.watch(pa.table({"x": rows}))[0] == ColumnWatch("x", rows=6, gaps=1, unseen=2)


def test_watch_counts_vectors_far_outside() -> None:
    schema = learn_schema(pa.table({"x": RNG.uniform(0.0, 1.0, (30, 3)).tolist()}))
    rows = [[0.5, 1.2, 0.1], [0.5, 1.7, -9.0], [0.5, None, 0.5], None]
    assert schema.watch(pa.table({"x": pa.array(rows)}))[0] == ColumnWatch("x", rows=4, gaps=2, outside=1)


def test_watch_counts_what_is_no_truth() -> None:
    schema = learn_schema(pa.table({"x": ["yes", "no"] * 15}))
    for values in ([1, 0, 5, None], [1.0, 0.5, np.nan, 0.0], ["yes", "5", "", "1"]):
        assert schema.watch(pa.table({"x": values}))[0] == ColumnWatch("x", rows=4, gaps=2, unreadable=1)
    for values in (["maybe"] * 20, [5] * 20, [0.5] * 19 + [7.0]):
        with pytest.raises(ValueError, match=r"Column 'x' holds .* such as .*, but it held yes or no when"):
            schema.encode(pa.table({"x": values}))


@pytest.mark.parametrize("values", [["red", "blue"] * 15, [f"the {i} and more" for i in range(30)]])
def test_dates_and_fractions_are_refused_where_text_was(values) -> None:
    schema = learn_schema(pa.table({"x": values}))
    for new in ([1.5, 2.0], [decimal.Decimal("0.5")], [datetime.date(2020, 1, 1)], [datetime.datetime(2020, 1, 1)]):
        with pytest.raises(ValueError, match=r"Column 'x' is .*, but it held values of another type"):
            schema.encode(pa.table({"x": new}))
    for new in ([1, 2], [1.0, None], [None, None], ["1.5", "2020-01-01"]):
        schema.encode(pa.table({"x": new}))


@pytest.mark.parametrize("categories", ["auto", "hash"])
def test_fractions_are_taken_where_categories_were_numbers(categories) -> None:
    options = TableOptions(categories=categories)
    for values in (pd.Categorical([0.5, 1.5] * 15), ["0.5", "1.5", "none"] * 10):
        schema = learn_schema(pa.table({"x": pa.array(values)}), options)
        assert schema.columns[0].what == "category"
        wanted = schema.encode(pa.table({"x": ["0.5", "1.5"]}))
        np.testing.assert_array_equal(schema.encode(pa.table({"x": [0.5, 1.5]})), wanted)


@pytest.mark.parametrize(
    ("leaking", "target"),
    [
        (lambda y, z: 2.0 * y + 1.0, "numbers"),
        (lambda y, z: np.exp(y), "numbers"),
        (lambda y, z: np.where(z, "paid", "open"), "classes"),
        (lambda y, z: np.where(z, RNG.uniform(1, 2, len(z)), RNG.uniform(3, 9, len(z))), "classes"),
    ],
)
def test_a_column_that_alone_predicts_the_target_is_named(leaking, target):
    y = RNG.normal(size=2000)
    z = y + RNG.normal(size=2000) > 0.0
    frame = pd.DataFrame({"a": y + 0.5 * RNG.normal(size=2000), "b": leaking(y, z), "c": RNG.choice(["u", "v"], 2000)})
    frame["y"] = y if target == "numbers" else np.where(z, "yes", "no")
    with pytest.warns(tithe.EncodingWarning, match="'b': it alone predicts the target with an .*: a probable leak"):
        source = tithe.open_dataset(frame, target="y", strict=True)
    assert len(source.schema.notes()) == 1 and not source.schema.losses()
    assert "Note: 'b'" in repr(source.schema)


def test_good_columns_are_no_leaks():
    y = RNG.normal(size=2000)
    frame = pd.DataFrame({"good": y + 0.3 * RNG.normal(size=2000), "key": [f"k{i // 2}" for i in range(2000)]})
    frame["y"] = np.where(y > 2.0, "rare", "usual")
    assert not learn_schema(pa.Table.from_pandas(frame), target="y").notes()
    frame["y"] = y
    assert not learn_schema(pa.Table.from_pandas(frame), target="y").notes()


def test_columns_of_nearly_one_value_are_noted() -> None:
    rare = np.arange(4000) % 2000 == 0
    columns = {"number": np.where(rare, 7.5, 3.0), "yes": ~rare, "text": np.where(rare, "odd", "usual"), "fine": rare}
    table = pa.table({**columns, "fine": np.arange(4000) % 500})
    schema = learn_schema(table)
    assert schema.notes() == (
        "'number': nearly constant, 2 of 4,000 values are not 3.",
        "'yes': nearly constant, 2 of 4,000 values are not True.",
        "'text': nearly constant, 2 of 4,000 values are not 'usual'.",
    )
    assert not schema.losses()
    frame = pd.DataFrame(table.to_pydict())
    with pytest.warns(tithe.EncodingWarning, match="These columns need a look:\n- 'number': nearly constant"):
        tithe.build_coreset(frame, objective="kmeans", coreset_size=100, random_state=0)
    assert learn_schema(table.slice(0, 100)).notes()[0] == "'number': nearly constant, 1 of 100 values is not 3."
    assert not learn_schema(table.slice(0, 99)).notes()  # too few rows to tell


def test_columns_without_information_are_said_to_be_left_out() -> None:
    n = 30
    columns = {"number": [3.0] * n, "word": ["a"] * n, "yes": [True] * n, "day": [np.datetime64("2020-01-01")] * n}
    frame = pd.DataFrame({**columns, "gaps": [np.nan] * n, "no words": [None] * n, "fine": RNG.normal(size=n)})
    with pytest.warns(tithe.EncodingWarning, match="'number': left out: every row has the same value") as caught:
        schema = tithe.open_dataset(frame).schema
    assert len(caught) == 1 and [use.name for use in schema.uses() if use.loss] == list(frame)[:-1]
    assert all("left out: no row has a value" in loss for loss in schema.losses()[-2:])
    assert not learn_schema(pa.table(frame), TableOptions(columns=list(frame))).losses()
