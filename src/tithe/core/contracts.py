"""The contracts of objectives, constructions and sources: each says what to define and has defaults for all else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from tithe.core.data import Array, Block, Evaluation, Moments, Rng, Scores, Survey
from tithe.core.params import Option, Target
from tithe.core.state_checks import Storable

Read = Callable[[int, Iterator[Any]], Iterator[Block]]


@dataclass(frozen=True)
class PartitionedRows:
    """A table in partitions, and how the workers of a cluster make leaves of them, where they lie.

    Partition p owns the leaves from number ``p << level`` on; those that it does not need are missing. So the leaves
    of a partition are one node of the tree.

    Parameters
    ----------
    table : Spark DataFrame
        Only the columns that are read. It stays with the caller.
    lengths : tuple of int
        The number of rows of each partition.
    level : int
    read : callable
        ``read(partition, batches)`` gives the leaves of a partition, in order, from its Arrow batches. It raises
        ValueError if there are not as many rows as when they were counted. Picklable.
    """

    table: Any
    lengths: tuple[int, ...]
    level: int
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


@dataclass(frozen=True)
class PlacedPart:
    """Rows of a partition: all of them if ``stop`` is None, else those from ``start`` to ``stop``.

    ``keys`` name the results of tasks: the rows of X, and those of y and of the weights where there are any.
    """

    number: int
    keys: tuple[Hashable, ...]
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class PlacedGroup:
    """The leaves from number ``first`` to ``stop``, and the partitions that their rows are in."""

    first: int
    stop: int
    parts: tuple[PlacedPart, ...]


@dataclass(frozen=True)
class Placement:
    """How the leaves of a source are made from partitions that a cluster holds or computes.

    Parameters
    ----------
    graph : mapping
        The tasks that give the partitions, by key.
    groups : sequence of PlacedGroup
        Consecutive leaves; each group is best run where its partitions are.
    explain : callable
        Takes an error of a task of the graph and returns one that says more, or the same.
    """

    graph: Mapping[Any, Any]
    groups: Sequence[PlacedGroup]
    explain: Callable[[Exception], Exception]


Params = Any


class Objective(Storable, ABC):
    """cost(P, q) = sum_i u_i f_q(x_i), with f >= 0: always a sum, never a mean.

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
    relative_rounding: ClassVar[float] = 1e-13  # of a loss, beside that of a usual solution; squares have the square
    classes: tuple[Any, ...] | None = None  # labels that y may hold; None: y holds none, or they are not known yet

    @abstractmethod
    def solve(self, block: Block, *, rng: Rng, init: Params | None = None) -> Params:
        """A good solution for the weighted rows."""

    @abstractmethod
    def cost(self, block: Block, params: Params) -> Array:
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

    def random_params(self, block: Block, *, n_bases: int, rng: Rng) -> list[Params]:
        """Random solutions, for measuring the distortion of a coreset."""
        raise ValueError(f"Objective {self.name!r} has no random queries to try: give queries.")

    def hard_params(self, block: Block, *, rng: Rng) -> list[Params]:
        """Solutions on which a coreset errs more than on most, for choosing a size."""
        return []

    def without_coefficients(self, params: Params) -> Params:
        """The solution that uses no column, beside which rounding is recognised."""
        return np.zeros_like(params)

    def without_rounding(self, losses: Any, usual: float) -> Array:
        """The losses; those that are no more than rounding of a ``usual`` one become zero."""
        return np.where(losses <= self.relative_rounding * usual, 0.0, losses)

    def strengthened(self, factor: float) -> Self | None:
        """The same objective with losses counting ``factor`` times as much beside the penalty; None without penalty."""
        return None

    def null_params(self, n_features: int) -> Params | None:
        """A solution that explains nothing: costs that are rounding beside its cost are zero. None if there is none."""
        return None


class SampledObjective(Objective):
    """An objective whose rows can be scored at a pilot, and whose weights can be calibrated.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective
    >>> objective, pilot = KMeansObjective(n_clusters=2), np.array([[1.0], [10.0]])
    >>> objective.survey(Block(X=np.array([[0.0], [2.0], [10.0]])), pilot).totals
    array([[2., 2., 0.],
           [1., 0., 0.]])
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


class BoundedObjective(SampledObjective):
    """An objective that bounds the sensitivity sup_q u f_q / cost(q) of rows: at a pilot, or through clusters."""

    def signed_rows(self, block: Block) -> Any:
        """Rows, together with their classes if they have any, as a regression of the bounds sees them."""
        return block.X


class SensitivityObjective(BoundedObjective):
    """An objective with a bound on the sensitivity of each row at a pilot.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective
    >>> block = Block(X=np.array([[0.0], [2.0], [10.0]]))
    >>> objective, pilot = KMeansObjective(n_clusters=2), np.array([[1.0], [10.0]])
    >>> objective.sensitivity(block, objective.survey(block, pilot)).at().shape
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


class MeanPilotObjective(SampledObjective):
    """An objective that can be surveyed at the column means; its totals begin with count and cost.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective
    >>> block = Block(X=np.array([[0.0], [2.0], [10.0]]))
    >>> objective, pilot = KMeansObjective(n_clusters=2), np.array([[1.0], [10.0]])
    >>> objective.mean_pilot(block)
    array([[4.]])
    """

    @abstractmethod
    def mean_pilot(self, block: Block) -> Array:
        """A solution from column means alone."""


class NearestObjective(SampledObjective):
    """An objective of the distance to the nearest of several centres or atoms; totals begin with count and cost.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective
    >>> block = Block(X=np.array([[0.0], [2.0], [10.0]]))
    >>> objective, pilot = KMeansObjective(n_clusters=2), np.array([[1.0], [10.0]])
    >>> objective.assign(block, pilot)
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


class InfluenceObjective(SampledObjective):
    """An objective of linear scores that tells how strongly a row acts on the solution.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import LogisticObjective
    >>> block = Block(X=np.array([[-1.0], [1.0]]), y=np.array([0, 1]))
    >>> objective, params = LogisticObjective(classes=(0, 1)), np.zeros((1, 2))
    >>> objective.gradient_sizes(block, params, objective.cost(block, params))
    array([0.5, 0.5])
    """

    @abstractmethod
    def gradient_sizes(self, block: Block, params: Array, cost: Array) -> Array:
        """The size of the derivative of each row's loss in its score: (n,); ``cost`` are these losses."""


class ClusterSet(ABC):
    """Clusters of the rows of a `ClusterBoundedObjective`. Only the objective knows their contents."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """The number of clusters."""

    @abstractmethod
    def check_columns(self, n_features: int, n_classes: int) -> None:
        """Raise ValueError if clusters from a file do not fit rows of this number of columns and classes."""


class ClusterBoundedObjective(BoundedObjective):
    """An objective of rows with classes whose sensitivities are bounded through clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import LogisticObjective
    >>> block = Block(X=np.array([[-1.0], [1.0]]), y=np.array([0, 1]))
    >>> len(LogisticObjective(classes=(0, 1)).clusters(block, 1, rng=np.random.default_rng(0)))
    1
    """

    @abstractmethod
    def codes(self, block: Block) -> Array:
        """The class number of each row, (n,) int32."""

    @abstractmethod
    def clusters(self, block: Block, n_clusters: int, *, rng: Rng) -> ClusterSet:
        """``n_clusters`` clusters of the rows, or of the rows of each class."""

    @abstractmethod
    def exact_clusters(self, block: Block, clusters: Any) -> ClusterSet:
        """The clusters with the exact means and weights of these rows."""

    @abstractmethod
    def cluster_bound(
        self,
        block: Block,
        clusters: Any,
        *,
        radius: float,
        certified: bool = True,
        repair: str = "means",
        codes: Array | None = None,
    ) -> Array:
        """A bound on the sensitivity of each row, for all solutions within ``radius``: (n,)."""

    @abstractmethod
    def bound_of_new(self, block: Block, clusters: Any, *, radius: float) -> Array:
        """The same for rows that `exact_clusters` was not called with."""

    @abstractmethod
    def default_radius(self, block: Block, clusters: Any) -> float:
        """The radius that ``radius="auto"`` stands for."""

    @abstractmethod
    def radius_from(self, params: Array) -> float:
        """A radius that contains a solution, with some room."""


class SteppedObjective(Objective):
    """An objective for `certify.polish_by_steps`: results of leaves add up, and a step follows from the sum.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective
    >>> block = Block(X=np.array([[0.0], [2.0], [10.0]]))
    >>> objective, pilot = KMeansObjective(n_clusters=2), np.array([[1.0], [10.0]])
    >>> better, gain = objective.step(objective.evaluate_for_step(block, pilot + 1), pilot + 1)
    >>> better.ravel(), gain > 0
    (array([ 1., 10.]), True)
    """

    @abstractmethod
    def evaluate_for_step(self, block: Block, params: Params, *, last: bool = False) -> Any:
        """What one pass over a block gives: its cost as ``total`` and the ``labels`` of its rows; results add up."""

    @abstractmethod
    def step(self, evaluation: Any, params: Params) -> tuple[Params, float]:
        """A solution that costs less than ``params``, and a lower bound on how much less."""


class ConvexObjective(SampledObjective):
    """A smooth sum of losses of linear scores, and a penalty: for certificates of the excess loss and for polish.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import LogisticObjective
    >>> block = Block(X=np.array([[-1.0], [1.0]]), y=np.array([0, 1]))
    >>> objective, params = LogisticObjective(classes=(0, 1)), np.zeros((1, 2))
    >>> objective.evaluate(block, params).gradient
    array([[-1.,  0.]])
    """

    @abstractmethod
    def sums(self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None) -> Any:
        """What one pass over a block gives; sums of several leaves add up (+)."""

    @abstractmethod
    def evaluation(self, sums: Any, params: Array) -> Evaluation:
        """Value, gradient, proved bound and totals of the moments, of all rows that were added up."""

    def evaluate(self, block: Block, params: Array, *, diagonal: bool = False) -> Evaluation:
        """`evaluation` of the rows of one block."""
        return self.evaluation(self.sums(block, params, diagonal=diagonal), params)

    @abstractmethod
    def metric(
        self,
        block: Block,
        params: Array,
        *,
        diagonal: Array | None = None,
        centre: Array | None = None,
        caution: float = 1.0,
    ) -> Any:
        """The curvature of these rows with the penalty: a `tithe.certify.descent.Metric`."""

    def negligible_loss(self, rows: Block, params: Array) -> float:
        """The loss on all rows up to which it is rounding; ``rows`` are some of them that weigh as much as all."""
        return 0.0

    @abstractmethod
    def centre(self, block: Block) -> Array | None:
        """Where columns are centred before their curvature is taken."""

    @abstractmethod
    def least_support(self, block: Block, params: Array, centre: Array | None) -> float:
        """The smallest effective number of rows that the curvature in a column comes from."""

    @abstractmethod
    def margins(self, X: Any, params: Array) -> Array:
        """The scores: (n, k)."""

    @abstractmethod
    def directional_curvature(self, block: Block, params: Array, direction: Array) -> Array:
        """Second derivative of each row's loss along ``direction`` (k, d + 1): (n,)."""

    constant_curvature: ClassVar[bool] = False  # whether the second derivative is the same everywhere

    @abstractmethod
    def curvature_drift(self, block: Block, params: Array, step: Array) -> float:
        """How much the curvature along a Newton step changes on its way, as a share of itself."""

    @property
    def convex(self) -> bool:
        """Whether the sum is convex in the parameters; else a gap can be bounded but not estimated."""
        return True

    @abstractmethod
    def keeps_curvature(self, params: Array) -> bool:
        """Whether the curvature of this number of coefficients is kept as a matrix."""

    @abstractmethod
    def curvature(
        self, block: Block, params: Array, centre: Array | None = None, *, total_weight: float | None = None
    ) -> Array | None:
        """The second derivative of the losses of these rows, out of rows of ``total_weight``."""

    @abstractmethod
    def metric_of(self, hessian: Array, centre: Array | None = None) -> Any:
        """A curvature that is taken as it is, with the penalty."""

    @abstractmethod
    def curvature_parts(self, block: Block, params: Array, diagonal: Array, centre: Array | None) -> Array:
        """The part of each row in the diagonal of the curvature of all, added up over the coordinates: (n,)."""

    def rows_per_coefficient(self, block: Block, size: int) -> float:
        """Rows for each coefficient among ``size`` drawn uniformly; with few, "auto" tries a uniform draw as well."""
        return float("inf")


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


ObjectiveT = TypeVar("ObjectiveT", bound=Objective)


@dataclass(frozen=True, kw_only=True)
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
    requires: ClassVar[tuple[type[Objective], ...]] = ()  # contracts of the objective, checked before rows are read
    needs_pilot: ClassVar[bool] = False  # whether `reduce` needs a pilot
    needs_survey: ClassVar[bool] = False  # whether `reduce` needs the survey of the whole block at a pilot
    n_passes: ClassVar[int] = 1  # times `reduce` reads all rows
    unbiased: ClassVar[bool] = True  # else the weights add up exactly, and rows stand for those near them

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
