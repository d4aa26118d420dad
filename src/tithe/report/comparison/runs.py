"""The runs of a comparison: reduce, fit, measure."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from tithe.certify import polish_by_descent, polish_by_steps
from tithe.certify.cost import SteppedObjective
from tithe.certify.gap import ConvexObjective
from tithe.core.contracts import Objective
from tithe.core.data import Array, Block, Coreset, effective_sample_size
from tithe.core.passes import DataPass
from tithe.core.progress import timed
from tithe.core.seeding import rng_for
from tithe.dictionary.objective import DictionaryObjective
from tithe.linear.logistic_objective import LogisticObjective
from tithe.reduce.build import reduce_rows
from tithe.reduce.distortion import random_queries, ratio_error, total_costs
from tithe.reduce.plan import Plan, resolve_pair
from tithe.report.comparison.rows import ComparedRows

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A fit on few rows, or on as many as can be afforded.

    Parameters
    ----------
    method : str
    is_sample : bool
        Whether the rows are a random sample whose weights were not calibrated.
    size : int
        Rows that were asked for.
    repeat : int
    n_rows : int
        Rows that were kept.
    effective_size : float
    seconds : dict
        By phase: ``draw``, ``calibrate``, ``fit``, and ``polish`` if there was any.
    params : array
        The solution.
    distortion : array (n_queries,)
        Of the rows kept, before any polish.
    drawn_uniformly : bool
        Whether a uniform draw took the place of the one asked for, as it does where it is better with very few rows.
    """

    method: str
    is_sample: bool
    size: int
    repeat: int
    n_rows: int
    effective_size: float
    seconds: dict[str, float]
    params: Any
    distortion: Array = field(default_factory=lambda: np.zeros(1))
    drawn_uniformly: bool = False


def methods_of(objective: Objective, constructions: Sequence[Any], *, calibrate: bool) -> list[Method]:
    """The weighted uniform sample, and the constructions that were asked for. Pairs that do not work are refused."""
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
        """Run every method once on a few rows, so that no time of a run is that of a compiler."""
        few = self.rows.sample(_WARM_UP_ROWS, rng_for(self._seed, "warm up"))
        size = min(_WARM_UP_SIZE, len(few) - 1)
        small = replace(self.rows, training=few, n_rows=len(few), engine="auto")
        _solve(self.objective, few, rng_for(self._seed, "warm up"))
        for method in methods:
            _reduced_and_fitted(small, method, size, seed=0, polish=polish)

    def full_fits(self, n_fits: int, budget: float, step: Callable[[], None]) -> list[Run]:
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
            step()
            sample = self.rows.sample(size, rng_for(self._seed, "full", repeat))
            seconds = {"draw": 0.0, "calibrate": 0.0}
            with timed(seconds, "fit"):
                params = _solve(self.objective, sample, rng_for(self._seed, "fit", repeat))
            name = ALL_ROWS if size == n_rows else f"{SAMPLE}, the largest affordable"
            runs.append(
                Run(
                    method=name,
                    is_sample=size < n_rows,
                    size=size,
                    repeat=repeat,
                    n_rows=len(sample),
                    effective_size=effective_sample_size(sample.weights()),
                    seconds=seconds,
                    params=params,
                    distortion=np.zeros(1) if size == n_rows else self._distortion(sample),
                )
            )
        return runs

    def run(self, method: Method, size: int, repeat: int, polish: Any) -> list[Run]:
        """A run, and the same polished if asked for."""
        seed = int(rng_for(self._seed, "repeat", repeat).integers(2**62))
        coreset, seconds, params, polished = _reduced_and_fitted(self.rows, method, size, seed=seed, polish=polish)
        run = Run(
            method=method.name,
            is_sample=method.name == SAMPLE,
            size=size,
            repeat=repeat,
            n_rows=len(coreset),
            effective_size=coreset.effective_size,
            seconds={name: value for name, value in seconds.items() if name != "polish"},
            params=params,
            distortion=self._distortion(coreset),
            drawn_uniformly=coreset.provenance["construction"] != method.drawn_by,
        )
        if polished is None:
            return [run]
        return [run, replace(run, method=f"{method.name}, polished", params=polished, seconds=seconds)]

    def _distortion(self, coreset: Block) -> Array:
        costs = total_costs(coreset, self.objective, self._queries)
        return np.array([ratio_error(small, full) for small, full in zip(costs, self._query_costs, strict=True)])

    def values(self, solutions: Sequence[Any]) -> Array:
        """What the objective has at each solution on all rows learned from, in one pass: (n_solutions,).

        What is rounding beside the value without any coefficient or atom, or of random centres, is zero.
        """
        objective, data = self.objective, self.rows.data()
        if not isinstance(objective, ConvexObjective):
            nothing = [np.zeros(self.rows.held_out.n_features)] if isinstance(objective, DictionaryObjective) else []
            values = total_costs(self.rows.training, objective, [*solutions, *nothing], self.rows.engine)
            usual = values[-1] if nothing else np.max(self._query_costs)
            return objective.without_rounding(values[: len(solutions)], float(usual))
        solutions = [*solutions, objective.without_coefficients(solutions[0])]
        sums = data.total(lambda leaf: _as_objects([objective.sums(leaf, params) for params in solutions]))
        pairs = zip(sums, solutions, strict=True)
        values = np.array([objective.evaluation(total, params).value for total, params in pairs])
        return objective.without_rounding(values[:-1], values[-1])


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
    if not _is_asked(polish):
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


def _is_asked(polish: Any) -> bool:
    return not isinstance(polish, int) or polish > 0


def _as_objects(sums: Sequence[Any]) -> Array:
    """Sums in an array that is added entry by entry, as lists are not."""
    objects = np.empty(len(sums), dtype=object)
    objects[:] = sums
    return objects
