"""Learners that read their rows leaf by leaf."""

from __future__ import annotations

import numpy as np
import pytest
from classed_rows import UNEVEN, classed_rows
from leaf_source import LeafSource
from scipy import sparse
from sklearn.linear_model import Ridge

from tithe import (
    Block,
    Checkpoint,
    CoresetEstimator,
    CoresetKMeans,
    CoresetKMedians,
    CoresetLogisticRegression,
    choose_k,
)
from tithe.core.parallel import limit_threads
from tithe.dictionary import KSVD
from tithe.objectives import LogisticObjective
from tithe.odm import LinearODMClassifier

BOTH = pytest.mark.parametrize("kind", [CoresetKMeans, CoresetKMedians])


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return classed_rows()


def same(a, b) -> bool:
    return np.array_equal(a, b)


# -- clusters ----------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix, np.float32])
@pytest.mark.bits
def test_one_leaf_is_the_array_bit_for_bit(kind, weighted: bool, layout, rows) -> None:
    X, _, weight = rows
    X, weight = layout(X), weight if weighted else None
    array = kind(5, coreset_size=600, random_state=2).fit(X, sample_weight=weight)
    source = LeafSource.cut(X, sample_weight=weight, at=[])
    model = kind(5, coreset_size=600, random_state=2).fit(source)
    assert same(model.cluster_centers_, array.cluster_centers_) and model.cluster_centers_.dtype == X.dtype
    assert model.certificate_.value == pytest.approx(array.certificate_.value, rel=1e-14)  # BLAS has its own order
    assert same(model.sample_indices_, array.sample_indices_)
    assert source.n_reads == 1 + model.certificate_.passes
    assert not hasattr(model, "labels_")
    assert same(model.predict(X), array.labels_)


@BOTH
def test_the_certificate_of_many_leaves_is_the_exact_cost(kind, rows) -> None:
    X, _, weight = rows
    model = kind(5, coreset_size=600, random_state=2).fit(LeafSource.cut(X, sample_weight=weight, at=UNEVEN))
    distance = np.linalg.norm(X[:, None] - model.cluster_centers_[None], axis=2).min(axis=1)
    exact = weight @ distance ** (2 if kind is CoresetKMeans else 1)
    assert model.certificate_.kind == "exact" and model.certificate_.n_rows == 40_000
    assert model.certificate_.value == pytest.approx(exact, rel=1e-12)
    assert model.inertia_ == model.certificate_.value
    again = model.certify(LeafSource.cut(X, sample_weight=weight, at=UNEVEN[::2]))
    assert again.value == pytest.approx(exact, rel=1e-12) and again.n_rows == 40_000
    np.testing.assert_array_equal(X[model.sample_indices_], model.coreset_.X)
    array = kind(5, coreset_size=600, random_state=2).fit(X, sample_weight=weight)
    assert model.inertia_ == pytest.approx(array.inertia_, rel=0.05)


@BOTH
@pytest.mark.bits
def test_engines_and_threads_are_no_matter(kind, rows) -> None:
    X, _, weight = rows
    found = []
    for engine, n_threads in (("serial", 1), ("serial", 2), ("threads", 1), ("threads", 2), ("auto", 3)):
        with limit_threads(n_threads):
            source = LeafSource.cut(X, sample_weight=weight, at=UNEVEN)
            found.append(kind(5, coreset_size=600, engine=engine, polish=3, random_state=2).fit(source))
    for other in found[1:]:
        assert same(other.cluster_centers_, found[0].cluster_centers_)
        assert other.objective_curve_ == found[0].objective_curve_


@BOTH
@pytest.mark.parametrize("known", [True, False])
def test_few_rows_are_all_used(kind, known: bool, rows) -> None:
    X, weight = rows[0][:900], np.where(np.arange(900) % 7 == 0, 0.0, rows[2][:900])
    array = kind(3, random_state=0).fit(X, sample_weight=weight)
    source = LeafSource.cut(X, sample_weight=weight, at=[100, 100, 333], known=known)
    model = kind(3, random_state=0).fit(source)
    assert model.coreset_.provenance["construction"] == "all" and source.n_reads == 1
    np.testing.assert_allclose(model.cluster_centers_, array.cluster_centers_, rtol=1e-12)
    assert model.certificate_.value == pytest.approx(array.certificate_.value, rel=1e-12)
    assert model.certificate_.n_rows == 900


@BOTH
def test_rows_that_come_once(kind, rows) -> None:
    X, _, weight = rows
    model = kind(5, coreset_size=600, random_state=2).fit(
        LeafSource.cut(X, sample_weight=weight, at=UNEVEN, replayable=False, known=False)
    )
    assert model.certificate_ is None and len(model.objective_curve_) == 1
    assert model.inertia_ == pytest.approx(model.certify(X, sample_weight=weight).value, rel=0.1)
    with pytest.raises(ValueError, match="only once"):
        kind(5, polish=2).fit(LeafSource.cut(X, at=UNEVEN, replayable=False))
    kind(5, polish=0, coreset_size=600).fit(LeafSource.cut(X, at=UNEVEN, replayable=False))


def test_what_a_source_refuses(rows) -> None:
    X, y, weight = rows
    source = LeafSource.cut(X[:50], y[:50], at=[10])
    for extra in ({"y": y[:50]}, {"sample_weight": weight[:50]}):
        with pytest.raises(ValueError, match="come with the rows of a source"):
            CoresetLogisticRegression().fit(source, **extra)
    with pytest.raises(ValueError, match=r"n_samples=50 should be >= n_clusters=60"):
        CoresetKMeans(60).fit(source)
    with pytest.raises(ValueError, match=r"n_samples=50 should be >= n_clusters=60"):
        CoresetKMeans(60).fit(LeafSource.cut(X[:50], at=[10], known=False))
    with pytest.raises(ValueError, match="must be an integer here"):
        CoresetKMeans(6, coreset_size=0.5).fit(LeafSource.cut(X[:50], at=[10], known=False))
    model = CoresetKMeans(2, random_state=0).fit(source)
    with pytest.raises(ValueError, match="is expecting 4 features"):
        model.certify(LeafSource.cut(X[:50, :3], at=[]))


def test_names_of_columns(rows) -> None:
    source = LeafSource.cut(rows[0][:50], at=[10])
    source.feature_names = ["a", "b", "c", "d"]
    model = CoresetKMeans(2, random_state=0).fit(source)
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]
    source.feature_names = ["a", "b", "d", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.certify(source)
    model.fit(LeafSource.cut(rows[0][:50], at=[10]))
    assert not hasattr(model, "feature_names_in_") and model.n_features_in_ == 4


@pytest.mark.parametrize("known", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_choose_k(known: bool, rows) -> None:
    X = rows[0]
    one = choose_k(LeafSource.cut(X, at=[], known=known), coreset_size=500, max_clusters=8, random_state=0)
    array = choose_k(X, coreset_size=500, max_clusters=8, random_state=0)
    assert one.curve == array.curve and one.k == array.k
    assert choose_k(LeafSource.cut(X, at=UNEVEN, known=known), coreset_size=500, max_clusters=8).k >= 1
    few = choose_k(LeafSource.cut(X[:5], at=[2], known=known), rule="budget", budget=0.0, random_state=0)
    assert max(few.curve) <= 5
    with pytest.raises(ValueError, match="come with the rows"):
        choose_k(LeafSource.cut(X, at=[]), sample_weight=rows[2])


# -- logistic regression -------------------------------------------------------------------------


def excess(model: CoresetLogisticRegression, X, y, weight=None) -> float:
    objective = LogisticObjective(classes=tuple(model.classes_.tolist()), C=model.C, fit_intercept=model.fit_intercept)
    block = Block(X=X, y=y, sample_weight=weight)
    params = np.column_stack([model.coef_, model.intercept_])
    best = objective.solve(block, rng=np.random.default_rng(0))
    return objective.evaluate(block, params).value - objective.evaluate(block, best).value


@pytest.mark.parametrize("options", [{}, {"polish": 2}, {"class_weight": "balanced"}, {"construction": "regressed"}])
@pytest.mark.bits
def test_one_leaf_of_sparse_rows_is_the_matrix_bit_for_bit(options, rows) -> None:
    """Sparse columns are not centred, so nothing depends on where their mean is taken from."""
    X, y, weight = sparse.csr_matrix(rows[0]), rows[1], rows[2]
    array = CoresetLogisticRegression(coreset_size=800, random_state=1, **options).fit(X, y, weight)
    model = CoresetLogisticRegression(coreset_size=800, random_state=1, **options).fit(
        LeafSource.cut(X, y, weight, at=[])
    )
    assert same(model.classes_, array.classes_)
    assert same(model.coef_, array.coef_) and same(model.intercept_, array.intercept_)
    assert model.objective_curve_ == array.objective_curve_ and model.certificate_ == array.certificate_
    assert hasattr(model, "sensitivity_model_") == ("construction" in options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_the_gap_of_many_leaves(weighted: bool, layout, rows) -> None:
    X, y, weight = rows
    weight = weight if weighted else None
    source = LeafSource.cut(layout(X), y, weight, at=UNEVEN)
    model = CoresetLogisticRegression(coreset_size=800, polish=1, random_state=1).fit(source)
    gap = excess(model, X, y, weight)
    assert 0.0 <= gap <= model.certificate_.bound
    assert model.certificate_.n_rows == 40_000
    array = CoresetLogisticRegression(coreset_size=800, polish=1, random_state=1).fit(layout(X), y, weight)
    exact = array.set_params(warm_start=True)
    exact.coef_, exact.intercept_, exact.coreset_ = model.coef_, model.intercept_, model.coreset_
    again, there = model.certify(source), exact.certify(layout(X), y, weight)
    assert again.bound == pytest.approx(there.bound, rel=1e-6)
    assert again.value == pytest.approx(there.value, rel=1e-3)  # columns are centred at the mean of the coreset
    assert model.n_passes_ == model.certificate_.passes + 2  # to reduce, and to find the classes
    sharp = CoresetLogisticRegression(coreset_size=800, tol=1e-8, random_state=1).fit(source)
    assert excess(sharp, X, y, weight) <= 1e-7 * sharp.objective_curve_[-1]
    assert sharp.objective_curve_ == sorted(sharp.objective_curve_, reverse=True)


@pytest.mark.bits
def test_engines_and_threads_are_no_matter_to_logistic_regression(rows) -> None:
    X, y, weight = rows
    found = []
    for engine, n_threads in (("serial", 1), ("serial", 2), ("threads", 1), ("threads", 2)):
        with limit_threads(n_threads):
            source = LeafSource.cut(X, y, weight, at=UNEVEN)
            found.append(CoresetLogisticRegression(coreset_size=800, engine=engine, random_state=2).fit(source))
    for other in found[1:]:
        assert same(other.coef_, found[0].coef_) and other.objective_curve_ == found[0].objective_curve_
        assert other.certificate_ == found[0].certificate_


def test_few_rows_with_classes_are_all_used(rows) -> None:
    X, y, weight = (part[:900] for part in rows)
    for options in ({}, {"class_weight": "balanced"}, {"class_weight": {"no": 3.0}}):
        array = CoresetLogisticRegression(random_state=0, **options).fit(X, y, weight)
        model = CoresetLogisticRegression(random_state=0, **options).fit(
            LeafSource.cut(X, y, weight, at=[100, 100, 333], known=False)
        )
        assert model.coreset_.provenance["construction"] == "all"
        np.testing.assert_allclose(model.coef_, array.coef_, rtol=1e-9, atol=1e-12)
        assert model.certificate_.n_rows == 900
        assert model.objective_curve_[-1] == pytest.approx(array.objective_curve_[-1], rel=1e-12)


@pytest.mark.parametrize("class_weight", ["balanced", {"no": 2.0, "yes": 0.5}])
def test_class_weights_are_weights(class_weight, rows) -> None:
    X, y, weight = rows
    model = CoresetLogisticRegression(coreset_size=800, class_weight=class_weight, random_state=1).fit(
        LeafSource.cut(X, y, weight, at=UNEVEN)
    )
    if class_weight == "balanced":
        mass = {label: weight[y == label].sum() for label in set(y)}
        class_weight = {label: weight.sum() / (3 * m) for label, m in mass.items()}
    heavy = weight * np.array([class_weight.get(label, 1.0) for label in y])
    assert 0.0 <= excess(model, X, y, heavy) <= model.certificate_.bound
    assert model.certificate_.relative_excess < 1e-4


def test_a_class_in_the_last_leaf_only(rows) -> None:
    X, _, _ = rows
    y = np.where(np.arange(40_000) >= 39_990, "late", np.where(X[:, 0] > 3.0, "a", "b"))
    source = LeafSource.cut(X, y, at=[10_000, 20_000, 39_990])
    model = CoresetLogisticRegression(coreset_size=800, random_state=1).fit(source)
    assert model.classes_.tolist() == ["a", "b", "late"]
    assert (model.classes_[model.coreset_.y] == "late").any()
    assert excess(model, X, y) <= model.certificate_.bound
    source.classes = lambda: np.array(["a", "b", "late"])
    reads = source.n_reads
    again = CoresetLogisticRegression(coreset_size=800, random_state=1).fit(source)
    assert same(again.coef_, model.coef_) and source.n_reads - reads == again.n_passes_ == model.n_passes_ - 1


def test_classes_that_cannot_be(rows) -> None:
    X, y, weight = (part[:3000] for part in rows)
    with pytest.raises(ValueError, match="only one class"):
        CoresetLogisticRegression().fit(LeafSource.cut(X, np.zeros(3000), at=[5, 50]))
    with pytest.raises(ValueError, match="gives no y"):
        CoresetLogisticRegression().fit(LeafSource.cut(X, at=[5, 50]))
    with pytest.raises(ValueError, match="Unknown label type"):
        CoresetLogisticRegression().fit(LeafSource.cut(X, X[:, 0], at=[5, 50]))
    nothing = np.where(y == "yes", 0.0, weight)
    with pytest.raises(ValueError, match="Class 'yes' has no row of positive weight"):
        CoresetLogisticRegression(coreset_size=100).fit(LeafSource.cut(X, y, nothing, at=[5, 50]))
    once = LeafSource.cut(X, y, at=[1000], replayable=False)
    with pytest.raises(ValueError, match="give the weights as a dict"):
        CoresetLogisticRegression(class_weight="balanced").fit(once)


def test_classes_of_rows_that_come_once(rows) -> None:
    X, y, weight = rows
    model = CoresetLogisticRegression(coreset_size=2000, random_state=1).fit(
        LeafSource.cut(X, y, weight, at=[10_000, 30_000], replayable=False, known=False)
    )
    assert model.certificate_ is None and model.n_passes_ == 1
    assert model.certify(X, y, weight).relative_excess < 0.02
    assert model.coreset_.provenance["calibrated"] == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: CoresetKMeans(4, coreset_size=300, random_state=0),
        lambda: CoresetLogisticRegression(coreset_size=300, class_weight={1.0: 2.0}, random_state=0),
        lambda: LinearODMClassifier(coreset_size=300, random_state=0),
        lambda: CoresetEstimator(Ridge(), coreset_size=300, random_state=0),
        lambda: KSVD(6, coreset_size=300, center="global", max_iter=2, random_state=0),
    ],
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_fit_that_was_stopped_goes_on(make, error: type[BaseException], rows, tmp_path) -> None:
    X, weight = rows[0], rows[2]
    source = LeafSource.cut(X, (X[:, 0] > 3.0).astype(float), weight, at=[5000 * i for i in range(1, 8)])
    source.classes = lambda: np.array([0.0, 1.0])
    straight = make().fit(source)
    checkpoint = Checkpoint(tmp_path / "state", every=30.0 if error is KeyboardInterrupt else 0.0)

    def stop(n_passes: int, n_leaves: int, n_rows: int) -> None:
        if n_passes == reduce_pass and n_leaves == 5:
            raise error

    reduce_pass = 1 + isinstance(straight, KSVD)  # which takes the mean of all rows first
    with pytest.raises(error):
        make().fit(source, checkpoint=checkpoint, progress=stop)
    told: list[tuple[int, int, int]] = []
    resumed = make().fit(source, checkpoint=checkpoint, progress=lambda *at: told.append(at))
    assert [n_leaves for n_passes, n_leaves, _ in told if n_passes == reduce_pass] == [1, 2, 3], "not all over again"
    for name in ("X", "sample_weight", "indices"):
        assert same(getattr(resumed.coreset_, name), getattr(straight.coreset_, name)), name
    for name in {"cluster_centers_", "coef_", "components_"} & set(vars(straight)):
        assert same(getattr(resumed, name), getattr(straight, name)), name
    with pytest.raises(ValueError, match="another run"):
        make().set_params(random_state=1).fit(source, checkpoint=checkpoint)
    make().set_params(random_state=1).fit(source, checkpoint=Checkpoint(checkpoint.path, resume=False))


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_passes_are_counted_as_the_source_is_read(class_weight, rows) -> None:
    X, y, weight = rows
    source, told = LeafSource.cut(X, y, weight, at=UNEVEN), []
    model = CoresetLogisticRegression(coreset_size=900, class_weight=class_weight, random_state=1)
    model.fit(source, progress=lambda *at: told.append(at))
    assert model.n_passes_ == source.n_reads == told[-1][0]
    n_rows = np.cumsum([len(leaf) for leaf in source.leaves])
    for number in range(1, model.n_passes_ + 1):
        assert [at[1:] for at in told if at[0] == number] == list(enumerate(n_rows, 1))


@pytest.mark.parametrize("progress", [3, "yes"])
def test_progress_is_called_or_shown(progress, rows) -> None:
    with pytest.raises(ValueError, match="progress must be"):
        CoresetKMeans(3).fit(rows[0], progress=progress)
