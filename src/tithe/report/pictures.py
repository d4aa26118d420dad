"""Pictures that are written: in the format of their name, and the atoms of a dictionary as one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.persist import replacing
from tithe.sources.pictures import Picture

_ALPHA_FORMATS = (".png", ".tif", ".tiff", ".webp")
_DEEP_FORMATS = (".png", ".tif", ".tiff")  # that hold 16 bits
_ZOOM, _LINE = 5, 2  # pixels for each entry of an atom, and between atoms
_PAPER = 255


def check_picture_name(path: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a name whose ending no picture format has."""
    from PIL import Image

    ending = Path(path).suffix.lower()
    if Image.registered_extensions().get(ending) not in Image.SAVE:
        raise ValueError(f"{os.fspath(path)!r}: no picture format ends in {ending!r}. Take .png, .jpg or .tif.")


def write_picture(path: str | os.PathLike[str], picture: Picture) -> list[str]:
    """Write a picture in the format of its name; returns what the format could not hold.

    The file appears at once and whole. JPEG is written with quality 95.
    """
    from PIL import Image

    check_picture_name(path)
    ending = Path(path).suffix.lower()
    pixels, notes = picture.pixels, []
    if pixels.dtype == np.uint16 and (pixels.ndim == 3 or ending not in _DEEP_FORMATS):
        notes.append(f"16 bits became 8 in {ending}")
        pixels = (pixels // 257).astype(np.uint8)
    image = Image.fromarray(pixels)
    if picture.alpha is not None and ending in _ALPHA_FORMATS:
        image.putalpha(Image.fromarray(picture.alpha))
    elif picture.alpha is not None:
        notes.append(f"the alpha channel was dropped: {ending} has none")
    options: dict[str, Any] = {"quality": 95} if ending in (".jpg", ".jpeg") else {}
    if picture.profile:
        options["icc_profile"] = picture.profile
    with replacing(path) as temporary:
        image.save(temporary, format=Image.registered_extensions()[ending], **options)
    return notes


def atoms_picture(atoms: Array) -> Array:
    """Atoms (k, side * side) side by side, smooth ones first: a picture (h, w) of uint8.

    Grey is zero, and each atom is stretched to its own largest entry.
    """
    k, d = atoms.shape
    side = round(d**0.5)
    if side * side != d:
        raise ValueError(f"Atoms of {d} entries are no square patches.")
    squares = atoms.reshape(k, side, side).astype(np.float64)
    squares /= np.maximum(np.abs(squares).max(axis=(1, 2), keepdims=True), 1e-300)
    rough = (np.diff(squares, axis=1) ** 2).sum(axis=(1, 2)) + (np.diff(squares, axis=2) ** 2).sum(axis=(1, 2))
    rough /= (squares**2).sum(axis=(1, 2)) + 1e-300
    squares = squares[np.argsort(rough, kind="stable")]
    across = int(np.ceil(k**0.5))
    tile = side * _ZOOM + _LINE
    page = np.full((-(-k // across) * tile + _LINE, across * tile + _LINE), _PAPER, np.uint8)
    for i, square in enumerate(squares):
        y, x = (_LINE + tile * at for at in divmod(i, across))
        shade = np.rint(127.5 + 127.5 * square).astype(np.uint8)
        page[y : y + side * _ZOOM, x : x + side * _ZOOM] = np.kron(shade, np.ones((_ZOOM, _ZOOM), np.uint8))
    return page
