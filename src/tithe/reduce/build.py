"""Build a calibrated coreset from rows of any kind."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.contracts import Construction, Objective, Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import FileFormatError
from tithe.core.parallel import single_blas_thread
from tithe.core.params import resolve_size
from tithe.core.passes import DataPass, Tree
from tithe.core.progress import Checkpoint, Progress
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import expect
from tithe.reduce.plan import Plan, Reducer, leaf_rows_for, node_rows_for, resolve_pair
from tithe.rows.arrays import as_block, block_identity, is_frame
from tithe.rows.batches import BatchSource, is_like
from tithe.rows.clusters import as_rows
from tithe.storage.checkpoint import FolderLock, check_folder, load_state, save_state

_FEW_ROWS = 1024  # that workers compile the kernels of a build with


def build_coreset(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: str | Objective,
    construction: str | Construction[Any] = "auto",
    coreset_size: int | float,
    calibrate: bool = True,
    pilot: Any = None,
    engine: Any = "auto",
    random_state: Any = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | bool | None = None,
) -> Coreset:
    """A small weighted share of the rows that stands for all of them.

    Parameters
    ----------
    X : array, CSR matrix, pandas, polars or Arrow frame, memmap, Dask or Spark collection, batches, or a source
        A batch is any of these, or a tuple ``(X, y)`` or ``(X, y, sample_weight)``. A source is what
        `open_dataset` gives for files: it brings y and weights along. y and weights of a Dask array or frame are Dask
        arrays or series with the same partitions.
    y : array of shape (n,), optional
        Carried along; some objectives use it. The name of a column of a Spark DataFrame.
    sample_weight : array of shape (n,), optional
        The name of a column of a Spark DataFrame.
    objective : str or objective
        What must be preserved: ``"kmeans"``, ``"kmedian"``, ``"logistic"``, ``"margin"``, ``"generic"``, or
        an instance such as ``KMeansObjective(n_clusters=20)``. In a stream, name all classes beforehand:
        ``LogisticObjective(classes=("no", "yes"))``.
    construction : str or construction
        How rows are chosen. For clusters: ``"sensitivity"``, ``"lightweight"``, ``"rings"``. For linear models:
        ``"influence"``, ``"leverage"``. For logistic regression also ``"cablr"``, ``"acvs"``; for margins also
        ``"sensitivity"``. Where there are sensitivities or the bounds of ``"cablr"``: ``"regressed"``, which predicts
        them from a sample. For all objectives: ``"uniform"`` and ``"ball_cover"``. ``"auto"`` takes the
        construction that is best on real data for the objective and notes it in ``provenance``. If fewer rows than
        coefficients are kept, it compares this with a uniform draw.
    coreset_size : int or float
        The largest number of rows to keep, or a fraction of the rows between 0 and 1. A row that is drawn twice is
        kept once, so the coreset may have fewer rows. If the data has no more rows than this, all are kept.
    calibrate : bool
        Adjust the weights to exact totals of all rows. False returns the unbiased draw as it is.
    pilot : array, optional
        The rough solution at which rows are scored and totals are taken, in place of one that is found on these rows:
        the attribute ``pilot`` of another coreset. Totals of several data sets add up if all were taken at one pilot
        (`merge_coresets`).
    engine : str or engine
        ``"serial"``, ``"threads"``, or on a cluster ``"dask"`` or ``"spark"``. The result has the same bits on each.
        ``"auto"`` is ``"dask"`` for Dask collections if there is a client, and ``"spark"`` for Spark DataFrames.
    random_state : int, RandomState, Generator or None
    checkpoint : Checkpoint, optional
        A folder for the state, so that a build that was stopped can be resumed, with the same bits.
    progress : callable, bool or None
        Called as ``progress(n_passes, n_leaves, n_rows)`` after every leaf: the number of the pass over the data,
        and the leaves and rows of it that are done. It may raise ``KeyboardInterrupt`` to stop the build. True
        shows a bar on standard error.

    Returns
    -------
    Coreset

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.objectives import KMeansObjective
    >>> X = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> coreset = build_coreset(X, objective=KMeansObjective(n_clusters=3), coreset_size=500, random_state=0)
    >>> len(coreset) <= 500, round(coreset.weights().sum())
    (True, 20000)
    """
    resolve_pair(objective, construction, calibrate=calibrate)  # a wrong pair is refused before rows are read
    rows = _as_rows(X, y, sample_weight, coreset_size)
    data = DataPass(rows, engine, progress)
    size = resolve_size(coreset_size, data.n_expected)
    plan = Plan.of(objective, construction, size, calibrate=calibrate, seed=as_seed(random_state))
    given = None if pilot is None else np.ascontiguousarray(pilot, np.float64)
    return reduce_rows(data, plan, checkpoint=checkpoint, pilot=given)


@single_blas_thread()
def reduce_rows(
    data: DataPass,
    plan: Plan,
    *,
    checkpoint: Checkpoint | None = None,
    leaf_rows: int | None = None,
    pilot: Array | None = None,
    seconds: dict[str, float] | None = None,
) -> Coreset:
    """`build_coreset` for rows that are already checked.

    ``leaf_rows`` is the wanted number of rows in a leaf of a source; None chooses it by the source and the size of
    the coreset. ``seconds`` gets the times of the phases ``draw``, which takes totals as well where one pass does
    both, and ``calibrate``. BLAS runs in one thread: with two it adds in another order.
    """
    rows = data.rows
    if leaf_rows is None:
        leaf_rows = leaf_rows_for(plan.size)
        leaf_rows = leaf_rows if isinstance(rows, Block) else max(leaf_rows, rows.leaf_rows)
    if not isinstance(rows, Block) and not rows.replayable and pilot is None:
        plan = replace(plan, node_size=node_rows_for(plan.size, leaf_rows))
    # totals at the solution on the drawn rows are better, and another pass over rows in memory is cheap
    later = plan.calibrate and pilot is None and isinstance(rows, Block) and plan.objective.totals_at_solution
    build = _Build(data, plan, leaf_rows, later, pilot)
    begun = time.perf_counter()
    if checkpoint is None:
        reducer = build.start()
        coreset = data.fold(reducer.leaf, reducer.merge, leaf_rows=leaf_rows)
    else:
        reducer, coreset = _resumable(build, checkpoint)
    drawn = time.perf_counter()
    if later and coreset.n_seen > plan.size:
        objective = reducer.sampled
        solution = objective.solve(coreset, rng=rng_for(plan.seed, "solve"))
        totals = data.total(lambda leaf: objective.survey(leaf, solution).totals)
        coreset = replace(coreset, totals=totals, pilot=solution)
    coreset = reducer.finish(coreset)
    if seconds is not None:
        seconds |= {"draw": drawn - begun, "calibrate": time.perf_counter() - drawn}
    if isinstance(rows, Block):
        return coreset
    return replace(coreset, provenance={**coreset.provenance, "determinism": rows.determinism})


@dataclass(frozen=True)
class _Build:
    """The input of a build. ``later``: totals are taken in a second pass. ``pilot``: one that was given."""

    data: DataPass
    plan: Plan
    leaf_rows: int
    later: bool
    pilot: Array | None

    def start(self) -> Reducer:
        """The reducer of the leaves, prepared on the rows in memory or on a sample."""
        rows, plan = self.data.rows, self.plan
        if isinstance(rows, Block):
            return plan.start(rows, n_rows=len(rows), later=self.later, pilot=self.pilot)
        at_hand = rows.sample(None if rows.replayable else self.leaf_rows, rng=rng_for(plan.seed, "look"))
        classes = None
        if plan.objective.lacks_classes:
            classes = rows.classes()  # a class may be in the last file only
        # workers compile while the pilot is found here
        few = at_hand.take(np.arange(min(len(at_hand), _FEW_ROWS)))
        name = f"{plan.objective.name} {plan.construction.name} {few.X.dtype}"
        self.data.warm_up(name, partial(_trial_reduction, plan, few, classes))
        return plan.start(at_hand, n_rows=rows.n_rows, classes=classes, pilot=self.pilot)

    def about(self) -> dict[str, Any]:
        """What must be equal for a build to be resumed."""
        rows, plan = self.data.rows, self.plan
        return {
            "kind": "build",
            "source": block_identity(rows) if isinstance(rows, Block) else rows.identity,
            "leaf_rows": self.leaf_rows,
            "seed": plan.seed,
            "node_size": plan.node_size,
            "pilot": None if self.pilot is None else sha256(self.pilot.tobytes()).hexdigest(),
        }

    def check(self, reducer: Reducer, tree: Tree) -> None:
        """Refuse a reducer and nodes from a file that are not of this build."""
        plan, d, n_rows = self.plan, self.data.rows.n_features, self.data.n_expected
        asked = replace(plan, calibrate=plan.calibrate and not self.later)
        expect(reducer.belongs_to(asked) and reducer.plan.seed == plan.seed, "a reducer is not that of its plan")
        expect((n_rows is not None and n_rows <= plan.size) or reducer.has_pilot, "a pilot is missing")
        reducer.construction.check_columns(d, reducer.objective)
        for slot in tree.slots:
            expect(slot.n_features == d and is_like(slot, tree.slots[0]), "a coreset is unlike the rows of the source")
            reducer.check_rows(slot)


def _trial_reduction(plan: Plan, rows: Block, classes: Array | None) -> None:
    """Reduce and merge a few rows, for which all kernels of a build are compiled."""
    reducer = replace(plan, size=max(1, len(rows) // 2)).start(rows, classes=classes)
    node = reducer.leaf(rows, (0, 0))
    assert node is not None
    reducer.merge(node, node, (1, 0))


def _resumable(build: _Build, checkpoint: Checkpoint) -> tuple[Reducer, Coreset]:
    """The reducer and the coreset of all leaves; their state is written at intervals.

    Leaves that an earlier run has reduced are not read again.
    """
    check_folder(checkpoint.path)
    about, saved_at = build.about(), time.monotonic()
    latest: Tree | None = None  # after the last complete leaf; the next may have been interrupted anywhere

    def save() -> None:
        nonlocal saved_at
        if latest is not None:
            save_state(checkpoint.path, (build.plan, reducer, latest), about)
            saved_at = time.monotonic()

    def watch(tree: Tree) -> None:
        nonlocal latest
        latest = tree
        if time.monotonic() - saved_at >= checkpoint.every:
            save()

    with ExitStack() as at_end:
        at_end.callback(FolderLock(checkpoint.path).release)
        saved = _restored(build, about, os.fspath(checkpoint.path)) if checkpoint.resume else None
        reducer, tree = (build.start(), Tree()) if saved is None else saved
        options: dict[str, Any] = {"tree": tree, "leaf_rows": build.leaf_rows, "watch": watch}
        try:
            return reducer, build.data.fold(reducer.leaf, reducer.merge, **options)
        except (KeyboardInterrupt, ConnectionError):  # stopped, or the cluster is lost
            save()
            raise


def _restored(build: _Build, about: dict[str, Any], path: str) -> tuple[Reducer, Tree] | None:
    """The reducer and tree of a build that was stopped, or None. The state of another build is refused."""
    saved = load_state(path, missing_ok=True)
    if saved is None:
        return None
    differing = [name for name, value in about.items() if saved.about.get(name) != value]
    try:
        others: Any = (build.plan, None, None)
        plan, reducer, tree = saved.state if saved.about.get("kind") == "build" else others
        expect(isinstance(plan, Plan), "there is no plan")
        differing += [*build.plan.differences(plan)]
        if not differing:
            expect(isinstance(reducer, Reducer) and isinstance(tree, Tree), "there is no reducer, or no tree")
            build.check(reducer, tree)
            return reducer, tree
    except (LookupError, TypeError, ValueError) as error:
        raise FileFormatError(f"The checkpoint in {path!r} is damaged: {error}") from error
    raise ValueError(
        f"{path!r} holds the state of another run: {', '.join(differing)} differ. Give the same "
        "files and options as before, or start anew without resuming."
    )


def _as_rows(X: Any, y: Any, sample_weight: Any, coreset_size: Any) -> Block | Source:
    X, y, sample_weight = as_rows(X, y, sample_weight)
    if isinstance(X, Source):
        if y is not None or sample_weight is not None:
            raise ValueError(
                "A source brings y and weights along: name their columns when it is opened, target=... and weight=..."
            )
        return X
    if _is_table(X):
        return as_block(X, y, sample_weight)
    if isinstance(X, (str, bytes)) or not isinstance(X, Iterable):
        raise ValueError(
            f"X must be an array, a CSR matrix, a frame, an iterable of batches or a Source, got {type(X).__name__}. "
            "Files are opened with tithe.open_dataset()."
        )
    if y is not None or sample_weight is not None:
        raise ValueError("With an iterable, y and weights come in the batches: yield (X, y, sample_weight).")
    return BatchSource(X, leaf_size=leaf_rows_for(resolve_size(coreset_size, None)))


def _is_table(X: Any) -> bool:
    if sparse.issparse(X) or hasattr(X, "__array__") or is_frame(X):
        return True
    # a list of rows, as scikit-learn takes it; a list of two-dimensional batches is an iterable
    if not isinstance(X, (list, tuple)) or len(X) == 0 or len(getattr(X[0], "shape", ())) == 2:
        return False
    return all(np.isscalar(value) for value in X[0]) if isinstance(X[0], (list, tuple)) else True
