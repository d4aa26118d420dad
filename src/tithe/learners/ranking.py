"""Candidates by their scores, in the form scikit-learn gives them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import FitFailedWarning

from tithe.core.data import Array


def ranked(candidates: list[dict[str, Any]], scores: Array, failures: list[Exception]) -> dict[str, Any]:
    """What stands in ``cv_results_``, times left out, from the scores (candidates, folds).

    A score is nan where a candidate could not be fitted or scored, which is said, and an error if no
    candidate has a score in every fold.
    """
    mean = scores.mean(axis=1)
    said = f"{np.isnan(scores).sum()} of {scores.size} scores are nan" + (
        f", the first because of {failures[0]!r}" if failures else ""
    )
    if np.isnan(mean).all():
        raise ValueError(f"No candidate has a score in every fold: {said}.") from next(iter(failures), None)
    if failures:
        warnings.warn(f"{said}.", FitFailedWarning, stacklevel=4)
    rank = rankdata(np.where(np.isnan(mean), np.inf, -mean), method="min").astype(np.int32)
    results: dict[str, Any] = {"params": candidates}
    for key in sorted({key for params in candidates for key in params}):
        results[f"param_{key}"] = column = np.ma.MaskedArray(np.empty(len(candidates), object), mask=True)
        for i, params in enumerate(candidates):
            if key in params:
                column[i] = params[key]
    results |= {f"split{j}_test_score": column for j, column in enumerate(scores.T)}
    return results | {"mean_test_score": mean, "std_test_score": scores.std(axis=1), "rank_test_score": rank}
