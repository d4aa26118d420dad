"""Regressions on a coreset: equal to scikit-learn's, wherever rows come from."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor, PoissonRegressor, Ridge

from tithe import (
    Checkpoint,
    CoresetHuberRegressor,
    CoresetPoissonRegressor,
    CoresetRidge,
    CoresetSearchCV,
    load_model,
    open_dataset,
    save_model,
)

N, D = 8000, 4
KINDS = ["ridge", "poisson", "huber"]


def rows(kind: str, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) + np.array([0.0, 1.0, -2.0, 5.0])
    score = (X - X.mean(axis=0)) @ [0.5, -0.3, 0.2, 0.1]
    if kind == "poisson":
        return X, rng.poisson(np.exp(score)).astype(float), rng.integers(0, 4, N).astype(float)
    y = score + 0.5 * rng.normal(size=N)
    if kind == "huber":
        y[::20] += 30.0 * rng.normal(size=N // 20)
    return X, y, rng.integers(0, 4, N).astype(float)


def ours(kind: str, **options):
    made = {
        "ridge": lambda o: CoresetRidge(alpha=3.0, **o),
        "poisson": lambda o: CoresetPoissonRegressor(alpha=0.1, **o),
        "huber": lambda o: CoresetHuberRegressor(alpha=0.5, **o),
    }
    return made[kind]({"coreset_size": 500, "random_state": 0, **options})


def theirs(kind: str, **options):
    return {
        "ridge": lambda: Ridge(alpha=3.0, tol=1e-12, **options),
        "poisson": lambda: PoissonRegressor(alpha=0.1, solver="newton-cholesky", tol=1e-12, **options),
        "huber": lambda: HuberRegressor(alpha=0.5, tol=1e-10, max_iter=10_000, **options),
    }[kind]()


def assert_same(model, other, atol: float) -> None:
    np.testing.assert_allclose(model.coef_, other.coef_, atol=atol)
    assert model.intercept_ == pytest.approx(other.intercept_, abs=10 * atol)
    if isinstance(model, CoresetHuberRegressor):
        assert model.scale_ == pytest.approx(other.scale_, abs=10 * atol)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("size", [N, 500])
@pytest.mark.parametrize("kind", KINDS)
def test_all_rows_or_polish_equal_scikit_learn(kind, size, intercept) -> None:
    X, y, u = rows(kind)
    X = X - X.mean(axis=0)
    other = theirs(kind, fit_intercept=intercept).fit(X, y, u)
    model = ours(kind, coreset_size=size, tol=1e-13, fit_intercept=intercept).fit(X, y, u)
    assert_same(model, other, 1e-8 if kind != "huber" else 1e-4)  # scikit-learn's L-BFGS goes no further there
    np.testing.assert_allclose(model.predict(X[:50]), other.predict(X[:50]), rtol=1e-3, atol=1e-3)
    assert model.score(X, y, u) == pytest.approx(other.score(X, y, u), abs=1e-4)
    assert model.coreset_.is_whole == (size == N)


@pytest.mark.parametrize("kind", KINDS)
def test_a_coreset_comes_close_and_its_certificate_says_so(kind) -> None:
    X, y, u = rows(kind)
    best = ours(kind, coreset_size=N, tol=1e-10).fit(X, y, u)
    model = ours(kind, polish=0).fit(X, y, u)
    excess = model.objective_curve_[-1] - best.objective_curve_[-1]
    assert 0.0 < excess < 0.01 * best.objective_curve_[-1]
    certificate = model.certificate_
    assert certificate.kind == ("exact" if kind == "ridge" else "estimate")
    if kind == "ridge":
        assert certificate.value == pytest.approx(excess, rel=1e-6)
    else:
        assert certificate.interval[0] <= excess <= certificate.interval[1]
    again = model.certify(X, y, u)
    assert again.value == pytest.approx(certificate.value)
    assert again.kind == certificate.kind


@pytest.mark.parametrize("kind", KINDS)
def test_integer_weights_are_duplicated_rows(kind) -> None:
    X, y, u = (part[:2000] for part in rows(kind))
    times = u.astype(int)
    weighted = ours(kind, coreset_size=N).fit(X, y, u)
    doubled = ours(kind, coreset_size=N).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert_same(weighted, doubled, 1e-7)


@pytest.mark.bits
@pytest.mark.parametrize("kind", KINDS)
def test_a_source_gives_the_same_as_arrays(kind, tmp_path, small_leaves) -> None:
    X, y, _ = rows(kind)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=1000)
    source = open_dataset(tmp_path / "rows.parquet", target="y", scale="none")
    model = ours(kind, tol=1e-12).fit(source)
    assert_same(model, ours(kind, tol=1e-12).fit(X, y), 1e-6)
    serial = ours(kind, tol=1e-12, engine="serial").fit(source)
    assert np.array_equal(model.coef_, serial.coef_)
    assert model.certify(source).n_rows == N


@pytest.mark.bits
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_a_stream_make_no_difference(kind) -> None:
    X, y, u = rows(kind)
    one, many = ours(kind), ours(kind)
    one.partial_fit(X, y, u)
    for at in range(0, N, 1500):
        many.partial_fit(X[at : at + 1500], y[at : at + 1500], u[at : at + 1500])
    assert np.array_equal(one.solve().coef_, many.solve().coef_)
    assert one.certificate_ is None
    full = ours(kind, coreset_size=N).fit(X, y, u)
    np.testing.assert_allclose(one.coef_, full.coef_, atol=0.1)
    assert one.certify(X, y, u).relative_excess < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_saved_and_loaded(kind, tmp_path) -> None:
    X, y, u = rows(kind)
    model = ours(kind).fit(X, y, u)
    save_model(model, tmp_path / "model.tithe", rows=True)
    loaded = load_model(tmp_path / "model.tithe")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.certificate_ == model.certificate_
    assert loaded.certify(X, y, u) == model.certify(X, y, u)


@pytest.mark.parametrize("kind", ["ridge", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS if k != "ridge")])
def test_sparse_rows_frames_and_single_precision(kind) -> None:
    X, y, u = rows(kind)
    X = np.where(np.random.default_rng(1).random(X.shape) < 0.5, X, 0.0)
    dense = ours(kind, tol=1e-12).fit(X, y, u)
    assert_same(ours(kind, tol=1e-12).fit(sparse.csr_matrix(X), y, u), dense, 1e-6)
    frame = ours(kind, tol=1e-12).fit(pd.DataFrame(X, columns=list("abcd")), pd.Series(y), u)
    assert np.array_equal(frame.coef_, dense.coef_)
    assert frame.feature_names_in_.tolist() == list("abcd")
    single = ours(kind).fit(X.astype(np.float32), y, u)
    assert single.coef_.dtype == single.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.coef_, dense.coef_, atol=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_start_takes_fewer_passes(kind) -> None:
    X, y, u = rows(kind)
    model = ours(kind, coreset_size=N, warm_start=True).fit(X, y, u)
    first = model.n_passes_
    model.fit(X, y, u)
    assert model.n_passes_ <= first
    assert_same(model, ours(kind, coreset_size=N).fit(X, y, u), 1e-6)


def test_exposures_are_rates_with_weights() -> None:
    X, y, u = rows("poisson")
    years = np.random.default_rng(1).uniform(0.2, 3.0, N)
    model = ours("poisson", coreset_size=N, tol=1e-12).fit(X, y, u, exposure=years)
    assert_same(model, theirs("poisson").fit(X, y / years, u * years), 1e-8)
    streamed = ours("poisson", coreset_size=N, tol=1e-12).partial_fit(X, y, u, exposure=years)
    assert_same(streamed.solve(), model, 1e-8)
    for wrong, message in ((np.zeros(N), "positive"), (years[:5], "exposure|rows|weight")):
        with pytest.raises(ValueError, match=message):
            ours("poisson").fit(X, y, exposure=wrong)


def test_targets_are_checked(tmp_path) -> None:
    X, y, _ = rows("poisson")
    with pytest.raises(ValueError, match="at least 0"):
        ours("poisson").fit(X, y - 1.0)
    with pytest.raises(ValueError, match="All targets are 0"):
        ours("poisson").fit(X, 0.0 * y)
    with pytest.raises(ValueError, match="must hold numbers"):
        ours("ridge").fit(X, np.full(N, "a"))
    with pytest.raises(ValueError, match="Input y contains NaN"):
        ours("ridge").fit(X, np.where(y > 0, y, np.nan))
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y - 1.0)
    frame.to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match="at least 0"):
        ours("poisson").fit(open_dataset(tmp_path / "rows.parquet", target="y", scale="none"))


def test_a_search_finds_the_penalty_that_generalises() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 30))
    y = 0.1 * X[:, 0] + rng.normal(size=3000)
    search = CoresetSearchCV(CoresetRidge(), {"alpha": [1e-3, 3e3]}, coreset_size=300, random_state=0).fit(X, y)
    assert search.best_params_ == {"alpha": 3e3}
    assert search.predict(X[:3]).shape == (3,)


def test_a_fit_that_does_not_converge_says_so() -> None:
    X, y, u = rows("poisson")
    with pytest.warns(UserWarning, match="max_iter"):
        ours("poisson", coreset_size=N, max_iter=1, tol=1e-12).fit(100.0 * X, y, u)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours("poisson", coreset_size=N).fit(X, y, u)


@pytest.mark.parametrize("polish", [0, 1])
def test_a_number_of_rounds_that_misses_tol_says_so(polish) -> None:
    X, y, u = rows("poisson")
    with pytest.warns(ConvergenceWarning, match=r'tol=1e-15, after \d+ steps. Set polish="auto"') as caught:
        model = ours("poisson", polish=polish, tol=1e-15).fit(X, y, u)
    assert {warning.filename for warning in caught} == {__file__}
    assert model.certificate_.relative_excess > 1e-15
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours("poisson", polish=polish, tol=0.1).fit(X, y, u)


@pytest.mark.parametrize("unit", [1e-11, 1e-6, 1e12])
def test_the_unit_of_the_target_does_not_change_a_huber_fit(unit: float) -> None:
    """The penalty is taken along, as it counts by the unit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 1))
    y = 2.0 * X[:, 0] + 0.1 * rng.normal(size=1500)
    y[X[:, 0] > 1.2] -= 50.0
    plain = CoresetHuberRegressor(alpha=1e-4, random_state=0).fit(X, y)
    scaled = CoresetHuberRegressor(alpha=1e-4 / unit, random_state=0).fit(X, unit * y)
    np.testing.assert_allclose(scaled.coef_, unit * plain.coef_, rtol=1e-3)


def test_a_huber_fit_on_hardly_more_rows_than_coefficients_still_reaches_the_minimum() -> None:
    """Its scale is nearly 0 on the rows kept, where hardly another row has a curvature."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10))
    y = X @ rng.normal(size=10) + 2.0 * rng.normal(size=200)
    few = CoresetHuberRegressor(alpha=0.01, coreset_size=20, random_state=0).fit(X, y)
    assert few.score(X, y) == pytest.approx(CoresetHuberRegressor(alpha=0.01).fit(X, y).score(X, y), abs=1e-3)


# -- several outputs ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_several_outputs_equal_ridge(options, dtype) -> None:
    """Coefficients, predictions and scores of three targets, each with its own penalty."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(2.0, 1.0, size=(3000, 4)).astype(dtype), rng.exponential(size=3000)
    Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(3000, 3))
    alpha = np.array([0.1, 10.0, 1000.0])
    model = CoresetRidge(alpha, **options).fit(X, Y, weight)
    other = Ridge(alpha, **options).fit(X.astype(np.float64), Y, weight)
    tol = 1e-7 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(model.coef_, other.coef_, atol=tol)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=tol)
    assert model.coef_.dtype == dtype and model.predict(X).shape == (3000, 3)
    assert model.score(X, Y, weight) == pytest.approx(other.score(X, Y, weight), abs=tol)
    residuals = Y - other.predict(X)
    loss = weight @ (residuals**2).sum(axis=1) + (alpha * (other.coef_**2).sum(axis=1)).sum()
    assert model.objective_curve_[-1] == pytest.approx(loss, rel=1e-6)
    for certificate in (model.certificate_, model.certify(X, Y, weight)):
        assert certificate.kind == "exact" and certificate.value < 1e-9 * loss
    worse = CoresetRidge(alpha, **options).fit(X[:300], Y[:300], weight[:300])
    excess = worse.certify(X, Y, weight).value
    parts = weight @ (Y - worse.predict(X)) ** 2 + alpha * (worse.coef_.astype(float) ** 2).sum(axis=1)
    assert excess == pytest.approx(parts.sum() - loss, rel=1e-3)
    assert set(model.summary()["coefficients"][0]["coefficients"]) == {"0", "1", "2"}


def test_several_outputs_of_many_columns_are_certified(tmp_path) -> None:
    """A curvature of 1,200 columns is not kept: the fit goes on until the bound is below the tolerance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1200))
    Y = X[:, :2] + rng.normal(size=(2000, 2))
    model = CoresetRidge(5.0).fit(X, Y)
    assert model.certificate_.bound < 1e-4 * model.objective_curve_[-1]
    np.testing.assert_allclose(model.coef_, Ridge(5.0).fit(X, Y).coef_, atol=1e-3)
    save_model(model, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").predict(X), model.predict(X))


def test_wrong_penalties_of_several_outputs() -> None:
    X, Y = np.zeros((5, 2)), np.zeros((5, 3))
    with pytest.raises(ValueError, match="2 penalties for 3 outputs"):
        CoresetRidge([1.0, 2.0]).fit(X, Y)
    with pytest.raises(ValueError, match="alpha must be a number of at least 0"):
        CoresetRidge([1.0, 2.0]).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="Leave checkpoint out"):
        CoresetRidge().fit(X, Y, checkpoint=Checkpoint("folder"))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CoresetRidge().fit(X, Y[:4])
