"""Sparse rows as text: ``label index:value index:value ...``."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tithe.core.contracts import Source
from tithe.core.data import Array, Block, concat
from tithe.core.errors import FileFormatError
from tithe.rows.blocks import good_rows, row_of
from tithe.rows.columns import ColumnSelection, Numbered
from tithe.rows.leaves import SAMPLE_ROWS, check_any_row_good, joined, nonempty_sample, spread_shares, usual_leaf_rows
from tithe.rows.paths import DataFile, identity_of, no_rows
from tithe.rows.stores import LIBSVM_COLUMNS, Limits, beyond
from tithe.rows.text import TextFile, TextReader

_UNIT_ROWS = 16_384
_UNIT_BYTES = 2**24
_SAMPLE_UNITS = 64
_ENTRY_BYTES = 12
_VISIBLE = np.ones(256, bool)  # bytes that a parser does not take for white space
_VISIBLE[list(b" \t\n\r\v\f")] = False
_MAX_COLUMN = 2**31 - 1  # column number: those of a CSR matrix have 32 bits


class Unit(NamedTuple):
    """Consecutive lines of a file: their place in it, and the number of their first row in all files."""

    file: int
    offset: int
    n_bytes: int
    first_in_file: int
    first: int
    n_rows: int


class Census(NamedTuple):
    """Counts over lines: rows, entries, the largest column number, and whether column 0 is used."""

    n_rows: int
    n_entries: int
    largest: int
    has_zero: bool


def census(data: bytes) -> Census:
    """Count without parsing the values. Column numbers ascend in a row, so the last is the largest.

    >>> census(b"1 3:0.5 7:1 # a note\\n\\n-1 2:4\\n")
    Census(n_rows=2, n_entries=3, largest=7, has_zero=False)
    """
    if b"#" in data:
        data = re.sub(rb"#[^\n]*", b"", data)
    codes = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero(codes == ord("\n")), len(codes))
    starts = np.append(0, ends[:-1] + 1)
    filled = np.logical_or.reduceat(np.append(_VISIBLE[codes], False), starts)  # a line is what begins there
    colons = np.flatnonzero(codes == ord(":"))
    last = np.searchsorted(colons, ends) - 1
    at = colons[last[last >= 0]]
    largest, factor = np.zeros(len(at), np.int64), 1
    digits = np.ones(len(at), bool)
    for back in range(1, 19):
        digit = codes[np.maximum(at - back, 0)].astype(np.int64) - ord("0")
        digits &= (at >= back) & (digit >= 0) & (digit <= 9)
        if not digits.any():
            break
        largest += np.where(digits, digit * factor, 0)
        factor *= 10
    has_zero = b" 0:" in data or b"\t0:" in data
    return Census(int(filled.sum()), len(colons), int(largest.max(initial=0)), has_zero)


def parse(data: bytes, n_features: int, zero_based: bool) -> tuple[Any, Array]:
    """X (CSR float64) and the labels of some lines."""
    from sklearn.datasets import load_svmlight_file  # drags much along that no other format needs

    X, y = load_svmlight_file(io.BytesIO(data), n_features=n_features, zero_based=zero_based)
    return sparse.csr_matrix(X), y


def refuse_names(choice: ColumnSelection) -> None:
    """Columns of this format have no names, and the target always stands in front."""
    for what, asked in (("target", choice.target), ("weight", choice.weight), ("columns", choice.columns)):
        if asked is not None:
            raise ValueError(f"{what} cannot be named in libsvm files: the label in front of a row is the target.")


class LibsvmSource(Source):
    """Rows of libsvm (svmlight) files: CSR, float64, the label as y.

    A first pass counts rows and columns. Column numbers start at 1, or at 0 if any file uses 0.
    """

    def __init__(
        self, files: Sequence[DataFile], choice: ColumnSelection, n_features: int | None, limits: Limits
    ) -> None:
        refuse_names(choice)
        self._limits = limits
        self._max_column = _MAX_COLUMN if n_features is not None else min(_MAX_COLUMN, limits.columns or LIBSVM_COLUMNS)
        self._files = list(files)
        self._choice = choice
        self._units: list[Unit] = []
        n_entries = largest = 0
        self._zero_based = False
        for unit, counts in self._count_units():
            self._units.append(unit)
            n_entries += counts.n_entries
            largest = max(largest, counts.largest)
            self._zero_based |= counts.has_zero
        if not self._units:
            raise no_rows(files)
        used = largest + self._zero_based
        if n_features is not None and n_features < used:
            raise ValueError(f"n_features is {n_features}, but the files have {used} columns.")
        if not (n_features or used):
            raise ValueError(f"There are no columns in {files[0].path!r}: its rows have labels alone.")
        self.n_features = n_features or used
        self.n_rows = self._units[-1].first + self._units[-1].n_rows
        self.feature_names = Numbered(self.n_features)
        self.row_bytes = -(-n_entries * _ENTRY_BYTES // self.n_rows) + 4
        self.n_bytes = sum(file.size for file in files)
        self.identity = identity_of("libsvm", files, {**asdict(choice), "n_features": n_features}, self.n_rows)
        self.leaf_rows = usual_leaf_rows(self.row_bytes)

    def _count_units(self) -> Iterator[tuple[Unit, Census]]:
        before = 0
        for number, file in enumerate(self._files):
            in_file = 0
            with TextFile(file, file.path, file.size).open() as stream:
                reader = TextReader(stream.read, file.path, self._limits, quotes=False)
                while (span := reader.take(_UNIT_ROWS, _UNIT_BYTES)) is not None:
                    counts = census(span.data)
                    if counts.largest > self._max_column:
                        raise _too_large(span.data, file.path, in_file, self._max_column)
                    if counts.n_rows:
                        unit = Unit(number, span.start, len(span.data), in_file, before + in_file, counts.n_rows)
                        yield unit, counts
                    in_file += counts.n_rows
            before += in_file

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        return len(self._leaves(leaf_rows))

    def _leaves(self, leaf_rows: int | None) -> list[tuple[Unit, ...]]:
        return joined(self._units, lambda unit: unit.n_rows, self.leaf_rows if leaf_rows is None else leaf_rows)

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on."""
        tasks = (partial(self._load, units) for units in self._leaves(leaf_rows)[first:])
        if first or self._choice.bad_rows != "skip":
            return tasks
        return check_any_row_good(tasks, self, self._files)

    def _load(self, units: Sequence[Unit]) -> Block:
        return concat([self._read(unit) for unit in units])

    def _text(self, unit: Unit) -> bytes:
        file = self._files[unit.file]
        with TextFile(file, file.path, file.size).open() as stream:
            stream.seek(unit.offset)
            data: bytes = stream.read(unit.n_bytes)
        return data

    def _read(self, unit: Unit) -> Block:
        file, data = self._files[unit.file], self._text(unit)

        def locate(row_id: int) -> str:
            return row_of(file.path, row_id - unit.first + unit.first_in_file)

        ids = np.arange(unit.first, unit.first + unit.n_rows)
        return read_block(data, self.n_features, self._zero_based, ids, self._choice, locate)

    def classes(self) -> Array:
        """All labels, in ascending order."""
        labels: set[float] = set()
        for unit in self._units:
            words = re.findall(rb"(?m)^[ \t]*([^\s#]+)", self._text(unit))
            labels.update(_labels(set(words), self._choice.bad_rows, self._files[unit.file].path))
        classes: Array = np.array(sorted(label for label in labels if label == label))
        return classes

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) of pieces spread evenly over all of the data."""
        wanted = SAMPLE_ROWS if size is None else size
        n_units = len(self._units)
        n_read = max(_SAMPLE_UNITS, -(-wanted * n_units // max(1, self.n_rows or 1)))
        units, _, shares = spread_shares([unit.n_rows for unit in self._units], wanted, n_read, rng)
        drawn = []
        for unit, share in zip(units, shares, strict=True):
            block = self._read(self._units[unit])
            drawn.append(block.take(np.sort(rng.choice(len(block), min(share, len(block)), replace=False))))
        return nonempty_sample(concat(drawn), self, self._files, wanted)


def read_block(
    data: bytes, n_features: int, zero_based: bool, ids: Array, choice: ColumnSelection, locate: Callable[[int], str]
) -> Block:
    """Lines that hold ``len(ids)`` rows as a checked block."""
    try:
        X, y = parse(data, n_features, zero_based)
    except (ValueError, OverflowError) as error:
        rows = [line for line in data.split(b"\n") if line.partition(b"#")[0].strip()]
        faults = _faults(rows, n_features, zero_based)
        sound = [at for at, reason in enumerate(faults) if reason is None]
        if len(rows) != len(ids) or len(sound) == len(ids):
            raise FileFormatError(f"From {locate(int(ids[0]))} on rows cannot be parsed: {error}") from error
        if choice.bad_rows == "error":
            at = next(at for at, reason in enumerate(faults) if reason is not None)
            raise FileFormatError(f"{locate(int(ids[at]))} cannot be parsed: {faults[at]}") from error
        ids = ids[sound]
        X, y = parse(b"\n".join([rows[at] for at in sound]), n_features, zero_based)
    if X.shape[0] != len(ids):
        raise FileFormatError(f"From {locate(int(ids[0]))} on there are {X.shape[0]} rows instead of {len(ids)}.")
    return good_rows(
        X,
        y,
        None,
        ids,
        locate=locate,
        name_of=lambda feature: str(feature + (not zero_based)),
        choice=choice,
        finite=bool(np.isfinite(X.data).all()),
        missing_y=None if choice.keeps_gaps else np.isnan(y),
    )


def _faults(rows: list[bytes], n_features: int, zero_based: bool) -> list[str | None]:
    """For each row, why scikit-learn does not parse it; None if it does."""
    try:
        parse(b"\n".join(rows), n_features, zero_based)
        return [None] * len(rows)
    except (ValueError, OverflowError) as error:
        if len(rows) == 1:
            return [str(error)]
    middle = len(rows) // 2
    return [*_faults(rows[:middle], n_features, zero_based), *_faults(rows[middle:], n_features, zero_based)]


def _labels(words: set[bytes], bad: str, file: str) -> Iterator[float]:
    """The labels that these words are; what is no number is refused or left out."""
    for word in words:
        try:
            yield float(word)
        except ValueError as error:
            if bad == "error":
                raise FileFormatError(f"{file!r} has a label that is no number: {error}") from error


def _too_large(data: bytes, file: str, before: int, max_column: int) -> FileFormatError:
    """The error that names the first row with a column number above ``max_column``; ``before`` rows precede these."""
    rows = [counts for line in data.split(b"\n") if (counts := census(line)).n_rows]
    row = next(i for i, counts in enumerate(rows) if counts.largest > max_column)
    fault = f"{row_of(file, before + row)} has the column number {rows[row].largest}"
    if max_column == _MAX_COLUMN:
        return FileFormatError(f"{fault}, above the largest possible ({_MAX_COLUMN}). Mend it, or leave the row out.")
    error = beyond(fault, "columns", max_column)
    return FileFormatError(f"{error} Or say how many there are: n_features (--n-features).")
