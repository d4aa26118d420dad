"""Coresets as Parquet files that any tool reads: rows, weights and row ids, with JSON metadata in the schema.

A file whose name ends in ``.csv`` gets the same columns as CSV, without the metadata.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from scipy import sparse

from tithe.core.contracts import Objective, RowScorer
from tithe.core.data import Array, Coreset, Site
from tithe.core.errors import FileFormatError
from tithe.core.files import replacing
from tithe.core.registry import names, resolve
from tithe.core.state_checks import LARGEST, checked, expect
from tithe.rows.schema import TableSchema
from tithe.rows.stores import check_regular
from tithe.storage.values import packed, unpacked

_KEY = b"tithe"
_FORMAT = 1
_READ_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    pa.ArrowException,
)
_WEIGHT, _ROW, _TARGET, _SITE = "sample_weight", "row_id", "y", "site"
_NO_FEATURES = (_WEIGHT, _ROW, _TARGET, _SITE)
_ENDINGS = (".parquet", ".pq")
_SPARSE = ["columns", "values"]
_PLAIN_FIELDS = ("n_seen", "weight_seen", "key", "last_row", "is_whole", "half_life")  # JSON has them as they are


def free_names(names: list[str]) -> list[str]:
    """Column names with an underscore added to those that a coreset file needs for itself."""
    return [f"{name}_" if name in _NO_FEATURES else name for name in names]


def save_coreset(
    coreset: Coreset,
    path: str | os.PathLike[str],
    *,
    feature_names: list[str] | None = None,
    schema: TableSchema | None = None,
) -> None:
    """Write a coreset as a Parquet file of rows, weights and row ids, with JSON metadata in the schema.

    If the name ends in ``.csv``, the same columns are written as CSV; `load_coreset` does not read such a file. The
    rows of a sparse coreset have two columns then: the numbers of their columns and the values, separated by spaces.

    ``schema`` is that of the table that the rows came from, by default ``coreset.schema``.

    A coreset that was merged from several sites has a column ``site``, the number of the site that a row came from,
    and ``row_id`` is the id that the row has there.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import tithe
    >>> coreset = tithe.build_coreset(np.eye(9), objective="kmeans", coreset_size=9, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     tithe.save_coreset(coreset, f"{folder}/coreset.parquet")
    ...     tithe.load_coreset(f"{folder}/coreset.parquet")
    Coreset(9 rows standing for 9, 9 columns, all)
    """
    with replacing(path) as temporary:
        if _is_csv(path):
            pyarrow.csv.write_csv(_flat(_as_table(coreset, feature_names, schema)), temporary)
        else:
            write_coreset(coreset, temporary, feature_names=feature_names, schema=schema)


def write_coreset(
    coreset: Coreset, temporary: Path, *, feature_names: list[str] | None = None, schema: TableSchema | None = None
) -> None:
    """The same to a temporary file of `replacing`, where several files are to appear together."""
    table = _as_table(coreset, feature_names, schema)
    pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def saved_feature_names(path: str | os.PathLike[str]) -> list[str] | None:
    """The names of the features of a coreset file; None if they are not in it."""
    if not _is_csv(path):
        return [str(name) for name in _saved_about(path)["features"]]
    check_regular(os.fspath(path))
    with pyarrow.csv.open_csv(path) as reader:
        names = reader.schema.names
    return None if names[:2] == _SPARSE else [name for name in names if name not in _NO_FEATURES]


def _is_csv(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix.lower() == ".csv"


def _flat(table: pa.Table) -> pa.Table:
    """The table with lists as text."""
    columns = [
        pc.binary_join(column.cast(pa.list_(pa.string())), " ") if pa.types.is_list(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _as_table(coreset: Coreset, feature_names: list[str] | None, schema: TableSchema | None) -> pa.Table:
    d, schema = coreset.n_features, schema or coreset.schema
    if schema is not None and schema.n_features != d:
        raise ValueError(f"The schema makes {schema.n_features} features, the coreset has {d}: it is of other rows.")
    if feature_names is None and schema is not None:
        feature_names = free_names(schema.feature_names)
    names = feature_names or [f"x{j}" for j in range(d)]
    if len(names) != d or len(set(names)) != d or set(_NO_FEATURES) & set(names):
        raise ValueError(f"feature_names must be {d} distinct names other than {', '.join(_NO_FEATURES)}.")
    columns: dict[str, Any] = {}
    if sparse.issparse(coreset.X):
        offsets = pa.array(coreset.X.indptr.astype(np.int32))
        columns[_SPARSE[0]] = pa.ListArray.from_arrays(offsets, pa.array(coreset.X.indices.astype(np.int32)))
        columns[_SPARSE[1]] = pa.ListArray.from_arrays(offsets, pa.array(coreset.X.data))
        layout = "csr"
    else:
        columns |= {name: pa.array(np.ascontiguousarray(coreset.X[:, j])) for j, name in enumerate(names)}
        layout = "dense"
    if coreset.y is not None:
        columns[_TARGET] = pa.array(coreset.y)
    columns[_WEIGHT] = pa.array(coreset.weights())
    if coreset.sites:
        columns[_SITE], columns[_ROW] = map(pa.array, coreset.site_rows())
    else:
        columns[_ROW] = pa.array(coreset.row_ids())
    about = {
        "format": _FORMAT,
        "layout": layout,
        "dtype": str(coreset.X.dtype),
        "features": names,
        **{name: getattr(coreset, name) for name in _PLAIN_FIELDS},
        "totals": _packed(coreset.totals),
        "pilot": _packed(coreset.pilot),
        "provenance": dict(coreset.provenance),
        "objective": _objective_json(coreset.objective),
        "sites": [asdict(site) for site in coreset.sites],
        "schema": None if schema is None else schema.to_json(),
        **({} if coreset.scorer is None else {"scorer": base64.b64encode(packed(coreset.scorer)).decode()}),
    }
    return pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about).encode()})


def load_coreset(path: str | os.PathLike[str]) -> Coreset:
    """Read a coreset written by `save_coreset`. Raises `FileFormatError` (a ValueError) for anything else.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import tithe
    >>> coreset = tithe.build_coreset(np.eye(9), objective="kmeans", coreset_size=9, random_state=0)
    >>> with TemporaryDirectory() as folder:
    ...     tithe.save_coreset(coreset, f"{folder}/coreset.parquet")
    ...     same = tithe.load_coreset(f"{folder}/coreset.parquet")
    >>> bool((same.X == coreset.X).all() and (same.weights() == coreset.weights()).all())
    True
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    if _is_csv(path):
        raise FileFormatError(
            f"{os.fspath(path)!r} is CSV, which holds the rows but not what a coreset stands for: save it as .parquet, "
            f"or read its rows as data, with {_WEIGHT} as their weight."
        )
    try:
        table = pq.read_table(os.fspath(path), page_checksum_verification=True, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(f"{os.fspath(path)!r} is not a whole Parquet file: {error}") from error
    about = _metadata(table.schema, path)
    try:
        return checked(_from_table(table, about))
    except _READ_ERRORS as error:
        raise FileFormatError(f"{os.fspath(path)!r} is a damaged coreset: {error}") from error


def is_coreset_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a Parquet file that `save_coreset` wrote; it may be damaged for all that."""
    if not Path(path).is_file() or Path(path).suffix.lower() not in _ENDINGS:
        return False
    try:
        return _KEY in (pq.read_schema(os.fspath(path)).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def load_schema(path: str | os.PathLike[str]) -> TableSchema | None:
    """The schema of the table that a coreset came from; None if its file has none.

    ``open_dataset(..., schema=load_schema(path))`` makes the same features of other rows.
    """
    try:
        return _schema_in(_saved_about(path))
    except _READ_ERRORS as error:
        raise FileFormatError(f"{os.fspath(path)!r} has a damaged schema: {error}") from error


def _schema_in(about: dict[str, Any]) -> TableSchema | None:
    if about.get("schema") is None:
        return None
    schema = TableSchema.from_json(about["schema"])
    expect(schema.n_features == len(about["features"]), "it makes other features than the file has")
    return schema


def _saved_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    check_regular(os.fspath(path))
    try:
        return _metadata(pq.read_schema(os.fspath(path)), path)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(f"{os.fspath(path)!r} is not a whole Parquet file: {error}") from error


def _metadata(schema: pa.Schema, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON metadata of a coreset file, checked for being ours."""
    raw = (schema.metadata or {}).get(_KEY)
    if raw is None:
        raise FileFormatError(
            f"{os.fspath(path)!r} is a Parquet file but not a coreset: it was not written by save_coreset."
        )
    try:
        about: dict[str, Any] = json.loads(raw)
        version = int(about["format"])
    except _READ_ERRORS as error:
        raise FileFormatError(f"{os.fspath(path)!r} has damaged metadata: {error}") from error
    if version > _FORMAT:
        raise FileFormatError(f"{os.fspath(path)!r} has format {version}, newer than this version of tithe reads.")
    return about


def _from_table(table: pa.Table, about: dict[str, Any]) -> Coreset:
    """The coreset in a table, every claim of the metadata checked against the columns."""
    expect(table.num_rows > 0, "it has no rows")
    expect(not any(table.column(n).null_count for n in table.column_names if n != _TARGET), "values are missing")
    weight = table.column(_WEIGHT).to_numpy().astype(np.float64)
    X = _matrix(table, [str(n) for n in about["features"]], str(about["layout"]), np.dtype(about["dtype"]))
    expect(bool((weight > 0).all()), "weights are not positive")
    plain = {name: about[name] for name in _PLAIN_FIELDS if name in about}
    sites = tuple(Site.from_record(site) for site in about.get("sites", ()))
    return Coreset(
        schema=_schema_in(about),
        scorer=_scorer_in(about),
        X=X,
        y=table.column(_TARGET).to_numpy() if _TARGET in table.column_names else None,
        sample_weight=weight,
        indices=_row_ids(table, sites),
        totals=_unpacked(about["totals"]),
        pilot=_unpacked(about["pilot"]),
        provenance={str(k): v for k, v in about["provenance"].items() if isinstance(v, (str, int, float))},
        objective=_objective_from(about.get("objective")),
        sites=sites,
        **{**plain, "key": tuple(plain["key"])},
    )


def _scorer_in(about: dict[str, Any]) -> RowScorer | None:
    if about.get("scorer") is None:
        return None
    scorer = unpacked(base64.b64decode(about["scorer"]))
    fits = isinstance(scorer, RowScorer) and scorer.n_features == len(about["features"])
    expect(fits, "what scores new rows is of other columns")
    return scorer  # type: ignore[no-any-return]


def _row_ids(table: pa.Table, sites: tuple[Site, ...]) -> Array:
    """Row ids that differ between sites, from the number of the site and the id that a row has there."""
    ids: Array = table.column(_ROW).to_numpy().astype(np.int64)
    if not sites:
        return ids
    number = table.column(_SITE).to_numpy().astype(np.int64)
    expect(number.min() >= 0 and number.max() < len(sites), "a row is of a site that is not there")
    first = np.array([site.first_row for site in sites], np.int64)
    end = np.append(first[1:], LARGEST)
    ids = ids + first[number]
    expect(bool(((ids >= first[number]) & (ids < end[number])).all()), "a row id is not of its site")
    return ids


def _matrix(table: pa.Table, names: list[str], layout: str, dtype: np.dtype[Any]) -> Any:
    expect(dtype in (np.float32, np.float64), f"its values are said to be {dtype}")
    if layout != "csr":
        X = np.empty((table.num_rows, len(names)), dtype)
        for j, name in enumerate(names):
            X[:, j] = table.column(name).to_numpy()
        return X
    lists, values = (table.column(name).combine_chunks() for name in ("columns", "values"))
    expect(lists.offsets.equals(values.offsets), "columns and values do not fit together")
    offsets = lists.offsets.to_numpy(zero_copy_only=False)
    csr = sparse.csr_matrix(
        (
            values.values.to_numpy(zero_copy_only=False).astype(dtype, copy=False),
            lists.values.to_numpy(zero_copy_only=False),
            offsets,
        ),
        shape=(table.num_rows, len(names)),
    )
    csr.check_format(full_check=True)  # kernels trust column numbers: one out of bounds would be written to
    return csr


def _packed(array: Array | None) -> dict[str, Any] | None:
    if array is None:
        return None
    plain = np.ascontiguousarray(array, np.float64)
    return {"shape": list(plain.shape), "float64": base64.b64encode(plain.tobytes()).decode()}


def _unpacked(packed: dict[str, Any] | None) -> Array | None:
    if packed is None:
        return None
    return np.frombuffer(base64.b64decode(packed["float64"]), np.float64).reshape(packed["shape"]).copy()


def _objective_json(objective: Objective | None) -> dict[str, Any] | None:
    """Its name and parameters; None if its class is not registered under its name, or JSON cannot hold them."""
    if objective is None or objective.name not in names("objective"):
        return None
    if resolve("objective", objective.name) is not type(objective):
        return None
    data = {"name": objective.name, "parameters": objective.record()}
    try:
        plain: dict[str, Any] = json.loads(json.dumps(data, default=_plain, allow_nan=False))
    except (TypeError, ValueError):
        return None
    return plain


def _objective_from(data: dict[str, Any] | None) -> Objective | None:
    """What `_objective_json` gave; None if no such objective is installed. Raises ValueError for damaged data."""
    if data is None:
        return None
    expect(isinstance(data, dict) and isinstance(data.get("parameters"), dict), "its objective is none")
    if data.get("name") not in names("objective"):
        return None
    parameters = {key: tuple(value) if isinstance(value, list) else value for key, value in data["parameters"].items()}
    objective: Objective = resolve("objective", data["name"])(**parameters)
    return objective


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")
