"""`compare`: what fits on few rows cost, beside a fit on all of them."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.certify import polish_by_descent, polish_by_steps
from tithe.certify.cost import SteppedObjective
from tithe.certify.gap import ConvexObjective, values_of
from tithe.certify.held_out import held_out_split
from tithe.clustering.objective import ClusteringObjective
from tithe.core.contracts import Construction, Objective, Source
from tithe.core.data import Array, Block, Coreset, concat, effective_sample_size
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
from tithe.core.passes import DataPass
from tithe.core.progress import available_memory, timed
from tithe.core.registry import make
from tithe.core.seeding import Reservoir, as_seed, hash_limit, rng_for
from tithe.fit.base import block_of_rows, check_no_extra_arrays
from tithe.fit.labels import EncodeLabels, class_masses, known_classes, objective_for
from tithe.linear.logistic_objective import LogisticObjective
from tithe.linear.objective import LinearModelObjective
from tithe.linear.regression import NumericTarget
from tithe.linear.regression_objectives import SingleScoreObjective
from tithe.reduce.distortion import random_queries, ratio_error, total_costs
from tithe.reduce.generic import GenericObjective
from tithe.reduce.plan import Plan, reduce_rows, resolve_pair
from tithe.report.comparison import PHASES, Comparison, recommend
from tithe.rows.clusters import as_rows
from tithe.rows.leaves import MappedSource, SplitSource

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
    methods = _methods(goal, constructions, calibrate=calibrate)
    seed = as_seed(random_state)
    tell = progress or (lambda n_done, n_steps, name: None)
    tell(0, 2, "reading")
    rows = compared_rows(X, y, sample_weight, objective=goal, holdout=holdout, memory=memory, engine=engine, seed=seed)
    n_kept = _rows_to_keep(sizes, rows)
    runner = Runner(rows, seed)
    draws = list(product(n_kept, methods, range(n_repeats)))
    n_steps = 3 + n_repeats + len(draws)
    tell(1, n_steps, "warming up")
    runner.warm_up(methods, polish)
    runs = runner.full_fits(n_repeats, full_seconds, lambda repeat: tell(2 + repeat, n_steps, "all rows"))
    for n_done, (size, method, repeat) in enumerate(draws, 2 + n_repeats):
        tell(n_done, n_steps, f"{method.name}, {size:,} rows")
        runs += runner.run(method, size, repeat, polish)
    tell(n_steps - 1, n_steps, "measuring")
    return _result(goal, runner, runs, tol=tol, n_repeats=n_repeats)


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


def _result(goal: Objective, runner: Runner, runs: list[Trial], *, tol: float, n_repeats: int) -> Comparison:
    rows = runner.rows
    values = runner.values([params for _, params in runs])
    full = np.array([run["size"] == rows.n_rows for run, _ in runs])
    lowest = values[full].min() if full.any() else values.min()
    judge, records = Judge(rows.objective, rows.held_out), []
    for (run, params), value in zip(runs, values, strict=True):
        quality, loss = judge.scores(params)
        records.append({**run, "quality": quality, "held_out_loss": loss, "excess": _excess(value, lowest)})
    table = _table(records, rows.n_rows)
    parameters = {option.parameter: getattr(goal, option.parameter) for option in goal.options}
    return Comparison(
        objective=goal.name,
        # JSON has no infinity, which is therefore text
        parameters={name: str(value) if value == math.inf else value for name, value in parameters.items()},
        n_rows=rows.n_rows,
        n_held_out=len(rows.held_out),
        n_features=rows.held_out.n_features,
        quality=judge.quality,
        higher_is_better=judge.higher_is_better,
        tol=float(tol),
        n_repeats=n_repeats,
        reference="the best fit on all rows" if full.any() else "the best solution of any method",
        table=table,
        runs=records,
        recommendation=recommend(
            table,
            tol=tol,
            n_rows=rows.n_rows,
            quality=judge.quality,
            one_solution=isinstance(rows.objective, ConvexObjective),
        ),
    )


def _excess(value: float, lowest: float) -> float:
    """The share by which a loss is above the lowest. Where that is 0, nothing else is a share of it."""
    if lowest > 0.0:
        return float(value / lowest - 1.0)
    return 0.0 if value == lowest else math.inf


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
        if "row_worth" in repeats[0]:
            line["row_worth"] = float(np.median([r["row_worth"] for r in repeats]))
        table.append(line)
    return table


# -- the rows ----------------------------------------------------------------------------------

_MAX_HELD_OUT = 200_000  # rows: more make no score better known
_MIN_HELD_OUT = 20
_MEMORY_SHARE = 0.25  # of the available memory that rows may take; fits hold copies of some of them
_ROW_OVERHEAD = 24  # bytes of a row besides X: its target, weight and id
_USUAL_MEMORY = 2**30  # bytes that rows may take where the system does not say how much is available


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedRows:
    """Rows to learn from, as a block where they fit into memory, and rows that are held out."""

    training: Block | Source
    held_out: Block
    objective: Objective  # knows the classes, and y holds their numbers
    n_rows: int
    max_rows: int  # that fit into memory
    engine: Any

    def data(self) -> DataPass:
        """Passes over the rows to learn from."""
        return DataPass(self.training, self.engine)

    def sample(self, size: int, rng: np.random.Generator) -> Block:
        """``size`` random rows, weighing as much as all of them; the rows themselves if there are no more."""
        if isinstance(self.training, Block):
            if size >= self.n_rows:
                return self.training
            rows = self.training.take(np.sort(rng.choice(self.n_rows, size, replace=False)))
        else:
            rows = self._drawn(size, int(rng.integers(2**62)))
        return replace(rows, sample_weight=rows.weights() * (self.n_rows / len(rows)))

    def _drawn(self, size: int, key: int) -> Block:
        """``size`` rows of a source, or all of them if there are fewer, in one pass."""
        data = self.data()
        for limit in (hash_limit(size, data.n_expected), hash_limit(size, None)):
            reservoir = Reservoir(size=size, key=key, limit=limit)
            for rows in data.each(reservoir.among):
                reservoir.keep(rows)
            if not reservoir.lacks_rows:
                break
        return reservoir.rows()


def compared_rows(
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    objective: Objective,
    holdout: float,
    memory: int | None,
    engine: Any,
    seed: int,
) -> ComparedRows:
    """Check the rows, read them into memory if they fit, and hold some out by a hash of their ids."""
    rows = _opened(X, y, sample_weight)
    if isinstance(rows, Block):
        n_all = max_rows = len(rows)
    else:
        memory = memory or int(_MEMORY_SHARE * available_memory()) or _USUAL_MEMORY
        n_all, max_rows = int(rows.count() or 0), memory // (rows.row_bytes + _ROW_OVERHEAD)
        if n_all <= max_rows:
            rows = concat(list(DataPass(rows, engine).each(lambda leaf: leaf)))
            n_all = len(rows)  # those without a target are left out
    rows, objective = _with_target(rows, objective, engine)
    share = min(holdout, _MAX_HELD_OUT / max(n_all, 1))
    if n_all * share < _MIN_HELD_OUT:
        raise ValueError(
            f"holdout={holdout:g} of {n_all} rows leaves too few to judge by: at least {_MIN_HELD_OUT} are needed."
        )
    learned, apart = held_out_split(rows, share, seed, has_classes=objective.target == "class")
    training: Block | Source
    if isinstance(rows, Block):
        training, held_out = replace(learned(rows), indices=None), apart(rows)
        n_rows = len(training)
    else:
        training = SplitSource(rows, learned)
        held_out = concat(list(DataPass(SplitSource(rows, apart), engine).each(lambda leaf: leaf)))
        n_rows = sum(DataPass(training, engine).each(len))  # bad rows, and those without a target, are left out
    if not held_out.weights().any():
        raise ValueError("No row that is held out has a weight: raise holdout.")
    if objective.target == "class" and not class_masses(DataPass(training, engine), objective.n_classes).all():
        raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
    return ComparedRows(
        training=training,
        held_out=held_out,
        objective=objective,
        n_rows=n_rows,
        max_rows=max_rows,
        engine=engine,
    )


def _opened(X: Any, y: Any, sample_weight: Any) -> Block | Source:
    X, y, sample_weight = as_rows(X, y, sample_weight)
    if isinstance(X, (str, bytes, os.PathLike)):
        raise ValueError("X must be an array, a frame or a source. Files are opened with tithe.open_dataset().")
    if not isinstance(X, Source):
        return block_of_rows(X, y, sample_weight)
    if not X.replayable:
        raise ValueError("A comparison reads the rows several times, and these come only once: save them to a file.")
    return check_no_extra_arrays(X, y, sample_weight)


def _with_target(rows: Block | Source, objective: Objective, engine: Any) -> tuple[Block | Source, Objective]:
    """The rows with y as the objective reads it, class numbers for labels, and the objective with its classes."""
    if objective.target is None:
        return rows, objective
    if isinstance(rows, Block) and rows.y is None:
        values = "a class" if objective.target == "class" else "a number"
        raise ValueError(f"Objective {objective.name!r} needs {values} for every row: give y.")
    change: Any = None
    if objective.target == "class":
        if isinstance(rows, Block):
            labelled = rows
        else:
            labels = known_classes(DataPass(rows, engine))
            labelled = Block(X=np.empty((len(labels), 0)), y=labels)
        classes = objective.for_rows(labelled).classes or ()
        change, objective = EncodeLabels(classes=np.asarray(classes)), objective_for(objective, len(classes))
    elif isinstance(objective, SingleScoreObjective):
        change = NumericTarget(type(objective))
    if change is None:
        return rows, objective
    return (change(rows) if isinstance(rows, Block) else MappedSource(rows, change)), objective


# -- the runs ----------------------------------------------------------------------------------

ALL_ROWS, SAMPLE = "all rows", "weighted uniform"
_TRIAL_ROWS = 5000  # whose fit tells how long one on all rows takes
_WARM_UP_ROWS, _WARM_UP_SIZE = 4000, 400  # of a run before the clock is started: kernels may have to be compiled
_QUERY_BASES = 3  # sets of random queries
_POLISH_TOL = 1e-6  # relative excess loss at which polish="auto" stops


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to draw rows and to weigh them. ``drawn_by`` is the name of the construction."""

    name: str
    construction: Any
    calibrate: bool
    drawn_by: str


Trial = tuple[dict[str, Any], Any]  # a line of `Comparison.runs`, as far as it is known, and the solution


def _line(
    method: str,
    size: int,
    repeat: int,
    rows: Block,
    seconds: dict[str, float],
    distortion: Array,
    *,
    is_sample: bool,
    drawn_uniformly: bool = False,
) -> dict[str, Any]:
    """What is known of a fit on ``rows`` before its solution is judged; ``seconds`` are by phase."""
    return {
        "method": method,
        "is_sample": is_sample,  # a random sample whose weights were not calibrated
        "drawn_uniformly": drawn_uniformly,  # in place of the draw asked for, as is better with very few rows
        "polished": False,
        "size": size,
        "repeat": repeat,
        "rows": len(rows),
        "distortion": float(np.median(distortion)),  # before any polish
        "largest_distortion": float(distortion.max()),
        "effective_size": effective_sample_size(rows.weights()),
        **_worth_of(rows),
        **_times(seconds),
    }


def _worth_of(rows: Block) -> dict[str, Any]:
    provenance = rows.provenance if isinstance(rows, Coreset) else {}
    return {name: value for name, value in provenance.items() if name == "row_worth"}


def _times(seconds: dict[str, float]) -> dict[str, float]:
    return {"seconds": sum(seconds.values()), **{f"seconds_{phase}": seconds.get(phase, 0.0) for phase in PHASES}}


def _methods(objective: Objective, constructions: Sequence[Any], *, calibrate: bool) -> list[Method]:
    """The weighted uniform sample, and the constructions that were asked for. Pairs that do not work are refused."""
    calibrate = calibrate and objective.calibrates
    methods = [Method(name=SAMPLE, construction="uniform", calibrate=False, drawn_by="uniform")]
    for asked in constructions:
        _, construction, _ = resolve_pair(objective, asked, calibrate=calibrate)
        name = f"calibrated {construction.name}" if calibrate else construction.name
        if construction.name == "uniform" and not calibrate:
            continue  # the weighted uniform sample
        if name not in [method.name for method in methods]:
            methods.append(Method(name=name, construction=asked, calibrate=calibrate, drawn_by=construction.name))
    return methods


class Runner:
    """Makes the runs of a comparison, each with a seed of its own."""

    def __init__(self, rows: ComparedRows, seed: int) -> None:
        self.rows, self.objective, self._seed = rows, rows.objective, seed
        training = rows.training
        sample = training if isinstance(training, Block) else training.sample(None, rng=rng_for(seed, "queries"))
        self._queries = random_queries(sample, self.objective, n_bases=_QUERY_BASES, seed=seed)
        self._query_costs = total_costs(training, self.objective, self._queries, rows.engine)

    def warm_up(self, methods: Sequence[Method], polish: Any) -> None:
        """Trial every method once on a few rows, so that no time of a run is that of a compiler."""
        few = self.rows.sample(_WARM_UP_ROWS, rng_for(self._seed, "warm up"))
        size = min(_WARM_UP_SIZE, len(few) - 1)
        small = replace(self.rows, training=few, n_rows=len(few), engine="auto")
        _solve(self.objective, few, rng_for(self._seed, "warm up"))
        for method in methods:
            _reduced_and_fitted(small, method, size, seed=0, polish=polish)

    def full_fits(self, n_fits: int, budget: float, tell: Callable[[int], None]) -> list[Trial]:
        """Fits on all rows; on the largest sample for which time and memory suffice if that is less."""
        n_rows = self.rows.n_rows
        trial = self.rows.sample(min(_TRIAL_ROWS, n_rows), rng_for(self._seed, "trial"))
        start = time.perf_counter()
        _solve(self.objective, trial, rng_for(self._seed, "trial"))
        expected = (time.perf_counter() - start) * n_rows / len(trial)
        size = n_rows if isinstance(self.rows.training, Block) else min(n_rows, self.rows.max_rows)
        if expected > budget:
            size = min(size, max(len(trial), int(n_rows * budget / expected)))
        if isinstance(self.objective, ConvexObjective) or n_fits * expected > budget:
            n_fits = 1  # there is one solution, or no time for more
        runs = []
        for repeat in range(n_fits):
            tell(repeat)
            sample = self.rows.sample(size, rng_for(self._seed, "full", repeat))
            seconds = {"draw": 0.0, "calibrate": 0.0}
            with timed(seconds, "fit"):
                params = _solve(self.objective, sample, rng_for(self._seed, "fit", repeat))
            name = ALL_ROWS if size == n_rows else f"{SAMPLE}, the largest affordable"
            distortion = np.zeros(1) if size == n_rows else self._distortion(sample)
            line = _line(name, size, repeat, sample, seconds, distortion, is_sample=size < n_rows)
            runs.append((line, params))
        return runs

    def run(self, method: Method, size: int, repeat: int, polish: Any) -> list[Trial]:
        """A run, and the same polished if asked for."""
        seed = int(rng_for(self._seed, "repeat", repeat).integers(2**62))
        coreset, seconds, params, polished = _reduced_and_fitted(self.rows, method, size, seed=seed, polish=polish)
        line = _line(
            method.name,
            size,
            repeat,
            coreset,
            {name: value for name, value in seconds.items() if name != "polish"},
            self._distortion(coreset),
            is_sample=method.name == SAMPLE,
            drawn_uniformly=coreset.provenance["construction"] != method.drawn_by,
        )
        if polished is None:
            return [(line, params)]
        better = {**line, "method": f"{method.name}, polished", "polished": True, **_times(seconds)}
        return [(line, params), (better, polished)]

    def _distortion(self, coreset: Block) -> Array:
        costs = total_costs(coreset, self.objective, self._queries)
        return np.array([ratio_error(small, full) for small, full in zip(costs, self._query_costs, strict=True)])

    def values(self, solutions: Sequence[Any]) -> Array:
        """What the objective has at each solution on all rows learned from, in one pass: (n_solutions,)."""
        return values_of(self.objective, self.rows.data(), solutions, float(np.max(self._query_costs)))


def _reduced_and_fitted(
    rows: ComparedRows, method: Method, size: int, *, seed: int, polish: Any
) -> tuple[Coreset, dict[str, float], Any, Any]:
    """The coreset, seconds by phase, the solution on the coreset, and the polished one (None without polish)."""
    objective, data = rows.objective, rows.data()
    seconds: dict[str, float] = {}
    plan = Plan.of(objective, method.construction, size, calibrate=method.calibrate, seed=seed)
    coreset = reduce_rows(data, plan, seconds=seconds)
    with timed(seconds, "fit"):
        params = _solve(objective, coreset, rng_for(seed, "solve"))
    if polish == 0:
        return coreset, seconds, params, None
    with timed(seconds, "polish"):
        polished = _polished(objective, data, coreset, params, polish=polish, calibrate=method.calibrate, seed=seed)
    return coreset, seconds, params, polished


def _solve(objective: Objective, rows: Block, rng: np.random.Generator) -> Any:
    """A solution for the rows. Near that of a calibrated coreset of a convex objective is the place of its totals."""
    near = rows.pilot if isinstance(rows, Coreset) and isinstance(objective, ConvexObjective) else None
    if isinstance(objective, LogisticObjective) and objective.fit_intercept:
        present = np.flatnonzero(np.bincount(objective.codes(rows), rows.weights(), objective.n_classes))
        if len(present) < objective.n_classes:
            return _solve_without_classes(objective, rows, present, rng)
    return objective.solve(rows, rng=rng, init=near)


def _solve_without_classes(
    objective: LogisticObjective, rows: Block, present: Array, rng: np.random.Generator
) -> Array:
    """A fit of the classes that have rows. The others, which no minimiser knows, get the chance of half a row."""
    params = np.zeros((objective.n_classes, rows.n_features + 1))
    if len(present) > 1:
        assert rows.y is not None
        some = replace(objective, classes=tuple(range(len(present))))
        codes = np.searchsorted(present, objective.codes(rows)).astype(np.int32)
        solution = some.solve(
            replace(rows, y=codes, pilot=None) if isinstance(rows, Coreset) else replace(rows, y=codes), rng=rng
        )
        params[present] = solution if len(solution) > 1 else np.concatenate([-0.5 * solution, 0.5 * solution])
    missing = np.setdiff1d(np.arange(objective.n_classes), present)
    params[missing, -1] = params[present, -1].min() - np.log(2.0 * rows.total_weight)
    return params if objective.n_classes > 2 else params[1:] - params[:1]


def _polished(
    objective: Objective, data: DataPass, coreset: Coreset, params: Any, *, polish: Any, calibrate: bool, seed: int
) -> Any:
    if isinstance(objective, SteppedObjective):
        return polish_by_steps(objective, data, params, polish).params
    if not isinstance(objective, ConvexObjective):
        raise ValueError(f"Solutions of objective {objective.name!r} cannot be polished: leave polish at 0.")
    rng = rng_for(seed, "polish")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the excess loss is measured afterwards
        descended = polish_by_descent(
            objective, data, coreset, params, polish=polish, tol=_POLISH_TOL, calibrate=calibrate, rng=rng
        )
    return descended.params


# -- quality on rows held out ------------------------------------------------------------------


class Judge:
    """Scores solutions on rows held out, by the score ``quality`` that fits the objective."""

    def __init__(self, objective: Objective, rows: Block) -> None:
        self.objective, self.rows, self._weight = objective, rows, rows.weights()
        self._constant_loss = self._usual_loss = 1.0
        self.quality = "cost per row"
        if objective.target == "class" and isinstance(objective, LinearModelObjective):
            self.quality = "accuracy"
        elif objective.target == "number":
            self.quality = "R²" if objective.name == "least_squares" else "explained loss"
            # no column says anything: the best constant
            flat = Block(X=np.zeros((len(rows), 1)), y=rows.y, sample_weight=rows.sample_weight)
            constant = objective.solve(flat, rng=rng_for(0, "constant"))
            compared = constant, objective.without_coefficients(constant)
            loss, self._usual_loss = (self._mean(objective.cost(flat, params)) for params in compared)
            self._constant_loss = float(objective.without_rounding(loss, self._usual_loss))

    @property
    def higher_is_better(self) -> bool:
        return self.quality != "cost per row"

    def _mean(self, values: Array) -> float:
        return float(np.average(values, weights=self._weight))

    def scores(self, params: Any) -> tuple[float, float]:
        """The score named ``quality``, and the mean loss of a row."""
        loss = self._mean(self.objective.cost(self.rows, params))
        if isinstance(self.objective, LinearModelObjective) and self.quality == "accuracy":
            margins = self.objective.margins(self.rows.X, params)
            predicted = margins[:, 0] > 0 if margins.shape[1] == 1 else margins.argmax(axis=1)
            return self._mean(predicted.astype(np.int32) == self.objective.codes(self.rows)), loss
        if self.objective.target != "number":
            return loss, loss
        if self._constant_loss > 0.0:
            return 1.0 - loss / self._constant_loss, loss
        # as scikit-learn scores predictions of a constant: 1 if they are right
        return float(self.objective.without_rounding(loss, self._usual_loss) == 0.0), loss
