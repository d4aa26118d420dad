"""The methods of a learned dictionary: codes of rows, the rows that codes represent, and their error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, check_is_fitted

from tithe.certify import Certificate
from tithe.certify.held_out import mean_certificate
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.passes import DataPass
from tithe.learners.dictionary.rows import Centring, RowCoder
from tithe.learners.results import MAX_BARS, BarChart, column_names
from tithe.solvers.ksvd import Coding


class FittedDictionary:
    """Codes, reconstructions, errors and descriptions. A subclass has the fitted attributes and checks rows."""

    components_: Any
    objective_curve_: Any
    best_iter_: Any
    mean_: Array | None
    center: str
    engine: Any

    _signals: Callable[..., Any]
    _coding: Callable[[], Coding]

    def transform(self, X: Any) -> Array:
        """Codes (n, k) of the rows, dense. If they do not fit into memory, use ``encode``."""
        rows = self._rows_to_code(X)
        return self._coder().dense(rows)

    def encode(self, X: Any) -> sparse.csr_matrix:
        """Codes (n, k) of the rows as a CSR matrix: those of ``transform`` without the zeros."""
        rows = self._rows_to_code(X)
        return self._coder().sparse(rows)

    def inverse_transform(self, codes: Any) -> Array:
        """The rows (n, d) that codes, dense or CSR, represent.

        A row's own mean (``center="row"``) is not part of its code and is not added: see ``reconstruct``.
        """
        check_is_fitted(self)
        codes = check_array(codes, accept_sparse="csr", dtype=[np.float64, np.float32])
        if codes.shape[1] != len(self.components_):
            raise ValueError(f"codes have {codes.shape[1]} columns, and there are {len(self.components_)} atoms.")
        rows: Array = codes @ self.components_
        return rows if self.mean_ is None else rows + self.mean_.astype(rows.dtype)

    def reconstruct(self, X: Any) -> Array:
        """The rows as their codes represent them, with their means: (n, d)."""
        rows = self._rows_to_code(X)
        reconstructed: Array = rows.X - self._coder().residuals(rows)
        return reconstructed

    def _rows_to_code(self, X: Any) -> Block:
        check_is_fitted(self)
        block: Block = self._signals(X, None, reset=False)
        return block

    def _coder(self) -> RowCoder:
        centring = Centring(self.center, self.mean_)
        return RowCoder(atoms=self.components_, coding=self._coding(), centring=centring)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the mean squared error of an entry of ``X``."""
        return -self.certify(X, sample_weight=sample_weight).value

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """Mean squared error of an entry on ``X``, rows or a source, with its confidence interval.

        Use rows that were not in the training data: then it is an unbiased estimate for rows of this kind.
        ``coreset_error`` compares it with the error at the end of training.
        """
        check_is_fitted(self)
        rows = X if isinstance(X, Source) else self._signals(X, sample_weight, reset=False)
        return self._error_on(rows)

    def _error_on(self, rows: Block | Source) -> Certificate:
        if isinstance(rows, Block) and rows.sample_weight is not None:  # squares of weights must not overflow
            rows = replace(rows, sample_weight=rows.sample_weight / rows.sample_weight.max())
        data, coder = DataPass(rows, self.engine), self._coder()
        scale = float(self.objective_curve_[0]) or 1.0  # squares of errors must not overflow either
        sums = data.total(lambda block: coder.error_sums(block, scale))
        return mean_certificate(sums, scale, data.n_rows, self._training_error())

    def _training_error(self) -> float:
        return float(self.objective_curve_[self.best_iter_])

    # -- what reports say --------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """The error at the end of training, and of each atom its largest entries and the share of the rows using it."""
        names, shares = column_names(self), self._shares()
        atoms = []
        for i, atom in enumerate(np.asarray(self.components_, np.float64)):
            largest = np.argsort(-np.abs(atom), kind="stable")[:MAX_BARS]
            entries = {names[j]: float(atom[j]) for j in largest}
            atoms.append({"atom": i, "share": None if shares is None else float(shares[i]), "entries": entries})
        return {"mean_squared_error": self._training_error(), "atoms": atoms}

    def charts(self) -> list[BarChart]:
        """The share of the rows that use each atom."""
        shares = self._shares()
        if shares is None:
            return []
        return [BarChart.of_largest("atoms", range(len(shares)), shares, "share of the rows that use it, by weight")]

    def _shares(self) -> Array | None:
        """The share of the weight of the coreset's rows that use each atom; None if there is no coreset."""
        rows = (vars(self).get("_fitted_values") or {}).get("coreset_")  # it may not have been saved
        if not isinstance(rows, Coreset):
            return None
        chosen = self._coding()(rows.X, np.asarray(self.components_))[0]
        weight = np.broadcast_to(rows.weights()[:, None], chosen.shape)
        used = chosen >= 0
        shares: Array = np.bincount(chosen[used], weights=weight[used], minlength=len(self.components_))
        shares /= rows.weights().sum()
        return shares
