"""Checks of learners that were read from a file, before they predict or continue to learn.

The check of a fitted attribute is declared with it (`FittedAttribute`). Here are the checks that all learners share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Coreset
from tithe.core.state_checks import Check, Instance, Integer, Labels, Sizes, check_fields, expect
from tithe.learners.lazy_fit import FittedAttribute
from tithe.reduce.stream import CoresetStream

FLOATS = ("float64", "float32")
COLUMNS: dict[str, Check] = {"n_features_in_": Integer(least=1, size="d"), "feature_names_in_": Labels("d")}
_METHODS = ("predict", "predict_proba", "decision_function", "transform")


def check_learner(learner: Any, *, sizes: Sizes | None = None, stream: type = CoresetStream) -> Sizes:
    """Check columns, coreset, stream and fitted attributes of a learner, and return the sizes found.

    All fitted attributes must be present except the optional ones. There may be none before a fit, and after
    `partial_fit` as long as the model was not fitted to the new rows.
    """
    values, who = attributes_of(learner), type(learner).__name__
    fitted = {
        name: attribute
        for base in reversed(type(learner).__mro__)
        for name, attribute in vars(base).items()
        if isinstance(attribute, FittedAttribute)
    }
    if "n_features_in_" not in values:
        expect(not any(name in values for name in fitted), "a solution has no columns")
        return {}
    sizes = check_fields(values, COLUMNS, optional=("feature_names_in_",), sizes=sizes, who=who)
    if "stream_" in values:
        check_fields(values, {"stream_": Instance(stream), "_seed": Integer(most=2**64)}, who=who)
        if stream is CoresetStream:
            _check_stream_of(learner, sizes["d"])
    is_behind = "stream_" in values and learner._fitted_values is None
    optional = [name for name, attribute in fitted.items() if attribute.optional or is_behind]
    table = {name: attribute.check for name, attribute in fitted.items()}
    check_fields(values, table, optional=optional, sizes=sizes, who=who)
    coreset = values.get("coreset_")
    expect(not isinstance(coreset, Coreset) or coreset.n_features == sizes["d"], "a coreset has other columns")
    return sizes


def check_classes(learner: Any) -> Sizes:
    """The number of classes, and of outputs: one for two classes, else one for each."""
    if "n_features_in_" not in learner.__dict__:
        return {}
    sizes = check_fields(learner, {"classes_": Labels("classes", distinct=True)})
    expect(sizes["classes"] >= 2, "there are fewer than two classes")
    return {**sizes, "outputs": 1 if sizes["classes"] == 2 else sizes["classes"]}


def attributes_of(learner: Any) -> dict[str, Any]:
    """All attributes that are stored with a learner, fitted ones included. None of them is computed."""
    values = learner.__dict__.get("_fitted_values")
    expect(values is None or isinstance(values, dict), "fitted attributes are not a dict")
    return {**learner.__dict__, **(values or {})}


def _check_stream_of(learner: Any, d: int) -> None:
    """Check that the stream has the columns and the objective of the learner."""
    like = learner.stream_.state.rows.like
    expect(like is not None and like.n_features == d, "a stream has other columns")
    objective, stored = learner._objective(), learner.stream_.plan.objective
    same = type(objective) is type(stored) and objective.classes == stored.classes
    expect(same, "a stream is for another learner")
    n_classes = objective.n_classes
    for block in [*learner.stream_.state.rows.parts, *learner.stream_.state.tree.slots] if n_classes else []:
        numbers = block.y is not None and block.y.dtype.kind in "iu"
        expect(numbers and block.y.min() >= 0 and block.y.max() < n_classes, "rows have no class numbers")


def probe(estimator: Any, d: int) -> None:
    """Call an estimator of another package with one row, so that errors show up at once."""
    row = np.zeros((1, d))
    for method in _METHODS:
        if hasattr(estimator, method):
            answer = getattr(estimator, method)(row)
            expect(len(answer) == 1 if isinstance(answer, np.ndarray) else sparse.issparse(answer), f"{method} fails")
