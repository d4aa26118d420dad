"""Estimators in files: parameters, columns and fitted attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy import sparse

from tithe.core.state_checks import (
    Check,
    Labels,
    Sizes,
    Storable,
    check_fields,
    check_size,
    expect,
    restore,
)

_METHODS = ("predict", "predict_proba", "decision_function", "transform")


class ClassLabels(Check):
    """Labels of two or more ``classes``; there is one of the ``outputs`` for two classes, else one for each."""

    def check(self, name: str, value: Any, sizes: Sizes) -> None:
        Labels("classes", distinct=True).check(name, value, sizes)
        expect(sizes["classes"] >= 2, "there are fewer than two classes")
        check_size(name, "outputs", 1 if sizes["classes"] == 2 else sizes["classes"], sizes)


class StoredEstimator(Storable):
    """An estimator of ours. Its parameters are stored, and the attributes whose annotation has a check.

    All of these are there after a fit, but those that have a default in the class or a check `Sometimes`.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name: see scikit-learn."""
        return super().get_params(deep)  # type: ignore[misc,no-any-return]

    def record(self) -> dict[str, Any]:
        record = {"parameters": self.get_params(deep=False), **super().record()}
        lost = [name for name in vars(self) if name.endswith("_") and name not in self.stored_checks()]
        if lost:
            raise ValueError(
                f"{type(self).__name__} has the attribute {lost[0]}, which a file would not keep: declare it with a "
                "check, or as a FittedAttribute."
            )
        return record

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        values = dict(record)
        parameters = values.pop("parameters", None)
        expect(isinstance(parameters, dict), f"{cls.__name__} has no parameters")
        estimator = cls(**parameters)
        checks, optional = cls.stored_checks(), cls.optional_values(values)
        if not any(name in values for name, check in checks.items() if not (check.is_optional or name in optional)):
            expect(not values, "there is a part of a solution")
            return estimator
        check_fields(values, checks, optional=optional, who=cls.__name__)
        schema = values.get("schema_")
        expect(schema is None or schema.n_features == values.get("n_features_in_"), "a schema has other features")
        restore(estimator, values)
        estimator.check_relations()
        return estimator

    @classmethod
    def optional_values(cls, record: Mapping[str, Any]) -> frozenset[str]:
        """The attributes that a fitted estimator may lack."""
        return frozenset(name for name in cls.stored_checks() if getattr(cls, name, cls) is not cls)


def probe(estimator: Any, d: int) -> None:
    """Call an estimator of another package with one row, so that errors show up at once."""
    row = np.zeros((1, d))
    for method in _METHODS:
        if hasattr(estimator, method):
            answer = getattr(estimator, method)(row)
            expect(len(answer) == 1 if isinstance(answer, np.ndarray) else sparse.issparse(answer), f"{method} fails")
