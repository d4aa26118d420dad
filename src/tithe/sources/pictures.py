"""Picture files: what Pillow reads, as arrays of grey or colour."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.errors import FileFormatError


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture as it was in a file.

    Parameters
    ----------
    pixels : array (h, w) or (h, w, 3) of uint8 or uint16
    alpha : array (h, w) of uint8, optional
        How opaque each pixel is.
    profile : bytes, optional
        What the colours mean (ICC).
    notes : list of str
        What was changed on the way in.
    """

    pixels: Array
    alpha: Array | None = None
    profile: bytes | None = None
    notes: list[str] = field(default_factory=list)


def read_picture(path: str | os.PathLike[str]) -> Picture:
    """A picture of any format and mode that Pillow knows, turned upright as its camera says.

    Palettes become colours; an alpha channel is set aside. Of several frames the first is read. 16-bit grey
    stays as it is; 16-bit colour is read with 8 bits, which is all that Pillow does, and noted.
    """
    from PIL import Image, ImageOps

    name = os.fspath(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no file {name!r}.")
    notes = []
    try:
        with Image.open(path) as image:
            n_frames = getattr(image, "n_frames", 1)
            if n_frames > 1:
                notes.append(f"the first of {n_frames} frames was read")
            if _is_deep_colour(path, image):
                notes.append("16-bit colours were read with 8 bits")
            image.load()
            upright = ImageOps.exif_transpose(image)
            profile = image.info.get("icc_profile")
            pixels, alpha = _arrays(upright, notes)
    except (Image.UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, EOFError) as error:
        if isinstance(error, PermissionError):
            raise
        what = "is not a picture" if isinstance(error, Image.UnidentifiedImageError) else "is not a whole picture file"
        raise FileFormatError(f"{name!r} {what}: {error}") from error
    return Picture(pixels=pixels, alpha=alpha, profile=profile, notes=notes)


def _is_deep_colour(path: str | os.PathLike[str], image: Any) -> bool:
    """Whether a PNG holds colours of 16 bits: Pillow says nothing of it. Byte 24 is the depth, 25 the kind."""
    if image.format != "PNG" or image.mode not in ("RGB", "RGBA"):
        return False
    with open(path, "rb") as file:
        head = file.read(26)
    return len(head) == 26 and head[24] == 16


def _arrays(image: Any, notes: list[str]) -> tuple[Array, Array | None]:
    if image.mode in ("I;16", "I;16B", "I;16L", "I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise FileFormatError("its values do not fit into 16 bits")
        return values.astype(np.uint16), None
    if image.mode == "F":
        raise FileFormatError("its pixels are floating point numbers; load it as an array and use ImageDenoiser")
    alpha = None
    if image.mode in ("LA", "RGBA", "PA", "La", "RGBa") or "transparency" in image.info:
        whole = image.convert("RGBA")
        alpha = np.asarray(whole.getchannel("A"))
        image = whole.convert("L") if image.mode in ("LA", "La") else whole.convert("RGB")
    if image.mode not in ("L", "RGB"):
        grey = image.mode == "1"
        notes.append("black and white became grey" if grey else f"its mode, {image.mode}, was changed to RGB")
        image = image.convert("L" if grey else "RGB")
    return np.array(image), alpha
