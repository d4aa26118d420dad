"""How strong the noise in a picture is."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.fft import dctn
from scipy.stats import chi2

from tithe.core.data import Array
from tithe.images.clipping import kept_variance
from tithe.images.planes import Planes

# the high-pass of Daubechies' least asymmetric wavelet with four vanishing moments: slopes and smooth shading
# leave nothing in it, and edges less than in shorter ones
_LOW = (-0.07576571, -0.02963553, 0.49761867, 0.80373875, 0.29785780, -0.09921954, -0.01260397, 0.03222310)
_HIGH = np.array([(-1) ** i * value for i, value in enumerate(reversed(_LOW))])
_SIDE = 8  # coefficients along the side of a block
_PIXELS = 2 * _SIDE  # along the side of a block of wavelets, or of four blocks of cosines
_REACH = len(_HIGH) - 2  # pixels beyond its block that a wavelet coefficient depends on
_FINE = np.add.outer(np.arange(_SIDE), np.arange(_SIDE)) >= 3  # cosines that a slope and a bend leave little in
_START = 0.1  # share of the blocks, those with the least in them, that the search for flat ones starts from
_LOWER = 0.6  # share of the flat blocks, those with the least in them, that the noise is estimated from
_IMPOSSIBLE = 1e-9  # share of flat blocks with less in them than any that counts: such blocks have no noise at all
_ROUNDS = 200  # far more than the search takes
_ERRORS = 2.0  # standard errors that an estimate must be better by, to be taken instead of a more precise one
_CLIPPED = 0.2  # share of a block's pixels at the ends of the range beyond which it says little
_ROUNDING = 1e-12  # of the largest square: below it, a plane of colours is empty


def estimate_sigma(image: Any) -> float:
    """Standard deviation of white noise in a picture, in the units of its pixels.

    The mean square of the fine detail in a block that is flat but for the noise is sigma^2 chi2_d / d, with d
    coefficients. It is measured in two ways in each plane (`Planes`):

    - the diagonal wavelet band of 16 x 16 pixels, d = 64: texture and shading leave the least there, which suits
      photographs, but a block that is flat must be so over 22 x 22 pixels;
    - the cosines of 8 x 8 pixels but for the six coarsest, d = 58: flat blocks are found between dense edges.

    How many blocks are flat is not known. So sigma is the solution of

        mean of the squares below c sigma^2 = sigma^2 E[chi2_d / d | chi2_d / d < c]

    that is reached from what a tenth of the blocks lies below, with c such that .6 of the flat blocks lie below
    c sigma^2. Blocks above that do not change it, however many they are. Of the two ways and the planes (colours
    differ less from place to place than brightness does) the one is taken whose estimate plus two standard errors is
    the smallest.

    Where noise was cut off at the ends of the range of whole numbers, the share of pixels there in 16 x 16 of them
    tells how much of its variance is left. Blocks with more than a fifth of them are left out. If less than a tenth
    of all blocks remain, those with the smallest shares stand for all, and sigma is told by the wavelets alone and by
    the block that a tenth of them lies below: what is known of their variance is then too uncertain for a search.

    The noise must be white and the same everywhere. Texture that is nowhere absent passes for noise: sigma 5 was found
    within 7 % in grey photographs with calm parts and within 5 % in colour, but overestimated by 22 % in one of stars
    and by 41 % in one of a lawn (``benchmarks/noise_levels.py``). Noise that was smoothed, by JPEG or by a camera, is
    underestimated.
    """
    planes = image if isinstance(image, Planes) else Planes(image)
    if min(planes.height, planes.width) < _PIXELS + len(_HIGH):
        raise ValueError(
            f"The picture has {planes.height} x {planes.width} pixels, too few to estimate its noise: give sigma."
        )
    wavelets, cosines, clipped = _blocks(planes)
    coloured = wavelets.max(axis=1) > _ROUNDING * wavelets.max()  # else a grey picture in three channels has no noise
    if coloured.any():
        wavelets, cosines = wavelets[coloured], cosines[coloured]
    usable = clipped <= _CLIPPED
    if usable.mean() < _START:
        usable = clipped <= np.quantile(clipped, _START)
        return float(np.sqrt(min(_if_all_are_flat(squares[usable], _SIDE**2) for squares in wavelets)))
    estimates = [_from_flat_blocks(squares[usable], _SIDE**2) for squares in wavelets]
    estimates += [_from_flat_blocks(squares[usable].ravel(), int(_FINE.sum())) for squares in cosines]
    variance, _ = min(estimates, key=lambda estimate: estimate[0] * (1.0 + _ERRORS * estimate[1]))
    return float(np.sqrt(variance))


def _if_all_are_flat(squares: Array, d: int) -> float:
    """Variance of the noise by the mean square that a tenth of the blocks lies below."""
    return float(np.quantile(squares, _START) / (chi2.ppf(_START, d) / d))


def _from_flat_blocks(squares: Array, d: int) -> tuple[float, float]:
    """Variance of the noise, and its relative standard error, by the mean squares of blocks of which some are flat.

    The mean of the squares in a range increases with the range, so the rounds go down, or up, to a solution.
    """
    impossible, bound = chi2.ppf(_IMPOSSIBLE, d) / d, chi2.ppf(_LOWER, d) / d
    mean = chi2.cdf(bound * d, d + 2) / _LOWER  # of a flat block below the bound, for noise of variance 1
    squares = np.sort(squares)
    variance = _if_all_are_flat(squares, d)
    first, last = 0, 0
    for _ in range(_ROUNDS):
        before = first, last
        first, last = (int(i) for i in np.searchsorted(squares, (impossible * variance, bound * variance)))
        if first >= last or (first, last) == before:
            break
        variance = float(squares[first:last].mean() / mean)
    spread = (1.0 + 2.0 / d) * chi2.cdf(bound * d, d + 4) / _LOWER - mean**2
    slope = bound * d * chi2.pdf(bound * d, d) * (bound - mean) / _LOWER  # of that mean, with the variance
    return variance, float(np.sqrt(spread / max(1, last - first)) / (mean - slope))


def _blocks(planes: Planes) -> tuple[Array, Array, Array]:
    """What the blocks of 16 x 16 pixels tell about the variance of the noise, and their shares of clipped pixels.

    By wavelets (planes, blocks) and by the cosines of their quarters (planes, blocks, 4).
    """
    across = (planes.width - _REACH) // _PIXELS
    step = max(1, (1 << 20) // (planes.width * _PIXELS)) * _PIXELS
    wavelets, cosines, clipped = [], [], []
    for top in range(0, planes.height - _REACH - _PIXELS + 1, step):
        down = (min(planes.height, top + step + _REACH) - top - _REACH) // _PIXELS
        black, white = _at_ends(planes, top, down, across)
        kept = kept_variance(black, white)
        by_wavelets, by_cosines = [], []
        for plane in range(planes.n_planes):
            part = planes.read(plane, top, top + down * _PIXELS + _REACH)[:, : across * _PIXELS + _REACH]
            share = planes.shares(plane) @ kept
            by_wavelets.append(_wavelet_squares(part) / share)
            by_cosines.append(_cosine_squares(part[:-_REACH, :-_REACH]) / share[:, None])
        wavelets.append(np.stack(by_wavelets))
        cosines.append(np.stack(by_cosines))
        clipped.append((black + white).mean(axis=0))
    return np.concatenate(wavelets, axis=1), np.concatenate(cosines, axis=1), np.concatenate(clipped)


def _wavelet_squares(part: Array) -> Array:
    """Mean squares of the diagonal wavelet band, of which a block has 8 x 8 coefficients: (blocks,)."""
    detail = _high_pass(_high_pass(part).T).T
    down, across = (length // _SIDE for length in detail.shape)
    return (detail * detail).reshape(down, _SIDE, across, _SIDE).mean(axis=(1, 3), dtype=np.float64).ravel()


def _cosine_squares(part: Array) -> Array:
    """Mean squares of the fine cosines of the quarters of blocks: (blocks, 4)."""
    down, across = (length // _SIDE for length in part.shape)
    cosines = dctn(part.reshape(down, _SIDE, across, _SIDE), axes=(1, 3), norm="ortho")
    squares = np.square(cosines, out=cosines) * _FINE[:, None, :]
    means = squares.sum(axis=(1, 3), dtype=np.float64) / _FINE.sum()
    return means.reshape(down // 2, 2, across // 2, 2).transpose(0, 2, 1, 3).reshape(-1, 4)


def _high_pass(rows: Array) -> Array:
    """The high-pass along the first axis, every other coefficient."""
    n = (len(rows) - len(_HIGH)) // 2 + 1
    total = np.zeros((n, rows.shape[1]), np.float32)
    for i, value in enumerate(_HIGH):
        total += np.float32(value) * rows[i : i + 2 * n - 1 : 2]
    return total


def _at_ends(planes: Planes, top: int, down: int, across: int) -> tuple[Array, Array]:
    """Shares of each block's pixels that are black and white (channels, blocks); floats have no such ends."""
    if planes.image.dtype.kind == "f":
        return np.zeros((planes.n_planes, down * across)), np.zeros((planes.n_planes, down * across))
    shares = []
    for end in (0, np.iinfo(planes.image.dtype).max):
        cells = [c[:, : across * _PIXELS] == end for c in planes.channels(top, top + down * _PIXELS)]
        shares.append(np.stack([c.reshape(down, _PIXELS, across, _PIXELS).mean(axis=(1, 3)).ravel() for c in cells]))
    return shares[0], shares[1]
