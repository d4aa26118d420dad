"""The documentation in headless Chromium, on a phone, a tablet and a desktop."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from browser import WIDTHS, checked, needs_chromium

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The pages, built from a copy without running the examples."""
    pytest.importorskip("sphinx_gallery", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "examples"):
        made = shutil.ignore_patterns("_build", "gallery", "reference", "sg_execution_times.rst", "__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=made)
    settings = ["-D", "plot_gallery=0", "-D", "show_outputs=0"]
    command = [sys.executable, "-m", "sphinx", "-q", *settings, "-b", "html", "docs", "html"]
    subprocess.run(command, cwd=folder, check=True, timeout=1800)
    return folder / "html"


@pytest.mark.parametrize(("name", "n_figures"), [("index", 1), ("papers", 12), ("measurements", 0), ("migration", 0)])
def test_nothing_is_cut_off_and_all_figures_are_visible(name: str, n_figures: int, site, tmp_path) -> None:
    measured = checked(site / f"{name}.html", site, tmp_path, ignore="[PST]: Changed to")
    for width, sizes in zip(WIDTHS, measured, strict=True):
        images = sizes["images"]
        assert len(images) == n_figures
        assert all(picture["width"] > min(350, 0.4 * width) for picture in images)


def test_no_page_is_wider_than_the_screen(site: Path) -> None:
    """Every page, those of the API and of the code included."""
    failed = {}
    for page in sorted(site.rglob("*.html")):
        if page.parts[-2] not in ("_static", "gallery"):
            try:
                checked(page, site, ignore="[PST]: Changed to")
            except AssertionError as error:
                failed[str(page.relative_to(site))] = str(error).splitlines()[0]
    assert failed == {}
