"""What is no regular file is named and refused, and so are files all of whose rows are bad."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from plain_rows import open_dataset

from tithe import build_coreset
from tithe.cli.main import main
from tithe.engines.threads import ThreadEngine


def exit_code(*arguments: object) -> int:
    """How a command ends."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link"])
def test_special_files_are_named_and_refused(tmp_path, kind, monkeypatch) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    if kind == "pipe":
        os.mkfifo("b.csv")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as place:
            place.bind("b.csv")
    else:
        os.symlink("/dev/zero" if kind == "device" else "gone.csv", "b.csv")
    message = r"b\.csv' is a link to 'gone\.csv', which is not there" if kind == "link" else rf"b\.csv' is a {kind}"
    for where in (tmp_path, tmp_path / "*.csv", tmp_path / "b.csv", [tmp_path / "a.csv", tmp_path / "b.csv"]):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            open_dataset(where)
    os.rename("b.csv", "b.txt")  # no data file by its name
    assert open_dataset(tmp_path).n_features == 1
    with pytest.raises((ValueError, FileNotFoundError), match=message.replace("csv' is", "txt' is")):
        open_dataset(tmp_path, format="csv")


def test_a_pipe_on_the_command_line_is_not_waited_for(tmp_path, capsys) -> None:
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / "b.csv")
    assert exit_code("build", tmp_path / "data", "-m", 2, "-o", tmp_path / "out.parquet") == 2
    assert "b.csv' is a pipe" in capsys.readouterr().err


@pytest.mark.slow
def test_standard_input_by_its_path(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("a\n1\n2\n")
    program = "from tithe.rows.files import open_dataset as o; print(o('/dev/stdin', format='csv').count())"
    with open(tmp_path / "a.txt", "rb") as file:
        done = subprocess.run([sys.executable, "-c", program], stdin=file, capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "npy", "libsvm"])
def test_files_all_of_whose_rows_are_bad(tmp_path, ending) -> None:
    file = tmp_path / f"t.{ending}"
    frame = pd.DataFrame({"a": np.arange(300.0), "b": np.nan})
    if ending == "parquet":
        frame.to_parquet(file, row_group_size=100)
    elif ending == "npy":
        np.save(file, frame.to_numpy())
    elif ending == "libsvm":
        file.write_text("1 1:nan\n" * 300)
    else:
        frame.to_csv(file, index=False)
    message = rf"All 300 rows of .*t\.{ending}' are bad"
    for read in (list, lambda tasks: list(reversed(list(tasks)))):
        with pytest.raises(ValueError, match=message):
            [task() for task in read(open_dataset(file, bad_rows="skip").tasks())]
    with pytest.raises(ValueError, match=message):
        list(ThreadEngine(2).map(open_dataset(file, bad_rows="skip").tasks(), lambda block, number: len(block)))
    with pytest.raises(ValueError, match=message):
        build_coreset(open_dataset(file, bad_rows="skip"), objective="generic", coreset_size=5, construction="uniform")


def test_rows_that_are_all_bad_on_the_command_line(tmp_path, capsys) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,\n" * 9)
    plain = ("--bad-rows", "skip", "--scale", "none", "--impute", "none")
    assert exit_code("build", tmp_path / "t.csv", "-m", 2, *plain, "-o", tmp_path / "out.parquet") == 2
    assert "All 9 rows of" in capsys.readouterr().err and not (tmp_path / "out.parquet").exists()


def test_limits_are_raised_on_the_command_line(tmp_path, capsys) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1".zfill(200) + ",2\n" + "3,4\n" * 9)
    build = ("build", tmp_path / "t.csv", "-k", 2, "-m", 2, "-o", tmp_path / "out.parquet")
    for limit, message in (("row_bytes=100", "row 0"), ("columns=1", "the limit is 1."), ("rows=1", "NAME=NUMBER")):
        assert exit_code(*build, "--limit", limit) == 2
        assert message in capsys.readouterr().err
    assert exit_code(*build, "--limit", "row_bytes=500", "--limit", "columns=2") == 0
