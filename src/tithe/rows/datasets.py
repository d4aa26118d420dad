"""Parquet files and Arrow datasets, row group by row group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tithe.core.data import Array, Block, concat
from tithe.core.errors import FileFormatError
from tithe.rows.blocks import BatchCutter, BlockBuilder, TableSource, row_of, rows_at
from tithe.rows.columns import Columns, ColumnSelection, common_fields, resolve_columns
from tithe.rows.learn import SAMPLE_ROWS as SCHEMA_ROWS
from tithe.rows.learn import SAMPLE_RUNS, spread_rows
from tithe.rows.leaves import (
    SAMPLE_ROWS,
    InMemoryTask,
    joined,
    nonempty_sample,
    spread_shares,
)
from tithe.rows.paths import Constants, DataFile, identity_of, map_files, no_rows, partition_values, with_constants
from tithe.rows.stores import ACCESS_ERRORS, FileStatus, clear_errors

if TYPE_CHECKING:
    import pyarrow.dataset as ds  # which takes a second to load

HUGE_BYTES = 2**27  # of X: a row group that is larger is never read whole
SAMPLE_GROUPS = 8
BATCH_ROWS = 16_384

NAME = "the dataset"

_ID_BYTES = 8  # of a row
_BATCH_BYTES = 2**25
_READ_BYTES = 2**16  # of a column chunk at a time: chunks need not fit into memory
_ALL_READ_BYTES = 2**25  # of all column chunks
_WHOLE = -1  # in place of the number of a row group: all of a file that has none
_FOOTERS_AT_ONCE = 16


class Group(NamedTuple):
    """A row group: file number, its number in the file, and the positions of its first row in the file and in all."""

    file: int
    number: int
    first_in_file: int
    first: int
    n_rows: int


def batch_rows(n_rows: int | None, n_columns: int) -> int:
    """Rows of a batch: ``n_rows`` (None: `BATCH_ROWS`), or fewer where there are many columns."""
    return max(1, min(n_rows or BATCH_ROWS, _BATCH_BYTES // (8 * max(1, n_columns))))


class TableFile(ABC):
    """A file of a table, which is read row group by row group: its columns, row groups and numbers of rows."""

    file: DataFile
    name: str  # in messages about columns
    fields: pa.Schema
    groups: list[tuple[int, int]]

    @abstractmethod
    def batches(
        self, group: int, names: Sequence[str], coded: Sequence[str], *, use_threads: bool, n_rows: int | None
    ) -> Iterator[Any]:
        """The record batches of a row group, read piece by piece.

        Columns that are ``coded`` may be read as dictionaries. Errors of Arrow are left to the caller.
        """

    @abstractmethod
    def check(self) -> None:
        """Refuse to go on with a file that is not the one that was opened."""


class ParquetFile(TableFile):
    """A Parquet file, of which the footer is read; folders give the columns that it lacks."""

    def __init__(self, file: DataFile, folder_values: Constants) -> None:
        self.file, self.name = file, file.path
        try:
            with file.open() as stream:
                opened = pq.ParquetFile(stream)
                fields, footer = opened.schema_arrow, opened.metadata
                names = fields.names  # which must be text in UTF-8
        except ACCESS_ERRORS:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise FileFormatError(f"{file.path!r} is not a whole Parquet file: {error}") from error
        self._constants = {name: value for name, value in folder_values.items() if name not in names}
        self.fields = pa.schema([*fields, *(pa.field(name, value.type) for name, value in self._constants.items())])
        self.groups = [(number, footer.row_group(number).num_rows) for number in range(footer.num_row_groups)]
        for number, n_rows in self.groups:
            if not 0 <= n_rows <= footer.num_rows:
                raise FileFormatError(f"{file.path!r}, row group {number}: {n_rows:,} rows cannot be.")

    def batches(
        self, group: int, names: Sequence[str], coded: Sequence[str], *, use_threads: bool, n_rows: int | None
    ) -> Iterator[Any]:
        in_file = [name for name in names if name not in self._constants]
        coded = [name for name in coded if name in in_file]
        with self.file.open() as stream:
            # not by a dataset: its scanner decodes whole row groups, in three times the memory
            reader = pq.ParquetFile(
                stream,
                metadata=_metadata(self.file),
                pre_buffer=not self.file.is_local,  # few requests to a store
                buffer_size=max(4096, min(_READ_BYTES, _ALL_READ_BYTES // len(names))),
                read_dictionary=coded,
                page_checksum_verification=True,
            )
            size = batch_rows(n_rows, len(names))
            for batch in reader.iter_batches(size, row_groups=[group], columns=in_file, use_threads=use_threads):
                for name in coded:
                    batch.column(name).validate(full=True)  # Arrow gives codes as they are, also those of no value
                yield with_constants(batch, names, self._constants) if self._constants else batch

    def check(self) -> None:
        self.file.check()


@lru_cache(maxsize=8)
def _metadata(file: DataFile) -> Any:
    """The parsed footer: leaves of one file follow one another, so a few are enough."""
    with file.open() as stream:
        return pq.read_metadata(stream)


class Fragment(TableFile):
    """A file of an Arrow dataset: in row groups if it is Parquet, else as a whole; or rows in memory."""

    def __init__(self, fragment: ds.Fragment, fields: pa.Schema) -> None:
        from pyarrow.dataset import ParquetFileFragment

        self.file, self.name, self.fields, self._fragment = _file_of(fragment), NAME, fields, fragment
        if isinstance(fragment, ParquetFileFragment):
            self.groups = [(part.id, part.num_rows) for part in fragment.row_groups]
        else:
            self.groups = [(_WHOLE, fragment.count_rows())]

    def batches(
        self, group: int, names: Sequence[str], coded: Sequence[str], *, use_threads: bool, n_rows: int | None
    ) -> Iterator[Any]:
        self.check()
        part = self._fragment if group == _WHOLE else self._fragment.subset(row_group_ids=[group])
        size = batch_rows(n_rows, len(names))
        yield from part.to_batches(schema=self.fields, columns=list(names), batch_size=size, use_threads=use_threads)

    def check(self) -> None:
        now = _file_of(self._fragment)
        self.file.compare(FileStatus(now.size, now.modified))


def _file_of(fragment: Any) -> DataFile:
    from pyarrow.dataset import FileFragment

    if not isinstance(fragment, FileFragment):  # rows in memory
        return DataFile(NAME, NAME, 0, 0)
    with clear_errors(fragment.path):
        status = fragment.filesystem.get_file_info(fragment.path)
    if status.size is None:
        raise FileNotFoundError(f"There is no file {fragment.path!r}, which the dataset names.")
    return DataFile(fragment.path, fragment.path, status.size, str(status.mtime_ns))


def parquet_source(files: Sequence[DataFile], choice: ColumnSelection) -> DatasetSource:
    """The rows of Parquet files. All schemas are compared before the first row is read."""
    values = dict(zip(files, partition_values(files), strict=True))
    return DatasetSource("parquet", map_files(lambda file: ParquetFile(file, values[file]), files), choice)


def dataset_source(dataset: ds.Dataset, choice: ColumnSelection) -> DatasetSource:
    """The rows of a `pyarrow.dataset.Dataset` without a filter, in the order of its fragments."""
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as threads:
        try:
            opened = list(threads.map(partial(Fragment, fields=dataset.schema), dataset.get_fragments()))
        except ACCESS_ERRORS:
            raise
        except (pa.ArrowException, OSError) as error:
            raise FileFormatError(f"A file of the dataset cannot be read: {error}") from error
    return DatasetSource("dataset", opened, choice)


class DatasetSource(TableSource):
    """Rows of the row groups of some files, in their order.

    Small consecutive row groups are joined into a leaf. A leaf is read when its task is called; only row groups of
    more than `HUGE_BYTES` are read while tasks are iterated over, in leaves of equal size.
    """

    def __init__(self, format: str, tables: Sequence[TableFile], choice: ColumnSelection) -> None:
        self._tables = list(tables)
        self._files = [table.file for table in tables]
        self._groups = _row_groups(tables)
        if not self._groups:
            raise no_rows(self._files or [DataFile(NAME, NAME, 0, 0)])
        used = [tables[i] for i in sorted({group.file for group in self._groups})]
        fields = common_fields({table.name: table.fields for table in used}, choice)
        self._coded: list[str] = []  # columns that are read as codes and values
        last = self._groups[-1]
        self.n_rows = last.first + last.n_rows
        self.n_bytes = sum(file.size for file in self._files)
        self._format = format
        self._set_columns(resolve_columns(fields, self._schema_sample(fields.names), choice), self._files)

    def _set_columns(self, columns: Columns, files: Sequence[DataFile]) -> None:
        super()._set_columns(columns, files)
        self._coded = columns.texts
        self._cuts: dict[int, list[tuple[int, tuple[Group, ...]]]] = {}  # the last cut into leaves, by their size
        files, about = self._files, columns.about
        if self._format == "dataset":  # versions are enough: files may lie anywhere
            files, about = [], {**about, "files": self._files}
        self.identity = identity_of(self._format, files, about, self.n_rows)

    def _batches(
        self, group: Group, names: Sequence[str], *, use_threads: bool = False, n_rows: int | None = None
    ) -> Iterator[Any]:
        """The record batches of a row group, read piece by piece."""
        table = self._tables[group.file]
        try:
            yield from table.batches(group.number, names, self._coded, use_threads=use_threads, n_rows=n_rows)
        except ACCESS_ERRORS:
            raise
        except (pa.ArrowException, OSError) as error:
            table.check()
            raise self._broken(group, error) from error

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

    def _loaders(self, first: int, leaf_rows: int) -> Iterator[Callable[[], Block]]:
        leaves = self._leaves(leaf_rows)
        for number, groups in leaves[bisect_right(leaves, first, key=itemgetter(0)) - 1 :]:
            if self._is_huge(groups[0]):
                yield from map(InMemoryTask, self._streamed(groups[0], leaf_rows, max(0, first - number)))
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
        cutter = BatchCutter(self._batches(group, self._columns.read))
        for start in range(0, group.n_rows, leaf_rows):
            rows = BlockBuilder(self._columns, min(leaf_rows, group.n_rows - start))
            for batch in cutter.pieces(rows.n_rows):
                if start >= skip * leaf_rows:
                    self._add(rows, batch, group)
            if start >= skip * leaf_rows:
                ids = np.arange(group.first + start, group.first + start + rows.n_rows)
                yield self._block(rows, ids, group)

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
        """Validate the batch now; otherwise invalid UTF-8 is only detected when the value is used."""
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
        """All rows of some columns, validated, as they stand in the files, and their ids."""
        for group in self._groups:
            passed = group.first
            for batch in self._batches(group, names, use_threads=True):
                yield np.arange(passed, passed + batch.num_rows), self._validated(batch, group)
                passed += batch.num_rows

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) from row groups spread evenly over all of the data.

        Of many large row groups, each gives rows of another part of it, and is read no further: half of their bytes.
        """
        size = SAMPLE_ROWS if size is None else size
        n_groups = len(self._groups)
        n_rows = self.n_rows or 0
        wanted = max(SAMPLE_GROUPS, n_groups // 16, -(-size * n_groups // n_rows))
        chosen, held, shares = spread_shares([group.n_rows for group in self._groups], size, wanted, rng)
        groups = [self._groups[i] for i in chosen]
        n_parts = len(groups) if wanted < n_groups and min(held) >= 2 * max(shares) * len(groups) else 1
        parts = rng.permutation(len(groups)) % n_parts
        drawn = []
        for group, share, part in zip(groups, shares, parts, strict=True):
            first, last = (group.n_rows * edge // n_parts for edge in (part, part + 1))
            if share:
                places = rng.choice(last - first, share, replace=False, shuffle=False)
                drawn.append(self._drawn(group, first + np.sort(places)))
        return nonempty_sample(concat(drawn), self, self._files, size)

    def _drawn(self, group: Group, positions: Array) -> Block:
        """The rows at ascending ``positions`` of a row group."""
        rows = BlockBuilder(self._columns, len(positions))
        for batch in rows_at(self._batches(group, self._columns.read, use_threads=True), positions):
            self._add(rows, batch, group)
        return self._block(rows, group.first + positions, group)


def _row_groups(tables: Sequence[TableFile]) -> list[Group]:
    """The row groups that have rows."""
    groups, first = [], 0
    for file, table in enumerate(tables):
        in_file = 0
        for number, n_rows in table.groups:
            if n_rows:
                groups.append(Group(file, number, in_file, first + in_file, n_rows))
            in_file += n_rows
        first += in_file
    return groups
