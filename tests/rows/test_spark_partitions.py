"""Leaves of a partition, as a worker of Spark makes them of Arrow batches. No Spark is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tithe import open_dataset
from tithe.core.passes import MergeTree, Sum, add_sums
from tithe.engines.spark import PartitionWork
from tithe.rows.arrays import is_spark_frame
from tithe.rows.columns import ColumnSelection, resolve_columns
from tithe.rows.spark_frames import PartitionReader, open_numbers

TABLE = pa.table({"a": np.arange(25.0), "b": np.arange(25.0) % 3, "y": np.arange(25) % 2})
LENGTHS = (0, 7, 0, 18)


def reader(leaf_rows: int, table: Any = TABLE, **options: Any) -> PartitionReader:
    choice = ColumnSelection(target="y", scale="none", impute="none", **options)
    columns = resolve_columns(table.schema, TABLE.to_batches(), choice)
    return PartitionReader(columns, LENGTHS, leaf_rows)


def batches(first: int, last: int, size: int, table: Any = TABLE) -> Any:
    return iter(table.slice(first, last - first).to_batches(max_chunksize=size))


@pytest.mark.parametrize("size", [1, 4, 5, 100])
def test_leaves_do_not_depend_on_the_batches(size: int) -> None:
    leaves = list(reader(5)(3, batches(7, 25, size)))
    assert [leaf.row_ids().tolist() for leaf in leaves] == [
        list(range(7, 12)),
        list(range(12, 17)),
        list(range(17, 22)),
        list(range(22, 25)),
    ]
    assert np.concatenate([leaf.X[:, 0] for leaf in leaves]).tolist() == list(range(7, 25))
    assert np.concatenate([leaf.y for leaf in leaves]).tolist() == [i % 2 for i in range(7, 25)]


def test_a_bad_row_is_named_by_its_partition() -> None:
    values = np.arange(25.0)
    values[9] = np.nan
    table = TABLE.set_column(0, "a", pa.array(values, from_pandas=True))
    with pytest.raises(ValueError, match=r"Partition 3 of the Spark DataFrame, row 2 .*column 'a' is missing"):
        list(reader(5, table)(3, batches(7, 25, 6, table)))
    assert sum(map(len, reader(5, table, bad_rows="skip")(3, batches(7, 25, 6, table)))) == 17


@pytest.mark.parametrize(("last", "words"), [(24, "has 17 rows instead of the 18"), (7, "has 0 rows instead")])
def test_a_partition_that_lost_rows_is_refused(last: int, words: str) -> None:
    with pytest.raises(ValueError, match=rf"Partition 3 {words}.*persist"):
        list(reader(5)(3, batches(7, last, 4)))


@pytest.mark.parametrize("partition", [1, 0, 9])
def test_a_partition_that_gained_rows_is_refused(partition: int) -> None:
    with pytest.raises(ValueError, match=f"Partition {partition} has more rows"):
        list(reader(5)(partition, batches(0, 8, 3)))


def add_up(leaf: Any, key: tuple[int, int]) -> Sum | None:
    return Sum(float(leaf.X[:, 0].sum()), len(leaf), key)


def test_partitions_are_nodes_of_the_tree_of_all_leaves() -> None:
    """Two leaves of partition 1, four of partition 3, and missing ones: as one tree, whoever has computed them."""
    work = PartitionWork(reader(5), 2, 0, add_up, add_sums)
    trees = [work.run(p, batches(a, b, 3)) for p, a, b in ((0, 0, 0), (1, 0, 7), (2, 0, 0), (3, 7, 25))]
    assert [None if tree is None else [node.key for node in tree.slots] for tree in trees] == [
        None,
        [(2, 4)],
        None,
        [(2, 12)],
    ]
    joined, one_by_one = MergeTree[Sum](), MergeTree[Sum]()
    for tree in trees:
        joined = joined if tree is None else joined.join(tree, add_sums)
    for partition, first, last in ((1, 0, 7), (3, 7, 25)):
        for number, leaf in enumerate(reader(5)(partition, batches(first, last, 4)), partition << 2):
            one_by_one = one_by_one.push(number, add_up(leaf, (0, number)), add_sums)
    assert joined.slots == one_by_one.slots and joined.n_seen == 25


def test_a_build_goes_on_in_the_middle_of_a_partition() -> None:
    work = PartitionWork(reader(5), 2, 14, add_up, add_sums)
    assert work.is_done(2) and not work.is_done(3)
    tree = work.run(3, batches(7, 25, 3))
    assert (tree.first, tree.n_leaves, tree.n_seen) == (14, 16, 8)
    nothing_left = PartitionWork(reader(5), 2, 6, add_up, add_sums).run(1, batches(0, 7, 3))
    assert (nothing_left.first, nothing_left.n_leaves, nothing_left.slots) == (6, 8, ())


def test_the_target_of_a_spark_frame_is_a_column() -> None:
    assert not is_spark_frame(TABLE) and not is_spark_frame(open_dataset(TABLE))
    with pytest.raises(ValueError, match="y='name'"):
        open_numbers(None, np.zeros(3))
