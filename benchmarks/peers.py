"""Linear models beside the best peers: CPU seconds until the excess loss is at most 1e-6.

    python benchmarks/peers.py --data DIR [--parts logistic regression classes] [--only covtype ...] [--repeats 3]

Every solver of scikit-learn, of scikit-learn-intelex and glum is tried with smaller and smaller tolerances until its
excess is small enough, or it has taken 20 times tithe's CPU; the cheapest fit that is good enough counts, or else the
best one that it reached. Then all run by turns in one process. Excess is loss / smallest loss - 1 on all rows, penalty
included. Sets have 30,000 rows or more and are standardised if they are dense; `excess` is that of the last run.
A pass is the time of one ``X @ v``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import linear_model
from sklearn.preprocessing import StandardScaler

from common import generated, load_labelled, pass_seconds, save, show, two_class_sets
from tithe import (
    Block,
    CoresetHuberRegressor,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
)
from tithe.objectives import HuberObjective, LeastSquaresObjective, LogisticObjective, PoissonObjective

FEWEST_ROWS, GOAL = 30_000, 1e-6
MOST_CPU = 20.0  # times that of tithe, after which a peer is given up
LADDER = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-9)
LOGISTIC = ("lbfgs", "newton-cholesky", "newton-cg", "liblinear")
PARTS = ("logistic", "regression", "classes")
WIDE = 100  # columns from which some solvers are left out
CLASS_SETS = ("kddcup99_10pct", "mnist", "letter", "covtype", "shuttle", "pendigits", "satimage", "usps")
RARE = 100  # rows, with fewer of which a class of KDD Cup 99 is left out

Fit = Callable[[Any, np.ndarray, float], Any]


def intel(name: str) -> Any:
    from sklearnex import linear_model as fast

    return getattr(fast, name)


def glum(family: str, alpha: Callable[[int], float]) -> Fit:
    from glum import GeneralizedLinearRegressor

    def fit(X: Any, y: np.ndarray, tol: float) -> Any:
        model = GeneralizedLinearRegressor(family=family, alpha=alpha(X.shape[0]), l1_ratio=0, gradient_tol=tol)
        return model.fit(X, y.astype(np.float64))

    return fit


def logistic_peers(many: bool) -> dict[str, Fit]:
    def scikit(solver: str) -> Fit:
        return lambda X, y, tol: linear_model.LogisticRegression(solver=solver, tol=tol, max_iter=10_000).fit(X, y)

    peers = {f"scikit-learn {s}": scikit(s) for s in LOGISTIC if not (many and s == "liblinear")}
    peers["Intel"] = lambda X, y, tol: intel("LogisticRegression")(tol=tol, max_iter=10_000).fit(X, y)
    if not many:
        peers["glum"] = glum("binomial", lambda n: 1.0 / n)
    return peers


def regression_peers(kind: str) -> dict[str, Fit]:
    if kind == "ridge":
        scikit: dict[str, Fit] = {
            f"scikit-learn {s}": lambda X, y, tol, s=s: linear_model.Ridge(solver=s, tol=tol).fit(X, y)  # type: ignore[misc]
            for s in ("cholesky", "lsqr")
        }
        return {**scikit, "Intel": lambda X, y, tol: intel("Ridge")().fit(X, y)}
    if kind == "huber":
        return {"scikit-learn": lambda X, y, tol: linear_model.HuberRegressor(tol=tol, max_iter=10_000).fit(X, y)}
    poisson: dict[str, Fit] = {
        f"scikit-learn {s}": lambda X, y, tol, s=s: linear_model.PoissonRegressor(  # type: ignore[misc]
            alpha=1e-4, solver=s, tol=tol, max_iter=10_000
        ).fit(X, y)
        for s in ("lbfgs", "newton-cholesky")
    }
    return {**poisson, "glum": glum("poisson", lambda n: 1e-4)}


def params_of(model: Any) -> np.ndarray:
    params = np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)]).astype(np.float64)
    scale = getattr(model, "scale_", None)
    return params if scale is None else np.vstack([params, np.append(np.zeros(params.shape[1] - 1), scale)])


def cpu(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, its CPU seconds and its seconds."""
    wall, start = time.perf_counter(), time.process_time()
    result = work()
    return result, time.process_time() - start, time.perf_counter() - wall


def compare(name: str, X: Any, y: np.ndarray, ours: Fit, peers: dict[str, Fit], objective: Any, repeats: int) -> Any:
    """One row of the table: tithe, and every peer at the first tolerance with which it is near enough."""
    block = Block(X=X, y=y)

    def loss(model: Any) -> float:
        return float(objective.evaluate(block, params_of(model)).value)

    ours(X, y, 1e-4)
    model, own, _ = cpu(lambda: ours(X, y, GOAL))
    reached: dict[str, tuple[float, float]] = {}  # the loss and the tolerance of each peer
    for peer, fit in peers.items():
        spent = 0.0
        for tol in LADDER:
            try:
                fitted, seconds, _ = cpu(lambda fit=fit, tol=tol: fit(X, y, tol))
            except Exception as error:  # a solver that fails is part of what is measured
                print(f"  {name}: {peer} failed: {error}", flush=True)
                break
            value, spent = loss(fitted), spent + seconds
            if peer not in reached or value < reached[peer][0]:
                reached[peer] = value, tol
            if value <= loss(model) * (1.0 + GOAL) or spent > MOST_CPU * max(own, 0.05):
                break
    best = min([loss(model), *(value for value, _ in reached.values()), loss(ours(X, y, 1e-10))])
    works: dict[str, Callable[[], Any]] = {"tithe": lambda: ours(X, y, GOAL)}
    for peer, (_, tol) in reached.items():
        works[peer] = lambda fit=peers[peer], tol=tol: fit(X, y, tol)
    runs: dict[str, list[tuple[float, float]]] = {who: [] for who in works}
    excess = {}
    for _ in range(repeats):
        for who, work in works.items():
            fitted, seconds, wall = cpu(work)
            runs[who].append((seconds, wall))
            excess[who] = loss(fitted) / best - 1.0
    fits = {
        who: dict(zip(("cpu", "wall"), np.median(r, axis=0).tolist(), strict=True)) | {"excess": excess[who]}
        for who, r in runs.items()
    }
    near = [who for who in works if who != "tithe" and excess[who] <= GOAL]
    fastest = min(near, key=lambda who: fits[who]["cpu"]) if near else None
    ratio = None if fastest is None else fits[fastest]["cpu"] / fits["tithe"]["cpu"]
    row = {"set": name, "rows": X.shape[0], "columns": X.shape[1], "type": str(X.dtype), "sparse": sparse.issparse(X)}
    row |= {"pass_seconds": pass_seconds(X), "fits": fits, "best": fastest, "ratio": ratio}
    print(f"  {name} {X.dtype}: {ratio}", flush=True)
    return row


def table(title: str, rows: list[Any]) -> None:
    peers = sorted({who for row in rows for who in row["fits"]}, key=lambda who: who != "tithe")
    show(
        f"{title}: CPU seconds (excess loss)",
        ["set", "rows", "type", *peers, "best peer / tithe", "tithe in passes"],
        [
            [
                r["set"],
                r["rows"],
                r["type"],
                *(f"{r['fits'][p]['cpu']:.3f} ({r['fits'][p]['excess']:.0e})" if p in r["fits"] else "" for p in peers),
                "" if r["ratio"] is None else f"{r['ratio']:.2f}",
                f"{r['fits']['tithe']['cpu'] / r['pass_seconds']:.0f}",
            ]
            for r in rows
        ],
    )


def two_classes(folder: Path, only: list[str]) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Sets of two classes with enough rows; dense ones in both precisions."""
    for name in ("covtype", "kddcup99_10pct", *two_class_sets(folder), "generated"):
        if only and name not in only:
            continue
        if name == "generated":
            X, y = generated(1_000_000)
        elif name == "kddcup99_10pct":
            X, y = many_classes(folder, name)
            y = (y == np.bincount(y).argmax()).astype(np.int32)
        else:
            X, y = load_labelled(folder, name)
        if X.shape[0] < FEWEST_ROWS:
            continue
        if sparse.issparse(X):
            yield name, X, y
        else:
            for dtype in (np.float32, np.float64):
                yield name, np.ascontiguousarray(X, dtype), y


def many_classes(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / f"{name}.npz") as archive:
        X, y = archive["X"].astype(np.float64), np.unique(archive["y"], return_inverse=True)[1]
    if name == "kddcup99_10pct":
        keep = np.bincount(y)[y] >= RARE
        X, y = X[keep], np.unique(y[keep], return_inverse=True)[1]
    X = X[:, X.std(axis=0) > 0.0]
    X = X / 255.0 if name in ("mnist", "usps") else StandardScaler().fit_transform(X)
    return np.ascontiguousarray(X), y.astype(np.int32)


def logistic(arguments: argparse.Namespace) -> list[Any]:
    rows = []
    for name, X, y in two_classes(arguments.data, arguments.only):
        peers = logistic_peers(many=False)
        rows.append(compare(name, X, y, ours, peers, LogisticObjective(classes=(0, 1)), arguments.repeats))
    table("logistic regression", rows)
    return rows


def ours(X: Any, y: np.ndarray, tol: float) -> Any:
    return CoresetLogisticRegression(tol=tol, random_state=0).fit(X, y)


def classes(arguments: argparse.Namespace) -> list[Any]:
    rows = []
    for name in CLASS_SETS:
        if arguments.only and name not in arguments.only:
            continue
        X, y = many_classes(arguments.data, name)
        objective = LogisticObjective(classes=tuple(range(int(y.max()) + 1)))
        rows.append(compare(name, X, y, ours, logistic_peers(many=True), objective, arguments.repeats))
    table("more than two classes", rows)
    return rows


def regression(arguments: argparse.Namespace) -> list[Any]:
    """Targets are the classes with noise (ridge), and drawn from a line (Poisson, Huber)."""
    rows = []
    for name, X, y in two_classes(arguments.data, arguments.only):
        rng = np.random.default_rng(0)
        score = np.asarray(X @ rng.normal(size=X.shape[1])).ravel()
        score = score * (0.5 / score.std())
        targets = {
            "ridge": (y + 0.3 * rng.normal(size=len(y)), CoresetRidge, {}, LeastSquaresObjective()),
            "poisson": (
                rng.poisson(np.exp(np.clip(score, -3.0, 3.0))).astype(np.float64),
                CoresetPoissonRegressor,
                {"alpha": 1e-4},
                PoissonObjective(alpha=1e-4),
            ),
            "huber": (score + rng.standard_t(2, size=len(y)), CoresetHuberRegressor, {}, HuberObjective()),
        }
        for kind, (target, learner, options, objective) in targets.items():
            fit = lambda X, y, tol, learner=learner, options=options: learner(  # noqa: E731
                tol=tol, random_state=0, **options
            ).fit(X, y)
            row = compare(f"{kind} {name}", X, target, fit, regression_peers(kind), objective, arguments.repeats)
            rows.append(row)
    table("regressions", rows)
    return rows


def versions() -> dict[str, str]:
    names = ("scikit-learn", "scikit-learn-intelex", "glum", "numba", "numpy", "scipy")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {**{n: importlib.metadata.version(n) for n in names}, "commit": commit.stdout.strip(), "cpu": model[0][13:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", nargs="+", default=[], help="names of sets")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # fits that stop early are part of what is measured
    works = {"logistic": logistic, "regression": regression, "classes": classes}
    for part in arguments.parts:
        save(f"peers_{part}", {"versions": versions(), "fits": works[part](arguments)})


if __name__ == "__main__":
    main()
