"""K-SVD as in the papers: the plain variant, references that stay among the atoms, several searches, certificates."""

from __future__ import annotations

import numpy as np
import pytest
from planted_rows import planted
from sklearn.base import clone

from tithe import Block, load_model, save_model
from tithe.core.seeding import rng_for
from tithe.dictionary import KSVD, Reference, dictionary_distance, reference_factor
from tithe.dictionary.atom_kernels import users_of
from tithe.dictionary.solver import REFINING, VARIANTS, Coding, data_atoms, exchange, learn_dictionary, replace_idle
from tithe.objectives import DictionaryObjective
from tithe.theory import theoretical_size


def matching_pursuit(y: np.ndarray, atoms: np.ndarray, most: int) -> np.ndarray:
    """The code of one signal, by least squares on the atoms chosen so far."""
    chosen: list[int] = []
    code, rest = np.zeros(len(atoms)), y
    for _ in range(most):
        chosen.append(int(np.argmax(np.abs(atoms @ rest))))
        values = np.linalg.lstsq(atoms[chosen].T, y, rcond=None)[0]
        rest = y - values @ atoms[chosen]
    code[chosen] = values
    return code


def textbook(X: np.ndarray, atoms: np.ndarray, most: int, n_iter: int, rng: np.random.Generator) -> np.ndarray:
    """K-SVD of Aharon, Elad and Bruckstein (2006), with a singular value decomposition for each atom."""
    for _ in range(n_iter):
        codes = np.stack([matching_pursuit(y, atoms, most) for y in X])
        for j in rng.permutation(len(atoms)):
            users = np.flatnonzero(codes[:, j])
            rest = X[users] - codes[users] @ atoms + np.outer(codes[users, j], atoms[j])
            u, s, v = np.linalg.svd(rest, full_matrices=False)
            atoms[j], codes[users, j] = v[0], s[0] * u[:, 0]
    return atoms


def test_plain_variant_is_the_textbook_method() -> None:
    X, _ = planted(150, d=8, k=10, most=2, noise=0.05)
    start = data_atoms(X, 10, np.random.default_rng(3))
    want = textbook(X, start.copy(), 2, 3, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    learned = learn_dictionary(X, None, start, Coding(n_nonzero=2), max_iter=3, rng=rng, variant=VARIANTS["textbook"])
    assert learned.best_number == 3
    np.testing.assert_allclose(np.abs((want * learned.atoms).sum(axis=1)), 1.0, rtol=1e-9)


def test_refining_ends_with_updates_for_the_codes_before() -> None:
    """With one atom a signal, the error for codes that are kept is |y|^2 - (y . d)^2, d the updated atom of before."""
    X, _ = planted(500, d=8, k=6, most=1, noise=0.2)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 500)
    start = data_atoms(X, 6, np.random.default_rng(3))
    chosen = Coding(n_nonzero=1)(X, start)[0][:, 0]
    learned = learn_dictionary(
        X, weight, start, Coding(n_nonzero=1), max_iter=1, rng=np.random.default_rng(0), variant=REFINING
    )
    errors = (X**2).sum(axis=1) - (X * learned.atoms[chosen]).sum(axis=1) ** 2
    assert learned.best_number == 1 and learned.curve[1] < learned.curve[0]
    assert learned.curve[1] == pytest.approx(np.average(errors, weights=weight), rel=1e-12)


def test_variants_of_the_estimator_differ() -> None:
    X, _ = planted(800, d=8, k=10, most=2, noise=0.05)
    model = KSVD(10, n_nonzero_coefs=2, max_iter=5, random_state=0)
    fast, plain = (model.set_params(variant=name).fit(X).objective_curve_ for name in ("accelerated", "plain"))
    assert fast[0] == plain[0] and fast[-1] < plain[-1] < plain[0]


def test_the_best_of_several_searches_is_kept() -> None:
    X, _ = planted(600, d=10, k=16, most=2)
    model = KSVD(16, n_nonzero_coefs=2, max_iter=8, random_state=0)
    errors = []
    for number in range(4):
        place = () if number == 0 else (number,)
        start = data_atoms(X, 16, rng_for(0, "start", *place))
        rng = rng_for(0, "solve", *place)
        errors.append(min(learn_dictionary(X, None, start, Coding(n_nonzero=2), max_iter=8, rng=rng).curve) / 10)
    assert model.fit(X).objective_curve_.min() == errors[0]
    assert model.set_params(n_init=4).fit(X).objective_curve_.min() == min(errors) < errors[0]
    with pytest.warns(RuntimeWarning, match="one search"):
        model.set_params(initial="dct").fit(X)


SIZES = {
    "constant": None,
    "mean_line": None,
    "mean_point": None,
    "singular": 4,
    "kmeans": 3,
    "ksvd": 3,
    "projective": 2,
}


@pytest.mark.parametrize("kind", SIZES)
def test_a_reference_stays_among_the_atoms(kind: str) -> None:
    """Its vectors are the first atoms, bit for bit, whatever is updated, exchanged, replaced or refined."""
    X, _ = planted(1500, d=10, k=14, most=2)
    X += 0.3
    reference = Reference(kind, SIZES[kind], beta=0.0, include=True)
    model = KSVD(14, n_nonzero_coefs=2, max_iter=10, coreset_size=600, reference=reference, random_state=0).fit(X)
    objective = model._objective()
    atoms = objective.reference_atoms(model.coreset_.pilot)
    count = objective.n_included(10)
    assert len(atoms) == count == {"singular": 4, "kmeans": 3, "ksvd": 3, "projective": 4}.get(kind, 1)
    signs = np.sign((atoms * model.components_[:count]).sum(axis=1))
    np.testing.assert_array_equal(model.components_[:count], signs[:, None] * atoms)
    model.refine(X, n_iter=2)
    np.testing.assert_array_equal(model.components_[:count], signs[:, None] * atoms)
    if kind != "mean_point":  # whose error is that of a point, not of a line
        alone = Coding(n_nonzero=2)(X, atoms)[2]
        errors = ((X - model.reconstruct(X)) ** 2).sum(axis=1)
        assert (errors <= alone * (1.0 + 1e-9) + 1e-20).all()


def test_codes_are_never_worse_than_those_of_the_reference_alone() -> None:
    """Pursuit in all atoms can be worse than in a part of them; a signal then keeps the code in the reference."""
    X, _ = planted(3000)
    rng = np.random.default_rng(0)
    atoms = rng.normal(size=(40, 20))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    alone = Coding(n_nonzero=3)(X, atoms[:10])
    plain = Coding(n_nonzero=3)(X, atoms)
    worse = plain[2] > alone[2]
    assert 10 < worse.sum() < 1500
    chosen, values, error, residual = Coding(n_nonzero=3, n_reference=10)(X, atoms, with_residual=True)
    np.testing.assert_array_equal(error, np.minimum(plain[2], alone[2]))
    rows = np.einsum("nt,ntd->nd", values, atoms[chosen])
    np.testing.assert_allclose(X - rows, residual, atol=1e-12)
    assert (chosen[worse] < 10).all()


def test_fixed_atoms_are_neither_replaced_nor_split() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    atoms = np.eye(6)[[0, 1, 1, 2]].copy()  # the second is fixed and has a twin that is used more
    assert replace_idle(atoms, np.array([0.0, 1.0, 50.0, 40.0]), X, X, n_fixed=2) == 1
    np.testing.assert_array_equal(atoms[[0, 1, 3]], np.eye(6)[[0, 1, 2]])
    assert abs(atoms[2] @ atoms[1]) <= 0.99
    atoms = np.eye(6)[:4].copy()
    chosen, values, _, residual = Coding(n_nonzero=1)(X, atoms, with_residual=True)
    starts, users, x = users_of(chosen, values, 4)
    exchange(atoms, starts, users[: starts[-1]], x[: starts[-1]], None, residual, positive=False, n_fixed=3)
    np.testing.assert_array_equal(atoms[:3], np.eye(6)[:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": Reference(beta=0.0)}, "include=True"),
        ({"reference": Reference(size=2)}, "size of a Reference"),
        ({"reference": Reference("ksvd", include=True)}, "leaves no atom to learn"),
        ({"reference": Reference("projective", 6, include=True)}, "more than n_components=5"),
        ({"reference": Reference("singular", include=True), "positive": True}, "negative entries"),
        ({"reference": Reference(include=True), "alpha": 1.0}, "alpha"),
        ({"reference": Reference("best")}, "reference"),
        ({"reference": Reference(beta=2.0)}, "beta"),
        ({"reference": "best"}, "reference"),
        ({"variant": "best"}, "variant"),
        ({"n_init": 0}, "n_init"),
    ],
)
def test_parameters_that_contradict(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KSVD(5, **options).fit(np.random.default_rng(0).normal(size=(40, 6)))


def test_a_name_stands_for_the_reference_of_this_kind(tmp_path) -> None:
    X, _ = planted(800, d=8, k=10, most=2)
    model = KSVD(10, n_nonzero_coefs=2, max_iter=2, coreset_size=200, reference="mean_line", random_state=0).fit(X)
    same = clone(model).set_params(reference=Reference("mean_line")).fit(X)
    np.testing.assert_array_equal(model.components_, same.components_)
    other = clone(same).set_params(reference=Reference("singular", 2, beta=0.0, include=True)).fit(X)
    assert clone(other).get_params() == other.get_params() and not np.allclose(other.components_, same.components_)
    save_model(other, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.reference == other.reference
    np.testing.assert_array_equal(loaded.transform(X), other.transform(X))


def test_certificates_of_a_fit() -> None:
    X, _ = planted(12_000, d=8, k=10, most=2, noise=0.05)
    model = KSVD(10, n_nonzero_coefs=2, max_iter=3, random_state=0).fit(X)
    assert model.certificate_.kind == "exact" and model.certificate_.n_rows == 12_000
    assert model.certificate_.value == pytest.approx(-model.score(X), rel=1e-12)
    model.set_params(coreset_size=500).fit(X)
    certificate, truth = model.certificate_, -model.score(X)
    assert certificate.kind == "estimate" and certificate.n_rows == 10_000
    assert abs(certificate.value - truth) < certificate.interval[1] - certificate.value
    assert model.refine(X[:2000], n_iter=1).certificate_ is None
    assert model.partial_fit(X).solve().certificate_ is None


def test_centers_of_k_means_as_reference() -> None:
    """Unit vectors towards the means: on rows near a few points on no line their error is nearly that of the points."""
    rng = np.random.default_rng(0)
    means = np.linalg.qr(rng.normal(size=(8, 8)))[0][:3] * 10
    X = means[rng.integers(3, size=900)] + 0.1 * rng.normal(size=(900, 8))
    objective = DictionaryObjective(n_components=6, n_nonzero_coefs=1, reference="kmeans", n_reference=3)
    atoms = objective.pilot(Block(X=X), rng=rng)
    np.testing.assert_allclose(np.sort(np.abs(atoms @ means.T / 10).max(axis=0)), 1.0, atol=1e-3)
    assert objective.cost(Block(X=X), atoms).mean() < 0.08


@pytest.mark.parametrize("include", [False, True])
def test_atoms_of_ones_own_as_reference(include: bool, tmp_path) -> None:
    """They score the rows, whatever their length; included, they are the first atoms; and a file keeps them."""
    X, atoms = planted(2000, d=10, k=14, most=2)
    given = 5.0 * atoms[:4]
    reference = Reference(given, include=include)
    model = KSVD(14, n_nonzero_coefs=2, max_iter=4, coreset_size=400, reference=reference, random_state=0).fit(X)
    np.testing.assert_allclose(model.coreset_.pilot, atoms[:4], atol=1e-12)
    if include:
        np.testing.assert_allclose(np.abs((model.components_[:4] * atoms[:4]).sum(axis=1)), 1.0)
    else:
        same = KSVD(14, n_nonzero_coefs=2, max_iter=4, coreset_size=400, reference=given, random_state=0).fit(X)
        np.testing.assert_array_equal(same.components_, model.components_)
    save_model(model, tmp_path / "model.tithe")
    loaded = load_model(tmp_path / "model.tithe")
    np.testing.assert_array_equal(loaded.reference.kind, given)
    assert loaded._objective() == model._objective() != Reference("kmeans").objective()
    with pytest.raises(ValueError, match="reference has 10 columns"):
        model.fit(X[:, :8])
    with pytest.raises(ValueError, match="zeros"):
        KSVD(14, reference=np.zeros((2, 10)), coreset_size=400).fit(X)


def test_the_factor_of_a_reference_is_its_cost_over_the_best() -> None:
    """Of a reference that is learned from all rows it is near 1; weights are duplicated rows."""
    X, atoms = planted(800, d=10, k=8, most=2, noise=0.1)
    best = reference_factor(X, Reference(atoms).objective(n_components=8, n_nonzero_coefs=2), random_state=0)
    rough = reference_factor(X, DictionaryObjective(n_components=8, n_nonzero_coefs=2), random_state=0)
    assert 1.0 <= best < 1.3 and rough > 10 * best
    size = theoretical_size(DictionaryObjective(), eps=0.3, n_features=10, reference_factor=rough)
    assert size.size > theoretical_size(DictionaryObjective(), eps=0.3, n_features=10, reference_factor=best).size
    weight = np.random.default_rng(0).integers(1, 4, 800)
    objective = DictionaryObjective(n_components=8, n_nonzero_coefs=2, max_iter=3)
    one = reference_factor(X, objective, sample_weight=weight.astype(float), random_state=0)
    assert one == pytest.approx(reference_factor(np.repeat(X, weight, axis=0), objective, random_state=0), rel=0.1)


def test_the_distance_of_dictionaries() -> None:
    X, atoms = planted(3000, d=20, k=30, most=3)
    model = KSVD(30, n_nonzero_coefs=3, max_iter=30, random_state=0).fit(X)
    by_hand = np.mean([1.0 - max(abs(true @ atom) for atom in model.components_) for true in atoms])
    assert by_hand < 0.1 and dictionary_distance(model.components_, atoms) == pytest.approx(by_hand)
    with pytest.raises(ValueError, match="compared"):
        dictionary_distance(np.eye(3), np.eye(4))
