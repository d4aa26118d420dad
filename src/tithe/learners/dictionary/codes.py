"""Codes of rows in the atoms of a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array, Block
from tithe.learners.dictionary.centring import Centring
from tithe.learners.dictionary.signals import check_magnitude
from tithe.solvers.ksvd import Coding

_CHUNK_ROWS = 1 << 15  # rows coded at a time, which limits the memory for their codes


@dataclass(frozen=True, kw_only=True, eq=False)
class RowCoder:
    """Codes rows: takes out their means, and finds a sparse combination of atoms for what is left.

    Parameters
    ----------
    atoms : array (k, d)
    coding : Coding
        How codes are found.
    centring : Centring
        Which means are taken out.
    """

    atoms: Array
    coding: Coding
    centring: Centring

    def centred(self, block: Block) -> Array:
        """The rows without their means, in the precision of the atoms."""
        rows: Array = self.centring(check_magnitude(block, self.atoms.dtype)).X
        return rows.astype(self.atoms.dtype, copy=False)

    def dense(self, block: Block) -> Array:
        """Codes (n, k) as an array."""
        rows = self.centred(block)
        codes = np.zeros((len(rows), len(self.atoms)), self.atoms.dtype)
        for at, chosen, values, _ in self._chunks(rows):
            i, t = np.nonzero(chosen >= 0)
            codes[at.start + i, chosen[i, t]] = values[i, t]
        return codes

    def sparse(self, block: Block) -> sparse.csr_matrix:
        """Codes (n, k) as a CSR matrix."""
        rows = self.centred(block)
        counts, columns, entries = [np.zeros(1, np.int64)], [], []
        for _, chosen, values, _ in self._chunks(rows):
            used = chosen >= 0
            counts.append(used.sum(axis=1))
            columns.append(chosen[used])
            entries.append(values[used])
        parts = (np.concatenate(entries), np.concatenate(columns), np.cumsum(np.concatenate(counts)))
        codes = sparse.csr_matrix(parts, shape=(len(rows), len(self.atoms)))
        codes.sort_indices()
        return codes

    def residuals(self, block: Block) -> Array:
        """The rows minus what their means and codes represent: (n, d)."""
        residuals: Array = np.empty_like(block.X, dtype=self.atoms.dtype)
        for at, _, _, residual in self._chunks(self.centred(block), with_residual=True):
            residuals[at] = residual
        return residuals

    def error_sums(self, block: Block, scale: float) -> Array:
        """Sums of u, u e, u^2, u^2 e and u^2 e^2 for weights u and squared errors e of an entry, in units of scale."""
        u = block.weights()
        e = self.coding(self.centred(block), self.atoms)[2] / block.n_features / scale
        return np.array([np.add.reduce(v) for v in (u, u * e, u * u, u * u * e, u * u * e * e)])

    def _chunks(self, rows: Array, *, with_residual: bool = False) -> Iterator[tuple[slice, Array, Array, Any]]:
        for start in range(0, len(rows), _CHUNK_ROWS):
            at = slice(start, min(len(rows), start + _CHUNK_ROWS))
            chosen, values, _, residual = self.coding(rows[at], self.atoms, with_residual=with_residual)
            yield at, chosen, values, residual
