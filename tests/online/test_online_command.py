from __future__ import annotations

import io
import json
import re
import signal
import sys

import numpy as np
import pandas as pd
import pytest
from figures import check_figure
from running import PLAIN, run

import tithe
from tithe import load_model
from tithe.online import PACO
from tithe.online.command import View, curve


@pytest.fixture
def rows(tmp_path) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    places = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])
    return pd.DataFrame(places[rng.integers(3, size=2000)] + rng.normal(size=(2000, 2)), columns=["a", "b"])


def test_files_to_a_model_a_page_and_numbers(rows, tmp_path, capsys) -> None:
    rows.to_csv(tmp_path / "r.csv", index=False)
    out = tmp_path / "out"
    assert run("online", tmp_path / "r.csv", "--seed", 3, *PLAIN, "-o", out) == 0
    printed = capsys.readouterr().out
    for word in ("clusters", "rows so far", "2,000", "rows/s", "report.html"):
        assert word in printed
    assert {p.name for p in out.iterdir()} == {"model.tithe", "report.html", "results.json"}
    results = json.loads((out / "results.json").read_text())
    assert results["n_clusters"] == 3 and results["rows_so_far"] == 2000
    assert results["hindsight_loss"] < results["cumulative_loss"] < 1.5 * results["hindsight_loss"]
    page = (out / "report.html").read_text()
    assert page.count('class="chart"') == 2 and "http" not in page.split("</style>")[1]
    whole = PACO(random_state=3).partial_fit(rows.to_numpy())
    np.testing.assert_array_equal(load_model(out / "model.tithe").cluster_centers_, whole.cluster_centers_)


def test_many_centers_for_rows_on_a_curve(tmp_path, capsys) -> None:
    along = np.random.default_rng(0).uniform(0.0, 10.0, 1500)
    spiral = np.column_stack([np.cos(along), np.sin(along), along / 3.0])
    np.savetxt(tmp_path / "r.csv", spiral, delimiter=",", header="a,b,c", comments="")
    clusters = {}
    for options in ((), ("--many-centers",)):
        out = tmp_path / f"out{len(options)}"
        assert run("online", tmp_path / "r.csv", *options, *PLAIN, "-o", out) == 0
        clusters[options] = json.loads((out / "results.json").read_text())["n_clusters"]
    assert clusters["--many-centers",] > clusters[()]


def test_standard_input_and_going_on(rows, tmp_path, capsys, monkeypatch) -> None:
    def piped(frame: pd.DataFrame, *arguments) -> int:
        data = io.BytesIO(frame.to_csv(index=False).encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
        return run("online", "-", "--format", "csv", *PLAIN, "-o", tmp_path / "out", *arguments)

    assert piped(rows[:900], "--half-life", 300) == 0
    assert piped(rows[900:]) == 2 and "--resume" in capsys.readouterr().err
    assert piped(rows[900:], "--half-life", 200, "--resume") == 2
    assert piped(rows[900:], "--resume") == 0
    whole = PACO(random_state=0, half_life=300.0).partial_fit(rows.to_numpy())
    model = load_model(tmp_path / "out" / "model.tithe")
    np.testing.assert_array_equal(model.history_["loss"], whole.history_["loss"])
    assert json.loads((tmp_path / "out" / "results.json").read_text())["hindsight_loss"] is None


def test_columns_are_known_by_name(rows, tmp_path, capsys) -> None:
    rows["b"] += 40.0
    rows.to_csv(tmp_path / "r.csv", index=False)
    rows[["b", "a"]].to_csv(tmp_path / "turned.csv", index=False)
    out = tmp_path / "out"
    assert run("online", tmp_path / "r.csv", "-o", out) == 0
    rows[["b"]].to_csv(tmp_path / "less.csv", index=False)
    assert run("online", tmp_path / "less.csv", "--resume", "-o", out) == 2
    assert "no column 'a'" in capsys.readouterr().err
    for name in ("r", "turned"):
        assert run("predict", out / "model.tithe", tmp_path / f"{name}.csv", "-o", tmp_path / f"{name}.parquet") == 0
    pd.testing.assert_frame_equal(*(pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("r", "turned")))
    assert run("online", tmp_path / "turned.csv", "--resume", "-o", out) == 0
    model = load_model(out / "model.tithe")
    assert model.n_rows_ == 4000 and model.feature_names_in_.tolist() == ["a", "b"]
    assert "Warning" not in capsys.readouterr().err


class Slow(io.BytesIO):
    """A pipe into which lines are written a thousand at a time."""

    def read1(self, size: int | None = -1) -> bytes:
        return b"".join(self.readlines(1000 * 20))


def test_a_bad_row_of_a_pipe_costs_no_row_before_it(rows, tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "out"
    lines = rows.to_csv(index=False).encode()
    for before, arguments in ((b"", []), (lines, []), (lines, ["--resume"])):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Slow((before or b"a,b\n") + b"1,2,3\n4,5\n")))
        assert run("online", "-", "--format", "csv", *PLAIN, "-o", out, *arguments) == 2
        errors = capsys.readouterr().err
        assert "3 values instead of 2" in errors
        assert ("rows taken before" in errors and "--resume" in errors) == out.exists() == bool(before)
    assert 2000 < load_model(out / "model.tithe").n_rows_ <= 4000


def test_stopped_it_writes_what_there_is(rows, tmp_path, monkeypatch, capsys) -> None:
    rows.to_csv(tmp_path / "r.csv", index=False)
    taken = PACO.partial_fit

    def interrupted(model: PACO, X: np.ndarray) -> PACO:
        if hasattr(model, "n_rows_") and model.n_rows_ == 1000:
            signal.raise_signal(signal.SIGTERM)  # in the middle of work: it is remembered, and heard afterwards
        return taken(model, X)

    monkeypatch.setattr(PACO, "partial_fit", interrupted)
    assert run("online", tmp_path / "r.csv", "-o", tmp_path / "out") == 130
    err = capsys.readouterr().err
    assert "Stopped" in err and "--resume" in err
    assert load_model(tmp_path / "out" / "model.tithe").n_rows_ == 1500


@pytest.mark.parametrize(
    "arguments",
    [
        ["online", "ROWS"],
        ["online", "ROWS", "--weight", "b", "-o", "out"],
        ["online", "missing.csv", "-o", "out"],
        ["online", "ROWS", "-o", "ROWS"],
        ["online", "ROWS", "-o", "no/such/out"],
        ["online", "ROWS", "--resume", "-o", "out"],
        ["online", "ROWS", "--summary-size", "3", "-o", "out"],
    ],
)
def test_mistakes_of_a_caller(rows, tmp_path, monkeypatch, capsys, arguments) -> None:
    monkeypatch.chdir(tmp_path)
    rows.to_csv("r.csv", index=False)
    assert run(*["r.csv" if a == "ROWS" else a for a in arguments]) == 2
    assert capsys.readouterr().err.strip() and not (tmp_path / "out").exists()


def test_the_view_on_a_terminal_and_elsewhere(rows, monkeypatch, capsys) -> None:
    model = PACO(random_state=0).partial_fit(rows.to_numpy()[:300])
    monkeypatch.setattr("tithe.online.command.LINE_SECONDS", 0.0)
    with View(0) as view:
        view.show(model, 300)
    assert "300 rows, 3 clusters, loss" in capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with View(100) as view:
        view.show(model, 300)
    shown = capsys.readouterr().err
    assert re.search("clusters [▁▂▃▄▅▆▇█]{60}", shown) and "400 rows, 3 clusters" in shown


def test_curves() -> None:
    assert curve(np.array([0.0, 4.0, 8.0])) == " ▄█"
    assert curve(np.array([100.0, 1.0, 1.5, 1.0]), clip=2.0) == "█▃▅▃"
    assert len(curve(np.arange(1000.0))) == 60


@pytest.mark.parametrize("arguments", [["--online", "-o", "out"], ["--odm", "-k", "3"], ["--help"], []])
def test_the_former_name_says_the_new_ones(capsys, arguments: list[str]) -> None:
    assert run("cluster", "rows.csv", *arguments) == 2
    said = capsys.readouterr().err
    assert "tithe online" in said and "tithe fit odm-clustering" in said


def test_the_figure_of_the_number_of_clusters() -> None:
    check_figure(tithe.plot.k_over_time, {"row": np.arange(5), "k": np.array([1, 2, 2, 3, 3])})
    assert "PACO" in PACO()._repr_html_()
