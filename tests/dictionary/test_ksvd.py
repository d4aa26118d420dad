from __future__ import annotations

import numpy as np
import pytest
from plain_rows import open_dataset
from planted_rows import planted
from scipy import sparse
from sklearn.base import clone

from tithe import load_model, save_model
from tithe.core.parallel import limit_threads
from tithe.dictionary import KSVD
from tithe.dictionary.solver import (
    Coding,
    data_atoms,
)


def distance(true: np.ndarray, results: np.ndarray) -> float:
    return float((1.0 - np.abs(true @ results.T).max(axis=1)).mean())


def test_a_planted_dictionary_is_found() -> None:
    X, atoms = planted(8000, d=12, k=20, most=2)
    model = KSVD(20, n_nonzero_coefs=2, max_iter=60, random_state=0).fit(X)
    assert distance(atoms, model.components_) < 0.02
    best = Coding(n_nonzero=2)(X, atoms)[2].mean() / 12
    assert model.objective_curve_.min() < 1.1 * best and model.objective_curve_[0] > 3 * best


def test_planted_atoms_that_point_the_same_way_are_found() -> None:
    rng = np.random.default_rng(2)
    atoms = rng.uniform(size=(50, 20))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    used = np.argpartition(rng.random((10_000, 50)), 3, axis=1)[:, :3]
    X = np.einsum("nt,ntd->nd", rng.uniform(-1, 1, size=(10_000, 3)), atoms[used])
    X += rng.normal(size=X.shape) * np.sqrt(0.01 * (X**2).mean())
    model = KSVD(50, n_nonzero_coefs=3, random_state=0).fit(X)
    assert model.objective_curve_.min() < 1.3 * Coding(n_nonzero=3)(X, atoms)[2].mean() / 20


def test_a_planted_dictionary_is_found_through_a_coreset() -> None:
    X, atoms = planted(60_000, d=12, k=20, most=2)
    model = KSVD(20, n_nonzero_coefs=2, max_iter=60, coreset_size=3000, random_state=1).fit(X)
    assert len(model.coreset_) <= 3000 and len(model.sample_indices_) == len(model.coreset_)
    assert distance(atoms, model.components_) < 0.02
    held_out, _ = planted(60_000, seed=0, d=12, k=20, most=2)
    certificate = model.certify(held_out[:20_000])
    assert certificate.kind == "estimate" and certificate.interval[0] < certificate.value < certificate.interval[1]
    assert model.score(held_out[:20_000]) == -certificate.value


def test_polish_makes_the_atoms_of_a_coreset_sharp() -> None:
    X, atoms = planted(60_000, d=12, k=20, most=2)
    far = []
    for polish in (0, 2):
        model = KSVD(20, n_nonzero_coefs=2, coreset_size=1500, max_iter=60, refine_iter=polish, random_state=0).fit(X)
        far.append(1.0 - np.abs(atoms @ model.components_.T).max(axis=1))
        assert model.n_iter_ == 60 + polish == len(model.objective_curve_) - 1
    assert np.median(far[1]) < 0.3 * np.median(far[0])
    by_hand = KSVD(20, n_nonzero_coefs=2, coreset_size=1500, max_iter=60, random_state=0).fit(X).refine(X, n_iter=2)
    assert by_hand.n_iter_ == 62
    assert np.median(1.0 - np.abs(atoms @ by_hand.components_.T).max(axis=1)) < 0.3 * np.median(far[0])
    few = KSVD(20, n_nonzero_coefs=2, coreset_size=1500, refine_iter=2, random_state=0).fit(
        X[:1000]
    )  # all rows: none left
    assert few.n_iter_ == few.max_iter
    with pytest.raises(ValueError, match="refine_iter"):
        KSVD(20, coreset_size=1500, refine_iter="auto").fit(X)


@pytest.mark.parametrize("options", [{}, {"variant": "exact"}, {"center": "global"}, {"center": "row"}, {"tol": 0.1}])
def test_weights_equal_repeated_rows(options) -> None:
    X, _ = planted(400, d=10, k=12, most=2, noise=0.05)
    weight = np.random.default_rng(1).integers(0, 4, len(X))
    model = KSVD(12, n_nonzero_coefs=2, max_iter=12, random_state=0, **options)
    a = clone(model).fit(X, sample_weight=weight)
    b = clone(model).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(a.components_, b.components_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(a.objective_curve_, b.objective_curve_, rtol=1e-12)
    c = clone(model).fit(X, sample_weight=weight * 1e-7)
    np.testing.assert_allclose(a.components_, c.components_, rtol=0, atol=1e-12)


def test_non_negative_weights_equal_repeated_rows() -> None:
    X = np.abs(planted(400, d=10, k=12, most=2)[0])
    weight = np.random.default_rng(1).integers(0, 4, len(X))
    model = KSVD(12, n_nonzero_coefs=3, max_iter=12, positive=True, random_state=0)
    a = clone(model).fit(X, sample_weight=weight)
    b = clone(model).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(a.components_, b.components_, rtol=0, atol=1e-12)
    assert (a.components_ >= 0).all() and (a.transform(X) >= 0).all()


def test_order_of_rows_is_no_matter() -> None:
    X, _ = planted(600, d=10, k=12, most=2)
    order = np.random.default_rng(3).permutation(len(X))
    model = KSVD(12, n_nonzero_coefs=2, max_iter=12, random_state=0)
    np.testing.assert_allclose(
        clone(model).fit(X).components_, clone(model).fit(X[order]).components_, rtol=0, atol=1e-11
    )


@pytest.mark.bits
def test_seeds_and_threads() -> None:
    X, _ = planted(50_000)
    model = KSVD(50, n_nonzero_coefs=3, max_iter=3, random_state=0)
    results = []
    for n in (1, 2, 3):
        with limit_threads(n):
            results.append(clone(model).fit(X))
    for other in results[1:]:
        assert np.array_equal(other.components_, results[0].components_)
        assert np.array_equal(other.objective_curve_, results[0].objective_curve_)
    assert not np.allclose(model.set_params(random_state=1).fit(X).components_, results[0].components_)


def test_one_atom_a_row_assigns_like_spherical_k_means() -> None:
    """T = 1: a row takes the atom with the largest |y . d|; for unit rows of one sign that is the nearest point."""
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(500, 6)))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    model = KSVD(7, n_nonzero_coefs=1, max_iter=10, random_state=0).fit(X)
    used = np.abs(model.transform(X)).argmax(axis=1)
    gaps = ((X[:, None] - model.components_[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(used, gaps.argmin(axis=1))


def test_points_with_binary_codes_are_k_means() -> None:
    """The objective at a point is the squared distance to it: what the error of a binary code of one atom is."""
    from tithe import Block
    from tithe.objectives import DictionaryObjective, KMeansObjective

    X = np.random.default_rng(0).normal(size=(200, 4)) + 3.0
    points = X[:3]
    own = np.min([DictionaryObjective().cost(Block(X=X), point) for point in points], axis=0)
    np.testing.assert_allclose(own, KMeansObjective().cost(Block(X=X), points), rtol=1e-13)


def test_codes_dense_and_sparse_and_back() -> None:
    X, _ = planted(3000)
    X += 2.0
    for mean in ("none", "global", "row"):
        model = KSVD(50, n_nonzero_coefs=3, max_iter=3, center=mean, random_state=0).fit(X)
        codes, few = model.transform(X), model.encode(X)
        assert sparse.issparse(few) and few.nnz <= 3 * len(X)
        np.testing.assert_array_equal(few.toarray(), codes)
        back = model.inverse_transform(few)
        np.testing.assert_allclose(back, model.inverse_transform(codes), atol=1e-12)
        own = X.mean(axis=1, keepdims=True) if mean == "row" else 0.0
        np.testing.assert_allclose(model.reconstruct(X), back + own, atol=1e-9)
        error = ((X - back - own) ** 2).mean()
        assert model.score(X) == pytest.approx(-error)
        assert error == pytest.approx(model.objective_curve_.min(), rel=1e-9)


def test_many_rows_are_coded_in_blocks() -> None:
    X, _ = planted(70_000)
    model = KSVD(50, n_nonzero_coefs=2, max_iter=1, coreset_size=2000, random_state=0).fit(X)
    codes = model.transform(X)
    np.testing.assert_array_equal(codes[40_000:40_010], model.transform(X[40_000:40_010]))
    np.testing.assert_array_equal(model.encode(X[-5:]).toarray(), codes[-5:])


def test_float32_all_the_way() -> None:
    X, atoms = planted(5000, d=12, k=20, most=2)
    model = KSVD(20, n_nonzero_coefs=2, max_iter=40, random_state=0).fit(X.astype(np.float32))
    assert model.components_.dtype == np.float32 and model.transform(X.astype(np.float32)).dtype == np.float32
    assert distance(atoms, model.components_) < 0.03


@pytest.mark.parametrize("options", [{"n_nonzero_coefs": 3}, {"tol": 0.5}, {"alpha": 0.1}])
def test_the_curve_is_the_true_error_and_the_best_is_kept(options) -> None:
    X, _ = planted(2000, noise=0.3)
    model = KSVD(30, max_iter=12, random_state=0, **options).fit(X)
    assert model.objective_curve_.shape == (13,) and model.n_iter_ == 12
    assert -model.score(X) == pytest.approx(model.objective_curve_[model.best_iter_], rel=1e-6)
    np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1.0, rtol=1e-12)
    largest = np.abs(model.components_).argmax(axis=1)
    assert (model.components_[np.arange(30), largest] > 0).all()


def test_with_a_tolerance_the_best_dictionary_needs_the_fewest_atoms() -> None:
    """Every code just meets the tolerance, so the error says nothing: here it is smallest near the start."""
    X, _ = planted(3000)
    model = KSVD(50, tol=0.015, n_nonzero_coefs=20, max_iter=8, random_state=0).fit(X)
    assert model.objective_curve_.argmin() < 3 and model.best_iter_ == 8
    start = KSVD(50, tol=0.015, n_nonzero_coefs=20, max_iter=1, initial=data_atoms(X, 50, np.random.default_rng(0)))
    assert model.encode(X).nnz < 0.95 * start.fit(X).encode(X).nnz


def test_what_dictionaries_are_compared_by() -> None:
    X, atoms = planted(50, d=6, k=5, most=2)
    codes = Coding(n_nonzero=2)(X, atoms)
    np.testing.assert_array_equal(Coding(n_nonzero=2).price(codes), codes[2])
    few = Coding(n_nonzero=2, target=0.02)
    chosen, _, error, _ = codes = few(X, atoms)
    np.testing.assert_allclose(few.price(codes), (chosen >= 0).sum(axis=1) + np.maximum(0, error / 0.02 - 1))
    lasso = Coding(penalty=0.3)
    _, values, error, _ = codes = lasso(X, atoms)
    np.testing.assert_allclose(lasso.price(codes), error / 2 + 0.3 * np.abs(values).sum(axis=1))


# -- bad and odd input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_nonzero_coefs": 0}, "n_nonzero_coefs"),
        ({"n_nonzero_coefs": 7, "n_components": 30}, "6 columns"),
        ({"n_nonzero_coefs": 4, "n_components": 3}, "3 atoms"),
        ({"tol": -1.0}, "tol"),
        ({"tol": np.nan}, "tol"),
        ({"alpha": -1.0}, "alpha"),
        ({"max_iter": 0}, "max_iter"),
        ({"center": "median"}, "center"),
        ({"initial": np.ones((3, 6))}, "initial has shape"),
        ({"initial": np.zeros((6, 6))}, "rows of zeros"),
        ({"positive": True, "center": "global"}, "center='none'"),
        ({"coreset_size": 3}, "coreset_size"),
        ({"coreset_size": 20, "construction": "magic"}, "magic"),
    ],
)
def test_parameters_that_mean_nothing(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KSVD(**options).fit(np.random.default_rng(0).normal(size=(40, 6)))


def test_bad_rows() -> None:
    X = np.random.default_rng(0).normal(size=(40, 6))
    model = KSVD(5, max_iter=2).fit(X)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        KSVD().fit(np.where(X > 2, np.nan, X))
    with pytest.raises(ValueError, match="weights are zero"):
        KSVD().fit(X, sample_weight=np.zeros(40))
    with pytest.raises(ValueError, match="5 features"):
        model.transform(X[:, :5])
    with pytest.raises(ValueError, match="4 columns"):
        model.inverse_transform(np.ones((2, 4)))
    with pytest.raises(ValueError, match="too large"):
        KSVD().fit(X * 1e200)
    with pytest.raises(ValueError, match="single precision"):
        KSVD().fit((X * 3e37).astype(np.float32))
    with pytest.raises(TypeError, match="dense"):
        KSVD().fit(sparse.csr_matrix(X))


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scale_is_no_matter(scale: float, dtype: type) -> None:
    X, _ = planted(500, d=8, k=10, most=2)
    a = KSVD(10, n_nonzero_coefs=2, max_iter=10, initial=np.eye(10, 8) + 0.1, random_state=0).fit(X.astype(dtype))
    b = clone(a).fit((X * scale).astype(dtype))
    np.testing.assert_allclose(a.objective_curve_[:3] * scale * scale, b.objective_curve_[:3], rtol=1e-3)


def test_certificates_at_any_scale() -> None:
    X, _ = planted(400, d=8, k=10, most=2, noise=0.1)
    model = KSVD(10, n_nonzero_coefs=2, max_iter=3, initial=np.eye(10, 8) + 0.1, random_state=0).fit(X)
    want = model.certify(X)
    for weight in (1e200, 1e-200):
        results = model.certify(X, sample_weight=np.full(400, weight))
        np.testing.assert_allclose(results.interval, want.interval, rtol=1e-9)
    large = clone(model).fit(X * 1e100).certify(X * 1e100)
    np.testing.assert_allclose(large.interval, np.multiply(want.interval, 1e200), rtol=1e-6)


def test_rows_too_large_for_atoms_in_single_precision() -> None:
    X, _ = planted(400, d=8, k=10, most=2)
    model = KSVD(10, n_nonzero_coefs=2, max_iter=2, random_state=0).fit(X.astype(np.float32))
    for use in (model.transform, model.encode, model.reconstruct, model.certify):
        with pytest.raises(ValueError, match="single precision"):
            use(X * 1e60)


def test_fewer_rows_than_atoms_and_rows_of_zeros() -> None:
    X = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [2.0, 0.0, 0.0]])
    model = KSVD(9, n_nonzero_coefs=1, random_state=0).fit(X)
    assert model.components_.shape == (9, 3) and model.objective_curve_.min() < 1e-30
    np.testing.assert_allclose(model.reconstruct(X), X, atol=1e-12)
    model = KSVD(4, n_nonzero_coefs=2, random_state=0).fit(np.zeros((5, 3)))
    assert model.objective_curve_.min() == 0.0 and not model.transform(np.zeros((2, 3))).any()
    model = KSVD(4, n_nonzero_coefs=1, random_state=0).fit(X[1:2])
    assert model.objective_curve_.min() < 1e-30


def test_constant_columns_and_zero_weights() -> None:
    X, _ = planted(300, d=8, k=10, most=2)
    X[:, 3] = 5.0
    weight = np.where(np.arange(300) < 150, 1.0, 0.0)
    a = KSVD(10, n_nonzero_coefs=2, max_iter=5, random_state=0).fit(X, sample_weight=weight)
    b = clone(a).fit(X[:150])
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-12)
    X[:] = 5.0
    assert KSVD(3, n_nonzero_coefs=1, random_state=0).fit(X).objective_curve_.min() < 1e-25


# -- elsewhere -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", ["none", "global", "row"])
def test_from_a_file(tmp_path, mean: str) -> None:
    X, atoms = planted(30_000, d=12, k=20, most=2)
    np.save(tmp_path / "signals.npy", X)
    source = open_dataset(tmp_path / "signals.npy")
    model = KSVD(20, n_nonzero_coefs=2, coreset_size=3000, center=mean, max_iter=30, random_state=0).fit(source)
    if mean != "row":
        assert distance(atoms, model.components_) < 0.05
    assert model.certify(source).value == pytest.approx(model.certify(X).value, rel=1e-9)
    assert len(KSVD(20, n_nonzero_coefs=2, center=mean, max_iter=1).fit(source).coreset_) <= 5000


def test_pieces_of_rows() -> None:
    X, atoms = planted(30_000, d=12, k=20, most=2)
    model = KSVD(20, n_nonzero_coefs=2, coreset_size=3000, max_iter=30, random_state=0)
    for part in np.array_split(X, 9):
        model.partial_fit(part)
    other = clone(model)
    for part in np.array_split(X, 4):
        other.partial_fit(part)
    assert np.array_equal(model.solve().components_, other.solve().components_) and model.coreset_.n_seen == 30_000
    assert distance(atoms, model.components_) < 0.05
    before = model.components_
    assert model.partial_fit(X[:10]).solve().coreset_.n_seen == 30_010 and not np.array_equal(model.components_, before)
    with pytest.raises(ValueError, match="12 features"):
        model.partial_fit(X[:, :5])
    with pytest.raises(ValueError, match="parameters have changed"):
        model.set_params(n_components=21).partial_fit(X[:10])


@pytest.mark.parametrize("mean", ["none", "row"])
def test_few_pieces_are_a_fit(mean: str) -> None:
    X, _ = planted(800, d=10, k=12, most=2)
    weight = np.random.default_rng(0).integers(1, 4, 800).astype(float)
    model = KSVD(12, n_nonzero_coefs=2, max_iter=5, center=mean, random_state=0)
    whole = clone(model).fit(X, sample_weight=weight)
    for part, own in zip(np.array_split(X, 3), np.array_split(weight, 3), strict=True):
        model.partial_fit(part, sample_weight=own)
    np.testing.assert_array_equal(model.transform(X), whole.transform(X))
    np.testing.assert_array_equal(model.components_, whole.components_)
    assert not hasattr(KSVD(center="global"), "partial_fit")


def test_saved_and_loaded(tmp_path) -> None:
    X, _ = planted(3000, d=12, k=20, most=2)
    model = KSVD(20, n_nonzero_coefs=2, max_iter=3, coreset_size=500, random_state=0).fit(X)
    save_model(model, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").transform(X), model.transform(X))
