"""Losses of one linear score in compiled loops."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tithe import Block
from tithe.linear.kernels import Loss, drift_sums, poisson_terms, sweep
from tithe.objectives import HuberObjective, LeastSquaresObjective, LogisticObjective, PoissonObjective


def test_poisson_losses_are_those_of_the_formula(rng) -> None:
    score = np.concatenate([rng.normal(size=1000), rng.uniform(-700.0, 700.0, 1000), [0.0, -1e-300, 5.0]])
    y = np.concatenate([rng.poisson(2.0, 1000), 10.0 ** rng.uniform(-300, 300, 1000), [0.0, 1e-310, 1.0]])
    loss, first, second = poisson_terms(score, y)
    np.testing.assert_allclose(second, np.exp(score), rtol=1e-15)
    np.testing.assert_allclose(first, np.exp(score) - y, rtol=1e-13)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(y > 0.0, y * np.log(y), 0.0)
    size = np.exp(score) + np.abs(y * score) + np.abs(entropy) + y  # rounding errors are relative to these
    assert (np.abs(loss - (np.exp(score) - y * score + entropy - y)) <= 2e-15 * size).all()


def test_poisson_losses_that_overflow_are_not_hidden() -> None:
    loss, first, second = poisson_terms(np.array([709.5, 1e10, np.inf, np.nan, -1e10]), np.ones(5))
    assert np.isinf(loss[:2]).all() and np.isinf(first[:2]).all() and np.isinf(second[:2]).all()
    assert not np.isfinite(loss[2:4]).any()
    assert loss[4] == pytest.approx(1e10)


@pytest.mark.bits
@pytest.mark.parametrize("layout", ["float64", "float32", "csr"])
@pytest.mark.parametrize("objective", [PoissonObjective(), LeastSquaresObjective(), HuberObjective()])
def test_the_loss_of_a_row_does_not_depend_on_its_place(objective, layout, rng) -> None:
    X = rng.normal(size=(3001, 13)).astype("float32" if layout == "float32" else "float64")
    y, order = rng.poisson(1.0, len(X)).astype(float), rng.permutation(len(X))
    params = np.vstack([0.1 * rng.normal(size=(1, 14)), np.append(np.zeros(13), 1.0)])[: objective.n_scores]
    rows = sparse.csr_matrix(X) if layout == "csr" else X
    whole = objective.cost(Block(X=rows, y=y), params)
    assert np.array_equal(whole[order], objective.cost(Block(X=rows[order], y=y[order]), params))
    assert np.array_equal(whole[17:20], objective.cost(Block(X=rows[17:20], y=y[17:20]), params))


def test_sums_are_those_of_the_formula(rng) -> None:
    X, y, weight = rng.normal(size=(2500, 5)), rng.poisson(1.0, 2500).astype(float), rng.uniform(0.0, 2.0, 2500)
    params, centre = 0.2 * rng.normal(size=(1, 6)), rng.normal(size=5)
    score = X @ params[0, :-1] + params[0, -1]
    r, ones = np.exp(score) - y, np.ones((len(X), 1))
    for rows in (X, sparse.csr_matrix(X)):
        dense = rows is X
        block = Block(X=rows, y=y, sample_weight=weight)
        cost, sums = PoissonObjective()._loss_pass(block, params, diagonal=True, centre=centre if dense else None)
        by_sign = np.stack([weight * (r <= 0.0), weight * (r > 0.0)])
        np.testing.assert_allclose(sums.table, by_sign @ np.column_stack([ones, r * score, cost]))
        np.testing.assert_allclose(sums.by_sign, by_sign @ (r[:, None] * np.hstack([X, ones])))
        square = np.hstack([(X - centre if dense else X) ** 2, ones])
        np.testing.assert_allclose(sums.diagonal[0], (weight * np.exp(score)) @ square)


@pytest.mark.bits
def test_sums_do_not_depend_on_where_arrays_lie_in_memory(rng) -> None:
    X, y, params = rng.normal(size=(3000, 6)), rng.poisson(1.0, 3000).astype(float), 0.1 * rng.normal(size=7)
    values, memory, results = rng.uniform(0.5, 2.0, 3000), np.empty(6016), []
    for place in (0, 1, 3, 8):  # compiled code may add in another order where arrays begin elsewhere, or meet
        weight, target = memory[place : place + 3000], memory[place + 3000 : place + 6000]
        weight[:], target[:] = values, y
        swept = sweep(X, target, params, Loss(poisson=True), weight=weight, diagonal=True, gram=True)
        results.append([swept.sums.table, swept.sums.by_sign, swept.sums.diagonal, swept.gram])
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("layout", ["float64", "float32", "csr"])
@pytest.mark.parametrize("d", [3, 30])
def test_curvature_and_drift_of_a_sweep_are_those_of_the_formulas(layout, d, rng) -> None:
    X = rng.normal(size=(1500, d)).astype("float32" if layout == "float32" else "float64")
    X[:, 0] *= 1e12
    weight, centre = rng.uniform(0.0, 2.0, 1500), X.mean(axis=0).astype(float)
    params, step = rng.normal(size=(2, d + 1)) * 0.3
    params[0], step[0] = 3e-13, 1e-13
    rows = sparse.csr_matrix(X) if layout == "csr" else X
    counts, codes = rng.poisson(1.0, 1500).astype(float), rng.integers(0, 2, 1500).astype(np.int32)
    for y, loss, objective in (
        (counts, Loss(poisson=True), PoissonObjective()),
        (codes, Loss(logistic=True), LogisticObjective(classes=(0, 1))),
    ):
        dense = layout != "csr"
        swept = sweep(rows, y, params, loss, weight=weight, bends=True, gram=dense, centre=centre if dense else None)
        margin = X.astype(float) @ params[:-1] + params[-1]
        bend = np.exp(margin) if loss.poisson else 0.25 / np.cosh(0.5 * margin) ** 2
        np.testing.assert_allclose(swept.bends, weight * bend, rtol=1e-9)
        if swept.gram is not None:
            wide = np.column_stack([X - centre, np.ones(1500)])
            gram = (wide * (weight * bend)[:, None]).T @ wide
            root = np.sqrt(np.diag(gram))
            assert np.abs((swept.gram - gram) / np.outer(root, root)).max() < 1e-6
        block, change = Block(X=rows, y=y, sample_weight=weight), X.astype(float) @ step[:-1] + step[-1]
        sums = drift_sums(rows, y, params, step, loss, weight=weight)
        there = [objective.directional_curvature(block, (params - t * step)[None], step[None]) for t in (0.0, 0.5, 1.0)]
        part = weight * there[0]
        np.testing.assert_allclose(sums[:3], [part.sum(), part @ np.abs(change), part @ part], rtol=1e-6)
        np.testing.assert_allclose(sums[3:6:2], [weight @ there[1], weight @ there[2]], rtol=1e-6)
        np.testing.assert_allclose(sums[6], weight @ np.abs(there[2] - there[0]), rtol=1e-6)
