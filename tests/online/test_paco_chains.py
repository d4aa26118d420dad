"""The chains against exact integration: one dimension, up to three centres, eight weighted rows."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

from tithe.online.chain import jump_table, log_ball_density, log_student_constant
from tithe.online.kernels import (
    LATEST,
    NEAR,
    NEWEST,
    SECOND,
    UNIFORM,
    log_birth_density,
    log_proposal,
    look_at_all,
    run_chain,
    swap_chain,
)

LEVELS = np.array([[-1, -1, -1], [1, -1, -1], [0, 2, -1], [0, 1, 2]])
KERNELS = ("birth_death", "symmetric", "paper")
P, RADIUS, BALL, RATE, ETA, TAU = 3, 1.0, 2.0, 3.0, 0.6, 0.6
LOG_BALL = log_ball_density(BALL, 1)
X = np.array([-0.8, -0.7, -0.75, 0.1, 0.15, 0.6, 0.7, 0.9])
_rng = np.random.default_rng(0)
WEIGHT, PREDICTED, CURB = _rng.uniform(0.5, 1.5, 8), _rng.uniform(0.0, 0.3, 8), _rng.uniform(0.0, 1.0, 8)
EDGES = np.array([0.0, 3.0, 6.0, 10.0, 14.0, np.inf]) ** 2 / 900.0  # of the loss at a place where no row is
PLACE = 1.0 / 3.0  # cells of the exact law begin and end there, and at the edges round it


def cost(losses: np.ndarray) -> np.ndarray:
    return (WEIGHT * (losses + CURB / 2 * (losses - PREDICTED) ** 2)).sum(axis=-1)


@cache
def exact_law() -> np.ndarray:
    """P(k, cell of the loss at PLACE) by the midpoint rule: (3, 5)."""
    m = 120  # cells of 1/30
    grid = (np.arange(m) + 0.5) / m * 2 * BALL - BALL
    rows, place = (grid[:, None] - X) ** 2, (grid - PLACE) ** 2
    two, place_two = np.minimum(rows[:, None], rows), np.minimum(place[:, None], place)
    law = np.zeros((3, 5))

    def add(k: int, losses: np.ndarray, at: np.ndarray) -> None:
        mass = np.exp(-RATE * cost(losses) + k * (LOG_BALL - ETA)) * (2 * BALL / m) ** k
        law[k - 1] += np.histogram(at.ravel(), EDGES, weights=mass.ravel())[0]

    add(1, rows, place)
    add(2, two, place_two)
    for i in range(m):
        add(3, np.minimum(two, rows[i]), np.minimum(place_two, place[i]))
    return law / law.sum()


def birth_death_chain(row, seed, past, centers, state, draws, prior, jumps, ratios, *law_and_steps) -> int:
    """Steps of the chain after a row, at a given law; returns how many were accepted."""
    *law, n_steps = law_and_steps
    no_rows, no_numbers, accepted = np.empty((0, centers.shape[1])), np.empty(0), np.empty(1)
    unused = (no_numbers, 1.0)  # what only rows need: the schedule and the decay
    counts = (np.empty(0, np.int64), no_numbers, accepted)
    clock, chance = np.zeros(2), (prior, jumps, ratios)
    steps = np.array(law), n_steps, n_steps
    run_chain(no_rows, row, seed, past, centers, state, clock, draws, *chance, *unused, *steps, *counts)
    return round(accepted[0] * n_steps)


class Sampler:
    """One of the chains on the rows above; what it is told can be told wrong."""

    def __init__(self, kernel: str, *, seed: int = 7, eta: float = ETA, rate: float = RATE, **wrong: bool) -> None:
        self.kernel, self.seed, self.eta, self.rate = kernel, seed, eta, rate
        self.centers, self.state = np.zeros((P, 1)), np.array([len(X), 1, 0, 0])
        columns = np.array([WEIGHT, PREDICTED, CURB, np.zeros(len(X)), np.zeros(len(X))])
        self.past = (X[None].copy(), columns, np.zeros((2, len(X)), np.int32), np.zeros((P, len(X))))
        look_at_all(self.past, self.centers, self.state)
        self.jumps, self.ratios = jump_table(P)
        if wrong.get("no_border_ratio"):
            self.ratios = np.zeros_like(self.ratios)
        self.constant = 0.0 if wrong.get("no_student_constant") else float(log_student_constant(TAU, 1))
        self.draws = np.array([[-0.75], [0.12], [0.73]]), np.full(3, TAU), np.full(3, self.constant), 3, LEVELS
        self.means, self.stamps = np.zeros((P + 1, P, 1)), np.full(P + 1, -1)
        self.prior = np.array([LOG_BALL, BALL, RADIUS])

    def step(self, turn: int, n_steps: int = 10) -> int:
        law = (self.prior, self.jumps, self.ratios, self.rate, self.eta)
        if self.kernel == "birth_death":
            total = WEIGHT.sum()
            return birth_death_chain(
                turn, self.seed, self.past, self.centers, self.state, self.draws, *law, total, n_steps
            )
        # the row stays 0, so that the means do; the seed throws anew
        proposal = (self.means, self.stamps, TAU, self.constant, self.kernel == "symmetric", False)
        return swap_chain(0, self.seed + turn, self.past, self.centers, self.state, *proposal, *law, n_steps)

    def cell(self) -> tuple[int, int]:
        k = int(self.state[1])
        loss = ((self.centers[:k, 0] - PLACE) ** 2).min()
        return k - 1, int(np.searchsorted(EDGES, loss, side="right")) - 1

    def law(self, n: int) -> np.ndarray:
        result = np.zeros((3, 5))
        for turn in range(n):
            self.step(turn)
            result[self.cell()] += 1
        return result / n


def variation(a: np.ndarray, b: np.ndarray) -> float:
    return 0.5 * float(np.abs(a - b).sum())


@pytest.mark.parametrize(
    "kernel", [pytest.param(name, marks=[] if name == "birth_death" else [pytest.mark.slow]) for name in KERNELS]
)
def test_the_law_is_that_of_exact_integration(kernel: str) -> None:
    result, exact = Sampler(kernel).law(20_000), exact_law()
    assert variation(result.sum(axis=1), exact.sum(axis=1)) <= 0.02
    assert variation(result, exact) <= 0.03


def test_the_law_does_not_depend_on_where_births_are_tried() -> None:
    sampler = Sampler("birth_death")
    places = np.concatenate([[-0.75, 0.12, 0.73], np.linspace(-1.5, 1.5, LATEST)])[:, None]  # the last ones apart
    taus = np.linspace(0.1, 0.9, len(places))
    sampler.state[NEWEST] = 2  # a place of its own, where a wrong share would show
    sampler.draws = places, taus, log_student_constant(taus, 1), 2, LEVELS
    assert variation(sampler.law(20_000), exact_law()) <= 0.03


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"eta": ETA + LOG_BALL},  # the ball's density once, not once a centre
        {"eta": 0.0},
        {"no_border_ratio": True},
        {"no_student_constant": True},
    ],
    ids=["no power k", "no eta", "no border ratio", "no Student constant"],
)
def test_a_wrong_law_is_noticed(kernel: str, wrong: dict) -> None:
    assert abs(float(log_student_constant(TAU, 1))) > 0.5  # else its absence could not be seen
    result = Sampler(kernel, **wrong).law(10_000)
    assert variation(result.sum(axis=1), exact_law().sum(axis=1)) > 0.035


@pytest.mark.parametrize("kernel", KERNELS)
def test_flows_between_cells_balance(kernel: str) -> None:
    sampler, flows = Sampler(kernel, seed=11), np.zeros((15, 15))
    for turn in range(1000):
        sampler.step(turn)
    before = np.ravel_multi_index(sampler.cell(), (3, 5))
    for turn in range(1000, 60_000):
        sampler.step(turn, 1)
        after = np.ravel_multi_index(sampler.cell(), (3, 5))
        flows[before, after] += 1
        before = after
    both = (flows + flows.T)[np.triu_indices(15, 1)]
    gap = (flows - flows.T)[np.triu_indices(15, 1)]
    used = both >= 20
    assert used.sum() >= 10
    statistic = (gap[used] ** 2 / both[used]).sum()
    assert statistic < used.sum() + 4 * math.sqrt(2 * used.sum())


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_rows_the_prior_comes_out(kernel: str) -> None:
    sampler = Sampler(kernel, rate=0.0)
    counts, squares = np.zeros(P), []
    for turn in range(20_000):
        sampler.step(turn)
        counts[sampler.state[1] - 1] += 1
        squares.append(sampler.centers[0, 0] ** 2)
    prior = np.exp(-ETA * np.arange(1, P + 1))
    assert variation(counts / counts.sum(), prior / prior.sum()) <= 0.02
    assert np.mean(squares) == pytest.approx(BALL**2 / 3, rel=0.06)


def test_what_is_kept_of_nearest_centres_stays_true() -> None:
    rng = np.random.default_rng(1)
    n, d, p = 60, 3, 6
    rows = rng.normal(size=(d, n))
    columns, labels = np.concatenate([rng.random((3, n)), np.zeros((2, n))]), np.zeros((2, n), np.int32)
    past = (rows, columns, labels, np.zeros((p, n)))
    centers, state = np.zeros((p, d)), np.array([n, 1, 0, 0])
    look_at_all(past, centers, state)
    levels = np.full((p + 1, p), -1)
    levels[2, :2], levels[3, :3], levels[4, :4] = [0, 1], [1, 2, 3], [0, 1, 2, 3]
    draws = rng.normal(size=(4, d)), np.full(4, 0.5), log_student_constant(np.full(4, 0.5), d), 2, levels
    jumps, ratios = jump_table(p)
    seen = set()
    for turn in range(300):
        prior = np.array([log_ball_density(6.0, d), 6.0, 3.0])
        birth_death_chain(turn, 3, past, centers, state, draws, prior, jumps, ratios, 0.05, 0.2, 30.0, 3)
        k = int(state[1])
        seen.add(k)
        gaps = ((rows.T[:, None] - centers[:k]) ** 2).sum(axis=2)
        order = np.sort(gaps, axis=1)
        np.testing.assert_allclose(past[3][:k], gaps.T, rtol=1e-12)
        np.testing.assert_allclose(columns[NEAR], order[:, 0], rtol=1e-12)
        np.testing.assert_array_equal(labels[0], gaps.argmin(axis=1))
        if k > 1:
            np.testing.assert_allclose(columns[SECOND], order[:, 1], rtol=1e-12)
        assert (np.linalg.norm(centers[:k], axis=1) <= 6.0).all()
    assert len(seen) > 3


def test_the_symmetric_proposal_is_the_mean_over_all_orders(rng) -> None:
    centers, places = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
    orders = [log_proposal(centers[list(o)], places, 4, 0.7, 0.3, False) for o in itertools.permutations(range(4))]
    symmetric = log_proposal(centers, places, 4, 0.7, 0.3, True)
    assert symmetric == pytest.approx(float(np.log(np.mean(np.exp(orders)))), rel=1e-12)
    assert log_proposal(centers[::-1].copy(), places, 4, 0.7, 0.3, True) == pytest.approx(symmetric, rel=1e-12)


def test_densities_are_densities_and_finite_in_200_dimensions(rng) -> None:
    draws = np.array([[0.3], [-0.5]]), np.array([0.2, 0.6]), log_student_constant(np.array([0.2, 0.6]), 1), 2, LEVELS
    grid = np.linspace(-BALL, BALL, 4001)
    density = [math.exp(log_birth_density(np.array([x]), draws, 0, LOG_BALL)) for x in grid]
    tails = sum(  # beyond the ball a birth is refused
        0.35 * 2 * (1 - _student_cdf(BALL - abs(m), t)) * 0.5 + 0.35 * 2 * (1 - _student_cdf(BALL + abs(m), t)) * 0.5
        for m, t in ((0.3, 0.2), (-0.5, 0.6))
    )
    assert np.trapezoid(density, grid) + tails == pytest.approx(1.0, abs=1e-3)
    assert min(density) >= UNIFORM * math.exp(LOG_BALL)  # the chain refuses births and deaths by these bounds
    assert max(density) <= max(math.exp(LOG_BALL), math.exp(draws[2].max()))
    wide = rng.normal(size=(3, 200)), np.full(3, 1e-3), log_student_constant(np.full(3, 1e-3), 200), 2, LEVELS
    assert math.isfinite(log_birth_density(np.zeros(200), wide, 0, log_ball_density(50.0, 200)))
    assert math.isfinite(log_proposal(np.zeros((8, 200)), rng.normal(size=(8, 200)), 8, 1e-3, 900.0, True))


def _student_cdf(x: float, tau: float) -> float:
    from scipy.stats import t

    return float(t(3).cdf(x / (math.sqrt(2) * tau)))


def test_borders() -> None:
    chances, ratios = jump_table(5)
    assert chances[1].tolist() == [0.0, 0.5, 0.5] and chances[5].tolist() == [0.5, 0.5, 0.0]
    assert ratios[1, 2] == pytest.approx(math.log(2 / 3)) and ratios[2, 0] == pytest.approx(math.log(3 / 2))
    assert jump_table(2)[1].any() == np.False_ and jump_table(1)[0][1].tolist() == [0.0, 1.0, 0.0]
