from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from scipy.optimize import nnls
from sklearn.linear_model import Lasso

from tithe.core.parallel import limit_threads
from tithe.dictionary.atom_kernels import main_direction, row_keys, subspace_errors, update_atoms, users_of
from tithe.dictionary.pursuit_kernels import lasso_codes, pursue


def unit_rows(rng: np.random.Generator, k: int, d: int) -> np.ndarray:
    rows = rng.normal(size=(k, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def dense(chosen: np.ndarray, values: np.ndarray, k: int) -> np.ndarray:
    codes = np.zeros((len(chosen), k))
    i, t = np.nonzero(chosen >= 0)
    codes[i, chosen[i, t]] = values[i, t]
    return codes


def naive(y: np.ndarray, atoms: np.ndarray, most: int, target: float = 0.0) -> np.ndarray:
    """The textbook: pick, solve least squares from scratch, repeat."""
    picked: list[int] = []
    rest, code = y.copy(), np.zeros(len(atoms))
    while len(picked) < most and rest @ rest > target:
        pull = np.abs(atoms @ rest)
        pull[picked] = -1.0
        picked.append(int(pull.argmax()))
        solution = np.linalg.lstsq(atoms[picked].T, y, rcond=None)[0]
        rest = y - solution @ atoms[picked]
    if picked:
        code[picked] = solution
    return code


@pytest.mark.parametrize("k", [5, 16, 50])
@pytest.mark.parametrize("most", [1, 3, 5])
def test_equals_the_textbook(rng: np.random.Generator, k: int, most: int) -> None:
    atoms, X = unit_rows(rng, k, 20), rng.normal(size=(300, 20))
    chosen, values, error, residual = pursue(X, atoms, n_nonzero=most, with_residual=True)
    want = np.array([naive(y, atoms, most) for y in X])
    np.testing.assert_allclose(dense(chosen, values, k), want, rtol=2e-12, atol=2e-12)
    np.testing.assert_allclose(residual, X - want @ atoms, atol=2e-12)
    np.testing.assert_allclose(error, (residual**2).sum(axis=1), rtol=1e-14)


def test_stops_at_the_error_asked_for(rng: np.random.Generator) -> None:
    atoms, X = unit_rows(rng, 40, 16), rng.normal(size=(400, 16))
    X[7] *= 1e-3  # small enough as it is
    chosen, values, error, _ = pursue(X, atoms, n_nonzero=12, target=2.0)
    want = np.array([naive(y, atoms, 12, 2.0) for y in X])
    np.testing.assert_allclose(dense(chosen, values, 40), want, rtol=1e-10, atol=1e-10)
    assert (error[(chosen >= 0).sum(axis=1) < 12] <= 2.0).all() and (chosen[7] == -1).all()


def test_a_tiny_target_is_not_lost_to_cancellation(rng: np.random.Generator) -> None:
    atoms, X = unit_rows(rng, 30, 12), 1e6 * rng.normal(size=(200, 12))
    _, _, error, _ = pursue(X, atoms, n_nonzero=12, target=1e-6)
    assert (error <= 1e-6).mean() > 0.95  # of energies of 1e13
    chosen, _, error, _ = pursue(X, atoms, n_nonzero=12, target=1e3)
    assert (error[(chosen >= 0).sum(axis=1) < 12] <= 1e3).all()


def test_a_target_in_single_precision(rng: np.random.Generator) -> None:
    atoms, X = unit_rows(rng, 30, 12), rng.normal(size=(500, 12)).astype(np.float32)
    for target in (1e-1, 1e-4, 1e-8):
        chosen, values, error, _ = pursue(X, atoms, n_nonzero=11, target=target)
        early = (chosen >= 0).sum(axis=1) < 11
        assert (error[early] <= target * (1 + 1e-3)).all()
        np.testing.assert_allclose(
            error, ((X - dense(chosen, values, 30) @ atoms) ** 2).sum(axis=1), rtol=1e-2, atol=1e-10
        )


def test_best_support_for_orthonormal_atoms(rng: np.random.Generator) -> None:
    atoms = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    X = rng.normal(size=(50, 7))
    error = pursue(X, atoms, n_nonzero=3)[2]
    for y, results in zip(X, error, strict=True):
        best = min(
            np.sum((y - np.linalg.lstsq(atoms[list(s)].T, y, rcond=None)[0] @ atoms[list(s)]) ** 2)
            for s in itertools.combinations(range(7), 3)
        )
        assert results == pytest.approx(best, abs=1e-12)


def test_exactly_sparse_rows_take_no_more_atoms_than_they_have(rng: np.random.Generator) -> None:
    atoms = unit_rows(rng, 30, 40)
    codes = np.zeros((100, 30))
    codes[np.arange(100), rng.integers(0, 15, 100)] = 3.0
    codes[np.arange(100), rng.integers(15, 30, 100)] = -2.0
    chosen, values, error, _ = pursue(codes @ atoms, atoms, n_nonzero=8)
    right = np.abs(dense(chosen, values, 30) - codes).max(axis=1) < 1e-12
    assert right.mean() > 0.7 and ((chosen >= 0).sum(axis=1)[right] == 2).all() and (error < 1e-20).mean() > 0.7


def test_twin_atoms_and_zero_rows(rng: np.random.Generator) -> None:
    atoms = unit_rows(rng, 6, 5)
    atoms[3] = atoms[1]
    atoms[4] = -atoms[1]
    X = np.concatenate([np.zeros((1, 5)), rng.normal(size=(40, 5)), atoms[1:2]])
    chosen, values, error, _ = pursue(X, atoms, n_nonzero=5)
    assert (chosen[0] == -1).all() and error[0] == 0.0 and np.isfinite(values).all()
    assert all(len({1, 3, 4} & set(row)) <= 1 for row in chosen)


@pytest.mark.parametrize("scale", [1e30, 1e-15, 1.0])
def test_float32_at_any_scale(rng: np.random.Generator, scale: float) -> None:
    atoms, X = unit_rows(rng, 30, 12), rng.normal(size=(500, 12))
    single = pursue((X * scale).astype(np.float32), atoms, n_nonzero=3)
    double = pursue(X, atoms, n_nonzero=3)
    assert single[1].dtype == np.float32
    same = (single[0] == double[0]).all(axis=1)
    assert same.mean() > 0.99
    np.testing.assert_allclose(single[1][same] / scale, double[1][same], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(single[2][same] / scale / scale, double[2][same], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("most", [1, 4, 8])
def test_non_negative_pursuit_is_nnls_on_its_support(rng: np.random.Generator, most: int) -> None:
    atoms, X = np.abs(unit_rows(rng, 30, 12)), rng.normal(size=(200, 12)) + 0.7
    chosen, values, error, _ = pursue(X, atoms, n_nonzero=most, positive=True)
    assert (values >= 0.0).all() and (values[chosen >= 0] > 0.0).all()
    for y, row, value, results in zip(X, chosen, values, error, strict=True):
        used = row[row >= 0]
        if len(used):
            best, left = nnls(atoms[used].T, y)
            np.testing.assert_allclose(value[row >= 0], best, atol=1e-10)
            assert results == pytest.approx(left**2, rel=1e-10)


def test_non_negative_pursuit_equals_the_textbook(rng: np.random.Generator) -> None:
    atoms, X = unit_rows(rng, 30, 12), rng.normal(size=(200, 12))
    codes = dense(*pursue(X, atoms, n_nonzero=5, positive=True)[:2], 30)
    for y, results in zip(X, codes, strict=True):
        picked, rest, code = [], y, np.zeros(30)
        for _ in range(5):
            pull = atoms @ rest
            pull[picked] = 0.0
            picked.append(int(pull.argmax()))
            solution = nnls(atoms[picked].T, y)[0]
            rest = y - solution @ atoms[picked]
        code[picked] = solution
        np.testing.assert_allclose(results, code, atol=1e-9)


@pytest.mark.parametrize("positive", [False, True])
def test_lasso_codes_equal_scikit_learn(rng: np.random.Generator, positive: bool) -> None:
    atoms, X = unit_rows(rng, 25, 10), rng.normal(size=(60, 10))
    chosen, values, error, residual = lasso_codes(X, atoms, penalty=0.4, positive=positive, with_residual=True)
    model = Lasso(alpha=0.4 / 10, fit_intercept=False, positive=positive, tol=1e-12, max_iter=100_000)
    want = np.array([model.fit(atoms.T, y).coef_ for y in X])
    np.testing.assert_allclose(dense(chosen, values, 25), want, atol=1e-6)
    np.testing.assert_allclose(error, (residual**2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    ("penalty", "positive"), [(1e-2, False), (1e-3, False), (0.0, False), (1e-2, True), (0.0, True)]
)
def test_lasso_codes_with_hardly_a_penalty(rng: np.random.Generator, penalty: float, positive: bool) -> None:
    """The way there leads through more atoms than columns; what is kept must be as good as all of them."""
    atoms, X = unit_rows(rng, 40, 6), rng.normal(size=(30, 6))
    X = np.abs(rng.normal(size=(30, 40))) @ atoms if positive else X
    chosen, values, error, _ = lasso_codes(X, atoms, penalty=penalty, positive=positive)
    codes = dense(chosen, values, 40)
    np.testing.assert_allclose(error, ((X - codes @ atoms) ** 2).sum(axis=1), atol=1e-12)
    assert not positive or (codes >= -1e-12).all()
    model = Lasso(alpha=max(penalty, 1e-9) / 6, fit_intercept=False, positive=positive, tol=1e-8, max_iter=20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = np.array([model.fit(atoms.T, y).coef_ for y in X])
    want = ((X - best @ atoms) ** 2).sum(axis=1) / 2 + penalty * np.abs(best).sum(axis=1)
    assert (error / 2 + penalty * np.abs(codes).sum(axis=1) <= 1.001 * want + 1e-9).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.bits
def test_threads_and_order_of_rows_change_no_bit(rng: np.random.Generator, dtype: type, positive: bool) -> None:
    atoms, X = unit_rows(rng, 50, 20), rng.normal(size=(20_011, 20)).astype(dtype)
    results = []
    for n in (1, 2, 3):
        with limit_threads(n):
            results.append(pursue(X, atoms, n_nonzero=3, positive=positive))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(other[:3], results[0][:3], strict=True))
    order = rng.permutation(len(X))
    other = pursue(X[order], atoms, n_nonzero=3, positive=positive)
    assert all(np.array_equal(a, b[order]) for a, b in zip(other[:3], results[0][:3], strict=True))


# -- the update stage ------------------------------------------------------------------------------


def coded(rng: np.random.Generator, n: int = 2000, positive: bool = False):
    atoms, X = unit_rows(rng, 12, 8), rng.normal(size=(n, 8))
    if positive:
        atoms, X = np.abs(atoms), np.abs(X)
    chosen, values, _, residual = pursue(X, atoms, n_nonzero=3, positive=positive, with_residual=True)
    starts, users, x = users_of(chosen, values, 12)
    return X, atoms, residual, (starts, users[: starts[-1]], x[: starts[-1]]), rng.random(n)


def test_users_of_every_atom(rng: np.random.Generator) -> None:
    chosen = rng.integers(-1, 6, size=(40_000, 3)).astype(np.int32)
    values = rng.normal(size=chosen.shape)
    starts, users, x = users_of(chosen, values, 7)
    for c in range(7):
        rows, slots = np.nonzero(chosen == c)
        np.testing.assert_array_equal(users[starts[c] : starts[c + 1]], rows)
        np.testing.assert_array_equal(x[starts[c] : starts[c + 1]], values[rows, slots])


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_no_atom_update_raises_the_error(rng: np.random.Generator, positive: bool, exact: bool) -> None:
    X, atoms, residual, (starts, users, x), weight = coded(rng, positive=positive)
    cost = [weight @ (residual**2).sum(axis=1)]
    for c in rng.permutation(12):
        update_atoms(residual, starts, users, x, weight, atoms, np.array([c]), positive=positive, exact=exact)
        cost.append(weight @ (residual**2).sum(axis=1))
    assert (np.diff(cost) <= 1e-13 * cost[0]).all() and cost[-1] < 0.99 * cost[0]
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1.0, rtol=1e-14)
    codes = np.zeros((len(X), 12))
    for c in range(12):
        codes[users[starts[c] : starts[c + 1]], c] = x[starts[c] : starts[c + 1]]
    np.testing.assert_allclose(residual, X - codes @ atoms, atol=1e-12)
    if positive:
        assert (atoms >= 0.0).all() and (x >= 0.0).all()


def test_the_exact_update_is_the_top_singular_pair(rng: np.random.Generator) -> None:
    _, atoms, residual, (starts, users, x), weight = coded(rng)
    mine = users[starts[4] : starts[5]]
    left = residual[mine] + np.outer(x[starts[4] : starts[5]], atoms[4])
    _, _, v = np.linalg.svd(np.sqrt(weight[mine])[:, None] * left, full_matrices=False)
    update_atoms(residual, starts, users, x, weight, atoms, np.array([4]), exact=True)
    assert abs(v[0] @ atoms[4]) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(x[starts[4] : starts[5]], left @ atoms[4], atol=1e-12)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.bits
def test_threads_change_no_bit_of_an_update(rng: np.random.Generator, positive: bool, exact: bool) -> None:
    _, atoms, residual, (starts, users, x), weight = coded(rng, 90_000, positive)
    results = []
    for n in (1, 2, 3):
        mine = residual.copy(), x.copy(), atoms.copy()
        with limit_threads(n):
            update_atoms(
                mine[0], starts, users, mine[1], weight, mine[2], np.arange(12), positive=positive, exact=exact
            )
        results.append(mine)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(other, results[0], strict=True))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.bits
def test_the_main_direction_of_residuals(rng: np.random.Generator, weighted: bool) -> None:
    residual = rng.normal(size=(60_000, 40)) * np.r_[3.0, np.ones(39)]
    users = np.flatnonzero(rng.random(60_000) < 0.9)
    weight = rng.random(60_000) if weighted else None
    start = unit_rows(rng, 1, 40)[0]
    results = []
    for n in (1, 2, 3):
        with limit_threads(n):
            results.append(main_direction(residual, users, weight, start))
    assert all(np.array_equal(v, results[0][0]) and s == results[0][1] for v, s in results)
    mine = residual[users] * (1.0 if weight is None else np.sqrt(weight[users])[:, None])
    values, vectors = np.linalg.eigh(mine.T @ mine)
    assert abs(results[0][0] @ vectors[:, -1]) == pytest.approx(1.0, abs=1e-6)
    assert results[0][1] == pytest.approx(values[-1], rel=1e-4)


@pytest.mark.bits
def test_keys_follow_the_rows(rng: np.random.Generator) -> None:
    X = rng.normal(size=(1000, 4))
    X[10] = X[20]
    keys = row_keys(X, 5)
    order = rng.permutation(1000)
    assert keys[10] == keys[20] and len(np.unique(keys)) == 999
    np.testing.assert_array_equal(row_keys(X[order], 5), keys[order])
    assert (row_keys(X, 6) != keys).all()
    assert len(np.unique(row_keys(X.astype(np.float32), 5))) == 999


def test_subspace_errors(rng: np.random.Generator) -> None:
    bases = np.stack([np.linalg.qr(rng.normal(size=(9, 2)))[0].T for _ in range(4)])
    X = rng.normal(size=(300, 9)) * 1e8
    every = np.array([((X - X @ b.T @ b) ** 2).sum(axis=1) for b in bases])
    labels, error = subspace_errors(X, bases)
    np.testing.assert_array_equal(labels, every.argmin(axis=0))
    np.testing.assert_allclose(error, every.min(axis=0), rtol=1e-12)
