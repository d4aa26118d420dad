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
    assert cost_certificate(5.0, 5.0, 9, passes=1).sentence == "The solution costs exactly 5 on all 9 rows."
    assert cost_certificate(5.0, 4.0, 9, passes=1).sentence.endswith("the coreset says 4, which is -20.00 % off.")
    empty = cost_certificate(0.0, 1.0, 9, passes=1)
    assert empty.coreset_error == np.inf and empty.sentence.endswith("the coreset says 1.")


@pytest.mark.parametrize(
    "fields", [{"quantity": "cost"}, {"quantity": "excess_loss", "coreset_error": 0.1}, {"quantity": "loss"}]
)
def test_a_certificate_with_fields_of_another_quantity_is_refused_when_loaded(fields) -> None:
    with pytest.raises(FileFormatError):
        checked(Certificate(kind="exact", value=1.0, n_rows=3, passes=1, sentence="", **fields))


BEST = "the best fit of the same model to all rows, on the same features"


def test_in_short() -> None:
    estimate = excess_certificate(100.0, 0.01, (0.0, 0.05), 20.0, 500, confidence=0.95, passes=1)
    assert estimate.in_short == f"The solution is at most 0.05 % worse than {BEST}, with 95 % confidence."
    exact = exact_excess_certificate(100.0, 1.0, 2.0, 500, passes=1)
    assert exact.in_short == f"The solution is 1 % worse than {BEST}."
    assert "is not known" in bound_certificate(100.0, 90.0, 500, passes=1).in_short


def test_noise_has_no_digits() -> None:
    tiny = bound_certificate(100.0, 1e-9, 500, passes=1)
    assert tiny.in_short == f"There is no measurable difference to {BEST}: this is proved."
    assert "at most less than" not in str(tiny) and "by less than 0.0001 %" in str(tiny)
    exact = exact_excess_certificate(1234.5, 1e-26, 1e-20, 1_500_000, passes=1)
    assert exact.sentence == (
        "The loss, penalty included, is 1,234.5 on all 1,500,000 rows. That of a fit on all rows is the same, up to "
        "rounding."
    )
    noise = excess_certificate(298690.64, 1e-4, (0.0, 2e-4), 10.0, 581_012, confidence=0.95, passes=1)
    assert "298,690.64 on all 581,012 rows" in noise.sentence
    assert "by less than 0.0001 % (95 % confidence), provably by at most 0.0033 %." in noise.sentence
    assert not any("e-" in str(certificate) for certificate in (tiny, exact, noise))


def test_clusters_have_one_sentence_with_the_share_that_is_explained() -> None:
    certificate = cost_certificate(1_234_567.0, 1_200_000.0, 1500, passes=1, spread=5e6)
    said = (
        "The centres explain about 75.3 % of the spread of the rows: they cost exactly 1,234,567 on all 1,500 rows; "
        "the coreset says 1,200,000, which is -2.80 % off."
    )
    assert certificate.in_short == certificate.sentence == said
    assert str(certificate).count("1,234,567") == 1 and "is not said" in str(certificate)
    model = CoresetKMeans(4, coreset_size=200, random_state=0).fit(X)
    spread = float(np.square(X - X.mean(axis=0)).sum())
    expected = f"about {100.0 * (1.0 - model.inertia_ / spread):.1f} %"
    assert expected in model.certificate_.sentence and expected in model.certify(X).sentence
    nothing = CoresetKMeans(2, random_state=0).fit(np.repeat(X[:2], 50, axis=0))
    assert "explain about 100.0 %" in str(nothing.certificate_)


def test_what_a_certificate_does_not_say_is_part_of_it() -> None:
    model = CoresetRidge(random_state=0).fit(X, X[:, 0])
    certificate = model.certificate_
    assert str(certificate) == f"{certificate.in_short} {certificate.at_length}" in certificate._repr_html_()
    assert "how well new rows are predicted" in certificate.at_length


def test_an_excess_is_told_as_a_share_of_the_smallest_loss() -> None:
    bound = bound_certificate(100.0, 40.0, 500, passes=1)  # the smallest loss may be 60
    assert bound.relative_excess == 0.4 and "at most 67 % worse" in bound.in_short and "at most 67 %." in str(bound)
    estimate = excess_certificate(100.0, 20.0, (10.0, 50.0), 90.0, 500, confidence=0.95, passes=1)
    assert "by about 25 % (95 %: 11 % to 100 %)." in str(estimate) and "at most 100 % worse" in estimate.in_short
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


@pytest.mark.parametrize("size", ["auto", 500])
def test_a_loss_that_is_rounding_is_no_excess(size: int | str) -> None:
    """A constant, and a line without noise, are fitted but for rounding."""
    X = np.random.default_rng(0).normal(size=(30_000, 2))
    for y in (np.full(len(X), 7.0), X @ [1.0, 2.0] + 3.0):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model = CoresetRidge(alpha=0.0, coreset_size=size, random_state=0).fit(X, y)
        assert "That is rounding: no fit is better." in str(model.certificate_) and model.certificate_.value == 0.0
        assert model.certificate_.in_short.startswith("There is no measurable difference")


def test_a_bound_on_some_rows_says_so() -> None:
    X = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0.0], [6.0]], 100, axis=0)
    some = ODMClustering(coreset_size=40, random_state=0).fit(X).certificate_
    every = ODMClustering(random_state=0).fit(X).certificate_
    assert f"to the {some.n_rows} rows that labels were searched for" in some.in_short and "all rows" in every.in_short


def test_rows_without_weight_are_no_part_of_a_held_out_score() -> None:
    rows, labels = X[:1000], X[:1000, 0] > 0
    model = CoresetEstimator(LogisticRegression(), coreset_size=100, random_state=0).fit(rows, labels)
    weight = np.repeat([0.0, 1.0], [1940, 60])
    certificate = model.certify(np.vstack([rows, X[1000:]]), X[:, 0] > 0, sample_weight=weight)
    assert certificate.n_rows == 60
