"""The plan of a reduction, what is done where there are few rows, and coresets that are built by it."""

from __future__ import annotations

import os
import time
from abc import ABCMeta
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Annotated, Any

import numpy as np
from scipy import sparse

from tithe.core.contracts import Construction, Objective, SampledObjective, Source
from tithe.core.data import Array, Block, Coreset, Survey, concat
from tithe.core.errors import FileFormatError
from tithe.core.parallel import single_blas_thread
from tithe.core.params import resolve_size
from tithe.core.passes import DataPass, Tree
from tithe.core.progress import Checkpoint, Progress
from tithe.core.registry import make, resolve
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Integer, Number, Optional, Storable, expect
from tithe.reduce.calibration import calibrated
from tithe.reduce.draws import InfluenceObjective
from tithe.rows.arrays import as_block, as_rows, block_identity, is_frame
from tithe.rows.batches import BatchSource, is_like
from tithe.rows.encode import frame_schema
from tithe.rows.schema import frame_table
from tithe.storage.checkpoint import FolderLock, check_folder, load_state, save_state

LEAF_ROWS = 65_536
Notes = dict[str, str | int | float]
_LAST_DRAW = (61, 0)  # seeds the draw from the last node: above all levels of a tree
_TINY = float(np.finfo(np.float64).tiny)


def leaf_rows_for(coreset_size: int) -> int:
    """Rows of a leaf for a coreset of that size: enough that reducing one is worth it."""
    return max(LEAF_ROWS, 4 * coreset_size)


def node_rows_for(coreset_size: int, leaf_rows: int) -> int:
    """Rows of a node in the tree of a stream, whose rows cannot be read again: more than the coreset has.

    What comes later than the first leaf is scored at a pilot that does not know it. Only more rows make up for that.
    """
    return max(coreset_size, leaf_rows // 2)


def check_contracts(objective: Any, contracts: Iterable[ABCMeta | tuple[ABCMeta, ...]], *, needed_by: str) -> None:
    """Raise ValueError, naming what is missing, unless ``objective`` implements all of the contracts.

    Of several contracts in a tuple one is enough.
    """
    wanted: list[ABCMeta | tuple[ABCMeta, ...]] = [Objective, *contracts]
    for contract in wanted:
        if not isinstance(objective, contract):
            kinds, kind = contract if isinstance(contract, tuple) else (contract,), type(objective)
            missing = sorted(kinds[0].__abstractmethods__ - set(dir(kind)))
            lacks = f"lacks {', '.join(f'{name}()' for name in missing)}" if missing else "does not inherit it"
            names = " or a ".join(f"{one.__name__} ({one.__module__})" for one in kinds)
            raise ValueError(
                f"{needed_by} needs an objective that is a {names}; "
                f"{kind.__name__} {lacks}. construction='uniform' with calibrate=False works for every Objective."
            )


def check_together(objective: Objective, construction: Construction[Any], *, calibrate: bool) -> None:
    """Raise ValueError if the construction, or calibration, needs more than the objective has."""
    check_contracts(objective, construction.requires, needed_by=f"construction {construction.name!r}")
    if calibrate:
        check_contracts(objective, (SampledObjective,), needed_by="calibrate=True")


def resolve_pair(objective: Any, construction: Any, *, calibrate: bool) -> tuple[Objective, Construction[Any], bool]:
    """Objective and construction from names or instances, and whether the construction is the default.

    Raises ValueError for unknown names and for a pair that does not work together. No rows are needed.
    """
    objective = make("objective", objective)
    check_contracts(objective, (), needed_by="A coreset")
    auto = isinstance(construction, str) and construction == "auto"
    construction = make("construction", objective.best_construction if auto else construction)
    if not isinstance(construction, Construction):
        kind = type(construction).__name__
        raise ValueError(f"construction must be a name or a Construction (tithe.core.contracts), got {kind}.")
    check_together(objective, construction, calibrate=calibrate and objective.calibrates)
    return objective, construction, auto


@dataclass(frozen=True, kw_only=True)
class Plan(Storable):
    """The options of a reduction, fixed before a row is read: those of `build_coreset` that change the result."""

    objective: Objective
    construction: Construction[Any]
    size: Annotated[int, Integer(least=1)]  # the largest number of rows to keep
    calibrate: bool
    seed: Annotated[int, Integer(most=2**64)]
    # rows after which a weight has halved; None: weights stay
    half_life: Annotated[float | None, Optional(Number(least=_TINY))] = None
    auto: bool = False  # whether the construction is the default of the objective
    # the largest number of rows of a node of the tree, if it is more than ``size``: see `Reducer.finish`
    node_size: Annotated[int | None, Optional(Integer(least=1))] = None

    def check_relations(self) -> None:
        expect(self.n_kept >= self.size, "nodes of a tree are smaller than its coreset")
        check_together(self.objective, self.construction, calibrate=self.calibrate)

    @classmethod
    def of(
        cls,
        objective: str | Objective,
        construction: str | Construction[Any],
        size: int,
        *,
        calibrate: bool,
        seed: int,
        half_life: float | None = None,
        node_size: int | None = None,
    ) -> Plan:
        """From names or instances. Raises ValueError if they do not work together."""
        objective, construction, auto = resolve_pair(objective, construction, calibrate=calibrate)
        return cls(
            objective=objective,
            construction=construction,
            size=size,
            calibrate=calibrate and objective.calibrates,
            seed=seed,
            half_life=half_life,
            auto=auto,
            node_size=node_size,
        )

    @property
    def n_kept(self) -> int:
        """The largest number of rows of a node of the tree."""
        return self.size if self.node_size is None else self.node_size

    @property
    def notes(self) -> Notes:
        """The entries about the plan in the provenance of a coreset."""
        notes: Notes = {"objective": self.objective.name, **({"construction_asked": "auto"} if self.auto else {})}
        notes |= {"construction": self.construction.name, "coreset_size": self.size, "seed": self.seed}
        return notes if self.half_life is None else {**notes, "half_life": self.half_life}

    def differences(self, other: Plan) -> dict[str, tuple[Any, Any]]:
        """The options in which two plans differ, with the values of both; seeds are not compared."""
        pairs = {
            "objective": (self.objective, other.objective),
            "construction": (self.construction, other.construction),
            "coreset_size": (self.size, other.size),
            "calibrate": (self.calibrate, other.calibrate),
            "half_life": (self.half_life, other.half_life),
        }
        return {name: (ours, theirs) for name, (ours, theirs) in pairs.items() if ours != theirs}

    def start(
        self,
        at_hand: Block,
        *,
        n_rows: int | None = None,
        classes: Array | None = None,
        later: bool = False,
        pilot: Array | None = None,
    ) -> Reducer:
        """The reducer, with its pilot and construction prepared on the rows at hand.

        ``n_rows`` is the number of all rows, if known, and ``classes`` are all classes, if the rows at hand may lack
        some. ``later``: totals are taken in a second pass, at the solution on the drawn rows. If not, and the
        objective wants its totals at the solution, the pilot is the solution on the rows at hand. A ``pilot`` that is
        given is used in its place.
        """
        labelled = at_hand if classes is None else Block(X=np.empty((len(classes), 0)), y=classes)
        objective, construction = self.objective.for_rows(labelled), self.construction
        if pilot is not None:
            _check_given_pilot(pilot, objective, at_hand)
        totals = self.calibrate and not later
        if n_rows is not None and n_rows <= self.size:
            pilot = None  # all rows are kept
        else:
            construction = construction.prepare(at_hand, objective, rng=rng_for(self.seed, "prepare"))
            if pilot is None and (totals or construction.needs_pilot):
                pilot = self._new_pilot(at_hand, objective, construction, at_solution=totals, n_rows=n_rows)
        reducer = Reducer(plan=self, objective=objective, construction=construction, totals=totals, pilot=pilot)
        if not self.auto or not isinstance(objective, InfluenceObjective):
            return reducer
        return safe_with_few_rows(reducer, objective, at_hand, n_rows)

    def _new_pilot(
        self,
        at_hand: Block,
        objective: Objective,
        construction: Construction[Any],
        *,
        at_solution: bool,
        n_rows: int | None,
    ) -> Array:
        """A pilot from a sample: the exact solution on it if totals are taken at the solution, else a rough one."""
        rng = rng_for(self.seed, "pilot")
        if not (at_solution and objective.totals_at_solution):
            return construction.pilot(at_hand, objective, rng=rng)
        scale = 1.0 if n_rows is None else n_rows / len(at_hand)  # the penalty is added to the sum over all
        pilot: Array = objective.solve(replace(at_hand, sample_weight=at_hand.weights() * scale), rng=rng)
        return pilot


@dataclass(frozen=True, kw_only=True, eq=False)
class Reducer(Storable):
    """Reduces leaves, merges two coresets, and calibrates the last one.

    Leaves are scored at the one ``pilot`` of the tree, so that their totals add up. Where two coresets are merged,
    rows are scored at a new pilot. Draws are unbiased. The last coreset is calibrated to the exact totals, which
    removes most of the error of the whole tree.

    With a half-life h a row weighs u 2^(-(t - i)/h), i its row id and t the id of the last row
    the coreset stands for: weights, totals and the weight seen alike.
    """

    plan: Plan
    objective: Objective  # that of the plan, with classes
    construction: Construction[Any]  # that of the plan, after `prepare`
    totals: bool  # whether totals are taken from leaves; False if they are taken in a second pass
    pilot: Array | None
    # set if there are so few that the draw was compared with a uniform one
    rows_per_coefficient: Annotated[float | None, Optional(Number(least=0.0))] = None

    def check_relations(self) -> None:
        check_together(self.objective, self.construction, calibrate=self.totals)
        compared = [] if self.rows_per_coefficient is None else [resolve("construction", "uniform")]
        planned = [type(self.plan.construction), *compared]
        same = type(self.objective) is type(self.plan.objective) and type(self.construction) in planned
        expect(same, "a reducer is not that of its plan")

    def belongs_to(self, plan: Plan) -> bool:
        """Whether a reducer from a file was started by the plan, or by a fork of it."""
        ours, theirs = self.plan, plan
        sizes = (ours.size, ours.n_kept) == (theirs.size, theirs.n_kept)
        same = sizes and (ours.half_life, self.totals) == (theirs.half_life, theirs.calibrate)
        return same and type(ours.objective) is type(theirs.objective) and ours.construction == theirs.construction

    @property
    def has_pilot(self) -> bool:
        """Whether there is a pilot, or none is needed."""
        needed = self.totals or self.construction.needs_pilot
        return self.pilot is not None or not needed

    def check_rows(self, node: Block) -> None:
        """Refuse rows from a file that do not fit the pilot: kernels rely on its shape."""
        totals = None
        if isinstance(node, Coreset):
            totals = node.totals
            expect(
                (totals is not None) == (self.totals and self.pilot is not None), "totals are missing, or unasked for"
            )
            same = node.pilot is not None and self.pilot is not None and np.array_equal(node.pilot, self.pilot)
            expect(totals is None or same, "totals were not taken at the pilot")
        if self.pilot is not None:
            self.sampled.check_pilot(self.pilot, totals, node)
        self.objective.codes(node)

    @property
    def sampled(self) -> SampledObjective:
        """The objective, where there is a pilot."""
        assert isinstance(self.objective, SampledObjective)
        return self.objective

    def _draw(self, block: Block, pilot: Array | None, survey: Survey | None, key: tuple[int, int]) -> Block:
        if len(block) <= self.plan.n_kept:
            return block.take(np.flatnonzero(block.weights() > 0), None)
        rng = rng_for(self.plan.seed, *key, "draw")
        return self.construction.reduce(block, self.objective, self.plan.n_kept, pilot=pilot, survey=survey, rng=rng)

    def leaf(self, block: Block, key: tuple[int, int]) -> Coreset | None:
        """Score, draw, and take the exact totals, in one pass; None if no row has a positive weight."""
        n_seen, last_row = len(block), block.last_row_id
        if self.plan.half_life is not None and n_seen:
            age = last_row - block.row_ids()
            block = replace(block, sample_weight=block.weights() * np.exp2(-age / self.plan.half_life), mean=None)
        if n_seen == 0 or not block.total_weight > 0.0:
            return None
        survey = None
        if self.pilot is not None and (self.totals or self.construction.needs_survey):
            survey = self.sampled.survey(block, self.pilot)
        chosen = self._draw(block, self.pilot, survey, key)
        return Coreset(
            **_rows(chosen),
            n_seen=n_seen,
            weight_seen=block.total_weight,
            totals=survey.totals if survey is not None and self.totals else None,
            pilot=self.pilot,
            key=key,
            last_row=last_row,
            provenance=chosen.notes or {},
        )

    def merge(self, left: Coreset, right: Coreset, key: tuple[int, int]) -> Coreset:
        """The rows of both coresets, reduced to size again."""
        last_row = max(left.last_row, right.last_row)
        left, right = self._aged(left, last_row), self._aged(right, last_row)
        both = concat([left, right])
        local_pilot, survey = self.pilot, None
        if len(both) > self.plan.n_kept and self.pilot is not None and self.construction.needs_survey:
            local_pilot = self.construction.pilot(both, self.objective, rng=rng_for(self.plan.seed, *key, "pilot"))
            survey = self.sampled.survey(both, local_pilot)
        return Coreset(
            **_rows(self._draw(both, local_pilot, survey, key)),
            n_seen=left.n_seen + right.n_seen,
            weight_seen=left.weight_seen + right.weight_seen,
            totals=None if left.totals is None or right.totals is None else left.totals + right.totals,
            pilot=self.pilot,
            key=key,
            last_row=last_row,
            provenance={**right.provenance, **left.provenance},
        )

    def _aged(self, coreset: Coreset, last_row: int) -> Coreset:
        """The coreset with its weights decayed to a later row."""
        if self.plan.half_life is None or last_row == coreset.last_row:
            return coreset
        factor = float(np.exp2(-(last_row - coreset.last_row) / self.plan.half_life))
        return replace(
            coreset,
            sample_weight=coreset.weights() * factor,
            weight_seen=coreset.weight_seen * factor,
            totals=None if coreset.totals is None else coreset.totals * factor,
        )

    def finish(self, node: Coreset) -> Coreset:
        """The last coreset, of at most ``size`` rows, with complete provenance.

        The node is calibrated to its exact totals. If it has more rows, they are reduced as all rows of a data set are:
        scored at a pilot of their own, and calibrated to their own totals. So rows that came long after the first
        pilot are treated like all others. ``totals`` and ``pilot`` of the result stay the exact ones.
        """
        node = self.calibrated(node)
        if len(node) <= self.plan.size:
            return node
        plan = replace(self.plan, objective=self.objective, node_size=None, half_life=None)
        rows = Block(**_rows(node))
        later = plan.calibrate and self.objective.totals_at_solution
        reducer = plan.start(rows, n_rows=len(rows), later=later)
        drawn = reducer.leaf(rows, _LAST_DRAW)
        assert drawn is not None
        if later:
            solution = reducer.objective.solve(drawn, rng=rng_for(plan.seed, "solve"))
            drawn = replace(drawn, totals=reducer.sampled.survey(rows, solution).totals, pilot=solution)
        drawn = reducer.calibrated(drawn)
        provenance = {**node.provenance, **drawn.provenance, "rows_in_tree": len(node)}
        return replace(node, **_rows(drawn), provenance=provenance)

    def calibrated(self, node: Coreset) -> Coreset:
        """A node, calibrated to its totals, with complete provenance."""
        is_whole = node.n_seen <= self.plan.size
        notes: Notes = {"construction": "all"} if is_whole else dict(node.provenance)
        node = replace(
            node,
            is_whole=is_whole,
            objective=self.objective,
            half_life=self.plan.half_life,
            scorer=None if is_whole else self.construction.scorer,
            provenance={**self._notes(), **notes, "calibrated": 0},
        )
        return node if node.totals is None else calibrated(node, self.sampled)[0]

    def _notes(self) -> Notes:
        name = self.construction.name
        notes: Notes = {**self.plan.notes, "construction": name}
        if self.rows_per_coefficient is not None:
            notes["draw"] = f"{name}: {self.rows_per_coefficient:.2g} rows per coefficient"
        return notes


def _check_given_pilot(pilot: Array, objective: Objective, rows: Block) -> None:
    check_contracts(objective, (SampledObjective,), needed_by="pilot=...")
    assert isinstance(objective, SampledObjective)
    try:
        objective.check_pilot(pilot, None, rows)
    except ValueError as error:
        raise ValueError(
            f"The pilot does not fit these rows and {objective!r}: {error}. It must come from a coreset of the same "
            "columns and objective."
        ) from error


def _rows(block: Block) -> dict[str, Any]:
    return {"X": block.X, "y": block.y, "sample_weight": block.sample_weight, "indices": block.row_ids()}


_FEW_ROWS_PER_COEFFICIENT = 1.5  # rows per coefficient below which the default draw is compared with a uniform one
_TRIAL_DRAWS = 3  # draws of each kind, if the rows at hand are a sample


def safe_with_few_rows(reducer: Reducer, objective: InfluenceObjective, at_hand: Block, n_rows: int | None) -> Reducer:
    """The reducer, or a uniform one if that gives the smaller loss; only with few rows per coefficient.

    If the rows at hand are all rows, the final draws are compared, otherwise three draws of each kind.
    """
    all_at_hand = n_rows == len(at_hand)
    if len(at_hand) <= reducer.plan.n_kept:
        return reducer
    rows_each = objective.rows_per_coefficient(at_hand, reducer.plan.n_kept)
    if rows_each >= _FEW_ROWS_PER_COEFFICIENT:
        return reducer
    if not all_at_hand and n_rows is not None:  # the penalty is added to the sum over all rows
        at_hand = replace(at_hand, sample_weight=at_hand.weights() * (n_rows / len(at_hand)), mean=None)
    plan, uniform = reducer.plan, make("construction", "uniform")
    seeds = [plan.seed]
    if not all_at_hand:
        seeds = [int(rng_for(plan.seed, "trial", i).integers(2**62)) for i in range(_TRIAL_DRAWS)]
    draws = [replace(reducer, totals=False, plan=replace(plan, seed=seed)) for seed in seeds]
    loss = np.median([_trial_loss(draw, objective, at_hand) for draw in draws])
    if np.median([_trial_loss(replace(draw, construction=uniform), objective, at_hand) for draw in draws]) < loss:
        reducer = replace(reducer, construction=uniform)
    return replace(reducer, rows_per_coefficient=rows_each)


def _trial_loss(reducer: Reducer, objective: InfluenceObjective, rows: Block) -> float:
    """The loss on the rows of a fit on a draw from them."""
    coreset = reducer.leaf(rows, (0, 0))
    if coreset is None:
        return np.inf
    solution = objective.solve(coreset, rng=rng_for(reducer.plan.seed, "trial"), init=reducer.pilot)
    return objective.evaluate(rows, solution).value


# -- builds ----------------------------------------------------------------------------------------

_FEW_ROWS = 1024  # that workers compile the kernels of a build with


def build_coreset(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: str | Objective,
    construction: str | Construction[Any] = "auto",
    coreset_size: int | float,
    calibrate: bool = True,
    pilot: Any = None,
    encode: bool | str = "auto",
    engine: Any = "auto",
    random_state: Any = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | bool | None = None,
) -> Coreset:
    """A small weighted share of the rows that stands for all of them.

    Parameters
    ----------
    X : array, CSR matrix, pandas, polars or Arrow frame, memmap, Dask or Spark collection, batches, or a source
        A batch is any of these, or a tuple ``(X, y)`` or ``(X, y, sample_weight)``. A source is what
        `open_dataset` gives for files: it brings y and weights along. y and weights of a Dask array or frame are Dask
        arrays or series with the same partitions.
    y : array of shape (n,), optional
        Carried along; some objectives use it. The name of a column of a Spark DataFrame.
    sample_weight : array of shape (n,), optional
        The name of a column of a Spark DataFrame.
    objective : str or objective
        What must be preserved: ``"kmeans"``, ``"kmedian"``, ``"logistic"``, ``"margin"``, ``"generic"``, or
        an instance such as ``KMeansObjective(n_clusters=20)``. In a stream, name all classes beforehand:
        ``LogisticObjective(classes=("no", "yes"))``.
    construction : str or construction
        How rows are chosen. For clusters: ``"sensitivity"``, ``"lightweight"``, ``"rings"``. For linear models:
        ``"influence"``, ``"leverage"``. For logistic regression also ``"cablr"``, ``"acvs"``; for margins also
        ``"sensitivity"``. Where there are sensitivities or the bounds of ``"cablr"``: ``"regressed"``, which predicts
        them from a sample. For all objectives: ``"uniform"`` and ``"ball_cover"``. ``"auto"`` takes the
        construction that is best on real data for the objective and notes it in ``provenance``. If fewer rows than
        coefficients are kept, it compares this with a uniform draw.
    coreset_size : int or float
        The largest number of rows to keep, or a fraction of the rows between 0 and 1. A row that is drawn twice is
        kept once, so the coreset may have fewer rows. If the data has no more rows than this, all are kept.
    calibrate : bool
        Adjust the weights to exact totals of all rows. False returns the unbiased draw as it is.
    pilot : array, optional
        The rough solution at which rows are scored and totals are taken, in place of one that is found on these rows:
        the attribute ``pilot`` of another coreset. Totals of several data sets add up if all were taken at one pilot
        (`merge_coresets`).
    encode : {"auto", "strict", True, False}
        How a frame becomes features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is. The attribute ``schema`` of the coreset says how.
    engine : str or engine
        ``"serial"``, ``"threads"``, or on a cluster ``"dask"`` or ``"spark"``. The result has the same bits on each.
        ``"auto"`` is ``"dask"`` for Dask collections if there is a client, and ``"spark"`` for Spark DataFrames.
    random_state : int, RandomState, Generator or None
    checkpoint : Checkpoint, optional
        A folder for the state, so that a build that was stopped can be resumed, with the same bits.
    progress : callable, bool or None
        Called as ``progress(n_passes, n_leaves, n_rows)`` after every leaf: the number of the pass over the data,
        and the leaves and rows of it that are done. It may raise ``KeyboardInterrupt`` to stop the build. True
        shows a bar on standard error.

    Returns
    -------
    Coreset

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.objectives import KMeansObjective
    >>> X = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> coreset = build_coreset(X, objective=KMeansObjective(n_clusters=3), coreset_size=500, random_state=0)
    >>> len(coreset) <= 500, round(coreset.weights().sum())
    (True, 20000)
    """
    resolve_pair(objective, construction, calibrate=calibrate)  # a wrong pair is refused before rows are read
    schema = frame_schema(X, encode, y)
    X = X if schema is None else schema.encode(frame_table(X))
    rows = _as_rows(X, y, sample_weight, coreset_size)
    data = DataPass(rows, engine, progress)
    size = resolve_size(coreset_size, data.n_expected)
    plan = Plan.of(objective, construction, size, calibrate=calibrate, seed=as_seed(random_state))
    given = None if pilot is None else np.ascontiguousarray(pilot, np.float64)
    coreset = reduce_rows(data, plan, checkpoint=checkpoint, pilot=given)
    return replace(coreset, schema=rows.schema if isinstance(rows, Source) else schema)


@single_blas_thread()
def reduce_rows(
    data: DataPass,
    plan: Plan,
    *,
    checkpoint: Checkpoint | None = None,
    leaf_rows: int | None = None,
    pilot: Array | None = None,
    seconds: dict[str, float] | None = None,
) -> Coreset:
    """`build_coreset` for rows that are already checked.

    ``leaf_rows`` is the wanted number of rows in a leaf of a source; None chooses it by the source and the size of
    the coreset. ``seconds`` gets the times of the phases ``draw``, which takes totals as well where one pass does
    both, and ``calibrate``. BLAS runs in one thread: with two it adds in another order.
    """
    rows = data.rows
    if leaf_rows is None:
        leaf_rows = leaf_rows_for(plan.size)
        leaf_rows = leaf_rows if isinstance(rows, Block) else max(leaf_rows, rows.leaf_rows)
    if not isinstance(rows, Block) and not rows.replayable and pilot is None:
        plan = replace(plan, node_size=node_rows_for(plan.size, leaf_rows))
    # totals at the solution on the drawn rows are better, and another pass over rows in memory is cheap
    later = plan.calibrate and pilot is None and isinstance(rows, Block) and plan.objective.totals_at_solution
    build = _Build(data, plan, leaf_rows, later, pilot)
    begun = time.perf_counter()
    if checkpoint is None:
        reducer = build.start()
        coreset = data.fold(reducer.leaf, reducer.merge, leaf_rows=leaf_rows)
    else:
        reducer, coreset = _resumable(build, checkpoint)
    drawn = time.perf_counter()
    if later and coreset.n_seen > plan.size:
        objective = reducer.sampled
        solution = objective.solve(coreset, rng=rng_for(plan.seed, "solve"))
        totals = data.total(lambda leaf: objective.survey(leaf, solution).totals)
        coreset = replace(coreset, totals=totals, pilot=solution)
    coreset = reducer.finish(coreset)
    if seconds is not None:
        seconds |= {"draw": drawn - begun, "calibrate": time.perf_counter() - drawn}
    if isinstance(rows, Block):
        return coreset
    return replace(coreset, provenance={**coreset.provenance, "determinism": rows.determinism})


@dataclass(frozen=True)
class _Build:
    """The input of a build. ``later``: totals are taken in a second pass. ``pilot``: one that was given."""

    data: DataPass
    plan: Plan
    leaf_rows: int
    later: bool
    pilot: Array | None

    def start(self) -> Reducer:
        """The reducer of the leaves, prepared on the rows in memory or on a sample."""
        rows, plan = self.data.rows, self.plan
        if isinstance(rows, Block):
            return plan.start(rows, n_rows=len(rows), later=self.later, pilot=self.pilot)
        at_hand = rows.sample(None if rows.replayable else self.leaf_rows, rng=rng_for(plan.seed, "look"))
        classes = None
        if plan.objective.lacks_classes:
            classes = rows.classes()  # a class may be in the last file only
        # workers compile while the pilot is found here
        few = at_hand.take(np.arange(min(len(at_hand), _FEW_ROWS)))
        name = f"{plan.objective.name} {plan.construction.name} {few.X.dtype}"
        self.data.warm_up(name, partial(_trial_reduction, plan, few, classes))
        return plan.start(at_hand, n_rows=rows.n_rows, classes=classes, pilot=self.pilot)

    def about(self) -> dict[str, Any]:
        """What must be equal for a build to be resumed."""
        rows, plan = self.data.rows, self.plan
        return {
            "kind": "build",
            "source": block_identity(rows) if isinstance(rows, Block) else rows.identity,
            "leaf_rows": self.leaf_rows,
            "seed": plan.seed,
            "node_size": plan.node_size,
            "pilot": None if self.pilot is None else sha256(self.pilot.tobytes()).hexdigest(),
        }

    def check(self, reducer: Reducer, tree: Tree) -> None:
        """Refuse a reducer and nodes from a file that are not of this build."""
        plan, d, n_rows = self.plan, self.data.rows.n_features, self.data.n_expected
        asked = replace(plan, calibrate=plan.calibrate and not self.later)
        expect(reducer.belongs_to(asked) and reducer.plan.seed == plan.seed, "a reducer is not that of its plan")
        expect((n_rows is not None and n_rows <= plan.size) or reducer.has_pilot, "a pilot is missing")
        reducer.construction.check_columns(d, reducer.objective)
        for slot in tree.slots:
            expect(slot.n_features == d and is_like(slot, tree.slots[0]), "a coreset is unlike the rows of the source")
            reducer.check_rows(slot)


def _trial_reduction(plan: Plan, rows: Block, classes: Array | None) -> None:
    """Reduce and merge a few rows, for which all kernels of a build are compiled."""
    reducer = replace(plan, size=max(1, len(rows) // 2)).start(rows, classes=classes)
    node = reducer.leaf(rows, (0, 0))
    assert node is not None
    reducer.merge(node, node, (1, 0))


def _resumable(build: _Build, checkpoint: Checkpoint) -> tuple[Reducer, Coreset]:
    """The reducer and the coreset of all leaves; their state is written at intervals.

    Leaves that an earlier run has reduced are not read again.
    """
    check_folder(checkpoint.path)
    about, saved_at = build.about(), time.monotonic()
    latest: Tree | None = None  # after the last complete leaf; the next may have been interrupted anywhere

    def save() -> None:
        nonlocal saved_at
        if latest is not None:
            save_state(checkpoint.path, (build.plan, reducer, latest), about)
            saved_at = time.monotonic()

    def watch(tree: Tree) -> None:
        nonlocal latest
        latest = tree
        if time.monotonic() - saved_at >= checkpoint.every:
            save()

    with ExitStack() as at_end:
        at_end.callback(FolderLock(checkpoint.path).release)
        saved = _restored(build, about, os.fspath(checkpoint.path)) if checkpoint.resume else None
        reducer, tree = (build.start(), Tree()) if saved is None else saved
        options: dict[str, Any] = {"tree": tree, "leaf_rows": build.leaf_rows, "watch": watch}
        try:
            return reducer, build.data.fold(reducer.leaf, reducer.merge, **options)
        except (KeyboardInterrupt, ConnectionError):  # stopped, or the cluster is lost
            save()
            raise


def _restored(build: _Build, about: dict[str, Any], path: str) -> tuple[Reducer, Tree] | None:
    """The reducer and tree of a build that was stopped, or None. The state of another build is refused."""
    saved = load_state(path, missing_ok=True)
    if saved is None:
        return None
    differing = [name for name, value in about.items() if saved.about.get(name) != value]
    try:
        others: Any = (build.plan, None, None)
        plan, reducer, tree = saved.state if saved.about.get("kind") == "build" else others
        expect(isinstance(plan, Plan), "there is no plan")
        differing += [*build.plan.differences(plan)]
        if not differing:
            expect(isinstance(reducer, Reducer) and isinstance(tree, Tree), "there is no reducer, or no tree")
            build.check(reducer, tree)
            return reducer, tree
    except (LookupError, TypeError, ValueError) as error:
        raise FileFormatError(f"The checkpoint in {path!r} is damaged: {error}") from error
    raise ValueError(
        f"{path!r} holds the state of another run: {', '.join(differing)} differ. Give the same "
        "files and options as before, or start anew without resuming."
    )


def _as_rows(X: Any, y: Any, sample_weight: Any, coreset_size: Any) -> Block | Source:
    X, y, sample_weight = as_rows(X, y, sample_weight)
    if isinstance(X, Source):
        if y is not None or sample_weight is not None:
            raise ValueError(
                "A source brings y and weights along: name their columns when it is opened, target=... and weight=..."
            )
        return X
    if _is_table(X):
        return as_block(X, y, sample_weight)
    if isinstance(X, (str, bytes)) or not isinstance(X, Iterable):
        raise ValueError(
            f"X must be an array, a CSR matrix, a frame, an iterable of batches or a Source, got {type(X).__name__}. "
            "Files are opened with tithe.open_dataset()."
        )
    if y is not None or sample_weight is not None:
        raise ValueError("With an iterable, y and weights come in the batches: yield (X, y, sample_weight).")
    return BatchSource(X, leaf_size=leaf_rows_for(resolve_size(coreset_size, None)))


def _is_table(X: Any) -> bool:
    if sparse.issparse(X) or hasattr(X, "__array__") or is_frame(X):
        return True
    # a list of rows, as scikit-learn takes it; a list of two-dimensional batches is an iterable
    if not isinstance(X, (list, tuple)) or len(X) == 0 or len(getattr(X[0], "shape", ())) == 2:
        return False
    return all(np.isscalar(value) for value in X[0]) if isinstance(X[0], (list, tuple)) else True
