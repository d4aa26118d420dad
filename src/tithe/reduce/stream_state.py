"""The state of a stream as an immutable value, and the functions that change it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tithe.core.data import Block, Coreset
from tithe.core.errors import NoRowsError
from tithe.core.loaded import check_loaded
from tithe.core.state_checks import LARGEST, Integer, Optional, Storable, check_fields, expect
from tithe.core.tree import Merge, Tree
from tithe.reduce.plan import Plan, Reducer
from tithe.sources.batches import LeafBuffer, difference, is_like
from tithe.storage.checkpoint import restored_tree, saved_tree
from tithe.storage.leaf_store import LeafStore

_WINDOW_PARTS = 8  # parts of a window that are dropped one at a time
_ABSORBED_LEVEL, _LAST_LEVEL = 62, 63  # above all levels of a tree: they seed the draws when streams are merged


@dataclass(frozen=True, kw_only=True)
class StreamState(Storable):
    """The state of a stream. A push returns a new state; the old one does not change.

    Parameters
    ----------
    plan : Plan
    rows : LeafBuffer
        The rows of the leaf that is not full yet.
    window : int or None
        The least number of rows that the coreset represents; None: all rows.
    tree : Tree
        The coresets of all full leaves.
    reducer : Reducer or None
        Set when the first leaf is full.
    pilot_leaf : int or None
        The leaf that the pilot was taken from.
    absorbed : Coreset or None
        The rows that came from other streams.
    absorbed_rows : tuple of (int, int)
        For each of these streams, the range of its row ids; the end is not included.
    n_pushes, times_forgotten : int
        The number of pushes, and of deletions that this state includes.
    """

    plan: Plan
    rows: LeafBuffer
    window: int | None = None
    tree: Tree = field(default_factory=Tree)
    reducer: Reducer | None = None
    pilot_leaf: int | None = None
    absorbed: Coreset | None = None
    absorbed_rows: tuple[tuple[int, int], ...] = ()
    n_pushes: int = 0
    times_forgotten: int = 0

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

    def _check_state(self) -> None:
        check_fields(self, {"window": Optional(Integer(least=1))})
        tree, rows, leaf_size = self.tree, self.rows, self.rows.leaf_size
        expect(tree.n_leaves <= LARGEST // leaf_size, "a tree has too many leaves")
        expect(self.window is None or self.window >= leaf_size, "a window is less than one leaf")
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
        state = replace(state, rows=replace(state.rows, like=other.rows.like, columns=other.rows.columns))
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


def saved(state: StreamState) -> tuple[dict[str, Any], dict[str, Block]]:
    """The state as objects and rows of a checkpoint."""
    blocks = {"buffer": state.rows.rest(), "like": state.rows.like, "absorbed": state.absorbed}
    rows = {**saved_tree(state.tree), **{name: block for name, block in blocks.items() if block is not None}}
    buffer = replace(state.rows, parts=(), like=None)
    without_rows = replace(state, rows=buffer, tree=Tree(n_leaves=state.tree.n_leaves), absorbed=None)
    return {"state": without_rows}, rows


def restored(objects: Mapping[str, Any], rows: Mapping[str, Any]) -> StreamState:
    """The state from what `saved` returned, checked."""
    state = objects["state"]
    expect(isinstance(state, StreamState), "there is no state of a stream")
    buffer = replace(state.rows, parts=(rows["buffer"],) if "buffer" in rows else (), like=rows.get("like"))
    tree = restored_tree(rows, state.tree.n_leaves)
    return check_loaded(replace(state, rows=buffer, tree=tree, absorbed=rows.get("absorbed")))  # type: ignore[no-any-return]
