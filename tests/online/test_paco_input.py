"""What PACO refuses, and what it does with odd rows and when it is interrupted."""

from __future__ import annotations

import pkgutil

import numpy as np
import pandas as pd
import pytest
from paco_rows import blobs
from sklearn.base import clone

from tithe.online import PACO


def test_bad_rows_are_refused_and_none_of_them_is_taken() -> None:
    X = blobs(100, 2)
    model = PACO(random_state=0).partial_fit(X)
    bad = X.copy()
    bad[50, 1] = np.nan
    for rows, message in ((bad, "Input X contains NaN"), (X[:, :1], "1 features"), (X * 1e80, "scale the rows")):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(rows)
    assert model.n_rows_ == 100
    with pytest.raises(ValueError, match="Input contains NaN"):
        model.learn_one({"a": float("nan"), "b": 1.0})


@pytest.mark.parametrize("kernel", ["birth_death", "symmetric", "paper"])
@pytest.mark.parametrize("preset", ["practical", "theory"])
def test_equal_rows_and_more_centres_than_distinct_rows(kernel: str, preset: str) -> None:
    X = np.full((60, 3), 2.5)
    model = PACO(6, kernel=kernel, preset=preset, n_samples=30, random_state=0).partial_fit(X)
    assert np.isfinite(model.cluster_centers_).all() and np.isfinite(model.history_["cumulative_loss"]).all()
    if preset == "practical":
        assert model.n_clusters_ == 1
        if kernel == "birth_death":
            np.testing.assert_allclose(model.cluster_centers_[0], 2.5, rtol=1e-4)
        assert PACO(6, summary_size=20, random_state=0).partial_fit(np.tile(X, (2, 1))).n_clusters_ == 1
    two = np.repeat([[0.0, 0.0], [5.0, 5.0]], 60, axis=0)[np.random.default_rng(0).permutation(120)]
    model = PACO(6, kernel=kernel, preset=preset, n_samples=30, random_state=0).partial_fit(two)
    assert 1 <= model.n_clusters_ <= 6 and np.isfinite(model.cluster_centers_).all()


def test_200_columns(rng) -> None:
    X = np.concatenate([rng.normal(size=(300, 200)), rng.normal(size=(300, 200)) + 3.0])[rng.permutation(600)]
    model = PACO(random_state=0).partial_fit(X)
    assert model.n_clusters_ == 2
    for kernel in ("symmetric", "paper"):
        other = PACO(4, kernel=kernel, preset="theory", n_samples=5, random_state=0).partial_fit(X[:40])
        assert np.isfinite(other.cluster_centers_).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_clusters": 0}, "max_clusters must be a whole number"),
        ({"n_samples": 0}, "n_samples must be"),
        ({"preset": "best"}, "preset must be"),
        ({"kernel": "gibbs"}, "kernel must be one of"),
        ({"scale": "rows"}, "scale must be"),
        ({"kernel": "symmetric"}, "up to max_clusters=8"),
        ({"radius": -1.0}, "radius must be"),
        ({"radius": "large"}, "radius must be"),
        ({"radius": 1e300}, "radius must be between .* scale the rows"),
        ({"radius": 1e-300}, "radius must be between .* scale the rows"),
        ({"beyond_radius": "error"}, "needs a radius"),
        ({"eta": -1.0}, "eta must be None or a number of at least 0"),
        ({"temperature": 0.0}, "temperature must be"),
        ({"half_life": 0.0}, "half_life must be"),
        ({"horizon": 0, "preset": "theory"}, "horizon must be"),
        ({"horizon": 9}, "horizon is of preset='theory'"),
        ({"inverse_temperature": 1.0, "preset": "practical"}, "inverse_temperature is of preset='theory'"),
        ({"inverse_temperature": 1.0, "horizon": 9, "preset": "theory"}, "give one of them"),
        ({"summary_size": 10}, "take at least 40"),
    ],
)
def test_wrong_parameters(given: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PACO(**given).partial_fit(blobs(10))


@pytest.mark.parametrize("kernel", ["birth_death", "paper"])
@pytest.mark.parametrize("place", ["chain.run_chain", "chain.measure_scale", "memory.CoresetStream.coreset"])
def test_interrupted_it_has_taken_so_many_rows_and_goes_on(monkeypatch, kernel: str, place: str) -> None:
    X, name = blobs(400, 3), f"tithe.online.{place}"
    real, calls = pkgutil.resolve_name(name), []

    def interrupted(*given, **named):
        result = real(*given, **named)
        calls.append(len(calls))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return result

    model = PACO(8, kernel=kernel, summary_size=60, n_samples=5, random_state=0)
    with monkeypatch.context() as patch:
        patch.setattr(name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X)
    n = model.n_rows_
    assert 0 < n < 400 and model.history_["row"].tolist() == list(range(1, n + 1))
    model.partial_fit(X[n:])
    assert model.n_rows_ == len(model.history_["row"]) == 400
    assert model._chain.past.stream.n_rows == model._chain.past.n_handed == 360
    assert model.summary_.weights().sum() == pytest.approx(400.0, rel=0.1)


def test_a_fit_to_an_array_forgets_the_schema_of_a_frame() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "colour": np.where(rng.random(60) < 0.5, "red", "blue")})
    X = rng.normal(size=(60, 2))
    model = PACO(random_state=0).fit(frame).fit(X)
    assert model.schema_ is None and not hasattr(model, "feature_names_in_")
    assert len(model.predict(X)) == 60


def test_parameters_may_not_change_in_the_middle() -> None:
    model = PACO(random_state=0).partial_fit(blobs(50))
    model.set_params(half_life=10.0)
    with pytest.raises(ValueError, match="parameters have changed"):
        model.partial_fit(blobs(50))
    assert clone(model).partial_fit(blobs(50)).n_rows_ == 50
