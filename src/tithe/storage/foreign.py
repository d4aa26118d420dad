"""Models of other libraries in files: boosters in the formats of their own libraries, everything else by skops.

skops loads only the types that it is told to trust. Numbers that compiled code relies on (trees, support vectors,
centers, generators) are checked after loading, as those of our own objects are.
"""

from __future__ import annotations

import functools
import io
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array

from tithe.core.registry import registered_types
from tithe.core.state_checks import Floats, Integers, Labels, Storable, check_fields, expect
from tithe.storage.trees import booster_library, check_boosted, check_grown

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
        "scipy.sparse._csc.csc_matrix",
        "scipy.sparse._csr.csr_matrix",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
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
_DRAWS = 624  # numbers that a Mersenne twister holds


class Held:
    """The place of one of our objects, or of a booster, in an object of another library."""

    def __init__(self, number: int) -> None:
        self.number = number


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
    return _uncompressed(data)


def shell_from(data: bytes, held: list[Any]) -> Any:
    """The object that `shell_bytes` wrote, checked, with what it holds."""
    from skops import io as skops

    untrusted = _untrusted_types(data)
    expect(not untrusted, f"it wants to load {untrusted[:1]}, which is not a type of tithe.")
    _check_uncompressed(data)
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


def _uncompressed(archive: bytes) -> bytes:
    """The archive, and the arrays of sparse matrices in it, which SciPy compresses, as they are."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(zipfile.ZipInfo(name), _uncompressed(content) if name.endswith(".npz") else content)
    return file.getvalue()


def _check_uncompressed(data: bytes) -> None:
    """Refuse an archive that takes more memory than it has bytes: we write none that is compressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
        stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
        expect(stored and sum(part.file_size for part in parts) <= len(data), "its parts are larger than the file")
        for content in map(archive.read, parts):
            if content.startswith(_ZIP_MAGIC):
                _check_uncompressed(content)


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


def _check_generator(generator: Any) -> None:
    state = getattr(generator, "bit_generator", getattr(generator, "_bit_generator", None)).state  # type: ignore[union-attr]
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


_CHECKS: dict[str, Callable[[Any], None]] = {
    "sklearn.LinearClassifierMixin": _check_linear,
    "sklearn._BaseKMeans": _check_centers,
    "sklearn.BaseLibSVM": _check_machine,
    "sklearn.BaseDecisionTree": check_grown,
    "sklearn.BaseHistGradientBoosting": check_boosted,
    "numpy.Generator": _check_generator,
    "numpy.RandomState": _check_generator,
}
