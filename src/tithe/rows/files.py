"""Files as a source of rows, whatever their format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from tithe.core.data import Block
from tithe.core.errors import FileFormatError, unknown_name
from tithe.rows.arrays import is_dask_collection, is_frame, is_spark_frame
from tithe.rows.blocks import TableSource
from tithe.rows.columns import ColumnSelection
from tithe.rows.dask_collections import DaskSource, open_collection
from tithe.rows.datasets import dataset_source, parquet_source
from tithe.rows.delimited import DelimitedSource
from tithe.rows.frames import FrameSource, Query, QuerySource, is_query
from tithe.rows.learn import learn_from_all_rows, sums_in_threads, value_counts
from tithe.rows.libsvm import LibsvmSource
from tithe.rows.npy import NumpySource
from tithe.rows.paths import DataFile, find_files
from tithe.rows.piped import PipedSource, open_piped, open_reader
from tithe.rows.schema import TableSchema
from tithe.rows.spark_frames import SparkFrameSource
from tithe.rows.stores import Limits
from tithe.rows.text import TextLayout
from tithe.rows.uses import Watch, announce

FileSource = TableSource | LibsvmSource | NumpySource | PipedSource | DaskSource | SparkFrameSource

_PIPED = ("csv", "libsvm", "arrow")
_FORMATS = ("parquet", "npy", "npz", *_PIPED)


def open_dataset(
    where: Any,
    *,
    format: str = "auto",
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    target: str | None = None,
    weight: str | None = None,
    row_id: str | None = None,
    scale: str = "auto",
    impute: str = "median",
    categories: str = "auto",
    n_hashes: int | None = None,
    max_categories: int = 10_000,
    dates: str = "parts",
    na: Sequence[str] = (),
    strict: bool = False,
    schema: TableSchema | None = None,
    watch: Watch | None = None,
    bad_rows: str = "error",
    missing_target: str = "drop",
    n_features: int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    live: bool = False,
    limits: Limits | None = None,
) -> FileSource:
    """Rows of files that need not fit into memory, of a frame, a dataset, a query or a stream.

    The columns of a table (Parquet, CSV, Arrow, a frame) become features by a schema: numbers are scaled, gaps filled
    and marked, categories one-hot encoded or hashed, dates split into parts; identifiers and constants are left out.
    It is learned from at most 65,536 rows from all over the table, and is the attribute ``schema`` of the source.

    Parameters
    ----------
    where : path, URL, list of these, frame, dataset, query, stream or Dask collection
        A file, a folder (all data files in it and below, sorted by path; names that start with ``.`` or
        ``_`` are left out), a pattern such as ``"data/2024-*.parquet"``, or ``"-"`` for standard input,
        which can be read only once. CSV may be compressed (``.csv.gz``, ``.csv.bz2``, ``.csv.zst``) or lie in a
        ``.zip``. Folders named ``column=value`` are columns of the tables in them.

        Files, folders and patterns may be URLs: ``s3://bucket/folder``, ``gs://``, ``abfs://``, ``file://``, or any
        other scheme that fsspec knows; ``http://`` and ``https://`` name single files. Credentials are taken from the
        environment. ``.npy`` files must lie on this machine.

        Or a pandas or polars frame, or an Arrow table; a `pyarrow.dataset.Dataset`, also with a filter (Delta Lake:
        ``DeltaTable(...).to_pyarrow_dataset()``); a DuckDB relation, a polars ``LazyFrame``, or an Iceberg table or
        scan of pyiceberg, which is run for every pass and must give the same rows in the same order; a
        `pyarrow.RecordBatchReader`, or any object with ``__arrow_c_stream__``, whose rows come only once; a Dask
        DataFrame, or a Dask array of numbers; a Spark DataFrame.
    format : {"auto", "parquet", "csv", "libsvm", "npy", "npz", "arrow"}
        ``"auto"`` goes by the endings of the names, and takes standard input for CSV. ``"arrow"`` is the
        Arrow IPC stream, through standard input only.
    columns : list of str, optional
        Features, in this order. All but target and weight if left out.
    target, weight : str, optional
        Columns of the target (numbers or text) and of the weights of the rows; in ``.npz`` files the
        names of arrays beside ``X``. The label of libsvm files is always the target.
    row_id : str, optional
        A column that names the rows of a table. It is no feature.
    exclude : list of str, optional
        Columns that are left out.
    scale : {"auto", "standard", "robust", "none"}
        ``"standard"``: numbers are centred at their mean and divided by their standard deviation. ``"auto"``: the same,
        after long tails were drawn in by asinh, which the schema tells. ``"robust"``: by median and interquartile
        range. ``"none"``: numbers are left as they are.
    impute : {"median", "mean", "zero", "none"}
        What a gap in a column of numbers becomes. ``"none"``: a row with a gap is a bad row.
    categories : {"auto", "onehot", "hash", "error"}
        How columns of text are encoded: one feature for each of the ``max_categories`` most frequent values, or values
        hashed into ``n_hashes`` features. ``"auto"`` hashes where more than ``max_categories`` values are frequent;
        ``"error"`` refuses text. Texts of several words, most of them different, become hashed words.
    n_hashes : int, optional
        If left out, at least twice as many as there are values or words, up to 65,536.
    max_categories : int
    dates : {"parts", "number", "drop", "error"}
        Dates become days since 1970 and the time of year, week and day; or the days alone; or are left out; or refused.
    na : list of str
        Values that are gaps in every column, besides empty ones, ``?``, ``-``, ``NA``, ``n/a``, ``null`` and ``nan``.
    strict : bool
        Refuse a table if the encoding of a column loses something, in place of an `EncodingWarning` that names it.
    schema : TableSchema, optional
        Of an earlier source, or of a model (``schema_``): columns become the same features as there. It stands in
        place of all the options above but target, weight and row_id.
    watch : Watch, optional
        Counts what the rows that are read have in each column that those of ``schema`` had not.
    bad_rows : {"error", "skip"}
        What to do with rows that cannot be parsed, or miss a value that is not filled in.
    missing_target : {"drop", "keep"}
        Rows without a target are left out, or kept with a gap in y: NaN among floating point numbers, else None.
        `SemiSupervisedODMClassifier` learns from them.
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
    ...     source = open_dataset(folder, target="y", scale="none")
    ...     source.feature_names, [task().X.tolist() for task in source.tasks()]
    (['a', 'colour=blue', 'colour=red'], [[[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]])
    """
    choice = ColumnSelection(
        columns=columns,
        exclude=exclude,
        target=target,
        weight=weight,
        row_id=row_id,
        scale=scale,
        impute=impute,
        categories=categories,
        n_hashes=n_hashes,
        max_categories=max_categories,
        dates=dates,
        na=na,
        strict=strict,
        bad_rows=bad_rows,
        missing_target=missing_target,
        schema=schema,
        watch=watch,
    )
    limits = Limits() if limits is None else limits
    layout = TextLayout(delimiter=delimiter, header=header)
    if format not in ("auto", *_FORMATS):
        raise unknown_name("format", format, ["auto", *_FORMATS])
    source = _source_of_object(where, choice)
    if source is None and isinstance(where, str) and where == "-":
        if format not in ("auto", *_PIPED):
            raise ValueError(f"Standard input cannot be {format}: save it to a file first, or send csv or arrow.")
        source = open_piped(sys.stdin.buffer, format, choice, n_features, live=live, layout=layout, limits=limits)
    if source is None:
        if format == "arrow":
            raise ValueError("format='arrow' is for standard input ('-'). Save Arrow tables as Parquet.")
        files, format = find_files(where, format)
        source = _source_of_files(files, format, choice, n_features, layout, limits)
    if schema is None and source.schema is not None:
        announce(source.schema.losses(), notes=source.schema.notes(), strict=strict)
    return source


def _source_of_object(where: Any, choice: ColumnSelection) -> FileSource | None:
    """The source of a frame, a dataset, a query or a stream; None if it is neither, but names files."""
    if is_dask_collection(where):
        return open_collection(where, choice)
    if is_spark_frame(where):
        return SparkFrameSource(where, choice)
    if is_frame(where):
        return _learned_from_all_rows(partial(FrameSource, where), choice)
    if is_query(where):
        return _learned_from_all_rows(partial(QuerySource, Query(where)), choice)
    if isinstance(where, pa.RecordBatchReader) or hasattr(where, "__arrow_c_stream__"):
        reader = where if isinstance(where, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(where)
        return open_reader(reader, choice, "the Arrow stream")
    if "pyarrow.dataset" not in sys.modules:  # which takes a while to load
        return None
    from pyarrow.dataset import Dataset, InMemoryDataset

    if not isinstance(where, Dataset):
        return None
    if isinstance(where, InMemoryDataset):
        return _learned_from_all_rows(partial(FrameSource, where.to_table()), choice)
    try:
        where.get_fragments()
    except ValueError:  # it has a filter: a query, which Arrow runs
        return _learned_from_all_rows(partial(QuerySource, Query(where)), choice)
    return _learned_from_all_rows(partial(dataset_source, where), choice)


def _source_of_files(
    files: Sequence[DataFile],
    format: str,
    choice: ColumnSelection,
    n_features: int | None,
    layout: TextLayout,
    limits: Limits,
) -> FileSource:
    """The source of files of one format. Options that are for other formats are refused."""
    if n_features is not None and format != "libsvm":
        raise ValueError(f"n_features is for libsvm files; those found are {format}.")
    if layout != TextLayout() and format != "csv":
        raise ValueError(f"delimiter and header are for CSV files; those found are {format}.")
    of_tables = choice.schema or choice.row_id or choice.exclude or choice.na or choice.scale in ("standard", "robust")
    if format not in ("parquet", "csv") and of_tables:
        raise ValueError(
            f"exclude, na, scale, schema and row_id are for tables (Parquet, CSV, frames); these are {format}."
        )
    if format == "parquet":
        return _learned_from_all_rows(partial(parquet_source, files), choice)
    if format == "csv":
        return _learned_from_all_rows(partial(DelimitedSource, files, layout=layout, limits=limits), choice)
    if format == "libsvm":
        return LibsvmSource(files, choice, n_features, limits)
    return NumpySource(files, choice, format, limits)


def _learned_from_all_rows(
    open_source: Callable[[ColumnSelection], TableSource], choice: ColumnSelection
) -> TableSource:
    """The source of a table whose schema is learned.

    A pass over all rows measures the spreads that the sample leaves uncertain, another one, over the columns of
    categories alone, counts their values.
    """
    source = open_source(choice)
    if choice.schema is not None or not source.is_sampled:
        return source
    tasks = (partial(_rows_of, task) for task in source.tasks())
    try:
        schema = learn_from_all_rows(
            source.schema,
            choice.options,
            source.uncertain,
            partial(sums_in_threads, tasks),
            lambda names, na: (value_counts(batch, names, na) for _, batch in source.numbered_batches(list(names))),
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise FileFormatError(f"A column of categories holds what is no text: {error}") from error
    source.learn(schema)
    return source


def _rows_of(task: Callable[[], Block]) -> Any:
    return task().X
