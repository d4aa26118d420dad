"""Pages that work offline."""

from __future__ import annotations

import base64
from typing import Any

from tithe.core.version import __version__


def render(template: str, *, figures: dict[str, bytes], **values: Any) -> str:
    """A page that works offline: figures, by caption, are part of it."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    pages = Environment(loader=PackageLoader("tithe", "report"), autoescape=select_autoescape())
    return pages.get_template(template).render(figures=in_base64(figures), version=__version__, **values)


def in_base64(figures: dict[str, bytes]) -> dict[str, str]:
    """Pictures as text that a page can hold."""
    return {caption: base64.b64encode(png).decode() for caption, png in figures.items()}
