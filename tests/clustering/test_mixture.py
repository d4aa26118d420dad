"""Gaussian mixtures on a coreset, compared with scikit-learn's, with closed forms and with themselves."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from leaf_source import LeafSource
from scipy import sparse
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture

from tithe import Block, CoresetGaussianMixture, build_coreset, distortion, load_model, propose_size, save_model
from tithe.clustering.mixture_kernels import HARD, SOFT, mixture
from tithe.clustering.mixture_objective import Components
from tithe.core.errors import FileFormatError
from tithe.core.parallel import limit_threads
from tithe.objectives import GaussianMixtureObjective
from tithe.testing import objective_checks

KINDS = ("full", "tied", "diag", "spherical")
EACH = pytest.mark.parametrize("kind", KINDS)
RNG = np.random.default_rng(0)


def mixed(n: int = 400, d: int = 3, seed: int = 0) -> np.ndarray:
    """Rows of three components of unlike size, shape and place."""
    rng = np.random.default_rng(seed)
    parts = [
        rng.normal(size=(share, d)) @ rng.normal(size=(d, d)) + 6.0 * rng.normal(size=d)
        for share in (n // 2, n // 3, n - n // 2 - n // 3)
    ]
    return np.ascontiguousarray(rng.permutation(np.concatenate(parts)))


LARGE = mixed(40_000)


def start_of(kind: str, X: np.ndarray, k: int = 3, seed: int = 1) -> np.ndarray:
    objective = GaussianMixtureObjective(n_components=k, covariance_type=kind, init_params="random")
    return objective.starts(Block(X=X), np.random.default_rng(seed))[0]


def params_of(model: GaussianMixture, kind: str) -> np.ndarray:
    """scikit-learn's mixture as our objective has it."""
    k, d = model.means_.shape
    covariances = {
        "full": lambda c: c,
        "tied": lambda c: np.repeat(c[None], k, axis=0),
        "diag": lambda c: c,
        "spherical": lambda c: np.repeat(c[:, None], d, axis=1),
    }[kind](model.covariances_)
    return Components(weights=model.weights_, means=model.means_, covariances=covariances).packed()


def in_shape(covariances: np.ndarray, kind: str) -> np.ndarray:
    return {"full": covariances, "tied": covariances[0], "diag": covariances, "spherical": covariances[:, 0]}[kind]


@EACH
@pytest.mark.parametrize("check", range(len(list(objective_checks(GaussianMixtureObjective(n_components=3))))))
def test_the_contract_of_objectives(kind: str, check: int) -> None:
    list(objective_checks(GaussianMixtureObjective(n_components=3, covariance_type=kind, n_init=2)))[check][1]()


# -- EM ----------------------------------------------------------------------------------------


@EACH
def test_a_step_of_em_is_that_of_scikit_learn(kind: str) -> None:
    X = mixed()
    objective, params = GaussianMixtureObjective(n_components=3, covariance_type=kind), start_of(kind, X)
    parts = Components.of(params, 3)
    inverse = np.linalg.inv(parts.covariances) if kind in ("full", "tied") else 1.0 / parts.covariances
    init = {"weights_init": parts.weights, "means_init": parts.means, "precisions_init": in_shape(inverse, kind)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = GaussianMixture(3, covariance_type=kind, max_iter=1, **init).fit(X)
    densities, _, sums, _ = objective.evaluate(Block(X=X), params, mode=SOFT)
    ours = Components.of(objective.maximised(params, sums, 3), 3)
    np.testing.assert_allclose(ours.weights, theirs.weights_, rtol=1e-8)
    np.testing.assert_allclose(ours.means, theirs.means_, rtol=1e-8)
    np.testing.assert_allclose(in_shape(ours.covariances, kind), theirs.covariances_, rtol=1e-8, atol=1e-10)
    assert densities.mean() == pytest.approx(theirs.lower_bound_, rel=1e-10)


@EACH
def test_rows_and_criteria_are_those_of_scikit_learn_at_the_same_parameters(kind: str) -> None:
    X = mixed()
    ours = CoresetGaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
    theirs = GaussianMixture(3, covariance_type=kind)
    for name in ("weights_", "means_", "covariances_", "precisions_cholesky_"):
        setattr(theirs, name, getattr(ours, name))
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-10)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-8, atol=1e-15)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-12)
    assert ours.bic(X) == pytest.approx(theirs.bic(X), rel=1e-12)
    assert ours.aic(X) == pytest.approx(theirs.aic(X), rel=1e-12)
    full = GaussianMixture(3, covariance_type=kind, n_init=5, random_state=0).fit(X)
    assert ours.lower_bound_ > full.score(X) - 0.01
    inverse = np.linalg.inv(ours.covariances_) if kind in ("full", "tied") else 1.0 / ours.covariances_
    np.testing.assert_allclose(ours.precisions_, inverse, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("spread", [1e-6, 1.0, 30.0, 1e3])
def test_shares_and_densities_are_exact(spread: float) -> None:
    """The kernel has an exponential of its own."""
    rng = np.random.default_rng(0)
    X, means, heights = spread * rng.normal(size=(300, 2)), spread * rng.normal(size=(7, 2)), rng.normal(size=7)
    densities, labels, _, chances = mixture(X, heights, means, np.ones((7, 1, 2)), with_chances=True)
    scores = heights - 0.5 * ((X[:, None] - means) ** 2).sum(axis=2)
    np.testing.assert_allclose(densities, logsumexp(scores, axis=1), rtol=1e-14, atol=1e-14)
    np.testing.assert_array_equal(labels, scores.argmax(axis=1))
    error = 1e-14 * (1.0 + np.abs(scores).max())  # of the scores themselves
    np.testing.assert_allclose(chances, softmax(scores, axis=1), rtol=error, atol=1e-43)


@EACH
def test_the_best_search_ends_at_a_tenth_of_tol(kind: str) -> None:
    objective, block = GaussianMixtureObjective(n_components=4, covariance_type=kind, n_init=3), Block(X=LARGE[:3000])
    found = objective.race(block, objective.starts(block, np.random.default_rng(0)))
    assert found.converged and found.n_iter < objective.max_iter
    assert found.value == pytest.approx(-objective.cost(block, found.params).mean(), rel=1e-12)
    _, promised = objective.step(objective.evaluate_for_step(block, found.params), found.params)
    assert promised < 0.1 * objective.tol * len(block)


@EACH
def test_the_likelihood_never_falls_on_the_coreset(kind: str) -> None:
    coreset = build_coreset(
        LARGE,
        objective=GaussianMixtureObjective(n_components=3, covariance_type=kind),
        coreset_size=500,
        random_state=0,
    )
    objective, params = (
        GaussianMixtureObjective(n_components=3, covariance_type=kind, reg_covar=0.0),
        start_of(kind, LARGE),
    )
    losses = []
    for _ in range(25):
        evaluation = objective.evaluate_for_step(coreset, params)
        losses.append(evaluation.total)
        params, promised = objective.step(evaluation, params)
        assert promised >= -1e-9 * abs(losses[-1])
        assert objective.evaluate_for_step(coreset, params, last=True).total <= losses[-1] - promised + 1e-9 * abs(
            losses[0]
        )
    assert losses[-1] < losses[0] - 1.0 and np.all(np.diff(losses) <= 1e-9 * abs(losses[0]))


@EACH
def test_weights_equal_repeated_rows(kind: str) -> None:
    X = mixed(120)
    times = np.random.default_rng(1).integers(0, 4, len(X))
    twice, options = np.repeat(X, times, axis=0), {"covariance_type": kind, "random_state": 0}
    a = CoresetGaussianMixture(3, **options).fit(X, sample_weight=times)
    b = CoresetGaussianMixture(3, **options).fit(twice)
    for name in ("weights_", "means_", "covariances_", "component_weights_"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-7, atol=1e-9)
    assert a.lower_bound_ == pytest.approx(b.lower_bound_, rel=1e-10)
    assert a.bic(X, sample_weight=times) == pytest.approx(a.bic(twice), rel=1e-10)
    assert a.aic(X, sample_weight=times) == pytest.approx(a.aic(twice), rel=1e-10)
    assert a.score(X, sample_weight=times) == pytest.approx(a.score(twice), rel=1e-10)
    assert a.certify(X, sample_weight=times).value == pytest.approx(b.certify(twice).value, rel=1e-9)


@EACH
def test_one_component_is_the_weighted_mean_and_covariance(kind: str) -> None:
    X, weight = mixed(200), RNG.exponential(size=200)
    model = CoresetGaussianMixture(1, covariance_type=kind, reg_covar=0.0).fit(X, sample_weight=weight)
    mean, full = np.average(X, axis=0, weights=weight), np.cov(X.T, aweights=weight, ddof=0)
    exact = {
        "full": full[None],
        "tied": full,
        "diag": np.diag(full)[None],
        "spherical": np.diag(full).mean(keepdims=True),
    }
    np.testing.assert_allclose(model.means_[0], mean, rtol=1e-10)
    np.testing.assert_allclose(model.covariances_, exact[kind], rtol=1e-9)
    assert model.weights_.tolist() == [1.0] and model.converged_


def test_a_mixture_far_from_the_origin_is_the_same_mixture() -> None:
    X = mixed(300)
    near = CoresetGaussianMixture(3, random_state=0).fit(X)
    far = CoresetGaussianMixture(3, random_state=0).fit(X + 1e6)
    assert far.lower_bound_ == pytest.approx(near.lower_bound_, abs=1e-4)


# -- a coreset, polish and the certificate -------------------------------------------------------


@EACH
def test_a_fit_from_a_coreset_is_nearly_that_of_all_rows(kind: str) -> None:
    model = CoresetGaussianMixture(3, covariance_type=kind, coreset_size=1000, random_state=0).fit(LARGE)
    all_rows = CoresetGaussianMixture(3, covariance_type=kind, coreset_size=40_000, random_state=0).fit(LARGE)
    assert len(model.coreset_) <= 1000 and all_rows.coreset_.is_whole
    assert model.lower_bound_ > all_rows.lower_bound_ - 0.005
    np.testing.assert_array_equal(LARGE[model.sample_indices_], model.coreset_.X)


def test_the_draw_and_calibration_beat_a_uniform_draw() -> None:
    """A small component far away, of which few rows are drawn uniformly: medians over seeds, not polished."""
    rng = np.random.default_rng(5)
    X = np.concatenate([LARGE, rng.normal(60.0, 0.1, size=(60, 3)), rng.normal(scale=30.0, size=(20, 3))])

    fits = [CoresetGaussianMixture(5, coreset_size=600, polish=0, random_state=seed) for seed in range(5)]
    ours = [model.fit(X).score(X) for model in fits]
    uniform = [model.fit(rng.choice(X, 600, replace=False)).score(X) for model in fits]
    assert np.median(ours) > np.median(uniform) + 0.05


def test_calibration_reproduces_the_totals_of_the_pilots_clusters() -> None:
    objective = GaussianMixtureObjective(n_components=3)
    coreset = build_coreset(LARGE, objective=objective, coreset_size=2000, random_state=0)
    pilot = coreset.pilot
    exact = objective.evaluate(Block(X=LARGE), pilot, mode=HARD)[2]
    kept = objective.evaluate(Block(X=coreset.X, sample_weight=coreset.weights()), pilot, mode=HARD)[2]
    np.testing.assert_allclose(coreset.totals, exact, rtol=1e-12, atol=1e-9 * np.abs(exact).max())
    np.testing.assert_allclose(kept, exact, rtol=0.01, atol=0.01 * exact[:, 0].max())
    plain = build_coreset(LARGE, objective=objective, coreset_size=2000, random_state=0, calibrate=False)
    drawn = objective.evaluate(Block(X=plain.X, sample_weight=plain.weights()), pilot, mode=HARD)[2]
    assert np.abs(kept - exact).max() < 0.1 * np.abs(drawn - exact).max()


@pytest.mark.parametrize("size", [20, 60, 120, 400])
def test_with_few_rows_fewer_totals_are_reproduced(size: int) -> None:
    X = mixed(5000, d=8)
    objective = GaussianMixtureObjective(n_components=2)
    coreset = build_coreset(X, objective=objective, coreset_size=size, random_state=0)
    columns = objective.moments(coreset, coreset.pilot).values.shape[1]
    assert columns == {20: 2, 60: 2, 120: 10, 400: 46}[size]
    assert coreset.weights().sum() == pytest.approx(5000, rel=0.05)


@EACH
def test_polish_never_lowers_the_likelihood(kind: str) -> None:
    model = CoresetGaussianMixture(3, covariance_type=kind, coreset_size=150, polish=5, random_state=1).fit(LARGE)
    assert np.all(np.diff(model.objective_curve_) < 0.0) and 1 < len(model.objective_curve_) <= 6
    plain = CoresetGaussianMixture(3, covariance_type=kind, coreset_size=150, polish=0, random_state=1).fit(LARGE)
    assert plain.objective_curve_ == pytest.approx(model.objective_curve_[:1])
    assert model.lower_bound_ == -model.objective_curve_[-1] > plain.lower_bound_
    assert model.lower_bounds_ == [-value for value in model.objective_curve_]
    assert model.certificate_.passes == 6 and plain.certificate_.passes == 1


@EACH
def test_the_certificate_is_what_a_direct_computation_gives(kind: str) -> None:
    weight = np.random.default_rng(2).exponential(size=len(LARGE))
    model = CoresetGaussianMixture(3, covariance_type=kind, coreset_size=500, random_state=0)
    model.fit(LARGE, sample_weight=weight)
    k, d = model.means_.shape
    matrices = {
        "full": model.covariances_,
        "tied": [model.covariances_] * k,
        "diag": [np.diag(c) for c in np.atleast_2d(model.covariances_)],
        "spherical": [c * np.eye(d) for c in np.atleast_1d(model.covariances_)],
    }[kind]
    normals = [multivariate_normal(mean, cov) for mean, cov in zip(model.means_, matrices, strict=False)]

    def mean_of(X, w) -> float:
        density = sum(share * normal.pdf(X) for share, normal in zip(model.weights_, normals, strict=True))
        return float(np.average(np.log(density), weights=w))

    certificate = model.certificate_
    assert (certificate.kind, certificate.quantity, certificate.n_rows) == ("exact", "log_likelihood", 40_000)
    assert certificate.value == model.lower_bound_ == pytest.approx(mean_of(LARGE, weight), rel=1e-9)
    on_coreset = mean_of(model.coreset_.X, model.coreset_.weights())
    assert certificate.value + certificate.coreset_error == pytest.approx(on_coreset, rel=1e-9)
    again = model.certify(LARGE[:300], sample_weight=weight[:300])
    assert again.value == pytest.approx(mean_of(LARGE[:300], weight[:300]), rel=1e-9) and again.n_rows == 300
    assert "log-likelihood" in str(certificate) and "log-likelihood" in certificate.in_short


def test_a_density_above_one_is_no_trouble() -> None:
    X = 1e-3 * LARGE
    model = CoresetGaussianMixture(3, coreset_size=500, reg_covar=1e-12, polish="auto", random_state=0).fit(X)
    assert model.lower_bound_ > 5.0  # the loss is negative
    assert np.all(np.diff(model.objective_curve_) < 0.0)
    same = CoresetGaussianMixture(3, coreset_size=500, reg_covar=1e-6, polish="auto", random_state=0).fit(LARGE)
    assert model.lower_bound_ == pytest.approx(same.lower_bound_ + 3 * np.log(1e3), abs=0.02)


def test_what_compares_errors_with_the_cost_refuses_it() -> None:
    objective = GaussianMixtureObjective(n_components=2)
    coreset = build_coreset(LARGE[:3000], objective=objective, coreset_size=100, random_state=0)
    for call in (lambda: distortion(LARGE, coreset, objective), lambda: propose_size(LARGE, objective="gmm", eps=0.1)):
        with pytest.raises(ValueError, match="gmm"):
            call()


# -- sources, streams, engines -------------------------------------------------------------------


@EACH
@pytest.mark.bits
def test_engines_and_threads_are_no_matter(kind: str) -> None:
    weight = np.random.default_rng(2).exponential(size=len(LARGE))
    found = []
    for engine, threads in (("serial", 1), ("serial", 3), ("threads", 1), ("threads", 2)):
        source = LeafSource.cut(LARGE, sample_weight=weight, at=[100, 9000, 9001, 30_000])
        options = {"covariance_type": kind, "coreset_size": 400, "n_init": 2, "polish": 2, "random_state": 3}
        with limit_threads(threads):
            found.append(CoresetGaussianMixture(3, engine=engine, **options).fit(source))
    for model in found[1:]:
        for name in ("weights_", "means_", "covariances_", "objective_curve_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(found[0], name))
    exact = found[0].score(LARGE, sample_weight=weight)
    assert found[0].certificate_.value == pytest.approx(exact, rel=1e-12)


@pytest.mark.bits
def test_threads_are_no_matter_for_an_array() -> None:
    models = [CoresetGaussianMixture(3, coreset_size=400, random_state=3, n_jobs=n).fit(LARGE) for n in (1, 2, 3)]
    for model in models[1:]:
        np.testing.assert_array_equal(model.covariances_, models[0].covariances_)
        assert model.objective_curve_ == models[0].objective_curve_


def test_a_source_gives_what_the_array_gives() -> None:
    few = LARGE[:2000]
    array = CoresetGaussianMixture(3, random_state=0).fit(few)
    source = CoresetGaussianMixture(3, random_state=0).fit(LeafSource.cut(few, at=[]))
    np.testing.assert_array_equal(source.means_, array.means_)
    many = LeafSource.cut(LARGE, at=[10_000, 20_000])
    model = CoresetGaussianMixture(3, coreset_size=1000, random_state=0).fit(many)
    best = CoresetGaussianMixture(3, coreset_size=1000, random_state=0).fit(LARGE).lower_bound_
    assert model.lower_bound_ > best - 0.01
    assert model.bic(many) == pytest.approx(model.bic(LARGE), rel=1e-12)
    assert model.score(many) == pytest.approx(model.score(LARGE), rel=1e-12)


def test_partial_fit_is_the_same_however_rows_are_cut() -> None:
    def streamed(edges) -> CoresetGaussianMixture:
        model = CoresetGaussianMixture(3, coreset_size=500, n_init=2, random_state=0)
        for batch in np.split(LARGE, edges):
            model.partial_fit(batch)
        return model

    a, b = streamed([20_000]).solve(), streamed([7, 30_000, 39_000]).solve()
    np.testing.assert_array_equal(a.covariances_, b.covariances_)
    assert a.certificate_ is None and len(a.coreset_) <= 500
    assert a.score(LARGE) > CoresetGaussianMixture(3, random_state=0).fit(LARGE).lower_bound_ - 0.05
    few = CoresetGaussianMixture(3, random_state=0).partial_fit(LARGE[:300]).partial_fit(LARGE[300:900]).solve()
    np.testing.assert_allclose(few.means_, CoresetGaussianMixture(3, random_state=0).fit(LARGE[:900]).means_)
    with pytest.raises(ValueError, match="polish"):
        CoresetGaussianMixture(2, polish=3).partial_fit(LARGE[:50])


def test_rows_that_come_once_have_no_certificate() -> None:
    source = LeafSource.cut(LARGE, at=[20_000])
    source.replayable = False
    model = CoresetGaussianMixture(3, coreset_size=1000, random_state=0).fit(source)
    assert model.certificate_ is None
    assert model.lower_bound_ == pytest.approx(model.score(LARGE), abs=0.1)


# -- parameters --------------------------------------------------------------------------------


@EACH
def test_a_search_goes_on_from_given_parameters(kind: str) -> None:
    X = mixed()
    first = CoresetGaussianMixture(3, covariance_type=kind, tol=1e-9, max_iter=2000, random_state=0).fit(X)
    given = {"weights_init": first.weights_, "means_init": first.means_, "precisions_init": first.precisions_}
    again = CoresetGaussianMixture(3, covariance_type=kind, **given).fit(X)
    assert again.n_iter_ <= 2 and again.lower_bound_ == pytest.approx(first.lower_bound_, abs=1e-6)
    np.testing.assert_allclose(again.means_, first.means_, atol=1e-3)


@pytest.mark.parametrize("start", ["auto", "kmeans", "k-means++", "random", "random_from_data"])
def test_every_start_leads_to_a_mixture(start: str) -> None:
    model = CoresetGaussianMixture(3, init_params=start, random_state=0, max_iter=500).fit(mixed())
    assert model.converged_ and model.lower_bound_ > -6.5


@pytest.mark.parametrize(
    "options",
    [
        {"n_components": 0},
        {"covariance_type": "round"},
        {"tol": -1.0},
        {"reg_covar": -1.0},
        {"max_iter": 0},
        {"n_init": 0},
        {"init_params": "guess"},
        {"polish": -1},
        {"construction": "bogus"},
        {"weights_init": [1.0]},
        {"weights_init": [-1.0, 2.0]},
        {"means_init": np.zeros((2, 7))},
        {"means_init": np.full((2, 3), np.nan)},
        {"precisions_init": np.zeros((2, 3, 3))},
        {"precisions_init": np.ones((2, 2))},
    ],
    ids=repr,
)
def test_wrong_parameters_are_refused_by_name(options) -> None:
    name = next(iter(options))
    with pytest.raises(ValueError, match=name):
        CoresetGaussianMixture(**{"n_components": 2, **options}).fit(mixed(60))


def test_there_are_at_most_eighteen_parameters_and_they_are_scikit_learns() -> None:
    ours = set(inspect.signature(CoresetGaussianMixture).parameters)
    theirs = set(inspect.signature(GaussianMixture).parameters)
    assert len(ours) <= 18
    assert theirs - ours == {"warm_start", "verbose_interval"}


# -- rows that are hard ------------------------------------------------------------------------


def test_rows_that_cannot_be_fitted_are_refused() -> None:
    with pytest.raises(ValueError, match="Input X contains NaN"):
        CoresetGaussianMixture(2).fit(np.array([[np.nan], [1.0], [2.0]]))
    with pytest.raises(ValueError, match="n_components"):
        CoresetGaussianMixture(3).fit(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="n_components"):
        CoresetGaussianMixture(5, coreset_size=4).fit(LARGE)
    for rows in (sparse.csr_matrix(LARGE[:50]), LeafSource.cut(sparse.csr_matrix(LARGE[:50]), at=[])):
        with pytest.raises(ValueError, match="sparse"):
            CoresetGaussianMixture(2).fit(rows)
    with pytest.raises(ValueError, match="reg_covar"):
        CoresetGaussianMixture(1, reg_covar=0.0).fit(np.column_stack([LARGE[:50], np.ones(50)]))
    with pytest.raises(NotFittedError):
        CoresetGaussianMixture().sample()


@EACH
def test_constant_columns_and_equal_rows(kind: str) -> None:
    X = np.column_stack([mixed(3000), np.full(3000, 7.0)])
    model = CoresetGaussianMixture(3, covariance_type=kind, coreset_size=300, random_state=0).fit(X)
    assert np.isfinite(model.lower_bound_)
    np.testing.assert_allclose(model.means_[:, 3], 7.0)
    same = CoresetGaussianMixture(3, covariance_type=kind, coreset_size=100, random_state=0).fit(np.full((400, 2), 4.0))
    np.testing.assert_allclose(same.means_[same.weights_ > 1e-6], 4.0)
    assert same.lower_bound_ == pytest.approx(-np.log(2 * np.pi * 1e-6), rel=1e-6)
    few = CoresetGaussianMixture(4, covariance_type=kind, random_state=0).fit(np.repeat([[0.0], [1.0]], 100, axis=0))
    assert np.isfinite(few.predict_proba([[0.0], [0.5]])).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_of_a_large_scale(dtype) -> None:
    X = (1e30 * LARGE).astype(dtype)
    model = CoresetGaussianMixture(3, coreset_size=500, random_state=0).fit(X)
    plain = CoresetGaussianMixture(3, coreset_size=500, random_state=0).fit(LARGE)
    assert model.lower_bound_ + 3 * np.log(1e30) == pytest.approx(plain.lower_bound_, abs=0.01)
    np.testing.assert_array_equal(np.sort(model.weights_).round(2), np.sort(plain.weights_).round(2))


def test_columns_that_span_more_than_floats_can_square_are_refused() -> None:
    with pytest.raises(ValueError, match="scale the columns"):
        CoresetGaussianMixture(2, random_state=0).fit(1e200 * mixed(100))


def test_single_precision_gives_the_same() -> None:
    options = {"coreset_size": 500, "random_state": 0}
    single = CoresetGaussianMixture(3, **options).fit(LARGE.astype(np.float32))
    double = CoresetGaussianMixture(3, **options).fit(LARGE.astype(np.float32).astype(np.float64))
    assert single.lower_bound_ == pytest.approx(double.lower_bound_, abs=1e-3)
    assert single.score_samples(LARGE[:5].astype(np.float32)).dtype == np.float64


def test_a_row_too_far_for_any_density_has_none() -> None:
    model = CoresetGaussianMixture(2, random_state=0).fit(mixed())
    assert model.score_samples(np.full((1, 3), 1e200)).tolist() == [-np.inf]
    assert np.isfinite(model.predict_proba(np.full((1, 3), 1e200))).all()


def test_it_says_when_a_search_has_not_converged() -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = CoresetGaussianMixture(3, max_iter=1, random_state=0).fit(mixed())
    assert not model.converged_ and model.n_iter_ == 1


# -- the fitted model --------------------------------------------------------------------------


@EACH
def test_samples_follow_the_mixture(kind: str) -> None:
    model = CoresetGaussianMixture(3, covariance_type=kind, random_state=0).fit(mixed())
    rows, labels = model.sample(60_000)
    assert rows.shape == (60_000, 3) and labels.shape == (60_000,)
    np.testing.assert_array_equal(rows, model.sample(60_000)[0])
    np.testing.assert_allclose(np.bincount(labels) / 60_000, model.weights_, atol=0.01)
    again = CoresetGaussianMixture(3, covariance_type=kind, means_init=model.means_, random_state=0).fit(rows)
    np.testing.assert_allclose(again.means_, model.means_, atol=0.15)
    np.testing.assert_allclose(again.covariances_, model.covariances_, atol=0.5, rtol=0.1)
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(0)


def test_a_frame_keeps_the_names_of_its_columns() -> None:
    frame = pd.DataFrame(LARGE, columns=list("abc"))
    model = CoresetGaussianMixture(3, coreset_size=500, random_state=0).fit(frame)
    array = CoresetGaussianMixture(3, coreset_size=500, random_state=0).fit(LARGE)
    assert list(model.feature_names_in_) == list("abc")
    np.testing.assert_array_equal(model.means_, array.means_)
    fitted = CoresetGaussianMixture(3, coreset_size=500, random_state=0)
    np.testing.assert_array_equal(fitted.fit_predict(frame), model.predict(frame))


@EACH
def test_a_saved_model_is_the_same_model(kind: str, tmp_path) -> None:
    model = CoresetGaussianMixture(3, covariance_type=kind, coreset_size=300, random_state=0).fit(LARGE)
    for rows in (False, True):
        save_model(model, tmp_path / "model.tithe", rows=rows)
        again = load_model(tmp_path / "model.tithe")
        np.testing.assert_array_equal(again.predict_proba(LARGE), model.predict_proba(LARGE))
        assert again.certificate_ == model.certificate_ and again.bic(LARGE) == model.bic(LARGE)
        assert again.summary() == model.summary()


LIES = {
    "weights": lambda model: setattr(model, "weights_", np.array([0.5, 0.6, 0.7])),
    "negative weights": lambda model: setattr(model, "weights_", np.array([-0.5, 0.5, 1.0])),
    "another number of weights": lambda model: setattr(model, "weights_", np.ones(1)),
    "means of other columns": lambda model: setattr(model, "means_", np.zeros((3, 2))),
    "means that are no numbers": lambda model: setattr(model, "means_", np.full((3, 3), np.nan)),
    "diagonals for matrices": lambda model: setattr(model, "covariances_", np.ones((3, 3))),
    "not positive definite": lambda model: setattr(model, "covariances_", -model.covariances_),
    "not symmetric": lambda model: setattr(model, "covariances_", np.tril(model.covariances_ + 1.0)),
    "no covariances": lambda model: delattr(model, "covariances_"),
    "another kind": lambda model: setattr(model, "covariance_type", "diag"),
    "no kind": lambda model: setattr(model, "covariance_type", "round"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_is_refused(lie: str, tmp_path) -> None:
    model = CoresetGaussianMixture(3, coreset_size=100, random_state=0).fit(LARGE[:1000])
    LIES[lie](model)
    save_model(model, tmp_path / "model.tithe")
    with pytest.raises(FileFormatError):
        load_model(tmp_path / "model.tithe")


def test_objectives_are_values() -> None:
    a = GaussianMixtureObjective(n_components=3)
    assert a == replace(a) != replace(a, covariance_type="diag")
    assert [a.n_parameters(4), replace(a, covariance_type="tied").n_parameters(4)] == [2 + 12 + 30, 2 + 12 + 10]
    assert CoresetGaussianMixture(10).planned(10**6, 10)[1] == 10 * (9 + 100 + 10 * 55)
    assert CoresetGaussianMixture(30).planned(10**6, 50)[1] == 20_000
    assert CoresetGaussianMixture(2).planned(10**6, 2)[1] == 5000


def test_the_certificate_tells_the_mixture_beside_one_normal_distribution() -> None:
    X = mixed(1000)
    model = CoresetGaussianMixture(n_components=3, random_state=0).fit(X)  # all rows
    gain = model.lower_bound_ - GaussianMixture(n_components=1).fit(X).score(X)
    for certificate in (model.certificate_, model.certify(X)):
        assert f"about {gain:.3g} more than under a single normal distribution" in certificate.in_short
        assert f"is {np.exp(gain):.2g} times as likely" in certificate.in_short or gain > 4.6
    assert "single" not in str(CoresetGaussianMixture(n_components=1, random_state=0).fit(X).certificate_)
