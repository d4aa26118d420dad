"""What is learned from all rows: values of categories, and spreads that a sample leaves uncertain."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import available_threads
from tithe.rows.categories import CategoryEncoding
from tithe.rows.kinds import DateEncoding, NumberEncoding
from tithe.rows.learn import text_counts, with_counts
from tithe.rows.options import TableOptions
from tithe.rows.schema import TableSchema
from tithe.rows.values import coded_texts, one_array

_N_RUNS = 64
_MAX_ERROR = 0.02  # of a standard deviation that is taken from the sample

_MAX_VALUES = 100_000  # of a category that are counted; with more, those of the sample are kept

Sums = tuple[int, Array, Array]  # rows, and the sums of their features and of the squares


def learn_from_all_rows(
    schema: TableSchema,
    options: TableOptions,
    uncertain: Array,
    tasks: Iterable[Callable[[], Any]],
    batches_of: Callable[[list[str]], Iterable[Any]],
) -> TableSchema:
    """The schema with what a sample cannot tell.

    Parameters
    ----------
    schema : TableSchema
        Learned from a sample.
    options : TableOptions
    uncertain : array of int
        Features whose spread is measured in one pass over all rows: the ``tasks``, each of which makes some of them.
    batches_of : callable
        Gives all rows of some columns, as Arrow batches: values of categories are counted in them.
    """
    if len(uncertain):
        schema = with_exact_scales(schema, uncertain, tasks)
    names = counted_columns(schema)
    return with_all_values(schema, options, batches_of(names)) if names else schema


def counted_columns(schema: TableSchema) -> list[str]:
    """The categories with a feature for each value, and the columns that are constant in the sample."""
    return [
        column.name
        for column in schema.columns
        if column.is_constant or (isinstance(column.encoding, CategoryEncoding) and not column.encoding.n_hashes)
    ]


def with_all_values(schema: TableSchema, options: TableOptions, batches: Iterable[Any]) -> TableSchema:
    """The schema with the values that its categories have in all rows. A column that is not constant becomes a feature.

    Parameters
    ----------
    schema : TableSchema
    options : TableOptions
    batches : iterable of pyarrow.RecordBatch
        All rows, with the columns of `counted_columns`.
    """
    counts = ValueCounts(schema)
    for batch in batches:
        counts.add(value_counts(batch, counts.names, schema.na))
    return counts.applied(schema, options)


def value_counts(batch: Any, names: Iterable[str], na: Sequence[str]) -> dict[str, dict[str, int]]:
    """How often each value of some columns stands in some rows."""
    return {name: text_counts(*coded_texts(one_array(batch.column(name)), na)) for name in names}


class ValueCounts:
    """The values of categories, and how often each stands in all rows. Columns of too many are left out."""

    def __init__(self, schema: TableSchema) -> None:
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in counted_columns(schema)}

    @property
    def names(self) -> list[str]:
        """The columns that are counted."""
        return list(self._counts)

    def add(self, part: Mapping[str, Mapping[str, int]]) -> None:
        """Add the counts of some rows."""
        for name in set(part) & set(self._counts):
            self._counts[name].update(part[name])
            if len(self._counts[name]) > _MAX_VALUES:
                del self._counts[name]

    def applied(self, schema: TableSchema, options: TableOptions) -> TableSchema:
        """The schema with these values; those of the sample are kept where there are too many."""
        return with_counts(schema, options, {name: dict(sorted(v.items())) for name, v in self._counts.items()})


def scaled_features(schema: TableSchema) -> Array:
    """The features that are centred and divided by their spread: indices."""
    columns = zip(schema.first_features, schema.used, strict=True)
    return np.array([first for first, column in columns if _is_scaled(column.encoding)], np.int64)


def _is_scaled(encoding: Any) -> bool:
    return isinstance(encoding, (NumberEncoding, DateEncoding)) and (encoding.center, encoding.spread) != (0.0, 1.0)


def uncertain_features(schema: TableSchema, sample: Any) -> Array:
    """The scaled features whose standard deviation in the sample has a relative standard error above 2 %: indices.

    The error is that of the jackknife over 64 runs of neighbouring rows. So it is large if few rows have large values,
    and if rows come in bursts.
    """
    features = scaled_features(schema)
    if len(features) == 0 or len(sample) < _N_RUNS:
        return features[:0]
    rows = _columns(schema.encode(sample), features)
    edges = np.linspace(0, len(rows), _N_RUNS + 1).astype(np.int64)[:-1]
    counts = np.diff(np.append(edges, len(rows)))[:, None]
    sums, squares = np.add.reduceat(rows, edges), np.add.reduceat(rows * rows, edges)
    n_left, sums_left, squares_left = (part.sum(axis=0) - part for part in (counts, sums, squares))
    spreads = np.sqrt(np.maximum(squares_left / n_left - (sums_left / n_left) ** 2, 0.0))
    errors = np.sqrt((_N_RUNS - 1) * spreads.var(axis=0))
    uncertain: Array = features[errors > _MAX_ERROR * spreads.mean(axis=0)]
    return uncertain


def with_exact_scales(schema: TableSchema, features: Array, tasks: Iterable[Callable[[], Any]]) -> TableSchema:
    """The schema with means and standard deviations of some features over all rows, gaps filled.

    Parameters
    ----------
    features : array of int
    tasks : iterable of callables
        Each returns some rows of X, as the schema makes them. Their sums are added up in order.
    """
    return with_sums(schema, features, _in_threads(tasks, features))


def _in_threads(tasks: Iterable[Callable[[], Any]], features: Array) -> Iterator[Sums]:
    """The sums of the rows that tasks give, in order."""

    def sums(task: Callable[[], Any]) -> Sums:
        return feature_sums(task(), features)

    n_threads = available_threads()
    waiting: deque[Future[Sums]] = deque()
    with ThreadPoolExecutor(n_threads, thread_name_prefix="tithe-scales") as pool:
        for task in tasks:
            waiting.append(pool.submit(sums, task))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()


def feature_sums(X: Any, features: Array) -> Sums:
    """The number of rows, and the sums of some features and of their squares."""
    rows = _columns(X, features)
    with np.errstate(over="ignore"):  # a feature whose squares overflow keeps its scale
        return len(rows), rows.sum(axis=0), np.square(rows).sum(axis=0)


def with_sums(schema: TableSchema, features: Array, sums: Iterable[Sums]) -> TableSchema:
    """The schema with means and standard deviations by these sums of parts of the rows, added up in order."""
    total = no_sums(features)
    for part in sums:
        total = added(total, part)
    n_rows, first, second = total
    if n_rows == 0:
        return schema
    mean = first / n_rows
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = np.sqrt(np.maximum(second / n_rows - mean * mean, 0.0))
    known = np.isfinite(mean) & np.isfinite(deviation) & (deviation > 0.0)
    return _rescaled(schema, features[known], mean[known], deviation[known])


def _rescaled(schema: TableSchema, features: Array, mean: Array, deviation: Array) -> TableSchema:
    """The schema in which features of this mean and standard deviation have 0 and 1 instead."""
    change = {int(j): (float(m), float(s)) for j, m, s in zip(features, mean, deviation, strict=True)}
    columns = {column.name: column for column in schema.columns}
    for first, column in zip(schema.first_features, schema.used, strict=True):
        if first in change:
            old, (m, s) = column.encoding, change[first]
            assert isinstance(old, (NumberEncoding, DateEncoding))
            new = replace(old, center=old.center + m * old.spread, spread=s * old.spread)
            columns[column.name] = replace(column, encoding=new)
    return replace(schema, columns=tuple(columns.values()))


def no_sums(features: Array) -> Sums:
    """The sums of no rows."""
    return 0, np.zeros(len(features)), np.zeros(len(features))


def added(total: Sums, part: Sums) -> Sums:
    """The sums of the rows of both."""
    return total[0] + part[0], total[1] + part[1], total[2] + part[2]


def _columns(X: Any, features: Array) -> Array:
    chosen = X[:, features]
    return np.asarray(chosen.toarray() if sparse.issparse(chosen) else chosen, np.float64)
