"""Noise that was cut off at black and white: what it does to averages, and how it is undone."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from tithe.core.data import Array
from tithe.images.planes import Planes
from tithe.images.quality import data_range

_TABLE = 1 << 14  # entries of tables over all averages
_FAR = 8.0  # standard deviations beyond which nothing is cut off
_BLOCK = 8  # pixels along the side of the blocks that are looked at
_CALM = 1.5  # times the variance of noise alone that a block may have
_NEAR = 1.0  # standard deviations from an end within which a block tells whether noise was cut off there
_AGREE = (0.8, 1.3)  # pixels at an end, and variance near it, as multiples of what is expected
_ENOUGH = 50.0  # of them to be expected at least
_LEAST = 0.2  # strength of noise, as a share of sigma, where all of it is cut off


def moments(low: Array, high: Array) -> tuple[Array, Array]:
    """Mean and variance of a standard normal number that is cut off at ``low`` and ``high``."""
    below, above = ndtr(low), ndtr(-high)
    at_low, at_high = (np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) for z in (low, high))
    mean = at_low - at_high + low * below + high * above
    square = 1.0 - below - above + low * at_low - high * at_high + low * low * below + high * high * above
    return mean, np.maximum(square - mean * mean, 0.0)


def kept_variance(below: Array, above: Array) -> Array:
    """Share of its variance that normal noise keeps where such shares of it were cut off at either end."""
    low, high = (np.minimum(ndtri(np.clip(share, 1e-15, 0.5)), 0.0) for share in (below, above))
    return moments(low, -high)[1]


class ClippedNoise:
    """White noise on values x in [0, largest] that was cut off at black, at white or at both.

    Where x is near an end, what is left of the noise is not centred: pixels are on average

        m(x) = x + sigma E[clip(z, -x / sigma, (largest - x) / sigma)],    z standard normal,

    which is .4 sigma away from x at an end, and their variance v(x) is less than sigma^2, .34 of it at an end.
    Averages of neighbouring pixels tell m(x), and m increases, so x is had from them.

    Parameters
    ----------
    sigma, largest : float
    black, white : bool
        At which ends.
    """

    def __init__(self, sigma: float, largest: float, *, black: bool, white: bool) -> None:
        self.sigma, self.largest, self.black, self.white = sigma, largest, black, white
        self._x = np.linspace(0.0, largest, int(np.clip(32 * largest / sigma, 256, 1 << 18)))
        low = np.maximum(-self._x / sigma, -_FAR) if black else np.full(len(self._x), -_FAR)
        high = np.minimum((largest - self._x) / sigma, _FAR) if white else np.full(len(self._x), _FAR)
        mean, self._variance = moments(low, high)
        self._mean = self._x + sigma * mean
        self._by_average = np.interp(np.linspace(0.0, largest, _TABLE + 1), self._mean, self._variance)

    def __repr__(self) -> str:
        return f"ClippedNoise({self.sigma}, {self.largest}, black={self.black}, white={self.white})"

    def undone(self, averages: Array) -> Array:
        """x where m(x) is known. What lies beyond the range of m is at its end."""
        return np.interp(averages, self._mean, self._x)

    def variance(self, averages: Array) -> Array:
        """v(x) / sigma^2 where m(x) is known, by a table: this is asked for every patch."""
        at = (averages * (_TABLE / self.largest) + 0.5).astype(np.int32)
        return self._by_average[np.clip(at, 0, _TABLE, out=at)]

    def strength(self, planes: Planes, plane: int, top: int, bottom: int, side: int) -> Array:
        """Standard deviation of noise over sigma in the patches of rows ``top`` to ``bottom`` of a plane.

        (bottom - top - side + 1, w - side + 1), by the averages of each patch's colours.
        """
        total = 0.0
        for share, channel in zip(planes.shares(plane), planes.channels(top, bottom), strict=True):
            if not share:
                continue
            total = total + share * self.variance(_window_sums(_window_sums(channel, side).T, side).T / side**2)
        return np.maximum(np.sqrt(total), _LEAST)


def _window_sums(rows: Array, side: int) -> Array:
    """Sums of ``side`` rows from each on; added up one by one, so that they do not depend on the rows before."""
    n = len(rows) - side + 1
    total = rows[:n].astype(np.float64)
    for i in range(1, side):
        total += rows[i : i + n]
    return total


def find_clipping(planes: Planes, sigma: float, clipped: bool | str, largest: float | None) -> ClippedNoise | None:
    """How the noise of a picture was cut off; None where it was not.

    ``clipped`` says so, or is "auto": then calm blocks near an end must have as many pixels at it as noise that was cut
    off there would leave. Floating point numbers need not have been cut off at all, and are not looked at.
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
    expected, found = np.zeros(2), np.zeros(2)  # pixels at the end, and variance
    for rows in planes.stripes():
        for channel in planes.channels(rows.start, rows.stop):
            down, across = (length // _BLOCK for length in channel.shape)
            cells = channel[: down * _BLOCK, : across * _BLOCK].reshape(down, _BLOCK, across, _BLOCK)
            mean = cells.mean(axis=(1, 3), dtype=np.float64)
            distance = np.abs(noise.undone(mean) - end)
            i, j = np.nonzero((distance <= _NEAR * sigma) & (mean != end))
            cells, variance = cells[i, :, j], sigma**2 * noise.variance(mean[i, j])
            spread = cells.var(axis=(1, 2), dtype=np.float64)
            calm = spread <= _CALM * variance
            share = ndtr((0.5 - distance[i, j]) / sigma)  # half a grey level: pixels were rounded
            expected += [_BLOCK**2 * share[calm].sum(), variance[calm].sum()]
            found += [(cells[calm] == end).sum(), spread[calm].sum()]
    if expected[0] < _ENOUGH:
        return False
    ratio = found / expected
    return bool((ratio >= _AGREE[0]).all() and (ratio <= _AGREE[1]).all())
