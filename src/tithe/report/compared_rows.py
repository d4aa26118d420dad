"""The rows of a comparison: some to learn from, some held out."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tithe.certify.held_out import held_out_split
from tithe.core.contracts import Objective, Source
from tithe.core.data import Array, Block, concat
from tithe.core.labels import seem_no_classes
from tithe.core.passes import DataPass
from tithe.core.progress import available_memory
from tithe.core.seeding import Reservoir, hash_limit
from tithe.fit.base import block_of_rows, check_no_extra_arrays
from tithe.fit.labels import WeighClasses, class_factors, class_masses, objective_for, with_class_numbers
from tithe.linear.regression import NumericTarget
from tithe.linear.regression_objectives import SingleScoreObjective
from tithe.report.compared_learner import ComparedLearner
from tithe.rows.arrays import as_rows
from tithe.rows.leaves import MappedSource, SplitSource
from tithe.rows.schema import TableSchema

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
    learner: ComparedLearner | None = None  # in place of the solver of the objective
    schema: TableSchema | None = None  # that made the rows of a table
    labels: tuple[Any, ...] = ()  # of the classes
    class_weight: Any = None
    factors: Array | None = None  # of the weights of classes, with which the rows to learn from are weighted

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
    rows: Block | Source,
    objective: Objective,
    learner: ComparedLearner | None = None,
    *,
    many_classes: bool = False,
    class_weight: Any = None,
    holdout: float,
    memory: int | None,
    engine: Any,
    seed: int,
) -> ComparedRows:
    """Check the rows, read them into memory if they fit, and hold some out by a hash of their ids."""
    if isinstance(rows, Block):
        n_all = max_rows = len(rows)
    else:
        memory = memory or int(_MEMORY_SHARE * available_memory()) or _USUAL_MEMORY
        n_all, max_rows = int(rows.count() or 0), memory // (rows.row_bytes + _ROW_OVERHEAD)
        if n_all <= max_rows:
            rows = concat(list(DataPass(rows, engine).each(lambda leaf: leaf)))
            n_all = len(rows)  # those without a target are left out
    target = objective.target if learner is None else learner.target
    rows, objective, labels = _with_target(rows, objective, learner, engine)
    if target == "class" and not many_classes:
        _check_classes(np.asarray(labels), n_all)
    share = min(holdout, _MAX_HELD_OUT / max(n_all, 1))
    if n_all * share < _MIN_HELD_OUT:
        raise ValueError(
            f"holdout={holdout:g} of {n_all} rows leaves too few to judge by: at least {_MIN_HELD_OUT} are needed."
        )
    learned, apart = held_out_split(rows, share, seed, has_classes=target == "class")
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
    factors = None
    if target == "class":
        masses = class_masses(DataPass(training, engine), len(labels))
        if class_weight is not None:
            factors = class_factors(class_weight, np.asarray(labels), masses)
            masses = masses * factors
        if not masses.all():
            raise ValueError("A class has no row of positive weight: leave its rows out, or give them weight.")
    return ComparedRows(
        training=_weighted(training, factors),
        held_out=held_out,
        objective=objective,
        n_rows=n_rows,
        max_rows=max_rows,
        engine=engine,
        learner=learner,
        labels=labels,
        class_weight=class_weight,
        factors=factors,
    )


def _weighted(rows: Block | Source, factors: Array | None) -> Block | Source:
    """The rows with weights times the factors of their classes, whose numbers y holds."""
    if factors is None:
        return rows
    change = WeighClasses(classes=np.arange(len(factors), dtype=np.int32), factors=factors)
    return change(rows) if isinstance(rows, Block) else MappedSource(rows, change)


def _check_classes(labels: Array, n_rows: int) -> None:
    """Refuse a target that is more likely a quantity, or a name of rows, than a class."""
    if not seem_no_classes(labels, n_rows):
        return
    is_number = labels.dtype.kind in "iuf"
    remedy = "For a quantity take objective='ridge', or a learner that is a regressor. " if is_number else ""
    raise ValueError(
        f"y has {len(labels):,} different values in {n_rows:,} rows, such as {labels.tolist()[0]!r}: each would be a "
        f"class. {remedy}To learn classes all the same: many_classes=True."
    )


def opened_rows(X: Any, y: Any, sample_weight: Any) -> tuple[Block | Source, TableSchema | None]:
    """The rows, and the schema that made them of a table."""
    X, y, sample_weight = as_rows(X, y, sample_weight)
    if isinstance(X, (str, bytes, os.PathLike)):
        raise ValueError("X must be an array, a frame or a source. Files are opened with tithe.open_dataset().")
    if not isinstance(X, Source):
        return block_of_rows(X, y, sample_weight)
    if not X.replayable:
        raise ValueError("A comparison reads the rows several times, and these come only once: save them to a file.")
    return check_no_extra_arrays(X, y, sample_weight), X.schema


def _with_target(
    rows: Block | Source, objective: Objective, learner: ComparedLearner | None, engine: Any
) -> tuple[Block | Source, Objective, tuple[Any, ...]]:
    """The rows with class numbers for labels, the objective with its classes, and the labels."""
    target, name = (objective.target, objective.name) if learner is None else (learner.target, learner.name)
    if target is None:
        return rows, objective, ()
    if isinstance(rows, Block) and rows.y is None:
        what = "a class" if target == "class" else "a number"
        raise ValueError(f"{'Objective ' * (learner is None)}{name!r} needs {what} for every row: give y.")
    if learner is None and isinstance(objective, SingleScoreObjective):
        change = NumericTarget(type(objective))
        return (change(rows) if isinstance(rows, Block) else MappedSource(rows, change)), objective, ()
    known, data = with_class_numbers(DataPass(rows, engine), classifier=target == "class")
    labels = () if known is None else tuple(known.tolist())
    goal = objective_for(objective, len(labels)) if learner is None else learner.objective(len(labels))
    return data.rows, goal, labels
