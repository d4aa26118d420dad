"""A report as one folder: a page that works offline, the numbers, the coreset and the model."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tithe import __version__
from tithe.core.files import replacing
from tithe.learners.cluster import CoresetKMeans
from tithe.report.compare_classification import Classification
from tithe.report.compare_clustering import Comparison
from tithe.storage.coresets import save_coreset
from tithe.storage.models import save_model


def render(template: str, *, figures: dict[str, bytes], **values: Any) -> str:
    """A page that works offline: figures, by caption, are part of it."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    pages = Environment(loader=PackageLoader("tithe", "report"), autoescape=select_autoescape())
    inlined = {caption: base64.b64encode(png).decode() for caption, png in figures.items()}
    return pages.get_template(template).render(figures=inlined, version=__version__, **values)


def write_report(
    folder: str | Path,
    comparison: Comparison,
    classified: Classification,
    figures: dict[str, bytes],
    model: CoresetKMeans,
) -> Path:
    """Write ``index.html``, ``results.json``, ``coreset.parquet`` and ``model.skops``; returns the page's path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = render("template.html", run=comparison, classified=classified, figures=figures)
    with replacing(folder / "index.html") as path:
        path.write_text(text, encoding="utf8")
    results = comparison.as_dict() | {"classification": asdict(classified)}
    with replacing(folder / "results.json") as path:
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf8")
    save_coreset(model.coreset_, folder / "coreset.parquet")
    save_model(model, folder / "model.skops")
    return folder / "index.html"
