"""The law a chain samples from: inverse temperatures, penalties and the prior, by preset."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.kernels.online.birth_death import LATEST
from tithe.learners.online.scale import Scale

_CURB_MOST = 0.5  # over the loss of a row: below 1, a lower loss is better whatever it was predicted at
_MOVES = (1.0 / 3.0, 0.5)  # of each kind, within and at the borders


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What `PACO` does where its own parameters say nothing.

    Parameters
    ----------
    ball : float
        Radius of the prior's ball, in units of the rows' radius R.
    eta : float
    n_samples : int
    kernel : str
    """

    ball: float
    eta: float
    n_samples: int
    kernel: str = "birth_death"


PRESETS = {
    "theory": Preset(ball=2.0, eta=1.0, n_samples=500),
    "package": Preset(ball=1.5, eta=0.0, n_samples=500, kernel="paper"),
    "practical": Preset(ball=2.0, eta=1.25, n_samples=12),
}


def schedule(preset: str, d: int, radius: float, eta: float, temperature: float, scale: Scale | None) -> Array:
    """What `tithe.kernels.online.birth_death.take_rows` computes inverse temperatures, curbs and penalties from."""
    hot, never = (d + 2) / (2.0 * radius**2), np.inf
    if preset == "theory":
        return np.array([hot / temperature, 0.0, hot / temperature, never, eta, 0.0, never])
    if preset == "package":
        rate, curb = 5.0 * (d + 2) / (radius * temperature), (d + 2) / (1.5 * radius) ** 4
        return np.array([rate, 1.0, curb, never, eta, 0.0, never])
    if scale is None:  # nothing is known of the rows yet
        return np.array([0.0, 0.0, hot, _CURB_MOST, 0.0, 0.0, never])
    variance = max(scale.variance, (1e-12 * radius) ** 2)  # rows that are all equal have none
    rate, surprise = (d + 2) / (2.0 * variance * temperature), variance * (d + 4.0 * math.sqrt(2.0 * d) + 8.0)
    return np.array([rate, 0.0, hot, _CURB_MOST, 0.0, eta * variance * scale.split, surprise])


def student_scale(preset: str, max_clusters: int, d: int, t: float, rate: float, ball: float) -> float:
    """tau of the proposals that are drawn round means.

    1 / sqrt(p t), or after the scale matrix of the package; in practice as wide as the law of a centre with a p-th
    part of the weight, whatever the units, but never wider than the ball.
    """
    if preset == "package":
        return math.sqrt(0.5 / math.sqrt(max_clusters * t * d))
    if preset == "theory":
        return 1.0 / math.sqrt(max_clusters * t)
    return 0.5 * math.sqrt(max_clusters / max(rate * t, 0.25 * max_clusters / ball**2))


def log_student_constant(tau: Array | float, d: int) -> Any:
    """ln of what makes (1 + |c|^2 / (6 tau^2))^(-(3 + d) / 2) a density."""
    return math.lgamma(0.5 * (3 + d)) - math.lgamma(1.5) - 0.5 * d * np.log(6.0 * math.pi * np.asarray(tau) ** 2)


def log_ball_density(radius: float, d: int) -> float:
    """ln of one over the volume of a ball."""
    return math.lgamma(0.5 * d + 1.0) - 0.5 * d * math.log(math.pi) - d * math.log(radius)


def jump_table(max_clusters: int) -> tuple[Array, Array]:
    """Chances (p + 1, 3) to go down, stay or go up from k centres, and ln of those of the way back over them.

    A third each; one half each at k = 1 and k = p, where one of the ways is closed.
    """
    p = max_clusters
    chances = np.full((p + 1, 3), _MOVES[0])
    chances[1], chances[p] = (0.0, _MOVES[1], _MOVES[1]), (_MOVES[1], _MOVES[1], 0.0)
    if p == 1:
        chances[1] = (0.0, 1.0, 0.0)
    ratios = np.zeros((p + 1, 3))
    for k in range(1, p):
        ratios[k, 2] = math.log(chances[k + 1, 0] / chances[k, 2])
        ratios[k + 1, 0] = -ratios[k, 2]
    return chances, ratios


def anchors_of(scale: Scale, rate: float, ball: float) -> tuple[Array, Array, Array, int, Array]:
    """Places (a, d), tau and log constants (a,) of the draws of new centres, which of them also draw old ones, levels.

    Round the mean of a cluster draws are about as wide as the law of a centre there, at this inverse temperature.
    The last places are left to rows that surprise.
    """
    latest = np.arange(LATEST) % len(scale.anchors)
    anchors = np.concatenate([scale.anchors, scale.anchors[latest]])
    taus = 0.5 / np.sqrt(np.maximum(rate * scale.weights, 1e-300))
    taus = np.clip(np.concatenate([taus, np.full(LATEST, 0.5 * math.sqrt(scale.variance))]), 1e-9 * ball, ball)
    return anchors, taus, log_student_constant(taus, anchors.shape[1]), scale.n_cut, scale.levels
