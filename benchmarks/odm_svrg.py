"""CoresetSVRG beside SVRG on all rows: gradients of single rows that each needs, for linear margin distributions.

    python benchmarks/odm_svrg.py --data DIR [--sets covtype higgs_subset] [--lam 1 100] [--share 4 16 64]
        [--steps cover all] [--repetitions 5] [--rows 100000]

Half of the rows, chosen at random, for training, the others for accuracy. SVRG takes 3 n gradients a round (an
anchor and 2 n steps). "needed" are the gradients after which its accuracy stays within 0.002 of where it ends;
"in all" those until its gap is below tol. CoresetSVRG stops where the gap on its cover is below tol; the cover is of
every 16th row (--share) at the most, and steps are taken on rows of the cover or, as in the paper, on rows drawn from
all. "to tol" are all gradients of CoresetSVRG that goes on, on all rows, until its proved gap is below tol. "rate" is
the factor by which the gap to the minimum of the problem at hand falls in a round, SVRG on all rows and CoresetSVRG on
its cover. Gradients are not all there is to pay: the cover takes distances, and seconds of the processor are given.
Means of the repetitions, each with other halves.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from scipy import sparse

from common import load_labelled, save, show
from tithe.core.parallel import single_blas_thread
from tithe.odm.solvers.linear_problem import LinearProblem
from tithe.odm.solvers.linear_solvers import coreset_svrg, newton, svrg

NEAR = 0.002
MOST = 60  # rounds
FLOOR = 1e-9  # relative gap from which on rounding hides the rate


def problem_of(X: Any, y: np.ndarray, lam: float, mu: float, theta: float) -> LinearProblem:
    n = len(y)
    cost = np.full(n, lam / (n * (1.0 - theta) ** 2))
    return LinearProblem(X=X, signs=2.0 * y - 1.0, cost=cost, mu=mu, theta=theta)


def rate(values: list[float], least: float) -> float:
    """The mean factor by which the excess over the least value falls from round to round."""
    excess = np.array([value - least for value in values])
    excess = excess[excess > FLOOR * least]
    return float((excess[-1] / excess[0]) ** (1.0 / (len(excess) - 1))) if len(excess) > 1 else 0.0


def plain(problem: LinearProblem, tol: float, accuracy: Any) -> dict[str, Any]:
    """SVRG on all rows, round by round."""
    start, rng, result = process_time(), np.random.default_rng(0), None
    seen, values = [], []
    for _ in range(MOST):
        result = svrg(problem, tol=tol, max_iter=1, rng=rng, start=None if result is None else result.point.params)
        seen.append(accuracy(result.point.params))
        values.append(result.point.value)
        if result.converged:
            break
    assert result is not None
    seconds = process_time() - start
    off = [k for k, one in enumerate(seen) if abs(one - seen[-1]) > NEAR]
    least = newton(problem, tol=1e-13, max_iter=100, rng=rng).point.value
    return {
        "accuracy": seen[-1],
        "in_all": 3.0 * len(seen),
        "needed": 3.0 * (off[-1] + 2 if off else 1),
        "converged": float(result.converged),
        "seconds": seconds,
        "rate": rate(values, least),
        "value": least,
    }


def covered(problem: LinearProblem, tol: float, accuracy: Any, share: int, everywhere: bool) -> dict[str, Any]:
    """CoresetSVRG with a shrinking cover; then with one of the final size, for its rate, and with a finish."""
    n = len(problem)
    options: dict[str, Any] = {"size": n // share, "everywhere": everywhere, "max_iter": MOST}
    start = process_time()
    small = coreset_svrg(problem, tol=tol, rng=np.random.default_rng(0), **options)
    seconds = process_time() - start
    fixed = coreset_svrg(problem, tol=1e-12, shrink=None, rng=np.random.default_rng(0), **options)
    whole = coreset_svrg(problem, tol=tol, finish=MOST, rng=np.random.default_rng(0), **options)
    return {
        "centres": len(small.cover.centres),
        "radius": small.cover.radius,
        "accuracy": accuracy(small.point.params),
        "gradients": small.cover.n_gradients / n,
        "to_tol": whole.cover.n_gradients / n,
        "gap": small.gap / small.point.value,
        "gap_to_tol": whole.gap / whole.point.value,
        "gradient_norm": small.cover.gradient_norm,
        "gradient_bound": small.cover.gradient_bound,
        "rate": rate(fixed.curve[:-1], fixed.curve[-1]),
        "switched": float(small.cover.switched),
        "value": small.point.value,
        "seconds": seconds,
    }


def repetition(X: Any, y: np.ndarray, seed: int, arguments: argparse.Namespace, lam: float) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(y))[: arguments.rows]
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    rows = X[train] if sparse.issparse(X) else np.ascontiguousarray(X[train])
    X_test, y_test = X[test], y[test]
    problem = problem_of(rows, y[train], lam, arguments.mu, arguments.theta)

    def accuracy(v: np.ndarray) -> float:
        return float(np.mean((X_test @ v[:-1] + v[-1] > 0.0) == y_test))

    with single_blas_thread():
        outcome: dict[str, Any] = {"SVRG": plain(problem, arguments.tol, accuracy)}
        for share in arguments.share:
            for steps in arguments.steps:
                name = f"n / {share}, steps on {steps}"
                outcome[name] = covered(problem, arguments.tol, accuracy, share, steps == "all")
                outcome[name]["excess"] = outcome[name]["value"] / outcome["SVRG"]["value"] - 1.0
                outcome[name]["times_fewer"] = outcome["SVRG"]["needed"] / outcome[name]["gradients"]
    return outcome


def means(outcomes: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        name: {key: float(np.mean([o[name][key] for o in outcomes])) for key in outcomes[0][name]}
        for name in outcomes[0]
    }


def report(title: str, result: dict[str, dict[str, float]]) -> None:
    full = result["SVRG"]
    show(
        f"{title}\ngradients of single rows, in n: SVRG {full['in_all']:.3g} to tol, {full['needed']:.3g} needed",
        ["cover", "gradients", "times fewer", "to tol", "accuracy", "that of SVRG", "rate", "that of SVRG", "centres"],
        [
            [
                name,
                *(one[key] for key in ("gradients", "times_fewer", "to_tol", "accuracy")),
                full["accuracy"],
                one["rate"],
                full["rate"],
                one["centres"],
            ]
            for name, one in result.items()
            if name != "SVRG"
        ],
    )
    show(
        f"what else; SVRG took {full['seconds']:.3g} seconds of the processor",
        ["cover", "radius", "|grad P|", "bound r G", "excess of P", "proved gap", "after finish", "seconds"],
        [
            [
                name,
                *(one[key] for key in ("radius", "gradient_norm", "gradient_bound", "excess", "gap", "gap_to_tol")),
                one["seconds"],
            ]
            for name, one in result.items()
            if name != "SVRG"
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["covtype", "higgs_subset"])
    parser.add_argument("--lam", nargs="+", type=float, default=[1.0, 100.0])
    parser.add_argument("--mu", type=float, default=0.5)
    parser.add_argument("--theta", type=float, default=0.2)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--share", nargs="+", type=int, default=[16], help="rows for each centre of the cover")
    parser.add_argument("--steps", nargs="+", choices=["cover", "all"], default=["cover", "all"])
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--rows", type=int, help="rows of each set, both halves together. [default: all]")
    arguments = parser.parse_args()
    results = []
    for name in arguments.sets:
        X, y = load_labelled(arguments.data, name)
        repetition(X[:2000], y[:2000], 0, arguments, 1.0)  # kernels are compiled, or read from their cache
        for lam in arguments.lam:
            outcomes = [repetition(X, y, seed, arguments, lam) for seed in range(arguments.repetitions)]
            n = min(len(y), arguments.rows or len(y)) // 2
            results.append({"set": name, "lam": lam, "n": n, "features": X.shape[1], "methods": means(outcomes)})
            report(f"{name}, lam {lam:g}, {n:,} rows, repetitions: {arguments.repetitions}", results[-1]["methods"])
    options = {"tol": arguments.tol, "mu": arguments.mu, "theta": arguments.theta}
    save("odm_svrg", {**options, "repetitions": arguments.repetitions, "sets": results})


if __name__ == "__main__":
    main()
