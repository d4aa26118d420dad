"""Private coresets: the promise, the noise, and what the points are worth."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tithe import Block, CoresetKMeans, CoresetKMedians, load_coreset, save_coreset
from tithe.clustering.private import _UNIT, Cells, Noise, _Sums, discrete_gaussian, rho_of
from tithe.constructions import private_coreset
from tithe.rows.npy import NumpySource

PROMISE = {"bounds": (-1, 1), "eps": 1.0, "delta": 1e-6}


def clusters(n: int = 20_000, d: int = 3, k: int = 4, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.uniform(-0.7, 0.7, size=(k, d))[rng.integers(k, size=n)] + 0.08 * rng.normal(size=(n, d))).clip(-1, 1)


def test_noise_is_a_discrete_gaussian() -> None:
    """Frequencies against the chances, by chi squared; 99.9 % of right samplers pass, and the seed is fixed."""
    draw = random.Random(0).randrange
    values = np.array([discrete_gaussian(3, draw) for _ in range(20_000)])
    x = np.arange(-60, 61)
    chance = np.exp(-(x**2) / 18.0)
    chance /= chance.sum()
    inner = np.abs(x) <= 9
    seen = np.array([(values == v).sum() for v in x[inner]])
    want = 20_000 * chance[inner]
    assert ((seen - want) ** 2 / want).sum() < 43.8  # 19 values
    assert abs(values.mean()) < 4 * 3 / 20_000**0.5


@pytest.mark.parametrize("d", [1, 3, 10])
def test_no_row_adds_more_than_the_accountant_says(rng, d: int) -> None:
    """Rows anywhere, also at the corners and beyond the bounds, of any weight: whole numbers within Delta."""
    tree = Cells.whole(-np.ones(d), np.ones(d))
    noisy = np.zeros((1, 1 + 2 * d))
    noisy[0, 0], noisy[0, 1] = 1e6 * _UNIT, 1e5 * _UNIT
    noise = Noise(0.01, 0.01, 8, d)
    tree = tree.split(noisy, noise)
    corners = rng.choice([-1.0, 1.0, 5.0], size=(300, d))
    rows = np.concatenate([corners, rng.uniform(-1, 1, size=(300, d)), rng.normal(size=(300, d)) * 1e20])
    for squares, square in ((True, _UNIT**2 + 2 * d * noise.step**2), (False, _UNIT**2 + d * noise.step**2)):
        for weight in (None, 0.3, 7.0):
            for row in rows[::7]:
                block = Block(X=row[None], sample_weight=None if weight is None else np.array([weight]))
                sums = _Sums(tree, 1.0, squares)(block)
                assert (sums == np.rint(sums)).all() and np.count_nonzero(sums.any(axis=1)) == 1
                assert (sums**2).sum() <= square
    # what all levels and the last pass spend together
    spent = 8 * (_UNIT**2 + 2 * d * noise.step**2) / (2 * noise.of_level**2)
    spent += (_UNIT**2 + d * noise.step**2) / (2 * noise.of_leaf**2)
    assert spent <= 0.02


@pytest.mark.parametrize(("eps", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (5.0, 1e-3)])
def test_the_budget_is_within_the_promise(eps: float, delta: float) -> None:
    """Of a Gaussian mechanism the true delta is known: that of the budget is smaller, and not by much more than ten."""
    from scipy.stats import norm

    mu = math.sqrt(2.0 * rho_of(eps, delta))
    true = norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)
    assert delta / 30 < true <= delta


def test_neighbours_give_outcomes_that_are_hard_to_tell_apart() -> None:
    """The chance of outcomes of two sets that differ by one row: P(S) <= e^eps P'(S) + delta, up to five errors."""
    few = np.full((60, 1), 0.9)
    more = np.concatenate([few, [[-1.0]]])
    noise = Noise(0.0, rho_of(1.0, 1e-3), 0, 1)
    runs, tree = 3000, Cells.whole(-np.ones(1), np.ones(1))

    def outcomes(X: np.ndarray, seed: int) -> np.ndarray:
        sums, draw = _Sums(tree, 1.0, False)(Block(X=X)), random.Random(seed).randrange
        return np.array([noise.added(sums, noise.of_leaf, [0], draw)[0] for _ in range(runs)])

    a, b = outcomes(few, 0), outcomes(more, 1)
    for way in ([1, 0], [0, 1], [1, -1], [-1, 1]):  # the last two are the likelihood ratio and its opposite
        for one, other in ((a @ way, b @ way), (b @ way, a @ way)):
            for level in np.quantile(one, [0.05, 0.2, 0.5, 0.8, 0.95]):
                p, q = (one > level).mean(), (other > level).mean()
                assert p <= math.e * q + 1e-3 + 5 * (math.e + 1) * math.sqrt(max(p, 0.01) / runs)
    # with the same noise the results differ by the row alone
    promise = {**PROMISE, "levels": 0, "random_state": 0}
    difference = private_coreset(np.repeat(more, 9, axis=0)[:-8], **promise).weight_seen
    assert difference - private_coreset(np.repeat(few, 9, axis=0), **promise).weight_seen == pytest.approx(1.0)


def test_centers_are_nearly_as_good_and_no_row_is_inside() -> None:
    X = clusters()
    coreset = private_coreset(X, random_state=0, **PROMISE)
    assert coreset.provenance["construction"] == "private" and 4 <= len(coreset) <= 256
    assert coreset.weights().sum() == pytest.approx(len(X), rel=0.02) and coreset.n_seen != len(X)
    assert not (X[:, None, :] == coreset.X[None]).all(axis=2).any()
    for learner in (CoresetKMeans, CoresetKMedians):
        best = -learner(4, random_state=0).fit(X).score(X)
        model = learner(4, random_state=0).fit(coreset.X, sample_weight=coreset.sample_weight)
        assert -model.score(X) < 1.3 * best


def test_weights_sources_and_files(tmp_path) -> None:
    """A source of the same rows gives the same bits; weights are lowered to the largest; a file keeps the points."""
    X = clusters(5000)
    whole = private_coreset(X, random_state=1, **PROMISE)
    np.save(tmp_path / "rows.npy", X)
    from tithe import open_dataset

    source = open_dataset(tmp_path / "rows.npy")
    assert isinstance(source, NumpySource)
    np.testing.assert_array_equal(private_coreset(source, random_state=1, **PROMISE).X, whole.X)
    heavy = np.full(len(X), 50.0)
    lowered = private_coreset(X, sample_weight=heavy, random_state=1, **PROMISE)
    np.testing.assert_array_equal(lowered.X, whole.X)
    scaled = private_coreset(X, sample_weight=heavy, max_weight=50.0, random_state=1, **PROMISE)
    np.testing.assert_allclose(scaled.weights(), 50.0 * whole.weights())
    save_coreset(whole, tmp_path / "private.parquet")
    np.testing.assert_array_equal(load_coreset(tmp_path / "private.parquet").X, whole.X)


def test_secret_noise_differs_from_run_to_run() -> None:
    X = clusters(2000)
    one, other = (private_coreset(X, levels=1, **PROMISE).weight_seen for _ in range(2))
    assert one != other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": 3}, "bounds"),
        ({"bounds": (1, -1)}, "bounds"),
        ({"bounds": (0, [1, 2])}, "bounds"),
        ({"eps": 0.0}, "eps"),
        ({"delta": 1.0}, "delta"),
        ({"levels": 99}, "levels"),
        ({"eps": 1e-3}, "too few rows"),
    ],
)
def test_what_cannot_be_promised_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        private_coreset(clusters(1000), random_state=0, **{**PROMISE, **options})
