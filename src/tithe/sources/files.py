"""Files as a source of rows, whatever their format."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tithe.core.errors import FileFormatError, unknown_name
from tithe.sources.columns import Choice
from tithe.sources.delimited import DelimitedSource
from tithe.sources.libsvm import LibsvmSource
from tithe.sources.npy import NumpySource
from tithe.sources.parquet import ParquetSource
from tithe.sources.paths import find_files
from tithe.sources.piped import PipedSource, open_piped

FileSource = ParquetSource | DelimitedSource | LibsvmSource | NumpySource | PipedSource

_PIPED = ("csv", "libsvm", "arrow")
_FORMATS = ("parquet", "npy", "npz", *_PIPED)


def open_source(
    where: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    format: str = "auto",
    columns: Sequence[str] | None = None,
    target: str | None = None,
    weight: str | None = None,
    categories: str = "error",
    n_hashes: int = 32,
    bad_rows: str = "error",
    n_features: int | None = None,
) -> FileSource:
    """Rows of files that need not fit into memory.

    Parameters
    ----------
    where : path or list of paths
        A file, a folder (all data files in it and below, sorted by path; names that start with ``.`` or
        ``_`` are left out), a pattern such as ``"data/2024-*.parquet"``, or ``"-"`` for standard input,
        which can be read only once.
    format : {"auto", "parquet", "csv", "libsvm", "npy", "npz", "arrow"}
        ``"auto"`` goes by the endings of the names, and takes standard input for CSV. ``"arrow"`` is the
        Arrow IPC stream, through standard input only.
    columns : list of str, optional
        Features, in this order. All but target and weight if left out.
    target, weight : str, optional
        Columns of the target (numbers or text) and of the weights of the rows; in ``.npz`` files the
        names of arrays beside ``X``. The label of libsvm files is always the target.
    categories : {"error", "onehot", "hash"}
        What becomes of columns of text: a column a value, or ``n_hashes`` columns that values are hashed into.
    n_hashes : int
    bad_rows : {"error", "skip"}
        What to do with rows that miss a value, or have one that is not finite.
    n_features : int, optional
        Columns of libsvm files, if it is more than they use; needed where they come through standard input.

    Returns
    -------
    Source

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "rows.csv").write_text("a,colour,y\\n1,red,0\\n2,blue,1\\n")
    ...     source = open_source(folder, target="y", categories="onehot")
    ...     source.feature_names, [task().X.tolist() for task in source.tasks()]
    (['a', 'colour=blue', 'colour=red'], [[[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]])
    """
    if isinstance(columns, str):
        raise ValueError(f"columns is a list of names: columns=[{columns!r}].")
    choice = Choice(
        columns=None if columns is None else tuple(columns),
        target=target,
        weight=weight,
        categories=categories,
        n_hashes=n_hashes,
        bad_rows=bad_rows,
    )
    if format not in ("auto", *_FORMATS):
        raise unknown_name("format", format, ["auto", *_FORMATS])
    if where == "-":
        if format not in ("auto", *_PIPED):
            raise ValueError(f"Standard input cannot be {format}: save it to a file first, or send csv or arrow.")
        return open_piped(sys.stdin.buffer, format, choice, n_features)
    if format == "arrow":
        raise ValueError("format='arrow' is for standard input ('-'). Save Arrow tables as Parquet.")
    files, format = find_files(where, format)
    if n_features is not None and format != "libsvm":
        raise ValueError(f"n_features is for libsvm files; those found are {format}.")
    if format == "parquet":
        return ParquetSource(files, choice)
    if format == "csv":
        return DelimitedSource(files, choice)
    if format == "libsvm":
        return LibsvmSource(files, choice, n_features)
    return NumpySource(files, choice, format)


def read_rows(
    path: str | os.PathLike[str], *, target: str | None = None, weight: str | None = None
) -> tuple[Any, Any, Any, list[str] | None]:
    """X, y, sample_weight and column names of a file. ``.npy`` is memory-mapped.

    In tables (``.csv``, ``.parquet``) ``target`` and ``weight`` name columns; an ``.npz`` holds
    arrays ``X`` and, if asked for, those of these names. Raises ``ValueError`` for what cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    kind = path.suffix.lower()
    try:
        if kind in (".npy", ".npz"):
            return (*_numpy(path, target, weight), None)
        if kind == ".csv":
            table = pyarrow.csv.read_csv(path)
        elif kind in (".parquet", ".pq"):
            table = pyarrow.parquet.read_table(path, partitioning=None)
        else:
            raise FileFormatError(f"{path.name!r}: this reads .npy, .npz, .csv and .parquet files.")
    except (pa.ArrowException, EOFError, OSError) as error:
        raise FileFormatError(f"{str(path)!r} cannot be read as {kind}: {error}") from error
    picked = []
    for name in (target, weight):
        if name is not None and name not in table.column_names:
            raise ValueError(f"{path.name!r} has no column {name!r}. Its columns are {', '.join(table.column_names)}.")
        picked.append(None if name is None else table.column(name).to_numpy())
    table = table.drop_columns([n for n in (target, weight) if n is not None])
    return table, picked[0], picked[1], list(table.column_names)


def _numpy(path: Path, target: str | None, weight: str | None) -> tuple[Any, Any, Any]:
    if path.suffix.lower() == ".npy":
        if target or weight:
            raise ValueError("A .npy file holds rows alone: use .npz, .csv or .parquet for a target or weights.")
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False), None, None
        except ValueError as error:
            raise FileFormatError(f"{str(path)!r} is not a whole .npy file: {error}") from error
    try:
        with np.load(path, allow_pickle=False) as archive:
            wanted = ["X", *(n for n in (target, weight) if n)]
            missing = [n for n in wanted if n not in archive.files]
            if missing:
                raise ValueError(f"{path.name!r} has no array {missing[0]!r}; it has {', '.join(archive.files)}.")
            return tuple(None if n is None else archive[n] for n in ("X", target, weight))  # type: ignore[return-value]
    except (ValueError, KeyError) as error:
        raise FileFormatError(f"{str(path)!r}: {error}") from error
    except Exception as error:  # zipfile raises its own kinds for damaged archives
        raise FileFormatError(f"{str(path)!r} is not a whole .npz file: {error}") from error
