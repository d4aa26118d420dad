from __future__ import annotations

from importlib.metadata import EntryPoint
from itertools import pairwise

import numpy as np
import pytest
from leaf_source import fold
from scipy import sparse

from tithe import Block, Coreset
from tithe.core import registry
from tithe.core.data import concat
from tithe.core.passes import MergeTree, Sum, Tree
from tithe.core.registry import make, names, resolve
from tithe.core.seeding import Reservoir, as_seed, hash_limit, rng_for


def leaf(number: int) -> Coreset:
    return Coreset(X=np.full((1, 1), float(number)), n_seen=1, weight_seen=1.0, key=(0, number))


def join(left: Coreset, right: Coreset, key: tuple[int, int]) -> Coreset:
    return Coreset(X=np.vstack([left.X, right.X]), n_seen=left.n_seen + right.n_seen, weight_seen=0.0, key=key)


class TestBlock:
    def test_defaults_are_ones_and_positions(self) -> None:
        block = Block(X=np.zeros((3, 2)))
        assert block.weights().tolist() == [1, 1, 1]
        assert block.row_ids().tolist() == [0, 1, 2]
        assert block.total_weight == 3.0

    def test_last_row_id(self) -> None:
        rows = Block(X=np.zeros((3, 1)))
        assert (rows.last_row_id, rows.cut(0, 2).last_row_id, rows.take(np.array([], int)).last_row_id) == (2, 1, -1)
        assert Block(X=np.zeros((2, 1)), indices=np.array([4, 9])).last_row_id == 9

    def test_take_keeps_ids_and_weights(self) -> None:
        block = Block(X=np.arange(6.0).reshape(3, 2), sample_weight=np.array([1.0, 2, 3]), indices=np.array([7, 8, 9]))
        part = block.take(np.array([2, 0]))
        assert part.row_ids().tolist() == [9, 7]
        assert part.weights().tolist() == [3, 1]

    def test_concat_fills_in_what_only_some_have(self) -> None:
        both = concat([Block(X=np.zeros((1, 2))), Block(X=np.ones((2, 2)), sample_weight=np.array([5.0, 6]))])
        assert both.weights().tolist() == [1, 5, 6]

    def test_concat_of_csr(self) -> None:
        both = concat([Block(X=sparse.csr_matrix(np.eye(2)))] * 2)
        assert both.X.shape == (4, 2)
        assert both.X.format == "csr"

    def test_concat_refuses_other_widths_and_missing_y(self) -> None:
        with pytest.raises(ValueError, match="2 and 3 columns"):
            concat([Block(X=np.zeros((1, 2))), Block(X=np.zeros((1, 3)))])
        with pytest.raises(ValueError, match="have y"):
            concat([Block(X=np.zeros((1, 2))), Block(X=np.zeros((1, 2)), y=np.zeros(1))])


def brackets(left: Sum, right: Sum, key: tuple[int, int]) -> Sum:
    """A value that shows the order of all merges and their keys."""
    return Sum(f"({left.value} {right.value}){key}", left.n_seen + right.n_seen, key)


def grown(tree: MergeTree[Sum], leaves: list[Sum | None]) -> MergeTree[Sum]:
    for number, leaf in enumerate(leaves, tree.n_leaves):
        tree = tree.push(number, leaf, brackets)
    return tree


class TestTree:
    @pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 13])
    def test_every_leaf_once_and_in_order(self, n: int) -> None:
        assert fold((leaf(i) for i in range(n)), join).X.ravel().tolist() == list(range(n))

    def test_keys_are_level_and_first_leaf(self) -> None:
        keys = []

        def spy(left: Coreset, right: Coreset, key: tuple[int, int]) -> Coreset:
            keys.append(key)
            return join(left, right, key)

        fold((leaf(i) for i in range(4)), spy)
        assert keys == [(1, 0), (1, 2), (2, 0)]

    def test_memory_is_one_coreset_per_level(self) -> None:
        tree = Tree()
        for i in range(1000):
            tree = tree.push(i, leaf(i), join)
            assert len(tree.slots) <= 10

    def test_a_tree_is_a_value(self) -> None:
        tree = Tree()
        for i in range(3):
            tree = tree.push(i, leaf(i), join)
        assert len(tree.collapse(join)) == 3
        assert tree.push(3, leaf(3), join).collapse(join).X.ravel().tolist() == [0, 1, 2, 3]
        assert len(tree.collapse(join)) == 3 and tree.n_leaves == 3

    @pytest.mark.parametrize("n", [1, 5, 8, 13, 29])
    def test_trees_of_consecutive_leaves_join_to_the_tree_of_all(self, n: int) -> None:
        """Wherever the leaves are cut, also in the middle of a node and at leaves without rows."""
        rng = np.random.default_rng(n)
        for _ in range(40):
            leaves = [None if rng.random() < 0.3 else Sum(f"{i}", 1, (0, i)) for i in range(n)]
            whole = grown(MergeTree[Sum](), leaves)
            edges = [0, *sorted(rng.choice(n + 1, 3)), n]
            joined = MergeTree[Sum]()
            for start, stop in pairwise(edges):
                part = grown(MergeTree[Sum](first=start, n_leaves=start), leaves[start:stop])
                joined = joined.join(part, brackets)
            assert joined == whole

    def test_an_earlier_leaf_is_refused(self) -> None:
        with pytest.raises(ValueError, match="ascend"):
            MergeTree((), 4, 0).join(MergeTree((), 5, 3), brackets)

    def test_nothing_pushed(self) -> None:
        with pytest.raises(ValueError, match="no rows"):
            Tree().collapse(join)


class TestSeeding:
    def test_place_decides(self) -> None:
        draws = {rng_for(1, *key).random() for key in [(0, 0), (0, 1), (1, 0), (0, 0, "a"), (0, 0, "b")]}
        assert len(draws) == 5
        assert rng_for(1, 2, "x").random() == rng_for(1, 2, "x").random() != rng_for(2, 2, "x").random()

    def test_as_seed_takes_what_scikit_learn_takes(self) -> None:
        assert as_seed(5) == as_seed(np.int64(5)) == 5
        assert as_seed(None) != as_seed(None)
        assert as_seed(np.random.RandomState(0)) == as_seed(np.random.RandomState(0))
        assert as_seed(np.random.default_rng(0)) == as_seed(np.random.default_rng(0))

    @pytest.mark.parametrize("bad", [-1, "x", 1.5, True])
    def test_as_seed_refuses(self, bad: object) -> None:
        with pytest.raises(ValueError, match="random_state"):
            as_seed(bad)


class TestReservoir:
    def test_few_rows_above_the_size_lie_below_the_limit(self) -> None:
        rows = Block(X=np.zeros((100_000, 1)), indices=np.arange(100_000))
        bounded = Reservoir(size=400, key=3, limit=hash_limit(400, 100_000))
        candidates = bounded.among(rows)
        assert 400 <= len(candidates) < 1000
        bounded.keep(candidates)
        whole = Reservoir(size=400, key=3)
        whole.keep(whole.among(rows))
        assert np.array_equal(bounded.rows().row_ids(), whole.rows().row_ids()) and not bounded.lacks_rows

    def test_a_limit_for_more_rows_than_there_are_is_noticed(self) -> None:
        rows = Block(X=np.zeros((1000, 1)), indices=np.arange(1000))
        reservoir = Reservoir(size=400, key=3, limit=hash_limit(400, 100_000))
        reservoir.keep(reservoir.among(rows))
        assert reservoir.lacks_rows
        assert hash_limit(400, None) == hash_limit(400, 300) == 2**64 - 1


class TestRegistry:
    def test_names_resolve(self) -> None:
        for kind in ("objective", "construction", "engine"):
            for name in names(kind):
                try:
                    assert resolve(kind, name) is not None
                except ImportError as error:  # an engine that is not installed for everyone
                    assert f"pip install 'tithe[{name}]'" in str(error)

    def test_alias(self) -> None:
        assert resolve("construction", "urs") is resolve("construction", "uniform")

    def test_a_package_that_is_not_whole_is_an_error_only_where_it_is_named(self, monkeypatch) -> None:
        points = {
            name: EntryPoint(name=name, value=value, group="tithe.learner")
            for name, value in (("gone", "no_such_package.learners:Gone"), ("kmeans", "theirs:KMeans"))
        }
        monkeypatch.setattr(registry, "_installed", lambda kind: points if kind == "learner" else {})
        assert {"gone", "kmeans"} < {*names("learner")}
        with pytest.raises(ValueError, match="no_such_package"):
            resolve("learner", "gone")
        with pytest.raises(ValueError, match="theirs:KMeans"):
            resolve("learner", "kmeans")
        with pytest.raises(AttributeError, match="no_such_package"):
            registry.registered_attribute("learner", "tithe.learners", "Gone")

    def test_unknown_name_suggests(self) -> None:
        with pytest.raises(ValueError, match="Did you mean 'sensitivity'"):
            resolve("construction", "sensitivty")

    def test_an_instance_is_itself(self) -> None:
        thing = object()
        assert make("objective", thing) is thing
