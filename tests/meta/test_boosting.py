"""Draws by the gradient at a boosted pilot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from leaf_source import LeafSource
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier

from tithe import Block, CoresetStream, build_coreset, compare, load_coreset, save_coreset
from tithe.core.errors import FileFormatError
from tithe.core.seeding import hashed
from tithe.core.state_checks import checked
from tithe.meta.boosting import LOSSES, BoostedPilot, BoostingObjective, PilotGradient, worth_in_words

SIZE = {"objective": "boosting", "coreset_size": 800, "random_state": 0}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Two classes that an interaction tells apart, with a rare third one in ``1 + y``."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 6))
    return X, (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=30_000) > 1.5).astype(np.int32)


def pilot_of(block: Block, objective: BoostingObjective) -> BoostedPilot:
    return BoostedPilot.of(block, objective, rng=np.random.default_rng(1))


def target_of(loss: str, X: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(2)
    if loss == "log_loss":
        return np.digitize(X[:, 0] + 0.3 * rng.normal(size=len(X)), [-1.0, 1.0]).astype(np.int32)
    return rng.gamma(2.0, np.exp(0.5 * X[:, 0])) if loss == "gamma" else rng.poisson(np.exp(X[:, 0])).astype(float)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_derivatives_of_the_losses(loss: str, rows) -> None:
    X = rows[0][:600]
    y = target_of(loss, X)
    objective = BoostingObjective(loss=loss, level=0.8, classes=(0, 1, 2) if loss == "log_loss" else None)
    block, step = Block(X=X, y=y), 1e-6
    pilot = pilot_of(block, objective)
    cost, square, size = objective.gradients(block, pilot)
    assert (cost >= -1e-12).all() and (size >= np.sqrt(square) * (1 - 1e-12)).all()
    slopes = np.zeros(len(X))
    for k in range(objective.n_margins):
        moved = [replace(pilot, base=pilot.base + s * step * np.eye(objective.n_margins)[k]) for s in (1, -1)]
        ends = [objective.cost(block, each) for each in moved]
        slopes += ((ends[0] - ends[1]) / (2 * step)) ** 2
    smooth = np.abs(cost) > 1e-5  # away from the kink of the absolute and the quantile loss
    np.testing.assert_allclose(square[smooth], slopes[smooth], rtol=1e-4, atol=1e-7)


def test_margins_are_those_of_scikit_learn_and_honest(rows) -> None:
    X, _ = rows
    X, y = X[:4000], target_of("log_loss", X[:4000])
    block, objective = Block(X=X, y=y), BoostingObjective(classes=(0, 1, 2))
    pilot = pilot_of(block, objective)
    half = (hashed(np.arange(4000), pilot.key) >> np.uint64(63)).astype(bool)
    for known in (False, True):  # a row has the margins of the model of the other half
        model = HistGradientBoostingClassifier(
            max_iter=15, learning_rate=0.3, max_leaf_nodes=15, l2_regularization=1.0, early_stopping=False
        ).fit(X[half == known], y[half == known])
        np.testing.assert_allclose(
            pilot.margins(block)[half != known], model._raw_predict(X[half != known]), rtol=1e-9, atol=1e-9
        )
    as_csr = Block(X=sparse.csr_matrix(X), y=y)
    np.testing.assert_array_equal(pilot.margins(as_csr), pilot.margins(block))


def test_a_class_that_a_half_lacks_is_unlikely_and_kept(rows) -> None:
    X, y = rows
    y = y.copy()
    y[[17, 12_345]] = 2
    block, objective = Block(X=X, y=y), BoostingObjective(classes=(0, 1, 2))
    pilot = pilot_of(block, objective)
    margins = pilot.margins(block)
    chance = np.exp(margins - margins.max(axis=1, keepdims=True))
    assert ((chance / chance.sum(axis=1, keepdims=True))[:, 2] < 0.01).mean() > 0.99
    coreset = build_coreset(X, y, **SIZE)
    assert {17, 12_345} <= set(coreset.row_ids().tolist())
    for n_classes in (2, 3):  # a half of a single class
        block = Block(X=X[:50], y=np.zeros(50, np.int32))
        objective = BoostingObjective(classes=tuple(range(n_classes)))
        assert objective.gradients(block, pilot_of(block, objective))[1].max() < 0.01


def test_the_draw_is_unbiased(rows) -> None:
    X, y = rows
    hard = X[:, 0] * X[:, 1] > 1.0
    sums = []
    for seed in range(60):
        coreset = build_coreset(X, y, **{**SIZE, "coreset_size": 300, "random_state": seed})
        at = coreset.row_ids()
        sums.append([coreset.weights().sum(), coreset.weights() @ hard[at], coreset.weights() @ (y[at] == 1)])
    mean, error = np.mean(sums, axis=0), np.std(sums, axis=0) / np.sqrt(60)
    np.testing.assert_array_less(np.abs(mean - [30_000, hard.sum(), y.sum()]), 4.0 * error)


@pytest.mark.slow
def test_gradients_have_less_variance_than_in_a_uniform_draw(rows) -> None:
    X, y = rows
    objective = BoostingObjective(classes=(0, 1))
    block = Block(X=X, y=y)
    pilot = pilot_of(block, objective)
    chance = 1.0 / (1.0 + np.exp(-pilot.margins(block)[:, 0]))
    gradient, spread = chance - y, {}
    for construction in ("pilot_gradient", "uniform"):
        options: dict[str, Any] = {**SIZE, "construction": construction}
        draws = [build_coreset(X, y, **{**options, "random_state": seed}) for seed in range(40)]
        spread[construction] = np.var([c.weights() @ gradient[c.row_ids()] for c in draws])
    worth = draws[0].provenance.get("row_worth", 0.0) or build_coreset(X, y, **SIZE).provenance["row_worth"]
    assert worth > 2.0 and spread["pilot_gradient"] < spread["uniform"] / 2.0


@pytest.mark.bits
def test_the_same_bits_on_any_engine_and_for_any_threads(rows, monkeypatch) -> None:
    X, y = rows
    source = LeafSource.cut(X, y, at=[9_000, 9_001, 20_000])
    alone = build_coreset(source, engine="serial", **SIZE)
    threads = build_coreset(source, engine="threads", **SIZE)
    np.testing.assert_array_equal(alone.row_ids(), threads.row_ids())
    np.testing.assert_array_equal(alone.weights(), threads.weights())
    whole = build_coreset(X, y, **SIZE)
    monkeypatch.setenv("TITHE_NUM_THREADS", "1")
    one = build_coreset(X, y, **SIZE)
    np.testing.assert_array_equal(one.weights(), whole.weights())
    assert one.provenance == whole.provenance and "calibration_residual" not in one.provenance


def test_streams_files_and_weights(rows, tmp_path) -> None:
    X, y = rows
    stream = CoresetStream(BoostingObjective(classes=(0, 1)), coreset_size=500, random_state=0)
    for start in range(0, 30_000, 1000):
        stream.push(X[start : start + 1000], y[start : start + 1000])
    coreset = stream.coreset()
    assert len(coreset) <= 500 and coreset.weights().sum() == pytest.approx(30_000, rel=0.2)
    assert (coreset.y == 1).mean() > 2 * y.mean()
    save_coreset(coreset, tmp_path / "rows.parquet")
    again = load_coreset(tmp_path / "rows.parquet")
    assert again.objective == coreset.objective and again.provenance == coreset.provenance
    doubled = build_coreset(X, y, sample_weight=np.where(y == 1, 2.0, 1.0), **SIZE)
    assert doubled.weights().sum() == pytest.approx(30_000 + y.sum(), rel=0.1)


def test_a_damaged_pilot_is_refused(rows) -> None:
    block = Block(X=rows[0][:2000], y=rows[1][:2000])
    objective = BoostingObjective(classes=(0, 1))
    pilot = pilot_of(block, objective)
    assert checked(pilot).n_first == pilot.n_first
    for name, at, value in (("left", 0, 0), ("right", 1, 10**6), ("column", 0, 6), ("starts", 1, 0), ("output", 0, 1)):
        values = getattr(pilot, name).copy()
        values[at] = value
        with pytest.raises(FileFormatError):
            checked(replace(pilot, **{name: values}))
    with pytest.raises(FileFormatError, match="other columns"):
        PilotGradient(fitted=pilot).check_columns(5, objective)


def test_what_is_refused_and_said(rows) -> None:
    X, _ = rows
    for loss in ("poisson", "gamma"):
        with pytest.raises(ValueError, match=loss):
            build_coreset(X, X[:, 0], objective=BoostingObjective(loss=loss), coreset_size=100)
    with pytest.raises(ValueError, match="loss must be"):
        BoostingObjective(loss="hinge")
    with pytest.raises(ValueError, match="give y"):
        build_coreset(X, objective=BoostingObjective(loss="squared_error"), coreset_size=100)
    assert worth_in_words(3.6).endswith("up to 4 random ones")


@pytest.mark.slow
def test_a_comparison_says_what_a_row_is_worth(rows) -> None:
    X, y = rows
    result = compare(X[:6000], y[:6000], objective="boosting", sizes=[0.1], n_repeats=2)
    worth = next(line["row_worth"] for line in result.table if line["method"] == "pilot_gradient")
    assert worth > 2.0 and worth_in_words(worth) in result.worth_note and result.worth_note in repr(result)
    assert result.quality == "cost per row" and result.table[0]["method"] == "all rows"


def test_noisy_labels_are_drawn_uniformly(rows) -> None:
    X, _ = rows
    y = np.random.default_rng(4).integers(0, 2, len(X))
    coreset = build_coreset(X, y, **SIZE)
    assert coreset.provenance["row_worth"] == 1.0
    uniform = build_coreset(X, y, **SIZE, construction="uniform")
    np.testing.assert_array_equal(coreset.row_ids(), uniform.row_ids())
