"""Pictures as sparse codes of their patches, quantised and packed into few bytes."""

from __future__ import annotations

import json
import lzma
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.errors import FileFormatError
from tithe.core.parallel import single_blas_thread
from tithe.dictionary.pictures import Planes, as_colors, as_pixels
from tithe.dictionary.pursuit_kernels import pursue
from tithe.dictionary.solver import unit
from tithe.rows.stores import Limits

_MAGIC = b"TITHE\x00PIC1"
_TARGET = 0.16  # squared error of a pixel, in squares of the step, at which a patch takes no more atoms
_BAND = 64  # rows of patches that are coded at a time
_ATOM_LEVELS = 127  # of the entries of an atom, on either side of 0
_DTYPES = ("uint8", "uint16", "float32", "float64")
_MAX_CODE = 2**31 - 1
# bytes are coded one by one by how often they come, without regard to those before
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "lp": 0, "pb": 0}]


@dataclass(frozen=True, eq=False)
class EncodedPicture:
    """A picture as `ImageDenoiser.encode` gives it: whole numbers, the quantised codes of patches side by side.

    Parameters
    ----------
    shape, dtype : tuple, str
        Of the picture.
    patch_size : int
    step : float
        Of the quantised coefficients, in grey levels.
    atoms : (k, d) int8
        The dictionary, each atom up to its length.
    counts : (patches,)
        Atoms of each patch; patches are in rows, plane after plane.
    atom_gaps, values : (codes,)
        The atoms of a patch in ascending order, each as the difference from the one before, and their coefficients.
    mean_gaps : (patches,)
        The means of the patches, each as the difference from the one before.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.dictionary import EncodedPicture, ImageDenoiser
    >>> picture = np.kron(np.random.default_rng(0).integers(0, 255, (6, 6)), np.ones((12, 12))).astype(np.uint8)
    >>> model = ImageDenoiser(sigma=0, n_components=16, random_state=0).fit(picture)
    >>> data = model.encode(picture, step=20).to_bytes()
    >>> again = EncodedPicture.from_bytes(data).decode()
    >>> len(data) < picture.size, bool(np.abs(again - picture.astype(float)).mean() < 10)
    (True, True)
    """

    shape: tuple[int, ...]
    dtype: str
    patch_size: int
    step: float
    atoms: Array
    counts: Array
    atom_gaps: Array
    values: Array
    mean_gaps: Array

    def to_bytes(self) -> bytes:
        """The picture as `from_bytes` reads it."""
        packed = [_packed(stream) for stream in (self.counts, self.atom_gaps, self.values, self.mean_gaps)]
        packed.append([lzma.compress(self.atoms.tobytes(), lzma.FORMAT_RAW, filters=_FILTERS)])
        about = {
            "shape": list(self.shape), "dtype": self.dtype, "patch": self.patch_size, "step": self.step,
            "atoms": len(self.atoms), "codes": len(self.values), "parts": [[len(p) for p in parts] for parts in packed],
        }  # fmt: skip
        head = json.dumps(about, separators=(",", ":")).encode()
        body = b"".join(part for parts in packed for part in parts)
        return _MAGIC + struct.pack("<I", len(head)) + head + body

    @classmethod
    def from_bytes(cls, data: bytes, limits: Limits | None = None) -> EncodedPicture:
        """The picture from its bytes. Raises `FileFormatError` for others, and for one larger than ``limits`` allow."""
        if not data.startswith(_MAGIC):
            raise FileFormatError("This is no picture that tithe compress has written.")
        try:
            return cls._parsed(data, limits or Limits())
        except FileFormatError:
            raise
        except Exception as error:  # damaged headers and streams fail in many ways
            raise FileFormatError(f"This is no whole picture that tithe compress has written: {error}") from error

    @classmethod
    def _parsed(cls, data: bytes, limits: Limits) -> EncodedPicture:
        at = len(_MAGIC) + 4
        (length,) = struct.unpack("<I", data[at - 4 : at])
        about = json.loads(data[at : at + length])
        at += length
        shape, side, step = tuple(map(int, about["shape"])), int(about["patch"]), float(about["step"])
        n_atoms, n_codes = int(about["atoms"]), int(about["codes"])
        _check(len(shape) in (2, 3) and min(shape) > 0 and shape[2:] in ((), (3,)), "its shape")
        _check(about["dtype"] in _DTYPES and 0.0 < step < math.inf and 2 <= side <= 2**12, "its header")
        planes = 3 if len(shape) == 3 else 1
        n_patches = planes * math.prod(-(-pixels // side) for pixels in shape[:2])
        n_bytes = math.prod(shape) * np.dtype(about["dtype"]).itemsize
        limits.check_unpacked("the picture", n_bytes, len(data))
        _check(0 < n_atoms <= 2**20 and 0 <= n_codes <= n_patches * side * side, "its numbers of codes")
        limits.check_unpacked("its dictionary", n_atoms * side * side, len(data))
        *streams, (atom_bytes,) = about["parts"]
        numbers = []
        for sizes, n in zip(streams, (n_patches, n_codes, n_codes, n_patches), strict=True):
            parts, at = _cut(data, at, sizes)
            numbers.append(_unpacked(parts, n))
        (part,), at = _cut(data, at, [atom_bytes])
        atoms = np.frombuffer(_decompressed(part, n_atoms * side * side), np.int8).reshape(n_atoms, -1)
        _check(at == len(data), "its end")
        return cls(shape, about["dtype"], side, step, atoms, *numbers)._checked()

    def _checked(self) -> EncodedPicture:
        _check(self.counts.min(initial=0) >= 0 and self.counts.sum() == len(self.values), "its codes")
        chosen = self.chosen
        _check(chosen.min(initial=0) >= 0 and chosen.max(initial=0) < len(self.atoms), "its atoms")
        _check(np.abs(self.atoms).max(axis=1).min() > 0, "its dictionary")
        return self

    @property
    def chosen(self) -> Array:
        """The number of the atom of each code."""
        total = np.cumsum(self.atom_gaps)
        starts = np.cumsum(self.counts) - self.counts
        before = np.concatenate([[0], total])[starts]  # what came before each patch
        return np.asarray(total - np.repeat(before, self.counts))

    @property
    def bits_per_pixel(self) -> float:
        """Bits of `to_bytes` for each pixel, the dictionary included."""
        return 8.0 * len(self.to_bytes()) / math.prod(self.shape[:2])

    def decode(self) -> Array:
        """The picture, of its shape and type."""
        height, width = self.shape[:2]
        n_planes, side = 3 if len(self.shape) == 3 else 1, self.patch_size
        down, across = -(-height // side), -(-width // side)
        atoms = _unit_atoms(self.atoms)
        chosen, values = self.chosen, self.values * np.float32(self.step)
        first = np.concatenate([[0], np.cumsum(self.counts)])
        means = np.cumsum(self.mean_gaps) * (self.step / side)
        result = np.empty(self.shape, self.dtype)
        for top in range(0, down, _BAND):
            bottom = min(down, top + _BAND)
            planes = []
            for plane in range(n_planes):
                start, stop = ((plane * down + row) * across for row in (top, bottom))
                patches = np.repeat(means[start:stop, None].astype(np.float32), side * side, axis=1)
                codes = slice(first[start], first[stop])
                for part in _in_parts(codes.start, codes.stop):
                    rows = np.searchsorted(first, np.arange(part.start, part.stop), side="right") - 1 - start
                    np.add.at(patches, rows, values[part, None] * atoms[chosen[part]])
                shape = bottom - top, across, side, side
                planes.append(patches.reshape(shape).transpose(0, 2, 1, 3).reshape(-1, across * side))
            pixels = np.stack(planes, axis=-1).astype(np.float64)
            pixels = as_colors(pixels) if n_planes == 3 else pixels[..., 0]
            end = min(height, bottom * side)
            result[top * side : end] = as_pixels(pixels[: end - top * side, :width], self.dtype)
        return result


def encode_picture(image: Any, atoms: Array, side: int, *, step: float, max_atoms: int) -> EncodedPicture:
    """The codes of the patches of a picture, in these atoms (k, side * side), quantised with this step."""
    planes = Planes(image)
    levels = np.rint(atoms / np.abs(atoms).max(axis=1, keepdims=True) * _ATOM_LEVELS).astype(np.int8)
    exact, d = _unit_atoms(levels), side * side
    counts, gaps, values, means = [], [], [], []
    for plane in range(planes.n_planes):
        for patches in _bands(planes, plane, side):
            mean = np.rint(patches.mean(axis=1, dtype=np.float64) * side / step)
            patches -= (mean * (step / side)).astype(np.float32)[:, None]
            with single_blas_thread():
                chosen, coefficients, _, _ = pursue(patches, exact, n_nonzero=max_atoms, target=d * _TARGET * step**2)
            whole = np.where(chosen >= 0, np.rint(coefficients / step), 0.0).astype(np.int64)
            if np.abs(whole).max(initial=0) > _MAX_CODE or np.abs(mean).max() > _MAX_CODE:
                raise ValueError(f"step={step:g} is too small for the values of this picture.")
            order = np.argsort(np.where(whole == 0, len(atoms), chosen), axis=1, kind="stable")
            chosen, whole = (np.take_along_axis(part, order, axis=1) for part in (chosen, whole))
            used = whole != 0
            counts.append(used.sum(axis=1))
            gaps.append(np.diff(chosen, axis=1, prepend=0)[used])
            values.append(whole[used])
            means.append(mean.astype(np.int64))
    count, gap, value = (np.concatenate(numbers).astype(np.int64) for numbers in (counts, gaps, values))
    mean_gap = np.diff(np.concatenate(means), prepend=0)
    dtype = planes.image.dtype.name
    return EncodedPicture(planes.image.shape, dtype, side, float(step), levels, count, gap, value, mean_gap)


def _bands(planes: Planes, plane: int, side: int) -> Iterator[Array]:
    """Patches (n, side * side) of a plane side by side, some rows of them at a time; edges are continued."""
    across = -(-planes.width // side)
    for top in range(0, planes.height, _BAND * side):
        stripe = planes.read(plane, top, min(planes.height, top + _BAND * side))
        down = -(-len(stripe) // side)
        stripe = np.pad(stripe, ((0, down * side - len(stripe)), (0, across * side - planes.width)), mode="edge")
        patches = stripe.reshape(down, side, across, side).transpose(0, 2, 1, 3)
        yield np.ascontiguousarray(patches).reshape(-1, side * side)


def _unit_atoms(levels: Array) -> Array:
    return unit(levels.astype(np.float64)).astype(np.float32)


def _in_parts(start: int, stop: int, size: int = 1 << 15) -> Iterator[slice]:
    for at in range(start, stop, size):
        yield slice(at, min(stop, at + size))


# -- whole numbers as bytes ------------------------------------------------------------------------


def _packed(numbers: Array) -> list[bytes]:
    """Signed numbers as their bytes, the lowest of all first, each part compressed; without parts of zeros."""
    folded = np.where(numbers < 0, -2 * numbers - 1, 2 * numbers).astype("<u8")  # small ones of either sign are small
    columns = folded.view(np.uint8).reshape(-1, 8).T
    n_parts = max((i + 1 for i in range(8) if columns[i].any()), default=0)
    return [lzma.compress(columns[i].tobytes(), lzma.FORMAT_RAW, filters=_FILTERS) for i in range(n_parts)]


def _unpacked(parts: list[bytes], n: int) -> Array:
    folded = np.zeros((8, n), np.uint8)
    _check(len(parts) <= 5, "its codes")
    for i, part in enumerate(parts):
        folded[i] = np.frombuffer(_decompressed(part, n), np.uint8)
    values = np.ascontiguousarray(folded.T).view("<u8")[:, 0].astype(np.int64)
    return np.where(values % 2, -(values + 1) // 2, values // 2)


def _decompressed(part: bytes, n: int) -> bytes:
    """Exactly n bytes; a stream of more is not unpacked any further."""
    data = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_FILTERS).decompress(part, n + 1)
    _check(len(data) == n, "the length of a part")
    return data


def _cut(data: bytes, at: int, sizes: list[int]) -> tuple[list[bytes], int]:
    parts = []
    for size in sizes:
        _check(isinstance(size, int) and 0 <= size <= len(data) - at, "the length of a part")
        parts.append(data[at : at + size])
        at += size
    return parts, at


def _check(is_right: bool, what: str) -> None:
    if not is_right:
        raise FileFormatError(f"This is no whole picture that tithe compress has written: {what} is wrong.")
