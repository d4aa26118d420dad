"""Reads picture files as arrays, with Pillow."""

from __future__ import annotations

import os
import struct
import sys
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.errors import FileFormatError
from tithe.sources.file_access import check_regular
from tithe.sources.limits import Limits

_OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
_PIXEL_BYTES = {"I": 4, "F": 4, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}  # per channel; 1 in other modes
_BITS, _PLANAR = 258, 284  # tags of TIFF


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture as it was in a file.

    Parameters
    ----------
    pixels : array (h, w) or (h, w, 3) of uint8 or uint16
    alpha : array (h, w) of the same type, optional
        The opacity of each pixel.
    profile : bytes, optional
        The ICC profile of the colours.
    notes : list of str
        What was changed when the file was read.
    """

    pixels: Array
    alpha: Array | None = None
    profile: bytes | None = None
    notes: list[str] = field(default_factory=list)


def read_picture(path: str | os.PathLike[str], limits: Limits | None = None) -> Picture:
    """Read a picture of any format and mode that Pillow knows, and rotate it as its EXIF data says.

    Palettes become colours, and an alpha channel is stored apart. Of several frames the first is read. PNG and TIFF
    files of 16 bits keep them, in grey and in colour; other colours of more than 8 bits are read with 8, with a note.
    A picture that takes more memory than ``limits`` allow is refused before it is unpacked.
    """
    from PIL import Image

    name = os.fspath(path)
    check_regular(name)
    try:
        return _read(path, limits or Limits())
    except Image.UnidentifiedImageError as error:
        raise FileFormatError(f"{name!r} is not a picture: {error}") from error
    except FileFormatError as error:
        raise FileFormatError(f"{name!r} cannot be read: {error}") from error
    except PermissionError:
        raise
    except Exception as error:  # the decoders of damaged files raise many kinds of errors
        raise FileFormatError(f"{name!r} is not a whole picture file: {error}") from error


def _read(path: str | os.PathLike[str], limits: Limits) -> Picture:
    from PIL import Image, ImageOps

    notes = []
    with Image.open(path) as image:
        n_bytes = image.width * image.height * len(image.getbands()) * _PIXEL_BYTES.get(image.mode, 1)
        limits.check_unpacked("the picture", n_bytes, os.path.getsize(path))
        n_frames = getattr(image, "n_frames", 1)
        if n_frames > 1:
            notes.append(f"the first of {n_frames} frames was read")
        if image.format == "PNG":
            _check_chunks(path)
        layout = _layout(image)
        profile = None if image.mode in ("CMYK", "LAB", "YCbCr") else image.info.get("icc_profile")
        if _is_deep(image, layout):
            pixels, alpha = _deep_arrays(path, layout, image.info.get("transparency"))
        else:
            if layout[-4:-1] == ";16" and image.mode in ("RGB", "RGBA", "CMYK"):
                notes.append("16-bit colours were read with 8 bits")
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            pixels, alpha = _arrays(image, notes)
    return Picture(pixels=pixels, alpha=alpha, profile=profile, notes=notes)


def _check_chunks(path: str | os.PathLike[str]) -> None:
    """Refuse a PNG that ends early or has a wrong checksum, since Pillow does not check those of pixels."""
    with open(path, "rb") as file:
        file.seek(8)
        kind = b""
        while kind != b"IEND":
            head = file.read(8)
            if len(head) < 8:
                raise OSError("it ends before its last part")
            left, kind = struct.unpack(">I4s", head)
            checksum = zlib.crc32(kind)
            while left:
                data = file.read(min(left, 1 << 20))
                if not data:
                    raise OSError("it ends before its last part")
                left, checksum = left - len(data), zlib.crc32(data, checksum)
            if file.read(4) != struct.pack(">I", checksum):
                raise OSError(f"the checksum of a part, {kind!r}, is wrong")


# -- 16 bits ---------------------------------------------------------------------------------------


def _layout(image: Any) -> str:
    """Pillow's name of the layout of a pixel in the file. A PPM of more than 8 bits gets that of a PNG."""
    args = image.tile[0][3] if image.tile else ""
    if image.format == "PPM" and isinstance(args, tuple) and args[-1] > 255:
        return f"{args[0]};16B"
    return args if isinstance(args, str) else str(args[0]) if args else ""


def _is_deep(image: Any, layout: str) -> bool:
    """Whether all 16 bits of colours, or of grey and alpha, can be read."""
    if image.format == "TIFF":
        bits, planar = image.tag_v2.get(_BITS, (1,)), image.tag_v2.get(_PLANAR, 1)
        if planar == 2 and len(bits) > 1 and max(bits) > 8:  # Pillow reads them wrongly
            raise FileFormatError("its 16-bit colours stand in separate planes; write them pixel by pixel")
    elif image.format != "PNG":
        return False
    return layout[:-1] in ("RGB;16", "RGBA;16", "RGBX;16") or (layout == "LA;16B" and image.mode == "RGBA")


def _deep_arrays(path: str | os.PathLike[str], layout: str, clear: Any) -> tuple[Array, Array | None]:
    """Pixels and alpha of 16 bits. ``clear`` is the colour that means full transparency, if any.

    Pillow reads one byte per channel, the higher one. With the opposite byte order it reads the lower ones. Grey with
    alpha has four bytes per pixel, and is read as four channels of one byte.
    """
    if layout == "LA;16B":
        channels_of_bytes = _bytes_as(path, "RGBA")
        high, low = channels_of_bytes[..., ::2], channels_of_bytes[..., 1::2]
    else:
        high, low = (_bytes_as(path, way) for way in (layout, layout[:-1] + _OTHER_ORDER[layout[-1]]))
    values = high.astype(np.uint16)
    values <<= 8
    values |= low
    channels = values.shape[2]
    if channels in (2, 4):
        pixels = np.ascontiguousarray(values[..., 0] if channels == 2 else values[..., :3])
        return pixels, np.ascontiguousarray(values[..., -1])
    return values, None if clear is None else _opaque(np.not_equal(values, np.array(clear, np.uint16)))


def _bytes_as(path: str | os.PathLike[str], layout: str) -> Array:
    """The picture read with this layout of its bytes, and rotated as its EXIF data says."""
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        image.tile = [
            tile._replace(args=(layout, *tile.args[1:]) if isinstance(tile.args, tuple) else layout)
            for tile in image.tile
        ]
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return np.asarray(image)


def _opaque(differs: Array) -> Array:
    """Alpha of 16 bits: opaque where ``differs``, (h, w) or (h, w, 3), from the transparent colour."""
    if differs.ndim == 3:
        differs = np.any(differs, axis=2)
    return differs.astype(np.uint16) * np.uint16(65535)


# -- 8 bits, and grey ------------------------------------------------------------------------------


def _arrays(image: Any, notes: list[str]) -> tuple[Array, Array | None]:
    if image.mode in ("I;16", "I;16B", "I;16L", "I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise FileFormatError("its values do not fit into 16 bits")
        clear = image.info.get("transparency")
        return values.astype(np.uint16), None if clear is None else _opaque(np.not_equal(values, clear))
    if image.mode == "F":
        raise FileFormatError("its pixels are floating point numbers; load it as an array and use ImageDenoiser")
    alpha = None
    if image.mode in ("LA", "RGBA", "PA", "RGBa") or "transparency" in image.info:
        whole = image.convert("RGBA")
        alpha = np.asarray(whole.getchannel("A"))
        image = whole.convert("L") if image.mode in ("L", "LA", "1") else whole.convert("RGB")
    if image.mode not in ("L", "RGB"):
        grey = image.mode == "1"
        notes.append("black and white became grey" if grey else f"its mode, {image.mode}, was changed to RGB")
        image = image.convert("L" if grey else "RGB")
    return np.array(image), alpha
