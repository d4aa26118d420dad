"""Rows that join and leave a kernel machine beside training it again, and leave-one-out beside as many fits.

python benchmarks/odm_path.py --data DIR [--only path|loo] [--sizes 500,1000,2000,5000] [--sets covtype,generated]

Path: `IncrementalODMClassifier` (Gaussian kernel, lam = 1000, mu = 0.5, theta = 0.2) holds m standardised rows of
Covertype (class 2 against the rest) or generated ones. Batches of 1, 10 and 100 rows join, and others leave. After
each, our own solver trains the same rows again, from the multipliers before the change and with the kernel matrix
given, which its time leaves out; until decision values are proved to be within 1e-6 of the exact ones (a duality gap of
2.5e-13), and, for information, until the default relative gap of 1e-5, which leaves them within some 0.001. The bound
of the incremental machine and the largest difference to the trained one are in the table. Times are means; "times as
fast" is the ratio of these, in seconds of the clock and of the processor.

Leave-one-out: `ODMClassifier.leave_one_out` on 2,000 rows beside fits without one row, some of which are timed: at the
default tolerance, with the kernel given as a number. All decision values are checked by the duality gap of the machine
without the row, which needs no other solver, and some by fits to a gap of 1e-14.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from common import generated, load_labelled, save, show
from tithe.core.parallel import single_blas_thread
from tithe.odm import IncrementalODMClassifier, ODMClassifier
from tithe.odm.solvers.kernel_matrix import GivenKernel, Gram
from tithe.odm.solvers.path import ExactMachine, gap_bound, mirrored
from tithe.odm.solvers.two_classes import Dual, solve_two_classes

BATCHES = (1, 10, 100)
SAME_GAP = 1e-12 / (2 * 2.0)  # sqrt(2 gap k(x, x)) = 1e-6, as k(x, x) = 2 with the constant feature
DEFAULT_TOL = 1e-5
Timed = tuple[float, float]  # seconds of the clock, and of the processor


def load(folder: Path, name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    if name == "generated":
        X, y = generated(n)
        return StandardScaler().fit_transform(X.astype(np.float64)), y.astype(np.int32)
    X, y = load_labelled(folder, name)
    chosen = np.random.default_rng(0).permutation(len(y))[:n]
    return np.ascontiguousarray(X[chosen]), y[chosen]


def clocked(work: Callable[[], Any]) -> tuple[Any, Timed]:
    start, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, (time.perf_counter() - start, time.process_time() - processor)


# -- rows join and leave ---------------------------------------------------------------------------


def trained_again(model: IncrementalODMClassifier, before: dict[int, float], tol: float | None) -> tuple[Dual, Timed]:
    """The rows of the model trained by our solver, from the multipliers before the change."""
    rows, n = model._machine.rows, len(model._machine)
    kernel = mirrored(model._machine.kernel[:n, :n])
    gram = Gram(GivenKernel(matrix=kernel), np.arange(n), cache_bytes=8.0 * n * n)
    dual = Dual(gram=gram, sign=rows.sign, cost=rows.cost, mu=rows.mu, theta=rows.theta)
    dual.gamma = np.array([before.get(int(row), 0.0) for row in model._held.row_ids()])
    dual.renew()  # the matrix is in memory from here on
    relative = SAME_GAP / rows.gap()[1] if tol is None else tol

    def solve() -> None:
        with single_blas_thread():
            solve_two_classes(dual, tol=relative, max_iter=1000, rng=np.random.default_rng(0), free=False)

    return dual, clocked(solve)[1]


def changes(X: np.ndarray, y: np.ndarray, m: int, repeats: int) -> list[dict[str, Any]]:
    """Timings for batches that join and leave a machine of m rows; as many rows leave as have joined."""
    rng = np.random.default_rng(1)
    model = IncrementalODMClassifier(gamma=1.0 / X.shape[1]).partial_fit(X[:m], y[:m])
    model.partial_fit(X[-2:], y[-2:]).forget([m, m + 1])  # memory has grown, kernels are compiled
    spare, results = m, []
    for size in BATCHES:
        timings: dict[str, list[Any]] = {kind: [] for kind in ("join", "leave")}
        for number in range(2 * repeats):
            kind = ("join", "leave")[number % 2]
            before = dict(zip(model._held.row_ids().tolist(), model._machine.rows.gamma.tolist(), strict=True))
            if kind == "join":
                new = slice(spare, spare + size)
                _, ours = clocked(lambda new=new: model.partial_fit(X[new], y[new]))
                spare += size
            else:
                gone = rng.choice(model.row_ids_, size, replace=False)
                _, ours = clocked(lambda gone=gone: model.forget(gone))
            same, same_time = trained_again(model, before, None)
            _, default_time = trained_again(model, before, DEFAULT_TOL)
            scores = model._machine.rows.sign * model._machine.rows.margin
            timings[kind].append((ours, same_time, default_time, float(np.abs(scores - same.score).max())))
        for kind, found in timings.items():
            ours, same_time, default_time = (np.mean([f[i] for f in found], axis=0) for i in range(3))
            results.append(
                {
                    "rows": m,
                    "batch": size,
                    "what": kind,
                    "outside the band": int((model._machine.rows.side != 0).sum()),
                    "seconds": float(ours[0]),
                    "trained again": float(same_time[0]),
                    "times as fast": float(same_time[0] / ours[0]),
                    "by processor": float(same_time[1] / ours[1]),
                    "to 1e-5": float(default_time[0] / ours[0]),
                    "bound": float(model.error_bound(X[:1])[0]),
                    "difference": max(f[3] for f in found),
                }
            )
    return results


def path(folder: Path, names: list[str], sizes: list[int], repeats: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name in names:
        X, y = load(folder, name, max(sizes) + 2 + 2 * sum(BATCHES) * repeats)
        results[name] = []
        for m in sizes:
            results[name] += changes(X, y, m, repeats)
            columns = list(results[name][0])
            show(f"Rows join and leave, {name}", columns, [[row[c] for c in columns] for row in results[name]])
    return results


# -- leave-one-out ---------------------------------------------------------------------------------


def proved_bounds(model: ODMClassifier, X: np.ndarray, y: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """The largest proved distance of a leave-one-out machine from the exact one, and that of the scores from it."""
    n = len(y)
    sign, constant = np.where(y == model.classes_[1], 1.0, -1.0), 1.0
    function = model._fitted_kernel()
    rows = function.prepare(X)
    kernel = function.rectangle(rows, rows) + constant
    cost = np.full(n, model.lam / (n * (1.0 - model.theta) ** 2))
    machine, none = ExactMachine(model.mu, model.theta), np.zeros(0)
    first = machine.prepare(np.zeros((0, n)), kernel, sign, cost, none.astype(int), max_bytes=4e9)
    machine.apply(first)
    bound = difference = 0.0
    for i in range(n):
        change = machine.prepare(np.zeros((n, 0)), np.zeros((0, 0)), none, none, np.array([i]), max_bytes=4e9)
        at, coefficients = first.order[change.order], np.zeros(n)
        coefficients[at] = change.rows.coefficients()
        values = kernel @ coefficients
        others = replace(change.rows, margin=(sign * values)[at])  # from the kernel matrix, not as they were followed
        bound = max(bound, float(np.sqrt(2.0 * gap_bound(others, 2.0) * 2.0)))
        difference = max(difference, abs(values[i] - scores[i]))
    return bound, difference


def leave_one_out(folder: Path, names: list[str], n: int, n_fits: int) -> list[dict[str, Any]]:
    results = []
    for name in names:
        X, y = load(folder, name, n)
        gamma = 1.0 / X.shape[1]
        model = ODMClassifier(gamma=gamma, random_state=0).fit(X, y)
        model.leave_one_out(X, y)  # kernels are compiled
        scores, ours = clocked(lambda model=model, X=X, y=y: model.leave_one_out(X, y))
        fits, errors = [], []
        for i in np.random.default_rng(2).choice(n, n_fits, replace=False):
            others = np.delete(np.arange(n), i)
            options = {"lam": model.lam * (n - 1) / n, "gamma": gamma, "random_state": 0}
            _, seconds = clocked(lambda o=options, at=others, X=X, y=y: ODMClassifier(**o).fit(X[at], y[at]))
            fits.append(seconds)
            exact = ODMClassifier(**options, tol=1e-14).fit(X[others], y[others])
            errors.append(abs(exact.decision_function(X[i : i + 1])[0] - scores[i]))
        bound, difference = proved_bounds(model, X, y, scores)
        mean = np.mean(fits, axis=0)
        results.append(
            {
                "set": name,
                "rows": n,
                "seconds": ours[0],
                "seconds a fit": float(mean[0]),
                "times as fast": float(n * mean[0] / ours[0]),
                "by processor": float(n * mean[1] / ours[1]),
                "difference to exact fits": max(errors),
                "difference on all rows": difference,
                "bound on all rows": bound,
                "error": float((np.where(scores > 0, 1, 0) != y).mean()),
            }
        )
    columns = list(results[0])
    show("Leave-one-out", columns, [[row[c] for c in columns] for row in results])
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=("path", "loo"))
    parser.add_argument("--sets", default="covtype,generated")
    parser.add_argument("--sizes", default="500,1000,2000,5000")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--rows", type=int, default=2000, help="of leave-one-out")
    parser.add_argument("--fits", type=int, default=20, help="that are timed")
    options = parser.parse_args()
    names, results = options.sets.split(","), {}
    if options.only != "loo":
        sizes = [int(m) for m in options.sizes.split(",")]
        results["path"] = path(options.data, names, sizes, options.repeats)
    if options.only != "path":
        results["leave_one_out"] = leave_one_out(options.data, names, options.rows, options.fits)
    save("odm_path", results)


if __name__ == "__main__":
    main()
