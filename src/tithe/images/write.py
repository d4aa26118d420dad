"""Writes pictures, and draws the atoms of a dictionary."""

from __future__ import annotations

import io as memory
import os
from pathlib import Path
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.files import replacing
from tithe.images.deep import write_deep
from tithe.images.planes import as_colours
from tithe.images.read import Picture

_ALPHA_FORMATS = (".png", ".tif", ".tiff", ".webp")
_DEEP_FORMATS = (".png", ".tif", ".tiff")  # with 16 bits
_MAX_SIDE = {".jpg": 65535, ".jpeg": 65535, ".webp": 16383}  # pixels along a side, of lossy formats
_PIXELS_PER_ENTRY, _LINE_PIXELS = 5, 2  # pixels for each entry of an atom, and between atoms
_BACKGROUND = 255


def check_picture_name(path: str | os.PathLike[str], shape: tuple[int, ...] = (8, 8)) -> None:
    """Refuse a name whose ending is not that of a format that can hold such a picture."""
    from PIL import Image

    ending = Path(path).suffix.lower()
    form = Image.registered_extensions().get(ending)
    try:
        Image.new("RGB", (8, 8)).save(memory.BytesIO(), format=form if form in Image.SAVE else "")
    except (KeyError, OSError, ValueError) as error:
        advice = f"no picture format ends in {ending!r}. Take .png, .jpg or .tif."
        raise ValueError(f"{os.fspath(path)!r}: {advice}") from error
    max_side = _MAX_SIDE.get(ending, max(shape))
    if max(shape) > max_side:
        raise ValueError(f"{os.fspath(path)!r}: {ending} has at most {max_side} pixels per side. Take .png or .tif.")


def write_picture(path: str | os.PathLike[str], picture: Picture) -> list[str]:
    """Write a picture in the format of its name. Returns notes on what the format cannot hold.

    The file is replaced only when it is complete. JPEG and WebP are written with quality 95.
    """
    check_picture_name(path, picture.pixels.shape)
    ending = Path(path).suffix.lower()
    pixels, alpha, notes = picture.pixels, picture.alpha, []
    if alpha is not None and ending not in _ALPHA_FORMATS:
        notes.append(f"the alpha channel was dropped: {ending} has none")
        alpha = None
    deep = pixels.dtype == np.uint16 and ending in _DEEP_FORMATS
    if deep and alpha is not None and pixels.ndim == 2 and ending != ".png":  # few programs read such a TIFF
        notes.append(f"grey with alpha became colour in {ending}")
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    elif pixels.dtype == np.uint16 and not deep:
        notes.append(f"16 bits became 8 in {ending}")
        pixels, alpha = _as_bytes(pixels), None if alpha is None else _as_bytes(alpha)
    with replacing(path) as temporary:
        if deep:
            write_deep(temporary, pixels, alpha, picture.profile, png=ending == ".png")
        else:
            _save(temporary, ending, pixels, alpha, picture.profile)
    return notes


def _save(path: Path, ending: str, pixels: Array, alpha: Array | None, profile: bytes | None) -> None:
    from PIL import Image

    image = Image.fromarray(pixels)
    if alpha is not None:
        image.putalpha(Image.fromarray(alpha))
    options: dict[str, Any] = {"quality": 95} if ending in _MAX_SIDE else {}
    if profile:
        options["icc_profile"] = profile
    image.save(path, format=Image.registered_extensions()[ending], **options)


def _as_bytes(values: Array) -> Array:
    """Values of 16 bits rounded to 8 bits."""
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def atoms_picture(atoms: Array) -> Array:
    """A picture (h, w) of uint8 that shows the atoms (k, side * side), smooth ones first.

    Grey is zero. Each atom is scaled by its largest entry. Atoms (k, 3 * side * side) of stacked planes are shown in
    their colours: (h, w, 3).
    """
    k, d = atoms.shape
    side = round(d**0.5)
    n_planes = 1 if side * side == d else 3
    side = round((d / n_planes) ** 0.5)
    if n_planes * side * side != d:
        raise ValueError(f"Atoms of {d} entries are no square patches.")
    squares = np.moveaxis(atoms.reshape(k, n_planes, side, side).astype(np.float64), 1, 3)
    squares = squares if n_planes == 1 else as_colours(squares)
    squares /= np.maximum(np.abs(squares).max(axis=(1, 2, 3), keepdims=True), 1e-300)
    roughness = sum((np.diff(squares, axis=axis) ** 2).sum(axis=(1, 2, 3)) for axis in (1, 2))
    roughness /= (squares**2).sum(axis=(1, 2, 3)) + 1e-300
    squares = squares[np.argsort(roughness, kind="stable")]
    across = int(np.ceil(k**0.5))
    zoom = _PIXELS_PER_ENTRY
    tile = side * zoom + _LINE_PIXELS
    shape = (-(-k // across) * tile + _LINE_PIXELS, across * tile + _LINE_PIXELS, n_planes)
    page = np.full(shape, _BACKGROUND, np.uint8)
    for i, square in enumerate(squares):
        y, x = (_LINE_PIXELS + tile * at for at in divmod(i, across))
        shade = np.rint(127.5 + 127.5 * square).astype(np.uint8)
        page[y : y + side * zoom, x : x + side * zoom] = np.kron(shade, np.ones((zoom, zoom, 1), np.uint8))
    return page[..., 0] if n_planes == 1 else page
