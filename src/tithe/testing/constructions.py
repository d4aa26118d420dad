"""Checks of a construction: above all, that it is unbiased."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from tithe.clustering.objective import KMeansObjective
from tithe.core.contracts import Construction, Objective, SampledObjective
from tithe.core.data import Array, Block, Survey
from tithe.reduce.plan import check_contracts
from tithe.testing.data import small_problem
from tithe.testing.objectives import Check, _run, check_value

DRAWS = 2000


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
    yield "same seed, same bits", partial(_same_seed, construction, objective)
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


def _same_seed(construction: Construction[Any], objective: Objective) -> None:
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
