"""Standard errors of coefficients: closed forms, statsmodels, weights, sources, coverage, reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from leaf_source import LeafSource
from running import PLAIN, run
from scipy import sparse
from scipy.special import expit, softmax

from tithe import (
    CoresetHuberRegressor,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
    load_model,
    save_model,
)
from tithe.core.linear_algebra import MAX_COORDINATES

N, D = 1200, 3
SHARP: dict[str, Any] = {"tol": 1e-14, "random_state": 0}


def drawn(seed: int = 0) -> tuple[Any, Any, Any]:
    """Rows of columns with other scales and places, their scores, and whole weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * [1.0, 5.0, 0.1] + [0.0, 100.0, 3.0]
    return X, (X - X.mean(axis=0)) @ [0.5, -0.1, 4.0], rng.integers(1, 4, N).astype(float)


def targets(kind: str, score: Any, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    if kind == "two":
        return (score + rng.logistic(size=len(score)) > 0).astype(int)
    if kind == "three":
        return np.argmax(np.column_stack([score, -score, 0 * score]) + rng.gumbel(size=(len(score), 3)), axis=1)
    return rng.poisson(np.exp(score)) if kind == "counts" else score + rng.standard_t(4, len(score))


def sandwich(bread: Any, middle: Any) -> Any:
    inverse = np.linalg.inv(bread)
    return np.sqrt(np.diag(inverse @ middle @ inverse))


MODELS = {
    "two": lambda: CoresetLogisticRegression(C=np.inf, **SHARP),
    "three": lambda: CoresetLogisticRegression(C=np.inf, **SHARP),
    "counts": lambda: CoresetPoissonRegressor(alpha=0.0, **SHARP),
    "numbers": lambda: CoresetRidge(alpha=0.0, **SHARP),
    "outliers": lambda: CoresetHuberRegressor(alpha=0.0, **SHARP),
}


def test_logistic_errors_are_the_closed_form_with_and_without_a_penalty() -> None:
    X, score, weight = drawn()
    y, Z = targets("two", score), np.column_stack([X, np.ones(N)])
    for C in (np.inf, 0.1):
        model = CoresetLogisticRegression(C=C, **SHARP).fit(X, y, weight)
        found = model.infer(X, y, weight)
        chance = expit(Z @ found.estimate[0])
        H = Z.T @ ((weight * chance * (1 - chance))[:, None] * Z)
        J = Z.T @ ((weight * (chance - y) ** 2)[:, None] * Z)
        A = H + np.diag([1 / C] * D + [0.0])
        np.testing.assert_allclose(found.standard_error[0], sandwich(A, H), rtol=1e-7)
        np.testing.assert_allclose(found.robust_error[0], sandwich(A, J), rtol=1e-7)
        np.testing.assert_allclose(found.z()[0], found.estimate[0] / sandwich(A, H), rtol=1e-7)
        assert (found.shrinkage == 0.0).all() == np.isinf(C)
        assert ("The penalty shrinks" in found.about()["meaning"]) == np.isfinite(C)
    without = CoresetLogisticRegression(C=np.inf, **SHARP).fit(X, y, weight).infer(X, y, weight)
    mild = CoresetLogisticRegression(C=1e3, **SHARP).fit(X, y, weight).infer(X, y, weight)
    np.testing.assert_allclose(mild.estimate - mild.shrinkage, without.estimate, rtol=1e-3)


def test_errors_of_many_classes_are_the_closed_form_of_differences_to_one_class() -> None:
    X, score, _ = drawn()
    y, Z = targets("three", score), np.column_stack([X, np.ones(N)])
    found = MODELS["three"]().fit(X, y).infer(X, y)
    np.testing.assert_allclose(found.estimate.sum(axis=0), 0.0, atol=1e-9)
    chance, truth = softmax(Z @ found.estimate.T, axis=1)[:, 1:], np.equal.outer(y, [1, 2])
    bend = np.einsum("ia,ab->iab", chance, np.eye(2)) - np.einsum("ia,ib->iab", chance, chance)
    H = np.einsum("iab,ij,ik->ajbk", bend, Z, Z).reshape(2 * (D + 1), -1)
    S = np.einsum("ia,ij->iaj", chance - truth, Z).reshape(N, -1)
    against = found.against(0)
    np.testing.assert_allclose(against.standard_error.ravel(), sandwich(H, H), rtol=1e-6)
    np.testing.assert_allclose(against.robust_error.ravel(), sandwich(H, S.T @ S), rtol=1e-6)
    with pytest.raises(ValueError, match="one of several"):
        found.against(3)


def test_huber_errors_are_the_closed_forms() -> None:
    X, score, _ = drawn()
    y, Z = targets("numbers", score), np.column_stack([X, np.ones(N)])
    model = MODELS["outliers"]().fit(X, y)
    found, s = model.infer(X, y), model.scale_
    t = (y - Z @ found.estimate[0]) / s
    inside, clipped = np.abs(t) <= 1.35, np.clip(t, -1.35, 1.35)
    mean = inside.mean()
    factor = s**2 * (clipped**2).sum() / (N - D - 1) / mean**2
    factor *= (1 + (D + 1) / N * inside.var() / mean**2) ** 2
    np.testing.assert_allclose(found.standard_error[0], np.sqrt(factor * np.diag(np.linalg.inv(Z.T @ Z))), rtol=1e-9)
    mixed = Z.T @ (inside * t)
    last = np.append(mixed, (inside * t**2).sum())
    A = np.vstack([np.column_stack([Z.T @ (inside[:, None] * Z), mixed]), last]) * 2 / s
    S = np.column_stack([-2 * clipped[:, None] * Z, 1 - clipped**2])
    np.testing.assert_allclose(found.robust_error[0], sandwich(A, S.T @ S)[:-1], rtol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_whole_weights_are_duplicated_rows_and_a_source_is_its_rows(kind: str) -> None:
    X, score, weight = drawn()
    y = targets(kind if kind != "outliers" else "numbers", score)
    model = MODELS[kind]().fit(X, y, weight)
    found, often = model.infer(X, y, weight), np.repeat(np.arange(N), weight.astype(int))
    same = model.infer(X[often], y[often])
    leaves = model.infer(LeafSource.cut(X, y, weight, at=[333, 666, 700]))
    for other in (same, leaves):
        np.testing.assert_allclose(other.standard_error, found.standard_error, rtol=1e-7)
        np.testing.assert_allclose(other.robust_error, found.robust_error, rtol=1e-7)
        np.testing.assert_allclose(other.interval(), found.interval(), rtol=1e-7)
    assert (same.n_rows, leaves.n_rows, found.passes) == (len(often), N, 1)
    rows = model.infer(X, y, weight, counts=False)
    assert (rows.robust_error > found.robust_error).all()  # fewer observations


def test_sparse_rows_and_a_fit_that_stopped_early_have_the_same_errors() -> None:
    X, score, _ = drawn()
    X, y = np.where(np.quantile(X, 0.6, axis=0) < X, X, 0.0), targets("two", score)
    exact = MODELS["two"]().fit(X, y).infer(X, y)
    rough = CoresetLogisticRegression(C=np.inf, coreset_size=100, calibrate=False, polish=0, tol=1e-2, random_state=0)
    found = rough.fit(sparse.csr_matrix(X), y).infer(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(found.standard_error, exact.standard_error, rtol=1e-2)
    np.testing.assert_allclose(found.estimate, exact.estimate, atol=0.02 * exact.standard_error.max())
    assert found.distance > 0.1
    assert found.passes > 1
    assert "a smaller tol" in found.about()["meaning"]


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    truth, held, robustly = np.array([1.0, -0.5]), [], []
    for _ in range(150):
        X = rng.normal(size=(200, 2))
        y = X @ truth + (0.2 + X[:, 0] ** 2) * rng.normal(size=200)  # more noise far out: the model is wrong
        found = CoresetRidge(alpha=0.0).fit(X, y).infer(X, y)
        for robust, results in ((False, held), (True, robustly)):
            low, high = found.interval(robust=robust)[0, 0]
            results.append(low <= truth[0] <= high)
    assert np.mean(held) < 0.82
    assert 0.89 <= np.mean(robustly) <= 0.99


def test_what_the_columns_do_not_determine_has_no_error() -> None:
    X, score, _ = drawn()
    y = targets("two", score)
    wide = np.column_stack([X, 3.0 * X[:, 0], np.full(N, 7.0)])
    found, plain = MODELS["two"]().fit(wide, y).infer(wide, y), MODELS["two"]().fit(X, y).infer(X, y)
    # nothing tells the intercept from the constant column either
    assert np.isnan(found.standard_error[0]).tolist() == [True, False, False, True, True, True]
    np.testing.assert_allclose(found.standard_error[0, 1:3], plain.standard_error[0, 1:3], rtol=1e-6)
    assert "not determined" in found.about()["meaning"]
    model = CoresetLogisticRegression(**SHARP).fit(wide, y)
    assert np.isfinite(model.infer(wide, y).standard_error).all()  # the penalty determines them


def test_errors_are_refused_where_there_are_none() -> None:
    X, score, _ = drawn()
    many = np.random.default_rng(0).normal(size=(50, MAX_COORDINATES))
    model = CoresetRidge(random_state=0).fit(many, many[:, 0])
    with pytest.raises(ValueError, match="Leave columns out"):
        model.infer(many, many[:, 0])
    both = CoresetRidge().fit(X, np.column_stack([score, score]))
    with pytest.raises(ValueError, match="one output"):
        both.infer(X, score)
    with pytest.raises(ValueError, match="level"):
        CoresetRidge().fit(X, score + X[:, 0] ** 2).infer(X, score + X[:, 0] ** 2).interval(95)


def test_a_model_file_keeps_them_and_a_new_fit_forgets_them(tmp_path: Path) -> None:
    X, score, _ = drawn()
    y = targets("three", score)
    model = MODELS["three"]().fit(X, y)
    found = model.infer(X, y)
    save_model(model, tmp_path / "model.tithe")
    again = load_model(tmp_path / "model.tithe")
    np.testing.assert_array_equal(again.inference_.robust_covariance, found.robust_covariance)
    first = again.summary()["coefficients"][0]
    assert set(first["standard_error"]) == {"0", "1", "2"}
    assert "inference_" not in vars(model.fit(X, y))["_fitted_values"]


def test_the_command_writes_them_to_the_page_and_the_results(tmp_path: Path, capsys: Any) -> None:
    X, score, _ = drawn()
    y = targets("two", score)
    lines = [f"{a},{b},{c},{'yes' if t else 'no'}" for (a, b, c), t in zip(X, y, strict=True)]
    (tmp_path / "rows.csv").write_text("a,b,c,y\n" + "\n".join(lines) + "\n")
    out = tmp_path / "out"
    fit = ("fit", "logistic", tmp_path / "rows.csv", "--target", "y", "-C", 1e9, *PLAIN)
    assert run(*fit, "--holdout", 0, "--errors", "-o", out) == 0
    assert "standard error" in capsys.readouterr().out
    results = json.loads((out / "results.json").read_text())
    exact = MODELS["two"]().fit(X, y).infer(X, y)
    for row in results["coefficients"]:
        at = "abc".index(row["column"])
        assert row["standard_error"] == pytest.approx(exact.standard_error[0, at], rel=1e-3)
        assert row["low"] < row["coefficient"] < row["high"]
    assert "95 % interval" in (out / "report.html").read_text()
    assert run("fit", "logistic", "-", "--target", "y", "--errors", "-o", out) == 2
    assert "--errors reads all rows again" in capsys.readouterr().err
    for learner in ("kmeans", "lightgbm"):
        assert run("fit", learner, "--help") == 0
        assert "--errors" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["two", "three", "counts", "exposures", "numbers", "weighted"])
def test_errors_are_those_of_statsmodels(kind: str) -> None:
    sm = pytest.importorskip("statsmodels.api")
    X, score, weight = drawn()
    Z, y = (
        np.column_stack([X, np.ones(N)]),
        targets({"exposures": "counts", "weighted": "numbers"}.get(kind, kind), score),
    )
    how: dict[str, Any] = {"tol": 1e-14}
    if kind == "two":
        found, theirs = MODELS[kind]().fit(X, y).infer(X, y), sm.GLM(y, Z, family=sm.families.Binomial())
    elif kind == "three":
        found, theirs = MODELS[kind]().fit(X, y).infer(X, y).against(0), sm.MNLogit(y, Z)
        how = {"disp": 0, "method": "newton", "maxiter": 100}
    elif kind == "counts":
        found, theirs = MODELS[kind]().fit(X, y).infer(X, y), sm.GLM(y, Z, family=sm.families.Poisson())
    elif kind == "exposures":
        model = MODELS["counts"]().fit(X, y, exposure=weight)
        found = model.infer(X, y / weight, weight, counts=False)
        theirs = sm.GLM(y, Z, family=sm.families.Poisson(), exposure=weight)
    elif kind == "numbers":
        found, theirs, how = MODELS[kind]().fit(X, y).infer(X, y), sm.OLS(y, Z), {}
    else:
        found = MODELS["numbers"]().fit(X, y, weight).infer(X, y, weight, counts=False)
        theirs, how = sm.WLS(y, Z, weights=weight), {}
    plain, robust = theirs.fit(**how), theirs.fit(**how, cov_type="HC0")
    np.testing.assert_allclose(found.standard_error.T.squeeze(), np.squeeze(plain.bse), rtol=1e-6)
    np.testing.assert_allclose(found.robust_error.T.squeeze(), np.squeeze(robust.bse), rtol=1e-6)
    np.testing.assert_allclose(found.z().T.squeeze(), np.squeeze(plain.tvalues), rtol=1e-5)
    np.testing.assert_allclose(found.p_value().T.squeeze(), np.squeeze(plain.pvalues), rtol=1e-4, atol=1e-12)
    if kind != "three":
        np.testing.assert_allclose(found.interval()[0], plain.conf_int(), rtol=1e-5, atol=1e-9)
