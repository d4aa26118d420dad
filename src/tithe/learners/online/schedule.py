"""The distribution that a chain samples from: inverse temperatures, penalties and the prior, by preset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.kernels.online.birth_death import LATEST
from tithe.learners.online.scale import Scale

_MAX_CURB = 0.5  # over the loss of a row; below 1, a lower loss always lowers S_t
_JUMP_CHANCES = (1.0 / 3.0, 0.5)  # of each kind of move, for 1 < k < p and at k = 1 or p


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Values of the parameters of `PACO` that are not given.

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


def inverse_temperature(options: Mapping[str, Any], d: int, radius: float, t: float) -> float:
    """lambda_t of the preset ``"theory"``: given, or (d + 2) / (2 R^2 sqrt(T)), with t for T if there is no horizon."""
    if options["inverse_temperature"] is not None:
        return float(options["inverse_temperature"] / options["temperature"])
    rows = t if options["horizon"] is None else options["horizon"]
    return float((d + 2) / (2.0 * radius**2 * math.sqrt(rows) * options["temperature"]))


def schedule(options: Mapping[str, Any], d: int, radius: float, scale: Scale | None) -> Array:
    """Numbers from which `tithe.kernels.online.birth_death.run_chain` computes temperatures, curbs and penalties."""
    preset, eta, temperature = options["preset"], options["eta"], options["temperature"]
    hot, never = (d + 2) / (2.0 * radius**2), np.inf
    if preset == "theory":
        falls = options["horizon"] is None and options["inverse_temperature"] is None
        rate = inverse_temperature(options, d, radius, 1.0)
        return np.array([rate, 0.0 if falls else np.inf, rate, never, eta, 0.0, never])
    if preset == "package":
        rate, curb = 5.0 * (d + 2) / (radius * temperature), (d + 2) / (1.5 * radius) ** 4
        return np.array([rate, 1.0, curb, never, eta, 0.0, never])
    if scale is None:  # no rows were measured yet
        return np.array([0.0, 0.0, hot, _MAX_CURB, 0.0, 0.0, never])
    variance = max(scale.variance, (1e-12 * radius) ** 2)  # equal rows have variance 0
    rate, surprise = (d + 2) / (2.0 * variance * temperature), variance * (d + 4.0 * math.sqrt(2.0 * d) + 8.0)
    return np.array([rate, 0.0, hot, _MAX_CURB, 0.0, eta * variance * scale.split, surprise])


def student_scale(preset: str, max_clusters: int, d: int, t: float, rate: float, ball: float) -> float:
    """tau of the proposals that are drawn around means.

    1 / sqrt(p t) for "theory", from the scale matrix of the R package for "package". For "practical" the width of the
    distribution of a centre that has a p-th part of the weight, but at most that of the ball.
    """
    if preset == "package":
        return math.sqrt(0.5 / math.sqrt(max_clusters * t * d))
    if preset == "theory":
        return 1.0 / math.sqrt(max_clusters * t)
    return 0.5 * math.sqrt(max_clusters / max(rate * t, 0.25 * max_clusters / ball**2))


def log_student_constant(tau: Array | float, d: int) -> Any:
    """ln of the factor that makes (1 + |c|^2 / (6 tau^2))^(-(3 + d) / 2) a density."""
    return math.lgamma(0.5 * (3 + d)) - math.lgamma(1.5) - 0.5 * d * np.log(6.0 * math.pi * np.asarray(tau) ** 2)


def log_ball_density(radius: float, d: int) -> float:
    """ln of one over the volume of a ball."""
    return math.lgamma(0.5 * d + 1.0) - 0.5 * d * math.log(math.pi) - d * math.log(radius)


def jump_table(max_clusters: int) -> tuple[Array, Array]:
    """Probabilities (p + 1, 3) of k - 1, k and k + 1 centres after k, and ln of the ratios of reverse to forward moves.

    A third each; one half each at k = 1 and k = p, where one of the moves is impossible.
    """
    p = max_clusters
    chances = np.full((p + 1, 3), _JUMP_CHANCES[0])
    chances[1], chances[p] = (0.0, _JUMP_CHANCES[1], _JUMP_CHANCES[1]), (_JUMP_CHANCES[1], _JUMP_CHANCES[1], 0.0)
    if p == 1:
        chances[1] = (0.0, 1.0, 0.0)
    ratios = np.zeros((p + 1, 3))
    for k in range(1, p):
        ratios[k, 2] = math.log(chances[k + 1, 0] / chances[k, 2])
        ratios[k + 1, 0] = -ratios[k, 2]
    return chances, ratios


def anchors_of(scale: Scale, rate: float, ball: float) -> tuple[Array, Array, Array, int, Array]:
    """Anchors (a, d), tau and log constants (a,) of the proposals of new centres, the number of clusters, and levels.

    Proposals around the mean of a cluster are about as wide as the distribution of a centre there, at this inverse
    temperature. The last anchors are replaced by rows of high loss.
    """
    latest = np.arange(LATEST) % len(scale.anchors)
    anchors = np.concatenate([scale.anchors, scale.anchors[latest]])
    taus = 0.5 / np.sqrt(np.maximum(rate * scale.weights, 1e-300))
    taus = np.clip(np.concatenate([taus, np.full(LATEST, 0.5 * math.sqrt(scale.variance))]), 1e-9 * ball, ball)
    return anchors, taus, log_student_constant(taus, anchors.shape[1]), scale.n_cut, scale.levels
