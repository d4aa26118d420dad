"""Patches of pictures: drawn, averaged back into a picture, and filled in."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.parallel import single_blas_thread
from tithe.core.params import WholeNumber, check_value
from tithe.core.progress import Progress
from tithe.dictionary.noise import ClippedNoise
from tithe.dictionary.patch_kernels import add_at, add_patches, complete_rows, cut_patches
from tithe.dictionary.pictures import Planes, as_pixels
from tithe.dictionary.pursuit_kernels import pursue

LEAF = 65_536  # patches cut at a time
_CHUNK_PATCHES = 65_536  # patches coded at a time


def corners(length: int, side: int, step: int) -> Array:
    """First pixels of the patches along an axis: every ``step`` pixels, and the last one, so that all are covered."""
    starts = np.arange(0, length - side + 1, step)
    last = length - side
    return starts if starts[-1] == last else np.append(starts, last)


def covers(length: int, side: int, starts: Array) -> Array:
    """The number of patches along an axis that cover each pixel: (length,)."""
    ends = np.zeros(length + 1, np.int64)
    np.add.at(ends, starts, 1)
    np.add.at(ends, starts + side, -1)
    return np.cumsum(ends[:-1])


class PatchSource(Source):
    """All overlapping square patches of a picture: a source of rows (n, side * side) float32.

    Patches are ordered plane by plane (`Planes`), from the top and from the left; the id of a row is its position in
    this order, and a leaf holds the patches of a stripe. Patches whose energy is not ``above`` this are left out, and
    are counted nevertheless. ``clipping`` says how noise was cut off: patches are divided by the strength of what is
    left of it. With ``stacked`` a row (n, planes * side * side) holds the patches of all planes at one place: the
    planes are an orthonormal transform of the colours, so lengths and angles are those of stacked colours.
    """

    def __init__(
        self,
        image: Any,
        *,
        patch_size: int = 8,
        step: int = 1,
        centered: bool = True,
        above: float = -1.0,
        clipping: ClippedNoise | None = None,
        stacked: bool = False,
    ) -> None:
        self.planes = image if isinstance(image, Planes) else Planes(image)
        h, w = self.planes.height, self.planes.width
        for name, value in (("patch_size", patch_size), ("step", step)):
            check_value(name, value, WholeNumber(least=1))
        if step > patch_size:
            raise ValueError(
                f"step={step} leaves gaps between patches of {patch_size} pixels: take {patch_size} or less."
            )
        if min(h, w) < patch_size:
            raise ValueError(
                f"The picture has {h} x {w} pixels, less than one patch of {patch_size} x {patch_size}. "
                "Take a smaller patch_size."
            )
        self.patch_size, self.step, self.centered = int(patch_size), int(step), bool(centered)
        self.above, self.clipping = float(above), clipping
        self.tops, self.lefts = corners(h, patch_size, step), corners(w, patch_size, step)
        numbers = range(self.planes.n_planes)
        self.groups = [tuple(numbers)] if stacked else [(number,) for number in numbers]  # planes of one row
        self.n_rows = len(self.groups) * len(self.tops) * len(self.lefts)
        self.n_features = len(self.groups[0]) * self.patch_size**2
        self.row_bytes = 4 * self.n_features
        self.leaf_rows = LEAF // len(self.groups[0])
        self.leaf_lines = max(1, self.leaf_rows // len(self.lefts))  # rows of patches in a leaf

    @cached_property
    def identity(self) -> str:
        """A hash of the picture, and the parameters."""
        image = self.planes.image
        digest = hashlib.sha256()
        for rows in self.planes.stripes():
            digest.update(np.ascontiguousarray(image[rows]).tobytes())
        about = (
            f"{image.shape} {image.dtype} {self.patch_size} {self.step} {self.centered} {self.above} {self.clipping}"
        )
        return f"patches {digest.hexdigest()} {about}{' stacked' if len(self.groups) < self.planes.n_planes else ''}"

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on; a leaf has whole rows of patches."""
        n_lines, across = len(self.groups) * len(self.tops), len(self.lefts)
        step = self.leaf_lines if leaf_rows is None else -(-leaf_rows // across)
        for line in range(first * step, n_lines, step):
            yield partial(self._load, line, min(n_lines, line + step))

    def _load(self, line: int, stop: int) -> Block:
        return self._patches(np.arange(line * len(self.lefts), stop * len(self.lefts)))

    def _patches(self, ids: Array) -> Block:
        """The patches with these ids, which ascend, without those that are left out; stripe by stripe of a plane."""
        line, left = np.divmod(ids, len(self.lefts))
        X, energy = np.empty((len(ids), self.n_features), np.float32), np.empty(len(ids))
        group, row = np.divmod(line, len(self.tops))
        edges = np.flatnonzero(np.diff(group) | np.diff(row // self.leaf_lines)) + 1
        for start, stop in pairwise([0, *edges.tolist(), len(ids)]):
            at = slice(start, stop)
            X[at], energy[at], _ = self._cut(int(group[start]), self.tops[row[at]], self.lefts[left[at]])
        keep = np.flatnonzero(energy > self.above)
        return Block(X=X, indices=ids) if len(keep) == len(X) else Block(X=X[keep], indices=ids[keep])

    def lines(self, group: int, first: int, last: int) -> tuple[Array, Array, Array | None]:
        """Patches of the rows of patches ``first`` to ``last`` of a group, energies, and divisors (n, planes)."""
        tops = self.tops[first:last]
        return self._cut(group, np.repeat(tops, len(self.lefts)), np.tile(self.lefts, len(tops)))

    def _cut(self, group: int, tops: Array, lefts: Array) -> tuple[Array, Array, Array | None]:
        """Patches of the planes of a group at upper left corners that are sorted from the top."""
        parts = [self._cut_plane(plane, tops, lefts) for plane in self.groups[group]]
        X, energy, strength = zip(*parts, strict=True)
        strengths = None if self.clipping is None else np.stack(strength, axis=1)
        if len(parts) == 1:
            return X[0], energy[0], strengths
        return np.concatenate(X, axis=1), np.add.reduce(energy), strengths

    def _cut_plane(self, plane: int, tops: Array, lefts: Array) -> tuple[Array, Array, Array | None]:
        top, bottom = int(tops[0]), int(tops[-1]) + self.patch_size
        stripe = self.planes.read(plane, top, bottom)
        X, energy = cut_patches(stripe, tops - top, lefts, self.patch_size, centered=self.centered)
        if self.clipping is None:
            return X, energy, None
        strength = self.clipping.strength(self.planes, plane, top, bottom, self.patch_size)[tops - top, lefts]
        X /= strength[:, None].astype(X.dtype)
        return X, energy / strength**2, strength

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` patches (None: 65,536) drawn uniformly, without those that are left out."""
        n = int(self.n_rows or 0)
        size = min(n, LEAF if size is None else size)
        return self._patches(np.sort(rng.choice(n, size, replace=False)))


class Coder:
    """Computes residuals of patches after `pursue`, and counts the atoms of the codes."""

    def __init__(self, atoms: Array, max_atoms: int, target: float) -> None:
        self.atoms, self.max_atoms, self.target = atoms, max_atoms, target
        self.n_patches = self.n_atoms = 0

    def __call__(self, X: Array, energy: Array) -> Array:
        """Replace the patches X by their residuals. Patches of an energy below the target have no atoms."""
        coded = np.flatnonzero(energy > self.target)
        self.n_patches += len(X)
        if len(coded):
            chosen, _, _, residual = pursue(
                X[coded], self.atoms, n_nonzero=self.max_atoms, target=self.target, with_residual=True
            )
            self.n_atoms += int((chosen >= 0).sum())
            X[coded] = residual
        return X


def averaged(
    source: PatchSource,
    code: Coder,
    pixel_weight: float,
    *,
    stripe: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[int, Array]]:
    """What has to be subtracted from the planes, from the top: (first row, (planes, rows, w) float64).

    x = (a y + sum_i R_i' (R_i y - r_i)) / (a + count) = y - sum_i R_i' r_i / (a + count), with a the pixel weight, R_i
    y a patch of the picture y, r_i its residual, and count the number of patches that cover a pixel. The result has
    the same bits for any ``stripe``, the number of rows of patches coded at a time.
    """
    planes, side = source.planes, source.patch_size
    tops, lefts = source.tops, source.lefts
    down, across = covers(planes.height, side, tops), covers(planes.width, side, lefts)
    stripe = source.leaf_lines if stripe is None else stripe
    carried: Any = np.zeros((planes.n_planes, 0, planes.width))
    for number, first in enumerate(range(0, len(tops), stripe)):
        last = min(len(tops), first + stripe)
        base = int(tops[first])
        total = np.zeros((planes.n_planes, int(tops[last - 1]) + side - base, planes.width))
        total[:, : carried.shape[1]] = carried
        for number_of_group, group in enumerate(source.groups):
            with single_blas_thread():
                X, energy, strength = source.lines(number_of_group, first, last)
                residual = code(X, energy)
            for i, plane in enumerate(group):
                part = np.ascontiguousarray(residual[:, i * side * side : (i + 1) * side * side])
                if strength is not None:
                    part *= strength[:, i, None].astype(part.dtype)
                add_patches(part, tops[first:last] - base, lefts, side, total[plane])
        end = planes.height if last == len(tops) else int(tops[last])
        carried = total[:, end - base :]
        yield base, total[:, : end - base] / (pixel_weight + np.multiply.outer(down[base:end], across))
        if progress is not None:
            progress(2, number + 1, len(source.groups) * last * len(lefts))


def check_mask(image: Any, mask: Any) -> tuple[Array, Array]:
    """The picture with zeros at missing pixels, and a mask (h, w) of the known pixels."""
    image, mask = np.asarray(image), np.asarray(mask)
    if mask.shape != image.shape[:2] or mask.dtype != bool:
        raise ValueError(
            f"mask must be bool of shape {image.shape[:2]}, True where a pixel is missing, got {mask.dtype} of shape "
            f"{mask.shape}."
        )
    if mask.all():
        raise ValueError("All pixels are missing: there is nothing to fill them in from.")
    image = image.copy()
    image[mask] = 0
    return image, ~mask


def filled(image: Array, known: Array, atoms: Array, side: int, max_atoms: int, allowed: float) -> Array:
    """The picture with its missing pixels filled in, from the edges of holes inwards."""
    planes = Planes(image)
    before = np.stack([planes.read(p, 0, planes.height) for p in range(planes.n_planes)])
    after, known = before.copy(), known.copy()
    while not known.all():
        top, left = _next_patches(known, side)
        count = np.zeros(known.shape, np.int32)
        for plane in after:
            count[:] = 0
            total = np.zeros(known.shape)
            for start in range(0, len(top), _CHUNK_PATCHES):
                chunk = slice(start, start + _CHUNK_PATCHES)
                X = cut_patches(plane, top[chunk], left[chunk], side, centered=False)[0]
                seen = cut_patches(known.view(np.uint8), top[chunk], left[chunk], side, centered=False)[0]
                rows = complete_rows(X, seen, atoms, n_nonzero=max_atoms, allowed=allowed)
                add_at(rows, top[chunk], left[chunk], side, total, count)
            new_pixels = ~known & (count > 0)
            plane[new_pixels] = total[new_pixels] / count[new_pixels]
        known |= count > 0
    return as_pixels(planes.changed(0, (before - after).astype(np.float64)), image.dtype)


def _next_patches(known: Array, side: int) -> tuple[Array, Array]:
    """Upper left corners of those partly known patches that have at least a median number of known pixels."""
    sums = np.pad(np.cumsum(np.cumsum(known, axis=0, dtype=np.int64), axis=1), ((1, 0), (1, 0)))
    count = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    partly = (count > 0) & (count < side * side)
    min_known = min(side * side // 2, int(np.median(count[partly])))
    top, left = np.nonzero(partly & (count >= min_known))
    return top, left
