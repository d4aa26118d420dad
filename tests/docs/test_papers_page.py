"""The page of papers is what its script makes of the kept results, and the script decides as its rules say."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers.md"


@pytest.fixture(scope="module")
def papers() -> Any:
    spec = importlib.util.spec_from_file_location("papers_page", ROOT / "tools" / "papers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_results_give(papers: Any) -> None:
    assert PAGE.read_text() == papers.page(), "run python tools/papers.py"


def test_every_row_has_a_command_and_there_are_forty_and_more(papers: Any) -> None:
    rows = re.findall(r"^\| .* \| .* \| .* \| `([^`]+)` \| .* \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(rows) >= 40
    assert all(re.match(r"python |tithe", command) for command in rows)


def test_each_verdict_begins_with_a_kind(papers: Any) -> None:
    kinds = [counts for _, _, counts in papers.sections()]
    assert all(set(counts) <= set(papers.KINDS) for counts in kinds)


def test_rules_compare_values(papers: Any) -> None:
    values = {"a": 1.0, "b": 1.1, "c": 1.5}
    for rule in ("a <= 1", "a < b and c > b", "a near b", "a within 1.01", "b >= 1.1"):
        assert papers.holds(rule, values), rule
    for rule in ("a < 1", "a near c", "a within b", "a < b and c < b"):
        assert not papers.holds(rule, values), rule
    with pytest.raises(ValueError, match="is not a comparison"):
        papers.holds("a == b", values)


def test_a_claim_that_fails_its_rule_is_not_confirmed(
    papers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.json").write_text('{"command": "python x.py", "rows": [{"n": 1, "v": 2.5}, {"n": 2, "v": 0.5}]}')
    monkeypatch.setattr(papers, "RESULTS", tmp_path)
    entry = {"claim": "c", "published": "1", "file": "some.json", "ours": "{a:.1f}", "why_not": "{a} is large"}
    entry |= {"values": {"a": ["rows", {"n": 1}, "v"]}, "rule": "a <= 1"}
    claim = papers.from_list(entry, {})
    assert (claim.ours, claim.verdict, claim.command) == ("2.5", "not confirmed: 2.5 is large", "python x.py")
    entry["values"] = {"a": ["rows", {"n": 2}, "v"]}
    assert papers.from_list(entry, {}).verdict == "confirmed"
