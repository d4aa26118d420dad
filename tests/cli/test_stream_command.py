"""``tithe stream``: rows as they come, a state to go on from, and deletion."""

from __future__ import annotations

import io
import shlex
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from running import PLAIN, generation, rows_table, run, same_rows, sha, start

from tithe import CoresetStream, load_coreset

OPTIONS = ["--target", "label", "-k", 3, "-m", 100, "--leaf-size", 500, *PLAIN]


def give(monkeypatch, table) -> None:
    """Let the rows come through standard input."""
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(table, buffer)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(buffer.getvalue())))


def test_rows_in_two_runs_are_rows_in_one(tmp_path, monkeypatch, capsys) -> None:
    table = rows_table(4000)
    for name, cuts in {"once": [0, 4000], "twice": [0, 1700, 4000]}.items():
        out = tmp_path / f"{name}.parquet"
        for first, last in pairwise(cuts):
            give(monkeypatch, table.slice(first, last - first))
            assert run("stream", "-", *OPTIONS, "-o", out, *["--resume"] * (first > 0)) == 0
        said = capsys.readouterr()
        assert "4,000" in said.out and "--resume" in said.err
    assert same_rows(tmp_path / "once.parquet", tmp_path / "twice.parquet")
    assert load_coreset(tmp_path / "once.parquet").n_seen == 4000


def test_files_with_a_window(tmp_path, capsys) -> None:
    pyarrow.csv.write_csv(rows_table(6000), tmp_path / "rows.csv")
    out = tmp_path / "c.parquet"
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "--window", 2000, "-o", out) == 0
    coreset = load_coreset(out)
    assert 2000 <= coreset.n_seen <= 2500 and coreset.row_ids().min() >= 3500
    assert "only these" in capsys.readouterr().err


def test_rows_fade(tmp_path) -> None:
    pyarrow.csv.write_csv(rows_table(6000), tmp_path / "rows.csv")
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "--half-life", 500, "-o", tmp_path / "c.parquet") == 0
    assert load_coreset(tmp_path / "c.parquet").weight_seen == pytest.approx(1 / (1 - 2 ** (-1 / 500)), rel=1e-3)


def test_the_coreset_is_written_meanwhile(tmp_path, monkeypatch, small_leaves) -> None:
    from tithe.cli import stream

    written = []
    write = stream._Keeper.write
    monkeypatch.setattr(stream._Keeper, "write", lambda self: written.append(self.running.n_rows) or write(self))
    pyarrow.csv.write_csv(rows_table(5000), tmp_path / "rows.csv")
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "--write-every", 1500, "-o", tmp_path / "c.parquet") == 0
    assert len(written) == 3 and written[-1] == 5000


def test_rows_are_forgotten(tmp_path, capsys) -> None:
    pyarrow.csv.write_csv(rows_table(3200), tmp_path / "rows.csv")
    out, leaves, ids = tmp_path / "c.parquet", tmp_path / "leaves", tmp_path / "ids.txt"
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "--keep-leaves", leaves, "-o", out) == 0
    gone = load_coreset(out).row_ids()[:20]
    ids.write_text("\n".join(map(str, gone)) + "\n")
    capsys.readouterr()
    assert run("stream", "-o", out, "--resume", "--forget", ids) == 0
    assert "20 rows were forgotten" in capsys.readouterr().err
    coreset = load_coreset(out)
    assert coreset.n_seen == 3180 and not np.isin(gone, coreset.row_ids()).any()
    ids.write_text("1\ntwo\n")
    assert run("stream", "-o", out, "--resume", "--forget", ids) == 2
    assert "one a line" in capsys.readouterr().err


@pytest.mark.parametrize("n_rows", [3200, 300])  # leaves and a rest; a rest alone
def test_all_rows_are_forgotten(tmp_path, monkeypatch, capsys, n_rows: int) -> None:
    pyarrow.csv.write_csv(rows_table(n_rows), tmp_path / "rows.csv")
    out, leaves, ids = tmp_path / "c.parquet", tmp_path / "leaves", tmp_path / "ids.txt"
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "--keep-leaves", leaves, "-o", out) == 0
    ids.write_text("\n".join(map(str, range(n_rows))))
    capsys.readouterr()
    assert run("stream", "-o", out, "--resume", "--forget", ids) == 0
    said = capsys.readouterr().err
    assert f"{n_rows:,} rows were forgotten" in said and "removed" in said and "--resume" in said
    assert not out.exists() and (tmp_path / "c.parquet.checkpoint" / "state.tithe").exists()
    give(monkeypatch, rows_table(700))
    assert run("stream", "-", "--target", "label", "-o", out, "--resume") == 0
    coreset = load_coreset(out)
    assert coreset.n_seen == 700 and coreset.row_ids().min() >= n_rows


def test_forgotten_rows_are_gone_even_if_later_ones_are_bad(tmp_path, capsys) -> None:
    table = rows_table(3200)
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    out, ids = tmp_path / "c.parquet", tmp_path / "ids.txt"
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "--keep-leaves", tmp_path / "leaves", "-o", out) == 0
    gone = load_coreset(out).row_ids()[:20]
    ids.write_text("\n".join(map(str, gone)))
    (tmp_path / "more.csv").write_text("c0,c1,c2,c3,label\n1,2,3,nan,no\n")
    assert run("stream", tmp_path / "more.csv", "--target", "label", "-o", out, "--resume", "--forget", ids) == 2
    assert "row 0" in capsys.readouterr().err
    assert not np.isin(gone, load_coreset(out).row_ids()).any()


@pytest.mark.slow
def test_rows_of_files_are_taken_once(tmp_path, capsys) -> None:
    for name, table in {"whole": rows_table(40_000), "other": rows_table(500, seed=1)}.items():
        pyarrow.csv.write_csv(table, tmp_path / f"{name}.csv")
    whole, out, checkpoint = tmp_path / "whole.parquet", tmp_path / "c.parquet", tmp_path / "c.parquet.checkpoint"
    assert run("stream", tmp_path / "whole.csv", *OPTIONS, "-o", whole) == 0
    process = start("stream", tmp_path / "whole.csv", *OPTIONS, "--checkpoint-every", 0, "-o", out)
    while process.poll() is None and generation(checkpoint) < 5:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    again = ["stream", tmp_path / "whole.csv", "--target", "label", "--resume", "-o", out]
    capsys.readouterr()
    assert run(*again) == 0  # in leaves of another size
    assert "are in already" in capsys.readouterr().err
    assert load_coreset(out).n_seen == 40_000 and sha(out) == sha(whole)
    assert run(*again) == 0 and sha(out) == sha(whole)
    assert run(*again, "--bad-rows", "skip") == 0 and sha(out) == sha(whole)
    capsys.readouterr()
    again[1] = tmp_path / "other.csv"
    assert run(*again) == 0 and load_coreset(out).n_seen == 40_500
    assert "others than before" in capsys.readouterr().err


def test_a_stopped_stream_of_files_goes_on_with_its_leaves(tmp_path, capsys, small_leaves, monkeypatch) -> None:
    from tithe import CoresetStream

    pyarrow.csv.write_csv(rows_table(5000), tmp_path / "rows.csv")
    whole, out = tmp_path / "whole.parquet", tmp_path / "c.parquet"
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "-o", whole) == 0
    push, n_pushes = CoresetStream.push, []

    def interrupted(self, *rows, **more):
        n_pushes.append(len(rows[0]))
        if len(n_pushes) == 3:
            signal.raise_signal(signal.SIGTERM)
        return push(self, *rows, **more)

    monkeypatch.setattr(CoresetStream, "push", interrupted)
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "-o", out) == 130
    said = capsys.readouterr().err
    assert "Go on with: tithe stream" in said
    assert run(*shlex.split(said.partition("Go on with: ")[2])[1:]) == 0
    assert n_pushes == [1000] * 5 and sha(out) == sha(whole)


def test_a_folder_may_grow(tmp_path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    table = rows_table(3000)
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "-o", tmp_path / "whole.parquet") == 0
    for i in range(3):
        pyarrow.csv.write_csv(table.slice(1000 * i, 1000), folder / f"{i}.csv")
        assert run("stream", folder, *OPTIONS, "-o", tmp_path / "c.parquet", *["--resume"] * (i > 0)) == 0
    assert same_rows(tmp_path / "c.parquet", tmp_path / "whole.parquet")


def test_all_rows_are_bad(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,\n" * 1200)
    command = ["stream", tmp_path / "rows.csv", "--bad-rows", "skip", *PLAIN, "-o", tmp_path / "c.parquet"]
    assert run(*command) == 2
    assert "All 1,200 rows" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "rows.csv").read_bytes())))
    command[1] = "-"
    assert run(*command) == 2
    assert "All rows of standard input are bad" in capsys.readouterr().err


def test_what_was_not_kept_is_not_forgotten_dishonestly(tmp_path, capsys) -> None:
    pyarrow.csv.write_csv(rows_table(3200), tmp_path / "rows.csv")
    out = tmp_path / "c.parquet"
    assert run("stream", tmp_path / "rows.csv", *OPTIONS, "-o", out) == 0
    before = sha(out)
    (tmp_path / "ids.txt").write_text("3")
    assert run("stream", "-o", out, "--resume", "--forget", tmp_path / "ids.txt") == 2
    assert "honestly" in capsys.readouterr().err and sha(out) == before


@pytest.mark.parametrize(
    "more",
    [
        [],  # a stream is there already
        ["--resume", "-k", 5],
        ["--resume", "--objective", "logistic"],
        ["--resume", "-C", 2],
        ["--resume", "-m", 99],
        ["--resume", "--window", 5000],
        ["--resume", "--columns", "c0,c1,c2"],
        ["--resume", "--columns", "c1,c0,c2,c3"],
        ["--resume", "--forget", "missing.txt"],
        ["--resume", "--checkpoint", "elsewhere"],
        ["--forget", "ids.txt"],
    ],
)
def test_what_does_not_fit_the_stream_is_refused(tmp_path, monkeypatch, capsys, more) -> None:
    monkeypatch.chdir(tmp_path)
    pyarrow.csv.write_csv(rows_table(1000), "rows.csv")
    assert run("stream", "rows.csv", *OPTIONS, "-o", "c.parquet") == 0
    before = sha(Path("c.parquet")), generation(Path("c.parquet.checkpoint"))
    capsys.readouterr()
    assert run("stream", "rows.csv", "--target", "label", *more, "-o", "c.parquet") == 2
    assert capsys.readouterr().err.strip()
    assert (sha(Path("c.parquet")), generation(Path("c.parquet.checkpoint"))) == before


@pytest.mark.parametrize("objective", ["logistic", "margin"])
def test_classes_of_files_are_known_and_others_must_be_told(tmp_path, monkeypatch, objective: str) -> None:
    table = rows_table(3000).sort_by("label")
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    options = ["--objective", objective, "--target", "label", "-m", 100, "--leaf-size", 500, *PLAIN]
    assert run("stream", tmp_path / "rows.csv", *options, "-o", tmp_path / "file.parquet") == 0
    give(monkeypatch, table)
    assert run("stream", "-", *options, "-o", tmp_path / "blind.parquet") == 2
    give(monkeypatch, table)
    assert run("stream", "-", *options, "--classes", "no,yes", "-o", tmp_path / "told.parquet") == 0
    assert sha(tmp_path / "told.parquet") == sha(tmp_path / "file.parquet")
    if objective == "margin":  # an option that says something else about the stream is refused
        again = ["stream", tmp_path / "rows.csv", "--target", "label", "--resume", "-o", tmp_path / "file.parquet"]
        assert run(*again, "--lam", 7) == 2


@pytest.mark.slow
def test_a_stream_that_waits_for_rows_is_stopped(tmp_path) -> None:
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(rows_table(30_000).drop(["label"]), buffer)
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "import tithe.rows.leaves; tithe.rows.leaves.LEAF_ROWS = 4096\n"
    program += "from tithe.cli.main import main; main()"
    arguments = ["stream", "-", "-k", "3", "-m", "100", "--leaf-size", "4096", "--checkpoint-every", "0"]
    arguments += ["-o", str(tmp_path / "c.parquet")]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stderr is not None
    process.stdin.write(buffer.getvalue())
    process.stdin.flush()
    while process.poll() is None and not generation(tmp_path / "c.parquet.checkpoint"):
        time.sleep(0.01)
    seen, since = 0, time.monotonic()
    while process.poll() is None and time.monotonic() - since < 0.4:  # until it waits for more
        if generation(tmp_path / "c.parquet.checkpoint") != seen:
            seen, since = generation(tmp_path / "c.parquet.checkpoint"), time.monotonic()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    late = threading.Timer(60.0, process.kill)  # a signal that is lost is a failure, and no wait for ever
    late.start()
    said = process.stderr.read().decode()
    late.cancel()
    assert process.wait(60) == 130, said
    assert "Stopped" in said and "--resume" in said and "Traceback" not in said
    assert load_coreset(tmp_path / "c.parquet").n_seen >= 4096


@pytest.mark.slow
def test_rows_from_a_slow_pipe_are_seen_as_they_come(tmp_path) -> None:
    out, checkpoint = tmp_path / "c.parquet", tmp_path / "c.parquet.checkpoint"
    program = "from tithe.cli.main import main; main()"
    command = [sys.executable, "-c", program, "stream", "-", "-k", "2", "-m", "50", "-o", str(out)]
    process = subprocess.Popen(
        [*command, "--checkpoint-every", "0", "--write-every", "1000"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    text = "".join(f"{i},{i % 7}\n" for i in range(1000))  # the columns are learned from that many
    process.stdin.write(f"a,b\n{text}7,".encode())  # and a row that is not whole yet
    process.stdin.flush()
    for _ in range(600):
        if out.exists():  # it is written after the checkpoint
            break
        time.sleep(0.05)
    assert load_coreset(out).n_seen == 1000 and CoresetStream.resume(checkpoint).n_rows == 1000
    process.stdin.write(b"8\n")
    process.stdin.close()
    assert process.wait(30) == 0
    assert load_coreset(out).n_seen == 1001


def test_a_stream_may_write_csv_and_go_on(tmp_path) -> None:
    rows = rows_table(6000).drop_columns("label")
    for i in range(2):
        pq.write_table(rows[i * 3000 : (i + 1) * 3000], tmp_path / f"{i}.parquet")
    options = ["-k", 3, "-m", 100, "-o", tmp_path / "c.csv"]
    assert run("stream", tmp_path / "0.parquet", *options) == 0
    assert run("stream", tmp_path / "1.parquet", *options, "--resume") == 0
    header = (tmp_path / "c.csv").read_text().splitlines()[0]
    assert header == '"c0","c1","c2","c3","sample_weight","row_id"'
