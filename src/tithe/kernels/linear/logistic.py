"""The logistic and the softmax loss over all rows in one sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Array
from tithe.core.parallel import over_parts, single_blas_thread
from tithe.kernels.linear.logistic_tiles import MAX_CLASSES_APART, WIDE_COLUMNS, sweep_csr, sweep_dense, sweep_wide
from tithe.kernels.parts import add_parts, part_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class LogisticSums:
    """The sums of one sweep; K classes, k = 1 margin for two classes and K for more.

    Parameters
    ----------
    count, loss, entropy : (K,)
        By the class of the row: weight, loss, and the entropy of the predicted probabilities.
    gradient : (K, k, d + 1)
        By the class of the row: residual (chance given minus class indicator) times (x, 1). With more
        than 32 classes (1, k, d + 1), all together: by class they would take K^2 (d + 1) numbers.
    diagonal : (k, d + 1) or None
        Diagonal of the curvature: chance (1 - chance) times (x - centre, 1)^2.
    """

    count: Array
    loss: Array
    entropy: Array
    gradient: Array
    diagonal: Array | None

    def __add__(self, other: LogisticSums) -> LogisticSums:
        """The sums over the rows of both."""
        return LogisticSums(
            count=self.count + other.count,
            loss=self.loss + other.loss,
            entropy=self.entropy + other.entropy,
            gradient=self.gradient + other.gradient,
            diagonal=None if self.diagonal is None or other.diagonal is None else self.diagonal + other.diagonal,
        )


def logistic_sweep(
    X: Any,
    y: Array,
    theta: Array,
    *,
    n_classes: int,
    weight: Array | None = None,
    cost: bool = True,
    gradient: bool = True,
    diagonal: bool = False,
    centre: Array | None = None,
) -> tuple[Array, LogisticSums]:
    """Losses (n,) of the rows at ``theta`` (k, d + 1), intercepts last, and their sums; y (n,) int32 class numbers.

    Results that are not requested are empty or zero. ``centre`` (d,) is for dense rows; None is the origin.
    """
    n, d = X.shape
    size = theta.shape[0]
    theta = np.ascontiguousarray(theta, np.float64)
    groups = n_classes if n_classes <= MAX_CLASSES_APART else 1
    rows = part_rows(n, 8 * ((groups + 1) * size * (d + 1) + 3 * n_classes) if gradient else 8)
    n_parts = -(-n // rows)
    counts = np.zeros((n_parts, n_classes, 3))
    gradients = np.zeros((n_parts if gradient else 0, groups, size, d + 1))
    diagonals = np.zeros((n_parts if diagonal else 0, size, d + 1))
    costs = np.empty(n if cost else 0)
    u = np.empty(0) if weight is None else weight
    sums = (costs, counts, gradients, diagonals)
    many = None if size == 1 else True
    wide = size > 1 and d >= WIDE_COLUMNS
    if sparse.issparse(X):
        rows_of = (X.data, X.indices, X.indptr)

        def run(a: int, b: int) -> None:
            sweep_csr(*rows_of, y, u, theta, *sums, a, b, rows, many)

    else:
        origin = np.zeros(d) if centre is None else centre

        def run(a: int, b: int) -> None:
            if wide:
                sweep_wide(X, y, u, theta, origin, *sums, a, b, rows)
            else:
                sweep_dense(X, y, u, theta, origin, *sums, a, b, rows, many)

    entries = X.nnz if sparse.issparse(X) else n * d
    with single_blas_thread():
        over_parts(run, n_parts, serial=entries * size < 200_000)
    total = add_parts(counts)
    return costs, LogisticSums(
        count=total[:, 0],
        loss=total[:, 1],
        entropy=total[:, 2],
        gradient=add_parts(gradients) if gradient else np.zeros((groups, size, d + 1)),
        diagonal=add_parts(diagonals) if diagonal else None,
    )
