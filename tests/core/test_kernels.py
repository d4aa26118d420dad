from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.metrics import pairwise_distances

from tithe.clustering.kernels import assign, dz_seeds
from tithe.core.labels import count_codes
from tithe.core.parallel import add_parts, column_sums, limit_threads, over_parts, part_rows, single_blas_thread
from tithe.reduce.kernels import draw, locate_draws


def brute(X: np.ndarray, C: np.ndarray, u: np.ndarray, power: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = X.astype(np.float64)
    distances = np.array([[np.linalg.norm(x - c) ** power for c in C] for x in X])
    labels, cost = distances.argmin(1), distances.min(1)
    sums = np.zeros((len(C), 4 + X.shape[1]))
    for x, c, f, w in zip(X, labels, cost, u, strict=True):
        r = 1.0 if power == 2 else (1.0 / f if f > 0 else 0.0)
        sums[c] += np.concatenate([[w, w * f, w * r, w * (power == 1 and f == 0)], w * r * (x - C[c])])
    return labels, cost, sums


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("kind", ["float32", "float64", "csr32", "csr64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_assign_equals_brute_force(rng: np.random.Generator, power: int, kind: str, weighted: bool) -> None:
    X = rng.normal(size=(300, 7)).round(2).astype(np.float32 if "32" in kind else np.float64)
    C = rng.normal(size=(5, 7)).round(2).astype(X.dtype).astype(np.float64)
    C[2] = X[11]
    u = rng.random(300) if weighted else None
    labels, cost, sums = assign(sparse.csr_matrix(X) if "csr" in kind else X, C, weight=u, power=power, with_sums=True)
    want = brute(X, C, np.ones(300) if u is None else u, power)
    tolerance = 1e-5 if "32" in kind else 1e-10
    np.testing.assert_array_equal(labels, want[0])
    np.testing.assert_allclose(cost, want[1], rtol=tolerance, atol=1e-7)
    if power == 2:
        sums[:, 3] = 0.0
    np.testing.assert_allclose(sums, want[2], rtol=tolerance, atol=tolerance)
    assert cost[11] == 0.0


def test_assign_without_sums_is_the_same(rng: np.random.Generator) -> None:
    X, C = rng.normal(size=(5000, 6)), rng.normal(size=(9, 6))
    a, b = assign(X, C, with_sums=True), assign(X, C)
    assert b[2] is None
    np.testing.assert_array_equal(a[0], b[0])
    np.testing.assert_allclose(a[1], b[1], rtol=1e-14)


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_assign_at_any_scale(rng: np.random.Generator, scale: float, dtype: type) -> None:
    X = (rng.normal(size=(400, 3)) * scale).astype(dtype)
    C = X[:6].astype(np.float64)
    labels, cost, _ = assign(X, C, with_sums=True)
    exact = pairwise_distances(X.astype(np.float64) / scale, C / scale, metric="sqeuclidean")
    np.testing.assert_allclose(cost / scale / scale, exact.min(1), rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(exact[np.arange(400), labels], exact.min(1), rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_assign_far_from_the_origin(rng: np.random.Generator, dtype: type) -> None:
    """An offset of a million costs no more digits than storing the rows did."""
    X = (rng.normal(size=(400, 3)) + 1e6).astype(dtype)
    C = X[:6].astype(np.float64)
    _, cost, _ = assign(X, C, with_sums=True)
    shifted = pairwise_distances(X.astype(np.float64) - 1e6, C - 1e6, metric="sqeuclidean").min(1)
    np.testing.assert_allclose(cost, shifted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clusters_at_two_scales(rng: np.random.Generator, dtype: type) -> None:
    """Scores of single precision cannot tell centres apart that are close together and far from the others."""
    C = np.array([[0.0, 0.0], [1e6, 1e6], [1e6 + 20, 1e6]])
    X = np.repeat(C, 300, axis=0) + rng.normal(size=(900, 2))
    X = X.astype(dtype)
    labels, cost, _ = assign(X, C, with_sums=True)
    exact = pairwise_distances(X.astype(np.float64), C, metric="sqeuclidean")
    np.testing.assert_array_equal(labels, exact.argmin(1))
    np.testing.assert_allclose(cost, exact.min(1), rtol=1e-4, atol=1e-2)


def test_csr_far_from_the_origin(rng: np.random.Generator) -> None:
    X = rng.normal(scale=0.05, size=(300, 3)) + 1e6
    C = X[:4].copy()
    np.testing.assert_allclose(assign(sparse.csr_matrix(X), C)[1], assign(X, C)[1], rtol=1e-6)


def test_a_wild_row_among_tame_ones_finds_its_centre(rng: np.random.Generator) -> None:
    X = rng.normal(size=(100, 2)).astype(np.float32)
    X[5] = (3e25, -3e25)
    C = np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, 0.0]])
    labels, cost, _ = assign(X, C)
    assert labels[5] == 0
    assert np.isfinite(cost).all()


@pytest.mark.parametrize("csr", [False, True])
@pytest.mark.bits
def test_threads_do_not_change_a_bit(rng: np.random.Generator, csr: bool) -> None:
    X, C, u = rng.normal(size=(60_000, 5)), rng.normal(size=(40, 5)), rng.random(60_000)
    rows = sparse.csr_matrix(X) if csr else X
    results = []
    for n in (1, 2, 5):
        with limit_threads(n):
            results.append((*assign(rows, C, weight=u, with_sums=True), column_sums(rows, u)))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert np.array_equal(a, b)


def test_column_sums_and_not_finite(rng: np.random.Generator) -> None:
    X, u = rng.normal(size=(50_000, 4)), rng.random(50_000)
    np.testing.assert_allclose(column_sums(X, u), u @ X, rtol=1e-12)
    np.testing.assert_allclose(column_sums(sparse.csr_matrix(X), u), u @ X, rtol=1e-12)
    for bad in (np.nan, np.inf, -np.inf):
        X[49_999, 2] = bad
        assert not np.isfinite(column_sums(X)[2])
        assert np.isfinite(column_sums(X)[1])


def test_add_parts_is_compensated() -> None:
    assert add_parts(np.array([[1e16], [1.0], [-1e16]]))[0] == 1.0


def test_parts_stay_within_memory() -> None:
    assert -(-(10**9) // part_rows(10**9, 8 * 1000 * 784)) <= 11
    assert part_rows(10, 8) >= 10


class TestDraw:
    def test_mean_counts_are_exact(self) -> None:
        score = np.array([1.0, 0.0, 3.0, 6.0])
        counts = np.zeros(4)
        for seed in range(3000):
            results, total = locate_draws(score, 5, np.random.default_rng(seed))
            counts += np.bincount(results, minlength=4)
            assert total == 10.0
        assert counts[1] == 0
        np.testing.assert_allclose(counts / 3000, 5 * score / 10, atol=0.05)

    def test_stratified_counts_never_stray_by_two(self, rng: np.random.Generator) -> None:
        score = rng.random(20_000)
        results, total = locate_draws(score, 700, rng)
        edges = np.linspace(0, 20_000, 11).astype(int)
        got = np.histogram(results, bins=edges)[0]
        want = np.array([score[a:b].sum() for a, b in itertools.pairwise(edges)]) * 700 / total
        assert np.abs(got - want).max() < 2

    def test_weights_add_up(self, rng: np.random.Generator) -> None:
        score = rng.random(30_000) ** 4
        rows, weight = draw(score, 1000, rng)
        assert np.all(np.diff(rows) > 0)
        np.testing.assert_allclose((weight * score[rows]).sum(), score.sum(), rtol=1e-12)

    def test_rows_with_a_score_of_one_draw_or_more_are_kept_with_their_own_weight(self) -> None:
        """The largest rows of a heavy tail were drawn 0 to 3 times by chance, and most of the cost with them."""
        score = np.random.default_rng(5).pareto(1.1, size=5000)
        largest = np.argsort(score)[::-1]
        estimates = []
        for seed in range(400):
            rows, weight = draw(score, 60, np.random.default_rng(seed))
            assert len(rows) <= 60
            of_row = dict(zip(rows.tolist(), weight.tolist(), strict=True))
            # the second is large enough only once the first is kept
            assert of_row[int(largest[0])] == of_row[int(largest[1])] == 1.0
            assert (weight * score[rows]).sum() == pytest.approx(score.sum(), rel=1e-12)
            estimates.append(weight.sum())
        spread = np.std(estimates) / np.sqrt(400)
        assert abs(np.mean(estimates) - 5000.0) < 4.0 * spread

    def test_few_rows_with_a_score_are_all_kept(self) -> None:
        score = np.zeros(10_000)
        score[[3, 5000, 9000]] = 1.0, 2.0, 3.0
        rows, weight = draw(score, 4, np.random.default_rng(0))
        assert rows.tolist() == [3, 5000, 9000] and weight.tolist() == [1.0, 1.0, 1.0]

    def test_a_block_that_ends_in_zeros(self) -> None:
        score = np.zeros(10_000)
        score[4000] = 1.0
        assert set(locate_draws(score, 50, np.random.default_rng(0))[0]) == {4000}

    @pytest.mark.parametrize("bad", [np.zeros(3), np.array([np.nan, 1.0]), np.array([np.inf, 1.0])])
    def test_no_scores_to_draw_by(self, bad: np.ndarray) -> None:
        with pytest.raises(ValueError, match="Rescale"):
            draw(bad, 2, np.random.default_rng(0))


class TestSeeding:
    @pytest.mark.parametrize("power", [1, 2])
    @pytest.mark.parametrize("csr", [False, True])
    def test_second_centre_follows_the_law(self, power: int, csr: bool) -> None:
        """After a given first centre the next is row i with probability u_i d_i^z / sum."""
        X = np.array([[0.0], [1.0], [3.0], [7.0]])
        u = np.array([1.0, 2.0, 1.0, 0.5])
        rows = sparse.csr_matrix(X) if csr else X
        hits = np.zeros(4)
        n = 4000
        for seed in range(n):
            seeds = dz_seeds(rows, 2, weight=u, power=power, rng=np.random.default_rng(seed), given=X[:1])
            hits[np.flatnonzero(X[:, 0] == seeds[1, 0])[0]] += 1
        law = u * np.abs(X[:, 0]) ** power
        assert hits[0] == 0
        assert stats.chisquare(hits[1:], n * law[1:] / law.sum()).pvalue > 1e-4

    @pytest.mark.parametrize("offset", [0.0, 1e6])
    def test_stops_when_points_run_out(self, offset: float) -> None:
        X = np.repeat(np.arange(3.0)[:, None], 50, axis=0).astype(np.float32) + np.float32(offset)
        for rows in (X, sparse.csr_matrix(X.astype(np.float64))):
            seeds = dz_seeds(rows, 10, rng=np.random.default_rng(0), n_trials=3)
            assert sorted(seeds.ravel().tolist()) == [offset, offset + 1, offset + 2]

    def test_trials_help(self, rng: np.random.Generator) -> None:
        X = np.concatenate([rng.normal(c, 0.1, size=(50, 2)) for c in rng.normal(scale=9, size=(12, 2))])
        cost = {
            trials: np.mean(
                [assign(X, dz_seeds(X, 12, rng=np.random.default_rng(s), n_trials=trials))[1].sum() for s in range(20)]
            )
            for trials in (1, 4)
        }
        assert cost[4] < cost[1]


class TestThreads:
    def test_every_part_once_and_errors_arrive(self) -> None:
        seen: list[int] = []
        over_parts(lambda a, b: seen.extend(range(a, b)), 37)
        assert sorted(seen) == list(range(37))

        def fail(a: int, b: int) -> None:
            raise RuntimeError("broken part")

        with pytest.raises(RuntimeError, match="broken part"):
            over_parts(fail, 8)

    def test_blas_threads_come_back(self) -> None:
        from threadpoolctl import threadpool_info

        def blas() -> list[int]:
            return [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]

        before = blas()
        with single_blas_thread(), single_blas_thread():
            assert set(blas()) <= {1}
        assert blas() == before


@pytest.mark.parametrize("n_classes", [2, 8, 9])
def test_count_codes_counts_strange_ones_apart(rng: np.random.Generator, n_classes: int) -> None:
    codes = rng.integers(-1, n_classes + 1, size=200_000).astype(np.int32)
    expected = [*(np.sum(codes == c) for c in range(n_classes)), np.sum((codes < 0) | (codes >= n_classes))]
    assert count_codes(codes, n_classes).tolist() == expected
    assert count_codes(codes[:0], n_classes).tolist() == [0] * (n_classes + 1)


@pytest.mark.parametrize("score", [0.0, 5e-324, 1e-310, 1e308])
def test_scores_whose_total_has_lost_digits_are_refused(score: float) -> None:
    with pytest.raises(ValueError, match="overflow or vanish in double precision"):
        draw(np.full(15, score), 10, np.random.default_rng(0))
