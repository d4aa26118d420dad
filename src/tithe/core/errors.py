"""Messages that name what is missing and say what to do."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class FileFormatError(ValueError):
    """A file is not what its name or its reader says it is."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """The error for a name that no registry entry answers to."""
    known = sorted(known)
    close = get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return ValueError(f"There is no {kind} named {name!r}.{hint} Known: {', '.join(known)}.")


def require_methods(who: object, methods: Iterable[str], *, needed_by: str) -> None:
    """Fail before the first byte is read if ``who`` lacks one of ``methods``."""
    missing = [m for m in methods if not callable(getattr(who, m, None))]
    if missing:
        name = getattr(who, "name", type(who).__name__)
        raise ValueError(
            f"{needed_by} needs {', '.join(m + '()' for m in missing)}, which {name!r} does not have. "
            "For a coreset, construction='uniform' with calibrate=False needs nothing of an objective."
        )


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this package that led here, however many of our functions lie between."""
    level, frame = 2, sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=level)
