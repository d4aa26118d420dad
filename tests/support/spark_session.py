"""One Spark session for all tests of a process, with two executors, and work for them, which they import."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tithe
from tithe.core.data import Block
from tithe.core.passes import Sum
from tithe.rows.leaves import MappedSource

MASTER = "local-cluster[2,1,1024]"
PATHS = (str(Path(tithe.__file__).parents[1]), str(Path(__file__).parent))


def require_spark() -> None:
    """Skip a module where pyspark or Java is missing."""
    pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'tithe[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java: apt-get install default-jre-headless", allow_module_level=True)


def environment() -> dict[str, str]:
    """Variables with which workers find Python and the tests' tithe."""
    path = os.pathsep.join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
    # of a short run, most time would go into the second compiler of Java
    return {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}


def start_session() -> Any:
    """The session of this process. It ends with the process."""
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "4",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    return SparkSession.builder.master(MASTER).config(map=settings).getOrCreate()


def count_rows(leaf: Block, key: tuple[int, int]) -> Sum:
    return Sum(1, len(leaf), key)


def first_id(leaf: Block, key: tuple[int, int]) -> int:
    return int(leaf.row_ids()[0])


class Noting(MappedSource):
    """A source that notes in a file which leaves were asked for."""

    def __init__(self, source: Any, path: str) -> None:
        super().__init__(source, _same)
        self._path = path

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Any]:
        for number, task in enumerate(super().tasks(first, leaf_rows), first):
            with open(self._path, "a") as file:
                file.write(f"leaf {number}\n")
            yield task


def _same(leaf: Block) -> Block:
    return leaf
