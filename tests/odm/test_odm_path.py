"""Rows join and leave a machine: it equals the one trained from nothing, after any sequence of changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from path_data import SETTINGS, kernel_of, trained, two_classes

from tithe.odm.solvers import path
from tithe.odm.solvers.path import ExactMachine, gap_bound

N_ROWS = 40
X, SIGN, WEIGHT = two_classes(N_ROWS, duplicates=True)
KERNEL = kernel_of(X)
NO_ROWS = np.zeros(0, np.int64)
PLENTY = 1e9


class Held:
    """A machine and the rows of the test data that it holds."""

    def __init__(self, lam: float, mu: float, theta: float) -> None:
        self.mu, self.theta = mu, theta
        self.cost = lam * WEIGHT / (WEIGHT.sum() * (1.0 - theta) ** 2)
        self.machine, self.rows = ExactMachine(mu, theta), NO_ROWS

    def change(self, added=NO_ROWS, removed=NO_ROWS) -> Held:
        """Add rows of the test data and remove others."""
        added, positions = np.asarray(added, np.int64), np.flatnonzero(np.isin(self.rows, removed))
        columns, square = KERNEL[np.ix_(self.rows, added)], KERNEL[np.ix_(added, added)]
        change = self.machine.prepare(columns, square, SIGN[added], self.cost[added], positions, max_bytes=PLENTY)
        self.machine.apply(change)
        self.rows = np.concatenate([self.rows, added])[change.order]
        return self

    def scores(self) -> np.ndarray:
        return KERNEL[:, self.rows] @ self.machine.rows.coefficients()

    def check(self) -> None:
        """The machine is that of its rows, by its own conditions and by another solver."""
        rows, n = self.rows, len(self.rows)
        kernel = KERNEL[np.ix_(rows, rows)]
        coefficients = trained(kernel, SIGN[rows], self.cost[rows], self.mu, self.theta)
        np.testing.assert_allclose(self.scores(), KERNEL[:, rows] @ coefficients, rtol=0, atol=1e-8)
        gamma, margin = self.machine.rows.gamma, SIGN[rows] * self.scores()[rows]
        low, high = 1.0 - self.theta - margin, margin - 1.0 - self.theta
        wanted = self.cost[rows] * (np.maximum(low, 0.0) - self.mu * np.maximum(high, 0.0))
        np.testing.assert_allclose(gamma / self.cost[rows], wanted / self.cost[rows], rtol=0, atol=1e-8)
        for matrix in (self.machine.matrix, self.machine.kernel):
            assert not matrix[n:].any() and not matrix[:, n:].any()  # nothing is left of other rows
            assert not np.triu(matrix, 1).any()
        np.testing.assert_array_equal(self.machine.kernel[:n, :n], np.tril(kernel))


numbers = st.sets(st.integers(0, N_ROWS - 1), max_size=6)


@pytest.mark.parametrize("setting", SETTINGS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(steps=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8))
def test_any_sequence_of_mixed_batches_equals_training(setting, steps) -> None:
    held = Held(*setting)
    for wished, unwished in steps:
        added = [row for row in sorted(wished) if row not in held.rows]
        held.change(added, sorted(unwished))
    held.check()


@pytest.mark.parametrize("setting", SETTINGS)
def test_one_row_at_a_time_equals_training(setting) -> None:
    held, rng = Held(*setting), np.random.default_rng(1)
    for row in rng.permutation(N_ROWS):
        held.change([row])
    held.check()
    for row in rng.permutation(N_ROWS)[:-1]:
        held.change(removed=[row])
        if row % 8 == 0:
            held.check()
    held.check()
    assert len(held.change(removed=held.rows).rows) == 0
    held.change(np.arange(N_ROWS)).check()


@pytest.mark.parametrize("setting", SETTINGS)
def test_added_rows_that_leave_again_change_nothing(setting) -> None:
    held = Held(*setting).change(np.arange(25))
    before = held.scores()
    held.change(np.arange(25, 40)).change(removed=np.arange(25, 40))
    np.testing.assert_allclose(held.scores(), before, rtol=0, atol=1e-9)


def test_the_order_of_batches_does_not_matter() -> None:
    forth, back = (Held(100.0, 0.5, 0.2).change(np.arange(20)) for _ in range(2))
    forth.change([20, 21, 22]).change([30], [3, 4]).change(removed=[21])
    back.change([30, 22]).change(removed=[4]).change([20], [3])
    np.testing.assert_allclose(forth.scores(), back.scores(), rtol=0, atol=1e-10)


def test_rows_inside_the_band_leave_without_a_trace() -> None:
    held = Held(1e4, 0.0, 0.3).change(np.arange(N_ROWS // 2))
    inside = held.rows[held.machine.rows.side == 0]
    assert len(inside) >= 5
    before = dict(zip(held.rows, held.machine.rows.gamma, strict=True))
    held.change(removed=inside[:5])
    assert {row: before[row] for row in held.rows} == dict(zip(held.rows, held.machine.rows.gamma, strict=True))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_paths_and_direct_solutions_agree(share, monkeypatch) -> None:
    monkeypatch.setattr(path, "_MIN_PATH_LIMIT", 0)
    monkeypatch.setattr(path, "_MAX_PATH_SHARE", share)
    monkeypatch.setattr(path, "_PANEL_ROWS", 7)  # several of them
    Held(1e4, 0.5, 0.2).change(np.arange(20)).change(np.arange(20, 40), np.arange(10)).check()


def test_a_path_that_does_not_end_is_solved_directly(monkeypatch) -> None:
    monkeypatch.setattr(path, "_MIN_EVENT_LIMIT", 0)
    monkeypatch.setattr(path, "_EVENTS_PER_ROW", 0)
    Held(1e4, 0.5, 0.2).change(np.arange(20)).change(np.arange(20, 40), np.arange(10)).check()


def test_a_spoiled_tableau_is_computed_anew() -> None:
    held = Held(100.0, 0.5, 0.2).change(np.arange(30))
    held.machine.matrix *= 1.0 + 1e-3 * np.random.default_rng(0).normal()
    held.change([30], [1]).check()
    fresh = path.pivoted(KERNEL[np.ix_(held.rows, held.rows)], held.machine.rows)
    np.testing.assert_allclose(held.machine.matrix[:30, :30], np.tril(fresh), rtol=0, atol=1e-9)


def test_the_gap_is_bounded_with_rounding() -> None:
    rows = Held(1e4, 0.5, 0.2).change(np.arange(N_ROWS)).machine.rows
    gap, primal = rows.gap()
    assert gap <= gap_bound(rows, 2.0) <= 1e-12 * primal
