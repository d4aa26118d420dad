"""Coresets as Parquet, models as skops. Nothing on disk is ever unpickled."""

from __future__ import annotations

import base64
import io as memory
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import FileFormatError
from tithe.core.files import replacing
from tithe.core.foreign_checks import check_foreign
from tithe.core.registry import registered_types
from tithe.core.state_checks import check_loaded

_KEY = b"tithe"
_FORMAT = 1
# what reading lies as if they were metadata can raise
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, pa.ArrowException)
_WEIGHT, _ROW, _TARGET = "sample_weight", "row_id", "y"
# every type that a model may hold besides what skops trusts, by name: a prefix would also admit what our modules import
_OUR_TYPES = {
    "tithe.learners.cluster.CoresetKMeans",
    "tithe.learners.cluster.CoresetKMedians",
    "tithe.learners.logistic.CoresetLogisticRegression",
    "tithe.learners.odm.linear_classifier.LinearODMClassifier",
    "tithe.learners.search.search_cv.CoresetSearchCV",
    "tithe.learners.meta.CoresetEstimator",
    "tithe.learners.search.folds.FoldStreams",
    "tithe.learners.search.folds.Shares",
    "tithe.core.hashing.Reservoir",
    "tithe.learners.dictionary.ksvd.KSVD",
    "tithe.learners.images.ImageDenoiser",
    "tithe.learners.odm.classifier.ODMClassifier",
    "tithe.learners.odm.base.MarginDistribution",
    # scikit-learn's own, which skops does not vouch for because of the underscore: plain numbers and an estimator
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "tithe.learners.online.paco.PACO",
    "tithe.learners.online.chain.Chain",
    "tithe.learners.online.memory.Past",
    "tithe.learners.online.history.History",
    "tithe.learners.online.scale.Scale",
    "tithe.objectives.quasi_posterior.QuasiPosteriorObjective",
    "tithe.core.data.Coreset",
    "tithe.certify.certificate.Certificate",
    "tithe.objectives.clustering.KMeansObjective",
    "tithe.objectives.clustering.KMedianObjective",
    "tithe.objectives.logistic.LogisticObjective",
    "tithe.objectives.margin.MarginObjective",
    "tithe.objectives.logistic_sensitivity.Clusters",
    "tithe.objectives.dictionary.DictionaryObjective",
    "tithe.objectives.generic.GenericObjective",
    "tithe.constructions.uniform.Uniform",
    "tithe.constructions.sensitivity.Sensitivity",
    "tithe.constructions.lightweight.Lightweight",
    "tithe.constructions.rings.Rings",
    "tithe.constructions.influence.Influence",
    "tithe.constructions.leverage.Leverage",
    "tithe.constructions.leverage.Leverages",
    "tithe.constructions.ball_cover.BallCover",
    "tithe.constructions.cablr.Cablr",
    "tithe.constructions.cablr.Acvs",
    "tithe.constructions.cablr.Prepared",
    "tithe.constructions.regressed.Regressed",
    "tithe.constructions.regressed_model.SensitivityModel",
    "tithe.constructions.regressed_model.Linear",
    "tithe.constructions.regressed.Known",
    "tithe.engines.serial.SerialEngine",
    "tithe.engines.threads.ThreadEngine",
    "tithe.reduce.plan.Plan",
    "tithe.reduce.plan.Reducer",
    "tithe.sources.batches.Regrouper",
    "tithe.core.data.Block",
    "tithe.reduce.stream.CoresetStream",
}


def check_output(path: str | os.PathLike[str], *, beside: str | os.PathLike[str] | None = None) -> None:
    """Refuse, before any work is done, a file that could not be written or would replace its own input."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(target.parent)!r} to write {target.name!r} into.")
    if target.is_dir():
        raise IsADirectoryError(f"{str(target)!r} is a folder.")
    if beside is not None and target.exists() and target.samefile(beside):
        raise ValueError(f"{str(target)!r} is the input itself: choose another name for the output.")


def free_names(names: list[str]) -> list[str]:
    """Column names with an underscore added to those that a coreset file needs for itself."""
    return [f"{name}_" if name in (_WEIGHT, _ROW, _TARGET) else name for name in names]


def save_coreset(coreset: Coreset, path: str | os.PathLike[str], *, feature_names: list[str] | None = None) -> None:
    """Write a coreset as a Parquet file of rows, weights and row ids, with JSON metadata in the schema."""
    table = _as_table(coreset, feature_names)
    with replacing(path) as temporary:
        _write_table(table, temporary)


def write_coreset(coreset: Coreset, temporary: Path, *, feature_names: list[str] | None = None) -> None:
    """The same to a temporary file of `replacing`, where several files are to appear together."""
    _write_table(_as_table(coreset, feature_names), temporary)


def _write_table(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def _as_table(coreset: Coreset, feature_names: list[str] | None) -> pa.Table:
    d = coreset.n_features
    names = feature_names or [f"x{j}" for j in range(d)]
    if len(names) != d or len(set(names)) != d or {_WEIGHT, _ROW, _TARGET} & set(names):
        raise ValueError(f"feature_names must be {d} distinct names other than {_WEIGHT}, {_ROW} and {_TARGET}.")
    columns: dict[str, Any] = {}
    if sparse.issparse(coreset.X):
        offsets = pa.array(coreset.X.indptr.astype(np.int32))
        columns["columns"] = pa.ListArray.from_arrays(offsets, pa.array(coreset.X.indices.astype(np.int32)))
        columns["values"] = pa.ListArray.from_arrays(offsets, pa.array(coreset.X.data))
        layout = "csr"
    else:
        columns |= {name: pa.array(np.ascontiguousarray(coreset.X[:, j])) for j, name in enumerate(names)}
        layout = "dense"
    if coreset.y is not None:
        columns[_TARGET] = pa.array(coreset.y)
    columns[_WEIGHT] = pa.array(coreset.weights())
    columns[_ROW] = pa.array(coreset.row_ids())
    about = {
        "format": _FORMAT,
        "layout": layout,
        "dtype": str(coreset.X.dtype),
        "features": names,
        "n_seen": coreset.n_seen,
        "weight_seen": coreset.weight_seen,
        "key": list(coreset.key),
        "last_row": coreset.last_row,
        "is_whole": coreset.is_whole,
        "totals": _packed(coreset.totals),
        "pilot": _packed(coreset.pilot),
        "provenance": dict(coreset.provenance),
    }
    return pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about).encode()})


def load_coreset(path: str | os.PathLike[str]) -> Coreset:
    """Read a coreset written by `Coreset.save`. Raises `FileFormatError` (a ValueError) for anything else."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    try:
        table = pq.read_table(os.fspath(path), page_checksum_verification=True, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(f"{os.fspath(path)!r} is not a whole Parquet file: {error}") from error
    about = coreset_metadata(table.schema, path)
    try:
        coreset: Coreset = check_loaded(_from_table(table, about))
        return coreset
    except _DAMAGE as error:
        raise FileFormatError(f"{os.fspath(path)!r} is a damaged coreset: {error}") from error


def coreset_metadata(schema: pa.Schema, path: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON metadata of a coreset file, checked for being ours."""
    raw = (schema.metadata or {}).get(_KEY)
    if raw is None:
        raise FileFormatError(
            f"{os.fspath(path)!r} is a Parquet file but not a coreset: it was not written by Coreset.save()."
        )
    try:
        about: dict[str, Any] = json.loads(raw)
        version = int(about["format"])
    except _DAMAGE as error:
        raise FileFormatError(f"{os.fspath(path)!r} has damaged metadata: {error}") from error
    if version > _FORMAT:
        raise FileFormatError(f"{os.fspath(path)!r} has format {version}, newer than this version of tithe reads.")
    return about


def _from_table(table: pa.Table, about: dict[str, Any]) -> Coreset:
    """The coreset in a table, every claim of the metadata checked against the columns."""
    _expect(table.num_rows > 0, "it has no rows")
    _expect(not any(table.column(n).null_count for n in table.column_names if n != _TARGET), "values are missing")
    weight = table.column(_WEIGHT).to_numpy().astype(np.float64)
    X = _matrix(table, [str(n) for n in about["features"]], str(about["layout"]), np.dtype(about["dtype"]))
    values = X.data if sparse.issparse(X) else X
    _expect(bool(np.isfinite(values).all()), "values are not finite")
    _expect(bool(np.isfinite(weight).all() and (weight > 0).all()), "weights are not finite and positive")
    n_seen, weight_seen = int(about["n_seen"]), float(about["weight_seen"])
    _expect(n_seen >= 1 and 0 < weight_seen < np.inf, "it stands for nothing")
    return Coreset(
        X=X,
        y=table.column(_TARGET).to_numpy() if _TARGET in table.column_names else None,
        sample_weight=weight,
        indices=table.column(_ROW).to_numpy().astype(np.int64),
        n_seen=n_seen,
        weight_seen=weight_seen,
        totals=_unpacked(about["totals"]),
        pilot=_unpacked(about["pilot"]),
        key=(int(about["key"][0]), int(about["key"][1])),
        last_row=int(about.get("last_row", -1)),
        is_whole=about.get("is_whole", False),
        provenance={str(k): v for k, v in about["provenance"].items() if isinstance(v, (str, int, float))},
    )


def _expect(holds: bool, fault: str) -> None:
    if not holds:
        raise ValueError(fault)


def _matrix(table: pa.Table, names: list[str], layout: str, dtype: np.dtype[Any]) -> Any:
    _expect(dtype in (np.float32, np.float64), f"its values are said to be {dtype}")
    if layout != "csr":
        X = np.empty((table.num_rows, len(names)), dtype)
        for j, name in enumerate(names):
            X[:, j] = table.column(name).to_numpy()
        return X
    lists, values = (table.column(name).combine_chunks() for name in ("columns", "values"))
    _expect(lists.offsets.equals(values.offsets), "columns and values do not fit together")
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


def rows_bytes(block: Block) -> bytes:
    """A block or coreset in NumPy's own format, every bit kept: for checkpoints, which only we read."""
    arrays: dict[str, Any] = {}
    if sparse.issparse(block.X):
        arrays |= {"data": block.X.data, "columns": block.X.indices, "offsets": block.X.indptr}
        arrays["shape"] = np.array(block.X.shape)
    else:
        arrays["X"] = block.X
    optional = {"y": block.y, "sample_weight": block.sample_weight, "indices": block.indices}
    if isinstance(block, Coreset):
        optional |= {"totals": block.totals, "pilot": block.pilot}
        about = {name: getattr(block, name) for name in ("n_seen", "weight_seen", "key", "last_row", "is_whole")}
        text = json.dumps({**about, "provenance": dict(block.provenance)})
        arrays["coreset"] = np.frombuffer(text.encode(), np.uint8)
    arrays |= {name: array for name, array in optional.items() if array is not None}
    if block.y is not None and block.y.dtype.kind == "O":
        labels = block.y.tolist()
        arrays |= {"y": np.array(labels), "y_was_object": np.array(True)}
        if arrays["y"].tolist() != labels or len({type(label) for label in labels}) > 1:
            raise ValueError("y holds values of different kinds, or text that ends in a null: it cannot be written.")
    file = memory.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def rows_from(data: bytes) -> Block:
    """What `rows_bytes` wrote."""
    try:
        _expect_stored(data)
        with np.load(memory.BytesIO(data), allow_pickle=False) as file:
            arrays = dict(file)
        if "X" in arrays:
            X = arrays["X"]
        else:
            X = sparse.csr_matrix((arrays["data"], arrays["columns"], arrays["offsets"]), shape=tuple(arrays["shape"]))
            X.check_format(full_check=True)
        y = arrays.get("y")
        if "y_was_object" in arrays and y is not None:
            y = y.astype(object)
        rows = {"X": X, "y": y, "sample_weight": arrays.get("sample_weight"), "indices": arrays.get("indices")}
        for name, array in rows.items():
            _expect(array is None or array.shape[0] == X.shape[0], f"there are more or fewer {name} than rows")
        block = Block(**rows)
        if "coreset" in arrays:
            about = json.loads(arrays["coreset"].tobytes())
            about["key"] = tuple(about["key"])
            block = Coreset(**rows, totals=arrays.get("totals"), pilot=arrays.get("pilot"), **about)
        return check_loaded(block)  # type: ignore[no-any-return]
    except FileFormatError:
        raise
    except Exception as error:  # zipfile and the array format have their own kinds for damage
        raise FileFormatError(f"rows cannot be read: {error}") from error


def _expect_stored(data: bytes) -> None:
    """Refuse an archive that takes more memory than it has bytes: we write none that is compressed."""
    with zipfile.ZipFile(memory.BytesIO(data)) as archive:
        parts = archive.infolist()
    stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
    _expect(stored and sum(part.file_size for part in parts) <= len(data), "its parts are larger than the file")


def object_bytes(thing: Any) -> bytes:
    """One of our own objects by skops. Raises ``ValueError`` for one that `object_from` would refuse."""
    from skops import io

    data: bytes = io.dumps(thing)
    strangers = _strangers(data=data)
    if strangers:
        raise ValueError(
            f"{strangers[0]} cannot be written into a checkpoint: it could not be read without trusting the file. "
            "A package that registers it as an entry point (see tithe.core.registry) is trusted."
        )
    return data


def object_from(data: bytes) -> Any:
    """What `object_bytes` wrote. Data that needs any other type is refused."""
    from skops import io

    try:
        strangers = _strangers(data=data)
        if strangers:
            raise FileFormatError(f"it wants to load {strangers[0]}, which is not a type of tithe.")
        _expect_stored(data)
        return check_loaded(io.loads(data, trusted=sorted(_OUR_TYPES | registered_types())), check_foreign)
    except FileFormatError:
        raise
    except Exception as error:  # a damaged archive fails in as many ways as there are bytes
        raise FileFormatError(f"it cannot be read: {error}") from error


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator with skops. Raises ``ValueError`` for one that `load_model` would refuse."""
    with replacing(path) as temporary:
        write_model(model, temporary)


def write_model(model: Any, temporary: Path) -> None:
    """The same to a temporary file of `replacing`, where several files are to appear together."""
    from skops import io

    io.dump(model, temporary)
    strangers = _strangers(file=temporary)
    if strangers:
        raise ValueError(
            f"{type(model).__name__} holds a {strangers[0]}, which cannot be loaded without trusting the file: "
            "it was not saved. Save the coreset instead, and fit again from it."
        )


def _strangers(**where: Any) -> list[str]:
    """Types in a file or in data that neither skops nor we vouch for: ours, and those registered with us."""
    from skops import io

    found = [name for name in io.get_untrusted_types(**where) if name not in _OUR_TYPES]
    return [name for name in found if name not in registered_types()] if found else []


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read an estimator written by `save_model`. A file that needs any type of its own is refused."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    try:
        return object_from(Path(path).read_bytes())
    except FileFormatError as error:
        raise FileFormatError(f"{os.fspath(path)!r} is not a whole model file of ours: {error}") from error
