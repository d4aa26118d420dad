"""Pages in headless Chromium, where it is installed: nothing is cut off, and numbers are those of the JSON files."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import checked, needs_chromium

from tithe.cli.main import main
from tithe.report.tables import number

pytestmark = [pytest.mark.slow, needs_chromium]
N_FIGURES = {"kmeans": 2, "logistic": 3, "ridge": 3, "odm": 3, "ksvd": 2, "online": 2, "compare": 3, "demo": 2}
TEXT = 10 / 72 * 130  # pixels of the text of a PNG: 10 points, at 130 dots per inch


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
        "ksvd": ["fit", "ksvd", customers, "--exclude", "bought", "-k", 6, "-m", 300],
        "online": ["online", customers, "--exclude", "bought"],
        "compare": ["compare", customers, "--objective", "logistic", "--target", "bought", "--sizes", "3%,10%"],
        "demo": ["demo", "--rows", 20_000, "-m", 300],
    }
    main([*map(str, commands[kind]), "-o", str(folder)])
    return folder / ("index.html" if kind == "demo" else "report.html")


@pytest.mark.parametrize("kind", N_FIGURES)
def test_nothing_is_cut_off_and_all_figures_are_visible(kind: str, customers, tmp_path) -> None:
    page = _written(kind, customers, tmp_path / "out")
    for sizes in checked(page, page.parent, tmp_path):
        images = sizes["images"]
        assert len(images) == N_FIGURES[kind]
        assert all(picture["width"] > 250 for picture in images)
        shown = [picture.get("text", TEXT) * picture["width"] / picture["natural_width"] for picture in images]
        assert min(shown) > 8.5  # it can be read
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
    if "hindsight_loss" in results:  # of online clustering
        assert f"{results['rows_so_far']:,} rows" in text and f"{results['n_clusters']} clusters" in text
        return
    assert results["certificate"]["sentence"] in text and f"{results['n_rows']:,} rows" in text
    for value in results["held_out"]["scores"].values():
        assert f" {value:.4g}" in text
    for row in results.get("coefficients", []):
        assert f"<td>{row['column']}</td><td>{number(row['coefficient'])}</td>" in text
    for cluster in results.get("clusters", []):
        share = f"{100 * cluster['share']:.1f} %"
        assert f"<td>{cluster['cluster']}</td><td>{cluster['weight']:,.0f}</td><td>{share}</td>" in text
        spent = number(cluster["typical_values"]["annual_spend_of_the_household_in_pounds"])
        assert f"<td>{spent}</td>" in text
