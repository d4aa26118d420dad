"""Checks that an engine gives the same bits as the serial one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tithe.clustering.objective import KMeansObjective
from tithe.core.data import Block, Coreset
from tithe.core.registry import make
from tithe.reduce.build import build_coreset
from tithe.testing.data import small_problem
from tithe.testing.objectives import Check, _run


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
