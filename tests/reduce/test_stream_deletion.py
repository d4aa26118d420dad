"""Rows that are deleted from a stream."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from row_search import files_with
from stream_data import OBJECTIVES, assert_same, feed, make

from tithe import Block, CoresetStream

WINDOWS = [{}, {"half_life": 5000.0}, {"window": 16_000}]
# every objective and every kind of forgetting; all combinations of both are slow
CASES = [
    pytest.param(name, options, marks=[pytest.mark.slow] if options and name != "kmeans" else [])
    for options in WINDOWS
    for name in OBJECTIVES
]


class TestForget:
    @pytest.mark.parametrize(("name", "options"), CASES)
    def test_equals_a_rebuild_without_them(self, name: str, options: dict, problem: Block, tmp_path) -> None:
        objective = OBJECTIVES[name]
        gone = np.sort(np.random.default_rng(2).choice(23_000, 230, replace=False))
        kept = problem.take(np.setdiff1d(np.arange(23_000), gone))
        stream = feed(make(objective, keep_leaves=tmp_path / "leaves", **options), problem, [900])
        n = stream.forget(gone)
        assert n == (problem.sample_weight[gone] > 0).sum() or "window" in options
        want = feed(make(objective, **options), kept, [17, 5000], ids=True)
        assert_same(stream.coreset(), want.coreset())
        assert not np.isin(stream.coreset().row_ids(), gone).any()
        assert_same(
            stream.push(problem.X[:3000], problem.y[:3000]).coreset(),
            want.push(problem.X[:3000], problem.y[:3000]).coreset(),
        )

    def test_only_the_path_is_reduced_again(self, problem, tmp_path, monkeypatch) -> None:
        from tithe.reduce.plan import Reducer

        stream = make(keep_leaves=tmp_path / "leaves").push(problem.X[:16_000])
        made = []
        for name in ("leaf", "merge"):
            real = getattr(Reducer, name)
            monkeypatch.setattr(Reducer, name, lambda *a, real=real: (made.append(a[-1]), real(*a))[1])
        assert stream.forget([5300, 5301]) == 2
        assert made == [(0, 5), (1, 4), (2, 4), (3, 0), (4, 0)]
        made.clear()
        assert stream.forget([5300]) == 0, "it is gone already"
        assert made == []
        stream.forget(3)
        assert (0, 0) in made and len(made) == 31, "the pilot came from leaf 0: everything is made anew"

    def test_whole_leaves_and_everything(self, problem, tmp_path) -> None:
        stream = make(keep_leaves=tmp_path / "leaves").push(problem.X)
        ids = np.arange(4000, 7000)
        assert stream.forget(ids) == 3000
        kept = np.setdiff1d(np.arange(23_000), ids)
        assert_same(stream.coreset(), make().push(problem.X[kept], row_ids=kept).coreset())
        assert stream.forget(np.arange(23_000)) == 20_000
        with pytest.raises(ValueError, match="nothing is left"):
            stream.coreset()

    def test_rows_that_wait_need_no_leaves(self, problem) -> None:
        stream = make().push(problem.X[:1500])
        assert stream.forget([1200, 1499]) == 2
        kept = np.setdiff1d(np.arange(1500), [1200, 1499])
        assert_same(stream.coreset(), make().push(problem.X[kept], row_ids=kept).coreset())

    def test_refused_where_it_cannot_be_honest(self, problem, tmp_path) -> None:
        stream = make().push(problem.X[:1500])
        before = stream.coreset()
        with pytest.raises(ValueError, match=r"cannot be forgotten honestly.*keep_leaves"):
            stream.forget([1400, 20])
        assert_same(stream.coreset(), before)
        for bad in ([1500], [-1], [0.5], ["a"]):
            with pytest.raises(ValueError, match="whole numbers"):
                stream.forget(bad)
        kept = make(keep_leaves=tmp_path / "leaves").push(problem.X[:2500])
        kept.merge(make(random_state=1).push(problem.X[:3000]))
        with pytest.raises(ValueError, match="another stream"):
            kept.forget([2600])
        assert kept.forget([1100]) == 1
        with pytest.raises(ValueError, match="before streams are merged"):
            kept.forget([1])  # the pilot came from its leaf, and the other stream's part was not made anew
        with pytest.raises(ValueError, match="not empty"):
            make(keep_leaves=tmp_path / "leaves")

    def test_checkpoints_do_not_remember(self, problem, tmp_path) -> None:
        stream = make(keep_leaves=tmp_path / "leaves").push(problem.X[:9500])
        stream.checkpoint(tmp_path / "c")
        stream.forget([10, 4000, 9400])
        resumed = CoresetStream.resume(tmp_path / "c")
        assert_same(resumed.coreset(), stream.coreset())
        store = resumed._folders.store
        for block in [*map(store.leaf, store.leaves()), resumed.state.rows.rest()]:
            assert not np.isin(block.row_ids(), [10, 4000, 9400]).any()

    @pytest.mark.parametrize("step", [1, 2, 3, 4])
    def test_killed_while_forgetting(self, step: int, problem, tmp_path, monkeypatch) -> None:
        from tithe.storage.leaf_store import LeafStore

        stream = make(keep_leaves=tmp_path / "leaves").push(problem.X[:9500])
        stream.checkpoint(tmp_path / "c")
        count = 0

        def dying(real):
            def run(*args):
                nonlocal count
                count += 1
                if count > step:
                    raise KeyboardInterrupt
                return real(*args)

            return run

        for name in ("mark_forgotten", "on_leaf", "on_node"):
            monkeypatch.setattr(LeafStore, name, dying(getattr(LeafStore, name)))
        with pytest.raises(KeyboardInterrupt):
            stream.forget([1010, 4000, 9400])
        monkeypatch.undo()
        kept = np.setdiff1d(np.arange(9500), [1010, 4000, 9400])
        want = make().push(problem.X[kept], row_ids=kept).coreset()
        assert_same(CoresetStream.resume(tmp_path / "c").coreset(), want)

    @pytest.mark.parametrize("step", [1, 2, 3, 4])
    def test_interrupted_while_forgetting_and_tried_again(self, step: int, problem, tmp_path, monkeypatch) -> None:
        from tithe.storage.leaf_store import LeafStore

        stream = make(keep_leaves=tmp_path / "leaves").push(problem.X[:9500])
        before = stream.coreset()
        real, count = LeafStore.on_node, iter(range(100))

        def dying(self, node) -> None:
            if next(count) == step:
                raise KeyboardInterrupt
            real(self, node)

        monkeypatch.setattr(LeafStore, "on_node", dying)
        with pytest.raises(KeyboardInterrupt):
            stream.forget([1010, 4000, 9400])
        monkeypatch.undo()
        assert_same(stream.coreset(), before)
        stream.checkpoint(tmp_path / "c")
        kept = np.setdiff1d(np.arange(9500), [1010, 4000, 9400])
        want = make().push(problem.X[kept], row_ids=kept).coreset()
        stream.forget([1010])
        assert_same(stream.coreset(), want)
        assert_same(CoresetStream.resume(tmp_path / "c").coreset(), want)

    def test_a_push_that_failed_leaves_no_rows_behind(self, problem, tmp_path, monkeypatch) -> None:
        from tithe.storage.leaf_store import LeafStore

        stream = make(keep_leaves=tmp_path / "leaves").push(problem.X[:2500])
        monkeypatch.setattr(LeafStore, "on_node", lambda self, node: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stream.push(problem.X[2500:5000])
        monkeypatch.undo()
        assert files_with(tmp_path, problem.X[2700])
        assert stream.forget([2400]) == 1
        assert files_with(tmp_path, problem.X[2700]) == []

    def test_copies_do_not_write_into_the_leaves(self, problem, tmp_path) -> None:
        stream = make(keep_leaves=tmp_path / "leaves").push(problem.X[:2500])
        copied = copy.deepcopy(stream).push(problem.X[::-1])
        stream.push(problem.X[2500:9000])
        with pytest.raises(ValueError, match="keep_leaves"):
            copied.forget([1])
        stream.forget([3100])
        kept = np.delete(np.arange(9000), 3100)
        assert_same(stream.coreset(), make().push(problem.X[kept], row_ids=kept).coreset())
        stream.checkpoint(tmp_path / "c")
        resumed = CoresetStream.resume(tmp_path / "c")
        with pytest.raises(ValueError, match="Another stream"):
            stream.push(problem.X)
        resumed.push(problem.X)

    def test_resuming_an_older_checkpoint_drops_what_came_after(self, problem, tmp_path) -> None:
        stream = make(keep_leaves=tmp_path / "leaves").push(problem.X[:5500])
        stream.checkpoint(tmp_path / "c")
        stream.push(problem.X[5500:])
        resumed = CoresetStream.resume(tmp_path / "c").push(problem.X[::-1][:9000])
        rows = np.concatenate([problem.X[:5500], problem.X[::-1][:9000]])
        resumed.forget([7001])
        kept = np.setdiff1d(np.arange(14_500), [7001])
        assert_same(resumed.coreset(), make().push(rows[kept], row_ids=kept).coreset())
