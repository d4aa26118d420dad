"""ODMClassifier: the kernel machine of two classes, against closed forms, other solvers and itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel
from sklearn.svm import LinearSVC, LinearSVR

from tithe import load_model, save_model
from tithe.core.parallel import limit_threads
from tithe.odm import ODMClassifier
from tithe.odm.solvers import kernel_matrix
from tithe.odm.solvers import two_classes as binary
from tithe.odm.solvers.kernel_matrix import Gram, KernelFunction
from tithe.odm.solvers.two_classes import Dual, solve_two_classes


def blobs(n: int = 80, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, d)) + 0.8 * y[:, None], y


def by_nnls(Q, cost, mu, theta):
    """gamma from the dual in 2n variables that are not negative, as a least squares problem."""
    n = len(cost)
    H = np.block([[Q, -Q], [-Q, Q]]) + np.diag(np.concatenate([1.0 / cost, 1.0 / (mu * cost)]))
    c = np.concatenate([np.full(n, 1.0 - theta), np.full(n, -1.0 - theta)])
    low = np.linalg.cholesky(H)
    x, _ = nnls(low.T, np.linalg.solve(low, c), maxiter=100 * n)
    return x[:n] - x[n:]


@pytest.mark.parametrize(
    ("lam", "mu", "theta"), [(1.0, 0.5, 0.2), (100.0, 1.0, 0.0), (1e4, 0.1, 0.6), (50.0, 0.7, 0.9)]
)
def test_equals_a_solver_of_quadratic_programs_with_weights(lam, mu, theta) -> None:
    X, y = blobs(40)
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(y))
    model = ODMClassifier(lam, mu, theta, gamma=0.5, random_state=0).fit(X, y, sample_weight=weight)
    sign = 2.0 * y - 1.0
    K = rbf_kernel(X, gamma=0.5) + 1.0
    gamma = by_nnls(K * np.outer(sign, sign), lam * weight / (weight.sum() * (1 - theta) ** 2), mu, theta)
    np.testing.assert_allclose(model.decision_function(X), K @ (sign * gamma), rtol=1e-6, atol=1e-6)
    least = 1e-8 * np.abs(gamma).max()  # below it, rounding decides which rows have a say
    seen = model.support_[np.abs(model.dual_coef_[0]) > least]
    assert set(seen) == set(np.flatnonzero(np.abs(gamma) > least))
    assert model.gap_ <= 1e-10 * model.objective_curve_[-1]


def test_mu_zero_is_a_support_vector_machine_of_squared_hinge() -> None:
    X, y = blobs()
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    lam, theta = 30.0, 0.3
    model = ODMClassifier(lam, 0.0, theta, kernel="linear", fit_intercept=False).fit(X, y, weight)
    peer = LinearSVC(C=lam / (2 * weight.sum() * (1 - theta) ** 2), fit_intercept=False, tol=1e-12, max_iter=100_000)
    peer.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.decision_function(X), (1 - theta) * peer.decision_function(X), atol=1e-6)
    model = ODMClassifier(lam, 0.0, theta, kernel="linear").fit(X, y, weight)
    peer.set_params(fit_intercept=True).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.decision_function(X), (1 - theta) * peer.decision_function(X), atol=1e-6)


def test_mu_one_is_a_regression_on_the_signs() -> None:
    X, y = blobs()
    lam, theta = 30.0, 0.3
    model = ODMClassifier(lam, 1.0, theta, kernel="linear", fit_intercept=False).fit(X, y)
    peer = LinearSVR(
        loss="squared_epsilon_insensitive",
        epsilon=theta,
        C=lam / (2 * len(y) * (1 - theta) ** 2),
        fit_intercept=False,
        tol=1e-12,
        max_iter=100_000,
        dual=False,
    ).fit(X, 2.0 * y - 1.0)
    np.testing.assert_allclose(model.decision_function(X), peer.predict(X), atol=1e-6)


def test_without_a_band_it_is_ridge_regression() -> None:
    X, y = blobs()
    weight = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    sign, lam = 2.0 * y - 1.0, 70.0
    model = ODMClassifier(lam, 1.0, 0.0, kernel="linear", fit_intercept=False).fit(X, y, weight)
    ridge = Ridge(alpha=weight.sum() / lam, fit_intercept=False).fit(X, sign, weight)
    np.testing.assert_allclose(model.decision_function(X), ridge.predict(X), atol=1e-9)
    model = ODMClassifier(lam, 1.0, 0.0, gamma=0.4, fit_intercept=False).fit(X, y, weight)
    peer = KernelRidge(alpha=weight.sum() / lam, kernel="rbf", gamma=0.4).fit(X, sign, weight)
    np.testing.assert_allclose(model.decision_function(X), peer.predict(X), atol=1e-9)


def test_weights_are_duplicated_rows_and_their_unit_does_not_matter() -> None:
    X, y = blobs(50)
    times = np.random.default_rng(4).integers(0, 4, len(y))
    model = ODMClassifier().fit(X, y, times)
    doubled = ODMClassifier().fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(model.decision_function(X), doubled.decision_function(X), atol=1e-9)
    scaled = ODMClassifier().fit(X, y, 1e-7 * times)
    np.testing.assert_allclose(model.decision_function(X), scaled.decision_function(X), atol=1e-9)
    assert model.margin_distribution_.mean == pytest.approx(doubled.margin_distribution_.mean)
    np.testing.assert_allclose(model.margin_distribution_.quantiles, doubled.margin_distribution_.quantiles)


def test_order_of_rows_does_not_matter() -> None:
    X, y = blobs(60)
    order = np.random.default_rng(5).permutation(len(y))
    first, second = ODMClassifier().fit(X, y), ODMClassifier().fit(X[order], y[order])
    np.testing.assert_allclose(first.decision_function(X), second.decision_function(X), atol=1e-9)


def test_free_intercept_solves_the_bordered_problem() -> None:
    X, y = blobs(70)
    X = X + 3.0
    model = ODMClassifier(40.0, 0.5, 0.2, gamma=0.3, intercept_scaling=np.inf).fit(X, y)
    gamma = np.zeros(len(y))
    gamma[model.support_] = model.dual_coef_[0] * (2.0 * y[model.support_] - 1.0)
    u = model.margins(X, y)
    cost = 40.0 / (len(y) * 0.8**2)
    wanted = cost * np.maximum(0.8 - u, 0.0) - 0.5 * cost * np.maximum(u - 1.2, 0.0)
    np.testing.assert_allclose(gamma, wanted, atol=1e-9)
    assert abs(model.dual_coef_.sum()) < 1e-9
    wide = ODMClassifier(40.0, 0.5, 0.2, gamma=0.3, intercept_scaling=3e3).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), wide.decision_function(X), atol=1e-5)


def test_kernels_by_name_by_function_and_by_matrix_agree() -> None:
    X, y = blobs(50)
    wanted = ODMClassifier(gamma=0.3, random_state=0).fit(X, y).decision_function(X)
    K = rbf_kernel(X, gamma=0.3)
    given = ODMClassifier(kernel="precomputed", random_state=0).fit(K, y)
    np.testing.assert_allclose(given.decision_function(K), wanted, atol=1e-9)
    called = ODMClassifier(kernel=lambda A, B: rbf_kernel(A, B, gamma=0.3), random_state=0).fit(X, y)
    np.testing.assert_allclose(called.decision_function(X), wanted, atol=1e-9)
    thin = ODMClassifier(gamma=0.3, random_state=0).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(thin.decision_function(sparse.csr_matrix(X)), wanted, atol=1e-9)
    for name, function in (("laplacian", laplacian_kernel), ("poly", polynomial_kernel)):
        options = {"gamma": 0.2} if name == "laplacian" else {"gamma": 0.2, "degree": 2, "coef0": 1.0}
        named = ODMClassifier(kernel=name, random_state=0, **options).fit(X, y)
        K = function(X, **options)
        given = ODMClassifier(kernel="precomputed", random_state=0).fit(K, y)
        np.testing.assert_allclose(named.decision_function(X), given.decision_function(K), atol=1e-8)


def big(
    n: int, mu: float = 0.5, lam: float = 100.0, theta: float = 0.2, apart: float = 0.0, cache_bytes: float = 1e9
) -> Dual:
    X, y = blobs(n, 4, seed=7)
    X = X + apart * y[:, None]
    function = KernelFunction(kernel="rbf", gamma=0.25, dtype=np.float32)
    gram = Gram(function, X, constant=1.0, cache_bytes=cache_bytes)
    return Dual(gram=gram, sign=2.0 * y - 1.0, cost=np.full(n, lam / (n * (1 - theta) ** 2)), mu=mu, theta=theta)


@pytest.mark.parametrize(("mu", "lam"), [(0.5, 100.0), (0.0, 100.0), (0.5, 1e6)])
@pytest.mark.parametrize("cache_bytes", [1e9, 1e6])
def test_many_rows_reach_the_gap_in_single_precision(mu, lam, cache_bytes, monkeypatch) -> None:
    monkeypatch.setattr(binary, "MAX_DIRECT_ROWS", 500)
    dual = big(1400, mu=mu, lam=lam, cache_bytes=cache_bytes)
    gap = solve_two_classes(dual, tol=1e-3, max_iter=500, rng=np.random.default_rng(0), free=False).gap
    sharp = big(1400, mu=mu, lam=lam)
    sharp.gram = sharp.gram.in_double()
    sharp.gamma = dual.gamma
    sharp.renew()
    true_gap, primal = sharp.gap()
    assert true_gap <= 1.05e-3 * primal
    assert true_gap == pytest.approx(gap, rel=0.1)


@pytest.mark.parametrize("cache_bytes", [0.0, 3e6])
def test_a_matrix_that_is_not_held_gives_the_same_solution(cache_bytes) -> None:
    scores, options = [], {"mu": 0.0, "lam": 300.0, "theta": 0.6, "apart": 3.0}
    for size in (1e9, cache_bytes):
        dual = big(900, cache_bytes=size, **options)
        dual.gram = dual.gram.in_double()
        solution = solve_two_classes(dual, tol=1e-10, max_iter=500, rng=np.random.default_rng(0), free=False)
        assert solution.gap <= 1e-10 * solution.primal
        scores.append(dual.score)
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-4)


def test_rows_that_will_not_move_are_not_computed() -> None:
    dual = big(600, mu=0.0, lam=100.0, theta=0.6, apart=3.0, cache_bytes=0.0)
    rng, computed = np.random.default_rng(0), []
    rectangle = dual.gram._rectangle
    dual.gram._rectangle = lambda rows, columns: computed.append(len(rows)) or rectangle(rows, columns)
    for _ in range(8):
        binary._round(dual, rng)
    computed.clear()
    binary._round(dual, rng)
    n_moving = (dual.outside(dual.margins()) | (dual.gamma != 0.0)).sum()
    assert n_moving < 300
    assert sum(computed) <= 3 * (n_moving + 30)  # three squares of columns


def test_parts_of_the_matrix_agree_however_much_is_held() -> None:
    X = blobs(600, 4)[0]
    K, rows = rbf_kernel(X, gamma=0.25) + 1.0, np.arange(0, 600, 7)
    coefficients = np.random.default_rng(1).normal(size=(600, 2))
    for cache_bytes in (0.0, 2e6, 1e9):
        gram = Gram(KernelFunction(kernel="rbf", gamma=0.25), X, constant=1.0, cache_bytes=cache_bytes)
        np.testing.assert_allclose(gram.product(coefficients), K @ coefficients, atol=1e-11)
        np.testing.assert_allclose(gram.submatrix(rows), K[np.ix_(rows, rows)], atol=1e-14)
        np.testing.assert_allclose(gram.columns(rows), K[:, rows], atol=1e-14)
        visited = []
        for visit in gram.row_panels(np.random.default_rng(0), 2, lambda numbers: np.ones(len(numbers), bool)):
            visited.append(visit.numbers[0])
            np.testing.assert_allclose(visit.matrix[visit.places[0]], K[visit.numbers[0]], atol=1e-14)
        assert sorted(np.concatenate(visited)) == list(range(600))


def test_dual_value_never_falls() -> None:
    dual, before = big(900, lam=1e4), -np.inf
    rng = np.random.default_rng(0)
    for _ in range(10):
        binary._round(dual, rng)
        gap, primal = dual.gap()
        assert primal - gap >= before - 1e-6 * primal
        before = primal - gap


@pytest.mark.bits
@pytest.mark.parametrize("megabytes", [2000, 1, 0])
def test_bits_do_not_depend_on_threads(megabytes, monkeypatch) -> None:
    monkeypatch.setattr(kernel_matrix, "MAX_DOUBLE_ROWS", 500)
    X, y = blobs(1200, 4)
    wanted = ODMClassifier(random_state=3, cache_size=megabytes).fit(X, y)
    with limit_threads(1):
        one = ODMClassifier(random_state=3, cache_size=megabytes).fit(X, y)
    np.testing.assert_array_equal(wanted.dual_coef_, one.dual_coef_)


def test_margins_and_their_distribution() -> None:
    X, y = blobs(120)
    model = ODMClassifier(random_state=0).fit(X, np.where(y, "b", "a"))
    margins = model.margins(X, np.where(y, "b", "a"))
    np.testing.assert_allclose(margins, (2.0 * y - 1.0) * model.decision_function(X))
    found = model.margin_distribution_
    assert found.mean == pytest.approx(margins.mean())
    assert found.variance == pytest.approx(margins.var())
    assert found.quantiles[0] == pytest.approx(margins.min())
    assert found.quantiles[-1] == pytest.approx(margins.max())
    assert found.quantiles[3] == pytest.approx(np.sort(margins)[59])
    w2 = model.dual_coef_ @ (rbf_kernel(model.support_vectors_, gamma=model._gamma) + 1.0) @ model.dual_coef_.T
    assert model.norm_ == pytest.approx(w2[0, 0] ** 0.5)
    with pytest.raises(ValueError, match="not a class"):
        model.margins(X, np.full(len(y), "c"))


def test_margins_vary_less_than_those_of_the_support_vector_machine() -> None:
    X, y = blobs(400)
    X = X + 2.0 * y[:, None]
    odm, svm = ODMClassifier(200.0, 0.8, 0.1).fit(X, y), ODMClassifier(200.0, 0.0, 0.1).fit(X, y)
    spread = [m.margin_distribution_.variance / m.margin_distribution_.mean**2 for m in (odm, svm)]
    assert spread[0] < spread[1]


def test_scikit_learn_calibrates_probabilities() -> None:
    X, y = blobs(300)
    machine = ODMClassifier(class_weight="balanced", random_state=0)
    model = CalibratedClassifierCV(machine, ensemble=False).fit(X, y)
    X, y = blobs(4000, seed=1)
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    sure = chances[:, 1] > 0.8
    assert abs(y[sure].mean() - chances[sure, 1].mean()) < 0.1


def test_saved_and_loaded(tmp_path) -> None:
    X, y = blobs(60)
    model = ODMClassifier(random_state=0).fit(X, y)
    save_model(model, tmp_path / "m.tithe")
    again = load_model(tmp_path / "m.tithe")
    np.testing.assert_array_equal(model.decision_function(X), again.decision_function(X))
    assert again.margin_distribution_ == model.margin_distribution_


def test_opposite_labels_on_one_place_and_columns_of_any_scale() -> None:
    X, y = blobs(40)
    both = ODMClassifier().fit(np.vstack([X, X]), np.concatenate([y, 1 - y]))
    np.testing.assert_allclose(both.decision_function(X), 0.0, atol=1e-9)
    wanted = ODMClassifier(random_state=0).fit(X, y).decision_function(X)
    for scale in (1e30, 1e-30):
        model = ODMClassifier(random_state=0).fit(scale * X, y)
        np.testing.assert_allclose(model.decision_function(scale * X), wanted, rtol=1e-6)
    flat = ODMClassifier().fit(np.ones((20, 2)), np.arange(20) % 2)
    np.testing.assert_allclose(flat.decision_function(np.ones((1, 2))), 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lam": 0.0}, "lam"),
        ({"lam": np.nan}, "lam"),
        ({"mu": 1.5}, "mu"),
        ({"mu": -0.1}, "mu"),
        ({"theta": 1.0}, "theta"),
        ({"theta": -0.1}, "theta"),
        ({"kernel": "gaussian"}, "kernel"),
        ({"gamma": "big"}, "gamma"),
        ({"gamma": -1.0}, "gamma"),
        ({"tol": 0.0}, "tol"),
        ({"max_iter": 0}, "max_iter"),
        ({"cache_size": -1}, "cache_size"),
        ({"nonconvex": "none"}, "nonconvex"),
        ({"intercept_scaling": 0.0}, "intercept_scaling"),
        ({"fit_intercept": "yes"}, "fit_intercept"),
    ],
)
def test_wrong_options_are_named(options, message) -> None:
    X, y = blobs(20)
    with pytest.raises(ValueError, match=message):
        ODMClassifier(**options).fit(X, y)


def test_wrong_kernels_and_labels_are_refused() -> None:
    X, y = blobs(30)
    K = rbf_kernel(X)
    with pytest.raises(ValueError, match="square"):
        ODMClassifier(kernel="precomputed").fit(X, y)
    with pytest.raises(ValueError, match="symmetric"):
        ODMClassifier(kernel="precomputed").fit(K + np.triu(np.ones_like(K)), y)
    with pytest.raises(ValueError, match="positive semi-definite"):
        ODMClassifier(kernel="precomputed").fit(K - 0.5 * np.eye(30), y)
    with pytest.raises(ValueError, match="negative"):
        ODMClassifier(kernel="precomputed", intercept_scaling=0.1).fit(K - 2.0 * np.eye(30), y)
    with pytest.raises(ValueError, match="shape"):
        ODMClassifier(kernel=lambda A, B: np.ones(3)).fit(X, y)
    with pytest.raises(ValueError, match="only one class"):
        ODMClassifier().fit(X, np.ones(30))
    with pytest.raises(ValueError, match="no row of positive weight"):
        ODMClassifier().fit(X, y, np.where(y, 1.0, 0.0))
    with pytest.raises(ValueError, match="overflow"):
        ODMClassifier(kernel="linear").fit(1e200 * X, y)


def test_large_matrices_that_are_no_kernels_end_in_an_error(monkeypatch) -> None:
    monkeypatch.setattr(kernel_matrix, "_MAX_CHECKED_ROWS", 0)
    rng = np.random.default_rng(0)
    K = rng.normal(size=(60, 60))
    K = K + K.T
    K[np.diag_indices(60)] = 1.0
    with pytest.raises(ValueError, match="positive semi-definite"):
        ODMClassifier(1e5, kernel="precomputed").fit(K, rng.integers(0, 2, 60))


def test_too_few_rounds_are_told() -> None:
    X, y = blobs(2000)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        ODMClassifier(1e7, tol=1e-9, max_iter=1).fit(X, y)
