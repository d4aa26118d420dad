"""What a file may ask for: a small damaged file must not take all memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tithe.core.errors import FileFormatError
from tithe.core.params import OneOf, WholeNumber, check_params

TABLE_COLUMNS = 100_000
LIBSVM_COLUMNS = 2**20  # a vector of that length takes 8 MB, and an objective may hold dozens of them
_USUAL_RATIO = 50  # to which data shrink that are worth reading; nothing but repetition shrinks more


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on what is read from a file; a file that goes beyond one is refused by a `FileFormatError`.

    Parameters
    ----------
    row_bytes : int
        Bytes of one row of text, or of the header: by default 16 MiB.
    columns : int, optional
        Columns of delimited text, and the largest column number of libsvm rows where ``n_features`` does not say how
        many there are. By default 100,000 of delimited text and 1,048,576 of libsvm rows.
    unpacked_bytes : int
        Bytes of what is unpacked at once: an array of an ``.npz`` file, a page of a Parquet file, the pixels of a
        picture. By default 128 MiB. More is allowed where it is at most 50 times what it is packed into.

    Examples
    --------
    >>> Limits(columns=10**6).columns
    1000000
    """

    row_bytes: int = 2**24
    columns: int | None = None
    unpacked_bytes: int = 2**27

    def __post_init__(self) -> None:
        count = WholeNumber(least=1)
        check_params(self, {"row_bytes": count, "columns": count | OneOf(None), "unpacked_bytes": count})

    def check_unpacked(self, what: str, unpacked: int, packed: int) -> None:
        """Refuse what would take much memory and is packed into little. ``what`` names it."""
        if unpacked > max(self.unpacked_bytes, _USUAL_RATIO * packed):
            raise beyond(f"{what} takes {unpacked:,} bytes when it is unpacked", "unpacked_bytes", self.unpacked_bytes)


def beyond(what: str, limit: str, value: Any) -> FileFormatError:
    """The error for a file that goes beyond a limit."""
    return FileFormatError(
        f"{what}; the limit is {value:,}. If the file is right, raise it: limits=Limits({limit}=...) "
        f"(--limit {limit}=...)."
    )
