"""Every command, run in this process on small files: what it writes, not what it says."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from PIL import Image

import tithe
from fingerprints import data
from fingerprints.digest import json_parts
from fingerprints.models import fitted
from fingerprints.table import item

CSV = ["rows.csv", "--exclude", "w"]
LABEL = [*CSV, "--target", "label"]
OUT = ["-o", "out"]
# each line: name of the item, and the command that is run; a command that is renamed is renamed here
COMMANDS: dict[str, list[str]] = {
    "fit-kmeans": ["fit", "kmeans", *CSV, "-k", "3", "-m", "100", *OUT],
    "fit-kmedians": ["fit", "kmedians", "rows.parquet", "--weight", "w", "-k", "3", "-m", "100", *OUT],
    "fit-logistic": ["fit", "logistic", *LABEL, "-m", "200", *OUT],
    "fit-logistic-three": ["fit", "logistic", "rows.parquet", "--target", "town", "-m", "300", *OUT],
    "fit-logistic-eps": ["fit", "logistic", *LABEL, "--eps", "0.1", "--holdout", "0", "--keep-rows", *OUT],
    "fit-logistic-test": ["fit", "logistic", *LABEL, "-m", "200", "--test", "more.csv", "--predict", "more.csv", *OUT],
    "fit-ridge": ["fit", "ridge", *CSV, "--target", "price", "-m", "200", *OUT],
    "fit-huber": ["fit", "huber", *CSV, "--target", "price", "-m", "200", "--polish", "2", *OUT],
    "fit-poisson": ["fit", "poisson", *CSV, "--target", "visits", "-m", "200", *OUT],
    "fit-odm": ["fit", "odm", *LABEL, "--lam", "100", "-m", "200", *OUT],
    "fit-odm-all": ["fit", "odm", "rows.parquet", "--target", "label", "--weight", "w", *OUT],
    "fit-ksvd": [
        "fit",
        "ksvd",
        "signals.npy",
        "-k",
        "8",
        "--n-nonzero-coefs",
        "2",
        "-m",
        "300",
        "--max-iter",
        "4",
        *OUT,
    ],
    "fit-other": ["fit", "sklearn.tree.DecisionTreeClassifier", *LABEL, "-m", "200", *OUT],
    "fit-npz": ["fit", "logistic", "rows.npz", "--target", "y", "-m", "200", *OUT],
    "fit-coreset": ["fit", "kmeans", "coreset.parquet", "-k", "3", *OUT],
    "fit-semi": ["fit", "odm-semi", "few.csv", "--target", "label", "--links", "links.csv", "--scale", "none", *OUT],
    "cluster-online": ["online", *CSV, "--half-life", "500", *OUT],
    "cluster-many-centers": ["online", "rows.parquet", "--many-centers", "--seed", "2", *OUT],
    "cluster-odm": ["fit", "odm-clustering", "few.csv", "--exclude", "label", "--links", "links.csv", *OUT],
    "choose-k": ["choose-k", *CSV, "-m", "300", "--max-clusters", "6", "-o", "out.json"],
    "choose-k-penalty": ["choose-k", "rows.parquet", "--penalty", "100", "--max-clusters", "6", "-o", "out.json"],
    "compare": ["compare", *LABEL, "--objective", "logistic", "--sizes", "50,10%", "--repeats", "2", *OUT],
    "compare-kmeans": ["compare", *CSV, "-k", "3", "--sizes", "60", "--repeats", "2", *OUT],
    "build": ["build", *CSV, "-k", "3", "-m", "100", "-o", "out.parquet"],
    "build-csv": ["build", "rows.parquet", "-k", "3", "-m", "100", "--weight", "w", "--seed", "4", "-o", "out.csv"],
    "build-eps": ["build", *CSV, "-k", "3", "--eps", "0.3", "-o", "out.parquet"],
    "build-logistic": ["build", *LABEL, "--objective", "logistic", "-m", "0.1", "--check", "-o", "out.parquet"],
    "build-rings": ["build", "rows.npz", "-k", "3", "-m", "100", "--construction", "rings", "-o", "out.parquet"],
    "build-folder": ["build", "folder", "-k", "3", "-m", "100", "-j", "2", "--target", "label", "-o", "out.parquet"],
    "build-libsvm": ["build", "rows.svm", "--objective", "logistic", "-m", "200", "-o", "out.parquet"],
    "build-schema": [
        "build",
        "more.csv",
        "--schema-from",
        "coreset.parquet",
        "-k",
        "3",
        "-m",
        "80",
        "-o",
        "out.parquet",
    ],
    "build-pilot": ["build", "more.csv", "--pilot-from", "coreset.parquet", "-k", "3", "-m", "80", "-o", "out.parquet"],
    "build-dictionary": [
        "build",
        "signals.npy",
        "--objective",
        "dictionary",
        "-k",
        "6",
        "-m",
        "200",
        "-o",
        "out.parquet",
    ],
    "stream": ["stream", *CSV, "-k", "3", "-m", "80", "--leaf-size", "300", "-o", "out.parquet"],
    "stream-window": [
        "stream",
        *CSV,
        "-k",
        "3",
        "-m",
        "80",
        "--leaf-size",
        "300",
        "--window",
        "700",
        "-o",
        "out.parquet",
    ],
    "stream-half-life": ["stream", *CSV, "-m", "80", "--leaf-size", "300", "--half-life", "400", "-o", "out.csv"],
    "merge": ["merge", "coreset.parquet", "other.parquet", "-o", "out.parquet"],
    "merge-size": ["merge", "coreset.parquet", "other.parquet", "-m", "90", "--seed", "3", "-o", "out.parquet"],
    "size": ["size", "-k", "20", "--features", "10", "-m", "5000"],
    "size-data": ["size", "--objective", "logistic", "--target", "label", "--data", "rows.csv"],
    "denoise": ["denoise", "in.png", "out.png", "-k", "32", "-m", "300", "--sigma", "15", "--show", "atoms.png"],
    "denoise-auto": ["denoise", "in.png", "out.tif", "-k", "16", "-m", "200", "--colours", "stacked", "--patch", "5"],
    "mistake-column": ["fit", "logistic", "rows.csv", "--target", "nothing", *OUT],
    "mistake-file": ["build", "nothing.csv", "-k", "3", "-o", "out.parquet"],
}
FAST = ("fit-kmeans", "build", "merge", "choose-k")


def run(*arguments: str) -> int:
    """The exit code of the command that pyproject.toml names ``tithe``."""
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["tithe"].partition(":")
    try:
        getattr(import_module(module), function)(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def inputs() -> list[str]:
    """Write the files that commands read, and return their names."""
    from sklearn.datasets import dump_svmlight_file

    table = data.table()
    table[:1200].to_csv("rows.csv", index=False)
    table[1200:].to_csv("more.csv", index=False)
    table[:1200].to_parquet("rows.parquet", index=False, row_group_size=300)
    Path("folder").mkdir()
    for i in range(3):
        table[400 * i : 400 * i + 400].to_parquet(f"folder/part-{i}.parquet", index=False)
    X, y = data.two_classes(1200)
    np.savez("rows.npz", X=X, y=y)
    dump_svmlight_file(data.few_entries()[:1200], y, "rows.svm", zero_based=False)
    np.save("signals.npy", data.signals())
    few = pd.DataFrame(data.clouds(60)[:, :2], columns=["left", "right"])
    few["label"] = pd.Series(np.where(few["left"] > few["left"].median(), "yes", "no")).where(np.arange(60) < 14)
    few.to_csv("few.csv", index=False)
    Path("links.csv").write_text("20,21,cannot\n30,31,must\n")
    Image.fromarray(data.picture(colours=True)).save("in.png")
    schema = ["--target", "label", "-k", "3"]
    run("build", "rows.csv", *schema, "-m", "100", "--seed", "1", "-o", "coreset.parquet")
    shared = ["--pilot-from", "coreset.parquet"]
    run("build", "more.csv", *schema, "-m", "60", "--seed", "2", *shared, "-o", "other.parquet")
    return [path.name for path in Path().iterdir()]


def written(known: list[str]) -> dict[str, Any]:
    """What is in new files."""
    paths = sorted(p for p in Path().rglob("*") if p.is_file() and p.parts[0] not in known)
    paths = [p for p in paths if not any("checkpoint" in part for part in p.parts)]
    parts: dict[str, Any] = {"files": [p.with_suffix("").as_posix() for p in paths]}
    for path in paths:
        parts |= {f"{path.stem}.{key}": value for key, value in content(path).items()}
    return parts


def content(path: Path) -> dict[str, Any]:
    """Of a file of any kind."""
    match path.suffix:
        case ".json":
            return json_parts(json.loads(path.read_text()))
        case ".html":
            return {}
        case ".png" | ".tif":
            return {"pixels": np.asarray(Image.open(path))}
        case ".parquet" | ".csv":
            return table_or_coreset(path)
    model = tithe.load_model(path)
    return {f"model_{key}": value for key, value in fitted(model).items()}


def table_or_coreset(path: Path) -> dict[str, Any]:
    try:
        return {"coreset": tithe.load_coreset(path)}
    except ValueError:
        pass
    if path.suffix == ".parquet":
        return {"columns": pq.read_table(path).to_pydict()}
    lines = list(csv.reader(path.read_text().splitlines()))
    timed = [i for i, name in enumerate(lines[0]) if "second" in name or "time" in name]
    return {"columns": [[v for i, v in enumerate(line) if i not in timed] for line in lines]}


def _enter(name: str, arguments: list[str]) -> None:
    @item(f"command/{name}", fast=name in FAST)
    def command(folder: Path) -> dict[str, Any]:
        known = inputs()
        with contextlib.redirect_stdout(io.StringIO()) as said:
            parts: dict[str, Any] = {"exit": run(*arguments)}
        if arguments[0] == "size":  # which writes no file
            parts["numbers"] = re.findall(r"\d[\d.,e+-]*", said.getvalue())
        return parts | written(known)


for _name, _arguments in COMMANDS.items():
    _enter(_name, _arguments)


@item("command/predict")
def predict(folder: Path) -> dict[str, Any]:
    """Of models of several kinds, for rows of files of several kinds."""
    known = inputs()
    parts: dict[str, Any] = {}
    fits = {
        "kmeans": ["-k", "3", "--exclude", "label"],
        "logistic": ["--target", "label"],
        "ridge": ["--target", "price"],
    }
    for name, options in fits.items():
        run("fit", name, "rows.csv", *options, "-m", "150", "-o", name)
        model = next(str(p) for p in Path(name).glob("model.*"))
        proba = ["--proba"] * (name == "logistic")
        for source, out in (("more.csv", "csv"), ("rows.parquet", "parquet")):
            parts[f"{name}_{out}"] = run("predict", model, source, *proba, "-o", f"{name}.{out}")
            parts[f"{name}_{out}_rows"] = table_or_coreset(Path(f"{name}.{out}"))
        parts[f"{name}_inspect"] = run("inspect", model)
    return parts | {"known": len(known), "inspect": run("inspect", "coreset.parquet")}


@item("command/stream-resume")
def stream_resumed(folder: Path) -> dict[str, Any]:
    """A pipe, then a file, then some rows forgotten."""
    inputs()
    before, parts = sys.stdin, {}
    options = ["--target", "label", "-k", "3", "-m", "80", "--leaf-size", "300"]
    try:
        sys.stdin = io.TextIOWrapper(io.BytesIO(Path("rows.csv").read_bytes()))
        parts["pipe"] = run("stream", "-", "--format", "csv", *options, "--keep-leaves", "kept", "-o", "out.parquet")
    finally:
        sys.stdin = before
    parts["pipe_coreset"] = tithe.load_coreset("out.parquet")
    parts["file"] = run("stream", "more.csv", "--target", "label", "-o", "out.parquet", "--resume")
    parts["file_coreset"] = tithe.load_coreset("out.parquet")
    Path("ids.txt").write_text("".join(f"{i}\n" for i in range(400, 500, 3)))
    parts["forget"] = run("stream", "-o", "out.parquet", "--resume", "--forget", "ids.txt")
    return parts | {"forget_coreset": tithe.load_coreset("out.parquet")}


@item("command/cluster-resume")
def cluster_resumed(folder: Path) -> dict[str, Any]:
    known = inputs()
    first = run("online", *CSV, *OUT)
    again = run("online", "more.csv", "--exclude", "w", "--resume", *OUT)
    return {"exits": [first, again]} | written(known)
