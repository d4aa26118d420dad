from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tithe.core.parallel import limit_threads
from tithe.odm.kernels.linear import margin_sweep

MU, THETA = 0.4, 0.3


def _problem(n: int, d: int, n_classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    y = rng.integers(0, n_classes, n).astype(np.int32)
    params = rng.normal(size=(1 if n_classes == 2 else n_classes, d + 1)) * 2.0 / np.sqrt(d)
    return X, y, params, rng.exponential(size=n)


def _by_hand(X, y, params, u, n_classes):
    design = np.column_stack([X, np.ones(len(X))])
    scores = design @ params.T
    if n_classes == 2:
        toward = (2.0 * y - 1.0)[:, None]
    else:
        others = np.where(np.eye(n_classes, dtype=bool)[y], -np.inf, scores)
        toward = np.eye(n_classes)[y] - np.eye(n_classes)[others.argmax(axis=1)]
    margin = (toward * scores).sum(axis=1)
    below, above = np.maximum(0.0, 1.0 - THETA - margin), np.maximum(0.0, margin - 1.0 - THETA)
    sides = np.array(
        [
            [((slope * u * (y == c))[:, None] * toward).T @ design for c in range(n_classes)]
            for slope in (-2.0 * below, 2.0 * MU * above)
        ]
    )
    bend = 2.0 * (below > 0.0) + 2.0 * MU * (above > 0.0)
    return below, above, sides, ((bend * u)[:, None] * toward**2).T @ design**2


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("d", [1, 5, 80])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_sweep_equals_the_formulas(n_classes: int, d: int, layout: str) -> None:
    X, y, params, u = _problem(2500, d, n_classes)
    below, above, sides, diagonal = _by_hand(X, y, params, u, n_classes)
    rows = sparse.csr_matrix(X) if layout == "csr" else X
    given = {"n_classes": n_classes, "mu": MU, "theta": THETA, "weight": u}
    cost, sums = margin_sweep(rows, y, params, **given, diagonal=True, by_class=True)
    np.testing.assert_allclose(cost, below**2 + MU * above**2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sums.count, np.bincount(y, u, n_classes), rtol=1e-12)
    np.testing.assert_allclose(sums.loss[0], np.bincount(y, u * below**2, n_classes), rtol=1e-10)
    np.testing.assert_allclose(sums.loss[1], np.bincount(y, u * MU * above**2, n_classes), rtol=1e-10)
    np.testing.assert_allclose(sums.sides, sides, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sums.diagonal, diagonal, rtol=1e-9, atol=1e-9)
    together = margin_sweep(rows, y, params, **given, cost=False)
    assert together[0] is None and together[1].diagonal is None
    np.testing.assert_allclose(together[1].gradient, sides.sum(axis=(0, 1)), rtol=1e-9, atol=1e-9)


def test_curvature_is_taken_about_the_centre() -> None:
    X, y, params, u = _problem(3000, 4, 3)
    X += 1000.0
    params[:, -1] -= 1000.0 * params[:, :-1].sum(axis=1)
    centre = X.mean(axis=0)
    moved = params.copy()
    moved[:, -1] += params[:, :-1] @ centre
    given = {"n_classes": 3, "mu": MU, "theta": THETA, "weight": u, "diagonal": True}
    _, far = margin_sweep(X, y, params, **given, centre=centre)
    _, near = margin_sweep(X - centre, y, moved, **given)
    np.testing.assert_allclose(far.diagonal, near.diagonal, rtol=1e-8)


def test_two_classes_with_a_score_each_are_one_with_their_difference() -> None:
    X, y, params, u = _problem(3000, 4, 2)
    given = {"n_classes": 2, "mu": MU, "theta": THETA, "weight": u}
    one, sums = margin_sweep(X, y, params, **given)
    two, both = margin_sweep(X, y, np.vstack([-0.5 * params, 0.5 * params]), **given)
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(sums.gradient[0], both.gradient[1], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(both.gradient[0], -both.gradient[1], rtol=1e-9, atol=1e-10)


def test_a_band_without_an_upper_side_pulls_nothing_back() -> None:
    X = np.array([[100.0], [1.0], [-3.0]])
    cost, sums = margin_sweep(X, np.ones(3, np.int32), np.array([[1.0, 0.0]]), n_classes=2, mu=0.0, theta=0.0)
    np.testing.assert_array_equal(cost, [0.0, 0.0, 16.0])
    np.testing.assert_array_equal(sums.gradient, [[24.0, -8.0]])


def test_sums_of_parts_add_up_and_no_rows_are_nothing() -> None:
    X, y, params, u = _problem(4000, 6, 3)
    given = {"n_classes": 3, "mu": MU, "theta": THETA, "diagonal": True}
    _, whole = margin_sweep(X, y, params, **given, weight=u)
    parts = [
        margin_sweep(X[a:b], y[a:b], params, **given, weight=u[a:b])[1] for a, b in ((0, 0), (0, 900), (900, 4000))
    ]
    total = parts[0] + parts[1] + parts[2]
    for name in ("count", "loss", "gradient", "diagonal"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.bits
def test_any_number_of_threads_gives_the_same_bits(n_classes: int, layout: str) -> None:
    X, y, params, u = _problem(150_000, 6, n_classes)
    rows = sparse.csr_matrix(X) if layout == "csr" else X.astype(np.float32)
    results = []
    for n in (1, 2, 3):
        with limit_threads(n):
            results.append(
                margin_sweep(rows, y, params, n_classes=n_classes, mu=MU, theta=THETA, weight=u, diagonal=True)
            )
    for cost, sums in results[1:]:
        assert np.array_equal(cost, results[0][0])
        assert np.array_equal(sums.sides, results[0][1].sides)
        assert np.array_equal(sums.diagonal, results[0][1].diagonal)
