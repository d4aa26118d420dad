"""Folds of rows in memory, by position, and of rows of a source, by a hash of the row id; and their coresets."""

from __future__ import annotations

import numbers
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from sklearn.model_selection import check_cv

from tithe.core.contracts import Construction, Objective, Source
from tithe.core.data import Array, Block, Coreset, all_rows
from tithe.core.errors import warn_caller
from tithe.core.params import resolve_size
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint
from tithe.core.seeding import Reservoir, fold_of, hash_limit, key_of, rng_for
from tithe.core.state_checks import Each, Floats, Instance, Integer, Integers, Storable, StoredState, Text, expect
from tithe.fit.labels import objective_for
from tithe.linear.learner import linear_auto_size
from tithe.meta.ensembles import SHARE, ensemble_size
from tithe.meta.other_estimators import OriginalRows
from tithe.reduce.generic import GenericObjective
from tithe.reduce.plan import Plan, reduce_rows
from tithe.reduce.stream import CoresetStream
from tithe.rows.batches import is_like
from tithe.rows.leaves import MappedSource

Splits = list[tuple[Array, Array]]

MAX_HELD_OUT = 100_000  # rows of a fold that candidates are scored on; they are held in memory


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """The coreset that candidates are fitted on, the rows that they are scored on, and both as candidates take them."""

    coreset: Coreset
    held_out: Block
    X: Any = None
    X_held_out: Any = None

    def viewed(self, given: OriginalRows) -> Fold:
        return replace(self, X=given.of(self.coreset), X_held_out=given.of(self.held_out))

    def part(self, share: float, *, by_class: bool) -> tuple[Array, Array]:
        """Positions of a share of the rows of the coreset, and their weights; a larger share contains a smaller.

        ``by_class``: the share of the rows of each class, at least one, with the weight of all of them.
        """
        coreset = self.coreset
        order = rng_for(0, "part").permutation(len(coreset))
        groups = np.zeros(len(coreset), np.int64) if not by_class or coreset.y is None else coreset.y
        place, weight = np.empty(len(coreset)), coreset.weights().copy()
        for group in np.unique(groups):
            members = order[groups[order] == group]
            place[members] = np.arange(len(members)) / len(members)
            weight[members] *= weight[members].sum() / weight[members[place[members] < share]].sum()
        at = np.flatnonzero(place < share)
        return at, weight[at]


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """The rows of a block that are not in a fold. ``numbers`` maps class numbers to those of the training rows."""

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
    if isinstance(n_folds, bool) or not isinstance(n_folds, numbers.Integral) or n_folds < 2:
        raise ValueError(f"cv must be a number of folds, at least 2, for rows not in memory; got {cv!r}.")
    return int(n_folds)


def splits_of(cv: Any, block: Block, groups: Any, *, classifier: bool) -> Splits:
    """Positions of training and held-out rows of each fold, as scikit-learn splits them."""
    splitter = check_cv(cv, block.y, classifier=classifier)
    positions = np.arange(len(block))  # splitters may give masks
    splits = [(positions[train], positions[test]) for train, test in splitter.split(block.X, block.y, groups)]
    if not splits:
        raise ValueError("cv gives no folds: an iterator can be used only once. Give a list, or a splitter.")
    return splits


def renumbered(block: Block, numbers: Array | None) -> Block:
    """The block with class numbers mapped by ``numbers``."""
    return block if numbers is None or block.y is None else replace(block, y=numbers[block.y])


@dataclass(kw_only=True, eq=False)
class Shares(Storable):
    """Number of rows of each fold, the weight of each class in it, and a sample of its rows to score on.

    Parameters
    ----------
    seed : int
        Decides the folds and the samples.
    n_folds, n_classes : int
        y holds class numbers. ``n_classes`` is 0 for regression; all rows then count as one class.
    """

    seed: Annotated[int, Integer(most=2**64)]
    n_folds: Annotated[int, Integer(least=2, most=2**20, size="folds")]
    n_classes: Annotated[int, Integer(most=2**20)]
    counts: Annotated[Array, Integers("folds", least=0)] = field(init=False)
    masses: Annotated[Array, Floats("folds", "classes", least=0.0)] = field(init=False)
    held_out: Annotated[list[Reservoir], Each(Instance(Reservoir), length="folds")] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.n_folds, np.int64)
        self.masses = np.zeros((self.n_folds, max(1, self.n_classes)))
        key = key_of(self.seed, "held out")
        self.held_out = [Reservoir(size=MAX_HELD_OUT, key=key) for _ in range(self.n_folds)]

    def check_relations(self) -> None:
        expect(self.masses.shape[1] == max(1, self.n_classes), "weights are of other classes")

    @property
    def key(self) -> int:
        return key_of(self.seed, "fold")

    def folds(self, block: Block) -> Array:
        """The fold of each row."""
        return fold_of(block.row_ids(), self.key, self.n_folds)

    def of(self, block: Block) -> tuple[Array, Array, list[Block]]:
        """Row counts and class weights of a block by fold, and its candidates for the samples. Changes nothing."""
        fold = self.folds(block)
        classes = block.y if self.n_classes and block.y is not None else np.zeros(len(block), np.int32)
        at = fold * self.masses.shape[1] + classes
        mass = np.bincount(at, weights=block.weights(), minlength=self.masses.size).reshape(self.masses.shape)
        samples = [sample.among(block.take(np.flatnonzero(fold == j))) for j, sample in enumerate(self.held_out)]
        return np.bincount(fold, minlength=self.n_folds), mass, samples

    def add(self, counts: Array, masses: Array, rows: list[Block]) -> None:
        """Add the result of `of`."""
        self.counts = self.counts + counts
        self.masses = self.masses + masses
        for reservoir, candidates in zip(self.held_out, rows, strict=True):
            reservoir.keep(candidates)

    def count(self, data: DataPass) -> None:
        """Add all rows, in one pass."""
        n_rows = None if data.n_expected is None else data.n_expected / self.n_folds
        for limit in (hash_limit(MAX_HELD_OUT, n_rows), hash_limit(MAX_HELD_OUT, None)):
            self.__post_init__()
            for reservoir in self.held_out:
                reservoir.limit = limit
            for counts in data.each(self.of):
                self.add(*counts)
            if not any(reservoir.lacks_rows for reservoir in self.held_out):  # else there are fewer than expected
                break

    def check(self) -> None:
        """Refuse folds without rows."""
        if not self.counts.all():
            raise ValueError(f"{self.counts.sum()} rows are too few for {self.n_folds} folds: choose a smaller cv.")

    def rows(self, fold: int) -> Block:
        """Rows of the fold to score on."""
        return self.held_out[fold].rows()

    def n_training(self, fold: int) -> int:
        return int(self.counts.sum() - self.counts[fold])

    def training_masses(self, fold: int) -> Array:
        """The weight of each class outside of the fold: (n_classes,). Exactly 0 for classes without training rows."""
        mass: Array = np.delete(self.masses, fold, axis=0).sum(axis=0)
        return mass


@dataclass(frozen=True, kw_only=True)
class FoldReducer:
    """Reduces the training rows of a fold to a coreset; the parameters are those of `CoresetSearchCV`.

    y holds class numbers below ``n_classes``, which is 0 for regression. The ``objective`` is for so many classes.
    """

    objective: Objective
    coreset_size: Any
    construction: str | Construction[Any]
    n_features: int
    n_classes: int
    seed: int
    of_ensembles: bool = False

    def size(self, n_rows: int | None) -> int:
        if self.coreset_size == "auto":
            return ensemble_size(n_rows) if self.of_ensembles else linear_auto_size(n_rows, self.n_features)
        size = resolve_size(self.coreset_size, n_rows)
        if self.of_ensembles and n_rows is not None and size < SHARE * n_rows:
            warn_caller(
                f"{size:,} of {n_rows:,} rows: on less than {SHARE:.0%} of them other numbers of leaves and rounds are "
                "best for boosted trees than on all rows."
            )
        return size

    def objective_for(self, n_classes: int) -> Objective:
        by_name = n_classes == 1 or isinstance(self.objective, GenericObjective)
        return objective_for(GenericObjective.name if by_name else self.objective, n_classes)

    def seed_of(self, fold: int) -> int:
        return int(rng_for(self.seed, "fold", fold).integers(2**62))

    def array_folds(self, data: DataPass, splits: Splits, checkpoint: Checkpoint | None) -> Iterator[Fold]:
        """Folds of rows in memory, by positions of training and held-out rows."""
        block = data.rows
        assert isinstance(block, Block)
        for j, (train, test) in enumerate(splits):
            if len(train) <= self.size(len(train)):
                coreset = all_rows(block.take(train), self.objective_for(self.n_classes))
            else:
                # a row counts as often as it is in the fold; held-out rows have weight 0 and are never drawn
                weight = np.bincount(train, minlength=len(block)) * block.weights()
                rows = replace(block, sample_weight=weight, mean=None)
                mass = self._masses(rows)
                data = data.over(renumbered(rows, self._numbers(mass)))
                coreset = self._coreset(data, mass, len(train), j, checkpoint)
            yield Fold(coreset=coreset, held_out=block.take(test))

    def source_folds(self, data: DataPass, shares: Shares, checkpoint: Checkpoint | None) -> Iterator[Fold]:
        """Folds of a source whose rows were counted in ``shares``."""
        shares.check()
        source = data.rows
        assert isinstance(source, Source)
        for j in range(shares.n_folds):
            n_train, mass = shares.n_training(j), shares.training_masses(j)
            training = Training(key=shares.key, n_folds=shares.n_folds, fold=j, numbers=self._numbers(mass))
            data = data.over(MappedSource(source, training, n_rows=n_train))
            yield Fold(coreset=self._coreset(data, mass, n_train, j, checkpoint), held_out=shares.rows(j))

    def _masses(self, block: Block) -> Array:
        """The weight of each class; of each row for regression."""
        if not self.n_classes or block.y is None:
            return block.weights()
        return np.bincount(block.y, weights=block.weights(), minlength=self.n_classes)

    def _numbers(self, mass: Array) -> Array | None:
        """Map class numbers to 0 .. k-1 over the classes of the training rows. Other classes never occur there."""
        if not self.n_classes:
            return None
        present = np.flatnonzero(mass)
        numbers = np.zeros(self.n_classes, np.int32)
        numbers[present] = np.arange(len(present))
        return numbers

    def _coreset(self, data: DataPass, mass: Array, n_train: int, fold: int, checkpoint: Checkpoint | None) -> Coreset:
        if not mass.any():
            raise ValueError("No training row of a fold has a positive weight: choose another cv, or shuffle.")
        present = np.flatnonzero(mass) if self.n_classes else None
        objective, size = self.objective_for(0 if present is None else len(present)), self.size(n_train)
        plan = Plan.of(objective, self.construction, size, calibrate=True, seed=self.seed_of(fold))
        own_folder = None if checkpoint is None else checkpoint.within(f"fold-{fold}")
        coreset = reduce_rows(data, plan, checkpoint=own_folder)
        return replace(coreset, n_seen=n_train, y=coreset.y if present is None else present[coreset.y])


class FoldStreams(StoredState):
    """A stream for the training rows of each fold, one for all rows, and samples of the folds to score on."""

    shares: Annotated[Shares, Instance(Shares)]
    n_rows: Annotated[int, Integer()]
    dtype: Annotated[str, Text(("", "float32", "float64"))]  # of the first batch
    streams: Annotated[list[CoresetStream], Each(Instance(CoresetStream))]

    def __init__(self, reducer: FoldReducer, n_folds: int) -> None:
        self.shares = Shares(seed=reducer.seed, n_folds=n_folds, n_classes=reducer.n_classes)
        self.n_rows = 0
        self.dtype = ""
        self.streams = [
            CoresetStream(
                reducer.objective_for(reducer.n_classes),
                reducer.construction,
                coreset_size=reducer.size(None),
                random_state=reducer.seed_of(fold),
            )
            for fold in range(n_folds + 1)
        ]

    def check_relations(self) -> None:
        n_classes, likes = self.shares.n_classes, [stream.state.rows.like for stream in self.streams]
        like, held = likes[-1], [part for sample in self.shares.held_out for part in sample.parts]
        expect(len(self.streams) == self.shares.n_folds + 1, "a fold has no stream")
        expect(all(each is None or (like is not None and is_like(each, like)) for each in likes), "folds are unlike")
        expect(all(like is not None and is_like(part, like) for part in held), "rows held out are unlike the others")
        for part in held if n_classes else []:
            expect(part.y is not None and np.isin(part.y, np.arange(n_classes)).all(), "rows held out have no class")

    def push(self, block: Block) -> None:
        """Number the rows and give each to the streams that may learn from it."""
        # this stream refuses a batch that is unlike those before, and it must do so before the others take it
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
        """The coreset of all rows."""
        return self.streams[-1].coreset()


class RecordedFolds:
    """Passes folds on, and records their coresets and the seconds spent on building them."""

    def __init__(self, folds: Iterator[Fold]) -> None:
        self.coresets: list[Coreset] = []
        self.seconds = 0.0
        self._folds = folds

    def __iter__(self) -> Iterator[Fold]:
        while True:
            start = time.perf_counter()
            fold = next(self._folds, None)
            self.seconds += time.perf_counter() - start
            if fold is None:
                return
            self.coresets.append(fold.coreset)
            yield fold
