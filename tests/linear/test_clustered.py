from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans

from tithe import CoresetStream
from tithe.core.data import Block
from tithe.linear import cablr
from tithe.linear.cablr import Acvs, Cablr
from tithe.linear.logistic_objective import LogisticObjective
from tithe.testing import construction_checks

BINARY = LogisticObjective(classes=(0.0, 1.0))
CHECKS = [
    pytest.param(check, id=name)
    for name, check in construction_checks(Acvs(n_clusters=3, radius=0.1, sample_size=60), BINARY)
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


def _problem(n: int, n_classes: int, *, rare: float | None = None, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < rare).astype(int) if rare else rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, 4)) + 0.7 * rng.normal(size=(n_classes, 4))[y]
    return Block(X=X, y=y)


def _draw(construction, objective, block: Block, size: int, seed: int) -> Block:
    return construction.reduce(block, objective, size, pilot=None, survey=None, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("thin", [False, True])
def test_no_class_vanishes(thin) -> None:
    block = _problem(30_000, 2, rare=1e-4)
    block = Block(X=sparse.csr_matrix(block.X) if thin else block.X, y=block.y)
    objective = LogisticObjective(classes=(0, 1))
    ready = Acvs(radius=0.3).prepare(block, objective, rng=np.random.default_rng(0))
    for seed in range(20):
        drawn = _draw(ready, objective, block, 100, seed)
        assert set(drawn.y.tolist()) == {0, 1} and len(drawn) <= 100
        assert drawn.weights()[drawn.y == 1].sum() == pytest.approx(block.y.sum())


def test_many_classes_are_unbiased() -> None:
    block = _problem(2000, 5)
    objective = LogisticObjective(classes=tuple(range(5)))
    ready = Acvs(n_clusters=2, radius=0.3).prepare(block, objective, rng=np.random.default_rng(0))
    values = np.abs(block.X).sum(axis=1)
    errors = []
    for seed in range(400):
        drawn = _draw(ready, objective, block, 60, seed)
        parts = np.bincount(drawn.y, weights=drawn.weights() * values[drawn.row_ids()], minlength=5)
        errors.append(parts / np.bincount(block.y, weights=values) - 1.0)
    errors = np.array(errors)
    assert np.all(np.abs(errors.mean(axis=0)) < 4.5 * errors.std(axis=0) / np.sqrt(len(errors)))


def test_notes_and_radius() -> None:
    block = _problem(3000, 2)
    objective = LogisticObjective(classes=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = _draw(Cablr(radius=0.2), objective, block, 100, 0)
    assert drawn.notes is not None and drawn.notes["radius"] == 0.2 and drawn.notes["n_clusters"] == 6
    ready = Cablr(radius=0.2).prepare(block, objective, rng=np.random.default_rng(0))
    again = _draw(ready, objective, block, 100, 0).notes
    assert again["mean_sensitivity"] == pytest.approx(ready.scores(block, objective).sum())
    assert 1.0 <= again["mean_sensitivity"] <= 300.0
    with pytest.warns(UserWarning, match="near useless"):
        pilot = Acvs(radius="pilot").prepare(block, objective, rng=np.random.default_rng(0)).prepared
    assert pilot is not None and 0.0 < pilot.radius < 10.0


def test_useless_sensitivities_are_warned_of() -> None:
    block = _problem(500, 2)
    with pytest.warns(UserWarning, match=r"near useless.*influence"):
        _draw(Cablr(radius=30.0), LogisticObjective(classes=(0, 1)), block, 50, 0)


@pytest.mark.parametrize("name", ["cablr", "acvs"])
def test_a_tree_warns_once(name: str) -> None:
    block = _problem(12_000, 2)
    batches = [(block.X[i : i + 1000], block.y[i : i + 1000]) for i in range(0, 12_000, 1000)]
    construction = {"cablr": Cablr, "acvs": Acvs}[name](radius=30.0)
    stream = CoresetStream(LogisticObjective(classes=(0, 1)), construction, coreset_size=100, leaf_size=1000)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for X, y in batches:
            stream.push(X, y)
        stream.coreset()
    assert len([one for one in said if "near useless" in str(one.message)]) == 1


def test_a_warning_needs_no_more_rows_than_a_leaf_has(monkeypatch) -> None:
    monkeypatch.setattr(cablr, "_WARNING_SAMPLE_ROWS", 600)
    with pytest.warns(UserWarning, match="for 600 rows"):
        Cablr(radius=30.0).prepare(_problem(3000, 2), LogisticObjective(classes=(0, 1)), rng=np.random.default_rng(0))


def test_a_sample_is_enough() -> None:
    block = _problem(60_000, 2)
    assert len(Acvs().clustered_rows(block, np.random.default_rng(0))) == 1500
    assert len(Acvs(n_clusters=1).clustered_rows(block, np.random.default_rng(0))) == 1000
    assert len(Acvs().clustered_rows(block.take(np.arange(5000)), np.random.default_rng(0))) == 300
    objective = LogisticObjective(classes=(0, 1))
    means = []
    for construction in (Acvs(radius=0.5), Cablr(radius=0.5)):
        ready = construction.prepare(block, objective, rng=np.random.default_rng(0))
        means.append(ready.scores(block, objective).sum())
    assert means[0] == pytest.approx(means[1], rel=0.1)


def test_mistakes_are_named() -> None:
    numbers = ({"n_clusters": 0}, {"n_clusters": 2.5}, {"radius": 0.0}, {"radius": "large"}, {"sample_size": 0})
    for wrong in (*numbers, {"repair": "x"}, {"certified": "no"}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            Acvs(**wrong)
    with pytest.raises(ValueError, match="prepare"):
        Cablr().scores(_problem(10, 2), BINARY)
    with pytest.raises(ValueError, match="as many rows as classes"):
        _draw(Cablr(radius=0.1), LogisticObjective(classes=(0, 1)), _problem(100, 2), 1, 0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_given_clusters_and_other_algorithms_bound_the_sensitivities(n_classes: int) -> None:
    """A bound of the sensitivity whatever the clusters: s_n >= u f_n / f for parameters within the radius."""
    block, objective = _problem(300, n_classes), LogisticObjective(classes=tuple(range(n_classes)))
    rng, radius = np.random.default_rng(0), 0.8
    given = block.X[:5].copy()
    ways = [given, KMeans(4, n_init=1), AgglomerativeClustering(4), DBSCAN(eps=1.2)]
    found = [Cablr(clusters=way, radius=radius).prepare(block, objective, rng=rng) for way in ways]
    counts = {id(way): len(ready.prepared.clusters) for way, ready in zip(ways, found, strict=True)}
    assert counts[id(given)] == (10 if n_classes == 2 else 15)
    assert counts[id(ways[1])] == counts[id(ways[2])] == (4 if n_classes == 2 else 12)
    for ready in found:
        scores = ready.scores(block, objective)
        for _ in range(30):
            theta = rng.normal(size=(objective.n_scores, 5))
            theta *= radius / (2.0 if n_classes > 2 else 1.0) / np.linalg.norm(theta)
            cost = objective.cost(block, theta)
            assert (scores >= cost / cost.sum()).all()
    sample = LogisticObjective(classes=tuple(range(n_classes)))
    drawn = _draw(Acvs(clusters=given, radius=0.3), sample, block, 60, 0)
    assert drawn.weights().sum() == pytest.approx(300.0, rel=0.1)


def test_constructions_with_clusters_are_values() -> None:
    centers = np.arange(6.0).reshape(3, 2)
    assert Cablr(clusters=centers) == Cablr(clusters=centers.copy()) != Cablr(clusters=centers + 1.0)
    assert hash(Cablr(clusters=KMeans(3))) == hash(Cablr(clusters=KMeans(3)))
    assert Cablr() == Cablr(clusters="kmeans") != Acvs()
    with pytest.raises(ValueError, match="clusters must be"):
        Cablr(clusters="means")
    with pytest.raises(ValueError, match="other columns"):
        Cablr(clusters=centers).prepare(_problem(50, 2), BINARY, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="finds no clusters"):
        Cablr(clusters=DBSCAN(eps=1e-9)).prepare(_problem(50, 2), BINARY, rng=np.random.default_rng(0))
