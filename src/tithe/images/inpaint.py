"""Pixels that are not known, filled in from those around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.images.planes import Planes, as_pixels
from tithe.kernels.dictionary.masked_pursuit import add_at, complete_rows
from tithe.kernels.dictionary.patches import cut_patches

_PATCHES = 65_536  # coded at a time


def check_mask(image: Any, mask: Any) -> tuple[Array, Array]:
    """The picture with zeros where it is not known, and where it is known (h, w)."""
    image, mask = np.asarray(image), np.asarray(mask)
    if mask.shape != image.shape[:2] or mask.dtype != bool:
        raise ValueError(
            f"mask must be bool of shape {image.shape[:2]}, True where a pixel is missing, got {mask.dtype} of shape "
            f"{mask.shape}."
        )
    if mask.all():
        raise ValueError("All pixels are missing: there is nothing to fill them in from.")
    image = image.copy()
    image[mask] = 0
    return image, ~mask


def filled(image: Array, known: Array, atoms: Array, side: int, most: int, allowed: float) -> Array:
    """The picture with its missing pixels filled in; the others are as they were.

    Patches with the more known pixels come first: what they say is then known to the others, so large holes close
    from their edges.
    """
    planes = Planes(image)
    before = np.stack([planes.read(p, 0, planes.height) for p in range(planes.n_planes)])
    after, known = before.copy(), known.copy()
    while not known.all():
        top, left = _next_patches(known, side)
        count = np.zeros(known.shape, np.int32)
        for plane in after:
            count[:] = 0
            total = np.zeros(known.shape)
            for start in range(0, len(top), _PATCHES):
                here = slice(start, start + _PATCHES)
                X = cut_patches(plane, top[here], left[here], side, centred=False)[0]
                seen = cut_patches(known.view(np.uint8), top[here], left[here], side, centred=False)[0]
                rows = complete_rows(X, seen, atoms, n_nonzero=most, allowed=allowed)
                add_at(rows, top[here], left[here], side, total, count)
            fresh = ~known & (count > 0)
            plane[fresh] = total[fresh] / count[fresh]
        known |= count > 0
    result = as_pixels(planes.changed(0, (before - after).astype(np.float64)), image.dtype)
    return result


def _next_patches(known: Array, side: int) -> tuple[Array, Array]:
    """Upper left corners of the better known half of the patches that are partly known, row by row."""
    sums = np.pad(np.cumsum(np.cumsum(known, axis=0, dtype=np.int64), axis=1), ((1, 0), (1, 0)))
    count = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    partly = (count > 0) & (count < side * side)
    least = min(side * side // 2, int(np.median(count[partly])))
    top, left = np.nonzero(partly & (count >= least))
    return top, left
