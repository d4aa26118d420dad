"""Correlations of signals with atoms: right, and with the same bits wherever a signal stands."""

from __future__ import annotations

import numpy as np
import pytest

from tithe.dictionary.pursuit_kernels import as_panels, correlate, correlation_rows, lasso_codes


def correlations(X: np.ndarray, atoms: np.ndarray) -> np.ndarray:
    alpha = np.full((correlation_rows(len(atoms), X.itemsize), len(atoms)), np.nan, X.dtype)
    correlate(X, as_panels(atoms), 0, len(X), alpha)
    return alpha[: len(X)]


@pytest.mark.bits
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 7, 64, 129])
def test_a_row_has_the_same_bits_wherever_it_stands(rng: np.random.Generator, dtype: type, d: int) -> None:
    X, atoms = rng.normal(size=(97, d)).astype(dtype), rng.normal(size=(48, d)).astype(dtype)
    result = correlations(X, atoms)
    limit = 4 * d * np.finfo(dtype).eps
    np.testing.assert_allclose(result, X.astype(np.float64) @ atoms.T.astype(np.float64), atol=limit)
    order = rng.permutation(len(X))
    assert np.array_equal(correlations(X[order], atoms), result[order])
    for n in (1, 5, 6, 7, 47, 48, 49):
        assert np.array_equal(correlations(X[3 : 3 + n].copy(), atoms), result[3 : 3 + n])


@pytest.mark.bits
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positive", [False, True])
def test_a_penalised_code_has_the_same_bits_wherever_its_row_stands(
    rng: np.random.Generator, dtype: type, positive: bool
) -> None:
    atoms = rng.normal(size=(37, 24))  # no multiple of anything
    atoms /= np.linalg.norm(atoms, axis=1)[:, None]
    X = (rng.normal(size=(2100, 37)) * (rng.random((2100, 37)) < 0.1) @ atoms).astype(dtype)
    result = lasso_codes(X, atoms, penalty=0.1, positive=positive)
    order = rng.permutation(len(X))[:1500]
    other = lasso_codes(X[order], atoms, penalty=0.1, positive=positive)
    assert all(np.array_equal(a, b[order]) for a, b in zip(other[:3], result[:3], strict=True))
