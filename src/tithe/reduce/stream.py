"""A coreset of rows that keep coming."""

from __future__ import annotations

import math
import numbers
import os
from dataclasses import replace
from typing import Any, Self
from uuid import uuid4

import numpy as np

from tithe.core.contracts import Construction, Objective
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import FileFormatError
from tithe.core.parallel import single_blas_thread
from tithe.core.seeding import as_seed
from tithe.core.state_checks import Integer, Storable, check_loaded, expect
from tithe.reduce.build import resolve_size
from tithe.reduce.deletion import Forgets
from tithe.reduce.plan import Plan, Reducer
from tithe.reduce.stream_checks import check_stream
from tithe.sources.batches import Regrouper, difference, leaf_rows
from tithe.storage.checkpoint import State, load_state, restored_tree, save_state, saved_tree
from tithe.storage.leaf_store import LeafStore

_BLOCKS = 8  # parts of a window that leave it one by one
_ABSORBED, _LAST = 62, 63  # levels that no tree reaches: they seed the draws where streams meet


class CoresetStream(Forgets, Storable):
    """Push rows, ask for a coreset of everything so far at any time.

    Rows are kept until a leaf of ``leaf_size`` is full; it is reduced to ``coreset_size`` rows, and
    coresets of equal level merge and are reduced again, like carries of a binary counter. Memory is one
    leaf and log2(n / leaf_size) coresets. The error of a fixed query grows with the square root of two
    at most where costs are balanced, and linearly in the number of levels at the very worst; calibration
    against the exact totals of everything pushed then takes most of it out. In which pieces the rows come
    makes no difference, to the last bit.

    Parameters
    ----------
    objective, construction, calibrate : see `build_coreset`
        The pilot comes from the first leaf and stays, so that totals add up.
    coreset_size : int
    leaf_size : int, optional
        Rows that are kept raw; 65,536 or four times the coreset, whichever is more.
    window : int, optional
        Forget what is older than so many rows. Whole parts, at most an eighth of the window, leave at
        once: the coreset stands for at least the last ``window`` rows and at most a part (or a leaf) more.
    half_life : float, optional
        A row that came h rows ago weighs 2^(-h / half_life) times as much as the last one.
    keep_leaves : path, optional
        A new folder that every full leaf is written to, so that `forget` can rebuild what it must. It
        takes as much disk as the rows.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    n_rows : int
        Rows pushed so far; the id that the next one gets.
    notes : dict
        Anything that JSON can hold, kept with checkpoints: where the rows came from, say.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetStream
    >>> from tithe.objectives import KMeansObjective
    >>> rng = np.random.default_rng(0)
    >>> stream = CoresetStream(KMeansObjective(n_clusters=3), coreset_size=500, random_state=0)
    >>> for _ in range(30):
    ...     stream = stream.push(rng.normal(size=(5000, 2)))
    >>> coreset = stream.coreset()
    >>> len(coreset) <= 500, coreset.n_seen, round(coreset.weights().sum())
    (True, 150000, 150000)
    """

    def __init__(
        self,
        objective: str | Objective,
        construction: str | Construction[Any] = "auto",
        *,
        coreset_size: int,
        leaf_size: int | None = None,
        calibrate: bool = True,
        window: int | None = None,
        half_life: float | None = None,
        keep_leaves: str | os.PathLike[str] | None = None,
        random_state: Any = None,
    ) -> None:
        size = resolve_size(coreset_size, None)
        leaf_size = leaf_rows(size) if leaf_size is None else _whole("leaf_size", leaf_size, 1)
        if half_life is not None and not (isinstance(half_life, numbers.Real) and 0.0 < half_life < math.inf):
            raise ValueError(f"half_life must be a positive number of rows, got {half_life!r}.")
        if window is not None and _whole("window", window, 1) < leaf_size:
            raise ValueError(f"A window of {window} rows is less than one leaf: choose leaf_size below {leaf_size}.")
        self.window = window
        self.plan = Plan.of(
            objective,
            construction,
            size,
            calibrate=calibrate,
            seed=as_seed(random_state),
            half_life=None if half_life is None else float(half_life),
        )
        self._reducer: Reducer | None = None
        self._rows = Regrouper(leaf_size)
        self._pilot_leaf: int | None = None  # the leaf that the pilot was taken from
        self._absorbed: Coreset | None = None  # what came from other streams
        self._absorbed_rows: list[tuple[int, int]] = []  # their ids: from, to
        self._n_pushes = 0
        self._checkpoint: str | None = None
        self._id = uuid4().hex  # checkpoints of one stream do not replace those of another
        self.notes: dict[str, Any] = {}
        self._store = None if keep_leaves is None else LeafStore(keep_leaves, new=True)
        self._tree = self._new_tree()

    def __repr__(self) -> str:
        return f"CoresetStream({self.plan.objective!r}, {self.n_rows} rows pushed, coreset_size={self.plan.size})"

    # -- rows in -------------------------------------------------------------------------------

    @single_blas_thread()
    def push(self, X: Any, y: Any = None, sample_weight: Any = None, row_ids: Any = None) -> Self:
        """Add rows: an array, CSR matrix or frame, with y and weights if there are any.

        ``row_ids`` are whole numbers that ascend over all pushes; by default rows are counted. A row
        belongs to leaf ``row_id // leaf_size``, so a stream that was never given some rows equals one
        that forgot them (except where the whole leaf that the pilot came from is forgotten after it left the window).
        If rows are refused, or something fails meanwhile, none of them is taken.
        """
        self._check_labels(y)
        before = self._progress()
        try:
            for number, leaf in self._rows.add(X, y, sample_weight, row_ids, what=f"Push {self._n_pushes}"):
                self._add_leaf(number, leaf)
        except BaseException:  # all of the rows or none: a full disk, say, must not cost those that fitted
            self._go_back(before)
            raise
        self._n_pushes += 1
        return self

    def _check_labels(self, y: Any) -> None:
        """Refuse labels that are not among the classes at once, not when their leaf is full."""
        objective = (self.plan if self._reducer is None else self._reducer).objective
        if y is not None and objective.classes is not None:
            labels = np.asarray(y).ravel()
            objective.codes(Block(X=np.empty((len(labels), 0)), y=labels))

    def _progress(self) -> tuple[Any, ...]:
        rows = self._rows
        tree = self._tree.copy()
        return rows.next_row, rows.parts.copy(), rows.like, tree.slots, tree.n_leaves, self._reducer, self._pilot_leaf

    def _go_back(self, progress: tuple[Any, ...]) -> None:
        rows, tree = self._rows, self._tree
        rows.next_row, rows.parts, rows.like, tree.slots, tree.n_leaves, self._reducer, self._pilot_leaf = progress

    def _add_leaf(self, number: int, block: Block) -> None:
        if self._reducer is None:
            self._reducer, self._pilot_leaf = self.plan.start(block), number
        if self._store is not None:
            self._store.put_leaf(number, block)
        self._tree.push(number, self._reduced(number, block))
        self._tree.slots = self._within(self._tree.slots, (number + 1) * self.leaf_size)
        if self._checkpoint is None:
            self._expire()

    def _top(self) -> int | None:
        """The level up to which nodes merge: within a window, parts of it stay apart."""
        if self.window is None:
            return None
        return max(0, int(math.log2(max(1, self.window // (_BLOCKS * self.leaf_size)))))

    def _within(self, slots: list[Coreset], n_rows: int) -> list[Coreset]:
        """The nodes that hold rows of the window after ``n_rows`` rows."""
        if self.window is None:
            return slots
        first = n_rows - self.window
        return [slot for slot in slots if (slot.key[1] + 2 ** slot.key[0]) * self.leaf_size > first]

    # -- a coreset out -------------------------------------------------------------------------

    @single_blas_thread()
    def coreset(self) -> Coreset:
        """Everything pushed so far (or what is left of it), calibrated. The stream goes on unchanged."""
        reducer, node = self._collapsed()
        return reducer.finish(node)

    def _collapsed(self) -> tuple[Reducer, Coreset]:
        """All nodes and the rows that wait, as one coreset that is not calibrated yet."""
        reducer, rest = self._reducer, self._rows.rest()
        if reducer is None:
            if rest is None:
                raise ValueError("There are no rows: nothing was pushed, or nothing is left of it.")
            reducer = self.plan.start(rest, n_rows=len(rest))
        tree = self._tree.copy()
        tree.merge = reducer.merge
        if rest is not None:
            tree.push(self._rows.number, reducer.leaf(rest, (0, self._rows.number)))
        tree.slots = self._within(tree.slots, self.n_rows)
        if self._absorbed is None:
            return reducer, tree.collapse()
        if not tree.slots:
            return reducer, self._absorbed
        return reducer, reducer.merge(self._absorbed, tree.collapse(), (_LAST, 0))

    # -- several streams -------------------------------------------------------------------------

    def fork(self, random_state: Any = None) -> CoresetStream:
        """An empty stream with the pilot of this one, to be fed elsewhere and merged: its totals add up exactly."""
        other = CoresetStream(
            self.plan.objective,
            self.plan.construction,
            coreset_size=self.plan.size,
            leaf_size=self.leaf_size,
            calibrate=self.plan.calibrate,
            random_state=random_state,
        )
        other.plan = replace(self.plan, seed=other.plan.seed)
        if self._reducer is not None:
            other._reducer = replace(self._reducer, plan=other.plan)
        return other

    @single_blas_thread()
    def merge(self, other: CoresetStream) -> Self:
        """Take in what another stream has seen; its rows are numbered on from the rows of this one.

        The other stream is not changed. Where it has the same pilot (see `fork`), or this stream has none
        yet, totals stay exact; else those of the other stream are taken from its calibrated coreset.
        """
        self._check_mergeable(other)
        if other._rows.next_row == 0:
            return self
        offset = self.n_rows
        if self._rows.like is None:
            self._rows.like = other._rows.like
        if other._reducer is None:  # all of its rows are still there
            rest = other._rows.rest()
            if rest is not None:
                self.push(rest.X, rest.y, rest.sample_weight, row_ids=rest.row_ids() + offset)
            self._rows.next_row = max(self.n_rows, offset + other.n_rows)
            return self
        if self._reducer is None:
            self._reducer = replace(other._reducer, plan=self.plan)
        reducer, node = other._collapsed()
        pilot = self._reducer.pilot
        if node.totals is not None and pilot is not None and not np.array_equal(_place(node), pilot):
            node = reducer.finish(node)
            totals = self._reducer.sampled.survey(node, pilot).totals
            node = replace(node, totals=totals, pilot=pilot, provenance={"totals": "partly estimated"})
        node = replace(node, indices=node.row_ids() + offset, last_row=node.last_row + offset)
        self._absorbed_rows.append((offset, offset + other.n_rows))
        if self._absorbed is not None:
            node = self._reducer.merge(self._absorbed, node, (_ABSORBED, len(self._absorbed_rows)))
        self._absorbed = node
        self._rows.next_row = offset + other.n_rows
        return self

    def _check_mergeable(self, other: Any) -> None:
        if not isinstance(other, CoresetStream) or other is self:
            raise ValueError("Another CoresetStream is needed.")
        if any(s.window is not None or s.plan.half_life is not None for s in (self, other)):
            raise ValueError("Streams with a window or a half_life have a clock of their own and cannot be merged.")
        for name, (mine, theirs) in self.plan.differences(other.plan).items():
            raise ValueError(f"The streams differ in {name}: {mine!r} here, {theirs!r} there.")
        here, there = self._rows.like, other._rows.like
        unlike = None if here is None or there is None else difference(there, here)
        if unlike:
            raise ValueError(f"The other stream {unlike}.")
        known = [s._reducer.objective.classes for s in (self, other) if s._reducer is not None]
        if len(known) == 2 and known[0] != known[1]:
            raise ValueError(f"The streams have other classes, {known[0]} and {known[1]}: name all in both objectives.")

    # -- on disk ---------------------------------------------------------------------------------

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to go on into the folder ``path``: whole, or not at all.

        What was there before is kept until the new state is complete; that of another stream is not
        replaced. The stream can be resumed from it bit for bit in another process, also on another machine with
        a CPU of the same kind.
        """
        objects: dict[str, Any] = {"plan": self.plan}
        if self._reducer is not None:
            objects["reducer"] = self._reducer
        rows: dict[str, Block] = saved_tree(self._tree)
        rest = self._rows.rest()
        if rest is not None:
            rows["buffer"] = rest
        if self._rows.like is not None:
            rows["like"] = self._rows.like
        if self._absorbed is not None:
            rows["absorbed"] = self._absorbed
        about = {
            "kind": "stream",
            "id": self._id,
            "notes": self.notes,
            "n_leaves": self._tree.n_leaves,
            "next_row": self.n_rows,
            "leaf_size": self.leaf_size,
            "window": self.window,
            "pilot_leaf": self._pilot_leaf,
            "absorbed_rows": self._absorbed_rows,
            "n_pushes": self._n_pushes,
            "leaves": None if self._store is None else os.path.abspath(self._store.path),
            "times_forgotten": 0 if self._store is None else self._store.forgotten()[0],
        }
        there = load_state(path, missing_ok=True) if os.path.abspath(path) != self._checkpoint else None
        if there is not None and there.about.get("id") != self._id:
            raise ValueError(
                f"{os.fspath(path)!r} holds the state of another run: go on with that one, give another folder, or "
                "remove it."
            )
        save_state(path, State(objects=objects, rows=rows, about=about))
        self._checkpoint = os.path.abspath(path)
        self._expire()

    @classmethod
    def resume(cls, path: str | os.PathLike[str], *, keep_leaves: str | os.PathLike[str] | None = None) -> Self:
        """The stream as it was when `checkpoint` wrote it; ``keep_leaves`` if that folder has moved."""
        state = load_state(path)
        assert state is not None
        if state.about.get("kind") != "stream":
            raise FileFormatError(f"{os.fspath(path)!r} is the checkpoint of a build, not of a stream.")
        self = cls.__new__(cls)
        try:
            self._restore(state)
            check_loaded(self)
            leaves, times = state.about["leaves"], state.about["times_forgotten"]
            expect(leaves is None or isinstance(leaves, str), "the folder of its leaves has no name")
            Integer().check("times_forgotten", times, {})
        except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
            raise FileFormatError(f"The checkpoint in {os.fspath(path)!r} is damaged: {error}") from error
        self._checkpoint = os.path.abspath(path)
        folder = keep_leaves or leaves
        self._store = None if folder is None else LeafStore(folder, new=False)
        self._catch_up(times)
        return self

    def _restore(self, state: State) -> None:
        about = state.about
        self._id, self.notes = str(about["id"]), dict(about["notes"])
        self.plan = state.objects["plan"]
        self._reducer = state.objects.get("reducer")
        self.window = about["window"]
        self._rows = Regrouper(about["leaf_size"])
        self._rows.next_row = about["next_row"]
        self._rows.like = state.rows.get("like")
        self._rows.parts = [state.rows["buffer"]] if "buffer" in state.rows else []
        self._pilot_leaf = about["pilot_leaf"]
        self._absorbed = state.rows.get("absorbed")  # type: ignore[assignment]
        self._absorbed_rows = [(start, stop) for start, stop in about["absorbed_rows"]]
        self._n_pushes = about["n_pushes"]
        self._checkpoint = self._store = None
        self._tree = restored_tree(state, self._merge, top=self._top())

    def _check_state(self) -> None:
        check_stream(self)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        tree = state.pop("_tree")  # it holds a method of this stream
        # a copy, or a model file of somebody else, must not write where this stream does. The copy gets an id of its
        # own when it is made: one made here would give an unchanged stream other bytes every time it is pickled
        state |= {"_checkpoint": None, "_store": None, "_id": None}
        return {**state, "_slots": tree.slots, "_n_leaves": tree.n_leaves}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        slots, n_leaves = state.pop("_slots"), state.pop("_n_leaves")
        self.__dict__.update(state)
        self._id = uuid4().hex
        self._tree = self._new_tree()
        self._tree.slots, self._tree.n_leaves = slots, n_leaves


def _place(node: Coreset) -> Array:
    """Where its totals were taken."""
    assert node.pilot is not None
    return node.pilot


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(value)
