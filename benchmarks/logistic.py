"""What a coreset does for logistic regression: speed, excess loss, transfer to other fits, polish.

    python benchmarks/logistic.py --data DIR [--seeds 20] [--parts speed excess transfer polish]

speed     passes of building and fitting on a generated set, beside scikit-learn in the same run
excess    relative excess loss on all rows of what is fitted on a coreset alone, beside weighted uniform sampling
transfer  the same coreset for other strengths of the penalty, and for a linear support vector machine
polish    excess loss by round, against passes, and scores on rows that were not trained on

Excess is loss / smallest loss - 1 on all rows, penalty included. Time is in passes: of one X @ v on
the same rows in the same process.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from sklearn.svm import LinearSVC

from common import generated, load_labelled, pass_seconds, save, show, timed, two_class_sets
from tithe import Block, Coreset, CoresetLogisticRegression, build_coreset
from tithe.constructions import Acvs
from tithe.objectives import LogisticObjective

LOGISTIC = LogisticObjective(classes=(0, 1))
RNG = np.random.default_rng(0)  # `solve` asks for one and draws nothing from it
PARTS = ("speed", "excess", "transfer", "polish")
STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2)

# set, share kept, and the excess over that of weighted uniform sampling that is aimed at
CASES: list[tuple[str, float, float]] = [
    ("covtype", 0.01, 1 / 20),
    ("higgs_subset", 0.03, 1 / 20),
    ("skin_nonskin", 0.005, 1 / 20),
    ("a9a", 0.10, 1 / 4),
    ("w8a", 0.10, 1 / 2),
    ("w8a", 0.01, 1.0),
]
FURTHER, FEWEST = (0.03, 0.10), 200  # shares of all other sets, and rows below which a size is left out
PROVEN = CASES[:4]  # those that transfer is measured on
CURVES = CASES[:5]

UNIFORM, DEFAULT = "uniform", "default"
CORESETS: dict[str, dict[str, Any]] = {
    UNIFORM: {"construction": "uniform", "calibrate": False},
    "uniform, calibrated": {"construction": "uniform"},
    "leverage, calibrated": {"construction": "leverage"},
    "influence": {"construction": "influence", "calibrate": False},
    DEFAULT: {},
}


def loss(block: Block, params: np.ndarray, C: float = 1.0) -> float:
    return LogisticObjective(C=C, classes=(0, 1)).evaluate(block, params).value


def params_of(model: Any) -> np.ndarray:
    return np.column_stack([model.coef_, model.intercept_]).astype(np.float64)


def solve(block: Block, C: float = 1.0, init: np.ndarray | None = None) -> np.ndarray:
    return LogisticObjective(C=C, classes=(0, 1)).solve(block, rng=RNG, init=init)


def coreset_of(block: Block, size: int | float, seed: int, kind: str) -> Coreset:
    options = CORESETS[kind]
    return build_coreset(block.X, block.y, objective=LOGISTIC, coreset_size=size, random_state=seed, **options)


# -- speed -------------------------------------------------------------------------------------


def speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every work three times by turns, so that a busy moment of the machine is shared by all."""
    X, y = generated(arguments.rows)
    size = arguments.build_size

    def fitted(tol: float) -> Callable[[Any, Any, int], Any]:
        return lambda X, y, seed: CoresetLogisticRegression(tol=tol, random_state=seed).fit(X, y)

    def built(construction: Any) -> Callable[[Any, Any, int], Any]:
        options = {"objective": "logistic", "construction": construction, "coreset_size": size, "calibrate": False}
        return lambda X, y, seed: build_coreset(X, y, random_state=seed, **options)

    works: dict[str, tuple[Callable[[Any, Any, int], Any], str]] = {
        "LogisticRegression, full": (lambda X, y, seed: LogisticRegression().fit(X, y), ""),
        "build, RDSF": (built("rdsf"), "passes <= 6"),
        "build, ACvS, k = 6": (built(Acvs(n_clusters=6)), "passes <= 12"),
        "fit, tol = 1e-3": (fitted(1e-3), "ratio >= 15, excess <= 1e-3"),
        "fit, tol = 1e-6": (fitted(1e-6), "ratio >= 6, excess <= 1e-6"),
    }
    for work, _ in works.values():
        work(X[:200_000], y[:200_000], 0)
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    models: dict[str, Any] = {}
    for seed in range(3):
        for name, (work, _) in works.items():
            unit = pass_seconds(X, 7)
            models[name], seconds = timed(lambda work=work, seed=seed: work(X, y, seed))
            results[name].append((seconds, seconds / unit))
    block = Block(X=X, y=y.astype(np.int32))
    fits = {name: params_of(model) for name, model in models.items() if hasattr(model, "coef_")}
    losses = {name: loss(block, params) for name, params in fits.items()}
    best = min(*losses.values(), loss(block, solve(block, init=fits[min(losses, key=losses.__getitem__)])))
    full = float(np.median([seconds for seconds, _ in results["LogisticRegression, full"]]))
    rows = []
    for name, (_, target) in works.items():
        seconds, passes = (float(v) for v in np.median(results[name], axis=0))
        excess = losses[name] / best - 1.0 if name in losses else None
        looks = getattr(models[name], "n_passes_", None)
        row = {"work": name, "seconds": seconds, "passes": passes, "ratio": full / seconds, "excess": excess}
        rows.append(row | {"looks": looks, "target": target, "runs": results[name]})
    show(
        f"speed: generated, {arguments.rows:,} x {X.shape[1]} float32; builds keep {size:,} rows; medians of 3",
        ["work", "seconds", "passes", "times as fast as full", "looks", "excess loss", "target"],
        [
            [
                r["work"],
                f"{r['seconds']:.2f}",
                f"{r['passes']:.1f}",
                f"{r['ratio']:.1f}",
                "" if r["looks"] is None else r["looks"],
                "" if r["excess"] is None else f"{r['excess']:.1e}",
                r["target"],
            ]
            for r in rows
        ],
    )
    return {"rows": arguments.rows, "build_size": size, "works": rows}


# -- excess ------------------------------------------------------------------------------------


def all_cases(folder: Path) -> list[tuple[str, float, float]]:
    """The cases with a target, and every other set of two classes, where nothing should be lost."""
    named = {name for name, _, _ in CASES}
    further = [(name, share, 1.0) for name in two_class_sets(folder) if name not in named for share in FURTHER]
    return [*CASES, *further]


def excess(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Medians over the seeds, as they come out of the coreset: no step on all rows is taken."""
    rows = []
    for name, share, target in all_cases(arguments.data):
        block = Block(**dict(zip(("X", "y"), load_labelled(arguments.data, name), strict=True)))
        size = round(share * len(block))
        if size < FEWEST:
            continue
        best = loss(block, solve(block))
        results = {
            kind: [loss(block, solve(coreset_of(block, size, s, kind))) / best - 1.0 for s in range(arguments.seeds)]
            for kind in CORESETS
        }
        middle = {kind: float(np.median(values)) for kind, values in results.items()}
        worst = {kind: float(np.max(values)) for kind, values in results.items()}
        row = {"set": name, "share": share, "size": size, "target": target, "median": middle, "worst": worst}
        rows.append(row | {"seeds": results})
        print(f"  {name} {share:.1%}: {middle[DEFAULT] / middle[UNIFORM]:.3g} of uniform", flush=True)
    others = [kind for kind in CORESETS if kind != UNIFORM]
    show(
        f"excess loss without polish: medians of {arguments.seeds} seeds; all but 'uniform' as 1/x of uniform's "
        "(below 1/1: worse than uniform)",
        ["set", "rows", "uniform", *others, "target", "met", "worst seed: uniform", "worst seed: default"],
        [
            [
                f"{r['set']} {r['share']:.1%}",
                r["size"],
                f"{r['median'][UNIFORM]:.2e}",
                *(f"1/{r['median'][UNIFORM] / max(r['median'][kind], 1e-15):.3g}" for kind in others),
                f"1/{1 / r['target']:.3g}",
                "yes" if r["median"][DEFAULT] <= r["target"] * r["median"][UNIFORM] else "NO",
                f"{r['worst'][UNIFORM]:.2e}",
                f"{r['worst'][DEFAULT]:.2e}",
            ]
            for r in rows
        ],
    )
    return rows


# -- transfer ----------------------------------------------------------------------------------


def machine(block: Block) -> LinearSVC:
    """A linear support vector machine with squared hinge, on the weighted rows."""
    model = LinearSVC(C=1.0, dual=False, tol=1e-7, max_iter=20_000)
    return model.fit(block.X, block.y, sample_weight=block.sample_weight)


def machine_loss(block: Block, model: LinearSVC) -> float:
    """What LinearSVC minimises: its intercept is penalised as well."""
    slack = np.maximum(0.0, 1.0 - (2.0 * block.y - 1.0) * model.decision_function(block.X))
    return float(slack @ slack + 0.5 * np.sum(model.coef_**2) + 0.5 * np.sum(model.intercept_**2))


def transfer(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """How many times smaller the excess is than with uniform sampling, when the coreset is used for another fit."""
    columns = [*(f"C = {C:g}" for C in STRENGTHS), "squared hinge"]
    rows = []
    for name, share, _ in PROVEN:
        block = Block(**dict(zip(("X", "y"), load_labelled(arguments.data, name), strict=True)))
        best = [loss(block, solve(block, C), C) for C in STRENGTHS] + [machine_loss(block, machine(block))]
        results: dict[str, list[list[float]]] = {UNIFORM: [], DEFAULT: []}
        for kind, values in results.items():
            for seed in range(arguments.seeds):
                small = coreset_of(block, share, seed, kind)
                losses = [loss(block, solve(small, C), C) for C in STRENGTHS] + [machine_loss(block, machine(small))]
                values.append([one / least - 1.0 for one, least in zip(losses, best, strict=True)])
        middle = {kind: np.median(values, axis=0) for kind, values in results.items()}
        gain = middle[UNIFORM] / np.maximum(middle[DEFAULT], 1e-15)
        kept = gain / gain[STRENGTHS.index(1.0)]
        row = {"set": name, "share": share, "uniform": middle[UNIFORM].tolist(), "default": middle[DEFAULT].tolist()}
        rows.append(row | {"gain": gain.tolist(), "kept": kept.tolist(), "fits": columns})
    show(
        f"transfer: excess of uniform / excess of the default, from one coreset made for C = 1; {arguments.seeds} seeds"
        "\n(in brackets the share of the gain at C = 1 that remains; target: at least 0.33)",
        ["set", *columns],
        [
            [f"{r['set']} {r['share']:.1%}", *(f"{g:.3g} ({k:.2f})" for g, k in zip(r["gain"], r["kept"], strict=True))]
            for r in rows
        ],
    )
    return rows


# -- polish ------------------------------------------------------------------------------------


def scores(model: Any, X: Any, y: np.ndarray) -> np.ndarray:
    margin = model.decision_function(X)
    said = (margin > 0).astype(np.int32)
    return np.array([accuracy_score(y, said), f1_score(y, said), roc_auc_score(y, margin)])


def held_out(arguments: argparse.Namespace) -> dict[str, Any]:
    """Covertype, half for training and 1 % of that kept: the polished fit beside the full one."""
    X, y = load_labelled(arguments.data, "covtype")
    differences, gaps, full = [], [], []
    for seed in range(min(arguments.seeds, 10)):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[: len(y) // 2], order[len(y) // 2 :]
        block = Block(X=X[train], y=y[train])
        whole = LogisticRegression().fit(block.X, block.y)
        model = CoresetLogisticRegression(coreset_size=0.01, random_state=seed).fit(block.X, block.y)
        full.append(scores(whole, X[test], y[test]))
        differences.append(scores(model, X[test], y[test]) - full[-1])
        gaps.append(loss(block, params_of(model)) / loss(block, solve(block, init=params_of(whole))) - 1.0)
    mean, middle, most = np.mean(full, axis=0), np.median(differences, axis=0), np.abs(differences).max(axis=0)
    names = ("accuracy", "F1", "AUROC")
    rows = [
        [n, f"{a:.4f}", f"{b:+.5f}", f"{c:.5f}", "0.002"] for n, a, b, c in zip(names, mean, middle, most, strict=True)
    ]
    rows.append(["excess loss", "", f"{np.median(gaps):.1e}", f"{max(gaps):.1e}", "1e-3"])
    show(
        f"polish: covtype, half for training, 1 % of it kept, {len(gaps)} splits; polished fit less full fit",
        ["on the other half", "full fit", "median", "largest", "target"],
        rows,
    )
    return {"full": mean.tolist(), "differences": [d.tolist() for d in differences], "excess": gaps}


def curve(block: Block, share: float, seeds: int) -> list[dict[str, Any]]:
    """Excess loss by round, of three ways to the same minimum."""
    start = params_of(CoresetLogisticRegression(coreset_size=share, tol=1e-9, random_state=0).fit(block.X, block.y))
    best = loss(block, solve(block, init=start))
    plain = {"construction": "uniform", "calibrate": False}

    def polished(rounds: int, seed: int, **options: Any) -> Any:
        model = CoresetLogisticRegression(coreset_size=share, polish=rounds, random_state=seed, **options)
        return model.fit(block.X, block.y)

    ways: dict[str, tuple[tuple[int, ...], int, Callable[[int, int], Any]]] = {
        "scikit-learn": ((2, 5, 10, 20, 40, 80), 1, lambda r, s: LogisticRegression(max_iter=r).fit(block.X, block.y)),
        "tithe": ((0, 1, 2, 4, 6, 8), seeds, polished),
        "uniform, polished": ((0, 1, 2, 4, 6, 8), seeds, lambda r, s: polished(r, s, **plain)),
    }
    rows, units = [], []
    for way, (steps, repeats, fit) in ways.items():
        for rounds in steps:
            runs = []
            for seed in range(repeats):
                units.append(pass_seconds(block.X, 7))
                model, seconds = timed(lambda fit=fit, rounds=rounds, seed=seed: fit(rounds, seed))
                looks = getattr(model, "n_passes_", np.nan)  # scikit-learn does not count them
                runs.append((loss(block, params_of(model)) / best - 1.0, seconds, looks))
            results = [float(v) for v in np.median(runs, axis=0)]
            rows.append(
                {"way": way, "rounds": rounds} | dict(zip(("excess", "seconds", "looks"), results, strict=True))
            )
    unit = float(np.median(units))  # one pass over a small set is too short to time well
    for row in rows:
        row |= {"passes": row["seconds"] / unit, "looks": None if np.isnan(row["looks"]) else round(row["looks"])}
    return rows


def polish(arguments: argparse.Namespace) -> dict[str, Any]:
    curves = {}
    for name, share, _ in CURVES:
        block = Block(**dict(zip(("X", "y"), load_labelled(arguments.data, name), strict=True)))
        curves[name] = rows = curve(block, share, min(arguments.seeds, 5))
        show(
            f"polish: {name}, {share:.1%} kept; excess loss against passes (scikit-learn: by max_iter)",
            ["way", "rounds", "looks", "passes", "seconds", "excess loss"],
            [
                [
                    r["way"],
                    r["rounds"],
                    "" if r["looks"] is None else r["looks"],
                    f"{r['passes']:.0f}",
                    f"{r['seconds']:.3f}",
                    f"{r['excess']:.1e}",
                ]
                for r in rows
            ],
        )
    return {"covtype": held_out(arguments), "curves": curves}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=5_500_000, help="rows of the generated set")
    parser.add_argument("--build-size", type=int, default=5500, help="rows that the builds of `speed` keep")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # fits that stop early are part of what is measured
    work = {"speed": speed, "excess": excess, "transfer": transfer, "polish": polish}
    for part in arguments.parts:
        save(f"logistic_{part}", {"seeds": arguments.seeds, part: work[part](arguments)})


if __name__ == "__main__":
    main()
