from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from stream_data import KMEANS, OBJECTIVES, assert_same, feed, make

from tithe import Block, CoresetStream, build_coreset
from tithe.objectives import KMedianObjective, LogisticObjective
from tithe.reduce.stream import StreamState, collapse, push


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.bits
def test_200_pushes_equal_one(name: str, problem: Block) -> None:
    rng = np.random.default_rng(0)
    one = feed(make(OBJECTIVES[name]), problem, []).coreset()
    many = feed(make(OBJECTIVES[name]), problem, rng.integers(0, len(problem), 199)).coreset()
    assert_same(one, many)
    assert one.n_seen == (problem.sample_weight > 0).sum()
    np.testing.assert_array_equal(one.X, problem.X[one.row_ids()])


@pytest.mark.bits
def test_equals_a_build_from_batches(problem: Block) -> None:
    batches = [(problem.X[a : a + 7000], None, problem.sample_weight[a : a + 7000]) for a in range(0, 23_000, 7000)]
    built = build_coreset(batches, objective=KMEANS, coreset_size=300, random_state=3)
    stream = CoresetStream(KMEANS, coreset_size=300, random_state=3)
    for X, _, weight in batches:
        stream.push(X, sample_weight=weight)
    assert_same(stream.coreset(), built)


def test_a_query_changes_nothing(problem: Block) -> None:
    asked = make()
    for start in range(0, 23_000, 1700):
        asked.push(problem.X[start : start + 1700])
        asked.coreset()
    assert_same(asked.coreset(), feed(make(), Block(X=problem.X), []).coreset())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_totals_are_exact_in_every_node(name: str, problem: Block) -> None:
    stream = feed(make(OBJECTIVES[name]), problem, [])
    objective, pilot = stream.state.reducer.objective, stream.state.reducer.pilot
    for slot in stream.state.tree.slots:
        a, b = slot.key[1] * 1000, (slot.key[1] + 2 ** slot.key[0]) * 1000
        want = objective.survey(problem.cut(a, b), pilot).totals
        np.testing.assert_allclose(slot.totals, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
    coreset = stream.coreset()
    want = objective.survey(problem, pilot).totals
    np.testing.assert_allclose(coreset.totals, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
    assert coreset.provenance["calibrated"] == 1
    assert coreset.weights().sum() == pytest.approx(problem.sample_weight.sum(), rel=1e-3)


def test_memory_is_a_leaf_and_half_a_leaf_a_level(problem: Block) -> None:
    stream = make(coreset_size=50, leaf_size=200)
    for start in range(0, 23_000, 37):
        stream.push(problem.X[start : start + 37])
        held = sum(map(len, stream.state.tree.slots)) + sum(map(len, stream.state.rows.parts))
        assert held <= 200 + 100 * max(1, np.ceil(np.log2(max(2, stream.n_rows / 200))))
        assert len(stream.state.rows.parts) <= 9


def test_rows_may_be_overwritten_by_their_owner(problem: Block) -> None:
    buffer = np.empty((500, 4))
    stream = make()
    for start in range(0, 23_000, 500):
        buffer[:] = problem.X[start : start + 500]
        stream.push(buffer)
        buffer[:] = np.pi
    assert_same(stream.coreset(), feed(make(), Block(X=problem.X), []).coreset())


def test_frames_sparse_rows_and_float32(problem: Block) -> None:
    plain = feed(make(), Block(X=problem.X), [5000]).coreset()
    assert_same(make().push(pd.DataFrame(problem.X)).coreset(), plain)
    csr = sparse.csr_matrix(np.where(np.abs(problem.X) > 1.0, problem.X, 0.0))
    a, b = make().push(csr).coreset(), make().push(csr[:333]).push(csr[333:]).coreset()
    assert sparse.issparse(a.X)
    assert_same(a, b)
    assert make().push(problem.X.astype(np.float32)).coreset().X.dtype == np.float32


def test_few_rows_are_all_kept() -> None:
    stream = make().push([[1.0, 2.0], [3.0, 4.0]])
    coreset = stream.coreset()
    assert coreset.provenance["construction"] == "all" and coreset.X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(ValueError, match="no rows"):
        make().coreset()
    with pytest.raises(ValueError, match="no rows"):
        make().push(np.empty((0, 2))).coreset()
    only_zero = make().push(np.ones((5, 2)), sample_weight=np.zeros(5))
    with pytest.raises(ValueError, match="no rows"):
        only_zero.coreset()
    assert only_zero.n_rows == 5


def test_bad_pushes_leave_the_stream_as_it_was(problem: Block) -> None:
    stream = make().push(problem.X[:1500])
    before = stream.coreset()
    for bad, message in (
        ((np.ones((3, 5)),), "5 columns"),
        ((np.full((3, 4), np.nan),), "NaN"),
        ((np.ones((3, 4)), None, [1.0, -1.0, 1.0]), "Negative"),
        ((np.ones((3, 4)), [1, 2, 3]), "has y"),
        ((np.ones((3, 4)), None, None, [1500, 1502, 1501]), "ascend"),
        ((np.ones((3, 4)), None, None, [3, 4, 5]), "go on from 1500"),
        ((np.ones((3, 4)), None, None, [1.5, 2.0, 3.0]), "whole numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            stream.push(*bad)
    assert stream.n_rows == 1500
    assert_same(stream.coreset(), before)


def test_a_push_that_fails_takes_no_row(problem: Block, tmp_path, monkeypatch) -> None:
    from tithe.storage.leaf_store import LeafStore

    stream = make(keep_leaves=tmp_path / "leaves").push(problem.X[:3900])
    before = stream.coreset()
    real = LeafStore.on_node

    def full_disk(self, node) -> None:
        if node.key[0] >= 2:
            raise OSError(28, "No space left on device")
        real(self, node)

    monkeypatch.setattr(LeafStore, "on_node", full_disk)
    with pytest.raises(OSError, match="No space"):
        stream.push(problem.X[3900:9000])
    monkeypatch.undo()
    assert stream.n_rows == 3900
    assert_same(stream.coreset(), before)
    stream.push(problem.X[3900:])
    assert_same(stream.coreset(), make().push(problem.X).coreset())
    stream.forget([5])
    kept = np.delete(np.arange(23_000), 5)
    assert_same(stream.coreset(), make().push(problem.X[kept], row_ids=kept).coreset())


def test_states_are_values(problem: Block) -> None:
    """Whoever keeps a state can go back to it, and go on from it twice."""
    stream = make().push(problem.X[:3900])
    earlier, want = stream.state, stream.coreset()
    after = stream.push(problem.X[3900:]).coreset()
    assert stream.state is not earlier
    assert_same(collapse(earlier), want)
    assert_same(collapse(push(earlier, (problem.X[3900:], None, None, None))), after)
    stream.state = pickle.loads(pickle.dumps(earlier))
    assert_same(stream.push(problem.X[3900:]).coreset(), after)
    assert not {"__getstate__", "__setstate__"} & (vars(CoresetStream).keys() | vars(StreamState).keys())


def test_a_merge_that_fails_changes_nothing(problem: Block, monkeypatch) -> None:
    from tithe.reduce.plan import Reducer

    stream, other = make().push(problem.X[:500]), make(random_state=5).push(problem.X[:3900])
    state = stream.state
    monkeypatch.setattr(Reducer, "merge", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stream.merge(other)
    assert stream.state is state


def test_unknown_labels_are_refused_at_once(problem: Block) -> None:
    stream = make(OBJECTIVES["logistic"]).push(problem.X[:1500], problem.y[:1500])
    with pytest.raises(ValueError, match="which is not among the 2 classes"):
        stream.push(problem.X[:3], [0, 1, 2])
    assert stream.push(problem.X[1500:], problem.y[1500:]).coreset().n_seen == 23_000
    with pytest.raises(ValueError, match="not among"):
        make(OBJECTIVES["logistic"]).push(problem.X[:3], [0, 1, 2])


def test_a_first_leaf_of_one_class(problem: Block) -> None:
    """The pilot knows nothing of the other class: it must not send the solution astray."""
    objective = OBJECTIVES["logistic"]
    order = np.argsort(problem.y, kind="stable")
    X, y = problem.X[order], problem.y[order]
    coreset = make(objective, coreset_size=1000).push(X, y).coreset()
    result = objective.solve(coreset, rng=np.random.default_rng(0), init=coreset.pilot)
    full = objective.solve(Block(X=X, y=y), rng=np.random.default_rng(0))
    losses = [objective.cost(Block(X=X, y=y), params).sum() for params in (result, full)]
    assert losses[0] < 1.02 * losses[1]
    for start in (-20.0, -100.0, -202.0, 500.0):
        again = objective.solve(Block(X=X, y=y), rng=np.random.default_rng(0), init=np.array([[0.0] * 4 + [start]]))
        np.testing.assert_allclose(again, full, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coreset_size": 0}, "coreset_size must be a whole number of at least 1"),
        ({"coreset_size": 0.1}, "coreset_size must be an integer here"),
        ({"leaf_size": 0}, "leaf_size must be a whole number"),
        ({"leaf_size": 2.5}, "leaf_size must be a whole number"),
        ({"half_life": 0.0}, "half_life must be a positive number"),
        ({"half_life": np.nan}, "half_life must be a positive number"),
        ({"half_life": "x"}, "half_life must be"),
        ({"window": 10, "leaf_size": 20}, "less than one leaf of 20: leave leaf_size out"),
        ({"window": "x"}, "window must be a whole number"),
        ({"random_state": -1}, "random_state must not be negative"),
        ({"construction": "magic"}, "no construction named 'magic'"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


class TestWindow:
    def test_stands_for_the_last_rows(self, problem) -> None:
        stream = make(coreset_size=100, leaf_size=250, window=4000)
        for start in range(0, 23_000, 330):
            stream.push(problem.X[start : start + 330])
            coreset = stream.coreset()
            want = min(4000, stream.n_rows)
            assert want <= coreset.n_seen <= want + 500
            assert coreset.row_ids().min() >= stream.n_rows - coreset.n_seen
            assert coreset.weights().sum() == pytest.approx(coreset.n_seen, rel=0.05)
        assert sum(map(len, stream.state.tree.slots)) <= 100 * 20

    @pytest.mark.bits
    def test_chunks_and_checkpoints_make_no_difference(self, problem, tmp_path) -> None:
        options = {"coreset_size": 100, "leaf_size": 250, "window": 4000}
        one = make(**options).push(problem.X).coreset()
        many = feed(make(**options), Block(X=problem.X), np.random.default_rng(0).integers(0, 23_000, 50))
        assert_same(one, many.coreset())
        make(**options).push(problem.X[:7777]).checkpoint(tmp_path / "c")
        assert_same(CoresetStream.resume(tmp_path / "c").push(problem.X[7777:]).coreset(), one)

    def test_chooses_its_leaf_size(self, problem) -> None:
        for window in (5, 4000):
            stream = CoresetStream(KMEANS, coreset_size=100, window=window, random_state=0).push(problem.X)
            assert window <= stream.coreset().n_seen <= window + window // 8 + stream.leaf_size
        usual = CoresetStream(KMEANS, coreset_size=100)
        assert CoresetStream(KMEANS, coreset_size=100, window=10**9).leaf_size == usual.leaf_size

    def test_a_whole_stream_within_the_window_is_all_of_it(self, problem) -> None:
        assert make(window=50_000).push(problem.X).coreset().n_seen == 23_000


class TestHalfLife:
    def test_totals_and_weights_by_hand(self, problem) -> None:
        stream = make(half_life=3000.0, calibrate=True)
        feed(stream, problem, [400, 9100])
        coreset = stream.coreset()
        last = np.flatnonzero(problem.sample_weight)[-1]
        decayed = problem.sample_weight * 2.0 ** ((np.arange(23_000) - last) / 3000.0)
        assert coreset.weight_seen == pytest.approx(decayed.sum(), rel=1e-12)
        assert coreset.weights().sum() == pytest.approx(decayed.sum(), rel=1e-3)
        want = KMEANS.survey(Block(X=problem.X, sample_weight=decayed), stream.state.reducer.pilot).totals
        np.testing.assert_allclose(coreset.totals, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
        query = problem.X[:3]
        full = KMEANS.cost(problem, query) @ decayed
        assert KMEANS.cost(coreset, query) @ coreset.weights() == pytest.approx(full, rel=0.1)

    @pytest.mark.bits
    def test_is_chunk_invariant_and_survives_ages(self, problem, tmp_path) -> None:
        one = make(half_life=2.5).push(problem.X).coreset()  # most weights vanish altogether
        many = feed(make(half_life=2.5), Block(X=problem.X), range(100, 23_000, 997)).coreset()
        assert_same(one, many)
        assert one.weight_seen == pytest.approx(1.0 / (1.0 - 2.0 ** (-1 / 2.5)), rel=1e-9)
        make(half_life=900.0).push(problem.X[:7777]).checkpoint(tmp_path / "c")
        assert_same(
            CoresetStream.resume(tmp_path / "c").push(problem.X[7777:]).coreset(),
            make(half_life=900.0).push(problem.X).coreset(),
        )


class TestMerge:
    def test_forks_add_up_exactly(self, problem) -> None:
        main = make().push(problem.X[:9500])
        fork = main.fork(random_state=9).push(problem.X[9500:])
        fork_before = fork.coreset()
        merged = main.merge(fork).coreset()
        assert_same(fork.coreset(), fork_before)
        want = KMEANS.survey(Block(X=problem.X), main.state.reducer.pilot).totals
        np.testing.assert_allclose(merged.totals, want, rtol=1e-9, atol=1e-9 * np.abs(want).max())
        assert merged.n_seen == 23_000 == main.n_rows and len(merged) <= 300
        np.testing.assert_array_equal(merged.X, problem.X[merged.row_ids()])

    def test_strangers_are_estimated_and_pushes_go_on(self, problem, tmp_path) -> None:
        parts = [make(random_state=i).push(problem.X[a : a + 6000]) for i, a in enumerate((0, 6000, 12_000))]
        main = parts[0].merge(parts[1]).merge(parts[2]).push(problem.X[18_000:])
        coreset = main.coreset()
        assert coreset.n_seen == 23_000 and coreset.weight_seen == 23_000.0
        np.testing.assert_array_equal(coreset.X, problem.X[coreset.row_ids()])
        query = problem.X[:3]
        full = KMEANS.cost(Block(X=problem.X), query).sum()
        assert KMEANS.cost(coreset, query) @ coreset.weights() == pytest.approx(full, rel=0.15)
        main.checkpoint(tmp_path / "c")
        assert_same(CoresetStream.resume(tmp_path / "c").coreset(), coreset)

    def test_few_rows_on_either_side(self, problem) -> None:
        both = make().push(problem.X[:200]).merge(make().push(problem.X[200:500]))
        assert_same(both.coreset(), make().push(problem.X[:500]).coreset())
        assert make().merge(make().push(problem.X)).coreset().n_seen == 23_000
        assert make().push(problem.X).merge(make()).coreset().n_seen == 23_000

    def test_what_does_not_fit_is_refused(self, problem) -> None:
        stream = make().push(problem.X)
        for other, message in (
            (make(KMedianObjective(n_clusters=3)), "differ in objective"),
            (make(coreset_size=301), "differ in coreset_size: 300 here, 301 there"),
            (make(window=5000), "cannot be merged"),
            (stream, "Another CoresetStream"),
            ("x", "Another CoresetStream"),
        ):
            with pytest.raises(ValueError, match=message):
                stream.merge(other)
        with pytest.raises(ValueError, match="2 columns"):
            stream.merge(make().push(problem.X[:, :2]))
        with pytest.raises(ValueError, match="has y"):
            stream.merge(make().push(problem.X, problem.y))
        with pytest.raises(ValueError, match="sparse"):
            stream.merge(make().push(sparse.csr_matrix(problem.X)))
        empty = make().merge(make().push(problem.X))
        with pytest.raises(ValueError, match="2 columns"):
            empty.push(problem.X[:, :2])
        first, second = (make(LogisticObjective()).push(problem.X, problem.y + k) for k in (0, 1))
        with pytest.raises(ValueError, match="other classes"):
            first.merge(second)

    def test_what_was_estimated_stays_said(self, problem) -> None:
        main = make().push(problem.X[:9500])
        main.merge(main.fork(1).push(problem.X[9500:12_000])).merge(make(random_state=8).push(problem.X[12_000:]))
        assert main.coreset().provenance["totals"] == "partly estimated"


def test_columns_of_frames_are_told_by_their_names(rng: np.random.Generator, tmp_path) -> None:
    frame = pd.DataFrame({"big": rng.normal(1000.0, 1.0, 50), "small": rng.normal(size=50)})
    stream = CoresetStream(KMEANS, coreset_size=40, leaf_size=60, random_state=0)
    stream.push(frame).push(frame[["small", "big"]]).push(frame.to_numpy())
    assert stream.coreset().X[:, 0].min() > 900.0
    stream.checkpoint(tmp_path / "state")
    resumed = CoresetStream.resume(tmp_path / "state")
    with pytest.raises(ValueError, match="Push 3: The columns are x, small, and those before were big, small"):
        resumed.push(frame.rename(columns={"big": "x"}))
    other = resumed.fork().push(frame[["small", "big"]])
    with pytest.raises(ValueError, match="has the columns small, big, not big, small"):
        resumed.merge(other)
