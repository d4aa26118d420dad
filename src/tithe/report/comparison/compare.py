"""`compare`: what fits on few rows cost, beside a fit on all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tithe.certify.gap import ConvexObjective
from tithe.clustering.objective import ClusteringObjective
from tithe.core.contracts import Construction, Objective
from tithe.core.params import (
    CORESET_SIZE,
    POLISH,
    Boolean,
    Instance,
    OneOf,
    RealNumber,
    WholeNumber,
    check_value,
    resolve_size,
)
from tithe.core.registry import make
from tithe.core.seeding import as_seed
from tithe.reduce.generic import GenericObjective
from tithe.report.comparison.quality import Judge, quality_of
from tithe.report.comparison.recommend import recommend
from tithe.report.comparison.result import PHASES, Comparison
from tithe.report.comparison.rows import ComparedRows, compared_rows
from tithe.report.comparison.runs import Run, Runner, methods_of

USUAL_SIZES = (0.001, 0.01, 0.05)
USUAL_CONSTRUCTIONS = ("auto", "uniform")
_MIN_USUAL_ROWS = 50  # fewer are not tried unless asked for
_CONSTRAINTS = {
    "calibrate": Boolean(),
    "polish": POLISH,
    "n_repeats": WholeNumber(least=1),
    "holdout": RealNumber(above=0.0, below=1.0),
    "tol": RealNumber(above=0.0),
    "full_seconds": RealNumber(above=0.0),
    "memory": OneOf(None) | WholeNumber(least=1),
    "sizes": OneOf(None) | Instance((list, tuple, np.ndarray), "a list of numbers of rows, or of fractions"),
    "constructions": Instance((list, tuple), "a list of names or constructions"),
}
Step = Callable[[int, int, str], None]


def compare(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: str | Objective,
    sizes: Sequence[int | float] | None = None,
    constructions: Sequence[str | Construction[Any]] = USUAL_CONSTRUCTIONS,
    calibrate: bool = True,
    polish: int | str = 0,
    n_repeats: int = 5,
    holdout: float = 0.1,
    tol: float = 0.01,
    full_seconds: float = 60.0,
    memory: int | None = None,
    engine: Any = "auto",
    random_state: Any = 0,
    progress: Step | None = None,
) -> Comparison:
    """Compare fits on coresets, on random samples and on all rows, and recommend one of them.

    Every fit is by the same solver, so that they differ in their rows and weights alone. The excess loss is measured on
    all rows learned from, the quality on rows held out.

    Parameters
    ----------
    X : array, CSR matrix, frame, Dask or Spark collection, or a source
        A source is what `open_dataset` gives for files: it brings y and weights along. Rows are read into memory if
        they fit.
    y : array of shape (n,), optional
        Labels for ``"logistic"`` and ``"margin"``, numbers for ``"ridge"``, ``"poisson"`` and ``"huber"``.
    sample_weight : array of shape (n,), optional
    objective : str or objective
        ``"kmeans"``, ``"kmedian"``, ``"logistic"``, ``"margin"``, ``"ridge"``, ``"poisson"``, ``"huber"``, or an
        instance such as ``KMeansObjective(n_clusters=20)``.
    sizes : list of int or float, optional
        Rows to keep, or fractions of the rows that are learned from. By default 0.1 %, 1 % and 5 %, as far as that is
        at least 50 rows.
    constructions : list of str or construction
        How rows are chosen: see `build_coreset`. A random sample with weights that are not calibrated is always among
        the methods compared.
    calibrate : bool
        Whether the weights of the constructions asked for are calibrated.
    polish : int or "auto"
        Rounds over all rows that improve each solution. If not 0, there is a line for each method with and without.
    n_repeats : int
        Draws of each kind.
    holdout : float
        The share of the rows that nothing is learned from, to judge by; 200,000 at the most.
    tol : float
        The excess loss, as a share of the loss, that the recommendation takes as harmless.
    full_seconds : float
        Time for the fits on all rows. If it does not suffice, the largest random sample for which it does takes their
        place.
    memory : int, optional
        Bytes that the rows of a source may take. By default a quarter of what is available.
    engine : str or engine
        Makes the passes over the rows of a source: see `build_coreset`.
    random_state : int, RandomState, Generator or None
    progress : callable, optional
        Called as ``progress(n_done, n_steps, name)`` before every step.

    Returns
    -------
    Comparison
        With a ``table``, a ``recommendation``, and ``to_html(path)`` for a page of its own.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(20_000, 2)), rng.normal(200.0, 1.0, size=(20, 2))])
    >>> objective = tithe.objectives.KMeansObjective(n_clusters=2)
    >>> result = tithe.compare(X, objective=objective, sizes=[0.01], n_repeats=2)
    >>> [row["method"] for row in result.table]
    ['all rows', 'weighted uniform', 'calibrated sensitivity', 'calibrated uniform']
    >>> result.table[2]["excess"] < 0.01 < result.table[1]["excess"]  # a sample misses the small cluster
    True
    """
    values = (calibrate, polish, n_repeats, holdout, tol, full_seconds, memory, sizes, constructions)
    given = dict(zip(_CONSTRAINTS, values, strict=True))
    for name, constraint in _CONSTRAINTS.items():
        check_value(name, given[name], constraint)
    for size in () if sizes is None else sizes:
        check_value("sizes", size, CORESET_SIZE)
    goal: Objective = make("objective", objective)
    if isinstance(goal, GenericObjective):
        raise ValueError("objective='generic' has no model to fit: name that of the model which you want to learn.")
    methods = methods_of(goal, constructions, calibrate=calibrate)
    seed = as_seed(random_state)
    step = _Steps(progress)
    step("reading")
    rows = compared_rows(X, y, sample_weight, objective=goal, holdout=holdout, memory=memory, engine=engine, seed=seed)
    n_kept = _rows_to_keep(sizes, rows)
    runner = Runner(rows, seed)
    step.expect(3 + n_repeats + n_repeats * len(n_kept) * len(methods))
    step("warming up")
    runner.warm_up(methods, polish)
    runs = runner.full_fits(n_repeats, full_seconds, lambda: step("all rows"))
    step.skip(n_repeats - len(runs))
    for size in n_kept:
        for method in methods:
            for repeat in range(n_repeats):
                step(f"{method.name}, {size:,} rows")
                runs += runner.run(method, size, repeat, polish)
    step("measuring")
    return _result(goal, rows, runner, runs, tol=tol, n_repeats=n_repeats)


class _Steps:
    """Counts steps and tells someone."""

    def __init__(self, progress: Step | None) -> None:
        self._progress, self._done, self._total = progress, 0, 2

    def expect(self, total: int) -> None:
        self._total = total

    def skip(self, n_steps: int) -> None:
        self._done += n_steps

    def __call__(self, name: str) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total, name)
        self._done += 1


def _rows_to_keep(sizes: Sequence[int | float] | None, rows: ComparedRows) -> list[int]:
    """Distinct numbers of rows to keep, ascending. Sizes that were asked for and cannot be are refused."""
    n_clusters = rows.objective.n_clusters if isinstance(rows.objective, ClusteringObjective) else 0
    if sizes is None:
        least = max(_MIN_USUAL_ROWS, n_clusters)
        n_kept = [resolve_size(size, rows.n_rows) for size in USUAL_SIZES]
        n_kept = [size for size in n_kept if least <= size < rows.n_rows] or [min(least, rows.n_rows - 1)]
    else:
        n_kept = [resolve_size(size, rows.n_rows) for size in sizes]
    if not n_kept:
        raise ValueError("sizes must name at least one number of rows.")
    for size in n_kept:
        if size >= rows.n_rows:
            raise ValueError(f"sizes={size} keeps all of the {rows.n_rows:,} rows learned from: ask for fewer.")
        if size < n_clusters:
            raise ValueError(f"sizes={size} keeps fewer rows than the {n_clusters} clusters: ask for more.")
    return sorted(set(n_kept))


def _parameters(objective: Objective) -> dict[str, Any]:
    """The parameters that the objective declares. JSON has no infinity, which is therefore text."""
    values = {option.parameter: getattr(objective, option.parameter) for option in objective.options}
    return {name: str(value) if value == math.inf else value for name, value in values.items()}


def _result(
    goal: Objective, rows: ComparedRows, runner: Runner, runs: list[Run], *, tol: float, n_repeats: int
) -> Comparison:
    values = runner.values([run.params for run in runs])
    full = np.array([run.size == rows.n_rows for run in runs])
    lowest = values[full].min() if full.any() else values.min()
    judge, quality = Judge(rows.objective, rows.held_out), quality_of(rows.objective)
    records = [_record(run, _excess(value, lowest), judge) for run, value in zip(runs, values, strict=True)]
    table = _table(records, rows.n_rows)
    return Comparison(
        objective=goal.name,
        parameters=_parameters(goal),
        n_rows=rows.n_rows,
        n_held_out=len(rows.held_out),
        n_features=rows.held_out.n_features,
        quality=quality.name,
        higher_is_better=quality.higher_is_better,
        tol=float(tol),
        n_repeats=n_repeats,
        reference="the best fit on all rows" if full.any() else "the best solution of any method",
        table=table,
        runs=records,
        recommendation=recommend(
            table,
            tol=tol,
            n_rows=rows.n_rows,
            quality=quality.name,
            one_solution=isinstance(rows.objective, ConvexObjective),
        ),
    )


def _excess(value: float, lowest: float) -> float:
    """The share by which a loss is above the lowest. Where that is 0, nothing else is a share of it."""
    if lowest > 0.0:
        return float(value / lowest - 1.0)
    return 0.0 if value == lowest else math.inf


def _record(run: Run, excess: float, judge: Judge) -> dict[str, Any]:
    quality, loss = judge.scores(run.params)
    return {
        "method": run.method,
        "is_sample": run.is_sample,
        "drawn_uniformly": run.drawn_uniformly,
        "polished": "polish" in run.seconds,
        "size": run.size,
        "repeat": run.repeat,
        "rows": run.n_rows,
        "quality": quality,
        "held_out_loss": loss,
        "excess": excess,
        "distortion": float(np.median(run.distortion)),
        "largest_distortion": float(run.distortion.max()),
        "effective_size": run.effective_size,
        "seconds": sum(run.seconds.values()),
        **{f"seconds_{phase}": run.seconds.get(phase, 0.0) for phase in PHASES},
    }


def _table(records: list[dict[str, Any]], n_rows: int) -> list[dict[str, Any]]:
    """Medians over the repeats of each method and size, in the order of the records; ranges beside them."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["method"], record["size"]), []).append(record)
    ranged = ("quality", "held_out_loss", "excess", "distortion", "seconds")
    plain = ("largest_distortion", "effective_size", *(f"seconds_{phase}" for phase in PHASES))
    table = []
    for (_, size), repeats in groups.items():
        line = {name: repeats[0][name] for name in ("method", "is_sample", "polished", "size")}
        line |= {"share": size / n_rows, "drawn_uniformly": any(r["drawn_uniformly"] for r in repeats)}
        line |= {"rows": int(np.median([r["rows"] for r in repeats])), "n_repeats": len(repeats)}
        for name in ranged:
            values = [r[name] for r in repeats]
            line |= {name: float(np.median(values)), f"{name}_low": min(values), f"{name}_high": max(values)}
        line |= {name: float(np.median([r[name] for r in repeats])) for name in plain}
        table.append(line)
    return table
