"""Folders named ``column=value``, as Hive and Spark write them: columns that have one value in a whole file."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa

from tithe.rows.paths import DataFile

_MISSING = "__HIVE_DEFAULT_PARTITION__"

Constants = dict[str, pa.Scalar]


def partition_values(files: Sequence[DataFile]) -> list[Constants]:
    """For each file, the columns that the folders in its path name; those that not all paths have are left out.

    Values are numbers if all of them are, else text; a missing one is null.
    """
    values = [_values(file.folders) for file in files]
    names = [name for name in values[0] if all(name in held for held in values)]
    columns = {name: _typed([held[name] for held in values]) for name in names}
    return [{name: column[i] for name, column in columns.items()} for i in range(len(files))]


def _values(folders: Sequence[str]) -> dict[str, str | None]:
    pairs = (folder.partition("=") for folder in folders)
    texts = {unquote(name): unquote(value) for name, sign, value in pairs if sign and name}
    return {name: None if text == _MISSING else text for name, text in texts.items()}


def _typed(texts: list[str | None]) -> pa.Array:
    column = pa.array(texts, pa.string())
    for type_ in (pa.int16(), pa.int64(), pa.float64()):  # years are exact in float32
        try:
            return column.cast(type_)
        except pa.ArrowInvalid:
            continue
    return column


def with_constants(batch: pa.RecordBatch, names: Sequence[str], constants: Constants) -> pa.RecordBatch:
    """The columns ``names`` of a batch, those of one value added."""
    columns = [
        pa.repeat(constants[name], batch.num_rows) if name in constants else batch.column(name) for name in names
    ]
    return pa.record_batch(columns, names=list(names))
