"""Contract suites that anyone can run on their own objective, construction or engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy import stats

from tithe.certify.cost import SteppedObjective, StepT
from tithe.certify.gap import ConvexObjective
from tithe.clustering.objective import KMeansObjective
from tithe.core.contracts import Construction, Objective, SampledObjective, SensitivityObjective
from tithe.core.data import Array, Block, Coreset, Survey
from tithe.core.parallel import limit_threads
from tithe.core.registry import make
from tithe.reduce.draws import score_values
from tithe.reduce.plan import build_coreset, check_contracts
from tithe.reduce.stream import CoresetStream
from tithe.storage.values import packed

DRAWS = 2000

Check = Callable[[], None]


def _run(checks: Iterator[tuple[str, Check]]) -> None:
    for name, check in checks:
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def small_problem(n: int = 160, d: int = 3, *, weighted: bool = True, outlier: bool = True, seed: int = 0) -> Block:
    """Unequal blobs, a far outlier if wanted and a duplicated row, with integer weights if weighted."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=4.0, size=(4, d))
    which = rng.choice(4, n, p=[0.55, 0.3, 0.1, 0.05])
    X = centers[which] + rng.normal(size=(n, d))
    if outlier:
        X[0] = 40.0
    X[1] = X[2]
    weight = rng.integers(1, 5, n).astype(np.float64) if weighted else None
    y = (which % 2).astype(np.float64)
    return Block(X=X, y=y, sample_weight=weight, indices=np.arange(n))


def repeated(block: Block) -> Block:
    """The same problem with integer weights written out as repeated rows."""
    times = block.weights().astype(int)
    return Block(
        X=np.repeat(block.X, times, axis=0),
        y=None if block.y is None else np.repeat(block.y, times),
        indices=np.arange(times.sum()),
    )


# -- objectives ----------------------------------------------------------------------------------


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


def check_value(thing: Objective | Construction[Any]) -> None:
    """Streams and learners compare objectives and constructions with ``==``, after files were read too."""
    same: object = deepcopy(thing) == thing
    assert same is True, "inherit a frozen dataclass, or define __eq__"


def _whole_and_halves() -> tuple[Block, list[Block]]:
    block = small_problem()
    return block, [block.take(np.arange(0, 70)), block.take(np.arange(70, len(block)))]


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
    block, halves = _whole_and_halves()
    pilot, survey = _surveyed(objective, block)
    summed = sum(objective.survey(half, pilot).totals for half in halves)
    np.testing.assert_allclose(summed, survey.totals, rtol=1e-12, atol=1e-12 * np.abs(survey.totals).max())


def _steps(objective: SteppedObjective[StepT]) -> None:
    block, halves = _whole_and_halves()
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
    block, halves = _whole_and_halves()
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


# -- constructions -------------------------------------------------------------------------------


def construction_checks(
    construction: Construction[Any], objective: Objective | None = None
) -> Iterator[tuple[str, Check]]:
    """Pairs of a name and a check without arguments, for `pytest.mark.parametrize`.

    Examples
    --------
    >>> from tithe.constructions import Uniform
    >>> from tithe.testing import construction_checks
    >>> next(name for name, check in construction_checks(Uniform()))
    'a copy is equal'
    """
    objective = KMeansObjective(n_clusters=3) if objective is None else objective
    check_contracts(objective, construction.requires, needed_by=f"construction {construction.name!r}")
    unbiased = construction.unbiased
    yield "a copy is equal", partial(check_value, construction)
    for weighted in (False, True):
        kind = "weighted" if weighted else "plain"
        if unbiased:
            yield f"unbiased ({kind} rows)", partial(_unbiased, construction, objective, weighted)
        else:
            yield f"weights add up ({kind} rows)", partial(_exact, construction, objective, weighted)
        yield f"sizes, ids and weights ({kind} rows)", partial(_form, construction, objective, weighted)
    if unbiased:
        yield "error falls like the root of the size", partial(_slope, construction, objective)
    else:
        yield "error falls with the size", partial(_falls, construction, objective)
    yield "same seed, same bits", partial(_same_draw, construction, objective)
    yield "scaling the weights scales the result", partial(_scaling, construction, objective)
    yield "rows of weight zero are never drawn", partial(_zero, construction, objective)


def check_construction(construction: Construction[Any], objective: Objective | None = None) -> None:
    """Run every check; the first broken promise raises AssertionError with its name.

    Takes some seconds: the unbiasedness of 2000 draws is tested by Hotelling's T^2. A construction that is not
    unbiased says so (``unbiased = False``); its weights must then add up to those of the rows every time.

    Examples
    --------
    >>> from tithe.constructions import Uniform
    >>> from tithe.testing import check_construction
    >>> check_construction(Uniform())
    """
    _run(construction_checks(construction, objective))


class _Bench:
    """One problem with its pilot and survey, ready for many draws."""

    def __init__(self, construction: Construction[Any], objective: Objective, block: Block) -> None:
        self.objective, self.block = objective, block
        self.construction = construction.prepare(block, objective, rng=np.random.default_rng(2))
        self.pilot: Array | None = None
        self.survey: Survey | None = None
        if construction.needs_pilot:
            self.pilot = construction.pilot(block, objective, rng=np.random.default_rng(1))
        if construction.needs_survey:
            assert isinstance(objective, SampledObjective) and self.pilot is not None
            self.survey = objective.survey(block, self.pilot)

    def draw(self, size: int, seed: int) -> Block:
        return self.construction.reduce(
            self.block, self.objective, size, pilot=self.pilot, survey=self.survey, rng=np.random.default_rng(seed)
        )

    def queries(self, n: int) -> Array:
        """Costs (n_queries, rows) of solutions fitted on unlike parts of the rows."""
        rng = np.random.default_rng(9)
        parts = [self.block.take(np.sort(rng.choice(len(self.block), 20, replace=False))) for _ in range(n)]
        return np.array([self.objective.cost(self.block, self.objective.solve(p, rng=rng)) for p in parts])


def _unbiased(construction: Construction[Any], objective: Objective, weighted: bool) -> None:
    bench = _Bench(construction, objective, small_problem(weighted=weighted))
    costs = bench.queries(4)
    full = costs @ bench.block.weights()
    errors = np.empty((DRAWS, len(costs)))
    for seed in range(DRAWS):
        drawn = bench.draw(48, seed)
        errors[seed] = costs[:, drawn.row_ids()] @ drawn.weights() / full - 1.0
    mean = errors.mean(axis=0)
    spread = np.cov(errors.T) + 1e-18 * np.eye(len(mean))
    t2 = DRAWS * mean @ np.linalg.solve(spread, mean)
    q = len(mean)
    p = stats.f.sf(t2 * (DRAWS - q) / (q * (DRAWS - 1)), q, DRAWS - q)
    assert p > 1e-4, f"biased: mean relative errors {mean}, p = {p:.2g}"


def _exact(construction: Construction[Any], objective: Objective, weighted: bool) -> None:
    bench = _Bench(construction, objective, small_problem(weighted=weighted))
    for seed in range(20):
        np.testing.assert_allclose(bench.draw(48, seed).weights().sum(), bench.block.total_weight, rtol=1e-12)


def _falls(construction: Construction[Any], objective: Objective) -> None:
    bench = _Bench(construction, objective, small_problem(4000, weighted=False, outlier=False))
    costs = bench.queries(3)
    full = costs @ bench.block.weights()
    worst = []
    for size in (50, 400, 3200):
        drawn = bench.draw(size, 0)
        worst.append(np.abs(costs[:, drawn.row_ids()] @ drawn.weights() / full - 1.0).max())
    assert worst[2] < worst[0] and worst[2] < 0.1, f"errors {worst}"


def _form(construction: Construction[Any], objective: Objective, weighted: bool) -> None:
    bench = _Bench(construction, objective, small_problem(weighted=weighted))
    drawn = bench.draw(48, 3)
    ids = drawn.row_ids()
    assert 0 < len(drawn) <= 48
    assert len(np.unique(ids)) == len(ids), "a row came back twice"
    assert np.array_equal(drawn.X, bench.block.X[ids]), "rows and ids do not belong together"
    assert np.isfinite(drawn.weights()).all() and (drawn.weights() > 0).all()


def _slope(construction: Construction[Any], objective: Objective) -> None:
    bench = _Bench(construction, objective, small_problem(20_000, weighted=False, outlier=False))
    costs = bench.queries(3)
    full = costs @ bench.block.weights()
    sizes = (100, 400, 1600)
    rms = []
    for size in sizes:
        draws = (bench.draw(size, seed) for seed in range(200))
        errors = np.array([costs[:, b.row_ids()] @ b.weights() / full - 1.0 for b in draws])
        rms.append(np.sqrt((errors**2).mean()))
    slope = np.polyfit(np.log(sizes), np.log(rms), 1)[0]
    assert -0.6 < slope < -0.4, f"slope {slope:.2f} of log error in log size, errors {rms}"


def _same_draw(construction: Construction[Any], objective: Objective) -> None:
    bench = _Bench(construction, objective, small_problem())
    a, b, c = bench.draw(48, 7), bench.draw(48, 7), bench.draw(48, 8)
    assert np.array_equal(a.row_ids(), b.row_ids()) and np.array_equal(a.weights(), b.weights())
    assert not (np.array_equal(a.row_ids(), c.row_ids()) and np.array_equal(a.weights(), c.weights()))


def _scaling(construction: Construction[Any], objective: Objective) -> None:
    block = small_problem()
    heavy = Block(X=block.X, y=block.y, sample_weight=8.0 * block.weights(), indices=block.indices)
    a, b = (_Bench(construction, objective, x).draw(48, 7) for x in (block, heavy))
    assert np.array_equal(a.row_ids(), b.row_ids())
    np.testing.assert_allclose(b.weights(), 8.0 * a.weights(), rtol=1e-9)


def _zero(construction: Construction[Any], objective: Objective) -> None:
    block = small_problem()
    weight = np.where(np.arange(len(block)) % 2, block.weights(), 0.0)
    bench = _Bench(construction, objective, Block(X=block.X, y=block.y, sample_weight=weight, indices=block.indices))
    for seed in range(50):
        assert np.all(bench.draw(48, seed).row_ids() % 2 == 1)


# -- engines -------------------------------------------------------------------------------------


def engine_checks(engine: Any) -> Iterator[tuple[str, Check]]:
    """Pairs of a name and a check without arguments, for `pytest.mark.parametrize`.

    Examples
    --------
    >>> from tithe.testing import engine_checks
    >>> [name for name, check in engine_checks("threads")][:2]
    ['many leaves equal serial', 'one leaf equals serial']
    """
    yield "many leaves equal serial", partial(_many_leaves, engine)
    yield "one leaf equals serial", partial(_one_leaf, engine)
    yield "an error in a leaf reaches the caller", partial(_error, engine)


def check_engine(engine: Any) -> None:
    """Run every check; the first broken promise raises AssertionError with its name.

    Examples
    --------
    >>> from tithe.testing import check_engine
    >>> check_engine("threads")
    """
    _run(engine_checks(engine))


def _same(a: Coreset, b: Coreset) -> None:
    assert np.array_equal(a.row_ids(), b.row_ids()), "other rows"
    assert np.array_equal(a.X, b.X), "other values"
    assert np.array_equal(a.weights(), b.weights()), "other weights"
    assert a.totals is not None and b.totals is not None and np.array_equal(a.totals, b.totals), "other totals"
    assert (a.n_seen, a.key) == (b.n_seen, b.key), "another place in the tree"


def _build(engine: Any, batches: Any) -> Coreset:
    objective = KMeansObjective(n_clusters=3)
    return build_coreset(batches, objective=objective, coreset_size=300, engine=engine, random_state=4)


def _many_leaves(engine: Any) -> None:
    rows = small_problem(400_000, weighted=False).X
    _same(_build("serial", np.array_split(rows, 9)), _build(engine, np.array_split(rows, 9)))


def _one_leaf(engine: Any) -> None:
    rows = small_problem(5000, weighted=False).X
    _same(_build("serial", rows), _build(engine, rows))


def _error(engine: Any) -> None:
    def work(block: Block, number: int) -> int:
        if number == 3:
            raise RuntimeError("leaf 3 is broken")
        return number

    tasks = [partial(Block, X=np.zeros((1, 1)))] * 6
    try:
        list(make("engine", engine).map(tasks, work))
    except RuntimeError as error:
        assert "leaf 3" in str(error), f"the message was lost: {error}"
    else:
        raise AssertionError("a leaf failed and nobody was told")
