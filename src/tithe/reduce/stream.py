"""A coreset of rows that keep coming."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Self
from uuid import uuid4

import numpy as np

from tithe.core.contracts import Construction, Objective
from tithe.core.data import Coreset
from tithe.core.display import html_facts
from tithe.core.errors import FileFormatError
from tithe.core.parallel import single_blas_thread
from tithe.core.params import OneOf, RealNumber, WholeNumber, check_value, resolve_size
from tithe.core.seeding import as_seed
from tithe.core.state_checks import Instance, Storable, check_fields, expect
from tithe.reduce.deletion import catch_up, check_deletable, delete_rows
from tithe.reduce.plan import Plan, leaf_rows_for, node_rows_for
from tithe.reduce.stream_state import StreamState, absorb, collapse, push, restored, saved
from tithe.sources.batches import LeafBuffer
from tithe.storage.checkpoint import State, clean_state, load_state, save_state
from tithe.storage.leaf_store import LeafStore


class Folders(Storable):
    """The folders for leaves and checkpoints of a stream, and the id by which it knows its own files.

    A copy of a stream, by pickle or from a model file, has no folders and another id.
    """

    def __init__(self) -> None:
        self.store: LeafStore | None = None
        self.checkpoint: str | None = None
        self.stream_id = uuid4().hex

    def __reduce__(self) -> tuple[type[Folders], tuple[()]]:
        return Folders, ()

    def _check_state(self) -> None:
        expect(self.store is None and self.checkpoint is None, "a file says where a stream writes")


class CoresetStream(Storable):
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
        Rows of a leaf; by default 65,536 or four times ``coreset_size``, whichever is larger.
    window : int, optional
        Drop rows that are older than this number of rows. They are dropped in parts of at most an eighth of the
        window: the coreset represents at least the last ``window`` rows and at most one part (or leaf) more.
    half_life : float, optional
        A row that came h rows ago weighs 2^(-h / half_life) times as much as the last one.
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
        check_value("leaf_size", leaf_size, WholeNumber(least=1) | OneOf(None))
        check_value("window", window, WholeNumber(least=1) | OneOf(None))
        check_value("half_life", half_life, RealNumber(above=0.0) | OneOf(None))
        leaf_size = leaf_rows_for(size) if leaf_size is None else int(leaf_size)
        if window is not None and window < leaf_size:
            raise ValueError(f"A window of {window} rows is less than one leaf: choose leaf_size below {leaf_size}.")
        plan = Plan.of(
            objective,
            construction,
            size,
            calibrate=calibrate,
            seed=as_seed(random_state),
            half_life=None if half_life is None else float(half_life),
            node_size=node_rows_for(size, leaf_size),
        )
        self.state = StreamState(plan=plan, rows=LeafBuffer(leaf_size=leaf_size), window=window)
        self.notes: dict[str, Any] = {}
        self._folders = Folders()
        if keep_leaves is not None:
            self._folders.store = LeafStore(keep_leaves, new=True)

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
        self.state = push(self.state, (X, y, sample_weight, row_ids), self._folders.store)
        if self._folders.checkpoint is None:
            self._remove_expired_leaves()
        return self

    @single_blas_thread()
    def coreset(self) -> Coreset:
        """A calibrated coreset of all rows pushed so far, less those that were dropped. The stream does not change."""
        return collapse(self.state)

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
        plan, reducer = replace(self.plan, seed=other.plan.seed), self.state.reducer
        reducer = None if reducer is None else replace(reducer, plan=plan)
        other.state = replace(other.state, plan=plan, reducer=reducer)
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
        objects, rows = saved(self.state)
        save_state(path, State(objects=objects, rows=rows, about=about))
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
            self.state, self.notes = restored(files.objects, files.rows), dict(files.about["notes"])
            folders.stream_id, leaves = str(files.about["id"]), files.about["leaves"]
            expect(leaves is None or isinstance(leaves, str), "the folder of its leaves has no name")
        except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
            raise FileFormatError(f"The checkpoint in {os.fspath(path)!r} is damaged: {error}") from error
        folders.checkpoint = os.path.abspath(path)
        if keep_leaves or leaves:
            folders.store = LeafStore(keep_leaves or leaves, new=False)
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

    def _check_state(self) -> None:
        check_fields(self, {"state": Instance(StreamState), "notes": Instance(dict), "_folders": Instance(Folders)})
