from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import run
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge, PoissonRegressor
from sklearn.tree import DecisionTreeRegressor

from tithe import CoresetStream, build_coreset, load_coreset, open_dataset, save_coreset
from tithe.core.data import Block, Scores
from tithe.linear.cablr import Cablr
from tithe.linear.logistic_objective import LogisticObjective
from tithe.linear.regressed import Bounded, Regressed, SensitivityModel, features
from tithe.objectives import DictionaryObjective, GenericObjective, KMeansObjective, KMedianObjective, MarginObjective
from tithe.reduce.kernels import draw
from tithe.storage.coresets import load_schema
from tithe.storage.values import packed, unpacked
from tithe.testing import construction_checks

BINARY = LogisticObjective(classes=(0.0, 1.0))
TREE = Regressed(regressor=DecisionTreeRegressor(max_depth=3), log=True, sample_size=80)
CHECKS = [
    pytest.param(check, id=name)
    for name, check in construction_checks(Regressed(n_clusters=3, radius=0.1, sample_size=80), BINARY)
] + [
    pytest.param(check, id=f"k-means, {name}", marks=pytest.mark.slow)
    for name, check in construction_checks(TREE, KMeansObjective(n_clusters=3))
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


def _problem(n: int, n_classes: int = 2, d: int = 4, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, d)) * rng.gamma(2.0, size=(n, 1)) + 0.7 * rng.normal(size=(n_classes, d))[y]
    return Block(X=X, y=y)


def _objective(n_classes: int = 2) -> LogisticObjective:
    return LogisticObjective(classes=tuple(range(n_classes)))


def _model(construction: Regressed, block: Block, n_classes: int = 2) -> SensitivityModel:
    model = construction.prepare(block, _objective(n_classes), rng=np.random.default_rng(0)).sensitivity_model_
    assert model is not None
    return model


@pytest.mark.parametrize("n_classes", [2, 3])
def test_with_all_rows_in_the_sample_it_is_cablr(n_classes) -> None:
    block, objective = _problem(800, n_classes), _objective(n_classes)
    cablr = Cablr(radius=0.4).prepare(block, objective, rng=np.random.default_rng(5))
    ready = Regressed(radius=0.4, sample_size=800, mix=0.0).prepare(block, objective, rng=np.random.default_rng(5))
    s, m = cablr.scores(block, objective), ready.scores(block)[0]
    np.testing.assert_allclose(m / m.sum(), s / s.sum(), rtol=1e-12)
    np.testing.assert_allclose(m, 800 * s, rtol=1e-12)
    # and the same under names of their own, in another order
    order = np.random.default_rng(1).permutation(800)
    np.testing.assert_allclose(ready.scores(block.take(order))[0], m[order], rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("norm_feature", [False, True])
@pytest.mark.parametrize("regressor", ["ols", "ridge", "lasso", "elasticnet", BayesianRidge()])
def test_linear_models_score_without_writing_features_out(n_classes, norm_feature, regressor) -> None:
    block, objective = _problem(3000, n_classes), _objective(n_classes)
    model = _model(Regressed(regressor=regressor, norm_feature=norm_feature, radius=0.4), block, n_classes)
    assert model.linear is not None
    rows = features(objective, block, norm_feature)
    if model.regressor is None:
        some = np.linalg.lstsq(np.column_stack([np.ones(3000), rows]), model.score(block), rcond=None)[0]
        raw = np.column_stack([np.ones(3000), rows]) @ some if model.clipped_share_ == 0 else None
    else:
        raw = model.regressor.predict(rows)
    if raw is not None:
        np.testing.assert_allclose(model.score(block), np.clip(raw, model.clip_low_, 3000.0), rtol=1e-6)
    thin = model.score(sparse.csr_matrix(block.X), block.y)
    np.testing.assert_allclose(thin, model.score(block.X, block.y), rtol=1e-9)
    assert np.all((thin >= model.clip_low_) & (thin <= 3000.0)) and model.clip_low_ >= 1.0


# -- other objectives, and logarithms ----------------------------------------------------------


def _others() -> list[tuple[Bounded, Block]]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 4)) * rng.gamma(2.0, size=(600, 1))
    weight, three = rng.uniform(0.2, 3.0, 600), rng.integers(0, 3, 600)
    return [
        (KMeansObjective(n_clusters=3), Block(X=X)),
        (KMedianObjective(n_clusters=3), Block(X=X, sample_weight=weight)),
        (MarginObjective(classes=(0, 1)), Block(X=X, y=(X[:, 0] > 0).astype(np.int32), sample_weight=weight)),
        (MarginObjective(classes=(0, 1, 2), lam=5.0), Block(X=X, y=three)),
        (DictionaryObjective(n_components=6, n_nonzero_coefs=2), Block(X=X, sample_weight=weight)),
        (GenericObjective(n_classes=3), Block(X=X, y=three)),
    ]


@pytest.mark.parametrize(("objective", "block"), _others())
def test_with_all_rows_in_the_sample_it_is_sensitivity_sampling(objective, block) -> None:
    ready = Regressed(sample_size=600, mix=0.0).prepare(block, objective, rng=np.random.default_rng(5))
    pilot = objective.pilot(block, rng=np.random.default_rng(5))
    scores = objective.sensitivity(block, objective.survey(block, pilot))
    s = scores.at() if isinstance(scores, Scores) else scores
    np.testing.assert_allclose(ready.scores(block)[0], s * block.total_weight / block.weights(), rtol=1e-12)
    drawn = ready.reduce(block, objective, 100, pilot=None, survey=None, rng=np.random.default_rng(0))
    # one draw in each slice of the total: the rows kept stand for exactly all of it
    positions = drawn.row_ids()
    assert drawn.weights() / block.weights()[positions] @ s[positions] == pytest.approx(s.sum(), rel=1e-9)
    if drawn.y is None:
        expected, weight = draw(s, 100, np.random.default_rng(0))
        np.testing.assert_array_equal(positions, expected)
        np.testing.assert_allclose(drawn.weights(), weight * block.weights()[positions], rtol=1e-9)
    assert "radius" not in drawn.notes


@pytest.mark.parametrize(("objective", "block"), _others())
def test_the_bound_of_a_new_row_is_that_of_an_equal_row_of_the_sample(objective, block) -> None:
    ready = Regressed(sample_size=300).prepare(block, objective, rng=np.random.default_rng(5))
    model, known = ready.sensitivity_model_, ready.known
    rows = Block(X=block.X[known.ids], y=None if block.y is None else block.y[known.ids])
    # one at a time, as new rows do not change the totals of the sample
    some = [model.exact(rows.cut(i, i + 1))[0] for i in range(3)]
    np.testing.assert_allclose(some, known.values[:3], rtol=1e-9)
    np.testing.assert_allclose(model.exact(rows), known.values, rtol=1e-9)
    again = unpacked(packed(ready))
    np.testing.assert_array_equal(again.scores(block)[0], ready.scores(block)[0])
    again.check_columns(4, objective)
    with pytest.raises(ValueError, match="other columns"):
        again.check_columns(5, objective)


@pytest.mark.parametrize("regressor", ["ols", DecisionTreeRegressor(max_depth=4)])
def test_logarithms_are_regressed_and_add_up(regressor) -> None:
    """exp(prediction + shift) with the shift that gives the sample its own sum, whatever the regressor."""
    block, objective = _problem(3000), _objective()
    ready = Regressed(regressor=regressor, log=True, radius=0.4, sample_size=700).prepare(
        block, objective, rng=np.random.default_rng(0)
    )
    model, known = ready.sensitivity_model_, ready.known
    sample = block.take(known.ids)
    rows = features(objective, sample, False)
    if regressor == "ols":
        design = np.column_stack([np.ones(700), rows])
        raw = design @ np.linalg.lstsq(design, np.log(known.values), rcond=None)[0]
    else:
        raw = clone(regressor).fit(rows, np.log(known.values)).predict(rows)
    factor = known.values.sum() / np.exp(raw).sum()
    np.testing.assert_allclose(model.score(sample), np.clip(factor * np.exp(raw), model.clip_low_, 3000.0), rtol=1e-9)
    logs = np.log(known.values)
    assert model.r2_ == pytest.approx(1.0 - np.square(logs - raw).sum() / np.square(logs - logs.mean()).sum())
    assert (
        model.clip_low_ >= 1.0
        and "radius" in ready.reduce(block, objective, 50, pilot=None, survey=None, rng=np.random.default_rng(0)).notes
    )


def test_predictions_of_sensitivities_that_are_exponential_are_exact_by_logarithms() -> None:
    block = _problem(2000, d=2)
    objective = _Exponential()
    plain, logs = (
        Regressed(log=log, mix=0.0).prepare(block, objective, rng=np.random.default_rng(0)) for log in (False, True)
    )
    m = np.exp(block.X[:, 0] - 0.5 * block.X[:, 1])
    model = logs.sensitivity_model_
    inside = (m > model.clip_low_ * 1.01) & (m < 2000.0)
    ratio = model.score(block.X)[inside] / m[inside]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)
    assert model.r2_ == pytest.approx(1.0) and plain.sensitivity_model_.r2_ < 0.9


@dataclass(frozen=True, kw_only=True)
class _Exponential(GenericObjective):
    def sensitivity(self, block, survey):
        return block.weights() * np.exp(block.X[:, 0] - 0.5 * block.X[:, 1]) / block.total_weight


def test_scores_larger_than_the_number_of_rows_are_told_apart() -> None:
    """With a large lam the bounds on shares of margins are far above 1, and only their proportions count."""
    block = _problem(1000, d=3)
    ready = Regressed(norm_feature=True, sample_size=500).prepare(
        block, MarginObjective(lam=1e6, classes=(0, 1)), rng=np.random.default_rng(0)
    )
    model, m = ready.sensitivity_model_, ready.known.values
    assert m.min() > 1000.0 and model.clip_high_ == 1000.0 * m.mean()
    predicted = model.score(block)
    assert predicted.max() > 10.0 * predicted.min()


def test_least_squares_are_least_squares(rng) -> None:
    from tithe.linear.regressed import _least_squares

    rows, m = rng.normal(size=(200, 5)) + 30.0, rng.random(200)
    for some in (rows, np.column_stack([rows, rows[:, 0]]), np.column_stack([rows, np.ones(200)])):
        got = _least_squares(some, m)
        want = np.linalg.lstsq(np.column_stack([np.ones(200), some]), m, rcond=None)[0]
        np.testing.assert_allclose(got[0] + some @ got[1:], want[0] + some @ want[1:], rtol=1e-8)


@pytest.mark.parametrize("regressor", [DecisionTreeRegressor(max_depth=3), PoissonRegressor()])
def test_any_regressor_will_do(regressor) -> None:
    block = _problem(2000)
    ready = Regressed(regressor=regressor, radius=0.4).prepare(block, _objective(), rng=np.random.default_rng(0))
    model = ready.sensitivity_model_
    assert model is not None and model.linear is None
    expected = np.clip(model.regressor.predict(features(_objective(), block, False)), model.clip_low_, 2000.0)
    np.testing.assert_allclose(model.score(block.X, block.y), expected)
    drawn = ready.reduce(block, _objective(), 50, pilot=None, survey=None, rng=np.random.default_rng(0))
    assert drawn.notes["regressor"] == type(regressor).__name__
    assert not hasattr(regressor, "n_features_in_"), "the regressor given is left as it was"


def test_few_rows_force_ridge_and_weights_are_bounded() -> None:
    block = _problem(4000, d=60)
    construction = Regressed(sample_size=100, radius=0.1)
    drawn = construction.reduce(block, _objective(), 200, pilot=None, survey=None, rng=np.random.default_rng(0))
    assert drawn.notes["regressor"] == "ridge" and drawn.notes["sample_size"] == 100
    assert {"r2", "clipped_share", "mean_predicted", "radius"} <= set(drawn.notes)
    single = Regressed(radius=0.4, mix=0.5).reduce(
        block, _objective(), 300, pilot=None, survey=None, rng=np.random.default_rng(1)
    )
    # two classes of nearly equal scores: a little more than N / (mix * size) for each draw of a row
    assert single.weights().max() < 2 * 1.2 * 4000 / (0.5 * 300)


def test_a_norm_explains_more_of_heavy_tails() -> None:
    block = _problem(5000)
    plain, normed = (_model(Regressed(radius=0.5, norm_feature=f), block).r2_ for f in (False, True))
    assert normed > plain + 0.2


@pytest.mark.bits
def test_stream_is_unbiased_and_does_not_depend_on_batches() -> None:
    block = _problem(1500)
    model = _model(Regressed(radius=0.5, norm_feature=True), block)
    values = np.column_stack([np.ones(1500), np.abs(block.X).sum(axis=1), block.y == 1])
    totals = values.sum(axis=0)
    errors = []
    for seed in range(500):
        kept, weight = model.stream(60, seed).include(block.X, block.y)
        assert len(weight) == kept.sum() and np.all(weight >= 1.0)
        errors.append(weight @ values[kept] / totals - 1.0)
    errors = np.array(errors)
    mean = errors.mean(axis=0)
    assert 500 * mean @ np.linalg.solve(np.cov(errors.T), mean) < 25.0
    online, parts = model.stream(60, 3), []
    for at in np.array_split(np.arange(1500), 7):
        parts.append(online.include(block.X[at], block.y[at]))
    kept, weight = model.stream(60, 3).include(block.X, block.y)
    assert np.array_equal(kept, np.concatenate([k for k, _ in parts]))
    assert np.array_equal(weight, np.concatenate([w for _, w in parts]))
    assert online.n_seen_ == 1500


def test_drift_is_noticed() -> None:
    block = _problem(20_000)
    model = _model(Regressed(radius=0.5), block)
    same, moved = model.stream(100, 0), model.stream(100, 0)
    assert np.isnan(same.drift_) and not same.drifted
    same.include(block.X, block.y)
    assert same.n_checked_ > 100 and 0.7 < same.drift_ < 1.4 and not same.drifted
    moved.include(5.0 * block.X[:2000], block.y[:2000])
    assert moved.drift_ > 2.0 and not moved.drifted, "too few rows to tell"
    moved.include(5.0 * block.X, block.y)
    assert moved.drifted


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="Did you mean 'lasso'"):
        Regressed(regressor="laso")
    with pytest.raises(ValueError, match=r"fit\(\)"):
        Regressed(regressor=3)
    for wrong in ({"mix": 2.0}, {"mix": "x"}, {"sample_size": 1}, {"n_clusters": "6"}, {"radius": -1.0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
            Regressed(**wrong)
    with pytest.raises(ValueError, match="prepare"):
        Regressed().scores(_problem(10))
    model = _model(Regressed(radius=0.5), _problem(600))
    with pytest.raises(ValueError, match="expected 4"):
        model.score(np.zeros((3, 5)), [0, 1, 0])
    with pytest.raises(ValueError, match="give y"):
        model.score(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="y has 2"):
        model.score(np.zeros((3, 4)), [0, 1])
    with pytest.raises(ValueError, match="size must be"):
        model.stream(0)


def test_rows_without_a_sensitivity_have_no_logarithm(rng: np.random.Generator) -> None:
    X = np.vstack([np.zeros((3000, 5)), rng.normal(size=(3000, 5))])
    goal = DictionaryObjective(n_components=8, n_nonzero_coefs=2, beta=0.0, include_reference=True)
    coreset = build_coreset(X, objective=goal, construction=Regressed(log=True), coreset_size=100, random_state=0)
    assert len(coreset) > 50 and coreset.weights().sum() == pytest.approx(6000, rel=0.5)


def test_a_coreset_file_keeps_what_scores_new_rows(tmp_path, rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(3000, 3)), np.where(rng.random(3000) < 0.4, "no", "yes")
    options = {"objective": "logistic", "construction": "rdsf", "coreset_size": 200, "random_state": 0}
    coreset = build_coreset(X, y, **options)
    save_coreset(coreset, tmp_path / "c.parquet", feature_names=["a", "b", "c"])
    scorer = load_coreset(tmp_path / "c.parquet").scorer
    np.testing.assert_array_equal(scorer.score(X, y), coreset.scorer.score(X, y))
    named, r2 = scorer.named_coefficients(["a", "b", "c"])
    assert sorted(name for name, _ in named) == ["a", "b", "c"] and r2 == scorer.r2_
    assert abs(named[0][1]) == np.abs(scorer.linear.coef).max()
    assert build_coreset(X, objective="kmeans", coreset_size=200).scorer is None
    assert build_coreset(X[:100], y[:100], **options).scorer is None  # all rows are kept: nothing was learned


def test_rows_of_a_batch_go_into_a_stream_and_drift_is_told_once(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(40_000, 3)), rng.integers(0, 2, 40_000)
    scorer = build_coreset(
        X[:5000], y[:5000], objective="logistic", construction="rdsf", coreset_size=200, random_state=0
    ).scorer
    totals = []
    for seed in range(5):
        draw, stream = scorer.stream(400, seed), CoresetStream("logistic", coreset_size=4000, random_state=0)
        for at in range(0, 40_000, 5000):
            draw.push(stream, X[at : at + 5000], y[at : at + 5000])
        kept = stream.coreset()
        assert (X[kept.row_ids()] == kept.X).all()
        totals.append(kept.weights().sum() / 40_000)
    assert np.mean(totals) == pytest.approx(1.0, abs=0.06)
    assert not draw.drifted
    far = scorer.stream(400, 0)
    with pytest.warns(UserWarning, match="drifted away"):
        far.push(CoresetStream("logistic", coreset_size=400), 30.0 * X, y)


def test_the_command_scores_and_draws(tmp_path, capsys) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6000, 2)), rng.integers(0, 2, 6000)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), tmp_path / "rows.parquet")
    rows, built, out = tmp_path / "rows.parquet", tmp_path / "coreset.parquet", tmp_path / "scores.parquet"
    made = ("build", rows, "--objective", "logistic", "--target", "y", "--construction", "rdsf", "-m", 300)
    assert run(*made, "-o", built) == 0
    assert run("score", rows, "--target", "y", "--with", built, "-m", 200, "-o", out) == 0
    assert "R² = " in capsys.readouterr().out
    table = pq.read_table(out)
    scorer, schema = load_coreset(built).scorer, load_schema(built)
    block = open_dataset(rows, target="y", schema=schema).sample(None, rng=rng)
    expected = dict(zip(block.row_ids().tolist(), scorer.score(block), strict=True))
    assert table["row_id"].to_pylist() == sorted(expected)
    for row, value in zip(table["row_id"].to_pylist(), table["sensitivity"].to_pylist(), strict=True):
        assert value == pytest.approx(expected[row])
    assert table["weight"].to_numpy().sum() == pytest.approx(6000, rel=0.2)
    assert run("score", rows, "--with", built, "-o", out) == 2
    assert run("build", rows, "-k", 2, "-m", 300, "--columns", "a,b", "-o", built) == 0
    assert run("score", rows, "--with", built, "-o", out) == 2
    assert "--construction rdsf" in capsys.readouterr().err
