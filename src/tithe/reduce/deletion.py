"""Exact deletion of rows from the state of a stream.

Rows of a leaf that is not full are removed from it. Full leaves are kept by a `LeafStore`: they are written again
without the rows, and the reductions that used a deleted row are repeated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tithe.core.data import Array, Block, Coreset
from tithe.core.state_checks import expect
from tithe.core.tree import Tree
from tithe.reduce.stream_state import StreamState, merging
from tithe.sources.batches import is_like
from tithe.storage.leaf_store import LeafStore


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
        nodes = [_rebuilt_node(state, store, slot.key, set(in_leaves)) for slot in state.tree.slots]
        tree = replace(state.tree, slots=tuple(node for node in nodes if node is not None))
        state = replace(state, tree=tree)
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
    n_leaves, oldest = state.tree.n_leaves, state.oldest_leaf
    state = replace(state, tree=Tree())
    if pilot:
        state = replace(state, reducer=None, pilot_leaf=None)
    store.drop_nodes()
    for number in store.leaves():
        if number >= n_leaves:
            break
        block = _kept_leaf(state, store, number)
        assert block is not None
        if number >= oldest:
            state = state.reduce_leaf(number, block, store)
        elif state.reducer is None:  # this leaf is kept for the pilot alone
            state = replace(state, reducer=state.plan.start(block), pilot_leaf=number)
    if state.reducer is None:
        return replace(state, tree=Tree(n_leaves=n_leaves))
    if state.tree.n_leaves == n_leaves:
        return state
    merge = merging(state.reducer, store)
    return replace(state, tree=state.tree.push(n_leaves - 1, None, merge, top=state.top_level))
