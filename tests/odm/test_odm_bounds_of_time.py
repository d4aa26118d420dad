"""Small problems are small work: what is sharper than was asked for is not waited for."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from tithe.odm import LinearODMClassifier, ODMClassifier


def test_few_rows_of_many_classes_do_not_run_to_the_last_round():
    X, y = load_wine(return_X_y=True)
    machine = ODMClassifier(kernel="linear", random_state=0).fit(StandardScaler().fit_transform(X), y)
    assert machine.n_iter_ < 500
    assert machine.gap_ <= machine.tol * np.min(machine.objective_curve_)


@pytest.mark.slow
def test_descent_on_the_loss_of_many_classes_finds_no_worse_a_place_than_the_dual_does():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    dual = ODMClassifier(kernel="linear", random_state=0).fit(X, y)
    primal = LinearODMClassifier(dual.lam, dual.mu, dual.theta).fit(X, y)
    assert primal.objective_curve_[-1] <= 1.01 * min(dual.objective_curve_)


def test_more_columns_than_rows_of_many_classes_are_few_looks():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 200)), np.arange(30) % 3
    linear = LinearODMClassifier(1000.0, 0.5, 0.2).fit(X, y)
    assert linear.n_iter_ < 500
    assert linear.gap_ <= linear.tol * linear.objective_curve_[-1]
    kernel = ODMClassifier(kernel="linear", random_state=0).fit(X, y)
    assert np.allclose(linear.decision_function(X), kernel.decision_function(X), atol=1e-6)


def test_columns_that_say_nothing_give_the_smallest_loss_all_the_same():
    y = np.arange(60) % 3
    machine = LinearODMClassifier().fit(np.zeros((60, 2)), y)
    assert np.isclose(machine.objective_curve_[-1], 0.5 * machine.lam)
