"""Iterables of batches as a sequence of leaves of one size, whatever the size of the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tithe.core.data import Array, Block, concat
from tithe.sources.arrays import as_block


class BatchSource:
    """Batches in order: arrays, CSR matrices, frames, ``(X, y)`` or ``(X, y, sample_weight)``.

    Rows are numbered in order of arrival. They are regrouped into leaves of ``leaf_size`` rows, so
    the size of the batches has no influence on anything. The iterable is read once.
    """

    def __init__(self, batches: Iterable[Any], *, leaf_size: int) -> None:
        self._batches = enumerate(iter(batches))
        self._leaf_size = leaf_size
        self._held: list[Block] = []
        self._n_read = 0
        self._like: Block | None = None
        self.n_rows: int | None = None
        self._first = self._next_leaf()
        if self._first is None:
            raise ValueError("The iterable is empty: it gave no batch with a row in it.")
        self.n_features = self._first.n_features

    def _checked(self, number: int, batch: Any) -> Block | None:
        X, y, weight = _parts(batch)
        if hasattr(X, "shape") and X.shape[0] == 0:
            return None
        try:
            block = as_block(X, y, weight)
        except ValueError as error:
            raise ValueError(f"Batch {number}: {error}") from error
        if self._like is None:
            self._like = block
        like = self._like
        if block.n_features != like.n_features:
            raise ValueError(
                f"Batch {number} has {block.n_features} columns, the batches before it had {like.n_features}."
            )
        if (block.y is None) != (like.y is None):
            raise ValueError(f"Batch {number} has {'no y' if block.y is None else 'y'}, unlike the batches before it.")
        ids = np.arange(self._n_read, self._n_read + len(block), dtype=np.int64)
        self._n_read += len(block)
        X = block.X.astype(like.X.dtype, copy=False)
        return Block(X=X, y=block.y, sample_weight=block.sample_weight, indices=ids)

    def _next_leaf(self) -> Block | None:
        held, n_held = self._held, sum(map(len, self._held))
        while n_held < self._leaf_size:
            number, batch = next(self._batches, (None, None))
            if number is None:
                break
            block = self._checked(number, batch)
            if block is not None:
                held.append(block)
                n_held += len(block)
        if not held:
            return None
        rows = concat(held)
        self._held = []
        if n_held > self._leaf_size:
            self._held = [rows.take(np.arange(self._leaf_size, n_held))]
            rows = rows.take(np.arange(self._leaf_size))
        return rows

    def tasks(self) -> Iterator[Callable[[], Block]]:
        leaf = self._first
        while leaf is not None:
            yield _Loaded(leaf)
            leaf = self._next_leaf()

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """Rows of the first leaf (None: all of them): what comes later cannot be seen yet."""
        first = self._first
        assert first is not None
        if size is None or len(first) <= size:
            return first
        return first.take(np.sort(rng.choice(len(first), size, replace=False)))


class _Loaded:
    """A leaf that is in memory already."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __call__(self) -> Block:
        return self.block


def _parts(batch: Any) -> tuple[Any, Array | None, Array | None]:
    if isinstance(batch, tuple):
        if not 1 <= len(batch) <= 3:
            raise ValueError(f"A batch is X, (X, y) or (X, y, sample_weight), got a tuple of {len(batch)}.")
        X, y, weight = (*batch, None, None)[:3]
        return X, y, weight
    return batch, None, None
