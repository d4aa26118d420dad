"""The default draw of linear models where few rows are kept: excess loss beside that of a weighted uniform draw.

    python benchmarks/few_rows.py --data DIR [--sets german ...] [--strengths 0.001 1 100] [--seeds 7]

Excess is loss / smallest loss - 1 on all rows, penalty included, of a fit on the coreset alone (no polish), the median
over the seeds. "influence" and "default" are given as multiples of what the uniform draw loses: above 1 is worse. All
are calibrated but the uniform one. "uniform drawn" is the share of seeds in which the default chose a uniform draw.
Rows per coefficient are those of the smallest class, for each column that occurs.

Four sets are generated: one-hot letters of gene sequences (3,190 x 240), digits of 16 x 16 pixels made from MNIST
(9,298 x 256, ten classes), rare frauds with heavy tails (284,807 x 29, 0.17 % positive), and a one-hot census
(200,000 x 600, 6 % positive).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from common import load_labelled, save, show
from tithe import Block, build_coreset
from tithe.core.parallel import single_blas_thread
from tithe.objectives import LogisticObjective, MarginObjective

SHARES = (0.005, 0.01, 0.03, 0.1)
WAYS: dict[str, dict[str, Any]] = {
    "uniform": {"construction": "uniform", "calibrate": False},
    "influence": {"construction": "influence"},
    "default": {},
}
MANY_CLASSES = ("letter", "pendigits", "satimage", "image_segments", "shuttle")
TWO_CLASSES = ("german", "spambase", "phishing", "a9a", "w8a", "reuters", "covtype", "skin_nonskin")
RNG = np.random.default_rng(0)  # `solve` asks for one and draws nothing from it


def one_hot(columns: list[np.ndarray], sizes: list[int]) -> sparse.csr_matrix:
    starts = np.concatenate([[0], np.cumsum(sizes)])
    indices = np.stack([column + start for column, start in zip(columns, starts, strict=False)], axis=1)
    ends = np.arange(0, indices.size + 1, indices.shape[1])
    shape = (len(indices), int(starts[-1]))
    return sparse.csr_matrix((np.ones(indices.size), indices.ravel().astype(np.int32), ends), shape=shape)


def genes(folder: Path) -> tuple[Any, np.ndarray]:
    """Sixty letters of four; those near the middle tell the classes apart."""
    rng, n = np.random.default_rng(0), 3190
    y, columns = (rng.random(n) < 0.52).astype(np.int32), []
    for place in range(60):
        other = rng.dirichlet(np.full(4, 8.0))
        own = other.copy()
        own[rng.integers(4)] += 3.0 * np.exp(-abs(place - 30) / 3.0)
        columns.append(np.where(y == 1, rng.choice(4, n, p=own / own.sum()), rng.choice(4, n, p=other)))
    return one_hot(columns, [4] * 60), y


def digits(folder: Path) -> tuple[Any, np.ndarray]:
    """MNIST reduced to 16 x 16 pixels between -1 and 1."""
    with np.load(folder / "mnist.npz") as archive:
        keep = np.sort(np.random.default_rng(0).choice(len(archive["y"]), 9298, replace=False))
        pictures, y = archive["X"][keep].astype(np.float64).reshape(-1, 28, 28), archive["y"][keep].astype(np.int32)
    edges = np.arange(17) * 28 / 16
    overlap = np.minimum(edges[1:, None], np.arange(1, 29)) - np.maximum(edges[:-1, None], np.arange(28))
    share = np.maximum(overlap, 0.0) / 1.75
    small = np.einsum("ab,nbc,dc->nad", share, pictures, share)
    return np.ascontiguousarray(small.reshape(len(y), 256) / 127.5 - 1.0), y


def frauds(folder: Path) -> tuple[Any, np.ndarray]:
    """Few positives: four fifths of them moved, by different lengths, the others like any row."""
    rng, n, n_positive = np.random.default_rng(0), 284_807, 492
    spread = 1.9 / np.sqrt(1.0 + np.arange(29))
    X, y = rng.standard_t(3, size=(n, 29)) * spread, np.zeros(n, np.int32)
    positive = rng.choice(n, n_positive, replace=False)
    toward = rng.normal(size=29) * spread * 2.5 * (rng.random(29) < 0.5)
    moved = positive[: 4 * n_positive // 5]
    X[moved] += toward * rng.gamma(1.5, 0.7, size=(len(moved), 1))
    y[positive] = 1
    return StandardScaler().fit_transform(X), y


def census(folder: Path) -> tuple[Any, np.ndarray]:
    """Categories of very different frequencies that hang together; a noisy line decides."""
    rng, n = np.random.default_rng(0), 200_000
    sizes = [int(size) for size in rng.choice([2, 3, 5, 7, 9, 12, 17, 24, 38, 50], 33)]
    hidden, columns, line = rng.normal(size=(n, 3)), [], np.zeros(n)
    for size in sizes:
        shares = np.cumsum(1.0 / np.arange(1, size + 1) ** rng.uniform(1.0, 2.2))
        value = hidden @ rng.normal(size=3) * 0.5 + rng.normal(size=n)
        category = np.searchsorted(np.quantile(value, shares[:-1] / shares[-1]), value)
        columns.append(rng.permutation(size)[category])
        line += (0.7 * rng.normal(size=size))[columns[-1]]
    noisy = line + rng.logistic(size=n)
    return one_hot(columns, sizes), (noisy > np.quantile(noisy, 0.94)).astype(np.int32)


GENERATED: dict[str, Callable[[Path], tuple[Any, np.ndarray]]] = {
    "genes": genes,
    "digits": digits,
    "frauds": frauds,
    "census": census,
}


def load(folder: Path, name: str) -> tuple[Any, np.ndarray]:
    if name in GENERATED:
        return GENERATED[name](folder)
    if name not in MANY_CLASSES:
        return load_labelled(folder, name)
    with np.load(folder / f"{name}.npz") as archive:
        codes = np.unique(archive["y"], return_inverse=True)[1].astype(np.int32)
        return StandardScaler().fit_transform(archive["X"].astype(np.float64)), codes


def cell(block: Block, objective: Any, best: float, size: int, seeds: int) -> dict[str, Any]:
    """Medians of the excess by way of drawing, and how often the default drew uniformly."""
    excess: dict[str, float] = {}
    uniform = 0
    for way, options in WAYS.items():
        runs = []
        for seed in range(seeds):
            coreset = build_coreset(
                block.X, block.y, objective=objective, coreset_size=size, random_state=seed, **options
            )
            uniform += way == "default" and coreset.provenance["construction"] == "uniform"
            with single_blas_thread():
                runs.append(objective.evaluate(block, objective.solve(coreset, rng=RNG)).value / best - 1.0)
        excess[way] = float(np.median(runs))
    return {"size": size, "excess": excess, "uniform_drawn": uniform / seeds}


def measured(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    X, y = load(arguments.data, name)
    block, classes = Block(X=X, y=y), tuple(range(int(y.max()) + 1))
    results = []
    for strength in arguments.strengths:
        objective: Any = LogisticObjective(C=strength, classes=classes)
        if arguments.objective == "margin":
            objective = MarginObjective(lam=1000.0 * strength, classes=classes)
        with single_blas_thread():
            best = objective.evaluate(block, objective.solve(block, rng=RNG)).value
        for share in SHARES:
            size = round(share * len(block))
            if size < max(20, 2 * len(classes)):
                continue
            row = cell(block, objective, best, size, arguments.seeds)
            rows_each = objective.rows_per_coefficient(block, size)
            results.append(
                {"set": name, "strength": strength, "share": share, "rows_per_coefficient": rows_each, **row}
            )
            print(f"  {name}, {strength:g}, {share:.1%}: {row['excess']}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    parser.add_argument("--sets", nargs="+", default=[*GENERATED, *MANY_CLASSES, *TWO_CLASSES])
    parser.add_argument("--objective", choices=["logistic", "margin"], default="logistic")
    parser.add_argument("--strengths", nargs="+", type=float, default=[1e-3, 1.0, 100.0], help="C, or lam / 1000")
    parser.add_argument("--seeds", type=int, default=7)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # fits that stop early are part of what is measured
    rows = [row for name in arguments.sets for row in measured(name, arguments)]
    ratios = [[r["excess"][way] / r["excess"]["uniform"] for way in ("influence", "default")] for r in rows]
    lost = sum(ratio[1] > 1.05 for ratio in ratios)
    show(
        f"few rows: {arguments.objective}, medians of {arguments.seeds} seeds, as multiples of the excess of a uniform "
        f"draw; {lost} of {len(rows)} cells above 1.05",
        ["set", "strength", "rows", "rows per coefficient", "uniform", "influence", "default", "uniform drawn"],
        [
            [
                r["set"],
                r["strength"],
                r["size"],
                r["rows_per_coefficient"],
                r["excess"]["uniform"],
                *ratio,
                r["uniform_drawn"],
            ]
            for r, ratio in zip(rows, ratios, strict=True)
        ],
    )
    save(f"few_rows_{arguments.objective}", {"seeds": arguments.seeds, "cells": rows})


if __name__ == "__main__":
    main()
