"""What the fields of a certificate mean, for every learner that gives one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from tithe.certify import Certificate, cost_certificate
from tithe.certify.certificate import bound_certificate, exact_excess_certificate, excess_certificate
from tithe.core.errors import FileFormatError
from tithe.core.loaded import check_loaded
from tithe.learners.cluster import CoresetKMeans
from tithe.learners.dictionary.ksvd import KSVD
from tithe.learners.logistic import CoresetLogisticRegression
from tithe.learners.meta import CoresetEstimator

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
    assert str(cost_certificate(5.0, 4.0, 9, passes=1)).endswith("the coreset says 4, which is -20.00% off.")
    empty = cost_certificate(0.0, 1.0, 9, passes=1)
    assert empty.coreset_error == np.inf and str(empty).endswith("the coreset says 1.")


@pytest.mark.parametrize(
    "fields", [{"quantity": "cost"}, {"quantity": "excess_loss", "coreset_error": 0.1}, {"quantity": "loss"}]
)
def test_a_certificate_with_fields_of_another_quantity_is_refused_when_loaded(fields) -> None:
    with pytest.raises(FileFormatError):
        check_loaded(Certificate(kind="exact", value=1.0, n_rows=3, passes=1, sentence="", **fields))


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
        "The cost was computed on all 1,500 rows. The rows kept alone would put it 3 % too low."
    )
    assert cost_certificate(100.0, 104.0, 1500, passes=1).in_short.endswith("would put it 4 % too high.")
    assert cost_certificate(100.0, 100.0, 1500, passes=1).in_short.endswith("would put it right.")
