"""Machines of parts, merged, beside the direct solver and SVC: time, memory and accuracy as the rows double.

python benchmarks/odm_partition.py --data DIR [--only growth|tune|start|linear] [--max-rows 100000]
    [--max-direct 50000] [--max-svc 50000] [--time-limit 3600] [--setting defaults|tuned]

Growth: Covertype (class 2 against the rest, standardised), Gaussian kernel, a relative gap of 1e-3. Every fit runs in a
process of its own, so that the peak of memory is its own (all of the data included); compiled kernels are loaded before
the clock starts, and SVC has a cache of the same size. Seconds are those of the wall; "cpu" are those of all threads,
which a busy machine changes less. A fit beyond the time limit is stopped, and the table says so. Settings: "defaults"
of both; "tuned", the best of "tune".

Tune: both machines try twelve candidates on the same 6,250 rows, and are scored on 10,000 others. None of these rows
occurs in "growth". The best of each is the setting "tuned"; its parameters stay as they are while the rows double.

Start: on the sets of two classes, how far the mean of the machines of eight parts is from the machine of all rows: the
relative gap, and the accuracy of the mean on other rows, for the three ways to deal rows. Means of five seeds.

Linear: SVRG that visits stratified parts in turn, without replacement, as it would run on several machines (full
gradients are sums over parts), beside Newton's method and plain SVRG.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from common import load_labelled, save, show, timed, two_class_sets
from tithe.core.parallel import single_blas_thread
from tithe.core.passes import SerialEngine
from tithe.odm import ODMClassifier
from tithe.odm.base import row_costs
from tithe.odm.solvers.kernel_matrix import Gram, KernelFunction, kernel_scores
from tithe.odm.solvers.linear_problem import LinearProblem
from tithe.odm.solvers.linear_solvers import solve
from tithe.odm.solvers.partition import choose_landmarks, deal, solve_level, strata
from tithe.odm.solvers.two_classes import Dual

TOL = 1e-3
SIZES = [6_250 * 2**k for k in range(5)]
DEFAULT_GAMMA = 1.0 / 54.0  # columns are standardised
ODM_CANDIDATES = [
    {"gamma": width * DEFAULT_GAMMA, "lam": lam, "mu": mu, "theta": theta}
    for width in (1.0, 4.0, 16.0)
    for lam in (1000.0, 10_000.0)
    for mu, theta in ((0.5, 0.2), (0.05, 0.8))
]
SVC_CANDIDATES = [
    {"gamma": width * DEFAULT_GAMMA, "C": cost} for width in (1.0, 4.0, 16.0) for cost in (1.0, 10.0, 100.0, 1000.0)
]
SETTINGS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "defaults": ({}, {}),
    "tuned": (
        {"gamma": 16.0 * DEFAULT_GAMMA, "lam": 10_000.0, "mu": 0.5, "theta": 0.2},
        {"gamma": 4.0 * DEFAULT_GAMMA, "C": 10.0},
    ),
}
N_TUNE, N_TEST = 6_250, 10_000
N_PARTS, N_SEEDS = 8, 5
Rows = tuple[np.ndarray, np.ndarray]


# -- growth ------------------------------------------------------------------------------------


def covertype(folder: Path) -> tuple[Rows, Rows, Rows]:
    """Rows to fit, to test and to tune, all different, in random order."""
    X, y = load_labelled(folder, "covtype")
    order = np.random.default_rng(0).permutation(len(y))
    sets = np.split(order[: max(SIZES) + 2 * N_TEST + N_TUNE], [max(SIZES), max(SIZES) + N_TEST])
    fit, test, tune = ((X[rows], y[rows]) for rows in sets)
    return fit, test, tune


def tune(folder: Path) -> list[dict[str, Any]]:
    """The accuracy and the processor time of every candidate."""
    _, _, (X, y) = covertype(folder)
    rows = []
    for candidate in [*ODM_CANDIDATES, *SVC_CANDIDATES]:
        model = SVC(**candidate) if "C" in candidate else ODMClassifier(**candidate, tol=TOL, random_state=0)
        cpu = time.process_time()
        model.fit(X[:N_TUNE], y[:N_TUNE])
        cpu = time.process_time() - cpu
        accuracy = float(model.score(X[N_TUNE:], y[N_TUNE:]))
        rows.append({"model": type(model).__name__, **candidate, "cpu": cpu, "accuracy": accuracy})
        print(json.dumps(rows[-1]), flush=True)
    columns = ["model", "gamma", "lam", "mu", "theta", "C", "cpu", "accuracy"]
    show(f"Candidates, {N_TUNE} rows of Covertype", columns, [[row.get(c, "") for c in columns] for row in rows])
    return rows


def one_fit(folder: Path, method: str, n: int, setting: str) -> dict[str, Any]:
    (X, y), (test, truth), _ = covertype(folder)
    odm, svc = SETTINGS[setting]
    if method == "SVC":
        model = SVC(**svc, cache_size=2000)  # as much as ours
    else:
        solver = "direct" if method == "direct" else "partition"
        model = ODMClassifier(**odm, solver=solver, tol=TOL, random_state=0)
        ODMClassifier(**odm, solver=solver, tol=TOL, random_state=0).fit(X[:5200], y[:5200])
    cpu = time.process_time()
    _, seconds = timed(lambda: model.fit(X[:n], y[:n]))
    result = {"rows": n, "method": method, "seconds": seconds, "cpu": time.process_time() - cpu}
    result["peak GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    result["accuracy"] = float(model.score(test, truth))
    if method != "SVC":
        result |= {"relative gap": model.gap_ / model.objective_curve_[-1], "rounds": model.n_iter_}
    return result


def growth(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for n in [size for size in SIZES if size <= options.max_rows]:
        methods = ["stratified"]
        methods += ["direct"] if n <= options.max_direct else []
        methods += ["SVC"] if n <= options.max_svc else []
        for method in methods:
            alone = [sys.executable, __file__, "--data", str(folder), "--setting", options.setting]
            alone += ["--one", method, str(n)]
            limit = options.time_limit
            try:
                told = subprocess.run(alone, check=True, capture_output=True, text=True, timeout=limit).stdout
                rows.append(json.loads(told.splitlines()[-1]))
            except subprocess.TimeoutExpired:
                rows.append({"rows": n, "method": method, "seconds": f"stopped after {limit}"})
            print(json.dumps(rows[-1]), flush=True)
    columns = ["rows", "method", "seconds", "cpu", "peak GB", "relative gap", "rounds", "accuracy"]
    show(f"Covertype, {options.setting}", columns, [[row.get(c, "") for c in columns] for row in rows])
    return rows


# -- the start ---------------------------------------------------------------------------------


def mean_of_parts(dual: Dual, kind: str, seed: int) -> float:
    """Set the multipliers to those of the mean of the parts; returns its relative gap."""
    rng = np.random.default_rng(seed)
    landmarks = choose_landmarks(dual.gram, rng, max_landmarks=50, enough=0.0)
    stratum = strata(dual.gram, landmarks.rows, dual.sign) if kind == "stratified" else np.zeros(len(dual.sign), int)
    dual.gamma = solve_level(dual, deal(stratum, N_PARTS, rng), None, SerialEngine(), seed)
    dual.renew()
    gap, primal = dual.gap()
    return gap / primal


def start(folder: Path, n_rows: int) -> list[dict[str, Any]]:
    rows = []
    for name in ["covtype", *two_class_sets(folder)]:
        X, y = load_labelled(folder, name)
        n = min(n_rows, len(y) // 2)
        X, test, y, truth = train_test_split(X, y, train_size=n, test_size=n, stratify=y, random_state=0)
        X, test = (A.toarray() if sparse.issparse(A) else A for A in (X, test))
        function = KernelFunction(kernel="rbf", gamma=1.0 / (X.shape[1] * X.var()), centre=X.mean(axis=0))
        dual = Dual(
            gram=Gram(function, X, constant=1.0, cache_bytes=1e9),
            sign=2.0 * y - 1.0,
            cost=row_costs(None, n, 1000.0, 0.2),
            mu=0.5,
            theta=0.2,
        )
        for kind in ("stratified", "random"):
            gaps, right = [], []
            for seed in range(N_SEEDS):
                gaps.append(mean_of_parts(dual, kind, seed))
                coefficients = (dual.sign * dual.gamma)[None]
                scores = kernel_scores(function, test, X, coefficients)[:, 0] + coefficients.sum()
                right.append(float(((scores > 0) == (truth > 0)).mean()))
            row = {
                "set": name,
                "rows": n,
                "parts": kind,
                "relative gap": float(np.mean(gaps)),
                "of seeds": float(np.std(gaps)),
            }
            rows.append({**row, "accuracy": float(np.mean(right)), "accuracy of seeds": float(np.std(right))})
            print(json.dumps(rows[-1]), flush=True)
    show("The mean of eight machines", list(rows[0]), [list(row.values()) for row in rows])
    return rows


# -- linear ------------------------------------------------------------------------------------


def svrg_in_turn(
    problem: LinearProblem, parts: list[np.ndarray], max_iter: int, rng: np.random.Generator
) -> tuple[float, int]:
    """SVRG whose inner steps take the rows of one part after another, each once; the relative gap and the epochs."""
    n = len(problem)
    rough = 1.0 + n * problem.cost * problem.squares
    share, eta = np.full(n, 1.0 / n), min(0.5, 1.0 / (3.0 * float(rough.mean())))
    point = problem.evaluate(np.zeros(problem.size))
    for epoch in range(max_iter):
        if point.gap <= TOL * point.value:
            return point.gap / point.value, epoch
        v = problem.walked(
            point.params,
            np.concatenate([rng.permutation(rows) for rows in parts]),
            share,
            eta=eta,
            follow=False,
            table=-problem.multipliers(point.margins) / problem.cost,
            mean=point.gradient - point.params,
        )
        candidate = problem.evaluate(v)
        point, eta = (candidate, eta) if candidate.value <= point.value else (point, 0.5 * eta)
    return point.gap / point.value, max_iter


def linear(folder: Path, n_rows: int) -> list[dict[str, Any]]:
    X, y = load_labelled(folder, "covtype")
    chosen = np.random.default_rng(0).permutation(len(y))[:n_rows]
    X, y = X[chosen], y[chosen]
    rows = []
    for lam in (10.0, 1000.0, 100_000.0):
        problem = LinearProblem(
            X=X, signs=2.0 * y - 1.0, cost=row_costs(None, len(y), lam, 0.2), mu=0.5, theta=0.2, constant=1.0
        )
        rng = np.random.default_rng(0)
        nearest = ((X**2).sum(axis=1)[:, None] - 2.0 * X @ X[:20].T + (X[:20] ** 2).sum(axis=1)).argmin(axis=1)
        kinds = {"stratified parts": 2 * nearest + (y > 0), "random parts": np.zeros(len(y), int)}
        with single_blas_thread():
            for solver in ("newton", "svrg"):
                options: dict[str, Any] = {"solver": solver, "tol": TOL, "max_iter": 100}
                solve(problem, rng=np.random.default_rng(0), **options)  # compiled
                solution, seconds = timed(lambda p=problem, o=options: solve(p, rng=np.random.default_rng(0), **o))
                rows.append([lam, solver, seconds, solution.gap / solution.point.value, solution.n_iter])
            for kind, stratum in kinds.items():
                parts = deal(stratum, N_PARTS, rng)
                (gap, epochs), seconds = timed(
                    lambda p=problem, q=parts: svrg_in_turn(p, q, 100, np.random.default_rng(0))
                )
                rows.append([lam, f"svrg, {kind} in turn", seconds, gap, epochs])
    columns = ["lam", "solver", "seconds", "relative gap", "rounds"]
    show(f"Linear, {n_rows} rows of Covertype, a relative gap of {TOL:g}, at most 100 rounds", columns, rows)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=("growth", "tune", "start", "linear"))
    parser.add_argument("--setting", choices=tuple(SETTINGS), default="defaults")
    parser.add_argument("--max-rows", type=int, default=100_000)
    parser.add_argument("--max-direct", type=int, default=50_000)
    parser.add_argument("--max-svc", type=int, default=50_000)
    parser.add_argument("--time-limit", type=int, default=3600, help="seconds of a fit in growth")
    parser.add_argument("--rows", type=int, default=2000, help="of each set for the start")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "ROWS"), help="one fit alone")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_fit(options.data, options.one[0], int(options.one[1]), options.setting)))
        return
    results: dict[str, Any] = {}
    if options.only in (None, "tune"):
        results["tune"] = tune(options.data)
    if options.only in (None, "growth"):
        results["growth"] = growth(options.data, options)
    if options.only in (None, "start"):
        results["start"] = start(options.data, options.rows)
    if options.only in (None, "linear"):
        results["linear"] = linear(options.data, 100_000)
    save("odm_partition" + (f"_{options.only}" if options.only else "") + f"_{options.setting}", results)


if __name__ == "__main__":
    main()
