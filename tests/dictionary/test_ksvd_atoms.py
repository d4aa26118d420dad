"""Atoms of K-SVD that are started, replaced, exchanged and moved."""

from __future__ import annotations

import numpy as np
import pytest
from planted_rows import planted

from tithe.dictionary import KSVD
from tithe.dictionary.atom_kernels import users_of
from tithe.dictionary.solver import (
    Coding,
    cosine_atoms,
    data_atoms,
    exchange,
    learn_dictionary,
    moved_on,
    replace_idle,
)


def test_starts() -> None:
    X, atoms = planted(2000, noise=0.0)
    model = KSVD(50, n_nonzero_coefs=3, max_iter=1, initial=atoms, random_state=0).fit(X)
    assert model.objective_curve_[0] <= 1.5e-3
    for k, d in ((256, 64), (100, 64), (30, 20), (10, 20), (7, 2), (3, 1)):
        waves = cosine_atoms(k, d)
        assert waves.shape == (k, d)
        np.testing.assert_allclose(np.linalg.norm(waves, axis=1), 1.0, rtol=1e-12)
        np.testing.assert_allclose(waves[0], d**-0.5, rtol=1e-12)
    KSVD(30, n_nonzero_coefs=2, initial="dct", max_iter=2).fit(X)


def test_rows_chosen_as_a_start_are_unlike() -> None:
    X = np.concatenate([np.ones((500, 6)) * np.arange(1, 501)[:, None], np.eye(6), np.zeros((3, 6))])
    atoms = data_atoms(X, 7, np.random.default_rng(0))
    gram = np.abs(atoms @ atoms.T) - np.eye(7)
    assert gram.max() <= 0.99 + 1e-9
    assert data_atoms(np.zeros((4, 6)), 5, np.random.default_rng(0)).shape == (5, 6)


def test_idle_and_twin_atoms_are_replaced() -> None:
    rng = np.random.default_rng(0)
    atoms = np.eye(5)[:4].copy()
    atoms[2] = (atoms[0] + 1e-3 * atoms[1]) / np.linalg.norm(atoms[0] + 1e-3 * atoms[1])
    X = rng.normal(size=(50, 5))
    X[7], X[8] = [0, 0, 0, 0, 9.0], [0, 0, 0, 0, 8.0]  # the worst two are alike
    residual = X * [0, 0, 1, 1, 1]
    before = atoms.copy()
    assert replace_idle(atoms, np.array([50.0, 40.0, 10.0, 0.0]), X, residual) == 2
    np.testing.assert_array_equal(atoms[:2], before[:2])  # of twins the one that is used more stays
    np.testing.assert_allclose(atoms[2], [0, 0, 0, 0, 1.0], atol=1e-12)
    assert abs(atoms[3] @ atoms[2]) <= 0.99
    assert replace_idle(atoms, np.ones(4), X, residual) == 0


def test_non_negative_atoms_are_never_replaced_by_negative_rows() -> None:
    X = np.random.default_rng(0).normal(size=(200, 8))
    for rows in (X, -np.abs(X)):
        model = KSVD(10, n_nonzero_coefs=2, positive=True, initial="dct", max_iter=8, random_state=0).fit(rows)
        assert model.components_.shape == (10, 8) and (model.components_ >= 0).all()


def blended(rng: np.random.Generator, n: int = 600):
    """Rows of one of five atoms, and a dictionary in which one atom stands for the first two and two for the third."""
    true = np.eye(6)[:5].copy()
    true[1] = [0.8, 0.6, 0, 0, 0, 0]
    X = rng.normal(size=(n, 1)) * true[rng.integers(0, 5, n)] + 1e-3 * rng.normal(size=(n, 6))
    atoms = np.stack([true[0] + true[1], true[2] + 0.1 * true[3], true[2] - 0.1 * true[3], true[3], true[4]])
    return X, true, atoms / np.linalg.norm(atoms, axis=1, keepdims=True)


@pytest.mark.parametrize("positive", [False, True])
def test_an_atom_that_does_little_is_given_up_for_a_split(positive: bool) -> None:
    X, true, atoms = blended(np.random.default_rng(0))
    X = np.abs(X) if positive else X
    coding = Coding(n_nonzero=1, positive=positive)
    chosen, values, error, residual = coding(X, atoms, with_residual=True)
    starts, users, x = users_of(chosen, values, 5)
    weight = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    mine = atoms.copy()
    assert exchange(mine, starts, users[: starts[-1]], x[: starts[-1]], weight, residual, positive=positive)
    assert (mine != atoms).any(axis=1).sum() == 2 and (mine == atoms)[3:].all()
    assert np.abs(true[:2] @ mine.T).max(axis=1).min() > 0.99
    assert weight @ coding(X, mine)[2] < 0.2 * (weight @ error)
    assert not positive or (mine >= 0.0).all()
    scaled = atoms.copy()
    exchange(scaled, starts, users[: starts[-1]], 1e30 * x[: starts[-1]], weight, 1e30 * residual, positive=positive)
    np.testing.assert_allclose(scaled, mine, rtol=1e-10, atol=1e-12)


def test_nothing_is_exchanged_where_it_would_cost_more() -> None:
    X, true, _ = blended(np.random.default_rng(0))
    chosen, values, _, residual = Coding(n_nonzero=1)(X, true, with_residual=True)
    starts, users, x = users_of(chosen, values, 5)
    mine = true.copy()
    for rest in (residual, np.zeros_like(residual)):
        assert not exchange(mine, starts, users[: starts[-1]], x[: starts[-1]], None, rest, positive=False)
    np.testing.assert_array_equal(mine, true)


@pytest.mark.parametrize("positive", [False, True])
def test_atoms_move_on_the_way_they_went(positive: bool) -> None:
    rng = np.random.default_rng(0)
    before, atoms = (np.abs(rng.normal(size=(6, 5))) for _ in range(2))
    before, atoms = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (before, atoms))
    atoms[5] = before[5]
    after = atoms.copy()
    moved_on(after, before, positive=positive)
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(after[5], before[5], rtol=1e-14)
    assert ((after * before).sum(axis=1) <= (atoms * before).sum(axis=1) + 1e-14).all()
    assert not positive or (after >= 0.0).all()


def test_duplicated_rows_as_candidates_count_once() -> None:
    X, _ = planted(60, d=6, k=5, most=1)
    weight = np.full(60, 3.0)
    coding, rng = Coding(n_nonzero=1), np.random.default_rng
    start = data_atoms(X, 20, rng(0))
    a = learn_dictionary(X, weight, start, coding, max_iter=6, rng=rng(1))
    b = learn_dictionary(np.repeat(X, 3, axis=0), None, start, coding, max_iter=6, rng=rng(1))
    np.testing.assert_allclose(a[0], b[0], atol=1e-12)
