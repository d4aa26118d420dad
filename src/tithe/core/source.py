"""The contract of a source of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from tithe.core.data import Array, Block, Rng
from tithe.core.partitioned import PartitionedRows
from tithe.core.placement import Placement


class Source(ABC):
    """Gives rows leaf by leaf. Row ids are positions in all of the data, skipped rows included.

    A subclass sets ``n_features`` and defines `tasks` and `sample`. All else has a default.
    """

    n_features: int
    n_rows: int | None = None  # None where it is not known before all rows were read
    replayable: bool = True  # whether `tasks` may be called again
    feature_names: Sequence[str] | None = None
    n_bytes: int | None = None  # on disk
    schema: Any = None  # a TableSchema: how the columns of a table became features; None where there was no table
    leaf_rows: int = 0  # of a leaf if `tasks` is not told otherwise; 0 where leaves cannot be cut to a size
    best_engine: str = "threads"  # the engine that "auto" means
    determinism: str = "rows"  # what must be equal for equal bits: the "rows", or the "partitions" that hold them

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

    def n_leaves(self, leaf_rows: int | None = None) -> int | None:
        """The number of leaves that `tasks` gives; None where only reading all rows tells it.

        Where it is known, the source is picklable, and `tasks` begins anywhere without reading the leaves before.
        """
        return None

    def placement(self, first: int = 0, leaf_rows: int | None = None) -> Placement | None:
        """Where the leaves from number ``first`` on lie on a Dask cluster; None where `tasks` reads them anywhere."""
        return None

    def with_parts(self, parts: Sequence[Any]) -> Source:
        """The source with partitions at hand, (number, first row, values) each, for tasks on a worker."""
        return self

    def partitioned(self, leaf_rows: int | None = None) -> PartitionedRows | None:
        """The rows where they lie on a Spark cluster; None where `tasks` reads them anywhere."""
        return None

    @abstractmethod
    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves, in order, from leaf number ``first`` on. A leaf may have no rows.

        ``leaf_rows`` is the wanted number of rows of a leaf. A source whose leaves have a size of their own
        ignores it. The same number always gives the same leaves.
        """

    @abstractmethod
    def sample(self, size: int | None, *, rng: Rng) -> Block:
        """About ``size`` rows for a pilot (None: as many as the source finds good).

        They come from all over the data where it can be read again, else from its beginning.
        """
