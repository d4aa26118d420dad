"""Models in files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tithe.core.errors import FileFormatError
from tithe.core.files import replacing
from tithe.core.state_checks import expect
from tithe.core.version import __version__
from tithe.rows.stores import check_regular
from tithe.storage.values import about_file, packed, unpacked


def save_model(model: Any, path: str | os.PathLike[str], rows: bool = False) -> None:
    """Write a fitted estimator as JSON and arrays. Raises ``ValueError`` for one that `load_model` would refuse.

    Boosters of LightGBM, XGBoost and CatBoost are in the formats of these libraries, other estimators of other
    libraries are written by skops. Nothing is pickled. CatBoost's predict the same but for the last digit.

    Parameters
    ----------
    model : estimator
    path : str or path
    rows : bool
        Whether to keep training rows in the file: coresets, and what a stream holds. Without them a loaded model
        predicts the same, bit for bit. With them it can also go on with ``partial_fit``, and has its coreset for
        ``certify``. Parameters are kept in any case, and so are rows that predictions need: the support vectors of
        `ODMClassifier`, and whatever an estimator of another library holds inside `CoresetEstimator` (those of `SVC`
        are training rows). A center of a cluster of a single row is that row.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import tithe
    >>> model = tithe.CoresetKMeans(n_clusters=2, random_state=0).fit(np.eye(9))
    >>> with TemporaryDirectory() as folder:
    ...     tithe.save_model(model, f"{folder}/model.tithe")
    ...     tithe.load_model(f"{folder}/model.tithe").cluster_centers_.shape
    (2, 9)
    """
    data = model_bytes(model, rows=rows)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def model_bytes(model: Any, *, rows: bool = False) -> bytes:
    """What `save_model` writes. Raises `ValueError` for a model that could not be loaded."""
    if not _is_estimator(model):
        raise ValueError(f"A model is an estimator with fit() and get_params(), not a {type(model).__name__}.")
    return packed(model, {"tithe": __version__, "rows": bool(rows)}, rows=rows)


def _is_estimator(thing: Any) -> bool:
    return not isinstance(thing, type) and hasattr(thing, "fit") and hasattr(thing, "get_params")


def model_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model file says about itself: the version of ``tithe``, whether ``rows`` were kept, and ``n_rows``."""
    check_regular(os.fspath(path))
    return about_file(Path(path).read_bytes())


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read an estimator written by `save_model`. A file that needs any type of its own is refused.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> import tithe
    >>> model = tithe.CoresetKMeans(n_clusters=2, random_state=0).fit(np.eye(9))
    >>> with TemporaryDirectory() as folder:
    ...     tithe.save_model(model, f"{folder}/model.tithe")
    ...     same = tithe.load_model(f"{folder}/model.tithe")
    >>> bool((same.predict(np.eye(9)) == model.labels_).all())
    True
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {os.fspath(path)!r}.")
    try:
        model = unpacked(Path(path).read_bytes())
        expect(_is_estimator(model), "it holds no estimator")
        return model
    except FileFormatError as error:
        raise FileFormatError(f"{os.fspath(path)!r} is not a whole model file of ours: {error}") from error
