from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tithe.core.data import Scores
from tithe.core.parallel import limit_threads
from tithe.linear import sensitivity_kernels as tiles
from tithe.linear.kernels import linear_scores
from tithe.linear.sensitivity_kernels import Views, cluster_members, cluster_sums, decay_scores
from tithe.reduce.draws import draw_by_class, shared_out


def _views(rng, n_classes: int, k: int, d: int, *, mirrored: bool) -> Views:
    if mirrored:
        sign = np.array([-1.0, 1.0])
        centers = sign[:, None, None] * rng.normal(size=(k, d))
        cluster = np.tile(np.arange(k, dtype=np.int32), (2, 1))
        return Views(centers=centers, extra=rng.random((2, k)), sign=sign, cluster=cluster)
    cluster = np.arange(n_classes * k, dtype=np.int32).reshape(n_classes, k)
    cluster[0] = -1  # a class without centres
    return Views(
        centers=rng.normal(size=(n_classes, k, d)),
        extra=rng.random((n_classes, k)),
        sign=np.ones(n_classes),
        cluster=cluster,
    )


def _squares(X, codes, views) -> np.ndarray:
    return np.square(X[:, None].astype(np.float64) - views.centers[codes]).sum(axis=2) + views.extra[codes]


def test_exponentials_are_exact_to_rounding(rng) -> None:
    x = np.concatenate([-700.0 * rng.random(3000), -rng.random(1000), [0.0, -1e-300, -708.0]])
    got = np.empty_like(x)
    tiles._decay(x * x, len(x), 1.0, got)
    np.testing.assert_allclose(got, np.exp(x), rtol=5e-16)
    tiles._decay(np.array([1e8, np.inf]), 2, 1.0, got)
    assert np.all(got[:2] < 1e-300) and np.all(got[:2] >= 0.0)


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 6, 29])
def test_passes_agree_with_plain_loops(rng, mirrored, dtype, d) -> None:
    n, k, n_classes = 900, 4, 2 if mirrored else 3
    X, codes = rng.normal(size=(n, d)).astype(dtype), rng.integers(0, n_classes, n).astype(np.int32)
    u = rng.integers(0, 4, n).astype(np.float64)
    views = _views(rng, n_classes, k, d, mirrored=mirrored)
    square = _squares(X, codes, views)
    seen = views.cluster[codes, 0] >= 0
    # a sparse row is taken into double precision entry by entry: one type is enough, and each takes seconds to compile
    for rows in (X, sparse.csr_matrix(X)) if dtype is np.float64 else (X,):
        labels, sums = cluster_sums(rows, codes, views, weight=u)
        assert np.array_equal(labels[seen], square.argmin(axis=1)[seen])
        members, more = cluster_members(rows, codes, views, weight=u)
        assert np.array_equal(members[seen], labels[seen])
        whose = views.cluster[codes, labels]
        for c in range(views.n_clusters):
            mine = (whose == c) & seen
            signed = u[mine] * views.sign[codes[mine]]
            expected = [u[mine].sum(), (u * square[np.arange(n), labels])[mine].sum(), signed.sum()]
            np.testing.assert_allclose(sums[c], expected, rtol=1e-12, atol=1e-9)
            np.testing.assert_allclose(more[c, 3:], signed @ X[mine].astype(np.float64), rtol=1e-10, atol=1e-9)
        mass = rng.random(views.n_clusters) * 50.0
        got = decay_scores(rows, codes, views, mass=mass, radius=0.8, labels=None, weight=u)
        held = np.where(seen[:, None], mass[views.cluster[codes]], 0.0)
        rest = (held * np.exp(-0.8 * np.sqrt(square))).sum(axis=1)
        np.testing.assert_allclose(got, np.divide(u, u + rest, out=np.zeros(n), where=u > 0), rtol=1e-12)


def test_distances_neither_cancel_far_from_the_origin_nor_close_to_a_centre(rng) -> None:
    X = 1e6 + rng.normal(size=(400, 3))
    X[:50] = X[0]
    codes = np.ones(400, np.int32)
    centers = np.stack([-X[:3], X[:3]])
    cluster = np.tile(np.arange(3, dtype=np.int32), (2, 1))
    views = Views(centers=centers, extra=np.zeros((2, 3)), sign=np.array([-1.0, 1.0]), cluster=cluster)
    got = decay_scores(X, codes, views, mass=np.ones(3), radius=2.0, labels=None)
    expected = 1.0 / (1.0 + np.exp(-2.0 * np.sqrt(_squares(X, codes, views))).sum(axis=1))
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert np.array_equal(got[:50], np.full(50, got[0]))


@pytest.mark.bits
def test_bits_do_not_depend_on_the_threads(rng) -> None:
    n = 60_000
    X, codes = rng.normal(size=(n, 5)).astype(np.float32), rng.integers(0, 2, n).astype(np.int32)
    views = _views(rng, 2, 3, 5, mirrored=True)
    results = []
    for threads in (1, 3):
        with limit_threads(threads):
            labels, sums = cluster_members(X, codes, views)
            mass = cluster_sums(X, codes, views, radius=0.5)[1]
            scores = decay_scores(X, codes, views, mass=sums[:, 0], radius=0.5, labels=labels)
            drawn = draw_by_class(scores, codes, 500, np.random.default_rng(1))
            results.append((labels, sums, mass, scores, *drawn))
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("norm_coef", [0.0, 0.7])
def test_linear_scores(rng, norm_coef) -> None:
    X, codes = rng.normal(size=(9000, 4)), rng.integers(0, 3, 9000).astype(np.int32)
    coef, bias, scale = rng.normal(size=4), rng.normal(size=3), rng.normal(size=3)
    raw = bias[codes] + scale[codes] * (X @ coef) + norm_coef * np.sqrt((X**2).sum(axis=1) + 1.0)
    for rows in (X, sparse.csr_matrix(X)):
        got, clipped = linear_scores(
            rows, codes, coef=coef, bias=bias, scale=scale, norm_coef=norm_coef, low=-0.5, high=2.0
        )
        np.testing.assert_allclose(got, np.clip(raw, -0.5, 2.0), rtol=1e-12, atol=1e-12)
        assert clipped == np.mean((raw < -0.5) | (raw > 2.0))


def test_every_class_is_drawn_from_and_none_is_biased(rng) -> None:
    n = 20_000
    scores = rng.random(n) * (rng.random(n) < 0.9)
    codes = rng.choice(4, n, p=[0.7, 0.0002, 0.299, 0.0008]).astype(np.int32)
    values = rng.random(n)
    truth = np.array([values[(codes == c) & (scores > 0)].sum() for c in range(4)])
    errors = []
    for seed in range(800):
        positions, weight = draw_by_class(scores, codes, 300, np.random.default_rng(seed))
        assert len(positions) <= 300 and np.all(np.diff(positions) > 0) and np.all(scores[positions] > 0)
        parts = np.bincount(codes[positions], weights=weight * values[positions], minlength=4)
        assert np.all(parts > 0), "a class vanished"
        errors.append(parts / truth - 1.0)
    errors = np.array(errors)
    mean, spread = errors.mean(axis=0), errors.std(axis=0)
    assert np.all(np.abs(mean) <= 4.5 * spread / np.sqrt(len(errors)) + 1e-12)


def test_draws_count_scores_without_writing_them_out(rng) -> None:
    n = 9000
    cost, weight = rng.random(n), rng.random(n)
    codes = rng.integers(0, 2, n).astype(np.int32)
    scores = Scores(cost=cost, slope=0.5, base=np.array([0.1]), weight=weight)
    a = draw_by_class(scores, codes, 200, np.random.default_rng(0))
    b = draw_by_class(scores.at(), codes, 200, np.random.default_rng(0))
    assert np.array_equal(a[0], b[0])
    np.testing.assert_allclose(a[1], b[1], rtol=1e-12)


def test_a_small_class_is_kept_whole_and_too_few_draws_are_refused(rng) -> None:
    codes = np.zeros(5000, np.int32)
    codes[[7, 4990]] = 1
    positions, weight = draw_by_class(rng.random(5000), codes, 60, rng)
    assert {7, 4990} <= set(positions.tolist())
    assert np.array_equal(weight[np.isin(positions, [7, 4990])], [1.0, 1.0])
    with pytest.raises(ValueError, match="at least as many rows as classes"):
        draw_by_class(rng.random(30), np.arange(30, dtype=np.int32) % 10, 9, rng)


def test_shares_add_up_and_respect_the_least() -> None:
    shares = shared_out(np.array([1000.0, 1e-9, 30.0, 0.0]), np.array([10, 2, 10, 0]), 100)
    assert shares.tolist() == [88, 2, 10, 0]
    assert shared_out(np.array([1.0, 1.0, 1.0]), np.array([1, 1, 1]), 10).sum() == 10
