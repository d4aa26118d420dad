"""Do the intervals of logistic certificates hold? Coverage on problems that were made to be hard.

    python benchmarks/certificates.py [--fits 200] [--only REGEX] [--jobs 2]

Each problem is generated: imbalance from 1:10 to 1:2000, heavy tails, nearly separable classes, one-hot and
correlated columns, three classes, strong and weak penalties, coresets from 3 rows a coefficient up. Each is fitted
``--fits`` times (new rows every tenth time) for every ``polish`` of 0, 1, 3 and "auto". The truth is the loss of a fit
on all rows to rounding. A row of the table is a cell: the share of fits that have an interval, the share of these
intervals that hold the truth, their width (upper / lower end, median), violated bounds, and the share of fits without a
warning whose loss exceeds ``tol``. Results go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from common import save, show
from tithe import CoresetLogisticRegression
from tithe.core.data import Block
from tithe.objectives import LogisticObjective

POLISH = (0, 1, 3, "auto")
FITS_PER_SET = 10
ROUNDING = 1e-9  # of the loss: what differences of two losses cannot tell


@dataclass(frozen=True)
class Problem:
    """A family of generated data sets and how they are fitted."""

    design: str
    ratio: int  # rows of the other classes for each row of the rarest
    signal: str
    rows_per_coefficient: int
    n_features: int = 20
    n_rows: int = 20_000
    C: float = 1.0
    n_classes: int = 2

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

    def data(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
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


def problems() -> list[Problem]:
    """Forty families with 20,000 rows, and two large enough for a sampled curvature."""
    designs = ("normal", "student", "lognormal", "onehot", "mixed", "correlated")
    sizes = (3, 10, 50)
    outcomes = [
        Problem(design, ratio, signal, sizes[(a + b + c) % 3])
        for a, design in enumerate(designs)
        for b, ratio in enumerate((10, 200, 2000))
        for c, signal in enumerate(("weak", "separable"))
    ]
    outcomes += [Problem("student", 200, "separable", 10, C=C) for C in (0.01, 100.0)]
    outcomes += [Problem(design, 20, "weak", 10, n_features=10, n_classes=3) for design in ("student", "onehot")]
    outcomes += [Problem(design, 500, "separable", 50, n_rows=300_000) for design in ("student", "mixed")]
    return outcomes


def fits_of(problem: Problem, n_fits: int) -> list[dict[str, Any]]:
    """What every certificate said, and the truth."""
    results = []
    for number in range(-(-n_fits // FITS_PER_SET)):
        X, y = problem.data(number)
        objective = LogisticObjective(C=problem.C, classes=tuple(range(problem.n_classes)), tol=1e-15, max_iter=500)
        block = Block(X=X, y=y.astype(np.int32))
        least = objective.evaluate(block, objective.solve(block, rng=np.random.default_rng(0))).value
        size = problem.rows_per_coefficient * (X.shape[1] + 1) * (1 if problem.n_classes == 2 else problem.n_classes)
        for seed in range(min(FITS_PER_SET, n_fits - number * FITS_PER_SET)):
            for polish in POLISH:
                model = CoresetLogisticRegression(problem.C, coreset_size=size, polish=polish, random_state=seed)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    model.fit(X, y)
                params = np.column_stack([model.coef_, model.intercept_])
                loss = objective.evaluate(block, params).value
                said = model.certificate_
                results.append(
                    {
                        "problem": problem.name,
                        "polish": str(polish),
                        "excess": (loss - least) / loss,
                        "interval": None if said.interval is None else [end / loss for end in said.interval],
                        "bound": said.bound / loss,
                        "warned": bool(caught),
                        "tol": model.tol,
                        "passes": model.n_passes_,
                    }
                )
    return results


def cell(fits: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the table."""
    given = [fit for fit in fits if fit["interval"] is not None]
    held = [f["interval"][0] - ROUNDING <= f["excess"] <= f["interval"][1] + ROUNDING for f in given]
    widths = [fit["interval"][1] / max(fit["interval"][0], 1e-300) for fit in given]
    silent = [fit for fit in fits if not fit["warned"]]
    return {
        "problem": fits[0]["problem"],
        "polish": fits[0]["polish"],
        "fits": len(fits),
        "with interval": len(given) / len(fits),
        "coverage": float(np.mean(held)) if held else None,
        "width": float(np.median(widths)) if widths else None,
        "bound violated": int(sum(fit["excess"] > fit["bound"] + ROUNDING for fit in fits)),
        "above tol": float(np.mean([f["excess"] > f["tol"] for f in silent])) if silent else None,
        "excess": float(np.median([fit["excess"] for fit in fits])),
        "passes": float(np.median([fit["passes"] for fit in fits])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=200, help="fits of each problem for each polish")
    parser.add_argument("--only", default="", help="problems whose names match")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--output", default="certificates", help="name of the JSON file")
    options = parser.parse_args()
    chosen = [p for p in problems() if re.search(options.only, p.name)]
    cells = []
    every = Parallel(n_jobs=options.jobs, return_as="generator")(delayed(fits_of)(p, options.fits) for p in chosen)
    for fits in every:
        cells += [cell([f for f in fits if f["polish"] == str(polish)]) for polish in POLISH]
        of_problem = cells[-len(POLISH) :]
        said = ", ".join(f"polish {c['polish']}: {c['coverage']} of {c['with interval']:.1%}" for c in of_problem)
        print(f"  {of_problem[0]['problem']}: {said}", flush=True)
    columns = list(cells[0])
    show(f"{len(cells)} cells of {options.fits} fits", columns, [[c[name] for name in columns] for c in cells])
    worst = min((c["coverage"] for c in cells if c["coverage"] is not None), default=None)
    print(f"lowest coverage {worst}, bounds violated {sum(c['bound violated'] for c in cells)}")
    save(options.output, {"fits": options.fits, "cells": cells})


if __name__ == "__main__":
    main()
