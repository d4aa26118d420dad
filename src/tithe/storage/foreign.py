"""Models of other libraries in files: boosters in the formats of their own libraries, everything else by skops.

skops loads only the types that it is told to trust. Numbers that compiled code relies on (trees, support vectors,
centers, generators) are checked after loading, as those of our own objects are. A file does not say how many threads
run, where a cache is kept, or what is printed: an estimator is loaded with settings of ours.
"""

from __future__ import annotations

import functools
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from sklearn.utils.validation import check_array

from tithe.core.data import Array
from tithe.core.registry import registered_types
from tithe.core.state_checks import Floats, Integers, Labels, Storable, check_fields, expect
from tithe.storage.catboost import CLASSES, NOT_FINITE, catboost_from, catboost_text

# types of other packages that skops does not trust by itself. They hold plain numbers, or an estimator, and are checked
# below. Sparse matrices are read by `scipy.sparse.load_npz`, which unpickles nothing
_TRUSTED = frozenset(
    {
        "collections.OrderedDict",
        "functools.partial",
        "lightgbm.sklearn.LGBMClassifier",
        "lightgbm.sklearn.LGBMRanker",
        "lightgbm.sklearn.LGBMRegressor",
        "lightgbm.sklearn._LGBMLabelEncoder",
        "numpy.dtype",
        "scipy.sparse._csc.csc_matrix",
        "scipy.sparse._csr.csr_matrix",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        *(
            f"sklearn.feature_selection.{name}"  # which score columns at the fit
            for name in (
                *(f"_univariate_selection.{score}" for score in ("chi2", "f_classif", "f_regression")),
                *(f"_mutual_info.mutual_info_{kind}" for kind in ("classif", "regression")),
            )
        ),
        "sklearn.tree._tree.Tree",
        "sklearn.utils.validation.check_array",
        "tithe.storage.foreign.Held",
        "xgboost.sklearn.XGBClassifier",
        "xgboost.sklearn.XGBRFClassifier",
        "xgboost.sklearn.XGBRFRegressor",
        "xgboost.sklearn.XGBRanker",
        "xgboost.sklearn.XGBRegressor",
    }
)
_LIBRARIES = ("sklearn.", "lightgbm.", "xgboost.")
_ZIP_MAGIC = b"PK"
_MAX_DEPTH = 60  # of objects in objects
_SETTINGS = {"n_jobs": None, "memory": None, "verbose": 0}  # of estimators that were loaded
_FINITE = ("coef_", "intercept_", "cluster_centers_", "means_", "components_")  # where a fit without a fault has them
_DRAWS = 624  # numbers that a Mersenne twister holds
_BOOSTERS = {
    "lightgbm.basic.Booster": "lightgbm",
    "xgboost.core.Booster": "xgboost",
    **{f"catboost.core.{name}": "catboost" for name in CLASSES},  # the estimator itself
}
_SCHEMA = "schema.json"  # of skops
_CONSTANTS = ("JsonNode", "TypeNode")  # which of those that are equal are one object is chance
_NO_CHILD = -1  # of a leaf
_IS_CATEGORY = 1  # bit of a decision of LightGBM


class Held:
    """The place of one of our objects, or of a booster, in an object of another library."""

    def __init__(self, number: int) -> None:
        self.number = number


# -- boosters -------------------------------------------------------------------------------------


def booster_library(thing: Any) -> str | None:
    """The library whose booster this is, if it is one."""
    return _BOOSTERS.get(f"{type(thing).__module__}.{type(thing).__qualname__}")


def booster_text(booster: Any) -> bytes:
    """A booster in the format of its library: the text of LightGBM, the JSON of XGBoost and CatBoost.

    Raises `ValueError` for one that `booster_from` would refuse.
    """
    if booster_library(booster) == "lightgbm":
        text = str(booster.model_to_string())
        _check_lightgbm(text)
        return text.encode()
    if booster_library(booster) == "catboost":
        return catboost_text(booster)
    model = bytes(booster.save_raw("json"))
    _check_xgboost(json.loads(model))
    return model


def booster_from(library: str, text: bytes) -> Any:
    """The booster in a text of its library, which must be installed. Its trees are checked before it is parsed."""
    if library == "lightgbm":
        import lightgbm

        _check_lightgbm(text.decode())
        return lightgbm.Booster(model_str=text.decode())
    if library == "catboost":
        return catboost_from(text)
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
    values = np.array(tree["leaf_value"].split(), np.float64)
    expect(len(values) == n_leaves >= 1, "leaves are missing")
    expect(np.isfinite(values).all(), NOT_FINITE)
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
    expect(np.isfinite(np.array(tree["split_conditions"], np.float64)[is_leaf]).all(), NOT_FINITE)
    column = np.array(tree["split_indices"], np.int64)[~is_leaf]
    expect((column >= 0).all() and (column < n_columns).all(), "a tree splits unknown columns")
    nodes, first, size = (np.array(tree[f"categories_{name}"], np.int64) for name in ("nodes", "segments", "sizes"))
    fits = (first >= 0) & (size >= 0) & (first + size <= len(tree["categories"])) & (nodes >= 0) & (nodes < n_nodes)
    expect(len(nodes) == len(first) == len(size) and fits.all(), "categories are out of range")
    expect(set(np.flatnonzero(tree["split_type"])) == set(nodes.tolist()), "categories are missing")


# -- by skops -------------------------------------------------------------------------------------


def shell_bytes(thing: Any, held: list[Any]) -> bytes:
    """An object of another library by skops, without our objects and boosters: these are added to ``held``."""
    from skops import io as skops

    def take_out(part: Any) -> Any:
        if not isinstance(part, Storable) and booster_library(part) is None:
            return part
        held.append(part)
        return Held(len(held) - 1)

    data: bytes = skops.dumps(swapped(thing, take_out))
    untrusted = _untrusted_types(data)
    if untrusted:
        raise ValueError(
            f"{type(thing).__name__} holds a {untrusted[0]}, which cannot be loaded without trusting the file: it was "
            "not saved. Save the coreset instead, and fit again from it."
        )
    return _settled(data)


def shell_from(data: bytes, held: list[Any]) -> Any:
    """The object that `shell_bytes` wrote, checked, with what it holds."""
    from skops import io as skops

    _check_members(data)
    schema = stored_members(data)[_SCHEMA]
    expect(_n_parts(json.loads(schema), {}) <= len(schema), "its parts stand for too many others")
    untrusted = _untrusted_types(data)
    expect(not untrusted, f"it wants to load {untrusted[:1]}, which is not a type of tithe.")
    thing = skops.loads(data, trusted=skops.get_untrusted_types(data=data))
    _check(thing, set(), 0)

    def put_back(part: Any) -> Any:
        if not isinstance(part, Held):
            return part
        expect(type(part.number) is int and 0 <= part.number < len(held), "a part is missing")
        return held[part.number]

    return swapped(thing, put_back)


def _untrusted_types(data: bytes) -> list[str]:
    """Types in the data that are trusted neither by skops nor by us."""
    from skops import io as skops

    names = [name for name in skops.get_untrusted_types(data=data) if name not in _TRUSTED]
    return [name for name in names if name not in registered_types()] if names else []


def _settled(archive: bytes) -> bytes:
    """The archive with the same bytes for equal objects: numbers in place of the memory addresses that skops writes.

    The arrays of sparse matrices, which SciPy compresses, are stored as they are.
    """
    members = _unzipped(archive)
    numbers: dict[int, int] = {}
    files: dict[str, str] = {}

    def renumbered(part: Any) -> Any:
        if isinstance(part, list):
            return [renumbered(item) for item in part]
        if not isinstance(part, dict):
            return part
        named = {name: renumbered(item) for name, item in part.items()}
        if part.get("__loader__") in _CONSTANTS:
            del named["__id__"]
        elif isinstance(part.get("__id__"), int):
            named["__id__"] = numbers.setdefault(part["__id__"], len(numbers) + 1)
        if isinstance(part.get("file"), str):
            named["file"] = files.setdefault(part["file"], f"{len(files)}{PurePath(part['file']).suffix}")
        return named

    schema = renumbered(json.loads(members[_SCHEMA]))
    named = {new: _settled_array(members[old], new) for old, new in files.items()}
    return _zipped({**named, _SCHEMA: json.dumps(schema).encode()})


def _settled_array(data: bytes, name: str) -> bytes:
    """A member: nodes of trees without the bytes between their fields, which are whatever memory held before."""
    if name.endswith(".npz"):
        return _zipped(_unzipped(data))
    if not name.endswith(".npy") or not (array := np.load(io.BytesIO(data), allow_pickle=False)).dtype.names:
        return data
    clean, file = np.zeros(array.shape, array.dtype), io.BytesIO()
    for field in array.dtype.names:
        clean[field] = array[field]
    np.save(file, clean)
    return file.getvalue()


def _unzipped(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        return {name: source.read(name) for name in source.namelist()}


def _zipped(members: dict[str, bytes]) -> bytes:
    """An archive whose members are not compressed, and have no time."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        for name, data in members.items():
            target.writestr(zipfile.ZipInfo(name), data)
    return file.getvalue()


def _n_parts(part: Any, known: dict[Any, int]) -> int:
    """How many parts a schema stands for; one with the id of an earlier one stands for as many as that.

    skops looks at each of them. Lists of lists that occur twice would be more than can be looked at.
    """
    if isinstance(part, list):
        return 1 + sum(_n_parts(item, known) for item in part)
    if not isinstance(part, dict):
        return 1
    number = part.get("__id__")
    if number in known:
        expect(known[number] > 0, "a part holds itself")
        return known[number]
    if number is not None:
        known[number] = 0
    n = 1 + sum(_n_parts(item, known) for item in part.values())
    if number is not None:
        known[number] = n
    return n


def stored_members(data: bytes) -> dict[str, bytes]:
    """The members of an archive that takes no more memory than it has bytes: we write none that is compressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
        stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
        expect(stored and sum(part.file_size for part in parts) <= len(data), "its parts are larger than the file")
        return {part.filename: archive.read(part) for part in parts}


def array_header(file: io.BytesIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and the type of an array in NumPy's format, by its header."""
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    return shape, dtype


def _check_members(data: bytes) -> None:
    """Refuse an archive with a compressed member, also in the archives within it, or with records that are no list.

    Trees of scikit-learn take the first axis of their nodes for granted as soon as they are made.
    """
    for content in stored_members(data).values():
        if content.startswith(_ZIP_MAGIC):
            _check_members(content)
        elif content.startswith(np.lib.format.MAGIC_PREFIX):
            shape, dtype = array_header(io.BytesIO(content))
            expect(dtype.names is None or len(shape) == 1, "records are no list")


def swapped(thing: Any, swap: Callable[[Any], Any], seen: dict[int, tuple[Any, Any]] | None = None) -> Any:
    """The object with ``swap(part)`` in place of every part, however deep; what has no other part is not copied."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return seen[id(thing)][1]
    seen[id(thing)] = thing, thing  # both are kept alive, so that no other object gets the same id
    result = swap(thing)
    if result is thing:
        parts = _named_parts(thing)
        changed = {name: swapped(part, swap, seen) for name, part in parts.items()}
        if any(changed[name] is not part for name, part in parts.items()):
            result = _with_parts(thing, changed)
    seen[id(thing)] = thing, result
    return result


def _named_parts(thing: Any) -> dict[Any, Any]:
    if type(thing) is dict:
        return thing
    if type(thing) in (list, tuple):
        return dict(enumerate(thing))
    if isinstance(thing, np.ndarray):
        return dict(enumerate(thing.ravel())) if thing.dtype.kind == "O" else {}
    if isinstance(thing, BaseEstimator) or _name_of(type(thing)).startswith(_LIBRARIES):
        attributes: dict[str, Any] = getattr(thing, "__dict__", {})
        return attributes
    return {}


def _with_parts(thing: Any, parts: dict[Any, Any]) -> Any:
    if type(thing) in (dict, list, tuple):
        return parts if type(thing) is dict else type(thing)(parts.values())
    if isinstance(thing, np.ndarray):
        array = np.empty(thing.size, object)
        array[:] = list(parts.values())
        return array.reshape(thing.shape)
    copy = object.__new__(type(thing))
    copy.__dict__.update(parts)
    return copy


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# -- checks of what skops loaded ------------------------------------------------------------------


def _check(thing: Any, seen: set[int], depth: int) -> None:
    """Check everything that an object of another library holds."""
    if id(thing) in seen:
        return
    expect(depth < _MAX_DEPTH, "objects are nested too deeply")
    seen.add(id(thing))
    if isinstance(thing, (set, frozenset)):
        parts: dict[Any, Any] = dict(enumerate(thing))
    else:
        parts = _named_parts(thing)
    for name, part in parts.items():
        _check(name, seen, depth + 1)
        _check(part, seen, depth + 1)
    if isinstance(thing, np.ndarray):
        expect(thing.dtype.kind in "biufOUSV" and thing.dtype.isnative, f"an array holds {thing.dtype}")
    elif sparse.issparse(thing):
        _check_sparse(thing)
    elif isinstance(thing, functools.partial):
        expect(thing.func is check_array, "a function is none of scikit-learn's checks")
    elif isinstance(thing, BaseEstimator):
        _check_estimator(thing)
    names = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(thing).__mro__}
    for base in names & _CHECKS.keys():
        _CHECKS[base](thing)


def _check_sparse(matrix: Any) -> None:
    expect(matrix.format in ("csr", "csc"), f"a matrix is stored as {matrix.format}")
    expect(matrix.data.ndim == 1 and matrix.data.dtype in (np.float32, np.float64), f"a matrix holds {matrix.dtype}")
    matrix.check_format(full_check=True)


def _check_estimator(estimator: Any) -> None:
    """Refuse an estimator without some of its parameters, or with an attribute that hides a method."""
    attributes = vars(estimator)
    for name in type(estimator)._get_param_names():
        expect(name in attributes, f"{type(estimator).__name__} has no {name}")
    for name in attributes:
        hidden = getattr(type(estimator), name, None)
        expect(not callable(hidden) and not hasattr(type(hidden), "__get__"), f"{name} would hide a method")
    if isinstance(attributes.get("n_classes_"), (int, np.integer)) and "classes_" in attributes:
        expect(np.shape(attributes["classes_"]) == (attributes["n_classes_"],), "classes are missing")
    for name in _FINITE:
        value = attributes.get(name)
        numbers = value.data if sparse.issparse(value) else value
        expect(not _is_floats(numbers) or np.isfinite(numbers).all(), f"{name} holds values that are not finite")
    attributes.update({name: value for name, value in _SETTINGS.items() if name in attributes})
    if "_n_threads" in attributes:  # of k-means
        attributes["_n_threads"] = _openmp_effective_n_threads()


def _is_floats(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def check_generator(generator: Any) -> None:
    """A generator of random numbers of NumPy, old or new."""
    old = isinstance(generator, np.random.RandomState)
    state = generator.get_state(legacy=False) if old else generator.bit_generator.state
    if state["bit_generator"] == "MT19937":
        expect(0 <= state["state"]["pos"] <= _DRAWS, "a generator of random numbers is out of range")


def _check_centers(clusterer: Any) -> None:
    values = vars(clusterer)
    if "cluster_centers_" in values:
        table = {"cluster_centers_": Floats("k", "d", dtypes=("float64", "float32"))}
        sizes = _check_some(values, table, {"d": int(clusterer.n_features_in_)})
        expect(sizes["k"] > 0, "there are no centers")


def _check_linear(classifier: Any) -> None:
    """A linear classifier: coefficients for every class but one, or for each."""
    values = vars(classifier)
    if "coef_" not in values:
        return
    labels = {"classes_": Labels("classes", distinct=True)}
    sizes = _check_some(values, labels, {"d": int(classifier.n_features_in_)})
    if isinstance(classifier.coef_, np.ndarray):
        rows = 1 if sizes["classes"] == 2 else sizes["classes"]
        floats = Floats(rows, "d", dtypes=("float64", "float32"), contiguous=False)
        floats.check("coef_", classifier.coef_, sizes)
    expect(sizes["classes"] >= 2, "there are fewer than two classes")


def _check_machine(machine: Any) -> None:
    """A fitted machine of libsvm: vectors, their numbers in each class, and coefficients."""
    values = vars(machine)
    if "support_" not in values:
        return
    int32 = ("int32",)
    table = {
        "support_": Integers("n", dtypes=int32, least=0),
        "_n_support": Integers("c", dtypes=int32, least=0),
        "_dual_coef_": Floats("k", "n", contiguous=False),
        "_intercept_": Floats("i", contiguous=False),
        "_probA": Floats("q"),
        "_probB": Floats("q"),
    }
    expect(not machine._sparse and not callable(machine.kernel), "a machine of sparse rows cannot be checked")
    sizes = _check_some(values, table, {})
    expect(machine.kernel != "precomputed", "a machine of a given matrix cannot be checked")
    Floats("n", int(machine.n_features_in_)).check("support_vectors_", machine.support_vectors_, sizes)
    shape = machine.shape_fit_
    expect(shape[1] == machine.n_features_in_ and machine.support_.max(initial=0) < shape[0], "rows are out of range")
    if machine._impl in ("c_svc", "nu_svc"):
        n_classes = len(machine.classes_)
        pairs = n_classes * (n_classes - 1) // 2
        expect(machine._n_support.sum() == sizes["n"] and sizes["c"] == n_classes, "support vectors are miscounted")
        expect(sizes["k"] == n_classes - 1 and sizes["i"] == pairs, "coefficients are of other classes")
        expect(sizes["q"] in (0, pairs), "probabilities are of other classes")
    else:
        expect(sizes["k"] == 1 and sizes["i"] == 1, "coefficients are not those of one function")


def _check_some(values: dict[str, Any], table: dict[str, Any], sizes: dict[str, int]) -> dict[str, int]:
    return check_fields({name: values[name] for name in table if name in values}, table, sizes=sizes)


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
    expect(np.isfinite(tree.value).all(), NOT_FINITE)


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
        expect(np.isfinite(nodes["value"][leaf]).all(), NOT_FINITE)
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


_CHECKS: dict[str, Callable[[Any], None]] = {
    "sklearn.LinearClassifierMixin": _check_linear,
    "sklearn._BaseKMeans": _check_centers,
    "sklearn.BaseLibSVM": _check_machine,
    "sklearn.BaseDecisionTree": check_grown,
    "sklearn.BaseHistGradientBoosting": check_boosted,
    "numpy.Generator": check_generator,
    "numpy.RandomState": check_generator,
}
