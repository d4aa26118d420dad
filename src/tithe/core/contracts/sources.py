"""What a source of rows does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np

from tithe.core.data import Array, Block


class Source(ABC):
    """Gives rows leaf by leaf. Row ids are positions in all of the data, skipped rows included.

    A subclass sets ``n_features`` and defines `tasks` and `sample`. All else has a default.

    Attributes
    ----------
    n_features : int
    n_rows : int or None
        None where it is not known before all rows were read.
    replayable : bool
        Whether `tasks` may be called again.
    feature_names : sequence of str or None
    n_bytes : int or None
        Bytes on disk.
    leaf_rows : int
        Rows of a leaf if `tasks` is not told otherwise; 0 where leaves cannot be cut to a size.
    """

    n_features: int
    n_rows: int | None = None
    replayable: bool = True
    feature_names: Sequence[str] | None = None
    n_bytes: int | None = None
    leaf_rows: int = 0

    @cached_property
    def identity(self) -> str:
        """A text that changes with the rows. A build is only resumed from a source of the same identity."""
        return f"{type(self).__qualname__} of {self.n_rows} x {self.n_features}"

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row of X in memory, on average."""
        return 8 * self.n_features

    def classes(self) -> Array | None:
        """All values of the target in ascending order; None where the source cannot tell without reading all rows."""
        return None

    def count(self) -> int | None:
        """The number of rows, skipped ones included, read for it if need be; None if rows come only once."""
        return self.n_rows

    @abstractmethod
    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves, in order, from leaf number ``first`` on. A leaf may have no rows.

        ``leaf_rows`` is the wanted number of rows of a leaf. A source whose leaves have a size of their own
        ignores it. The same number always gives the same leaves.
        """

    @abstractmethod
    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """About ``size`` rows for a pilot; None: as many as the source finds good.

        They come from across all of the data where it can be read again, else from its beginning.
        """
