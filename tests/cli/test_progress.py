"""What is said while a command works, and how it is stopped."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from leaf_source import LeafSource

from tithe.cli.main import Stop
from tithe.core import progress
from tithe.core.passes import DataPass
from tithe.core.progress import ProgressBar, bytes_text, memory, peak_memory, seconds_text


@pytest.mark.parametrize("n_rows", [None, 1000])
def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys, n_rows) -> None:
    with ProgressBar(n_rows, "reducing") as reading:
        reading(1, 1, 100)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    with ProgressBar(n_rows, "reducing", "certifying", done=300) as reading:
        for number in (1, 2, 3):
            reading(1, number, 100 * number)
        reading(2, 1, 100)
        reading(5, 1, 100)
    said = capsys.readouterr().err
    assert "reducing: 600 rows" in said and "certifying: 100 rows" in said and "rows/s" in said
    assert ("left" in said) == (n_rows is not None)


@pytest.mark.parametrize("n_rows", [None, 1000])
def test_a_bar_where_there_is_one(monkeypatch, capsys, n_rows) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ProgressBar(n_rows, "reducing") as reading:
        reading.describe("choosing a size")
        for number in (1, 2, 3):
            reading(1, number, 100 * number)
    assert "300 rows" in capsys.readouterr().err


def stopped_at_work(stop: Stop, times: int) -> list[int]:
    """Read leaves, and be asked to stop so many times while the second is worked on."""
    source, seen = LeafSource.cut(np.zeros((4, 1)), at=[1, 2, 3]), []
    try:
        for row in DataPass(source, "serial", stop.after_leaves(lambda *at: None)).each(lambda leaf: leaf.row_ids()[0]):
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGTERM)
            seen.append(int(row))
    except KeyboardInterrupt:
        return seen
    return [*seen, -1]


def test_a_signal_waits_until_nothing_is_half_done() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Stop() as stop:
        assert stopped_at_work(stop, times=1) == [0]
        stop.idle()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_who_asks_twice_leaves_at_once() -> None:
    with Stop() as stop, pytest.raises(SystemExit):
        stopped_at_work(stop, times=2)


def test_what_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Stop():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_numbers_for_people() -> None:
    assert [bytes_text(n) for n in (5, 2_500, 3e9, 4e15)] == ["5 bytes", "2.5 kB", "3.0 GB", "4,000.0 TB"]
    assert [seconds_text(s) for s in (1.26, 90, 600, 9000)] == ["1.3 s", "2 min", "10 min", "2 h 30 min"]
    assert 0 < memory() <= peak_memory() * 1.1
