"""Gaussian mixtures from a coreset beside scikit-learn on all rows and a weighted uniform sample of the same size.

    python benchmarks/mixtures.py --data DIR [--sets covtype shuttle] [--components 5 20] [--kinds full diag]

For each data set, in one process: the mean log-likelihood of a row on all rows, and CPU seconds of the fit. The
uniform sample has the same searches by the same EM, and is not polished. Columns are standardised for all; Covertype
has its ten numeric ones. `--peers 1` fits scikit-learn for one seed only, which takes minutes a fit on large sets.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from common import load_rows, save, show
from tithe import CoresetGaussianMixture

SETS = ("covtype", "kdd_http", "flights_us_2001", "skin_nonskin", "shuttle", "letter")
_N_NUMERIC = 10  # columns of Covertype that are numbers


def rows_of(folder: Path, name: str) -> np.ndarray:
    """The standardised rows of a set."""
    if name == "flights_us_2001":
        with np.load(folder / f"{name}.npz") as archive:
            day = archive["minute"] % (24 * 60)
            X = np.column_stack([day, archive["delay"], archive["distance"]])
        return StandardScaler().fit_transform(X.astype(np.float64))
    X = load_rows(folder, name, "float64")
    return np.ascontiguousarray(X[:, :_N_NUMERIC]) if name == "covtype" else X


def measured(fit: Callable[[int], Any], X: np.ndarray, seeds: int) -> dict[str, list[float]]:
    """Log-likelihoods on all rows and CPU seconds of the fits with some seeds."""
    outcomes: dict[str, list[float]] = {"log_likelihood": [], "cpu": []}
    for seed in range(seeds):
        start = time.process_time()
        model = fit(seed)
        outcomes["cpu"].append(time.process_time() - start)
        outcomes["log_likelihood"].append(float(model.score(X)))
    return outcomes


def compared(X: np.ndarray, k: int, kind: str, seeds: int, peers: int) -> dict[str, Any]:
    """The outcomes of each method, their medians, and the number of rows kept."""
    kept: list[int] = []

    def ours(seed: int, **options: Any) -> CoresetGaussianMixture:
        model = CoresetGaussianMixture(k, covariance_type=kind, random_state=seed, **options).fit(X)
        kept.append(len(model.coreset_))
        return model

    methods: dict[str, tuple[int, Callable[[int], Any]]] = {
        "coreset": (seeds, ours),
        "coreset, not polished": (seeds, lambda s: ours(s, polish=0)),
        "weighted uniform": (seeds, lambda s: ours(s, construction="uniform", calibrate=False, polish=0)),
        "scikit-learn": (peers, lambda s: GaussianMixture(k, covariance_type=kind, random_state=s).fit(X)),
    }
    CoresetGaussianMixture(2, covariance_type=kind, coreset_size=500).fit(X[:5000])  # kernels are compiled here
    results: dict[str, Any] = {name: measured(fit, X, n) for name, (n, fit) in methods.items() if n}
    for outcomes in results.values():
        outcomes["median"] = {name: float(np.median(values)) for name, values in outcomes.items()}
    return {"rows_kept": kept[0], "methods": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files with an array X")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--components", nargs="+", type=int, default=[5, 20])
    parser.add_argument("--kinds", nargs="+", choices=["full", "tied", "diag", "spherical"], default=["full", "diag"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers", type=int, help="seeds of scikit-learn; by default all")
    parser.add_argument("--name", default="mixtures", help="of the file of results")
    arguments = parser.parse_args()
    peers = arguments.seeds if arguments.peers is None else arguments.peers
    warnings.simplefilter("ignore", ConvergenceWarning)
    results: dict[str, Any] = {"seeds": arguments.seeds, "sets": {}}
    for name in arguments.sets:
        X = rows_of(arguments.data, name)
        results["sets"][name] = {"rows": len(X), "columns": X.shape[1], "fits": {}}
        for k in arguments.components:
            for kind in arguments.kinds:
                found = compared(X, k, kind, arguments.seeds, peers)
                results["sets"][name]["fits"][f"{kind} {k}"] = found
                methods = found["methods"]
                show(
                    f"{name}: {len(X):,} x {X.shape[1]}, {k} components, {kind}, {found['rows_kept']:,} rows kept",
                    ["method", "log-likelihood", "smallest", "largest", "CPU s"],
                    [
                        [
                            m,
                            r["median"]["log_likelihood"],
                            min(r["log_likelihood"]),
                            max(r["log_likelihood"]),
                            r["median"]["cpu"],
                        ]
                        for m, r in methods.items()
                    ],
                )
    save(arguments.name, results)


if __name__ == "__main__":
    main()
