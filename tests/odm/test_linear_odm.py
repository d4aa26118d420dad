"""LinearODMClassifier: what it equals, what it refuses, and what a coreset costs it."""

from __future__ import annotations

import warnings
from dataclasses import replace

import click
import numpy as np
import pytest
from leaf_source import LeafSource
from margin_data import margin_rows
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.svm import LinearSVC, LinearSVR

from tithe import Block, load_model, save_model
from tithe.cli.fit import fit
from tithe.objectives import MarginObjective
from tithe.odm import CoresetSVRG, LinearODMClassifier
from tithe.odm.solvers.linear_solvers import SOLVERS

SHARP = {"tol": 1e-13, "random_state": 0}


def params(model) -> np.ndarray:
    return np.column_stack([model.coef_, model.intercept_])


def inverse_penalty(lam, theta, weight) -> float:
    return lam / (2.0 * weight.sum() * (1.0 - theta) ** 2)


@pytest.fixture(scope="module")
def many() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return margin_rows(30_000, 5, seed=7)


# -- what it equals ----------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("scaling", [None, 1.0, 3.0])
def test_without_an_upper_side_it_is_a_squared_hinge(theta, scaling) -> None:
    X, y, weight = margin_rows()
    intercept = {"fit_intercept": False} if scaling is None else {"intercept_scaling": scaling}
    model = LinearODMClassifier(50.0, 0.0, theta, **SHARP, **intercept).fit(X, y, weight)
    peer = LinearSVC(C=inverse_penalty(50.0, theta, weight), tol=1e-12, max_iter=10**6, dual=False, **intercept)
    peer.fit(X, y, weight)
    np.testing.assert_allclose(model.coef_, (1.0 - theta) * peer.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, (1.0 - theta) * np.atleast_1d(peer.intercept_), atol=1e-6)


@pytest.mark.parametrize("theta", [0.0, 0.1, 0.5])
def test_with_both_sides_alike_it_is_a_regression_on_the_signs(theta) -> None:
    X, y, weight = margin_rows()
    model = LinearODMClassifier(50.0, 1.0, theta, fit_intercept=False, **SHARP).fit(X, y, weight)
    C = inverse_penalty(50.0, theta, weight)
    peer = LinearSVR(
        loss="squared_epsilon_insensitive",
        epsilon=theta,
        C=C,
        fit_intercept=False,
        dual=False,
        tol=1e-12,
        max_iter=10**6,
    ).fit(X, y, weight)
    np.testing.assert_allclose(model.coef_[0], peer.coef_, atol=1e-6)


@pytest.mark.parametrize("intercept", [{"fit_intercept": False}, {"intercept_scaling": np.inf}])
def test_without_a_band_it_is_ridge_regression(intercept) -> None:
    X, y, weight = margin_rows()
    model = LinearODMClassifier(30.0, 1.0, 0.0, **SHARP, **intercept).fit(X, y, weight)
    peer = Ridge(alpha=weight.sum() / 30.0, fit_intercept="intercept_scaling" in intercept).fit(X, y, weight)
    np.testing.assert_allclose(model.coef_[0], peer.coef_, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, peer.intercept_, atol=1e-10)
    np.testing.assert_allclose(model.decision_function(X), peer.predict(X), atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_weights_are_copies(solver) -> None:
    X, y, _ = margin_rows(200)
    weight = np.random.default_rng(1).integers(0, 4, 200).astype(float)
    options = {"solver": solver, "tol": 1e-9, "max_iter": 3000, "random_state": 0}
    model = LinearODMClassifier(20.0, **options).fit(X, y, weight)
    copies = LinearODMClassifier(20.0, **options).fit(
        np.repeat(X, weight.astype(int), axis=0), np.repeat(y, weight.astype(int))
    )
    np.testing.assert_allclose(params(model), params(copies), atol=2e-4)
    np.testing.assert_allclose(
        params(LinearODMClassifier(20.0, **options).fit(X, y, 7.0 * weight)), params(model), atol=1e-9
    )
    assert not np.isin(model.support_, np.flatnonzero(weight == 0)).any()
    np.testing.assert_allclose(model.dual_coef_ @ X[model.support_], model.coef_, atol=1e-3)


def test_order_scale_of_weights_and_kind_of_rows_make_no_difference() -> None:
    X, y, weight = margin_rows()
    model = LinearODMClassifier(**SHARP).fit(X, y, weight)
    order = np.random.default_rng(0).permutation(len(X))
    for other in (
        LinearODMClassifier(**SHARP).fit(X[order], y[order], weight[order]),
        LinearODMClassifier(**SHARP).fit(X, y, 1e-3 * weight),
        LinearODMClassifier(**SHARP).fit(sparse.csr_matrix(X), y, weight),
        LinearODMClassifier(**SHARP, coreset_size=1000).fit(X, y, weight),
    ):
        np.testing.assert_allclose(params(other), params(model), atol=1e-6)
    single = LinearODMClassifier(**SHARP).fit(X.astype(np.float32), y, weight)
    np.testing.assert_allclose(params(single), params(model), atol=1e-5)
    assert single.coef_.dtype == np.float64


def test_classes_are_what_they_are_called() -> None:
    X, y, _ = margin_rows()
    model = LinearODMClassifier(**SHARP).fit(X, y)
    named = LinearODMClassifier(**SHARP).fit(X, np.where(y > 0, "a", "b"))  # the other way round
    assert named.classes_.tolist() == ["a", "b"]
    np.testing.assert_allclose(params(named), -params(model), atol=1e-7)
    assert (named.predict(X) == np.where(model.predict(X) > 0, "a", "b")).all()
    balanced = LinearODMClassifier(class_weight="balanced", **SHARP).fit(X, y)
    share = np.where(y > 0, (y > 0).mean(), (y < 0).mean())
    np.testing.assert_allclose(params(balanced), params(LinearODMClassifier(**SHARP).fit(X, y, 1.0 / share)), atol=1e-7)


def test_dual_variables_and_margins_belong_together() -> None:
    X, y, weight = margin_rows()
    for solver in ("newton", "dcd"):
        model = LinearODMClassifier(100.0, 0.5, 0.2, solver=solver, tol=1e-10, max_iter=3000).fit(X, y, weight)
        margins = y * model.decision_function(X)
        outside = np.flatnonzero((margins < 0.8) | (margins > 1.2))
        assert set(outside) ^ set(model.support_.tolist()) == set()
        cost = 100.0 * weight / weight.sum() / 0.64
        below, above = np.maximum(0.8 - margins, 0), np.maximum(margins - 1.2, 0)
        np.testing.assert_allclose(model.dual_coef_[0], (y * cost * (below - 0.5 * above))[outside], atol=1e-4)
        assert model.gap_ <= 1e-10 * model.objective_curve_[-1]
        assert model.certificate_.kind == "bound" and model.certificate_.value == model.gap_


def test_three_classes_on_all_rows() -> None:
    rng = np.random.default_rng(2)
    centres = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    y = rng.integers(3, size=600)
    X = centres[y] + rng.normal(size=(600, 2))
    model = LinearODMClassifier(random_state=0).fit(X, np.array(["u", "v", "w"])[y])
    assert model.coef_.shape == (3, 2) and model.decision_function(X).shape == (600, 3)
    assert model.score(X, np.array(["u", "v", "w"])[y]) > 0.9


def test_anchors_from_a_cover() -> None:
    X, y, weight = margin_rows()
    exact = LinearODMClassifier(5.0, **SHARP).fit(X, y, weight)
    apart = LinearODMClassifier(5.0, solver=CoresetSVRG(radius=0.0), tol=1e-10, random_state=0).fit(X, y, weight)
    np.testing.assert_allclose(params(apart), params(exact), atol=1e-4)
    for option in ({"radius": -1.0}, {"step_rows": "some"}, {"finish": -1}):
        with pytest.raises(ValueError, match=next(iter(option))):
            CoresetSVRG(**option)
    with pytest.raises(ValueError, match="intercept_scaling"):
        LinearODMClassifier(solver=CoresetSVRG(), intercept_scaling=np.inf).fit(X, y)


@pytest.mark.parametrize("step_rows", ["cover", "all"])
def test_a_cover_says_what_it_leaves_out_and_finish_goes_on_to_the_tolerance(step_rows: str, tmp_path) -> None:
    X, y, weight = margin_rows(400, 2)
    weight[:3] = 0.0
    exact = LinearODMClassifier(5.0, **SHARP).fit(X, y, weight)
    solver = CoresetSVRG(radius=0.5, step_rows=step_rows)
    options = {"tol": 1e-6, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match=r"solved on the cover: raise finish=0"):
        near = LinearODMClassifier(5.0, solver=solver, **options).fit(X, y, weight)
    cover, distance = near.cover_, np.linalg.norm(params(near) - params(exact))
    assert near.gap_ > 1e-6 * near.objective_curve_[-1]
    assert distance <= cover.gradient_norm * (1 + 1e-9) and cover.gradient_norm**2 >= 2.0 * near.gap_ * (1 - 1e-9)
    z = np.where(y == near.classes_[1], 1.0, -1.0)[:, None] * np.column_stack([X, np.ones(len(X))])
    reach = cdist(z[3:], z[cover.centres]).min(axis=1).max()
    assert reach == pytest.approx(cover.radius) and cover.radius <= 0.5 and cover.centres.min() >= 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = LinearODMClassifier(5.0, solver=replace(solver, finish="auto"), **options).fit(X, y, weight)
    assert whole.gap_ <= 1e-6 * whole.objective_curve_[-1] < near.gap_
    assert whole.cover_.sizes[-1] == len(X) - 3 and whole.cover_.n_gradients > cover.n_gradients
    save_model(near, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").cover_.centres, cover.centres)


# -- coresets, sources, streams ----------------------------------------------------------------


def test_a_coreset_is_polished_and_certified(many) -> None:
    X, y, weight = many
    whole = LinearODMClassifier(**SHARP).fit(X, y, weight)
    assert not hasattr(whole, "coreset_")
    model = LinearODMClassifier(coreset_size=1500, random_state=0).fit(X, y, weight)
    assert len(model.coreset_) <= 1500
    excess = model.objective_curve_[-1] / whole.objective_curve_[-1] - 1.0
    assert 0.0 <= excess + 1e-12 <= 2e-4
    assert model.gap_ >= model.objective_curve_[-1] - whole.objective_curve_[-1]
    assert all(b <= a for a, b in zip(model.objective_curve_, model.objective_curve_[1:], strict=False))
    again = model.certify(X, y, weight)
    assert again.bound == pytest.approx(model.gap_, rel=1e-6)
    proved = whole.certify(X, y, weight)
    assert proved.kind == "bound" and proved.value <= 1e-10 * whole.objective_curve_[-1]


def test_intervals_of_the_defaults_hold_the_truth() -> None:
    """The curvature jumps at the ends of the band: with a rule for smooth losses, 69 % held."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(3, size=(6000, 8))
    y = (X @ rng.normal(size=8) + 3.0 * rng.logistic(size=6000) > 4.0).astype(np.int32)
    least = LinearODMClassifier(**SHARP).fit(X, y).objective_curve_[-1]
    held = []
    for seed in range(10):
        model = LinearODMClassifier(coreset_size=100, polish=1, tol=0.1, random_state=seed).fit(X, y)
        low, high = model.certificate_.interval
        held.append(low <= model.objective_curve_[-1] - least <= high)
    assert sum(held) >= 9


def test_sources_and_pieces(many) -> None:
    X, y, _ = many
    source = LeafSource([Block(X=X[a : a + 6000], y=y[a : a + 6000]) for a in range(0, 30_000, 6000)])
    whole = LinearODMClassifier(**SHARP).fit(X, y)
    model = LinearODMClassifier(coreset_size=2000, random_state=0).fit(source)
    assert model.certificate_.relative_excess <= 1e-4
    np.testing.assert_allclose(params(model), params(whole), atol=0.05)
    streamed = LinearODMClassifier(coreset_size=2000, random_state=0)
    for a in range(0, 30_000, 5000):
        streamed.partial_fit(X[a : a + 5000], y[a : a + 5000], classes=[-1.0, 1.0])
    assert streamed.solve().certificate_ is None and streamed.gap_ == np.inf
    assert streamed.certify(X, y).relative_excess < 1e-2
    few = LinearODMClassifier(**SHARP).partial_fit(X[:3000], y[:3000], classes=[-1.0, 1.0]).solve()
    np.testing.assert_allclose(params(few), params(LinearODMClassifier(**SHARP).fit(X[:3000], y[:3000])), atol=1e-7)
    assert few.certificate_ is None and few.gap_ < 1e-9


def test_models_can_be_kept(tmp_path) -> None:
    X, y, _ = margin_rows()
    model = LinearODMClassifier(random_state=0).fit(X, y)
    save_model(model, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").decision_function(X), model.decision_function(X))


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"lam": 0.0}, "lam"),
        ({"lam": -1.0}, "lam"),
        ({"lam": np.inf}, "lam"),
        ({"mu": -0.1}, "mu"),
        ({"mu": 1.1}, "mu"),
        ({"theta": -0.1}, "theta"),
        ({"theta": 1.0}, "theta"),
        ({"intercept_scaling": 0.0}, "intercept_scaling"),
        ({"intercept_scaling": np.inf, "solver": "dcd"}, "intercept_scaling=inf"),
        ({"solver": "simplex"}, "solver"),
        ({"nonconvex": "neither"}, "nonconvex"),
        ({"tol": 0.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"fit_intercept": 3}, "fit_intercept"),
        ({"coreset_size": 1}, "coreset_size"),
        ({"class_weight": {7: 1.0}}, "class_weight"),
    ],
)
def test_options_out_of_range(option, message) -> None:
    X, y, _ = margin_rows()
    with pytest.raises(ValueError, match=message):
        LinearODMClassifier(**option).fit(X, y)


def test_one_class_is_refused() -> None:
    X, _, _ = margin_rows()
    with pytest.raises(ValueError, match="only one class"):
        LinearODMClassifier().fit(X, np.ones(len(X)))


def test_rows_that_contradict_one_another() -> None:
    X, y, _ = margin_rows(100)
    for solver in SOLVERS:
        model = LinearODMClassifier(solver=solver, tol=1e-8, max_iter=3000).fit(np.tile(X, (2, 1)), np.append(y, -y))
        np.testing.assert_allclose(params(model), 0.0, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_scales(scale) -> None:
    X, y, _ = margin_rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LinearODMClassifier().fit(X * scale, y)
    if scale > 1:
        assert model.score(X * scale, y) == pytest.approx(LinearODMClassifier(1e6).fit(X, y).score(X, y), abs=0.01)
    with pytest.raises(ValueError, match="Rescale"):
        LinearODMClassifier().fit(X * 1e200, y)


def test_too_few_rounds_are_said() -> None:
    X, y, _ = margin_rows()
    for solver in ("dcd", "svrg", "saga"):
        with pytest.warns(ConvergenceWarning, match="max_iter=2"):
            model = LinearODMClassifier(solver=solver, max_iter=2, tol=1e-12, random_state=0).fit(X, y)
        assert model.gap_ > 1e-12 * model.objective_curve_[-1]
        assert clone(model).solver == solver


@pytest.mark.parametrize("kind", ["skewed", "unbalanced"])
def test_the_defaults_stay_near_linear_svc(kind: str) -> None:
    """A margin far above the band is no mistake: where these count much, the line is turned towards them."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 12))
    X = np.exp(X) if kind == "skewed" else X
    scores = X @ rng.normal(size=12) + 0.5 * rng.normal(size=4000)
    y = scores > (np.quantile(scores, 0.95) if kind == "unbalanced" else 0.0)
    models = LinearSVC(), LinearODMClassifier(), LinearODMClassifier(1000.0, 0.5, 0.2)
    svc, default, narrow = (model.fit(X[:2000], y[:2000]).score(X[2000:], y[2000:]) for model in models)
    assert default > svc - 0.004 > narrow


def test_the_objective_and_the_command_line_have_the_same_defaults() -> None:
    command = fit.get_command(click.Context(fit), "odm")
    estimator, command = LinearODMClassifier().get_params(), {option.name: option.default for option in command.params}
    for name in ("lam", "mu", "theta"):
        assert estimator[name] == getattr(MarginObjective(), name) == command[name]


def test_a_construction_for_other_losses_is_refused() -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    with pytest.raises(ValueError, match="construction 'cablr' needs an objective"):
        LinearODMClassifier(coreset_size=100, construction="cablr").fit(X, X[:, 0] > 0.0)


def test_regressed_sensitivities_of_margins_are_kept(tmp_path) -> None:
    X, y, _ = margin_rows(3000, 4)
    names = np.where(y > 0, "up", "down")
    model = LinearODMClassifier(coreset_size=200, construction="rdsf", polish=1, tol=1.0, random_state=0).fit(X, names)
    score = model.sensitivity_model_.score(X[:10], names[:10])
    assert model.coreset_.provenance["r2"] == model.sensitivity_model_.r2_ and (score > 0.0).all()
    save_model(model, tmp_path / "model.tithe")
    loaded = load_model(tmp_path / "model.tithe").sensitivity_model_
    np.testing.assert_array_equal(loaded.score(X[:10], names[:10]), score)
    np.testing.assert_array_equal(loaded.exact(X[:10], names[:10]), model.sensitivity_model_.exact(X[:10], names[:10]))


@pytest.mark.parametrize("weight", [np.nan, -1.0, 0.0])
def test_margins_of_bad_weights_are_refused(weight: float) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = LinearODMClassifier().fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match=r"sample_weight|weights are zero"):
        model.margin_distribution(X, X[:, 0] > 0, np.full(30, weight))
