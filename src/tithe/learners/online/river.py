"""Makes an estimator of scikit-learn a clusterer of river as well, without importing river."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any, Self


class RiverClusterer:
    """The methods that river's pipelines, checks and evaluations need besides ``learn_one``.

    river is not imported here. If it is imported when an object is made, the class is registered with its `Clusterer`,
    so that ``isinstance(model, river.base.Clusterer)`` holds whether river is imported before or after tithe.

    Subclasses are estimators of scikit-learn with ``learn_one`` and ``predict_one``.
    """

    get_params: Any

    def __new__(cls, *args: Any, **params: Any) -> Self:
        base = sys.modules.get("river.base")
        if base is not None and hasattr(base, "Clusterer"):  # not while river is being imported
            base.Clusterer.register(cls)
        return super().__new__(cls)

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
