"""Models and states by skops. Nothing on disk is ever unpickled, and only types that are `Storable` are loaded."""

from __future__ import annotations

import os
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from typing import Any

from tithe.core.errors import FileFormatError
from tithe.core.files import replacing
from tithe.core.foreign_checks import check_foreign
from tithe.core.registry import registered_types
from tithe.core.state_checks import Storable, check_loaded
from tithe.storage.blocks import check_uncompressed

# types of scikit-learn that skops does not trust because of the underscore: plain numbers and an estimator
_SKLEARN_TYPES = ("sklearn.calibration._CalibratedClassifier", "sklearn.calibration._SigmoidCalibration")


def object_bytes(thing: Any) -> bytes:
    """One of our own objects by skops. Raises ``ValueError`` for one that `object_from` would refuse."""
    from skops import io

    data: bytes = io.dumps(thing)
    untrusted = _untrusted_types(data=data)
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
        untrusted = _untrusted_types(data=data)
        if untrusted:
            raise FileFormatError(f"it wants to load {untrusted[0]}, which is not a type of tithe.")
        check_uncompressed(data)
        return check_loaded(io.loads(data, trusted=io.get_untrusted_types(data=data)), check_foreign)
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
    untrusted = _untrusted_types(file=temporary)
    if untrusted:
        raise ValueError(
            f"{type(model).__name__} holds a {untrusted[0]}, which cannot be loaded without trusting the file: "
            "it was not saved. Save the coreset instead, and fit again from it."
        )


def _untrusted_types(**archive: Any) -> list[str]:
    """Types in a file or in data that are trusted neither by skops nor by us."""
    from skops import io

    names = [
        name for name in io.get_untrusted_types(**archive) if name not in _SKLEARN_TYPES and not _is_storable(name)
    ]
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


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read an estimator written by `save_model`. A file that needs any type of its own is refused."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    try:
        return object_from(Path(path).read_bytes())
    except FileFormatError as error:
        raise FileFormatError(f"{os.fspath(path)!r} is not a whole model file of ours: {error}") from error
