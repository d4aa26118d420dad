"""Searches over rows that are read leaf by leaf."""

from __future__ import annotations

import numpy as np
import pytest
from leaf_source import LeafSource
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold

from tithe import Block, Checkpoint, CoresetKMeans, CoresetLogisticRegression, CoresetSearchCV
from tithe.core.seeding import Reservoir, fold_of, hashed, uniform_of
from tithe.meta.search import folds
from tithe.meta.search.folds import Shares

GRID = {"C": [1e-5, 1e-3, 1.0]}
UNEVEN = [1, 1, 3000, 3100, 21_000, 21_000, 29_998]


@pytest.fixture(scope="module")
def classes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 5)) * [1.0, 2.0, 0.5, 1.0, 3.0]
    chance = 1 / (1 + np.exp(-(X @ [1.5, -1.0, 0.5, 0.0, 0.2] - 2.0)))
    return X, np.where(rng.random(30_000) < chance, "rare", "usual"), rng.exponential(size=30_000)


def test_hashes_are_as_even_as_random_numbers() -> None:
    ids = np.arange(100_000)
    for key in (0, 1, 2**64 - 1):
        share = uniform_of(ids, key)
        assert share.min() >= 0.0 and share.max() < 1.0
        counts = np.histogram(share, bins=50, range=(0, 1))[0]
        assert ((counts - 2000) ** 2 / 2000).sum() < 100  # chi-squared with 49 degrees of freedom
        assert abs(np.corrcoef(share[:-1], share[1:])[0, 1]) < 0.02
        assert len(np.unique(hashed(ids, key))) == 100_000
    assert abs(np.corrcoef(uniform_of(ids, 1), uniform_of(ids, 2))[0, 1]) < 0.02
    assert np.bincount(fold_of(ids, 7, 3)).min() > 33_000


@pytest.mark.bits
def test_a_reservoir_is_the_same_in_any_pieces_and_order() -> None:
    rng = np.random.default_rng(0)
    block = Block(X=np.arange(5000.0)[:, None], indices=np.arange(5000) * 3)
    whole = Reservoir(size=70, key=9)
    whole.keep(whole.among(block))
    assert len(whole.rows()) == 70 and (np.diff(whole.rows().row_ids()) > 0).all()
    pieces = Reservoir(size=70, key=9)
    edges = [0, *np.sort(rng.choice(5000, 200)), 5000]
    for i in rng.permutation(len(edges) - 1):
        pieces.keep(pieces.among(block.cut(edges[i], edges[i + 1])))
    assert len(pieces.parts) < 20
    np.testing.assert_array_equal(pieces.rows().row_ids(), whole.rows().row_ids())
    np.testing.assert_array_equal(pieces.rows().X[:, 0] * 3, pieces.rows().row_ids())


@pytest.mark.parametrize("inner", [LogisticRegression(), CoresetLogisticRegression(random_state=0)])
def test_every_row_is_held_out_once_and_scores_are_exact(inner, classes) -> None:
    X, y, weight = classes
    source = LeafSource.cut(X, y, weight, at=UNEVEN)
    search = CoresetSearchCV(inner, GRID, coreset_size=600, scoring="neg_log_loss", cv=3, random_state=0).fit(source)
    key = Shares(seed=0, n_folds=3, n_classes=2).key
    fold = fold_of(np.arange(30_000), key, 3)
    assert search.n_splits_ == len(search.coresets_) == 3
    for j, coreset in enumerate(search.coresets_):
        test = fold == j
        assert len(coreset) <= 600 and coreset.n_seen == (~test).sum()
        assert (fold[coreset.row_ids()] != j).all()
        assert coreset.weights().sum() == pytest.approx(weight[~test].sum(), rel=1e-6)
        np.testing.assert_array_equal(coreset.X, X[coreset.row_ids()])
        np.testing.assert_array_equal(np.array(["rare", "usual"])[coreset.y], y[coreset.row_ids()])
        if isinstance(inner, CoresetLogisticRegression):
            continue
        for i, C in enumerate(GRID["C"]):
            model = LogisticRegression(C=C).fit(coreset.X, y[coreset.row_ids()], sample_weight=coreset.weights())
            loss = log_loss(y[test], model.predict_proba(X[test]), sample_weight=weight[test])
            assert search.cv_results_[f"split{j}_test_score"][i] == pytest.approx(-loss)
    assert search.best_params_ != {"C": 1e-5}
    assert search.classes_.tolist() == ["rare", "usual"]
    assert search.certificate_ is not None
    if isinstance(inner, CoresetLogisticRegression):
        assert search.certificate_.n_rows == 30_000 and search.certificate_.relative_excess < 1e-4
    else:
        assert search.certificate_.kind == "estimate" and 1200 < search.certificate_.n_rows < 1800
    assert search.score(X, y, weight) < 0


def test_held_out_rows_are_bounded(classes, monkeypatch) -> None:
    X, y, _ = classes
    seen = []

    def score(model, X, y=None) -> float:
        seen.append(len(X))
        return 0.0

    monkeypatch.setattr(folds, "MAX_HELD_OUT", 2000)
    source = LeafSource.cut(X, y, at=UNEVEN)
    CoresetSearchCV(
        LogisticRegression(), {"C": [1.0]}, coreset_size=300, cv=2, scoring=score, refit=False, random_state=0
    ).fit(source)
    assert seen == [2000, 2000]
    assert source.n_reads == 4  # for the classes, to look, and once a fold


def test_a_class_in_one_fold_only_and_few_rows(classes) -> None:
    X, y, _ = (part[:400] for part in classes)
    labels = y.astype(object)
    labels[17] = "once"
    for n in (1, 40):  # few enough for all to be used, or not
        search = CoresetSearchCV(LogisticRegression(), GRID, coreset_size=1000 // n, cv=3, random_state=0)
        search.set_params(refit=False).fit(LeafSource.cut(X, labels, at=[100, 390]))
        assert sum("once" in np.array(["once", "rare", "usual"])[c.y] for c in search.coresets_) == 2
        assert [c.provenance["construction"] == "all" for c in search.coresets_] == [n == 1] * 3


def test_regressors_clusters_and_what_is_refused(classes) -> None:
    X, _, weight = classes
    y = X @ [1.0, 2.0, -1.0, 0.0, 0.5] + np.random.default_rng(0).normal(size=30_000)
    source = LeafSource.cut(X, y, weight, at=UNEVEN)
    search = CoresetSearchCV(Ridge(), {"alpha": [1.0, 1e6]}, coreset_size=800, cv=2, random_state=0).fit(source)
    assert search.best_params_ == {"alpha": 1.0} and search.certificate_.kind == "estimate"
    clusters = CoresetSearchCV(
        CoresetKMeans(random_state=0), {"n_clusters": [1, 4]}, coreset_size=500, cv=2, random_state=0
    ).fit(LeafSource.cut(X, at=UNEVEN))
    assert clusters.best_params_ == {"n_clusters": 4} and clusters.certificate_.n_rows == 30_000
    for options, given, message in (
        ({"cv": KFold(3)}, source, "number of folds"),
        ({"cv": 1}, source, "number of folds"),
        ({}, LeafSource.cut(X, y, at=[9], replayable=False), "use partial_fit"),
        ({}, LeafSource.cut(X[:3], y[:3], at=[]), "too few"),
        ({}, LeafSource.cut(X, at=[]), "requires y"),
    ):
        with pytest.raises(ValueError, match=message):
            CoresetSearchCV(Ridge(), {"alpha": [1.0]}, random_state=0, **options).fit(given)
    with pytest.raises(ValueError, match="come with the rows"):
        CoresetSearchCV(Ridge(), {"alpha": [1.0]}).fit(source, y)


@pytest.mark.parametrize("at_hand", [True, False])
def test_a_search_that_was_stopped_goes_on(at_hand: bool, classes, tmp_path) -> None:
    X, y, weight = classes
    source = LeafSource.cut(X, y, weight, at=UNEVEN)
    given = (X, y, weight) if at_hand else (source,)
    search = CoresetSearchCV(LogisticRegression(), GRID, coreset_size=300, cv=3, random_state=0)
    straight, checkpoint, told = clone(search).fit(*given), Checkpoint(tmp_path / "state", every=0.0), []
    later = 2 if at_hand else 4  # than the first fold: a source is read for the classes, and for the folds

    def stop(n_passes: int, n_leaves: int, n_rows: int) -> None:
        if n_passes == later:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clone(search).fit(*given, checkpoint=checkpoint, progress=stop)
    resumed = clone(search).fit(*given, checkpoint=checkpoint, progress=lambda *at: told.append(at))
    assert sorted(path.name for path in checkpoint.path.iterdir()) == ["fold-0", "fold-1", "fold-2", "winner"]
    for a, b in zip(straight.coresets_, resumed.coresets_, strict=True):
        np.testing.assert_array_equal(a.X, b.X)
        np.testing.assert_array_equal(a.weights(), b.weights())
    winners = straight.best_estimator_.estimator_, resumed.best_estimator_.estimator_
    np.testing.assert_array_equal(winners[0].coef_, winners[1].coef_)
    assert [at[0] for at in told] != sorted(at[0] for at in told), "the winner's passes are told as well"
