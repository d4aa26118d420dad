"""Makes an estimator of scikit-learn a clusterer of river as well, without importing river."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_array

from tithe.core.data import Array


class RiverClusterer:
    """The methods that river's pipelines, checks and evaluations need.

    river is not imported here. If it is imported when an object is made, the class is registered with its `Clusterer`,
    so that ``isinstance(model, river.base.Clusterer)`` holds whether river is imported before or after tithe.

    Subclasses are estimators of scikit-learn that have a ``_chain`` of centres from the first row on, and take rows by
    ``_take``.
    """

    get_params: Any
    _chain: Any
    _options: Any
    _take: Any
    _names: list[Any]
    cluster_centers_: Any
    feature_names_in_: Array
    n_features_in_: int

    def __new__(cls, *args: Any, **params: Any) -> Self:
        base = sys.modules.get("river.base")
        if base is not None and hasattr(base, "Clusterer"):  # not while river is being imported
            base.Clusterer.register(cls)
        return super().__new__(cls)

    def learn_one(self, x: Mapping[Any, float]) -> None:
        """Take one row, a dict of values by feature name. river's pipelines call this.

        A feature that is missing is 0. A new one becomes one more column, which is 0 in all rows before. The columns
        have the order of the frame that came first, then that of their names among those that came together.
        """
        options, names, first = self._options(), self._names_of(x), "_chain" not in self.__dict__
        names = names + in_order(name for name in x if name not in names)
        self._take(self._one(x, names), options)
        self._names, self.n_features_in_ = names, len(names)
        if first or len(names) > len(self.__dict__.get("feature_names_in_", names)):
            self.__dict__.pop("feature_names_in_", None)
            if all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)  # frames are asked for the same order

    def predict_one(self, x: Mapping[Any, float]) -> int:
        """The number of the nearest centre of one row; 0 before the first row.

        A feature that is missing is 0. A feature that no row had is left out.
        """
        if "_chain" not in self.__dict__:
            return 0
        gap = self._chain.current - self._one(x, self._names_of(x))
        return int(np.einsum("ij,ij->i", gap, gap).argmin())

    @property
    def centers(self) -> dict[int, dict[Any, float]]:
        """``cluster_centers_`` as river's clusterers give them: by number, and by the name of the feature."""
        names = self.__dict__.get("_names", self.__dict__.get("feature_names_in_", range(self.n_features_in_)))
        rows = self.cluster_centers_.tolist()
        return {number: dict(zip(names, row, strict=True)) for number, row in enumerate(rows)}

    def _names_of(self, x: Mapping[Any, float]) -> list[Any]:
        """The known features in their order; those of ``x`` if rows had no names so far."""
        if "_names" in self.__dict__:
            return list(self._names)
        if "_chain" not in self.__dict__:
            return []
        if hasattr(self, "feature_names_in_"):
            return list(self.feature_names_in_)
        if len(x) != self.n_features_in_:
            raise ValueError(
                f"The row has {len(x)} features, those before it had {self.n_features_in_} without names: the first "
                "row with names must have as many."
            )
        return in_order(x)

    def _one(self, x: Mapping[Any, float], names: list[Any]) -> Array:
        return np.asarray(check_array([[x.get(name, 0.0) for name in names]], dtype=np.float64))

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Self:
        """A new estimator with the same parameters, except for ``new_params``.

        ``include_attributes`` copies fitted attributes as well. `sklearn.base.clone` does the same without the options.
        """
        copied = type(self)(**copy.deepcopy({**self._get_params(), **(new_params or {})}))
        if include_attributes:
            learned = {name: value for name, value in vars(self).items() if name not in self._get_params()}
            vars(copied).update(copy.deepcopy(learned))
        return copied

    def mutate(self, new_attrs: dict[str, Any]) -> None:
        """Refuse: parameters cannot be changed after the first rows."""
        if new_attrs:
            raise ValueError(f"No attribute can be changed, got {', '.join(new_attrs)}: make a clone with new_params.")

    def __or__(self, other: Any) -> Any:
        from river.compose import Pipeline

        return Pipeline(self, other)

    def __ror__(self, other: Any) -> Any:
        from river.compose import Pipeline

        return Pipeline(other, self)

    def _get_params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.get_params(deep=False)
        return params

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}

    def _unit_test_skips(self) -> set[str]:
        return set()

    @property
    def _supervised(self) -> bool:
        return False

    @property
    def _mutable_attributes(self) -> set[str]:
        return set()

    @property
    def _is_stochastic(self) -> bool:
        """Whether there is a parameter ``seed``, which river's checks would set: ours is ``random_state``."""
        return False

    @property
    def _tags(self) -> set[str]:
        return set()

    @property
    def _raw_memory_usage(self) -> int:
        from river.base import Base

        size: int = vars(Base)["_raw_memory_usage"].fget(self)
        return size

    @property
    def _memory_usage(self) -> str:
        from river.utils.pretty import humanize_bytes

        return str(humanize_bytes(self._raw_memory_usage))


def in_order(names: Iterable[Any]) -> list[Any]:
    """Names of features in a fixed order."""
    return sorted(names, key=lambda name: (type(name).__name__, name if isinstance(name, (int, str)) else repr(name)))
