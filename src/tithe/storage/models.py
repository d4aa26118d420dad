"""Models and states by skops. Nothing on disk is ever unpickled, and only types that are `Storable` are loaded."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import isabstract
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from tithe.core.data import Block
from tithe.core.errors import FileFormatError
from tithe.core.files import replacing
from tithe.core.loaded import check_loaded, parts_of
from tithe.core.registry import registered_types
from tithe.core.state_checks import Storable, copy_with
from tithe.core.version import __version__
from tithe.storage.blocks import check_uncompressed

ABOUT = "tithe.json"  # a member of a model file, beside those of skops
# types of other packages that skops does not trust by itself. They hold plain numbers, or an estimator. Sparse matrices
# are read by `scipy.sparse.load_npz`, which unpickles nothing
_PLAIN_TYPES = (
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "scipy.sparse._csr.csr_matrix",
    "scipy.sparse._csc.csc_matrix",
)


def object_bytes(thing: Any) -> bytes:
    """One of our own objects by skops. Raises ``ValueError`` for one that `object_from` would refuse."""
    data = _archive(thing)
    untrusted = _untrusted_types(data)
    if untrusted:
        raise ValueError(
            f"{untrusted[0]} cannot be written into a checkpoint: it could not be read without trusting the file. "
            "A package that registers it as an entry point (see tithe.core.registry) is trusted."
        )
    return data


def object_from(data: bytes) -> Any:
    """What `object_bytes` wrote. Data that needs any other type is refused."""
    from skops import io

    try:
        untrusted = _untrusted_types(data)
        if untrusted:
            raise FileFormatError(f"it wants to load {untrusted[0]}, which is not a type of tithe.")
        check_uncompressed(data)
        return check_loaded(io.loads(data, trusted=io.get_untrusted_types(data=data)))
    except FileFormatError:
        raise
    except Exception as error:  # a damaged archive fails in as many ways as there are bytes
        raise FileFormatError(f"it cannot be read: {error}") from error


def save_model(model: Any, path: str | os.PathLike[str], rows: bool = False) -> None:
    """Write a fitted estimator with skops. Raises ``ValueError`` for one that `load_model` would refuse.

    Parameters
    ----------
    model : estimator
    path : str or path
    rows : bool
        Whether to keep training rows in the file: coresets, and what a stream holds. Without them a loaded model
        predicts the same, bit for bit. With them it can also go on with ``partial_fit``, and has its coreset for
        ``certify``. Parameters are kept in any case, and so are rows that predictions need: the support vectors of
        `ODMClassifier`, and whatever an estimator of another library holds inside `CoresetEstimator` (those of `SVC`
        are training rows). A centre of a cluster of a single row is that row.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import tithe
    >>> model = tithe.CoresetKMeans(n_clusters=2, random_state=0).fit(np.eye(9))
    >>> with TemporaryDirectory() as folder:
    ...     tithe.save_model(model, f"{folder}/model.skops")
    ...     tithe.load_model(f"{folder}/model.skops").cluster_centers_.shape
    (2, 9)
    """
    data = model_bytes(model, rows=rows)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def model_bytes(model: Any, *, rows: bool = False) -> bytes:
    """What `save_model` writes. Raises `ValueError` for a model that could not be loaded."""
    about = {"tithe": __version__, "rows": bool(rows)}
    data = _archive(model if rows else without_rows(model), {ABOUT: json.dumps(about).encode()})
    untrusted = _untrusted_types(data)
    if untrusted:
        raise ValueError(
            f"{type(model).__name__} holds a {untrusted[0]}, which cannot be loaded without trusting the file: "
            "it was not saved. Save the coreset instead, and fit again from it."
        )
    return data


def _archive(thing: Any, more: Mapping[str, bytes] | None = None) -> bytes:
    """An object by skops, with ``more`` members. Nothing in it is compressed: see `check_uncompressed`."""
    from skops import io

    with zipfile.ZipFile(BytesIO(io.dumps(thing))) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in {**members, **(more or {})}.items():
            archive.writestr(name, _stored(content) if name.endswith(".npz") else content)
    return file.getvalue()


def _stored(npz: bytes) -> bytes:
    """The arrays of a sparse matrix, which SciPy compresses, as they are."""
    file = BytesIO()
    with np.load(BytesIO(npz), allow_pickle=False) as arrays:
        np.savez(file, **arrays)
    return file.getvalue()


def without_rows(thing: Any, seen: dict[int, tuple[Any, Any]] | None = None) -> Any:
    """A copy in which every learner of ours, however deep inside other objects, is without its training rows.

    Whatever holds none is not copied.
    """
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return seen[id(thing)][1]
    seen[id(thing)] = thing, thing  # both are kept alive, so that no other object gets the same id
    result = thing.without_rows() if isinstance(thing, Storable) else thing
    parts: dict[Any, Any] = {}
    rebuild: Callable[[dict[Any, Any]], Any] = dict
    if type(result) is dict:
        parts = result
    elif type(result) in (list, tuple):
        parts, rebuild = dict(enumerate(result)), partial(_sequence, type(result))
    elif isinstance(result, (Storable, BaseEstimator)) or type(result).__module__.startswith("sklearn."):
        parts, rebuild = getattr(result, "__dict__", {}), partial(copy_with, result)
    stripped = {name: without_rows(part, seen) for name, part in parts.items()}
    if any(stripped[name] is not part for name, part in parts.items()):
        result = rebuild(stripped)
    seen[id(thing)] = thing, result
    return result


def _sequence(kind: type, parts: dict[Any, Any]) -> Any:
    return kind(parts.values())


def _untrusted_types(data: bytes) -> list[str]:
    """Types in the data that are trusted neither by skops nor by us."""
    from skops import io

    names = [name for name in io.get_untrusted_types(data=data) if name not in _PLAIN_TYPES and not _is_storable(name)]
    return [name for name in names if name not in registered_types()] if names else []


def _is_storable(name: str) -> bool:
    """Whether this is the full name of one of our `Storable` classes. Only modules of this package are imported."""
    module, _, attribute = name.rpartition(".")
    if not module.startswith("tithe.") or attribute.startswith("_"):
        return False
    try:
        cls = getattr(import_module(module), attribute, None)
    except (ImportError, ValueError):  # no module has that name
        return False
    return isinstance(cls, type) and issubclass(cls, Storable) and cls.__module__ == module and not isabstract(cls)


def model_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model file says about itself: the version of ``tithe``, and whether ``rows`` were kept."""
    with zipfile.ZipFile(path) as archive:
        about = json.loads(archive.read(ABOUT)) if ABOUT in archive.namelist() else {}
    return about if isinstance(about, dict) else {}


def n_rows_inside(thing: Any, seen: dict[int, Any] | None = None) -> int:
    """How many training rows a model holds in coresets and streams. A row that is held twice counts twice."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return 0
    seen[id(thing)] = thing
    if isinstance(thing, Block):
        return len(thing)
    return sum(n_rows_inside(part, seen) for part in parts_of(thing))


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read an estimator written by `save_model`. A file that needs any type of its own is refused.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import tithe
    >>> model = tithe.CoresetKMeans(n_clusters=2, random_state=0).fit(np.eye(9))
    >>> with TemporaryDirectory() as folder:
    ...     tithe.save_model(model, f"{folder}/model.skops")
    ...     same = tithe.load_model(f"{folder}/model.skops")
    >>> bool((same.predict(np.eye(9)) == model.labels_).all())
    True
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    try:
        return object_from(Path(path).read_bytes())
    except FileFormatError as error:
        raise FileFormatError(f"{os.fspath(path)!r} is not a whole model file of ours: {error}") from error
