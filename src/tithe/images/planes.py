"""A picture as planes of numbers, which are read stripe by stripe."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.core.data import Array

# rows: the sum of the colours, red against blue, green against both; orthogonal, so white noise stays white
_COLOUR_MATRIX = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]])
_MATRIX_NORMS = np.linalg.norm(_COLOUR_MATRIX, axis=1)
_MAX_VALUE = 1e15  # squares of larger values, or of values below its inverse, do not fit into single precision
_ALPHA_ADVICE = {
    (1,): " Leave out the last axis: image[..., 0].",
    (2,): " An alpha channel is not noise: leave it out, image[..., 0].",
    (4,): " An alpha channel is not noise: leave it out, image[..., :3].",
}
_STRIPE_PIXELS = 1 << 20  # pixels worked on at a time


class Planes:
    """A picture (h, w) or (h, w, 3) as one or three planes (h, w) of float32.

    The colours are mixed into (r + g + b) / sqrt(3), (r - b) / sqrt(2) and (r - 2 g + b) / sqrt(6): an
    orthonormal transform, so white noise stays white and of the same strength in each plane, while nearly all of the
    content of a photograph is in the first. Only the rows that are read are transformed.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3) of uint8, uint16, float32 or float64
    """

    def __init__(self, image: Any) -> None:
        image = np.asarray(image)
        image = image.astype(image.dtype.newbyteorder("="), copy=False)
        colours = image.ndim == 3 and image.shape[2] == 3
        if image.ndim != 2 and not colours:
            advice = _ALPHA_ADVICE.get(image.shape[2:], "")
            raise ValueError(f"A picture has shape (height, width) or (height, width, 3), got {image.shape}.{advice}")
        if image.dtype not in (np.uint8, np.uint16, np.float32, np.float64):
            raise ValueError(f"A picture holds uint8, uint16, float32 or float64, got {image.dtype}. Convert it first.")
        if image.size == 0:
            raise ValueError(f"The picture has no pixels: its shape is {image.shape}.")
        self.image: Array = image
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
        if largest > _MAX_VALUE or 0.0 < largest < 1.0 / _MAX_VALUE:
            values = f"above {_MAX_VALUE:g}" if largest > 1.0 else f"no larger than {largest:.2g}"
            raise ValueError(
                f"The picture has values {values}, whose squares single precision does not hold. Rescale it."
            )

    def stripes(self) -> list[slice]:
        """Slices of rows to work on one by one."""
        step = max(1, _STRIPE_PIXELS // self.width)
        return [slice(top, min(self.height, top + step)) for top in range(0, self.height, step)]

    def read(self, plane: int, top: int, bottom: int) -> Array:
        """Rows ``top`` to ``bottom`` of a plane: (bottom - top, w) float32."""
        rows = self.image[top:bottom]
        if self.n_planes == 1:
            return np.ascontiguousarray(rows, dtype=np.float32)
        # in double precision the second and third plane of a grey picture are exactly 0
        mixed = rows[..., 0].astype(np.float64)
        for colour in (1, 2):
            if _COLOUR_MATRIX[plane, colour]:
                mixed += _COLOUR_MATRIX[plane, colour] * rows[..., colour]
        return (mixed / _MATRIX_NORMS[plane]).astype(np.float32)

    def channels(self, top: int, bottom: int) -> list[Array]:
        """Rows ``top`` to ``bottom`` of grey, or of each colour: (bottom - top, w)."""
        rows = self.image[top:bottom]
        return [rows] if self.n_planes == 1 else [rows[..., colour] for colour in range(3)]

    def shares(self, plane: int) -> Array:
        """The share of the variance of each channel in that of a plane."""
        return np.ones(1) if self.n_planes == 1 else (_COLOUR_MATRIX[plane] / _MATRIX_NORMS[plane]) ** 2

    def changed(self, top: int, change: Array) -> Array:
        """The rows from ``top`` on after ``change`` (planes, rows, w) is subtracted from the planes: float64."""
        rows = self.image[top : top + change.shape[1]].astype(np.float64)
        if self.n_planes == 1:
            return rows - change[0]
        for colour in range(3):
            for plane in range(3):
                if _COLOUR_MATRIX[plane, colour]:
                    rows[..., colour] -= change[plane] * (_COLOUR_MATRIX[plane, colour] / _MATRIX_NORMS[plane])
        return rows


def as_colours(planes: Array) -> Array:
    """Values (..., 3) of the three planes as red, green and blue."""
    colours: Array = planes @ (_COLOUR_MATRIX / _MATRIX_NORMS[:, None])
    return colours


def as_pixels(values: Array, dtype: Any) -> Array:
    """Numbers as pixels of a type: rounded and clipped to its range if it is an integer type."""
    if np.dtype(dtype).kind == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    pixels: Array = np.clip(np.rint(values), limits.min, limits.max).astype(dtype)
    return pixels
