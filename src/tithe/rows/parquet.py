"""Parquet files, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tithe.core.errors import FileFormatError
from tithe.rows.columns import Choice, common_fields
from tithe.rows.file_access import ACCESS_ERRORS
from tithe.rows.limits import Limits
from tithe.rows.parquet_pages import check_pages, chunks_of, footer_of
from tithe.rows.partitions import Constants, partition_values, with_constants
from tithe.rows.paths import DataFile, identity_of, map_files, no_rows
from tithe.rows.row_groups import Group, RowGroupSource, batch_rows

_ALL_READ_BYTES = 2**25  # of all column chunks at a time: chunks need not fit into memory


class ParquetSource(RowGroupSource):
    """Rows of Parquet files, in the order of the files.

    All schemas are compared before the first row is read.

    Parameters
    ----------
    files : list of DataFile
    choice : Choice
    limits : Limits
    """

    def __init__(self, files: Sequence[DataFile], choice: Choice, limits: Limits) -> None:
        self._files = list(files)
        self._limits = limits
        schemas, self._groups = _survey(self._files)
        self._constants = list(map(_apart_from, partition_values(self._files), schemas))
        schemas = [_with_fields(schema, has) for schema, has in zip(schemas, self._constants, strict=True)]
        if not self._groups:
            raise no_rows(files)
        used = sorted({group.file for group in self._groups})
        fields = common_fields({files[i].path: schemas[i] for i in used}, choice)
        self._dictionaries: list[str] = []  # columns that are read as codes and values
        self._learn(fields, choice)
        self._dictionaries = self._columns.texts
        self.identity = identity_of("parquet", files, self._columns.about, self.n_rows)

    def _batches(
        self, group: Group, names: Sequence[str], *, use_threads: bool = False, n_rows: int | None = None
    ) -> Iterator[Any]:
        """The record batches of a row group, read piece by piece."""
        file, constants = self._files[group.file], self._constants[group.file]
        in_file = [name for name in names if name not in constants]
        coded = [name for name in self._dictionaries if name in in_file]
        chunks = chunks_of(file, group.number, in_file)
        try:
            with file.open([(chunk.start, chunk.stop) for chunk in chunks]) as stream:
                check_pages(stream, file.path, group.number, chunks, self._limits)
                reader = pq.ParquetFile(
                    stream,
                    metadata=_metadata(file),
                    pre_buffer=False,
                    buffer_size=max(4096, min(file.read_bytes, _ALL_READ_BYTES // len(names))),
                    read_dictionary=coded,
                    page_checksum_verification=True,
                )
                for batch in reader.iter_batches(
                    batch_rows(n_rows, len(names)), row_groups=[group.number], columns=in_file, use_threads=use_threads
                ):
                    for name in coded:
                        batch.column(name).validate(full=True)  # Arrow gives codes as they are, also those of no value
                    yield with_constants(batch, names, constants) if constants else batch
        except ACCESS_ERRORS:
            raise
        except (pa.ArrowException, OSError) as error:
            file.check()
            raise self._broken(group, error) from error


@lru_cache(maxsize=8)
def _metadata(file: DataFile) -> Any:
    """The parsed footer: leaves of one file follow one another, so a few are enough."""
    return pq.read_metadata(pa.BufferReader(footer_of(file)))


def _apart_from(constants: Constants, schema: pa.Schema) -> Constants:
    """The columns that the file itself has not."""
    return {name: value for name, value in constants.items() if name not in schema.names}


def _with_fields(schema: pa.Schema, constants: Constants) -> pa.Schema:
    return pa.schema([*schema, *(pa.field(name, value.type) for name, value in constants.items())])


def _survey(files: Sequence[DataFile]) -> tuple[list[pa.Schema], list[Group]]:
    """Schemas and row groups of all files, from the footers alone."""
    schemas, groups, first = [], [], 0
    for i, (file, (schema, footer)) in enumerate(zip(files, map_files(_schema_and_footer, files), strict=True)):
        schemas.append(schema)
        in_file = 0
        for number in range(footer.num_row_groups):
            n_rows = footer.row_group(number).num_rows
            if not 0 <= n_rows <= footer.num_rows:
                raise FileFormatError(f"{file.path!r}, row group {number}: {n_rows:,} rows cannot be.")
            if n_rows:
                groups.append(Group(i, number, in_file, first + in_file, n_rows))
            in_file += n_rows
        first += in_file
    return schemas, groups


def _schema_and_footer(file: DataFile) -> tuple[pa.Schema, Any]:
    try:
        with file.open() as stream:
            opened = pq.ParquetFile(stream)
            schema = opened.schema_arrow
            _ = schema.names  # which must be text in UTF-8
            return schema, opened.metadata
    except ACCESS_ERRORS:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{file.path!r} is not a whole Parquet file: {error}") from error
