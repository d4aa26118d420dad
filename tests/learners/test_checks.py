"""scikit-learn's own checks, on every public estimator. Nothing is excused."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from tithe import (
    CoresetEstimator,
    CoresetHuberRegressor,
    CoresetKMeans,
    CoresetKMedians,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
)
from tithe.dictionary import KSVD
from tithe.odm import LinearODMClassifier, ODMClassifier
from tithe.online import PACO


@parametrize_with_checks(
    [
        CoresetKMeans(),
        CoresetKMedians(),
        CoresetLogisticRegression(),
        CoresetRidge(),
        CoresetRidge(coreset_size=15),
        CoresetPoissonRegressor(),
        CoresetHuberRegressor(alpha=100.0),  # with less, rows are fitted exactly, and many solutions are equally good
        ODMClassifier(),
        LinearODMClassifier(lam=10.0),  # the default of lam takes five times as long
        KSVD(),
        KSVD(center="global", exact_update=True),
        KSVD(center="row"),
        KSVD(coding="lasso"),
        KSVD(positive=True),
        PACO(),
        PACO(8, kernel="symmetric", half_life=100.0),
        CoresetEstimator(LogisticRegression()),
        CoresetEstimator(Ridge()),
    ]
)
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [LinearODMClassifier(), ODMClassifier(kernel="linear"), LinearODMClassifier(intercept_scaling=float("inf"))]
)
def test_scikit_learn_checks_of_more_machines(estimator, check) -> None:
    check(estimator)
