"""What estimators say about themselves in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.core.state_checks import (
    Check,
    Labels,
    Sizes,
    check_size,
    expect,
)
from tithe.fit.base import Described
from tithe.rows.schema import TableSchema

_METHODS = ("predict", "predict_proba", "decision_function", "transform")


class ClassLabels(Check):
    """Labels of two or more ``classes``; there is one of the ``outputs`` for two classes, else one for each."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        Labels("classes", distinct=True).check(name, value, sizes)
        expect(sizes["classes"] >= 2, "there are fewer than two classes")
        check_size(name, "outputs", 1 if sizes["classes"] == 2 else sizes["classes"], sizes)


def probe(estimator: Any, d: int) -> None:
    """Call an estimator of another package with one row, so that errors show up at once."""
    row = np.zeros((1, d))
    for method in _METHODS:
        if hasattr(estimator, method):
            answer = getattr(estimator, method)(row)
            expect(len(answer) == 1 if isinstance(answer, np.ndarray) else sparse.issparse(answer), f"{method} fails")


MAX_BARS = 20  # of a chart
MAX_COLUMNS = 1000  # whose coefficients or centres are listed by name
_MAX_DAYS = 3_000_000  # since 1970: dates of four digits end before


@dataclass(frozen=True)
class BarChart:
    """Bars with a title; ``axis`` says what the values are."""

    title: str
    labels: list[str]
    values: Array
    axis: str

    @classmethod
    def of_largest(cls, what: str, labels: Sequence[Any], values: Array, axis: str) -> Self:
        """The bars that are largest in absolute value, at most `MAX_BARS`."""
        largest = np.argsort(-np.abs(values), kind="stable")[:MAX_BARS]
        title = what.capitalize() if len(values) <= MAX_BARS else f"The {MAX_BARS} largest {what}"
        return cls(title, [str(labels[i]) for i in largest], values[largest], axis)


def table_schema(model: object) -> TableSchema | None:
    """The schema of the table that a model was fitted on; None without one, and for models of other libraries."""
    return model.schema_ if isinstance(model, Described) else None


def known_names(model: object) -> list[str] | None:
    """Names of the columns that a model was fitted on; None without names, and for models of other libraries."""
    return model.feature_names if isinstance(model, Described) else None


def column_names(learner: Described) -> list[str]:
    """Names of the columns that a learner was fitted on; x0, x1, ... where they had none."""
    return learner.feature_names or [f"x{j}" for j in range(learner.n_encoded_)]


def in_units(learner: Described, points: Array) -> Array:
    """Points in the space of X in the units of the table that the learner was fitted on, if it was one."""
    return np.asarray(points, np.float64) if learner.schema_ is None else learner.schema_.original_units(points)


_COLLINEAR = 0.99  # R² of a column by the others from which its coefficient means nothing alone
_MAX_COMPARED = 200  # columns of which each is regressed on the others


def collinear_columns(learner: Described, rows: Block | None) -> list[str]:
    """The columns that are nearly sums of multiples of others, by weighted rows. Those of categories always are.

    The R² of column j by the others is 1 - 1 / (C^-1)_jj, C the correlations.
    """
    if rows is None or not isinstance(rows.X, np.ndarray):
        return []
    schema = learner.schema_
    kinds = (
        ["number"] * rows.n_features
        if schema is None
        else [column.encoding.kind for column in schema.used if column.encoding for _ in range(column.width)]
    )
    share = (rows.weights() / rows.total_weight)[:, None]
    X = rows.X - (share * rows.X).sum(axis=0)
    spread = np.sqrt((share * X**2).sum(axis=0))
    at = np.flatnonzero((spread > 0.0) & ~np.isin(kinds, ("category", "text")))
    if not 1 < len(at) <= min(_MAX_COMPARED, len(rows) // 2):
        return []
    Z = X[:, at] / spread[at]
    inverse = np.linalg.inv((share * Z).T @ Z + 1e-9 * np.eye(len(at)))
    names = column_names(learner)
    return [names[j] for j in at[np.diag(inverse) > 1.0 / (1.0 - _COLLINEAR)]]


def named_coefficients(
    learner: Described, coef: Array, outputs: Sequence[Any], more: Mapping[str, Array] | None = None
) -> list[dict[str, Any]]:
    """The coefficients (k, d) of each column, largest first: one number, or one for each of the ``outputs``.

    ``more`` are further numbers by name, (k, d) each or wider; None in place of a number says that there is none.
    """
    names, more = column_names(learner), more or {}
    order = np.argsort(-np.abs(coef).max(axis=0), kind="stable")[:MAX_COLUMNS]

    def plain(value: Any) -> float | None:
        return float(value) if np.isfinite(value) else None

    if len(coef) == 1:
        return [
            {
                "column": names[j],
                "coefficient": float(coef[0, j]),
                **{name: plain(values[0, j]) for name, values in more.items()},
            }
            for j in order
        ]
    return [
        {
            "column": names[j],
            "coefficients": {str(output): float(coef[i, j]) for i, output in enumerate(outputs)},
            **{
                name: {str(output): plain(values[i, j]) for i, output in enumerate(outputs)}
                for name, values in more.items()
            },
        }
        for j in order
    ]


def strongest(coef: Array) -> Array:
    """The largest coefficient of each column, whatever its sign: (d,), of (k, d)."""
    largest: Array = np.take_along_axis(coef, np.abs(coef).argmax(axis=0)[None], axis=0)[0]
    return largest


def named_clusters(
    learner: Described, centers: Array, weights: Array, typical_rows: Array, coreset: Block | None
) -> list[dict[str, Any]]:
    """Weight, centre and typical row of each cluster, in the units of the columns.

    The columns that tell the clusters apart come first: by the variance of the centres in the space of X. The values of
    the typical rows are part of it if the ``coreset`` is given.
    """
    share = weights / weights.sum()
    spread = share @ np.square(centers - share @ centers)
    order = np.argsort(-spread, kind="stable")[:MAX_COLUMNS]
    named_centers = named_values(learner, centers, order)
    rows = None if coreset is None else named_values(learner, _rows_with_ids(coreset, typical_rows), order)
    return [
        {
            "cluster": i,
            "weight": float(weights[i]),
            "share": float(share[i]),
            "center": named_centers[i],
            "typical_row": int(typical_rows[i]) if typical_rows[i] >= 0 else None,
            **({} if rows is None or typical_rows[i] < 0 else {"typical_values": rows[i]}),
        }
        for i in range(len(centers))
    ]


def _rows_with_ids(coreset: Block, ids: Array) -> Array:
    """The rows of the coreset with these ids, the first row in place of an id of -1."""
    position = {int(row): at for at, row in enumerate(coreset.row_ids())}
    rows = coreset.X[np.array([position.get(int(row), 0) for row in ids])]
    return rows if isinstance(rows, np.ndarray) else rows.toarray()


def named_values(learner: Described, points: Array, order: Array) -> list[dict[str, float | str]]:
    """Points in the space of X by the names of their columns and in the units of these; days are written as dates.

    ``order`` numbers the columns that are listed.
    """
    names = column_names(learner)
    days = frozenset() if learner.schema_ is None else learner.schema_.day_features
    rows = in_units(learner, points)
    return [{names[j]: _date_text(row[j]) if j in days else float(row[j]) for j in order} for row in rows]


def _date_text(days: float) -> str | float:
    if not abs(days) < _MAX_DAYS:
        return float(days)
    return str(np.datetime64(round(days), "D"))
