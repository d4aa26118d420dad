"""What the fields of a certificate mean, for every learner that gives one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

from tithe.certify import Certificate, cost_certificate
from tithe.certify.certificate import bound_certificate, exact_excess_certificate, excess_certificate
from tithe.clustering.learners import CoresetKMeans
from tithe.core.errors import FileFormatError
from tithe.core.state_checks import checked
from tithe.dictionary.ksvd import KSVD
from tithe.linear.logistic import CoresetLogisticRegression
from tithe.linear.regression import CoresetRidge
from tithe.meta.estimator import CoresetEstimator
from tithe.odm.clustering import ODMClustering

X = np.random.default_rng(0).normal(size=(2000, 3))
LEARNERS = {
    "cost": CoresetKMeans(4, coreset_size=100, random_state=0),
    "excess_loss": CoresetLogisticRegression(coreset_size=100, random_state=0),
    "score": CoresetEstimator(Ridge(), coreset_size=100, random_state=0),
    "mse": KSVD(4, coreset_size=100, random_state=0),
}


@pytest.mark.parametrize("quantity", LEARNERS)
def test_an_excess_is_relative_to_the_loss_and_all_else_compares_the_coreset(quantity: str) -> None:
    y = X[:, 0] + X[:, 1] > 0.5 if quantity == "excess_loss" else X @ [1.0, 2.0, 3.0]
    certificate = LEARNERS[quantity].fit(X, y).certify(X, y)
    assert certificate.quantity == quantity
    if quantity == "excess_loss":
        assert 0.0 <= certificate.relative_excess < 1e-2 and certificate.coreset_error is None
    else:
        assert certificate.relative_excess is None and abs(certificate.coreset_error) < 1.0


def test_the_sentence_leaves_out_a_comparison_that_says_nothing() -> None:
    assert str(cost_certificate(5.0, 5.0, 9, passes=1)) == "The solution costs exactly 5 on all 9 rows."
    assert str(cost_certificate(5.0, 4.0, 9, passes=1)).endswith("the coreset says 4, which is -20.00 % off.")
    empty = cost_certificate(0.0, 1.0, 9, passes=1)
    assert empty.coreset_error == np.inf and str(empty).endswith("the coreset says 1.")


@pytest.mark.parametrize(
    "fields", [{"quantity": "cost"}, {"quantity": "excess_loss", "coreset_error": 0.1}, {"quantity": "loss"}]
)
def test_a_certificate_with_fields_of_another_quantity_is_refused_when_loaded(fields) -> None:
    with pytest.raises(FileFormatError):
        checked(Certificate(kind="exact", value=1.0, n_rows=3, passes=1, sentence="", **fields))


def test_in_short() -> None:
    estimate = excess_certificate(100.0, 0.01, (0.0, 0.05), 20.0, 500, confidence=0.95, passes=1)
    assert estimate.in_short == (
        "The solution is at most 0.05 % worse than the best possible one for all rows, with 95% confidence."
    )
    assert exact_excess_certificate(100.0, 1.0, 2.0, 500, passes=1).in_short == (
        "The solution is 1 % worse than the best possible one for all rows."
    )
    tiny = bound_certificate(100.0, 1e-9, 500, passes=1)
    assert (
        tiny.in_short
        == "The solution is less than 0.0001 % worse than the best possible one for all rows: this is proved."
    )
    assert "is not known" in bound_certificate(100.0, 90.0, 500, passes=1).in_short
    assert cost_certificate(100.0, 97.0, 1500, passes=1).in_short == (
        "The rows kept stand for all 1,500: what the solution costs on these, they tell to within 3 %."
    )
    assert cost_certificate(100.0, 100.0, 1500, passes=1).in_short.endswith("they tell exactly.")
    assert cost_certificate(0.0, 1.0, 1500, passes=1).in_short == "The cost was computed on all 1,500 rows."


def test_an_excess_is_told_as_a_share_of_the_smallest_loss() -> None:
    bound = bound_certificate(100.0, 40.0, 500, passes=1)  # the smallest loss may be 60
    assert bound.relative_excess == 0.4 and "at most 67 % worse" in bound.in_short and "at most 67 %." in str(bound)
    estimate = excess_certificate(100.0, 20.0, (10.0, 50.0), 90.0, 500, confidence=0.95, passes=1)
    assert "by about 25 % (95%: 11 % to 100 %)." in str(estimate) and "at most 100 % worse" in estimate.in_short
    exact = exact_excess_certificate(100.0, 60.0, 70.0, 500, passes=1)
    assert "is 150 % worse" in exact.in_short and "by 150 %: exactly" in str(exact)


@pytest.mark.parametrize("loss", [0.0, -5.0, 1.0])
@pytest.mark.parametrize("excess", [np.nan, np.inf, 1.0])
def test_an_excess_that_is_not_known_is_never_called_small(loss: float, excess: float) -> None:
    made = (
        bound_certificate(loss, excess, 9, passes=1),
        exact_excess_certificate(loss, excess, excess, 9, passes=1),
        excess_certificate(loss, excess, (excess, excess), excess, 9, confidence=0.95, passes=1),
    )
    assert all("is not known" in certificate.in_short for certificate in made)
    assert not any("by at most 0 %" in str(certificate) for certificate in made)


@pytest.mark.parametrize("on_coreset", [np.nan, np.inf])
def test_a_cost_of_a_coreset_that_is_no_share_is_left_out(on_coreset: float) -> None:
    assert cost_certificate(1.0, on_coreset, 1500, passes=1).in_short == "The cost was computed on all 1,500 rows."


@pytest.mark.parametrize("size", ["auto", 500])
def test_a_loss_that_is_rounding_is_no_excess(size: int | str) -> None:
    """A constant, and a line without noise, are fitted but for rounding."""
    X = np.random.default_rng(0).normal(size=(30_000, 2))
    for y in (np.full(len(X), 7.0), X @ [1.0, 2.0] + 3.0):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model = CoresetRidge(alpha=0.0, coreset_size=size, random_state=0).fit(X, y)
        assert "That is rounding: no fit is better." in str(model.certificate_) and model.certificate_.value == 0.0
        assert model.certificate_.in_short.startswith("The solution is less than 0.0001 % worse")


def test_a_bound_on_some_rows_says_so() -> None:
    X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0.0], [6.0]], 100, axis=0)
    some = ODMClustering(coreset_size=40, random_state=0).fit(X).certificate_
    every = ODMClustering(random_state=0).fit(X).certificate_
    assert f"for the {some.n_rows} rows that labels were searched for" in some.in_short and "all rows" in every.in_short


def test_rows_without_weight_are_no_part_of_a_held_out_score() -> None:
    rows, labels = X[:1000], X[:1000, 0] > 0
    model = CoresetEstimator(LogisticRegression(), coreset_size=100, random_state=0).fit(rows, labels)
    weight = np.repeat([0.0, 1.0], [1940, 60])
    certificate = model.certify(np.vstack([rows, X[1000:]]), X[:, 0] > 0, sample_weight=weight)
    assert certificate.n_rows == 60
