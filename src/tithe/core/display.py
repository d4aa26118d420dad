"""How objects are shown in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def html_facts(title: str, facts: Mapping[str, str]) -> str:
    """A small table of facts under a title. Text from files is shown, not obeyed.

    >>> html_facts("Coreset", {"rows": "<5>"})
    '<div class="tithe"><b>Coreset</b><table><tr><td>rows</td><td>&lt;5&gt;</td></tr></table></div>'
    """
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f'<div class="tithe"><b>{escape(title)}</b><table>{rows}</table></div>'
