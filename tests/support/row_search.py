"""Search a folder for a row, however it is stored: as plain bytes, in archives, in columns."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def files_with(folder: Path, row: np.ndarray) -> list[str]:
    """Names of the files under ``folder``, hidden ones included, that hold the row in single or double precision."""
    precisions = [np.asarray(row, dtype) for dtype in (np.float64, np.float32)]
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and any(_holds(path.name, path.read_bytes(), values) for values in precisions)
    ]


def _holds(name: str, data: bytes, row: np.ndarray) -> bool:
    if row.tobytes() in data:
        return True
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return any(_holds(part, archive.read(part), row) for part in archive.namelist())
    return any(_in_table(table, row) for table in _tables(name, data))


def _tables(name: str, data: bytes) -> Iterator[np.ndarray]:
    """Two-dimensional arrays of numbers in a file."""
    if data[:6] == b"\x93NUMPY":
        array = np.load(io.BytesIO(data), allow_pickle=False)
        if array.ndim == 2 and array.dtype.kind == "f":
            yield array
            yield array.T
    elif data[:4] == b"PAR1" and data[-4:] == b"PAR1":
        columns = pq.read_table(io.BytesIO(data)).columns
        yield np.column_stack([c.to_numpy() for c in columns if str(c.type) in ("double", "float")])


def _in_table(table: np.ndarray, row: np.ndarray) -> bool:
    """Whether the values stand beside one another in a row of the table."""
    width = table.shape[1] - len(row) + 1
    return any(bool((table[:, at : at + len(row)] == row).all(axis=1).any()) for at in range(width))
