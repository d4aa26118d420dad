"""The rows that an incremental machine holds: ids, classes, kernels of new ones, and checks of a stored machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import column_or_1d

from tithe.core.data import Array, Block
from tithe.core.labels import label_numbers
from tithe.core.state_checks import (
    LARGEST,
    Anything,
    Check,
    Each,
    Flag,
    Floats,
    Instance,
    Integer,
    Integers,
    Labels,
    Number,
    Optional,
    check_fields,
    expect,
)
from tithe.fit.fitted import COLUMNS, OPTIONAL_COLUMNS, check_schema
from tithe.odm.solvers.exact_machine import ExactMachine
from tithe.odm.solvers.kernel_functions import KERNELS, KernelFunction
from tithe.odm.unlearning import Unlearning

INCREMENTAL_KERNELS = tuple(name for name in KERNELS if name != "precomputed")


def _ids(row_ids: Any) -> Array:
    """Row ids as int64 (n,): whole numbers from 0 on, each of them once."""
    ids = np.asarray(column_or_1d(row_ids) if np.size(row_ids) else np.zeros(0, np.int64))
    if ids.dtype.kind not in "iu":
        raise ValueError(f"Row ids must be integers, got {ids.dtype}.")
    if len(ids) and (ids.min() < 0 or ids.max() >= LARGEST):
        raise ValueError(f"Row ids must be between 0 and {LARGEST - 1}.")
    ids = ids.astype(np.int64)
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        raise ValueError(f"Row id {values[counts > 1][0]} is given more than once.")
    return ids


def new_row_ids(row_ids: Any, n_rows: int, known: Array, next_id: int) -> Array:
    """Ids for new rows: those given, or counted up from ``next_id``."""
    if row_ids is None:
        return np.arange(next_id, next_id + n_rows)
    ids = _ids(row_ids)
    if len(ids) != n_rows:
        raise ValueError(f"There are {len(ids)} row_ids for {n_rows} rows.")
    taken = np.isin(ids, known)
    if taken.any():
        raise ValueError(f"Row id {ids[taken][0]} is already taken: forget that row first, or give another id.")
    return ids


def positions_of(row_ids: Any, held: Array) -> Array:
    """Positions of the rows with these ids. An id that is not held is refused."""
    ids = _ids(row_ids)
    unknown = ~np.isin(ids, held)
    if unknown.any():
        raise ValueError(f"There is no row with id {ids[unknown][0]}: it was never added, or forgotten already.")
    order = np.argsort(held, kind="stable")
    return order[np.searchsorted(held[order], ids)] if len(ids) else np.zeros(0, np.int64)


def joined_rows(held: Block, rows: Block) -> Block:
    """The rows held, followed by new ones, in double precision; sparse if those held are."""
    if sparse.issparse(held.X):
        X = sparse.vstack([held.X, sparse.csr_matrix(rows.X)], format="csr").astype(np.float64)
    else:
        dense = rows.X.toarray() if sparse.issparse(rows.X) else rows.X
        X = np.concatenate([held.X, dense]).astype(np.float64, copy=False)
    assert held.y is not None and rows.y is not None
    return Block(
        X=X,
        y=np.concatenate([held.y, rows.y]),
        sample_weight=np.concatenate([held.weights(), rows.weights()]),
        indices=np.concatenate([held.row_ids(), rows.row_ids()]),
    )


def classes_so_far(y: Array, classes: Any, known: Array | None, *, flipped: bool) -> tuple[Array, bool]:
    """The classes after rows with labels y, and whether the first of them is positive for the machine.

    ``classes`` are those announced, ``known`` those before. The class that was seen alone at first is positive, and
    stays so if the second class comes after it in order. More than two classes are refused.
    """
    passed = y if classes is None else np.asarray(classes)
    before = passed[:0] if known is None else known
    if len(before) and (before.dtype.kind in "OUS") != (y.dtype.kind in "OUS"):
        raise ValueError(f"y holds {y.tolist()[0]!r}, a label of another kind than {before.tolist()[0]!r}.")
    together = np.unique(np.concatenate([before, passed]))
    if classes is not None:
        missing = [label for label in before.tolist() if label not in passed.tolist()]
        missing += y[label_numbers(y, together) < 0].tolist()
        if missing:
            raise ValueError(f"classes={classes!r} leaves out {missing[0]!r}.")
    if len(together) > 2:
        raise ValueError(
            f"Only binary classification is supported: the classes are {together.tolist()[:5]}. Use ODMClassifier for "
            "more than two classes."
        )
    if len(before) == 1 and len(together) == 2:
        flipped = bool(together[0] == before[0])
    return together, flipped


def centre_of(held: Block) -> Array | None:
    """The mean of the rows held; kernels are computed from rows around it. It depends on no row that was forgotten."""
    if sparse.issparse(held.X):
        return None
    return np.asarray(held.X.mean(axis=0)) if len(held) else np.zeros(held.n_features)


def new_kernels(function: KernelFunction, held: Block, n_old: int, constant: float) -> tuple[Array, Array]:
    """The kernel of the first rows with the new ones after them (n, k), and of the new ones (k, k), plus a constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        rows = function.prepare(held.X)
        old, new = rows.take(slice(0, n_old)), rows.take(slice(n_old, len(held)))
        square = function.rectangle(new, new)
        diagonal = function.diagonal(new)
        columns = function.rectangle(old, new) if n_old else np.zeros((0, len(new)))
    if diagonal.min() < 0.0:
        raise ValueError("The kernel of a row with itself is negative. Use another kernel.")
    if not (np.isfinite(square).all() and np.isfinite(columns).all()):
        raise ValueError("The kernel is not a finite number for all rows. Rescale the columns.")
    np.fill_diagonal(square, diagonal)
    return columns + constant, square + constant


_SOLUTION: dict[str, Check] = {
    "support_": Integers("support", least=0),
    "support_vectors_": Anything(),
    "dual_coef_": Floats(1, "support"),
    "intercept_": Floats(1),
    "cost_": Number(least=0.0),
    "_gamma": Number(least=0.0),
    "_centre": Optional(Floats("d")),
    "_single": Flag(),
    "_flipped": Flag(),
}
_ROWS: dict[str, Check] = {
    "_machine": Instance(ExactMachine),
    "_held": Instance(Block),
    "_fixed": Instance(dict),
    "_next_id": Integer(),
    "_forgotten": Each(Integer()),
}
_WITHOUT_ROWS: dict[str, Check] = {"_gap": Number(least=0.0), "_unlearning": Optional(Instance(Unlearning))}


def check_incremental(learner: Any) -> None:
    """Check an incremental machine that was read from a file."""
    values = learner.__dict__
    if "n_features_in_" not in values:
        expect("_machine" not in values and "classes_" not in values, "a solution has no columns")
        return
    sizes = check_fields(learner, {"classes_": Labels("classes", distinct=True)})
    expect(sizes["classes"] in (1, 2), "there are more than two classes")
    check_fields(learner, COLUMNS, optional=OPTIONAL_COLUMNS, sizes=sizes)
    check_schema(values, sizes["d"])
    check_fields(learner, _SOLUTION, sizes=sizes)
    expect(callable(learner.kernel) or learner.kernel in INCREMENTAL_KERNELS, "there is no such kernel")
    _check_matrix(learner.support_vectors_, sizes["support"], sizes["d"], learner._centre)
    check_fields(learner, _ROWS if "_machine" in values else _WITHOUT_ROWS, sizes=sizes)
    if "_machine" in values:
        expect("_gap" not in values and "_unlearning" not in values, "a machine comes with a certificate")
        held, machine = learner._held, learner._machine
        _check_matrix(held.X, len(machine), sizes["d"], learner._centre)
        expect(held.y is not None and held.indices is not None, "rows have no labels or no ids")
        expect(np.array_equal(held.y, machine.rows.sign), "rows have other labels than the machine")
        ids = held.row_ids()
        expect(len(np.unique(ids)) == len(ids) and ids.max(initial=-1) < learner._next_id, "ids are not unique")
        expect(machine.rows.mu == learner.mu and machine.rows.theta == learner.theta, "the machine has another band")


def _check_matrix(X: Any, n_rows: int, d: int, centre: Array | None) -> None:
    if sparse.issparse(X):
        expect(X.shape == (n_rows, d) and X.dtype == np.float64, "rows have other columns")
    else:
        expect(centre is not None, "a mean is missing")
        Floats(n_rows, d).check("rows", X, {})
