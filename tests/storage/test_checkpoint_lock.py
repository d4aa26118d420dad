"""One run keeps a checkpoint's folder, and whoever is killed gives it back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tithe.storage.checkpoint import FolderLock


def test_a_folder_is_kept_by_one_run_at_a_time(tmp_path: Path) -> None:
    first = FolderLock(tmp_path / "state")
    with pytest.raises(ValueError, match=r"Another run writes to .*state.*: give this one another folder"):
        FolderLock(tmp_path / "state")
    first.release()
    assert not (tmp_path / "state").exists()
    FolderLock(tmp_path / "state").release()


def test_another_process_is_kept_out_until_it_is_killed(tmp_path: Path) -> None:
    code = "import sys; from tithe.storage.checkpoint import FolderLock; lock = FolderLock(sys.argv[1]); "
    code += "print(1, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], **pipes) as other:
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(ValueError, match="Another run"):
            FolderLock(tmp_path)
        other.kill()
    (tmp_path / "state.tithe").touch()  # the folder stays
    assert (tmp_path / ".lock").exists()
    FolderLock(tmp_path).release()
    assert [part.name for part in tmp_path.iterdir()] == ["state.tithe"]
