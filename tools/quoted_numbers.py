"""Write the measurements that README and documentation quote, from the kept results of the benchmarks.

    python tools/quoted_numbers.py            # writes the pages
    python tools/quoted_numbers.py --check    # exit code 1 if a page is not what the results give

README.md is made from its template, tools/readme.md. Any other page has each block twice: a template in a comment,
which readers do not see, and below it what the results give.

    <!-- numbers
    The coreset costs {clustering.sets.covtype.fits[method=coreset].median:.2f} of all rows.
    -->
    The coreset costs 1.00 of all rows.
    <!-- end of numbers -->

A place such as ``clustering.sets.covtype`` begins with the name of a file in benchmarks/results and goes on with keys,
``[3]`` for the item at a position, ``[method=coreset & size=100]`` for the first item that has these values,
``[a key]`` for a key with dots or spaces in it, and ``[*]`` for all items. Between the braces stands a place, ``min``,
``max``, ``median``, ``mean`` or ``count`` of one, or two of these with ``/``, ``*``, ``-`` or ``+`` between them; a
number may stand for one of them. Formats are those of Python; "2e-07" is then written as "2e-7".
First lines of a template such as ``fits = clustering.sets.covtype.fits`` give short names to places.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README, TEMPLATE = ROOT / "README.md", ROOT / "tools" / "readme.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(r"<!-- numbers\n(?P<template>.*?)-->\n(?P<written>.*?)<!-- end of numbers -->", re.DOTALL)
SUMMARIES: dict[str, Callable[[list[Any]], float]] = {
    "min": min,
    "max": max,
    "median": statistics.median,
    "mean": statistics.fmean,
    "count": len,
}
OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "/": lambda a, b: a / b,
    "-": lambda a, b: a - b,
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
}
_PLACE = re.compile(r"\{(?P<expression>[^{}]+):(?P<format>[^{}:]*)\}")
_SHORT_NAME = re.compile(r"(\w+) = ([\w.]+(?:\[.+\])?[\w.]*)")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]+)\]")
_MEASURED = re.compile(r"(?<![\w.,/])(\d*\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|\d+(?: to \d+)?(?= times))(?!\w)")
_CODE = re.compile(r"^(```|~~~|\$\$).*?^\1\s*$", re.DOTALL | re.MULTILINE)
_NO_MEASUREMENT = re.compile(r"`[^`]*`|\$[^$\n]*\$|\]\([^)]*\)|Python (?:≥ )?3\.\d+(?: to 3\.\d+)?")


@cache
def load(name: str) -> Any:
    path = RESULTS / f"{name}.json"
    if not path.exists():
        raise ValueError(f"there is no benchmarks/results/{name}.json")
    return json.loads(path.read_text())


def values_at(place: str) -> list[Any]:
    """The value at a place; with ``[*]`` in it, all values."""
    steps = [key or bracket for key, bracket in _STEP.findall(place)]
    values = [load(steps[0])]
    for step in steps[1:]:
        try:
            values = [deeper for value in values for deeper in _step(value, step)]
        except (KeyError, IndexError, ValueError, TypeError):
            values = []
        if not values:
            raise ValueError(f"{place!r}: there is nothing at {step!r}")
    return values


def _step(value: Any, step: str) -> list[Any]:
    if step == "*":
        return list(value.values() if isinstance(value, dict) else value)
    if isinstance(value, dict):
        return [value[step]]
    if "=" in step:
        wanted = [condition.split("=", 1) for condition in step.split(" & ")]
        return [item for item in value if all(str(item[key]) == text for key, text in wanted)][:1]
    return [value[int(step)]]


def evaluate(expression: str) -> Any:
    """A place, a summary of one or a number, or two of these with a sign between them."""
    outside = re.sub(r"\[[^\]]*\]", lambda match: "_" * len(match[0]), expression)
    signs = list(re.finditer(r" ([-/+*]) ", outside))
    if len(signs) > 1:
        raise ValueError(f"{expression!r} has more than one sign: store the result in the benchmark")
    if signs:
        left, right = expression[: signs[0].start()], expression[signs[0].end() :]
        return OPERATIONS[signs[0][1]](evaluate(left), evaluate(right))
    summary = re.fullmatch(r"(\w+)\((.+)\)", expression)
    if summary is not None:
        return SUMMARIES[summary[1]](values_at(summary[2]))
    if re.fullmatch(r"[\d.]+(?:e-?\d+)?", expression):
        return float(expression)
    values = values_at(expression)
    if len(values) != 1:
        raise ValueError(f"{expression!r} stands for {len(values)} values; take the min, max, median or mean of them")
    return values[0]


def written(value: Any, form: str) -> str:
    """The value as pages write it: "2e-7" for 2e-07."""
    if isinstance(value, str):
        return value
    text = format(value, form)
    return re.sub(r"e([+-])0*(\d)", lambda match: f"e{match[1].replace('+', '')}{match[2]}", text)


def filled(template: str) -> str:
    lines = template.splitlines(keepends=True)
    names = {}
    while lines and (match := _SHORT_NAME.fullmatch(lines[0].strip())):
        names[match[1]] = match[2]
        lines.pop(0)

    def value(match: re.Match[str]) -> str:
        expression = re.sub(r"(?<![\w.\[=])\w+(?=[.\[])", lambda word: names.get(word[0], word[0]), match["expression"])
        return written(evaluate(expression), match["format"])

    return _PLACE.sub(value, "".join(lines))


def made_anew(path: Path) -> str:
    """The page as the results give it."""
    return filled(TEMPLATE.read_text()) if path == README else made(path.read_text())


def made(page: str) -> str:
    """The page with all blocks written anew."""
    return BLOCK.sub(
        lambda block: f"<!-- numbers\n{block['template']}-->\n{filled(block['template'])}<!-- end of numbers -->", page
    )


def unmarked_numbers(page: str) -> list[str]:
    """Numbers that look measured and stand in no block, each with the beginning of its paragraph."""
    text = _CODE.sub("", BLOCK.sub("", _PLACE.sub("", page)))
    return [
        f"{number} in {paragraph.strip()[:50]!r}"
        for paragraph in re.split(r"\n\s*\n", text)
        for number in _MEASURED.findall(_NO_MEASUREMENT.sub("", paragraph))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page would change")
    arguments = parser.parse_args()
    changed = [path for path in PAGES if path.read_text() != made_anew(path)]
    for path in changed:
        print(f"{path.relative_to(ROOT)} {'differs from the results' if arguments.check else 'is written anew'}")
        if not arguments.check:
            path.write_text(made_anew(path))
    return int(arguments.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
