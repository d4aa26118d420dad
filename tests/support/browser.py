"""Pages in headless Chromium, at the width of a phone, a tablet and a desktop."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from matplotlib import image

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
WIDTHS = (390, 768, 1280)  # a phone, a tablet and a desktop

_FRAMES = "/frames-of-the-test"
# Windows of Chromium are never narrower than 500 pixels, frames can be.
_MEASURE = """<script>
addEventListener("load", () => setTimeout(() => {
  const measured = [...document.querySelectorAll("iframe")].map(frame => {
    const page = frame.contentDocument, style = frame.contentWindow.getComputedStyle.bind(frame.contentWindow);
    const width = frame.contentWindow.innerWidth;
    const scrolls = e => ["auto", "scroll"].includes(style(e).overflowX);
    const inBox = e => e !== null && e !== page.body && (scrolls(e) || inBox(e.parentElement));
    const shown = [...page.querySelectorAll("body *")].filter(
      e => e.getClientRects().length && style(e).visibility !== "hidden" && !inBox(e));
    const text = e => e.textContent.trim().slice(0, 60);
    const isText = e => e.matches("p, h1, h2, h3, li, dd, dt, td, th, figcaption, footer");
    return {
      width: width,
      page_width: page.documentElement.scrollWidth,
      cut: shown.filter(e => isText(e) && e.scrollWidth > e.clientWidth + 1).map(text),
      outside: shown.filter(e => e.getBoundingClientRect().right > width + 1).map(text),
      images: [
        ...[...page.images].map(i => ({width: i.clientWidth, natural_width: i.complete ? i.naturalWidth : 0})),
        ...[...page.querySelectorAll("svg.chart")].map(i => ({width: i.getBoundingClientRect().width,
          natural_width: i.viewBox.baseVal.width, text: parseFloat(i.getAttribute("font-size"))})),
      ],
    };
  });
  document.documentElement.setAttribute("measured", encodeURIComponent(JSON.stringify(measured)));
}, 200));
</script>"""


class _Pages(SimpleHTTPRequestHandler):
    """A folder, and a page with frames that show a page of it at each width."""

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if not self.path.startswith(_FRAMES):
            return super().do_GET()
        page = self.path.removeprefix(_FRAMES)
        style = "height: 900px; border: 0"
        frames = "".join(f'<iframe style="width: {width}px; {style}" src="{page}"></iframe>' for width in WIDTHS)
        content = f'<!doctype html><html><meta charset="utf-8">{_MEASURE}{frames}</html>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(content)


def _opened(address: str, width: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--enable-logging=stderr", "--log-level=0", f"--window-size={width},1600"]
    command += ["--virtual-time-budget=10000", *options, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)


def checked(page: Path, root: Path, pictures: Path | None = None, *, ignore: str = "") -> list[dict[str, Any]]:
    """Sizes of a page, below the folder ``root``, in a frame of each width.

    Nothing may be cut off, no figure may be missing, and no script and no file may fail; messages of scripts that begin
    with ``ignore`` are no failures. Pictures of the page are written to the folder ``pictures``, if there is one.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, directory=root))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        done = _opened(f"{address}{_FRAMES}/{page.relative_to(root)}", 1300, "--dump-dom")
        for width in WIDTHS if pictures else ():
            shot = pictures / f"{page.stem}_{width}.png"
            _opened(f"{address}/{page.relative_to(root)}", width, f"--screenshot={shot}")
            picture = image.imread(shot)
            assert picture.shape[1] == width and picture[..., :3].std() > 0.05
    finally:
        server.shutdown()
        server.server_close()
    messages = re.findall(r'CONSOLE.*?\] "(.*)', done.stderr)
    assert [message for message in messages if not (ignore and message.startswith(ignore))] == []
    text = re.search(r'measured="([^"]+)"', done.stdout)
    assert text is not None
    measured: list[dict[str, Any]] = json.loads(unquote(text[1]))
    assert [sizes["width"] for sizes in measured] == list(WIDTHS)
    for sizes in measured:
        assert sizes["page_width"] <= sizes["width"] and sizes["cut"] == [] and sizes["outside"] == []
        assert all(picture["natural_width"] > 0 for picture in sizes["images"])
    return measured
