"""Every learner, certificate and search on a Dask cluster of two processes: the bits of the serial engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from tithe import (
    CoresetEstimator,
    CoresetHuberRegressor,
    CoresetKMeans,
    CoresetKMedians,
    CoresetLogisticRegression,
    CoresetPoissonRegressor,
    CoresetRidge,
    CoresetSearchCV,
    build_coreset,
    distortion,
    open_dataset,
)
from tithe.dictionary import KSVD
from tithe.objectives import KMeansObjective
from tithe.odm import LinearODMClassifier, ODMClassifier, PartitionSolver

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tithe[dask]'")
pytestmark = pytest.mark.slow  # a cluster takes seconds to start, and its workers compile
da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")

FEATURES = ["x0", "x1", "x2", "x3"]
SMALL = {"coreset_size": 300, "random_state": 0}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(12_000, 4)) + 2 * rng.integers(0, 3, size=(12_000, 1))).astype(np.float32)
    label = np.where(X[:, 0] + rng.logistic(size=len(X)) > 2, "yes", "no")
    number = X @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=len(X))
    counts = rng.poisson(np.exp(0.2 * X[:, 0]))
    return pd.DataFrame(X, columns=FEATURES).assign(label=label, number=number, counts=counts.astype(float))


@pytest.fixture(scope="module")
def folder(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    for number in range(3):
        part = frame.iloc[4000 * number : 4000 * (number + 1)]
        part.to_parquet(folder / f"part-{number}.parquet", row_group_size=500, index=False)
    return folder


@pytest.fixture(autouse=True)
def _small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tithe.reduce.plan.LEAF_ROWS", 1000)
    monkeypatch.setattr("tithe.rows.dask_collections._PLACED_LEAF_ROWS", 1000)


def _open(folder: Path, target: str | None) -> Any:
    source = open_dataset(folder, columns=FEATURES, target=target, scale="none")
    source.leaf_rows = 1000
    return source


def _bits(model: Any) -> list[bytes]:
    """The fitted numbers of a model."""
    names = ("cluster_centers_", "coef_", "intercept_", "components_", "inertia_", "objective_curve_", "best_score_")
    values = [getattr(model, name, None) for name in (*names, "dual_coef_", "support_")]
    certificate = getattr(model, "certificate_", None)
    kept = getattr(model, "coreset_", None)
    numbers = [np.asarray(value).tobytes() for value in values if value is not None]
    return [*numbers, repr(certificate).encode(), b"" if kept is None else np.asarray(kept.X).tobytes()]


LEARNERS = {
    "kmeans": (CoresetKMeans(3, **SMALL), None),
    "kmedians": (CoresetKMedians(3, **SMALL), None),
    "logistic": (CoresetLogisticRegression(class_weight="balanced", **SMALL), "label"),
    "ridge": (CoresetRidge(**SMALL), "number"),
    "poisson": (CoresetPoissonRegressor(**SMALL), "counts"),
    "huber": (CoresetHuberRegressor(**SMALL), "number"),
    "odm": (LinearODMClassifier(**SMALL), "label"),
    "dictionary": (KSVD(n_components=5, n_nonzero_coefs=2, max_iter=3, center="global", **SMALL), None),
    "estimator": (CoresetEstimator(LogisticRegression(), polish=0, **SMALL), "label"),
    "search": (CoresetSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, cv=2, **SMALL), "label"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(LEARNERS))
def test_learners_have_the_bits_of_the_serial_engine(client: Any, folder: Path, name: str) -> None:
    learner, target = LEARNERS[name]
    fitted = []
    for engine in ("serial", "dask"):
        model = learner.set_params(engine=engine).fit(_open(folder, target))
        certificate = model.certify(_open(folder, target)) if hasattr(model, "certify") else model.certificate_
        fitted.append([*_bits(model), repr(certificate).encode()])
    assert fitted[0] == fitted[1]


def test_the_parts_of_a_kernel_machine(client: Any, frame: pd.DataFrame) -> None:
    X, y = frame[FEATURES].to_numpy()[:600], frame["label"].to_numpy()[:600]
    machines = [
        ODMClassifier(solver=PartitionSolver(n_parts=2, engine=engine), random_state=0).fit(X, y)
        for engine in ("serial", "dask")
    ]
    assert _bits(machines[0]) == _bits(machines[1])


def test_the_distortion(client: Any, folder: Path) -> None:
    source, objective = _open(folder, None), KMeansObjective(n_clusters=3, n_init=1)
    coreset = build_coreset(source, objective=objective, engine="dask", **SMALL)
    found = [distortion(source, coreset, objective, engine=engine).values for engine in ("serial", "dask")]
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


def _build(X: Any, engine: Any) -> Any:
    return build_coreset(X, objective=KMeansObjective(n_clusters=3, n_init=1), engine=engine, **SMALL)


@pytest.mark.parametrize("persist", [False, True])
def test_arrays_and_frames_on_the_cluster(client: Any, frame: pd.DataFrame, persist: bool) -> None:
    X = frame[FEATURES].to_numpy()
    chunked, ddf = da.from_array(X, chunks=(2600, 4)), dd.from_pandas(frame[FEATURES], npartitions=5)
    expected = [_build(da.from_array(X, chunks=(12_000, 4)), "serial"), _build(ddf, "serial")]
    given = [chunked.persist(), ddf.persist()] if persist else [chunked, ddf]
    for collection, coreset in zip(given, expected, strict=True):
        there = _build(collection, "auto")
        assert np.array_equal(there.X, coreset.X) and np.array_equal(there.weights(), coreset.weights())


def test_auto_runs_on_the_workers(client: Any, frame: pd.DataFrame) -> None:
    ddf = dd.from_pandas(frame, npartitions=4).persist()
    processes = set(client.run(os.getpid).values())
    source = open_dataset(ddf, target="label")
    assert source.best_engine == "dask"
    from tithe.core.passes import DataPass

    assert set(DataPass(source).each(lambda leaf: os.getpid())) <= processes
    model = CoresetLogisticRegression(**SMALL).fit(ddf[FEATURES], ddf["label"])
    predicted = model.predict(ddf[FEATURES])
    assert isinstance(predicted, dd.Series)
    assert np.array_equal(predicted.compute(), model.predict(frame[FEATURES]))


def test_a_bad_row_of_a_partition_is_named(client: Any, frame: pd.DataFrame) -> None:
    X = frame[FEATURES].to_numpy().copy()
    X[7007, 2] = np.nan
    with pytest.raises(ValueError, match=r"'partition 2', row 1007 .*column 2 is missing"):
        CoresetKMeans(2, engine="dask", **SMALL).fit(da.from_array(X, chunks=(3000, 4)))


def test_rows_that_are_persisted_stay_where_they_are(client: Any) -> None:
    X = da.random.default_rng(0).normal(size=(400_000, 5), chunks=(50_000, 5)).astype("float32").persist()
    distributed.wait(X)
    before = client.run(_bytes_received)
    _build(X, "dask")
    moved = sum(client.run(_bytes_received).values()) - sum(before.values())
    assert moved < 0.5 * X.nbytes  # a bound that tells rows in place from rows that travel; benchmarks have the share


def _bytes_received(dask_worker: Any) -> int:
    return int(sum(record["total"] for record in dask_worker.transfer_incoming_log))


def test_nearly_only_rows_of_the_sample_travel(client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tithe.certify.held_out._MAX_SOURCE_ROWS", 400)
    from tithe.certify import held_out
    from tithe.core.passes import DataPass

    source = _open(folder, None)
    coreset = _build(source, "serial")
    sizes: list[int] = []
    kept = held_out.Reservoir.keep
    monkeypatch.setattr(held_out.Reservoir, "keep", lambda self, block: (sizes.append(len(block)), kept(self, block)))
    rows, is_training_data = held_out.sample_source(DataPass(source, "dask"), coreset, 7)
    assert len(rows) == 400 and is_training_data and sum(sizes) < 800
