"""Write the tables of docs/papers.md from the kept results of the benchmarks: claims, published values, ours, verdicts.

    python tools/papers.py            # writes the page
    python tools/papers.py --check    # exit code 1 if the page is not what the results give

Claims and published values are in benchmarks/published: claims.toml, and the tables of the paper about logistic
regression as logistic.csv. A claim has a rule, and its verdict follows from the rule and the results; or it
has a verdict, where nothing comparable can be run. A table is written
between the markers <!-- made: NAME --> and <!-- end of NAME -->; all else on the page is written by hand.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers.md"
RESULTS = ROOT / "benchmarks" / "results"
PUBLISHED = ROOT / "benchmarks" / "published"
CLAIM_COLUMNS = ("claim", "published", "ours", "command", "verdict")
KINDS = ("confirmed", "not confirmed", "same formula", "no published value", "not run")
SCORES = {"f1": "F1", "auroc": "ROC", "accuracy": "accuracy"}
WITHIN = 0.02  # scores that differ by at most this are called the same
NEAR = 0.2  # so are times, errors and rates that differ by at most this share of the larger one
METHODS = {"RDSF": "RDSF ols", "URS": "URS, unweighted"}  # names of the paper, and of the benchmark
_COMPARISON = re.compile(r"(\w+) (<=|>=|<|>|within|near) (\S+)")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A row of a table."""

    claim: str
    published: str
    ours: str
    command: str
    verdict: str

    @property
    def kind(self) -> str:
        """The first words of the verdict."""
        return next(kind for kind in KINDS if self.verdict.startswith(kind))


def load(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / name).read_text())


def value_at(results: Any, path: list[Any]) -> Any:
    """Follow a path of keys and positions; a table such as {method = "ACvS"} picks the first item with its values."""
    for step in path:
        if isinstance(step, dict):
            results = next(item for item in results if all(item[key] == value for key, value in step.items()))
        else:
            results = results[step]
    return results


def holds(rule: str, values: dict[str, Any]) -> bool:
    """Whether all comparisons of a rule such as ``a <= 1 and a near b`` hold."""
    for comparison in rule.split(" and "):
        match = _COMPARISON.fullmatch(comparison)
        if match is None:
            raise ValueError(f"{comparison!r} is not a comparison such as 'a <= 1'")
        left, sign, right = match.groups()
        first, second = values[left], values[right] if right in values else float(right)
        outcomes = {"<=": first <= second, ">=": first >= second, "<": first < second, ">": first > second}
        outcomes["within"] = abs(first - second) <= WITHIN
        outcomes["near"] = abs(first - second) <= NEAR * max(abs(first), abs(second))
        if not outcomes[sign]:
            return False
    return True


def from_list(entry: dict[str, Any], commands: dict[str, str]) -> Claim:
    """A claim of claims.toml. Its values are found in a file of results, its verdict by its rule."""
    if "file" not in entry:
        return Claim(**{name: entry[name] for name in CLAIM_COLUMNS})
    results = load(entry["file"])
    values = {name: value_at(results, path) for name, path in entry["values"].items()}
    if "rule" in entry:
        right = holds(entry["rule"], values)
        reason = entry.get("why" if right else "why_not", "").format(**values)
        verdict = ("confirmed" if right else "not confirmed") + (f": {reason}" if reason else "")
    else:
        verdict = entry["verdict"]
    command = results.get("command") or commands[entry["file"]]
    ours = entry["ours"].format(**values)
    return Claim(claim=entry["claim"], published=entry["published"], ours=ours, command=command, verdict=verdict)


def from_theory(source: str) -> list[Claim]:
    """The rows of benchmarks/theory.py about a source. What is only computed has no published value."""
    rows = [row for row in load("theory.json")["claims"] if row["source"] == source]
    return [
        Claim(
            claim=row["claim"],
            published=row["published"],
            ours=row["ours"],
            command=row["command"],
            verdict="no published value" if row["verdict"] == "computed" else row["verdict"],
        )
        for row in rows
    ]


def from_paco(reasons: dict[str, str]) -> list[Claim]:
    """The rows of benchmarks/paco.py --paper. ``reasons`` say why, by the beginning of a claim."""
    names = {"yes": "confirmed", "no": "not confirmed", "-": "no published value"}
    claims = []
    for row in load("paco_paper.json")["claims"]:
        reason = next((text for start, text in reasons.items() if row["claim"].startswith(start)), "")
        verdict = names[row["confirmed"]] + (f": {reason}" if reason and row["confirmed"] == "no" else "")
        values = {name: row[name] for name in ("claim", "published", "command")}
        claims.append(Claim(**values, ours=f"{row['ours']:.4g}", verdict=verdict))
    return claims


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def claim_table(claims: list[Claim], files: list[str]) -> str:
    rows = [(cell(c.claim), cell(c.published), cell(c.ours), f"`{c.command}`", cell(c.verdict)) for c in claims]
    marker = f"<!-- numbers: {' '.join(sorted(files))}; columns: ours -->\n" if files else ""
    return marker + table(CLAIM_COLUMNS, rows)


def published_scores() -> list[dict[str, str]]:
    with (PUBLISHED / "logistic.csv").open() as file:
        return list(csv.DictReader(file))


def score_row(row: dict[str, str], results: dict[str, Any], seconds: dict[tuple[str, str], float]) -> tuple[str, ...]:
    """A row of a table of scores: published and ours, what differs, and times over that of all rows."""
    ours = value_at(
        results, ["tables", str(float(row["percent"])), {"method": METHODS.get(row["method"], row["method"])}]
    )
    other = [title for key, title in SCORES.items() if abs(ours[key] - float(row[key])) > WITHIN]
    verdict = f"not confirmed: {', '.join(other)}" if other else "confirmed"
    time = f"{row['seconds']} s"
    if row["method"] != "Full":
        faster = seconds[row["percent"], "Full"] > float(row["seconds"])
        verdict += f"; time {'confirmed' if (ours['speedup'] > 1.0) == faster else 'not confirmed'}"
    return (
        f"{row['percent']} %",
        row["method"],
        "/".join(row[key] for key in SCORES),
        "/".join(f"{ours[key]:.3f}" for key in SCORES),
        time,
        f"{ours['speedup']:.3g}",
        verdict,
    )


def score_table(name: str, file: str, commands: dict[str, str]) -> tuple[str, Counter[str]]:
    """The published scores of a set beside ours, and how many rows have which verdict."""
    results, published = load(file), [row for row in published_scores() if row["set"] == name]
    seconds = {(row["percent"], row["method"]): float(row["seconds"]) for row in published}
    rows = [score_row(row, results, seconds) for row in published if str(float(row["percent"])) in results["tables"]]
    header = ("size", "method", "published", "ours", "seconds", "times as fast", "verdict")
    text = f"`{results.get('command') or commands[file]}`, repetitions: {results['repetitions']}\n\n"
    text += f"<!-- numbers: {file}; columns: ours | times as fast -->\n" + table(header, rows)
    return text, Counter("not confirmed" if row[-1].startswith("not") else "confirmed" for row in rows)


def sections() -> Iterator[tuple[str, str, Counter[str]]]:
    """The name of each table, its text, and its verdicts."""
    listed = tomllib.loads((PUBLISHED / "claims.toml").read_text())
    commands: dict[str, str] = listed["commands"]
    makers: dict[str, Callable[[], list[Claim]]] = {
        "notes": lambda: from_theory("notes"),
        "sensitivity": lambda: from_theory("sensitivity"),
        "logistic": lambda: from_theory("logistic"),
        "dictionary": lambda: from_theory("dictionary"),
        "paco": lambda: from_paco(listed["paco_reasons"]),
    }
    files = {source: ["paco_paper.json" if source == "paco" else "theory.json"] for source in makers}
    for source in listed["titles"]:
        entries = [entry for entry in listed["claim"] if entry["source"] == source]
        claims = makers.get(source, list)() + [from_list(entry, commands) for entry in entries]
        named = {*files.get(source, []), *(entry["file"] for entry in entries if "file" in entry)}
        yield source, claim_table(claims, sorted(named)), Counter(claim.kind for claim in claims)
    for title, (name, file) in listed["scores"].items():
        text, counts = score_table(name, file, commands)
        yield title, text, counts


def page() -> str:
    """The page as the results make it."""
    listed, text = tomllib.loads((PUBLISHED / "claims.toml").read_text()), PAGE.read_text()
    totals: dict[str, Counter[str]] = {}
    for name, made, counts in sections():
        text = replaced(text, name, made)
        totals.setdefault(name if name in listed["titles"] else "logistic", Counter()).update(counts)
    rows = [
        (listed["titles"][source], str(counts.total()), *(str(counts[kind]) for kind in KINDS))
        for source, counts in totals.items()
    ]
    every: Counter[str] = sum(totals.values(), Counter())
    rows.append(("all", str(every.total()), *(str(every[kind]) for kind in KINDS)))
    return replaced(text, "summary", table(("source", "rows", *KINDS), rows))


def replaced(text: str, name: str, made: str) -> str:
    start, stop = f"<!-- made: {name} -->\n", f"\n<!-- end of {name} -->"
    if text.count(start) != 1 or text.count(stop) != 1:
        raise ValueError(f"{PAGE.name} needs one {start.strip()} and one {stop.strip()}")
    before, _, rest = text.partition(start)
    return before + start + "\n" + made + "\n" + stop + rest.partition(stop)[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the page with the results, write nothing")
    made, written = page(), PAGE.read_text()
    if parser.parse_args().check:
        sys.exit(0 if made == written else "docs/papers.md is not what the results give: run python tools/papers.py")
    PAGE.write_text(made)


if __name__ == "__main__":
    main()
