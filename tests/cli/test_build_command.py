"""``tithe build`` on files: what it reads, what it says, and what it leaves behind when things go wrong."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from running import PLAIN, generation, rows_table, run, sha, write_folder

from tithe import CoresetStream, load_coreset, open_dataset
from tithe.objectives import KMeansObjective


def give(monkeypatch, data: bytes) -> None:
    """Let it come through standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture
def folder(tmp_path) -> Path:
    return write_folder(tmp_path / "data", rows_table(12_000), 3)


def test_a_folder_a_pattern_and_a_list_are_the_same(folder, tmp_path, small_leaves) -> None:
    asked = {
        "folder": [folder],
        "pattern": [f"{folder}/*.parquet"],
        "list": sorted(folder.iterdir()),
        "threads": [folder, "-j", 3],
    }
    for name, where in asked.items():
        assert run("build", *where, "--target", "label", "-k", 3, "-m", 200, "-o", tmp_path / f"{name}.parquet") == 0
    assert len({sha(tmp_path / f"{name}.parquet") for name in asked}) == 1
    coreset = load_coreset(tmp_path / "folder.parquet")
    assert coreset.n_seen == 12_000 and len(coreset) <= 200 and coreset.row_ids().max() > 11_000
    assert not list(tmp_path.glob("*.checkpoint"))


def test_two_hundred_files(tmp_path, capsys) -> None:
    folder = write_folder(tmp_path / "data", rows_table(20_000), 200)
    assert run("build", folder, "--target", "label", "-k", 3, "-m", 300, "--check", "-o", tmp_path / "c.parquet") == 0
    assert "20,000" in capsys.readouterr().out
    assert load_coreset(tmp_path / "c.parquet").n_seen == 20_000


def test_csv_through_standard_input_is_a_stream_of_the_rows_of_the_file(tmp_path, monkeypatch) -> None:
    pyarrow.csv.write_csv(rows_table(3000), tmp_path / "rows.csv")
    give(monkeypatch, (tmp_path / "rows.csv").read_bytes())
    assert run("build", "-", "--target", "label", "-k", 3, "-m", 100, "-o", tmp_path / "piped.parquet") == 0
    piped = load_coreset(tmp_path / "piped.parquet")
    stream = CoresetStream(KMeansObjective(n_clusters=3), coreset_size=100, random_state=0)
    for task in open_dataset(tmp_path / "rows.csv", target="label").tasks():
        stream.push(task().X)
    expected = stream.coreset()
    assert piped.n_seen == 3000 and np.array_equal(piped.row_ids(), expected.row_ids())
    assert np.array_equal(piped.X, expected.X) and np.array_equal(piped.weights(), expected.weights())


@pytest.mark.slow
def test_a_real_pipe(tmp_path) -> None:
    pyarrow.csv.write_csv(rows_table(3000), tmp_path / "rows.csv")
    tithe = f"{sys.executable} -c 'from tithe.cli.main import main; main()'"
    command = f"cat rows.csv | {tithe} build - --objective logistic --target label --classes no,yes -m 100 -o c.parquet"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(load_coreset(tmp_path / "c.parquet").y) == {"no", "yes"}


@pytest.mark.parametrize("more", [[], ["-m", "0.1"], ["-m", "50", "--dry-run"], ["-m", "50", "--check"]])
def test_standard_input_cannot_be_looked_at_twice(tmp_path, monkeypatch, capsys, more) -> None:
    give(monkeypatch, b"a,b\n" + b"1,2\n3,4\n" * 100)
    assert run("build", "-", *more, "-o", tmp_path / "c.parquet") == 2
    assert capsys.readouterr().err.strip() and not list(tmp_path.iterdir())


def test_the_size_is_chosen_for_an_error(folder, tmp_path, capsys) -> None:
    for eps in (0.05, 0.3):
        out = tmp_path / f"{eps}.parquet"
        assert run("build", folder, "--target", "label", "-k", 3, "--eps", eps, "-o", out) == 0
        assert f"for an error of {eps}" in capsys.readouterr().out
    assert len(load_coreset(tmp_path / "0.05.parquet")) >= len(load_coreset(tmp_path / "0.3.parquet"))


@pytest.mark.parametrize("objective", ["kmeans", "logistic", "generic"])
def test_a_dry_run_says_what_it_takes_and_writes_nothing(folder, tmp_path, capsys, objective: str) -> None:
    command = ["build", folder, "--target", "label", "--objective", objective, "-o", tmp_path / "c.parquet"]
    assert run(*command, "--dry-run") == 0
    printed = capsys.readouterr().out
    for word in ("12,000", "leaves", "peak memory", "passes", "time, about", "rows to keep", "kB"):
        assert word in printed
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_a_dry_run_guesses_the_rows_of_text(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tithe.rows.delimited.SCHEMA_ROWS", 1000)  # with fewer rows, all were read
    pyarrow.csv.write_csv(rows_table(3000).drop(["label"]), tmp_path / "rows.csv")
    assert run("build", tmp_path / "rows.csv", "-m", 100, "-o", tmp_path / "c.parquet", "--dry-run") == 0
    assert "about 3,0" in capsys.readouterr().out


def test_it_says_what_becomes_of_a_checkpoint(folder, tmp_path, capsys) -> None:
    command = ["build", folder, "--target", "label", "-m", 200, "-o", tmp_path / "c.parquet"]
    assert run(*command, "--resume") == 0
    assert "starting from the beginning" in capsys.readouterr().err
    (tmp_path / "c.parquet.checkpoint").mkdir()
    assert run(*command) == 0
    assert "Starting anew" in capsys.readouterr().err
    assert not (tmp_path / "c.parquet.checkpoint").exists()


# -- the caller's mistakes ---------------------------------------------------------------------


def damaged(folder: Path, how: str) -> None:
    last = max(folder.iterdir())
    table = pq.read_table(last)
    if how == "truncated":
        last.write_bytes(last.read_bytes()[:-100])
    elif how == "no rows":
        for file in folder.iterdir():
            pq.write_table(table.slice(0, 0), file)
    elif how == "empty folder":
        for file in folder.iterdir():
            file.unlink()
    elif how == "other type":
        pq.write_table(table.set_column(0, "c0", pa.array(["x"] * len(table))), last)
    elif how == "missing column":
        pq.write_table(table.drop(["c2"]), last)
    elif how == "nan":
        values = table["c1"].to_numpy().copy()
        values[7] = np.nan
        pq.write_table(table.set_column(1, "c1", pa.array(values)), last)
    elif how == "one class":
        for file in folder.iterdir():
            pq.write_table(table.set_column(4, "label", pa.array(["yes"] * len(table))), file)
    elif how == "mixed":
        (folder / "rows.csv").write_text("a\n1\n")


MISTAKES = {
    "truncated": "part-002.parquet",
    "no rows": "no rows",
    "empty folder": "no data file",
    "other type": "c0",
    "missing column": "c2",
    "nan": "row 7",
    "one class": "only one class",
    "mixed": "one format",
}


@pytest.mark.parametrize("how", MISTAKES)
def test_data_that_cannot_be_used_is_named(folder, tmp_path, capsys, how: str) -> None:
    damaged(folder, how)
    command = ["build", folder, "--objective", "logistic", "--target", "label", "-m", 100, "-o", tmp_path / "c.parquet"]
    assert run(*command, *PLAIN) == 2
    said = capsys.readouterr().err
    assert MISTAKES[how] in said and "Traceback" not in said and len(said.strip().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_bad_rows_are_named_or_skipped_and_counted(folder, tmp_path, capsys) -> None:
    damaged(folder, "nan")
    command = ["build", folder, "--target", "label", "-m", 100, *PLAIN, "-o", tmp_path / "c.parquet"]
    assert run(*command) == 2
    said = capsys.readouterr().err
    assert "part-002.parquet" in said and "row 7" in said and "'c1'" in said and "--bad-rows skip" in said
    assert run(*command, "--bad-rows", "skip") == 0
    assert load_coreset(tmp_path / "c.parquet").n_seen == 11_999
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["rows", "left", "out", "(bad,", "or", "without", "a", "target)", "1"] in lines


@pytest.mark.parametrize("way", ["build", "fit"])
def test_bad_rows_of_text_are_counted(tmp_path, capsys, way) -> None:
    lines = [f"{i},{i % 7}" for i in range(3000)]
    lines[17], lines[2999] = "nan,1", "4,"
    (tmp_path / "rows.csv").write_text("a,b\n" + "\n".join(lines) + "\n")
    command = [way, *(["kmeans"] if way == "fit" else []), tmp_path / "rows.csv", "-k", 2, "-m", 100]
    assert run(*command, "--bad-rows", "skip", *PLAIN, "-o", tmp_path / "out") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["rows", "left", "out", "(bad,", "or", "without", "a", "target)", "2"] in lines


def test_a_file_that_vanishes_is_named(folder, tmp_path, capsys, monkeypatch) -> None:
    from tithe.cli import build

    def vanish(*args, **kwargs):
        (folder / "part-001.parquet").unlink()
        return 100, "asked for"

    monkeypatch.setattr(build, "choose_size", vanish)
    command = ["build", folder, "--target", "label", "-m", 100, "-o", tmp_path / "c.parquet"]
    assert run(*command) == 2
    said = capsys.readouterr().err
    assert "part-001.parquet" in said and "vanished" in said
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("where", "output"),
    [
        (["data"], "data/c.parquet"),  # would be read the next time
        (["data/*.parquet"], "data/c.parquet"),
        (["data/part-000.parquet"], "data/part-000.parquet"),
        (["data"], "no/such/folder/c.parquet"),
        (["data"], "data"),
        (["data", "-"], "c.parquet"),
        (["data/none-*.parquet"], "c.parquet"),
        ([], "c.parquet"),
    ],
)
def test_places_that_cannot_be_right(folder, tmp_path, monkeypatch, capsys, where, output) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in tmp_path.rglob("*"))
    assert run("build", *where, "--target", "label", "-m", 100, "-o", output) == 2
    assert capsys.readouterr().err.strip()
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


def test_text_becomes_columns(tmp_path) -> None:
    frame = pd.DataFrame({"a": np.arange(500.0), "colour": ["red", "green"] * 250})
    frame.to_parquet(tmp_path / "r.parquet")
    out = tmp_path / "c.parquet"
    assert run("build", tmp_path / "r.parquet", "-m", 50, "--categories", "error", "-o", out) == 2
    assert run("build", tmp_path / "r.parquet", "-m", 50, "--scale", "none", "-o", out) == 0
    assert list(pd.read_parquet(out).columns)[:3] == ["a", "colour=green", "colour=red"]
    assert run("build", tmp_path / "r.parquet", "-m", 50, "--columns", "a", "-o", out) == 0
    assert list(pd.read_parquet(out).columns)[:2] == ["a", "sample_weight"]


# -- a disk that is full -----------------------------------------------------------------------


def full_after(monkeypatch, n_writes: int) -> None:
    """So many checkpoints can be written, then the disk is full."""
    from tithe.storage import checkpoint

    pack, written = checkpoint.packed, 0

    def pack_or_fail(state: object, about: dict) -> bytes:
        nonlocal written
        written += 1
        if written > n_writes:
            raise OSError(28, "No space left on device")
        return pack(state, about)

    monkeypatch.setattr(checkpoint, "packed", pack_or_fail)


def test_a_full_disk_leaves_the_last_checkpoint(folder, tmp_path, monkeypatch, capsys, small_leaves) -> None:
    out, checkpoint = tmp_path / "c.parquet", tmp_path / "c.parquet.checkpoint"
    options = [folder, "--target", "label", "-k", 3, "-m", 200, "--checkpoint-every", 0]
    assert run("build", *options, "-o", tmp_path / "whole.parquet") == 0
    with monkeypatch.context() as patch:
        full_after(patch, 4)
        assert run("build", *options, "-o", out) == 1
    said = capsys.readouterr().err
    assert "No space left" in said and "--resume" in said and "Traceback" not in said
    assert not out.exists() and generation(checkpoint) == 4 and not list(checkpoint.glob(".*.tmp"))
    assert run("build", *options, "-o", out, "--resume") == 0
    assert sha(out) == sha(tmp_path / "whole.parquet") and not checkpoint.exists()


def test_a_full_disk_leaves_the_earlier_output(folder, tmp_path, monkeypatch, capsys, small_leaves) -> None:
    out = tmp_path / "c.parquet"
    command = ["build", folder, "--target", "label", "-m", 200, "-o", out, "--checkpoint-every", 0]
    assert run(*command) == 0
    before = sha(out)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tithe.storage.coresets.pq.write_table", full)
        assert run(*command, "--seed", 1) == 1
    assert sha(out) == before and (tmp_path / "c.parquet.checkpoint").is_dir()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.parquet", "c.parquet.checkpoint", "data"]
    assert run(*command, "--seed", 2, "--resume") == 2  # the state of another run
    assert "seed" in capsys.readouterr().err
    assert run(*command, "--seed", 1, "--resume") == 0 and sha(out) != before


def test_a_disk_that_really_is_full(folder, tmp_path, capsys) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", small], capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        command = ["build", folder, "--target", "label", "-m", 9000, "-o", small / "c.parquet"]
        assert run(*command) == 1
        assert "No space left" in capsys.readouterr().err and not list(small.iterdir())
        assert run(*command, "--checkpoint-every", 0) == 1
        assert "No space left" in capsys.readouterr().err and not list(small.rglob("*.npz"))
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("command", [["build", "-m", 10], ["build"], ["fit", "kmeans"]])
def test_all_rows_are_bad(tmp_path, capsys, ending: str, command: list[object]) -> None:
    frame = pd.DataFrame({"a": np.arange(1200.0), "b": np.nan})
    file = tmp_path / f"rows.{ending}"
    frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file)
    assert run(*command, file, "-k", 3, "--bad-rows", "skip", *PLAIN, "-o", tmp_path / "out") == 2
    assert "All 1,200 rows" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_run_does_not_go_on_with_other_rows(tmp_path, small_leaves, capsys, monkeypatch) -> None:
    def write(seed: int) -> int:
        X = np.random.default_rng(seed).integers(1000, 10_000, size=(12_000, 3))
        pd.DataFrame(X, columns=["a", "b", "c"]).to_csv(tmp_path / "rows.csv", index=False)
        return (tmp_path / "rows.csv").stat().st_size

    size = write(1)
    command = ["build", tmp_path / "rows.csv", "-k", 3, "-m", 100, "-o", tmp_path / "c.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr("tithe.storage.coresets.save_coreset", _full_disk)
        assert run(*command, "--checkpoint-every", 0) == 1
    assert generation(tmp_path / "c.parquet.checkpoint")
    assert write(2) == size
    capsys.readouterr()
    assert run(*command, "--resume") == 2
    assert "source differ" in capsys.readouterr().err


def _full_disk(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_output_whose_name_ends_in_csv_is_csv(tmp_path, capsys) -> None:
    pyarrow.csv.write_csv(rows_table(3000), tmp_path / "rows.csv")
    options = ["--target", "label", "-k", 3, "-m", 100]
    for name in ("c.parquet", "c.csv"):
        assert run("build", tmp_path / "rows.csv", *options, "-o", tmp_path / name) == 0
    coreset = load_coreset(tmp_path / "c.parquet")
    table = pyarrow.csv.read_csv(tmp_path / "c.csv").to_pandas()
    assert list(table) == ["c0", "c1", "c2", "c3", "y", "sample_weight", "row_id"]
    np.testing.assert_array_equal(table[["c0", "c1", "c2", "c3"]], coreset.X)
    np.testing.assert_array_equal(table["sample_weight"], coreset.weights())
    np.testing.assert_array_equal(table["row_id"], coreset.row_ids())
    assert table["y"].tolist() == coreset.y.tolist()
    assert run("inspect", tmp_path / "c.csv") == 2
    assert "is CSV" in capsys.readouterr().err


def test_a_sparse_coreset_as_csv(tmp_path) -> None:
    (tmp_path / "rows.svm").write_text("".join(f"{i % 2} 1:{i} {7 + i % 5}:0.5\n" for i in range(300)))
    assert run("build", tmp_path / "rows.svm", "-k", 2, "-m", 20, "-o", tmp_path / "c.csv") == 0
    table = pd.read_csv(tmp_path / "c.csv")
    assert list(table) == ["columns", "values", "y", "sample_weight", "row_id"]
    for columns, values, row in zip(table["columns"], table["values"], table["row_id"], strict=True):
        assert columns == f"0 {6 + row % 5}" and [float(v) for v in values.split()] == [row, 0.5]


def test_delimiter_and_header_are_options(tmp_path, capsys) -> None:
    text = "".join(f"{i} {i % 7}\n" for i in range(400))
    (tmp_path / "rows.csv").write_text(text)
    options = ["-k", 2, "-m", 30, *PLAIN, "-o", tmp_path / "c.csv"]
    assert run("build", tmp_path / "rows.csv", "--no-header", "--delimiter", " ", *options) == 0
    assert list(pd.read_csv(tmp_path / "c.csv"))[:2] == ["x0", "x1"]
    assert run("build", tmp_path / "rows.csv", "--delimiter", "::", *options) == 2
    assert "delimiter must be one ASCII character" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [("build", "rows.csv", "-k", 2), ("stream", "rows.csv", "-k", 2), ("merge", "a.parquet", "b.parquet")]
)
def test_a_format_that_is_not_written_is_refused_before_the_work(tmp_path, monkeypatch, capsys, command) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows.csv", "a.parquet", "b.parquet"):
        (tmp_path / name).write_text("a,b\n1,2\n")
    assert run(*command, "-o", "x.xlsx") == 2
    assert "coresets are written as .parquet or .csv" in capsys.readouterr().err and not (tmp_path / "x.xlsx").exists()
