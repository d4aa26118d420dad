"""Rows whose target is a gap: left out, or kept with a gap in y, in the same way whatever the file."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from plain_rows import ColumnSelection, open_dataset

from tithe import CoresetLogisticRegression, CoresetRidge
from tithe.core.data import Block, concat
from tithe.rows.learn import SAMPLE_ROWS
from tithe.rows.piped import open_piped

N_ROWS = 50
GAPS = np.arange(N_ROWS) % 3 == 1
A = np.random.default_rng(0).normal(size=N_ROWS)
TARGETS = {
    "text": np.array(["no", "yes"], object)[np.arange(N_ROWS) % 2],
    "whole": np.arange(N_ROWS) % 2 + 2**60,  # more digits than a floating point number has
    "number": np.arange(N_ROWS) % 2 + 0.5,
    "truth": np.arange(N_ROWS) % 2 > 0,
}
PANDAS = {"text": "object", "whole": "Int64", "number": "float64", "truth": "boolean"}


def all_rows(source, leaf_rows: int | None = None) -> Block:
    return concat([task() for task in source.tasks(leaf_rows=leaf_rows)])


def frame_with_gaps(kind: str) -> pd.DataFrame:
    return pd.DataFrame({"a": A, "b": np.arange(N_ROWS) ** 2.0, "y": pd.array(TARGETS[kind], PANDAS[kind])}).assign(
        y=lambda frame: frame["y"].mask(GAPS)
    )


def sources(folder, frame: pd.DataFrame, **how):
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet", row_group_size=7)
    yield open_dataset(folder / "rows.csv", target="y", **how)
    yield open_dataset(folder / "rows.parquet", target="y", **how)
    yield open_dataset(frame, target="y", **how)
    yield open_piped(io.BytesIO((folder / "rows.csv").read_bytes()), "csv", ColumnSelection(target="y", **how), None)


@pytest.mark.parametrize("kind", TARGETS)
def test_gaps_are_kept_or_left_out_alike_in_all_formats(tmp_path, kind: str) -> None:
    frame = frame_with_gaps(kind)
    kept = [all_rows(source, 10) for source in sources(tmp_path, frame, missing_target="keep")]
    left = [all_rows(source, 10) for source in sources(tmp_path, frame)]
    for rows, others in zip(kept, left, strict=True):
        assert rows.row_ids().tolist() == list(range(N_ROWS))
        np.testing.assert_array_equal(pd.isna(rows.y), GAPS)
        np.testing.assert_array_equal(rows.y[~GAPS], TARGETS[kind][~GAPS])
        np.testing.assert_array_equal(rows.X, kept[0].X)
        assert rows.y.dtype == (np.float64 if kind == "number" else object)
        np.testing.assert_array_equal(others.row_ids(), np.flatnonzero(~GAPS))


def test_the_schema_is_learned_from_rows_without_a_target_too(tmp_path) -> None:
    frame = frame_with_gaps("text").assign(colour=np.where(GAPS, "red", "blue"))
    for missing_target in ("keep", "drop"):
        (source, *_) = sources(tmp_path, frame, missing_target=missing_target, categories="auto")
        assert {"colour=red", "colour=blue"} <= set(source.feature_names)


def test_gaps_are_kept_where_the_schema_is_measured_on_all_rows() -> None:
    n_rows = SAMPLE_ROWS + 10
    frame = pd.DataFrame({"a": np.arange(n_rows) % 7, "y": np.where(np.arange(n_rows) % 2, "yes", None)})
    source = open_dataset(frame, target="y", missing_target="keep", scale="standard")
    assert len(all_rows(source)) == n_rows


def test_files_without_names(tmp_path) -> None:
    y = np.where(GAPS, np.nan, TARGETS["number"])
    np.savez(tmp_path / "rows.npz", X=A[:, None], y=y)
    (tmp_path / "rows.libsvm").write_text("".join(f"{label} 1:{a}\n" for label, a in zip(y, A, strict=True)))
    for path, target in (("rows.npz", "y"), ("rows.libsvm", None)):
        rows = all_rows(open_dataset(tmp_path / path, target=target, missing_target="keep"))
        np.testing.assert_array_equal(rows.y, y)
        with pytest.raises(ValueError, match="row 1 "):
            all_rows(open_dataset(tmp_path / path, target=target))


def test_bad_rows_are_bad_all_the_same(tmp_path) -> None:
    frame = frame_with_gaps("text")
    frame.loc[4, "a"] = np.nan
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(ValueError, match="row 4"):
        all_rows(open_dataset(tmp_path / "rows.csv", target="y", missing_target="keep"))
    for source in sources(tmp_path, frame, missing_target="keep", bad_rows="skip"):
        assert all_rows(source).row_ids().tolist() == [*range(4), *range(5, N_ROWS)]


def test_other_learners_refuse_gaps(tmp_path) -> None:
    for kind, learner in (("text", CoresetLogisticRegression()), ("number", CoresetRidge())):
        for source in list(sources(tmp_path, frame_with_gaps(kind), missing_target="keep"))[:2]:
            with pytest.raises(ValueError, match=r"y (holds|contains)"):
                learner.fit(source)


def test_a_wrong_word_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="missing_target must be 'drop' or 'keep'"):
        open_dataset(tmp_path, missing_target="yes")
