"""A source for tests: blocks in memory, read leaf by leaf as files would be."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from tithe.core.contracts import Source
from tithe.core.data import Block, Coreset, concat
from tithe.core.passes import Merge, Tree


class LeafSource(Source):
    """Leaves with global row ids; counts how often it was read."""

    def __init__(self, leaves: list[Block], *, replayable: bool = True, known: bool = True) -> None:
        self.leaves = leaves
        self.replayable = replayable
        self.n_rows = sum(map(len, leaves)) if known else None
        self.n_features = leaves[0].n_features
        self.n_reads = 0

    @classmethod
    def cut(cls, X: Any, y: Any = None, sample_weight: Any = None, *, at: list[int], **options: Any) -> LeafSource:
        """Rows cut before the positions ``at``; the same position twice makes a leaf without rows."""
        block = Block(X=X, y=y, sample_weight=sample_weight)
        edges = [0, *at, len(block)]
        return cls([block.cut(a, b) for a, b in pairwise(edges)], **options)

    def tasks(self, first: int = 0, leaf_rows: int | None = None):
        assert self.replayable or self.n_reads == 0, "read twice"
        self.n_reads += 1
        for leaf in self.leaves[first:]:
            yield partial(_same, leaf)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        rows = concat(self.leaves) if self.replayable else next(leaf for leaf in self.leaves if len(leaf))
        if size is None or size >= len(rows):
            return rows
        return rows.take(np.sort(rng.choice(len(rows), size, replace=False)))


def _same(block: Block) -> Block:
    return block


def fold(leaves: Iterable[Coreset | None], merge: Merge) -> Coreset:
    """Merge leaves that arrive in order."""
    tree = Tree()
    for number, leaf in enumerate(leaves):
        tree = tree.push(number, leaf, merge)
    return tree.collapse(merge)
