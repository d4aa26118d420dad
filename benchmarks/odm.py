"""Optimal margin distribution machines beside SVC, LinearSVC and LogisticRegression: accuracy, margins and time.

python benchmarks/odm.py --data DIR [--only speed|tuned|block] [--rows 1500] [--candidates 20]

Speed: `ODMClassifier` (Gaussian kernel, relative gap 1e-3) beside `sklearn.svm.SVC` (defaults) on growing
parts of Covertype (class 2 against the rest, standardised), and on 30,000 pictures of ten digits. Seconds are those of
the wall; "cpu" are those of all threads, which a busy machine changes less, and from which the growth is computed.

Tuned: every set is split into three outer parts, stratified; in each, every method tries the same number of
candidates, drawn at random from its own grid with the same seed, in the same three inner parts, and the winner is
fitted on all of the training part. More parameters mean more to search with the same number of tries. Linear machines:
C of LinearSVC and LogisticRegression in 2^-10 ... 2^10; lam in 2^2 ... 2^16, mu and theta in {0.2, 0.4, 0.6, 0.8}. With
the kernel: gamma in 2^-4 ... 2^4 times its default, and C in 2^-4 ... 2^12. Large sets are cut to --rows rows, those of
more classes to 500, drawn at random, and all columns are standardised on the training part. Margins are those of the
test parts of the sets with two classes, divided by |w|, so that no scale of f counts: mean, variance, and variance over
the square of the mean.

Block: microseconds for the multipliers of one row of K classes, which the paper finds by sorting in O(K log K).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import RandomizedSearchCV, StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from common import load_labelled, save, show, timed
from tithe.odm import LinearODMClassifier, ODMClassifier
from tithe.odm.kernels.many_classes import best_multipliers

SETS = (
    "australian", "diabetes", "german", "spambase", "phishing", "eeg_eye_state", "electricity", "occupancy_sensor",
    "skin_nonskin", "a9a", "w8a", "higgs_subset", "covtype", "image_segments", "satimage", "pendigits", "letter",
)  # fmt: skip
POWERS = 2.0 ** np.arange(-10, 11)
MANY = 500  # rows of sets with more classes: each of their fits takes as long as some of two classes
TOL = 1e-3  # relative gap: a sharper one changes no accuracy
SIDES = [0.2, 0.4, 0.6, 0.8]
LAMS = (2.0 ** np.arange(2, 17, 2)).tolist()


# -- speed -------------------------------------------------------------------------------------


def growth(folder: Path, sizes: list[int]) -> list[dict[str, Any]]:
    X, y = load_labelled(folder, "covtype")
    X, test, y, truth = train_test_split(X, y, train_size=max(sizes), test_size=20_000, random_state=0)
    ODMClassifier(tol=TOL).fit(X[:5000], y[:5000])  # kernels are compiled once and kept on disk
    rows = []
    for n in sizes:
        for model in (ODMClassifier(tol=TOL, random_state=0), SVC()):
            cpu = time.process_time()
            model, seconds = timed(lambda model=model, n=n: model.fit(X[:n], y[:n]))
            cpu = time.process_time() - cpu
            gap = model.gap_ / model.objective_curve_[-1] if hasattr(model, "gap_") else None
            rows.append(
                {
                    "rows": n,
                    "model": type(model).__name__,
                    "seconds": seconds,
                    "cpu": cpu,
                    "relative gap": gap,
                    "accuracy": model.score(test, truth),
                }
            )
    return rows


def digits(folder: Path, n: int) -> dict[str, Any]:
    """Ten classes at once; run in a process of its own, so that the peak of memory is its own."""
    with np.load(folder / "mnist.npz") as archive:
        X, y = archive["X"].astype(np.float32) / 255.0, archive["y"]
    X, test, y, truth = train_test_split(X, y, train_size=n, test_size=5000, random_state=0)
    model, seconds = timed(lambda: ODMClassifier(tol=TOL, random_state=0).fit(X, y))
    return {
        "rows": n,
        "seconds": seconds,
        "relative gap": model.gap_ / model.objective_curve_[-1],
        "rounds": model.n_iter_,
        "accuracy": model.score(test, truth),
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def speed(folder: Path, sizes: list[int], n_digits: int) -> dict[str, Any]:
    rows = growth(folder, sizes)
    columns = ["rows", "model", "seconds", "cpu", "relative gap", "accuracy"]
    show("Gaussian kernel, Covertype", columns, [["" if r[c] is None else r[c] for c in columns] for r in rows])
    slopes = {}
    for name in ("ODMClassifier", "SVC"):
        own = [r for r in rows if r["model"] == name]
        slopes[name] = float(np.polyfit(np.log([r["rows"] for r in own]), np.log([r["cpu"] for r in own]), 1)[0])
    print("time grows with rows to the power of", ", ".join(f"{v:.2f} ({k})" for k, v in slopes.items()))
    alone = [sys.executable, __file__, "--data", str(folder), "--digits", str(n_digits)]
    pictures = json.loads(subprocess.run(alone, check=True, capture_output=True, text=True).stdout)
    show("Ten classes of digits", list(pictures), [list(pictures.values())])
    return {"growth": rows, "slopes": slopes, "digits": pictures}


# -- tuned -------------------------------------------------------------------------------------


def load(folder: Path, name: str, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / f"{name}.npz") as archive:
        y = archive["y"]
        if "indptr" in archive.files:
            indices = archive["indices"].astype(np.int32)
            values = np.ones(len(indices)) if archive["all_ones"] else archive["data"].astype(np.float64)
            X = sparse.csr_matrix((values, indices, archive["indptr"]), shape=tuple(archive["shape"]))
        else:
            X = np.ascontiguousarray(archive["X"], np.float64)
    if name == "covtype":
        y = (y == 2).astype(int)
    n_rows = n_rows if len(np.unique(y)) == 2 else min(n_rows, MANY)
    if len(y) > n_rows:
        chosen, _ = train_test_split(np.arange(len(y)), train_size=n_rows, stratify=y, random_state=0)
        X, y = X[chosen], y[chosen]
    often = np.isin(y, [c for c in np.unique(y) if (y == c).sum() >= 9])  # three parts of three parts
    X, y = X[often], y[often]
    return (X.toarray() if sparse.issparse(X) else X), y


def methods(width: int) -> dict[str, tuple[Any, dict[str, list[float]]]]:
    """Machines and their grids; ``width`` is the number of columns."""
    gammas = (2.0 ** np.arange(-4, 5) / width).tolist()
    sides = {"mu": SIDES, "theta": SIDES, "lam": LAMS}
    return {
        "LogisticRegression": (LogisticRegression(max_iter=1000), {"C": POWERS.tolist()}),
        "LinearSVC": (LinearSVC(), {"C": POWERS.tolist()}),
        "LinearODM": (LinearODMClassifier(random_state=0, max_iter=200), sides),
        "SVC": (SVC(), {"C": (2.0 ** np.arange(-4, 13)).tolist(), "gamma": gammas}),
        "ODM": (ODMClassifier(tol=TOL, random_state=0, max_iter=50), {**sides, "gamma": gammas}),
    }


def scaled_margins(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """y f(x) / |w| of a machine of two classes; None for LogisticRegression, which has no margin of its own."""
    signed = np.where(y == model.classes_[1], 1.0, -1.0) * model.decision_function(X)
    if hasattr(model, "norm_"):
        return signed / model.norm_
    if isinstance(model, LinearSVC):
        return signed / np.hypot(np.linalg.norm(model.coef_), model.intercept_[0])
    if isinstance(model, SVC):
        K = rbf_kernel(model.support_vectors_, gamma=model.gamma)
        return signed / float((model.dual_coef_ @ K @ model.dual_coef_.T)[0, 0]) ** 0.5
    return None


def one_set(folder: Path, name: str, n_rows: int, candidates: int) -> dict[str, Any]:
    X, y = load(folder, name, n_rows)
    outer = StratifiedKFold(3, shuffle=True, random_state=0)
    found: dict[str, Any] = {"set": name, "rows": len(y), "classes": len(np.unique(y))}
    for method, (machine, grid) in methods(X.shape[1]).items():
        right, seconds, margins = [], 0.0, []
        for train, test in outer.split(X, y):
            scale = StandardScaler().fit(X[train])
            inner = StratifiedKFold(3, shuffle=True, random_state=1)
            most = min(candidates, int(np.prod([len(v) for v in grid.values()])))
            search = RandomizedSearchCV(machine, grid, n_iter=most, cv=inner, random_state=2, n_jobs=2)
            _, took = timed(lambda s=search, tr=train, sc=scale: s.fit(sc.transform(X[tr]), y[tr]))
            seconds += took
            rows = scale.transform(X[test])
            right.append(search.best_estimator_.predict(rows) == y[test])
            if found["classes"] == 2:
                margins.append(scaled_margins(search.best_estimator_, rows, y[test]))
        found[method] = {"accuracy": float(np.concatenate(right).mean()), "seconds": seconds}
        if margins and margins[0] is not None:
            together = np.concatenate([m / m.mean() for m in margins])
            found[method]["margin mean"] = float(np.concatenate(margins).mean())
            found[method]["margin variance"] = float(np.mean([m.var() for m in margins]))
            found[method]["variance over squared mean"] = float(together.var())
    return found


def tuned(folder: Path, names: list[str], n_rows: int, candidates: int) -> dict[str, Any]:
    results = []
    for name in names:
        results.append(one_set(folder, name, n_rows, candidates))
        r = results[-1]
        print(name, {m: (round(r[m]["accuracy"], 4), round(r[m]["seconds"], 1)) for m in methods(1)}, flush=True)
    kinds = list(methods(1))
    table = [[r["set"], r["rows"], r["classes"], *(r[m]["accuracy"] for m in kinds)] for r in results]
    means = {m: float(np.mean([r[m]["accuracy"] for r in results])) for m in kinds}
    table.append(["mean", "", "", *means.values()])
    show("Accuracy, tuned alike", ["set", "rows", "classes", *kinds], table)
    pairs = [r for r in results if r["classes"] == 2]
    medians: dict[str, dict[str, float]] = {}
    for what in ("margin mean", "margin variance", "variance over squared mean"):
        own = [m for m in kinds if m != "LogisticRegression"]
        table = [[r["set"], *(r[m][what] for m in own)] for r in pairs]
        medians[what] = {m: float(np.median([r[m][what] for r in pairs])) for m in own}
        table.append(["median", *medians[what].values()])
        show(f"{what} on the test parts, y f / |w|", ["set", *own], table)
    show("Seconds of all searches", ["", *kinds], [["", *(sum(r[m]["seconds"] for r in results) for m in kinds)]])
    return {
        "candidates": candidates,
        "mean accuracy": means,
        "two classes": len(pairs),
        "medians": medians,
        "sets": results,
    }


def block(sizes: tuple[int, ...] = (10, 100, 1000, 10_000, 100_000)) -> list[list[float]]:
    """Seconds of the processor for the multipliers of one row, the rival's score fixed, by the number of classes."""
    rng, table = np.random.default_rng(0), []
    for k in sizes:
        rest = rng.normal(size=k)
        change, alpha, shift, spare = np.empty((4, k))

        def once(rest=rest, change=change, alpha=alpha, shift=shift, spare=spare) -> None:  # type: ignore[no-untyped-def]
            best_multipliers(rest, 0, -1, 0.5, 1.0, 0.1, 0.2, 0.8, 1.2, change, alpha, shift, spare)

        once()
        repeats, start = max(3, 300_000 // k), time.process_time()
        for _ in range(repeats):
            once()
        micro = 1e6 * (time.process_time() - start) / repeats
        table.append([k, micro, micro / (k * np.log(k))])
    show("One row of K classes", ["K", "microseconds", "over K ln K"], table)
    (a, slow, _), (b, slower, _) = table[-2:]
    print(f"\ntime grows with the power {np.log(slower / slow) / np.log(b / a):.2f} of K from {a:,} on")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=("speed", "tuned", "block"))
    parser.add_argument("--sizes", default="2500,5000,10000,20000")
    parser.add_argument("--digits", type=int, help="run the ten classes alone, on so many rows")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--candidates", type=int, default=20)
    options = parser.parse_args()
    if options.digits:
        print(json.dumps(digits(options.data, options.digits)))
        return
    results: dict[str, Any] = {}
    if options.only in (None, "block"):
        results["block"] = block()
    if options.only in (None, "speed"):
        results["speed"] = speed(options.data, [int(n) for n in options.sizes.split(",")], 30_000)
    if options.only in (None, "tuned"):
        results["tuned"] = tuned(options.data, options.sets.split(","), options.rows, options.candidates)
    save("odm" if options.only is None else f"odm_{options.only}", results)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    main()
