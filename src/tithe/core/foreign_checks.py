"""Objects of other packages that compiled code trusts: their numbers are checked like our own when a file is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tithe.core.state_checks import Floats, Integers, Labels, check_fields, expect

_DRAWS = 624  # numbers that a Mersenne twister holds


def check_foreign(thing: Any) -> None:
    """Refuse generators, machines and centres of scikit-learn and NumPy whose parts do not fit together."""
    names = {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(thing).__mro__}
    for name, check in _CHECKS.items():
        if name in names:
            check(thing)


def _check_parameters(estimator: Any) -> None:
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
    "sklearn.BaseEstimator": _check_parameters,
    "sklearn.LinearClassifierMixin": _check_linear,
    "sklearn._BaseKMeans": _check_centers,
    "sklearn.BaseLibSVM": _check_machine,
    "numpy.Generator": _check_generator,
    "numpy.RandomState": _check_generator,
}
