"""From files to a coreset: the same bits on every engine, after any interruption, whatever the files look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from plain_rows import open_dataset

import tithe
from tithe import Checkpoint
from tithe.core.contracts import Source
from tithe.core.parallel import limit_threads
from tithe.core.passes import DataPass
from tithe.objectives import GenericObjective, KMeansObjective, LogisticObjective
from tithe.reduce.plan import Plan, Reducer, reduce_rows

OBJECTIVES = {
    "kmeans": KMeansObjective(n_clusters=4),
    "logistic": LogisticObjective(),
    "generic": GenericObjective(n_classes=0),
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 3)).astype(np.float32) + rng.choice([0.0, 7.0], (300_000, 1)).astype(np.float32)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["y"] = (X @ [0.5, -0.2, 0.1] + rng.logistic(size=len(X)) > 1).astype(np.int8)
    frame["w"] = rng.choice([0.0, 1.0, 2.0], len(X))
    return frame


@pytest.fixture(scope="module")
def folder(frame: pd.DataFrame, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("parquet")
    for number, start in enumerate(range(0, len(frame), 70_000)):
        part = frame.iloc[start : start + 70_000]
        part.to_parquet(folder / f"part-{number:02d}.parquet", row_group_size=9_000, index=False)
    return folder


def opened(folder: Path) -> Source:
    return open_dataset(folder, target="y", weight="w")


def build(source, name: str = "kmeans", *, size: int = 500, engine="auto", progress=None, **options) -> tithe.Coreset:
    """Leaves have some 20,000 rows, so that there is a tree to speak of."""
    plan = Plan.of(OBJECTIVES[name], "auto", size, calibrate=True, seed=5)
    return reduce_rows(DataPass(source, engine, progress), plan, leaf_rows=20_000, **options)


def assert_same(a: tithe.Coreset, b: tithe.Coreset) -> None:
    for name in ("X", "y", "sample_weight", "indices", "totals", "pilot"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert (a.n_seen, a.weight_seen, a.key, dict(a.provenance)) == (b.n_seen, b.weight_seen, b.key, dict(b.provenance))


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.bits
def test_every_engine_and_number_of_threads_gives_the_same_bits(name: str, folder: Path, frame: pd.DataFrame) -> None:
    want = build(opened(folder), name, engine="serial")
    assert want.key[0] >= 3, "the test must go through a tree"
    for threads in (1, 2, 3):
        with limit_threads(threads):
            assert_same(build(opened(folder), name, engine="threads"), want)
    rows = frame.iloc[want.row_ids()]
    assert np.array_equal(rows[["a", "b", "c"]].to_numpy(), want.X)
    assert np.array_equal(rows["y"].to_numpy(), want.y)
    assert want.n_seen == len(frame) and want.weight_seen == frame["w"].sum()
    assert want.weights().sum() == pytest.approx(frame["w"].sum(), rel=0.01)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_totals_are_exact(name: str, folder: Path, frame: pd.DataFrame) -> None:
    coreset = build(opened(folder), name)
    objective = OBJECTIVES[name]
    X, weight = np.array(frame[["a", "b", "c"]], order="C"), np.array(frame["w"])  # as kernels were compiled for
    block = tithe.Block(X=X, y=frame["y"].to_numpy(), sample_weight=weight)
    if name == "logistic":
        objective = objective.for_rows(block)
    want = objective.survey(block, coreset.pilot).totals
    np.testing.assert_allclose(coreset.totals, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())
    assert coreset.provenance["calibrated"] == 1


class Stopped(Exception):
    pass


@pytest.mark.parametrize("name", OBJECTIVES)
def test_stopped_anywhere_and_resumed(name: str, folder: Path, tmp_path: Path) -> None:
    want = build(opened(folder), name)

    def stop_after(n: int):
        def progress(n_passes: int, n_leaves: int, n_rows: int) -> None:
            if n_leaves > n:
                raise Stopped

        return progress

    checkpoint = Checkpoint(tmp_path / "c", every=0.0)
    for n in (0, 2, 1, 3):
        with pytest.raises(Stopped):
            build(opened(folder), name, progress=stop_after(n), checkpoint=checkpoint)
    assert_same(build(opened(folder), name, checkpoint=checkpoint), want)


def test_ctrl_c_leaves_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    leaves, checkpoint = [], Checkpoint(tmp_path / "c")

    def progress(n_passes: int, n_leaves: int, n_rows: int) -> None:
        leaves.append(n_leaves)
        if n_leaves == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(opened(folder), progress=progress, checkpoint=checkpoint)
    leaves.clear()
    resumed = build(opened(folder), progress=lambda *at: leaves.append(at), checkpoint=checkpoint)
    assert_same(resumed, build(opened(folder)))
    assert len(leaves) < 12, "what was done before is not done again"


def test_another_run_is_refused(folder: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "c", every=0.0)
    build(opened(folder), checkpoint=checkpoint)
    with pytest.raises(ValueError, match="coreset_size differ"):
        build(opened(folder), size=501, checkpoint=checkpoint)
    with pytest.raises(ValueError, match="source differ"):
        build(opened(folder / "part-00.parquet"), checkpoint=checkpoint)
    with pytest.raises(ValueError, match="objective, construction differ"):
        build(opened(folder), "logistic", checkpoint=checkpoint)


def test_how_rows_are_spread_over_files_is_no_matter_for_ids(frame: pd.DataFrame, folder: Path, tmp_path: Path) -> None:
    frame.to_parquet(tmp_path / "one.parquet", row_group_size=50_000, index=False)
    coreset = build(open_dataset(tmp_path / "one.parquet", target="y", weight="w"))
    assert np.array_equal(frame.iloc[coreset.row_ids()][["a", "b", "c"]].to_numpy(), coreset.X)


def test_the_public_door(folder: Path, frame: pd.DataFrame) -> None:
    source = tithe.open_dataset(folder, columns=["c", "a"])
    coreset = tithe.build_coreset(source, objective="kmeans", coreset_size=300, random_state=0)
    assert coreset.X.shape[1] == 2 and coreset.n_seen == len(frame)
    with pytest.raises(ValueError, match="brings y and weights along"):
        tithe.build_coreset(source, frame["y"], objective="kmeans", coreset_size=300)
    with pytest.raises(ValueError, match="open_dataset"):
        tithe.build_coreset(str(folder), objective="kmeans", coreset_size=300)


@pytest.mark.slow
def test_proposed_sizes_come_from_the_files(folder: Path) -> None:
    for name in ("kmeans", "logistic"):
        size, measured = tithe.propose_size(
            open_dataset(folder, target="y", weight="w"), objective=OBJECTIVES[name], eps=0.1
        )
        assert 10 <= size <= 50_000 and 0.0 < measured < 0.2
        source = opened(folder)
        coreset = build(source, name, size=size)
        assert tithe.distortion(source, coreset, OBJECTIVES[name], n_bases=2, n_fits=1, random_state=9).worst < 0.15


def test_two_runs_do_not_share_a_checkpoint(folder: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "c", every=0.0, resume=False)

    def progress(n_passes: int, n_leaves: int, n_rows: int) -> None:
        if n_leaves == 3:
            with pytest.raises(ValueError, match="Another run"):
                build(opened(folder), checkpoint=checkpoint)

    first = build(opened(folder), progress=progress, checkpoint=checkpoint)
    assert_same(build(opened(folder), checkpoint=checkpoint), first)


def test_interrupted_in_a_merge(folder: Path, tmp_path: Path, monkeypatch) -> None:
    real, checkpoint = Reducer.merge, Checkpoint(tmp_path / "c")

    def merge(self, left, right, key):
        if key == (2, 0):
            raise KeyboardInterrupt
        return real(self, left, right, key)

    with monkeypatch.context() as patched:
        patched.setattr(Reducer, "merge", merge)
        with pytest.raises(KeyboardInterrupt):
            build(opened(folder), checkpoint=checkpoint)
    assert_same(build(opened(folder), checkpoint=checkpoint), build(opened(folder)))


@pytest.mark.parametrize("name", ["kmeans", "logistic"])
def test_an_array_is_resumed_only_with_the_same_values(name: str, frame: pd.DataFrame, tmp_path: Path) -> None:
    X, y = frame[["a", "b", "c"]].to_numpy()[:30_000], frame["y"].to_numpy()[:30_000]
    options = {"objective": OBJECTIVES[name], "coreset_size": 300, "random_state": 0}
    want, checkpoint = tithe.build_coreset(X, y, **options), Checkpoint(tmp_path / "c", every=0.0)
    for _ in range(2):
        assert_same(tithe.build_coreset(X, y, **options, checkpoint=checkpoint), want)
    with pytest.raises(ValueError, match="source differ"):
        tithe.build_coreset(X + 1, y, **options, checkpoint=checkpoint)


def test_batches_are_skipped_up_to_the_last_leaf(frame: pd.DataFrame, tmp_path: Path) -> None:
    X, told = frame[["a", "b", "c"]].to_numpy(), []
    options = {"objective": OBJECTIVES["kmeans"], "coreset_size": 300, "random_state": 0}
    want, checkpoint = tithe.build_coreset(iter([X]), **options), Checkpoint(tmp_path / "c")

    def stop(n_passes: int, n_leaves: int, n_rows: int) -> None:
        if n_leaves == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tithe.build_coreset(iter([X]), **options, checkpoint=checkpoint, progress=stop)
    resumed = tithe.build_coreset(
        iter(np.array_split(X, 7)), **options, checkpoint=checkpoint, progress=lambda *at: told.append(at)
    )
    assert_same(resumed, want)
    assert [at[1] for at in told] == [1, 2, 3] and told[-1][2] == 300_000 - 2 * 65_536


def test_wrong_times_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="every must be"):
        Checkpoint(tmp_path, every=-1.0)


def test_progress_true_shows_a_bar_on_a_terminal(frame: pd.DataFrame, monkeypatch, capsys) -> None:
    X = frame[["a", "b"]].to_numpy()[:5000]
    options = {"objective": OBJECTIVES["kmeans"], "coreset_size": 300, "random_state": 0, "progress": True}
    tithe.build_coreset(X, **options)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    tithe.build_coreset(X, **options)
    assert "pass 1" in capsys.readouterr().err
