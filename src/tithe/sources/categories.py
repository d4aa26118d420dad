"""Text as numbers: one column for each distinct value, or values hashed into a few columns."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import pyarrow as pa

from tithe.core.data import Array

MAX_VALUES = 1000  # distinct values of a one-hot column


class TextEncoder(Protocol):
    """Encodes a text as a 1 in one of ``width`` columns. A null is encoded like the text ``""``."""

    @property
    def width(self) -> int: ...

    def names(self, column: str) -> list[str]:
        """Names of the columns."""
        ...

    def place(self, value: str) -> int:
        """The column of a value."""
        ...


@dataclass(frozen=True)
class OneHotText:
    """One column for each of ``values``."""

    values: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return len(self.values)

    def names(self, column: str) -> list[str]:
        return [f"{column}={value}" for value in self.values]

    def place(self, value: str) -> int:
        at = bisect_left(self.values, value)
        if at == len(self.values) or self.values[at] != value:
            raise ValueError(f"the value {value!r} was not there when the files were opened")
        return at


@dataclass(frozen=True)
class HashedText:
    """The CRC-32 of the UTF-8 bytes, modulo ``width``: the same on every machine.

    >>> HashedText(32).place("red")
    15
    """

    width: int

    def names(self, column: str) -> list[str]:
        return [f"{column}#{i}" for i in range(self.width)]

    def place(self, value: str) -> int:
        return crc32(value.encode()) % self.width


def places(column: Any, text: TextEncoder) -> Array:
    """The place of every value of an Arrow array of text: (n,) int64."""
    codes, values = coded(column)
    of_value = np.array([text.place(value) for value in values], np.int64)
    if (codes < 0).any():
        of_value = np.append(of_value, text.place(""))  # code -1 reads it
    return of_value[codes]


def coded(column: Any) -> tuple[Array, list[str]]:
    """Codes and values of an Arrow array of text or a dictionary; nulls have code -1."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes: Array = column.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    values = column.dictionary.cast(pa.string())
    return codes, ["" if v is None else v for v in values.to_pylist()]
