"""How often a coreset of the size that `propose_size` gives errs by more than it was asked to.

    python benchmarks/sizes.py --data DIR [--sets a9a ...] [--objectives logistic ...] [--seeds 3] [--rows 40000]
                              [--promise costs]

For each set, objective and eps a size is proposed, and coresets of that size are built. The largest relative error
|cost on the coreset / cost on all rows - 1| is taken over queries that know neither the coreset nor the queries that
the proposal was measured on. Those of the kinds that `propose_size` tries as well ("like"):

subset    solutions on random subsets of all rows, from tiny ones to a fifth
strength  solutions on all rows with other strengths of the penalty (linear models), or numbers of centres (clusters)
scaled    these ten times as large, and a tenth
zero      all parameters zero
far       parameters that point at one row far from the others
random    random directions (linear models), or random rows as centres (clusters)

Those of kinds that it does not try ("other"):

foreign   solutions of another objective: least squares and the other loss (linear models), medians for means
sparse    all but some coefficients of a solution zero, and single columns (linear models), single centres (clusters)
rare      two standard deviations of a single column: hundreds for the one row of a rare one; a centre far off
scaled    solutions times -1, 0.5, 2, 3 and 30, and between two of them
part      solutions on the rows of the largest values of one column, and on the first tenth of all

A trial is one coreset; it is violated where that error is above eps.

With --promise fit, the default, the error is the excess loss, on all rows and penalty included, of a solution fitted on
a fresh coreset: over that of a solution on all rows, and for clusters over the minimum nearby or the worst of five
searches on all rows, whichever is less. Labels count as numbers for least squares and Huber's loss. Sets are all with
two classes; those named above for --promise costs.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import Ridge

from common import load_labelled, save, show, timed, two_class_sets
from tithe import Block, build_coreset, propose_size
from tithe.objectives import (
    HuberObjective,
    KMeansObjective,
    KMedianObjective,
    LeastSquaresObjective,
    LogisticObjective,
    MarginObjective,
)

SETS = ("a9a", "covtype", "electricity", "german", "higgs_subset", "kdd_http", "phishing", "skin_nonskin", "spambase")
EPS = (0.2, 0.1, 0.05)
FIT_EPS = (0.05, 0.01)
STRENGTHS = (1e-3, 1e-2, 0.1, 10.0, 100.0, 1000.0)
FAR_ROWS, RANDOM = 3, 6
OBJECTIVES: dict[str, Any] = {
    "kmeans": KMeansObjective(n_clusters=10),
    "kmedian": KMedianObjective(n_clusters=10),
    "logistic": LogisticObjective(classes=(0, 1)),
    "margin": MarginObjective(classes=(0, 1)),
    "least_squares": LeastSquaresObjective(),
    "huber": HuberObjective(),
}
LINEAR = ("logistic", "margin", "least_squares", "huber")
SEARCHES = 5  # on all rows, for clusters


def some_rows(block: Block, size: int, rng: np.random.Generator) -> Block:
    """Random rows, of both classes where there are classes."""
    order = rng.permutation(len(block))
    chosen = order[:size]
    if block.y is not None and len(np.unique(block.y[chosen])) < 2:
        missing = np.flatnonzero(block.y != block.y[chosen[0]])
        chosen = np.append(chosen, rng.choice(missing, min(3, len(missing)), replace=False))
    return block.take(np.sort(chosen))


def dense(rows: Any) -> np.ndarray:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)


def far_rows(block: Block, rng: np.random.Generator) -> tuple[np.ndarray, Block]:
    """Positions of the rows with the largest norms among 20,000 rows, and of another far one; and these rows."""
    some = block.take(np.sort(rng.permutation(len(block))[:20_000]))
    norms = np.asarray(some.X.multiply(some.X).sum(axis=1) if sparse.issparse(some.X) else (some.X**2).sum(axis=1))
    order = np.argsort(-norms.ravel())
    return np.append(order[: FAR_ROWS - 1], rng.choice(order[:100])), some


def linear_queries(block: Block, objective: Any, rng: np.random.Generator) -> list[np.ndarray]:
    """Parameters (1, d + 1) of a linear model of two classes."""
    d = block.X.shape[1]
    at_hand = some_rows(block, 20_000, rng)
    subsets = [objective.solve(some_rows(block, size, rng), rng=rng) for size in (20, 60, 2 * d, 1000, len(block) // 5)]
    name = "C" if isinstance(objective, LogisticObjective) else "lam"
    base = getattr(objective, name)
    strengths = [replace(objective, **{name: s * base}).solve(at_hand, rng=rng) for s in STRENGTHS]
    full = objective.solve(block, rng=rng)
    queries = [full, *subsets, *strengths, 10.0 * full, 0.1 * full, *(10.0 * q for q in subsets[1:3]), 0.0 * full]
    order, some = far_rows(block, rng)
    for i in order:
        row = dense(some.X[i : i + 1])[0]
        along = row / max(float(row @ row), 1e-12)
        queries += [scale * np.append(along, 0.0)[None] for scale in (3.0, -3.0)]
        queries.append(full - 5.0 * (2 * some.y[i] - 1) * np.append(along, 0.0)[None])
    X = at_hand.X
    scale = np.sqrt((X.multiply(X) if sparse.issparse(X) else X * X).sum() / X.shape[0])
    for spread in (0.3, 1.0, 3.0):
        queries += [np.append(rng.normal(size=d) * (spread / scale), 0.0)[None] for _ in range(RANDOM // 3)]
    return queries


def centre_queries(block: Block, objective: Any, rng: np.random.Generator) -> list[np.ndarray]:
    """Centres (k, d)."""
    k = objective.n_clusters
    full = objective.solve(some_rows(block, 20_000, rng), rng=rng)
    subsets = [objective.solve(some_rows(block, size, rng), rng=rng) for size in (k + 2, 5 * k, 1000)]
    other = [replace(objective, n_clusters=n).solve(some_rows(block, 5000, rng), rng=rng) for n in (1, 3, k - 2)]
    queries = [full, *subsets, *other, 10.0 * full, 0.1 * full, 0.0 * full]
    order, some = far_rows(block, rng)
    queries += [np.repeat(dense(some.X[i : i + 1]), k, axis=0) + 1e-3 * rng.normal(size=full.shape) for i in order]
    queries += [dense(some_rows(block, k, rng).X)[:k] for _ in range(RANDOM)]
    return queries


def other_linear_queries(block: Block, objective: Any, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """Parameters (1, d + 1) of kinds that `propose_size` does not try."""
    some = some_rows(block, 20_000, rng)
    X, d = dense(some.X), block.X.shape[1]
    full = objective.solve(some, rng=rng)
    foreign = MarginObjective if isinstance(objective, LogisticObjective) else LogisticObjective
    ridge = Ridge(alpha=1.0).fit(X, 2.0 * some.y - 1.0)
    order = np.argsort(-np.abs(full[0, :-1]) * X.std(axis=0))
    sparse_ones = [np.where(np.isin(np.arange(d + 1), [*order[:n], d]), full, 0.0) for n in (1, 3, max(4, d // 4))]
    rare = []
    for column in rng.choice(d, min(d, 4), replace=False):
        unit, sign = np.eye(1, d + 1, column), rng.choice([-2.0, 2.0])
        root = np.sqrt(np.mean(X[X[:, column] != 0.0, column] ** 2)) if X[:, column].any() else np.inf
        sparse_ones.append(sign / root * unit)
        rare.append(sign / max(X[:, column].std(), 1e-12) * unit)
    sparse_ones.append(np.append(np.zeros(d), 1.0)[None])
    small = objective.solve(some_rows(block, 3 * d, rng), rng=rng)
    return {
        "foreign": [
            foreign(classes=(0, 1)).solve(some, rng=rng),
            np.append(ridge.coef_, ridge.intercept_)[None],
            3.0 * np.append(ridge.coef_, ridge.intercept_)[None],
        ],
        "sparse": sparse_ones,
        "rare": rare,
        "scaled": [
            *(factor * full for factor in (-1.0, 0.5, 2.0, 3.0, 30.0)),
            0.5 * (full + small),
            2.0 * full - small,
        ],
        "part": [objective.solve(rows, rng=rng) for rows in parts_of(some, X, rng)],
    }


def parts_of(some: Block, X: np.ndarray, rng: np.random.Generator) -> list[Block]:
    """The first tenth of the rows, and those of the largest values of two columns; with both classes, if any."""
    tenth = len(some) // 10
    chosen = [np.arange(tenth)]
    chosen += [np.sort(np.argsort(X[:, column])[-tenth:]) for column in rng.choice(X.shape[1], 2, replace=False)]
    parts = [some.take(rows) for rows in chosen]
    return [part for part in parts if part.y is None or len(np.unique(part.y)) == 2]


def other_centre_queries(block: Block, objective: Any, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """Centres (k, d) of kinds that `propose_size` does not try."""
    some = some_rows(block, 5000, rng)
    full = objective.solve(some, rng=rng)
    foreign = KMedianObjective if isinstance(objective, KMeansObjective) else KMeansObjective
    mean, spread = dense(some.X).mean(axis=0), dense(some.X).std(axis=0)
    one_far = full.copy()
    one_far[0] = mean + 30.0 * spread
    return {
        "foreign": [foreign(n_clusters=objective.n_clusters).solve(some, rng=rng), mean[None]],
        "sparse": [full[i : i + 1] for i in range(3)],
        "rare": [one_far],
        "scaled": [*(factor * full for factor in (-1.0, 0.5, 2.0, 3.0, 30.0)), 0.5 * (full + mean)],
        "part": [objective.solve(rows, rng=rng) for rows in parts_of(some, dense(some.X), rng)],
    }


def costs(block: Block, objective: Any, queries: list[np.ndarray]) -> np.ndarray:
    return np.array([float(objective.cost(block, q) @ block.weights()) for q in queries])


def rows_of(folder: Path, name: str, labelled: bool, most: int) -> Block:
    X, y = load_labelled(folder, name)
    keep = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
    if not labelled and sparse.issparse(X):
        return Block(X=X[keep])
    return Block(X=X[keep], y=y[keep] if labelled else None)


def trials(block: Block, name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each eps: the size, and the largest error of each coreset by kind of queries."""
    objective, rng = OBJECTIVES[name], np.random.default_rng(12345)
    clusters = hasattr(objective, "n_clusters")
    queries = {"like": (centre_queries if clusters else linear_queries)(block, objective, rng)}
    queries |= (other_centre_queries if clusters else other_linear_queries)(block, objective, rng)
    full = {kind: costs(block, objective, some) for kind, some in queries.items()}
    sound = {
        kind: values > 1e-9 * values.max() for kind, values in full.items()
    }  # a cost of nothing has no relative error
    rows = []
    for eps in EPS:
        (size, said), seconds = timed(
            lambda eps=eps: propose_size(
                block.X, block.y, objective=objective, eps=eps, promise="costs", random_state=0
            )
        )
        worst: dict[str, list[float]] = {kind: [] for kind in queries}
        for seed in range(arguments.seeds if size < len(block) else 0):
            coreset = build_coreset(block.X, block.y, objective=objective, coreset_size=size, random_state=1000 + seed)
            own = [objective.solve(coreset, rng=rng)]
            for kind, some in queries.items():
                error = np.abs(costs(coreset, objective, some) / full[kind] - 1.0)[sound[kind]].max(initial=0.0)
                worst[kind].append(float(error))
            error = np.abs(costs(coreset, objective, own) / costs(block, objective, own) - 1.0).max()
            worst["like"][-1] = max(worst["like"][-1], float(error))
        rows.append(
            {"eps": eps, "size": size, "said": said, "coresets": len(worst["like"]), "worst": worst, "s": seconds}
        )
    return rows


def value_of(block: Block, objective: Any, params: np.ndarray) -> float:
    """The loss on all rows, penalty included."""
    if objective.name in ("kmeans", "kmedian"):
        return float(costs(block, objective, [params])[0])
    return float(objective.evaluate(block, params).value)


def fits(block: Block, name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each eps: the size for a fit, and the excess loss of fits on fresh coresets of that size."""
    objective, rows = OBJECTIVES[name], []
    rngs = [np.random.default_rng([12345, i]) for i in range(1 if name in LINEAR else SEARCHES)]
    full = [value_of(block, objective, objective.solve(block, rng=rng)) for rng in rngs]
    for eps in FIT_EPS:
        options = {"objective": objective, "eps": eps, "random_state": 0}
        (size, said), seconds = timed(lambda options=options: propose_size(block.X, block.y, **options))
        excess, over_best = [], []
        for seed in range(arguments.seeds if size < len(block) else 0):
            rng = np.random.default_rng([54321, seed])
            coreset = build_coreset(block.X, block.y, objective=objective, coreset_size=size, random_state=1000 + seed)
            own = objective.solve(coreset, rng=rng)
            value, near = value_of(block, objective, own), max(full)
            if name not in LINEAR:
                near = min(near, value_of(block, objective, objective.solve(block, rng=rng, init=own)))
            excess.append(value / near - 1.0)
            over_best.append(value / min(full) - 1.0)
        rows.append(
            {
                "eps": eps,
                "size": size,
                "share": size / len(block),
                "said": said,
                "draws": len(excess),
                "above eps": sum(e > eps for e in excess),
                "above limit": sum(e > said for e in excess),
                "median": float(np.median(excess)) if excess else 0.0,
                "largest": max(excess, default=0.0),
                "above eps over the best of all rows": sum(e > eps for e in over_best),
                "s": seconds,
            }
        )
        print("  ", name, len(block), rows[-1], flush=True)
    return rows


def summary_of_fits(results: list[dict[str, Any]]) -> dict[str, Any]:
    """All proposals of all rows, and shares of draws above eps and above the limit, in all and in the worst set."""
    draws = {name: sum(r["draws"] for r in results if r["set"] == name) for name in {r["set"] for r in results}}
    shares: dict[str, Any] = {}
    for kind in ("above eps", "above limit"):
        bad = {name: sum(r[kind] for r in results if r["set"] == name) for name in draws}
        worst = max(draws, key=lambda name: bad[name] / max(draws[name], 1))
        shares[kind] = sum(bad.values()) / max(sum(draws.values()), 1)
        shares[f"{kind}, worst set"] = bad[worst] / max(draws[worst], 1)
        print(f"fits {kind}: {shares[kind]:.2%}; most in {worst}: {bad[worst]} of {draws[worst]}")
    shares["questions"], shares["all rows"] = len(results), sum(r["draws"] == 0 for r in results)
    print(f"all rows: {shares['all rows']} of {len(results)} questions")
    return shares


def show_fits(results: list[dict[str, Any]]) -> None:
    """Coresets on which a fit costs more than 1 + eps times one on all rows."""
    columns = ["set", "objective", "rows", *(c for c in results[0] if c not in ("set", "objective", "rows"))]
    show("sizes for fits, and fresh draws", columns, [[r[c] for c in columns] for r in results])


def errors_of(cells: list[dict[str, Any]], kinds: list[str]) -> np.ndarray:
    """The largest error of each coreset over queries of these kinds, in units of eps."""
    return np.array([max(r["worst"][k][i] for k in kinds) / r["eps"] for r in cells for i in range(r["coresets"])])


def show_violations(results: list[dict[str, Any]], objectives: list[str]) -> None:
    """Coresets that err by more than eps: by objective and eps, and by kind of queries.

    A proposal to keep all rows is counted apart: it cannot be violated.
    """
    kinds = list(results[0]["worst"])
    for title, some in {"like": ["like"], "other": kinds[1:]}.items():
        table = []
        for name in objectives:
            for eps in EPS:
                cells = [r for r in results if r["objective"] == name and r["eps"] == eps]
                errors = errors_of(cells, some)
                whole, size = sum(r["coresets"] == 0 for r in cells), float(np.median([r["size"] for r in cells]))
                middle = float(np.median(errors)) if len(errors) else 0.0
                bad = int((errors > 1.0).sum())
                table.append(
                    [name, eps, len(cells), whole, len(errors), bad, middle, float(errors.max(initial=0.0)), size]
                )
        n, bad = sum(row[4] for row in table), sum(row[5] for row in table)
        columns = [
            "objective",
            "eps",
            "sets",
            "all rows",
            "coresets",
            "violated",
            "median error / eps",
            "largest",
            "median size",
        ]
        show(
            f"sizes, queries {title!r}: {bad} of {n} coresets err by more than eps ({bad / max(n, 1):.1%})",
            columns,
            table,
        )
    every = {
        kind: [errors_of([r for r in results if r["objective"] == name], [kind]) for name in objectives]
        for kind in kinds
    }
    table = [[kind, *(f"{(e > 1.0).sum()} of {len(e)}" for e in errors)] for kind, errors in every.items()]
    show("coresets violated by kind of queries", ["queries", *objectives], table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    parser.add_argument("--sets", nargs="+", help="by default all with two classes")
    parser.add_argument("--objectives", nargs="+", choices=list(OBJECTIVES), default=list(OBJECTIVES))
    parser.add_argument("--seeds", type=int, default=20, help="coresets of each size")
    parser.add_argument("--rows", type=int, default=40_000, help="rows of a set that are used, at the most")
    parser.add_argument("--promise", choices=["fit", "costs"], default="fit")
    parser.add_argument("--output", default="sizes", help="name of the JSON file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # fits that stop early give queries as good as any
    results = []
    usual = SETS if arguments.promise == "costs" else ["covtype", *two_class_sets(arguments.data)]
    for set_name in arguments.sets or usual:
        for name in arguments.objectives:
            labelled = name in LINEAR
            block = rows_of(arguments.data, set_name, labelled, arguments.rows)
            if arguments.promise == "fit":
                about = {"set": set_name, "objective": name, "rows": len(block)}
                results += [about | row for row in fits(block, name, arguments)]
                continue
            for row in trials(block, name, arguments):
                results.append({"set": set_name, "objective": name, "rows": len(block), **row})
                worst = {kind: round(max(errors, default=0.0) / row["eps"], 2) for kind, errors in row["worst"].items()}
                print(
                    f"  {set_name} {name} eps {row['eps']}: {row['size']} rows, {row['s']:.1f} s, {worst}", flush=True
                )
    about: dict[str, Any] = {"seeds": arguments.seeds, "rows": arguments.rows}
    if arguments.promise == "fit":
        show_fits(results)
        about["summary"] = summary_of_fits(results)
    else:
        show_violations(results, arguments.objectives)
    save(arguments.output, {**about, "trials": results})


if __name__ == "__main__":
    main()
