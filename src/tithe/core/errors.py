"""Messages that name what is missing and say what to do."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class FileFormatError(ValueError):
    """A file is not what its name or its reader says it is.

    Examples
    --------
    >>> from tempfile import NamedTemporaryFile
    >>> import tithe
    >>> with NamedTemporaryFile(suffix=".parquet") as file:
    ...     try:
    ...         tithe.load_coreset(file.name)
    ...     except tithe.FileFormatError as error:
    ...         print("not a whole Parquet file" in str(error))
    True
    """


class EncodingWarning(UserWarning):
    """Columns of a table became features in a way that loses something: the message names them.

    Examples
    --------
    >>> import warnings
    >>> import pandas as pd
    >>> import tithe
    >>> frame = pd.DataFrame({"size": [1.0, 2.0, 4.0] * 10, "code": [f"a{i}" for i in range(30)]})
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     source = tithe.open_dataset(frame)
    >>> caught[0].category is tithe.EncodingWarning, source.schema.uses()[1].use
    (True, 'left out')
    """


class NoRowsError(ValueError):
    """There are no rows: a source or a stream is empty, or none of its rows is left."""


class RowsNotSavedError(ValueError, AttributeError):
    """A model that was saved without its training rows is asked for something that needs them."""

    def __str__(self) -> str:
        saved = "the model was saved without its training rows. save_model(model, path, rows=True) keeps them."
        return f"{self.args[0]}: {saved}"


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """The error for a name that no registry entry answers to."""
    known = sorted(known)
    close = get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ValueError(f"There is no {kind} named {name!r}.{hint} Known: {', '.join(known)}.")


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package from which it was called."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=level)
