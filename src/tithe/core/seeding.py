"""Random numbers that depend on a seed and a purpose, or on the id of a row; never on the order of calls."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from tithe.core.data import Array, Block, concat
from tithe.core.state_checks import Integer, Storable

# constants of SplitMix64
_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

_COUNTED_AT_ONCE = 2**20  # ids
_LARGEST_HASH = 2**64 - 1


def as_seed(random_state: Any) -> int:
    """An integer seed from a ``random_state`` as in scikit-learn."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state}.")
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(0, 2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(0, 2**63 - 1))
    raise ValueError(f"random_state must be None, an integer, a RandomState or a Generator, got {random_state!r}.")


def rng_for(seed: int, *key: int | str) -> np.random.Generator:
    """A Philox generator for a seed and a key, such as a tree position and a purpose.

    >>> rng_for(7, 0, 3, "draw").random() == rng_for(7, 0, 3, "draw").random()
    True
    """
    words = tuple(zlib.crc32(k.encode()) if isinstance(k, str) else k for k in key)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=words)))


def hashed(ids: Array, key: int) -> Array:
    """A number of 64 bits for each row id, different for different ids, as random as the key: (n,) uint64.

    It is output number ``id`` of the generator SplitMix64 (Steele, Lea and Flood 2014) seeded with the
    key, so whether a row is chosen depends on nothing but its id.
    """
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (ids.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        mixed: Array = z ^ (z >> np.uint64(31))
    return mixed


def uniform_of(ids: Array, key: int) -> Array:
    """The same as numbers in [0, 1): (n,)."""
    numbers: Array = (hashed(ids, key) >> np.uint64(11)) * 2.0**-53
    return numbers


def key_of(seed: int, *what: int | str) -> int:
    """The key of a hash, for one purpose."""
    return int(rng_for(seed, *what, "hash").integers(2**64, dtype=np.uint64))


def fold_of(ids: Array, key: int, n_folds: int) -> Array:
    """The fold of each row: (n,) ints below ``n_folds``."""
    folds: Array = (uniform_of(ids, key) * n_folds).astype(np.int64)
    return folds


@dataclass(frozen=True)
class HoldOut:
    """Rows whose number in [0, 1) lies below ``share`` weigh nothing; the others weigh more in return."""

    key: int
    share: float

    def __call__(self, block: Block) -> Block:
        stays = uniform_of(block.row_ids(), self.key) >= self.share
        return replace(block, sample_weight=block.weights() * (stays / (1.0 - self.share)), mean=None)


@dataclass(frozen=True)
class Split:
    """The rows whose number in [0, 1) lies below ``share`` (``held_out``), or the others.

    Rows of the classes ``rare`` are never held out: there may be no others of their class to learn from.
    """

    key: int
    share: float
    held_out: bool
    rare: tuple[Any, ...] = ()

    def __call__(self, block: Block) -> Block:
        chosen = self._chooses(block.row_ids())
        if self.rare and block.y is not None:
            chosen = np.where(np.isin(block.y, self.rare), not self.held_out, chosen)
        return block.take(np.flatnonzero(chosen))

    def count(self, n_rows: int) -> int:
        """How many of the rows with ids below ``n_rows`` these are, if no class is rare."""
        starts = range(0, n_rows, _COUNTED_AT_ONCE)
        return sum(
            int(np.count_nonzero(self._chooses(np.arange(start, min(start + _COUNTED_AT_ONCE, n_rows)))))
            for start in starts
        )

    def _chooses(self, ids: Array) -> Array:
        below: Array = uniform_of(ids, self.key) < self.share
        return below if self.held_out else ~below


def hash_limit(size: int, n_rows: float | None) -> int:
    """A threshold below which at least ``size`` of ``n_rows`` row hashes lie, except in an event of eight deviations.

    On a cluster a worker does not know the rows of the others. With it, hardly more than ``size`` rows travel.
    """
    share = 1.0 if not n_rows else (size + 8.0 * size**0.5 + 64.0) / n_rows
    return _LARGEST_HASH if share >= 1.0 else int(share * 2.0**64)


@dataclass(kw_only=True, eq=False)
class Reservoir(Storable):
    """The ``size`` rows with the smallest hash: a uniform draw, in whatever order and pieces rows come.

    `among` says which rows of a block may be kept and can be asked by several threads; `keep` takes them. Rows with a
    hash above ``limit`` are not among them: see `hash_limit`.
    """

    size: Annotated[int, Integer(least=1)]
    key: Annotated[int, Integer(most=_LARGEST_HASH)]
    limit: Annotated[int, Integer(most=_LARGEST_HASH)] = _LARGEST_HASH
    parts: list[Block] = field(default_factory=list)

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

    @property
    def lacks_rows(self) -> bool:
        """Whether fewer rows are kept than wanted, and the limit may be the reason."""
        return self.limit < _LARGEST_HASH and sum(map(len, self.parts)) < self.size

    def rows(self) -> Block:
        """What is kept, in the order of the ids."""
        rows = concat(self.parts)
        order = np.argsort(hashed(rows.row_ids(), self.key), kind="stable")[: self.size]
        return rows.take(order[np.argsort(rows.row_ids()[order], kind="stable")])
