"""Linear optimal margin distribution machines beside LinearSVC in one run, and which solver is fastest where.

python benchmarks/odm_linear.py --data DIR [--rows 290000] [--solvers a9a,w8a,reuters,mnist,...]

First table: `LinearODMClassifier` and `sklearn.svm.LinearSVC`, both as they come, on Covertype (class 2 against the
rest, standardised); the former stops at a proved relative gap of 1e-4. A pass is the time of one X @ v on the same
rows. Second table: all solvers to that gap over lam, for the sets named; "auto / best" is the time of what "auto"
chooses beside that of the fastest.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from common import load_labelled, pass_seconds, save, show, timed
from tithe.odm import LinearODMClassifier
from tithe.odm.solvers.linear_problem import LinearProblem, Solution
from tithe.odm.solvers.linear_solvers import SOLVERS, chosen, solve

TOL = 1e-4
MOST = 200  # rounds after which a solver is left out of the table
POWERS = (0, 4, 8, 12, 16, 20)


def load(folder: Path, name: str) -> tuple[Any, np.ndarray]:
    """Rows and classes 0 and 1: pictures of digits from 5 on against the others, else as in the other benchmarks."""
    if name != "mnist":
        return load_labelled(folder, name)
    with np.load(folder / "mnist.npz") as archive:
        return archive["X"].astype(np.float64) / 255.0, (archive["y"] >= 5).astype(np.int32)


def problem_of(X: Any, y: np.ndarray, lam: float, mu: float = 0.5, theta: float = 0.2) -> LinearProblem:
    cost = np.full(len(y), lam / (len(y) * (1.0 - theta) ** 2))
    return LinearProblem(X=X, signs=2.0 * y - 1.0, cost=cost, mu=mu, theta=theta)


def beside_linear_svc(folder: Path, n_rows: int, repeats: int) -> list[dict[str, Any]]:
    X, y = load_labelled(folder, "covtype")
    X, test, y, truth = train_test_split(X, y, train_size=n_rows, random_state=0)
    X = np.ascontiguousarray(X)
    LinearODMClassifier().fit(X[:5000], y[:5000])  # kernels are compiled once and kept on disk
    models = {
        "LinearODMClassifier()": lambda: LinearODMClassifier(random_state=0),
        "LinearODMClassifier(solver='dcd')": lambda: LinearODMClassifier(solver="dcd", random_state=0),
        "LinearODMClassifier(coreset_size='auto')": lambda: LinearODMClassifier(coreset_size="auto", random_state=0),
        "LinearSVC()": LinearSVC,
        "LinearSVC(C=lam / (2 n (1 - theta)^2))": lambda: LinearSVC(
            C=LinearODMClassifier().lam / (2 * n_rows * (1.0 - LinearODMClassifier().theta) ** 2)
        ),
    }
    rows = []
    for name, make in models.items():
        seconds, passes = [], []
        for _ in range(repeats):
            unit = pass_seconds(X)
            model, took = timed(lambda make=make: make().fit(X, y))
            seconds.append(took)
            passes.append(took / unit)
        signed = (2.0 * truth - 1.0) * model.decision_function(test)
        rows.append(
            {
                "model": name,
                "seconds": float(np.median(seconds)),
                "passes": float(np.median(passes)),
                "rounds": int(model.n_iter_),
                "relative gap": model.gap_ / model.objective_curve_[-1] if hasattr(model, "gap_") else None,
                "accuracy": float((signed > 0).mean()),
                "margin mean / deviation": float(signed.mean() / signed.std()),
            }
        )
    return rows


def solved(problem: LinearProblem, solver: str, seed: int) -> Solution:
    return solve(problem, solver=solver, tol=TOL, max_iter=MOST, rng=np.random.default_rng(seed))


def solvers(folder: Path, name: str, repeats: int) -> list[dict[str, Any]]:
    X, y = load(folder, name)
    few = problem_of(X[:500], y[:500], 1.0)
    for solver in SOLVERS:  # kernels are compiled once and kept on disk
        solved(few, solver, 0)
    rows = []
    for power in POWERS:
        problem = problem_of(X, y, 2.0**power)
        taken: dict[str, float] = {}
        unit = pass_seconds(X, 5)
        for solver in SOLVERS:
            runs = [timed(partial(solved, problem, solver, seed)) for seed in range(repeats)]
            taken[solver] = (
                min(took for _, took in runs) / unit if all(result.converged for result, _ in runs) else np.inf
            )
        auto = chosen(problem)
        pulls = problem.cost * problem.squares
        rows.append(
            {
                "set": name,
                "lam": f"2^{power}",
                "mean CQ": float(pulls.mean()),
                "max CQ": float(pulls.max()),
                **taken,
                "auto": auto,
                "auto / best": taken[auto] / min(taken.values()),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=290_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--solvers", default="spambase,a9a,w8a,higgs_subset,reuters,skin_nonskin")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    beside = beside_linear_svc(arguments.data, arguments.rows, arguments.repeats)
    show(f"covtype, {arguments.rows:,} x 54", list(beside[0]), [list(row.values()) for row in beside])
    table = [
        row for name in arguments.solvers.split(",") if name for row in solvers(arguments.data, name, arguments.repeats)
    ]
    if table:
        show(f"passes to a relative gap of {TOL:g}", list(table[0]), [list(row.values()) for row in table])
    save("odm_linear", {"rows": arguments.rows, "covtype": beside, "solvers": table})


if __name__ == "__main__":
    main()
