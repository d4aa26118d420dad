"""Numbers that pages quote from kept results of benchmarks.

A table or paragraph that quotes measurements stands below a comment that names the files of results:

    <!-- numbers: clustering.json building.json -->
    <!-- numbers: theory.json; columns: ours | verdict -->

Each number of it with a decimal point, an exponent or thousands must be a stored value, rounded; where " %" follows, a
stored value or a hundred times one. Ratios of stored values do not count: benchmarks store ratios. Whole numbers below
a thousand and what stands in backticks (commands, parameters) are left out. With ``columns`` only these columns of a
table are checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

_MARKER = re.compile(r"<!-- numbers: (?P<files>[^;>]+?)(?:; columns: (?P<columns>[^>]+?))? -->")
_NUMBER = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+)(?![\w])( %)?")
_STORED = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?|(?<![\w.])\.\d+(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Quotation:
    """A marked block of a page."""

    line: int
    files: tuple[str, ...]
    columns: tuple[str, ...]
    text: str

    def numbers(self) -> list[tuple[str, bool]]:
        """The numbers to look for, as written, and whether they are per cent."""
        text = "\n".join(self._cells()) if self.columns else self.text
        found = _NUMBER.findall(re.sub(r"`[^`]*`", "", text))
        return [(number, bool(percent)) for number, percent in found]

    def _cells(self) -> Iterator[str]:
        """The cells of the named columns."""
        lines = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in self.text.splitlines()]
        header = [cell.strip() for cell in lines[0]]
        missing = set(self.columns) - set(header)
        if missing:
            raise ValueError(f"the table below line {self.line} has no column {min(missing)!r}; it has: {header}")
        for cells in lines[2:]:
            yield from (cell for name, cell in zip(header, cells, strict=True) if name in self.columns)


def quotations(page: str) -> list[Quotation]:
    """The marked blocks of a page: from a marker to the next empty line."""
    lines, blocks = page.splitlines(), []
    for number, line in enumerate(lines):
        marker = _MARKER.fullmatch(line.strip())
        if marker is None:
            if line.strip().startswith("<!-- numbers:"):
                raise ValueError(
                    f"line {number + 1} is not of the form <!-- numbers: FILE ...; columns: NAME | ... -->"
                )
            continue
        start = number + 1
        while start < len(lines) and not lines[start].strip():
            start += 1
        stop = start
        while stop < len(lines) and lines[stop].strip():
            stop += 1
        columns = tuple(name.strip() for name in (marker["columns"] or "").split("|") if name.strip())
        blocks.append(Quotation(number + 1, tuple(marker["files"].split()), columns, "\n".join(lines[start:stop])))
    return blocks


def stored_values(results: Any) -> Iterator[Decimal]:
    """All numbers of a file of results: values, numbers in texts, and numbers in keys such as sizes."""
    if isinstance(results, dict):
        for key, value in results.items():
            if key != "about":  # versions are no measurements
                yield from stored_values(key)
                yield from stored_values(value)
    elif isinstance(results, list):
        for value in results:
            yield from stored_values(value)
    elif isinstance(results, str):
        yield from (Decimal(number.rstrip(",").replace(",", "")) for number in _STORED.findall(results))
    elif isinstance(results, (int, float)) and not isinstance(results, bool):
        yield abs(Decimal(str(results)))


def is_stored(number: str, percent: bool, values: set[Decimal]) -> bool:
    """Whether a stored value rounds to the number as it is written."""
    quoted = Decimal(number.replace(",", ""))
    half = Decimal(5).scaleb(int(quoted.as_tuple().exponent) - 1)
    scales = (Decimal(1), Decimal(100)) if percent else (Decimal(1),)
    return any(abs(scale * value - quoted) <= half for scale in scales for value in values if value.is_finite())


def missing_numbers(page: Path, results: Path) -> list[str]:
    """What the page quotes and the results do not have, with the line of its marker."""
    missing = []
    for block in quotations(page.read_text()):
        values: set[Decimal] = set()
        for name in block.files:
            values |= set(stored_values(json.loads((results / name).read_text())))
        wrong = [number for number, percent in block.numbers() if not is_stored(number, percent, values)]
        missing += [f"{page.name}, line {block.line}: {number} is not in {', '.join(block.files)}" for number in wrong]
    return missing
