"""A picture as planes of numbers: checked once, read stripe by stripe."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array

# rows: the sum of the colours, red against blue, green against both; orthogonal, so white noise stays white
_MIX = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]])
_NORM = np.linalg.norm(_MIX, axis=1)
_LARGEST = 1e15  # and the other way round the smallest
_LEAVE_OUT = {
    (1,): " Leave out the last axis: image[..., 0].",
    (2,): " An alpha channel is not noise: leave it out, image[..., 0].",
    (4,): " An alpha channel is not noise: leave it out, image[..., :3].",
}
_STRIPE = 1 << 20  # pixels looked at together


class Planes:
    """A picture (h, w) or (h, w, 3) as one or three planes (h, w) of float32.

    The colours are mixed into (r + g + b) / sqrt(3), (r - b) / sqrt(2) and (r - 2 g + b) / sqrt(6): an
    orthonormal change, which leaves white noise white and of the same strength in every plane, while nearly all
    that a photograph has to say is in the first. Planes are made for the rows that are asked for.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3) of uint8, uint16, float32 or float64
    """

    def __init__(self, image: Any) -> None:
        image = np.asarray(image)
        image = image.astype(image.dtype.newbyteorder("="), copy=False)
        colours = image.ndim == 3 and image.shape[2] == 3
        if image.ndim != 2 and not colours:
            more = _LEAVE_OUT.get(image.shape[2:], "")
            raise ValueError(f"A picture has shape (height, width) or (height, width, 3), got {image.shape}.{more}")
        if image.dtype not in (np.uint8, np.uint16, np.float32, np.float64):
            raise ValueError(f"A picture holds uint8, uint16, float32 or float64, got {image.dtype}. Convert it first.")
        if image.size == 0:
            raise ValueError(f"The picture has no pixels: its shape is {image.shape}.")
        self.image = image
        self.height, self.width = image.shape[:2]
        self.n_planes = 3 if colours else 1
        if image.dtype.kind == "f":
            self._check_finite()

    def _check_finite(self) -> None:
        largest = 0.0
        for rows in self.stripes():
            part = self.image[rows]
            if not np.isfinite(part).all():
                at = np.argwhere(~np.isfinite(part))[0]
                raise ValueError(
                    f"The pixel in row {rows.start + at[0]} and column {at[1]} is NaN or infinite. Pixels that are not "
                    "known can be filled in: inpaint(image, mask)."
                )
            largest = max(largest, float(part.max()), -float(part.min()))
        if largest > _LARGEST or 0.0 < largest < 1.0 / _LARGEST:
            what = f"above {_LARGEST:g}" if largest > 1.0 else f"no larger than {largest:.2g}"
            raise ValueError(
                f"The picture has values {what}, whose squares single precision does not hold. Rescale it."
            )

    def stripes(self) -> list[slice]:
        """Runs of rows, of a size to work on at once."""
        step = max(1, _STRIPE // self.width)
        return [slice(top, min(self.height, top + step)) for top in range(0, self.height, step)]

    def read(self, plane: int, top: int, bottom: int) -> Array:
        """Rows ``top`` to ``bottom`` of a plane: (bottom - top, w) float32."""
        rows = self.image[top:bottom]
        if self.n_planes == 1:
            return np.ascontiguousarray(rows, dtype=np.float32)
        # in double precision: of a grey picture exactly nothing is left in the second and third plane
        mixed = rows[..., 0].astype(np.float64)
        for colour in (1, 2):
            if _MIX[plane, colour]:
                mixed += _MIX[plane, colour] * rows[..., colour]
        return (mixed / _NORM[plane]).astype(np.float32)

    def channels(self, top: int, bottom: int) -> list[Array]:
        """Rows ``top`` to ``bottom`` of grey, or of each colour: (bottom - top, w), as they are."""
        rows = self.image[top:bottom]
        return [rows] if self.n_planes == 1 else [rows[..., colour] for colour in range(3)]

    def shares(self, plane: int) -> Array:
        """What the variance of each channel contributes to that of a plane."""
        return np.ones(1) if self.n_planes == 1 else (_MIX[plane] / _NORM[plane]) ** 2

    def changed(self, top: int, taken: Array) -> Array:
        """The rows from ``top`` on less what is taken out of the planes (planes, rows, w): float64."""
        rows = self.image[top : top + taken.shape[1]].astype(np.float64)
        if self.n_planes == 1:
            return rows - taken[0]
        for colour in range(3):
            for plane in range(3):
                if _MIX[plane, colour]:
                    rows[..., colour] -= taken[plane] * (_MIX[plane, colour] / _NORM[plane])
        return rows


def as_pixels(values: Array, dtype: Any) -> Array:
    """Numbers as pixels of a type: whole and within its range where it is one of whole numbers."""
    if np.dtype(dtype).kind == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    pixels: Array = np.clip(np.rint(values), limits.min, limits.max).astype(dtype)
    return pixels
