"""Files as a source of rows, whatever their format."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tithe.core.errors import unknown_name
from tithe.sources.columns import Choice
from tithe.sources.delimited import DelimitedSource
from tithe.sources.dialect import TextLayout
from tithe.sources.libsvm import LibsvmSource
from tithe.sources.limits import Limits
from tithe.sources.npy import NumpySource
from tithe.sources.parquet import ParquetSource
from tithe.sources.paths import find_files
from tithe.sources.piped import PipedSource, open_piped

FileSource = ParquetSource | DelimitedSource | LibsvmSource | NumpySource | PipedSource

_PIPED = ("csv", "libsvm", "arrow")
_FORMATS = ("parquet", "npy", "npz", *_PIPED)


def open_dataset(
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
    delimiter: str | None = None,
    header: bool | None = None,
    live: bool = False,
    limits: Limits | None = None,
) -> FileSource:
    """Rows of files that need not fit into memory.

    Parameters
    ----------
    where : path or list of paths
        A file, a folder (all data files in it and below, sorted by path; names that start with ``.`` or
        ``_`` are left out), a pattern such as ``"data/2024-*.parquet"``, or ``"-"`` for standard input,
        which can be read only once. CSV may be compressed (``.csv.gz``, ``.csv.bz2``, ``.csv.zst``) or lie in a
        ``.zip``. Folders named ``column=value`` are columns of the tables in them.
    format : {"auto", "parquet", "csv", "libsvm", "npy", "npz", "arrow"}
        ``"auto"`` goes by the endings of the names, and takes standard input for CSV. ``"arrow"`` is the
        Arrow IPC stream, through standard input only.
    columns : list of str, optional
        Features, in this order. All but target and weight if left out.
    target, weight : str, optional
        Columns of the target (numbers or text) and of the weights of the rows; in ``.npz`` files the
        names of arrays beside ``X``. The label of libsvm files is always the target.
    categories : {"error", "onehot", "hash"}
        How columns of text are encoded: one column for each distinct value, or values hashed into ``n_hashes``
        columns.
    n_hashes : int
    bad_rows : {"error", "skip"}
        What to do with rows that miss a value, or have one that is not finite.
    n_features : int, optional
        Columns of libsvm files, if it is more than they use; needed where they come through standard input.
    delimiter : str, optional
        What stands between the values of CSV files. By default a comma, a semicolon, a tab or ``|``, whichever splits
        the first lines of a file into equally many values.
    header : bool, optional
        Whether the first line of CSV files names the columns; if False, they are x0, x1, ... By default it is no
        header if it holds numbers, unless there is text above a column of numbers.
    live : bool
        From standard input, take rows as they come instead of waiting until a leaf is full: types are then
        told by the rows that come first.
    limits : Limits, optional
        The longest row, the most columns and the most memory that a file may ask for. Good files seldom reach them;
        a file that goes beyond is refused with an error that names the limit.

    Returns
    -------
    Source

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "rows.csv").write_text("a,colour,y\\n1,red,0\\n2,blue,1\\n")
    ...     source = open_dataset(folder, target="y", categories="onehot")
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
    limits = Limits() if limits is None else limits
    layout = TextLayout(delimiter=delimiter, header=header)
    if format not in ("auto", *_FORMATS):
        raise unknown_name("format", format, ["auto", *_FORMATS])
    if where == "-":
        if format not in ("auto", *_PIPED):
            raise ValueError(f"Standard input cannot be {format}: save it to a file first, or send csv or arrow.")
        return open_piped(sys.stdin.buffer, format, choice, n_features, live=live, layout=layout, limits=limits)
    if format == "arrow":
        raise ValueError("format='arrow' is for standard input ('-'). Save Arrow tables as Parquet.")
    files, format = find_files(where, format)
    if n_features is not None and format != "libsvm":
        raise ValueError(f"n_features is for libsvm files; those found are {format}.")
    if layout != TextLayout() and format != "csv":
        raise ValueError(f"delimiter and header are for CSV files; those found are {format}.")
    if format == "parquet":
        return ParquetSource(files, choice, limits)
    if format == "csv":
        return DelimitedSource(files, choice, layout, limits)
    if format == "libsvm":
        return LibsvmSource(files, choice, n_features, limits)
    return NumpySource(files, choice, format, limits)
