"""Folds: of rows at hand by position, of others by a hash of the row's id, so that no list of them is needed."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tithe.core.checkpoint import Checkpoint
from tithe.core.contracts import Construction, Objective, Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.hashing import Reservoir, fold_of, key_of
from tithe.core.passes import DataPass
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Each, Floats, Instance, Integer, Integers, Storable, Text, check_fields, expect
from tithe.learners.base import all_rows, auto_size, objective_for
from tithe.reduce.build import reduce_rows, resolve_size
from tithe.reduce.plan import Plan
from tithe.reduce.stream import CoresetStream
from tithe.sources.batches import is_like
from tithe.sources.mapped import MappedSource

Splits = list[tuple[Array, Array]]

MOST_HELD_OUT = 100_000  # rows of a fold that candidates are scored on, held in memory for that


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """What candidates learn from, and the rows they are judged by."""

    coreset: Coreset
    held_out: Block


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """The rows of a block that are not in a fold, with other numbers for their classes if need be."""

    key: int
    n_folds: int
    fold: int
    numbers: Array | None = None

    def __call__(self, block: Block) -> Block:
        rows = block.take(np.flatnonzero(fold_of(block.row_ids(), self.key, self.n_folds) != self.fold))
        return renumbered(rows, self.numbers)


def n_folds_by_id(cv: Any) -> int:
    """The number of folds where rows are given to folds by their ids."""
    n_folds = 5 if cv is None else cv
    if isinstance(n_folds, bool) or not isinstance(n_folds, numbers.Integral) or n_folds < 2:  # type: ignore[operator]
        raise ValueError(f"cv must be a number of folds, at least 2, for rows not in memory; got {cv!r}.")
    return int(n_folds)


def renumbered(block: Block, numbers: Array | None) -> Block:
    """The block with other class numbers."""
    return block if numbers is None or block.y is None else replace(block, y=numbers[block.y])


@dataclass(kw_only=True, eq=False)
class Shares(Storable):
    """What is known of every fold: its rows, the weight of each class in it, and some rows to judge by.

    Parameters
    ----------
    seed : int
        Decides the folds, and which rows are kept.
    n_folds, n_classes : int
        y holds class numbers; 0 classes count as one.
    """

    seed: int
    n_folds: int
    n_classes: int
    counts: Array = field(init=False)
    masses: Array = field(init=False)
    held_out: list[Reservoir] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.n_folds, np.int64)
        self.masses = np.zeros((self.n_folds, max(1, self.n_classes)))
        key = key_of(self.seed, "held out")
        self.held_out = [Reservoir(size=MOST_HELD_OUT, key=key) for _ in range(self.n_folds)]

    def _check_state(self) -> None:
        check_fields(
            self,
            {
                "seed": Integer(most=2**64),
                "n_folds": Integer(least=2, size="folds"),
                "n_classes": Integer(most=2**31),
                "counts": Integers("folds", least=0),
                "masses": Floats("folds", max(1, int(self.n_classes)), least=0.0),
                "held_out": Each(Instance(Reservoir), length="folds"),
            },
        )

    @property
    def key(self) -> int:
        return key_of(self.seed, "fold")

    def folds(self, block: Block) -> Array:
        """The fold of each row."""
        return fold_of(block.row_ids(), self.key, self.n_folds)

    def of(self, block: Block) -> tuple[Array, Array, list[Block]]:
        """Rows and weights of a block by fold, and those of its rows that may be kept; several threads may ask."""
        fold = self.folds(block)
        classes = block.y if self.n_classes and block.y is not None else np.zeros(len(block), np.int32)
        at = fold * self.masses.shape[1] + classes
        mass = np.bincount(at, weights=block.weights(), minlength=self.masses.size).reshape(self.masses.shape)
        kept = [kept.among(block.take(np.flatnonzero(fold == j))) for j, kept in enumerate(self.held_out)]
        return np.bincount(fold, minlength=self.n_folds), mass, kept

    def add(self, counts: Array, masses: Array, rows: list[Block]) -> None:
        """Take in what `of` said of a block."""
        self.counts = self.counts + counts
        self.masses = self.masses + masses
        for reservoir, some in zip(self.held_out, rows, strict=True):
            reservoir.keep(some)

    def look(self, data: DataPass) -> None:
        """Take in all rows, in one pass."""
        for found in data.each(self.of):
            self.add(*found)

    def check(self) -> None:
        if not self.counts.all():
            raise ValueError(f"{self.counts.sum()} rows are too few for {self.n_folds} folds: choose a smaller cv.")

    def rows(self, fold: int) -> Block:
        """Rows of the fold to judge by."""
        return self.held_out[fold].rows()

    def n_training(self, fold: int) -> int:
        return int(self.counts.sum() - self.counts[fold])

    def training_masses(self, fold: int) -> Array:
        """The weight of each class outside of the fold, exactly nothing where there is none: (n_classes,)."""
        mass: Array = np.delete(self.masses, fold, axis=0).sum(axis=0)
        return mass


@dataclass(frozen=True, kw_only=True)
class FoldReducer:
    """How the training rows of a fold become a coreset; the parameters are those of `CoresetSearchCV`.

    y holds numbers below ``n_classes``, or is not a class where that is 0.
    """

    objective: str | Objective
    coreset_size: Any
    construction: str | Construction[Any]
    calibrate: bool
    n_features: int
    n_classes: int
    seed: int

    def size(self, n_rows: int | None) -> int:
        if self.coreset_size != "auto":
            return resolve_size(self.coreset_size, n_rows)
        return auto_size(n_rows, self.n_features)

    def objective_for(self, n_classes: int) -> Objective:
        auto = isinstance(self.objective, str) and self.objective == "auto"
        usual = "logistic" if n_classes > 1 else "generic"
        return objective_for(usual if auto else self.objective, n_classes)

    def seed_of(self, fold: int) -> int:
        return int(rng_for(self.seed, "fold", fold).integers(2**62))

    def array_folds(self, data: DataPass, splits: Splits, checkpoint: Checkpoint | None) -> Iterator[Fold]:
        """Folds of rows at hand, by positions to train on and to judge by."""
        block = data.rows
        assert isinstance(block, Block)
        for j, (train, test) in enumerate(splits):
            if len(train) <= self.size(len(train)):
                coreset = all_rows(block.take(train), self.objective_for(self.n_classes).name)
            else:
                # as often as a row is in the fold: held-out rows weigh nothing and are never drawn
                weight = np.bincount(train, minlength=len(block)) * block.weights()
                rows = replace(block, sample_weight=weight, mean=None)
                mass = self._masses(rows)
                data = data.over(renumbered(rows, self._numbers(mass)))
                coreset = self._coreset(data, mass, len(train), j, checkpoint)
            yield Fold(coreset=coreset, held_out=block.take(test))

    def source_folds(self, data: DataPass, shares: Shares, checkpoint: Checkpoint | None) -> Iterator[Fold]:
        """Folds of the rows of a source, which were counted in ``shares``."""
        shares.check()
        source = data.rows
        assert isinstance(source, Source)
        for j in range(shares.n_folds):
            n_train, mass = shares.n_training(j), shares.training_masses(j)
            training = Training(key=shares.key, n_folds=shares.n_folds, fold=j, numbers=self._numbers(mass))
            data = data.over(MappedSource(source, training, n_rows=n_train))
            yield Fold(coreset=self._coreset(data, mass, n_train, j, checkpoint), held_out=shares.rows(j))

    def _masses(self, block: Block) -> Array:
        """The weight of each class; with no classes, of each row."""
        if not self.n_classes or block.y is None:
            return block.weights()
        return np.bincount(block.y, weights=block.weights(), minlength=self.n_classes)

    def _numbers(self, mass: Array) -> Array | None:
        """Other class numbers: a class that is held out whole must not be asked for, and may have any number."""
        if not self.n_classes:
            return None
        known = np.flatnonzero(mass)
        numbers = np.zeros(self.n_classes, np.int32)
        numbers[known] = np.arange(len(known))
        return numbers

    def _coreset(self, data: DataPass, mass: Array, n_train: int, fold: int, checkpoint: Checkpoint | None) -> Coreset:
        if not mass.any():
            raise ValueError("No training row of a fold has a positive weight: choose another cv, or shuffle.")
        known = np.flatnonzero(mass) if self.n_classes else None
        objective, size = self.objective_for(0 if known is None else len(known)), self.size(n_train)
        plan = Plan.of(objective, self.construction, size, calibrate=self.calibrate, seed=self.seed_of(fold))
        kept = None if checkpoint is None else checkpoint.within(f"fold-{fold}")
        coreset = reduce_rows(data, plan, checkpoint=kept)
        return replace(coreset, n_seen=n_train, y=coreset.y if known is None else known[coreset.y])


class FoldStreams(Storable):
    """Rows that keep coming: a stream for the training rows of every fold, one for all rows, and rows to judge by."""

    def __init__(self, reducing: FoldReducer, n_folds: int) -> None:
        self.shares = Shares(seed=reducing.seed, n_folds=n_folds, n_classes=reducing.n_classes)
        self.n_rows = 0
        self.dtype = ""  # of the first piece
        self.streams = [
            CoresetStream(
                reducing.objective_for(reducing.n_classes),
                reducing.construction,
                coreset_size=reducing.size(None),
                calibrate=reducing.calibrate,
                random_state=reducing.seed_of(fold),
            )
            for fold in range(n_folds + 1)
        ]

    def _check_state(self) -> None:
        check_fields(
            self,
            {
                "shares": Instance(Shares),
                "n_rows": Integer(),
                "dtype": Text(("", "float32", "float64")),
                "streams": Each(Instance(CoresetStream)),
            },
        )
        n_classes, likes = self.shares.n_classes, [stream.state.rows.like for stream in self.streams]
        like, held = likes[-1], [part for kept in self.shares.held_out for part in kept.parts]
        expect(len(self.streams) == self.shares.n_folds + 1, "a fold has no stream")
        expect(all(other is None or (like is not None and is_like(other, like)) for other in likes), "folds are unlike")
        expect(all(like is not None and is_like(part, like) for part in held), "rows held out are unlike the others")
        for part in held if n_classes else []:
            expect(part.y is not None and np.isin(part.y, np.arange(n_classes)).all(), "rows held out have no class")

    def push(self, block: Block) -> None:
        """Number the rows and give each to the streams that may learn from it."""
        # the one that has seen every piece says first whether this one is like those before: then all take it
        self.streams[-1].push(block.X, block.y, block.sample_weight)
        self.dtype = self.dtype or str(block.X.dtype)
        ids = np.arange(self.n_rows, self.n_rows + len(block))
        rows = replace(block, X=block.X.astype(self.dtype, copy=False), indices=ids)
        for j, stream in enumerate(self.streams[:-1]):
            part = Training(key=self.shares.key, n_folds=self.shares.n_folds, fold=j)(rows)
            stream.push(part.X, part.y, part.sample_weight, row_ids=part.row_ids())
        self.shares.add(*self.shares.of(rows))
        self.n_rows += len(block)

    def folds(self) -> Iterator[Fold]:
        self.shares.check()
        for j, stream in enumerate(self.streams[:-1]):
            yield Fold(coreset=stream.coreset(), held_out=self.shares.rows(j))

    def coreset(self) -> Coreset:
        """Of all rows."""
        return self.streams[-1].coreset()
