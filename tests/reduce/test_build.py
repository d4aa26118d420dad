from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from leaf_source import LeafSource
from scipy import sparse

import tithe
from tithe import Block, build_coreset
from tithe.core.contracts import Objective
from tithe.core.parallel import limit_threads
from tithe.core.passes import SerialEngine
from tithe.objectives import KMeansObjective, KMedianObjective, LogisticObjective
from tithe.reduce.distortion import ratio_error
from tithe.rows.arrays import check_weights

KMEANS = KMeansObjective(n_clusters=4)


def same(a: tithe.Coreset, b: tithe.Coreset) -> bool:
    return np.array_equal(a.row_ids(), b.row_ids()) and np.array_equal(a.weights(), b.weights())


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(6000, 3)) + rng.choice([0.0, 9.0], (6000, 1))


def test_every_kind_of_table_gives_the_same_coreset(X: np.ndarray, tmp_path) -> None:
    np.save(tmp_path / "rows.npy", X)
    columns = {f"c{j}": X[:, j] for j in range(3)}
    tables = {
        "fortran": np.asfortranarray(X),
        "list": X.tolist(),
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "arrow": pa.table(columns),
        "memmap": np.load(tmp_path / "rows.npy", mmap_mode="r"),
    }
    want = build_coreset(X, objective=KMEANS, coreset_size=300, random_state=0)
    for name, table in tables.items():
        got = build_coreset(table, objective=KMEANS, coreset_size=300, random_state=0)
        assert same(got, want), name
        assert not isinstance(got.X, np.memmap)


def test_csr_integers_and_float32(X: np.ndarray) -> None:
    csr = build_coreset(sparse.csr_matrix(X), objective=KMEANS, coreset_size=300, random_state=0)
    assert sparse.issparse(csr.X) and csr.weights().sum() == pytest.approx(6000)
    small = build_coreset(X.astype(np.float32), objective=KMEANS, coreset_size=300, random_state=0)
    assert small.X.dtype == np.float32
    whole = build_coreset(X.round().astype(int), objective=KMEANS, coreset_size=300, random_state=0)
    assert whole.X.dtype == np.float64


def test_ids_point_to_the_original_rows(X: np.ndarray) -> None:
    y = np.arange(6000)
    for rows in (X, [(X[:4000], y[:4000]), (X[4000:], y[4000:])]):
        kwargs = {} if isinstance(rows, list) else {"y": y}
        coreset = build_coreset(rows, **kwargs, objective=KMEANS, coreset_size=300, random_state=0)
        np.testing.assert_array_equal(coreset.X, X[coreset.row_ids()])
        np.testing.assert_array_equal(coreset.y, coreset.row_ids())


def test_weights_in_every_form(X: np.ndarray, rng: np.random.Generator) -> None:
    u = rng.random(6000)
    a = build_coreset(X, sample_weight=u, objective=KMEANS, coreset_size=300, random_state=0)
    b = build_coreset(X, sample_weight=pd.Series(u), objective=KMEANS, coreset_size=300, random_state=0)
    c = build_coreset([(X, None, u)], objective=KMEANS, coreset_size=300, random_state=0)
    assert same(a, b)
    assert a.weight_seen == pytest.approx(u.sum()) == c.weight_seen
    assert a.weights().sum() == pytest.approx(u.sum(), rel=1e-3)


def test_weights_are_of_the_type_that_kernels_were_compiled_for() -> None:
    fixed = np.arange(1.0, 9.0)
    fixed.flags.writeable = False
    for weight in (fixed, np.arange(1.0, 17.0)[::2]):
        checked = check_weights(weight, 8)
        assert checked.flags.writeable and checked.flags.c_contiguous and np.array_equal(checked, weight)


@pytest.mark.parametrize("construction", ["uniform", "sensitivity", "lightweight", "rings"])
@pytest.mark.parametrize("calibrate", [False, True])
@pytest.mark.bits
def test_same_seed_same_bits_whatever_the_threads(construction: str, calibrate: bool, skewed: Block) -> None:
    found = []
    for threads, engine in ((1, "serial"), (2, "threads"), (3, "auto")):
        with limit_threads(threads):
            found.append(
                build_coreset(
                    skewed.X,
                    objective=KMEANS,
                    construction=construction,
                    coreset_size=400,
                    calibrate=calibrate,
                    engine=engine,
                    random_state=7,
                )
            )
    assert same(found[0], found[1]) and same(found[0], found[2])
    assert found[0].provenance["construction"] == construction
    assert found[0].provenance["calibrated"] == int(calibrate)


@pytest.mark.bits
def test_batches_of_any_size_are_the_same_stream(skewed: Block) -> None:
    rows = np.tile(skewed.X, (3, 1))
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(len(rows), 200, replace=False))
    whole = build_coreset(iter([rows]), objective=KMEANS, coreset_size=500, random_state=1)
    assert whole.key[0] >= 1, "the test must go through a merge"
    for batches in (np.split(rows, cuts), np.array_split(rows, 2), (pd.DataFrame(b) for b in np.array_split(rows, 5))):
        assert same(build_coreset(batches, objective=KMEANS, coreset_size=500, random_state=1), whole)


def test_a_stream_costs_little_against_the_array(skewed: Block) -> None:
    rows = np.tile(skewed.X, (5, 1))
    query = skewed.X[:4]
    full = KMEANS.cost(Block(X=rows), query).sum()
    errors = []
    for seed in range(8):
        coreset = build_coreset(np.array_split(rows, 7), objective=KMEANS, coreset_size=1000, random_state=seed)
        errors.append(ratio_error(float(KMEANS.cost(coreset, query) @ coreset.weights()), full))
    assert np.median(errors) < 0.02


@pytest.mark.parametrize("objective", [KMEANS, pytest.param(KMedianObjective(n_clusters=4), marks=pytest.mark.slow)])
def test_the_tree_is_unbiased(objective) -> None:
    """Plain draws through several levels of merging: the mean error is within four standard errors of zero."""
    from leaf_source import fold

    from tithe.reduce.draws import Sensitivity
    from tithe.reduce.plan import Plan, Reducer
    from tithe.testing.checks import small_problem

    block = small_problem(640)
    query = block.X[:4]
    full = objective.cost(block, query) @ block.weights()
    parts = [block.take(p) for p in np.array_split(np.arange(640), 16)]
    errors = []
    for seed in range(150):
        plan = Plan.of(objective, Sensitivity(), size=30, calibrate=False, seed=seed)
        pilot = objective.pilot(parts[0], rng=np.random.default_rng(seed))
        reducer = Reducer(plan=plan, objective=objective, construction=plan.construction, totals=False, pilot=pilot)
        leaves = (reducer.leaf(part, (0, i)) for i, part in enumerate(parts))
        root = fold(leaves, reducer.merge)
        assert root.key == (4, 0)
        errors.append(objective.cost(root, query) @ root.weights() / full - 1.0)
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(len(errors))


def test_at_least_as_many_rows_as_there_are(X: np.ndarray) -> None:
    for size in (6000, 10**9):
        coreset = build_coreset(X, objective=KMEANS, coreset_size=size, random_state=0)
        assert len(coreset) == 6000 and np.all(coreset.weights() == 1.0)
        assert coreset.provenance["construction"] == "all"
    zero = np.where(np.arange(6000) < 5, 0.0, 1.0)
    assert len(build_coreset(X, sample_weight=zero, objective=KMEANS, coreset_size=6000)) == 5995


def test_csr_entries_stored_twice_are_added_up(X: np.ndarray) -> None:
    plain = sparse.csr_matrix(X)
    halves = sparse.csr_matrix(
        (np.repeat(plain.data / 2, 2), np.repeat(plain.indices, 2), plain.indptr * 2), shape=plain.shape
    )
    a, b = (build_coreset(m, objective=KMEANS, coreset_size=300, random_state=0) for m in (plain, halves))
    assert same(a, b)
    assert halves.nnz == 2 * plain.nnz, "the caller's matrix must not be changed"
    broken = plain.copy()
    broken.indices[0] = 10**6
    with pytest.raises(ValueError, match="indices"):
        build_coreset(broken, objective=KMEANS, coreset_size=300)


def test_wide_sparse_rows_stay_sparse() -> None:
    """A dense copy of these rows would take 16 GB."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, 500_000, (4000, 10)), axis=1).ravel()
    rows = sparse.csr_matrix((rng.random(40_000), columns, np.arange(0, 40_001, 10)), shape=(4000, 500_000))
    for objective in (KMEANS, tithe.objectives.GenericObjective()):
        coreset = build_coreset(rows, objective=objective, coreset_size=200, random_state=0)
        assert coreset.weights().sum() == pytest.approx(4000, rel=0.2)


def test_weight_on_a_few_rows_only(X: np.ndarray) -> None:
    rows = np.tile(X, (10, 1))
    weight = np.zeros(len(rows))
    weight[::7000] = 1.0
    for seed in range(10):
        coreset = build_coreset(rows, sample_weight=weight, objective=KMEANS, coreset_size=500, random_state=seed)
        assert coreset.weights().sum() == pytest.approx(weight.sum())


@pytest.mark.parametrize("construction", ["uniform", "sensitivity", "lightweight", "rings"])
@pytest.mark.bits
def test_weights_that_change_along_a_stream(construction: str) -> None:
    """Batches of ones, of twos and of zeros: still the same bits for any size of batches."""
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(150_000, 2)), np.ones(150_000)
    weight[100_000:] = 2.0
    weight[:30] = 0.0
    found = []
    for edges in ([0], [0, 50_000, 100_000], [0, 10, 20, 30, 7000, 99_990, 100_010]):
        cuts = [*edges, len(rows)]
        found.append(
            build_coreset(
                [(rows[a:b], None, weight[a:b]) for a, b in itertools.pairwise(cuts)],
                objective=KMEANS,
                construction=construction,
                coreset_size=300,
                random_state=0,
            )
        )
    assert same(found[0], found[1]) and same(found[0], found[2])


@pytest.mark.parametrize("objective", [KMeansObjective(n_clusters=1), tithe.objectives.GenericObjective()])
@pytest.mark.bits
def test_blas_threads_do_not_change_a_bit(objective) -> None:
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 200))
    found = []
    for n in (1, 2):
        with threadpool_limits(n, user_api="blas"):
            found.append(build_coreset(rows, rows[:, 0], objective=objective, coreset_size=3000, random_state=0))
    assert same(*found)


def test_lightweight_is_calibrated_to_the_mean_of_float32_rows() -> None:
    rows = (np.random.default_rng(0).normal(size=(50_000, 2)) + 1e6).astype(np.float32)
    coreset = build_coreset(rows, objective=KMEANS, construction="lightweight", coreset_size=3000, random_state=0)
    mean = coreset.weights() @ coreset.X.astype(float) / coreset.weights().sum()
    np.testing.assert_allclose(mean, rows.mean(axis=0, dtype=float), atol=1e-4)


def test_fraction_of_the_rows(X: np.ndarray) -> None:
    assert len(build_coreset(X, objective=KMEANS, construction="uniform", coreset_size=0.1)) == 600


class _Bare(Objective):
    """The least an objective can be."""

    name = "bare"

    def solve(self, block, *, rng, init=None):
        return None

    def cost(self, block, params):
        return np.ones(len(block))


def test_an_objective_of_ones_own(X: np.ndarray) -> None:
    coreset = build_coreset(X, objective=_Bare(), coreset_size=100, calibrate=False, random_state=0)
    assert coreset.provenance["construction"] == "uniform" and len(coreset) == 100
    missing = r"calibrate=True needs .* SampledObjective .*; _Bare lacks moments\(\), pilot\(\), survey\(\)"
    with pytest.raises(ValueError, match=missing):
        build_coreset(X, objective=_Bare(), coreset_size=100)
    with pytest.raises(ValueError, match=r"'sensitivity' needs .* SensitivityObjective .* sensitivity\(\)"):
        build_coreset(X, objective=_Bare(), construction="sensitivity", coreset_size=100, calibrate=False)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("construction", ["sensitivity", "lightweight", "rings"])
def test_extreme_scales(X: np.ndarray, scale: float, dtype: type, construction: str) -> None:
    rows = (X * scale).astype(dtype)
    coreset = build_coreset(rows, objective=KMEANS, construction=construction, coreset_size=500, random_state=0)
    assert coreset.weights().sum() == pytest.approx(6000, rel=0.05)
    query = rows[:4].astype(float)
    full = KMEANS.cost(Block(X=rows), query).sum()
    assert ratio_error(float(KMEANS.cost(coreset, query) @ coreset.weights()), full) < 0.1


def test_a_million_away_in_float32(X: np.ndarray) -> None:
    rows = (X + 1e6).astype(np.float32)
    coreset = build_coreset(rows, objective=KMEANS, coreset_size=500, random_state=0)
    query = rows[:4].astype(float)
    full = ((rows[:, None].astype(float) - query) ** 2).sum(2).min(1).sum()
    assert ratio_error(float(KMEANS.cost(coreset, query) @ coreset.weights()), full) < 0.05


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning:numpy")
def test_too_large_to_add_up() -> None:
    with pytest.raises(ValueError, match="Rescale"):
        build_coreset(np.full((10, 1), 1.7e308), objective=KMEANS, coreset_size=5)


@pytest.mark.parametrize("construction", ["uniform", "sensitivity", "lightweight", "rings"])
def test_degenerate_rows(construction: str) -> None:
    same_rows = np.full((500, 2), 7.0)
    few = np.repeat([[0.0, 0.0], [5.0, 5.0]], 250, axis=0)
    constant = np.column_stack([np.zeros(500), np.random.default_rng(0).normal(size=500)])
    for rows in (same_rows, few, constant):
        coreset = build_coreset(rows, objective=KMEANS, construction=construction, coreset_size=100, random_state=0)
        assert coreset.weights().sum() == pytest.approx(500, rel=0.02)
        assert np.isfinite(coreset.weights()).all() and (coreset.weights() > 0).all()


def test_calibration_pays(skewed: Block) -> None:
    """Over queries independent of the coreset: calibrated << plain, and << uniform."""
    from tithe.reduce.distortion import random_queries

    queries = random_queries(skewed, KMeansObjective(n_clusters=4), n_bases=3, seed=5)
    full = [KMEANS.cost(skewed, q).sum() for q in queries]

    def typical(**options) -> float:
        errors = []
        for seed in range(7):
            coreset = build_coreset(skewed.X, objective=KMEANS, coreset_size=600, random_state=seed, **options)
            errors.append(
                [
                    ratio_error(float(KMEANS.cost(coreset, q) @ coreset.weights()), f)
                    for q, f in zip(queries, full, strict=True)
                ]
            )
        return float(np.median(errors))

    calibrated, plain = typical(), typical(calibrate=False)
    uniform = typical(construction="uniform", calibrate=False)
    assert calibrated < plain / 4
    assert calibrated < uniform / 4


class _Compiling(SerialEngine):
    """Calls the work that compiles at once, and notes what it is for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def warm_up(self, name, work) -> None:
        work()
        self.names.append(name)


@pytest.mark.parametrize("objective", [KMeansObjective(n_clusters=3), LogisticObjective()])
def test_workers_can_compile_before_leaves_come(rng, objective) -> None:
    X = rng.normal(size=(3000, 3))
    source = LeafSource.cut(X, (X[:, 0] > 1.5).astype(int), at=[1000, 2000])
    engine = _Compiling()
    options = {"objective": objective, "coreset_size": 500, "random_state": 0}
    coreset = build_coreset(source, engine=engine, **options)
    assert engine.names == [f"{objective.name} {coreset.provenance['construction']} float64"]
    assert np.array_equal(coreset.X, build_coreset(source, engine="serial", **options).X)
