"""A coreset of rows that come one batch after another, and from which rows can be deleted again."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self
from uuid import uuid4

import numpy as np

from tithe.core.contracts import Construction, Objective
from tithe.core.data import Array, Block, Coreset, html_facts
from tithe.core.errors import FileFormatError, NoRowsError, warn_caller
from tithe.core.parallel import single_blas_thread
from tithe.core.params import OneOf, RealNumber, WholeNumber, check_value, resolve_size
from tithe.core.passes import Merge, Tree
from tithe.core.seeding import as_seed
from tithe.core.state_checks import LARGEST, Instance, Integer, Optional, Storable, StoredState, expect
from tithe.reduce.draws import InfluenceObjective
from tithe.reduce.plan import Plan, Reducer, leaf_rows_for, node_rows_for
from tithe.rows.arrays import as_matrix, is_frame
from tithe.rows.batches import LeafBuffer, difference, is_like
from tithe.rows.encode import check_encode, encoded_rows, later_rows, refuse_other_width
from tithe.rows.schema import TableSchema
from tithe.storage.checkpoint import clean_state, load_state, save_state
from tithe.storage.leaf_store import LeafStore

_MIN_LEAF_ROWS = 16_384  # with fewer, streams of linear models err by up to hundreds of times as much
_WINDOW_PARTS = 8  # parts of a window that are dropped one at a time
_ABSORBED_LEVEL, _LAST_LEVEL = 62, 63  # above all levels of a tree: they seed the draws when streams are merged


@dataclass(frozen=True, kw_only=True)
class StreamState(Storable):
    """The state of a stream. A push returns a new state; the old one does not change."""

    plan: Plan
    rows: LeafBuffer  # of the leaf that is not full yet
    # the least number of rows that the coreset represents; None: all rows
    window: Annotated[int | None, Optional(Integer(least=1))] = None
    tree: Tree = field(default_factory=Tree)  # the coresets of all full leaves
    reducer: Reducer | None = None  # set when the first leaf is full
    pilot_leaf: int | None = None  # the leaf that the pilot was taken from
    absorbed: Coreset | None = None  # the rows that came from other streams
    absorbed_rows: tuple[tuple[int, int], ...] = ()  # the row ids of each of these streams, without the end
    schema: Annotated[TableSchema | None, Optional(Instance(TableSchema))] = None  # of the first frame, if it needs one
    n_pushes: int = 0
    times_forgotten: int = 0  # deletions that this state includes

    @property
    def oldest_leaf(self) -> int:
        """The number of the first leaf in the tree."""
        return self.tree.slots[0].key[1] if self.tree.slots else self.tree.n_leaves

    @property
    def top_level(self) -> int | None:
        """The level above which nodes are not merged, so that parts of a window can be dropped; None: no limit."""
        if self.window is None:
            return None
        return max(0, int(math.log2(max(1, self.window // (_WINDOW_PARTS * self.rows.leaf_size)))))

    def reduce_leaf(self, number: int, block: Block, archive: LeafStore | None) -> StreamState:
        """The state with leaf ``number`` in its tree. The pilot is taken from the first leaf."""
        state = self
        if state.reducer is None:
            state = replace(state, reducer=state.plan.start(block), pilot_leaf=number)
        assert state.reducer is not None
        node = state.reducer.leaf(block, (0, number))
        if archive is not None and node is not None:
            archive.on_node(node)
        tree = state.tree.push(number, node, merging(state.reducer, archive), top=state.top_level)
        return replace(state, tree=tree)

    def check_relations(self) -> None:
        tree, rows, leaf_size = self.tree, self.rows, self.rows.leaf_size
        expect(tree.n_leaves <= LARGEST // leaf_size, "a tree has too many leaves")
        expect(self.window is None or self.window >= leaf_size, "a window is less than one leaf")
        made = self.schema is None or (rows.like is not None and rows.like.n_features == self.schema.n_features)
        expect(made, "a schema makes other features")
        expect(tree.n_leaves * leaf_size <= rows.next_row, "a tree has more leaves than rows came")
        expect(not rows.parts or rows.number >= tree.n_leaves, "rows that wait belong to a leaf that is reduced")
        expect(self.pilot_leaf is None or self.pilot_leaf < max(1, tree.n_leaves), "the leaf of the pilot is not there")
        nodes = [*tree.slots, *([] if self.absorbed is None else [self.absorbed])]
        expect(all(node.last_row < rows.next_row for node in nodes), "a coreset stands for rows that have not come")
        if self.reducer is None:
            expect(not nodes, "there are coresets and no reducer")
            return
        expect(self.reducer.belongs_to(self.plan) and self.reducer.has_pilot, "a reducer is not that of its plan")
        for node in [*nodes, *rows.parts]:
            expect(rows.like is not None and is_like(node, rows.like), "a coreset is unlike the rows of its stream")
            self.reducer.check_rows(node)
        if rows.like is not None:
            self.reducer.construction.check_columns(rows.like.n_features, self.reducer.objective)


def merging(reducer: Reducer, archive: LeafStore | None) -> Merge:
    """The merge function of a reducer; the archive gets every new node."""
    if archive is None:
        return reducer.merge

    def merge(left: Coreset, right: Coreset, key: tuple[int, int]) -> Coreset:
        node = reducer.merge(left, right, key)
        archive.on_node(node)
        return node

    return merge


def push(state: StreamState, rows: tuple[Any, Any, Any, Any], archive: LeafStore | None = None) -> StreamState:
    """The state after more rows: X, y, sample_weight and row ids."""
    _check_labels(state, rows[1])
    buffer, leaves = state.rows.add(*rows, what=f"Push {state.n_pushes}")
    for number, leaf in leaves:
        if archive is not None:
            archive.on_leaf(number, leaf)
        state = state.reduce_leaf(number, leaf, archive)
        state = replace(state, tree=_within_window(state, state.tree, (number + 1) * buffer.leaf_size))
    return replace(state, rows=buffer, n_pushes=state.n_pushes + 1)


def _check_labels(state: StreamState, y: Any) -> None:
    """Refuse unknown labels at once, not only when their leaf is full."""
    objective = (state.reducer or state.plan).objective
    if y is not None and objective.classes is not None:
        labels = np.asarray(y).ravel()
        objective.codes(Block(X=np.empty((len(labels), 0)), y=labels))


def _within_window(state: StreamState, tree: Tree, n_rows: int) -> Tree:
    """The tree without the nodes that hold no row of the window after ``n_rows`` rows."""
    if state.window is None:
        return tree
    first, leaf_size = n_rows - state.window, state.rows.leaf_size
    slots = tuple(slot for slot in tree.slots if (slot.key[1] + 2 ** slot.key[0]) * leaf_size > first)
    return replace(tree, slots=slots)


def collapse(state: StreamState) -> Coreset:
    """A calibrated coreset of all rows of the state."""
    reducer, node = _collapsed(state)
    return reducer.finish(node)


def _collapsed(state: StreamState) -> tuple[Reducer, Coreset]:
    """The reducer, and all nodes and waiting rows as one coreset that is not calibrated."""
    reducer, tree, waiting = state.reducer, state.tree, state.rows.rest()
    if reducer is None:
        if waiting is None:
            raise NoRowsError("There are no rows: nothing was pushed, or nothing is left of it.")
        reducer = state.plan.start(waiting, n_rows=len(waiting))
    if waiting is not None:
        number = state.rows.number
        tree = tree.push(number, reducer.leaf(waiting, (0, number)), reducer.merge, top=state.top_level)
    tree = _within_window(state, tree, state.rows.next_row)
    if state.absorbed is None:
        return reducer, tree.collapse(reducer.merge)
    if not tree.slots:
        return reducer, state.absorbed
    return reducer, reducer.merge(state.absorbed, tree.collapse(reducer.merge), (_LAST_LEVEL, 0))


def absorb(state: StreamState, other: StreamState, archive: LeafStore | None = None) -> StreamState:
    """The state with all rows of another one; their ids continue those of this state."""
    _check_mergeable(state, other)
    if other.rows.next_row == 0:
        return state
    offset = state.rows.next_row
    end = offset + other.rows.next_row
    if state.rows.like is None:
        rows = replace(state.rows, like=other.rows.like, columns=other.rows.columns)
        state = replace(state, rows=rows, schema=other.schema)
    if other.reducer is None:  # no row of it was reduced
        waiting = other.rows.rest()
        if waiting is not None:
            state = push(state, (waiting.X, waiting.y, waiting.sample_weight, waiting.row_ids() + offset), archive)
        return replace(state, rows=replace(state.rows, next_row=end))
    own_reducer = state.reducer or replace(other.reducer, plan=state.plan)
    reducer, node = _collapsed(other)
    other_pilot: Any = node.pilot
    if node.totals is not None and own_reducer.pilot is not None and not np.array_equal(other_pilot, own_reducer.pilot):
        node = reducer.calibrated(node)
        totals = own_reducer.sampled.survey(node, own_reducer.pilot).totals
        node = replace(node, totals=totals, pilot=own_reducer.pilot, provenance={"totals": "partly estimated"})
    node = replace(node, indices=node.row_ids() + offset, last_row=node.last_row + offset)
    absorbed_rows = (*state.absorbed_rows, (offset, end))
    if state.absorbed is not None:
        node = own_reducer.merge(state.absorbed, node, (_ABSORBED_LEVEL, len(absorbed_rows)))
    rows = replace(state.rows, next_row=end)
    return replace(state, rows=rows, reducer=own_reducer, absorbed=node, absorbed_rows=absorbed_rows)


def _check_mergeable(state: StreamState, other: StreamState) -> None:
    if any(s.window is not None or s.plan.half_life is not None for s in (state, other)):
        raise ValueError("Streams with a window or a half_life have a clock of their own and cannot be merged.")
    if state.rows.like is not None and other.rows.like is not None and state.schema != other.schema:
        raise ValueError(
            "The columns of the streams became features in different ways, each by the rows that came first. fork() "
            "gives a stream that encodes like another one."
        )
    for name, (mine, theirs) in state.plan.differences(other.plan).items():
        raise ValueError(f"The streams differ in {name}: {mine!r} here, {theirs!r} there.")
    if state.rows.like is not None and other.rows.like is not None:
        unlike = difference(other.rows.like, state.rows.like)
        if unlike:
            raise ValueError(f"The other stream {unlike}.")
        named = [rows.columns for rows in (state.rows, other.rows) if rows.columns is not None]
        if len(set(named)) > 1:
            raise ValueError(f"The other stream has the columns {', '.join(named[1])}, not {', '.join(named[0])}.")
    if state.reducer is not None and other.reducer is not None:
        mine, theirs = state.reducer.objective.classes, other.reducer.objective.classes
        if mine != theirs:
            raise ValueError(f"The streams have other classes, {mine} and {theirs}: name all in both objectives.")


# -- on disk ---------------------------------------------------------------------------------------


def reduced_rows(state: StreamState, ids: Array) -> Array:
    """The ids of rows that a node may include. Others wait, left the window, or had no weight."""
    leaves = ids // state.rows.leaf_size
    inside = leaves < state.tree.n_leaves
    if state.window is not None:
        inside &= (leaves >= state.oldest_leaf) | (leaves == state.pilot_leaf)  # the pilot depends on its leaf
    for start, stop in state.absorbed_rows:
        inside |= (ids >= start) & (ids < stop)
    return ids[inside]


def check_deletable(state: StreamState, ids: Array, store: LeafStore | None) -> None:
    """Refuse rows that were reduced and cannot be deleted exactly."""
    ids = reduced_rows(state, ids)
    if len(ids) == 0:
        return
    for start, stop in state.absorbed_rows:
        foreign = ids[(ids >= start) & (ids < stop)]
        if len(foreign):
            raise ValueError(
                f"Row {foreign[0]} came with another stream, of which only a coreset is here: it cannot be "
                "forgotten honestly. Forget it there, before the streams are merged."
            )
    if state.absorbed_rows and (ids // state.rows.leaf_size == state.pilot_leaf).any():
        raise ValueError(
            "The pilot came from a leaf with rows that are to be forgotten, and what other streams brought was "
            "reduced with it: it cannot be forgotten honestly. Forget before streams are merged."
        )
    if store is None:
        raise ValueError(
            f"Row {ids[0]} was reduced already and the rows are gone, so it cannot be forgotten honestly: the "
            "pilot and the weights of other rows remember it. Keep the leaves from the start: keep_leaves=FOLDER."
        )


def delete_rows(state: StreamState, ids: Array, store: LeafStore | None) -> tuple[StreamState, int]:
    """The state as if the rows had never been pushed, and how many of them it held."""
    rows = state.rows.without(ids)
    n_deleted = sum(map(len, state.rows.parts)) - sum(map(len, rows.parts))
    state = replace(state, rows=rows)
    if store is None:
        return state, n_deleted
    in_leaves = _delete_in_leaves(state, store, reduced_rows(state, ids))
    if state.pilot_leaf in in_leaves:
        state = _rebuild_all(state, store, pilot=True)
    elif in_leaves:
        state = _rebuilt(state, store, set(in_leaves))
    return replace(state, times_forgotten=store.forgotten()[0]), n_deleted + sum(in_leaves.values())


def catch_up(state: StreamState, store: LeafStore) -> StreamState:
    """The state after deletions that are recorded in the store only, because they were interrupted."""
    times, ids = store.forgotten()
    if times == state.times_forgotten:
        return state
    _delete_in_leaves(state, store, ids)
    in_pilot_leaf = bool((ids // state.rows.leaf_size == state.pilot_leaf).any())
    state = replace(state, rows=state.rows.without(ids), times_forgotten=times)
    return _rebuild_all(state, store, pilot=in_pilot_leaf)


def _delete_in_leaves(state: StreamState, store: LeafStore, ids: Array) -> dict[int, int]:
    """Write leaves again without the rows. Returns the number of rows deleted in each leaf that held any."""
    n_deleted = {}
    for number in np.unique(ids // state.rows.leaf_size).tolist():
        leaf = _kept_leaf(state, store, number)
        deleted = np.zeros(0, bool) if leaf is None else np.isin(leaf.row_ids(), ids)
        if leaf is not None and deleted.any():
            store.on_leaf(number, leaf.take(np.flatnonzero(~deleted)))
            n_deleted[number] = int(deleted.sum())
    return n_deleted


def _kept_leaf(state: StreamState, store: LeafStore, number: int) -> Block | None:
    """The rows of a leaf in the store; None if none are left. Rows of another stream are refused."""
    leaf = store.leaf(number)
    if leaf is not None:
        ours = state.rows.like is not None and is_like(leaf, state.rows.like) and leaf.indices is not None
        in_leaf = (leaf.row_ids() // state.rows.leaf_size == number).all()
        expect(ours and in_leaf, f"Leaf {number} does not hold rows of this stream.")
    return leaf


def _rebuilt(state: StreamState, store: LeafStore, changed: set[int]) -> StreamState:
    """The state with every node reduced again that has one of the changed leaves, or is not in the store."""
    nodes = [_rebuilt_node(state, store, slot.key, changed) for slot in state.tree.slots]
    return replace(state, tree=replace(state.tree, slots=tuple(node for node in nodes if node is not None)))


def _rebuilt_node(state: StreamState, store: LeafStore, key: tuple[int, int], changed: set[int]) -> Coreset | None:
    """A node, reduced again from the nodes below it if one of its leaves changed; None if no rows are left."""
    assert state.reducer is not None
    level, first = key
    changed = {number for number in changed if first <= number < first + 2**level}
    if not changed and (stored := store.node(key)) is not None:
        expect(state.rows.like is not None and is_like(stored, state.rows.like), "A node is not of this stream.")
        state.reducer.check_rows(stored)
        return stored
    store.drop_node(key)
    if level == 0:
        block = _kept_leaf(state, store, first)
        node = None if block is None else state.reducer.leaf(block, key)
        if node is not None:
            store.on_node(node)
        return node
    left = _rebuilt_node(state, store, (level - 1, first), changed)
    right = _rebuilt_node(state, store, (level - 1, first + 2 ** (level - 1)), changed)
    if left is not None and right is not None:
        merged: Coreset = merging(state.reducer, store)(left, right, key)
        return merged
    remaining = left if right is None else right
    return None if remaining is None else replace(remaining, key=key)


def _rebuild_all(state: StreamState, store: LeafStore, *, pilot: bool) -> StreamState:
    """The state with all nodes reduced again from the leaves in the store; with ``pilot``, at a new pilot."""
    store.drop_nodes()
    if pilot:
        number = next((number for number in store.leaves() if number < state.tree.n_leaves), None)
        block = None if number is None else _kept_leaf(state, store, number)
        reducer = None if block is None else state.plan.start(block)
        state = replace(state, reducer=reducer, pilot_leaf=number)
    if state.reducer is None:
        return replace(state, tree=Tree(n_leaves=state.tree.n_leaves))
    return _rebuilt(state, store, set())


class Folders:
    """The folders for leaves and checkpoints of a stream, and the id by which it knows its own files.

    A copy of a stream, by pickle or from a model file, has no folders and another id.
    """

    def __init__(self) -> None:
        self.store: LeafStore | None = None
        self.checkpoint: str | None = None
        self.stream_id = uuid4().hex

    def __reduce__(self) -> tuple[type[Folders], tuple[()]]:
        return Folders, ()


class CoresetStream(StoredState):
    """A coreset of all rows pushed so far, at any time.

    Rows are kept until a leaf of ``leaf_size`` is full. It is reduced to half its rows, or to ``coreset_size`` if that
    is more, and coresets of equal level are merged and reduced again, like carries of a binary counter. Memory is one
    leaf and log2(n / leaf_size) times half a leaf. The error of a fixed query grows by at most the square root of two
    if costs are balanced, and at worst linearly in the number of levels. Calibration to the exact totals of all rows
    pushed then removes most of it. `coreset` reduces the result to ``coreset_size``, at a pilot of all rows: those of
    a class or a cluster that comes late are scored as well as those of the first leaf. The result has the same bits
    for any division of the rows into pushes.

    Parameters
    ----------
    objective, construction, calibrate : see `build_coreset`
        The pilot of the totals comes from the first leaf and stays, so that they add up.
    coreset_size : int
    leaf_size : int, optional
        Rows of a leaf; by default 65,536 or four times ``coreset_size``, whichever is larger. There is a warning for
        linear models and less than 16,384 rows.
    window : int, optional
        Drop rows that are older than this number of rows. They are dropped in parts of at most an eighth of the
        window: the coreset represents at least the last ``window`` rows and at most one part (or leaf) more.
    half_life : float, optional
        A row that came h rows ago weighs 2^(-h / half_life) times as much as the last one.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and text, dates or lists in the first frame
        are encoded (`open_dataset`). True: every column is, with numbers standardized and gaps filled. False: none is.
        The first frame decides for all, so let it hold many rows; a warning names what later ones have beyond it.
    keep_leaves : path, optional
        A new folder in which every full leaf is kept, so that `forget` can reduce it again. It takes the disk space
        of all rows.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    n_rows : int
        Rows pushed so far; the id that the next one gets.
    state : StreamState
        The state as an immutable value: a push replaces it.
    notes : dict
        Notes for checkpoints, such as where the rows came from; anything that JSON can hold.

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

    encode: bool | str = "auto"  # it matters until the first rows have come, and is not stored
    state: Annotated[StreamState, Instance(StreamState)]
    notes: Annotated[dict[str, Any], Instance(dict)]

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
        encode: bool | str = "auto",
        keep_leaves: str | os.PathLike[str] | None = None,
        random_state: Any = None,
    ) -> None:
        size = resolve_size(coreset_size, None)
        check_value("leaf_size", leaf_size, WholeNumber(least=1) | OneOf(None))
        check_value("window", window, WholeNumber(least=1) | OneOf(None))
        check_value("half_life", half_life, RealNumber(above=0.0) | OneOf(None))
        if leaf_size is None:  # parts of a window that are dropped are whole leaves
            usual = leaf_rows_for(size)
            leaf_size = usual if window is None else min(usual, max(1, window // _WINDOW_PARTS))
        if window is not None and window < leaf_size:
            raise ValueError(f"A window of {window} rows is less than one leaf of {leaf_size}: leave leaf_size out.")
        plan = Plan.of(
            objective,
            construction,
            size,
            calibrate=calibrate,
            seed=as_seed(random_state),
            half_life=None if half_life is None else float(half_life),
            node_size=node_rows_for(size, leaf_size),
        )
        if leaf_size < _MIN_LEAF_ROWS and isinstance(plan.objective, InfluenceObjective):
            warn_caller(
                f"Leaves of {leaf_size:,} rows lose much for linear models: rows of a class or a trend that comes late "
                f"are scored without knowing it. Leave leaf_size out, or ask for {_MIN_LEAF_ROWS:,} or more; a window "
                f"needs {_WINDOW_PARTS * _MIN_LEAF_ROWS:,} rows for that."
            )
        check_encode(encode)
        self.encode = encode
        self.state = StreamState(plan=plan, rows=LeafBuffer(leaf_size=leaf_size), window=window)
        self.notes: dict[str, Any] = {}
        self._folders = Folders()
        if keep_leaves is not None:
            self._folders.store = LeafStore(keep_leaves, new=True, stream=self._folders.stream_id)

    def __repr__(self) -> str:
        return f"CoresetStream({self.plan.objective!r}, {self.n_rows} rows pushed, coreset_size={self.plan.size})"

    def _repr_html_(self) -> str:
        window, half_life = self.state.window, self.plan.half_life
        facts = {
            "objective": f"{self.plan.objective!r}",
            "rows pushed": f"{self.n_rows:,}",
            "coreset_size": f"{self.plan.size:,}",
            "chosen by": self.plan.construction.name,
            "calibrated": "yes" if self.plan.calibrate else "no",
            "window": "all rows" if window is None else f"the last {window:,} rows",
            "half-life": "weights do not decay" if half_life is None else f"{half_life:g} rows",
        }
        return html_facts("CoresetStream", facts)

    @property
    def n_rows(self) -> int:
        """Rows pushed so far; the id that the next one gets."""
        return self.state.rows.next_row

    @property
    def leaf_size(self) -> int:
        return self.state.rows.leaf_size

    @property
    def plan(self) -> Plan:
        return self.state.plan

    @property
    def window(self) -> int | None:
        return self.state.window

    @single_blas_thread()
    def push(self, X: Any, y: Any = None, sample_weight: Any = None, row_ids: Any = None) -> Self:
        """Add rows: an array, CSR matrix or frame, with y and weights if there are any.

        ``row_ids`` are whole numbers that ascend over all pushes; by default rows are counted. A row
        belongs to leaf ``row_id // leaf_size``, so a stream that forgot some rows equals one that never had them
        (except if the whole leaf of the pilot is forgotten after it left the window). If rows are refused, or
        something fails, none of them is taken.
        """
        state = self.state
        if is_frame(X) and state.schema is not None:
            X = later_rows(state.schema, X)
        elif state.schema is not None:
            refuse_other_width(state.schema, as_matrix(X).shape[1])
        elif state.rows.like is None:
            X, schema = encoded_rows(X, self.encode, y)
            state = replace(state, schema=schema)
        self.state = push(state, (X, y, sample_weight, row_ids), self._folders.store)
        if self._folders.checkpoint is None:
            self._remove_expired_leaves()
        return self

    @single_blas_thread()
    def coreset(self) -> Coreset:
        """A calibrated coreset of all rows pushed so far, less those that were dropped. The stream does not change."""
        return replace(collapse(self.state), schema=self.state.schema)

    def fork(self, random_state: Any = None) -> CoresetStream:
        """An empty stream with the pilot of this one, to be fed elsewhere and merged: its totals add up exactly."""
        other = CoresetStream(
            self.plan.objective,
            self.plan.construction,
            coreset_size=self.plan.size,
            leaf_size=self.leaf_size,
            calibrate=self.plan.calibrate,
            encode=self.encode,
            random_state=random_state,
        )
        plan, reducer = replace(self.plan, seed=other.plan.seed), self.state.reducer
        reducer = None if reducer is None else replace(reducer, plan=plan)
        other.state = replace(other.state, plan=plan, reducer=reducer, schema=self.state.schema)
        return other

    @single_blas_thread()
    def merge(self, other: CoresetStream) -> Self:
        """Add all rows of another stream; their ids continue those of this stream.

        The other stream does not change. If it has the same pilot (see `fork`), or this stream has none yet, totals
        stay exact. Otherwise those of the other stream are estimated from its calibrated coreset.
        """
        if not isinstance(other, CoresetStream) or other is self:
            raise ValueError("Another CoresetStream is needed.")
        self.state = absorb(self.state, other.state, self._folders.store)
        return self

    @single_blas_thread()
    def forget(self, row_ids: Any) -> int:
        """Delete rows by id, as if they had never been pushed, and return how many there were.

        Rows of a leaf that is not full are removed. With ``keep_leaves``, full leaves are written again without the
        rows, and every reduction that used them is repeated; if a row was in the leaf of the pilot, all reductions
        are. Without ``keep_leaves``, rows of full leaves are refused and nothing changes: removing a row from a
        coreset would be biased and no real deletion, since the pilot and the weights of other rows depend on it. The
        checkpoint of this stream is written again, too. Coresets that were returned or saved before, and checkpoints
        in other folders, do not change.
        """
        ids = np.unique(np.asarray(row_ids))
        if len(ids) == 0:
            return 0
        if ids.dtype.kind not in "iu" or ids[0] < 0 or ids[-1] >= self.n_rows:
            raise ValueError(f"row_ids must be whole numbers from 0 to {self.n_rows - 1}, the rows pushed so far.")
        store = self._folders.store
        check_deletable(self.state, ids, store)
        self._remove_leftovers()
        if store is not None:
            self.state = catch_up(self.state, store)
            store.mark_forgotten(ids.tolist())
        self.state, n_deleted = delete_rows(self.state, ids, store)
        if self._folders.checkpoint is not None:
            self.checkpoint(self._folders.checkpoint)
        return n_deleted

    # -- on disk ---------------------------------------------------------------------------------

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write the complete state into the folder ``path``, from which `resume` continues.

        The earlier state stays until the new one is complete; that of another stream is not replaced. A resumed
        stream has the same bits, also on another machine with a CPU of the same kind.
        """
        folders, folder = self._folders, os.path.abspath(path)
        if folder != folders.checkpoint:
            earlier = load_state(path, missing_ok=True)
            if earlier is not None and earlier.about.get("id") != folders.stream_id:
                raise ValueError(
                    f"{os.fspath(path)!r} holds the state of another run: go on with that one, give another folder, or "
                    "remove it."
                )
        leaves = None if folders.store is None else os.path.abspath(folders.store.path)
        about = {"kind": "stream", "id": folders.stream_id, "notes": self.notes, "leaves": leaves}
        save_state(path, self.state, about)
        folders.checkpoint = folder
        self._remove_expired_leaves()

    @classmethod
    def resume(cls, path: str | os.PathLike[str], *, keep_leaves: str | os.PathLike[str] | None = None) -> Self:
        """The stream as it was when `checkpoint` wrote it; ``keep_leaves`` if that folder has moved."""
        files = load_state(path)
        assert files is not None
        if files.about.get("kind") != "stream":
            raise FileFormatError(f"{os.fspath(path)!r} is the checkpoint of a build, not of a stream.")
        self = cls.__new__(cls)
        self._folders = folders = Folders()
        try:
            expect(isinstance(files.state, StreamState), "there is no state of a stream")
            self.state, self.notes = files.state, dict(files.about["notes"])
            folders.stream_id, leaves = str(files.about["id"]), files.about["leaves"]
            expect(leaves is None or isinstance(leaves, str), "the folder of its leaves has no name")
        except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
            raise FileFormatError(f"The checkpoint in {os.fspath(path)!r} is damaged: {error}") from error
        folders.checkpoint = os.path.abspath(path)
        if keep_leaves or leaves:
            folders.store = LeafStore(keep_leaves or leaves, new=False, stream=folders.stream_id)
        self._remove_leftovers()
        if folders.store is not None:
            before, self.state = self.state, catch_up(self.state, folders.store)
            if self.state is not before:
                self.checkpoint(path)
        return self

    def _remove_leftovers(self) -> None:
        """Remove files with rows that do not belong to this state, from failed pushes and killed processes."""
        if self._folders.store is not None:
            self._folders.store.clean()
            self._folders.store.keep_only(0, self.state.tree.n_leaves)
        if self._folders.checkpoint is not None:
            clean_state(self._folders.checkpoint)

    def _remove_expired_leaves(self) -> None:
        """Remove leaves that have left the window. Leaves that a checkpoint needs stay until the next one."""
        if self.window is not None and self._folders.store is not None and self.state.tree.slots:
            self._folders.store.keep_only(self.state.oldest_leaf, also=self.state.pilot_leaf)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        stream = super().from_record(record)
        stream._folders = Folders()
        return stream
