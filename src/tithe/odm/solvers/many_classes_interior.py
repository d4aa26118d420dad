"""Many classes and a kernel of low rank: an interior-point method on all multipliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from tithe.core.data import Array
from tithe.odm.solvers.kernel_matrix import Gram
from tithe.odm.solvers.many_classes_dual import KernelMulticlassDual, Multipliers

_MAX_UNKNOWNS = 1000  # rank times classes, up to which systems are solved
_MAX_NUMBERS = 2**24  # rows times squared classes: of this size are three arrays
_MIN_PIVOT = 1e-12  # share of the largest k(x, x) below which nothing is left of the kernel
_MAX_STEPS = 80
_MAX_IDLE_STEPS = 8  # steps in a row after which the gap is no smaller: the search ends
_STEP_SHARE = 0.995  # of the way to the boundary
_CENTRING_POWER = 3  # of the predicted decrease (Mehrotra)


def low_rank_factor(gram: Gram, n_classes: int) -> Array | None:
    """B (n, r) with K = B B^T to rounding error, by a pivoted Cholesky factorisation; None if that is too large.

    A kernel matrix in single precision has no low rank, as its rounding errors have a full one.
    """
    max_rank = min(len(gram) // 2, _MAX_UNKNOWNS // n_classes)
    if gram.function.dtype != np.float64 or len(gram) * n_classes**2 > _MAX_NUMBERS:
        return None
    residual = gram.diagonal()
    smallest = _MIN_PIVOT * float(residual.max())
    basis = np.empty((len(gram), max_rank))
    for rank in range(max_rank):
        pivot = int(residual.argmax())
        if residual[pivot] <= smallest:
            return np.ascontiguousarray(basis[:, :rank])
        column = gram.columns(np.array([pivot]))[:, 0] - basis[:, :rank] @ basis[pivot, :rank]
        basis[:, rank] = column / residual[pivot] ** 0.5
        residual -= basis[:, rank] ** 2
    return basis if residual.max() <= smallest else None


def solve_by_interior_points(dual: KernelMulticlassDual, basis: Array, tol: float, accepted_tol: float) -> bool:
    """Solve the convex problem of this round to a relative gap of ``tol``, or as far as rounding allows.

    Returns False if the gap is not below ``accepted_tol``; then nothing has changed. The dual is
    min x H x / 2 - c x over x >= 0 (`Multipliers`); H = G^T G + blocks of single rows, where G has rank times classes
    rows (``basis`` B gives the kernel as B B^T). Steps towards H x - c = z, x z = a small number, take one system of
    that many unknowns each, and costs hardly enter their number. Coordinate descent and pivots take far longer here:
    many multipliers belong to the same scores.
    """
    system = _System(Multipliers(dual), basis)
    before, best = (dual.value, dual.beta), (np.inf, *_copied(dual))
    x, z = system.start()
    idle = 0
    for _ in range(_MAX_STEPS):
        try:
            x, z = system.stepped(x, z)
        except LinAlgError:
            break
        dual.value, dual.beta = system.at.values(*system.split(x)), x[:, -1].copy()
        dual.renew()
        gap, primal, _ = dual.measure()
        if gap / primal < best[0]:
            best, idle = (gap / primal, *_copied(dual)), 0
        else:
            idle += 1
        if best[0] <= tol or idle > _MAX_IDLE_STEPS:
            break
    solved = best[0] <= accepted_tol
    dual.value, dual.beta = best[1:] if solved else before
    dual.renew()
    return solved


def _copied(dual: KernelMulticlassDual) -> tuple[Array, Array]:
    return dual.value.copy(), dual.beta.copy()


@dataclass(eq=False)
class _System:
    """The multipliers of row i are x_i = (a_i, beta_i): x is (n, K + 1). Some are always zero (``may`` is False)."""

    at: Multipliers
    basis: Array

    def __post_init__(self) -> None:
        dual, rows = self.at.dual, self.at.rows
        n, k = self.at.a.shape
        self.may = np.ones((n, k + 1), bool)
        self.may[rows, dual.label] = False
        self.may[:, -1] = np.isfinite(dual.stiff)
        low, goal = self.at.linear()
        self.linear = np.where(self.may, np.column_stack([np.full((n, k), low), goal]), 0.0)
        # what each multiplier adds to the coefficients of its row: e_y - e_l for a_l, e_q - e_y for beta
        self.directions = np.zeros((n, k, k + 1))
        self.directions[:, np.arange(k), np.arange(k)] = -1.0
        self.directions[rows, dual.label, :k] += 1.0
        self.directions[rows, dual.label, k] = -1.0
        if self.at.with_rival:
            self.directions[rows, dual.rival, k] += 1.0

    def split(self, x: Array) -> tuple[Array, Array]:
        return x[:, :-1], x[:, -1]

    def curved(self, x: Array) -> Array:
        """H x."""
        a, beta = self.split(x)
        values = self.at.values(a, beta)
        curved: Array = np.column_stack(self.at.curve(a, beta, self.basis @ (self.basis.T @ values)))
        return np.where(self.may, curved, 0.0)

    def start(self) -> tuple[Array, Array]:
        """Equal multipliers of the lower side at the best length, small ones of the upper side, and their slopes."""
        x = self.may.astype(np.float64)
        x[:, -1] *= 0.1
        x *= max(float(np.vdot(self.linear, x)), 1e-3 * float(x.sum())) / float(np.vdot(x, self.curved(x)))
        slope = self.curved(x) - self.linear
        z = np.where(self.may, np.maximum(slope, 0.1 * np.abs(slope).max()), 0.0)
        return x, z

    def stepped(self, x: Array, z: Array) -> tuple[Array, Array]:
        """A predictor step, and from what it would reach the step that is taken (Mehrotra)."""
        count, complementarity = float(self.may.sum()), float(np.vdot(x, z))
        lack = self.linear + z - self.curved(x)
        self._factorise(x, z)
        dx, dz = self._direction(x, z, lack, -x * z)
        length = _length(x, dx, z, dz, 1.0)
        predicted = float(np.vdot(x + length * dx, z + length * dz))
        target = (max(predicted, 0.0) / complementarity) ** _CENTRING_POWER * complementarity / count
        dx, dz = self._direction(x, z, lack, np.where(self.may, target - x * z - dx * dz, 0.0))
        length = _length(x, dx, z, dz, _STEP_SHARE)
        return x + length * dx, z + length * dz

    def _factorise(self, x: Array, z: Array) -> None:
        """Inverses of the blocks of rows, soft 1 1^T + diag(z / x), and the system of the scores."""
        dual, basis, n_classes = self.at.dual, self.basis, self.at.a.shape[1]
        self.inverse = np.divide(x, z, out=np.zeros_like(x), where=self.may)
        self.inverse[:, -1] /= 1.0 + self.at.stiff * self.inverse[:, -1]
        lower = self.inverse[:, :-1]
        self.correction = dual.soft / (1.0 + dual.soft * lower.sum(axis=1))
        weighted = self.directions * self.inverse[:, None, :]
        blocks = weighted @ self.directions.transpose(0, 2, 1)
        pulled = weighted[:, :, :-1].sum(axis=2)
        blocks -= self.correction[:, None, None] * pulled[:, :, None] * pulled[:, None, :]
        rank = basis.shape[1]
        matrix = np.empty((n_classes, rank, n_classes, rank))
        for first in range(n_classes):
            for second in range(first + 1):
                matrix[first, :, second] = block = basis.T @ (blocks[:, first, second, None] * basis)
                matrix[second, :, first] = block.T
        matrix = matrix.reshape(n_classes * rank, n_classes * rank)
        matrix[np.diag_indices_from(matrix)] += 1.0
        self.factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=True)

    def _direction(self, x: Array, z: Array, lack: Array, product: Array) -> tuple[Array, Array]:
        """dx, dz with H dx - dz = lack and z dx + x dz = product."""
        right = lack + np.divide(product, x, out=np.zeros_like(x), where=self.may)
        step = self._solve(right)
        ratio = np.divide(z, x, out=np.zeros_like(x), where=self.may)
        step += self._solve(right - self.curved(step) - ratio * step)  # once more, with what rounding has left
        return step, np.divide(product - z * step, x, out=np.zeros_like(x), where=self.may)

    def _solve(self, right: Array) -> Array:
        """(H + diag(z / x))^-1 right, by the identity of Woodbury."""
        inner = self._block_solve(right)
        values = np.einsum("ikm,im->ik", self.directions, inner)
        scores = cho_solve(self.factor, (self.basis.T @ values).T.ravel(), check_finite=False)
        back = self.basis @ scores.reshape(values.shape[1], -1).T
        step: Array = inner - self._block_solve(np.einsum("ikm,ik->im", self.directions, back))
        return step

    def _block_solve(self, right: Array) -> Array:
        solved: Array = self.inverse * right
        lower = self.inverse[:, :-1]
        solved[:, :-1] -= lower * (self.correction * solved[:, :-1].sum(axis=1))[:, None]
        return solved


def _length(x: Array, dx: Array, z: Array, dz: Array, share: float) -> float:
    """The longest step, at most 1, that goes no more than this share of the way to the boundary."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = [np.min(-v[dv < 0.0] / dv[dv < 0.0], initial=np.inf) for v, dv in ((x, dx), (z, dz))]
    return float(min(1.0, share * min(ways)))
