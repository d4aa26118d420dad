"""The contracts of objectives, constructions and sources: each says what to define and has defaults for all else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from tithe.core.data import Array, Block, Moments, Rng, Scores, Survey
from tithe.core.params import Option, Target
from tithe.core.state_checks import Storable

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    ParamsT = TypeVarWithDefault("ParamsT", default=Any)  # a solution of any kind
else:
    ParamsT = TypeVar("ParamsT")


class Objective(Storable, ABC, Generic[ParamsT]):
    """cost(P, q) = sum_i u_i f_q(x_i), with f >= 0 unless `signed`: always a sum, never a mean.

    An objective is a value: a frozen dataclass, compared with ``==``; with an array field it needs its own ``__eq__``.
    Constructions that require nothing need no more than this class, if weights are not calibrated.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.objectives import Objective
    >>> @dataclass(frozen=True)
    ... class Spread(Objective):
    ...     name = "spread"
    ...     def solve(self, block, *, rng, init=None):
    ...         return np.average(block.X, axis=0, weights=block.weights())
    ...     def cost(self, block, params):
    ...         return ((block.X - params) ** 2).sum(axis=1)
    >>> len(build_coreset(np.eye(90), objective=Spread(), coreset_size=30, calibrate=False, random_state=0)) <= 30
    True
    """

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()  # parameters that the command line offers
    target: ClassVar[Target] = None  # what y must hold
    best_construction: ClassVar[str] = "uniform"  # the construction that "auto" means
    totals_at_solution: ClassVar[bool] = False  # whether the drawn rows' solution is the best place for totals
    calibrates: ClassVar[bool] = True  # False where calibrated weights are no better: they stay as they were drawn
    signed: ClassVar[bool] = False  # whether f may be negative, as minus a log density: it has no relative errors
    relative_rounding: ClassVar[float] = 1e-13  # of a loss, beside that of a usual solution; squares have the square
    classes: tuple[Any, ...] | None = None  # labels that y may hold; None: y holds none, or they are not known yet

    @abstractmethod
    def solve(self, block: Block, *, rng: Rng, init: ParamsT | None = None) -> ParamsT:
        """A good solution for the weighted rows."""

    @abstractmethod
    def cost(self, block: Block, params: ParamsT) -> Array:
        """f_q(x_i) of every row: (n,), unweighted."""

    @property
    def lacks_classes(self) -> bool:
        """Whether y holds labels and the set of them is still to be taken from the rows."""
        return False

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 where y holds none."""
        return 0

    def for_rows(self, block: Block) -> Self:
        """The same objective, its classes taken from these rows where it lacks them."""
        return self

    def codes(self, block: Block) -> Array | None:
        """The class number of each row, (n,) int32; None where y holds no classes."""
        return None

    @property
    def constant(self) -> float:
        """The coordinate that a linear model adds to every row for its intercept."""
        return 1.0

    def random_params(self, block: Block, *, n_bases: int, rng: Rng) -> list[ParamsT]:
        """Random solutions, for measuring the distortion of a coreset."""
        raise ValueError(f"Objective {self.name!r} has no random queries to try: give queries.")

    def hard_params(self, block: Block, *, rng: Rng) -> list[ParamsT]:
        """Solutions on which a coreset errs more than on most, for choosing a size."""
        return []

    def without_coefficients(self, params: ParamsT) -> ParamsT:
        """The intercept-only solution: its loss is the scale below which a loss counts as rounding error."""
        return cast("ParamsT", np.zeros_like(params))

    def without_rounding(self, losses: Any, usual: float) -> Array:
        """The losses; those that are no more than rounding of a ``usual`` one become zero."""
        return np.where(losses <= self.relative_rounding * usual, 0.0, losses)

    def strengthened(self, factor: float) -> Self | None:
        """The same objective with losses counting ``factor`` times as much beside the penalty; None without penalty."""
        return None

    def null_params(self, n_features: int) -> ParamsT | None:
        """A solution that explains nothing: costs that are rounding beside its cost are zero. None if there is none."""
        return None


class SampledObjective(Objective[Array]):
    """An objective whose rows can be scored at a pilot, and whose weights can be calibrated.

    >>> from tithe.objectives import KMeansObjective, SampledObjective
    >>> issubclass(KMeansObjective, SampledObjective)
    True
    """

    @abstractmethod
    def pilot(self, block: Block, *, rng: Rng) -> Array:
        """A rough solution, cheap whatever the number of rows."""

    @abstractmethod
    def survey(self, block: Block, pilot: Array) -> Survey:
        """Costs, groups and exact totals of the moments, in one pass."""

    @abstractmethod
    def moments(self, block: Block, pilot: Array) -> Moments:
        """What calibration reproduces, for the few rows that were drawn."""

    def centred_moments(self, block: Block, moments: Moments, totals: Array) -> tuple[Moments, Array]:
        """Moments and totals in a form that is easier to solve for; reproducing either must be the same."""
        return moments, totals

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        """Raise ValueError if a pilot and totals that were read from a file do not fit the rows."""


class SensitivityObjective(SampledObjective):
    """An objective with a bound on the sensitivity of each row at a pilot.

    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective
    >>> block, objective = Block(X=np.array([[0.0], [2.0], [10.0]])), KMeansObjective(n_clusters=2)
    >>> objective.sensitivity(block, objective.survey(block, np.array([[1.0], [10.0]]))).at().shape
    (3,)
    """

    best_construction: ClassVar[str] = "sensitivity"

    @abstractmethod
    def sensitivity(self, block: Block, survey: Survey) -> Scores | Array:
        """An upper bound, up to a factor, of sup_q u f_q / cost(q) for each row; positive where the weight is."""

    def sensitivity_totals(self, block: Block, survey: Survey) -> Array:
        """What `sensitivity` needs of all rows."""
        return survey.totals

    def sensitivity_of_new(self, block: Block, survey: Survey, totals: Array) -> Scores | Array:
        """The same for other rows than those that the ``totals`` of `sensitivity_totals` are of."""
        return self.sensitivity(block, replace(survey, totals=totals))


class NearestObjective(SampledObjective):
    """An objective of the distance to the nearest of several centres or atoms; totals begin with count and cost.

    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective
    >>> KMeansObjective(n_clusters=2).assign(Block(X=np.array([[0.0], [2.0], [10.0]])), np.array([[1.0], [10.0]]))
    array([0, 0, 1], dtype=int32)
    """

    power: ClassVar[int] = 2  # cost is the distance to this power

    @property
    def pilot_factor(self) -> float | None:
        """The factor by which a pilot's cost may exceed the smallest cost, as theorems assume; None: not known."""
        return None

    @abstractmethod
    def assign(self, block: Block, params: Array) -> Array:
        """The nearest centre or atom of each row: (n,) int32."""


ObjectiveT = TypeVar("ObjectiveT", bound=Objective)


@dataclass(frozen=True, kw_only=True)
class RowScorer(Storable, ABC):
    """What a construction has learned and a coreset keeps: it says how much new rows matter, without the others."""

    n_features: int
    objective: Any  # with the classes of the rows

    @abstractmethod
    def score(self, X: Any, y: Any = None) -> Array:
        """How much each row matters, 1 being the least that matters in a mean: (n,) float64."""

    @abstractmethod
    def named_coefficients(self, names: Sequence[str]) -> tuple[Sequence[tuple[str, float]], float]:
        """The largest coefficients by the names of the columns, and the share of the variance that they explain."""

    @abstractmethod
    def stream(self, size: int, random_state: Any = None) -> Any:
        """Choose rows batch by batch: see `tithe.linear.regressed.OnlineInclusion`."""


class Construction(Storable, ABC, Generic[ObjectiveT]):
    """Chooses rows. Unless ``unbiased`` is False, E[sum_i w_i f(x_i)] over the draw is the sum over all rows.

    A construction is a value: a frozen dataclass, compared with ``==``. What it learns from rows (`prepare`) is kept
    in fields with ``compare=False``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.constructions import Construction
    >>> @dataclass(frozen=True, kw_only=True)
    ... class EveryNth(Construction):
    ...     name = "every_nth"
    ...     unbiased = False
    ...     def reduce(self, block, objective, size, *, pilot, survey, rng):
    ...         rows = np.arange(0, len(block), -(-len(block) // size))
    ...         return block.take(rows, np.full(len(rows), block.total_weight / len(rows)))
    >>> options = {"construction": EveryNth(), "coreset_size": 30, "calibrate": False}
    >>> coreset = build_coreset(np.eye(90), objective="kmeans", **options)
    >>> len(coreset), round(coreset.weights().sum())
    (30, 90)
    """

    name: ClassVar[str]
    # contracts of the objective, checked before rows are read; of several in a tuple one is enough
    requires: ClassVar[tuple[type[Objective] | tuple[type[Objective], ...], ...]] = ()
    needs_pilot: ClassVar[bool] = False  # whether `reduce` needs a pilot
    needs_survey: ClassVar[bool] = False  # whether `reduce` needs the survey of the whole block at a pilot
    unbiased: ClassVar[bool] = True  # else the weights add up exactly, and rows stand for those near them

    @property
    def scorer(self) -> RowScorer | None:
        """What it has learned that scores new rows; None for most."""
        return None

    def prepare(self, block: Block, objective: ObjectiveT, *, rng: Rng) -> Self:
        """The construction with what it learns once from a sample and uses for every leaf."""
        return self

    def pilot(self, block: Block, objective: ObjectiveT, *, rng: Rng) -> Array:
        """The rough solution that rows are scored with."""
        assert isinstance(objective, SampledObjective)
        return objective.pilot(block, rng=rng)

    @abstractmethod
    def reduce(
        self, block: Block, objective: ObjectiveT, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        """At most ``size`` distinct rows of ``block`` with weights."""

    def check_columns(self, n_features: int, objective: ObjectiveT) -> None:
        """Raise ValueError if a state from a file does not fit rows of ``n_features`` columns."""


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


Read = Callable[[int, Iterator[Any]], Iterator[Block]]


@dataclass(frozen=True)
class PartitionedRows:
    """A table in partitions, and how the workers of a cluster make leaves of them, where they lie.

    Partition p owns the leaves from number ``p << level`` on; those that it does not need are missing. So the leaves
    of a partition are one node of the tree.
    """

    table: Any  # a Spark DataFrame of the columns that are read; it stays with the caller
    lengths: tuple[int, ...]  # rows of each partition
    level: int
    # the leaves of a partition, in order, from its Arrow batches; picklable. ValueError if rows are more or less
    read: Read

    def changed(self, change: Callable[[Block], Block]) -> PartitionedRows:
        """The same with every leaf changed as it is read."""
        return replace(self, read=partial(_changed, self.read, change))


def _changed(read: Read, change: Callable[[Block], Block], partition: int, batches: Iterator[Any]) -> Iterator[Block]:
    for leaf in read(partition, batches):
        yield change(leaf) if len(leaf) else leaf


def partition_id() -> int:
    """The number of the partition that this task of Spark works on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())


class PlacedPart(NamedTuple):
    """Rows of a partition: all of them if ``stop`` is None, else those from ``start`` to ``stop``."""

    number: int
    keys: tuple[Hashable, ...]  # of the tasks that give X, and y and the weights where there are any
    start: int = 0
    stop: int | None = None


class PlacedGroup(NamedTuple):
    """The leaves from number ``first`` to ``stop``, and the partitions that their rows are in."""

    first: int
    stop: int
    parts: tuple[PlacedPart, ...]


@dataclass(frozen=True)
class Placement:
    """How the leaves of a source are made from partitions that a cluster holds or computes."""

    graph: Mapping[Any, Any]  # the tasks that give the partitions, by key
    groups: Sequence[PlacedGroup]  # consecutive leaves; each group is best run where its partitions are
    explain: Callable[[Exception], Exception]  # from an error of a task one that says more, or the same
