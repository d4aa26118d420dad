from __future__ import annotations

import io

import numpy as np
import pytest
from figures import check_figure
from matplotlib import image
from scipy.special import rel_entr
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC, LinearSVC

import tithe
from tithe.odm import LinearODMClassifier, MarginDistribution
from tithe.odm.base import _largest_chance
from tithe.odm.plot import margins, margins_of
from tithe.plot.axes import drawn


def _rows(n_classes: int, n: int = 600):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    scores = X @ rng.normal(size=(3, n_classes)) + 0.3 * rng.gumbel(size=(n, n_classes))
    names = np.array([f"class {c}" for c in range(n_classes)])
    return X, names[scores.argmax(axis=1)], rng.integers(1, 4, n).astype(np.float64)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_margins_are_positive_exactly_where_the_prediction_is_right(n_classes: int) -> None:
    X, y, weight = _rows(n_classes)
    for model in (LinearODMClassifier().fit(X, y), LinearSVC().fit(X, y)):
        result = margins_of(model, X, y, weight)
        np.testing.assert_array_equal(result.values > 0.0, model.predict(X) == y)
        assert result.wrong == pytest.approx(np.average(model.predict(X) != y, weights=weight))
        assert np.average(result.values, weights=weight) == pytest.approx(1.0)
        twice = np.repeat(np.arange(len(y)), weight.astype(int))
        assert margins_of(model, X[twice], y[twice]).spread == pytest.approx(result.spread)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_statistics_of_margins_are_those_of_repeated_rows(n_classes: int) -> None:
    """By brute force: a row of weight 3 is three rows, and every statistic is one of the sorted list."""
    X, y, weight = _rows(n_classes)
    model = LinearODMClassifier().fit(X, y)
    repeated = np.sort(np.repeat(model.margins(X, y), weight.astype(int)))
    n, mean = len(repeated), repeated.mean()
    ks = np.array([1, 7, n // 3, n - 1, n])
    result = model.margin_distribution(X, y, weight, levels=[0.0, *(ks / n)])
    assert result.mean == pytest.approx(mean) and result.variance == pytest.approx(repeated.var())
    below = repeated[repeated < mean]
    assert result.semi_variance == pytest.approx(np.square(below - mean).sum() / n)
    upper = np.square(repeated[repeated > mean] - mean).sum() / n
    assert result.semi_variance + upper == pytest.approx(result.variance)
    assert result.quantiles == (repeated[0], *repeated[ks - 1])  # the k-th smallest margin


def test_rows_without_weight_are_no_quantiles_and_bad_levels_are_refused() -> None:
    result = MarginDistribution.of(np.array([-5.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.0]), [0.0, 0.5, 1.0])
    assert result.quantiles == (1.0, 1.0, 2.0) and result.semi_variance == 0.125
    with pytest.raises(ValueError, match="levels must lie between 0 and 1"):
        MarginDistribution.of(np.ones(3), None, [0.5, 1.5])
    X, y, weight = _rows(2)
    with pytest.raises(ValueError, match="sample_weight has shape"):
        LinearODMClassifier().fit(X, y).margin_distribution(X, y, weight[:5])


def test_margins_vary_less_than_those_of_a_support_vector_machine() -> None:
    X, y, _ = _rows(2)
    ours, theirs = (margins_of(model.fit(X, y), X, y) for model in (LinearODMClassifier(1000.0, 1.0, 0.2), LinearSVC()))
    assert ours.spread < theirs.spread


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_figure_is_a_picture(n_classes: int) -> None:
    X, y, weight = _rows(n_classes)
    models = {"ODM, $x$": LinearODMClassifier().fit(X, y), "SVM": SVC().fit(X, y)}
    picture = image.imread(io.BytesIO(drawn(margins, models, X, y, weight)))
    assert picture.shape[0] > 300 and picture.shape[1] > 600 and picture.std() > 0.05


def test_margins_that_are_all_alike_or_all_wrong() -> None:
    class Constant:
        classes_ = np.array([0, 1])

        def decision_function(self, X):
            return np.ones(len(X))

    X, y = np.zeros((20, 1)), np.zeros(20, int)
    result = margins_of(Constant(), X, y)
    assert result.wrong == 1.0 and result.spread == np.inf and result.mean == -1.0
    assert drawn(margins, {"constant": Constant()}, X, y).startswith(b"\x89PNG")


class _Machine:
    classes_ = np.array([0, 1])
    coef_, intercept_ = np.array([[1.0, 0.0]]), np.zeros(1)

    def decision_function(self, X):
        return X[:, 0]


def test_figures_of_any_classifier() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = (X[:, 0] > 0).astype(int)
    check_figure(tithe.plot.margins, {"a": _Machine(), "$b$": _Machine()}, X, y)
    check_figure(tithe.plot.two_boundaries, {"a": _Machine(), "b": _Machine()}, X[:, :2], y)
    with pytest.raises(ValueError, match="not a class"):
        tithe.plot.margins({"a": _Machine()}, X, np.where(X[:, 0] > 0, 1.0, 0.5))
    backwards = tithe.plot.margins({"a": _Machine()}, X, (X[:, 0] < 0).astype(int))
    assert "where that is positive" in backwards.get_xlabel()
    assert "LinearODMClassifier" in tithe.odm.LinearODMClassifier()._repr_html_()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_models_with_probabilities_only_have_margins(n_classes: int) -> None:
    X, y, _ = _rows(n_classes)
    model = RandomForestClassifier(n_estimators=9, random_state=0).fit(X, y)
    assert not hasattr(model, "decision_function")
    values = margins_of(model, X, y).values
    chance = np.sort(model.predict_proba(X), axis=1)
    right = model.predict(X) == y
    np.testing.assert_array_equal(values[right] >= 0.0, True)
    assert values[right].max() == pytest.approx(
        (chance[right, -1] - chance[right, -2]).max() / margins_of(model, X, y).mean
    )
    check_figure(margins, {"forest": model}, X, y)


def test_the_bound_of_the_risk_holds_and_falls_with_margins_and_rows() -> None:
    """Votes of fixed signs: the risk is known, and no training set may have a bound below it."""
    rng = np.random.default_rng(0)
    n_votes, n = 5, 4000
    bounds = []
    for noise in (0.0, 0.05):  # the chance that all votes are wrong at once
        for _ in range(20):
            wrong = (rng.random((n, n_votes)) < 0.02) | (rng.random(n) < noise)[:, None]
            margins = np.where(wrong, -1.0, 1.0).mean(axis=1)
            found = MarginDistribution.of(margins, None, levels=np.linspace(0, 1, 201)).risk_bound(
                n, n_votes=2 * n_votes
            )
            assert noise <= found
            bounds.append(found)
    assert max(bounds[:20]) < min(bounds[20:]) < 0.6
    full = MarginDistribution.of(np.ones(1000), None)
    fewer, more = full.risk_bound(1000, n_votes=4), full.risk_bound(100_000, n_votes=4)
    assert more < 0.1 * fewer < 0.1
    assert full.risk_bound(1000, n_votes=4, largest=4.0) > fewer
    assert MarginDistribution.of(-np.ones(10), None).risk_bound(10, n_votes=4) == 1.0
    with pytest.raises(ValueError, match="no vote is above"):
        full.risk_bound(1000, n_votes=4, largest=0.5)
    seen, p = 0.1, float(_largest_chance(np.array(0.1), np.array(0.05)))
    assert rel_entr(seen, p) + rel_entr(1 - seen, 1 - p) == pytest.approx(0.05) and p > seen
