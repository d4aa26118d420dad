"""Missing pixels filled in from those around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.images.planes import Planes, as_pixels
from tithe.kernels.dictionary.masked_pursuit import add_at, complete_rows
from tithe.kernels.dictionary.patches import cut_patches

_CHUNK_PATCHES = 65_536  # patches coded at a time


def check_mask(image: Any, mask: Any) -> tuple[Array, Array]:
    """The picture with zeros at missing pixels, and a mask (h, w) of the known pixels."""
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


def filled(image: Array, known: Array, atoms: Array, side: int, max_atoms: int, allowed: float) -> Array:
    """The picture with its missing pixels filled in and the others unchanged.

    Patches with more known pixels come first, and the pixels that they fill in count as known for the others. So large
    holes are filled from their edges inwards.
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
            for start in range(0, len(top), _CHUNK_PATCHES):
                chunk = slice(start, start + _CHUNK_PATCHES)
                X = cut_patches(plane, top[chunk], left[chunk], side, centred=False)[0]
                seen = cut_patches(known.view(np.uint8), top[chunk], left[chunk], side, centred=False)[0]
                rows = complete_rows(X, seen, atoms, n_nonzero=max_atoms, allowed=allowed)
                add_at(rows, top[chunk], left[chunk], side, total, count)
            new_pixels = ~known & (count > 0)
            plane[new_pixels] = total[new_pixels] / count[new_pixels]
        known |= count > 0
    result = as_pixels(planes.changed(0, (before - after).astype(np.float64)), image.dtype)
    return result


def _next_patches(known: Array, side: int) -> tuple[Array, Array]:
    """Upper left corners of those partly known patches that have at least a median number of known pixels."""
    sums = np.pad(np.cumsum(np.cumsum(known, axis=0, dtype=np.int64), axis=1), ((1, 0), (1, 0)))
    count = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    partly = (count > 0) & (count < side * side)
    min_known = min(side * side // 2, int(np.median(count[partly])))
    top, left = np.nonzero(partly & (count >= min_known))
    return top, left
