"""Machines of two classes that differ in their labels only, for rows with few features or landmarks of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from tithe.core.data import Array
from tithe.core.linear_algebra import jittered_cholesky
from tithe.odm.solvers.relaxation import KernelMachine, LabelMachine, costs_without_row, margin_loss

_MAX_STEPS = 50
_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4)  # shares of the mean diagonal
_MIN_LENGTH = 1e-3  # of a Newton step


@dataclass(frozen=True, kw_only=True)
class FeatureMachine(KernelMachine):
    """f(x) = w . phi(x), with the weights w of the features."""

    weights: Array


@dataclass(frozen=True, kw_only=True)
class FeatureProblem:
    """As `MarginProblem`, with features (n, r) whose products are the kernel. A machine takes a time of order n r^2."""

    features: Array
    cost: Array
    mu: float
    theta: float
    tol: float = 1e-6

    def solve(self, y: Array, start: LabelMachine | None = None) -> FeatureMachine:
        """The machine with labels y, by Newton's method on w; |gradient|^2 / 2 bounds what is left to gain."""
        weights = start.weights if isinstance(start, FeatureMachine) else np.zeros(self.features.shape[1])
        machine = self._at(y, weights)
        for _ in range(_MAX_STEPS):
            gradient = machine.weights - self.features.T @ (y * machine.gamma)
            if 0.5 * float(gradient @ gradient) <= self.tol * machine.value:
                break
            step = -cho_solve(self._curvature(machine), gradient, check_finite=False)
            length = 1.0
            while length > _MIN_LENGTH:
                trial = self._at(y, machine.weights + length * step)
                if trial.value <= machine.value + 1e-4 * length * float(gradient @ step):
                    break
                length *= 0.5
            else:
                break
            machine = trial
        return machine

    def _at(self, y: Array, weights: Array) -> FeatureMachine:
        score = self.features @ weights
        margin = y * score
        short, over = np.maximum(1.0 - self.theta - margin, 0.0), np.maximum(margin - 1.0 - self.theta, 0.0)
        value = 0.5 * float(weights @ weights) + float(self.loss(margin).sum())
        gamma = self.cost * (short - self.mu * over)
        return FeatureMachine(sign=y, weights=weights, score=score, gamma=gamma, value=value)

    def _curvature(self, machine: FeatureMachine) -> tuple[Array, bool]:
        rows = np.flatnonzero(machine.gamma)
        curved = np.where(machine.gamma[rows] > 0.0, 1.0, self.mu) * self.cost[rows]
        inside = self.features[rows] * np.sqrt(curved)[:, None]
        H = inside.T @ inside  # NumPy computes half of a matrix times its own transpose
        H[np.diag_indices_from(H)] += 1.0
        factor: tuple[Array, bool] = cho_factor(H, lower=True, check_finite=False)
        return factor

    def loss(self, margin: Array) -> Array:
        """C l(u) / 2 of each row."""
        return margin_loss(margin, self.cost, self.mu, self.theta)

    def costs_without(self, machine: FeatureMachine) -> Array:
        """See `MarginProblem.costs_without`: a = phi H^-1 phi is a / (1 - C a) without the row."""
        low, _ = self._curvature(machine)
        solved = solve_triangular(low, self.features.T, lower=True, check_finite=False)
        own = np.einsum("ij,ij->j", solved, solved)
        curved = np.where(machine.gamma > 0.0, 1.0, self.mu) * self.cost * (machine.gamma != 0.0)
        own = own / np.maximum(1.0 - curved * own, 1e-12)
        rest = machine.margins() - machine.gamma * own
        return costs_without_row(machine.sign, rest, own, self.cost, self.mu, self.theta)


def landmark_features(columns: Array, landmarks: Array) -> Array:
    """Features (n, r) whose products are the kernel projected on some rows. ``columns`` (n, r) are the kernel's."""
    square = columns[landmarks]
    scale = float(np.trace(square)) / len(square)
    low = jittered_cholesky(square, (share * scale for share in _JITTERS))
    features: Array = solve_triangular(low, columns.T, lower=True, check_finite=False).T
    return np.ascontiguousarray(features)
