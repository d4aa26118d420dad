"""Codes all patches of a picture, stripe by stripe, and averages them where they overlap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.parallel import single_blas_thread
from tithe.core.progress import Progress
from tithe.images.patches import PatchSource, covers
from tithe.kernels.dictionary.patches import add_patches
from tithe.kernels.dictionary.pursuit import pursue


class Coder:
    """Computes residuals of patches after coding, and counts the atoms of the codes.

    Parameters
    ----------
    atoms : array (k, d) float32
    max_atoms : int
        Maximum number of atoms of a patch.
    target : float
        Squared error at which no more atoms are added.
    """

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

    x = (a y + sum_i R_i' (R_i y - r_i)) / (a + count) = y - sum_i R_i' r_i / (a + count), with a the pixel weight,
    R_i y a patch of the picture y, r_i its residual, and count the number of patches that cover a pixel. A row is
    yielded when no patch below reaches it, so no more than a stripe is held in memory.

    ``stripe`` is the number of rows of patches coded at a time. The result has the same bits for any number.
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
