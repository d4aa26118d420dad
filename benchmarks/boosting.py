"""Boosted trees on coresets beside uniform samples, class-balanced samples, and all rows.

    python benchmarks/boosting.py --data DIR [--tasks a9a,covtype] [--shares 0.05,0.2] [--seeds 5] [--rows N]
                                  [--libraries lightgbm,xgboost,histogram] [--rounds 200] [--cells FILE]

Every model stops early on a weighted fifth of the rows that it learns from, and is then fitted to all of these; a
quarter of the rows is held out and seen by none. "balanced" draws as many rows of each class, with weights; "uniform x
1.5" has 1.5 times as many rows; "leaves of all rows" is ``polish="leaves"``, of the first seed. On all rows there are a
plain fit and, with LightGBM, GOSS, and with LightGBM and XGBoost a share of the rows for each tree. Scores are
log-loss, or the mean squared error of regressions over the variance of y; and AUC (mean over classes), or R2.

Every fit is a line of ``--cells``; a run that is started again with the same file goes on where it ended, and
``--only-summary`` makes the tables of what the file holds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from common import load_labelled, save, show
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
        return kind(n_estimators=rounds, n_jobs=1, learning_rate=0.1, random_state=0, **options)
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
    columns = labels[1:] if len(labels) == 2 else np.unique(y)
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
    """Each method by name."""
    options = {"validation_fraction": 0.0, "early_stopping": STOP, "random_state": seed}
    size = round(share * len(y))
    uniform = {"construction": "uniform", **options}
    more = min(len(y) - 1, 3 * size // 2)
    yield "coreset", lambda: CoresetEstimator(model, coreset_size=size, **options).fit(X, y)
    yield "uniform", lambda: CoresetEstimator(model, coreset_size=size, **uniform).fit(X, y)
    yield "uniform x 1.5", lambda: CoresetEstimator(model, coreset_size=more, **uniform).fit(X, y)
    if is_classifier(model):
        yield "balanced", lambda: stopped(model, *balanced(X, y, size, seed), seed)
    if leaf_obstacle(model) is None and seed == 0:
        leaves = {**options, "validation_fraction": 0.05, "polish": "leaves"}
        yield "leaves of all rows", lambda: CoresetEstimator(model, coreset_size=size, **leaves).fit(X, y)


def on_all_rows(model: Any, library: str, shares: list[float]) -> Iterator[tuple[str, Any]]:
    yield "all rows", model
    if library == "lightgbm":
        yield "GOSS on all rows", clone(model).set_params(data_sample_strategy="goss")
    if library != "histogram":
        often = {"subsample_freq": 1} if library == "lightgbm" else {}
        for share in shares:
            yield f"bagging {share:.0%} of all rows", clone(model).set_params(subsample=share, **often)


# -- fits and their file -----------------------------------------------------------------------


@dataclass
class Cells:
    """The fits of a run: loss, goodness, seconds of the processor and foretold worth, by what was fitted."""

    path: Path | None
    found: dict[tuple[Any, ...], dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            for line in self.path.read_text().splitlines():
                key, cell = json.loads(line)
                self.found[tuple(key)] = cell

    def add(self, key: tuple[Any, ...], measure: Callable[[], dict[str, float]]) -> None:
        if key in self.found:
            return
        self.found[key] = measure()
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps([key, self.found[key]]) + "\n")

    def of(self, *key: Any) -> dict[tuple[str, float, int], dict[str, float]]:
        """The fits of a library and a task, by method, share and seed."""
        return {found[len(key) :]: cell for found, cell in self.found.items() if found[: len(key)] == key}


def run(cells: Cells, folder: Path, library: str, name: str, arguments: argparse.Namespace) -> None:
    """Every method on one task."""
    X, y = load(folder, name)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))[: arguments.rows]
    n_held = round(HELD_OUT * len(order))
    test, train = np.sort(order[:n_held]), np.sort(order[n_held:])
    if library == "histogram" and sparse.issparse(X):
        X = X.toarray()  # it takes no other rows
    X_test, y_test, X, y = X[test], y[test], X[train], y[train]
    model = trees(library, name not in REGRESSIONS, arguments.rounds)

    def measured(fit: Callable[[], Any]) -> dict[str, float]:
        start = time.process_time()
        fitted = fit()
        cell = {"cpu": time.process_time() - start, "rows": len(y), "classes": len(np.unique(y))}
        cell["loss"], cell["good"] = scores(fitted, X_test, y_test)
        if isinstance(fitted, CoresetEstimator):
            cell["worth"] = fitted.coreset_.provenance.get("row_worth", 1.0)
        return cell

    next(methods(model, X, y, arguments.shares[0], 0))[1]()  # compiles
    for method, whole in on_all_rows(model, library, arguments.shares):
        fit = partial(stopped, whole, X, y, None, 0)
        cells.add((library, name, method, 1.0, 0), partial(measured, fit))
    for share in arguments.shares:
        for seed in range(arguments.seeds):
            for method, fit in methods(model, X, y, share, seed):
                cells.add((library, name, method, share, seed), partial(measured, fit))


# -- tables ------------------------------------------------------------------------------------


def summary(cells: Cells, library: str, name: str, shares: list[float]) -> list[dict[str, Any]]:
    """Losses over that of all rows, medians over the seeds, a line for each share."""
    found, table = cells.of(library, name), []
    if ("all rows", 1.0, 0) not in found:
        return []
    full = found["all rows", 1.0, 0]
    for share in shares:
        values = {method: _seeds(found, method, share) for method in METHODS}
        ours, theirs = values["coreset"], values["uniform"]
        seeds = sorted(ours.keys() & theirs.keys() & values["uniform x 1.5"].keys())
        if not seeds:
            continue
        line: dict[str, Any] = {"task": name, "share": share, "rows": full["rows"], "seeds": len(seeds)}
        line["foretold worth"] = _median(ours[seed]["worth"] for seed in seeds)
        line["worth seen"] = worth_seen(found, share, shares)
        for method, of_seeds in values.items():
            if of_seeds:
                line[method] = _median(cell["loss"] for cell in of_seeds.values()) / full["loss"]
        line["coreset / uniform"] = _median(ours[seed]["loss"] / theirs[seed]["loss"] for seed in seeds)
        line["more AUC or R2"] = _median(ours[seed]["good"] - theirs[seed]["good"] for seed in seeds)
        line["cpu / all rows"] = _median(cell["cpu"] for cell in ours.values()) / full["cpu"]
        table.append(line)
    return table


def _seeds(found: dict[tuple[str, float, int], Any], method: str, share: float) -> dict[int, Any]:
    return {seed: cell for (name, part, seed), cell in found.items() if (name, part) == (method, share)}


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def worth_seen(found: dict[tuple[str, float, int], Any], share: float, shares: list[float]) -> float:
    """Uniform rows that reach the loss of the coreset, for each of its rows.

    The loss of uniform samples falls with the number of rows: that of all shares, of 1.5 times as many rows, and of all
    rows, made monotone, with lines between their logarithms. At most all rows are as good.
    """
    places = [("uniform", part, part) for part in shares]
    places += [("uniform x 1.5", part, 1.5 * part) for part in shares]
    places += [("all rows", 1.0, 1.0)]
    points = [(part, _seeds(found, method, key)) for method, key, part in places]
    points = sorted((part, _median(cell["loss"] for cell in of.values())) for part, of in points if of)
    parts, losses = np.log([part for part, _ in points]), np.log([loss for _, loss in points])
    losses = IsotonicRegression(increasing=False).fit_transform(parts, losses)
    ours = np.log(_median(cell["loss"] for cell in _seeds(found, "coreset", share).values()))
    return float(np.exp(np.interp(-ours, -losses, parts)) / share)


def verdict(table: list[dict[str, Any]]) -> dict[str, Any]:
    """How often the default beats as many uniform rows, and where it loses most."""
    large = [line for line in table if line["share"] >= 0.05]
    worst = max(table, key=lambda line: line["coreset / uniform"])
    lowest = min(large, key=lambda line: line["more AUC or R2"])
    return {
        "cells": len(table),
        "cells from 5 %": len(large),
        "wins from 5 %": sum(line["coreset / uniform"] < 1.0 for line in large),
        "level from 5 %": sum(line["coreset / uniform"] == 1.0 for line in large),
        "largest loss to uniform": worst["coreset / uniform"],
        "where": f"{worst['task']}, {worst['share']:.0%}",
        "least more AUC or R2 from 5 %": lowest["more AUC or R2"],
        "where that is": f"{lowest['task']}, {lowest['share']:.0%}",
    }


def whole_rows(cells: Cells, library: str, names: list[str]) -> dict[str, Any]:
    """Losses and goodness of what is fitted to all rows, by task."""
    return {
        name: {key[0]: [cell["loss"], cell["good"]] for key, cell in cells.of(library, name).items() if key[1] == 1.0}
        for name in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    every = ",".join((*TWO_CLASSES, *OTHERS, *REGRESSIONS, *MANY_CLASSES))
    parser.add_argument("--tasks", default=every)
    parser.add_argument("--libraries", default="lightgbm")
    parser.add_argument("--shares", default="0.01,0.05,0.2")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rows", type=int, help="use only so many rows of each task, held out ones included")
    parser.add_argument("--name", default="boosting", help="of the file of results")
    parser.add_argument("--cells", type=Path, help="keep every fit in this file, and fit nothing that it holds")
    parser.add_argument("--only-summary", action="store_true")
    arguments = parser.parse_args()
    arguments.shares = [float(share) for share in arguments.shares.split(",")]
    libraries, names = arguments.libraries.split(","), arguments.tasks.split(",")
    cells = Cells(arguments.cells)
    for library in libraries if not arguments.only_summary else []:
        for name in names:
            run(cells, arguments.data, library, name, arguments)
            print(*summary(cells, library, name, arguments.shares), sep="\n", flush=True)
    tables = {
        library: [line for name in names for line in summary(cells, library, name, arguments.shares)]
        for library in libraries
    }
    verdicts = {library: verdict(table) for library, table in tables.items()}
    whole = {library: whole_rows(cells, library, names) for library in libraries}
    save(arguments.name, {"summary": tables, "verdict": verdicts, "all rows": whole})
    columns = ["task", "share", "rows", "foretold worth", "worth seen", *METHODS]
    columns += ["coreset / uniform", "more AUC or R2", "cpu / all rows"]
    for library, lines in tables.items():
        title = f"{library}: median held-out loss over that of all rows"
        show(title, columns, [[line.get(column, "-") for column in columns] for line in lines])
        print(verdicts[library])


if __name__ == "__main__":
    main()
