"""Rows that come in leaves: changed on the way, set apart by their ids, or a few of them kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tithe.certify import Rows
from tithe.core.data import Array, Block, concat
from tithe.core.hashing import hashed, uniform_of
from tithe.core.seeding import rng_for
from tithe.core.state_checks import Each, Instance, Integer, check_fields
from tithe.kernels.labels import distinct_labels
from tithe.objectives.labels import LabelledObjective

Change = Callable[[Block], Block]


class Changed:
    """A source with every leaf changed as it is read.

    Parameters
    ----------
    source : Source
    change : callable
        Block to block. Picklable, so that leaves can be read elsewhere; its ``repr`` says what it does.
    n_rows : int or None
        Rows that are left; by default the source's. Where it is given, a reduction of these rows is one of
        several, and its state is not kept where that of the source would be.
    """

    def __init__(self, source: Any, change: Change, *, n_rows: int | None = None) -> None:
        self.source = source
        self.change = change
        self.n_rows = source.n_rows if n_rows is None else n_rows
        self.checkpoint = getattr(source, "checkpoint", None) if n_rows is None else None

    @property
    def n_features(self) -> int:
        return int(self.source.n_features)

    @property
    def replayable(self) -> bool:
        return bool(self.source.replayable)

    @property
    def resume(self) -> bool:
        return bool(self.source.resume)

    @property
    def every(self) -> float:
        return float(self.source.every)

    @property
    def identity(self) -> str:
        """What must be the same for a reduction to go on: the rows, and what is done to them."""
        change = getattr(self.change, "__qualname__", None) or repr(self.change)  # a function has no lasting repr
        return f"{getattr(self.source, 'identity', '?')} {change}"

    @property
    def leaf_rows(self) -> int:
        return int(getattr(self.source, "leaf_rows", 0))

    def with_leaf_rows(self, least: int) -> Changed:
        """The same with larger leaves, if the source can cut them anew."""
        other = copy(self)
        if callable(getattr(self.source, "with_leaf_rows", None)):
            other.source = self.source.with_leaf_rows(least)
        return other

    def tasks(self, first: int = 0) -> Iterator[Callable[[], Block]]:
        for task in self.source.tasks(first):
            yield partial(_changed, task, self.change)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        return self.change(self.source.sample(size, rng=rng))


def _changed(task: Callable[[], Block], change: Change) -> Block:
    leaf = task()
    return change(leaf) if len(leaf) else leaf


# -- targets -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Coded:
    """Class numbers in place of labels, and the weights of classes in the weights of rows."""

    classes: Array
    factors: Array | None = None

    def __call__(self, block: Block) -> Block:
        codes = LabelledObjective(classes=tuple(self.classes.tolist())).codes(block)
        if self.factors is None:
            return replace(block, y=codes)
        weight = self.factors[codes] if block.sample_weight is None else block.sample_weight * self.factors[codes]
        return replace(block, y=codes, sample_weight=weight, mean=None)


def finite_target(block: Block) -> Block:
    """The block itself; a y that is not finite is refused."""
    if block.y is not None and not np.isfinite(block.y.astype(np.float64)).all():
        raise ValueError("Input y contains NaN or infinity.")
    return block


def known_classes(source: Any, engine: Any) -> Array:
    """All labels of a source in ascending order.

    What the source itself knows, or one look at all rows; those of its first rows where they come only once.
    """
    try:
        if source.replayable:
            if callable(getattr(source, "classes", None)):
                return np.asarray(source.classes())
            return np.unique(np.concatenate(Rows(source, engine).total(lambda leaf: [distinct_labels(_target(leaf))])))
        return distinct_labels(_target(source.sample(None, rng=np.random.default_rng(0))))
    except TypeError as error:
        raise ValueError(f"y holds labels of different kinds, or gaps, which cannot be sorted: {error}.") from error


def _target(block: Block) -> Array:
    if block.y is None:
        raise ValueError("The source gives no y: name its target, for example open_source(path, target=...).")
    return block.y


def class_masses(source: Any, n_classes: int, engine: Any) -> Array:
    """The weight of the rows of each class, y holding their numbers, in one look: (n_classes,)."""

    def masses(leaf: Block) -> Array:
        assert leaf.y is not None
        return np.bincount(leaf.y, weights=leaf.weights(), minlength=n_classes)

    found: Array = Rows(source, engine).total(masses)
    return found


# -- rows by their ids -------------------------------------------------------------------------


def key_of(seed: int, *what: int | str) -> int:
    """The key of a hash, for one purpose."""
    return int(rng_for(seed, *what, "hash").integers(2**64, dtype=np.uint64))


def fold_of(ids: Array, key: int, n_folds: int) -> Array:
    """The fold of each row: (n,) ints below ``n_folds``."""
    folds: Array = (uniform_of(ids, key) * n_folds).astype(np.int64)
    return folds


@dataclass(frozen=True)
class WithoutShare:
    """Rows whose number in [0, 1) lies below ``share`` weigh nothing; the others weigh more in return."""

    key: int
    share: float

    def __call__(self, block: Block) -> Block:
        stays = uniform_of(block.row_ids(), self.key) >= self.share
        return replace(block, sample_weight=block.weights() * (stays / (1.0 - self.share)), mean=None)


@dataclass(kw_only=True, eq=False)
class Reservoir:
    """The ``size`` rows with the smallest hash: a uniform draw, in whatever order and pieces rows come.

    `among` says which rows of a block may be kept and can be asked by several threads; `keep` takes them.
    """

    size: int
    key: int
    limit: int = 2**64 - 1
    parts: list[Block] = field(default_factory=list)

    def _check_state(self) -> None:
        largest = 2**64 - 1
        check_fields(
            self,
            {
                "size": Integer(least=1),
                "key": Integer(most=largest),
                "limit": Integer(most=largest),
                "parts": Each(Instance(Block)),
            },
        )

    def among(self, block: Block) -> Block:
        return block.take(np.flatnonzero(hashed(block.row_ids(), self.key) <= np.uint64(self.limit)))

    def keep(self, block: Block) -> None:
        if self.parts and len(block) == 0:
            return
        self.parts.append(block)
        while len(self.parts) > 1 and len(self.parts[-1]) >= len(self.parts[-2]):  # single rows must not pile up
            last = self.parts.pop()
            self.parts[-1] = concat([self.parts[-1], last])
        if sum(map(len, self.parts)) > 2 * self.size:  # now and then, so that it costs little
            self.parts = [self.rows()]
            self.limit = int(hashed(self.parts[0].row_ids(), self.key).max())

    def rows(self) -> Block:
        """What is kept, in the order of the ids."""
        rows = concat(self.parts)
        order = np.argsort(hashed(rows.row_ids(), self.key), kind="stable")[: self.size]
        return rows.take(order[np.argsort(rows.row_ids()[order], kind="stable")])
