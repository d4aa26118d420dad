"""Numbers of today are those that were written down: ``tools/fingerprints``, a quick part of it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

TOOLS = Path(__file__).parents[1] / "tools"
KNOWN: dict[str, Any] = json.loads((Path(__file__).parent / "fingerprints.json").read_text())
DRAWN_AGAIN = ("merge:reduced", "merge:same_pilot")
UPDATE = "If numbers should change: python tools/fingerprints --write tests/fingerprints.json"


@pytest.fixture(scope="module")
def table() -> Iterator[ModuleType]:
    sys.path.insert(0, str(TOOLS))
    try:
        importlib.import_module("fingerprints").every_item()
        yield importlib.import_module("fingerprints.table")
    finally:
        sys.path.remove(str(TOOLS))
        for name in [name for name in sys.modules if name.partition(".")[0] == "fingerprints"]:
            del sys.modules[name]


def test_the_file_has_the_items_of_the_table(table: ModuleType) -> None:
    assert {name.partition(":")[0] for name in KNOWN} == set(table.ITEMS), UPDATE


def test_numbers_are_those_of_the_file(table: ModuleType) -> None:
    found = {part: one for _, parts in table.fingerprints(sorted(table.FAST)) for part, one in parts.items()}
    known = {part for part in KNOWN if part.partition(":")[0] in table.FAST}
    assert found.keys() == known, UPDATE
    assert not [part for part in sorted(known) if not is_close(part, KNOWN[part], found[part])], UPDATE


def is_close(part: str, known: Any, found: Any) -> bool:
    """Whether two summaries agree up to the last bits, in which one kind of CPU differs from another.

    Numbers of iterations, which such a bit may change, are among the small values that are not compared, nor are rows
    that are drawn by weights which depend on such a bit.
    """
    if part.endswith(("others", "certificate_", "certify", ".values")) or part in DRAWN_AGAIN:
        return True
    if known["shape"] != found["shape"] or len(known["sum"]) != len(found["sum"]):
        return False
    scale = known["sum"][1] if known["sum"] else 0.0
    return bool(np.allclose(known["sum"], found["sum"], rtol=0.0, atol=1e-5 * scale))
