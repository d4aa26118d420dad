"""Pages in headless Chromium, where it is installed: nothing is cut off, and numbers are those of the JSON files."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from matplotlib import image

from tithe.cli.main import main
from tithe.report.tables import number

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]
WIDTHS = (390, 1200)  # a phone and a desktop
N_FIGURES = {"kmeans": 2, "logistic": 3, "ridge": 3, "odm": 3, "compare": 3, "demo": 2}

# Windows of Chromium are never narrower than 500 pixels, frames can be.
_MEASURE = """<script>
addEventListener("load", () => {
  const measured = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, root = page.documentElement, all = s => [...page.querySelectorAll(s)];
    return {
      width: frame.contentWindow.innerWidth,
      page_width: root.scrollWidth,
      cut: all("p, h1, h2, dd, dt, td, th, figcaption, footer").filter(e => e.scrollWidth > e.clientWidth + 1)
        .map(e => e.textContent.slice(0, 60)),
      images: page.images.length,
      visible: [...page.images].filter(i => i.complete && i.naturalWidth > 0 && i.clientWidth > 250).length,
    };
  });
  document.documentElement.setAttribute("measured", encodeURIComponent(JSON.stringify(measured)));
});
</script>"""


def _opened(page: Path, width: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--enable-logging=stderr", "--log-level=0", f"--window-size={width},1600", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


def _measured(page: Path, folder: Path) -> list[dict[str, Any]]:
    """Sizes of the page in frames as wide as a phone and a desktop. No script and no file may fail."""
    content = html.escape(page.read_text(encoding="utf8"))
    style = "height: 900px; border: 0"
    frames = "".join(f'<iframe style="width: {w}px; {style}" srcdoc="{content}"></iframe>' for w in WIDTHS)
    outer = folder / "frames.html"
    outer.write_text(f'<!doctype html><html><meta charset="utf-8">{_MEASURE}{frames}</html>', encoding="utf8")
    done = _opened(outer, 1300, "--dump-dom")
    assert "CONSOLE" not in done.stderr
    text = re.search(r'measured="([^"]+)"', done.stdout)
    assert text is not None
    measured: list[dict[str, Any]] = json.loads(unquote(text[1]))
    return measured


@pytest.fixture(scope="module")
def customers(tmp_path_factory) -> Path:
    """A table with a long name, a long path, a date, categories and gaps."""
    rng = np.random.default_rng(0)
    n = 4000
    age, visits = rng.normal(45, 12, n).round(), rng.poisson(3, n)
    spent = (200 + 8 * age + 60 * visits + rng.normal(0, 80, n)).round(2)
    bought = np.where(0.06 * (age - 45) + 0.3 * visits - 1 + rng.logistic(size=n) > 0, "yes", "no")
    city = rng.choice(["Leeds", "Stratford-upon-Avon", "Hull"], n)
    since = np.datetime64("2020-01-01") + rng.integers(0, 2000, n)
    income = np.where(rng.random(n) < 0.02, "", rng.lognormal(10.3, 0.5, n).round(2).astype(str))
    path = tmp_path_factory.mktemp("a_folder_with_quite_a_long_name_for_a_phone") / "customers.csv"
    names = ["age", "visits", "annual_spend_of_the_household_in_pounds", "bought", "city", "since", "income"]
    lines = [",".join(map(str, row)) for row in zip(age, visits, spent, bought, city, since, income, strict=True)]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    return path


def _written(kind: str, customers: Path, folder: Path) -> Path:
    """The page of a command."""
    commands = {
        "kmeans": ["fit", "kmeans", customers, "-k", 6, "-m", 300],
        "logistic": ["fit", "logistic", customers, "--target", "bought", "-m", 500],
        "ridge": ["fit", "ridge", customers, "--target", "annual_spend_of_the_household_in_pounds", "-m", 500],
        "odm": ["fit", "odm", customers, "--target", "bought", "-m", 500],
        "compare": ["compare", customers, "--objective", "logistic", "--target", "bought", "--sizes", "3%,10%"],
        "demo": ["demo", "--rows", 20_000, "-m", 300],
    }
    main([*map(str, commands[kind]), "-o", str(folder)])
    return folder / ("index.html" if kind == "demo" else "report.html")


@pytest.mark.parametrize("kind", N_FIGURES)
def test_nothing_is_cut_off_and_all_figures_are_visible(kind: str, customers, tmp_path) -> None:
    page = _written(kind, customers, tmp_path / "out")
    measured = _measured(page, tmp_path)
    assert [sizes["width"] for sizes in measured] == list(WIDTHS)
    for sizes in measured:
        assert sizes["page_width"] <= sizes["width"] and sizes["cut"] == []
        assert sizes["visible"] == sizes["images"] == N_FIGURES[kind]
    for width in WIDTHS:
        shot = tmp_path / f"{width}.png"
        _opened(page, width, f"--screenshot={shot}")
        picture = image.imread(shot)
        assert picture.shape[1] == width and picture[..., :3].std() > 0.05
    _check_numbers(page, json.loads((page.parent / "results.json").read_text()))


def _check_numbers(page: Path, results: dict[str, Any]) -> None:
    """What the page shows is what ``results.json`` says."""
    text = html.unescape(page.read_text(encoding="utf8"))
    lines = results.get("table") or results.get("methods")
    if lines:  # of a comparison or the demonstration: every number is there with its exact value
        shown = re.findall(r'<data class="(\w+)" value="([^"]*)">', text)
        fields = list(dict.fromkeys(field for field, _ in shown))
        assert len(fields) >= 8
        assert shown == [(field, str(line[field])) for line in lines for field in fields]
        return
    assert results["certificate"]["sentence"] in text and f"{results['n_rows']:,} rows" in text
    for value in results["held_out"]["scores"].values():
        assert f" {value:.4g}" in text
    for row in results.get("coefficients", []):
        assert f"<td>{row['column']}</td><td>{number(row['coefficient'])}</td>" in text
    for cluster in results.get("clusters", []):
        assert f"<td>{cluster['cluster']}</td><td>{cluster['share']:.1%}</td>" in text
        spent = number(cluster["typical_values"]["annual_spend_of_the_household_in_pounds"])
        assert f"<td>{spent}</td>" in text
