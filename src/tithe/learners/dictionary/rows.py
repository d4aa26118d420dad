"""Rows of a dictionary: checks, means that are subtracted, first atoms, and codes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

from tithe.core.data import Array, Block
from tithe.core.passes import DataPass
from tithe.kernels.parts import column_means, column_sums
from tithe.kernels.sampling import sample_rows
from tithe.solvers.ksvd import Coding, cosine_atoms, data_atoms, unit

_CHUNK_ROWS = 1 << 15  # rows coded at a time, which limits the memory for their codes
MEANS = ("none", "global", "row")
_MAX_VALUE = 1e150  # squares of larger numbers overflow in double precision
_MAX_SINGLE_NORM = 1e35  # of a row in single precision: entries of its code may be some hundred times as large


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


@dataclass(frozen=True, eq=False)
class Centring:
    """Subtracts ``offset`` (d,) from each row, or the mean of the row if there is no offset."""

    mean: str
    offset: Array | None = None

    def __call__(self, block: Block) -> Block:
        if self.mean == "none":
            return block
        mean = block.X.mean(axis=1, keepdims=True) if self.offset is None else self.offset.astype(block.X.dtype)
        return replace(block, X=block.X - mean, mean=None)


def offset(data: DataPass, mean: str) -> Array | None:
    """The mean row (d,) if ``mean`` is "global", else None. Takes one pass over a source."""
    if mean != "global":
        return None
    rows = data.rows
    if isinstance(rows, Block):
        return column_means(rows)
    if not rows.replayable:
        raise ValueError(
            "center='global' needs the mean of all rows before the first is drawn, and these can be read only once. "
            "Use center='row' or 'none'."
        )
    sums: Array = data.total(lambda leaf: np.append(column_sums(leaf.X, leaf.sample_weight), leaf.total_weight))
    mean_row: Array = sums[:-1] / sums[-1]
    return mean_row


def sampled(rows: Any, size: int, rng: np.random.Generator) -> Block:
    """About ``size`` rows of a block or a source, drawn uniformly."""
    sample: Block = sample_rows(rows, size, rng) if isinstance(rows, Block) else rows.sample(size, rng=rng)
    return sample


def check_dense(X: Any) -> Any:
    """Refuse a sparse matrix."""
    if sparse.issparse(X):
        raise TypeError("Sparse data was passed, and signals are dense: convert it with X.toarray() if it fits.")
    return X


def check_magnitude(block: Block, dtype: Any = None) -> Block:
    """Refuse values too large to be coded in the precision ``dtype``, by default that of the block."""
    largest = max(float(block.X.max()), -float(block.X.min()))
    if largest > _MAX_VALUE / block.X.size**0.5:
        raise ValueError("The squares of X are too large to be added up in double precision. Rescale X.")
    if (dtype or block.X.dtype) == np.float32 and largest > _MAX_SINGLE_NORM / block.n_features**0.5:
        raise ValueError("X is too large to be coded in single precision. Rescale X, or give it as float64.")
    return block


def initial_atoms(initial: Any, X: Array, n_atoms: int, *, positive: bool, rng: np.random.Generator) -> Array:
    """The atoms (k, d) that K-SVD starts from: drawn from the rows X, of the cosine transform, or those given."""
    n_features = X.shape[1]
    if isinstance(initial, str):
        if initial not in ("data", "dct"):
            raise ValueError(f"initial must be 'data', 'dct' or an array of atoms, got {initial!r}.")
        if initial == "data":
            return data_atoms(X, n_atoms, rng, positive=positive)
        atoms = cosine_atoms(n_atoms, n_features)
    else:
        given = check_array(initial, dtype=np.float64, input_name="initial")
        if given.shape != (n_atoms, n_features):
            raise ValueError(f"initial has shape {given.shape}, expected ({n_atoms}, {n_features}): one atom per row.")
        atoms = unit(given)
        if len(atoms) < n_atoms:
            raise ValueError("initial has rows of zeros, which cannot be atoms.")
    return np.abs(atoms) if positive else atoms
