"""What a coreset does for regression: excess loss beside weighted uniform sampling, and speed beside scikit-learn.

    python benchmarks/regression.py --data DIR [--seeds 10] [--parts excess speed]

excess    relative excess loss on all rows of what is fitted on a coreset alone, no polish
speed     ridge and Poisson regression to 1e-6 on a generated set, beside scikit-learn in the same run

Targets. Flights: minutes of delay on arrival (Poisson: minutes late). The other sets are made for classification; one
of their numeric columns is the target and the rest are the rows: elevation of Covertype, price of electricity, CO2 in
an office (occupancy_sensor), the last mass of HIGGS, and connections to the same host in two seconds (kddcup99, a
count). All columns are standardised.

Excess is loss / smallest loss - 1 on all rows, penalty included. Time is in passes: of one X @ v on the same rows in
the same process.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.preprocessing import StandardScaler

from common import generated, pass_seconds, save, show, timed
from tithe import Block, CoresetPoissonRegressor, CoresetRidge, build_coreset
from tithe.objectives import HuberObjective, LeastSquaresObjective, PoissonObjective

RNG = np.random.default_rng(0)  # `solve` asks for one and draws nothing from it
PARTS = ("excess", "speed")
TARGET = 1 / 20
OBJECTIVES: dict[str, Any] = {
    "ridge": LeastSquaresObjective(),
    "poisson": PoissonObjective(alpha=1e-4),
    "huber": HuberObjective(),
}
# set, column of the target, share kept, models
CASES: list[tuple[str, int | None, float, tuple[str, ...]]] = [
    ("flights_us_2001", None, 0.01, ("ridge", "huber", "poisson")),
    ("covtype", 0, 0.01, ("ridge", "huber")),
    ("higgs_subset", 27, 0.03, ("ridge", "huber")),
    ("electricity", 3, 0.03, ("ridge", "huber")),
    ("occupancy_sensor", 3, 0.03, ("ridge", "huber")),
    ("kddcup99_10pct", 22, 0.01, ("poisson",)),
]
CORESETS: dict[str, dict[str, Any]] = {
    "uniform": {"construction": "uniform", "calibrate": False},
    "influence": {"construction": "influence", "calibrate": False},
    "uniform, calibrated": {"construction": "uniform"},
    "default": {},
}


def load(folder: Path, name: str, column: int | None, *, counts: bool) -> Block:
    """Rows with every column standardised, constant ones left out, and the target."""
    with np.load(folder / f"{name}.npz") as archive:
        if column is None:
            hour, day = archive["minute"] // 60 % 24, archive["minute"] // 1440
            ones = [(hour[:, None] == np.arange(1, 24)), (day[:, None] % 7 == np.arange(1, 7))]
            distance = archive["distance"].astype(np.float64)
            X = np.column_stack([distance, np.log1p(distance), day, *ones]).astype(np.float64)
            y = archive["delay"].astype(np.float64)
        else:
            X = np.asarray(archive["X"], np.float64)
            y, X = X[:, column].copy(), np.delete(X, column, axis=1)
    X = X[:, X.std(axis=0) > 0.0]
    y = np.maximum(y, 0.0) if counts else y / y.std()
    return Block(X=np.ascontiguousarray(StandardScaler().fit_transform(X)), y=y)


# -- excess ------------------------------------------------------------------------------------


def lost(block: Block, objective: Any, size: int, seed: int, options: dict[str, Any]) -> float:
    """The loss on all rows of a fit on a coreset."""
    small = build_coreset(block.X, block.y, objective=objective, coreset_size=size, random_state=seed, **options)
    return objective.evaluate(block, objective.solve(small, rng=RNG)).value


def excess(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Medians over the seeds, as they come out of the coreset: no step on all rows is taken."""
    rows = []
    for name, column, share, models in CASES:
        if arguments.sets and name not in arguments.sets:
            continue
        for model in models:
            objective = OBJECTIVES[model]
            block = load(arguments.data, name, column, counts=model == "poisson")
            best = objective.evaluate(block, objective.solve(block, rng=RNG)).value
            size = round(share * len(block))

            losses = {
                kind: [lost(block, objective, size, seed, options) / best - 1.0 for seed in range(arguments.seeds)]
                for kind, options in CORESETS.items()
            }
            middle = {kind: float(np.median(values)) for kind, values in losses.items()}
            row = {"set": name, "model": model, "share": share, "size": size, "columns": block.n_features}
            rows.append(row | {"median": middle, "seeds": losses})
            print(f"  {name} {model}: {middle['default'] / middle['uniform']:.3g} of uniform", flush=True)
    others = [kind for kind in CORESETS if kind != "uniform"]
    show(
        f"excess loss without polish: medians of {arguments.seeds} seeds; all but 'uniform' as 1/x of uniform's",
        ["set", "model", "rows kept", "columns", "uniform", *others, f"1/{1 / TARGET:.0f} met"],
        [
            [
                f"{r['set']} {r['share']:.0%}",
                r["model"],
                r["size"],
                r["columns"],
                f"{r['median']['uniform']:.2e}",
                *(f"1/{r['median']['uniform'] / max(r['median'][kind], 1e-15):.3g}" for kind in others),
                "yes" if r["median"]["default"] <= TARGET * r["median"]["uniform"] else "NO",
            ]
            for r in rows
        ],
    )
    return rows


# -- speed -------------------------------------------------------------------------------------


def generated_targets(X: np.ndarray) -> dict[str, np.ndarray]:
    """A noisy line with an interaction that it cannot see; and counts whose logarithm of the mean is such a line."""
    rng = np.random.default_rng(1)
    line = rng.normal(size=X.shape[1]).astype(X.dtype)
    score = (X @ line).astype(np.float64) + 0.3 * X[:, 0] * X[:, 3]
    rate = np.exp(np.clip(0.3 * (score - score.mean()) / score.std() - 0.5, -5.0, 3.0))
    return {"ridge": score + rng.standard_t(4, len(X)), "poisson": rng.poisson(rate).astype(np.float64)}


def speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every work some times by turns, so that a busy moment of the machine is shared by all.

    Both Ridge and CoresetRidge solve normal equations, and the product of the rows with themselves takes most of the
    time of either. Ridge copies and centres all rows first, which costs most where that memory is new to the process;
    CoresetRidge reads them in chunks that stay in the cache. Newton's method of PoissonRegressor takes the curvature of
    all rows in each round; CoresetPoissonRegressor takes it from a sample.
    """
    X, _ = generated(arguments.rows)
    X = X.astype(arguments.dtype)
    targets = generated_targets(X)
    works: dict[str, tuple[str, Callable[[int], Any], str]] = {
        "Ridge(solver='auto')": ("ridge", lambda seed: Ridge(), ""),
        "CoresetRidge, tol = 1e-6": ("ridge", lambda seed: CoresetRidge(tol=1e-6, random_state=seed), ">= 3"),
        "PoissonRegressor()": ("poisson", lambda seed: PoissonRegressor(alpha=1e-4), ""),
        "PoissonRegressor(solver='newton-cholesky')": (
            "poisson",
            lambda seed: PoissonRegressor(alpha=1e-4, solver="newton-cholesky"),
            "",
        ),
        "CoresetPoissonRegressor, tol = 1e-6": (
            "poisson",
            lambda seed: CoresetPoissonRegressor(alpha=1e-4, tol=1e-6, random_state=seed),
            ">= 10",
        ),
    }
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    losses: dict[str, list[float]] = {name: [] for name in works}
    n_passes: dict[str, int | None] = {}
    for kind, make, _ in works.values():
        make(0).fit(X[:50_000], targets[kind][:50_000])
    for seed in range(arguments.repeats):
        for name, (kind, make, _) in works.items():
            unit = pass_seconds(X, 7)
            model, seconds = timed(lambda make=make, seed=seed, kind=kind: make(seed).fit(X, targets[kind]))
            runs[name].append((seconds, seconds / unit))
            params = np.append(model.coef_, model.intercept_).astype(np.float64)[None]
            losses[name].append(OBJECTIVES[kind].evaluate(Block(X=X, y=targets[kind]), params).value)
            n_passes[name] = getattr(model, "n_passes_", None)
            print(f"  {name}: {seconds:.2f} s", flush=True)
    best = {kind: min(min(losses[n]) for n, (k, _, _) in works.items() if k == kind) for kind in targets}
    full = {"ridge": "Ridge(solver='auto')", "poisson": "PoissonRegressor()"}
    rows = []
    for name, (kind, _, target) in works.items():
        seconds, passes = (float(v) for v in np.median(runs[name], axis=0))
        ratio = float(np.median([theirs[0] / own[0] for theirs, own in zip(runs[full[kind]], runs[name], strict=True)]))
        row = {"work": name, "seconds": seconds, "passes": passes, "ratio": ratio, "target": target}
        rows.append(row | {"n_passes": n_passes[name], "excess": float(np.median(losses[name])) / best[kind] - 1.0})
    show(
        f"speed: generated, {arguments.rows:,} x {X.shape[1]} {arguments.dtype}; medians of {arguments.repeats}",
        ["work", "seconds", "passes", "times as fast", "passes counted", "excess loss", "goal"],
        [
            [
                r["work"],
                f"{r['seconds']:.2f}",
                f"{r['passes']:.1f}",
                f"{r['ratio']:.1f}",
                "" if r["n_passes"] is None else r["n_passes"],
                f"{r['excess']:.1e}",
                r["target"],
            ]
            for r in rows
        ],
    )
    return {"rows": arguments.rows, "dtype": arguments.dtype, "works": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sets", nargs="+", choices=[name for name, *_ in CASES], help="of `excess`; all by default")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the generated set")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--repeats", type=int, default=3, help="times that each work of `speed` is done")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # fits that stop early are part of what is measured
    work = {"excess": excess, "speed": speed}
    for part in arguments.parts:
        save(f"regression_{part}", {"seeds": arguments.seeds, part: work[part](arguments)})


if __name__ == "__main__":
    main()
