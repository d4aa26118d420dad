"""scikit-learn's own checks, on every public estimator, as it is and with a coreset smaller than the data."""

from __future__ import annotations

import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from tithe import (
    CoresetEstimator,
    CoresetGaussianMixture,
    CoresetHuberRegressor,
    CoresetKMeans,
    CoresetKMedians,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
)
from tithe.dictionary import KSVD, Reference
from tithe.odm import (
    IncrementalODMClassifier,
    LinearODMClassifier,
    ODMClassifier,
    ODMClassifierCV,
    ODMClustering,
    PartitionSolver,
    SemiSupervisedODMClassifier,
)
from tithe.online import PACO


@parametrize_with_checks(
    [
        CoresetKMeans(),
        CoresetKMedians(),
        CoresetGaussianMixture(),
        CoresetLogisticRegression(),
        CoresetRidge(),
        CoresetPoissonRegressor(),
        CoresetHuberRegressor(alpha=100.0),  # with less, rows are fitted exactly, and many solutions are equally good
        ODMClassifier(),
        IncrementalODMClassifier(),
        ODMClassifier(solver=PartitionSolver(n_parts=3)),
        KSVD(),
        PACO(),
        CoresetEstimator(Ridge()),
    ]
)
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


# scikit-learn excepts its own estimators by name
NO_CLASS_MINUS_ONE = {"check_classifiers_classes": "a class -1 marks rows without a label"}


def _excepted(estimator: object) -> dict[str, str]:
    return NO_CLASS_MINUS_ONE if isinstance(estimator, SemiSupervisedODMClassifier) else {}


@parametrize_with_checks(
    [
        LinearODMClassifier(),
        ODMClassifierCV(2, lams=(10.0, 100.0)),  # with 24 candidates each check takes minutes
        ODMClustering(),
        SemiSupervisedODMClassifier(),
    ],
    expected_failed_checks=_excepted,
)
def test_scikit_learn_checks_of_margin_machines(estimator, check) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([ODMClassifierCV()])
def test_scikit_learn_checks_with_as_many_candidates_as_by_default(estimator, check) -> None:
    check(estimator)


FEW_ROWS = {"coreset_size": 20, "random_state": 0}


def _weights_change_the_draw(estimator: object) -> dict[str, str]:
    """Rows of weight two and rows that occur twice are drawn by other random numbers; the law is the same."""
    if isinstance(estimator, CoresetRidge):
        return {}  # polish leads to the exact solution, whichever rows are kept
    reason = "the rows that are kept are other ones"
    kinds = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in kinds}


@parametrize_with_checks(
    [
        CoresetLogisticRegression(coreset_size=15, random_state=0),
        CoresetEstimator(Ridge(), coreset_size=20, random_state=0),
    ],
    expected_failed_checks=_weights_change_the_draw,
)
def test_scikit_learn_checks_with_few_rows_kept(estimator, check) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        CoresetKMeans(3, **FEW_ROWS),
        CoresetKMedians(3, **FEW_ROWS),
        CoresetGaussianMixture(2, **FEW_ROWS),
        CoresetLogisticRegression(**FEW_ROWS),
        CoresetRidge(**FEW_ROWS),
        CoresetPoissonRegressor(**FEW_ROWS),
        CoresetHuberRegressor(**FEW_ROWS),
        CoresetHuberRegressor(alpha=100.0, **FEW_ROWS),
        LinearODMClassifier(**FEW_ROWS),
        KSVD(3, **FEW_ROWS),
        CoresetEstimator(LogisticRegression(), **FEW_ROWS),
    ],
    expected_failed_checks=_weights_change_the_draw,
)
def test_scikit_learn_checks_with_few_rows_kept_by_every_learner(estimator, check) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        SemiSupervisedODMClassifier(unlabeled="none"),
        LinearODMClassifier(intercept_scaling=float("inf")),
        ODMClassifier(kernel="linear"),
        KSVD(center="global", variant="exact"),
        KSVD(center="row"),
        KSVD(alpha=1.0),
        KSVD(positive=True),
        KSVD(3, reference=Reference(beta=0.0, include=True), variant="plain", n_init=2),
        PACO(8, kernel="symmetric", half_life=100.0),
        CoresetEstimator(LogisticRegression()),
    ]
)
def test_scikit_learn_checks_of_more_parameters(estimator, check) -> None:
    check(estimator)
