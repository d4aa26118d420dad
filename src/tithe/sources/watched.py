"""A source with an onlooker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a command that only shows its options need not load these
    import numpy as np

    from tithe.core.data import Block

CHECKPOINT_SECONDS = 30.0  # between two checkpoints: what a killed run has to do again


class WatchedSource:
    """Another source, which says how far it has been read and where a reduction of it is to be kept.

    Parameters
    ----------
    source : source
    progress : callable, optional
        Called as ``progress(n_passes, n_leaves, n_rows)`` when a leaf has been read, maybe from another thread: how
        many times the source has been begun, and leaves and rows of this pass that were read.
    checkpoint : path, optional
        A folder that `tithe.reduce.build.reduce_source` writes its state to every so often.
    resume : bool
        Go on from the state that is in that folder, if there is one.
    every : float
        Seconds between two checkpoints.
    """

    def __init__(
        self,
        source: Any,
        *,
        progress: Callable[[int, int, int], None] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = False,
        every: float = CHECKPOINT_SECONDS,
    ) -> None:
        self.source = source
        self.progress = progress
        self.checkpoint = checkpoint
        self.resume = resume
        self.every = every
        self.n_passes = 0

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # not there yet: a copy is being made
            raise AttributeError(name)
        return getattr(self.source, name)

    def with_leaf_rows(self, least: int) -> WatchedSource:
        """The same source in larger leaves, if it can."""
        if hasattr(self.source, "with_leaf_rows"):
            self.source = self.source.with_leaf_rows(least)
        return self

    def tasks(self, first: int = 0) -> Iterator[Callable[[], Block]]:
        self.n_passes += 1
        watch = _Watch(self.progress, self.n_passes)
        for task in self.source.tasks(first):
            yield task if self.progress is None else _Watched(task, watch)

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        sample: Block = self.source.sample(size, rng=rng)
        return sample


class _Watch:
    """How far one pass has come."""

    def __init__(self, progress: Callable[[int, int, int], None] | None, n_passes: int) -> None:
        self.progress, self.n_passes = progress, n_passes
        self.n_leaves = self.n_rows = 0

    def read(self, block: Block) -> None:
        self.n_leaves += 1
        self.n_rows += len(block)
        if self.progress is not None:
            self.progress(self.n_passes, self.n_leaves, self.n_rows)


class _Watched:
    def __init__(self, task: Callable[[], Block], watch: _Watch) -> None:
        self.task, self.watch = task, watch

    def __call__(self) -> Block:
        block = self.task()
        self.watch.read(block)
        return block
