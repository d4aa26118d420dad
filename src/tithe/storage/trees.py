"""Trees of other libraries in files: boosters as text, and checks of everything that their compiled code relies on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tithe.core.data import Array
from tithe.core.state_checks import Integers, expect

_BOOSTERS = {"lightgbm.basic.Booster": "lightgbm", "xgboost.core.Booster": "xgboost"}
_NO_CHILD = -1  # of a leaf
_IS_CATEGORY = 1  # bit of a decision of LightGBM


# -- boosters -------------------------------------------------------------------------------------


def booster_library(thing: Any) -> str | None:
    """The library whose booster this is, if it is one."""
    return _BOOSTERS.get(f"{type(thing).__module__}.{type(thing).__qualname__}")


def booster_text(booster: Any) -> bytes:
    """A booster in the format of its library: the text of LightGBM, the JSON of XGBoost.

    Raises `ValueError` for one that `booster_from` would refuse.
    """
    if booster_library(booster) == "lightgbm":
        text = str(booster.model_to_string())
        _check_lightgbm(text)
        return text.encode()
    model = bytes(booster.save_raw("json"))
    _check_xgboost(json.loads(model))
    return model


def booster_from(library: str, text: bytes) -> Any:
    """The booster in a text of its library, which must be installed. Its trees are checked before it is parsed."""
    if library == "lightgbm":
        import lightgbm

        _check_lightgbm(text.decode())
        return lightgbm.Booster(model_str=text.decode())
    import xgboost

    _check_xgboost(json.loads(text))
    return xgboost.Booster(model_file=bytearray(text))


def _check_lightgbm(text: str) -> None:
    """Refuse a text whose trees are cut off, or lead to nodes, columns or categories that are not there."""
    head = _entries(text[: text.index("Tree=")])
    n_columns, at = int(head["max_feature_idx"]) + 1, text.index("Tree=")
    for number, size in enumerate(map(int, head["tree_sizes"].split())):
        expect(size > 0 and text.startswith(f"Tree={number}\n", at), "a tree is not where it should be")
        _check_lightgbm_tree(_entries(text[at : at + size]), n_columns)
        at += size
    expect(text.startswith("end of trees", at), "trees are cut off")


def _entries(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _check_lightgbm_tree(tree: dict[str, str], n_columns: int) -> None:
    n_leaves, n_categories = int(tree["num_leaves"]), int(tree["num_cat"])
    expect(tree.get("is_linear", "0") == "0", "a tree with linear models in its leaves cannot be checked")
    expect(len(tree["leaf_value"].split()) == n_leaves >= 1, "leaves are missing")
    if n_leaves == 1:
        return
    names = ("left_child", "right_child", "split_feature", "decision_type")
    left, right, column, decision = (np.array(tree[name].split(), np.int64) for name in names)
    threshold = np.array(tree["threshold"].split(), np.float64)
    expect(all(len(a) == n_leaves - 1 for a in (left, right, column, decision, threshold)), "nodes are missing")
    # leaf j, written as -1 - j, is node n_leaves - 1 + j
    left, right = (np.where(child < 0, n_leaves - 2 - child, child) for child in (left, right))
    none = np.full(n_leaves, _NO_CHILD)
    is_leaf = np.arange(2 * n_leaves - 1) >= n_leaves - 1
    check_nodes(np.concatenate([left, none]), np.concatenate([right, none]), is_leaf)
    expect((column >= 0).all() and (column < n_columns).all(), "a tree splits unknown columns")
    by_category = threshold[(decision & _IS_CATEGORY).astype(bool)]
    if n_categories:
        bounds = np.array(tree["cat_boundaries"].split(), np.int64)
        ascend = bounds[0] == 0 and (np.diff(bounds) >= 0).all() and bounds[-1] == len(tree["cat_threshold"].split())
        expect(len(bounds) == n_categories + 1 and ascend, "categories are missing")
    expect(((by_category >= 0) & (by_category < n_categories)).all(), "categories are out of range")


def _check_xgboost(model: dict[str, Any]) -> None:
    """The same for XGBoost."""
    learner = model["learner"]
    booster, n_columns = learner["gradient_booster"], int(learner["learner_model_param"]["num_feature"])
    expect(booster["name"] in ("gbtree", "dart"), f"a booster of the kind {booster['name']} cannot be checked")
    trees = (booster["gbtree"] if booster["name"] == "dart" else booster)["model"]
    n_groups = max(1, int(learner["learner_model_param"]["num_class"]))
    expect(
        len(trees["trees"]) == len(trees["tree_info"]) == int(trees["gbtree_model_param"]["num_trees"]),
        "a tree is missing",
    )
    info, ends = np.array(trees["tree_info"], np.int64), np.array(trees["iteration_indptr"], np.int64)
    expect(((info >= 0) & (info < n_groups)).all(), "a tree is of an unknown class")
    expect((np.diff(ends) >= 0).all() and ends[0] == 0 and ends[-1] == len(info), "rounds have other trees")
    for tree in trees["trees"]:
        _check_xgboost_tree(tree, n_columns)


def _check_xgboost_tree(tree: dict[str, Any], n_columns: int) -> None:
    n_nodes = int(tree["tree_param"]["num_nodes"])
    expect(tree["tree_param"]["size_leaf_vector"] in ("0", "1"), "leaves with several values cannot be checked")
    names = ("left_children", "right_children", "parents", "split_indices", "split_conditions", "default_left")
    expect(all(len(tree[name]) == n_nodes for name in (*names, "split_type", "base_weights")), "nodes are missing")
    left, right = (np.array(tree[name], np.int64) for name in names[:2])
    is_leaf = left == _NO_CHILD
    check_nodes(left, right, is_leaf, all_used=False)
    column = np.array(tree["split_indices"], np.int64)[~is_leaf]
    expect((column >= 0).all() and (column < n_columns).all(), "a tree splits unknown columns")
    nodes, first, size = (np.array(tree[f"categories_{name}"], np.int64) for name in ("nodes", "segments", "sizes"))
    fits = (first >= 0) & (size >= 0) & (first + size <= len(tree["categories"])) & (nodes >= 0) & (nodes < n_nodes)
    expect(len(nodes) == len(first) == len(size) and fits.all(), "categories are out of range")
    expect(set(np.flatnonzero(tree["split_type"])) == set(nodes.tolist()), "categories are missing")


# -- trees of scikit-learn ------------------------------------------------------------------------


def check_grown(model: Any) -> None:
    """A fitted decision tree of scikit-learn."""
    if "tree_" not in vars(model):
        return
    tree = model.tree_
    nodes = tree.__getstate__()["nodes"]
    depth = check_nodes(nodes["left_child"], nodes["right_child"], nodes["left_child"] == _NO_CHILD)
    inner = nodes["feature"][nodes["left_child"] != _NO_CHILD]
    n_features = int(model.n_features_in_)
    expect(tree.n_features == n_features and tree.max_depth == depth, "a tree has other columns, or another depth")
    expect(len(inner) == 0 or (inner.min() >= 0 and inner.max() < n_features), "a tree splits unknown columns")


def check_boosted(model: Any) -> None:
    """Fitted histogram-based gradient boosting of scikit-learn: its trees, and what its columns are."""
    if "_predictors" not in vars(model):
        return
    n_features = int(model.n_features_in_)
    bins = model._bin_mapper
    expect(len(bins.is_categorical_) == n_features == len(bins.bin_thresholds_), "bins are of other columns")
    trees = [tree for together in model._predictors for tree in together]
    expect(all(len(together) == model.n_trees_per_iteration_ for together in model._predictors), "trees are missing")
    for tree in trees:
        nodes, leaf = tree.nodes, tree.nodes["is_leaf"].astype(bool)
        check_nodes(nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), leaf)
        inner = nodes[~leaf]
        expect((inner["feature_idx"] >= 0).all() and (inner["feature_idx"] < n_features).all(), "unknown columns")
        by_category = inner[inner["is_categorical"].astype(bool)]
        bits = Integers("n", 8, dtypes=("uint32",), least=0)
        sizes: dict[str, int] = {}
        bits.check("raw_left_cat_bitsets", tree.raw_left_cat_bitsets, sizes)
        expect((by_category["bitset_idx"] < sizes["n"]).all(), "categories are out of range")


def check_nodes(left: Array, right: Array, leaf: Array, *, all_used: bool = True) -> int:
    """Refuse children that do not make one tree of all nodes; returns its depth."""
    n_nodes, level, n_seen, depth = len(left), np.zeros(1, np.int64), 1, 0
    expect(n_nodes > 0, "a tree has no nodes")
    seen = np.zeros(n_nodes, bool)
    seen[0] = True
    while True:
        inner = level[~leaf[level]]
        if len(inner) == 0:
            break
        level = np.concatenate([left[inner], right[inner]])
        expect(level.min() > 0 and level.max() < n_nodes and not seen[level].any(), "nodes are no tree")
        seen[level] = True
        n_seen, depth = n_seen + len(level), depth + 1
        expect(n_seen <= n_nodes, "nodes are no tree")
    expect(not all_used or n_seen == n_nodes, "nodes belong to no tree")
    return depth
