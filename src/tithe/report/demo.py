"""The demonstration: the colours of two photographs that scikit-learn ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.files import replacing
from tithe.learners.cluster import CoresetKMeans
from tithe.learners.logistic import CoresetLogisticRegression
from tithe.objectives.clustering import KMeansObjective
from tithe.report.comparison.compare import compare
from tithe.report.comparison.page import html_table
from tithe.report.comparison.result import Comparison
from tithe.report.figures import excess_and_seconds, pictures, weight_histogram
from tithe.report.html import render
from tithe.storage.coresets import save_coreset
from tithe.storage.models import save_model

PHOTOGRAPHS = ("china.jpg", "flower.jpg")
Step = Callable[[int, int, str], None]


def pixels() -> Array:
    """The pixels of both photographs: (546560, 3) float32."""
    from sklearn.datasets import load_sample_image

    return np.concatenate([load_sample_image(name).reshape(-1, 3) for name in PHOTOGRAPHS]).astype(np.float32)


def which_photograph() -> tuple[Array, Array]:
    """Colours with their squares and products (546560, 9) float32, and the photograph each pixel is from."""
    from sklearn.datasets import load_sample_image

    colour = pixels()
    n_first = load_sample_image(PHOTOGRAPHS[0]).size // 3
    pairs = [colour[:, i] * colour[:, j] for i in range(3) for j in range(i, 3)]
    columns = np.column_stack([colour, *pairs])
    scaled = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    photograph = (np.arange(len(colour)) >= min(n_first, len(colour) // 2)).astype(int)
    return np.ascontiguousarray(scaled, np.float32), photograph


def run_demo(
    folder: str | Path, *, n_clusters: int = 16, coreset_size: int = 1000, seeds: int = 3, progress: Step | None = None
) -> tuple[dict[str, tuple[Comparison, str]], Path]:
    """Find a palette for two photographs, and tell their pixels apart; write a report.

    Returns the comparisons by title, each with the certificate of one model, and the path of the page.
    """
    X, (features, photograph) = pixels(), which_photograph()
    options: dict[str, Any] = {
        "sizes": [coreset_size],
        "constructions": ("auto",),
        "polish": "auto",
        "n_repeats": seeds,
    }
    clustered = compare(X, objective=KMeansObjective(n_clusters=n_clusters), progress=progress, **options)
    classified = compare(features, photograph, objective="logistic", progress=progress, **options)
    model = CoresetKMeans(n_clusters, coreset_size=coreset_size, random_state=0).fit(X)
    classifier = CoresetLogisticRegression(coreset_size=coreset_size, random_state=0).fit(features, photograph)
    parts = {
        f"A palette of {n_clusters} colours for two photographs": (clustered, str(model.certificate_)),
        "Which of the two photographs is a pixel from?": (classified, str(classifier.certificate_)),
    }
    return parts, _write(Path(folder), parts, _figures(clustered, model, len(X)), model)


def _figures(comparison: Comparison, model: CoresetKMeans, n_pixels: int) -> dict[str, bytes]:
    from sklearn.datasets import load_sample_image

    flower = load_sample_image(PHOTOGRAPHS[1])
    palette = model.cluster_centers_[model.predict(flower.reshape(-1, 3).astype(np.float32))]
    few = f"{model.n_clusters} colours, learned from {len(model.coreset_)} of {n_pixels:,} pixels"
    return {
        "Loss and time": excess_and_seconds(comparison),
        "One of the photographs": pictures(
            {"all colours": flower, few: palette.reshape(flower.shape).clip(0, 255).astype(np.uint8)}
        ),
        "Weights of the coreset": weight_histogram(model.coreset_),
    }


def _write(
    folder: Path, parts: dict[str, tuple[Comparison, str]], figures: dict[str, bytes], model: CoresetKMeans
) -> Path:
    """Write ``index.html``, ``results.json``, ``coreset.parquet`` and ``model.skops``; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {title: html_table(comparison) for title, (comparison, _) in parts.items()}
    text = render("template.html", parts=parts, tables=tables, figures=figures)
    with replacing(folder / "index.html") as path:
        path.write_text(text, encoding="utf8")
    results = {title: comparison.to_dict() | {"certificate": said} for title, (comparison, said) in parts.items()}
    with replacing(folder / "results.json") as path:
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf8")
    save_coreset(model.coreset_, folder / "coreset.parquet")
    save_model(model, folder / "model.skops")
    return folder / "index.html"
