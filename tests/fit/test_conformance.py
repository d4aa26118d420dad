"""The same words mean the same on every learner that learns from a coreset."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import tithe
from tithe.certify import Certificate
from tithe.dictionary import KSVD
from tithe.odm import LinearODMClassifier

RNG = np.random.default_rng(0)
X = RNG.normal(size=(1200, 4))
SCORE = X @ [1.0, -1.0, 0.5, 0.0] + RNG.logistic(size=1200)
TARGETS = {"none": None, "class": SCORE > 0.0, "number": SCORE, "count": RNG.poisson(np.exp(0.3 * SCORE))}
LEARNERS = [
    (tithe.CoresetKMeans(3), "none"),
    (tithe.CoresetKMedians(3), "none"),
    (tithe.CoresetGaussianMixture(2), "none"),
    (tithe.CoresetLogisticRegression(), "class"),
    (tithe.CoresetRidge(), "number"),
    (tithe.CoresetPoissonRegressor(), "count"),
    (tithe.CoresetHuberRegressor(), "number"),
    (tithe.CoresetEstimator(Ridge()), "number"),
    (LinearODMClassifier(lam=1.0), "class"),
    (KSVD(3, n_nonzero_coefs=2), "none"),
]
DEFAULTS = {"construction": "auto", "engine": "auto", "n_jobs": None, "verbose": 0, "random_state": None}
ALL_ROWS_BY_DEFAULT = (LinearODMClassifier, KSVD)  # solvers that are quick on all rows at hand; None says so


@pytest.fixture(params=LEARNERS, ids=lambda pair: type(pair[0]).__name__)
def learner(request):
    model, target = request.param
    return model, TARGETS[target]


def test_parameters_have_one_name_and_one_default(learner) -> None:
    defaults = {name: p.default for name, p in inspect.signature(type(learner[0])).parameters.items()}
    assert {name: defaults[name] for name in DEFAULTS} == DEFAULTS
    assert defaults["coreset_size"] == (None if isinstance(learner[0], ALL_ROWS_BY_DEFAULT) else "auto")
    assert defaults.get("polish", "auto") in ("auto", 0)
    assert set(inspect.signature(learner[0].fit).parameters) >= {"X", "y", "sample_weight", "checkpoint", "progress"}


def test_fitted_attributes_have_one_name(learner) -> None:
    model, y = learner
    model = model.set_params(coreset_size=100, random_state=0).fit(X, y)
    assert len(model.coreset_) <= 100 and len(model.sample_indices_) == len(model.coreset_)
    assert isinstance(model.certify(X, y), Certificate)
    if not isinstance(model, tithe.CoresetEstimator):  # which knows what its estimator is fitted to, not how
        assert isinstance(model.n_iter_, int) and np.isfinite(model.objective_curve_).all()


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True])
def test_threads_are_a_number(learner, n_jobs) -> None:
    model, y = learner
    with pytest.raises(ValueError, match="n_jobs must be"):
        model.set_params(n_jobs=n_jobs).fit(X, y)
    model.set_params(n_jobs=None)


def test_one_thread_and_all_give_the_same(learner) -> None:
    model, y = learner
    one, every = (model.set_params(n_jobs=n, coreset_size=100, random_state=0).fit(X, y).coreset_ for n in (1, -1))
    model.set_params(n_jobs=None)
    np.testing.assert_array_equal(one.weights(), every.weights())


def test_verbose_shows_the_passes(learner, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tithe.core.progress.LINE_SECONDS", 0.0)
    model, y = learner
    model.set_params(verbose=1, coreset_size=100).fit(X, y)
    model.set_params(verbose=0)
    assert "rows" in capsys.readouterr().err
