"""Decision values of machines trained without some rows, from one machine, against machines trained without them."""

from __future__ import annotations

import numpy as np
import pytest
from path_data import SETTINGS, kernel_of, trained, two_classes
from scipy import sparse
from sklearn.model_selection import LeaveOneOut, ShuffleSplit, StratifiedKFold, cross_val_predict

from tithe.core.parallel import limit_threads
from tithe.odm import ODMClassifier
from tithe.odm.solvers import path
from tithe.odm.solvers.path import held_out


def retrained(kernel, sign, cost, groups, mu, theta) -> np.ndarray:
    scores = np.empty(len(sign))
    for group in groups:
        kept = np.setdiff1d(np.arange(len(sign)), group)
        coefficients = trained(kernel[np.ix_(kept, kept)], sign[kept], cost[kept], mu, theta)
        scores[group] = kernel[np.ix_(group, kept)] @ coefficients
    return scores


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize(("lam", "mu", "theta"), SETTINGS)
def test_equals_training_without_each_row(lam, mu, theta, duplicates) -> None:
    X, sign, weight = two_classes(40, duplicates=duplicates)
    kernel, cost = kernel_of(X), lam * weight / (weight.sum() * (1 - theta) ** 2)
    scores = held_out(kernel, sign, cost, np.zeros(40), mu=mu, theta=theta)
    expected = retrained(kernel, sign, cost, [[i] for i in range(40)], mu, theta)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("lam", "mu", "theta"), SETTINGS)
def test_equals_training_without_each_fold(lam, mu, theta) -> None:
    X, sign, weight = two_classes(60)
    kernel, cost, fold = kernel_of(X), lam * weight / weight.sum(), np.arange(60) % 4
    folds = [np.flatnonzero(fold == k) for k in range(4)]
    scores = held_out(kernel, sign, cost, np.zeros(60), folds, mu=mu, theta=theta)
    expected = retrained(kernel, sign, cost, folds, mu, theta)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-8)


def test_multipliers_to_start_from_need_not_be_exact() -> None:
    X, sign, _ = two_classes(50)
    kernel, cost = kernel_of(X), np.full(50, 2.0)
    exact = sign * trained(kernel, sign, cost, 0.5, 0.2)
    near = exact * np.random.default_rng(1).uniform(0.5, 1.5, 50)
    expected = held_out(kernel, sign, cost, np.zeros(50), mu=0.5, theta=0.2)
    for gamma in (exact, near):
        scores = held_out(kernel, sign, cost, gamma, mu=0.5, theta=0.2)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-10)


def test_a_path_that_does_not_end_is_solved_directly(monkeypatch) -> None:
    X, sign, _ = two_classes(40)
    kernel, cost = kernel_of(X), np.full(40, 2.0)
    expected = held_out(kernel, sign, cost, np.zeros(40), mu=0.5, theta=0.2)
    monkeypatch.setattr(path, "_MIN_EVENT_LIMIT", 0)
    monkeypatch.setattr(path, "_EVENTS_PER_ROW", 0)
    scores = held_out(kernel, sign, cost, np.zeros(40), mu=0.5, theta=0.2)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-10)


def test_one_row_alone_and_one_class_alone() -> None:
    alone = held_out(np.ones((1, 1)), np.ones(1), np.ones(1), np.zeros(1), mu=0.5, theta=0.2)
    np.testing.assert_allclose(alone, [0.0], atol=1e-14)
    X, _, _ = two_classes(10)
    kernel, sign, cost = kernel_of(X), np.ones(10), np.full(10, 3.0)
    scores = held_out(kernel, sign, cost, np.zeros(10), [np.arange(10)], mu=0.5, theta=0.2)
    np.testing.assert_allclose(scores, np.zeros(10), atol=1e-13)


@pytest.mark.bits
def test_threads_do_not_change_the_bits() -> None:
    X, sign, _ = two_classes(200)
    kernel, cost = kernel_of(X), np.full(200, 2.0)
    scores = []
    for n_threads in (1, 3):
        with limit_threads(n_threads):
            scores.append(held_out(kernel, sign, cost, np.zeros(200), mu=0.5, theta=0.2))
    np.testing.assert_array_equal(*scores)


# -- of ODMClassifier ------------------------------------------------------------------------------


def labelled(n: int = 50) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, sign, weight = two_classes(n)
    weight[::7] = 0.0
    return X, np.where(sign > 0, "yes", "no"), weight


@pytest.mark.parametrize("options", [{}, {"kernel": "linear", "fit_intercept": False}, {"class_weight": {"yes": 3.0}}])
def test_a_fitted_machine_leaves_each_row_out(options) -> None:
    X, y, weight = labelled()
    options = {"lam": 50.0, "gamma": 0.3, "tol": 1e-12, **options}
    scores = ODMClassifier(**options).fit(X, y, weight).leave_one_out(X, y, weight)
    factor = np.where(y == "yes", 3.0, 1.0) if "class_weight" in options else 1.0
    total = (factor * weight).sum()
    for i in range(0, 50, 5):
        others = np.delete(np.arange(50), i)
        lam = options["lam"] * (total - (factor * weight)[i]) / total  # the costs of the other rows stay
        fitted = ODMClassifier(**{**options, "lam": lam}).fit(X[others], y[others], weight[others])
        assert scores[i] == pytest.approx(fitted.decision_function(X[i : i + 1])[0], abs=1e-7)


def test_folds_are_those_of_scikit_learn() -> None:
    X, y, _ = labelled(60)
    model = ODMClassifier(lam=50.0, gamma=0.3, tol=1e-12).fit(X, y)
    scores = model.n_fold(X, y, 4)
    machine = ODMClassifier(lam=50.0 * 45 / 60, gamma=0.3, tol=1e-12)
    expected = cross_val_predict(machine, X, y, cv=StratifiedKFold(4), method="decision_function")
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(model.n_fold(X, y, StratifiedKFold(4)), scores)
    np.testing.assert_allclose(model.n_fold(X, y, LeaveOneOut()), model.leave_one_out(X, y), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="one test fold"):
        model.n_fold(X, y, ShuffleSplit(3, random_state=0))


def test_precomputed_kernels_and_sparse_rows_are_left_out_alike() -> None:
    X, y, weight = labelled()
    expected = ODMClassifier(lam=50.0, gamma=0.5).fit(X, y, weight).leave_one_out(X, y, weight)
    K = kernel_of(X) - 1.0
    given = ODMClassifier(lam=50.0, kernel="precomputed").fit(K, y, weight).leave_one_out(K, y, weight)
    rows = sparse.csr_matrix(X)
    held = ODMClassifier(lam=50.0, gamma=0.5).fit(rows, y, weight).leave_one_out(rows, y, weight)
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(held, expected, rtol=0, atol=1e-9)


def test_other_rows_than_those_of_the_fit_are_refused() -> None:
    X, y, weight = labelled()
    model = ODMClassifier(lam=50.0, gamma=0.3).fit(X, y, weight)
    flipped, moved = y.copy(), X.copy()
    flipped[1], moved[1] = ("no" if y[1] == "yes" else "yes"), moved[1] + 1.0
    for other in ((X, y), (X, flipped, weight), (moved, y, weight), (X[:20], y[:20], weight[:20]), (X, y, weight**2)):
        with pytest.raises(ValueError, match="not the rows, labels and weights"):
            model.leave_one_out(*other)
    with pytest.raises(ValueError, match="not the rows, labels and weights"):
        model.leave_one_out(X, np.where(y == "yes", "maybe", y), weight)


def test_what_cannot_be_left_out_is_refused() -> None:
    X, y, _ = labelled()
    third = np.where(np.arange(50) < 10, "third", y)
    with pytest.raises(ValueError, match=r"Only for two classes.*cross_val_predict"):
        ODMClassifier(lam=10.0).fit(X, third).leave_one_out(X, third)
    with pytest.raises(ValueError, match="free intercept"):
        ODMClassifier(lam=10.0, intercept_scaling=np.inf).fit(X, y).n_fold(X, y)
    with pytest.raises(ValueError, match=r"cache_size=0.01 allows \(25 rows\)"):
        ODMClassifier(lam=10.0, cache_size=0.01).fit(X, y).leave_one_out(X, y)
