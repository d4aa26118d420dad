"""Logistic regression as a paper compared it: CABLR, ACvS, RDSF and uniform sampling, and tithe beside them.

    python benchmarks/logistic_paper.py --data DIR [--sets covtype w8a ...] [--repetitions 10] [--quick]
    python benchmarks/logistic_paper.py --data DIR --sets ijcnn1 --sweep-b [--percents 1]
    python benchmarks/logistic_paper.py --data DIR --sets ijcnn1 --methods "RDSF ols" "RDSF ols, ln m" "URS, weighted"

Every repetition shuffles the rows, keeps half for training and half for the test, reduces the
training half to each of the paper's sizes and trains scikit-learn's LogisticRegression (defaults
but for C) on the rows and weights left. Rows are scaled as the paper's source of the set has them:
Covertype to [0, 1], ijcnn1 and w8a as they are. The paper does not state C: it is chosen by the line
of all rows alone, before anything is reduced, and the scores of all C that were tried are kept.

Five phases are timed: clustering, sensitivity, regression,
sampling, training. The paper's own figures stand beside ours where it has the set and the size. --sweep-b runs RDSF
with all samples that the paper tried for its regression, from 0.01 to 15 % of the training rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score
from threadpoolctl import threadpool_limits

from common import AS_PUBLISHED, generated, load_labelled, pass_seconds, save, show
from logistic_published import HEADER, PAPER, PERCENTS, SAMPLE_PERCENTS
from tithe import Block, CoresetLogisticRegression, build_coreset
from tithe.constructions import Acvs, Cablr, Regressed
from tithe.core.data import effective_sample_size
from tithe.core.parallel import single_blas_thread
from tithe.core.seeding import rng_for
from tithe.objectives import LogisticObjective
from tithe.rows.arrays import as_block

_clock: Callable[[], float] = perf_counter  # or process_time, with --cpu
PHASES = ("clustering", "sensitivity", "regression", "sampling", "training")
REGRESSORS = ("ols", "ridge", "lasso", "elasticnet")
CLUSTERS = 6
QUICK_ROWS = 40_000
FEWEST = 50  # rows a reduced set has at the least, however small the share asked for
TESTED = 500_000  # rows of the test half that are scored at the most
STRENGTHS = tuple(10.0 ** (power / 2) for power in range(-6, 7))  # C that are tried on all rows
TRIED = 3  # shuffles that they are tried on
ROUNDED = 0.005  # published scores have two digits


@dataclass(frozen=True, kw_only=True)
class Clocked(LogisticObjective):
    """The objective, noting the seconds spent in clustering and in bounding sensitivities."""

    spent: dict[str, float] = field(default_factory=dict, compare=False)

    @contextmanager
    def _noting(self, phase: str) -> Any:
        start = _clock()
        try:
            yield
        finally:
            self.spent[phase] = self.spent.get(phase, 0.0) + _clock() - start

    def clusters(self, *args: Any, **options: Any) -> Any:
        with self._noting("clustering"):
            return super().clusters(*args, **options)

    def default_radius(self, *args: Any, **options: Any) -> float:
        with self._noting("clustering"):
            return super().default_radius(*args, **options)

    def cluster_bound(self, *args: Any, **options: Any) -> Any:
        with self._noting("sensitivity"):
            return super().cluster_bound(*args, **options)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One training half to be reduced."""

    X: Any
    y: np.ndarray
    size: int
    seed: int
    C: float


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A model, the seconds of its phases, and what is known of the rows it was trained on.

    ``effective`` is Kish's effective number of rows, ``mean`` the mean sensitivity times N that they were
    drawn by: what the theorem multiplies the number of rows with.
    """

    model: Any
    spent: dict[str, float]
    effective: float | None = None
    mean: float | None = None


Method = Callable[[Task], Fitted]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = _clock()
    return work(), _clock() - start


def train(C: float, rows: Any, y: np.ndarray, weight: np.ndarray | None = None) -> tuple[LogisticRegression, float]:
    return timed(lambda: LogisticRegression(C=C).fit(rows, y, sample_weight=weight))


def by_construction(construction: Any, b_percent: float | None = None) -> Method:
    """Prepare, reduce and train, each phase with its seconds; checking the rows counts as sampling."""

    def fit(task: Task) -> Fitted:
        objective = Clocked(C=task.C, classes=(0, 1))
        spent = objective.spent
        regressed = isinstance(construction, Regressed)
        n, d = task.X.shape
        chosen = construction
        if regressed:
            # fewer than 2 (d + 1) rows are left to ridge whatever was asked for
            b = max(500, n // 100, 4 * (d + 1)) if b_percent is None else max(2 * CLUSTERS, round(b_percent / 100 * n))
            chosen = replace(construction, sample_size=b)
        with single_blas_thread():
            start = _clock()
            block = as_block(task.X, task.y)
            checked = _clock()
            ready = chosen.prepare(block, objective, rng=rng_for(task.seed, "prepare"))
            prepared = _clock()
            learning = prepared - checked - sum(spent.values())
            rng = rng_for(task.seed, "draw")
            rows = ready.reduce(block, objective, task.size, pilot=None, survey=None, rng=rng)
            total = _clock() - start
        if regressed:
            spent["regression"] = learning
        spent["sampling"] = total - sum(spent.values())
        model, spent["training"] = train(task.C, rows.X, rows.y, rows.sample_weight)
        mean = rows.notes["mean_predicted" if regressed else "mean_sensitivity"]
        return Fitted(model=model, spent=spent, effective=effective_sample_size(rows.sample_weight), mean=mean)

    return fit


def by_uniform(weighted: bool) -> Method:
    def fit(task: Task) -> Fitted:
        n = len(task.y)
        start = _clock()
        chosen = np.sort(np.random.default_rng(task.seed).choice(n, task.size, replace=False))
        rows, y = task.X[chosen], task.y[chosen]
        seconds = _clock() - start
        model, training = train(task.C, rows, y, np.full(task.size, n / task.size) if weighted else None)
        return Fitted(model=model, spent={"sampling": seconds, "training": training}, effective=float(task.size))

    return fit


def by_tithe(task: Task) -> Fitted:
    def build() -> Any:
        return build_coreset(
            task.X,
            task.y,
            objective=LogisticObjective(C=task.C, classes=(0, 1)),
            coreset_size=task.size,
            random_state=task.seed,
        )

    rows, seconds = timed(build)
    model, training = train(task.C, rows.X, rows.y, rows.sample_weight)
    return Fitted(model=model, spent={"sampling": seconds, "training": training}, effective=rows.effective_size)


def by_polish(task: Task) -> Fitted:
    model = CoresetLogisticRegression(task.C, coreset_size=task.size, random_state=task.seed)
    seconds = timed(lambda: model.fit(task.X, task.y))[1]
    return Fitted(model=model, spent={"training": seconds}, effective=model.coreset_.effective_size)


def by_full(task: Task) -> Fitted:
    model, seconds = train(task.C, task.X, task.y)
    return Fitted(model=model, spent={"training": seconds})


def methods(radius: float | str) -> dict[str, Method]:
    bounded = {"n_clusters": CLUSTERS, "radius": radius}
    return {
        "CABLR": by_construction(Cablr(**bounded)),
        "ACvS": by_construction(Acvs(**bounded)),
        "ACvS, as published": by_construction(Acvs(**bounded, certified=False)),
        **{f"RDSF {name}": by_construction(Regressed(**bounded, regressor=name)) for name in REGRESSORS},
        "RDSF ols, ln m": by_construction(Regressed(**bounded, log=True)),
        "RDSF ols, |z|": by_construction(Regressed(**bounded, norm_feature=True)),
        "RDSF ols, ln m, |z|": by_construction(Regressed(**bounded, log=True, norm_feature=True)),
        "URS, weighted": by_uniform(True),
        "URS, unweighted": by_uniform(False),
        "tithe": by_tithe,
        "tithe, polished": by_polish,
    }


def sweep(radius: float | str) -> dict[str, Method]:
    """RDSF for each of the samples that the paper tried, with least squares and with ridge regression."""
    bounded = {"n_clusters": CLUSTERS, "radius": radius}
    compared = {"URS, weighted": by_uniform(True), "ACvS": by_construction(Acvs(**bounded))}
    for percent in SAMPLE_PERCENTS:
        for name in ("ols", "ridge"):
            method = by_construction(Regressed(**bounded, regressor=name), percent)
            compared[f"RDSF {name}, b = {percent:g} %"] = method
    return compared


def measures(model: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    margin = model.decision_function(X)
    said = (margin > 0).astype(np.int32)
    return {
        "accuracy": float(accuracy_score(y, said)),
        "f1": float(f1_score(y, said, zero_division=0.0)),
        "auroc": float(roc_auc_score(y, margin)),
        "aupr": float(average_precision_score(y, margin)),
    }


def loss(C: float, model: Any, block: Block) -> float:
    """The loss on all training rows, penalty included."""
    params = np.column_stack([model.coef_, model.intercept_]).astype(np.float64)
    return LogisticObjective(C=C, classes=(0, 1)).evaluate(block, params).value


def halves(X: Any, y: np.ndarray, seed: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """A shuffle: rows and classes to train on, and those to score."""
    order = np.random.default_rng(seed).permutation(len(y))
    half = len(y) // 2
    tested = order[half : half + TESTED]
    return X[order[:half]], y[order[:half]], X[tested], y[tested]


def chosen_strength(name: str, X: Any, y: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """C by the published line of all rows, and what was tried: of those as near as digits tell, that next to 1."""
    table = next((table for (set_name, _), table in PAPER.items() if set_name == name), None)
    if table is None:
        return 1.0, []
    scores = dict(zip(("f1", "auroc", "accuracy"), map(float, table["Full"][0].split("/")), strict=True))
    tried = []
    for C in STRENGTHS:
        found = []
        for seed in range(TRIED):
            rows, labels, test, truth = halves(X, y, seed)
            found.append(measures(train(C, rows, labels)[0], test, truth))
        means = {key: float(np.mean([one[key] for one in found])) for key in scores}
        tried.append({"C": C, **means, "off": max(abs(means[key] - scores[key]) for key in scores)})
    near = min(one["off"] for one in tried) + ROUNDED
    best = min((one for one in tried if one["off"] <= near), key=lambda one: abs(np.log(one["C"])))
    show(
        f"{name}: C by the line of all rows, published as {table['Full'][0]}",
        ["C", "F1", "AUROC", "accuracy", "largest difference"],
        [[f"{one['C']:g}", *(f"{one[key]:.4f}" for key in (*scores, "off"))] for one in tried],
    )
    return best["C"], tried


def repeat(
    X: Any, y: np.ndarray, percents: tuple[float, ...], seed: int, C: float, compared: dict[str, Method]
) -> list[dict[str, Any]]:
    """One shuffle: every method at every size, and the full fit beside them."""
    rows, labels, test, truth = halves(X, y, seed)
    half, block = len(labels), Block(X=rows, y=labels)

    def one(name: str, percent: float | None, fit: Method, size: int) -> dict[str, Any]:
        units.append(pass_seconds(rows, 7))
        done = fit(Task(X=rows, y=labels, size=size, seed=seed, C=C))
        outcomes = {"method": name, "percent": percent, "size": size, "phases": done.spent}
        outcomes |= {"seconds": sum(done.spent.values()), "effective": done.effective, "mean": done.mean}
        return outcomes | {"loss": loss(C, done.model, block), **measures(done.model, test, truth)}

    units: list[float] = []
    full = one("Full", None, by_full, half)
    outcomes = [full]
    for percent in percents:
        size = max(FEWEST, round(percent / 100 * half))
        outcomes += [one(name, percent, fit, size) for name, fit in compared.items()]
    unit = float(np.median(units))  # of the whole repetition: one pass over a small set is too short to time well
    for each in outcomes:
        excess, speedup = each["loss"] / full["loss"] - 1.0, full["seconds"] / each["seconds"]
        each |= {"excess": excess, "speedup": speedup, "unit": unit}
    return outcomes


def summary(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of the scores and medians of times and losses, over the repetitions of one method at one size."""
    scores = {key: float(np.mean([f[key] for f in outcomes])) for key in ("accuracy", "f1", "auroc", "aupr")}
    scores |= {f"{key}_std": float(np.std([f[key] for f in outcomes])) for key in ("accuracy", "f1", "auroc", "aupr")}
    others = {key: float(np.median([f[key] for f in outcomes])) for key in ("excess", "speedup", "seconds")}
    others["log_speedup_std"] = float(np.std([np.log(f["speedup"]) for f in outcomes]))
    passes = {p: float(np.median([f["phases"].get(p, 0.0) / f["unit"] for f in outcomes])) for p in PHASES}
    others["pass"] = float(np.median([f["seconds"] / f["unit"] for f in outcomes]))
    for key in ("effective", "mean"):
        known = [f[key] for f in outcomes if f[key] is not None]
        others[key] = float(np.median(known)) if known else None
    return {"method": outcomes[0]["method"], "size": outcomes[0]["size"], **scores, **others, "passes": passes}


def report(name: str, percent: float, outcomes: list[dict[str, Any]], shape: str) -> list[dict[str, Any]]:
    """Two tables for one set and one size."""
    mine = [f for f in outcomes if f["percent"] in (None, percent)]
    rows = [summary([f for f in mine if f["method"] == method]) for method in dict.fromkeys(f["method"] for f in mine)]
    paper = PAPER.get((name, percent), {})
    show(
        f"{name}: {shape}, {percent} % = {rows[1]['size']:,} rows kept\n"
        "scores on the test half (means), loss on the training half over that of Full (median of the excess)",
        ["method", "F1", "AUROC", "accuracy", "area PR", "excess loss", "eff. rows", "m-bar", "paper: F1/AUROC/acc."],
        [
            [
                r["method"],
                *(f"{r[key]:.4f}" for key in ("f1", "auroc", "accuracy", "aupr")),
                f"{r['excess']:.2e}",
                *("" if r[key] is None else f"{r[key]:.4g}" for key in ("effective", "mean")),
                paper.get(r["method"], ("", ""))[0],
            ]
            for r in rows
        ],
    )
    show(
        "time in passes (medians); tithe's choosing and calibrating stand under sampling, its polish under training",
        ["method", *PHASES, "total", "seconds", "x", "paper: x"],
        [
            [
                r["method"],
                *(f"{r['passes'][p]:.2f}" if r["passes"][p] else "" for p in PHASES),
                f"{r['pass']:.1f}",
                f"{r['seconds']:.3f}",
                f"{r['speedup']:.3g}",
                paper.get(r["method"], ("", ""))[1],
            ]
            for r in rows
        ],
    )
    return rows


def warm_up(X: Any, y: np.ndarray, compared: dict[str, Method]) -> None:
    """Kernels are compiled, or read from their cache, outside the clock."""
    task = Task(X=X[:20_000], y=y[:20_000], size=2000, seed=0, C=1.0)
    for fit in compared.values():
        loss(1.0, fit(task).model, Block(X=task.X, y=task.y))


def _radius(text: str) -> float | str:
    return text if text in ("auto", "pilot") else float(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    parser.add_argument("--sets", nargs="+", choices=list(PERCENTS), default=list(PERCENTS))
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--generated-repetitions", type=int, default=2)
    parser.add_argument("--rows", type=int, default=5_500_000, help="training rows of the generated set")
    parser.add_argument("--radius", type=_radius, default="auto", help="R of the bounds: a number, auto or pilot")
    parser.add_argument("--percents", nargs="+", type=float, help="sizes to run. [default: the paper's]")
    parser.add_argument("--methods", nargs="+", help="methods to run, by name. [default: all]")
    parser.add_argument("--C", type=float, help="strength of the penalty. [default: by the line of all rows]")
    parser.add_argument("--sweep-b", action="store_true", help="RDSF with every b of the paper, and nothing else")
    parser.add_argument("--quick", action="store_true", help=f"one repetition on {QUICK_ROWS:,} rows of each set")
    parser.add_argument("--cpu", action="store_true", help="seconds of one core, for a busy machine")
    arguments = parser.parse_args()
    global _clock
    _clock = process_time if arguments.cpu else perf_counter
    if arguments.cpu:
        threadpool_limits(1)  # threads of BLAS that wait for one another would count as work
    warnings.simplefilter("ignore")  # a hundred iterations are the default, and their end is not news here
    print(HEADER)
    compared = sweep(arguments.radius) if arguments.sweep_b else methods(arguments.radius)
    unknown = set(arguments.methods or ()) - set(compared)
    if unknown:
        parser.error(f"no method {min(unknown)!r}; there are: {', '.join(compared)}")
    compared = {name: method for name, method in compared.items() if name in (arguments.methods or compared)}
    about = {"clusters": CLUSTERS, "radius": arguments.radius, "cpu": arguments.cpu}
    kind = ("_sweep_b" if arguments.sweep_b else "") + ("_quick" if arguments.quick else "")
    kind += "" if arguments.radius == "auto" else f"_radius_{arguments.radius}".replace(".", "_")
    for name in arguments.sets:
        made = name == "generated"
        repetitions = min(arguments.repetitions, arguments.generated_repetitions if made else arguments.repetitions)
        if made:
            X, y = generated(QUICK_ROWS if arguments.quick else 2 * arguments.rows)
        else:
            X, y = load_labelled(arguments.data, name, AS_PUBLISHED.get(name))
        if arguments.quick:
            repetitions = 1
            some = np.random.default_rng(0).permutation(len(y))[:QUICK_ROWS]
            X, y = X[some], y[some]
        warm_up(X, y, compared)
        percents = tuple(arguments.percents or PERCENTS[name])
        C, tried = (arguments.C, []) if arguments.C else chosen_strength(name, X, y)
        outcomes = [each for seed in range(repetitions) for each in repeat(X, y, percents, seed, C, compared)]
        shape = f"{len(y) // 2:,} x {X.shape[1]} {X.dtype} for training, C = {C:g}, repetitions: {repetitions}"
        tables = {str(percent): report(name, percent, outcomes, shape) for percent in percents}
        save(
            f"logistic_paper{kind}_{name}",
            {**about, "C": C, "tried": tried, "repetitions": repetitions, "tables": tables},
        )


if __name__ == "__main__":
    main()
