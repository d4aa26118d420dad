"""Estimates the standard deviation of the noise in a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.fft import dctn
from scipy.stats import chi2

from tithe.core.data import Array
from tithe.images.clipping import kept_variance
from tithe.images.planes import Planes

# Daubechies' least asymmetric wavelet with four vanishing moments: its high-pass removes slopes and smooth shading,
# and more of the edges than shorter filters
_LOW_PASS = (-0.07576571, -0.02963553, 0.49761867, 0.80373875, 0.29785780, -0.09921954, -0.01260397, 0.03222310)
_HIGH_PASS = np.array([(-1) ** i * value for i, value in enumerate(reversed(_LOW_PASS))])
_SIDE = 8  # coefficients along the side of a block
_BLOCK_PIXELS = 2 * _SIDE  # along the side of a block of wavelets, or of four blocks of cosines
_OVERLAP = len(_HIGH_PASS) - 2  # pixels beyond its block that a wavelet coefficient depends on
_FINE_COSINES = np.add.outer(np.arange(_SIDE), np.arange(_SIDE)) >= 3  # slopes and shading have little of these
_START_SHARE = 0.1  # share of the blocks, those of the least detail, that the search for flat blocks starts from
_USED_SHARE = 0.6  # share of the flat blocks, those of the least detail, that the noise is estimated from
_NOISELESS_SHARE = 1e-9  # blocks with less detail than this quantile of flat blocks are left out: they have no noise
_MAX_ROUNDS = 200  # the search takes far fewer
_MARGIN_ERRORS = 2.0  # standard errors that are added to the estimates when they are compared
_MAX_CLIPPED_SHARE = 0.2  # blocks with a larger share of clipped pixels are left out
_EMPTY_PLANE = 1e-12  # share of the largest square below which a plane of colours is empty


def estimate_sigma(image: Any) -> float:
    """Standard deviation of white noise in a picture, in the units of its pixels.

    The mean square of d detail coefficients of a block that is flat except for the noise is sigma^2 chi2_d / d. There
    are two kinds of coefficients in each plane (`Planes`):

    - the diagonal wavelet band of 16 x 16 pixels, d = 64: it contains the least of texture and shading, which suits
      photographs, but a block must be flat over 22 x 22 pixels;
    - the cosines of 8 x 8 pixels without the six coarsest, d = 58: there are flat blocks even between dense edges.

    The number of flat blocks is not known. So sigma is the solution of

        mean of the squares below c sigma^2 = sigma^2 E[chi2_d / d | chi2_d / d < c]

    that the iteration reaches from the first decile of the squares, with c such that .6 of the flat blocks lie below
    c sigma^2. Blocks above that do not change it, however many they are. Of both kinds and all planes (colours vary
    less than brightness) the estimate with the smallest sum of estimate and two standard errors is taken.

    If noise was cut off at the ends of the range of integers, the share of such pixels in a block of 16 x 16 gives the
    variance that is left. Blocks with a share above a fifth are left out. If less than a tenth of all blocks remain,
    the blocks with the smallest shares are used, and sigma comes from the first decile of the wavelet squares: their
    variance is then too uncertain for a search.

    The noise must be white and the same everywhere. Texture in all parts of a picture is taken for noise: sigma 5 was
    estimated within 7 % in grey photographs with flat parts and within 5 % in colour, but overestimated by 22 % in one
    of stars and by 41 % in one of a lawn (``benchmarks/noise_levels.py``). Noise that was smoothed, by JPEG or by a
    camera, is underestimated.
    """
    planes = image if isinstance(image, Planes) else Planes(image)
    if min(planes.height, planes.width) < _BLOCK_PIXELS + len(_HIGH_PASS):
        raise ValueError(
            f"The picture has {planes.height} x {planes.width} pixels, too few to estimate its noise: give sigma."
        )
    wavelets, cosines, clipped = _blocks(planes)
    coloured = wavelets.max(axis=1) > _EMPTY_PLANE * wavelets.max()  # a grey picture may have two empty planes
    if coloured.any():
        wavelets, cosines = wavelets[coloured], cosines[coloured]
    usable = clipped <= _MAX_CLIPPED_SHARE
    if usable.mean() < _START_SHARE:
        usable = clipped <= np.quantile(clipped, _START_SHARE)
        return float(np.sqrt(min(_if_all_are_flat(squares[usable], _SIDE**2) for squares in wavelets)))
    estimates = [_from_flat_blocks(squares[usable], _SIDE**2) for squares in wavelets]
    estimates += [_from_flat_blocks(squares[usable].ravel(), int(_FINE_COSINES.sum())) for squares in cosines]
    variance, _ = min(estimates, key=lambda estimate: estimate[0] * (1.0 + _MARGIN_ERRORS * estimate[1]))
    return float(np.sqrt(variance))


def _if_all_are_flat(squares: Array, d: int) -> float:
    """Variance of the noise from the first decile of the mean squares, if all blocks are flat."""
    return float(np.quantile(squares, _START_SHARE) / (chi2.ppf(_START_SHARE, d) / d))


def _from_flat_blocks(squares: Array, d: int) -> tuple[float, float]:
    """Variance of the noise and its relative standard error, from mean squares of blocks of which some are flat.

    The mean of the squares in a range increases with the range, so the rounds decrease, or increase, to a solution.
    """
    impossible, bound = chi2.ppf(_NOISELESS_SHARE, d) / d, chi2.ppf(_USED_SHARE, d) / d
    mean = chi2.cdf(bound * d, d + 2) / _USED_SHARE  # of a flat block below the bound, for noise of variance 1
    squares = np.sort(squares)
    variance = _if_all_are_flat(squares, d)
    first, last = 0, 0
    for _ in range(_MAX_ROUNDS):
        before = first, last
        first, last = (int(i) for i in np.searchsorted(squares, (impossible * variance, bound * variance)))
        if first >= last or (first, last) == before:
            break
        variance = float(squares[first:last].mean() / mean)
    spread = (1.0 + 2.0 / d) * chi2.cdf(bound * d, d + 4) / _USED_SHARE - mean**2
    slope = bound * d * chi2.pdf(bound * d, d) * (bound - mean) / _USED_SHARE  # of that mean, with the variance
    return variance, float(np.sqrt(spread / max(1, last - first)) / (mean - slope))


def _blocks(planes: Planes) -> tuple[Array, Array, Array]:
    """Mean squares of blocks of 16 x 16 pixels, corrected for clipping, and their shares of clipped pixels.

    Squares of wavelets (planes, blocks) and of the cosines of their quarters (planes, blocks, 4).
    """
    across = (planes.width - _OVERLAP) // _BLOCK_PIXELS
    step = max(1, (1 << 20) // (planes.width * _BLOCK_PIXELS)) * _BLOCK_PIXELS
    wavelets, cosines, clipped = [], [], []
    for top in range(0, planes.height - _OVERLAP - _BLOCK_PIXELS + 1, step):
        down = (min(planes.height, top + step + _OVERLAP) - top - _OVERLAP) // _BLOCK_PIXELS
        height, width = (n * _BLOCK_PIXELS + _OVERLAP for n in (down, across))
        black, white = _at_ends(planes, top, down, across)
        variance_left = kept_variance(black, white)
        by_wavelets, by_cosines = [], []
        for plane in range(planes.n_planes):
            part = planes.read(plane, top, top + height)[:, :width]
            share = planes.shares(plane) @ variance_left
            by_wavelets.append(_wavelet_squares(part) / share)
            by_cosines.append(_cosine_squares(part[:-_OVERLAP, :-_OVERLAP]) / share[:, None])
        wavelets.append(np.stack(by_wavelets))
        cosines.append(np.stack(by_cosines))
        clipped.append((black + white).mean(axis=0))
    return np.concatenate(wavelets, axis=1), np.concatenate(cosines, axis=1), np.concatenate(clipped)


def _wavelet_squares(part: Array) -> Array:
    """Mean squares of the 8 x 8 coefficients of each block in the diagonal wavelet band: (blocks,)."""
    detail = _high_pass(_high_pass(part).T).T
    down, across = (length // _SIDE for length in detail.shape)
    return (detail * detail).reshape(down, _SIDE, across, _SIDE).mean(axis=(1, 3), dtype=np.float64).ravel()


def _cosine_squares(part: Array) -> Array:
    """Mean squares of the fine cosines of the quarters of blocks: (blocks, 4)."""
    down, across = (length // _SIDE for length in part.shape)
    cosines = dctn(part.reshape(down, _SIDE, across, _SIDE), axes=(1, 3), norm="ortho")
    squares = np.square(cosines, out=cosines) * _FINE_COSINES[:, None, :]
    means = squares.sum(axis=(1, 3), dtype=np.float64) / _FINE_COSINES.sum()
    return means.reshape(down // 2, 2, across // 2, 2).transpose(0, 2, 1, 3).reshape(-1, 4)


def _high_pass(rows: Array) -> Array:
    """The high-pass along the first axis, every other coefficient."""
    n = (len(rows) - len(_HIGH_PASS)) // 2 + 1
    total = np.zeros((n, rows.shape[1]), np.float32)
    for i, value in enumerate(_HIGH_PASS):
        total += np.float32(value) * rows[i : i + 2 * n - 1 : 2]
    return total


def _at_ends(planes: Planes, top: int, down: int, across: int) -> tuple[Array, Array]:
    """Shares of black and of white pixels in each block (channels, blocks); 0 for floating point numbers."""
    if planes.image.dtype.kind == "f":
        return np.zeros((planes.n_planes, down * across)), np.zeros((planes.n_planes, down * across))
    shares, side = [], _BLOCK_PIXELS
    for end in (0, np.iinfo(planes.image.dtype).max):
        cells = [c[:, : across * side] == end for c in planes.channels(top, top + down * side)]
        shares.append(np.stack([c.reshape(down, side, across, side).mean(axis=(1, 3)).ravel() for c in cells]))
    return shares[0], shares[1]
