"""Checks of the rows and the first atoms that a dictionary is learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array

from tithe.core.data import Array, Block
from tithe.solvers.ksvd import cosine_atoms, data_atoms, unit

_MAX_VALUE = 1e150  # squares of larger numbers overflow in double precision
_MAX_SINGLE_NORM = 1e35  # of a row in single precision: entries of its code may be some hundred times as large


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
