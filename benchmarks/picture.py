"""The pictures of README and front page: k-means on KDD Cup 99 with its rare attacks, and the example of rare groups.

    python benchmarks/picture.py --data DIR

Twenty clusters of 494,020 connections by each library, and from 5,000 rows, drawn uniformly or kept by tithe: seconds
of the processor on one thread, and the cost on all rows, relative to the best of all fits; medians over the seeds.
Beside it the kinds of attack of which there is at most one in 1,000 connections: how many have a row among 5,000.
"""

from __future__ import annotations

import argparse
import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from threadpoolctl import threadpool_limits

from common import load_rows, save, show
from tithe import Block, CoresetKMeans
from tithe.objectives import KMeansObjective

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "_static"
CLUSTERS, SIZE, RARE = 20, 5000, 0.001
BLUE, GREY = "#1f6fb2", "#6b7280"
LABELS = {"Intel's extension": ("center", (0, -17)), "scikit-learn": ("center", (0, 9))}  # where they do not overlap


def fits(X: np.ndarray) -> dict[str, Callable[[int], np.ndarray]]:
    """How each method finds centres, from a seed."""
    import faiss
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearnex.cluster import KMeans as IntelKMeans

    def by_faiss(seed: int) -> np.ndarray:
        model = faiss.Kmeans(X.shape[1], CLUSTERS, niter=25, seed=seed + 1)
        model.train(X.astype(np.float32))
        return np.asarray(model.centroids, np.float64)

    def of_sample(seed: int) -> np.ndarray:
        rows = np.random.default_rng(seed).choice(len(X), SIZE, replace=False)
        return KMeans(CLUSTERS, n_init=1, random_state=seed).fit(X[rows]).cluster_centers_

    return {
        "scikit-learn": lambda seed: KMeans(CLUSTERS, n_init=1, random_state=seed).fit(X).cluster_centers_,
        "Intel's extension": lambda seed: IntelKMeans(CLUSTERS, n_init=1, random_state=seed).fit(X).cluster_centers_,
        "faiss": by_faiss,
        "MiniBatchKMeans": lambda seed: MiniBatchKMeans(CLUSTERS, n_init=1, random_state=seed).fit(X).cluster_centers_,
        "5,000 random rows": of_sample,
        "tithe": lambda seed: CoresetKMeans(CLUSTERS, coreset_size=SIZE, random_state=seed).fit(X).cluster_centers_,
    }


def compared(X: np.ndarray, seeds: int) -> list[dict[str, Any]]:
    """Seconds and costs of each method, and their medians."""
    objective, block = KMeansObjective(n_clusters=CLUSTERS), Block(X=X)
    rows = []
    for name, fit in fits(X).items():
        fit(0)  # what is compiled is outside the clock
        seconds, costs = [], []
        for seed in range(seeds):
            start = time.process_time()
            centers = fit(seed)
            seconds.append(time.process_time() - start)
            costs.append(float(objective.cost(block, centers).sum()))
        rows.append({"method": name, "seconds": float(np.median(seconds)), "costs": costs})
    best = min(cost for row in rows for cost in row["costs"])
    for row in rows:
        row["cost"] = float(np.median(row.pop("costs"))) / best
    return rows


def rare_kinds(X: np.ndarray, kinds: np.ndarray, seeds: int) -> dict[str, Any]:
    """How many rare kinds of connections have a row among those that are kept."""
    times = np.bincount(kinds)
    rare = np.flatnonzero(times <= RARE * len(kinds))
    kept = {"tithe": [], "random rows": []}
    for seed in range(seeds):
        coreset = CoresetKMeans(CLUSTERS, coreset_size=SIZE, random_state=seed).fit(X).coreset_
        drawn = np.random.default_rng(seed).choice(len(X), SIZE, replace=False)
        for name, rows in (("tithe", coreset.row_ids()), ("random rows", drawn)):
            kept[name].append(len(np.intersect1d(kinds[rows], rare)))
    return {"kinds": len(rare), "rows": int(times[rare].sum()), "kept": kept}


def draw(rows: list[dict[str, Any]], rare: dict[str, Any]) -> None:
    """Cost against time, and rare kinds kept, side by side."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.2, 3.9), width_ratios=(1.9, 1.0), layout="constrained")
    for row in rows:
        ours = row["method"] == "tithe"
        left.plot(row["seconds"], row["cost"], "o", color=BLUE if ours else GREY, markersize=11 if ours else 8)
        side, shift = LABELS.get(row["method"], ("center", (0, 9)))
        left.annotate(
            row["method"],
            (row["seconds"], row["cost"]),
            xytext=shift,
            textcoords="offset points",
            ha=side,
            weight="bold" if ours else "normal",
            color=BLUE if ours else "black",
        )
    left.set(xscale="log", yscale="log", xlabel="seconds of the processor", ylabel="cost on all rows, best fit = 1")
    ticks = [t for t in (1, 1.5, 2, 3, 4, 6, 8, 12) if t <= 1.6 * max(row["cost"] for row in rows)]
    left.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    left.set_ylim(0.85, 1.35 * max(row["cost"] for row in rows))
    left.minorticks_off()
    low, high = (f(row["seconds"] for row in rows) for f in (min, max))
    ticks = [t for t in (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30) if low / 3 < t < 3 * high]
    left.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    left.set_xlim(low / 3.0, 1.8 * high)
    left.set_title("20 clusters of 494,020 connections", loc="left", fontsize=11)
    left.grid(alpha=0.25)
    names, colours = ["random rows", "tithe"], [GREY, BLUE]
    middle = [float(np.median(rare["kept"][name])) for name in names]
    bars = right.bar(names, middle, color=colours, width=0.6)
    right.bar_label(bars, [f"{m:g} of {rare['kinds']}" for m in middle], padding=3)
    right.set(ylim=(0, 1.15 * rare["kinds"]), ylabel="kinds of attack with a row")
    right.set_title("Rare attacks among 5,000 rows", loc="left", fontsize=11)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    write(figure, "kdd_cup_99.png")


def write(figure: Any, name: str) -> None:
    path = PICTURES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # 160 dots an inch: text is sharp on the screens of phones
    figure.savefig(path, dpi=160, metadata={"Software": None})
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


def rare_groups() -> dict[str, Any]:
    """The example of rare groups: its picture, and costs relative to the fit on all rows."""
    example = runpy.run_path(str(ROOT / "examples" / "plot_1_rare_groups.py"))
    write(example["figure"], "rare_groups.png")
    cost, least = example["cost"], float(example["on_all_rows"].inertia_)
    fitted = {"sample": example["on_sample"], "coreset": example["on_coreset"]}
    costs = {name: float(cost(fit.cluster_centers_)) / least for name, fit in fitted.items()}
    return {**costs, "found": {name: example["n_found"](fit.cluster_centers_) for name, fit in fitted.items()}}


def main() -> None:
    matplotlib.use("agg")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with kddcup99_10pct.npz")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    X = load_rows(arguments.data, "kddcup99_10pct", "float64")
    with np.load(arguments.data / "kddcup99_10pct.npz") as archive:
        kinds = archive["y"]
    with threadpool_limits(1):
        rows, rare = compared(X, arguments.seeds), rare_kinds(X, kinds, arguments.seeds)
    show("k-means on KDD Cup 99", ["method", "CPU s", "cost"], [[r["method"], r["seconds"], r["cost"]] for r in rows])
    print(f"{rare['kinds']} rare kinds of attack, {rare['rows']} rows; kept of them: {rare['kept']}")
    draw(rows, rare)
    rare |= {name: float(np.median(numbers)) for name, numbers in rare["kept"].items()}
    options = {"clusters": CLUSTERS, "size": SIZE, "seeds": arguments.seeds}
    save("picture", {**options, "fits": rows, "rare": rare, "generated": rare_groups()})


if __name__ == "__main__":
    main()
