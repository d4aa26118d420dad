"""The code of docs/clusters.md runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spark_session import environment, require_spark

pytestmark = pytest.mark.slow  # clusters take seconds to start

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"


def blocks(*, spark: bool) -> list[str]:
    """The Python of the page: that for Spark says so in its first line."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    return [block for block in found if block.startswith("# spark") == spark]


def run(code: str, folder: Path) -> None:
    script = folder / "page.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=540,
        env={**os.environ, **environment()},
    )
    assert done.returncode == 0, done.stderr[-3000:]


def indented(code: str) -> str:
    """The code as a main program, which the processes of a cluster do not run again."""
    lines = "".join(f"    {line}" for line in code.splitlines(keepends=True))
    return f"if __name__ == '__main__':\n{lines}"


def test_dask(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tithe[dask]'")
    code = blocks(spark=False)
    assert len(code) >= 6
    run(indented("\n".join(code)), tmp_path)


def test_spark(tmp_path: Path) -> None:
    require_spark()
    (code,) = blocks(spark=True)
    run(blocks(spark=False)[0] + code, tmp_path)
