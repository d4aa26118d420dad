"""Streams that are written to disk and resumed."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from stream_data import OBJECTIVES, assert_same, feed, make

from tithe import Block, CoresetStream
from tithe.objectives import KMeansObjective, LogisticObjective


class TestCheckpoint:
    @pytest.mark.parametrize("name", OBJECTIVES)
    def test_resumed_equals_uninterrupted(self, name: str, problem: Block, tmp_path) -> None:
        want = feed(make(OBJECTIVES[name]), problem, []).coreset()
        rng = np.random.default_rng(1)
        for at in rng.integers(0, len(problem), 3):
            first, second = problem.cut(0, at), problem.cut(at, len(problem))
            feed(make(OBJECTIVES[name]), first, []).checkpoint(tmp_path / str(at))
            resumed = CoresetStream.resume(tmp_path / str(at))
            assert_same(feed(resumed, second, [100]).coreset(), want)

    def test_before_any_row_and_with_text_labels(self, problem: Block, tmp_path) -> None:
        make().checkpoint(tmp_path / "empty")
        assert_same(
            CoresetStream.resume(tmp_path / "empty").push(problem.X).coreset(), make().push(problem.X).coreset()
        )
        labels = np.where(problem.y, "yes", "no")
        objective = LogisticObjective(classes=("no", "yes"))
        want = make(objective).push(problem.X, labels).coreset()
        for kind in (labels, labels.astype(object)):
            make(objective).push(problem.X[:9500], kind[:9500]).checkpoint(tmp_path / kind.dtype.kind)
            got = CoresetStream.resume(tmp_path / kind.dtype.kind).push(problem.X[9500:], kind[9500:]).coreset()
            assert got.y.tolist() == want.y.tolist() and np.array_equal(got.weights(), want.weights())

    def test_the_previous_one_stays_until_the_new_one_is_whole(self, problem, tmp_path, monkeypatch) -> None:
        stream = make().push(problem.X[:5000])
        stream.checkpoint(tmp_path / "c")
        want = stream.coreset()
        stream.push(problem.X[5000:9000])

        def full_disk(path, data) -> None:
            with path.open("wb") as file:
                file.write(data[:10])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full_disk)
        with pytest.raises(OSError, match="No space"):
            stream.checkpoint(tmp_path / "c")
        monkeypatch.undo()
        assert_same(CoresetStream.resume(tmp_path / "c").coreset(), want)
        stream.checkpoint(tmp_path / "c")
        assert_same(CoresetStream.resume(tmp_path / "c").coreset(), stream.coreset())
        assert [path.name for path in (tmp_path / "c").iterdir()] == ["state.tithe"]

    def test_a_killed_writer_leaves_rubbish_that_is_ignored_and_removed(self, problem, tmp_path) -> None:
        stream = make().push(problem.X[:5000])
        stream.checkpoint(tmp_path / "c")
        half = tmp_path / "c" / ".state.tithe.abcdefgh.tmp"
        half.write_bytes(b"half")
        assert_same(CoresetStream.resume(tmp_path / "c").coreset(), stream.coreset())
        stream.checkpoint(tmp_path / "c")
        assert not half.exists()

    def test_damage_is_found(self, problem, tmp_path) -> None:
        stream = make().push(problem.X[:5000])
        stream.checkpoint(tmp_path / "c")
        for file in sorted((tmp_path / "c").glob("*")):
            whole = file.read_bytes()
            for damage in (whole[:-3], whole[: len(whole) // 2] + b"!" + whole[len(whole) // 2 + 1 :], b""):
                if damage == whole:
                    continue
                file.write_bytes(damage)
                with pytest.raises(ValueError, match="damaged"):
                    CoresetStream.resume(tmp_path / "c")
            file.write_bytes(whole)
        with pytest.raises(FileNotFoundError, match="no checkpoint"):
            CoresetStream.resume(tmp_path / "nowhere")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.txt").write_text("precious")
        with pytest.raises(ValueError, match="folder of its own"):
            stream.checkpoint(tmp_path / "mine")

    def test_the_state_of_another_stream_is_not_replaced(self, problem, tmp_path) -> None:
        stream = make().push(problem.X[:5000])
        stream.notes["rows from"] = "here"
        stream.checkpoint(tmp_path / "c")
        for other in (make().push(problem.X), pickle.loads(pickle.dumps(stream)), stream.fork()):
            with pytest.raises(ValueError, match="another run"):
                other.checkpoint(tmp_path / "c")
        resumed = CoresetStream.resume(tmp_path / "c")
        assert resumed.notes == {"rows from": "here"}
        resumed.push(problem.X[5000:]).checkpoint(tmp_path / "c")
        assert CoresetStream.resume(tmp_path / "c").n_rows == 23_000

    def test_labels_of_any_kind_are_kept(self, problem, tmp_path) -> None:
        for i, y in enumerate((["a", 1, 2.5, True], ["a\0", "b", "c", "d"], ["a", "bb", "c", ""])):
            make().push(problem.X[:4], np.array(y, dtype=object)).checkpoint(tmp_path / f"{i}")
            again = CoresetStream.resume(tmp_path / f"{i}").coreset().y
            assert again.dtype == object and again.tolist() == y
        with pytest.raises(ValueError, match="cannot be written"):
            make().push(problem.X[:1], np.array([{}], dtype=object)).checkpoint(tmp_path / "c")

    def test_pickle(self, problem) -> None:
        stream = make().push(problem.X[:5500])
        again = pickle.loads(pickle.dumps(stream))
        assert_same(again.push(problem.X[5500:]).coreset(), stream.push(problem.X[5500:]).coreset())


@dataclass(frozen=True, kw_only=True)
class Foreign(KMeansObjective):
    """An objective of another package."""


def test_an_objective_of_another_package(problem, tmp_path, monkeypatch) -> None:
    stream = make(Foreign(n_clusters=2)).push(problem.X)
    with pytest.raises(ValueError, match="entry point"):
        stream.checkpoint(tmp_path / "c")
    point = SimpleNamespace(load=lambda: Foreign, value="theirs:Foreign")
    monkeypatch.setattr(
        "tithe.core.registry._installed", lambda kind: {"foreign": point} if kind == "objective" else {}
    )
    stream.checkpoint(tmp_path / "c")
    assert_same(CoresetStream.resume(tmp_path / "c").coreset(), stream.coreset())


def test_a_folder_of_the_same_name_elsewhere_is_not_taken_for_its_own(tmp_path, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    first, second = (CoresetStream("kmeans", coreset_size=50, random_state=seed) for seed in (0, 1))
    for stream, folder in ((first, tmp_path / "a"), (second, tmp_path / "b")):
        folder.mkdir()
        monkeypatch.chdir(folder)
        stream.push(rng.normal(size=(200, 2)))
        stream.checkpoint("state")
    with pytest.raises(ValueError, match="another run"):
        first.checkpoint("state")
