"""Where a model is wrong on rows that it has not seen."""

from __future__ import annotations

import numpy as np
import pytest

from tithe.report.scores import MAX_CONFUSED_CLASSES, confusion, error_figures, error_tables, reliability, residuals
from tithe.report.tables import typical_row_table


def test_weights_are_repeated_rows(rng: np.random.Generator) -> None:
    y, predicted = rng.normal(size=60), rng.normal(size=60).round(1)
    weight = rng.integers(0, 4, size=60).astype(float)
    rows = np.repeat(np.arange(60), weight.astype(int))
    ones = np.ones(len(rows))
    assert residuals(y, predicted, weight) == [
        {**group, "predicted": pytest.approx(group["predicted"])} for group in residuals(y[rows], predicted[rows], ones)
    ]
    chances, happened = rng.uniform(size=60), rng.uniform(size=60) < 0.5
    for a, b in zip(
        reliability(chances, happened, weight), reliability(chances[rows], happened[rows], ones), strict=True
    ):
        assert a == pytest.approx(b)


def test_equal_chances_stay_in_one_group() -> None:
    chances = np.repeat([0.2, 0.7], [40, 60])
    groups = reliability(chances, np.arange(100) % 2 == 0, np.ones(100))
    assert groups == [
        {"predicted": pytest.approx(0.2), "observed": 0.5, "weight": 40.0},
        {"predicted": pytest.approx(0.7), "observed": 0.5, "weight": 60.0},
    ]
    (group,) = reliability(np.full(5, 0.3), np.ones(5), np.ones(5))
    assert group["observed"] == 1.0


def test_quantiles_of_residuals() -> None:
    (group,) = residuals(np.arange(101.0), np.zeros(101), np.ones(101))
    assert group["residuals"] == {"0.05": 5.0, "0.25": 25.0, "0.5": 50.0, "0.75": 75.0, "0.95": 95.0}


def test_tables_and_figures() -> None:
    labels = np.array(["a", "b", "a", "b"])
    details = {
        "confusion": confusion(labels, np.array(["a", "b", "b", "b"]), np.array([1.0, 1.0, 3.0, 1.0]), labels[:2])
    }
    (table,) = error_tables(details)
    assert table.rows == [["a", "4", "25.0 %", "75.0 %"], ["b", "2", "0.0 %", "100.0 %"]]
    assert table.note == (
        "Of the rows of class b, 100.0 % were predicted b. In all, 50.0 % were predicted correctly; always to say a "
        "would be right for 66.7 %."
    )
    assert error_tables({}) == [] and error_figures({}) == {}
    many = np.arange(MAX_CONFUSED_CLASSES + 1)
    assert confusion(many, many, np.ones(len(many)), many) is None
    groups = reliability(np.linspace(0, 1, 50), np.arange(50) > 25, np.ones(50))
    shown = error_figures({"reliability": groups, "chance_of": "b", "residuals": residuals(many, many, many + 1.0)})
    assert len(shown) == 2 and all(svg.startswith("<svg ") and note for svg, note in shown.values())


def test_typical_rows_have_the_columns_of_the_file() -> None:
    values = {"income": 26437.2, "city=York": 0.0, "city=Hull": 1.0, "since": "2024-04-29", "since year sin": 0.3}
    clusters = [
        {"cluster": 0, "weight": 2.0, "typical_values": values | {"member": 1.0}},
        {"cluster": 1, "weight": 9.0, "typical_values": values | {"city=Hull": 0.0, "member": 0.0}},
        {"cluster": 2, "weight": 5.0},
    ]
    kinds = {"income": "number, 2 gaps in 9 rows", "city": "category", "since": "date", "member": "boolean"}
    columns = [{"column": name, "kind": kind, "treatment": ""} for name, kind in kinds.items()]
    table = typical_row_table({"clusters": clusters, "columns": columns}, most=10)
    assert table is not None and table.columns == ["cluster", "income", "city", "since", "member"]
    assert table.rows == [
        ["1", "26,440", "other", "2024-04-29", "false"],
        ["0", "26,440", "Hull", "2024-04-29", "true"],
    ]
    of_arrays = typical_row_table({"clusters": [{**clusters[0], "typical_values": {"0": 1.5}}], "columns": []}, most=10)
    assert of_arrays is not None and of_arrays.rows == [["0", "1.5"]]
    assert typical_row_table({"coefficients": []}, most=10) is None
