"""Figures that are written as SVG."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from tithe.report.svg import Figure, Scale, around, histogram, named_bars

NAME = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


@pytest.mark.parametrize("low", [1e-9, 0.003, 1.0, 70.0])
@pytest.mark.parametrize("factor", [1.2, 3.0, 8.0, 40.0, 1e3, 1e7, 1e12])
def test_a_logarithmic_axis_has_three_to_ten_round_ticks_inside(low: float, factor: float) -> None:
    scale = Scale(low, low * factor, log=True)
    ticks = scale.ticks()
    assert 3 <= len(ticks) <= 10 and np.all(np.diff(ticks) > 0)
    assert all(low * (1 - 1e-6) <= tick <= low * factor * (1 + 1e-6) for tick in ticks)
    assert len({scale.text(tick) for tick in ticks}) == len(ticks)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.1, 7.7), (1e6, 1.0001e6), (0.0, 1e-8)])
def test_a_linear_axis_has_round_ticks_inside(low: float, high: float) -> None:
    ticks = Scale(low, high).ticks()
    assert 3 <= len(ticks) <= 8 and low - 1e-12 <= ticks[0] and ticks[-1] <= high * (1 + 1e-9)


def test_shares_are_per_cent() -> None:
    assert [Scale(0.0, 1.0, percent=True).text(value) for value in (0.0, 0.25, 1.0)] == ["0 %", "25 %", "100 %"]


def test_bars_are_as_long_as_their_values_and_names_are_text() -> None:
    svg = named_bars(["a <b> & c", "down", "gap"], [2.0, -1.0, float("nan")], "coefficient")
    root = parsed(svg)
    widths = [float(bar.get("width", 0)) for bar in root.iter(f"{NAME}rect")]
    assert len(widths) == 2 and widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert "a <b> & c" in {text.text for text in root.iter(f"{NAME}text")}


def test_heights_of_a_histogram_are_counts() -> None:
    root = parsed(histogram([1.0, 10.0, 100.0, 1000.0], [3.0, 0.0, 6.0], "x", "y"))
    first, last = (float(bar.get("height", 0)) for bar in root.iter(f"{NAME}rect"))
    assert last == pytest.approx(2 * first, rel=0.02)


def test_lines_leave_out_what_is_not_finite() -> None:
    figure = Figure(around([0.0, 4.0]), around([1.0]), "x", "y")
    figure.line([0, 1, 2, 3], [1.0, float("nan"), float("inf"), 1.0], label="a line", marked=True)
    figure.band([0, 1], [0.0, 0.0], [1.0, 1.0], 0.3, "a band")
    root = parsed(figure.svg())
    points = root.find(f"{NAME}polyline")
    assert points is not None and len(points.get("points", "").split()) == 2
    assert "nan" not in figure.svg() and "inf" not in figure.svg()


@pytest.mark.slow
def test_a_report_needs_no_drawing_library() -> None:
    program = (
        "import sys, tempfile, numpy as np\n"
        "from tithe.cli.main import main\n"
        "folder = tempfile.mkdtemp()\n"
        "np.savetxt(folder + '/a.csv', np.random.default_rng(0).normal(size=(900, 3)), delimiter=',')\n"
        "main(['fit', 'kmeans', folder + '/a.csv', '-k', '2', '-m', '200', '-o', folder + '/out', '-q'])\n"
        "print('matplotlib' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
