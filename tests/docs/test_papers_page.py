"""The page of papers is what its script makes of the kept results, and the script decides as its rules say."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers.md"
PUBLISHED = ROOT / "benchmarks" / "published"
DRAWN = ROOT / "docs" / "_static" / "papers"
LARGEST = 700_000  # bytes of all figures of the page


@pytest.fixture(scope="module")
def papers() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))  # the scripts import one another
        import papers

        yield papers


@pytest.fixture
def results(papers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of the kept results."""
    monkeypatch.setattr(papers.quoted_numbers, "RESULTS", tmp_path)
    papers.load.cache_clear()
    yield tmp_path
    papers.load.cache_clear()


def test_the_page_is_what_the_results_give(papers: Any) -> None:
    assert PAGE.read_text() == papers.page(), "run python tools/papers.py"


def test_every_row_has_a_command_and_there_are_a_hundred_and_more() -> None:
    rows = re.findall(r"^\| .* \| .* \| .* \| `([^`]+)` \| .* \| .* \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(rows) >= 100
    assert all(re.match(r"python |tithe ", command) for command in rows)


def test_each_verdict_begins_with_a_kind_that_the_page_explains(papers: Any) -> None:
    assert all(f"**{kind}**" in PAGE.read_text() for kind in papers.KINDS)
    assert all(cause.removeprefix("a ") in PAGE.read_text() for cause in papers.CAUSES)
    kinds = [counts for _, _, counts in papers.sections()]
    assert all(set(counts) <= set(papers.KINDS) for counts in kinds)


def test_each_claim_has_a_rule_or_a_verdict_and_what_it_is_made_from(papers: Any) -> None:
    for entry in papers.published()["claim"]:
        assert ("rule" in entry) != ("verdict" in entry), entry["claim"]
        assert "file" in entry or "command" in entry, entry["claim"]
        assert "values" in entry or "compared" in entry or "file" not in entry, entry["claim"]


def test_rules_compare_values(papers: Any) -> None:
    values = {"a": 1.0, "b": 1.1, "c": 1.5}
    right = ["a <= 1", "a < b and c > b", "a near b", "a within 1.01", "b >= 1.1", "b above a", "a not_below 1.02"]
    for rule in (*right, "a at_least b", "a at_most 0.9", "c at_least b"):
        assert papers.holds(rule, values), rule
    wrong = ["a < 1", "a near c", "a within b", "a < b and c < b", "a above 0.99", "a not_below b"]
    for rule in (*wrong, "a at_least c", "c at_most b"):
        assert not papers.holds(rule, values), rule
    for rule in ("a == b", "a", "a is b"):
        with pytest.raises(ValueError, match="is not a comparison"):
            papers.holds(rule, values)


ENTRY = {
    "claim": "c of {a}",
    "published": "1",
    "file": "some",
    "values": {"a": "some.rows[n=1].v"},
    "ours": "{a:.1f}",
    "rule": "a <= 1",
    "why_not": "{a} is large",
    "cause": "negative result",
}


def test_a_claim_that_fails_its_rule_is_not_confirmed(papers: Any, results: Path) -> None:
    rows = [{"n": 1, "v": 2.5}, {"n": 2, "v": 0.5}]
    (results / "some.json").write_text(json.dumps({"command": "python x.py", "rows": rows}))
    claim = papers.from_list(ENTRY)
    assert (claim.claim, claim.ours, claim.command) == ("c of 2.5", "2.5", "python x.py")
    assert (claim.verdict, claim.cause) == ("not confirmed: 2.5 is large", "negative result")
    with pytest.raises(ValueError, match="and not one of"):
        papers.from_list({**ENTRY, "cause": "bad luck"})
    assert papers.from_list({**ENTRY, "values": {"a": "min(some.rows[*].v)"}}).verdict == "confirmed"
    with pytest.raises(ValueError, match="nothing at 'n=3'"):
        papers.from_list({**ENTRY, "values": {"a": "some.rows[n=3].v"}})


def test_a_claim_about_a_very_long_run_says_what_it_is_without_its_file(papers: Any, results: Path) -> None:
    entry = {**ENTRY, "claim": "c", "command": "python x.py", "if_missing": "not run: it takes days"}
    claim = papers.from_list(entry)
    assert (claim.ours, claim.verdict, claim.command) == ("not measured", "not run: it takes days", "python x.py")
    with pytest.raises(ValueError, match="there is no benchmarks/results/some"):
        papers.from_list(ENTRY)


def test_a_score_is_confirmed_within_its_standard_error_and_with_the_direction_of_its_time(papers: Any) -> None:
    published = {"percent": "1", "method": "ACvS", "f1": "0.5", "auroc": "0.8", "accuracy": "0.9", "seconds": "0.5"}
    ours = {"method": "ACvS", "f1": 0.51, "auroc": 0.79, "accuracy": 0.9, "speedup": 1.9, "log_speedup_std": 0.1}
    seconds = {("1", "Full"): 1.0}

    def verdict(**other: float) -> tuple[str, ...]:
        results = {"repetitions": 10, "tables": {"1.0": [{**ours, **other}]}}
        return papers.score_row(published, results, seconds)[-2:]

    assert verdict() == ("confirmed", "")
    assert verdict(speedup=9.0) == ("confirmed", "")  # how much faster is a matter of machines
    assert verdict(speedup=1.05) == ("not confirmed: time", "time")  # as long as all rows, for what is known
    assert verdict(f1=0.53, speedup=0.5) == ("not confirmed: F1, time", "not explained, time")
    assert verdict(f1=0.53, f1_std=0.06) == ("confirmed", "")
    assert verdict(f1=0.60, f1_std=0.06)[0] == "not confirmed: F1"


def test_errors_that_differ_by_chance_have_one_mean(papers: Any) -> None:
    from paper_comparisons import _same_mean
    from scipy.stats import f_oneway

    groups = np.random.default_rng(0).normal(size=(4, 30)) + np.array([0.0, 0.1, 0.2, 0.1])[:, None]
    chance = _same_mean(groups.mean(axis=1).tolist(), groups.var(axis=1).tolist(), 30)
    assert chance == pytest.approx(f_oneway(*groups).pvalue)


def test_least_squares_counts_as_close_within_two_hundredths(papers: Any, results: Path) -> None:
    names = ("RDSF ols", "RDSF ridge", "RDSF lasso", "RDSF elasticnet")
    scores = dict.fromkeys(("aupr", "auroc", "f1", "accuracy"), 0.5)
    table = [{"method": name, **scores} for name in names]
    table[1] |= {"aupr": 0.515, "auroc": 0.53, "accuracy": 0.53}
    for file in ("covtype", "w8a", "ijcnn1"):
        left = table if file == "w8a" else table[:1]  # a cell without the other regressors does not count
        (results / f"logistic_paper_{file}.json").write_text(json.dumps({"repetitions": 10, "tables": {"1.0": left}}))
    found = papers.COMPARISONS["regressors"]()
    assert (found["cells"], found["best"], found["close"]) == (3, 1, 2)
    assert found["others"] == "ridge 2, lasso 0, elasticnet 0"
    assert (found["accuracies"], found["alike"]) == (1, 0)


def test_the_figures_of_the_page_are_those_with_a_caption_and_small() -> None:
    named = [entry["name"] for entry in tomllib.loads((PUBLISHED / "figures.toml").read_text())["figure"]]
    assert re.findall(r"\(_static/papers/(\w+)\.svg\)", PAGE.read_text()) == named
    assert sorted(path.stem for path in DRAWN.glob("*.svg")) == sorted(named)
    assert sum(path.stat().st_size for path in DRAWN.glob("*.svg")) < LARGEST
