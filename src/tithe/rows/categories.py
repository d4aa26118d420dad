"""Kinds of columns most of whose features are zero in a row: categories and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import pyarrow as pa

from tithe.core.data import Array
from tithe.core.state_checks import Check, Each, Flag, Integer, Text, expect
from tithe.rows.kinds import ColumnEncoding, Entries
from tithe.rows.values import (
    as_text,
    coded_texts,
    is_date,
    is_number,
    is_text,
    value_type,
    without_gaps,
    words_of,
)

MAX_WIDTH = 2**20  # features of one column: a file that says more is damaged


@dataclass(frozen=True, kw_only=True)
class PlacedEncoding(ColumnEncoding):
    """Features most of which are zero in a row."""

    def encode(self, values: Any, na: Sequence[str], out: Array) -> None:
        entries = self.entries(values, na)
        out[:] = 0
        out[entries.rows, entries.places] = entries.values

    def accepts(self, type_: pa.DataType) -> bool:
        inner = value_type(type_)
        plain = is_text(inner) or is_number(inner) or is_date(inner)
        return plain or pa.types.is_boolean(inner) or pa.types.is_null(inner)


def _with_bad_rows(entries: Entries, gaps: Array) -> Entries:
    """The entries, and NaN for rows that have a gap and hence no entry."""
    bad = np.flatnonzero(gaps)
    rows = np.concatenate([entries.rows, bad])
    order = np.argsort(rows, kind="stable")
    places = np.concatenate([entries.places, np.zeros(len(bad), np.int64)])
    values = np.concatenate([entries.values, np.full(len(bad), np.nan)])
    return Entries(rows[order], places[order], values[order])


@dataclass(frozen=True, kw_only=True)
class CategoryEncoding(PlacedEncoding):
    """A category with one feature for each value, or, if ``n_hashes`` is given, values hashed into that many.

    Parameters
    ----------
    values : tuple of str
        In ascending order. Empty if values are hashed.
    n_hashes : int
        0: values are not hashed. The hash is the CRC-32 of the UTF-8 bytes, the same on every machine.
    other : bool
        Whether there is a feature for all other values. If not, they have zeros everywhere.
    gaps : {"mark", "zeros", "bad"}
        A gap has a feature of its own, or zeros everywhere, or makes its row bad.
    """

    values: tuple[str, ...] = ()
    n_hashes: int = 0
    other: bool = False
    gaps: str = "zeros"

    kind: ClassVar[str] = "category"
    checks: ClassVar[dict[str, Check]] = {
        "values": Each(Text()),
        "n_hashes": Integer(most=MAX_WIDTH),
        "other": Flag(),
        "gaps": Text(("mark", "zeros", "bad")),
    }

    def _check_state(self) -> None:
        super()._check_state()
        expect(list(self.values) == sorted(set(self.values)), "the values of a category do not ascend")
        expect(len(self.values) <= MAX_WIDTH and self.width, "a category has no features")
        expect(not (self.n_hashes and (self.values or self.other)), "a category is hashed and has values as well")

    @property
    def width(self) -> int:
        return len(self.values) + self.n_hashes + self.other + (self.gaps == "mark")

    def names(self, column: str) -> list[str]:
        names = [f"{column}={value}" for value in self.values] + [f"{column}#{i}" for i in range(self.n_hashes)]
        if self.other:
            names.append(f"{column}=other" if "other" not in self.values else f"{column}=other values")
        return [*names, f"{column} missing"] if self.gaps == "mark" else names

    def entries(self, values: Any, na: Sequence[str]) -> Entries:
        codes, texts = coded_texts(values, na)
        places = np.array([self._place(text) for text in texts] + [self.width - 1], np.int64)  # code -1 reads the last
        placed = places[codes]
        gaps = codes < 0
        rows = np.flatnonzero((placed >= 0) & (~gaps | (self.gaps == "mark")))
        entries = Entries(rows, placed[rows], np.ones(len(rows)))
        return _with_bad_rows(entries, gaps) if self.gaps == "bad" else entries

    def _place(self, text: str) -> int:
        """The feature of a value; -1 if it has none."""
        if self.n_hashes:
            return crc32(text.encode()) % self.n_hashes
        return _places_of(self.values).get(text, len(self.values) if self.other else -1)

    def describe(self) -> str:
        if self.n_hashes:
            words = f"hashed into {self.n_hashes} features"
        else:
            words = f"one feature for each of {len(self.values)} values" + (" and one for all others" * self.other)
        return words + ("; gaps are marked" if self.gaps == "mark" else "")


@lru_cache(maxsize=256)
def _places_of(values: tuple[str, ...]) -> dict[str, int]:
    return {value: place for place, value in enumerate(values)}


@dataclass(frozen=True, kw_only=True)
class WordsEncoding(PlacedEncoding):
    """The words of a text, in lower case, hashed: counts, divided by the square root of the number of words.

    A gap has no words; ``bad`` makes its row bad instead.
    """

    n_hashes: int
    bad: bool = False

    kind: ClassVar[str] = "text"
    checks: ClassVar[dict[str, Check]] = {"n_hashes": Integer(least=1, most=MAX_WIDTH), "bad": Flag()}

    @property
    def width(self) -> int:
        return self.n_hashes

    def names(self, column: str) -> list[str]:
        return [f"{column}#{i}" for i in range(self.n_hashes)]

    def entries(self, values: Any, na: Sequence[str]) -> Entries:
        texts = without_gaps(as_text(values), na)
        n_words, words = words_of(texts)
        hashes = np.array([crc32(word.encode()) % self.n_hashes for word in words.dictionary.to_pylist()], np.int64)
        rows = np.repeat(np.arange(len(texts)), n_words)
        keys = rows * self.n_hashes + hashes[words.indices.to_numpy(zero_copy_only=False)]
        cells, counts = np.unique(keys, return_counts=True)
        rows, places = np.divmod(cells, self.n_hashes)
        entries = Entries(rows, places, counts / np.sqrt(n_words[rows]))
        return _with_bad_rows(entries, texts.is_null().to_numpy(zero_copy_only=False)) if self.bad else entries

    def describe(self) -> str:
        return f"words hashed into {self.n_hashes} features"
