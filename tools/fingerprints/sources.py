"""The same rows from files, folders, frames, batches and pipes: the coreset of each."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.ipc
import pyarrow.parquet as pq
from sklearn.datasets import dump_svmlight_file

import tithe
from fingerprints import data
from fingerprints.table import item, tried
from tithe import build_coreset, open_dataset
from tithe.objectives import KMeansObjective

GOAL = KMeansObjective(n_clusters=3)
OPTIONS: dict[str, Any] = {"coreset_size": 100, "random_state": 2}


def kept(source: Any, objective: Any = GOAL, **options: Any) -> dict[str, Any]:
    return {"coreset": build_coreset(source, objective=objective, **OPTIONS, **options)}


def source_item(name: str, *, fast: bool = False) -> Callable[[Callable[[Path], Any]], Any]:
    """An item whose function returns a source; the part is its coreset."""

    def enter(function: Callable[[Path], Any]) -> Any:
        @item(f"source/{name}", fast=fast)
        def of_source(folder: Path) -> dict[str, Any]:
            return kept(function(folder))

        return function

    return enter


@source_item("csv", fast=True)
def csv(folder: Path) -> Any:
    data.table().to_csv("rows.csv", index=False)
    return open_dataset("rows.csv", target="label", weight="w")


@source_item("csv_gz")
def csv_gz(folder: Path) -> Any:
    Path("rows.csv.gz").write_bytes(gzip.compress(data.table().to_csv(index=False).encode()))
    return open_dataset("rows.csv.gz", target="label", weight="w")


@source_item("csv_semicolons")
def csv_semicolons(folder: Path) -> Any:
    frame = data.table()[["a", "b", "n"]]
    frame.to_csv("rows.csv", index=False, sep=";", decimal=",")
    return open_dataset("rows.csv")


@source_item("csv_delimiter")
def csv_delimiter(folder: Path) -> Any:
    data.table()[["a", "b", "n", "town"]].to_csv("rows.txt", index=False, sep="|")
    return open_dataset("rows.txt", format="csv", delimiter="|")


@source_item("csv_no_header")
def csv_no_header(folder: Path) -> Any:
    np.savetxt("rows.csv", data.clouds(), delimiter=",", fmt="%.17g")
    return open_dataset("rows.csv", header=False)


@source_item("csv_bad_rows")
def csv_bad_rows(folder: Path) -> Any:
    lines = data.table()[["a", "b", "n"]].to_csv(index=False).splitlines()
    lines[50], lines[900] = "x,y,z", "1,2"
    Path("rows.csv").write_text("\n".join(lines) + "\n")
    return open_dataset("rows.csv", bad_rows="skip", impute="none")


@source_item("csv_several")
def csv_several(folder: Path) -> Any:
    for i in range(3):
        data.table()[500 * i : 500 * i + 500].to_csv(f"rows{i}.csv", index=False)
    return open_dataset(["rows0.csv", "rows1.csv", "rows2.csv"], target="price")


@source_item("csv_quoted_newlines")
def csv_quoted_newlines(folder: Path) -> Any:
    frame = data.table()[["a", "town"]].copy()
    frame.loc[::50, "town"] = "two\nlines"
    frame.to_csv("rows.csv", index=False)
    return open_dataset("rows.csv")


@source_item("parquet", fast=True)
def parquet(folder: Path) -> Any:
    data.table().to_parquet("rows.parquet", index=False, row_group_size=400)
    return open_dataset("rows.parquet", target="label", weight="w")


@source_item("parquet_nested_folder")
def parquet_folder(folder: Path) -> Any:
    for i in range(3):
        Path(f"data/{i}").mkdir(parents=True)
        data.table()[500 * i : 500 * i + 500].to_parquet(f"data/{i}/rows.parquet", index=False)
    return open_dataset("data")


@source_item("hive")
def hive(folder: Path) -> Any:
    frame = data.table(gaps=False).assign(year=np.repeat([2022, 2023, 2024], 500), land=["fr", "it"] * 750)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_to_dataset(arrow, "hive", partition_cols=["year", "land"], basename_template="rows-{i}.parquet")
    return open_dataset("hive", target="label")


@source_item("dataset")
def arrow_dataset(folder: Path) -> Any:
    data.table().to_parquet("rows.parquet", index=False)
    return open_dataset(pa.dataset.dataset("rows.parquet"), target="label")


@source_item("npy")
def npy(folder: Path) -> Any:
    np.save("rows.npy", data.clouds())
    return open_dataset("rows.npy")


@source_item("npz")
def npz(folder: Path) -> Any:
    X, y = data.two_classes()
    np.savez("rows.npz", X=X, y=y)
    return open_dataset("rows.npz")


@source_item("pandas", fast=True)
def pandas_frame(folder: Path) -> Any:
    return data.table(gaps=False)[["a", "b", "n"]]


@source_item("polars")
def polars_frame(folder: Path) -> Any:
    import polars

    return polars.from_pandas(data.table(gaps=False)[["a", "b", "n"]])


@source_item("arrow_table")
def arrow_table(folder: Path) -> Any:
    return pa.Table.from_pandas(data.table(gaps=False)[["a", "b", "n"]], preserve_index=False)


@source_item("open_pandas")
def opened_frame(folder: Path) -> Any:
    return open_dataset(data.table(), target="label", weight="w")


@source_item("open_polars")
def opened_polars(folder: Path) -> Any:
    import polars

    return open_dataset(polars.from_pandas(data.table()), target="label", weight="w")


@source_item("batches", fast=True)
def batches(folder: Path) -> Any:
    X = data.clouds()
    return (X[i : i + 700] for i in range(0, len(X), 700))


@source_item("frames_in_batches")
def frames_in_batches(folder: Path) -> Any:
    frame = data.table(gaps=False)[["a", "b", "n"]]
    return iter([frame[:400], frame[400:900], frame[900:]])


@source_item("memory_map")
def memory_map(folder: Path) -> Any:
    np.save("rows.npy", data.clouds())
    return np.load("rows.npy", mmap_mode="r")


@item("source/libsvm")
def libsvm(folder: Path) -> dict[str, Any]:
    dump_svmlight_file(data.few_entries(), data.two_classes()[1], "rows.svm", zero_based=False)
    parts = kept(open_dataset("rows.svm", n_features=30))
    parts["logistic"] = kept(open_dataset("rows.svm"), "logistic")["coreset"]
    Path("rows.svm.gz").write_bytes(gzip.compress(Path("rows.svm").read_bytes()))
    return parts | {"gz": tried(lambda: kept(open_dataset("rows.svm.gz", format="libsvm"))["coreset"])}


@item("source/pipe")
def pipe(folder: Path) -> dict[str, Any]:
    """Bytes on standard input."""
    arrow = pa.Table.from_pandas(data.table(), preserve_index=False)
    text, packed = io.BytesIO(), io.BytesIO()
    pyarrow.csv.write_csv(arrow, text)
    with pa.ipc.new_stream(packed, arrow.schema) as writer:
        writer.write_table(arrow, max_chunksize=400)
    lines = io.BytesIO()
    dump_svmlight_file(data.few_entries(), data.two_classes()[1], lines, zero_based=False)
    return {
        "csv": tried(lambda: piped(text, format="csv", target="label")),
        "arrow": tried(lambda: piped(packed, format="arrow", target="label")),
        "libsvm": tried(lambda: piped(lines, format="libsvm", n_features=30)),
    }


def piped(given: io.BytesIO, **options: Any) -> tithe.Coreset:
    before = sys.stdin
    try:
        sys.stdin = io.TextIOWrapper(io.BytesIO(given.getvalue()))
        return kept(open_dataset("-", **options))["coreset"]
    finally:
        sys.stdin = before


@item("source/table_options")
def table_options(folder: Path) -> dict[str, Any]:
    data.table().to_csv("rows.csv", index=False)
    choices: dict[str, dict[str, Any]] = {
        "robust": {"scale": "robust"},
        "none": {"scale": "none", "impute": "zero"},
        "mean": {"impute": "mean", "dates": "number"},
        "hash": {"categories": "hash", "n_hashes": 8},
        "onehot": {"categories": "onehot", "dates": "drop"},
        "columns": {"columns": ["n", "a"]},
        "exclude": {"exclude": ["town", "day", "label"], "row_id": "visits"},
        "na": {"na": ["Rome"]},
        "max": {"max_categories": 2},
    }
    parts: dict[str, Any] = {}
    for name, options in choices.items():
        parts[name] = tried(lambda o=options: kept(open_dataset("rows.csv", **o))["coreset"])
    return parts


@item("source/targets")
def targets(folder: Path) -> dict[str, Any]:
    data.table().to_csv("rows.csv", index=False)
    goals = {"label": "logistic", "price": "least_squares", "visits": "poisson", "town": "logistic"}
    options = {"exclude": ["w"]}
    return {
        column: kept(open_dataset("rows.csv", target=column, missing_target="drop", **options), goal)["coreset"]
        for column, goal in goals.items()
    }


@item("source/same_schema")
def same_schema(folder: Path) -> dict[str, Any]:
    data.table().to_csv("rows.csv", index=False)
    data.table()[200:900].to_parquet("more.parquet", index=False)
    first = open_dataset("rows.csv", target="label")
    parts = {"first": kept(first)["coreset"]}
    more = open_dataset("more.parquet", target="label", schema=first.schema)
    return parts | {"more": kept(more)["coreset"], "names": list(first.feature_names)}


@item("source/stored_coresets", fast=True)
def stored(folder: Path) -> dict[str, Any]:
    """Coresets written and read again, as Parquet and CSV."""
    parts = {}
    X, y = data.three_classes()
    for name, objective in (("kmeans", GOAL), ("logistic", "logistic")):
        coreset = build_coreset(X, y, objective=objective, **OPTIONS)
        for ending in ("parquet", "csv"):
            path = folder / f"{name}.{ending}"
            tithe.save_coreset(coreset, path)
            parts[f"{name}_{ending}"] = tried(lambda p=path: tithe.load_coreset(p))
    return parts


@item("source/resumed_build")
def resumed_build(folder: Path) -> dict[str, Any]:
    data.table().to_parquet("rows.parquet", index=False, row_group_size=300)
    source = open_dataset("rows.parquet", target="label")
    checkpoint = tithe.Checkpoint(folder / "state", every=0.0)
    return kept(source, checkpoint=checkpoint) | {"again": kept(source, checkpoint=checkpoint)["coreset"]}
