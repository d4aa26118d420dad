"""Deleting rows from a stream, honestly or not at all."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from tithe.core.data import Array, Block, Coreset
from tithe.core.parallel import single_blas_thread
from tithe.core.state_checks import expect
from tithe.core.tree import Tree
from tithe.reduce.plan import Plan, Reducer
from tithe.sources.batches import Regrouper, is_like
from tithe.storage.checkpoint import clean_state
from tithe.storage.leaf_store import LeafStore


class Forgets(ABC):
    """The part of a stream that keeps leaves and makes nodes anew without some of their rows."""

    plan: Plan
    window: int | None
    _rows: Regrouper
    _tree: Tree
    _reducer: Reducer | None
    _pilot_leaf: int | None  # the leaf that the pilot was taken from
    _absorbed_rows: list[tuple[int, int]]  # ids of rows that came with other streams: from, to
    _store: LeafStore | None
    _checkpoint: str | None  # where the last one was written

    @property
    def n_rows(self) -> int:
        """Rows pushed so far; the id that the next one gets."""
        return self._rows.next_row

    @property
    def leaf_size(self) -> int:
        return self._rows.leaf_size

    @abstractmethod
    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to go on."""

    @abstractmethod
    def _top(self) -> int | None:
        """The level up to which nodes merge."""

    @single_blas_thread()
    def forget(self, row_ids: Any) -> int:
        """Delete rows by id, as if they had never come, and say how many there were.

        Rows of the leaf that is not full yet are taken out. With ``keep_leaves``, full leaves are written
        anew without the rows, and exactly the reductions above them are made again; if one of them was in
        the leaf that the pilot came from, all of them are. Otherwise it is refused, and nothing
        is changed: taking a row out of a coreset would be biased and no deletion, since the pilot and
        the other rows' weights remember it. A checkpoint of this stream is written anew as well.
        Coresets handed out or saved before still hold what they held, and so do checkpoints in other folders.
        """
        ids = np.unique(np.asarray(row_ids))
        if len(ids) == 0:
            return 0
        if ids.dtype.kind not in "iu" or ids[0] < 0 or ids[-1] >= self.n_rows:
            raise ValueError(f"row_ids must be whole numbers from 0 to {self.n_rows - 1}, the rows pushed so far.")
        waiting = self._rows.rest()
        here = np.isin(ids, waiting.row_ids()) if waiting is not None else np.zeros(len(ids), bool)
        reduced = self._still_seen(ids[~here])
        if len(reduced):
            self._check_honest(reduced)
        self._remove_copies()
        if self._store is not None:
            self._store.mark_forgotten(ids.tolist())
        n_forgotten = int(here.sum())
        if n_forgotten:
            self._drop_waiting(ids)
        if len(reduced):
            n_forgotten += self._forget_in_leaves(reduced)
        if self._checkpoint is not None:
            self.checkpoint(self._checkpoint)
        return n_forgotten

    def _remove_copies(self) -> None:
        """Remove files that hold rows and are of no use any more: half written, or left over, by killed processes."""
        if self._store is not None:
            self._store.clean()
        if self._checkpoint is not None:
            clean_state(self._checkpoint)

    def _still_seen(self, ids: Array) -> Array:
        """Those that a node may stand for: others left the window, or weighed nothing and were never kept."""
        leaves = ids // self.leaf_size
        inside = leaves < self._tree.n_leaves
        if self.window is not None:
            inside &= (leaves >= self._oldest_leaf()) | (leaves == self._pilot_leaf)  # the pilot remembers
        for start, stop in self._absorbed_rows:
            inside |= (ids >= start) & (ids < stop)
        return ids[inside]

    def _check_honest(self, ids: Array) -> None:
        for start, stop in self._absorbed_rows:
            strange = ids[(ids >= start) & (ids < stop)]
            if len(strange):
                raise ValueError(
                    f"Row {strange[0]} came with another stream, of which only a coreset is here: it cannot be "
                    "forgotten honestly. Forget it there, before the streams are merged."
                )
        if self._absorbed_rows and (ids // self.leaf_size == self._pilot_leaf).any():
            raise ValueError(
                "The pilot came from a leaf with rows that are to be forgotten, and what other streams brought was "
                "reduced with it: it cannot be forgotten honestly. Forget before streams are merged."
            )
        if self._store is None:
            raise ValueError(
                f"Row {ids[0]} was reduced already and the rows are gone, so it cannot be forgotten honestly: the "
                "pilot and the weights of other rows remember it. Keep the leaves from the start: keep_leaves=FOLDER."
            )

    def _kept(self, number: int) -> Block | None:
        """The rows of a leaf as they are kept; None if none are left. Rows of another stream are refused."""
        assert self._store is not None and self._rows.like is not None
        leaf = self._store.leaf(number)
        if leaf is not None:
            fits = is_like(leaf, self._rows.like) and (leaf.row_ids() // self.leaf_size == number).all()
            expect(fits and leaf.indices is not None, f"Leaf {number} does not hold rows of this stream.")
        return leaf

    def _drop_waiting(self, ids: Array) -> None:
        parts = (part.take(np.flatnonzero(~np.isin(part.row_ids(), ids))) for part in self._rows.parts)
        self._rows.parts = [part for part in parts if len(part)]

    def _forget_in_leaves(self, ids: Array) -> int:
        assert self._store is not None
        n_forgotten, touched = 0, set()
        for number in np.unique(ids // self.leaf_size).tolist():
            leaf = self._kept(number)
            gone = np.isin(leaf.row_ids(), ids) if leaf is not None else np.zeros(0, bool)
            if leaf is None or not gone.any():
                continue
            self._store.put_leaf(number, leaf.take(np.flatnonzero(~gone)))
            n_forgotten += int(gone.sum())
            touched.add(number)
        if self._pilot_leaf in touched:
            self._rebuild(pilot=True)
        elif touched:
            nodes = [self._node(slot.key, touched) for slot in self._tree.slots]
            self._tree.slots = [node for node in nodes if node is not None]
        return n_forgotten

    def _node(self, key: tuple[int, int], touched: set[int]) -> Coreset | None:
        """A node made again from what is below it, as far down as leaves were touched."""
        assert self._store is not None and self._reducer is not None
        level, first = key
        below = {number for number in touched if first <= number < first + 2**level}
        if not below and (known := self._store.node(key)) is not None:
            expect(self._rows.like is not None and is_like(known, self._rows.like), "A node is not of this stream.")
            self._reducer.check_rows(known)
            return known
        self._store.drop_node(key)
        if level == 0:
            block = self._kept(first)
            return None if block is None else self._reduced(first, block)
        children = [self._node((level - 1, first + half), below) for half in (0, 2 ** (level - 1))]
        left, right = children
        if left is not None and right is not None:
            return self._merge(left, right, key)
        only = left if right is None else right
        return None if only is None else replace(only, key=key)

    def _rebuild(self, *, pilot: bool) -> None:
        """Everything anew from the leaves that are kept, maybe the pilot too."""
        assert self._store is not None
        n_leaves, oldest = self._tree.n_leaves, self._oldest_leaf()
        if pilot:
            self._reducer = self._pilot_leaf = None
        self._store.drop_nodes()
        self._tree = self._new_tree()
        for number in self._store.leaves():
            if number >= n_leaves:
                break
            block = self._kept(number)
            assert block is not None
            if self._reducer is None:
                self._reducer, self._pilot_leaf = self.plan.start(block), number
            if number < oldest:
                continue  # kept for the pilot alone
            self._tree.push(number, self._reduced(number, block))
        if self._tree.n_leaves < n_leaves:
            self._tree.push(n_leaves - 1, None)

    def _catch_up(self, times_forgotten: int) -> None:
        """Forget what was forgotten after the checkpoint was written, or was being forgotten when all ended."""
        self._remove_copies()
        if self._store is None:
            return
        self._store.drop_from(self._tree.n_leaves)  # of a time that is not this stream's any more
        times, ids = self._store.forgotten()
        if times == times_forgotten:
            return
        self._drop_waiting(ids)
        for number in np.unique(ids // self.leaf_size).tolist():
            leaf = self._kept(number)
            if leaf is not None:
                self._store.put_leaf(number, leaf.take(np.flatnonzero(~np.isin(leaf.row_ids(), ids))))
        self._rebuild(pilot=bool((ids // self.leaf_size == self._pilot_leaf).any()))
        assert self._checkpoint is not None
        self.checkpoint(self._checkpoint)

    # -- nodes, and leaves that are kept -----------------------------------------------------------

    def _new_tree(self) -> Tree:
        return Tree(self._merge, top=self._top())

    def _reduced(self, number: int, block: Block) -> Coreset | None:
        """A leaf as a node of the tree, kept if leaves are."""
        assert self._reducer is not None
        leaf = self._reducer.leaf(block, (0, number))
        if self._store is not None and leaf is not None:
            self._store.put_node(leaf)
        return leaf

    def _merge(self, left: Coreset, right: Coreset, key: tuple[int, int]) -> Coreset:
        assert self._reducer is not None
        node = self._reducer.merge(left, right, key)
        if self._store is not None:
            self._store.put_node(node)
        return node

    def _expire(self) -> None:
        """Remove leaves that have left the window; those that a checkpoint speaks of stay until the next one."""
        if self.window is not None and self._store is not None and self._tree.slots:
            self._store.drop_before(self._oldest_leaf(), but=self._pilot_leaf)

    def _oldest_leaf(self) -> int:
        """The first leaf that a node stands for."""
        return self._tree.slots[0].key[1] if self._tree.slots else self._tree.n_leaves
