"""Which defaults of `LinearODMClassifier` do not trail those of scikit-learn's `LinearSVC`.

    python benchmarks/odm_defaults.py --data DIR [--names spambase ...] [--rows 4000] [--large-rows 30000]

Test accuracy, means of the splits, on every labelled set in the folder and on generated ones with skewed, heavy-tailed,
small and unequally scaled columns: columns as they are and standardised, up to ``--rows`` rows, of which 60 % are
learnt from; and sets with two classes once more with up to ``--large-rows``, as the penalty of `LinearSVC` weakens with
the rows and that of `LinearODMClassifier` does not. Classes with fewer than ten rows are left out.

The tables: accuracy above that of `LinearSVC`, and processor time over its, by candidate; the same by set for the
defaults and those of earlier versions; and, leaving one set out at a time, the candidate that is best on the others,
on the set left out. ``--names`` measures these sets only, ``--defaults-only`` no candidate but the defaults: minutes
instead of hours. Sets on which a fit takes more than ``--seconds`` are stopped, and named.
"""

from __future__ import annotations

import argparse
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from common import save, show
from tithe.odm import LinearODMClassifier

GRID = (
    *((1e3, 0.5, 0.2), (1e4, 0.2, 0.5), (1e4, 0.05, 0.5)),
    *((1e3, 0.1, 0.8), (1e3, 0.05, 0.8), (3e3, 0.05, 0.8), (1e4, 0.05, 0.8), (3e4, 0.05, 0.8), (1e5, 0.05, 0.8)),
    *((3e2, 0.1, 0.9), (1e3, 0.1, 0.9), (3e3, 0.1, 0.9)),
)
Candidate = tuple[float, float, float]  # lam, mu, theta
DEFAULTS: Candidate = (LinearODMClassifier().lam, LinearODMClassifier().mu, LinearODMClassifier().theta)
TWO_CLASSES = (
    "australian diabetes german spambase phishing electricity eeg_eye_state occupancy_sensor higgs_subset a9a w8a "
    "skin_nonskin kdd_http reuters"
)
MORE_CLASSES = "covtype image_segments satimage pendigits shuttle letter kddcup99_10pct mnist"
GENERATED = "skewed heavy-tailed unequal small unbalanced"
SPLITS = {True: 4, False: 2}  # of sets with two classes, and with more, which take longer


def load(folder: Path, name: str, most: int) -> tuple[Any, np.ndarray]:
    if name in GENERATED.split():
        return generated_columns(name, most)
    with np.load(folder / f"{name}.npz") as archive:
        y = archive["y"]
        if "indptr" in archive.files:
            indices = archive["indices"].astype(np.int32)
            values = np.ones(len(indices)) if archive["all_ones"] else archive["data"].astype(np.float64)
            X = sparse.csr_matrix((values, indices, archive["indptr"]), shape=tuple(archive["shape"]))
        else:
            X = archive["X"]
    chosen = np.random.default_rng(0).permutation(len(y))[:most]
    classes, counts = np.unique(y[chosen], return_counts=True)
    chosen = chosen[np.isin(y[chosen], classes[counts >= 10])]
    return X[chosen].astype(np.float64), y[chosen]


def generated_columns(kind: str, n_rows: int, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Labels of a noisy line, and columns that are no Gaussians of variance 1."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)) / np.sqrt(d))
    if kind == "skewed":
        X = np.exp(X)
    elif kind == "heavy-tailed":
        X = rng.standard_t(2, size=(n_rows, d))
    scores = (X - np.median(X, axis=0)) @ rng.normal(size=d)
    scores = scores / np.median(np.abs(scores)) + 0.5 * rng.normal(size=n_rows)
    if kind == "unequal":
        X = (X + 3.0 * rng.normal(size=d)) * 10.0 ** rng.uniform(-2.0, 4.0, d)
    elif kind == "small":
        X = 0.01 * X
    return X, scores > np.quantile(scores, 0.95 if kind == "unbalanced" else 0.5)


def variants(folder: Path, name: str, rows: int, large: int) -> Iterator[tuple[str, Any, np.ndarray, bool]]:
    """Name, rows and labels, and whether to standardise."""
    X, y = load(folder, name, rows)
    yield name, X, y, False
    if name == "mnist":
        yield f"{name}, over 255", X / 255.0, y, False
    elif not sparse.issparse(X):
        yield f"{name}, standardised", X, y, True
    if name in f"{TWO_CLASSES} {GENERATED}".split():
        more, labels = load(folder, name, large)
        if len(labels) > 2 * len(y):
            yield f"{name}, {len(labels)} rows", more, labels, False


def measure(X: Any, y: np.ndarray, standardise: bool, grid: Sequence[Candidate], limit: int) -> dict[str, list[float]]:
    """Accuracy and seconds by candidate, and of LinearSVC. TimeoutError if a fit takes more than ``limit`` seconds."""
    measured: dict[str, list[tuple[float, float]]] = {}
    for seed in range(SPLITS[len(np.unique(y)) == 2]):
        rows, test, labels, truth = train_test_split(X, y, test_size=0.4, random_state=seed, stratify=y)
        if standardise:
            scaler = StandardScaler().fit(rows)
            rows, test = scaler.transform(rows), scaler.transform(test)
        models: dict[str, Any] = {"LinearSVC": LinearSVC(random_state=0)}
        models |= {label(candidate): LinearODMClassifier(*candidate, random_state=0) for candidate in grid}
        for name, model in models.items():
            start = time.process_time()
            signal.alarm(limit)
            model.fit(rows, labels)
            signal.alarm(0)
            seconds = time.process_time() - start
            measured.setdefault(name, []).append((model.score(test, truth), seconds))
    return {name: [float(v) for v in np.mean(values, axis=0)] for name, values in measured.items()}


def label(candidate: Candidate) -> str:
    return "{:g} {:g} {:g}".format(*candidate)


def tables(results: dict[str, dict[str, list[float]]], names: list[str]) -> dict[str, Any]:
    """Print the tables, and give what pages quote: the points above LinearSVC and the ratio of times, set by set."""
    gaps = 100.0 * np.array([[of[name][0] - of["LinearSVC"][0] for name in names] for of in results.values()])
    times = np.array([[of[name][1] / of["LinearSVC"][1] for name in names] for of in results.values()])
    rows: list[list[Any]] = []
    for j in np.argsort(-gaps.mean(axis=0)):
        behind = np.minimum(gaps[:, j], 0.0)
        spent = float(np.exp(np.log(times[:, j]).mean()))
        rows.append([names[j], *map(float, (gaps[:, j].mean(), behind.mean(), behind.min())), spent])
    columns = ["lam, mu, theta", "mean", "mean where behind, else 0", "worst", "time over LinearSVC's"]
    show("Points of accuracy above LinearSVC", columns, rows)
    default = label(DEFAULTS)
    shown = list(dict.fromkeys([*names[:2], default]))
    by_set = []
    for points, (key, of) in zip(gaps, results.items(), strict=True):
        svc, here = of["LinearSVC"], of[default]
        by_set.append([key, svc[0], *(float(points[names.index(name)]) for name in shown), svc[1], here[1]])
    seconds = ["LinearSVC, seconds", f"{default}, seconds"]
    show("Points above LinearSVC, set by set", ["set", "LinearSVC", *shown, *seconds], by_set)
    sets = np.array([key.split(",")[0] for key in results])
    left_out: list[list[Any]] = []
    for name in dict.fromkeys(sets):
        best = int(gaps[sets != name].mean(axis=0).argmax())
        here = gaps[sets == name, best]
        left_out.append([name, names[best], float(here.mean()), float(here.min())])
    show("Chosen on the other sets", ["set left out", "chosen", "points above LinearSVC", "worst"], left_out)
    kinds: dict[str, list[dict[str, Any]]] = {"two classes": [], "more classes": []}
    of_default = zip(results, gaps[:, names.index(default)], times[:, names.index(default)], strict=True)
    for key, points, ratio in of_default:
        kind = "more classes" if key.split(",")[0] in MORE_CLASSES.split() else "two classes"
        kinds[kind].append({"set": key, "points above LinearSVC": float(points), "time ratio": float(ratio)})
    middle = {kind: float(np.exp(np.mean(np.log([s["time ratio"] for s in of])))) for kind, of in kinds.items() if of}
    return {"default": default, **kinds, "mean time ratio": middle, "candidates": rows}


def stop(*_: Any) -> None:
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--names", nargs="*", default=f"{TWO_CLASSES} {MORE_CLASSES} {GENERATED}".split())
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--large-rows", type=int, default=30_000)
    parser.add_argument("--seconds", type=int, default=120, help="of the clock, for a fit. [default: 120]")
    parser.add_argument("--defaults-only", action="store_true")
    options = parser.parse_args()
    grid = (DEFAULTS,) if options.defaults_only else GRID
    warnings.simplefilter("ignore", ConvergenceWarning)
    signal.signal(signal.SIGALRM, stop)
    for n_classes in (2, 3):
        rows = np.random.default_rng(0).normal(size=(300, 5))
        LinearODMClassifier().fit(rows, np.arange(300) % n_classes)  # kernels are compiled, or read from their cache
    results, stopped = {}, []
    for name in options.names:
        for key, X, y, standardise in variants(options.data, name, options.rows, options.large_rows):
            try:
                results[key] = measure(X, y, standardise, grid, options.seconds)
            except TimeoutError:
                stopped.append(key)
    summary = tables(results, [label(candidate) for candidate in grid])
    print(f"\nstopped after {options.seconds} seconds: {', '.join(stopped) or 'none'}")
    save("odm_defaults", {**summary, "seconds": options.seconds, "stopped": stopped})


if __name__ == "__main__":
    main()
