"""Noise that was cut off at black and white, and the correction of the averages that it changes."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from tithe.core.data import Array
from tithe.images.planes import Planes
from tithe.images.quality import data_range

_TABLE_SIZE = 1 << 14  # entries of the table of variances by average
_MAX_DEVIATIONS = 8.0  # standard deviations beyond which nothing is cut off
_BLOCK_SIDE = 8  # pixels along the side of a block
_MAX_VARIANCE_RATIO = 1.5  # variance of a flat block over that of the noise
_END_DEVIATIONS = 1.0  # distance from an end of blocks that show whether noise was cut off there
_ACCEPTED_RATIOS = (0.8, 1.3)  # pixels at an end, and variance near it, as multiples of what is expected
_MIN_EXPECTED_PIXELS = 50.0  # at an end; with fewer, clipping is not detected
_MIN_STRENGTH = 0.2  # lower bound of the strength of clipped noise, as a share of sigma


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
    """White noise on values x in [0, largest] that was cut off at black, at white or at both.

    If x is near an end, the mean of the clipped noise is not 0: pixels have the mean

        m(x) = x + sigma E[clip(z, -x / sigma, (largest - x) / sigma)],    z standard normal,

    which is .4 sigma away from x at an end, and the variance v(x) < sigma^2, which is .34 sigma^2 at an end.
    Averages of neighbouring pixels estimate m(x). Since m increases, x follows from them.

    Parameters
    ----------
    sigma, largest : float
    black, white : bool
        Whether noise was cut off at this end.
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
        """Standard deviation of noise over sigma in the patches of rows ``top`` to ``bottom`` of a plane.

        (bottom - top - side + 1, w - side + 1), by the averages of each patch's colours.
        """
        total = 0.0
        for share, channel in zip(planes.shares(plane), planes.channels(top, bottom), strict=True):
            if not share:
                continue
            total = total + share * self.variance(_window_sums(_window_sums(channel, side).T, side).T / side**2)
        return np.maximum(np.sqrt(total), _MIN_STRENGTH)


def _window_sums(rows: Array, side: int) -> Array:
    """Sums of ``side`` consecutive rows; added one by one, so that their bits do not depend on other rows."""
    n = len(rows) - side + 1
    total = rows[:n].astype(np.float64)
    for i in range(1, side):
        total += rows[i : i + n]
    return total


def find_clipping(planes: Planes, sigma: float, clipped: bool | str, largest: float | None) -> ClippedNoise | None:
    """How the noise of a picture was cut off; None if it was not.

    ``clipped`` is True, False or "auto". With "auto", flat blocks near an end must have as many pixels at the end as
    clipped noise would have. Pictures of floating point numbers are then taken not to be clipped.
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
