"""Calibrates the weights of a coreset to the residuals, on all rows, of a model that was fitted on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tithe.core.contracts import SampledObjective
from tithe.core.data import Array, Block, Coreset, Moments
from tithe.reduce.calibration import calibrate

_CHUNK_ROWS = 16_384  # rows whose residuals are computed at a time

Residuals = Callable[[Block], Array]  # (n, c) for the rows of a block


def residuals(estimator: Any, labels: Array | None, block: Block) -> Array:
    """Residuals (n, c) of a fitted estimator: of y, or of the indicator of each class but the first.

    ``labels`` are those of a classifier; y of the block then holds class numbers.
    """
    assert block.y is not None
    residual: Array
    if labels is None:
        residual = (block.y - estimator.predict(block.X))[:, None]
        return residual
    indicators = np.equal.outer(labels[block.y], estimator.classes_)
    if hasattr(estimator, "predict_proba"):
        predicted = estimator.predict_proba(block.X)
    else:
        predicted = np.equal.outer(estimator.predict(block.X), estimator.classes_)
    residual = (indicators[:, 1:] - predicted[:, 1:]).astype(np.float64)
    return residual


def recalibrated(coreset: Coreset, block: Block, objective: SampledObjective, residuals_of: Residuals) -> Coreset:
    """The coreset with weights that also reproduce the sums of residuals times columns over the block."""
    pilot = coreset.pilot
    assert pilot is not None and coreset.totals is not None
    totals: Array | None = None
    for start in range(0, len(block), _CHUNK_ROWS):
        part = block.cut(start, start + _CHUNK_ROWS)
        moments = _residual_moments(part, objective, pilot, residuals_of)
        if totals is None:
            totals = np.zeros((len(coreset.totals), moments.values.shape[1]))
        groups = np.zeros(len(part), np.int64) if moments.groups is None else moments.groups
        np.add.at(totals, groups, moments.values * part.weights()[:, None])
    assert totals is not None
    moments = _residual_moments(coreset, objective, pilot, residuals_of)
    weight, report = calibrate(coreset.weights(), moments, totals)
    return replace(coreset, sample_weight=weight, provenance={**coreset.provenance, **report.provenance()})


def _residual_moments(block: Block, objective: SampledObjective, pilot: Array, residuals_of: Residuals) -> Moments:
    moments = objective.moments(block, pilot)
    residual = residuals_of(block)
    z = moments.values[:, 2 : 2 + block.n_features]
    products = [r[:, None] * z for r in residual.T]
    return Moments(
        values=np.column_stack([moments.values, residual, *products]),
        groups=moments.groups,
        n_basic=moments.n_basic,
    )
