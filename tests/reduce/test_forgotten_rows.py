"""After `forget` no file of a stream holds the row any more, whatever processes were killed before."""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from pathlib import Path

import numpy as np
import pytest
from row_search import files_with

from tithe import CoresetStream
from tithe.core.data import Block
from tithe.core.files import remove_leftovers, replacing
from tithe.objectives import KMeansObjective
from tithe.storage.coresets import save_coreset
from tithe.storage.leaf_store import LeafStore

X = np.random.default_rng(4).normal(size=(700, 4))
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are killed at an exact place by fork")


def make(folder: Path, **options: object) -> CoresetStream:
    objective = KMeansObjective(n_clusters=2)
    return CoresetStream(
        objective, coreset_size=40, leaf_size=100, keep_leaves=folder / "leaves", random_state=0, **options
    )


def killed_in(name: str, work) -> None:
    """Do the work in another process, which is killed at the first call of ``os.NAME``."""
    child = os.fork()
    if child == 0:
        setattr(os, name, lambda *args, **options: os.kill(os.getpid(), signal.SIGKILL))
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def checkpointed(folder: Path, n_rows: int) -> CoresetStream:
    stream = make(folder).push(X[:n_rows])
    stream.checkpoint(folder / "state")
    return stream


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("row", [30, 350, 690])
def test_forgotten_rows_are_in_no_file(tmp_path, row: int, dtype) -> None:
    stream = make(tmp_path).push(X.astype(dtype)[:650])
    stream.checkpoint(tmp_path / "state")
    stream.push(X.astype(dtype)[650:])
    stream.checkpoint(tmp_path / "state")
    assert files_with(tmp_path, X.astype(dtype)[row])  # the search finds what is there
    assert stream.forget([row]) == 1
    assert files_with(tmp_path, X.astype(dtype)[row]) == []


def test_a_leaf_that_was_being_written_is_removed_on_resume_and_before_forget(tmp_path) -> None:
    stream = checkpointed(tmp_path, 350)
    killed_in("replace", lambda: stream.push(X[350:450]))
    assert [name for name in files_with(tmp_path, X[320]) if name.endswith(".tmp")]
    resumed = CoresetStream.resume(tmp_path / "state")
    assert not list((tmp_path / "leaves").glob(".*.tmp"))
    # and where another process was killed after that, on a stream that goes on here
    litter = tmp_path / "leaves" / ".leaf-0000000003.npz.abcdefgh.tmp"
    litter.write_bytes(X[320].tobytes())
    assert resumed.forget([320]) == 1
    assert files_with(tmp_path, X[320]) == []


def test_half_written_checkpoints_are_removed_on_resume(tmp_path) -> None:
    stream = checkpointed(tmp_path, 350)
    stream.push(X[350:370])
    killed_in("replace", lambda: stream.checkpoint(tmp_path / "state"))  # before it counts
    assert len(files_with(tmp_path / "state", X[320])) > 1
    resumed = CoresetStream.resume(tmp_path / "state")
    assert [part.name for part in (tmp_path / "state").iterdir()] == ["state.tithe"]
    resumed.forget([320])
    assert files_with(tmp_path, X[320]) == []


def test_copies_of_a_checkpoint_that_came_after_resume_are_removed_before_forget(tmp_path) -> None:
    resumed = checkpointed(tmp_path, 350)
    state = tmp_path / "state"
    shutil.copy(state / "state.tithe", state / ".state.tithe.abcdefgh.tmp")
    resumed.forget([320])
    assert files_with(tmp_path, X[320]) == []


@pytest.mark.parametrize("call", ["replace", "unlink"])
def test_killed_while_forgetting_no_file_holds_the_row_after_resume(tmp_path, call: str) -> None:
    stream = checkpointed(tmp_path, 650)
    killed_in(call, lambda: stream.forget([350]))
    resumed = CoresetStream.resume(tmp_path / "state")
    times, _ = resumed._folders.store.forgotten()
    if not times:  # it was not even written down: it is still to be done
        assert resumed.forget([350]) == 1
    assert files_with(tmp_path, X[350]) == []


def test_a_file_that_is_being_written_is_no_leftover(tmp_path) -> None:
    coreset = make(tmp_path).push(X[:250]).coreset()
    target = tmp_path / "coreset.parquet"
    killed_in("replace", lambda: save_coreset(coreset, target))
    assert len(list(tmp_path.glob(".*.tmp"))) == 1
    with replacing(target) as temporary:
        assert list(tmp_path.glob(".*.tmp")) == [temporary]
        temporary.write_text("new")
        remove_leftovers(target)
        assert temporary.exists()
    assert target.read_text() == "new" and not list(tmp_path.glob(".*.tmp"))


def test_who_lost_the_folder_of_leaves_can_change_nothing_in_it(tmp_path) -> None:
    first = LeafStore(tmp_path / "leaves", new=True, stream="one")
    first.on_leaf(0, Block(X=X[:10]))
    LeafStore(tmp_path / "leaves", new=False, stream="one")
    for change in (lambda: first.keep_only(0, 0), first.clean, first.drop_nodes, lambda: first.on_leaf(0, Block(X=X))):
        with pytest.raises(ValueError, match="Another stream"):
            change()
    assert len(first.leaf(0)) == 10
