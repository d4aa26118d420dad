"""Do the certificates of linear models hold? Coverage on problems made to be hard, and on public data.

    python benchmarks/certificates.py [--data DIR] [--fits 20] [--only REGEX] [--jobs 2]

Generated problems: imbalance from 1:10 to 1:2000, heavy tails, nearly separable classes, one-hot and correlated
columns, three classes, strong and weak penalties, coresets from 3 rows a coefficient up, each with new rows every tenth
fit.
With ``--data`` every set of two classes, KDD Cup 99 (its largest class against the rest), the columns of Covertype in
indicators of their tenths (40,000 rows), and ridge, Poisson and Huber regressions of the last column of dense sets on
the others, with heavy tails added too; coresets of .5 %, 2 % and the default.

The truth is the loss of a fit on all rows to rounding. A row of the table is a cell, some fits of a problem with one
``polish``: the share of fits that have an interval, the share of these intervals that hold the truth, their width
(upper / lower end, median), violated bounds, and fits without a warning whose loss exceeds ``tol``. Results go to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import re
import warnings
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from common import load_labelled, save, show, two_class_sets
from tithe import CoresetHuberRegressor, CoresetLogisticRegression, CoresetPoissonRegressor, CoresetRidge
from tithe.core.data import Block

POLISH = (0, 1, 3, "auto")
FITS_PER_SET = 10
ROUNDING = 1e-9  # of the loss: what differences of two losses cannot tell
SIZES = (0.005, 0.02, "auto")
REGRESSED = ("covtype", "ijcnn1", "magic04", "electricity", "higgs_subset", "spambase")
REGRESSORS = {"ridge": CoresetRidge, "poisson": CoresetPoissonRegressor, "huber": CoresetHuberRegressor}
MOST_ROWS, LEAST_ROWS = 100_000, 2000  # of a set; KDD Cup 99 is not cut


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

    polish = POLISH

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
        return X, y

    def model(self, X: Any) -> CoresetLogisticRegression:
        size = self.rows_per_coefficient * (X.shape[1] + 1) * (1 if self.n_classes == 2 else self.n_classes)
        return CoresetLogisticRegression(self.C, coreset_size=size)


@dataclass(frozen=True)
class Stored:
    """A public set, a learner and a size."""

    folder: Path
    set_name: str
    learner: str
    size: float | str

    polish = (0, "auto")

    @property
    def name(self) -> str:
        return f"{self.learner} {self.set_name} size={self.size}"

    def data(self, number: int) -> tuple[Any, np.ndarray]:
        return stored_rows(self.folder, self.set_name, self.learner)

    def model(self, X: Any) -> Any:
        size = self.size if self.size == "auto" else max(50, int(self.size * X.shape[0]))
        if self.learner == "logistic":
            return CoresetLogisticRegression(coreset_size=size)
        return REGRESSORS[self.learner.split()[0]](coreset_size=size)


@cache
def stored_rows(folder: Path, name: str, learner: str) -> tuple[Any, np.ndarray]:
    """Rows and classes of a set, or the last column as the target of a regression on the others."""
    rng = np.random.default_rng(0)
    if name == "kddcup99_10pct":
        with np.load(folder / f"{name}.npz") as archive:
            X, y = archive["X"].astype(np.float64), archive["y"]
        values, counts = np.unique(y, return_counts=True)
        X = X[:, np.ptp(X, axis=0) > 0.0]
        return StandardScaler().fit_transform(X), (y == values[counts.argmax()]).astype(np.int32)
    X, y = load_labelled(folder, "covtype" if name == "tenths" else name)
    rows = rng.permutation(X.shape[0])[: 40_000 if name == "tenths" else MOST_ROWS]
    X, y = X[rows], y[rows]
    if name == "tenths":
        return indicators(X), y
    if learner == "logistic":
        return X, y
    target, X = X[:, -1], np.ascontiguousarray(X[:, :-1])
    if "tails" in learner:
        target = target + 0.3 * rng.standard_t(1.1, size=len(target))
    if learner.startswith("poisson"):
        target = rng.poisson(np.exp(np.clip(target, -3.0, 3.0) - 1.0)).astype(np.float64)
    return X, target


def indicators(X: np.ndarray) -> Any:
    """Columns that say in which tenth of each column a row is, and the product of the first column with all."""
    tenths = [np.searchsorted(np.unique(np.quantile(c, np.linspace(0.1, 0.9, 9))), c) for c in X.T]
    pairs = [10 * tenths[0] + other for other in tenths[1:5]]
    columns = [sparse.csc_matrix(np.eye(c.max() + 1)[c]) for c in [*tenths, *pairs]]
    return sparse.csr_matrix(sparse.hstack(columns))


def problems(folder: Path | None) -> list[Generated | Stored]:
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
    if folder is not None:
        labelled = [name for name in two_class_sets(folder) if name != "reuters"]
        asked = [("logistic", name) for name in (*labelled, "covtype", "tenths", "kddcup99_10pct")]
        asked += [(f"{kind}{tails}", name) for name in REGRESSED for kind in REGRESSORS for tails in ("", " tails")]
        outcomes += [Stored(folder, name, learner, size) for learner, name in asked for size in SIZES]
    return outcomes


def fits_of(problem: Generated | Stored, n_fits: int) -> list[dict[str, Any]]:
    """What every certificate said, and the truth."""
    results: list[dict[str, Any]] = []
    n_sets = 1 if isinstance(problem, Stored) else -(-n_fits // FITS_PER_SET)
    for number in range(n_sets):
        X, y = problem.data(number)
        if X.shape[0] < LEAST_ROWS:
            continue
        model = problem.model(X)
        block = Block(X=X, y=y.astype(np.int32) if isinstance(model, CoresetLogisticRegression) else y)
        if isinstance(model, CoresetLogisticRegression):
            model.classes_ = np.unique(y)
        objective = replace(model._objective(), tol=1e-15, max_iter=500)
        least = objective.evaluate(block, objective.solve(block, rng=np.random.default_rng(0))).value
        for seed in range(-(-n_fits // n_sets)):
            for polish in problem.polish:
                fitted, warned = fit(model.set_params(polish=polish, random_state=seed), X, y)
                loss = objective.evaluate(block, fitted._params()).value
                said = fitted.certificate_
                results.append(
                    {
                        "problem": problem.name,
                        "polish": str(polish),
                        "excess": (loss - least) / loss,
                        "interval": None if said.interval is None else [end / loss for end in said.interval],
                        "bound": said.bound / loss,
                        "warned": warned,
                        "tol": fitted.tol,
                        "passes": fitted.n_passes_,
                    }
                )
    return results


def fit(model: Any, X: Any, y: np.ndarray) -> tuple[Any, bool]:
    """The fitted model, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return model.fit(X, y), bool(caught)


def holds(fit: dict[str, Any]) -> bool:
    return fit["interval"][0] - ROUNDING <= fit["excess"] <= fit["interval"][1] + ROUNDING


def cell(fits: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the table."""
    given = [fit for fit in fits if fit["interval"] is not None]
    widths = [fit["interval"][1] / max(fit["interval"][0], 1e-300) for fit in given]
    return {
        "problem": fits[0]["problem"],
        "polish": fits[0]["polish"],
        "fits": len(fits),
        "with interval": len(given),
        "hold": sum(map(holds, given)),
        "width": float(np.median(widths)) if widths else None,
        "bound violated": sum(fit["excess"] > fit["bound"] + ROUNDING for fit in fits),
        "above tol, silent": sum(fit["excess"] > fit["tol"] and not fit["warned"] for fit in fits),
        "warned": sum(fit["warned"] for fit in fits),
        "excess": float(np.median([fit["excess"] for fit in fits])),
        "passes": float(np.median([fit["passes"] for fit in fits])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public sets; without it only generated problems")
    parser.add_argument("--fits", type=int, default=20, help="fits of each problem for each polish")
    parser.add_argument("--only", default="", help="problems whose names match")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--output", default="certificates", help="name of the JSON file")
    options = parser.parse_args()
    chosen = [p for p in problems(options.data) if re.search(options.only, p.name)]
    cells: list[dict[str, Any]] = []
    every = Parallel(n_jobs=options.jobs, return_as="generator")(delayed(fits_of)(p, options.fits) for p in chosen)
    for problem, fits in zip(chosen, every, strict=True):
        of_problem = [cell(g) for p in problem.polish if (g := [f for f in fits if f["polish"] == str(p)])]
        cells += of_problem
        said = ", ".join(
            f"polish {c['polish']}: {c['hold']} of {c['with interval']}"
            + "".join(f", {c[kind]} {kind}" for kind in ("bound violated", "above tol, silent", "warned") if c[kind])
            for c in of_problem
        )
        print(f"  {problem.name}: {said}", flush=True)
    columns = list(cells[0])
    show(f"{len(cells)} cells of up to {options.fits} fits", columns, [[c[name] for name in columns] for c in cells])
    total = {name: sum(c[name] for c in cells) for name in ("with interval", "hold", "bound violated")}
    total["above tol, silent"] = sum(c["above tol, silent"] for c in cells)
    shares = [c["hold"] / c["with interval"] for c in cells if c["with interval"] >= min(20, options.fits)]
    total["lowest share of a cell"] = min(shares, default=None)
    print("in all:", total)
    save(options.output, {"fits": options.fits, "total": total, "cells": cells})


if __name__ == "__main__":
    main()
