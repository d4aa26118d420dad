"""Arrow datasets, such as tables of Delta Lake: files with partitions and filters, fragment by fragment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tithe.core.errors import FileFormatError
from tithe.rows.columns import Choice, common_fields
from tithe.rows.file_access import ACCESS_ERRORS, FileStatus
from tithe.rows.paths import DataFile, identity_of, no_rows
from tithe.rows.row_groups import Group, RowGroupSource, batch_rows
from tithe.rows.stores import clear_errors

NAME = "the dataset"

_WHOLE = -1  # in place of the number of a row group: all of a file that has none
_FOOTERS_AT_ONCE = 16


class DatasetSource(RowGroupSource):
    """Rows of a `pyarrow.dataset.Dataset`, in the order of its fragments.

    Row groups of Parquet files are read by themselves, fragments of other formats as a whole. Where the dataset has a
    filter, its columns are read once to count the rows that it keeps; row ids count these.

    Parameters
    ----------
    dataset : pyarrow.dataset.Dataset
    choice : Choice
    """

    def __init__(self, dataset: ds.Dataset, choice: Choice) -> None:
        self._filter, dataset = _without_filter(dataset)
        self._table_schema = dataset.schema
        self._fragments = list(dataset.get_fragments(filter=self._filter))
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as threads:
            try:
                self._files = list(threads.map(_file_of, self._fragments))
                counts = list(threads.map(self._counted, self._fragments))
            except ACCESS_ERRORS:
                raise
            except (pa.ArrowException, OSError) as error:
                raise FileFormatError(f"A file of the dataset cannot be read: {error}") from error
        self._groups = _groups(counts)
        if not self._groups:
            raise no_rows(self._files or [DataFile(NAME, NAME, 0, 0)])
        self._learn(common_fields({NAME: dataset.schema}, choice), choice)
        about = {**self._columns.about, "files": self._files, "filter": str(self._filter)}
        self.identity = identity_of("dataset", [], about, self.n_rows)

    def _counted(self, fragment: Any) -> list[tuple[int, int]]:
        """The numbers of the row groups of a fragment, and of their rows that the filter keeps."""
        if not isinstance(fragment, ds.ParquetFileFragment):
            return [(_WHOLE, self._kept_rows(fragment))]
        parts = [part for part in fragment.row_groups if part.num_rows]
        if self._filter is None:
            return [(part.id, part.num_rows) for part in parts]
        return [(part.id, self._kept_rows(fragment.subset(row_group_ids=[part.id]))) for part in parts]

    def _kept_rows(self, fragment: Any) -> int:
        # count_rows of Arrow counts all row groups of a file where it need not read them
        batches = fragment.to_batches(schema=self._table_schema, columns=[], filter=self._filter)
        return sum(batch.num_rows for batch in batches)

    def _batches(
        self, group: Group, names: Sequence[str], *, use_threads: bool = False, n_rows: int | None = None
    ) -> Iterator[Any]:
        """The record batches of a row group."""
        fragment = self._fragments[group.file]
        self._check(group.file)
        try:
            part = fragment if group.number == _WHOLE else fragment.subset(row_group_ids=[group.number])
            yield from part.to_batches(
                schema=self._table_schema,
                columns=list(names),
                filter=self._filter,
                batch_size=batch_rows(n_rows, len(names)),
                use_threads=use_threads,
            )
        except ACCESS_ERRORS:
            raise
        except (pa.ArrowException, OSError) as error:
            self._check(group.file)
            raise self._broken(group, error) from error

    def _check(self, number: int) -> None:
        """Refuse to go on with a file that is not the one that was opened."""
        now = _file_of(self._fragments[number])
        self._files[number].compare(FileStatus(now.size, now.modified))

    def _locate(self, row_id: int) -> str:
        where = super()._locate(row_id)
        return where if self._filter is None else f"{where} of those that the filter keeps"


def _without_filter(dataset: ds.Dataset) -> tuple[Any, ds.Dataset]:
    """The filter of a dataset, and the dataset without it: Arrow gives the fragments of no other."""
    options = dataset._scan_options
    if not options:
        return None, dataset
    plain = dataset.replace_schema(dataset.schema)  # a copy
    plain._scan_options = {}
    return options.get("filter"), plain


def _file_of(fragment: Any) -> DataFile:
    if not isinstance(fragment, ds.FileFragment):  # rows in memory
        return DataFile(NAME, NAME, 0, 0)
    with clear_errors(fragment.path):
        status = fragment.filesystem.get_file_info(fragment.path)
    if status.size is None:
        raise FileNotFoundError(f"There is no file {fragment.path!r}, which the dataset names.")
    return DataFile(fragment.path, fragment.path, status.size, str(status.mtime_ns))


def _groups(counts: Sequence[Sequence[tuple[int, int]]]) -> list[Group]:
    groups, first = [], 0
    for file, parts in enumerate(counts):
        in_file = 0
        for number, n_rows in parts:
            if n_rows:
                groups.append(Group(file, number, in_file, first + in_file, n_rows))
            in_file += n_rows
        first += in_file
    return groups
