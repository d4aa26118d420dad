"""Corners of both machines that a stranger meets: weights, probabilities, kernels and their parameters."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from tithe.odm import LinearODMClassifier, ODMClassifier

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 3))
y = (X @ rng.normal(size=(3, 3)) + 0.5 * rng.normal(size=(60, 3))).argmax(axis=1)


@pytest.mark.parametrize("labels", [y > 0, y], ids=["two", "three"])
@pytest.mark.parametrize("make", [lambda: ODMClassifier(lam=10, kernel="linear"), LinearODMClassifier])
def test_weights_of_any_size_side_by_side(make, labels):
    weight = 10.0 ** np.where(np.arange(60) % 4 == 0, -300, 0)
    machine = make().fit(X, labels, weight)
    without = make().fit(X, labels, np.where(weight < 1.0, 0.0, 1.0))
    assert np.allclose(machine.decision_function(X), without.decision_function(X), atol=1e-3)
    assert np.isfinite(make().fit(X, labels, np.full(60, 1e300)).decision_function(X)).all()


@pytest.mark.parametrize("kernel", ["linear", lambda A, B: A.astype(float) @ B.T.astype(float)])
def test_kernels_without_gamma_do_not_ask_how_rows_spread(kernel):
    rows = (X * 1e30).astype(np.float32)
    machine = ODMClassifier(kernel=kernel, lam=1e-50, random_state=0).fit(rows, y > 0)
    assert machine.score(rows, y > 0) > 0.5


def test_columns_far_apart_in_single_precision_have_a_variance():
    rows = (X * 1e25).astype(np.float32)
    for given in (rows, sparse.csr_matrix(rows)):
        assert ODMClassifier(random_state=0).fit(given, y).score(given, y) > 0.8


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"degree": "3"}, "degree must"),
        ({"degree": np.nan}, "degree must"),
        ({"coef0": np.inf}, "coef0 must"),
        ({"kernel": np.eye(2)}, "kernel must be one of"),
    ],
)
def test_parameters_of_kernels_are_checked(given, what):
    with pytest.raises(ValueError, match=what):
        ODMClassifier(**{"kernel": "poly", **given}).fit(X, y)


def test_a_given_kernel_must_be_dense():
    with pytest.raises(ValueError, match="dense"):
        ODMClassifier(kernel="precomputed").fit(sparse.csr_matrix(X @ X.T), y)


@pytest.mark.parametrize(
    ("machine", "labels"),
    [
        (ODMClassifier(max_iter=1, kernel="linear", lam=1e6), y > 0),
        (ODMClassifier(max_iter=1, kernel="linear", lam=1e6), y),
        (LinearODMClassifier(max_iter=1, solver="svrg"), y > 0),
    ],
)
def test_warnings_point_at_the_caller(machine, labels):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ConvergenceWarning)
        machine.fit(X, labels)
    assert [one.filename for one in found if one.category is ConvergenceWarning] == [__file__]


@pytest.mark.parametrize("labels", [y > 0, y], ids=["two", "three"])
def test_squares_that_overflow_are_refused(labels):
    with pytest.raises(ValueError, match="overflow in double precision"):
        LinearODMClassifier().fit(X * 1e200, labels)


@pytest.mark.parametrize("make", [ODMClassifier, LinearODMClassifier])
@pytest.mark.parametrize("given", [{"lam": 1e300}, {"intercept_scaling": 1e200}, {"intercept_scaling": 1e-320}])
def test_parameters_whose_squares_are_no_numbers_are_refused(make, given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} must be a number of at least 1e-100"):
        make(**given).fit(X, y)


@pytest.mark.parametrize("labels", [y > 0, y], ids=["two", "three"])
@pytest.mark.parametrize("make", [ODMClassifier, LinearODMClassifier])
def test_an_upper_side_that_hardly_counts_is_none(make, labels):
    found = [make(mu=mu, lam=10, random_state=0).fit(X, labels).decision_function(X) for mu in (0.0, 1e-310)]
    assert np.allclose(*found, atol=1e-3)
