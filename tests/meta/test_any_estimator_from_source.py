"""`CoresetEstimator` on rows that are read leaf by leaf."""

from __future__ import annotations

import numpy as np
import pytest
from classed_rows import UNEVEN, classed_rows
from leaf_source import LeafSource
from sklearn.linear_model import LogisticRegression, Ridge

from tithe import Block, CoresetEstimator, load_model, save_model
from tithe.certify.held_out import validation_rows


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return classed_rows()


def test_any_classifier(rows, tmp_path) -> None:
    X, y, weight = rows
    source = LeafSource.cut(X, y, weight, at=UNEVEN)
    model = CoresetEstimator(LogisticRegression(), coreset_size=1500, random_state=0).fit(source)
    assert model.classes_.tolist() == sorted(set(y)) and model.validation_indices_ is None
    full = LogisticRegression().fit(X, y, weight)
    assert model.score(X, y, weight) > full.score(X, y, weight) - 0.01
    np.testing.assert_array_equal(model.coreset_.X, X[model.sample_indices_])
    assert model.coreset_.weights().sum() == pytest.approx(weight.sum(), rel=0.02)
    certificate = model.certify(source)
    assert certificate.kind == "estimate" and 1800 < certificate.n_rows < 2200
    assert certificate.interval[0] < model.score(X, y, weight) < certificate.interval[1]
    rows = Block(X=X, y=y, sample_weight=weight)
    aside = validation_rows(rows, model.validation_indices_, model._aside)
    assert len(aside) == certificate.n_rows
    assert not set(aside.row_ids()) & set(model.sample_indices_)
    assert certificate.value == model.score(aside.X, aside.y, aside.sample_weight)
    # the training data is the same rows wherever they are cut, or at hand
    assert model.certify(LeafSource.cut(X, y, weight, at=[7])) == certificate
    assert model.certify(X, y, weight) == certificate
    fresh = LeafSource.cut(X[::-1].copy(), y[::-1].copy(), weight[::-1].copy(), at=UNEVEN)
    assert model.certify(fresh).n_rows == 40_000
    save_model(model, tmp_path / "model.tithe", rows=True)
    assert load_model(tmp_path / "model.tithe").certify(source) == certificate
    array = CoresetEstimator(LogisticRegression(), coreset_size=1500, random_state=0).fit(X, y, weight)
    assert array.certify(source) == array.certify(X, y, weight)


def test_any_regressor_and_what_it_refuses(rows) -> None:
    X, _, weight = rows
    y = X @ [1.0, -2.0, 0.5, 0.0] + np.random.default_rng(0).normal(size=40_000)
    source = LeafSource.cut(X, y, weight, at=UNEVEN)
    model = CoresetEstimator(Ridge(), coreset_size=1500, random_state=0).fit(source)
    np.testing.assert_allclose(model.estimator_.coef_, Ridge().fit(X, y, weight).coef_, atol=0.02)
    plain = CoresetEstimator(Ridge(), coreset_size=1500, validation_fraction=0.0, random_state=0).fit(source)
    assert source.n_reads == 3  # once for the certificate of the first
    with pytest.raises(ValueError, match="too few"):
        plain.certify(source)
    with pytest.raises(ValueError, match="set polish=0"):
        CoresetEstimator(Ridge(), polish=1).fit(source)
    with pytest.raises(ValueError, match="requires y"):
        CoresetEstimator(Ridge()).fit(LeafSource.cut(X, at=[]))
    y[17] = np.nan
    with pytest.raises(ValueError, match="y contains NaN"):
        CoresetEstimator(Ridge()).fit(LeafSource.cut(X, y, at=UNEVEN))
    once = CoresetEstimator(Ridge(), coreset_size=1500, random_state=0).fit(
        LeafSource.cut(X[100:], y[100:], weight[100:], at=[9000], replayable=False, known=False)
    )
    assert once.coreset_.weight_seen == pytest.approx(weight[100:].sum())


@pytest.mark.parametrize("known", [True, False])
def test_any_estimator_on_few_rows(known: bool, rows) -> None:
    X, y, _ = (part[:900] for part in rows)
    for weight in (None, rows[2][:900]):
        array = CoresetEstimator(LogisticRegression(), random_state=0).fit(X, y, weight)
        model = CoresetEstimator(LogisticRegression(), random_state=0).fit(
            LeafSource.cut(X, y, weight, at=[100, 100, 333], known=known)
        )
        np.testing.assert_allclose(model.estimator_.coef_, array.estimator_.coef_, rtol=1e-9)
        assert len(model.coreset_) == 900
