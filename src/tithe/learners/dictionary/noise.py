"""How strong the noise in a picture is."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import chi2

from tithe.core.data import Array
from tithe.learners.dictionary.clipping import kept_variance
from tithe.learners.dictionary.planes import Planes

# the high-pass of Daubechies' least asymmetric wavelet with four vanishing moments: slopes and smooth shading
# leave nothing in it, and edges less than in shorter ones
_LOW = (-0.07576571, -0.02963553, 0.49761867, 0.80373875, 0.29785780, -0.09921954, -0.01260397, 0.03222310)
_HIGH = np.array([(-1) ** i * value for i, value in enumerate(reversed(_LOW))])
_BLOCK = 8  # coefficients along the side of a block, of which each stands for two pixels
_SHARE = 0.1  # of the blocks, those with the least in them, that count as noise alone
_CLIPPED = 0.2  # share of a block's pixels at the ends of the range beyond which it says little


def estimate_sigma(image: Any) -> float:
    """Standard deviation of white noise in a picture, in the units of its pixels.

    Coefficients of the diagonal wavelet band of each plane (`Planes`) hold noise and fine texture. Blocks of
    16 x 16 pixels are compared by their root mean square, the one that a tenth of them lies below is divided by what
    it is for noise alone, and the smallest of the planes is taken: colours differ less from place to place than
    brightness does. Where noise was cut off at the ends of the range of whole numbers, the share of a block's pixels
    there tells how much of its variance is left; blocks with more than a fifth of them are left out as long as a tenth
    of all remain.

    The noise must be white and the same everywhere. Texture that is nowhere absent passes for noise: a colour
    photograph is found within 5 %, a grey one within 7 % where it has calm parts, and a lawn in grey is not. Noise
    that was smoothed, by JPEG or by a camera, is underestimated.
    """
    planes = image if isinstance(image, Planes) else Planes(image)
    side = 2 * _BLOCK
    if min(planes.height, planes.width) < side + len(_HIGH):
        raise ValueError(
            f"The picture has {planes.height} x {planes.width} pixels, too few to estimate its noise: give sigma."
        )
    factor = float(np.sqrt(chi2.ppf(_SHARE, _BLOCK**2) / _BLOCK**2))
    squares, clipped = _blocks(planes)
    squares = squares[:, clipped <= max(_CLIPPED, float(np.quantile(clipped, _SHARE)))]
    found = np.quantile(np.sqrt(squares), _SHARE, axis=1) / factor
    return float(found.min())


def _blocks(planes: Planes) -> tuple[Array, Array]:
    """Variance of the noise that each block's coefficients tell (planes, blocks), and its share of clipped pixels."""
    side = 2 * _BLOCK
    reach = len(_HIGH) - 2
    across = (planes.width - reach) // side
    step = max(1, (1 << 20) // (planes.width * side)) * side
    squares, clipped = [], []
    for top in range(0, planes.height - reach - side + 1, step):
        bottom = min(planes.height, top + step + reach)
        down = (bottom - top - reach) // side
        black, white = _at_ends(planes, top, down, across)
        kept = kept_variance(black, white)
        here = []
        for plane in range(planes.n_planes):
            part = planes.read(plane, top, top + down * side + reach)[:, : across * side + reach]
            detail = _band(_band(part).T).T
            found = (detail * detail).reshape(down, _BLOCK, across, _BLOCK).mean(axis=(1, 3), dtype=np.float64)
            here.append(found.ravel() / (planes.shares(plane) @ kept))
        squares.append(np.stack(here))
        clipped.append((black + white).mean(axis=0))
    return np.concatenate(squares, axis=1), np.concatenate(clipped)


def _band(rows: Array) -> Array:
    """The high-pass along the first axis, every other coefficient."""
    n = (len(rows) - len(_HIGH)) // 2 + 1
    total = np.zeros((n, rows.shape[1]), np.float32)
    for i, value in enumerate(_HIGH):
        total += np.float32(value) * rows[i : i + 2 * n - 1 : 2]
    return total


def _at_ends(planes: Planes, top: int, down: int, across: int) -> tuple[Array, Array]:
    """Shares of each block's pixels that are black and white (channels, blocks); floats have no such ends."""
    side = 2 * _BLOCK
    if planes.image.dtype.kind == "f":
        return np.zeros((planes.n_planes, down * across)), np.zeros((planes.n_planes, down * across))
    shares = []
    for end in (0, np.iinfo(planes.image.dtype).max):
        cells = [c[:, : across * side] == end for c in planes.channels(top, top + down * side)]
        shares.append(np.stack([c.reshape(down, side, across, side).mean(axis=(1, 3)).ravel() for c in cells]))
    return shares[0], shares[1]
