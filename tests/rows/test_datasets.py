"""Arrow datasets, queries and streams of record batches as sources: the same rows give the same bits as files."""

from __future__ import annotations

import os
import pickle
from operator import call

import numpy as np
import plain_rows
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from stored_rows import a_table, write_years

from tithe import CoresetLogisticRegression, FileFormatError, build_coreset, open_dataset
from tithe.core.data import concat
from tithe.core.errors import NoRowsError
from tithe.rows import datasets, frames
from tithe.storage.values import packed


def all_rows(source):
    return concat([task() for task in source.tasks()])


def coreset_bytes(source) -> bytes:
    return packed(build_coreset(source, objective="kmeans", coreset_size=80, random_state=0))


@pytest.fixture
def folder(tmp_path):
    """Parquet files with a target, several row groups each."""
    for i in range(3):
        table = a_table(800, i).append_column("y", pa.array(np.arange(800) % 2))
        pq.write_table(table, tmp_path / f"part-{i}.parquet", row_group_size=300)
    return tmp_path


# -- datasets ------------------------------------------------------------------------------------


@pytest.mark.bits
def test_a_dataset_gives_the_bits_of_its_files(folder) -> None:
    files = open_dataset(folder, target="y")
    source = open_dataset(ds.dataset(folder), target="y")
    assert source.schema == files.schema and source.n_rows == files.n_rows == 2400
    assert coreset_bytes(source) == coreset_bytes(files) == coreset_bytes(pickle.loads(pickle.dumps(source)))
    assert source.classes().tolist() == [0, 1]
    leaves = [packed(task()) for task in source.tasks(leaf_rows=500)]
    assert leaves == [packed(task()) for task in files.tasks(leaf_rows=500)]
    assert len(leaves) == source.n_leaves(500) == 5
    assert leaves[3:] == [packed(pickle.loads(pickle.dumps(t))()) for t in source.tasks(3, leaf_rows=500)]


def test_a_huge_row_group_of_a_dataset_is_cut(folder, monkeypatch) -> None:
    whole = all_rows(open_dataset(ds.dataset(folder), target="y"))
    monkeypatch.setattr(datasets, "HUGE_BYTES", 100)
    monkeypatch.setattr(datasets, "BATCH_ROWS", 17)
    source = open_dataset(ds.dataset(folder), target="y")
    assert packed(concat([task() for task in source.tasks(leaf_rows=70)])) == packed(whole)


@pytest.mark.parametrize(
    "kept", [ds.field("a") > 0.3, (ds.field("y") == 1) & (ds.field("c") != "u"), ds.field("y") >= 0]
)
def test_a_filter_is_kept(folder, kept) -> None:
    dataset = ds.dataset(folder)
    source = open_dataset(dataset.filter(kept), target="y")
    frame = open_dataset(dataset.to_table(filter=kept), target="y")
    assert source.n_rows == frame.n_rows and source.identity != open_dataset(dataset, target="y").identity
    assert packed(all_rows(source)) == packed(all_rows(frame))
    assert coreset_bytes(source) == coreset_bytes(frame)
    with pytest.raises(ValueError, match="filter"):  # which Arrow would not send along
        pickle.dumps(source)
    assert dataset.filter(kept).count_rows() == source.n_rows  # the dataset of the caller is as it was


def test_a_filter_that_keeps_nothing(folder) -> None:
    with pytest.raises(NoRowsError, match="There are no rows"):
        open_dataset(ds.dataset(folder).filter(ds.field("y") == 7))


def test_partitions_and_their_filter(tmp_path) -> None:
    years = ds.dataset(write_years(tmp_path / "rows"), partitioning="hive")
    source = open_dataset(years)
    assert source.feature_names == [*open_dataset(tmp_path / "rows").feature_names]
    late = open_dataset(years.filter(ds.field("year") > 2022), columns=["a", "year"], scale="none")
    assert late.n_rows == 1400 and np.unique(all_rows(late).X[:, 1]).tolist() == [2023, 2024]
    assert [len(task()) for task in late.tasks(leaf_rows=600)] == [600, 600, 200]


def test_other_formats_than_parquet(tmp_path) -> None:
    table = a_table(900, 0)
    ds.write_dataset(table, tmp_path / "feather", format="feather", max_rows_per_file=400, max_rows_per_group=400)
    source = open_dataset(ds.dataset(tmp_path / "feather", format="feather"))
    assert packed(all_rows(source)) == packed(all_rows(open_dataset(table))) and source.n_rows == 900
    assert packed(all_rows(open_dataset(ds.dataset(table)))) == packed(all_rows(open_dataset(table)))


def test_files_of_a_dataset_that_change_or_vanish(folder) -> None:
    source = open_dataset(ds.dataset(folder), target="y")
    before = source.identity
    os.utime(folder / "part-1.parquet", ns=(1, 1))
    with pytest.raises(FileFormatError, match=r"part-1.parquet' was written to while it was read"):
        all_rows(source)
    assert open_dataset(ds.dataset(folder), target="y").identity != before
    dataset = ds.dataset(folder)
    (folder / "part-1.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"part-1.parquet', which the dataset names"):
        open_dataset(dataset)


def test_bad_rows_of_a_dataset_are_named(tmp_path) -> None:
    table = pa.table({"a": [0.1, 0.7, None, 0.2, 0.9], "b": [1.5, 2.0, 3.25, 4.0, 5.5]})
    for name in ("1", "2"):
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2)
    source = plain_rows.open_dataset(ds.dataset(tmp_path))
    with pytest.raises(ValueError, match=r"1.parquet', row 2 \(the first is row 0\): column 'a' is missing"):
        list(map(call, source.tasks()))
    source = plain_rows.open_dataset(ds.dataset(tmp_path), bad_rows="skip")
    assert all_rows(source).row_ids().tolist() == [0, 1, 3, 4, 5, 6, 8, 9] and source.n_rows == 10
    filtered = plain_rows.open_dataset(ds.dataset(tmp_path).filter(ds.field("b") > 1.6))
    with pytest.raises(ValueError, match=r"the filtered dataset\', row 1 \(the first is row 0\)"):
        list(map(call, filtered.tasks()))
    with pytest.raises(ValueError, match="'the dataset' has no column 'z'"):
        open_dataset(ds.dataset(tmp_path), target="z")


def test_delta_lake(tmp_path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="Delta Lake is tested where deltalake is installed")
    table = a_table(2000, 0)
    deltalake.write_deltalake(tmp_path / "t", table.slice(0, 1500), partition_by=["c"])
    deltalake.write_deltalake(tmp_path / "t", table.slice(1500), mode="append")
    dataset = deltalake.DeltaTable(tmp_path / "t").to_pyarrow_dataset()
    source = open_dataset(dataset)
    assert coreset_bytes(pickle.loads(pickle.dumps(source))) == coreset_bytes(source)
    same_order = open_dataset(dataset.to_table())
    assert packed(all_rows(source)) == packed(all_rows(same_order)) and source.n_rows == 2000
    only = open_dataset(dataset.filter(ds.field("c") == "u"))
    assert only.n_rows == table.to_pandas()["c"].eq("u").sum()
    older = deltalake.DeltaTable(tmp_path / "t", version=0).to_pyarrow_dataset()
    assert open_dataset(older).n_rows == 1500


# -- queries that can be run again ---------------------------------------------------------------


def relation(folder):
    duckdb = pytest.importorskip("duckdb", reason="relations of DuckDB are tested where it is installed")
    return duckdb.connect().sql(f"select * from read_parquet('{folder}/*.parquet')")


def lazy_frame(folder):
    return pl.scan_parquet(folder / "*.parquet")


@pytest.mark.parametrize("query", [relation, lazy_frame])
def test_a_query_gives_the_bits_of_the_frame(folder, query) -> None:
    native = query(folder)
    frame = open_dataset(pl.read_parquet(folder / "*.parquet"), target="y")
    source = open_dataset(native, target="y")
    assert source.replayable and source.schema == frame.schema and source.n_rows == source.count() == 2400
    assert coreset_bytes(source) == coreset_bytes(frame)
    for first in (0, 2):
        leaves, expected = ([packed(t()) for t in s.tasks(first, leaf_rows=500)] for s in (source, frame))
        assert leaves == expected
    next(source.tasks(leaf_rows=10))()  # a pass that ends early
    assert source.classes().tolist() == [0, 1] and source.identity == open_dataset(query(folder), target="y").identity
    models = [CoresetLogisticRegression(random_state=0).fit(rows) for rows in (source, frame)]
    assert np.array_equal(models[0].coef_, models[1].coef_)


def test_a_sample_for_the_schema_of_a_long_query(monkeypatch) -> None:
    monkeypatch.setattr(frames, "SCHEMA_ROWS", 900)
    monkeypatch.setattr(frames, "_RUN_ROWS", 10)
    frame = pl.DataFrame({"a": np.arange(10_000.0) ** 0.5, "c": ["u", "v"] * 5000})
    source = open_dataset(frame.lazy())
    assert 450 <= source.schema.n_rows <= 900 and source.is_sampled and source.n_rows == 10_000
    assert len(all_rows(source)) == 10_000
    survey = frames.Query(frame.lazy()).survey
    assert survey.sample.column("a")[-1].as_py() > 98  # rows from all over


def test_a_query_that_gives_other_rows() -> None:
    frame, n_rows = pl.from_arrow(a_table(2400, 0)), [2400]
    native = frame.lazy().map_batches(lambda rows: rows.head(n_rows[0]))
    source = open_dataset(native)
    n_rows[0] = 1600
    with pytest.raises(FileFormatError, match="gave 2400 rows at first and 1600 in a later run"):
        all_rows(source)
    with pytest.raises(NoRowsError, match="the lazy frame gives none"):
        open_dataset(native.filter(pl.col("a") > 99))


def test_iceberg(tmp_path) -> None:
    pytest.importorskip("pyiceberg.table", reason="tables of Iceberg are tested where pyiceberg is installed")
    sql = pytest.importorskip("pyiceberg.catalog.sql", reason="pyiceberg[sql-sqlite] is not installed")
    catalog = sql.SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("n")
    rows = a_table(2000, 0)
    table = catalog.create_table("n.t", schema=rows.schema)
    with pytest.raises(NoRowsError, match="the Iceberg table gives none"):
        open_dataset(table)
    table.append(rows.slice(0, 1500))
    table.append(rows.slice(1500))
    source, scan = open_dataset(table), open_dataset(table.scan())
    frame = open_dataset(table.scan().to_arrow())
    assert source.replayable and source.n_rows == 2000 and source.identity == scan.identity
    assert coreset_bytes(source) == coreset_bytes(scan) == coreset_bytes(frame)
    table.append(rows)
    assert len(all_rows(source)) == 2000 and open_dataset(table).n_rows == 4000  # each its snapshot
    some = open_dataset(table.scan(row_filter="c = 'u'", selected_fields=("a",)), scale="none")
    assert some.feature_names == ["a"] and some.n_rows == 2 * rows.to_pandas()["c"].eq("u").sum()


# -- streams that come once ----------------------------------------------------------------------


class _Stream:
    """An object with an Arrow stream, as other packages have them."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.to_reader(max_chunksize=700).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("make", [lambda table: table.to_reader(max_chunksize=333), _Stream])
def test_a_reader_is_read_once(make) -> None:
    table = a_table(6000, 0)
    source = open_dataset(make(table))
    assert not source.replayable and source.n_rows is None
    known = open_dataset(table, schema=source.schema)
    assert packed(all_rows(source)) == packed(all_rows(known))
    with pytest.raises(ValueError, match="The Arrow stream has been read already"):
        next(source.tasks())
    with pytest.raises(ValueError, match="classes of the Arrow stream are not known"):
        source.classes()


def test_readers_that_break_off_or_are_empty() -> None:
    table = a_table(9000, 0)

    def batches():
        yield from table.to_batches(max_chunksize=5000)
        raise OSError("connection lost")

    with pytest.raises(FileFormatError, match=r"The Arrow stream broke off after row 9000: .*connection lost"):
        open_dataset(pa.RecordBatchReader.from_batches(table.schema, batches()))
    with pytest.raises(NoRowsError, match="the Arrow stream is empty"):
        open_dataset(table.slice(0, 0).to_reader())


def test_a_reader_of_duckdb(folder) -> None:
    source = open_dataset(relation(folder).to_arrow_reader(500), target="y")
    assert len(all_rows(source)) == 2400


@pytest.mark.parametrize("where", [7, None, [7], object()])
def test_what_cannot_be_opened_is_told(where) -> None:
    with pytest.raises(ValueError, match=r"(int|NoneType|object) is nothing that open_dataset reads: give it paths"):
        open_dataset(where)
