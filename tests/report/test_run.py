"""A folder is written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tithe.report.run import write_folder


def _fails(path: Path) -> None:
    path.write_text("half")
    raise OSError(28, "No space left on device")


def test_a_folder_is_whole_and_what_has_no_content_is_removed(tmp_path, monkeypatch) -> None:
    out, order = tmp_path / "out", []
    replace = os.replace
    monkeypatch.setattr("tithe.core.files.os.replace", lambda a, b: (order.append(b.name), replace(a, b)))
    write_folder(out, {"last.json": "{}", "model.tithe": b"bytes", "rows.csv": lambda path: path.write_text("1")})
    assert order == ["rows.csv", "model.tithe", "last.json"]
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "last.json": "{}",
        "model.tithe": "bytes",
        "rows.csv": "1",
    }
    write_folder(out, {"last.json": "[]", "model.tithe": None})
    assert {path.name for path in out.iterdir()} == {"last.json", "rows.csv"}


def test_nothing_changes_if_one_file_cannot_be_written(tmp_path) -> None:
    out = tmp_path / "out"
    with pytest.raises(OSError, match="No space"):
        write_folder(out, {"last.json": "{}", "rows.csv": _fails})
    assert not out.exists()
    write_folder(out, {"last.json": "{}"})
    with pytest.raises(OSError, match="No space"):
        write_folder(out, {"last.json": "[]", "model.tithe": None, "rows.csv": _fails})
    assert {path.name: path.read_text() for path in out.iterdir()} == {"last.json": "{}"}
