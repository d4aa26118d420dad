"""Writes PNG and TIFF files of 16 bits; Pillow can do so for grey only."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from tithe.core.data import Array

_STRIPE_BYTES = 1 << 22  # bytes that are compressed at a time
_ZLIB_LEVEL = 4  # higher levels hardly compress the lower bytes of photographs
_PNG_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by number of channels
_TIFF_SHORT, _TIFF_LONG, _TIFF_BYTES = 3, 4, 7  # types of entries


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


# -- TIFF (revision 6, with Adobe's deflate) -------------------------------------------------------


def _write_tiff(file: BinaryIO, values: Array, profile: bytes | None) -> None:
    height, width, channels = values.shape
    file.write(struct.pack("<2sHI", b"II", 42, 0))
    starts, sizes = [], []
    for stripe in _stripes(values):
        rows = stripe.astype("<u2")
        rows[:, 1:] -= stripe[:, :-1]  # horizontal differences, modulo 65536
        data = zlib.compress(rows.tobytes(), _ZLIB_LEVEL)
        starts.append(file.tell())
        sizes.append(len(data))
        file.write(data)
    entries: dict[int, tuple[int, Any]] = {
        256: (_TIFF_LONG, [width]),
        257: (_TIFF_LONG, [height]),
        258: (_TIFF_SHORT, [16] * channels),
        259: (_TIFF_SHORT, [8]),  # deflate
        262: (_TIFF_SHORT, [2 if channels > 2 else 1]),  # colours, or black is zero
        273: (_TIFF_LONG, starts),
        277: (_TIFF_SHORT, [channels]),
        278: (_TIFF_LONG, [max(1, _STRIPE_BYTES // values[0].nbytes)]),
        279: (_TIFF_LONG, sizes),
        317: (_TIFF_SHORT, [2]),  # horizontal differences
    }
    if channels in (2, 4):
        entries[338] = (_TIFF_SHORT, [2])  # unassociated alpha
    if profile:
        entries[34675] = (_TIFF_BYTES, profile)
    _write_entries(file, entries)


def _write_entries(file: BinaryIO, entries: dict[int, tuple[int, Any]]) -> None:
    """Write the directory at the end of the file, long values before it, and its position into the header."""
    lines = []
    for tag, (kind, content) in sorted(entries.items()):
        code = "H" if kind == _TIFF_SHORT else "I"
        data = content if kind == _TIFF_BYTES else struct.pack(f"<{len(content)}{code}", *content)
        if len(data) > 4:
            file.write(b"\0" * (file.tell() % 2))
            data, _ = struct.pack("<I", file.tell()), file.write(data)
        lines.append(struct.pack("<HHI", tag, kind, len(content)) + data.ljust(4, b"\0"))
    file.write(b"\0" * (file.tell() % 2))
    place = file.tell()
    file.write(struct.pack("<H", len(lines)) + b"".join(lines) + struct.pack("<I", 0))
    file.seek(4)
    file.write(struct.pack("<I", place))
