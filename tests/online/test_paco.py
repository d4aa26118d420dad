from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from paco_rows import blobs, same

from tithe import load_model, save_model
from tithe.core.data import Block
from tithe.core.errors import FileFormatError
from tithe.online import PACO
from tithe.online import chain as history_module
from tithe.online.chain import History
from tithe.online.memory import QuasiPosteriorObjective
from tithe.online.scale import Pieces, measure_scale

# -- the blobs a person sees ----------------------------------------------------------------------


@pytest.mark.parametrize(("d", "k"), [(2, 1), (2, 4), (2, 9), (10, 5), (60, 3)])
def test_practical_preset_finds_the_blobs(d: int, k: int) -> None:
    X = blobs(2500, k, d)
    model = PACO(random_state=0, summary_size=500).partial_fit(X)
    assert model.n_clusters_ == k
    assert (model.history_["k"][1500:] == k).mean() > 0.95
    assert model.history_["loss"][1500:].mean() < 1.15 * d


def test_a_smooth_cloud_is_one_cluster(rng) -> None:
    assert PACO(random_state=0).partial_fit(rng.uniform(-1, 1, size=(2000, 2))).n_clusters_ == 1
    assert PACO(random_state=0).partial_fit(rng.normal(size=(2000, 1))).n_clusters_ == 1


def test_a_small_eta_covers_a_smooth_cloud_with_centres(rng) -> None:
    X = rng.normal(size=(700, 2))
    one, many = (PACO(random_state=0, eta=eta, summary_size=200).partial_fit(X) for eta in (1.25, 0.1))
    assert one.n_clusters_ == 1 and many.n_clusters_ >= 3
    assert many.history_["loss"][350:].sum() < 0.7 * one.history_["loss"][350:].sum()


def test_the_scale_of_the_present_centres_follows_a_curve_and_keeps_round_clusters(rng) -> None:
    angle = rng.uniform(0.0, 1.5 * np.pi, size=800)
    curve = np.column_stack([np.cos(angle), np.sin(angle), 0.3 * angle]) + 0.02 * rng.normal(size=(800, 3))
    loss = {}
    for scale in ("clusters", "centers"):
        given = {"random_state": 0, "summary_size": 200, "scale": scale}
        loss[scale] = PACO(**given).partial_fit(curve).history_["loss"][400:].sum()
        assert PACO(**given).partial_fit(blobs(400, 3)).n_clusters_ == 3
    assert loss["centers"] < 0.85 * loss["clusters"]


def test_the_default_takes_the_steps_it_names() -> None:
    X, options = blobs(60, 2), {"n_samples": 20, "random_state": 0}
    default = PACO(4, **options).partial_fit(X)
    assert same(default, PACO(4, kernel="birth_death", **options).partial_fit(X))
    assert not same(default, PACO(4, kernel="paper", **options).partial_fit(X))


def test_fewer_steps_while_rows_are_as_near_as_most(monkeypatch) -> None:
    X, steps = blobs(2400, 4), []
    inner = history_module.run_chain
    names = inner.py_func.__code__.co_varnames

    def counted(*given: object) -> int:
        n_added: int = inner(*given)
        argument = dict(zip(names, given, strict=False))
        if len(argument["X"]) > 1:
            steps.append((argument["n_steps"], argument["n_calm"]))
        return n_added

    monkeypatch.setattr(history_module, "run_chain", counted)
    PACO(random_state=0).partial_fit(X)
    assert set(steps) == {(12, 4)}
    steps.clear()
    PACO(4, preset="theory", n_samples=30, radius=30.0, random_state=0).partial_fit(X[:60])
    assert set(steps) == {(30, 30)}


def test_units_make_no_difference() -> None:
    X = blobs(800, 3)
    a = PACO(random_state=0).partial_fit(X)
    b = PACO(random_state=0).partial_fit(X * 2.0**20)
    np.testing.assert_array_equal(a.history_["k"], b.history_["k"])
    np.testing.assert_allclose(a.cluster_centers_ * 2.0**20, b.cluster_centers_, rtol=1e-9)


@pytest.mark.parametrize("far", [1e5, 1e9, 1e11])
def test_one_row_far_away_does_not_blur_the_others(far: float) -> None:
    X = blobs(2000, 3)
    X[800] = [far, 0.0]
    model = PACO(random_state=0).partial_fit(X)
    assert model.n_clusters_ == 4 and model.history_["loss"][1200:].mean() < 2.5


@pytest.mark.parametrize(("d", "k"), [(2, 8), (2, 3), (10, 5)])
@pytest.mark.parametrize("unequal", [False, True])
def test_noise_pays_for_no_centre(d: int, k: int, unequal: bool) -> None:
    X, rng = blobs(2500, k, d, apart=14.0), np.random.default_rng(1)
    if unequal:
        X = X[np.argsort(rng.random(2500) * (1.0 + 2.0 * (X[:, 0] > 0.0)))[:1500]]
    noise = rng.random(len(X)) < 0.05
    X[noise] = rng.uniform(-40.0, 40.0, size=(int(noise.sum()), d))
    history = PACO(random_state=0, summary_size=500).partial_fit(X).history_
    assert (np.abs(history["k"][len(X) // 2 :] - k) <= 1).mean() > 0.95


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_blobs_beside_rows_that_are_all_equal(share: float, rng) -> None:
    X = blobs(2500, 3)
    X[rng.random(2500) < share] = [50.0, 50.0]
    assert PACO(random_state=0).partial_fit(X).n_clusters_ == 4
    assert measure_scale(Block(X=X), Pieces.of(Block(X=X), 20, 0, 0), 20).variance > 0.5 * (1.0 - share)


def test_clusters_are_born_and_with_a_half_life_die() -> None:
    X = np.concatenate([blobs(2000, 2, seed=1), blobs(2000, 5, seed=2) + 1.0])
    assert PACO(random_state=0, summary_size=500).partial_fit(X).n_clusters_ in (5, 6, 7)
    rng = np.random.default_rng(3)
    places = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [12.0, 12.0]])
    X = np.concatenate([places[rng.integers(k, size=1000)] + rng.normal(size=(1000, 2)) for k in (4, 2)])
    kept = PACO(random_state=0, summary_size=500).partial_fit(X)
    fading = PACO(random_state=0, summary_size=500, half_life=200).partial_fit(X)
    assert kept.n_clusters_ == 4 and (fading.history_["k"][1500:] == 2).mean() > 0.95


def test_the_first_row_of_a_new_cluster_becomes_a_centre_at_once_in_half_of_the_runs() -> None:
    before, row, n_born = PACO(random_state=0).partial_fit(blobs(300, 2)), np.array([[60.0, 60.0]]), 0
    for dice in range(60):
        model = copy.deepcopy(before)
        model._chain.dice = dice
        n_born += np.linalg.norm(model.partial_fit(row).cluster_centers_ - row, axis=1).min() < 10.0
    assert n_born >= 25


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 10])
@pytest.mark.parametrize(("regimes", "half_life"), [((2, 3, 5), None), ((3, 5, 2), 300.0)])
def test_planted_mixtures_over_30000_rows(d: int, regimes: tuple[int, ...], half_life: float | None) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        places: list[np.ndarray] = []
        while len(places) < 5:
            place = rng.uniform(-25.0, 25.0, size=d)
            if all(np.linalg.norm(place - other) >= 10.0 for other in places):
                places.append(place)
        labels = [rng.integers(k, size=10_000) for k in regimes]
        X = [np.array(places)[at] + rng.normal(size=(10_000, d)) for at in labels]
        model = PACO(random_state=seed, half_life=half_life).partial_fit(np.concatenate(X))
        k, loss = model.history_["k"].reshape(3, -1), model.history_["loss"].reshape(3, -1)
        truth = np.array(regimes)[:, None]
        assert (np.abs(k - truth)[:, 1000:] <= 1).mean() >= 0.8
        best = sum(((rows[at == j] - rows[at == j].mean(axis=0)) ** 2).sum()
                   for rows, at in zip(X, labels, strict=True) for j in np.unique(at))  # fmt: skip
        assert loss.sum() <= 2.0 * best


# -- what a prediction may know -------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["birth_death", "symmetric", "paper"])
def test_a_prediction_never_reads_the_row_it_predicts(kernel: str) -> None:
    X = blobs(150, 3)
    for t in (1, 2, 57, 149):
        before = PACO(8, kernel=kernel, n_samples=20, random_state=0).partial_fit(X[:t])
        poisoned = X[: t + 1].copy()
        poisoned[t] = [-1e3, 1e3]
        after = PACO(8, kernel=kernel, n_samples=20, random_state=0).partial_fit(poisoned).history_
        loss = ((before.cluster_centers_ - poisoned[t]) ** 2).sum(axis=1).min()
        assert after["loss"][t] == pytest.approx(loss, rel=1e-12)
        assert after["k"][t] == before.n_clusters_
        np.testing.assert_array_equal(after["loss"][:t], before.history_["loss"])


def test_the_first_prediction_is_drawn_from_the_prior() -> None:
    ks = []
    for seed in range(300):
        model = PACO(4, preset="theory", n_samples=1, radius=1.0, random_state=seed)
        ks.append(int(model.partial_fit(np.full((1, 2), 0.1)).history_["k"][0]))
    share = np.bincount(ks, minlength=5)[1:] / 300
    prior = np.exp(-np.arange(4.0))
    assert np.abs(share - prior / prior.sum()).max() < 0.09


def test_at_infinite_temperature_rows_do_not_count() -> None:
    X = blobs(2000, 3)
    model = PACO(3, preset="theory", n_samples=20, temperature=np.inf, random_state=0).partial_fit(X)
    prior = np.exp(-np.arange(3.0))
    share = np.bincount(model.history_["k"][100:], minlength=4)[1:] / 1900
    assert np.abs(share - prior / prior.sum()).max() < 0.06
    for kernel in ("birth_death", "symmetric"):
        model = PACO(3, kernel=kernel, temperature=np.inf, random_state=0).partial_fit(X[:100])
        assert np.isfinite(model.cluster_centers_).all()


# -- the past, bounded ----------------------------------------------------------------------------


@pytest.mark.parametrize("half_life", [None, 60.0])
@pytest.mark.parametrize("kernel", ["birth_death", "symmetric"])
def test_a_summary_of_as_many_rows_is_exact(kernel: str, half_life: float | None) -> None:
    X = blobs(400, 3)
    given = {"max_clusters": 8, "kernel": kernel, "half_life": half_life, "n_samples": 10, "random_state": 3}
    exact = PACO(summary_size=None, **given).partial_fit(X)
    assert same(exact, PACO(summary_size=400, **given).partial_fit(X))
    late = PACO(summary_size=399, **given).partial_fit(X).history_  # row 400 is still predicted from 399 rows
    assert all(np.array_equal(exact.history_[name], late[name]) for name in ("k", "loss", "cumulative_loss"))
    assert not same(exact, PACO(summary_size=100, **given).partial_fit(X))


def test_memory_does_not_grow() -> None:
    X = blobs(6000, 4)
    model = PACO(random_state=0, summary_size=200).partial_fit(X[:1000])
    first = len(pickle.dumps(model._chain.past.arrays))
    model.partial_fit(X[1000:])
    assert len(pickle.dumps(model._chain.past.arrays)) == first
    assert model._chain.past.rows.shape[1] <= 512 and model.n_rows_ == 6000


def test_the_summary_has_the_weight_and_the_cost_of_the_past(rng) -> None:
    X = blobs(5000, 4)
    model = PACO(random_state=0, summary_size=500).partial_fit(X)
    past, n = model._chain.past, int(model._chain.state[0])
    weight = past.columns[0, :n]
    assert weight.sum() == pytest.approx(5000, rel=0.02)
    centers = model.cluster_centers_ + rng.normal(size=(4, 2))
    kept = ((past.rows[:, :n].T[:, None] - centers) ** 2).sum(axis=2).min(axis=1) @ weight
    assert kept == pytest.approx(((X[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum(), rel=0.05)


def test_in_which_pieces_rows_come_makes_no_difference() -> None:
    X, rng = np.concatenate([blobs(1250, 4), blobs(250, 2)]), np.random.default_rng(0)
    whole = PACO(random_state=5, summary_size=100, half_life=80).partial_fit(X)
    assert (whole.summary_.weights() == 0.0).any()  # clusters have ended
    parts = PACO(random_state=5, summary_size=100, half_life=80)
    for piece in np.split(X, np.sort(rng.choice(1500, 40, replace=False))):
        if len(piece):
            parts.partial_fit(piece)
    assert same(whole, parts)


def test_scores_of_the_summary_cover_both_terms(rng) -> None:
    X = np.column_stack([blobs(400, 3), rng.random(400), np.where(np.arange(400) == 7, 50.0, 0.1)])
    block, objective = Block(X=X), QuasiPosteriorObjective(n_clusters=3)
    survey = objective.survey(block, objective.pilot(block, rng=rng))
    scores = objective.sensitivity(block, survey)
    calm = Block(X=np.where(X == 50.0, 0.1, X))
    assert (scores > 0).all() and scores[7] > 1.0 + objective.sensitivity(calm, survey)[7]
    centers = rng.normal(size=(3, 2))
    loss = ((X[:, None, :2] - centers) ** 2).sum(axis=2).min(axis=1)
    np.testing.assert_allclose(objective.cost(block, centers), loss + X[:, 3] / 2 * (loss - X[:, 2]) ** 2, rtol=1e-9)


def test_the_scale_of_clusters_is_their_variance_in_a_direction() -> None:
    for d, k in ((1, 1), (2, 1), (2, 5), (10, 4)):
        X = blobs(3000, k, max(d, 2))[:, :d] * 3.0
        scale = measure_scale(Block(X=X), Pieces.of(Block(X=X), 20, 0, 0), 20)
        assert scale.n_cut == k and scale.variance == pytest.approx(9.0, rel=0.15)
        assert scale.split == pytest.approx(2 / np.pi / k, rel=0.4)


# -- on disk --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["birth_death", "symmetric"])
@pytest.mark.bits
def test_resumed_at_a_random_row_it_goes_on_bit_by_bit(tmp_path, kernel: str) -> None:
    X, rng = blobs(700, 4), np.random.default_rng(8)
    given = {"max_clusters": 8, "kernel": kernel, "summary_size": 100, "n_samples": 8, "random_state": 4}
    whole = PACO(**given).partial_fit(X)
    for stop in rng.integers(1, 700, size=3).tolist():
        model = PACO(**given).partial_fit(X[:stop])
        model.checkpoint(tmp_path / f"state-{stop}")
        resumed = PACO.resume(tmp_path / f"state-{stop}")
        assert same(whole, resumed.partial_fit(X[stop:]))
        resumed.checkpoint(tmp_path / f"state-{stop}")
        assert PACO.resume(tmp_path / f"state-{stop}").n_rows_ == 700


def test_a_checkpoint_of_something_else_is_neither_replaced_nor_read(tmp_path) -> None:
    from tithe import CoresetStream

    X = blobs(300, 2)
    CoresetStream("kmeans", coreset_size=50, random_state=0).push(X).checkpoint(tmp_path / "stream")
    model = PACO(random_state=0).partial_fit(X)
    with pytest.raises(ValueError, match="another run"):
        model.checkpoint(tmp_path / "stream")
    with pytest.raises(FileFormatError, match="not the checkpoint of an online"):
        PACO.resume(tmp_path / "stream")
    model.checkpoint(tmp_path / "state")
    with pytest.raises(ValueError, match="another run"):
        pickle.loads(pickle.dumps(model)).checkpoint(tmp_path / "state")


def test_a_folder_of_the_same_name_elsewhere_is_another_one(tmp_path, monkeypatch) -> None:
    models = [PACO(random_state=0).partial_fit(blobs(n)) for n in (10, 20)]
    for name, model in zip("ab", models, strict=True):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        model.checkpoint("state")
    with pytest.raises(ValueError, match="another run"):
        models[0].checkpoint("state")
    assert PACO.resume("state").n_rows_ == 20


def test_a_saved_model_predicts_and_goes_on(tmp_path) -> None:
    X = blobs(900, 3)
    whole = PACO(random_state=1, summary_size=200).partial_fit(X)
    save_model(PACO(random_state=1, summary_size=200).partial_fit(X[:500]), tmp_path / "m.tithe", rows=True)
    loaded = load_model(tmp_path / "m.tithe")
    assert same(whole, loaded.partial_fit(X[500:]))
    np.testing.assert_array_equal(loaded.predict(X), whole.predict(X))


# -- the radius -----------------------------------------------------------------------------------


def test_a_late_row_beyond_the_radius_doubles_it() -> None:
    X = blobs(400, 3)
    X[200] *= 0.0
    X[300] = [300.0, 0.0]
    model = PACO(radius=30.0, random_state=0).partial_fit(X)
    assert model.history_["restarts"] == [(300, 480.0)] and model.radius_ == 480.0
    assert np.isfinite(model.history_["cumulative_loss"]).all()
    model = PACO(radius=30.0, beyond_radius="error", random_state=0).partial_fit(X[:250])
    before = model.n_rows_
    with pytest.raises(ValueError, match="Row 50 of X has norm 300, beyond the radius of 30"):
        model.partial_fit(X[250:])
    assert model.n_rows_ == before


def test_the_largest_norm_of_the_rows_is_not_beyond_itself() -> None:
    for seed in range(15):
        X = np.random.default_rng(seed).normal(size=(20, 10))
        radius = float(np.linalg.norm(X, axis=1).max())
        for beyond in ("restart", "error"):
            model = PACO(radius=radius, beyond_radius=beyond, n_samples=1, random_state=0).partial_fit(X)
            assert model.history_["restarts"] == [] and model.radius_ == radius


def test_zeros_before_anything_else() -> None:
    X = np.concatenate([np.zeros((20, 2)), blobs(300, 2)])
    model = PACO(random_state=0).partial_fit(X[:20])
    assert model.n_clusters_ == 1 and model.radius_ == 0.0 and not model.history_["loss"].any()
    assert model.partial_fit(X[20:]).n_clusters_ in (2, 3)


# -- one row at a time, and what happened ---------------------------------------------------------


def test_rows_as_dictionaries() -> None:
    X = blobs(300, 3)
    model = PACO(random_state=0)
    assert model.predict_one({"a": 1.0, "b": 2.0}) == 0
    for x in X:
        model.learn_one({"a": x[0], "b": x[1]})
    assert same(model, PACO(random_state=0).partial_fit(X))
    frame = pd.DataFrame(X[:1], columns=["a", "b"])
    assert model.predict_one({"b": X[0, 1], "a": X[0, 0]}) == model.predict(frame)[0]
    with pytest.raises(ValueError, match="same order"):
        model.partial_fit(frame[["b", "a"]])


def test_rows_as_dictionaries_after_a_frame_are_read_by_name() -> None:
    X = blobs(300, 3)
    model = PACO(random_state=0).partial_fit(pd.DataFrame(X[:200], columns=["a", "b"]))
    for x in X[200:]:
        assert model.predict_one({"b": x[1], "a": x[0]}) == model.predict_one({"a": x[0], "b": x[1]})
        model.learn_one({"b": x[1], "a": x[0]})
    assert same(model, PACO(random_state=0).partial_fit(X))


def test_a_dictionary_that_was_refused_leaves_nothing_behind() -> None:
    model = PACO(random_state=0)
    with pytest.raises(ValueError, match="scale the rows"):
        model.learn_one({"c": 1e300})
    model.learn_one({"a": 1.0, "b": 2.0})
    array = PACO(random_state=0).partial_fit(blobs(20))
    array.predict_one({"a": 1.0, "b": 2.0})  # asking does not name the features
    array.learn_one({"x": 1.0, "y": 2.0})
    assert model.n_rows_ == 1 and array.n_rows_ == 21
    with pytest.raises(ValueError, match="has 3 features, those before it had 2 without names"):
        PACO(random_state=0).partial_fit(blobs(20)).learn_one({"a": 1.0, "b": 2.0, "c": 3.0})
    model.set_params(half_life=10.0)
    with pytest.raises(ValueError, match="parameters have changed"):
        model.learn_one({"a": 1.0, "b": 2.0})


def test_history_of_many_rows_is_joined(monkeypatch, rng) -> None:
    monkeypatch.setattr(history_module, "MAX_ENTRIES", 64)
    k, loss, share = rng.integers(1, 5, 1001), rng.random(1001), rng.random(1001)
    whole, parts = History(), History()
    whole.add(k, loss, share)
    for piece in np.array_split(np.arange(1001), 37):
        parts.add(k[piece], loss[piece], share[piece])
    a, b = whole.as_dict(), parts.as_dict()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])
    assert len(a["row"]) < 64 and a["row"][-1] == 1001 and whole.stride == 16
    np.testing.assert_array_equal(a["k"], k[a["row"] - 1])
    np.testing.assert_allclose(a["cumulative_loss"], loss.cumsum()[a["row"] - 1])
    np.testing.assert_allclose(a["loss"][0], loss[:16].mean())


def test_fit_starts_anew_and_labels_rows() -> None:
    X = blobs(400, 3)
    model = PACO(random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, model.predict(X))
    again = model.history_
    assert same(model.fit(X), PACO(random_state=0).partial_fit(X)) and len(again["row"]) == 400
    np.testing.assert_allclose(again["loss"].cumsum(), again["cumulative_loss"])
    assert ((again["acceptance"] >= 0) & (again["acceptance"] <= 1)).all()
    with pytest.raises(AttributeError, match="before any row"):
        PACO().cluster_centers_  # noqa: B018 - asking is the test


def test_presets_are_as_warm_as_they_say() -> None:
    X = blobs(200, 3)
    loss = {
        preset: PACO(6, preset=preset, n_samples=100, random_state=0).partial_fit(X).history_["loss"][50:].mean()
        for preset in ("practical", "theory")
    }
    assert loss["practical"] < 1.3 * 2.0 and loss["theory"] > 2.0 * loss["practical"]
