from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from tithe import Block, CoresetStream, build_coreset
from tithe.constructions import BallCover
from tithe.core.parallel import limit_threads
from tithe.objectives import KMeansObjective, MarginObjective
from tithe.reduce.kernels import FarthestFirst, leaders
from tithe.testing import construction_checks

TWO, THREE = MarginObjective(classes=(0, 1)), MarginObjective(classes=(0, 1, 2))
PAIRS = [(BallCover(), KMeansObjective(n_clusters=3)), (BallCover(), TWO)]
CHECKS = [
    pytest.param(check, id=f"{c.name}-{o.name}-{name}") for c, o in PAIRS for name, check in construction_checks(c, o)
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


def _rows(n: int = 600, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)), rng.integers(0, 2, n).astype(np.int32)
    X[10:20] = X[0]
    return X, y, rng.integers(0, 4, n).astype(np.float64)


def _z(X, y):
    return (2.0 * y - 1.0)[:, None] * np.column_stack([X, np.ones(len(X))])


def _slow(z, start: int, size: int):
    """Farthest first as it is written down: positions and radii."""
    centres, best, radii = [start], cdist(z, z[[start]])[:, 0], []
    while True:
        radii.append(best.max())
        if len(centres) == size or best.max() == 0.0:
            return centres, radii
        centres.append(int(best.argmax()))
        best = np.minimum(best, cdist(z, z[[centres[-1]]])[:, 0])


@pytest.mark.parametrize("layout", ["dense", "float32", "csr"])
def test_farthest_first_is_what_is_written_down(layout: str) -> None:
    X, y, _ = _rows()
    X = np.round(X, 3).astype(np.float32 if layout == "float32" else np.float64)
    X[np.abs(X) < 0.5] = 0.0
    rows = sparse.csr_matrix(X) if layout == "csr" else X
    cover = FarthestFirst(rows, signs=2.0 * y - 1.0, constant=1.0, start=5).grow(size=200)
    z = _z(X.astype(np.float64), y)
    centres, radii = _slow(z, 5, 200)
    assert cover.centres == centres
    np.testing.assert_allclose(cover.radii, radii, rtol=1e-6, atol=1e-7)
    apart = cdist(z, z[centres])
    np.testing.assert_allclose(apart[np.arange(len(z)), cover.nearest], apart.min(axis=1), atol=1e-7)


def test_prefixes_are_nested_and_growing_goes_on() -> None:
    X, y, weight = _rows()
    start = int(np.flatnonzero(weight)[0])
    given = {"signs": 2.0 * y - 1.0, "constant": 1.0, "weight": weight, "start": start}
    long, steps = FarthestFirst(X, **given).grow(size=120), FarthestFirst(X, **given)
    for size in (7, 30, 120):
        steps.grow(size=size)
        assert steps.centres == long.centres[:size]
        assert steps.weights().sum() == weight.sum()
    short = FarthestFirst(X, **given).grow(radius=1.0)
    assert short.centres == long.centres[: len(short.centres)] and short.radius <= 1.0 < short.radii[-2]
    np.testing.assert_array_equal(short.radii, long.radii[: len(short.radii)])


@pytest.mark.parametrize("leader", [False, True])
@pytest.mark.parametrize("radius", [0.0, 0.4, 1.5])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_every_row_is_within_the_radius_and_weights_are_exact(leader: bool, radius: float, layout: str) -> None:
    X, y, weight = _rows()
    rows = sparse.csr_matrix(X) if layout == "csr" else X
    block = Block(X=rows, y=y, sample_weight=weight)
    cover = BallCover(radius=radius, leader=leader)
    drawn = cover.reduce(block, TWO, 600, pilot=None, survey=None, rng=np.random.default_rng(0))
    assert drawn.weights().sum() == weight.sum()
    ids = drawn.row_ids()
    z = _z(X, y)
    assert cdist(z[weight > 0.0], z[ids]).min(axis=1).max() <= radius * (1 + 1e-9) + 1e-7
    between = cdist(z[ids], z[ids]) + np.diag(np.full(len(ids), np.inf))
    assert between.min() > radius * (1 - 1e-9)
    assert (weight[ids] > 0.0).all()
    for c in (0, 1):  # r < 2: classes do not mix
        assert drawn.weights()[y[ids] == c].sum() == weight[y == c].sum()
    if radius == 0.0:
        assert len(ids) == len(np.unique(z[weight > 0.0], axis=0))


def test_more_classes_never_cover_each_other() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 3, 300).astype(np.int32)
    block = Block(X=X, y=y)
    for cover in (BallCover(), BallCover(radius=100.0), BallCover(radius=0.5, leader=True)):
        drawn = cover.reduce(block, THREE, 20, pilot=None, survey=None, rng=rng)
        for c in range(3):
            assert drawn.weights()[drawn.y == c].sum() == (y == c).sum()
    for cover in (BallCover(), BallCover(radius=0.5, leader=True)):
        with pytest.raises(ValueError, match="classes"):
            cover.reduce(block, THREE, 2, pilot=None, survey=None, rng=rng)


@pytest.mark.parametrize("radius", [0.0, 1e-3])
def test_leaders_double_their_radius_where_there_are_too_many(radius: float) -> None:
    X, _, weight = _rows()
    ids, mass, reach = leaders(X, radius=radius, most=25, weight=weight)
    assert len(ids) <= 25 and mass.sum() == weight.sum() and reach > radius
    assert cdist(X[weight > 0.0], X[ids]).min(axis=1).max() <= reach


@pytest.mark.bits
def test_any_number_of_threads_gives_the_same_cover() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 4)).astype(np.float32)
    results = []
    for n in (1, 2, 3):
        with limit_threads(n):
            cover = FarthestFirst(X).grow(size=60)
            results.append((cover.centres, cover.radii, cover.nearest.copy()))
    for other in results[1:]:
        assert other[0] == results[0][0] and other[1] == results[0][1]
        assert np.array_equal(other[2], results[0][2])


def test_coresets_and_streams_by_name() -> None:
    X, y, _ = _rows(4000, 2)
    small = build_coreset(X, y, objective=TWO, construction="ball_cover", coreset_size=200, calibrate=False)
    assert len(small) == 200 and small.weights().sum() == 4000.0
    assert 0.0 < small.provenance["cover_radius"] < 1.0
    stream = CoresetStream(
        TWO, construction=BallCover(radius=0.3, leader=True), coreset_size=500, leaf_size=1000, calibrate=False
    )
    whole = stream.push(X, y).coreset()
    assert len(whole) <= 500 and whole.weights().sum() == 4000.0


def test_rows_that_are_all_alike_need_one_centre() -> None:
    drawn = BallCover().reduce(
        Block(X=np.ones((50, 2))), KMeansObjective(), 10, pilot=None, survey=None, rng=np.random.default_rng(0)
    )
    assert len(drawn) == 1 and drawn.weights()[0] == 50.0


@pytest.mark.parametrize("bad", [-1.0, np.inf, np.nan, "x", True])
def test_bad_radii(bad) -> None:
    with pytest.raises(ValueError, match="radius must be"):
        BallCover(radius=bad)
    with pytest.raises(ValueError, match="leader must be True or False"):
        BallCover(radius=1.0, leader="no")
    with pytest.raises(ValueError, match="needs a radius"):
        BallCover(leader=True)
