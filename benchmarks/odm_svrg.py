"""CoresetSVRG beside SVRG on all rows: gradients of single rows that each needs, for linear margin distributions.

    python benchmarks/odm_svrg.py --data DIR [--sets covtype higgs_subset] [--lam 1 100] [--tol 1e-3] [--share 16]

Half of the rows, chosen at random, for training, the others for accuracy. SVRG takes 3 n gradients a round (an
anchor and 2 n steps). "needed" are the gradients after which its accuracy stays within .002 of where it ends;
"in all" those until its gap is below tol. CoresetSVRG stops where the gap on its cover is below tol; the cover is of
every 16th row at the most. Gradients are not all there is to pay: the cover takes distances, and seconds are given.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from common import load_labelled, save, show, timed
from tithe.core.parallel import single_blas_thread
from tithe.solvers.odm.coreset_svrg import coreset_svrg
from tithe.solvers.odm.linear_problem import LinearProblem
from tithe.solvers.odm.linear_solvers import svrg

NEAR = 0.002


def halves(X: Any, y: np.ndarray) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    order = np.random.default_rng(0).permutation(len(y))
    a, b = order[: len(y) // 2], order[len(y) // 2 :]
    return X[a], y[a], X[b], y[b]


def compared(X: Any, y: np.ndarray, lam: float, tol: float, share: int, most: int = 60) -> dict[str, Any]:
    X, y, X_test, y_test = halves(X if sparse.issparse(X) else np.ascontiguousarray(X), y)
    n, theta = len(y), 0.2
    problem = LinearProblem(
        X=X, signs=2.0 * y - 1.0, cost=np.full(n, lam / (n * (1.0 - theta) ** 2)), mu=0.5, theta=theta
    )

    def accuracy(v: np.ndarray) -> float:
        return float(np.mean((X_test @ v[:-1] + v[-1] > 0.0) == y_test))

    def plain() -> tuple[Any, list[float]]:
        rng, result, seen = np.random.default_rng(0), None, []
        for _ in range(most):
            result = svrg(problem, tol=tol, max_iter=1, rng=rng, start=None if result is None else result.place.params)
            seen.append(accuracy(result.place.params))
            if result.converged:
                break
        return result, seen

    def covered() -> Any:
        return coreset_svrg(problem, size=n // share, tol=tol, max_iter=most, rng=np.random.default_rng(0))

    with single_blas_thread():
        (full, seen), full_seconds = timed(plain)
        small, small_seconds = timed(covered)
    off = [k for k, one in enumerate(seen) if abs(one - seen[-1]) > NEAR]
    needed = 3 * n * (off[-1] + 2 if off else 1)
    return {
        "n": n,
        "features": X.shape[1],
        "lam": lam,
        "accuracy_svrg": seen[-1],
        "accuracy_rounds": seen,
        "gradients_svrg": 3 * n * len(seen),
        "gradients_svrg_needed": needed,
        "converged_svrg": bool(full.converged),
        "seconds_svrg": full_seconds,
        "centres": len(small.cover.centres),
        "radius": small.cover.radius,
        "accuracy_cover": accuracy(small.place.params),
        "gradients_cover": small.cover.n_gradients,
        "rounds_cover": small.cover.sizes,
        "converged_cover": small.cover_converged,
        "seconds_cover": small_seconds,
        "certificate": small.cover.gradient_norm,
        "certificate_bound": small.cover.gradient_bound,
        "excess": small.place.value / full.place.value - 1.0,
        "times_fewer": needed / small.cover.n_gradients,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["covtype", "higgs_subset"])
    parser.add_argument("--lam", nargs="+", type=float, default=[1.0, 100.0])
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--share", type=int, default=16)
    arguments = parser.parse_args()
    results = []
    for name in arguments.sets:
        X, y = load_labelled(arguments.data, name)
        for lam in arguments.lam:
            results.append({"set": name, **compared(X, y, lam, arguments.tol, arguments.share)})
    show(
        "gradients of single rows, in n",
        ["set, lam", "SVRG in all", "needed", "CoresetSVRG", "times fewer", "accuracy", "of the cover", "centres"],
        [
            [
                f"{r['set']}, {r['lam']:g}",
                r["gradients_svrg"] / r["n"],
                r["gradients_svrg_needed"] / r["n"],
                r["gradients_cover"] / r["n"],
                r["times_fewer"],
                r["accuracy_svrg"],
                r["accuracy_cover"],
                r["centres"],
            ]
            for r in results
        ],
    )
    show(
        "what else",
        ["set, lam", "radius", "|grad P|", "bound r G", "excess of P", "seconds SVRG", "seconds CoresetSVRG"],
        [
            [
                f"{r['set']}, {r['lam']:g}",
                *(r[k] for k in ("radius", "certificate", "certificate_bound", "excess")),
                r["seconds_svrg"],
                r["seconds_cover"],
            ]
            for r in results
        ],
    )
    save("odm_svrg", {"tol": arguments.tol, "share": arguments.share, "sets": results})


if __name__ == "__main__":
    main()
