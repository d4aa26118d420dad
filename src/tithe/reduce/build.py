"""Reduce: from any rows to a calibrated coreset."""

from __future__ import annotations

import numbers
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from tithe.core.contracts import Construction, Objective, SampledObjective, is_source
from tithe.core.data import Array, Coreset
from tithe.core.errors import FileFormatError
from tithe.core.parallel import single_blas_thread
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import expect
from tithe.core.tree import Tree
from tithe.reduce.plan import Plan, Reducer, resolve_pair
from tithe.sources.arrays import ArraySource, as_block
from tithe.sources.batches import BatchSource, is_like, leaf_rows
from tithe.sources.watched import WatchedSource
from tithe.storage.checkpoint import FolderLock, State, check_folder, load_state, restored_tree, save_state, saved_tree


def build_coreset(
    X: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    objective: str | Objective,
    construction: str | Construction[Any] = "auto",
    coreset_size: int | float,
    calibrate: bool = True,
    engine: Any = "auto",
    random_state: Any = None,
) -> Coreset:
    """A small weighted share of the rows that stands for all of them.

    Parameters
    ----------
    X : array, CSR matrix, pandas, polars or Arrow frame, memmap, an iterable of batches, or a source
        A batch is any of these, or a tuple ``(X, y)`` or ``(X, y, sample_weight)``. A source is what
        `open_source` gives for files: it brings y and weights along.
    y : array of shape (n,), optional
        Carried along; some objectives use it.
    sample_weight : array of shape (n,), optional
    objective : str or objective
        What must be preserved: ``"kmeans"``, ``"kmedian"``, ``"logistic"``, ``"margin"``, ``"generic"``, or
        an instance such as ``KMeansObjective(n_clusters=20)``. In a stream, name all classes beforehand:
        ``LogisticObjective(classes=("no", "yes"))``.
    construction : str or construction
        How rows are chosen: for clusters ``"sensitivity"``, ``"lightweight"``, ``"rings"``; for logistic
        regression and margins ``"influence"``, ``"leverage"``; for the first ``"cablr"``, ``"acvs"``,
        ``"regressed"``, for the second ``"sensitivity"``; for all ``"uniform"`` and ``"ball_cover"``.
        ``"auto"`` takes what wins on real data for the objective and notes it in ``provenance``; where rows are
        fewer than coefficients it compares a uniform draw with the usual one.
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
    >>> from tithe import build_coreset
    >>> from tithe.objectives import KMeansObjective
    >>> X = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> coreset = build_coreset(X, objective=KMeansObjective(n_clusters=3), coreset_size=500, random_state=0)
    >>> len(coreset) <= 500, round(coreset.weights().sum())
    (True, 20000)
    """
    resolve_pair(objective, construction, calibrate=calibrate)  # what does not fit is refused before rows are read
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

    A `WatchedSource` says where the state is kept, so that a build that was stopped can go on: it then
    has the same bits as one that was not. BLAS is kept to one thread throughout: it adds in another
    order on two.
    """
    size = resolve_size(coreset_size, source.n_rows)
    if callable(getattr(source, "with_leaf_rows", None)):
        source = source.with_leaf_rows(leaf_rows(size))
    plan = Plan.of(objective, construction, size, calibrate=calibrate, seed=as_seed(random_state))
    whole = isinstance(source, ArraySource)
    # a sharper place for the totals is the solution on the drawn rows, where another pass costs little
    later = calibrate and whole and plan.objective.totals_at_solution
    if isinstance(engine, str) and engine == "auto":
        engine = "serial" if whole else "threads"
    if getattr(source, "checkpoint", None) is None:
        reducer = _started(plan, source, later=later)
        coreset = make("engine", engine).map_reduce(source.tasks(), reducer.leaf, reducer.merge)
    else:
        with _Keeper(source, plan) as keeper:
            reducer, coreset = keeper.run(make("engine", engine))
    if later and coreset.n_seen > size:
        solution = reducer.objective.solve(coreset, rng=rng_for(plan.seed, "solve"))
        coreset = _with_totals_at(solution, coreset, reducer.objective, source)
    return reducer.finish(coreset)


def _started(plan: Plan, source: Any, *, later: bool) -> Reducer:
    at_hand = source.sample(None, rng=rng_for(plan.seed, "look"))
    classes = None
    if hasattr(source, "classes") and plan.objective.lacks_classes:
        classes = source.classes()  # a class that stands in the last file only must be known
    return plan.start(at_hand, n_rows=source.n_rows, classes=classes, later=later)


class _Keeper:
    """Writes the state of a build down every so often, so that one that was stopped can go on."""

    def __init__(self, source: WatchedSource, plan: Plan) -> None:
        assert source.checkpoint is not None
        check_folder(source.checkpoint)
        self._source, self._plan, self._path = source, plan, source.checkpoint
        self._whole: Tree | None = None
        self._last = time.monotonic()
        self._about = {
            "kind": "build",
            "source": getattr(source, "identity", "?"),
            "leaf_rows": getattr(source, "leaf_rows", 0),
            "seed": plan.seed,
        }

    def __enter__(self) -> Self:
        self._lock = FolderLock(self._path)
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def run(self, engine: Any) -> tuple[Reducer, Coreset]:
        """All leaves, or those that an earlier run has not reduced yet, and what reduced them."""
        saved = self._load() if self._source.resume else None
        reducer = _started(self._plan, self._source, later=False) if saved is None else saved[0]
        tree = Tree() if saved is None else saved[1]
        tasks = self._source.tasks(tree.n_leaves)
        watch = partial(self._after_leaf, reducer)
        try:
            return reducer, engine.map_reduce(tasks, reducer.leaf, reducer.merge, tree=tree, watch=watch)
        except KeyboardInterrupt:
            self._save(reducer)
            raise

    def _after_leaf(self, reducer: Reducer, tree: Tree) -> None:
        self._whole = tree
        if time.monotonic() - self._last >= self._source.every:
            self._save(reducer)

    def _save(self, reducer: Reducer) -> None:
        """Write down the tree after its last whole leaf: an interruption may have come at any point of the next."""
        tree = self._whole
        if tree is None:
            return
        about = {**self._about, "n_leaves": tree.n_leaves}
        save_state(
            self._path, State(objects={"plan": self._plan, "reducer": reducer}, rows=saved_tree(tree), about=about)
        )
        self._last = time.monotonic()

    def _load(self) -> tuple[Reducer, Tree] | None:
        """The reducer and tree of a build that was stopped, if there is one; another build's is refused."""
        state = load_state(self._path, missing_ok=True)
        if state is None:
            return None
        plan = state.objects.get("plan")
        other = [name for name, value in self._about.items() if state.about.get(name) != value]
        if isinstance(plan, Plan):
            other += [*self._plan.differences(plan)]
        if other:
            raise ValueError(
                f"{os.fspath(self._path)!r} holds the state of another run: {', '.join(other)} differ. Give the same "
                "files and options as before, or start anew without resuming."
            )
        try:
            reducer = state.objects["reducer"]
            expect(isinstance(reducer, Reducer) and isinstance(plan, Plan), "there is no reducer, or no plan")
            tree = restored_tree(state.rows, state.about["n_leaves"])
            self._check(reducer, tree)
        except (LookupError, TypeError, ValueError) as error:
            raise FileFormatError(f"The checkpoint in {os.fspath(self._path)!r} is damaged: {error}") from error
        return reducer, tree

    def _check(self, reducer: Reducer, tree: Tree) -> None:
        """Whether reducer and nodes that were read from a file are those of this build."""
        plan, d = self._plan, self._source.n_features
        expect(reducer.belongs_to(plan) and reducer.plan.seed == plan.seed, "a reducer is not that of its plan")
        few = self._source.n_rows is not None and self._source.n_rows <= plan.size
        expect(few or reducer.has_pilot, "a pilot is missing")
        reducer.construction.check_columns(d, reducer.objective)
        for slot in tree.slots:
            expect(slot.n_features == d and is_like(slot, tree.slots[0]), "a coreset is unlike the rows of the source")
            reducer.check_rows(slot)


def _with_totals_at(solution: Array, coreset: Coreset, objective: Objective, source: Any) -> Coreset:
    """One more pass: the exact totals at ``solution``, added up in the order of the leaves."""
    assert isinstance(objective, SampledObjective)
    totals: Any = sum(objective.survey(task(), solution).totals for task in source.tasks())
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


def _as_source(X: Any, y: Any, sample_weight: Any, coreset_size: Any) -> Any:
    if is_source(X):
        if y is not None or sample_weight is not None:
            raise ValueError("A source brings y and weights along: open_source(..., target=..., weight=...).")
        return X
    if _is_table(X):
        return ArraySource(as_block(X, y, sample_weight))
    if isinstance(X, (str, bytes)) or not isinstance(X, Iterable):
        raise ValueError(
            f"X must be an array, a CSR matrix, a frame, an iterable of batches or a source, got {type(X).__name__}. "
            "Files are opened with tithe.open_source()."
        )
    if y is not None or sample_weight is not None:
        raise ValueError("With an iterable, y and weights come in the batches: yield (X, y, sample_weight).")
    size = resolve_size(coreset_size, None)
    return BatchSource(X, leaf_size=leaf_rows(size))


def _is_table(X: Any) -> bool:
    if isinstance(X, np.ndarray) or sparse.issparse(X) or hasattr(X, "__array__"):
        return True
    if isinstance(nw.from_native(X, eager_only=True, pass_through=True), nw.DataFrame):
        return True
    # a list of rows, as scikit-learn takes it; a list of two-dimensional batches is an iterable
    if not isinstance(X, (list, tuple)) or len(X) == 0 or len(getattr(X[0], "shape", ())) == 2:
        return False
    return all(np.isscalar(value) for value in X[0]) if isinstance(X[0], (list, tuple)) else True
