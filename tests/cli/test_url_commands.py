"""Commands read what a URL names, and write to this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from running import run, same_rows
from stored_rows import write_years

from tithe.rows import stores


def test_commands_take_urls(bucket, tmp_path, monkeypatch, capsys) -> None:
    write_years(bucket / "rows")
    monkeypatch.chdir(tmp_path)
    assert run("build", bucket / "rows", "-k", 2, "-m", 60, "-o", "here.parquet") == 0
    assert run("build", "s3://bucket/rows", "-k", 2, "-m", 60, "-o", "there.parquet") == 0
    assert same_rows(tmp_path / "here.parquet", tmp_path / "there.parquet")
    options = ("-k", 2, "-m", 60, "--test", "s3://bucket/rows")
    assert run("fit", "kmeans", "s3://bucket/rows/*/*.parquet", *options, "-o", "fit") == 0
    assert run("predict", "fit/model.tithe", "s3://bucket/rows", "-o", "here.csv") == 0
    os.rename("fit/model.tithe", bucket / "model.tithe")
    assert run("predict", "s3://bucket/model.tithe", "s3://bucket/rows", "-o", "there.csv") == 0
    assert Path("here.csv").read_bytes() == Path("there.csv").read_bytes()
    os.rename("there.parquet", bucket / "coreset.parquet")
    capsys.readouterr()
    for name in ("s3://bucket/model.tithe", "s3://bucket/coreset.parquet", (bucket / "coreset.parquet").as_uri()):
        assert run("inspect", name) == 0 and "columns" in capsys.readouterr().out
    assert run("inspect", "s3://bucket/no.parquet") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("build", "rows.csv", "-m", 5, "-o", "s3://bucket/coreset.parquet"),
        ("build", "rows.csv", "-m", 5, "-o", "c.parquet", "--checkpoint", "s3://bucket/state"),
        ("fit", "kmeans", "rows.csv", "-k", 2, "-o", "gs://bucket/fit"),
        ("predict", "model.tithe", "rows.csv", "-o", "https://host/x.csv"),
        ("stream", "rows.csv", "-o", "file:///tmp/x.parquet"),
    ],
)
def test_results_are_written_to_this_machine(tmp_path, monkeypatch, capsys, arguments) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("a,b\n1,2\n3,4\n")
    assert run(*arguments) == 2
    assert "is a URL. Results are written to this machine" in capsys.readouterr().err


@pytest.mark.parametrize("message", ["ACCESS_DENIED", "NO_SUCH_BUCKET", "NETWORK_CONNECTION"])
def test_errors_of_a_store_are_a_callers_mistake(bucket, monkeypatch, capsys, message: str) -> None:
    def fail(self, path: str) -> None:
        with stores.clear_errors(path):
            raise OSError(f"AWS Error {message} during HeadObject operation")

    monkeypatch.setattr(stores.StoreFiles, "kind", fail)
    assert run("build", "s3://bucket/rows.csv", "-m", 9, "-o", "out.parquet") == 2
    assert "'s3://bucket/rows.csv'" in capsys.readouterr().err
