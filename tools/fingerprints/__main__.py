"""Hashes of what tithe computes, to see whether a change of the code changed a number.

    python tools/fingerprints --write FILE.json [--only PATTERN]
    python tools/fingerprints --compare FILE.json [--only PATTERN]
    python tools/fingerprints --show PATTERN [--part PATTERN]
    python tools/fingerprints --list

``--compare`` prints each part whose hash is another one, and names that are missing or new; the exit code is 1 then.
Hashes are those of one kind of CPU: compare files that were written on it. ``--show`` prints the values themselves.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

from fingerprints import every_item
from fingerprints.digest import Digest, shown
from fingerprints.table import chosen, fingerprints, values


def main() -> int:
    every_item()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--write", "--compare"):
        parser.add_argument(name, type=Path, metavar="FILE")
    parser.add_argument("--show", metavar="PATTERN")
    parser.add_argument("--part", default="*", metavar="PATTERN")
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--times", action="store_true", help="print the seconds of each item")
    given = parser.parse_args()
    if given.list:
        print(*chosen(given.only), sep="\n")
    elif given.show is not None:
        show(given.show, given.part)
    elif given.write is not None:
        write(given.write, found(given.only, given.times))
    elif given.compare is not None:
        return compare(json.loads(given.compare.read_text()), found(given.only, given.times), given.only)
    else:
        parser.error("Say --write, --compare, --show or --list.")
    return 0


def found(only: str, times: bool) -> dict[str, Digest]:
    result: dict[str, Digest] = {}
    start = time.monotonic()
    for name, parts in fingerprints(chosen(only)):
        result |= parts
        if times:
            errors = [f"{part}: {one['shape']}" for part, one in parts.items() if one["shape"].endswith("Error")]
            print(f"{time.monotonic() - start:7.2f} s  {name}", *errors, sep="\n    ", file=sys.stderr, flush=True)
            start = time.monotonic()
    return result


def write(path: Path, result: dict[str, Digest]) -> None:
    lines = (f"{json.dumps(name)}: {json.dumps(result[name], separators=(',', ':'))}" for name in sorted(result))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def compare(before: dict[str, Digest], now: dict[str, Digest], only: str) -> int:
    items = set(chosen(only))
    before = {name: old for name, old in before.items() if not only or name.partition(":")[0] in items}
    changed = [name for name in sorted(before.keys() & now.keys()) if before[name]["hash"] != now[name]["hash"]]
    for name in changed:
        print(f"other    {name}\n    was {line(before[name])}\n    is  {line(now[name])}")
    for word, names in (("missing", before.keys() - now.keys()), ("new", now.keys() - before.keys())):
        for name in sorted(names):
            print(f"{word:<8} {name}")
    same = len(before.keys() & now.keys()) - len(changed)
    print(f"{same} equal, {len(changed)} other, {len(before.keys() ^ now.keys())} missing or new")
    return int(same < len(before.keys() | now.keys()))


def line(one: Any) -> str:
    return f"{one['shape']} {one['sum']}"


def show(pattern: str, part: str) -> None:
    for name in chosen(pattern):
        for key, value in values(name).items():
            if fnmatch.fnmatch(key, part):
                print(f"== {name}:{key}", *shown(value), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
