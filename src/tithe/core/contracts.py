"""What the rooms know of one another.

Objectives say what must be preserved, constructions choose rows, sources bring them,
engines do the work. Whoever implements a protocol can be tested with `tithe.testing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from tithe.core.data import Array, Block, Coreset, Evaluation, Moments, Rng, Scores, Survey
from tithe.core.tree import Tree

Params = Any


@runtime_checkable
class Objective(Protocol):
    """cost(P, q) = sum_i u_i f_q(x_i), with f >= 0: always a sum, never a mean."""

    name: ClassVar[str]

    def solve(self, block: Block, *, rng: np.random.Generator, init: Params | None = None) -> Params:
        """A good solution for the weighted rows."""
        ...

    def cost(self, block: Block, params: Params) -> Array:
        """f_q(x_i) of every row: (n,), unweighted."""
        ...


class SurveyedObjective(Objective, Protocol):
    """What sampling by importance and calibration need on top."""

    def pilot(self, block: Block, *, rng: np.random.Generator) -> Array:
        """A rough solution, cheap whatever the number of rows."""
        ...

    def mean_pilot(self, block: Block) -> Array:
        """The roughest solution of all, from column means alone."""
        ...

    def survey(self, block: Block, pilot: Array) -> Survey:
        """Costs, groups and exact totals in one pass."""
        ...

    def sensitivity(self, block: Block, survey: Survey) -> Scores | Array:
        """> 0 where the weight is: an upper bound, up to a factor, of sup_q u f_q / cost(q), per row."""
        ...

    def moments(self, block: Block, pilot: Array) -> Moments:
        """What calibration reproduces, for the few rows that were drawn."""
        ...


class SteppedObjective(Objective, Protocol):
    """What `certify.polish_by_steps` needs on top: what leaves say adds up, and a step follows from the sum."""

    def look(self, block: Block, params: Params, *, last: bool = False) -> Any:
        """What one pass over a block found, with its cost as ``total`` and ``labels`` of its rows; looks add up (+)."""
        ...

    def step(self, look: Any, params: Params) -> tuple[Params, float]:
        """A solution that costs less than the one looked at, and by how much at the least."""
        ...


class ConvexObjective(Objective, Protocol):
    """What `certify.polish_by_descent` needs on top: a smooth convex sum of losses of linear margins, and a penalty."""

    def sums(self, block: Block, params: Array, *, diagonal: bool = False, centre: Array | None = None) -> Any:
        """What one pass over a block found; sums of several leaves add up (+)."""
        ...

    def evaluation(self, sums: Any, params: Array) -> Evaluation:
        """Value, gradient, proved bound and totals of the moments, of all rows that were added up."""
        ...

    def metric(
        self,
        block: Block,
        params: Array,
        *,
        diagonal: Array | None = None,
        centre: Array | None = None,
        caution: float = 1.0,
    ) -> Any:
        """The curvature as these rows see it, to divide by: a `tithe.solvers.descent.Metric`."""
        ...

    def centre(self, block: Block) -> Array | None:
        """Where columns are centred before their curvature is taken."""
        ...

    def least_support(self, block: Block, params: Array, centre: Array | None) -> float:
        """Effective number of rows that the curvature in the column known least comes from."""
        ...

    def margins(self, X: Any, params: Array) -> Array:
        """(n, k)."""
        ...

    def bend(self, block: Block, params: Array, direction: Array) -> Array:
        """Second derivative of each row's loss along a direction: (n,)."""
        ...

    @property
    def convex(self) -> bool:
        """Whether it really is: else a gap cannot be estimated, only bounded."""
        ...

    def keeps_curvature(self, params: Array) -> bool:
        """Whether the curvature of so many coefficients is kept as a whole matrix."""
        ...

    def curvature(
        self, block: Block, params: Array, centre: Array | None = None, *, total_weight: float | None = None
    ) -> Array | None:
        """The second derivative of the losses of these rows, out of rows of ``total_weight``."""
        ...

    def metric_of(self, hessian: Array, centre: Array | None = None) -> Any:
        """A curvature that is believed as it is, with the penalty."""
        ...

    def curvature_parts(self, block: Block, params: Array, diagonal: Array, centre: Array | None) -> Array:
        """The part of each row in the diagonal of the curvature of all, added up over the coordinates: (n,)."""
        ...


class Construction(Protocol):
    """How rows are chosen. Unbiased, unless it says otherwise: E[sum_i w_i f(x_i)] over the draw is the full sum."""

    name: ClassVar[str]
    requires: ClassVar[tuple[str, ...]]  # methods of the objective, checked before anything is read
    surveys: ClassVar[bool]  # whether `reduce` needs the survey of the whole block
    looks: ClassVar[int]  # times `reduce` reads all rows
    unbiased: ClassVar[bool]  # else the weights add up exactly, and rows stand for those near them

    def prepare(self, block: Block, objective: Any, *, rng: np.random.Generator) -> Construction:
        """What is learned once from the rows at hand and used for every leaf; itself if nothing is, or was already."""
        ...

    def pilot(self, block: Block, objective: Any, *, rng: np.random.Generator) -> Array:
        """The rough solution this construction scores rows with."""
        ...

    def reduce(
        self, block: Block, objective: Any, size: int, *, pilot: Array | None, survey: Survey | None, rng: Rng
    ) -> Block:
        """At most ``size`` distinct rows of ``block`` with weights."""
        ...


class Source(Protocol):
    """Where rows come from. Row ids are positions in all of the data, rows that are left out included."""

    replayable: bool  # whether `tasks` may be asked for again
    n_features: int
    n_rows: int | None

    def tasks(self, first: int = 0) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves, in order, from leaf number ``first`` on. A leaf may have no rows."""
        ...

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """Rows for a pilot: from across all of the data where it can be read again, else from its
        beginning. None: as many as are at hand without reading anything twice."""
        ...


def is_source(X: Any) -> bool:
    """Whether rows come from a source, leaf by leaf."""
    return callable(getattr(X, "tasks", None)) and callable(getattr(X, "sample", None))


class Engine(Protocol):
    """Who does the work. The contract is one assertion: equals serial, bit for bit."""

    name: ClassVar[str]

    def map(self, tasks: Iterable[Callable[[], Any]], work: Callable[[Any, int], Any]) -> Iterator[Any]:
        """``work(task(), number)`` of every task, in order, holding a bounded number of them."""
        ...

    def map_reduce(
        self,
        tasks: Iterable[Callable[[], Block]],
        leaf: Callable[[Block, tuple[int, int]], Coreset | None],
        merge: Callable[[Coreset, Coreset, tuple[int, int]], Coreset],
        *,
        tree: Tree | None = None,
        watch: Callable[[Tree], None] | None = None,
    ) -> Coreset:
        """All leaves folded into one coreset.

        A ``tree`` that holds leaves already is gone on with: the first task is leaf ``tree.n_leaves``.
        ``watch`` is shown the tree after every leaf.
        """
        ...
