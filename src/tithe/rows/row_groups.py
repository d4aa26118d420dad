"""Tables in row groups: pieces that can be read by themselves, and whose numbers of rows are known."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tithe.core.contracts import Source
from tithe.core.data import Array, Block, concat
from tithe.core.errors import FileFormatError
from tithe.rows.columns import Choice, Columns, resolve_columns
from tithe.rows.learn import SAMPLE_ROWS as SCHEMA_ROWS
from tithe.rows.learn import SAMPLE_RUNS, spread_rows
from tithe.rows.leaves import (
    SAMPLE_ROWS,
    Loaded,
    at_least_one,
    fair_shares,
    joined,
    unless_all_bad,
    usual_leaf_rows,
)
from tithe.rows.paths import DataFile, no_rows
from tithe.rows.rows import BlockBuilder, row_of, target_classes

HUGE_BYTES = 2**27  # of X: a row group that is larger is never read whole
SAMPLE_GROUPS = 8
BATCH_ROWS = 16_384

_ID_BYTES = 8  # of a row
_BATCH_BYTES = 2**25


class Group(NamedTuple):
    """A row group: the number of its file, its own in that file, where its rows stand."""

    file: int
    number: int
    first_in_file: int
    first: int
    n_rows: int


def batch_rows(n_rows: int | None, n_columns: int) -> int:
    """Rows of a batch: ``n_rows`` (None: `BATCH_ROWS`), or fewer where there are many columns."""
    return max(1, min(n_rows or BATCH_ROWS, _BATCH_BYTES // (8 * max(1, n_columns))))


class RowGroupSource(Source):
    """Rows of row groups, in their order. A subclass reads them, in `_batches`.

    Small consecutive row groups are joined into a leaf. A leaf is read when its task is called; only row groups of
    more than `HUGE_BYTES` are read while tasks are iterated over, in leaves of equal size.
    """

    _files: list[DataFile]
    _groups: list[Group]
    _columns: Columns

    def _learn(self, fields: pa.Schema, choice: Choice) -> None:
        """Learn the schema of the table, whose files and row groups are set."""
        if not self._groups:
            raise no_rows(self._files)
        last = self._groups[-1]
        self.n_rows = last.first + last.n_rows
        self._columns = resolve_columns(fields, self._schema_sample(fields.names), choice)
        self.n_bytes = sum(file.size for file in self._files)
        self.schema, self.uncertain = self._columns.schema, self._columns.uncertain
        self.is_sampled = self.n_rows > self.schema.n_rows
        self.n_features, self.feature_names = self.schema.n_features, self.schema.feature_names
        self.row_bytes = self.schema.row_bytes
        self.leaf_rows = usual_leaf_rows(self.row_bytes)
        self._cuts: dict[int, list[tuple[int, tuple[Group, ...]]]] = {}  # the last cut into leaves, by their size

    @abstractmethod
    def _batches(
        self, group: Group, names: Sequence[str], *, use_threads: bool = False, n_rows: int | None = None
    ) -> Iterator[Any]:
        """The record batches of a row group, read piece by piece."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cuts": {}}

    def _leaves(self, leaf_rows: int) -> list[tuple[int, tuple[Group, ...]]]:
        """The number of a leaf and its row groups. A huge row group stands alone, with the first of its several leaves.

        The list is kept: on a cluster every task asks for some of the leaves.
        """
        if leaf_rows not in self._cuts:
            leaves, number = [], 0
            for huge, groups in groupby(self._groups, self._is_huge):
                for together in joined(list(groups), lambda g: g.n_rows, 0 if huge else leaf_rows):
                    leaves.append((number, together))
                    number += -(-together[0].n_rows // leaf_rows) if huge else 1
            self._cuts = {leaf_rows: leaves}
        return self._cuts[leaf_rows]

    def _is_huge(self, group: Group) -> bool:
        return group.n_rows * max(_ID_BYTES, self.row_bytes) > HUGE_BYTES

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        size = self.leaf_rows if leaf_rows is None else leaf_rows
        number, groups = self._leaves(size)[-1]
        return number + (-(-groups[0].n_rows // size) if self._is_huge(groups[0]) else 1)

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on."""
        tasks = self._loaders(first, self.leaf_rows if leaf_rows is None else leaf_rows)
        if first or not self._columns.leaves_rows_out:
            return tasks
        return unless_all_bad(tasks, self, self._files)

    def _loaders(self, first: int, leaf_rows: int) -> Iterator[Callable[[], Block]]:
        leaves = self._leaves(leaf_rows)
        for number, groups in leaves[bisect_right(leaves, first, key=itemgetter(0)) - 1 :]:
            if self._is_huge(groups[0]):
                yield from map(Loaded, self._streamed(groups[0], leaf_rows, max(0, first - number)))
            elif number >= first:
                yield partial(self._load, groups)

    def _load(self, groups: Sequence[Group]) -> Block:
        rows = BlockBuilder(self._columns, sum(group.n_rows for group in groups))
        for group in groups:
            for batch in self._batches(group, self._columns.read):
                self._add(rows, batch, group)
        return self._block(rows, np.arange(groups[0].first, groups[0].first + rows.n_rows), groups[0])

    def _streamed(self, group: Group, leaf_rows: int, skip: int) -> Iterator[Block]:
        """A huge row group in leaves of ``leaf_rows`` rows, the first ``skip`` of them left out."""
        start = skip * leaf_rows
        batches = self._batches(group, self._columns.read)
        passed, batch = 0, None
        while start < group.n_rows:
            size = min(leaf_rows, group.n_rows - start)
            rows = BlockBuilder(self._columns, size)
            while passed < start + size:
                if batch is None:
                    batch = next(batches, None)
                    if batch is None:
                        break
                wanted = batch[max(0, start - passed) : start + size - passed]
                if wanted.num_rows:
                    self._add(rows, wanted, group)
                if passed + batch.num_rows > start + size:
                    break  # the rest belongs to the next leaf
                passed += batch.num_rows
                batch = None
            yield self._block(rows, np.arange(group.first + start, group.first + start + size), group)
            start += size

    def _add(self, rows: BlockBuilder, batch: Any, group: Group) -> None:
        try:
            rows.add(batch)
        except (ValueError, pa.ArrowException) as error:
            raise self._broken(group, error) from error

    def _block(self, rows: BlockBuilder, ids: Array, group: Group) -> Block:
        try:
            return rows.block(ids, self._locate)
        except FileFormatError as error:
            raise self._broken(group, error) from error

    def _locate(self, row_id: int) -> str:
        group = self._groups[bisect_right(self._groups, row_id, key=lambda g: g.first) - 1]
        return row_of(self._files[group.file].path, row_id - group.first + group.first_in_file)

    def _broken(self, group: Group, error: Exception) -> FileFormatError:
        return FileFormatError(f"{self._files[group.file].path!r}, row group {group.number}: {error}")

    def _schema_sample(self, names: Sequence[str]) -> Iterator[Any]:
        """Rows from all over the data. Of many row groups only beginnings are read, which takes little time."""
        n_groups = len(self._groups)
        if n_groups < SAMPLE_GROUPS or (self.n_rows or 0) <= SCHEMA_ROWS:
            runs = spread_rows(self.n_rows or 0)
        else:
            chosen = [self._groups[i * n_groups // SAMPLE_RUNS] for i in range(SAMPLE_RUNS)]
            groups = list(dict.fromkeys(chosen))
            runs = [(g.first, g.first + min(g.n_rows, SCHEMA_ROWS // len(groups))) for g in groups]
        for group in self._groups:
            inside = [(max(a, group.first), min(b, group.first + group.n_rows)) for a, b in runs]
            wanted = [(a - group.first, b - group.first) for a, b in inside if a < b]
            if wanted:
                yield from self._runs_of(group, wanted, names)

    def _validated(self, batch: Any, group: Group) -> Any:
        """The batch, if it is sound: text that is no UTF-8 would be told only where it is used."""
        try:
            batch.validate(full=True)
        except (ValueError, pa.ArrowException) as error:
            raise self._broken(group, error) from error
        return batch

    def _runs_of(self, group: Group, runs: Sequence[tuple[int, int]], names: Sequence[str]) -> Iterator[Any]:
        """Runs of neighbouring rows of a row group, which is read as far as the last of them."""
        first = 0
        for batch in self._batches(group, names, use_threads=True, n_rows=min(BATCH_ROWS, max(1, runs[-1][1]))):
            for start, stop in runs:
                part = batch[max(0, start - first) : max(0, stop - first)]
                if part.num_rows:
                    yield self._validated(part, group)
            first += batch.num_rows
            if first >= runs[-1][1]:
                return

    def numbered_batches(self, names: Sequence[str]) -> Iterator[tuple[Array, Any]]:
        """All rows of some columns, as they stand in the files, and their ids."""
        for group in self._groups:
            passed = group.first
            for batch in self._batches(group, names, use_threads=True):
                yield np.arange(passed, passed + batch.num_rows), batch
                passed += batch.num_rows

    def classes(self) -> Array:
        """All values of the target, in ascending order, from a pass over that column."""

        def batches_of(names: list[str]) -> Iterator[Any]:
            for group in self._groups:
                for batch in self._batches(group, names, use_threads=True):
                    yield self._validated(batch, group)

        return target_classes(self._columns, batches_of)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) from row groups spread evenly over all of the data.

        Of many large row groups, each gives rows of another part of it, and is read no further: half of their bytes.
        """
        size = SAMPLE_ROWS if size is None else size
        n_groups = len(self._groups)
        n_rows = self.n_rows or 0
        wanted = max(SAMPLE_GROUPS, n_groups // 16, -(-size * n_groups // n_rows))
        if wanted < n_groups:
            at = (np.arange(wanted) + rng.random()) * n_groups / wanted
            groups = [self._groups[int(i)] for i in at]
        else:
            groups = self._groups
        held = [group.n_rows for group in groups]
        shares = fair_shares(held, min(size, sum(held)), rng.random())
        n_parts = len(groups) if wanted < n_groups and min(held) >= 2 * max(shares) * len(groups) else 1
        parts = rng.permutation(len(groups)) % n_parts
        drawn = []
        for group, share, part in zip(groups, shares, parts, strict=True):
            first, last = (group.n_rows * edge // n_parts for edge in (part, part + 1))
            if share:
                chosen = rng.choice(last - first, share, replace=False, shuffle=False)
                drawn.append(self._drawn(group, first + np.sort(chosen)))
        return at_least_one(concat(drawn), self, self._files, size)

    def _drawn(self, group: Group, positions: Array) -> Block:
        """The rows at ascending ``positions`` of a row group."""
        rows = BlockBuilder(self._columns, len(positions))
        passed = 0
        for batch in self._batches(group, self._columns.read, use_threads=True):
            start, stop = np.searchsorted(positions, (passed, passed + batch.num_rows))
            self._add(rows, batch.take(pa.array(positions[start:stop] - passed)), group)
            passed += batch.num_rows
            if passed > positions[-1]:
                break
        return self._block(rows, group.first + positions, group)
