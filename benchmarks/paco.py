"""Online clustering: PACO beside river's STREAMKMeans, CluStream and DBSTREAM and sequential k-means.

    python benchmarks/paco.py --data DIR
    python benchmarks/paco.py --paper        # only what the paper states, see paco_paper.py
    python benchmarks/paco.py --changes      # only how soon k is right after a change

Everybody predicts each row by the nearest centre before it is seen; the loss is the squared distance. Planted streams
are Gaussian blobs in three regimes of 10,000 rows, centres at least 10 deviations apart: clusters that appear
(2, 3, 5), that appear and die (3, 5, 2, with a half-life of 300 rows), and five that move. The oracle knows the cluster
of every row and has the best centres of each regime (of each 1,000 rows where they move) in hindsight. Peers that must
be told k are told the true one at each change and start afresh with it; river's k-means is also told how wide the rows
are, and DBSTREAM how wide a cluster is. CluStream is slow, runs on fewer seeds, and is asked for centres every 50 rows.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from river import cluster
from sklearn.cluster import KMeans

from common import load_rows, save, show
from paco_paper import paper
from tithe.online import PACO

BURN_IN = 1000  # rows after a change that do not count for k
REGIME = 10_000
STREAMS = {
    "2, 3, 5": ((2, 3, 5), None),
    "3, 5, 2": ((3, 5, 2), 300.0),
    "5 that move": ((5, 5, 5), 300.0),
}
CHANGES = ((4, 2, 6), (2, 6, 3))
SENSOR = "electricity, three columns"  # time of day, price and demand
SETS = ("electricity", SENSOR, "occupancy_sensor", "eeg_eye_state", "image_segments", "kdd_http", "kddcup99_10pct")


def planted(
    ks: tuple[int, ...], d: int, seed: int, *, regime: int = REGIME, move: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, the true number of clusters at each, and the cluster each is from."""
    rng = np.random.default_rng(seed)
    places: list[np.ndarray] = []
    while len(places) < max(ks):
        place = rng.uniform(-25.0, 25.0, size=d)
        if all(np.linalg.norm(place - other) >= 10.0 for other in places):
            places.append(place)
    labels = np.concatenate([rng.integers(k, size=regime) for k in ks])
    X = np.array(places)[labels] + rng.normal(size=(len(labels), d))
    if move:
        way = rng.normal(size=(max(ks), d))
        way *= 20.0 / np.linalg.norm(way, axis=1, keepdims=True)
        X += way[labels] * np.linspace(0.0, 1.0, len(X))[:, None]
    return X, np.repeat(ks, regime), labels


def oracle(X: np.ndarray, labels: np.ndarray, regime: int = REGIME) -> float:
    """The loss of the best centres of each cluster and regime."""
    total = 0.0
    for start in range(0, len(X), regime):
        rows, at = X[start : start + regime], labels[start : start + regime]
        total += sum(float(((r - r.mean(axis=0)) ** 2).sum()) for r in (rows[at == j] for j in np.unique(at)))
    return total


class Sequential:
    """MacQueen's k-means: the first k rows are centres, and each row pulls the nearest by 1 / its count."""

    told = True

    def __init__(self, k: int) -> None:
        self.k, self.places, self.counts = k, np.empty((0, 0)), np.empty(0)

    def learn(self, x: np.ndarray) -> None:
        if len(self.counts) < self.k:
            self.places = np.vstack([self.places.reshape(-1, len(x)), x])
            self.counts = np.append(self.counts, 1.0)
            return
        near = int(((self.places - x) ** 2).sum(axis=1).argmin())
        self.counts[near] += 1.0
        self.places[near] += (x - self.places[near]) / self.counts[near]

    def where(self) -> np.ndarray:
        return self.places


class River:
    """One of river's clusterers; centres are asked for every ``every`` rows."""

    def __init__(self, model: Any, *, every: int = 1, told: bool = True) -> None:
        self.model, self.every, self.told, self.n_rows = model, every, told, 0
        self.places = np.empty((0, 0))

    def learn(self, x: np.ndarray) -> None:
        self.model.learn_one(dict(enumerate(x)))
        self.n_rows += 1
        if self.n_rows % self.every == 0:
            d = len(x)
            outcomes = [[center.get(j, 0.0) for j in range(d)] for center in self.model.centers.values()]
            self.places = np.array(outcomes).reshape(-1, d)

    def where(self) -> np.ndarray:
        return self.places


def walk(X: np.ndarray, truth: np.ndarray, make: Callable[[int], Any]) -> Iterator[tuple[float, int, Any]]:
    """Predict, then learn; where the true k changes a learner that must know it is made anew."""
    learner, known = make(int(truth[0])), truth[0]
    for x, k in zip(X, truth, strict=True):
        if k != known and learner.told:
            learner, known = make(int(k)), k
        places = learner.where()
        yield (float(((places - x) ** 2).sum(axis=1).min()) if len(places) else float(x @ x)), len(places), learner
        learner.learn(x)


def run_peer(X: np.ndarray, truth: np.ndarray, make: Callable[[int], Any]) -> dict[str, float]:
    start = time.process_time()
    losses, ks, learner = [], [], None
    for loss, k, learner in walk(X, truth, make):  # noqa: B007 - the last learner is weighed
        losses.append(loss)
        ks.append(k)
    return summary(np.array(losses), np.array(ks), truth, time.process_time() - start, learner)


def run_paco(X: np.ndarray, truth: np.ndarray, **options: Any) -> dict[str, float]:
    start = time.process_time()
    model = PACO(**options).partial_fit(X)
    seconds = time.process_time() - start
    return summary(model.history_["loss"], model.history_["k"], truth, seconds, model)


def summary(losses: np.ndarray, ks: np.ndarray, truth: np.ndarray, seconds: float, model: Any) -> dict[str, float]:
    settled = np.arange(len(truth)) % REGIME >= BURN_IN
    gap = np.abs(ks - truth)[settled]
    return {
        "loss": float(losses.sum()),
        "k within 1": float((gap <= 1).mean()),
        "k error": float(gap.mean()),
        "rows/s": len(losses) / seconds,
        "state, kB": len(pickle.dumps(model)) / 1e3,
    }


def peers(X: np.ndarray, seed: int) -> dict[str, Callable[[int], Any]]:
    wide = float(X.std())
    return {
        "river STREAMKMeans": lambda k: River(cluster.STREAMKMeans(n_clusters=k, sigma=wide, seed=seed)),
        "sequential k-means": Sequential,
        "river CluStream": lambda k: River(cluster.CluStream(n_macro_clusters=k, seed=seed, sigma=wide), every=50),
        "river DBSTREAM": lambda k: River(cluster.DBSTREAM(clustering_threshold=2.0 * X.shape[1] ** 0.5), told=False),
    }


def planted_streams(seeds: int, slow_seeds: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for d in (2, 10):
        for name, (ks, half_life) in STREAMS.items():
            outcomes: dict[str, list[dict[str, float]]] = {}
            for seed in range(seeds):
                X, truth, labels = planted(ks, d, seed, move="move" in name)
                best = oracle(X, labels, 1000 if "move" in name else REGIME)
                runs = {"PACO": run_paco(X, truth, half_life=half_life, random_state=seed)}
                for peer, make in peers(X, seed).items():
                    if seed < slow_seeds or peer != "river CluStream":
                        runs[peer] = run_peer(X, truth, make)
                for method, values in runs.items():
                    outcomes.setdefault(method, []).append({**values, "loss / oracle": values["loss"] / best})
            results[f"{name}, d = {d}"] = table(f"{name}, d = {d}, {seeds} seeds (CluStream: {slow_seeds})", outcomes)
    return results


def rows_until(ks: np.ndarray, true_k: int) -> int:
    """The number of rows before k is right for 50 rows in a row; all, if it never is."""
    right = np.convolve(ks == true_k, np.ones(50), "valid") == 50
    return int(right.argmax()) if right.any() else len(ks)


def changes(seeds: int) -> dict[str, Any]:
    """Rows until k is right after the number of clusters has changed: half-life 300, regimes of 2,500 rows."""
    rows, results, regime = [], {}, 2500
    for ks in CHANGES:
        for d in (2, 5, 10):
            waits, losses = [], []
            for seed in range(seeds):
                X, _, labels = planted(ks, d, seed, regime=regime)
                history = PACO(half_life=300.0, random_state=seed).partial_fit(X).history_
                parts = history["k"].reshape(len(ks), regime)
                waits.append([rows_until(part, k) for part, k in zip(parts, ks, strict=True)])
                losses.append(float(history["loss"].sum() / oracle(X, labels, regime)))
            name = f"{', '.join(map(str, ks))}, d = {d}"
            middle, worst = np.median(waits, axis=0), np.max(waits, axis=0)
            rows.append([name, *middle.tolist(), *worst.tolist(), float(np.median(losses))])
            results[name] = {"median": middle.tolist(), "worst": worst.tolist(), "loss / oracle": losses}
    columns = ["k", "first", "second", "third", "worst", "worst", "worst", "loss / oracle"]
    show(f"rows until k is right, median and worst of {seeds} seeds", columns, rows)
    return results | summary_of_changes(results)


def summary_of_changes(results: dict[str, Any]) -> dict[str, list[float]]:
    """Medians of all streams: after a rise and a fall of k, and of the loss where clusters that ended return."""
    after: dict[str, list[float]] = {"after a rise": [], "after a fall": []}
    for ks in CHANGES:
        for d in (2, 5, 10):
            waits = results[f"{', '.join(map(str, ks))}, d = {d}"]["median"]
            for (before, now), wait in zip(pairwise(ks), waits[1:], strict=True):
                after["after a rise" if now > before else "after a fall"].append(wait)
    returning = [results[f"4, 2, 6, d = {d}"]["loss / oracle"] for d in (2, 5, 10)]
    return {**after, "loss where clusters return": [float(np.median(losses)) for losses in returning]}


def table(title: str, outcomes: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Medians, and the worst seed of what must hold for each; by method."""
    summaries = {}
    for method, runs in outcomes.items():
        middle = {key: float(np.median([run[key] for run in runs])) for key in runs[0] if key != "loss"}
        worst = max(run["loss / oracle"] for run in runs)
        least = min(run["k within 1"] for run in runs)
        summaries[method] = {**middle, "worst loss / oracle": worst, "least k within 1": least}
    columns = [
        "loss / oracle",
        "worst loss / oracle",
        "k error",
        "k within 1",
        "least k within 1",
        "rows/s",
        "state, kB",
    ]
    show(title, ["method", *columns], [[m, *(of[column] for column in columns)] for m, of in summaries.items()])
    return summaries


def long_stream(n: int) -> dict[str, Any]:
    """Five blobs in ten dimensions: speed and memory along the way, and how fast the regret grows."""
    rng = np.random.default_rng(0)
    places = rng.uniform(-25.0, 25.0, size=(5, 10))
    labels = rng.integers(5, size=n)
    X = places[labels] + rng.normal(size=(n, 10))
    model, rows, cumulative = PACO(random_state=0, summary_size=1000), [], []
    PACO(random_state=0, summary_size=1000).partial_fit(X[:3000])  # kernels are compiled outside the clock
    for start in range(0, n, 20_000):
        before, clock = time.process_time(), time.perf_counter()
        for at in range(start, start + 20_000, 1000):
            model.partial_fit(X[at : at + 1000])
            cumulative.append(float(model.history_["cumulative_loss"][-1]))
        used, wall = time.process_time() - before, time.perf_counter() - clock
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        size = len(pickle.dumps(model)) / 1e3
        rows.append([start + 20_000, round(20_000 / used), round(20_000 / wall), memory, size, model.n_clusters_])
    show(
        f"{n:,} rows, d = 10, summary_size = 1000",
        ["rows", "rows / CPU s", "rows/s", "peak MB", "state, kB", "k"],
        rows,
    )
    at = np.arange(1000, n + 1, 1000)
    regret = np.array(cumulative) - [oracle(X[:t], labels[:t], n) for t in at]
    used = at >= 2000
    slope = float(np.polyfit(np.log(at[used]), np.log(np.maximum(regret[used], 1e-9)), 1)[0])
    speeds = [row[1] for row in rows]
    print(f"speed at the end over that of the first 20,000 rows: {speeds[-1] / speeds[0]:.2f}")
    print(f"regret: {regret[1]:.0f} after 2,000 rows, {regret[-1]:.0f} after all; slope in log T: {slope:.2f}")
    along = [{"rows": r[0], "rows / CPU s": r[1], "peak MB": r[3], "state, kB": r[4], "k": r[5]} for r in rows]
    return {"along": along, "slope": slope}


def real_sets(folder: Path, names: list[str], n_rows: int) -> dict[str, Any]:
    """Streams that people collected, standardised; k is what PACO ends with, told to those that must be told."""
    results: dict[str, Any] = {}
    for name in names:
        X = load_rows(folder, name.partition(",")[0], "float64")[:n_rows]
        if name == SENSOR:
            X = np.ascontiguousarray(X[:, 2:5])
        model = PACO(random_state=0, half_life=2000.0).partial_fit(X)
        k = max(2, round(float(np.median(model.history_["k"]))))
        truth = np.full(len(X), k)
        runs = {
            "PACO": run_paco(X, truth, random_state=0),
            "PACO, half-life 2,000": run_paco(X, truth, random_state=0, half_life=2000.0),
            "PACO, many centres": run_paco(X, truth, random_state=0, scale="centers"),
        }
        for peer, make in peers(X, 0).items():
            runs[peer] = run_peer(X, truth, make)
        best, *others = (float(KMeans(n, n_init=3, random_state=0).fit(X).inertia_) for n in (k, 5, 20))
        for values in runs.values():
            values["loss / oracle"] = values["loss"] / best
            values["loss / 20 centres"] = values["loss"] / others[1]
        hindsight = {"5": others[0] / best, "20": others[1] / best}
        show(
            f"{name}: {len(X):,} x {X.shape[1]}, k = {k}; loss over that of k-means on all rows in hindsight",
            ["method", "loss / hindsight", "rows/s", "state, kB"],
            [[m, v["loss / oracle"], round(v["rows/s"]), v["state, kB"]] for m, v in runs.items()],
        )
        print(f"k-means in hindsight, over that of {k} centres: {hindsight}")
        results[name] = {"k": k, "runs": runs, "hindsight": hindsight}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of .npz files with an array X")
    parser.add_argument("--paper", action="store_true", help="only the claims of the paper")
    parser.add_argument("--changes", action="store_true", help="only how many rows after a change k is right")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--slow-seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=10_000, help="of each real set, from its beginning")
    parser.add_argument("--long", type=int, default=200_000)
    arguments = parser.parse_args()
    if arguments.paper:
        paper(arguments.seeds)
        return
    if arguments.changes:
        save("paco_changes", changes(arguments.seeds))
        return
    if arguments.data is None:
        parser.error("name the folder of real sets: --data DIR")
    results = {
        "changes": changes(arguments.seeds),
        "long": long_stream(arguments.long),
        "planted": planted_streams(arguments.seeds, arguments.slow_seeds),
        "sets": real_sets(arguments.data, arguments.sets, arguments.rows),
    }
    save("paco", results)


if __name__ == "__main__":
    main()
