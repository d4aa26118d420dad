"""Does what certificates say hold, and is the default draw as good as a weighted uniform one? On hard and public data.

    python benchmarks/certificates.py [--data DIR] [--seeds 20] [--rows 100000] [--only REGEX] [--jobs 2]

Generated problems: imbalance from 1:10 to 1:2000, heavy tails, nearly separable classes, one-hot and correlated
columns, three classes, strong and weak penalties, coresets from 3 rows a coefficient up, each with new rows every tenth
seed.
With ``--data`` every open set that has 2,000 rows: logistic regression and margins of two classes (also with the second
one thinned out to 1 % of the rows), logistic regression of more, ridge, Huber and Poisson regressions of the last
column of dense sets on the others (also with heavy tails added), k-means, k-medians and mixtures; coresets of 0.5 %,
2 % and the default. KDD Cup 99 (its largest class against the rest) and Covertype are fitted on all their rows as well,
and the columns of Covertype in indicators of their tenths.

The truth is the loss of a fit on all rows to rounding; of clusters, the cost computed without tithe. A row of the table
is a cell, the fits of a problem with one size and one ``polish``: how many have an interval, how many of these hold the
truth, how many bounds and exact numbers are wrong, and how many fits exceed ``tol`` without a warning. "beside uniform"
is the median excess loss of fits without polish, over that of as many weighted uniform rows; for clusters, over the
smallest cost of any fit. Cells that fail are computed again with three times as many fresh seeds: "again" is what these
say, and "p" how likely uniform rows would be as much better by chance. Results go to benchmarks/results/ after every
problem: a summary, and all cells, which are not computed again where they are there.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from scipy.stats import mannwhitneyu, multivariate_normal
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.preprocessing import StandardScaler

from common import RESULTS, load_labelled, save, show
from tithe import (
    CoresetGaussianMixture,
    CoresetHuberRegressor,
    CoresetKMeans,
    CoresetKMedians,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
)
from tithe.core.data import Block
from tithe.core.parallel import single_blas_thread
from tithe.odm import LinearODMClassifier

SEEDS_PER_SET = 10  # of generated data
ROUNDING = 1e-9  # of the loss: what differences of two losses cannot tell
SIZES = (0.005, 0.02, "auto")
LEAST_ROWS, LEAST_CODED = 2000, 50  # of a set, and of a coreset
RARE = 0.01  # share of a class that is thinned out
MOST_WORK = 10_000_000_000  # rows times squared coefficients of a fit on all rows
COVERAGE, LEAST_INTERVALS, RATIO, FRESH = 0.93, 20, 1.05, 3  # what a cell must keep; fresh seeds of one that does not
CLASSIFIED = {"logistic": CoresetLogisticRegression, "margin": LinearODMClassifier}
REGRESSED = {"ridge": CoresetRidge, "poisson": CoresetPoissonRegressor, "huber": CoresetHuberRegressor}
CLUSTERED: dict[str, Callable[[], Any]] = {
    "k-means": lambda: CoresetKMeans(8),
    "k-medians": lambda: CoresetKMedians(8),
    "mixture": lambda: CoresetGaussianMixture(4, reg_covar=1e-2),
}


@dataclass(frozen=True)
class Generated:
    """A family of generated data sets and how they are fitted."""

    design: str
    ratio: int  # rows of the other classes for each row of the rarest
    signal: str
    rows_per_coefficient: int
    n_features: int = 20
    n_rows: int = 20_000
    C: float = 1.0
    n_classes: int = 2

    polish = (0, 3, "auto")
    sizes = ("rows a coefficient",)

    @property
    def name(self) -> str:
        extra = "" if self.n_classes == 2 else f" {self.n_classes} classes"
        extra += "" if self.n_rows == 20_000 else f" n={self.n_rows}"
        extra += "" if self.C == 1.0 else f" C={self.C:g}"
        return f"{self.design} 1:{self.ratio} {self.signal} m/p={self.rows_per_coefficient}{extra}"

    def rows(self, rng: np.random.Generator) -> np.ndarray:
        n, d = self.n_rows, self.n_features
        if self.design == "normal":
            return rng.normal(size=(n, d))
        if self.design == "student":
            return rng.standard_t(3, size=(n, d))
        if self.design == "lognormal":
            return np.exp(1.2 * rng.normal(size=(n, d)))
        if self.design == "correlated":
            return rng.normal(size=(n, d)) @ (np.geomspace(1.0, 0.03, d)[:, None] * rng.normal(size=(d, d)))
        if self.design == "mixed":
            rare = rng.random((n, d // 2)) < np.geomspace(0.3, 0.003, d // 2)
            return np.hstack([rng.standard_t(3, size=(n, d - d // 2)), rare])
        share = np.arange(1.0, 11.0) ** -1.5  # one-hot: groups of ten values, the last ones rare
        chosen = [rng.choice(10, size=n, p=share / share.sum()) for _ in range(d // 10)]
        return np.hstack([np.eye(10)[c] for c in chosen])

    def data(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(number)
        X = self.rows(rng)
        score = X @ rng.normal(size=X.shape[1])
        noise = 3.0 if self.signal == "weak" else 0.15
        score = score / score.std() + noise * rng.logistic(size=len(X))
        rarest = 1.0 / (1.0 + self.ratio)
        edges = np.quantile(score, np.linspace(1.0 - rarest, 0.3, self.n_classes - 1)[::-1])
        y = np.searchsorted(edges, score)
        if self.signal != "weak":
            y[rng.random(len(X)) < 0.05 * rarest] = self.n_classes - 1
        return X, y.astype(np.int32)

    def model(self, X: Any, size: Any) -> CoresetLogisticRegression:
        rows = self.rows_per_coefficient * (X.shape[1] + 1) * (1 if self.n_classes == 2 else self.n_classes)
        return CoresetLogisticRegression(self.C, coreset_size=rows)


@dataclass(frozen=True)
class Stored:
    """A public set and what is fitted to it: a learner, and how the set is changed for it."""

    folder: Path
    set_name: str
    learner: str
    change: str = ""  # "rare", "tails", "tenths", "classes" or "whole"
    n_rows: int = 100_000

    polish = (0, "auto")
    sizes = SIZES

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.learner, self.change, self.set_name)))

    def data(self, number: int) -> tuple[Any, np.ndarray | None]:
        most = None if self.change == "whole" else self.n_rows
        X, y = stored_rows(self.folder, self.set_name, self.change == "classes", most)
        if self.learner in CLUSTERED:
            return X, None
        if self.learner in REGRESSED:
            return regression(X, self.learner, tails=self.change == "tails")
        if self.change == "tenths":
            X = indicators(X)
        if self.change == "rare":
            second = np.flatnonzero(y == 1)
            kept = np.random.default_rng(0).permutation(second)[: int(RARE * np.sum(y == 0))]
            rows = np.union1d(np.flatnonzero(y == 0), kept)
            X, y = X[rows], y[rows]
        return X, y

    def model(self, X: Any, size: Any) -> Any:
        kind = {**CLASSIFIED, **REGRESSED, **CLUSTERED}[self.learner]
        return kind().set_params(coreset_size=size if size == "auto" else max(LEAST_CODED, int(size * X.shape[0])))


@cache
def stored_rows(folder: Path, name: str, classes: bool, most: int | None) -> tuple[Any, np.ndarray]:
    """Rows, dense ones standardised, and codes of their classes: two, if they are not all asked for."""
    if name == "flights_us_2001":
        with np.load(folder / f"{name}.npz") as archive:
            parts = [archive[column] for column in ("minute", "distance", "origin", "destination", "delay")]
        X, y = np.column_stack(parts).astype(np.float64), np.zeros(len(parts[0]), np.int32)
    elif name in ("a9a", "w8a", "reuters"):
        X, y = load_labelled(folder, name)
    else:
        with np.load(folder / f"{name}.npz") as archive:
            X, y = archive["X"].astype(np.float64), archive["y"]
        values, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        largest = len(values) > 2 and not classes
        y = (codes == counts.argmax() if largest else codes).astype(np.int32)
    if most is not None:
        rows = np.random.default_rng(0).permutation(X.shape[0])[:most]
        X, y = X[rows], y[rows]
    if not sparse.issparse(X):
        X = StandardScaler().fit_transform(X[:, np.ptp(X, axis=0) > 0.0])
    return X, y if not classes else np.unique(y, return_inverse=True)[1].astype(np.int32)


def regression(X: np.ndarray, learner: str, *, tails: bool) -> tuple[np.ndarray, np.ndarray]:
    """The last column as the target of a regression on the others."""
    rng = np.random.default_rng(0)
    target, X = X[:, -1], np.ascontiguousarray(X[:, :-1])
    if tails:
        target = target + 0.3 * rng.standard_t(1.1, size=len(target))
    if learner == "poisson":
        target = rng.poisson(np.exp(np.clip(target, -3.0, 3.0) - 1.0)).astype(np.float64)
    return X, target


def indicators(X: np.ndarray) -> Any:
    """Columns that say in which tenth of each column a row is, and the product of the first column with all."""
    tenths = [np.searchsorted(np.unique(np.quantile(c, np.linspace(0.1, 0.9, 9))), c) for c in X.T]
    pairs = [10 * tenths[0] + other for other in tenths[1:5]]
    columns = [sparse.csc_matrix(np.eye(c.max() + 1)[c]) for c in [*tenths, *pairs]]
    return sparse.csr_matrix(sparse.hstack(columns))


def problems(folder: Path | None, n_rows: int) -> list[Generated | Stored]:
    """Forty families with 20,000 rows, two large enough for a sampled curvature; and public sets."""
    designs = ("normal", "student", "lognormal", "onehot", "mixed", "correlated")
    sizes = (3, 10, 50)
    outcomes: list[Generated | Stored] = [
        Generated(design, ratio, signal, sizes[(a + b + c) % 3])
        for a, design in enumerate(designs)
        for b, ratio in enumerate((10, 200, 2000))
        for c, signal in enumerate(("weak", "separable"))
    ]
    outcomes += [Generated("student", 200, "separable", 10, C=C) for C in (0.01, 100.0)]
    outcomes += [Generated(design, 20, "weak", 10, n_features=10, n_classes=3) for design in ("student", "onehot")]
    outcomes += [Generated(design, 500, "separable", 50, n_rows=300_000) for design in ("student", "mixed")]
    return outcomes + (of_sets(folder, n_rows) if folder is not None else [])


def of_sets(folder: Path, n_rows: int) -> list[Generated | Stored]:
    """What is fitted to the sets of the folder."""
    outcomes: list[Generated | Stored] = []
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as archive:
            n_classes = len(np.unique(archive["y"])) if "y" in archive.files else 1
            dense = "indptr" not in archive.files
        asked = [(learner, change) for learner in CLASSIFIED for change in ("", "rare")] if n_classes > 1 else []
        asked += [("logistic", "classes")] if n_classes > 2 else []
        asked += [(learner, change) for learner in REGRESSED for change in ("", "tails")] if dense else []
        asked += [(learner, "") for learner in CLUSTERED] if dense else []
        asked += [("logistic", "whole")] if path.stem in ("covtype", "kddcup99_10pct") else []
        asked += [("logistic", "tenths")] if path.stem == "covtype" else []
        outcomes += [Stored(folder, path.stem, learner, change, n_rows) for learner, change in asked]
    return outcomes


def is_too_small_or_large(X: Any, y: np.ndarray | None, of_classes: bool) -> bool:
    n_coefficients = (len(np.unique(y)) if of_classes and len(np.unique(y)) > 2 else 1) * (X.shape[1] + 1)
    return X.shape[0] < LEAST_ROWS or (y is not None and X.shape[0] * n_coefficients**2 > MOST_WORK)


class Truth:
    """The loss of a fit on all rows, and for convex losses the smallest one."""

    def __init__(self, model: Any, X: Any, y: np.ndarray | None) -> None:
        self.X, self.least = X, None
        if y is None:
            return
        if hasattr(model, "class_weight"):
            model.classes_ = np.unique(y)
        self._block = Block(X=X, y=y)
        self._objective = replace(model._objective(), tol=1e-15, max_iter=500)
        self.least = self.loss_at(self._objective.solve(self._block, rng=np.random.default_rng(0)))

    def loss_at(self, params: np.ndarray) -> float:
        return float(self._objective.evaluate(self._block, params).value)

    def loss(self, fitted: Any) -> float:
        if self.least is not None:
            return self.loss_at(fitted._params())
        if isinstance(fitted, CoresetGaussianMixture):
            parts = zip(fitted.weights_, fitted.means_, fitted.covariances_, strict=True)
            logs = [np.log(w) + multivariate_normal(m, c, allow_singular=True).logpdf(self.X) for w, m, c in parts]
            return -float(np.logaddexp.reduce(logs).mean())
        distance = pairwise_distances_argmin_min(self.X, fitted.cluster_centers_)[1].astype(np.float64)
        return float((distance**2 if isinstance(fitted, CoresetKMeans) else distance).sum())


def fits_of(problem: Generated | Stored, seeds: range, sizes: Any, polish: Any) -> list[dict[str, Any]]:
    """What every certificate said, and the truth; and fits without polish on weighted uniform rows."""
    results: list[dict[str, Any]] = []
    for number in sorted({seed // SEEDS_PER_SET for seed in seeds}) if isinstance(problem, Generated) else [0]:
        X, y = problem.data(number)
        if is_too_small_or_large(X, y, getattr(problem, "change", "classes") == "classes"):
            return []
        truth = Truth(problem.model(X, problem.sizes[0]), X, y)
        of_set: list[dict[str, Any]] = []
        for size in sizes:
            default = problem.model(X, size)
            uniform = problem.model(X, size).set_params(construction="uniform")
            uniform.calibrate = False  # not all learners have it as a parameter
            for seed in seeds if isinstance(problem, Stored) else [s for s in seeds if s // SEEDS_PER_SET == number]:
                ways = [(default, step) for step in polish] + [(uniform, 0)] * (0 in polish)
                for model, step in ways:
                    fitted, warned = fit(model.set_params(polish=step, random_state=seed), X, y)
                    facts = {"size": size, "polish": str(step), "uniform": model is uniform, "warned": warned}
                    of_set.append({**facts, **said(fitted, truth)})
        least = min(record["loss"] for record in of_set) if truth.least is None else truth.least
        for record in of_set:
            # a mean log-likelihood has no zero, so that its differences are no shares of it
            scale = 1.0 if record["quantity"] == "log_likelihood" else record["loss"]
            record["excess"] = (record["loss"] - least) / scale
        results += of_set
    return results


def said(fitted: Any, truth: Truth) -> dict[str, Any]:
    """The loss of a fit on all rows, and what its certificate says about it, as shares of the loss."""
    certificate, loss = fitted.certificate_, truth.loss(fitted)
    facts: dict[str, Any] = {"loss": loss, "quantity": certificate.quantity, "interval": None, "tol": np.inf}
    if truth.least is None:
        number = -certificate.value if certificate.quantity == "log_likelihood" else certificate.value
        return {**facts, "wrong": abs(number - loss) > ROUNDING * abs(loss)}
    excess = (loss - truth.least) / loss
    wrong = excess > certificate.bound / loss + ROUNDING
    wrong |= certificate.kind == "exact" and abs(certificate.value / loss - excess) > ROUNDING
    if certificate.interval is not None:
        facts["interval"] = [end / loss for end in certificate.interval]
    return {**facts, "wrong": bool(wrong), "tol": fitted.tol}


def fit(model: Any, X: Any, y: np.ndarray | None) -> tuple[Any, bool]:
    """The fitted model, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return model.fit(X, y), bool(caught)


def holds(fit: dict[str, Any]) -> bool:
    return fit["interval"][0] - ROUNDING <= fit["excess"] <= fit["interval"][1] + ROUNDING


def cell(problem: Generated | Stored, fits: list[dict[str, Any]], size: Any, polish: Any) -> dict[str, Any]:
    """One row of the table."""
    fits = [fit for fit in fits if fit["size"] == size and fit["polish"] == str(polish)]
    ours, uniform = ([fit for fit in fits if fit["uniform"] == way] for way in (False, True))
    given = [fit for fit in ours if fit["interval"] is not None]
    excess, other = ([fit["excess"] for fit in way] for way in (ours, uniform))
    widths = [fit["interval"][1] / max(fit["interval"][0], 1e-300) for fit in given]
    return {
        "problem": problem.name,
        "size": size,
        "polish": str(polish),
        "fits": len(ours),
        "intervals": len(given),
        "hold": sum(map(holds, given)),
        "width": float(np.median(widths)) if widths else None,
        "wrong": sum(fit["wrong"] for fit in ours),
        "silent": sum(fit["excess"] > fit["tol"] and not fit["warned"] for fit in ours),
        "warned": sum(fit["warned"] for fit in ours),
        "excess": float(np.median(excess)),
        "beside uniform": max(np.median(excess), ROUNDING) / max(np.median(other), ROUNDING) if other else None,
        "p": float(mannwhitneyu(excess, other, alternative="greater").pvalue) if other else None,
    }


def fails(cell: dict[str, Any]) -> bool:
    uncovered = cell["intervals"] >= LEAST_INTERVALS and cell["hold"] < COVERAGE * cell["intervals"]
    worse = cell["beside uniform"] is not None and cell["beside uniform"] > RATIO
    return bool(uncovered or worse or cell["wrong"] or cell["silent"])


def cells_of(problem: Generated | Stored, n_seeds: int) -> list[dict[str, Any]]:
    """The cells of a problem, those that fail once more with fresh seeds."""
    outcomes = []
    with single_blas_thread():
        fits = fits_of(problem, range(n_seeds), problem.sizes, problem.polish)
        for size in problem.sizes if fits else ():
            for polish in problem.polish:
                one = cell(problem, fits, size, polish)
                if fails(one):
                    fresh = range(n_seeds, (1 + FRESH) * n_seeds)
                    again = cell(problem, fits_of(problem, fresh, [size], [polish]), size, polish)
                    one["again"] = {**again, "fails": fails(again)}
                outcomes.append(one)
    return outcomes


def summary(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells of each objective, size and polish together, and of all."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for c in cells:
        learner = c["problem"].split()[0]
        known = learner in {**CLASSIFIED, **REGRESSED, **CLUSTERED}
        key = f"{learner if known else 'generated'}, size {c['size']}, polish {c['polish']}"
        groups.setdefault(key, []).append(c)
    outcomes = []
    for name, group in [*sorted(groups.items()), ("all", cells)]:
        counted = {what: sum(c[what] for c in group) for what in ("fits", "intervals", "hold", "wrong", "silent")}
        shares = [c["hold"] / c["intervals"] for c in group if c["intervals"] >= LEAST_INTERVALS]
        ratios = [c["beside uniform"] for c in group if c["beside uniform"] is not None]
        outcomes.append(
            {
                "cells": name,
                "number": len(group),
                **counted,
                "least share": min(shares, default=None),
                "beside uniform": float(np.median(ratios)) if ratios else None,
                "again": sum("again" in c for c in group),
                "fail twice": [c["problem"] for c in group if c.get("again", {}).get("fails")],
            }
        )
    return outcomes


def table(cells: list[dict[str, Any]], title: str) -> None:
    """Cells, and below those that were computed again what that gave."""
    columns = [name for name in cells[0] if name not in ("again", "most rows")]
    rows = []
    for c in cells:
        rows.append([c[name] for name in columns])
        if "again" in c:
            rows.append(["    again", *(c["again"][name] for name in columns[1:])])
    show(title, columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public sets; without it only generated problems")
    parser.add_argument("--seeds", type=int, default=20, help="fits of each cell")
    parser.add_argument("--rows", type=int, default=100_000, help="most rows of a set that are used")
    parser.add_argument("--only", default="", help="problems whose names match")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--output", default="certificates", help="name of the JSON file")
    options = parser.parse_args()
    path = RESULTS / f"{options.output}_cells.jsonl"
    cells: list[dict[str, Any]] = [json.loads(line) for line in path.open()] if path.exists() else []
    known = {c["problem"] for c in cells}
    chosen = [p for p in problems(options.data, options.rows) if re.search(options.only, p.name)]
    chosen = [p for p in chosen if p.name not in known]
    every = Parallel(n_jobs=options.jobs, return_as="generator")(delayed(cells_of)(p, options.seeds) for p in chosen)
    for number, (problem, of_problem) in enumerate(zip(chosen, every, strict=True), 1):
        if not of_problem:
            print(f"  {problem.name}: left out, too few rows or too many coefficients", flush=True)
            continue
        of_problem = [{**c, "most rows": options.rows} for c in of_problem]
        cells += of_problem
        table(of_problem, problem.name)
        with path.open("a") as file:
            file.writelines(json.dumps(c) + "\n" for c in of_problem)
        save(options.output, {"problems left": len(chosen) - number, "summary": summary(cells)})
    total = summary(cells)
    show(f"{len(cells)} cells", list(total[0]), [list(group.values()) for group in total])


if __name__ == "__main__":
    import certificates  # by its name, under which other processes find it

    certificates.main()
