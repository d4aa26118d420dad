"""`compare`: what fits on few rows cost, beside a fit on all of them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from scipy.special import stdtrit
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score

from tithe.certify import polish_by_descent, polish_by_steps
from tithe.certify.cost import SteppedObjective
from tithe.certify.gap import ConvexObjective, values_of
from tithe.clustering.objective import ClusteringObjective
from tithe.core.contracts import Construction, Objective, Source
from tithe.core.data import Array, Block, Coreset, effective_sample_size
from tithe.core.labels import commonest_class, holds_classes
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
from tithe.core.progress import seconds_text, timed
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.linear.logistic_objective import LogisticObjective
from tithe.linear.objective import LinearModelObjective
from tithe.reduce.distortion import random_queries, ratio_error, total_costs
from tithe.reduce.generic import GenericObjective
from tithe.reduce.plan import Plan, reduce_rows, resolve_pair
from tithe.report.advice import Adviser
from tithe.report.compared_learner import ComparedLearner
from tithe.report.compared_rows import ComparedRows, compared_rows, opened_rows
from tithe.report.comparison import PHASES, Comparison, class_weight_in_words
from tithe.report.events import event_scores, rarer_class
from tithe.report.tables import described_columns

USUAL_SIZES = (0.001, 0.01, 0.05)
USUAL_CONSTRUCTIONS = ("auto", "uniform")
_N_DRAWS = 4  # times the repeats: so often the size that is recommended is drawn
_MAX_TRIALS = 20  # rounds of further draws
_CONFIDENCE = 0.99  # of the limit of one more excess, as its roots are not quite normal, and sizes are chosen by it
_MIN_USUAL_ROWS = 50  # fewer are not tried unless asked for
_CONSTRAINTS = {
    "calibrate": Boolean(),
    "polish": POLISH,
    "n_repeats": WholeNumber(least=1),
    "many_classes": Boolean(),
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
    objective: str | Objective | None = None,
    learner: Any = None,
    sizes: Sequence[int | float] | None = None,
    constructions: Sequence[str | Construction[Any]] = USUAL_CONSTRUCTIONS,
    calibrate: bool = True,
    polish: int | str = 0,
    n_repeats: int = 5,
    many_classes: bool = False,
    class_weight: Any = None,
    holdout: float = 0.1,
    tol: float = 0.01,
    full_seconds: float = 60.0,
    memory: int | None = None,
    engine: Any = "auto",
    random_state: Any = 0,
    progress: Step | None = None,
    announce: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare fits on coresets, on random samples and on all rows, and recommend a number of rows.

    Every fit is by the same solver, so that they differ in their rows and weights alone. The excess loss is measured on
    all rows learned from, the quality on rows held out. If none of the sizes suffices, larger ones are drawn, where the
    excess of the others leads to. The size that is about to be recommended is drawn until there are 4 ``n_repeats``
    draws of it, as far as ``full_seconds`` allow: the excess of one more is below the largest of twenty with a
    probability of 20/21. All rows are recommended only if 90 % of them do not suffice; where a single fit on all rows
    is quickest, it says so. A `KeyboardInterrupt` ends it with what it has, once every method was fitted at one size.

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
        instance such as ``KMeansObjective(n_clusters=20)``. By default, if there is a y, ``"logistic"`` for classes
        (text, true or false, whole numbers of up to 20 values) and ``"ridge"`` for numbers, else ``"kmeans"``.
    learner : estimator, optional
        A scikit-learn estimator whose ``fit`` takes ``sample_weight``, in place of an objective. It gets the encoded
        columns. Its excess loss is measured on rows held out, as trees know those that they learned from.
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
        Draws of each kind; four times as many of what is recommended.
    many_classes : bool
        Take a y of hundreds of values, or of more than 100 in fewer than 20 rows each on average, as classes.
    class_weight : dict, "balanced" or None
        Factors of the weights of the classes, in the fits and in the losses. Accuracy, F1 and average precision count
        rows as they are.
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
    announce : callable, optional
        Called with a sentence that says what the comparison will take, before its fits start.

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
    >>> [row["method"] for row in result.table][:4]
    ['all rows', 'weighted uniform', 'calibrated sensitivity', 'calibrated uniform']
    >>> result.table[2]["excess"] < 0.01 < result.table[1]["excess"]  # a sample misses the small cluster
    True
    """
    values = (calibrate, polish, n_repeats, many_classes, holdout, tol, full_seconds, memory, sizes, constructions)
    given = dict(zip(_CONSTRAINTS, values, strict=True))
    for name, constraint in _CONSTRAINTS.items():
        check_value(name, given[name], constraint)
    for size in () if sizes is None else sizes:
        check_value("sizes", size, CORESET_SIZE)
    compared = None if learner is None else ComparedLearner(estimator=learner)
    opened, schema = opened_rows(X, y, sample_weight)
    if compared is not None:
        compared = compared.for_schema(schema)
    goal = _goal(opened, objective, compared)
    if class_weight is not None and (goal if compared is None else compared).target != "class":
        raise ValueError("class_weight is for classes, and none are predicted here: leave it at None.")
    if compared is not None and polish != 0:
        raise ValueError("polish is for objectives, and a learner has a fit of its own: leave polish at 0.")
    _methods(goal, constructions, calibrate=calibrate)  # what cannot be is refused before the rows are read
    seed = as_seed(random_state)
    tell = progress or (lambda n_done, n_steps, name: None)
    tell(0, 2, "reading")
    reading: dict[str, Any] = {"holdout": holdout, "memory": memory, "engine": engine, "seed": seed}
    rows = compared_rows(opened, goal, compared, many_classes=many_classes, class_weight=class_weight, **reading)
    rows = replace(rows, schema=schema)
    methods, n_kept = _methods(rows.objective, constructions, calibrate=calibrate), _rows_to_keep(sizes, rows)
    runner = Runner(rows, seed)
    n_steps = 3 + n_repeats * (1 + len(n_kept) * len(methods))
    tell(1, n_steps, "warming up")
    runner.warm_up(methods, polish)
    n_full, full_size = runner.affordable(n_repeats, full_seconds)
    if announce is not None:
        announce(runner.foretold(n_full, full_size, n_kept, len(methods) * n_repeats))
    runs, n_rounds, wanted, steps = list[Trial](), 0, n_repeats * len(n_kept), count(2)
    rounds = runner.rounds(
        methods, n_kept, (n_full, full_size), n_repeats, polish, lambda name: tell(next(steps), n_steps, name)
    )
    try:
        for of_round in rounds:
            runs += of_round
            n_rounds += 1
    except KeyboardInterrupt:
        if not n_rounds:
            raise
    tell(n_steps - 1, n_steps, "measuring")
    note = "" if n_rounds == wanted else f"Stopped after {n_rounds} of {wanted} rounds: these are the fits until then."
    records = runner.measured(runs)
    result = _result(goal, runner, records, tol=tol, n_repeats=n_repeats, stopped_note=note)
    for _ in range(0 if note else _MAX_TRIALS):
        tell(n_steps - 1, n_steps, "measuring")
        try:
            more = _more_draws(runner, methods, result, n_repeats, polish, full_seconds)
        except KeyboardInterrupt:
            break
        if not more:
            break
        records += runner.measured(more)
        result = _result(goal, runner, records, tol=tol, n_repeats=n_repeats, stopped_note=note)
    return result


def _more_draws(
    runner: Runner, methods: list[Method], result: Comparison, n_repeats: int, polish: Any, full_seconds: float
) -> list[Trial]:
    """Further fits of what the advice needs; none if there are enough, or they take too long.

    Where fits on all rows differ among themselves, there are as many of these.
    """
    wanted = _adviser(runner, result.table, result.tol).next_draws(_N_DRAWS * n_repeats)
    if wanted is None:
        return []
    name, size = wanted[0].removesuffix(POLISHED), wanted[1]
    made = [run["method"] for run in result.runs if run["size"] == size]
    largest = max(line["size"] for line in result.table[1:])
    slowest = max(line["seconds"] for line in result.table[1:] if line["size"] == largest)
    known = made.count(name)
    n_more = _N_DRAWS * n_repeats - known if known else n_repeats  # the first few show most sizes that are too small
    if n_more * slowest * max(1.0, size / largest) > full_seconds:
        return []
    runs: list[Trial] = []
    for method in methods:
        if method.name == name or (method.name == SAMPLE and SAMPLE not in made):
            first, n_draws = (known, n_more) if method.name == name else (0, n_repeats)
            runs += [run for i in range(n_draws) for run in runner.run(method, size, first + i, polish)]
    full = result.table[0]
    n_full = max(full["n_repeats"], known + n_more)
    if full["size"] == result.n_rows and not runner.one_solution and n_full * full["seconds"] <= full_seconds:
        runs += [runner.full_fit(repeat, result.n_rows) for repeat in range(full["n_repeats"], n_full)]
    return runs


def _goal(rows: Block | Source, objective: str | Objective | None, learner: ComparedLearner | None) -> Objective:
    """The objective that was asked for, that of the learner's coresets, or the usual one for the target."""
    if learner is not None:
        if objective is not None:
            raise ValueError("Give objective or learner, not both.")
        return learner.objective(2 if learner.target == "class" else 0)
    if objective is None:
        y = rows.y if isinstance(rows, Block) else rows.sample(None, rng=rng_for(0, "task")).y
        objective = "kmeans" if y is None else "logistic" if holds_classes(y) else "ridge"
    goal: Objective = make("objective", objective)
    if isinstance(goal, GenericObjective):
        raise ValueError("objective='generic' has no model to fit: name that of the model which you want to learn.")
    return goal


def _rows_to_keep(sizes: Sequence[int | float] | None, rows: ComparedRows) -> list[int]:
    """Distinct numbers of rows to keep, ascending. Sizes that were asked for and cannot be are refused."""
    n_clusters = rows.objective.n_clusters if isinstance(rows.objective, ClusteringObjective) else 0
    n_groups, groups = max((n_clusters, "clusters"), (rows.objective.n_classes, "classes"))
    if sizes is None:
        least = max(_MIN_USUAL_ROWS, n_groups)
        n_kept = [resolve_size(size, rows.n_rows) for size in USUAL_SIZES]
        n_kept = [size for size in n_kept if least <= size < rows.n_rows] or [min(least, rows.n_rows - 1)]
    else:
        n_kept = [resolve_size(size, rows.n_rows) for size in sizes]
    if not n_kept:
        raise ValueError("sizes must name at least one number of rows.")
    for size in n_kept:
        if size >= rows.n_rows:
            raise ValueError(f"sizes={size} keeps all of the {rows.n_rows:,} rows learned from: ask for fewer.")
        if size < n_groups:
            raise ValueError(f"sizes={size} keeps fewer rows than the {n_groups} {groups}: ask for more.")
    return sorted(set(n_kept))


def _result(
    goal: Objective, runner: Runner, measured: list[dict[str, Any]], *, tol: float, n_repeats: int, stopped_note: str
) -> Comparison:
    rows, judge, learner = runner.rows, runner.judge, runner.rows.learner
    full = [run["value"] for run in measured if run["size"] == rows.n_rows]
    lowest = min(full or [run["value"] for run in measured])
    records = [{**run, "excess": _excess(run["value"], lowest)} for run in measured]
    for record in records:
        del record["value"]
    table = _table(records, rows.n_rows)
    options = goal.options if learner is None else ()
    parameters = {option.parameter: getattr(goal, option.parameter) for option in options}
    if rows.class_weight is not None:
        parameters["class_weight"] = class_weight_in_words(rows.class_weight)
    reference = "the best fit on all rows" if full else "the best solution of any method"
    return Comparison(
        objective=goal.name if learner is None else learner.name,
        # JSON has no infinity, which is therefore text
        parameters={name: str(value) if value == math.inf else value for name, value in parameters.items()},
        n_rows=rows.n_rows,
        n_held_out=len(rows.held_out),
        n_features=rows.held_out.n_features,
        quality=judge.quality,
        higher_is_better=judge.higher_is_better,
        tol=float(tol),
        n_repeats=n_repeats,
        reference=reference if learner is None else f"{reference}, both on rows held out",
        baseline_note=judge.baseline_note,
        stopped_note=stopped_note,
        columns=described_columns(rows.schema),
        table=table,
        runs=records,
        recommendation=_adviser(runner, table, tol).recommendation(),
    )


def _adviser(runner: Runner, table: list[dict[str, Any]], tol: float) -> Adviser:
    rows = runner.rows
    return Adviser(
        table=table, tol=tol, n_rows=rows.n_rows, quality=runner.judge.quality, can_polish=rows.learner is None
    )


def _excess(value: float, lowest: float) -> float:
    """The share by which a loss is above the lowest. Where that is 0, nothing else is a share of it."""
    if lowest > 0.0:
        return float(value / lowest - 1.0)
    return 0.0 if value == lowest else math.inf


def _limit_of_excess(excesses: list[float]) -> float:
    """What the excess of one more fit stays below in 95 % of draws, and not less than the largest of these n.

    Roots of excesses are taken for normal, with mean a and standard deviation s: the limit is the square of
    a + t s sqrt(1 + 1 / n), with the quantile 0.99 of Student's distribution. With one draw it is not known.
    """
    roots, n = np.sqrt(np.maximum(excesses, 0.0)), len(excesses)
    if n == 1 or not np.isfinite(roots).all():
        return max(excesses)
    spread = float(stdtrit(n - 1, _CONFIDENCE) * roots.std(ddof=1)) * math.sqrt(1.0 + 1.0 / n)
    return max(*excesses, (float(roots.mean()) + spread) ** 2)


def _table(records: list[dict[str, Any]], n_rows: int) -> list[dict[str, Any]]:
    """Medians over the repeats of each method and size, in the order of the records; ranges beside them."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["method"], record["size"]), []).append(record)
    extra = tuple(name for name in ("f1", "average_precision") if name in records[0])
    ranged = ("quality", "held_out_loss", *extra, "excess", "distortion", "seconds")
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
        line["excess_limit"] = _limit_of_excess([r["excess"] for r in repeats])
        if "row_worth" in repeats[0]:
            line["row_worth"] = float(np.median([r["row_worth"] for r in repeats]))
        table.append(line)
    return table


# -- the runs ----------------------------------------------------------------------------------

ALL_ROWS, SAMPLE, POLISHED = "all rows", "weighted uniform", ", polished"
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
        self.judge = Judge(self.objective, rows.held_out, rows.learner, rows.labels, rows.factors)
        self._queries, self._query_costs = None, None
        if rows.learner is None:
            self._queries = random_queries(sample, self.objective, n_bases=_QUERY_BASES, seed=seed)
            self._query_costs = total_costs(training, self.objective, self._queries, rows.engine)

    @property
    def one_solution(self) -> bool:
        """Whether fits on the same rows are all the same."""
        return self.rows.learner is None and isinstance(self.objective, ConvexObjective)

    def warm_up(self, methods: Sequence[Method], polish: Any) -> None:
        """Try every method once on a few rows, so that no run is timed with a compiler; then time some."""
        few = self.rows.sample(_WARM_UP_ROWS, rng_for(self._seed, "warm up"))
        size = min(max(_WARM_UP_SIZE, self.objective.n_classes), len(few) - 1)  # no class is left out
        small = replace(self.rows, training=few, n_rows=len(few), engine="auto")
        _solve(self.rows, few, rng_for(self._seed, "warm up"))
        for method in methods:
            _reduced_and_fitted(small, method, size, seed=0, polish=polish)
        _, seconds, _, _ = _reduced_and_fitted(small, methods[-1], size, seed=0, polish=0)
        self._seconds_to_reduce = (sum(seconds.values()) - seconds["fit"]) / len(few)  # a row
        trial = self.rows.sample(min(_TRIAL_ROWS, self.rows.n_rows), rng_for(self._seed, "trial"))
        start = time.perf_counter()
        _solve(self.rows, trial, rng_for(self._seed, "trial"))
        self._seconds_to_fit = (time.perf_counter() - start) / len(trial)  # a row

    def affordable(self, n_fits: int, budget: float) -> tuple[int, int]:
        """The number of fits on all rows, and their rows: of the largest sample for which time and memory suffice."""
        n_rows = self.rows.n_rows
        expected = self._seconds_to_fit * n_rows
        size = n_rows if isinstance(self.rows.training, Block) else min(n_rows, self.rows.max_rows)
        if expected > budget:
            size = min(size, max(min(_TRIAL_ROWS, n_rows), int(n_rows * budget / expected)))
        return (1 if self.one_solution or n_fits * expected > budget else n_fits), size

    def foretold(self, n_full: int, full_size: int, n_kept: Sequence[int], n_draws: int) -> str:
        """What the comparison will take, in words; ``n_draws`` at each size."""
        n_rows, fits = self.rows.n_rows, n_full * full_size + n_draws * sum(n_kept)
        seconds = fits * self._seconds_to_fit + n_draws * len(n_kept) * n_rows * self._seconds_to_reduce
        on_all = f"all {n_rows:,} rows" if full_size == n_rows else f"{full_size:,} of the {n_rows:,} rows"
        kept = f"{n_kept[0]:,}" if len(n_kept) == 1 else f"{n_kept[0]:,} to {n_kept[-1]:,}"
        return (
            f"{n_full + n_draws * len(n_kept)} fits, {n_full} on {on_all} and the others on {kept}: about "
            f"{seconds_text(max(1.0, seconds))}. Ctrl-C ends it with what it has."
        )

    def rounds(
        self,
        methods: Sequence[Method],
        n_kept: Sequence[int],
        full: tuple[int, int],
        n_repeats: int,
        polish: Any,
        tell: Callable[[str], None],
    ) -> Iterator[list[Trial]]:
        """All methods at one size after the other, so that what is there early tells much; ``full``: see `affordable`.

        Fits on all rows come with the first round of a repeat.
        """
        n_full, full_size = full
        for repeat in range(n_repeats):
            runs: list[Trial] = []
            if repeat < n_full:
                tell(ALL_ROWS)
                runs.append(self.full_fit(repeat, full_size))
            for size in n_kept:
                for method in methods:
                    tell(f"{method.name}, {size:,} rows")
                    runs += self.run(method, size, repeat, polish)
                yield runs
                runs = []

    def full_fit(self, repeat: int, size: int) -> Trial:
        """A fit on all rows, or on a sample of ``size``."""
        n_rows = self.rows.n_rows
        sample = self.rows.sample(size, rng_for(self._seed, "full", repeat))
        seconds = {"draw": 0.0, "calibrate": 0.0}
        with timed(seconds, "fit"):
            params = _solve(self.rows, sample, rng_for(self._seed, "fit", repeat))
        name = ALL_ROWS if size == n_rows else f"{SAMPLE}, the largest affordable"
        distortion = np.zeros(1) if size == n_rows else self._distortion(sample)
        return _line(name, size, repeat, sample, seconds, distortion, is_sample=size < n_rows), params

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
        better = {**line, "method": f"{method.name}{POLISHED}", "polished": True, **_times(seconds)}
        return [(line, params), (better, polished)]

    def _distortion(self, coreset: Block) -> Array:
        """Of random solutions; NaN for a learner, which has none."""
        if self._queries is None or self._query_costs is None:
            return np.full(1, np.nan)
        costs = total_costs(coreset, self.objective, self._queries)
        return np.array([ratio_error(small, full) for small, full in zip(costs, self._query_costs, strict=True)])

    def measured(self, runs: Sequence[Trial]) -> list[dict[str, Any]]:
        """The runs with what the objective has at each solution on all rows learned from, in one pass, and scores.

        Of other estimators it is the loss on rows held out: trees know the rows that they learned from.
        """
        judge, solutions = self.judge, [params for _, params in runs]
        scored = [judge.scores(params) for params in solutions]
        values = [loss for _, loss in scored]
        if self._query_costs is not None:
            values = values_of(self.objective, self.rows.data(), solutions, float(np.max(self._query_costs))).tolist()
        return [
            {**run, "quality": quality, "held_out_loss": loss, "value": float(value), **judge.event_scores(params)}
            for (run, params), (quality, loss), value in zip(runs, scored, values, strict=True)
        ]


def _reduced_and_fitted(
    rows: ComparedRows, method: Method, size: int, *, seed: int, polish: Any
) -> tuple[Coreset, dict[str, float], Any, Any]:
    """The coreset, seconds by phase, the solution on the coreset, and the polished one (None without polish)."""
    objective, data = rows.objective, rows.data()
    seconds: dict[str, float] = {}
    plan = Plan.of(objective, method.construction, size, calibrate=method.calibrate, seed=seed)
    coreset = reduce_rows(data, plan, seconds=seconds)
    with timed(seconds, "fit"):
        params = _solve(rows, coreset, rng_for(seed, "solve"))
    if polish == 0:
        return coreset, seconds, params, None
    with timed(seconds, "polish"):
        polished = _polished(objective, data, coreset, params, polish=polish, calibrate=method.calibrate, seed=seed)
    return coreset, seconds, params, polished


def _solve(compared: ComparedRows, rows: Block, rng: np.random.Generator) -> Any:
    """A solution for the rows. Near that of a calibrated coreset of a convex objective is the place of its totals."""
    if compared.learner is not None:
        return compared.learner.fit(rows, rng)
    objective = compared.objective
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
    """Scores solutions on rows held out, by the score ``quality`` that fits the objective.

    ``factors`` of classes, whose numbers y then holds, are for losses: scores count rows as they are.
    """

    def __init__(
        self,
        objective: Objective,
        rows: Block,
        learner: ComparedLearner | None = None,
        labels: tuple[Any, ...] = (),
        factors: Array | None = None,
    ) -> None:
        self.objective, self.rows, self.learner, self.labels = objective, rows, learner, labels
        self._weight = self._loss_weight = rows.weights()
        if factors is not None:
            assert rows.y is not None
            self._loss_weight = self._weight * factors[rows.y]
        self._constant_loss = self._usual_loss = 1.0
        self.quality = "cost per row"
        if learner is not None:
            self.quality = "accuracy" if learner.target == "class" else "R²"
        elif objective.target == "class" and isinstance(objective, LinearModelObjective):
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

    def _mean_loss(self, losses: Array) -> float:
        return float(np.average(losses, weights=self._loss_weight))

    def scores(self, params: Any) -> tuple[float, float]:
        """The score named ``quality``, and the mean loss of a row."""
        if self.learner is not None:
            assert self.rows.y is not None
            loss = self._mean_loss(self.learner.losses(params, self._given, self.rows.y, self.objective.n_classes))
            if self.quality == "accuracy":
                return self._mean(self._predicted(params)[0] == self.rows.y), loss
            y = self.rows.y.astype(np.float64)
            return 1.0 - loss / max(self._mean(np.square(y - self._mean(y))), np.finfo(float).tiny), loss
        loss = self._mean_loss(self.objective.cost(self.rows, params))
        if self.quality == "accuracy":
            return self._mean(self._predicted(params)[0] == self._codes), loss
        if self.objective.target != "number":
            return loss, loss
        if self._constant_loss > 0.0:
            return 1.0 - loss / self._constant_loss, loss
        # as scikit-learn scores predictions of a constant: 1 if they are right
        return float(self.objective.without_rounding(loss, self._usual_loss) == 0.0), loss

    @cached_property
    def _codes(self) -> Array:
        """The class number of each row."""
        # the objective of a learner's coresets may know no classes
        codes = self.objective.codes(self.rows) if self.learner is None else self.rows.y
        assert codes is not None
        return codes

    @cached_property
    def _given(self) -> Any:
        """The rows as the learner gets them."""
        return None if self.learner is None else self.learner.given.of(self.rows)

    def _predicted(self, params: Any) -> tuple[Array, Array | None]:
        """The class number that a solution predicts for each row, and margins (n, 1) or (n, K), None without any."""
        if self.learner is not None:
            chances = self.learner.chances(params, self._given, self.objective.n_classes)
            return self.learner.predicted(params, self._given), chances
        assert isinstance(self.objective, LinearModelObjective)
        margins = self.objective.margins(self.rows.X, params)
        return (margins[:, 0] > 0 if margins.shape[1] == 1 else margins.argmax(axis=1)).astype(np.int32), margins

    def event_scores(self, params: Any) -> dict[str, float]:
        """F1 and average precision of the rarer of two classes; F1 as the mean over more classes."""
        if self.quality != "accuracy":
            return {}
        predicted, margins = self._predicted(params)
        if self.objective.n_classes > 2:
            options = {"sample_weight": self._weight, "average": "macro", "zero_division": 0.0}
            return {"f1": float(f1_score(self._codes, predicted, **options))}
        k = rarer_class(self._codes == 1, self._weight)
        margin = predicted.astype(np.float64) if margins is None else margins[:, -1]
        scores = event_scores(self._codes == k, margin if k else -margin, predicted == k, self._weight)
        return {name: scores[name] for name in ("f1", "average_precision") if name in scores}

    @property
    def baseline_note(self) -> str:
        """What a model would reach that knows nothing, in words; empty where the quality says it."""
        if self.quality != "accuracy":
            return ""
        label, share = commonest_class(self._codes, self._weight)
        said = f"Always to say {self.labels[label]} has an accuracy of {share:.4g}."
        if self.objective.n_classes > 2:
            return f"{said} F1 is the mean over the classes."
        k = rarer_class(self._codes == 1, self._weight)
        rate = float(np.average(self._codes == k, weights=self._weight))
        return f"{said} F1 and average precision are of {self.labels[k]} ({rate:.4g} of the rows)."
