"""The rows of a comparison: those that are learned from, and those that are held out."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tithe.certify.held_out import held_out_split
from tithe.core.contracts import Objective, Source
from tithe.core.data import Block, concat
from tithe.core.passes import DataPass
from tithe.core.progress import available_memory
from tithe.core.seeding import Reservoir, hash_limit
from tithe.fit.base import check_no_extra_arrays
from tithe.fit.labels import EncodeLabels, class_masses, known_classes, objective_for
from tithe.fit.tables import block_of_rows
from tithe.linear.regression_objectives import SingleScoreObjective
from tithe.linear.regressor import NumericTarget
from tithe.rows.dask_collections import dask_source, is_dask_collection
from tithe.rows.mapped import MappedSource, SplitSource
from tithe.rows.spark_frames import is_spark_frame, open_numbers

_MAX_HELD_OUT = 200_000  # rows: more make no score better known
_MIN_HELD_OUT = 20
_MEMORY_SHARE = 0.25  # of the available memory that rows may take; fits hold copies of some of them
_ROW_OVERHEAD = 24  # bytes of a row besides X: its target, weight and id
_USUAL_MEMORY = 2**30  # bytes that rows may take where the system does not say how much is available


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedRows:
    """Rows to learn from, as a block where they fit into memory, and rows that are held out.

    ``objective`` knows the classes, and y holds their numbers. ``max_rows`` is the number of rows that fit into memory.
    """

    training: Block | Source
    held_out: Block
    objective: Objective
    n_rows: int
    max_rows: int
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
            rows = _drawn(self.data(), size, int(rng.integers(2**62)))
        return replace(rows, sample_weight=rows.weights() * (self.n_rows / len(rows)))


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
            rows = concat(list(DataPass(rows, engine).each(_itself)))
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
        held_out = concat(list(DataPass(SplitSource(rows, apart), engine).each(_itself)))
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
    if is_dask_collection(X):
        return dask_source(X, y, sample_weight)
    if is_spark_frame(X):
        return open_numbers(X, y, sample_weight)
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


def _drawn(data: DataPass, size: int, key: int) -> Block:
    """``size`` rows of a source, or all of them if there are fewer, in one pass."""
    for limit in (hash_limit(size, data.n_expected), hash_limit(size, None)):
        reservoir = Reservoir(size=size, key=key, limit=limit)
        for rows in data.each(reservoir.among):
            reservoir.keep(rows)
        if not reservoir.lacks_rows:
            break
    return reservoir.rows()


def _itself(leaf: Block) -> Block:
    return leaf
