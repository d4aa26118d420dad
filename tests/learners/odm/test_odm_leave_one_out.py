"""Decision values of machines trained without some rows, from one machine, against machines trained without them."""

from __future__ import annotations

import numpy as np
import pytest
from path_data import SETTINGS, kernel_of, trained, two_classes

from tithe.core.parallel import limit_threads
from tithe.solvers.odm import path
from tithe.solvers.odm.leave_one_out import leave_one_out, n_fold


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
    scores = leave_one_out(kernel, sign, cost, np.zeros(40), mu=mu, theta=theta)
    expected = retrained(kernel, sign, cost, [[i] for i in range(40)], mu, theta)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("lam", "mu", "theta"), SETTINGS)
def test_equals_training_without_each_fold(lam, mu, theta) -> None:
    X, sign, weight = two_classes(60)
    kernel, cost, fold = kernel_of(X), lam * weight / weight.sum(), np.arange(60) % 4
    scores = n_fold(kernel, sign, cost, np.zeros(60), fold, mu=mu, theta=theta)
    expected = retrained(kernel, sign, cost, [np.flatnonzero(fold == k) for k in range(4)], mu, theta)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-8)


def test_multipliers_to_start_from_need_not_be_exact() -> None:
    X, sign, _ = two_classes(50)
    kernel, cost = kernel_of(X), np.full(50, 2.0)
    exact = sign * trained(kernel, sign, cost, 0.5, 0.2)
    near = exact * np.random.default_rng(1).uniform(0.5, 1.5, 50)
    expected = leave_one_out(kernel, sign, cost, np.zeros(50), mu=0.5, theta=0.2)
    for gamma in (exact, near):
        scores = leave_one_out(kernel, sign, cost, gamma, mu=0.5, theta=0.2)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-10)


def test_a_path_that_does_not_end_is_solved_directly(monkeypatch) -> None:
    X, sign, _ = two_classes(40)
    kernel, cost = kernel_of(X), np.full(40, 2.0)
    expected = leave_one_out(kernel, sign, cost, np.zeros(40), mu=0.5, theta=0.2)
    monkeypatch.setattr(path, "_FEW_EVENTS", 0)
    monkeypatch.setattr(path, "_EVENTS_PER_ROW", 0)
    scores = leave_one_out(kernel, sign, cost, np.zeros(40), mu=0.5, theta=0.2)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-10)


def test_one_row_alone_and_one_class_alone() -> None:
    alone = leave_one_out(np.ones((1, 1)), np.ones(1), np.ones(1), np.zeros(1), mu=0.5, theta=0.2)
    np.testing.assert_allclose(alone, [0.0], atol=1e-14)
    X, _, _ = two_classes(10)
    kernel, sign, cost = kernel_of(X), np.ones(10), np.full(10, 3.0)
    scores = n_fold(kernel, sign, cost, np.zeros(10), np.zeros(10), mu=0.5, theta=0.2)
    np.testing.assert_allclose(scores, np.zeros(10), atol=1e-13)


@pytest.mark.bits
def test_threads_do_not_change_the_bits() -> None:
    X, sign, _ = two_classes(200)
    kernel, cost = kernel_of(X), np.full(200, 2.0)
    scores = []
    for n_threads in (1, 3):
        with limit_threads(n_threads):
            scores.append(leave_one_out(kernel, sign, cost, np.zeros(200), mu=0.5, theta=0.2))
    np.testing.assert_array_equal(*scores)
