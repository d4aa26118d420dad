"""Sources of tables: what they leave out, and schemas that are given to them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from example_table import typed_table

from tithe import CoresetKMeans, CoresetLogisticRegression, CoresetSearchCV, build_coreset, open_dataset, save_coreset
from tithe.core.errors import FileFormatError
from tithe.rows import datasets
from tithe.rows.learn import SAMPLE_ROWS
from tithe.storage.coresets import load_coreset, load_schema


def rows_of(source, leaf_rows=None):
    return [task() for task in source.tasks(leaf_rows=leaf_rows)]


def test_rows_of_a_frame_leaf_by_leaf():
    frame = typed_table(100).to_pandas()
    source = open_dataset(frame, weight="income")
    blocks = rows_of(source, 30)
    assert [len(block) for block in blocks] == [30, 30, 30, 10]
    assert (np.concatenate([block.row_ids() for block in blocks]) == np.arange(100)).all()
    assert (np.concatenate([block.sample_weight for block in blocks]) == frame["income"]).all()
    assert "income" not in source.feature_names
    sample = source.sample(20, rng=np.random.default_rng(0))
    whole = np.concatenate([block.X for block in blocks])
    assert (whole[sample.row_ids()] == sample.X).all()
    assert source.identity == open_dataset(frame.copy(), weight="income").identity
    assert source.identity != open_dataset(frame.assign(age=1), weight="income").identity
    with pytest.raises(ValueError, match="no rows"):
        open_dataset(frame[:0])


def test_rows_without_a_target_are_left_out():
    frame = pd.DataFrame({"a": [1.0, 2.0, 4.0, 8.0], "y": ["u", None, "NA", "v"]})
    source = open_dataset(frame, target="y")
    (block,) = rows_of(source)
    assert block.row_ids().tolist() == [0, 3] and block.y.tolist() == ["u", "v"]
    assert source.classes().tolist() == ["u", "v"]
    with pytest.raises(ValueError, match="All 4 rows of 'the frame' are bad"):
        rows_of(open_dataset(frame.assign(y=None), target="y"))


def test_rows_with_gaps_can_be_refused():
    frame = pd.DataFrame({"a": [1.0, np.nan, 4.0], "b": ["x", "y", "x"]})
    with pytest.raises(ValueError, match=r"'the frame', row 1 .*column 'a' is missing"):
        rows_of(open_dataset(frame, impute="none"))
    (block,) = rows_of(open_dataset(frame, impute="none", bad_rows="skip"))
    assert block.row_ids().tolist() == [0, 2]


def test_a_schema_stands_in_place_of_options():
    frame = typed_table(60).to_pandas()
    schema = open_dataset(frame).schema
    for options in ({"scale": "none"}, {"exclude": ["age"]}, {"columns": ["age"]}):
        with pytest.raises(ValueError, match="not both"):
            open_dataset(frame, schema=schema, **options)


def test_options_for_tables_are_refused_elsewhere(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    with pytest.raises(ValueError, match="for tables"):
        open_dataset(tmp_path / "x.npy", exclude=["a"])


def test_excluded_columns_are_not_read(tmp_path):
    pq.write_table(pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [5.0, 9.0], "b": ["x", "y"]}), tmp_path / "2.parquet")  # another type of b
    source = open_dataset(tmp_path, exclude=["b"])
    assert source.feature_names == ["a"] and ("b", "excluded", "left out") in source.schema.describe()
    with pytest.raises(ValueError, match="'b' is double in"):
        open_dataset(tmp_path)


def test_a_sample_of_many_row_groups_reads_their_beginnings(tmp_path, monkeypatch):
    n = 2 * SAMPLE_ROWS
    table = pa.table({"x": np.arange(n) % 1000 / 7, "part": np.repeat(np.arange(32), n // 32).astype(str)})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=n // 32)
    read = []
    batches = datasets.DatasetSource._batches

    def counted(self, *args, **options):
        for batch in batches(self, *args, **options):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(datasets.DatasetSource, "_batches", counted)
    source = open_dataset(tmp_path, columns=["x", "part"], scale="none")
    assert sum(read) == SAMPLE_ROWS == source.schema.n_rows
    few = open_dataset(pq.read_table(tmp_path / "t.parquet"), columns=["x", "part"])
    assert few.schema.n_rows == SAMPLE_ROWS


def test_files_of_one_table_agree_on_types(tmp_path):
    dates = pa.array([1, 2, 3]).cast(pa.timestamp("s"))
    parts = [
        {"n": pa.array([1, 2, 3], pa.int8()), "d": dates, "t": ["a", "b", "a"]},
        {"n": [0.5, 1.5, 2.5], "d": dates.cast(pa.timestamp("ns")), "t": pa.array(["b", "b", "c"]).dictionary_encode()},
        {"n": pa.nulls(3), "d": dates.cast(pa.date32()), "t": pa.nulls(3)},
    ]
    for i, part in enumerate(parts):
        pq.write_table(pa.table(part), tmp_path / f"{i}.parquet")
    source = open_dataset(tmp_path, scale="none", dates="number")
    X = np.concatenate([block.X for block in rows_of(source, 2)])
    assert source.feature_names == ["n", "n missing", "d", "t=a", "t=b", "t=c", "t missing"]
    assert X[:, 0].tolist() == [1, 2, 3, 0.5, 1.5, 2.5, 1.75, 1.75, 1.75]
    assert X[2, 2] == 3 / 86_400 and X[-1].tolist()[-4:] == [0, 0, 0, 1]


def test_schema_of_a_coreset_file(tmp_path):
    source = open_dataset(typed_table(300))
    coreset = build_coreset(source, objective="generic", coreset_size=50, random_state=0)
    save_coreset(coreset, tmp_path / "c.parquet", schema=source.schema)
    assert load_schema(tmp_path / "c.parquet") == source.schema
    assert pq.read_schema(tmp_path / "c.parquet").names[: source.n_features] == source.feature_names
    save_coreset(coreset, tmp_path / "c.parquet")  # the coreset knows it, too
    assert load_schema(tmp_path / "c.parquet") == source.schema == coreset.schema
    assert load_coreset(tmp_path / "c.parquet").schema == source.schema
    with pytest.raises(ValueError, match="of other rows"):
        save_coreset(coreset, tmp_path / "c.parquet", schema=open_dataset(pd.DataFrame({"a": [1.0, 2.0]})).schema)
    (tmp_path / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(FileFormatError, match="Parquet"):
        load_schema(tmp_path / "x.parquet")


def test_a_source_with_another_schema_is_not_certified_on():
    table = typed_table(200)
    model = CoresetKMeans(2, random_state=0).fit(open_dataset(table))
    assert model.certify(open_dataset(table.slice(0, 50), schema=model.schema_)).value > 0
    with pytest.raises(ValueError, match=r"schema=model\.schema_"):
        model.certify(open_dataset(table.slice(0, 50)))


def test_a_search_hands_its_schema_to_the_winner():
    table = typed_table(300)
    frame = table.select(["age", "income", "colour", "member"]).to_pandas()
    y = (table.column("income").to_numpy() > 20_000).astype(int)
    search = CoresetSearchCV(CoresetLogisticRegression(random_state=0), {"C": [0.1, 1.0]}, cv=2, random_state=0)
    search.fit(frame, y)
    assert search.predict(frame.iloc[:, ::-1]).shape == (300,)
    assert search.best_estimator_.schema_ == search.schema_


def test_text_that_is_no_utf8_is_named_when_a_schema_is_learned(tmp_path):
    table = pa.table({"x": [1.0, 2.0, 4.0], "t": ["some", "words", "some"]})
    pq.write_table(table, tmp_path / "t.parquet", compression="none", use_dictionary=False, write_statistics=False)
    data = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(data.replace(b"words", b"wor\xffs"))
    with pytest.raises(FileFormatError, match=r"t\.parquet', row group 0"):
        open_dataset(tmp_path / "t.parquet")
