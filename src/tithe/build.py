"""Reduce: from any rows to a calibrated coreset."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from tithe.calibration import calibrated
from tithe.core.data import Array, Block, Coreset, Survey, concat
from tithe.core.errors import require_methods
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.kernels.threads import single_blas_thread
from tithe.metrics import distortion, random_queries, size_from_pilot
from tithe.sources.arrays import ArraySource, as_block
from tithe.sources.batches import BatchSource

_FEW = 100  # rows too few to measure anything on: keep them all
_LEAF = 65_536  # rows of a leaf, unless the coreset asks for more


@dataclass(frozen=True, kw_only=True)
class Reducer:
    """What happens to a leaf, to two coresets that meet, and to the last one.

    Leaves are scored at the tree's one ``pilot``, so that their totals add up; where two coresets
    meet, rows are scored at a pilot of their own. Draws are plain and unbiased; calibration against
    the exact totals comes once, at the end, and takes out the error of the whole tree.
    ``totals=False`` leaves the totals to a later pass.
    """

    objective: Any
    construction: Any
    size: int
    totals: bool
    seed: int
    pilot: Array | None
    notes: dict[str, str | int | float] = field(default_factory=dict)

    def _draw(self, block: Block, pilot: Array | None, survey: Survey | None, key: tuple[int, int]) -> Block:
        if len(block) <= self.size:
            return block.take(np.flatnonzero(block.weights() > 0), None)
        rng = rng_for(self.seed, *key, "draw")
        chosen: Block = self.construction.reduce(block, self.objective, self.size, pilot=pilot, survey=survey, rng=rng)
        return chosen

    def leaf(self, block: Block, key: tuple[int, int]) -> Coreset:
        """Score, draw, and take the exact totals, in one pass."""
        survey = None
        if self.pilot is not None and (self.totals or self.construction.surveys):
            survey = self.objective.survey(block, self.pilot)
        chosen = self._draw(block, self.pilot, survey, key)
        return Coreset(
            **_rows(chosen),
            n_seen=len(block),
            weight_seen=block.total_weight,
            totals=survey.totals if survey is not None and self.totals else None,
            pilot=self.pilot,
            key=key,
            provenance=chosen.notes or {},
        )

    def merge(self, left: Coreset, right: Coreset, key: tuple[int, int]) -> Coreset:
        """Both under one another, reduced to size again."""
        both = concat([left, right])
        local, survey = self.pilot, None
        if len(both) > self.size and self.pilot is not None and self.construction.surveys:
            local = self.construction.pilot(both, self.objective, rng=rng_for(self.seed, *key, "pilot"))
            survey = self.objective.survey(both, local)
        return Coreset(
            **_rows(self._draw(both, local, survey, key)),
            n_seen=left.n_seen + right.n_seen,
            weight_seen=left.weight_seen + right.weight_seen,
            totals=None if left.totals is None or right.totals is None else left.totals + right.totals,
            pilot=self.pilot,
            key=key,
            provenance=left.provenance,
        )

    def finish(self, coreset: Coreset) -> Coreset:
        """Write down how the coreset came about."""
        about = {"construction": "all"} if coreset.n_seen <= self.size else coreset.provenance
        return replace(coreset, provenance={**self.notes, **about, "calibrated": 0})


def _rows(block: Block) -> dict[str, Any]:
    return {"X": block.X, "y": block.y, "sample_weight": block.sample_weight, "indices": block.row_ids()}


def build_coreset(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: Any,
    construction: Any = "auto",
    coreset_size: int | float,
    calibrate: bool = True,
    engine: Any = "auto",
    random_state: Any = None,
) -> Coreset:
    """A small weighted share of the rows that stands for all of them.

    Parameters
    ----------
    X : array, CSR matrix, pandas, polars or Arrow frame, memmap, or an iterable of batches
        A batch is any of these, or a tuple ``(X, y)`` or ``(X, y, sample_weight)``.
    y : array of shape (n,), optional
        Carried along; some objectives use it.
    sample_weight : array of shape (n,), optional
    objective : str or objective
        What must be preserved: ``"kmeans"``, ``"kmedian"``, ``"logistic"``, ``"generic"``, or an instance
        such as ``KMeansObjective(n_clusters=20)``. In a stream, name all classes beforehand:
        ``LogisticObjective(classes=("no", "yes"))``.
    construction : str or construction
        How rows are chosen: for clusters ``"sensitivity"``, ``"lightweight"``, ``"rings"``; for logistic
        regression ``"influence"``, ``"leverage"``, ``"cablr"``, ``"acvs"``, ``"regressed"``; ``"uniform"``.
        ``"auto"`` takes what wins on real data for the objective and notes it in ``provenance``.
    coreset_size : int or float
        Rows to keep at the most, or a fraction of the rows between 0 and 1. Rows drawn twice are
        kept once, so fewer may come back. With as many rows as there are, all are kept.
    calibrate : bool
        Adjust the weights to exact totals of the full data. False returns the plain unbiased draw.
    engine : str or engine
        ``"serial"`` or ``"threads"``. The result has the same bits on each.
    random_state : int, RandomState, Generator or None

    Returns
    -------
    Coreset

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import KMeansObjective, build_coreset
    >>> X = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> coreset = build_coreset(X, objective=KMeansObjective(n_clusters=3), coreset_size=500, random_state=0)
    >>> len(coreset) <= 500, round(coreset.weights().sum())
    (True, 20000)
    """
    source = _as_source(X, y, sample_weight, coreset_size)
    return reduce_source(
        source,
        objective=objective,
        construction=construction,
        coreset_size=coreset_size,
        calibrate=calibrate,
        engine=engine,
        random_state=random_state,
    )


@single_blas_thread()
def reduce_source(
    source: Any,
    *,
    objective: Any,
    construction: Any = "auto",
    coreset_size: int | float,
    calibrate: bool = True,
    engine: Any = "auto",
    random_state: Any = None,
) -> Coreset:
    """`build_coreset` for rows that a source has checked already.

    BLAS is kept to one thread throughout: it adds in another order on two.
    """
    objective = make("objective", objective)
    notes: dict[str, str | int | float] = {"objective": getattr(objective, "name", type(objective).__name__)}
    if isinstance(construction, str) and construction == "auto":
        construction = _best_construction(objective)
        notes["construction_asked"] = "auto"
    construction = make("construction", construction)
    size = resolve_size(coreset_size, source.n_rows)
    require_methods(objective, construction.requires, needed_by=f"construction {construction.name!r}")
    if calibrate:
        require_methods(objective, ("pilot", "survey", "moments"), needed_by="calibrate=True")
    seed = as_seed(random_state)
    # a sharper place for the totals is the solution on the drawn rows, where the rows can be read again
    later = calibrate and source.replayable and getattr(objective, "totals_at_solution", False)
    at_hand = source.sample(None, rng=rng_for(seed, "look"))
    if callable(getattr(objective, "for_rows", None)):
        objective = objective.for_rows(at_hand)
    pilot = None
    if source.n_rows is None or source.n_rows > size:
        construction = construction.prepare(at_hand, objective, rng=rng_for(seed, "prepare"))
        if (calibrate and not later) or "pilot" in construction.requires or construction.surveys:
            pilot = construction.pilot(at_hand, objective, rng=rng_for(seed, "pilot"))
    notes |= {"construction": construction.name, "coreset_size": size, "seed": seed}
    reducer = Reducer(
        objective=objective,
        construction=construction,
        size=size,
        totals=calibrate and not later,
        seed=seed,
        pilot=pilot,
        notes=notes,
    )
    if isinstance(engine, str) and engine == "auto":
        engine = "serial" if isinstance(source, ArraySource) else "threads"
    coreset = reducer.finish(make("engine", engine).map_reduce(source.tasks(), reducer.leaf, reducer.merge))
    if later and coreset.n_seen > size:
        coreset = _with_totals_at(objective.solve(coreset, rng=rng_for(seed, "solve")), coreset, objective, source)
    return calibrated(coreset, objective)


def _with_totals_at(solution: Array, coreset: Coreset, objective: Any, source: Any) -> Coreset:
    """One more pass: the exact totals at ``solution``, added up in the order of the leaves."""
    totals = sum(objective.survey(task(), solution).totals for task in source.tasks())
    return replace(coreset, totals=totals, pilot=solution)


def resolve_size(coreset_size: Any, n_rows: int | None) -> int:
    """Rows to keep: an integer of at least 1, or a fraction in (0, 1) of ``n_rows``."""
    if isinstance(coreset_size, numbers.Integral) and not isinstance(coreset_size, bool):
        if coreset_size < 1:
            raise ValueError(f"coreset_size must be at least 1, got {coreset_size}.")
        return int(coreset_size)
    if isinstance(coreset_size, numbers.Real) and not isinstance(coreset_size, bool):
        if not 0.0 < float(coreset_size) < 1.0:
            raise ValueError(f"coreset_size as a fraction must lie between 0 and 1, got {coreset_size}.")
        if n_rows is None:
            raise ValueError("coreset_size must be an integer here: the number of rows is not known beforehand.")
        return max(1, round(float(coreset_size) * n_rows))
    raise ValueError(f"coreset_size must be an integer, or a fraction between 0 and 1, got {coreset_size!r}.")


def _best_construction(objective: Any) -> str:
    """What the objective names; else sensitivity sampling wins on real data wherever there are sensitivities."""
    if hasattr(objective, "best_construction"):
        return str(objective.best_construction)
    return "sensitivity" if callable(getattr(objective, "sensitivity", None)) else "uniform"


def _as_source(X: Any, y: Any, sample_weight: Any, coreset_size: Any) -> ArraySource | BatchSource:
    if _is_table(X):
        return ArraySource(as_block(X, y, sample_weight))
    if isinstance(X, (str, bytes)) or not isinstance(X, Iterable):
        raise ValueError(
            f"X must be an array, a CSR matrix, a frame or an iterable of batches, got {type(X).__name__}."
        )
    if y is not None or sample_weight is not None:
        raise ValueError("With an iterable, y and weights come in the batches: yield (X, y, sample_weight).")
    size = resolve_size(coreset_size, None)
    return BatchSource(X, leaf_size=max(_LEAF, 4 * size))


def _is_table(X: Any) -> bool:
    if isinstance(X, np.ndarray) or sparse.issparse(X) or hasattr(X, "__array__"):
        return True
    if isinstance(nw.from_native(X, eager_only=True, pass_through=True), nw.DataFrame):
        return True
    # a list of rows, as scikit-learn takes it; a list of two-dimensional batches is an iterable
    if not isinstance(X, (list, tuple)) or len(X) == 0 or len(getattr(X[0], "shape", ())) == 2:
        return False
    return all(np.isscalar(value) for value in X[0]) if isinstance(X[0], (list, tuple)) else True


def propose_size(
    X: Any, *, sample_weight: Any = None, objective: Any, eps: float, pilot_size: int = 1000, random_state: Any = 0
) -> tuple[int, float]:
    """The pilot rule on real rows: a coreset size for a distortion of ``eps``, and what a pilot coreset had.

    Three coresets of ``pilot_size`` rows are built and the median of their largest distortions over
    random queries is measured; since errors fall like m^(-1/2), that many rows times the square of
    (measured / eps) are proposed. It is a measurement on queries that were tried, not a guarantee.
    """
    if not 0.0 < eps < 1.0:
        raise ValueError(f"eps must lie between 0 and 1, got {eps}.")
    block = as_block(X, None, sample_weight)
    objective = make("objective", objective)
    require_methods(objective, ("pilot", "survey", "moments"), needed_by="propose_size")
    if not hasattr(objective, "n_clusters"):
        raise ValueError(f"propose_size tries centres as queries, which mean nothing to {objective.name!r}.")
    if len(block) < _FEW:
        return len(block), 0.0
    pilot_size = min(pilot_size, len(block) // 4)
    seed = as_seed(random_state)
    queries = {"random": random_queries(block, objective.n_clusters, n_bases=2, seed=seed)}
    worst = []
    for i in range(3):
        coreset = reduce_source(
            ArraySource(block),
            objective=objective,
            coreset_size=pilot_size,
            random_state=int(rng_for(seed, "propose", i).integers(2**62)),
        )
        worst.append(distortion(block, coreset, objective, queries=queries).worst)
    measured = float(np.median(worst))
    return min(len(block), max(objective.n_clusters, size_from_pilot(measured, pilot_size, eps))), measured
