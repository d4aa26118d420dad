"""The default draw of linear models where rows are fewer than coefficients."""

from __future__ import annotations

import numpy as np
import pytest

from tithe import Block, CoresetLogisticRegression, CoresetStream, build_coreset
from tithe.objectives import LogisticObjective, MarginObjective

RNG = np.random.default_rng(0)


def hard_to_separate(n: int, d: int, seed: int = 0) -> Block:
    """Classes that are far apart, a tenth of the labels wrong: few rows are separable, and wrong rows mislead."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X[:, 0] + X[:, 1] > 0).astype(np.int32)
    wrong = rng.random(n) < 0.1
    return Block(X=X, y=np.where(wrong, 1 - y, y).astype(np.int32))


def excess_loss(block: Block, objective: LogisticObjective | MarginObjective, **options: object) -> float:
    coreset = build_coreset(block.X, block.y, objective=objective, calibrate=False, **options)
    return objective.evaluate(block, objective.solve(coreset, rng=RNG)).value


@pytest.mark.parametrize("objective", [LogisticObjective(C=100.0, classes=(0, 1)), MarginObjective(classes=(0, 1))])
def test_few_rows_never_lose_to_a_uniform_draw(objective: LogisticObjective | MarginObjective) -> None:
    block = hard_to_separate(2000, 30)
    losses = {
        way: np.array(
            [excess_loss(block, objective, construction=way, coreset_size=25, random_state=s) for s in range(4)]
        )
        for way in ("auto", "uniform", "influence")
    }
    assert (losses["influence"] > losses["uniform"]).any()
    np.testing.assert_array_less(losses["auto"], np.minimum(losses["uniform"], losses["influence"]) * (1.0 + 1e-6))


def test_the_choice_is_noted_and_is_the_uniform_draw_itself() -> None:
    block = hard_to_separate(2000, 30)
    objective = LogisticObjective(C=100.0)
    options = {"objective": objective, "coreset_size": 25, "random_state": 1}
    default = build_coreset(block.X, block.y, **options)
    uniform = build_coreset(block.X, block.y, construction="uniform", **options)
    assert default.provenance["construction"] == "uniform"
    assert default.provenance["draw"] == "uniform: 0.39 rows per coefficient"
    np.testing.assert_array_equal(default.indices, uniform.indices)
    np.testing.assert_array_equal(default.weights(), uniform.weights())
    asked = build_coreset(block.X, block.y, construction="influence", **options)
    assert asked.provenance["construction"] == "influence" and "draw" not in asked.provenance


def test_many_rows_are_drawn_by_influence_as_ever() -> None:
    block = hard_to_separate(3000, 5)
    options = {"objective": LogisticObjective(), "coreset_size": 300, "random_state": 1}
    default = build_coreset(block.X, block.y, **options)
    influence = build_coreset(block.X, block.y, construction="influence", **options)
    assert default.provenance["construction"] == "influence" and "draw" not in default.provenance
    np.testing.assert_array_equal(default.indices, influence.indices)
    np.testing.assert_array_equal(default.weights(), influence.weights())


def test_batches_are_tried_on_the_rows_at_hand() -> None:
    block = hard_to_separate(3000, 30)
    batches = [(block.X[i : i + 500], block.y[i : i + 500]) for i in range(0, 3000, 500)]
    objective = LogisticObjective(C=100.0, classes=(0, 1))
    coreset = build_coreset(iter(batches), objective=objective, coreset_size=25, random_state=0)
    assert coreset.provenance["construction"] == "uniform" and coreset.n_seen == 3000


def test_a_learner_draws_in_the_same_way() -> None:
    block = hard_to_separate(2000, 30)
    model = CoresetLogisticRegression(C=100.0, coreset_size=25, polish=0, random_state=1).fit(block.X, block.y)
    assert model.coreset_.provenance["construction"] == "uniform"
    assert model.n_passes_ == model.certificate_.passes + 1  # a uniform draw looks at no row


def test_rows_of_the_smallest_class_count_for_columns_that_occur() -> None:
    from scipy import sparse

    X = sparse.csr_matrix(([1.0] * 10, (range(10), [0, 1] * 5)), shape=(10, 50))
    y = np.array([1, 1] + [0] * 8, np.int32)
    rows_each = LogisticObjective(classes=(0, 1)).rows_per_coefficient
    assert rows_each(Block(X=X, y=y), 30) == pytest.approx(30 * 0.2 / 3)
    assert rows_each(Block(X=X.toarray(), y=y), 51) == pytest.approx(51 * 0.2 / 51)


def test_a_stream_that_draws_uniformly_can_be_resumed_and_forked(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 30))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    stream = CoresetStream("logistic", coreset_size=20, leaf_size=150, random_state=0).push(X, y)
    assert str(stream.coreset().provenance["draw"]).startswith("uniform")
    for number, other in enumerate((stream, stream.fork(random_state=1).push(X, y))):
        other.checkpoint(tmp_path / str(number))
        resumed = CoresetStream.resume(tmp_path / str(number)).coreset()
        assert np.array_equal(resumed.row_ids(), other.coreset().row_ids())
        assert resumed.provenance == other.coreset().provenance
