"""Checks of an objective that constructions and calibration rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tithe.certify.cost import SteppedObjective, StepT
from tithe.certify.gap import ConvexObjective
from tithe.core.contracts import Construction, Objective, SampledObjective, SensitivityObjective
from tithe.core.data import Array, Block, Survey
from tithe.reduce.draws import score_values
from tithe.reduce.stream import CoresetStream
from tithe.storage.values import packed
from tithe.testing.data import repeated, small_problem

Check = Callable[[], None]


def objective_checks(objective: Objective) -> Iterator[tuple[str, Check]]:
    """Pairs of a name and a check without arguments, for `pytest.mark.parametrize`.

    Examples
    --------
    >>> from tithe.objectives import KMeansObjective
    >>> from tithe.testing import objective_checks
    >>> next(name for name, check in objective_checks(KMeansObjective(n_clusters=2)))
    'a copy is equal'
    """
    yield "a copy is equal", partial(check_value, objective)
    yield "cost is finite, one number a row, not negative unless signed", partial(_cost, objective)
    yield "solve is the same for the same seed", partial(_same_seed, objective)
    if isinstance(objective, SteppedObjective):
        yield "passes over parts add up to a step that lowers the cost", partial(_steps, objective)
    if not isinstance(objective, SampledObjective):
        return
    yield "survey agrees with cost", partial(_survey_cost, objective)
    yield "totals are the sums of the moments", partial(_totals, objective)
    yield "totals of parts add up", partial(_parts, objective)
    if isinstance(objective, ConvexObjective):
        yield "sums of parts add up to the evaluation", partial(_sums, objective)
    yield "weights equal repeated rows", partial(_weights, objective)
    yield "the order of rows does not matter", partial(_order, objective)
    yield "the number of threads does not matter", partial(_threads, objective)
    if isinstance(objective, SensitivityObjective):
        yield "sensitivities are positive and follow the weights", partial(_sensitivity, objective)
    yield "a stream in pieces, checkpointed on the way, is the stream in one piece", partial(_stream, objective)


def check_objective(objective: Objective) -> None:
    """Run every check; the first broken promise raises AssertionError with its name.

    Checkpoints are tried only with an objective that files may hold: one of tithe, or one that is registered.

    Examples
    --------
    >>> from tithe.objectives import KMeansObjective
    >>> from tithe.testing import check_objective
    >>> check_objective(KMeansObjective(n_clusters=2))
    """
    _run(objective_checks(objective))


def _run(checks: Iterator[tuple[str, Check]]) -> None:
    for name, check in checks:
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def check_value(thing: Objective | Construction[Any]) -> None:
    """Streams and learners compare objectives and constructions with ``==``, after files were read too."""
    same: object = deepcopy(thing) == thing
    assert same is True, "inherit a frozen dataclass, or define __eq__"


def _surveyed(objective: SampledObjective, block: Block) -> tuple[Array, Survey]:
    pilot = objective.pilot(block, rng=np.random.default_rng(1))
    return pilot, objective.survey(block, pilot)


def _cost(objective: Objective) -> None:
    block = small_problem()
    cost = objective.cost(block, objective.solve(block, rng=np.random.default_rng(0)))
    assert cost.shape == (len(block),), f"shape {cost.shape}"
    assert np.isfinite(cost).all() and (objective.signed or (cost >= 0).all())


def _same_seed(objective: Objective) -> None:
    block = small_problem()
    first = objective.solve(block, rng=np.random.default_rng(5))
    assert np.array_equal(first, objective.solve(block, rng=np.random.default_rng(5)))


def _survey_cost(objective: SampledObjective) -> None:
    block = small_problem()
    pilot, survey = _surveyed(objective, block)
    np.testing.assert_allclose(survey.cost, objective.cost(block, pilot), rtol=1e-12)


def _totals(objective: SampledObjective) -> None:
    block = small_problem()
    pilot, survey = _surveyed(objective, block)
    moments = objective.moments(block, pilot)
    assert np.all(moments.values[:, 0] == 1.0), "column 0 of the moments must be the count"
    groups = np.zeros(len(block), int) if moments.groups is None else moments.groups
    totals = survey.totals[:, : moments.values.shape[1]]  # of few rows an objective may give its first moments only
    sums = np.zeros_like(totals)
    np.add.at(sums, groups, moments.values * block.weights()[:, None])
    np.testing.assert_allclose(sums, totals, rtol=1e-9, atol=1e-9 * np.abs(sums).max())


def _parts(objective: SampledObjective) -> None:
    block = small_problem()
    pilot, survey = _surveyed(objective, block)
    halves = [block.take(np.arange(0, 70)), block.take(np.arange(70, len(block)))]
    summed = sum(objective.survey(half, pilot).totals for half in halves)
    np.testing.assert_allclose(summed, survey.totals, rtol=1e-12, atol=1e-12 * np.abs(survey.totals).max())


def _steps(objective: SteppedObjective[StepT]) -> None:
    block = small_problem()
    halves = [block.take(np.arange(0, 70)), block.take(np.arange(70, len(block)))]
    # a solution for a few of the rows, which can be improved
    params = objective.solve(block.take(np.arange(1, 21)), rng=np.random.default_rng(1))
    whole, parts = (
        objective.evaluate_for_step(block, params),
        objective.evaluate_for_step(halves[0], params) + objective.evaluate_for_step(halves[1], params),
    )
    np.testing.assert_allclose(parts.total, whole.total, rtol=1e-12)
    np.testing.assert_allclose(whole.total, objective.cost(block, params) @ block.weights(), rtol=1e-12)
    better, gain = objective.step(whole, params)
    np.testing.assert_allclose(objective.step(parts, params)[0], better, rtol=1e-9, atol=1e-12)
    assert gain >= 0.0
    after = objective.cost(block, better) @ block.weights()
    assert after <= whole.total - gain * (1.0 - 1e-9) + 1e-9 * abs(whole.total), (
        f"{after} is not {gain} below {whole.total}"
    )


def _sums(objective: ConvexObjective) -> None:
    block = small_problem()
    halves = [block.take(np.arange(0, 70)), block.take(np.arange(70, len(block)))]
    # half way to the pilot: where the gradient is zero there is only rounding to compare
    params = 0.5 * objective.pilot(block, rng=np.random.default_rng(1))
    whole = objective.evaluation(objective.sums(block, params), params)
    parts = objective.evaluation(objective.sums(halves[0], params) + objective.sums(halves[1], params), params)
    np.testing.assert_allclose(parts.value, whole.value, rtol=1e-12)
    np.testing.assert_allclose(parts.gradient, whole.gradient, rtol=1e-9, atol=1e-9 * np.abs(whole.gradient).max())
    np.testing.assert_allclose(parts.bound, whole.bound, rtol=1e-9)
    np.testing.assert_allclose(parts.totals, whole.totals, rtol=1e-9, atol=1e-9 * np.abs(whole.totals).max())


def _weights(objective: SampledObjective) -> None:
    block = small_problem()
    pilot, survey = _surveyed(objective, block)
    written_out = objective.survey(repeated(block), pilot)
    np.testing.assert_allclose(written_out.totals, survey.totals, rtol=1e-11, atol=1e-11 * np.abs(survey.totals).max())
    if isinstance(objective, SensitivityObjective):
        score = score_values(objective.sensitivity(block, survey))
        repeated_score = score_values(objective.sensitivity(repeated(block), written_out))
        np.testing.assert_allclose(repeated_score.sum(), score.sum(), rtol=1e-9)


def _order(objective: SampledObjective) -> None:
    block = small_problem()
    pilot, survey = _surveyed(objective, block)
    shuffle = np.random.default_rng(2).permutation(len(block))
    shuffled = objective.survey(block.take(shuffle), pilot)
    np.testing.assert_array_equal(shuffled.cost, survey.cost[shuffle])
    np.testing.assert_allclose(shuffled.totals, survey.totals, rtol=1e-12, atol=1e-12 * np.abs(survey.totals).max())


def _threads(objective: SampledObjective) -> None:
    from tithe.core.parallel import limit_threads

    block = small_problem(600_000)  # enough rows that kernels do split them
    pilot = objective.pilot(block, rng=np.random.default_rng(1))
    surveys = []
    for n in (1, 2, 3):
        with limit_threads(n):
            surveys.append(objective.survey(block, pilot))
    for survey in surveys[1:]:
        assert np.array_equal(survey.totals, surveys[0].totals)
        assert np.array_equal(survey.cost, surveys[0].cost)


def _sensitivity(objective: SensitivityObjective) -> None:
    block = small_problem()
    _, survey = _surveyed(objective, block)
    score = score_values(objective.sensitivity(block, survey))
    assert score.shape == (len(block),)
    assert np.isfinite(score).all() and (score > 0).all()
    light = Block(X=block.X, y=block.y, sample_weight=np.where(np.arange(len(block)) == 3, 0.0, block.weights()))
    pilot = objective.pilot(block, rng=np.random.default_rng(1))
    score = score_values(objective.sensitivity(light, objective.survey(light, pilot)))
    assert score[3] == 0.0, "a row of weight 0 must score 0"


def _can_be_stored(objective: Objective) -> bool:
    """Whether checkpoints may hold the objective: one of another package only after it was registered."""
    try:
        packed(objective)
    except ValueError:
        return False
    return True


def _stream(objective: SampledObjective) -> None:
    block = small_problem(3000)

    def stream() -> CoresetStream:
        return CoresetStream(objective, coreset_size=150, leaf_size=500, random_state=0)

    whole = stream().push(block.X, block.y, block.sample_weight).coreset()
    pieces, stored = stream(), _can_be_stored(objective)
    with TemporaryDirectory() as folder:
        for start, stop in ((0, 1), (1, 700), (700, 2600), (2600, 3000)):
            part = block.cut(start, stop)
            pieces.push(part.X, part.y, part.sample_weight)
            if stored:
                pieces.checkpoint(folder)
                pieces = CoresetStream.resume(folder)
    resumed = pieces.coreset()
    assert np.array_equal(resumed.row_ids(), whole.row_ids()), "other rows"
    assert np.array_equal(resumed.weights(), whole.weights()), "other weights"
    assert whole.totals is not None and resumed.totals is not None
    assert np.array_equal(resumed.totals, whole.totals), "other totals"
