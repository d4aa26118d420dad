"""The pages of the documentation, and the code that they show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MADE = ("_build", "gallery", "reference")  # folders of docs/ that `make docs` writes
CLUSTERS = "docs/clusters.md"  # its code needs clusters: tests/engines/test_cluster_page.py runs it
_BLOCK = re.compile(r"(<!-- not run: [^\n]*-->\n)?```(python|console)\n(.*?)```", flags=re.DOTALL)
_NOT_RUN = ("make ", "pip ", "git ", "export ")  # commands that change the environment


@dataclass(frozen=True)
class CodeBlock:
    """Code of a page: Python, or lines of a shell."""

    language: str
    code: str

    def commands(self) -> list[str]:
        """The commands of lines that begin with ``$``, without those that change the environment."""
        lines = [line[2:] for line in self.code.splitlines() if line.startswith("$ ")]
        return [line for line in lines if not line.startswith(_NOT_RUN)]


def pages() -> list[str]:
    """README, CONTRIBUTING and the pages of docs/, as paths from the root; without the page on clusters."""
    files = [path.relative_to(ROOT / "docs") for path in sorted((ROOT / "docs").rglob("*.md"))]
    written = [f"docs/{path}" for path in files if path.parts[0] not in MADE]
    return ["README.md", "CONTRIBUTING.md", *(page for page in written if page != CLUSTERS)]


def code_blocks(page: str) -> list[CodeBlock]:
    """The blocks of Python and of shell commands that can be run here, in order."""
    found = _BLOCK.findall((ROOT / page).read_text())
    return [CodeBlock(language, code) for not_run, language, code in found if not not_run]
