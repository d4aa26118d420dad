"""What an incremental machine says about itself: its rows, the bound of its error, and the certificate."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array, Block
from tithe.core.errors import RowsNotSavedError
from tithe.core.state_checks import copy_with
from tithe.fit.tables import checked_block
from tithe.odm.kernel_machine import KernelMachine
from tithe.odm.solvers.exact_machine import ExactMachine
from tithe.odm.unlearning import Unlearning

ROW_ATTRIBUTES = ("_machine", "_held", "_fixed", "_next_id", "_forgotten")  # that only changes of the rows need
_SAME_LENGTHS = ("rbf", "laplacian")  # kernels with k(x, x) = 1 for all x


class IncrementalResults(KernelMachine):
    """A mixin with the attributes that are computed from the rows held."""

    theta: float
    fit_intercept: bool
    intercept_scaling: float
    cost_: float
    _machine: ExactMachine
    _held: Block  # with the ids of the rows, and y the numbers +1 and -1
    _forgotten: tuple[int, ...]
    _gap: float  # this and the next are stored in a model without its rows
    _unlearning: Unlearning | None

    @property
    def _constant(self) -> float:
        """The square of the constant feature."""
        return float(self.intercept_scaling) ** 2 if self.fit_intercept else 0.0

    @property
    def row_ids_(self) -> Array:
        """Ids of the rows held."""
        self._check_has_rows("row_ids_")
        return np.sort(self._held.row_ids())

    @property
    def lam_(self) -> float:
        """The ``lam`` that the costs stand for now."""
        self._check_has_rows("lam_")
        return self.cost_ * (1.0 - self.theta) ** 2 * self._held.total_weight

    @property
    def gap_(self) -> float:
        """Upper bound of the objective minus its minimum."""
        if "_gap" in self.__dict__:
            return self._gap
        self._check_has_rows("gap_")
        return self._machine.gap_bound()

    @property
    def unlearning_(self) -> Unlearning | None:
        """A certificate for all rows forgotten so far."""
        if "_unlearning" in self.__dict__:
            return self._unlearning
        self._check_has_rows("unlearning_")
        if not self._forgotten:
            return None
        gap = self.gap_
        return Unlearning(
            row_ids=self._forgotten,
            n_rows=len(self._held),
            gap=gap,
            tolerance=float((2.0 * gap * self._machine.largest()) ** 0.5),
            for_all_rows=self.kernel in _SAME_LENGTHS,
        )

    def _check_has_rows(self, name: str) -> None:
        """Refuse to compute an attribute without rows."""
        if "_held" not in self.__dict__:
            if "classes_" in self.__dict__:
                raise RowsNotSavedError(f"{type(self).__name__} has no {name}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r} before any row came")

    def summary(self) -> dict[str, Any]:
        """The classes, the number of support vectors, and the certificate for forgotten rows."""
        said = self.unlearning_
        return {**super().summary(), **({} if said is None else {"unlearning": str(said)})}

    def error_bound(self, X: Any) -> Array:
        """How far the decision value of each row may be from that of the exact machine: (n,).

        The root of 2 gap k(x, x), where ``gap_`` is the duality gap.
        """
        check_is_fitted(self)
        function = self._fitted_kernel()
        lengths = function.diagonal(function.prepare(checked_block(self, X, reset=False).X)) + self._constant
        bound: Array = np.sqrt(2.0 * self.gap_ * lengths)
        return bound

    def without_rows(self) -> Self:
        """A copy with the support vectors alone. It predicts the same, and no row can join or leave it."""
        if "_machine" not in self.__dict__:
            return self
        kept = {name: value for name, value in self.__dict__.items() if name not in ROW_ATTRIBUTES}
        return copy_with(self, {**kept, "_gap": self.gap_, "_unlearning": self.unlearning_})
