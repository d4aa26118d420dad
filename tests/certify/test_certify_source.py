"""Looks at all rows, leaf by leaf."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from leaf_source import LeafSource
from scipy import sparse

from tithe import Block, build_coreset
from tithe.certify import certify_cost, certify_gap, polish_by_descent, polish_by_steps
from tithe.core.parallel import limit_threads
from tithe.core.passes import DataPass
from tithe.objectives import KMeansObjective, LogisticObjective

SEVEN = [13, 13, 900, 5000, 5001, 11_000]  # seven leaves, one of them empty, of 12,000 rows


@pytest.fixture(scope="module")
def block() -> Block:
    rng = np.random.default_rng(2)
    X = rng.normal(loc=(0.0, 5.0, -2.0), size=(12_000, 3))
    y = (X @ [1.0, -0.5, 0.3] + rng.logistic(size=12_000) > 0).astype(np.int32)
    return Block(X=X, y=y, sample_weight=rng.exponential(size=12_000))


def cut(block: Block, layout=np.asarray) -> LeafSource:
    return LeafSource.cut(layout(block.X), block.y, block.sample_weight, at=SEVEN)


@pytest.mark.bits
def test_leaves_are_added_up_in_order_and_rows_counted(block: Block) -> None:
    for rows, n_leaves in ((block, 1), (cut(block), 6)):
        for engine in ("serial", "threads"):
            every = DataPass(rows, engine)
            assert every.total(lambda leaf: leaf.row_ids().tolist()[:1]) == [0, 13, 900, 5000, 5001, 11_000][:n_leaves]
            assert every.n_rows == 12_000
    with pytest.raises(ValueError, match="no rows"):
        DataPass(LeafSource.cut(block.X[:0], at=[0])).total(len)


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_an_error_in_a_leaf_is_that_of_the_first_leaf_with_one(engine: str, block: Block) -> None:
    def work(leaf: Block) -> int:
        first = int(leaf.row_ids()[0])
        if first >= 900:
            raise KeyError(first)
        return first

    with pytest.raises(KeyError) as raised:
        DataPass(cut(block), engine).total(work)
    assert raised.value.args == (900,)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_a_block_and_its_leaves_cost_the_same(block: Block, layout) -> None:
    objective = KMeansObjective(n_clusters=3)
    coreset = build_coreset(
        block.X, sample_weight=block.sample_weight, objective=objective, coreset_size=300, random_state=0
    )
    centers = objective.solve(coreset, rng=np.random.default_rng(0))
    exact = block.sample_weight @ (np.linalg.norm(block.X[:, None] - centers, axis=2) ** 2).min(axis=1)
    certificate = certify_cost(objective, DataPass(cut(block, layout)), centers, coreset)
    assert certificate.value == pytest.approx(exact, rel=1e-12) and certificate.n_rows == 12_000
    at_once, leaves = (polish_by_steps(objective, DataPass(rows), centers, 3) for rows in (block, cut(block, layout)))
    np.testing.assert_allclose(leaves.params, at_once.params, rtol=1e-10)
    np.testing.assert_allclose(leaves.curve, at_once.curve, rtol=1e-12)
    assert leaves.labels is None and at_once.labels is not None
    assert leaves.passes == at_once.passes and leaves.n_rows == at_once.n_rows == 12_000


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_sums_of_leaves_evaluate_to_the_block(block: Block, fit_intercept: bool) -> None:
    for n_classes in (2, 4, 40):
        rng = np.random.default_rng(n_classes)
        rows = replace(block, y=rng.integers(0, n_classes, len(block)).astype(np.int32))
        objective = LogisticObjective(classes=tuple(range(n_classes)), fit_intercept=fit_intercept, C=0.1)
        params = 0.1 * rng.normal(size=(objective.n_scores, 4))
        params -= params.mean(axis=0) * (n_classes > 2)
        whole = objective.evaluate(rows, params, diagonal=True)
        sums = DataPass(cut(rows)).total(lambda leaf, at=params, to=objective: to.sums(leaf, at, diagonal=True))
        parts = objective.evaluation(sums, params)
        assert parts.value == pytest.approx(whole.value, rel=1e-13)
        assert parts.bound == pytest.approx(whole.bound, rel=1e-10)
        for name in ("gradient", "diagonal", "totals"):
            there = getattr(whole, name)
            np.testing.assert_allclose(getattr(parts, name), there, rtol=1e-11, atol=1e-11 * np.abs(there).max())


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.bits
def test_descent_on_leaves(block: Block, layout) -> None:
    objective = LogisticObjective(classes=(0, 1))
    coreset = build_coreset(
        block.X,
        block.y,
        sample_weight=block.sample_weight,
        objective=objective,
        coreset_size=400,
        calibrate=False,
        random_state=0,
    )
    start = objective.solve(coreset, rng=np.random.default_rng(0))
    best = objective.solve(block, rng=np.random.default_rng(0))
    smallest = objective.evaluate(block, best).value
    results = []
    for engine, n_threads in (("serial", 1), ("serial", 2), ("threads", 2)):
        with limit_threads(n_threads):
            results.append(
                polish_by_descent(
                    objective,
                    DataPass(cut(block, layout), engine),
                    coreset,
                    start,
                    polish=4,
                    tol=1e-4,
                    calibrate=True,
                    rng=np.random.default_rng(0),
                )
            )
    for other in results[1:]:
        assert np.array_equal(other.params, results[0].params) and other.curve == results[0].curve
    assert results[0].curve[-1] == pytest.approx(smallest, rel=1e-5) and results[0].n_rows == 12_000
    certificate = certify_gap(objective, DataPass(cut(block, layout)), start, coreset)
    gap = objective.evaluate(block, start).value - smallest
    assert certificate.n_rows == 12_000
    assert gap <= certificate.bound and certificate.value == pytest.approx(gap, rel=0.5)
