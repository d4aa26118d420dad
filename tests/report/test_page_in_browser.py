"""Pages in headless Chromium, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from tithe import compare

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_MEASURE = """<script>
const cut = [...document.querySelectorAll("p, h1, h2, dd, dt, footer")].filter(e => e.scrollWidth > e.clientWidth + 1);
const images = [...document.images].filter(i => i.complete && i.naturalWidth > 0 && i.clientWidth > 100);
const root = document.documentElement;
const numbers = [root.scrollWidth, window.innerWidth, cut.length, images.length, document.images.length];
root.setAttribute("measured", numbers.join(" "));
</script>"""


def _opened(page: Path, width: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--enable-logging=stderr", "--log-level=0", f"--window-size={width},1600", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_nothing_of_the_page_of_a_comparison_is_cut_off(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3)) ** 3
    comparison = compare(X, X[:, 0] + rng.logistic(size=4000) > 0, objective="logistic", sizes=[100, 400], n_repeats=2)
    page = comparison.write(tmp_path / "out")
    measured = tmp_path / "measured.html"
    measured.write_text(page.read_text().replace("</html>", f"{_MEASURE}</html>"))
    for width in (500, 1200):
        done = _opened(measured, width, "--dump-dom")
        numbers = re.search(r'measured="([\d ]+)"', done.stdout)
        assert numbers is not None
        page_width, window, n_cut, n_visible, n_images = map(int, numbers[1].split())
        assert page_width <= window and n_cut == 0 and n_visible == n_images == 3
        assert "CONSOLE" not in done.stderr
    for width in (390, 1200):
        shot = tmp_path / f"{width}.png"
        _opened(page, width, f"--screenshot={shot}")
        picture = image.imread(shot)
        assert picture.shape[1] == width and picture[..., :3].std() > 0.05
