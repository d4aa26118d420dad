"""Files as a source of rows, whatever their format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tithe.core.errors import FileFormatError, unknown_name
from tithe.sources.columns import Choice
from tithe.sources.parquet import ParquetSource
from tithe.sources.paths import find_files


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
) -> Any:
    """Rows of files that need not fit into memory.

    Parameters
    ----------
    where : path or list of paths
        A file, a folder (all data files in it and below, sorted by path; names that start with ``.`` or
        ``_`` are left out), or a pattern such as ``"data/2024-*.parquet"``.
    format : {"auto", "parquet"}
        ``"auto"`` goes by the endings of the names.
    columns : list of str, optional
        Features, in this order. All but target and weight if left out.
    target, weight : str, optional
        Columns of the target (numbers or text) and of the weights of the rows.
    categories : {"error", "onehot", "hash"}
        What becomes of columns of text: a column a value, or ``n_hashes`` columns that values are hashed into.
    n_hashes : int
    bad_rows : {"error", "skip"}
        What to do with rows that miss a value, or have one that is not finite.

    Returns
    -------
    Source
    """
    choice = Choice(
        columns=None if columns is None else tuple(columns),
        target=target,
        weight=weight,
        categories=categories,
        n_hashes=n_hashes,
        bad_rows=bad_rows,
    )
    files, format = find_files(where, format)
    if format == "parquet":
        return ParquetSource(files, choice)
    raise unknown_name("format", format, ["auto", "parquet"])


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
