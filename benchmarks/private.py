"""What privacy costs clusters: private coresets beside the best centres, over eps and columns, and a membership attack.

    python benchmarks/private.py --data DIR

Costs are those of centres from the coreset on all rows, over the best that is known: k-means on 20,000 rows, polished
on all. Bounds are set without the data: from what a column means. The attack guesses who is in the data by the distance
to the nearest point of the coreset: chance is an area of 0.5 under its curve.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from common import save, show
from tithe import Block, CoresetKMeans, CoresetKMedians, build_coreset
from tithe.constructions import private_coreset
from tithe.objectives import KMeansObjective

N, K, DELTA = 500_000, 10, 1e-6
SEEDS = range(2)
COVERTYPE = [
    (1500, 4500),
    (0, 360),
    (0, 90),
    (0, 2000),
    (-500, 1000),
    (0, 10_000),
    (0, 255),
    (0, 255),
    (0, 255),
    (0, 10_000),
]


def mixture(n: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0.15, 0.85, size=(K, d))
    share = rng.dirichlet(np.full(K, 3.0))
    return (centers[rng.choice(K, n, p=share)] + 0.06 * rng.normal(size=(n, d))).clip(0, 1)


def scaled(X: np.ndarray, bounds: Any) -> np.ndarray:
    low, high = np.asarray(bounds, np.float64).T
    return ((X - low) / (high - low)).clip(0, 1)


def data_sets(folder: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    cover = np.load(folder / "covtype.npz")["X"][:, :10].astype(np.float64)
    flights = np.load(folder / "flights_us_2001.npz")
    minute = flights["minute"].astype(np.float64)
    columns = [minute % 1440, minute / 1440 % 7, flights["delay"], flights["distance"]]
    bounds = [(0, 1440), (0, 7), (-60, 240), (0, 5000)]
    sets = {"mixture": mixture(N, 10, 0), "covertype": scaled(cover, COVERTYPE)}
    sets["flights"] = scaled(np.stack(columns, axis=1).astype(np.float64), bounds)
    return {name: X[rng.choice(len(X), N, replace=False)] if len(X) > N else X for name, X in sets.items()}


def cost(X: np.ndarray, centers: np.ndarray) -> float:
    return float(KMeansObjective(n_clusters=len(centers)).cost(Block(X=X), centers).sum())


def over_best(X: np.ndarray, eps: float, best: dict[Any, float]) -> dict[str, Any]:
    """Costs of centres from private coresets of several seeds, over the best of each learner, and what they took."""
    costs: dict[Any, list[float]] = {learner: [] for learner in best}
    sizes, seconds = [], []
    for seed in SEEDS:
        start = time.process_time()
        coreset = private_coreset(X, bounds=(0, 1), eps=eps, delta=DELTA, random_state=seed)
        seconds.append(time.process_time() - start)
        sizes.append(len(coreset))
        for learner, least in best.items():
            model = learner(K, random_state=0).fit(coreset.X, sample_weight=coreset.sample_weight)
            costs[learner].append(-model.score(X) / least)
    about = {"eps": eps, "points": int(np.median(sizes)), "cpu_seconds": float(np.median(seconds))}
    for learner, values in costs.items():
        name = "kmeans" if learner is CoresetKMeans else "kmedians"
        about |= {name: float(np.median(values)), f"{name}_worst": max(values)}
    return about


def best_of(X: np.ndarray, *learners: Any) -> dict[Any, float]:
    return {learner: learner(K, coreset_size=20_000, polish=5, random_state=0).fit(X).inertia_ for learner in learners}


def attack(X: np.ndarray, eps: float) -> dict[str, float]:
    """The area under the curve of a membership attack on 500 rows in and out of a set of 2,000, over all seeds."""
    members, others = X[:2000], X[2000:4000]
    every = np.concatenate([members, others])
    truth = np.repeat([1, 0], len(members))
    result = {}
    for name in ("ordinary", "private"):
        near = []
        for seed in SEEDS:
            if name == "ordinary":
                points = build_coreset(members, objective="kmeans", coreset_size=200, random_state=seed).X
            else:
                points = private_coreset(members, bounds=(0, 1), eps=eps, delta=DELTA, random_state=seed).X
            near.append(np.sqrt(KMeansObjective(n_clusters=len(points)).cost(Block(X=every), points)))
        result[name] = float(np.mean([roc_auc_score(truth, -row) for row in near]))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    sets, table = {}, []
    for name, X in data_sets(arguments.data).items():
        best = best_of(X, CoresetKMeans, CoresetKMedians)
        runs = [over_best(X, eps, best) for eps in (0.1, 0.3, 1.0, 3.0)]
        sets[name] = {"rows": len(X), "columns": X.shape[1], "runs": runs, "attack": attack(X, 1.0)}
        costs = [run["kmeans"] for run in runs]
        shown = [runs[2]["kmeans_worst"], runs[2]["kmedians_worst"], runs[2]["points"], runs[2]["cpu_seconds"]]
        table.append([name, len(X), X.shape[1], *costs, *shown, *sets[name]["attack"].values()])
    heads = ["set", "rows", "columns", "eps .1", ".3", "1", "3", "worst at 1", "k-medians", "points", "CPU s"]
    show(
        f"private coresets, k = {K}, delta = {DELTA}: cost over the best; attack on ordinary and private ones",
        [*heads, "ordinary", "private"],
        table,
    )
    columns = []
    for d in (2, 5, 20):
        X = mixture(N, d, d)
        columns.append({"columns": d, **over_best(X, 1.0, best_of(X, CoresetKMeans))})
    show(
        "by the number of columns: mixtures",
        ["columns", "cost over the best", "worst", "points"],
        [[c["columns"], c["kmeans"], c["kmeans_worst"], c["points"]] for c in columns],
    )
    save("private", {"k": K, "delta": DELTA, "seeds": len(SEEDS), "sets": sets, "columns": columns})


if __name__ == "__main__":
    main()
