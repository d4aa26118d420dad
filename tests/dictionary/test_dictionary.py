from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from scipy import sparse, stats

from tithe import Block, CoresetStream, build_coreset
from tithe.core.registry import make
from tithe.dictionary.objective import ReferenceKind
from tithe.dictionary.pursuit_kernels import pursue
from tithe.objectives import DictionaryObjective
from tithe.reduce.distortion import distortion
from tithe.testing import check_construction, objective_checks

REFERENCES = get_args(ReferenceKind)
CHECKS = [
    pytest.param(check, id=f"{reference}-{name}")
    for reference in REFERENCES
    for name, check in objective_checks(
        DictionaryObjective(n_components=4, n_nonzero_coefs=2, reference=reference, max_iter=3)
    )
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check) -> None:
    check()


def patches(n: int = 4000, *, flat: float = 0.5, d: int = 16) -> np.ndarray:
    """Rows half of which are flat, as patches of a cartoon are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * rng.gamma(0.5, size=(n, 1)) + 3.0
    X[rng.random(n) < flat] = 2.0
    return X


def test_errors_of_every_reference() -> None:
    X = patches(500)
    block, rng = Block(X=X), np.random.default_rng(0)
    mean = X.mean(axis=0)

    def error(reference: str) -> np.ndarray:
        objective = DictionaryObjective(n_components=8, n_nonzero_coefs=2, reference=reference)
        pilot = objective.pilot(block, rng=rng)
        return objective.survey(block, pilot).cost

    np.testing.assert_allclose(error("constant"), 16 * X.var(axis=1), atol=1e-12)
    line = mean / np.linalg.norm(mean)
    np.testing.assert_allclose(error("mean_line"), ((X - np.outer(X @ line, line)) ** 2).sum(axis=1), atol=1e-11)
    np.testing.assert_allclose(error("mean_point"), ((X - mean) ** 2).sum(axis=1), rtol=1e-12)
    top = np.linalg.svd(X, full_matrices=False)[2][:2]
    np.testing.assert_allclose(error("singular"), ((X - X @ top.T @ top) ** 2).sum(axis=1), atol=1e-9)
    for better in ("ksvd", "projective"):
        assert error(better).sum() < error("singular").sum()


def test_one_vector_in_the_dictionary_bounds_the_error() -> None:
    """With D0 one of the atoms, pursuit is never worse than D0 alone: the first pick is at least as good."""
    X = patches(2000, flat=0.1)
    rng = np.random.default_rng(1)
    atoms = rng.normal(size=(12, 16))
    atoms[5] = 1.0
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    objective = DictionaryObjective(n_components=12, n_nonzero_coefs=3)
    block = Block(X=X)
    reference = objective.cost(block, objective.pilot(block, rng=rng))
    assert (objective.cost(block, atoms) <= reference * (1 + 1e-12) + 1e-20).all()


def test_cost_is_what_pursuit_leaves() -> None:
    X = patches(300)
    atoms = DictionaryObjective(n_components=6, n_nonzero_coefs=2).solve(Block(X=X), rng=np.random.default_rng(0))
    own = DictionaryObjective(n_nonzero_coefs=2).cost(Block(X=X), atoms)
    np.testing.assert_array_equal(own, pursue(X, atoms, n_nonzero=2)[2])


def test_flat_rows_are_drawn_and_the_draw_is_unbiased() -> None:
    """Half of the rows have no error at the reference; a dictionary without it must still be judged rightly."""
    X = patches(1000)
    block = Block(X=X)
    objective = DictionaryObjective(n_components=5, n_nonzero_coefs=2)
    rng = np.random.default_rng(0)
    queries = [rng.normal(size=(5, 16)) for _ in range(3)]
    queries = [q / np.linalg.norm(q, axis=1, keepdims=True) for q in queries]
    full = np.array([objective.cost(block, q).sum() for q in queries])
    results = []
    for seed in range(600):
        small = build_coreset(X, objective=objective, coreset_size=60, calibrate=False, random_state=seed)
        results.append([small.weights() @ objective.cost(small, q) for q in queries])
    gap = np.mean(results, axis=0) - full
    square = gap @ np.linalg.solve(np.cov(np.array(results).T) / len(results), gap)
    assert stats.chi2.sf(square, len(queries)) > 1e-4
    flat = X.std(axis=1) == 0.0
    survey = objective.survey(block, objective.pilot(block, rng=rng))
    p = objective.sensitivity(block, survey).at()
    assert p.sum() == pytest.approx(1.0) and p[flat].sum() == pytest.approx(0.1 * flat.mean())


@pytest.mark.parametrize("construction", ["sensitivity", "uniform", "lightweight", "rings"])
def test_every_construction(construction: str) -> None:
    check_construction(
        make("construction", construction), DictionaryObjective(n_components=4, n_nonzero_coefs=2, max_iter=3)
    )


def test_a_stream_keeps_the_exact_totals() -> None:
    X = patches(20_000, flat=0.3)
    objective = DictionaryObjective(n_components=8, n_nonzero_coefs=2)
    stream = CoresetStream(objective, coreset_size=500, leaf_size=2000, random_state=0)
    for part in np.array_split(X, 7):
        stream.push(part)
    coreset = stream.coreset()
    want = [len(X), 16 * X.var(axis=1).sum(), (X**2).sum()]
    np.testing.assert_allclose(coreset.totals[0], want, rtol=1e-12)
    own = objective.survey(coreset, coreset.pilot).totals[0]
    np.testing.assert_allclose(own, want, rtol=0.02)


def test_error_halves_as_rows_quadruple() -> None:
    X = patches(8000, flat=0.2)
    block = Block(X=X)
    objective = DictionaryObjective(n_components=8, n_nonzero_coefs=2)
    atoms = objective.solve(block.cut(0, 500), rng=np.random.default_rng(0))
    full = objective.cost(block, atoms).sum()

    def rms(size: int) -> float:
        def share(seed: int) -> float:
            small = build_coreset(X, objective=objective, coreset_size=size, calibrate=False, random_state=seed)
            return small.weights() @ objective.cost(small, atoms) / full - 1.0

        return float(np.sqrt(np.mean([share(seed) ** 2 for seed in range(150)])))

    assert np.log2(rms(50) / rms(800)) / 4 == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0.0}, "beta=0 needs include_reference"),
        ({"n_reference": 3}, "one vector"),
        ({"include_reference": True, "positive": True, "reference": "singular"}, "negative entries"),
        ({"beta": 1.5}, "beta"),
        ({"reference": "median"}, "reference"),
        ({"n_components": 0}, "n_components"),
        ({"n_nonzero_coefs": True}, "n_nonzero_coefs"),
        ({"max_iter": 2.0}, "max_iter"),
    ],
)
def test_bad_parameters(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DictionaryObjective(**options)


def test_sparse_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="dense"):
        build_coreset(sparse.eye(50, format="csr"), objective="dictionary", coreset_size=10)


@pytest.mark.parametrize("reference", REFERENCES)
def test_rows_without_weight_have_no_say(reference: str) -> None:
    X = np.random.default_rng(0).normal(size=(300, 8))
    weight = np.repeat([0.0, 1.0], 150)
    objective = DictionaryObjective(n_components=6, n_nonzero_coefs=3, reference=reference, max_iter=2)
    for way in (objective.pilot, objective.solve):
        a = way(Block(X=X, sample_weight=weight), rng=np.random.default_rng(0))
        b = way(Block(X=X[150:]), rng=np.random.default_rng(0))
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-160, 1e-30, 1e140])
def test_scores_at_any_scale(scale: float) -> None:
    X = np.random.default_rng(0).normal(size=(300, 8)) * scale
    coreset = build_coreset(X, objective=DictionaryObjective(n_components=6), coreset_size=50, random_state=0)
    assert coreset.weights().sum() == pytest.approx(300)


@pytest.mark.parametrize(("count", "most"), [(1, 2), (2, 2), (5, 2), (16, 3)])
def test_errors_of_singular_vectors(count: int, most: int) -> None:
    """Orthonormal vectors: the best code takes the largest coefficients, at most ``most`` of them."""
    X = patches(300)
    objective = DictionaryObjective(n_components=8, n_nonzero_coefs=most, reference="singular", n_reference=count)
    block = Block(X=X)
    pilot = objective.pilot(block, rng=np.random.default_rng(0))
    squares = np.sort((X @ np.linalg.svd(X, full_matrices=False)[2][:count].T) ** 2, axis=1)
    want = (X**2).sum(axis=1) - squares[:, -most:].sum(axis=1)
    np.testing.assert_allclose(objective.survey(block, pilot).cost, want, atol=1e-9)


def test_numbers_of_atoms_and_subspaces_of_a_reference() -> None:
    block, rng = Block(X=patches(300)), np.random.default_rng(0)
    objective = DictionaryObjective(n_components=8, n_nonzero_coefs=2, reference="ksvd", n_reference=5)
    assert objective.pilot(block, rng=rng).shape == (5, 16)
    objective = DictionaryObjective(n_components=8, n_nonzero_coefs=2, reference="projective", n_reference=3)
    assert objective.pilot(block, rng=rng).shape == (3, 2, 16)


@pytest.mark.parametrize("options", [{}, {"reference": "singular", "n_reference": 2}])
def test_draws_by_error_alone(options) -> None:
    """p = err / cost, as in the paper. Rows that are never drawn have no error in dictionaries with the reference."""
    X = patches(1000)
    block, rng = Block(X=X), np.random.default_rng(0)
    objective = DictionaryObjective(n_components=6, n_nonzero_coefs=2, beta=0.0, include_reference=True, **options)
    pilot = objective.pilot(block, rng=rng)
    survey = objective.survey(block, pilot)
    p = objective.sensitivity(block, survey).at()
    np.testing.assert_allclose(p, survey.cost / survey.cost.sum(), rtol=1e-12)
    for atoms in [*objective.random_params(block, n_bases=2, rng=rng), objective.solve(block, rng=rng)]:
        count = objective.n_included(16)
        np.testing.assert_allclose(np.abs(atoms[:count] @ objective.reference_atoms(pilot).T), np.eye(count), atol=1e-9)
        cost = objective.cost(block, atoms)
        assert cost[p < 1e-20].sum() < 1e-20
        assert (cost <= survey.cost * (1.0 + 1e-12) + 1e-20).all()  # property (ii) of the paper


def test_random_queries_measure_the_distortion() -> None:
    X = patches(3000, flat=0.2)
    objective = DictionaryObjective(n_components=6, n_nonzero_coefs=2)
    queries = objective.random_params(Block(X=X), n_bases=2, rng=np.random.default_rng(0))
    assert len(queries) == 6 and {q.shape for q in queries} == {(6, 16)}
    coreset = build_coreset(X, objective=objective, coreset_size=600, random_state=0)
    result = distortion(X, coreset, objective, queries={"random": queries}).summary()["random"]
    assert 0.0 < result[1] < 0.2


@pytest.mark.parametrize("shape", [(2000, 520), (900, 600), (400, 1500), (30, 2000), (3, 800)])
@pytest.mark.parametrize("rank", [40, 2, 0])
def test_singular_vectors_of_any_shape_are_those_of_the_dense_product(rng, shape, rank: int) -> None:
    """By second moments, Lanczos' method or the decomposition of the rows: the same subspace, and orthonormal."""
    n, d = shape
    X = (rng.normal(size=(n, rank)) * 0.7 ** np.arange(rank)) @ rng.normal(size=(rank, d))
    weight = rng.uniform(0.5, 2.0, size=n)
    objective = DictionaryObjective(n_components=8, n_nonzero_coefs=5, reference="singular")
    values, vectors = np.linalg.eigh((X * weight[:, None]).T @ X)
    for scale in (1.0, 1e-150):
        pilot = objective.pilot(Block(X=X * scale, sample_weight=weight), rng=rng)[0]
        assert pilot.shape == (5, d)
        np.testing.assert_allclose(pilot @ pilot.T, np.eye(5), atol=1e-12)
        count = min(5, rank, n)  # the other vectors are any
        top = vectors[:, ::-1][:, :count].T
        np.testing.assert_allclose(np.linalg.norm(pilot[:count] @ top.T, axis=1), np.ones(count), atol=1e-9)
        left = values[: d - count].sum() if rank else 0.0
        assert weight @ objective.cost(Block(X=X), pilot[None]) == pytest.approx(left, rel=1e-6, abs=1e-8 * values[-1])


@pytest.mark.parametrize("reference", ["singular", "projective"])
def test_references_of_frames_of_a_film(rng, reference: str) -> None:
    """Their second moments, d x d, would take 80 GB."""
    scenes = rng.normal(size=(3, 100_000))
    X = scenes[rng.integers(3, size=24)] * rng.uniform(0.5, 2.0, size=(24, 1))
    objective = DictionaryObjective(n_components=6, n_nonzero_coefs=3, reference=reference)
    pilot = objective.pilot(Block(X=X), rng=rng)
    assert objective.cost(Block(X=X), pilot).sum() < 1e-12 * (X**2).sum()


def test_a_given_pilot_is_made_of_unit_vectors(rng) -> None:
    X = rng.normal(size=(300, 6))
    objective = DictionaryObjective(n_components=4, n_nonzero_coefs=2)
    options = {"objective": objective, "coreset_size": 50, "random_state": 0}
    atoms = np.linalg.qr(rng.normal(size=(6, 6)))[0][:4]
    bases = atoms.reshape(2, 2, 6)
    for good in (atoms, atoms[:1], bases, X.mean(axis=0)):
        assert build_coreset(X, pilot=good, **options).pilot.shape == good.shape
    longer, oblique = atoms.copy(), bases.copy()
    longer[2] *= 1.01
    oblique[1, 1] = (oblique[1, 0] + oblique[1, 1]) / 2**0.5
    for bad, message in ((longer, "number 2 is no atom, whose length must be 1"), (oblique, "number 1 is no subspace")):
        with pytest.raises(ValueError, match=message):
            build_coreset(X, pilot=bad, **options)
