"""The demonstration: the colours of two photographs that scikit-learn ships."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tithe.core.data import Array
from tithe.report.compare_classification import Classification, compare_classifiers
from tithe.report.compare_clustering import Comparison, compare_clusterings
from tithe.report.figures import cost_and_passes, pictures, weight_histogram
from tithe.report.html import write_report

PHOTOGRAPHS = ("china.jpg", "flower.jpg")


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
    folder: str | Path,
    *,
    n_clusters: int = 16,
    coreset_size: int = 1000,
    seeds: int = 3,
    progress: Callable[[str], None] = lambda step: None,
) -> tuple[Comparison, Classification, Path]:
    """Find a palette for two photographs, and tell their pixels apart, three ways each; write a report."""
    from sklearn.datasets import load_sample_image

    X = pixels()
    comparison, model = compare_clusterings(
        X,
        title=f"A palette of {n_clusters} colours for two photographs",
        n_clusters=n_clusters,
        coreset_size=coreset_size,
        seeds=seeds,
        progress=progress,
    )
    features, photograph = which_photograph()
    classified = compare_classifiers(
        features,
        photograph,
        title="Which of the two photographs is a pixel from?",
        coreset_size=coreset_size,
        seeds=seeds,
        progress=progress,
    )
    progress("report")
    flower = load_sample_image(PHOTOGRAPHS[1])
    palette = model.cluster_centers_[model.predict(flower.reshape(-1, 3).astype(np.float32))]
    figures = {
        "Cost and time": cost_and_passes(comparison),
        "One of the photographs": pictures(
            {
                "all colours": flower,
                f"{n_clusters} colours, learned from {len(model.coreset_)} of {len(X):,} pixels": palette.reshape(
                    flower.shape
                )
                .clip(0, 255)
                .astype(np.uint8),
            }
        ),
        "Weights of the coreset": weight_histogram(model.coreset_),
    }
    return comparison, classified, write_report(folder, comparison, classified, figures, model)
