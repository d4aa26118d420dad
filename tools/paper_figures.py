"""Draw the figures of docs/papers.md from the kept results, beside what the papers print.

    python tools/paper_figures.py        # writes docs/_static/papers/*.svg

Lines and bars are ours; hollow points are published. Most figures of the papers come without numbers to draw beside:
there only ours are shown. The captions are in benchmarks/published/figures.toml.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator
from paper_comparisons import REGRESSORS, SETS
from papers import METHODS, ROOT, published_scores
from quoted_numbers import load

FOLDER = ROOT / "docs" / "_static" / "papers"
STYLE = {
    "svg.hashsalt": "tithe",  # the same file for the same numbers
    "svg.fonttype": "none",  # letters as text: a third of the size
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # as wide as those that the layout is computed with
    "font.size": 10,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
DRAWS = {"all": ("all rows", "black"), "coreset": ("coreset", "tab:blue"), "uniform": ("uniform", "tab:gray")}
ENDS = {"0": "-", "-1": "--"}  # lower ends of the entries of planted atoms
COLOURS = {"CABLR": "tab:red", "ACvS": "tab:orange", "RDSF": "tab:blue", "URS": "tab:gray", "tithe": "tab:green"}
PHASES = {
    "clustering": "tab:red",
    "sensitivity": "tab:orange",
    "regression": "tab:purple",
    "sampling": "tab:cyan",
    "training": "tab:gray",
}
SCORES = {"accuracy": "accuracy", "f1": "F1", "auroc": "ROC", "aupr": "area under precision/recall"}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update(STYLE)
    for name, figure in drawn().items():
        for axes in figure.axes:
            axes.minorticks_off()  # half of the size of a file with logarithmic axes
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


def drawn() -> dict[str, Any]:
    """The figures by name."""
    figures = {"logistic_bottleneck": bottleneck(), "logistic_times": times()}
    figures |= {file.replace("_paper", ""): scores(title) for title, file in SETS.items()}
    figures |= {"logistic_regressors": regressors(), "sweep_b": sweep()}
    figures |= {"dictionary_planted": planted(), "dictionary_sizes": sizes()}
    return figures | {"dictionary_references": references(), "dictionary_pictures": pictures()}


def below(figure: Any, handles: list[Any], labels: list[str], columns: int) -> None:
    """A legend below all panels, where it hides no data."""
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def logarithmic(axis: Any) -> None:
    """An axis of about two decades or less: labels at 1, 2 and 5, written as plain numbers."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def row_of(table: list[dict[str, Any]], method: str) -> dict[str, Any] | None:
    return next((row for row in table if row["method"] == METHODS.get(method, method)), None)


# -- logistic regression -----------------------------------------------------------------------------


def stacked(axes: Any, bars: list[tuple[str, dict[str, Any], float]]) -> None:
    """Horizontal bars of phases; each has a name, a row of results, and the time that is called 1."""
    for place, (_, row, unit) in enumerate(bars):
        left = 0.0
        for phase, colour in PHASES.items():
            width = row["passes"][phase] / unit
            if width > 0.0:
                axes.barh(place, width, left=left, color=colour, height=0.6)
            left += width
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.invert_yaxis()


def phase_legend(figure: Any) -> None:
    below(figure, [Line2D([], [], color=colour, linewidth=6) for colour in PHASES.values()], list(PHASES), 3)


def bottleneck() -> Any:
    """Figure 1: the phases of CABLR beside the training on all rows, at the largest size of each set."""
    figure, axes = plt.subplots(figsize=(6.5, 3.2))
    bars = []
    for title, file in SETS.items():
        *_, table = load(file)["tables"].values()
        full = row_of(table, "Full")["pass"]
        bars += [(f"{title}, {method}", row_of(table, method), full) for method in ("Full", "CABLR")]
    stacked(axes, bars)
    axes.set_xlabel("time / time of all rows")
    phase_legend(figure)
    return figure


def times() -> Any:
    """Figure 2: the phases of all methods by size, and the published ratios of seconds."""
    figure, panels = plt.subplots(len(SETS), 1, figsize=(6.5, 10.5), height_ratios=[15, 12, 12])
    published = {
        (row["set"], float(row["percent"]), row["method"]): float(row["seconds"]) for row in published_scores()
    }
    for axes, (title, file) in zip(panels, SETS.items(), strict=True):
        bars, points = [], []
        for share, table in load(file)["tables"].items():
            if (title, float(share), "Full") not in published:
                continue  # the tables of the paper have three sizes
            full = row_of(table, "Full")["pass"]
            for method in ("CABLR", "ACvS", "RDSF", "URS"):
                seconds = published[title, float(share), method] / published[title, float(share), "Full"]
                points.append((seconds, len(bars)))
                bars.append((f"{method}, {float(share):g} %", row_of(table, method), full))
        stacked(axes, bars)
        axes.scatter(*zip(*points, strict=True), facecolors="none", edgecolors="black", s=40, zorder=3)
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set(title=title, xlabel="time / time of all rows (line: 1)")
    phase_legend(figure)
    return figure


def scores(title: str) -> Any:
    """Figures 3 to 6: the scores of each method by the share of the rows that is kept, ours and published."""
    tables = load(SETS[title])["tables"]
    shares = [float(share) for share in tables]
    published = [row for row in published_scores() if row["set"] == title]
    figure, panels = plt.subplots(2, 2, figsize=(8, 6))
    for axes, (score, label) in zip(panels.flat, SCORES.items(), strict=True):
        for method, colour in COLOURS.items():
            found = [(float(share), row_of(table, method)) for share, table in tables.items()]
            points = sorted((share, row[score]) for share, row in found if row is not None)
            if points:
                axes.plot(*zip(*points, strict=True), color=colour, marker=".")
            theirs = [row for row in published if row["method"] == method and score in row]
            where = [float(row["percent"]) for row in theirs]
            axes.scatter(where, [float(row[score]) for row in theirs], facecolors="none", edgecolors=colour, s=45)
        axes.axhline(row_of(tables[str(shares[0])], "Full")[score], color="black", linewidth=0.8)
        axes.set(xlabel="rows kept, per cent", ylabel=label, xscale="log")
        axes.set_xticks(shares, [f"{share:g}" for share in shares])
    figure.suptitle(title)
    handles = [Line2D([], [], color=colour, marker=".") for colour in COLOURS.values()]
    below(figure, [*handles, Line2D([], [], color="black", linewidth=0.8)], [*COLOURS, "all rows"], 6)
    return figure


def regressors() -> Any:
    """Figures 7 to 9: the scores of RDSF by regressor and size, on the sets that all of them were run on."""
    run = {title: load(file)["tables"] for title, file in SETS.items()}
    last = REGRESSORS[-1]
    run = {title: tables for title, tables in run.items() if row_of(next(iter(tables.values())), last) is not None}
    figure, panels = plt.subplots(3, len(run), figsize=(8.5, 7.5))
    for column, (title, tables) in zip(panels.T, run.items(), strict=True):
        shares = [float(share) for share in tables]
        for axes, score in zip(column, ("aupr", "auroc", "f1"), strict=True):
            for colour, method in enumerate(REGRESSORS):
                values = [row_of(table, method)[score] for table in tables.values()]
                axes.plot(shares, values, ".-", color=f"C{colour}")
            axes.set(xscale="log")
            axes.set_xticks(shares, [f"{share:g}" for share in shares])
        column[0].set_title(title)
        column[-1].set_xlabel("rows kept, per cent")
    for axes, score in zip(panels[:, 0], ("aupr", "auroc", "f1"), strict=True):
        axes.set_ylabel(SCORES[score])
    names = ["least squares", "ridge", "lasso", "elastic net"]
    below(figure, [Line2D([], [], color=f"C{i}", marker=".") for i in range(len(names))], names, 4)
    return figure


def sweep() -> Any:
    """The score and the speed of RDSF by the size b of its sample."""
    (rows,) = load("logistic_paper_sweep_b_ijcnn1")["tables"].values()
    shares = [re.fullmatch(r"RDSF ols, b = (\S+) %", row["method"]) for row in rows]
    pairs = [(float(share[1]), row) for share, row in zip(shares, rows, strict=True) if share is not None]
    points = sorted((share, row["auroc"], row["speedup"]) for share, row in pairs)
    shares, found, speeds = zip(*points, strict=True)
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.8))
    for axes, values, label in zip(panels, (found, speeds), ("ROC", "times as fast as all rows"), strict=True):
        axes.plot(shares, values, marker="o", color=COLOURS["RDSF"])
        axes.set(xlabel="b, per cent of the rows", ylabel=label, xscale="log")
    panels[0].set_ylim(0.5, 1.0)
    return figure


# -- dictionaries ------------------------------------------------------------------------------------


def draw_legend(figure: Any, ways: tuple[str, ...]) -> None:
    handles = [Line2D([], [], color=DRAWS[way][1], marker=".") for way in ways]
    handles += [Line2D([], [], color="black", linestyle=line) for line in ENDS.values()]
    below(figure, handles, [*(DRAWS[way][0] for way in ways), "atoms in (0, 1)", "in (-1, 1)"], len(handles))


def planted() -> Any:
    """Figures 2a, 2b and 3a: distance from the planted atoms, its variance, and times, by the number of signals."""
    results = load("dictionary_paper_synthetic")
    figure, panels = plt.subplots(1, 3, figsize=(8.5, 3.4))
    for end, line in ENDS.items():
        rows = results[f"synthetic {end}"]
        numbers = [row["n"] for row in rows]
        for way, (_, colour) in DRAWS.items():
            distances = [row[way]["distance"] for row in rows]
            look = {"color": colour, "linestyle": line, "marker": "."}
            panels[0].plot(numbers, [distance["mean"] for distance in distances], **look)
            panels[1].plot(numbers, [distance["variance"] for distance in distances], **look)
            panels[2].plot(numbers, [1.0 / row[way]["times_as_fast"] for row in rows], **look)
    panels[2].scatter([500_000], [0.032], facecolors="none", edgecolors=DRAWS["coreset"][1], s=45)  # of Figure 3a
    labels = ("distance from the planted atoms", "variance of the distance", "time / time of all rows")
    for axes, label in zip(panels, labels, strict=True):
        axes.set(xlabel="signals", ylabel=label, xscale="log", yscale="log")
    draw_legend(figure, ("all", "coreset", "uniform"))
    return figure


def sizes() -> Any:
    """Figure 3b: the distance of learned atoms from the planted ones by the size of the coreset."""
    results = load("dictionary_paper_sizes")
    figure, axes = plt.subplots(figsize=(6.5, 3.6))
    for end, line in ENDS.items():
        rows = results.get(f"sizes {end}", [])
        for way in ("coreset", "uniform"):
            means = [row[way]["mean"] for row in rows]
            axes.plot([row["size"] for row in rows], means, color=DRAWS[way][1], linestyle=line, marker=".")
    axes.set(xlabel="rows kept", ylabel="distance from the planted atoms")
    logarithmic(axes.yaxis)
    draw_legend(figure, ("coreset", "uniform"))
    return figure


def references() -> Any:
    """Figure 5: the error on all patches by the number of vectors of D0, kept among the atoms or not."""
    rows = load("dictionary_paper_references")["references"]
    names = list(dict.fromkeys(row["picture"] for row in rows))
    figure, panels = plt.subplots(1, 2, figsize=(8.5, 4), sharey=True)
    for axes, left_out in zip(panels, (False, True), strict=True):
        for row in rows:
            ratios = {
                int(way.split(",")[0]): ratio
                for way, ratio in row["ratios"].items()
                if way != "uniform" and way.endswith("left out") == left_out
            }
            line, colour = "--" if row["colours"] else "-", f"C{names.index(row['picture'])}"
            axes.plot(range(len(ratios)), list(ratios.values()), f".{line}", color=colour)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xticks(range(len(ratios)), list(ratios))
        axes.set_xlabel("singular vectors in D0; 0: the constant")
        axes.set_title("D0 left out of the dictionary" if left_out else "D0 among the atoms")
    panels[0].set_ylabel("error / error of all patches")
    handles = [Line2D([], [], color=f"C{i}", marker=".") for i in range(len(names))]
    below(figure, handles, [Path(name).stem for name in names], 3)
    return figure


def pictures() -> Any:
    """Figure 6: the error on all patches by size and by run time, from a coreset and from a uniform sample."""
    rows = load("dictionary_paper_uniform")["uniform"]
    names = list(dict.fromkeys(row["picture"] for row in rows))
    figure, panels = plt.subplots(len(names), 2, figsize=(8, 2.1 * len(names) + 0.8), sharey="row")
    for (by_time, by_size), name in zip(panels, names, strict=True):
        for colours, line in ((False, "-"), (True, "--")):
            chosen = [row for row in rows if row["picture"] == name and row["colours"] == colours]
            for key, way in (("sensitivity", "coreset"), ("uniform", "uniform")):
                errors = [row[key]["error"] for row in chosen]
                look = {"color": DRAWS[way][1], "linestyle": line, "marker": "."}
                by_time.plot([1.0 / row[key]["speed"] for row in chosen], errors, **look)
                by_size.plot([row["size"] for row in chosen], errors, **look)
        for axes in (by_time, by_size):
            axes.axhline(1.0, color="black", linewidth=0.8)
            logarithmic(axes.xaxis)
        by_time.set_title(Path(name).stem, loc="left", fontsize="medium")
        by_time.set_ylabel("error / all")
    panels[-1][0].set_xlabel("run time / that of all patches")
    panels[-1][1].set_xlabel("patches kept")
    handles = [Line2D([], [], color=DRAWS[way][1], marker=".") for way in ("coreset", "uniform")]
    handles += [Line2D([], [], color="black", linewidth=0.8)]
    below(figure, handles, ["coreset", "uniform", "all patches"], 3)
    return figure


if __name__ == "__main__":
    main()
