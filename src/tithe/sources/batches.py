"""Iterables of batches as a sequence of leaves of one size, whatever the size of the batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block, concat
from tithe.sources.arrays import as_block, check_weights, plain_weights


class BatchSource:
    """Batches in order: arrays, CSR matrices, frames, ``(X, y)`` or ``(X, y, sample_weight)``.

    Rows are numbered in order of arrival. They are regrouped into leaves of ``leaf_size`` rows, so
    the size of the batches has no influence on anything. Rows of weight zero are left out. The
    iterable is read once.
    """

    def __init__(self, batches: Iterable[Any], *, leaf_size: int) -> None:
        self._batches = enumerate(iter(batches))
        self._leaf_size = leaf_size
        self._rest: Block | None = None
        self._n_read = 0
        self._like: Block | None = None
        self.n_rows: int | None = None
        self.replayable = False
        self._first = self._next_leaf()
        if self._first is None:
            raise ValueError("The iterable is empty: it gave no batch with a row of positive weight in it.")
        self.n_features = self._first.n_features

    def _checked(self, number: int, batch: Any) -> Block | None:
        X, y, weight = _parts(batch)
        if hasattr(X, "shape") and X.shape[0] == 0:
            return None
        try:
            block = as_block(X, y)
            weight = check_weights(weight, len(block))
        except ValueError as error:
            raise ValueError(f"Batch {number}: {error}") from error
        if self._like is None:
            self._like = block
        unlike = _difference(block, self._like)
        if unlike:
            raise ValueError(f"Batch {number} {unlike}.")
        ids = np.arange(self._n_read, self._n_read + len(block), dtype=np.int64)
        self._n_read += len(block)
        rows = block.X.astype(self._like.X.dtype, copy=False)
        checked = Block(X=rows, y=block.y, sample_weight=weight, indices=ids)
        if weight is None or weight.all():
            return checked
        return checked.take(np.flatnonzero(weight)) if weight.any() else None

    def _next_leaf(self) -> Block | None:
        """Exactly ``leaf_size`` rows, fewer at the end; what is over stays for the next leaf, uncopied."""
        taken: list[Block] = []
        wanted = self._leaf_size
        while wanted > 0:
            if self._rest is None:
                number, batch = next(self._batches, (None, None))
                if number is None:
                    break
                self._rest = self._checked(number, batch)
                continue
            part = self._rest.cut(0, wanted)
            taken.append(part)
            wanted -= len(part)
            self._rest = self._rest.cut(len(part), len(self._rest)) if len(part) < len(self._rest) else None
        if not taken:
            return None
        leaf = concat(taken)
        return Block(X=leaf.X, y=leaf.y, sample_weight=plain_weights(leaf.sample_weight), indices=leaf.indices)

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


def _difference(block: Block, like: Block) -> str | None:
    """How a batch differs from those before it in a way that cannot be mended without losing something."""
    if block.n_features != like.n_features:
        return f"has {block.n_features} columns, the batches before it had {like.n_features}"
    if sparse.issparse(block.X) != sparse.issparse(like.X):
        return "is sparse where the batches before it were dense, or the other way round"
    if not np.can_cast(block.X.dtype, like.X.dtype, casting="safe"):
        return f"is {block.X.dtype}, which does not fit into the {like.X.dtype} of the batches before it"
    if (block.y is None) != (like.y is None):
        return f"has {'no y' if block.y is None else 'y'}, unlike the batches before it"
    if block.y is not None and like.y is not None and (block.y.dtype.kind in "OUS") != (like.y.dtype.kind in "OUS"):
        return f"has a y of {block.y.dtype}, the batches before it of {like.y.dtype}"
    return None
