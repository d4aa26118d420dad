"""Weights of a coreset calibrated once more, to what a model fitted on it leaves unexplained on all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tithe.core.contracts import SampledObjective
from tithe.core.data import Array, Block, Coreset, Moments
from tithe.reduce.calibration import calibrate

_ROWS = 16_384  # of which residuals are taken at a time

Residuals = Callable[[Block], Array]  # (n, c) for the rows of a block


def residuals(estimator: Any, labels: Array | None, block: Block) -> Array:
    """(n, c): what a fitted estimator leaves unexplained, for each class but the first or for y itself.

    ``labels`` are those of a classifier, whose numbers stand in y of the block.
    """
    assert block.y is not None
    if labels is None:
        return (block.y - estimator.predict(block.X))[:, None]
    truth = np.equal.outer(labels[block.y], estimator.classes_)
    if hasattr(estimator, "predict_proba"):
        guess = estimator.predict_proba(block.X)
    else:
        guess = np.equal.outer(estimator.predict(block.X), estimator.classes_)
    return (truth[:, 1:] - guess[:, 1:]).astype(np.float64)


def recalibrated(coreset: Coreset, block: Block, objective: SampledObjective, unexplained: Residuals) -> Coreset:
    """The coreset with weights that also reproduce the products of residuals and columns on all rows of the block."""
    pilot = coreset.pilot
    assert pilot is not None and coreset.totals is not None
    totals: Array | None = None
    for start in range(0, len(block), _ROWS):
        part = block.cut(start, start + _ROWS)
        moments = _residual_moments(part, objective, pilot, unexplained)
        if totals is None:
            totals = np.zeros((len(coreset.totals), moments.values.shape[1]))
        groups = np.zeros(len(part), np.int64) if moments.groups is None else moments.groups
        np.add.at(totals, groups, moments.values * part.weights()[:, None])
    assert totals is not None
    moments = _residual_moments(coreset, objective, pilot, unexplained)
    weight, report = calibrate(coreset.weights(), moments, totals)
    return replace(coreset, sample_weight=weight, provenance={**coreset.provenance, **report.provenance()})


def _residual_moments(block: Block, objective: SampledObjective, pilot: Array, unexplained: Residuals) -> Moments:
    moments = objective.moments(block, pilot)
    residual = unexplained(block)
    z = moments.values[:, 2 : 2 + block.n_features]
    products = [r[:, None] * z for r in residual.T]
    return Moments(
        values=np.column_stack([moments.values, residual, *products]),
        groups=moments.groups,
        n_basic=moments.n_basic,
    )
