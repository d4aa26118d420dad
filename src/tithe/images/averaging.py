"""All patches of a picture coded, stripe by stripe, and averaged where they overlap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.parallel import single_blas_thread
from tithe.core.progress import Progress
from tithe.images.patches import LEAF, PatchSource, covers
from tithe.kernels.dictionary.patches import add_patches
from tithe.kernels.dictionary.pursuit import pursue


class Coder:
    """What codes leave of patches, and how many atoms they took.

    Parameters
    ----------
    atoms : array (k, d) float32
    most : int
        Atoms a patch may use.
    target : float
        Squared error at which it takes no more.
    """

    def __init__(self, atoms: Array, most: int, target: float) -> None:
        self.atoms, self.most, self.target = atoms, most, target
        self.n_patches = self.n_atoms = self.n_coded = 0

    def __call__(self, X: Array, energy: Array) -> Array:
        """Residuals of the patches, in their place. Those that need no atom are not looked at further."""
        need = np.flatnonzero(energy > self.target)
        self.n_patches += len(X)
        self.n_coded += len(need)
        if len(need):
            chosen, _, _, rest = pursue(
                X[need], self.atoms, n_nonzero=self.most, target=self.target, with_residual=True
            )
            self.n_atoms += int((chosen >= 0).sum())
            X[need] = rest
        return X


def averaged(
    source: PatchSource, code: Coder, own: float, *, stripe: int | None = None, progress: Progress | None = None
) -> Iterator[tuple[int, Array]]:
    """What is to be taken out of the planes, from the top: (first row, (planes, rows, w) float64).

    x = (own y + sum_i R_i' (R_i y - r_i)) / (own + count) = y - sum_i R_i' r_i / (own + count), with R_i y patch
    number i of the picture y, r_i what its code leaves of it, and count how many patches cover a pixel. A row is
    handed over when no patch below reaches it, so no more than a stripe is held.

    ``stripe`` is the number of rows of patches coded at a time; the result has the same bits whatever it is.
    """
    planes, side = source.planes, source.patch_size
    tops, lefts = source.tops, source.lefts
    down, across = covers(planes.height, side, tops), covers(planes.width, side, lefts)
    stripe = max(1, LEAF // len(lefts)) if stripe is None else stripe
    carried: Any = np.zeros((planes.n_planes, 0, planes.width))
    for number, first in enumerate(range(0, len(tops), stripe)):
        last = min(len(tops), first + stripe)
        base = int(tops[first])
        total = np.zeros((planes.n_planes, int(tops[last - 1]) + side - base, planes.width))
        total[:, : carried.shape[1]] = carried
        for plane in range(planes.n_planes):
            with single_blas_thread():
                X, energy, strength = source.lines(plane, first, last)
                rest = code(X, energy)
            if strength is not None:
                rest *= strength[:, None].astype(rest.dtype)
            add_patches(rest, tops[first:last] - base, lefts, side, total[plane])
        end = planes.height if last == len(tops) else int(tops[last])
        carried = total[:, end - base :]
        yield base, total[:, : end - base] / (own + np.multiply.outer(down[base:end], across))
        if progress is not None:
            progress(2, number + 1, planes.n_planes * last * len(lefts))
