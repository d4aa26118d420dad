"""Arrays, matrices and frames in memory (or memory-mapped) as one checked block; how rows on a cluster are known."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn.utils.validation import check_array, column_or_1d

from tithe.core.data import Array, Block
from tithe.core.parallel import column_sums

if TYPE_CHECKING:
    from tithe.rows.schema import TableSchema


def is_frame(X: Any) -> bool:
    """Whether X is a table with named columns."""
    return isinstance(X, (pa.Table, pa.RecordBatch)) or nw.dependencies.is_into_dataframe(X)


def column_names(frame: Any) -> tuple[str, ...]:
    """The names of the columns of a frame, numbers as text."""
    return tuple(map(str, named_columns(frame).columns))


def named_columns(frame: Any) -> Any:
    """A frame with the methods of narwhals."""
    whole = pa.Table.from_batches([frame]) if isinstance(frame, pa.RecordBatch) else frame
    return nw.from_native(whole, eager_only=True)


def with_columns(frame: Any, names: Sequence[str]) -> Any:
    """The frame with its columns in the order of ``names``; frames that have other columns are refused."""
    present = column_names(frame)
    if present == tuple(names):
        return frame
    if sorted(present) != sorted(names) or len(set(present)) < len(present):
        raise ValueError(f"The columns are {', '.join(present)}, and those before were {', '.join(names)}.")
    return named_columns(frame)[:, [present.index(name) for name in names]].to_native()


def as_matrix(X: Any) -> Any:
    """A float32 or float64 C-ordered array or CSR matrix; no copy is made where none is needed."""
    if not isinstance(X, np.ndarray) and not sparse.issparse(X):
        refuse_lazy_frame(X)
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            X = _numbers(frame)
    if isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64) and X.ndim == 2 and X.flags.c_contiguous:
        return X if type(X) is np.ndarray else np.asarray(X)
    checked = check_array(
        X,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        ensure_all_finite=False,
        ensure_min_samples=0,
        ensure_min_features=0,
    )
    return canonical(checked) if sparse.issparse(checked) else checked


def canonical(X: Any) -> Any:
    """A CSR matrix whose column numbers are within bounds and stand once a row: kernels rely on it."""
    X = X if isinstance(X, sparse.spmatrix) else sparse.csr_matrix(X)  # a sparse array shares its memory with it
    X.check_format(full_check=True)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _numbers(frame: Any) -> Array:
    text = [column.name for column in frame.iter_columns() if not holds_numbers(column)]
    if text:
        raise ValueError(
            f"Column {text[0]!r} is not numeric ({frame.schema[text[0]]}). encode=True makes numbers of text, dates "
            "and gaps, and so does open_dataset(frame)."
        )
    return np.ascontiguousarray(frame.to_numpy())


def _refuse_gaps(frame: Any) -> None:
    for column in frame.iter_columns():
        if n_gaps(column):
            raise ValueError(
                f"Input X contains NaN or infinity: column {str(column.name)!r} has {n_gaps(column):,} such values. "
                "encode=True fills and marks them, and standardizes numbers; or fill them beforehand."
            )


def holds_numbers(column: Any) -> bool:
    """Whether a column of a frame has numbers or Booleans: by its type, or finite numbers alone as Python objects."""
    if column.dtype != nw.Object:
        return bool(column.dtype.is_numeric() or column.dtype == nw.Boolean)
    return len(column) > 0 and all(map(_is_number, column.to_numpy()))


def _is_number(value: Any) -> bool:
    """Whether a Python object is a finite real number."""
    is_real = isinstance(value, Real) and not isinstance(value, (bool, np.timedelta64))  # which count as real
    return is_real and bool(abs(value) <= sys.float_info.max)


def n_gaps(column: Any) -> int:
    """How many values of a column of numbers are missing or not finite."""
    if not column.dtype.is_float():
        return int(column.null_count())
    values = column.to_numpy()
    with np.errstate(over="ignore"):
        return 0 if np.isfinite(np.sum(values, dtype=np.float64)) else int((~np.isfinite(values)).sum())


def check_weights(sample_weight: Any, n_rows: int) -> Array | None:
    """Weights as float64 (n,), or None where all are one: finite and not negative."""
    if sample_weight is None:
        return None
    if np.isscalar(sample_weight):
        sample_weight = np.full(n_rows, sample_weight)
    weight: Array = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weight.shape}, expected ({n_rows},): one weight a row.")
    if (weight < 0).any():
        raise ValueError("Negative values in sample_weight: a row cannot count for less than nothing.")
    # a copy of weights that are read-only or apart: kernels would be compiled again for them
    return plain_weights(np.require(weight, requirements=("C", "W")))


def plain_weights(weight: Array | None) -> Array | None:
    """None where all weights are one: the same rows must take the same path however they came."""
    return None if weight is None or np.all(weight == 1.0) else weight


def as_block(X: Any, y: Any = None, sample_weight: Any = None) -> Block:
    """A checked block, its column mean taken on the way.

    Raises ``ValueError`` for anything that is not a finite numeric matrix with at least one row
    and column, for weights that do not fit, and for a ``y`` of another length.
    """
    given, X = X, as_matrix(X)
    if is_frame(given):
        _refuse_gaps(named_columns(given))
    n, d = X.shape
    if n == 0 or d == 0:
        what = f"{n} sample(s)" if n == 0 else f"{d} feature(s)"
        raise ValueError(f"Found array with {what} (shape=({n}, {d})) while a minimum of 1 is required.")
    weight = check_weights(sample_weight, n)
    if weight is not None and not weight.any():
        raise ValueError("All sample weights are zero: there is nothing to learn from.")
    sums = column_sums(X, weight)
    if not np.isfinite(sums).all():
        check_array(X, accept_sparse="csr", input_name="X")  # names the fault, if it is one
        raise ValueError("The values of X are too large to be added up in double precision. Rescale the columns.")
    if y is not None:
        y = column_or_1d(y, warn=True)
        if len(y) != n:
            raise ValueError(f"X has {n} rows and y has {len(y)}.")
    total = float(n) if weight is None else float(weight.sum())
    return Block(X=X, y=y, sample_weight=weight, mean=sums / total)


def block_identity(block: Block) -> str:
    """A hash of all values of a block."""
    X = block.X
    digest = hashlib.sha256(f"{X.shape} {X.dtype}".encode())
    parts = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    for part in (*parts, block.y, block.sample_weight):
        values = np.asarray([]) if part is None else part
        digest.update(np.ascontiguousarray(values.astype("U") if values.dtype == object else values).tobytes())
    return digest.hexdigest()


# -- rows on a cluster -----------------------------------------------------------------------------


def is_dask_collection(X: Any) -> bool:
    """Whether X is a Dask array or frame. Dask is not imported for it."""
    dask = sys.modules.get("dask")
    return dask is not None and bool(dask.is_dask_collection(X)) and (is_dask_array(X) or is_dask_frame(X))


def is_dask_array(X: Any) -> bool:
    """Whether a Dask collection is an array."""
    return hasattr(X, "chunks") and hasattr(X, "ndim")


def is_dask_frame(X: Any) -> bool:
    """Whether a Dask collection is a frame or a series."""
    return hasattr(X, "npartitions") and hasattr(X, "dtypes")


def is_spark_frame(X: Any) -> bool:
    """Whether X is a DataFrame of Spark or of Spark Connect."""
    return nw.dependencies.is_pyspark_dataframe(X) or nw.dependencies.is_pyspark_connect_dataframe(X)


def refuse_lazy_frame(X: Any) -> None:
    """Refuse a frame of polars without rows, with the remedy."""
    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError(
            "X is a LazyFrame, whose rows wait to be computed: give X.collect(), or tithe.open_dataset(X, target=...), "
            "which reads the rows anew in every pass."
        )


def as_rows(
    X: Any, y: Any = None, sample_weight: Any = None, *, schema: TableSchema | None = None
) -> tuple[Any, Any, Any]:
    """Rows that lie on a cluster as a source, with their y and weights; other rows as they are.

    Of a Dask collection y and weights are collections too, of a Spark DataFrame names of columns.
    """
    refuse_lazy_frame(X)
    if is_dask_collection(X):
        from tithe.rows.dask_collections import dask_source

        return dask_source(X, y=y, sample_weight=sample_weight, schema=schema), None, None
    if is_spark_frame(X):
        from tithe.rows.spark_frames import open_numbers

        return open_numbers(X, y, sample_weight, schema), None, None
    return X, y, sample_weight
