"""Write docs/papers.md from the kept results of the benchmarks: claims, published values, ours, verdicts, figures.

    python tools/papers.py            # writes the page
    python tools/papers.py --check    # exit code 1 if the page is not what the results give

Claims, published values and the captions of figures are in benchmarks/published, the tables of the paper about logistic
regression as logistic.csv. A claim has a rule, and its verdict follows from the rule and the results; or it has a
verdict, where nothing comparable can be run. A table is written between the markers <!-- made: NAME --> and
<!-- end of NAME -->; all else on the page is written by hand.

The ``values`` of a claim are places of the results, written as in tools/quoted_numbers.py; ``compared`` names functions
of tools/paper_comparisons.py and their arguments: with ``compared = {w = ["clustering"]}`` a rule may ask for
``w_least``. A rule has comparisons such as ``a <= 1`` with " and " between them. Besides the four signs there are

- for scores: ``within`` (the same within 0.02), ``above`` (larger by more), ``not_below`` (not smaller by more);
- for errors and rates: ``near`` (the same within 20 %), ``at_least`` and ``at_most`` (so, or near).

Scores of repetitions are compared with their standard errors, and of times only the direction counts: see
tools/paper_comparisons.py. A claim that is not confirmed has a ``cause``, one of `CAUSES`.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import quoted_numbers
from paper_comparisons import COMPARISONS, ERRORS, WITHIN, direction, near, standard_error
from quoted_numbers import load

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers.md"
PUBLISHED = ROOT / "benchmarks" / "published"
FIGURES = "_static/papers"  # beside the page
CLAIM_COLUMNS = ("claim", "published", "ours", "command", "verdict", "cause")
CAUSES = ("the source is wrong", "our choice", "time", "negative result", "not explained")
KINDS = ("confirmed", "not confirmed", "other design", "same formula", "no published value", "not run")
SCORES = {"f1": "F1", "auroc": "ROC", "accuracy": "accuracy"}
METHODS = {"RDSF": "RDSF ols", "URS": "URS, unweighted"}  # names of the paper, and of the benchmark
SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "within": lambda a, b: abs(a - b) <= WITHIN,
    "above": lambda a, b: a > b + WITHIN,
    "not_below": lambda a, b: a >= b - WITHIN,
    "near": near,
    "at_least": lambda a, b: a >= b or near(a, b),
    "at_most": lambda a, b: a <= b or near(a, b),
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A row of a table."""

    claim: str
    published: str
    ours: str
    command: str
    verdict: str
    cause: str = ""  # of a claim that is not confirmed

    def __post_init__(self) -> None:
        if self.cause not in (CAUSES if self.kind == "not confirmed" else ("",)):
            raise ValueError(f"{self.claim!r}, {self.kind}: cause={self.cause!r}, and not one of {', '.join(CAUSES)}")

    @property
    def kind(self) -> str:
        """The first words of the verdict."""
        return next(kind for kind in KINDS if self.verdict.startswith(kind))


def published() -> dict[str, Any]:
    """What the TOML files of benchmarks/published have; their lists of claims and of figures are joined."""
    joined: dict[str, Any] = {"claim": [], "figure": [], "finding": []}
    for path in sorted(PUBLISHED.glob("*.toml")):
        for key, value in tomllib.loads(path.read_text()).items():
            joined[key] = joined[key] + value if isinstance(value, list) else value
    return joined


def holds(rule: str, values: dict[str, Any]) -> bool:
    """Whether all comparisons of a rule such as ``a <= 1 and a near b`` hold."""
    for comparison in rule.split(" and "):
        match = re.fullmatch(r"(\w+) (\S+) (\S+)", comparison)
        if match is None or match[2] not in SIGNS:
            raise ValueError(f"{comparison!r} is not a comparison such as 'a <= 1'")
        left, sign, right = match.groups()
        if not SIGNS[sign](values[left], values[right] if right in values else float(right)):
            return False
    return True


def values_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The values of a claim or of a figure, by the names that its rule and its sentences use."""
    found = {name: quoted_numbers.evaluate(place) for name, place in entry.get("values", {}).items()}
    for prefix, (function, *arguments) in entry.get("compared", {}).items():
        found |= {f"{prefix}_{name}": value for name, value in COMPARISONS[function](*arguments).items()}
    return found


def is_kept(file: str) -> bool:
    return (quoted_numbers.RESULTS / f"{file}.json").exists()


def from_list(entry: dict[str, Any]) -> Claim:
    """A claim of benchmarks/published: its values are found in the results, its verdict by its rule.

    A claim about a run that takes very long may say in ``if_missing`` what the verdict is without its file.
    """
    if "if_missing" in entry and not is_kept(entry["file"]):
        entry = {**entry, "ours": "not measured", "verdict": entry["if_missing"], "values": {}, "compared": {}}
        entry.pop("rule", None)
    values = values_of(entry)
    if "rule" in entry:
        right = holds(entry["rule"], values)
        reason = entry.get("why" if right else "why_not", "")
        verdict = ("confirmed" if right else "not confirmed") + (f": {reason}" if reason else "")
    else:
        verdict = entry["verdict"]
    command = load(entry["file"])["command"] if "file" in entry and is_kept(entry["file"]) else entry["command"]
    texts = {"claim": entry["claim"], "ours": entry["ours"], "verdict": verdict}
    filled = {name: text.format(**values) for name, text in texts.items()}
    cause = entry.get("cause", "") if verdict.startswith("not confirmed") else ""
    return Claim(published=entry["published"], command=command, cause=cause, **filled)


def cause_of(claim: str, verdict: str, causes: dict[str, str]) -> str:
    """The cause of a claim that a benchmark found not confirmed, by the words that it begins with."""
    if not verdict.startswith("not confirmed"):
        return ""
    return next((cause for start, cause in causes.items() if claim.startswith(start)), "")


def from_theory(source: str, causes: dict[str, str]) -> list[Claim]:
    """The rows of benchmarks/theory.py about a source. What is only computed has no published value."""
    rows = [row for row in load("theory")["claims"] if row["source"] == source]
    return [
        Claim(
            claim=row["claim"],
            published=row["published"],
            ours=row["ours"],
            command=row["command"],
            verdict="no published value" if row["verdict"] == "computed" else row["verdict"],
            cause=cause_of(row["claim"], row["verdict"], causes),
        )
        for row in rows
    ]


def from_paco(reasons: dict[str, str], causes: dict[str, str]) -> list[Claim]:
    """The rows of benchmarks/paco.py --paper. ``reasons`` say why, by the beginning of a claim."""
    names = {"yes": "confirmed", "no": "not confirmed", "-": "no published value"}
    claims = []
    for row in load("paco_paper")["claims"]:
        reason = next((text for start, text in reasons.items() if row["claim"].startswith(start)), "")
        verdict = names[row["confirmed"]] + (f": {reason}" if reason and row["confirmed"] == "no" else "")
        values = {name: row[name] for name in ("claim", "published", "command")}
        cause = cause_of(row["claim"], verdict, causes)
        claims.append(Claim(**values, ours=f"{row['ours']:.4g}", verdict=verdict, cause=cause))
    return claims


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def claim_table(claims: list[Claim]) -> str:
    rows = [
        (cell(c.claim), cell(c.published), cell(c.ours), f"`{c.command}`", cell(c.verdict), c.cause) for c in claims
    ]
    return folded(f"{len(claims)} claims", table(CLAIM_COLUMNS, rows))


def folded(title: str, text: str) -> str:
    """What a reader sees when the line with the title is opened."""
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def published_scores() -> list[dict[str, str]]:
    with (PUBLISHED / "logistic.csv").open() as file:
        return list(csv.DictReader(file))


def score_row(row: dict[str, str], results: dict[str, Any], seconds: dict[tuple[str, str], float]) -> tuple[str, ...]:
    """A row of a table of scores: published and ours, what differs, and times over that of all rows.

    A published mean is taken to vary as ours does. Of times only the direction counts.
    """
    method = METHODS.get(row["method"], row["method"])
    table = results["tables"][str(float(row["percent"]))]
    ours = next(one for one in table if one["method"] == method) | {"repetitions": results["repetitions"]}
    limits = {key: max(WITHIN, ERRORS * 2.0**0.5 * standard_error(ours, key)) for key in SCORES}
    other = [title for key, title in SCORES.items() if abs(ours[key] - float(row[key])) > limits[key]]
    causes = ["not explained"] if other else []
    faster = seconds[row["percent"], "Full"] / float(row["seconds"])
    if row["method"] != "Full" and direction(ours) * (faster - 1.0) <= 0.0 and faster != 1.0:
        other, causes = [*other, "time"], [*causes, "time"]
    return (
        f"{row['percent']} %",
        row["method"],
        "/".join(row[key] for key in SCORES),
        "/".join(f"{ours[key]:.3f}" for key in SCORES),
        f"{row['seconds']} s",
        f"{faster:.3g}",
        f"{ours['speedup']:.3g}",
        f"not confirmed: {', '.join(other)}" if other else "confirmed",
        ", ".join(causes),
    )


def score_table(name: str, file: str) -> tuple[str, Counter[str]]:
    """The published scores of a set beside ours, C by the line of all rows, and how many rows have which verdict."""
    results, rows = load(file), [row for row in published_scores() if row["set"] == name]
    seconds = {(row["percent"], row["method"]): float(row["seconds"]) for row in rows}
    written = [score_row(row, results, seconds) for row in rows if str(float(row["percent"])) in results["tables"]]
    header = ("size", "method", "published", "ours", "seconds", "published: times as fast", "ours", "verdict", "cause")
    tried = [
        (f"{one['C']:.3g}", *(f"{one[key]:.3f}" for key in SCORES), f"{one['off']:.3f}") for one in results["tried"]
    ]
    sweep = table(("C", *SCORES.values(), "largest difference"), tried)
    text = (
        f"`{results['command']}`, repetitions: {results['repetitions']}, C = {results['C']:g}\n\n"
        + folded(f"{name}: {len(written)} rows", table(header, written))
        + "\n\n"
        + folded(f"{name}: C by the published line of all rows, F1/ROC/accuracy {published_full(rows)}", sweep)
    )
    return text, Counter("not confirmed" if row[-2].startswith("not") else "confirmed" for row in written)


def published_full(rows: list[dict[str, str]]) -> str:
    full = next(row for row in rows if row["method"] == "Full")
    return "/".join(full[key] for key in SCORES)


def findings(entries: list[dict[str, Any]]) -> str:
    """A sentence for each; the one that its rule allows where it has a rule."""
    lines = []
    for number, entry in enumerate(entries, 1):
        values = values_of(entry)
        said = entry["says"] if "rule" not in entry or holds(entry["rule"], values) else entry["otherwise"]
        lines.append(f"{number}. {said.format(**values)}")
    return "\n".join(lines)


def figures(entries: list[dict[str, Any]]) -> str:
    """Figures with their captions: what the paper's figure shows, and by a rule whether ours agrees."""
    blocks = []
    for entry in entries:
        values = values_of(entry)
        said = entry["agrees" if holds(entry["rule"], values) else "differs"].format(**values)
        blocks.append(f"![{entry['alt']}]({FIGURES}/{entry['name']}.svg)\n\n*{entry['shows'].format(**values)} {said}*")
    return "\n\n".join(blocks)


def sections() -> Iterator[tuple[str, str, Counter[str]]]:
    """The name of each table or block of figures, its text, and its verdicts."""
    listed = published()
    causes = listed["causes"]
    yield "findings", findings(listed["finding"]), Counter()
    makers: dict[str, Callable[[], list[Claim]]] = {
        **{
            source: partial(from_theory, source, causes)
            for source in ("notes", "sensitivity", "logistic", "dictionary")
        },
        "paco": lambda: from_paco(listed["paco_reasons"], causes),
    }
    for source in listed["titles"]:
        entries = [entry for entry in listed["claim"] if entry["source"] == source]
        claims = makers.get(source, list)() + [from_list(entry) for entry in entries]
        yield source, claim_table(claims), Counter(claim.kind for claim in claims)
        drawn = [entry for entry in listed["figure"] if entry["source"] == source]
        if drawn:
            yield f"figures of {source}", figures(drawn), Counter()
    for title, (name, file) in listed["scores"].items():
        text, counts = score_table(name, file)
        yield title, text, counts


def page() -> str:
    """The page as the results make it."""
    listed, text = published(), PAGE.read_text()
    totals: dict[str, Counter[str]] = {source: Counter() for source in listed["titles"]}
    for name, made, counts in sections():
        text = replaced(text, name, made)
        totals[name if name in totals else "logistic"].update(counts)  # tables of scores are of that paper
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
