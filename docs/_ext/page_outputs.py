"""Shows under the code of a page what it prints, run when the documentation is built.

A page takes part if its first lines have ``<!-- outputs -->``. ``-D show_outputs=0`` leaves outputs out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import shown_code

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MOST_LINES = 40


def with_outputs(text: str, outputs: list[str]) -> str:
    """A page with the output of each block below it."""
    for block, output in zip(reversed(shown_code.code_blocks(text)), reversed(outputs), strict=True):
        lines = [line.rstrip() for line in output.rstrip().splitlines()]
        if len(lines) > MOST_LINES:
            lines = [*lines[: MOST_LINES - 1], "..."]
        if lines:
            shown = "\n".join(["", "```{code-block} text", ":class: output", "", *lines, "```"])
            text = text[: block.end] + "\n" + shown + text[block.end :]
    return text


def add_outputs(app: Sphinx, docname: str, source: list[str]) -> None:
    if not app.config.show_outputs or "<!-- outputs -->" not in source[0][:400]:
        return
    page = Path(app.srcdir) / f"{docname}.md"
    command = [sys.executable, shown_code.__file__, str(page)]
    surroundings = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings)
    if done.returncode:
        raise RuntimeError(f"The code of {docname} does not run:\n{done.stderr}")
    source[0] = with_outputs(source[0], json.loads(done.stdout))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("show_outputs", True, "env", types=(bool, str, int))
    app.connect("source-read", add_outputs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
