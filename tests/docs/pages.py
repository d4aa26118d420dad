"""The pages of the documentation."""

from __future__ import annotations

from pathlib import Path

from shown_code import CodeBlock
from shown_code import code_blocks as blocks_of

ROOT = Path(__file__).parents[2]
MADE = ("_build", "gallery", "reference")  # folders of docs/ that `make docs` writes
CLUSTERS = "docs/clusters.md"  # its code needs clusters: tests/engines/test_cluster_page.py runs it


def pages() -> list[str]:
    """README, CONTRIBUTING and the pages of docs/, as paths from the root; without the page on clusters."""
    files = [path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))]
    written = [f"docs/{path}" for path in files if path.parts[0] not in MADE]
    return ["README.md", "CONTRIBUTING.md", *(page for page in written if page != CLUSTERS)]


def code_blocks(page: str) -> list[CodeBlock]:
    """The blocks of Python and of shell commands that can be run here, in order."""
    return blocks_of((ROOT / page).read_text())
