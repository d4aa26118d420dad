"""Boosted trees on coresets beside uniform samples, class-balanced samples, and all rows.

    python benchmarks/boosting.py --data DIR [--tasks a9a,covtype] [--shares 0.05,0.2] [--seeds 5] [--rows N]
                                  [--libraries lightgbm,xgboost,histogram] [--rounds 200]

Every model stops early on a weighted fifth of the rows that it learns from, and is then fitted to all of these; a
quarter of the rows is held out and seen by none. "balanced" draws as many rows of each class, with weights; "uniform x
1.5" has 1.5 times as many rows; "leaves of all rows" is ``polish="leaves"``. On all rows there are a plain fit and,
with LightGBM, GOSS and bagging of a share of the rows. Scores are log-loss, or the mean squared error of regressions
over the variance of y; and AUC (mean over classes), or R2.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from common import RESULTS, load_labelled, save, show
from tithe import CoresetEstimator
from tithe.meta.ensembles import best_rounds, diverged, with_rounds
from tithe.meta.leaves import leaf_obstacle

STOP = 0.2  # share of the rows for early stopping
HELD_OUT = 0.25
Task = tuple[np.ndarray, np.ndarray]
TWO_CLASSES = (
    "a9a", "w8a", "skin_nonskin", "ijcnn1", "cod_rna", "electricity", "higgs_subset", "susy_subset", "magic04",
)  # fmt: skip
MANY_CLASSES = ("covtype", "shuttle", "kddcup99_10pct")
REGRESSIONS = ("elevation", "delay")
OTHERS = ("flights",)
METHODS = ("coreset", "uniform", "uniform x 1.5", "balanced", "leaves of all rows")


def load(folder: Path, name: str) -> Task:
    """Rows and target of a task. Rare classes of KDD Cup 99, with fewer than 50 rows, are left out."""
    if name in TWO_CLASSES:
        return load_labelled(folder, name)
    if name in ("flights", "delay"):
        return _flights(folder, name)
    with np.load(folder / f"{'covtype' if name == 'elevation' else name}.npz") as archive:
        X, y = archive["X"].astype(np.float64), archive["y"].astype(np.int64)
    if name == "elevation":
        return np.ascontiguousarray(X[:, 1:]), X[:, 0]
    common = np.bincount(y)[y] >= 50
    return X[common], np.unique(y[common], return_inverse=True)[1]


def _flights(folder: Path, name: str) -> Task:
    """Hour, weekday, month, distance and airports of flights: late by more than 15 minutes, or by how many minutes."""
    with np.load(folder / "flights_us_2001.npz") as archive:
        part = {key: archive[key] for key in ("minute", "distance", "origin", "destination", "delay")}
    minute = part["minute"]
    columns = [minute // 60 % 24, minute // 1440 % 7, minute // 43_200, part["distance"], part["origin"]]
    X = np.column_stack([*columns, part["destination"]]).astype(np.float64)
    delay = part["delay"].astype(np.float64)
    return X, (delay > 15).astype(np.int64) if name == "flights" else np.clip(delay, -60, 180)


def trees(library: str, classes: bool, rounds: int, **options: Any) -> Any:
    if library == "lightgbm":
        import lightgbm

        kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
        return kind(n_estimators=rounds, n_jobs=1, verbosity=-1, random_state=0, **options)
    if library == "xgboost":
        import xgboost

        kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
        return kind(n_estimators=rounds, n_jobs=1, learning_rate=0.1, random_state=0)
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return kind(max_iter=rounds, random_state=0)


def scores(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """A loss and a goodness on rows held out; see the top of the file."""
    if not is_classifier(model):
        good = float(r2_score(y, model.predict(X)))
        return 1.0 - good, good
    labels = np.arange(int(y.max()) + 1)
    chance = np.full((len(y), len(labels)), 1e-15)
    chance[:, model.classes_] = model.predict_proba(X)
    chance /= chance.sum(axis=1, keepdims=True)
    columns = labels[1:] if len(labels) == 2 else labels
    return float(log_loss(y, chance, labels=labels)), float(
        np.mean([roc_auc_score(y == k, chance[:, k]) for k in columns])
    )


def stopped(model: Any, X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, seed: int) -> Any:
    """The model, fitted with the number of rounds that is best on a fifth of the rows, as `CoresetEstimator` does."""
    stop = best_rounds(model, lambda at: X[at], y, weight, STOP, np.random.default_rng(seed))
    if stop is None:
        return clone(model).fit(X, y, sample_weight=weight)
    model = with_rounds(clone(model), stop.rounds, stop.steadied).fit(X, y, sample_weight=weight)
    if not diverged(model, lambda at: X[at], y, weight, stop):
        return model
    at = np.flatnonzero(~stop.aside)
    return clone(model).fit(X[at], y[at], sample_weight=None if weight is None else weight[at])


def balanced(X: np.ndarray, y: np.ndarray, size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As many rows of each class, or all of a class with fewer, with weights."""
    rng, left, taken, weight = np.random.default_rng(seed), size, [], []
    counts = np.bincount(y)
    for n, k in enumerate(np.argsort(counts)):
        members = np.flatnonzero(y == k)
        kept = rng.choice(members, min(len(members), left // (len(counts) - n)), replace=False)
        left -= len(kept)
        taken.append(kept)
        weight.append(np.full(len(kept), len(members) / max(1, len(kept))))
    at, weights = np.concatenate(taken), np.concatenate(weight)
    return X[at], y[at], weights * (len(at) / weights.sum())


def methods(model: Any, X: Any, y: np.ndarray, share: float, seed: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each method by name; the first says what a row is foretold to be worth."""
    options = {"validation_fraction": 0.0, "early_stopping": STOP, "random_state": seed}
    size = round(share * len(y))
    uniform = {"construction": "uniform", **options}
    yield "coreset", lambda: CoresetEstimator(model, coreset_size=size, **options).fit(X, y)
    yield "uniform", lambda: CoresetEstimator(model, coreset_size=size, **uniform).fit(X, y)
    yield (
        "uniform x 1.5",
        lambda: CoresetEstimator(model, coreset_size=min(len(y) - 1, 3 * size // 2), **uniform).fit(X, y),
    )
    if is_classifier(model):
        yield "balanced", lambda: stopped(model, *balanced(X, y, size, seed), seed)
    if leaf_obstacle(model) is None:
        leaves = {**options, "validation_fraction": 0.05, "polish": "leaves"}
        yield "leaves of all rows", lambda: CoresetEstimator(model, coreset_size=size, **leaves).fit(X, y)


def on_all_rows(model: Any, library: str, shares: list[float]) -> Iterator[tuple[str, Any]]:
    yield "all rows", model
    if library == "lightgbm":
        yield "GOSS on all rows", clone(model).set_params(data_sample_strategy="goss")
        for share in shares:
            yield f"bagging {share:.0%} of all rows", clone(model).set_params(subsample=share, subsample_freq=1)


def run(folder: Path, name: str, library: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All methods on one task: medians over the seeds of losses, goodness and seconds of the processor."""
    X, y = load(folder, name)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))[: arguments.rows]
    n_held = round(HELD_OUT * len(order))
    test, train = np.sort(order[:n_held]), np.sort(order[n_held:])
    model = trees(library, name not in REGRESSIONS, arguments.rounds)
    outcomes: dict[tuple[str, float], list[tuple[float, float, float]]] = {}

    def measure(method: str, share: float, fit: Callable[[], Any]) -> Any:
        start = time.process_time()
        fitted = fit()
        seconds = time.process_time() - start
        outcomes.setdefault((method, share), []).append((*scores(fitted, X[test], y[test]), seconds))
        return fitted

    worth: dict[float, list[float]] = {}
    methods_of_first = methods(model, X[train], y[train], arguments.shares[0], 0)
    next(methods_of_first)[1]()  # compiles
    for share in arguments.shares:
        for seed in range(arguments.seeds):
            for method, fit in methods(model, X[train], y[train], share, seed):
                fitted = measure(method, share, fit)
                if method == "coreset":
                    worth.setdefault(share, []).append(fitted.coreset_.provenance["row_worth"])
    for method, whole in on_all_rows(model, library, arguments.shares):
        measure(method, 1.0, lambda whole=whole: stopped(whole, X[train], y[train], None, 0))
    cells = []
    for (method, share), found in outcomes.items():
        loss, good, cpu = np.array(found).T
        cell = {
            "method": method,
            "share": share,
            "loss": np.median(loss),
            "good": np.median(good),
            "cpu": np.median(cpu),
        }
        if (method, share) != ("uniform", share) and ("uniform", share) in outcomes:
            theirs = np.array(outcomes["uniform", share])
            cell |= {"to uniform": np.median(loss / theirs[:, 0]), "more good": np.median(good - theirs[:, 1])}
        if method == "coreset":
            cell["worth"] = np.median(worth[share])
        cells.append({key: value if isinstance(value, str) else float(value) for key, value in cell.items()})
    n_classes = len(np.unique(y)) if is_classifier(model) else 0
    return {"rows": len(train), "columns": int(X.shape[1]), "classes": n_classes, "cells": cells}


def summary(results: dict[str, Any], shares: list[float]) -> list[dict[str, Any]]:
    """Losses over that of all rows, one line a task and share, and seconds of the processor."""
    table = []
    for name, task in results.items():
        cells = {(cell["method"], cell["share"]): cell for cell in task["cells"]}
        full = cells["all rows", 1.0]
        for share in shares:
            ours = cells["coreset", share]
            line = {"task": name, "share": share, "rows": task["rows"]}
            line |= {"foretold worth": ours["worth"], "worth seen": worth_seen(cells, share)}
            line |= {
                method: cells[method, share]["loss"] / full["loss"] for method in METHODS if (method, share) in cells
            }
            line |= {"coreset / uniform": ours["to uniform"], "more AUC or R2": ours["more good"]}
            table.append(line | {"cpu / all rows": ours["cpu"] / full["cpu"]})
    return table


def whole_rows(results: dict[str, Any]) -> dict[str, Any]:
    """Losses and goodness of what is fitted to all rows, by library and task."""
    return {
        library: {
            name: {cell["method"]: [cell["loss"], cell["good"]] for cell in task["cells"] if cell["share"] == 1.0}
            for name, task in tasks.items()
        }
        for library, tasks in results.items()
    }


def worth_seen(cells: dict[tuple[str, float], Any], share: float) -> float:
    """Uniform rows that reach the loss of one row of the coreset, by a line through uniform rows and 1.5 times as many.

    The line is one of logarithms: of the loss above the smallest of any method, and of the number of rows.
    """
    best = min(cell["loss"] for cell in cells.values()) * 0.999
    ours, one, more = (np.log(cells[name, share]["loss"] - best) for name in ("coreset", "uniform", "uniform x 1.5"))
    slope = (one - more) / np.log(1.5)
    return float(np.exp(min((one - ours) / slope, np.log(99.0)))) if slope > 0.05 else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    every = ",".join((*TWO_CLASSES, *OTHERS, *MANY_CLASSES, *REGRESSIONS))
    parser.add_argument("--tasks", default=every)
    parser.add_argument("--libraries", default="lightgbm")
    parser.add_argument("--shares", default="0.01,0.05,0.2")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rows", type=int, help="use only so many rows of each task, held out ones included")
    parser.add_argument("--name", default="boosting", help="of the file of results")
    parser.add_argument(
        "--resume", action="store_true", help="keep the tasks that the file has, of a run that ended early"
    )
    arguments = parser.parse_args()
    arguments.shares = [float(share) for share in arguments.shares.split(",")]
    results: dict[str, Any] = {}
    if arguments.resume:
        sys.argv.remove("--resume")  # the file says what makes it in one run
        results = json.loads((RESULTS / f"{arguments.name}.json").read_text())["libraries"]
    for library in arguments.libraries.split(","):
        results.setdefault(library, {})
        for name in arguments.tasks.split(","):
            if name in results[library]:
                continue
            results[library][name] = run(arguments.data, name, library, arguments)
            print(*summary({name: results[library][name]}, arguments.shares), sep="\n", flush=True)
            save(arguments.name, {"libraries": results})
    summaries = {library: summary(tasks, arguments.shares) for library, tasks in results.items()}
    save(arguments.name, {"summary": summaries, "all rows": whole_rows(results)})  # the rest is in the summary
    columns = ["task", "share", "rows", "foretold worth", "worth seen", *METHODS]
    columns += ["coreset / uniform", "more AUC or R2", "cpu / all rows"]
    for library, lines in summaries.items():
        title = f"{library}: median held-out loss over that of all rows"
        show(title, columns, [[line.get(column, "-") for column in columns] for line in lines])


if __name__ == "__main__":
    main()
