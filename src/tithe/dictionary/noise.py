"""Noise and clipping of pictures, and the quality of what was cleaned."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.fft import dctn
from scipy.ndimage import correlate1d
from scipy.special import ndtr, ndtri
from scipy.stats import chi2

from tithe.core.data import Array
from tithe.dictionary.pictures import Planes

WINDOW, _WINDOW_DEVIATION = 11, 1.5  # of SSIM, after Wang, Bovik, Sheikh and Simoncelli 2004
_K1, _K2 = 0.01, 0.03
_CHUNK_ROWS = 256  # rows of a picture that are compared at a time
_TABLE_SIZE = 1 << 14  # entries of the table of variances by average
_MAX_DEVIATIONS = 8.0  # standard deviations beyond which nothing is cut off
_BLOCK_SIDE = 8  # pixels along the side of a block
_MAX_VARIANCE_RATIO = 1.5  # variance of a flat block over that of the noise
_END_DEVIATIONS = 1.0  # distance from an end of blocks that show whether noise was cut off there
_ACCEPTED_RATIOS = (0.8, 1.3)  # pixels at an end, and variance near it, as multiples of what is expected
_MIN_EXPECTED_PIXELS = 50.0  # at an end; with fewer, clipping is not detected
_MIN_STRENGTH = 0.2  # lower bound of the strength of clipped noise, as a share of sigma


def data_range(image: Array) -> float:
    """The largest value a pixel of this type can have; 1 for floats."""
    return 1.0 if image.dtype.kind == "f" else float(np.iinfo(image.dtype).max)


def psnr(image: Any, reference: Any, *, largest: float | None = None) -> float:
    """Peak signal-to-noise ratio in decibels: 10 log10(largest^2 / mean squared difference); inf if equal."""
    image, reference = _checked_pair(image, reference)
    largest = data_range(reference) if largest is None else largest
    total = 0.0
    for top in range(0, len(image), _CHUNK_ROWS):
        difference = image[top : top + _CHUNK_ROWS].astype(np.float64) - reference[top : top + _CHUNK_ROWS]
        total += float(np.add.reduce(difference * difference, axis=None))
    return float(np.inf) if total == 0.0 else float(10.0 * np.log10(largest * largest * image.size / total))


def ssim(image: Any, reference: Any, *, largest: float | None = None) -> float:
    """Mean structural similarity over all channels and places, in a Gaussian window of 11 pixels and deviation 1.5."""
    image, reference = _checked_pair(image, reference)
    largest = data_range(reference) if largest is None else largest
    if min(image.shape[:2]) < WINDOW:
        raise ValueError(f"Pictures of {image.shape[0]} x {image.shape[1]} pixels are smaller than the window of SSIM.")
    at = np.arange(WINDOW) - WINDOW // 2
    window = np.exp(-0.5 * (at / _WINDOW_DEVIATION) ** 2)
    window /= window.sum()
    total, count, edge = 0.0, 0, WINDOW // 2
    for top in range(0, len(image) - WINDOW + 1, _CHUNK_ROWS):
        rows = slice(top, min(len(image), top + _CHUNK_ROWS + WINDOW - 1))
        x, y = image[rows].astype(np.float64), reference[rows].astype(np.float64)
        similarity = _similarity(x, y, window, largest)[edge:-edge, edge:-edge]
        total, count = total + float(similarity.sum()), count + similarity.size
    return total / count


def _similarity(x: Array, y: Array, window: Array, largest: float) -> Array:
    def mean(values: Array) -> Any:
        return correlate1d(correlate1d(values, window, axis=0), window, axis=1)

    c1, c2 = (_K1 * largest) ** 2, (_K2 * largest) ** 2
    mx, my = mean(x), mean(y)
    vx, vy, covariance = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    return np.asarray((2 * mx * my + c1) * (2 * covariance + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2)))


def _checked_pair(image: Any, reference: Any) -> tuple[Array, Array]:
    image, reference = np.asarray(image), np.asarray(reference)
    if image.shape != reference.shape:
        raise ValueError(f"The pictures differ in shape: {image.shape} and {reference.shape}.")
    return image, reference


def moments(low: Array, high: Array) -> tuple[Array, Array]:
    """Mean and variance of a standard normal number that is cut off at ``low`` and ``high``."""
    below, above = ndtr(low), ndtr(-high)
    at_low, at_high = (np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) for z in (low, high))
    mean = at_low - at_high + low * below + high * above
    square = 1.0 - below - above + low * at_low - high * at_high + low * low * below + high * high * above
    return mean, np.maximum(square - mean * mean, 0.0)


def kept_variance(below: Array, above: Array) -> Array:
    """Variance of normal noise after the shares ``below`` and ``above`` were cut off, over that before."""
    low, high = (np.minimum(ndtri(np.clip(share, 1e-15, 0.5)), 0.0) for share in (below, above))
    return moments(low, -high)[1]


class ClippedNoise:
    """White noise of deviation sigma on values x in [0, largest] that was cut off at black, at white or at both.

    Pixels have the mean m(x) = x + sigma E[clip(z, -x / sigma, (largest - x) / sigma)], z standard normal, which is 0.4
    sigma away from x at an end, and the variance v(x) < sigma^2. m increases: averages of neighbours give x.
    """

    def __init__(self, sigma: float, largest: float, *, black: bool, white: bool) -> None:
        self.sigma, self.largest, self.black, self.white = sigma, largest, black, white
        self._x = np.linspace(0.0, largest, int(np.clip(32 * largest / sigma, 256, 1 << 18)))
        unclipped = np.full(len(self._x), _MAX_DEVIATIONS)
        low = np.maximum(-self._x / sigma, -_MAX_DEVIATIONS) if black else -unclipped
        high = np.minimum((largest - self._x) / sigma, _MAX_DEVIATIONS) if white else unclipped
        mean, self._variance = moments(low, high)
        self._mean = self._x + sigma * mean
        self._by_average = np.interp(np.linspace(0.0, largest, _TABLE_SIZE + 1), self._mean, self._variance)

    def __repr__(self) -> str:
        return f"ClippedNoise({self.sigma}, {self.largest}, black={self.black}, white={self.white})"

    def undone(self, averages: Array) -> Array:
        """x for given m(x). Averages beyond the range of m give an end."""
        return np.interp(averages, self._mean, self._x)

    def variance(self, averages: Array) -> Array:
        """v(x) / sigma^2 for given m(x), from a table because it is computed for each patch."""
        at = (averages * (_TABLE_SIZE / self.largest) + 0.5).astype(np.int32)
        return self._by_average[np.clip(at, 0, _TABLE_SIZE, out=at)]

    def strength(self, planes: Planes, plane: int, top: int, bottom: int, side: int) -> Array:
        """Standard deviation of noise over sigma in the patches of rows ``top`` to ``bottom`` of a plane."""
        total = 0.0
        for share, channel in zip(planes.shares(plane), planes.channels(top, bottom), strict=True):
            if not share:
                continue
            total = total + share * self.variance(_window_sums(_window_sums(channel, side).T, side).T / side**2)
        return np.asarray(np.maximum(np.sqrt(total), _MIN_STRENGTH))


def _window_sums(rows: Array, side: int) -> Array:
    """Sums of ``side`` consecutive rows; added one by one, so that their bits do not depend on other rows."""
    n = len(rows) - side + 1
    total = rows[:n].astype(np.float64)
    for i in range(1, side):
        total += rows[i : i + n]
    return total


def find_clipping(planes: Planes, sigma: float, clipped: bool | str, largest: float | None) -> ClippedNoise | None:
    """How the noise of a picture was cut off; None if it was not.

    With "auto", flat blocks near an end must have as many pixels at the end as clipped noise would have.
    """
    if not clipped or sigma <= 0.0:
        return None
    if clipped != "auto":
        limit = data_range(planes.image) if largest is None else largest
        return ClippedNoise(sigma, limit, black=True, white=True)
    if planes.image.dtype.kind == "f":
        return None
    limit = data_range(planes.image)
    black, white = (_is_cut_off(planes, sigma, limit, end) for end in (0.0, limit))
    return ClippedNoise(sigma, limit, black=black, white=white) if black or white else None


def _is_cut_off(planes: Planes, sigma: float, largest: float, end: float) -> bool:
    noise = ClippedNoise(sigma, largest, black=True, white=True)
    side = _BLOCK_SIDE
    expected, observed = np.zeros(2), np.zeros(2)  # pixels at the end, and variance
    for rows in planes.stripes():
        for channel in planes.channels(rows.start, rows.stop):
            down, across = (length // side for length in channel.shape)
            cells = channel[: down * side, : across * side].reshape(down, side, across, side)
            mean = cells.mean(axis=(1, 3), dtype=np.float64)
            distance = np.abs(noise.undone(mean) - end)
            i, j = np.nonzero((distance <= _END_DEVIATIONS * sigma) & (mean != end))
            cells, variance = cells[i, :, j], sigma**2 * noise.variance(mean[i, j])
            spread = cells.var(axis=(1, 2), dtype=np.float64)
            flat = spread <= _MAX_VARIANCE_RATIO * variance
            share = ndtr((0.5 - distance[i, j]) / sigma)  # half a grey level: pixels were rounded
            expected += [side**2 * share[flat].sum(), variance[flat].sum()]
            observed += [(cells[flat] == end).sum(), spread[flat].sum()]
    if expected[0] < _MIN_EXPECTED_PIXELS:
        return False
    ratio = observed / expected
    return bool((ratio >= _ACCEPTED_RATIOS[0]).all() and (ratio <= _ACCEPTED_RATIOS[1]).all())


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

    The mean square of d detail coefficients of a block that is flat except for the noise is sigma^2 chi2_d / d. They
    are the diagonal wavelet band of 16 x 16 pixels, d = 64, and the cosines of 8 x 8 pixels without the six coarsest,
    d = 58, in each plane (`Planes`). How many blocks are flat is not known: sigma solves

        mean of the squares below c sigma^2 = sigma^2 E[chi2_d / d | chi2_d / d < c],

    from the first decile of the squares on, with c such that 0.6 of the flat blocks lie below c sigma^2. The estimate
    with the smallest sum of estimate and two standard errors is taken.

    If noise was cut off at the ends of the range of integers, the share of such pixels in a block gives the variance
    that is left. Blocks with a share above a fifth are left out, unless less than a tenth of all would remain. Texture
    everywhere is taken for noise (``benchmarks/noise_levels.py``), and smoothed noise is underestimated.
    """
    planes = image if isinstance(image, Planes) else Planes(image)
    if min(planes.height, planes.width) < _BLOCK_PIXELS + len(_HIGH_PASS):
        raise ValueError(
            f"The picture has {planes.height} x {planes.width} pixels, too few to estimate its noise: give sigma."
        )
    wavelets, cosines, clipped = _blocks(planes)
    colored = wavelets.max(axis=1) > _EMPTY_PLANE * wavelets.max()  # a grey picture may have two empty planes
    if colored.any():
        wavelets, cosines = wavelets[colored], cosines[colored]
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
    """Variance of the noise and its relative standard error, from mean squares of blocks of which some are flat."""
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
    """Mean squares (planes, blocks) of wavelets, (planes, blocks, 4) of cosines; shares of clipped pixels."""
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
    return np.asarray((detail * detail).reshape(down, _SIDE, across, _SIDE).mean(axis=(1, 3), dtype=np.float64).ravel())


def _cosine_squares(part: Array) -> Array:
    """Mean squares of the fine cosines of the quarters of blocks: (blocks, 4)."""
    down, across = (length // _SIDE for length in part.shape)
    cosines = dctn(part.reshape(down, _SIDE, across, _SIDE), axes=(1, 3), norm="ortho")
    squares = np.square(cosines, out=cosines) * _FINE_COSINES[:, None, :]
    means = squares.sum(axis=(1, 3), dtype=np.float64) / _FINE_COSINES.sum()
    return np.asarray(means.reshape(down // 2, 2, across // 2, 2).transpose(0, 2, 1, 3).reshape(-1, 4))


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
