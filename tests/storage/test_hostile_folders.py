"""Checkpoints and folders of leaves that somebody else made: nothing outside them is written to or waited for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tithe import CoresetStream, load_coreset, load_model
from tithe.core.errors import FileFormatError
from tithe.objectives import KMeansObjective
from tithe.storage.checkpoint import load_state, save_state
from tithe.storage.coresets import load_schema, saved_feature_names
from tithe.storage.models import model_about

X = np.random.default_rng(0).normal(size=(60, 2))


def _stream(folder: Path, leaves: bool = True) -> CoresetStream:
    goal = KMeansObjective(n_clusters=2)
    kept = folder / "leaves" if leaves else None
    stream = CoresetStream(goal, coreset_size=10, leaf_size=20, random_state=0, keep_leaves=kept).push(X)
    stream.checkpoint(folder / "state")
    return stream


def _state(folder: Path) -> Path:
    return folder / "state" / "state.tithe"


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink(missing_ok=True)
    make(path)


@pytest.mark.parametrize("name", ["owner", ".lock", "forgotten.json", "leaf-0000000000.tithe"])
def test_nothing_is_written_through_a_link_among_the_leaves(tmp_path: Path, name: str) -> None:
    _stream(tmp_path)
    outside = tmp_path / "outside"
    original = tmp_path / "leaves" / name
    outside.write_bytes(original.read_bytes() if original.exists() else b"mine")
    before = outside.read_bytes()
    _replace(original, lambda path: path.symlink_to(outside))
    with pytest.raises(FileFormatError, match="not a folder of leaves"):
        CoresetStream.resume(tmp_path / "state")
    assert outside.read_bytes() == before


def test_no_lock_is_taken_through_a_link(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    _replace(tmp_path / "leaves" / ".lock", lambda path: path.symlink_to(outside))
    with pytest.raises(FileFormatError, match="is a link"):
        stream.push(X).checkpoint(tmp_path / "state")
    assert outside.read_bytes() == b"mine"


def test_a_state_names_no_folder_but_that_of_its_own_leaves(tmp_path: Path) -> None:
    for name in ("one", "other"):
        _stream(tmp_path / name)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "owner").write_text("me")
    for folder, fault in ((tmp_path / "other" / "leaves", "of this stream"), (plain, "of this stream")):
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        saved = load_state(tmp_path / "one" / "state")
        save_state(tmp_path / "one" / "state", saved.state, {**saved.about, "leaves": str(folder)})
        with pytest.raises(FileFormatError, match=fault):
            CoresetStream.resume(tmp_path / "one" / "state")
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_state_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    _stream(tmp_path, leaves=False)
    _state(tmp_path).rename(tmp_path / "elsewhere")
    _state(tmp_path).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileFormatError, match="no file of a checkpoint"):
        load_state(tmp_path / "state")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_no_pipe_is_waited_for(tmp_path: Path) -> None:
    stream = _stream(tmp_path)
    for name in ("leaf-0000000000.tithe", "owner", "forgotten.json"):
        kept = (tmp_path / "leaves" / name).read_bytes() if name != "forgotten.json" else None
        _replace(tmp_path / "leaves" / name, os.mkfifo)
        with pytest.raises(FileFormatError, match="not a folder of leaves"):
            CoresetStream.resume(tmp_path / "state")
        (tmp_path / "leaves" / name).unlink()
        if kept is not None:
            (tmp_path / "leaves" / name).write_bytes(kept)
    assert len(CoresetStream.resume(tmp_path / "state").coreset()) == len(stream.coreset())
    _replace(_state(tmp_path), os.mkfifo)
    with pytest.raises(FileFormatError, match="no file of a checkpoint"):
        load_state(tmp_path / "state")
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    for read in (load_model, model_about, load_coreset, load_schema, saved_feature_names):
        with pytest.raises((ValueError, FileNotFoundError), match="pipe"):
            read(pipe)


@pytest.mark.parametrize("value", [1e308, -1e200])
def test_totals_whose_squares_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    _stream(tmp_path, leaves=False)
    saved = load_state(tmp_path / "state")
    slots = (replace(node, totals=np.full_like(node.totals, value)) for node in saved.state.tree.slots)
    tree = replace(saved.state.tree, slots=tuple(slots))
    save_state(tmp_path / "state", replace(saved.state, tree=tree), saved.about)
    with pytest.raises(FileFormatError, match="totals is out of range"):
        CoresetStream.resume(tmp_path / "state")
