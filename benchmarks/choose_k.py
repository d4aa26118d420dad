"""How many clusters: rules on one coreset, for blobs of which the number is known, and for real sets.

    python benchmarks/choose_k.py --data DIR [--seeds]

The blobs: 2 to 30 normal clouds in 2 to 50 dimensions, 20,000 rows, unequal in size, width and shape, the two nearest
ones 5 to 10 mean standard deviations apart. ``separation`` and ``relative`` are rules of `choose_k`. The others are
computed here from k-means solutions on the same coreset for every k up to 40: the largest simplified silhouette, the
largest Calinski-Harabasz index, the largest jump of Sugar and James, and the least BIC of spherical normal laws of one
width (X-means). Nobody knows the right number for the real sets; classes are not clusters.

With --seeds only the answers of the rule "separation" for ten seeds are compared, on the real sets. Those that are said
to be clear should all be the same.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.metrics import pairwise_distances

from common import load_rows, save, show
from tithe import choose_k
from tithe.clustering.objective import KMeansObjective
from tithe.core.data import Coreset
from tithe.core.seeding import rng_for

MOST = 40
N_SEEDS = 10
RULES = ("separation", "relative", "silhouette", "calinski", "jump", "bic")


def planted(seed: int, n: int = 20_000) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(1000 + seed)
    k, d = int(rng.integers(2, 31)), round(2 * 25 ** rng.random())
    share = (rng.dirichlet(np.full(k, 3.0)) + 0.25 / k) / 1.25
    width = rng.uniform(0.6, 1.6, k)
    centers = rng.uniform(-1, 1, (k, d))
    gap = pairwise_distances(centers) / (width[:, None] + width) + np.diag(np.full(k, np.inf))
    centers *= rng.uniform(2.5, 5) / gap.min()
    label = rng.choice(k, n, p=share)
    shape = width[:, None] * rng.uniform(0.7, 1.3, (k, d))
    return centers[label] + rng.normal(size=(n, d)) * shape[label], k


def indices(coreset: Coreset, seed: int) -> dict[str, int]:
    """The k that each index picks."""
    rows, weight = np.asarray(coreset.X, np.float64), coreset.weights()
    n, d = float(weight.sum()), rows.shape[1]
    best, cost = {}, np.empty(MOST + 1)
    values: dict[str, dict[int, float]] = {"silhouette": {}, "calinski": {}, "bic": {}}
    objective = KMeansObjective()
    for k in range(1, MOST + 1):
        centers = replace(objective, n_clusters=k).solve(coreset, rng=rng_for(seed, k))
        gap = pairwise_distances(rows, centers)
        near = np.partition(gap, min(1, k - 1), axis=1)[:, :2]
        cost[k] = weight @ gap.min(axis=1) ** 2
        mass = np.bincount(gap.argmin(axis=1), weight, k)
        mass = mass[mass > 0]
        if k > 1:
            values["silhouette"][k] = float(weight @ (1.0 - near[:, 0] / np.maximum(near[:, 1], 1e-300)))
            values["calinski"][k] = (cost[1] - cost[k]) / (k - 1) / cost[k] * (n - k)
        likelihood = mass @ np.log(mass / n) - 0.5 * n * d * np.log(cost[k] / (n * d))
        values["bic"][k] = float(likelihood - 0.5 * k * (d + 1) * np.log(n))
    cost[0] = np.inf
    jumps = np.diff(cost ** (-d / 2) / (cost[1] ** (-d / 2)))
    best["jump"] = 1 + int(jumps.argmax())
    return {name: max(result, key=result.__getitem__) for name, result in values.items()} | best


def answers(X: np.ndarray, seed: int) -> dict[str, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of answers that are the largest k allowed
        results = {rule: choose_k(X, rule=rule, random_state=seed) for rule in ("separation", "relative")}
    return {rule: result.k for rule, result in results.items()} | indices(results["separation"].coreset, seed)


def answers_of_seeds(folder: Path, names: list[str]) -> None:
    """A line for each set: how many seeds gave each clear answer, and how many none."""
    rows = []
    for name in names:
        X, start, found = load_rows(folder, name, "float64"), time.process_time(), Counter()
        for seed in range(N_SEEDS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = choose_k(X, random_state=seed)
            found[str(result.k) if result.met else "not clear"] += 1
        seconds = (time.process_time() - start) / N_SEEDS
        rows.append([name, *X.shape, len(found.keys() - {"not clear"}) <= 1, str(dict(found)), seconds])
        print("  ", rows[-1], flush=True)
    columns = ["set", "rows", "columns", "one clear answer at most", "seeds with each answer", "s of CPU"]
    show("Answers of ten seeds", columns, rows)
    save("choose_k_seeds", {"columns": columns, "rows": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of .npz files; without it, generated sets only")
    parser.add_argument("--sets", type=int, default=40)
    parser.add_argument("--names", nargs="*", default=["pendigits", "letter", "satimage", "shuttle", "skin_nonskin"])
    parser.add_argument("--seeds", action="store_true", help="compare the answers of ten seeds, and nothing else")
    options = parser.parse_args()
    if options.seeds:
        return answers_of_seeds(options.data, options.names)
    rows, hits = [], dict.fromkeys(RULES, 0)
    for seed in range(options.sets):
        X, k = planted(seed)
        result = answers(X, seed)
        rows.append([f"blobs {seed}", X.shape[1], k, *(result[rule] for rule in RULES)])
        hits = {rule: hits[rule] + (result[rule] == k) for rule in RULES}
    show("Planted clusters", ["set", "d", "k", *RULES], [*rows, ["right", "", options.sets, *hits.values()]])
    real = []
    for name in options.names if options.data else []:
        X = load_rows(options.data, name, "float64")
        result = answers(X, 0)
        real.append([name, X.shape[1], *(result[rule] for rule in RULES)])
    if real:
        show("Real sets, standardised", ["set", "d", *RULES], real)
    save("choose_k", {"planted": rows, "right": hits, "real": real})


if __name__ == "__main__":
    main()
