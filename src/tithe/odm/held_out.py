"""Decision values of training rows for machines that were fitted without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array, Block
from tithe.core.labels import label_numbers
from tithe.core.parallel import single_blas_thread
from tithe.fit.labels import weights_by_class
from tithe.fit.tables import checked_block
from tithe.odm.base import row_costs
from tithe.odm.kernel_machine import KernelMachine
from tithe.odm.solvers.exact_machine import check_memory
from tithe.odm.solvers.kernel_functions import checked_matrix
from tithe.odm.solvers.leave_one_out import held_out
from tithe.odm.solvers.path import Rows, kernel_product, mirrored

_SINGLE_GAP = 1e-5  # relative gap that single precision may leave
_MAX_GAP_RATIO = 10.0  # times the gap of the fit: beyond, the rows are other ones


class HeldOutMixin(KernelMachine):
    """Leave-one-out and n-fold decision values of a fitted machine of two classes, without fitting it again."""

    lam: float
    mu: float
    theta: float
    tol: float
    fit_intercept: bool
    intercept_scaling: float
    class_weight: Any
    cache_size: float
    gap_: float
    objective_curve_: list[float]

    def leave_one_out(self, X: Any, y: Any, sample_weight: Any = None) -> Array:
        """The decision value of each training row for the machine fitted without it: (n,).

        They are exact for all rows, and take about as long as two or three fits. The machine without a row keeps the
        costs C of the other rows, as if ``lam`` were (W - s) / W times as large, where s is the weight of the row and
        W that of all. The kernel stays too: "scale" is not computed again. Two classes only; for more, use
        scikit-learn's `cross_val_predict`.

        Parameters
        ----------
        X, y, sample_weight
            The rows, labels and weights that the machine was fitted to. Others are refused.
        """
        block = self._training_rows(X, y, sample_weight)
        return self._held_out(block, [np.array([i]) for i in range(len(block))])

    def n_fold(self, X: Any, y: Any, n: Any = 5, sample_weight: Any = None) -> Array:
        """The decision value of each training row for the machine fitted without the rows of its fold: (n_rows,).

        Everything else is as in `leave_one_out`. The folds are those of scikit-learn.

        Parameters
        ----------
        X, y, sample_weight
            The rows, labels and weights that the machine was fitted to. Others are refused.
        n : int or cross-validation splitter of scikit-learn
            The number of folds, stratified by class. The test folds of a splitter must hold every row once.
        """
        block = self._training_rows(X, y, sample_weight)
        groups = [test for _, test in check_cv(n, block.y, classifier=True).split(block.X, block.y)]
        if not np.array_equal(np.sort(np.concatenate(groups)), np.arange(len(block))):
            raise ValueError("Every row must be in one test fold, and in no other: take KFold or StratifiedKFold.")
        return self._held_out(block, groups)

    def _training_rows(self, X: Any, y: Any, sample_weight: Any) -> Block:
        """The rows, with class numbers for y and the weights of the fit."""
        check_is_fitted(self)
        if len(self.classes_) > 2:
            raise ValueError(
                "Only for two classes can rows be left out of a fitted machine exactly: with more, the strongest "
                "rivals of the other rows change. Use sklearn.model_selection.cross_val_predict."
            )
        if self.fit_intercept and np.isinf(self.intercept_scaling):
            raise ValueError(
                "intercept_scaling=inf, a free intercept: rows cannot be left out of a fitted machine. Use "
                "sklearn.model_selection.cross_val_predict, or a finite intercept_scaling."
            )
        block = checked_block(self, X, y, sample_weight, reset=False)
        if block.y is None:
            raise ValueError("y is needed: the labels that the machine was fitted to.")
        codes = label_numbers(block.y, self.classes_)
        if codes.min() < 0:
            raise _other_rows()
        weight = weights_by_class(self.class_weight, self.classes_, codes, block.sample_weight)
        check_memory(len(block), 1e6 * self.cache_size)
        return replace(block, y=codes, sample_weight=weight, mean=None)

    def _held_out(self, block: Block, groups: list[Array]) -> Array:
        assert block.y is not None
        n = len(block)
        if self.support_.max(initial=-1) >= n:
            raise _other_rows()
        kernel, sign = self._training_kernel(block), 2.0 * block.y - 1.0
        gamma = np.zeros(n)
        gamma[self.support_] = sign[self.support_] * self.dual_coef_[0]
        cost = row_costs(block.sample_weight, n, self.lam, self.theta)
        self._check_is_solution(kernel, sign, cost, gamma)
        return held_out(kernel, sign, cost, gamma, groups, mu=float(self.mu), theta=float(self.theta))

    def _training_kernel(self, block: Block) -> Array:
        """The kernel matrix in double precision, the constant feature included."""
        constant = float(self.intercept_scaling) ** 2 if self.fit_intercept else 0.0
        if self.kernel == "precomputed":
            return mirrored(checked_matrix(block.X).astype(np.float64)) + constant
        function = replace(self._fitted_kernel(), dtype=np.float64)
        rows = function.prepare(block.X)
        with single_blas_thread():
            return mirrored(function.rectangle(rows, rows)) + constant

    def _check_is_solution(self, kernel: Array, sign: Array, cost: Array, gamma: Array) -> None:
        """Refuse rows, labels or weights for which the machine is not the solution."""
        score = kernel_product(kernel, sign * gamma)
        side, band = np.zeros(len(sign), np.int64), {"mu": float(self.mu), "theta": float(self.theta)}
        rows = Rows(sign=sign, cost=cost, gamma=gamma, margin=sign * score, side=side, **band)
        gap, primal = rows.gap()
        reached = max(self.tol, self.gap_ / self.objective_curve_[-1], _SINGLE_GAP)
        if not gap <= _MAX_GAP_RATIO * reached * primal:
            raise _other_rows()


def _other_rows() -> ValueError:
    return ValueError(
        "These are not the rows, labels and weights that the machine was fitted to, or its parameters have changed "
        "since: call fit with them first."
    )
