"""Gaussian mixtures from a coreset beside scikit-learn on all rows and a weighted uniform sample of the same size.

    python benchmarks/mixtures.py --data DIR [--sets covtype shuttle] [--components 5 20] [--kinds full diag]
    python benchmarks/mixtures.py --data DIR --only peers          # scikit-learn alone, once: it takes an hour or more
    python benchmarks/mixtures.py --data DIR --only ours           # all else, beside the kept results of scikit-learn

For each data set: the mean log-likelihood of a row on all rows, and CPU seconds of the fit, in one process with one
thread, BLAS included. The uniform sample has the same searches by the same EM, and is not polished. Columns are
standardised for all; Covertype has its ten numeric ones. scikit-learn takes minutes a fit on large sets: from 200,000
rows on it has as many seeds as `--peers` says. Its results are written to NAME_peers.json.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from common import RESULTS, load_rows, save, show
from tithe import CoresetGaussianMixture

SETS = ("letter", "shuttle", "skin_nonskin", "kdd_http", "covtype", "flights_us_2001")
_N_NUMERIC = 10  # columns of Covertype that are numbers
_LARGE = 200_000  # rows from which scikit-learn has fewer seeds
_PEER = "scikit-learn"
_NOTES = "cpu: seconds of process_time with one thread, BLAS included, in a process that shared two cores with others"
_METHODS: dict[str, dict[str, Any]] = {
    "coreset": {},
    "coreset, not polished": {"polish": 0},
    "weighted uniform": {"construction": "uniform", "calibrate": False, "polish": 0},
}


def rows_of(folder: Path, name: str) -> np.ndarray:
    """The standardised rows of a set."""
    if name == "flights_us_2001":
        with np.load(folder / f"{name}.npz") as archive:
            day = archive["minute"] % (24 * 60)
            X = np.column_stack([day, archive["delay"], archive["distance"]])
        return StandardScaler().fit_transform(X.astype(np.float64))
    X = load_rows(folder, name, "float64")
    return np.ascontiguousarray(X[:, :_N_NUMERIC]) if name == "covtype" else X


def measured(fit: Callable[[int], Any], X: np.ndarray, seeds: int) -> dict[str, Any]:
    """Log-likelihoods on all rows and CPU seconds of the fits with some seeds, and their medians."""
    values: dict[str, list[float]] = {"log_likelihood": [], "cpu": []}
    for seed in range(seeds):
        start = time.process_time()
        model = fit(seed)
        values["cpu"].append(time.process_time() - start)
        values["log_likelihood"].append(float(model.score(X)))
    return {**values, "median": {name: float(np.median(v)) for name, v in values.items()}}


def of_scikit_learn(X: np.ndarray, k: int, kind: str, seeds: int) -> dict[str, Any]:
    return measured(lambda s: GaussianMixture(k, covariance_type=kind, random_state=s).fit(X), X, seeds)


def of_coresets(X: np.ndarray, k: int, kind: str, seeds: int) -> tuple[dict[str, Any], int]:
    """The outcomes of each of our methods, and the rows that were kept."""
    kept = 0

    def fit(seed: int, **options: Any) -> CoresetGaussianMixture:
        nonlocal kept
        model = CoresetGaussianMixture(k, covariance_type=kind, random_state=seed, n_jobs=1, **options).fit(X)
        kept = len(model.coreset_)
        return model

    CoresetGaussianMixture(2, covariance_type=kind, coreset_size=500).fit(X[:5000])  # kernels are compiled here
    results = {name: measured(lambda s, o=o: fit(s, **o), X, seeds) for name, o in _METHODS.items()}
    return results, kept


def show_fit(title: str, methods: dict[str, Any]) -> None:
    rows = [
        [name, r["median"]["log_likelihood"], min(r["log_likelihood"]), max(r["log_likelihood"]), r["median"]["cpu"]]
        for name, r in methods.items()
    ]
    show(title, ["method", "log-likelihood", "smallest", "largest", "CPU s"], rows)


def sets_of(arguments: argparse.Namespace) -> Iterator[tuple[str, np.ndarray, list[tuple[int, str]], dict[str, Any]]]:
    """For each set its name, its rows, the mixtures that are fitted, and an entry for the results."""
    mixtures = [(k, kind) for k in arguments.components for kind in arguments.kinds]
    for name in arguments.sets:
        X = rows_of(arguments.data, name)
        yield name, X, mixtures, {"rows": len(X), "columns": X.shape[1], "fits": {}}


def run_peers(arguments: argparse.Namespace) -> None:
    results: dict[str, Any] = {"notes": _NOTES, "sets": {}}
    for name, X, mixtures, entry in sets_of(arguments):
        results["sets"][name] = entry
        for k, kind in mixtures:
            seeds = arguments.peers if len(X) >= _LARGE else arguments.seeds
            entry["fits"][f"{kind} {k}"] = found = of_scikit_learn(X, k, kind, seeds)
            show_fit(f"{name}: {len(X):,} x {X.shape[1]}, {k} components, {kind}", {_PEER: found})
        save(f"{arguments.name}_peers", results)


def run_ours(arguments: argparse.Namespace) -> None:
    results: dict[str, Any] = {"notes": _NOTES, "sets": {}}
    for name, X, mixtures, entry in sets_of(arguments):
        results["sets"][name] = entry
        for k, kind in mixtures:
            methods, kept = of_coresets(X, k, kind, arguments.seeds)
            peers = json.loads((RESULTS / f"{arguments.name}_peers.json").read_text())["sets"]
            peer = peers[name]["fits"][f"{kind} {k}"]
            ours, theirs = methods["coreset"]["median"], peer["median"]
            entry["fits"][f"{kind} {k}"] = {
                "rows_kept": kept,
                "gain": ours["log_likelihood"] - theirs["log_likelihood"],
                "times_the_cpu": theirs["cpu"] / ours["cpu"],
                "methods": {**methods, _PEER: {"median": theirs, "seeds": len(peer["cpu"])}},
            }
            title = f"{name}: {len(X):,} x {X.shape[1]}, {k} components, {kind}, {kept:,} rows kept"
            show_fit(title, {**methods, _PEER: peer})
        save(arguments.name, results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files with an array X")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--components", nargs="+", type=int, default=[5, 20])
    parser.add_argument("--kinds", nargs="+", choices=["full", "tied", "diag", "spherical"], default=["full", "diag"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peers", type=int, default=1, help="seeds of scikit-learn on large sets")
    parser.add_argument("--only", choices=["peers", "ours"], help="by default both")
    parser.add_argument("--name", default="mixtures", help="of the files of results")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        if arguments.only != "ours":
            run_peers(arguments)
        if arguments.only != "peers":
            run_ours(arguments)


if __name__ == "__main__":
    main()
