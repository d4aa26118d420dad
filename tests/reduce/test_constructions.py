from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from tithe import Block
from tithe.constructions import Influence, Leverage, Lightweight, Rings, Sensitivity, Uniform
from tithe.core.contracts import Construction, Objective, SensitivityObjective
from tithe.core.parallel import limit_threads
from tithe.objectives import DictionaryObjective, GenericObjective, KMeansObjective, KMedianObjective, LogisticObjective
from tithe.testing import check_construction, construction_checks
from tithe.testing.checks import small_problem

OBJECTIVES = [KMeansObjective(n_clusters=3), KMedianObjective(n_clusters=3)]
PAIRS = [(c, o) for o in OBJECTIVES for c in (Uniform(), Sensitivity(), Lightweight(), Rings())]
PAIRS += [(c, LogisticObjective(classes=(0, 1))) for c in (Uniform(), Leverage(), Influence())]
PAIRS += [(c, GenericObjective()) for c in (Uniform(), Sensitivity(), Lightweight())]
CHECKS = [
    pytest.param(check, id=f"{c.name}-{o.name}-{name}") for c, o in PAIRS for name, check in construction_checks(c, o)
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


@dataclass(frozen=True, kw_only=True)
class _WithoutReplacement(Construction):
    """The common mistake: rows without replacement, weighted as if with replacement."""

    name: ClassVar[str] = "mistaken"
    requires: ClassVar[tuple[type[Objective], ...]] = (SensitivityObjective,)
    needs_pilot: ClassVar[bool] = True
    needs_survey: ClassVar[bool] = True

    def reduce(self, block, objective, size, *, pilot, survey, rng) -> Block:
        score = objective.sensitivity(block, survey).at()
        p = score / score.sum()
        rows = np.sort(rng.choice(len(block), size, replace=False, p=p))
        return block.take(rows, block.weights()[rows] / (size * p[rows]))


def test_the_suite_catches_a_biased_construction() -> None:
    with pytest.raises(AssertionError, match="unbiased"):
        check_construction(_WithoutReplacement())


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("weighted", [False, True])
def test_ring_weights_are_exact(objective, weighted: bool) -> None:
    block = small_problem(600, weighted=weighted)
    rings = Rings()
    pilot = rings.pilot(block, objective, rng=np.random.default_rng(0))
    survey = objective.survey(block, pilot)
    ring, _ = rings.ring_of(block, survey, objective.power)
    drawn = rings.reduce(block, objective, 120, pilot=None, survey=survey, rng=np.random.default_rng(0))
    for number in np.unique(ring):
        inside = ring[drawn.row_ids()] == number
        assert drawn.weights()[inside].sum() == pytest.approx(block.weights()[ring == number].sum(), rel=1e-12)


def test_rings_expect_the_exact_cost_in_closed_form() -> None:
    """E[cost] = sum over rings of W_ring times the ring's mean cost, which is the full cost."""
    block = small_problem(600)
    objective, rings = KMeansObjective(n_clusters=3), Rings()
    survey = objective.survey(block, objective.pilot(block, rng=np.random.default_rng(0)))
    ring, u = rings.ring_of(block, survey, 2)[0], block.weights()
    cost = objective.cost(block, block.X[:3])
    mass = np.bincount(ring, weights=u)
    mean = np.divide(np.bincount(ring, weights=u * cost), mass, out=np.zeros_like(mass), where=mass > 0)
    assert mass @ mean == pytest.approx(u @ cost, rel=1e-12)


def test_too_many_rings_for_the_size() -> None:
    block = small_problem(600)
    objective, rings = KMeansObjective(n_clusters=3), Rings()
    survey = objective.survey(block, objective.pilot(block, rng=np.random.default_rng(0)))
    with pytest.raises(ValueError, match="rings and only 3 rows"):
        rings.reduce(block, objective, 3, pilot=None, survey=survey, rng=np.random.default_rng(0))


def _ring_draw(rings: Rings, block: Block, objective, size: int) -> Block:
    survey = objective.survey(block, objective.pilot(block, rng=np.random.default_rng(0)))
    return rings.reduce(block, objective, size, pilot=None, survey=survey, rng=np.random.default_rng(0))


def test_draws_per_ring_that_are_asked_for() -> None:
    block, objective = small_problem(600), KMedianObjective(n_clusters=3)
    survey = objective.survey(block, objective.pilot(block, rng=np.random.default_rng(0)))
    ring = Rings().ring_of(block, survey, 1)[0]
    drawn = _ring_draw(Rings(per_ring=7), block, objective, 500)
    for number, count in zip(*np.unique(ring, return_counts=True), strict=True):
        inside = ring[drawn.row_ids()] == number
        assert inside.sum() == count if count <= 7 else inside.sum() <= 7
        assert drawn.weights()[inside].sum() == pytest.approx(block.weights()[ring == number].sum(), rel=1e-12)
    # the number that fits into a size draws the same rows
    size = int(np.minimum(np.bincount(ring), 7).sum())
    assert np.array_equal(_ring_draw(Rings(), block, objective, size).row_ids(), drawn.row_ids())
    with pytest.raises(ValueError, match=f"up to {size} rows, and only {size - 1} may be kept"):
        _ring_draw(Rings(per_ring=7), block, objective, size - 1)


def test_rings_for_an_error_draw_the_number_of_the_theorem() -> None:
    """ln(2 / delta) / (2 eps0^2) draws with eps0 = eps / (4.5 * 16) for one median, and the error is within eps."""
    block, objective = Block(X=np.random.default_rng(0).normal(size=(60_000, 1))), KMedianObjective(n_clusters=1)
    eps, delta = 0.9, 0.2
    drawn = _ring_draw(Rings(eps=eps, delta=delta), block, objective, 60_000)
    survey = objective.survey(block, objective.pilot(block, rng=np.random.default_rng(0)))
    ring = Rings().ring_of(block, survey, 1)[0]
    per_ring = int(np.ceil(np.log(2.0 / delta) * (72.0 / eps) ** 2 / 2.0))
    distinct = drawn.weights()[ring[drawn.row_ids()] == np.bincount(ring).argmax()]
    assert np.bincount(ring).max() > per_ring  # otherwise all rows are kept
    step = np.bincount(ring).max() / per_ring
    assert (distinct / step).sum() == pytest.approx(per_ring)  # each row weighs its draws
    assert np.allclose(distinct / step, np.round(distinct / step))
    query = np.array([[5.0]])
    assert drawn.weights() @ objective.cost(drawn, query) == pytest.approx(objective.cost(block, query).sum(), rel=eps)


def test_rings_refuse_numbers_that_contradict_one_another() -> None:
    for options, message in (
        ({"per_ring": 5, "eps": 0.1}, "give one"),
        ({"delta": 0.1}, "give eps"),
        ({"eps": 1.0}, "eps must be"),
        ({"per_ring": 0}, "per_ring must be"),
        ({"alpha": 0.0}, "alpha must be"),
    ):
        with pytest.raises(ValueError, match=message):
            Rings(**options)
    block = Block(X=np.random.default_rng(0).normal(size=(300, 4)))
    with pytest.raises(ValueError, match="pilot_factor"):
        _ring_draw(Rings(eps=0.5), block, DictionaryObjective(n_components=4), 250)


@pytest.mark.parametrize("construction", [Sensitivity(), Lightweight(), Rings()])
def test_all_points_equal(construction) -> None:
    block = Block(X=np.full((500, 2), 3.0))
    objective = KMeansObjective(n_clusters=3)
    pilot = construction.pilot(block, objective, rng=np.random.default_rng(0))
    drawn = construction.reduce(
        block, objective, 50, pilot=None, survey=objective.survey(block, pilot), rng=np.random.default_rng(0)
    )
    assert drawn.weights().sum() == pytest.approx(500.0)


def test_a_lone_far_point_is_kept() -> None:
    """Uniform sampling of a thousandth misses it almost surely; sensitivities never do."""
    X = np.concatenate([np.random.default_rng(0).normal(size=(20_000, 2)), [[1e4, 1e4]]])
    block, objective = Block(X=X), KMeansObjective(n_clusters=2)
    for construction in (Sensitivity(), Lightweight()):
        pilot = construction.pilot(block, objective, rng=np.random.default_rng(0))
        survey = objective.survey(block, pilot)
        for seed in range(20):
            drawn = construction.reduce(
                block, objective, 40, pilot=None, survey=survey, rng=np.random.default_rng(seed)
            )
            assert 20_000 in drawn.row_ids()


def test_influence_copies_few_rows_of_many_and_draws_the_same_on_any_number_of_threads(monkeypatch) -> None:
    for name, value in {"_MAX_ALL_SCORED": 10_000, "_MIN_SCORED": 30_000, "_SCORED_CHUNK_ROWS": 4096}.items():
        monkeypatch.setattr(f"tithe.reduce.draws.{name}", value)
    X = np.random.default_rng(0).normal(size=(400_000, 8)).astype(np.float32)
    block = Block(X=X, y=(X[:, 0] > 0.3).astype(np.int32))
    objective, pilot = LogisticObjective(classes=(0, 1)), np.zeros((1, 9))
    influence = Influence().prepare(block, objective, rng=np.random.default_rng(0))

    def drawn() -> Block:
        return influence.reduce(block, objective, 500, pilot=pilot, survey=None, rng=np.random.default_rng(1))

    drawn()
    tracemalloc.start()
    chosen = drawn()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 7 * len(block)  # a weight of 8 bytes for every row would be more
    with limit_threads(1):
        alone = drawn()
    assert np.array_equal(chosen.row_ids(), alone.row_ids())
    assert chosen.sample_weight.tobytes() == alone.sample_weight.tobytes()
    assert chosen.total_weight == pytest.approx(len(block), rel=0.05)
