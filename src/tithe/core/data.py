"""Weighted rows: blocks, coresets, what is computed of them, and the sites that they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Annotated, Any

import numpy as np
from scipy import sparse

from tithe.core.state_checks import (
    AnyFloats,
    Floats,
    Instance,
    Integer,
    Integers,
    Labels,
    Notes,
    Number,
    Optional,
    Parts,
    Rows,
    Storable,
    expect,
)

_LARGEST_TOTAL = 1e150  # sums of squares of larger ones are not finite
_MAX_LEVEL = 64  # levels of a tree, and those above that only seed draws
_POSITIVE = Number(least=float(np.finfo(np.float64).tiny))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Storable):
    """A place that shares no rows with others, whose coreset was merged with theirs (`tithe.merge_coresets`).

    Parameters
    ----------
    name : str
        The file of its coreset, or its number.
    n_seen, weight_seen : int, float
        Rows and weight that its coreset represents.
    n_kept : int
        Rows of its coreset before the merge.
    first_row : int
        What was added to its row ids, so that they differ from those of other sites.
    fingerprint : str
        A hash of its coreset, by which it is known if it is given again.
    """

    name: str
    n_seen: Annotated[int, Integer(least=1)]
    weight_seen: Annotated[float, _POSITIVE]
    n_kept: Annotated[int, Integer(least=1)]
    first_row: int
    fingerprint: str


def grouped(value: float, digits: int = 6) -> str:
    """A number for people, with at least so many digits, those before the point in groups of three.

    >>> grouped(1234567.8), grouped(298690.64, 8), grouped(0.00123456789), grouped(999999.9)
    ('1,234,568', '298,690.64', '0.00123457', '1,000,000')
    """
    return f"{value:,.0f}" if 10.0**digits - 0.5 <= abs(value) < 1e15 else f"{value:,.{digits}g}"


def html_facts(title: str, facts: Mapping[str, str]) -> str:
    """A small table of facts under a title. Text from files is shown, not obeyed.

    >>> html_facts("Coreset", {"rows": "<5>"})
    '<div class="tithe"><b>Coreset</b><table><tr><td>rows</td><td>&lt;5&gt;</td></tr></table></div>'
    """
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f'<div class="tithe"><b>{escape(title)}</b><table>{rows}</table></div>'


Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Features of rows whose totals calibration reproduces, in groups that are solved one by one.

    Parameters
    ----------
    values : (n, q) float64
        Column 0 is 1 for every row: the count.
    groups : (n,) int or None
        The group of each row. None: one group.
    n_basic : int
        Columns that matter most and come first (at least the count). The others are used
        only in groups whose basic columns the drawn rows can be trusted on.
    n_classes : int
        If more than 1, columns 1 .. n_classes - 1 say of which class a row is, all zero for the first. The weight of
        each class that was drawn from is exact then. For one group only.
    support, standard_errors : float
        A column is used only if its effective support is at least this number of drawn rows, and its total is within
        this number of standard errors of the estimate from the drawn rows. Good values depend on the loss and were
        measured.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.objectives import Moments
    >>> Moments(values=np.column_stack([np.ones(3), [1.0, 1.0, 0.0]]), groups=np.array([0, 0, 1])).n_basic
    1
    """

    values: Array
    groups: Array | None = None
    n_basic: int = 1
    n_classes: int = 0
    support: float = 10.0
    standard_errors: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Survey:
    """The results of one pass over a block at a pilot.

    Parameters
    ----------
    cost : (n,) float64
        Cost of each row at the pilot, unweighted.
    labels : (n,) int32 or None
        The pilot's group that each row belongs to. None: there is only one.
    totals : (G, q) float64
        Weighted sums of the moments of the rows of each group.
    pilot : array or None
        The pilot itself, where sensitivities need it.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import KMeansObjective, Survey
    >>> block = Block(X=np.array([[0.0], [2.0], [10.0]]))
    >>> objective, pilot = KMeansObjective(n_clusters=2), np.array([[1.0], [10.0]])
    >>> survey = objective.survey(block, pilot)
    >>> isinstance(survey, Survey), survey.cost, survey.labels
    (True, array([1., 1., 0.]), array([0, 0, 1], dtype=int32))
    """

    cost: Array
    labels: Array | None
    totals: Array
    pilot: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scores:
    """The scores ``weight * (slope * cost + base[label])`` of all rows, computed when needed.

    Parameters
    ----------
    cost : (n,) float64
    labels : (n,) int32 or None
        None: all rows belong to group 0.
    slope : float
    base : (groups,) float64
    weight : (n,) float64 or None
        None means ones.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.objectives import Scores
    >>> Scores(cost=np.array([1.0, 3.0]), slope=2.0, weight=np.array([1.0, 10.0])).at()
    array([ 2., 60.])
    """

    cost: Array
    labels: Array | None = None
    slope: float = 1.0
    base: Array = field(default_factory=lambda: np.zeros(1))
    weight: Array | None = None

    def at(self, rows: Array | slice = slice(None)) -> Array:
        """The scores of some rows, or of all."""
        base = self.base[0] if self.labels is None else self.base[self.labels[rows]]
        score: Array = self.slope * self.cost[rows] + base
        return score if self.weight is None else score * self.weight[rows]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """A convex objective at one solution, penalty included, from one pass over a block.

    Parameters
    ----------
    value, gradient : float, array of the shape of the parameters
    bound : float
        A proved bound on the excess of the value over its minimum.
    diagonal : array of the shape of the parameters, or None
        Diagonal of the curvature, penalty left out.
    totals : (G, q) float64
        Totals of the objective's moments at this solution.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import Evaluation, LogisticObjective
    >>> block = Block(X=np.array([[-1.0], [1.0]]), y=np.array([0, 1]))
    >>> objective, params = LogisticObjective(classes=(0, 1)), np.zeros((1, 2))
    >>> evaluation = objective.evaluate(block, params)
    >>> isinstance(evaluation, Evaluation), round(evaluation.value, 6), evaluation.gradient
    (True, 1.386294, array([[-1.,  0.]]))
    """

    value: float
    gradient: Array
    bound: float
    diagonal: Array | None
    totals: Array


Rng = np.random.Generator

ROWS_PER_COLUMN = 4  # drawn rows that calibration needs for each total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block(Storable):
    """Any weighted rows.

    Parameters
    ----------
    X : (n, d) array or CSR matrix
    y : (n,) array or None
    sample_weight : (n,) float64 array or None
        None means ones.
    indices : (n,) int64 array or None
        Stable global row ids. None means 0 .. n-1.
    mean : (d,) float64 array or None
        The weighted column mean, if it was computed when the rows were checked.
    notes : mapping or None
        Notes of a construction for the provenance of a coreset.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> block = Block(X=np.eye(3), sample_weight=np.array([1.0, 2.0, 4.0]))
    >>> len(block), block.n_features, block.total_weight
    (3, 3, 7.0)
    >>> block.take(np.array([2])).row_ids()
    array([2])
    """

    X: Annotated[Any, Rows("n", "d")]
    y: Annotated[Array | None, Optional(Labels("n"))] = None
    sample_weight: Annotated[Array | None, Optional(Floats("n", least=0.0))] = None
    indices: Annotated[Array | None, Optional(Integers("n", least=0))] = None
    mean: Annotated[Array | None, Optional(Floats("d"))] = None
    notes: Annotated[Mapping[str, str | int | float] | None, Optional(Notes())] = None

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def total_weight(self) -> float:
        return float(len(self)) if self.sample_weight is None else float(self.sample_weight.sum())

    @property
    def n_bytes(self) -> int:
        """Memory that the rows take."""
        parts = [self.y, self.sample_weight, self.indices]
        parts += [self.X.data, self.X.indices, self.X.indptr] if sparse.issparse(self.X) else [self.X]
        return sum(int(part.nbytes) for part in parts if part is not None)

    def weights(self) -> Array:
        """The weights as an array, ones where none were given."""
        return np.ones(len(self)) if self.sample_weight is None else self.sample_weight

    def row_ids(self) -> Array:
        """The row ids as an array."""
        return np.arange(len(self), dtype=np.int64) if self.indices is None else self.indices

    @property
    def last_row_id(self) -> int:
        """The id of the last row; -1 if there are no rows."""
        if len(self) == 0:
            return -1
        return len(self) - 1 if self.indices is None else int(self.indices[-1])

    def take(self, positions: Array, sample_weight: Array | None = None) -> Block:
        """The rows at ``positions``, with new weights or with their own."""
        if sample_weight is None and self.sample_weight is not None:
            sample_weight = self.sample_weight[positions]
        return Block(
            X=_rows_at(self.X, positions),
            y=None if self.y is None else self.y[positions],
            sample_weight=sample_weight,
            indices=positions.astype(np.int64) if self.indices is None else self.indices[positions],
        )

    def cut(self, start: int, stop: int) -> Block:
        """The rows from ``start`` to ``stop``, as views where rows can be viewed."""
        at = slice(start, stop)
        return Block(
            X=self.X[at],
            y=None if self.y is None else self.y[at],
            sample_weight=None if self.sample_weight is None else self.sample_weight[at],
            indices=np.arange(start, min(stop, len(self))) if self.indices is None else self.indices[at],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coreset(Block):
    """Weighted rows that represent more rows. It does not hold the original data.

    Parameters
    ----------
    n_seen, weight_seen : int, float
        Rows and weight of everything that this coreset represents.
    totals : (G, q) float64 array or None
        Exact sums of the objective's moments over everything seen. Merging adds.
    pilot : array or None
        The rough solution at which the moments were taken. Without totals: one at which other coresets may take
        theirs (``build_coreset(..., pilot=...)``).
    key : (int, int)
        (level, first leaf): its place in the tree, which seeds the draw.
    last_row : int
        The largest row id among everything it stands for; weights that decay are those at this row.
    is_whole : bool
        Whether it holds all rows that carry weight: nothing was drawn.
    provenance : mapping
        How it was made: construction, sizes, what calibration did.
    objective : Objective or None
        What it preserves, with its classes. None: not known.
    half_life : float or None
        Rows after which the weight of a row has halved; None: weights do not decay.
    schema : TableSchema or None
        How the columns of a table became the columns of X; None for rows that were numbers.
    scorer : RowScorer or None
        Scores new rows, if the construction learned to: ``"rdsf"`` does.
    sites : tuple of Site
        The sites whose coresets were merged; empty if all rows are of one place. With sites, row ids are no positions
        in one data set: `site_rows` says what they are.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> coreset = build_coreset(X, objective="kmeans", coreset_size=200, random_state=0)
    >>> coreset.n_seen, coreset.is_whole, round(coreset.weights().sum())
    (2000, False, 2000)
    >>> bool((X[coreset.row_ids()] == coreset.X).all())
    True
    """

    n_seen: Annotated[int, Integer(least=1)]
    weight_seen: Annotated[float, _POSITIVE]
    totals: Annotated[Array | None, Optional(AnyFloats(largest=_LARGEST_TOTAL))] = None
    pilot: Annotated[Array | None, Optional(AnyFloats())] = None
    key: Annotated[tuple[int, int], Parts(Integer(most=_MAX_LEVEL), Integer())] = (0, 0)
    last_row: Annotated[int, Integer(least=-1)] = -1
    is_whole: bool = False
    provenance: Annotated[Mapping[str, str | int | float], Notes()] = field(default_factory=dict)
    objective: Annotated[Any, Optional(Instance(Storable))] = None  # an Objective, which `core.contracts` declares
    half_life: float | None = None
    sites: tuple[Site, ...] = ()
    schema: Annotated[Any, Optional(Instance(Storable))] = None  # a TableSchema, of `tithe.rows`
    scorer: Annotated[Any, Optional(Instance(Storable))] = None  # a RowScorer, which `core.contracts` declares

    def __repr__(self) -> str:
        made = self.provenance.get("construction", "?")
        columns = "1 column" if self.n_features == 1 else f"{self.n_features} columns"
        return f"Coreset({len(self)} rows standing for {self.n_seen}, {columns}, {made})"

    def _repr_html_(self) -> str:
        facts = {
            "rows kept": f"{len(self):,} of {self.n_seen:,} ({len(self) / max(1, self.n_seen):.2%})",
            "columns": f"{self.n_features:,}",
            "objective": str(self.provenance.get("objective", "not known")),
            "chosen by": str(self.provenance.get("construction", "not known")),
            "calibrated": "yes" if self.provenance.get("calibrated") else "no",
            "effective sample size": f"{self.effective_size:,.0f}",
            "weights": f"{self.weights().min():.4g} to {self.weights().max():.4g}" if len(self) else "none",
        }
        return html_facts("Coreset", facts)

    @property
    def effective_size(self) -> float:
        """Kish's effective sample size, (sum w)^2 / sum w^2."""
        return effective_sample_size(self.weights())

    def site_rows(self) -> tuple[Array, Array]:
        """The number of the site that each row came from, and the row id that it has there: (n,) and (n,) int64."""
        if not self.sites:
            raise ValueError("This coreset was not merged from sites: all row ids are those of one place.")
        first = np.array([site.first_row for site in self.sites], np.int64)
        number = np.searchsorted(first, self.row_ids(), side="right") - 1
        return number, self.row_ids() - first[number]

    def check_relations(self) -> None:
        expect(len(self) == 0 or self.weights().any(), "no row of a coreset has a weight")
        if self.sites:
            first = [site.first_row for site in self.sites]
            expect(first[0] == 0 and sorted(set(first)) == first, "row ids of sites are not kept apart")
            expect(sum(site.n_seen for site in self.sites) == self.n_seen, "sites have other rows than the coreset")


def all_rows(block: Block, objective: Any) -> Coreset:
    """A coreset of all rows that have a positive weight, for data too small to reduce."""
    keep = np.flatnonzero(block.weights() > 0)
    rows = block.take(keep, block.weights()[keep])
    return Coreset(
        X=rows.X,
        y=rows.y,
        sample_weight=rows.sample_weight,
        indices=rows.row_ids(),
        n_seen=len(block),
        weight_seen=block.total_weight,
        is_whole=True,
        objective=objective,
        provenance={"objective": objective.name, "construction": "all", "calibrated": 0},
    )


def weighted_quantiles(values: Array, weight: Array, levels: Array) -> Array:
    """The smallest values at which the weight of all up to them reaches these shares; never one of weight zero.

    >>> weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.array([1.0, 0.0, 3.0]), np.array([0.0, 0.5, 0.8]))
    array([2., 2., 3.])
    """
    order = np.argsort(values, kind="stable")
    mass = np.cumsum(weight[order])
    least = np.nextafter(0.0, 1.0)  # so that rows of weight zero come before the first quantile
    places = np.searchsorted(mass, np.maximum(levels * mass[-1] * (1.0 - 1e-12), least))
    quantiles: Array = values[order[np.minimum(places, len(order) - 1)]]
    return quantiles


def effective_sample_size(sample_weight: Array) -> float:
    """Kish's effective sample size, (sum w)^2 / sum w^2.

    >>> effective_sample_size(np.array([1.0, 1.0, 2.0]))
    2.6666666666666665
    """
    w = np.asarray(sample_weight, np.float64)
    return float(w.sum() ** 2 / (w @ w)) if w.any() else 0.0


def _rows_at(X: Any, positions: Array) -> Any:
    """``X[positions]``. Where all positions are in range it takes a ninth of the time if NumPy need not check each."""
    if not isinstance(X, np.ndarray) or positions.dtype.kind not in "iu" or len(positions) == 0:
        return X[positions]
    if positions.min() < 0 or positions.max() >= len(X):
        return X[positions]
    return np.take(X, positions, axis=0, mode="clip")


def rows_of(values: Any, at: Array | slice) -> Any:
    """Some rows of an array, a matrix or a frame of pandas."""
    return values.iloc[at] if hasattr(values, "iloc") else values[at]


def stack(parts: Sequence[Any]) -> Any:
    """The rows of several arrays or CSR matrices."""
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


def concat(blocks: Sequence[Block]) -> Block:
    """The rows of several blocks. Weights and row ids are filled in where only some blocks have them."""
    if len(blocks) == 1:
        return blocks[0]
    widths = {b.n_features for b in blocks}
    if len(widths) > 1:
        raise ValueError(f"Blocks of {' and '.join(map(str, sorted(widths)))} columns cannot be joined.")
    if len({b.y is None for b in blocks}) > 1:
        raise ValueError("Some of the blocks have y and some have not.")
    weighted = any(b.sample_weight is not None for b in blocks)
    named = any(b.indices is not None for b in blocks)
    return Block(
        X=stack([b.X for b in blocks]),
        y=None if blocks[0].y is None else np.concatenate([b.y for b in blocks if b.y is not None]),
        sample_weight=np.concatenate([b.weights() for b in blocks]) if weighted else None,
        indices=np.concatenate([b.row_ids() for b in blocks]) if named else None,
    )
