"""Writes PNG and TIFF files of 16 bits; Pillow can do so for grey only.

TIFF is written by tifffile. No library writes PNG as well: pypng and imagecodecs leave out the colour profile, and
files of pypng are a fifth larger.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from tithe.core.data import Array

_STRIPE_BYTES = 1 << 22  # bytes that are compressed at a time
_ZLIB_LEVEL = 4  # higher levels hardly compress the lower bytes of photographs
_PNG_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by number of channels


def write_deep(
    path: str | os.PathLike[str], pixels: Array, alpha: Array | None, profile: bytes | None, *, png: bool
) -> None:
    """Write pixels (h, w) or (h, w, 3) and alpha (h, w), both uint16, as PNG or TIFF."""
    values = pixels if pixels.ndim == 3 else pixels[..., None]
    if alpha is not None:
        values = np.concatenate([values, alpha[..., None]], axis=2)
    with open(path, "wb") as file:
        (_write_png if png else _write_tiff)(file, values, profile)


def _stripes(values: Array) -> Iterator[Array]:
    rows = max(1, _STRIPE_BYTES // values[0].nbytes)
    for top in range(0, len(values), rows):
        yield values[top : top + rows]


def _write_tiff(file: BinaryIO, values: Array, profile: bytes | None) -> None:
    import tifffile

    channels = values.shape[2]
    tifffile.imwrite(
        file,
        values if channels > 1 else values[..., 0],
        photometric="rgb" if channels > 2 else "minisblack",
        planarconfig="contig" if channels > 1 else None,
        extrasamples=["unassalpha"] if channels in (2, 4) else None,
        rowsperstrip=max(1, _STRIPE_BYTES // values[0].nbytes),
        compression="adobe_deflate",
        compressionargs={"level": _ZLIB_LEVEL},
        predictor=True,
        iccprofile=profile,
        software=False,
        metadata=None,
        maxworkers=1,
    )


# -- PNG (W3C, third edition) ----------------------------------------------------------------------


def _write_png(file: BinaryIO, values: Array, profile: bytes | None) -> None:
    height, width, channels = values.shape
    file.write(b"\x89PNG\r\n\x1a\n")
    _chunk(file, b"IHDR", struct.pack(">IIBBBBB", width, height, 16, _PNG_COLOUR_TYPES[channels], 0, 0, 0))
    if profile:
        _chunk(file, b"iCCP", b"ICC profile\0\0" + zlib.compress(profile))
    pack = zlib.compressobj(_ZLIB_LEVEL)
    above = np.zeros((1, 2 * width * channels), np.uint8)
    for stripe in _stripes(values):
        rows = stripe.astype(">u2").reshape(len(stripe), -1).view(np.uint8)
        _chunk(file, b"IDAT", pack.compress(_filtered(rows, above, 2 * channels)))
        above = rows[-1:]
    _chunk(file, b"IDAT", pack.flush())
    _chunk(file, b"IEND", b"")


def _chunk(file: BinaryIO, name: bytes, data: bytes) -> None:
    file.write(struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(data, zlib.crc32(name))))


def _filtered(rows: Array, above: Array, step: int) -> bytes:
    """Paeth's filter: each byte minus that to the left, above or above left, whichever its rule chooses."""
    up = np.concatenate([above, rows[:-1]])
    left, corner = np.zeros_like(rows), np.zeros_like(rows)
    left[:, step:], corner[:, step:] = rows[:, :-step], up[:, :-step]
    to_left = np.abs(up.astype(np.int16) - corner)  # of left + up - corner
    to_up = np.abs(left.astype(np.int16) - corner)
    to_corner = np.abs(left.astype(np.int16) + up - 2 * corner.astype(np.int16))
    near = np.where(to_up <= to_corner, up, corner)
    near = np.where((to_left <= to_up) & (to_left <= to_corner), left, near)
    lines = np.empty((len(rows), 1 + rows.shape[1]), np.uint8)
    lines[:, 0] = 4
    np.subtract(rows, near, out=lines[:, 1:])
    return lines.tobytes()
