"""Pages that work offline."""

from __future__ import annotations

import base64
from typing import Any

from tithe import __version__


def render(template: str, *, figures: dict[str, bytes], **values: Any) -> str:
    """A page that works offline: figures, by caption, are part of it."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    pages = Environment(loader=PackageLoader("tithe", "report"), autoescape=select_autoescape())
    inlined = {caption: base64.b64encode(png).decode() for caption, png in figures.items()}
    return pages.get_template(template).render(figures=inlined, version=__version__, **values)
