"""The folder in which the state of a build is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from tithe.core.params import Boolean, RealNumber, check_params


@dataclass(frozen=True)
class Checkpoint:
    """A folder that keeps the state of a build, so that one that was stopped or killed can go on.

    A resumed build gives the same bits as one that was never stopped. The folder stays after the build: remove it
    once the result is safe.

    Parameters
    ----------
    path : path
        A folder of its own, made if it does not exist.
    every : float
        Seconds between two writes; 0: after every leaf. The state is also written on a ``KeyboardInterrupt``.
    resume : bool
        Go on from the state in the folder, if there is one. That of other rows or options is refused. False starts
        from the beginning.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from tithe import Checkpoint, build_coreset
    >>> X = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     state = Checkpoint(folder, every=0)
    ...     options = {"objective": "kmeans", "coreset_size": 500, "random_state": 0, "checkpoint": state}
    ...     first, again = build_coreset(X, **options), build_coreset(X, **options)
    >>> bool((first.X == again.X).all())
    True
    """

    path: str | os.PathLike[str]
    every: float = 30.0
    resume: bool = True

    def __post_init__(self) -> None:
        check_params(self, {"every": RealNumber(least=0.0, finite=False), "resume": Boolean()})

    def within(self, name: str) -> Checkpoint:
        """The same in a folder of that name within this one: for one of several builds."""
        return replace(self, path=Path(self.path) / name)
