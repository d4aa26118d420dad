"""Checks of everything that a file held, before any of it is used: our own objects, arrays, and those of libraries.

Objects of other packages that compiled code trusts (generators, machines, centres) have their numbers checked like
our own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from types import MethodType
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.errors import FileFormatError
from tithe.core.state_checks import (
    PLAIN,
    Floats,
    Integers,
    Labels,
    Storable,
    check_fields,
    check_parameters,
    expect,
)

_MAX_DEPTH = 60  # of nested objects
_DRAWS = 624  # numbers that a Mersenne twister holds


def check_loaded(thing: Any) -> Any:
    """The object that was read from a file, all of it checked."""
    try:
        _walk(thing, set(), 0)
    except FileFormatError:
        raise
    except Exception as error:  # objects of wrong types raise various errors when they are compared
        raise FileFormatError(f"it cannot be what it says: {type(error).__name__}: {error}") from error
    return thing


def _walk(thing: Any, seen: set[int], depth: int) -> None:
    if isinstance(thing, PLAIN) or id(thing) in seen:
        return
    expect(depth < _MAX_DEPTH, "objects are nested too deeply")
    seen.add(id(thing))
    for part in parts_of(thing):
        _walk(part, seen, depth + 1)
    if isinstance(thing, np.ndarray):
        _check_array(thing)
    elif sparse.issparse(thing):
        _check_sparse(thing)
    elif isinstance(thing, Storable):
        thing._check_state()
    else:
        check_parameters(thing)
    names = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(thing).__mro__}
    for name, check in _CHECKS.items():
        if name in names:
            check(thing)


def parts_of(thing: Any) -> Iterable[Any]:
    """The parts of an object. Attributes that hide a method of the class are refused, and so are missing fields."""
    if isinstance(thing, dict):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, (list, tuple, set, frozenset)):
        return thing
    if isinstance(thing, (np.ndarray, MethodType)) or sparse.issparse(thing):
        return ()
    if is_dataclass(thing):
        for field in fields(thing):
            expect(hasattr(thing, field.name), f"{type(thing).__name__} has no {field.name}")
    attributes: dict[str, Any] = getattr(thing, "__dict__", {})
    ours = type(thing).__module__.startswith("tithe.")
    for name, value in attributes.items():
        expect(not ours or not isinstance(value, type), f"{type(thing).__name__}.{name} is a class")
        hidden = getattr(type(thing), name, None)
        computed = callable(hidden) or hasattr(type(hidden), "__get__")
        expect(not computed or isinstance(hidden, functools.cached_property), f"{name} would hide a method")
    slots = [f.name for f in fields(thing)] if is_dataclass(thing) and not attributes else []
    return [*attributes.values(), *(getattr(thing, name) for name in slots)]


def _check_array(array: np.ndarray[Any, Any]) -> None:
    """Refuse an array of a type that no object of ours has."""
    expect(array.dtype.kind in "biufOUS" and array.dtype.isnative, f"an array holds {array.dtype}")
    if array.dtype.kind == "O":
        expect(all(isinstance(item, PLAIN) or item is np.ma.masked for item in array.flat), "an array holds objects")


def _check_sparse(matrix: Any) -> None:
    expect(matrix.format in ("csr", "csc"), f"a matrix is stored as {matrix.format}")
    expect(matrix.data.ndim == 1 and matrix.data.dtype in (np.float32, np.float64), f"a matrix holds {matrix.dtype}")
    matrix.check_format(full_check=True)


def _check_estimator(estimator: Any) -> None:
    for name in type(estimator)._get_param_names():
        expect(name in vars(estimator), f"{type(estimator).__name__} has no {name}")


def _check_generator(generator: Any) -> None:
    state = getattr(generator, "bit_generator", getattr(generator, "_bit_generator", None)).state  # type: ignore[union-attr]
    if state["bit_generator"] == "MT19937":
        expect(0 <= state["state"]["pos"] <= _DRAWS, "a generator of random numbers is out of range")


def _check_centers(clusterer: Any) -> None:
    if "cluster_centers_" not in vars(clusterer):
        return
    sizes = {"d": int(clusterer.n_features_in_)}
    check_fields(clusterer, {"cluster_centers_": Floats("k", "d", dtypes=("float64", "float32"))}, sizes=sizes)
    expect(sizes["k"] > 0, "there are no centres")


def _check_linear(classifier: Any) -> None:
    """A linear classifier: coefficients for every class but one, or for each."""
    if "coef_" not in vars(classifier):
        return
    names = {"classes_": Labels("classes", distinct=True)}
    sizes = check_fields(classifier, names, sizes={"d": int(classifier.n_features_in_)})
    if isinstance(classifier.coef_, np.ndarray):
        rows = 1 if sizes["classes"] == 2 else sizes["classes"]
        floats = Floats(rows, "d", dtypes=("float64", "float32"), contiguous=False)
        floats.check("coef_", classifier.coef_, sizes)
    expect(sizes["classes"] >= 2, "there are fewer than two classes")


def _check_machine(machine: Any) -> None:
    """A fitted machine of libsvm: vectors, their numbers in each class, and coefficients."""
    if "support_" not in vars(machine):
        return
    int32 = ("int32",)
    tables = {
        "support_": Integers("n", dtypes=int32, least=0),
        "_n_support": Integers("c", dtypes=int32, least=0),
        "_dual_coef_": Floats("k", "n", contiguous=False),
        "_intercept_": Floats("i", contiguous=False),
        "_probA": Floats("q"),
        "_probB": Floats("q"),
    }
    expect(not machine._sparse and not callable(machine.kernel), "a machine of sparse rows cannot be checked")
    sizes = check_fields(machine, tables)
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


_CHECKS: dict[str, Callable[[Any], None]] = {
    "sklearn.BaseEstimator": _check_estimator,
    "sklearn.LinearClassifierMixin": _check_linear,
    "sklearn._BaseKMeans": _check_centers,
    "sklearn.BaseLibSVM": _check_machine,
    "numpy.Generator": _check_generator,
    "numpy.RandomState": _check_generator,
}
