"""Models of CatBoost in files: class, parameters and trees as JSON, whose numbers are checked before they are parsed.

CatBoost reads and writes leaf values as decimal numbers: a loaded model predicts the same but for the last digit.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tithe.core.state_checks import expect

CLASSES = ("CatBoostClassifier", "CatBoostRegressor")
# of the machine that a model was fitted on: threads, devices, memory, files and what is printed
_SETTINGS = (
    *("thread_count", "task_type", "devices", "device_config", "gpu_ram_part", "pinned_memory_size", "used_ram_limit"),
    *("train_dir", "save_snapshot", "snapshot_file", "snapshot_interval", "input_borders", "output_borders"),
    *("allow_writing_files", "logging_level", "verbose", "verbose_eval", "silent", "metric_period"),
)
_MAX_DEPTH = 16  # of a tree
_MODEL = "model.json"
_KNOWLEDGE = ("class_params", "catboost_version_info", "model_guid")  # of a model, beside its parameters
NOT_FINITE = "leaves of a tree hold values that are not finite"


def catboost_text(estimator: Any) -> bytes:
    """Raises `ValueError` for an estimator that `catboost_from` would refuse."""
    content = {"class": type(estimator).__name__, "parameters": estimator.get_params(), "model": None}
    if estimator.is_fitted():
        with TemporaryDirectory() as folder:
            path = Path(folder, _MODEL)
            estimator.save_model(str(path), format="json")
            content["model"] = json.loads(path.read_text())
    try:
        text = json.dumps(content).encode()
    except TypeError as error:
        raise ValueError(f"A parameter of {type(estimator).__name__} is no number or text: {error}.") from error
    _check(json.loads(text))
    return text


def catboost_from(text: bytes) -> Any:
    """The estimator in a text; catboost must be installed."""
    import catboost

    content = json.loads(text)
    _check(content)
    estimator = getattr(catboost, content["class"])(**_without_settings(content["parameters"]))
    if content["model"] is not None:
        with TemporaryDirectory() as folder:
            path = Path(folder, _MODEL)
            info = content["model"].get("model_info", {})  # what it says of parameters takes the place of the others
            content["model"]["model_info"] = {name: info[name] for name in _KNOWLEDGE if name in info}
            said = _without_settings(info.get("params", {}).get("flat_params", {}))
            content["model"]["model_info"]["params"] = {"flat_params": said}
            path.write_text(json.dumps(content["model"]))
            estimator.load_model(str(path), format="json")
    return estimator


def _without_settings(parameters: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in parameters.items() if name not in _SETTINGS}
    return {**kept, "allow_writing_files": False, "logging_level": "Silent"}


def _check(content: dict[str, Any]) -> None:
    """Refuse trees that lead to columns, categories or leaves that are not there."""
    expect(content["class"] in CLASSES and isinstance(content["parameters"], dict), "it is no estimator of CatBoost")
    model = content["model"]
    if model is None:
        return
    expect("oblivious_trees" in model, "CatBoost's trees of this grow_policy cannot be checked")
    features, (scale, bias) = model["features_info"], model["scale_and_bias"]
    expect(np.isfinite([scale, *bias]).all(), NOT_FINITE)
    floats, categories = features.get("float_features", []), features.get("categorical_features", [])
    n_columns = len(floats) + len(categories)
    places = [column["flat_feature_index"] for column in (*floats, *categories)]
    expect(sorted(places) == list(range(n_columns)), "columns are missing")
    for kind in (floats, categories):
        expect([column["feature_index"] for column in kind] == list(range(len(kind))), "columns are missing")
    limits = {"float_feature_index": len(floats), "cat_feature_index": len(categories)}
    n_splits = sum(len(column["borders"] or []) for column in floats)
    n_splits += sum(len(column.get("values", [])) for column in categories)
    n_splits += _check_tables(features.get("ctrs", []), model.get("ctr_data", {}), limits)
    for tree in model["oblivious_trees"]:
        splits = tree["splits"] or []
        expect(len(splits) <= _MAX_DEPTH, "a tree is too deep")
        expect(len(tree["leaf_values"]) == len(bias) << len(splits), "leaves are missing")
        expect(np.isfinite(np.array(tree["leaf_values"], np.float64)).all(), NOT_FINITE)
        for split in splits:
            expect(0 <= split["split_index"] < n_splits, "a split is unknown")
            _check_places(split, limits)


def _check_tables(ctrs: list[dict[str, Any]], tables: dict[str, Any], limits: dict[str, int]) -> int:
    """Check the tables of what is known about categories; returns the number of splits on them."""
    for table in tables.values():
        stride = table["hash_stride"]
        expect(isinstance(stride, int) and stride >= 2 and len(table["hash_map"]) % stride == 0, "a table is cut off")
    for ctr in ctrs:
        expect(ctr["identifier"] in tables, "a table is missing")
        stride = tables[ctr["identifier"]]["hash_stride"]
        expect(0 <= ctr["target_border_idx"] < stride - 1, "a table has other targets")
        for element in ctr["elements"]:
            _check_places(element, limits)
    return sum(len(ctr["borders"]) for ctr in ctrs)


def _check_places(item: dict[str, Any], limits: dict[str, int]) -> None:
    for name, limit in limits.items():
        expect(0 <= item.get(name, 0) < max(limit, 1), "a tree splits unknown columns")
