"""Pictures: planes of colours, and reading and writing them."""

from __future__ import annotations

import io as memory
import math
import os
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array
from tithe.core.errors import FileFormatError
from tithe.core.files import replacing
from tithe.rows.stores import Limits, check_regular

# rows: the sum of the colours, red against blue, green against both; orthogonal, so white noise stays white
_COLOR_MATRIX = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]])
_MATRIX_NORMS = np.linalg.norm(_COLOR_MATRIX, axis=1)
_MAX_VALUE = 1e15  # squares of larger values, or of values below its inverse, do not fit into single precision
_ALPHA_ADVICE = {
    (1,): " Leave out the last axis: image[..., 0].",
    (2,): " An alpha channel is not noise: leave it out, image[..., 0].",
    (4,): " An alpha channel is not noise: leave it out, image[..., :3].",
}
_STRIPE_PIXELS = 1 << 20  # pixels worked on at a time
_OTHER_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
_PIXEL_BYTES = {"I": 4, "F": 4, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}  # per channel; 1 in other modes
_BITS, _PLANAR = 258, 284  # tags of TIFF
_ALPHA_FORMATS = (".png", ".tif", ".tiff", ".webp")
_DEEP_FORMATS = (".png", ".tif", ".tiff")  # with 16 bits
_MAX_SIDE = {".jpg": 65535, ".jpeg": 65535, ".webp": 16383}  # pixels along a side, of lossy formats
_STRIP_BYTES = 1 << 22  # bytes of a TIFF that are compressed at a time
_ZLIB_LEVEL = 4  # higher levels hardly compress the lower bytes of photographs
_PNG_HEAD = 33  # bytes of the signature and the first chunk of a PNG
_PIXELS_PER_ENTRY, _LINE_PIXELS, _BACKGROUND = 5, 2, 255  # in pictures of atoms: of an entry, and between atoms


class Planes:
    """A picture (h, w) or (h, w, 3) as one or three planes (h, w) of float32, transformed as they are read.

    The colours are mixed into (r + g + b) / sqrt(3), (r - b) / sqrt(2) and (r - 2 g + b) / sqrt(6): an orthonormal
    transform, so white noise stays white, while nearly all of a photograph is in the first.
    """

    def __init__(self, image: Any) -> None:
        if sparse.issparse(image):
            raise TypeError("Sparse data was passed, and pictures are dense: convert it with image.toarray().")
        image = np.asarray(image)
        image = image.astype(image.dtype.newbyteorder("="), copy=False)
        colors = image.ndim == 3 and image.shape[2] == 3
        if image.ndim != 2 and not colors:
            advice = _ALPHA_ADVICE.get(image.shape[2:], "")
            raise ValueError(f"A picture has shape (height, width) or (height, width, 3), got {image.shape}.{advice}")
        if image.dtype not in (np.uint8, np.uint16, np.float32, np.float64):
            raise ValueError(f"A picture holds uint8, uint16, float32 or float64, got {image.dtype}. Convert it first.")
        if image.size == 0:
            raise ValueError(f"The picture has no pixels: its shape is {image.shape}.")
        self.image: Array = image
        self.height, self.width = image.shape[:2]
        self.n_planes = 3 if colors else 1
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
        for color in (1, 2):
            if _COLOR_MATRIX[plane, color]:
                mixed += _COLOR_MATRIX[plane, color] * rows[..., color]
        return np.asarray((mixed / _MATRIX_NORMS[plane]).astype(np.float32))

    def channels(self, top: int, bottom: int) -> list[Array]:
        """Rows ``top`` to ``bottom`` of grey, or of each colour: (bottom - top, w)."""
        rows = self.image[top:bottom]
        return [rows] if self.n_planes == 1 else [rows[..., color] for color in range(3)]

    def shares(self, plane: int) -> Array:
        """The share of the variance of each channel in that of a plane."""
        return np.ones(1) if self.n_planes == 1 else (_COLOR_MATRIX[plane] / _MATRIX_NORMS[plane]) ** 2

    def changed(self, top: int, change: Array) -> Array:
        """The rows from ``top`` on after ``change`` (planes, rows, w) is subtracted from the planes: float64."""
        rows = self.image[top : top + change.shape[1]].astype(np.float64)
        if self.n_planes == 1:
            return np.asarray(rows - change[0])
        for color in range(3):
            for plane in range(3):
                if _COLOR_MATRIX[plane, color]:
                    rows[..., color] -= change[plane] * (_COLOR_MATRIX[plane, color] / _MATRIX_NORMS[plane])
        return rows


def as_colors(planes: Array) -> Array:
    """Values (..., 3) of the three planes as red, green and blue."""
    return np.asarray(planes @ (_COLOR_MATRIX / _MATRIX_NORMS[:, None]))


def as_pixels(values: Array, dtype: Any) -> Array:
    """Numbers as pixels of a type: rounded and clipped to its range if it is an integer type."""
    if np.dtype(dtype).kind == "f":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Pixels (h, w) or (h, w, 3) of uint8 or uint16 as in a file, alpha (h, w), ICC profile, notes on changes."""

    pixels: Array
    alpha: Array | None = None
    profile: bytes | None = None
    notes: list[str] = field(default_factory=list)


def read_picture(path: str | os.PathLike[str], limits: Limits | None = None) -> Picture:
    """Read a picture of any format and mode that Pillow knows, and rotate it as its EXIF data says.

    Of several frames the first is read. PNG and TIFF files of 16 bits keep them. A picture that takes more memory than
    ``limits`` allow is refused before it is unpacked.
    """
    from PIL import UnidentifiedImageError

    name = os.fspath(path)
    check_regular(name)
    try:
        return _read(path, limits or Limits())
    except UnidentifiedImageError as error:
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
        if image.format == "PNG":  # whose checksums are not looked at when pixels are read
            with Image.open(path) as chunks:
                chunks.verify()
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
    """Pixels and alpha of 16 bits; ``clear`` is the colour that means full transparency, if any.

    Pillow reads one byte per channel, the higher one; with the opposite byte order, the lower one.
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
        gray = image.mode == "1"
        notes.append("black and white became grey" if gray else f"its mode, {image.mode}, was changed to RGB")
        image = image.convert("L" if gray else "RGB")
    return np.array(image), alpha


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
    """Write a picture in the format of its name, whole or not at all. Returns notes on what the format cannot hold."""
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
            values = pixels if pixels.ndim == 3 else pixels[..., None]
            values = values if alpha is None else np.concatenate([values, alpha[..., None]], axis=2)
            (_save_deep_png if ending == ".png" else _save_deep_tiff)(temporary, values, picture.profile)
        else:
            _save(temporary, ending, pixels, alpha, picture.profile)
    return notes


def _save(path: Path, ending: str, pixels: Array, alpha: Array | None, profile: bytes | None) -> None:
    from PIL import Image

    image = Image.fromarray(pixels)
    if alpha is not None:
        image.putalpha(Image.fromarray(alpha))
    options: dict[str, Any] = {"quality": 95} if ending in _MAX_SIDE else {}
    options |= {"icc_profile": profile} if profile else {}
    image.save(path, format=Image.registered_extensions()[ending], **options)


def _save_deep_png(path: Path, values: Array, profile: bytes | None) -> None:
    """Write values (h, w, 1 to 4) of 16 bits: Pillow writes colors with 8."""
    import png

    height, width, channels = values.shape
    writer = png.Writer(
        width, height, greyscale=channels < 3, alpha=channels in (2, 4), bitdepth=16, compression=_ZLIB_LEVEL
    )
    whole = memory.BytesIO()
    writer.write_packed(whole, (row.astype(">u2").tobytes() for row in values))
    with open(path, "wb") as file, whole.getbuffer() as data:
        file.write(data[:_PNG_HEAD])
        if profile:  # which pypng does not write
            png.write_chunk(file, b"iCCP", b"ICC profile\0\0" + zlib.compress(profile))
        file.write(data[_PNG_HEAD:])


def _save_deep_tiff(path: Path, values: Array, profile: bytes | None) -> None:
    """Write values (h, w, 1 to 4) of 16 bits."""
    import tifffile

    channels = values.shape[2]
    tifffile.imwrite(
        path,
        values if channels > 1 else values[..., 0],
        photometric="rgb" if channels > 2 else "minisblack",
        planarconfig="contig" if channels > 1 else None,
        extrasamples=["unassalpha"] if channels in (2, 4) else None,
        rowsperstrip=max(1, _STRIP_BYTES // values[0].nbytes),
        compression="adobe_deflate",
        compressionargs={"level": _ZLIB_LEVEL},
        predictor=True,
        iccprofile=profile,
        software=False,
        metadata=None,
        maxworkers=1,
    )


def _as_bytes(values: Array) -> Array:
    """Values of 16 bits rounded to 8 bits."""
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def atoms_picture(atoms: Array, shape: tuple[int, int] | None = None) -> Array:
    """A picture of uint8 that shows the atoms (k, d) side by side, smooth ones first, each scaled by its largest entry.

    An atom is a square, or has the ``shape`` (height, width); one of three stacked planes is shown in its colours.
    """
    k, d = atoms.shape
    n_planes = 3 if d == 3 * math.isqrt(d // 3) ** 2 and shape is None and d != math.isqrt(d) ** 2 else 1
    height, width = shape or (math.isqrt(d // n_planes),) * 2
    if n_planes * height * width != d:
        asked = f"not of {height} x {width}: give their shape" if shape else "no square patches"
        raise ValueError(f"Atoms of {d} entries are {asked}.")
    squares = np.moveaxis(atoms.reshape(k, n_planes, height, width).astype(np.float64), 1, 3)
    squares = squares if n_planes == 1 else as_colors(squares)
    squares /= np.maximum(np.abs(squares).max(axis=(1, 2, 3), keepdims=True), 1e-300)
    roughness = sum((np.diff(squares, axis=axis) ** 2).sum(axis=(1, 2, 3)) for axis in (1, 2))
    roughness /= (squares**2).sum(axis=(1, 2, 3)) + 1e-300
    squares = squares[np.argsort(roughness, kind="stable")]
    across, zoom, line = math.ceil(k**0.5), _PIXELS_PER_ENTRY, _LINE_PIXELS
    down, right = height * zoom + line, width * zoom + line
    page = np.full((-(-k // across) * down + line, across * right + line, n_planes), _BACKGROUND, np.uint8)
    for i, square in enumerate(squares):
        y, x = line + down * (i // across), line + right * (i % across)
        shade = np.rint(127.5 + 127.5 * square).astype(np.uint8)
        page[y : y + height * zoom, x : x + width * zoom] = np.kron(shade, np.ones((zoom, zoom, 1), np.uint8))
    return page[..., 0] if n_planes == 1 else page
