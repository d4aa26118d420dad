"""Kernel matrices in single precision: rounding must not look like a kernel that is none."""

from __future__ import annotations

import numpy as np
import pytest

from tithe.odm import LinearODMClassifier, ODMClassifier
from tithe.odm.solvers.kernel_matrix import Gram, KernelFunction, NotAKernelError
from tithe.odm.solvers.two_classes import nystroem


def _off_centre(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3)) + 20.0
    return X, X[:, 0] + 0.5 * rng.normal(size=n_rows) > 20.0


def test_rows_that_guide_newton_may_have_a_low_rank_in_single_precision():
    X, _ = _off_centre(4200)
    gram = Gram(KernelFunction(kernel="linear", dtype=np.float32), X, constant=1.0, cache_bytes=1e8)
    basis = nystroem(gram)
    assert np.allclose(basis[:50] @ basis[:50].T, X[:50] @ X[:50].T + 1.0, rtol=1e-2)


def test_rows_that_guide_newton_show_a_kernel_that_is_none():
    gram = Gram(KernelFunction(kernel=lambda A, B: 1.0 - A @ B.T), _off_centre(4200)[0], cache_bytes=1e8)
    with pytest.raises(NotAKernelError, match="positive semi-definite"):
        nystroem(gram)


@pytest.mark.slow
def test_a_kernel_spoilt_by_rounding_is_taken_in_double_precision_and_predicts_in_it():
    X, y = _off_centre(4200)
    machine = ODMClassifier(kernel="linear", lam=1e7, tol=1e-3, random_state=0).fit(X, y)
    truth = LinearODMClassifier(1e7, machine.mu, machine.theta).fit(X, y)
    assert machine.gap_ <= machine.tol * machine.objective_curve_[-1]
    assert np.abs(machine.decision_function(X) - truth.decision_function(X)).max() < 0.02
