"""Draw the figures of docs/papers.md from the kept results, beside what the papers print.

    python tools/paper_figures.py        # writes docs/_static/papers/*.svg

Lines are ours; hollow points are published. The papers' own figures have no numbers to draw beside: there only ours are
shown, and the page says what the paper claims of them.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from papers import METHODS, PUBLISHED, ROOT, SCORES, load

FOLDER = ROOT / "docs" / "_static" / "papers"
COLOURS = {"CABLR": "tab:red", "ACvS": "tab:orange", "RDSF": "tab:blue", "URS": "tab:gray", "tithe": "tab:green"}
SETS = {"Covertype": "covtype", "w8a": "w8a", "ijcnn1": "ijcnn1"}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    plt.rcParams["svg.hashsalt"] = "tithe"  # the same file for the same numbers
    figures = {f"logistic_{name}": logistic(title, name) for title, name in SETS.items()}
    figures |= {"sweep_b": sweep(), "dictionary_sizes": sizes(), "dictionary_pictures": pictures()}
    for name, figure in figures.items():
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


def logistic(title: str, name: str) -> Any:
    """The scores of each method by the share of the rows that is kept, ours and published."""
    tables = load(f"logistic_paper_{name}.json")["tables"]
    with (PUBLISHED / "logistic.csv").open() as file:
        published = [row for row in csv.DictReader(file) if row["set"] == title]
    shares = sorted(float(share) for share in tables)
    figure, panels = plt.subplots(1, len(SCORES), figsize=(10, 3), layout="constrained")
    for axes, (score, label) in zip(panels, SCORES.items(), strict=True):
        for method, colour in COLOURS.items():
            ours = METHODS.get(method, method)
            points = [
                (float(share), row[score]) for share, rows in tables.items() for row in rows if row["method"] == ours
            ]
            axes.plot(*zip(*sorted(points), strict=True), color=colour, marker=".", label=method)
            theirs = [(float(row["percent"]), float(row[score])) for row in published if row["method"] == method]
            if theirs:
                axes.scatter(*zip(*theirs, strict=True), facecolors="none", edgecolors=colour, s=45)
        axes.set(xlabel="rows kept, per cent", ylabel=label, xscale="log")
        axes.set_xticks(shares, [f"{share:g}" for share in shares])
        axes.minorticks_off()
    figure.suptitle(f"{title}: lines are ours, circles are published")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(COLOURS), frameon=False)
    return figure


def sweep() -> Any:
    """The score and the speed of RDSF by the size b of its sample."""
    (rows,) = load("logistic_paper_sweep_b_ijcnn1.json")["tables"].values()
    shares = [re.fullmatch(r"RDSF ols, b = (\S+) %", row["method"]) for row in rows]
    pairs = [(float(share[1]), row) for share, row in zip(shares, rows, strict=True) if share is not None]
    points = sorted((share, row["auroc"], row["speedup"]) for share, row in pairs)
    shares, scores, speeds = zip(*points, strict=True)
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    for axes, values, label in zip(panels, (scores, speeds), ("ROC", "times as fast as all rows"), strict=True):
        axes.plot(shares, values, marker="o", color=COLOURS["RDSF"])
        axes.set(xlabel="b, per cent of the rows", ylabel=label, xscale="log")
    panels[0].set_ylim(0.5, 1.0)
    return figure


def sizes() -> Any:
    """The distance of learned atoms from the planted ones by the size of the coreset."""
    rows = load("dictionary_paper_sizes.json")["sizes 0"]
    figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
    for method, colour in (("coreset", "tab:blue"), ("uniform", "tab:gray")):
        axes.plot(
            [row["size"] for row in rows], [row[method]["mean"] for row in rows], "o-", color=colour, label=method
        )
    axes.set(xlabel="rows kept", ylabel="distance to the planted atoms", yscale="log")
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def pictures() -> Any:
    """The error on all patches of a dictionary from a coreset, relative to one from a uniform sample."""
    rows = load("dictionary_paper_uniform.json")["uniform"]
    names = list(dict.fromkeys(row["picture"] for row in rows))
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    for size in sorted({row["size"] for row in rows}):
        chosen = {row["picture"]: row["coreset_to_uniform"] for row in rows if row["size"] == size}
        axes.plot([chosen.get(name) for name in names], range(len(names)), "o", label=f"{size:,} patches")
    axes.axvline(1.0, color="gray", linewidth=0.8)
    axes.set_yticks(range(len(names)), [Path(name).stem for name in names])
    axes.set_xlabel("error from a coreset / error from a uniform sample")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    main()
