"""``--engine`` and ``--scheduler``: what is said where Dask is missing, and the same file from a cluster."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from running import rows_table, run, sha, write_folder
from spark_session import require_spark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "data", rows_table(6000), 3)


def _build(folder: Path, output: Path, *options: Any) -> int:
    return run("build", folder, "--target", "label", "-k", 3, "-m", 100, "-o", output, *options)


def test_dask_that_is_not_installed_is_a_mistake_of_the_caller(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "tithe.engines.dask", raising=False)
    assert _build(folder, tmp_path / "c.parquet", "--engine", "dask") == 2
    assert "pip install 'tithe[dask]'" in capsys.readouterr().err
    assert run("fit", "kmeans", folder, "-k", 3, "-m", 100, "-o", tmp_path / "model", "--engine", "dask") == 2
    assert not (tmp_path / "c.parquet").exists()


def test_a_scheduler_is_for_dask_alone(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _build(folder, tmp_path / "c.parquet", "--scheduler", "tcp://127.0.0.1:9") == 2
    assert "--engine dask" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs pip install 'tithe[dask]'")
def test_no_scheduler_at_an_address(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tithe.cli.options._CONNECT_SECONDS", 1)
    options = ("--engine", "dask", "--scheduler", "tcp://127.0.0.1:9")
    assert _build(folder, tmp_path / "c.parquet", *options) == 2
    assert "no Dask scheduler at 'tcp://127.0.0.1:9'" in capsys.readouterr().err
    assert _build(folder, tmp_path / "c.parquet", *options, "-j", 2) == 2


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs pip install 'tithe[dask]'")
def test_a_cluster_for_the_run_and_one_that_is_there_give_the_same_file(folder: Path, tmp_path: Path) -> None:
    from distributed import LocalCluster

    assert _build(folder, tmp_path / "threads.parquet") == 0
    assert _build(folder, tmp_path / "local.parquet", "--engine", "dask", "-j", 2) == 0
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        options = ("--engine", "dask", "--scheduler", address)
        assert _build(folder, tmp_path / "there.parquet", *options, "--check") == 0
        fit = ("fit", "kmeans", folder, "--target", "label", "-k", 3, "-m", 100, "-o")
        assert run(*fit, tmp_path / "there", *options) == 0
    assert len({sha(tmp_path / f"{name}.parquet") for name in ("threads", "local", "there")}) == 1
    assert run(*fit, tmp_path / "here") == 0
    assert sha(tmp_path / "there" / "coreset.parquet") == sha(tmp_path / "here" / "coreset.parquet")


@pytest.mark.slow
def test_spark_gives_the_same_file(folder: Path, tmp_path: Path) -> None:
    require_spark()
    assert _build(folder, tmp_path / "threads.parquet") == 0
    assert _build(folder, tmp_path / "spark.parquet", "--engine", "spark", "--master", "local[2]") == 0
    assert sha(tmp_path / "threads.parquet") == sha(tmp_path / "spark.parquet")
