"""Measures of the difference between two pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import correlate1d

from tithe.core.data import Array

WINDOW, _WINDOW_DEVIATION = 11, 1.5  # of SSIM, after Wang, Bovik, Sheikh and Simoncelli 2004
_K1, _K2 = 0.01, 0.03
_CHUNK_ROWS = 256  # rows of a picture that are compared at a time


def data_range(image: Array) -> float:
    """The largest value a pixel of this type can have; 1 for floats."""
    return 1.0 if image.dtype.kind == "f" else float(np.iinfo(image.dtype).max)


def psnr(image: Any, reference: Any, *, largest: float | None = None) -> float:
    """Peak signal-to-noise ratio in decibels: 10 log10(largest^2 / mean squared difference); inf if equal."""
    image, reference = _checked_pair(image, reference)
    largest = data_range(reference) if largest is None else largest
    total = 0.0
    for top in range(0, len(image), _CHUNK_ROWS):
        difference = image[top : top + _CHUNK_ROWS].astype(np.float64) - reference[top : top + _CHUNK_ROWS]
        total += float(np.add.reduce(difference * difference, axis=None))
    return float(np.inf) if total == 0.0 else float(10.0 * np.log10(largest * largest * image.size / total))


def ssim(image: Any, reference: Any, *, largest: float | None = None) -> float:
    """Mean structural similarity over all channels and all places where a whole window fits.

    Means and covariances are taken in a Gaussian window of 11 pixels and standard deviation 1.5.
    """
    image, reference = _checked_pair(image, reference)
    largest = data_range(reference) if largest is None else largest
    if min(image.shape[:2]) < WINDOW:
        raise ValueError(f"Pictures of {image.shape[0]} x {image.shape[1]} pixels are smaller than the window of SSIM.")
    at = np.arange(WINDOW) - WINDOW // 2
    window = np.exp(-0.5 * (at / _WINDOW_DEVIATION) ** 2)
    window /= window.sum()
    total, count, edge = 0.0, 0, WINDOW // 2
    for top in range(0, len(image) - WINDOW + 1, _CHUNK_ROWS):
        rows = slice(top, min(len(image), top + _CHUNK_ROWS + WINDOW - 1))
        x, y = image[rows].astype(np.float64), reference[rows].astype(np.float64)
        similarity = _similarity(x, y, window, largest)[edge:-edge, edge:-edge]
        total, count = total + float(similarity.sum()), count + similarity.size
    return total / count


def _similarity(x: Array, y: Array, window: Array, largest: float) -> Array:
    def mean(values: Array) -> Array:
        smooth: Array = correlate1d(correlate1d(values, window, axis=0), window, axis=1)
        return smooth

    c1, c2 = (_K1 * largest) ** 2, (_K2 * largest) ** 2
    mx, my = mean(x), mean(y)
    vx, vy, covariance = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    similarity: Array = (2 * mx * my + c1) * (2 * covariance + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2))
    return similarity


def _checked_pair(image: Any, reference: Any) -> tuple[Array, Array]:
    image, reference = np.asarray(image), np.asarray(reference)
    if image.shape != reference.shape:
        raise ValueError(f"The pictures differ in shape: {image.shape} and {reference.shape}.")
    return image, reference
