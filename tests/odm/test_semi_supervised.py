"""`SemiSupervisedODMClassifier`: what it equals without unlabelled rows, what it gains from them, and constraints."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_moons
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import cross_val_score

import tithe
from tithe.odm import LabelSearch, ODMClassifier, SemiSupervisedODMClassifier
from tithe.odm.semi_supervised import UnlabeledRows


def _few_labels(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the first labels of each class, and y with -1 for all others."""
    rows = np.concatenate([np.flatnonzero(labels == k)[:count] for k in (0, 1)])
    given = np.full(len(labels), -1)
    given[rows] = labels[rows]
    return rows, given


X, Y = make_moons(90, noise=0.06, random_state=0)
LABELLED, GIVEN = _few_labels(Y, 5)


def _semi(**options) -> SemiSupervisedODMClassifier:
    shapes = {"lam_unlabeled": 100.0, "gamma": "neighbors", "search": LabelSearch(max_cuts=3), "random_state": 0}
    return SemiSupervisedODMClassifier(**{**shapes, **options})


def test_unlabelled_rows_show_the_shape_of_the_classes() -> None:
    rows, labels = make_moons(150, noise=0.06, random_state=0)
    at, given = _few_labels(labels, 5)
    model = _semi().fit(rows, given)
    supervised = ODMClassifier(gamma=model.machine_.gamma).fit(rows[at], labels[at])
    assert supervised.score(rows, labels) < 0.9
    assert model.score(rows, labels) > 0.97
    assert model.uses_unlabeled_ and model.left_out_errors_[1] < model.left_out_errors_[0]
    np.testing.assert_array_equal(model.transduction_[at], labels[at])
    assert model.relaxed_bound_ <= model.objective_
    assert model.certificate_.value == pytest.approx(model.objective_ - model.relaxed_bound_)


@pytest.mark.parametrize("classes", [2, 3])
def test_without_unlabelled_rows_it_is_the_supervised_machine(classes: int) -> None:
    rows, labels = make_blobs(40, centers=classes, cluster_std=3.0, random_state=0)
    weight = np.random.default_rng(0).integers(1, 4, 40)
    ours = SemiSupervisedODMClassifier(random_state=0).fit(rows, labels, weight)
    theirs = ODMClassifier(random_state=0).fit(rows, labels, weight)
    np.testing.assert_allclose(ours.decision_function(rows), theirs.decision_function(rows), atol=1e-9)
    np.testing.assert_array_equal(ours.transduction_, labels)
    assert not ours.uses_unlabeled_ and ours.left_out_errors_ is None
    assert (
        SemiSupervisedODMClassifier(coreset_size=10).fit(rows, labels).machine_.support_.max() > 10
    )  # labels are kept


@pytest.mark.parametrize("classes", [2, 3])
def test_a_vanishing_weight_of_unlabelled_rows_is_none(classes: int) -> None:
    rows, labels = make_blobs(40, centers=classes, cluster_std=3.0, random_state=0)
    given = labels.copy()
    given[15:] = -1
    supervised = ODMClassifier(gamma=0.1, tol=1e-9, random_state=0).fit(rows[:15], labels[:15])
    for weight, atol in ((1e-9, 1e-3), (0.0, 1e-6)):
        options = {"lam_unlabeled": weight, "safe": False, "balance": None, "gamma": 0.1}
        model = _semi(**options).fit(rows, given)
        assert model.uses_unlabeled_ == (weight > 0.0)
        np.testing.assert_allclose(model.decision_function(rows), supervised.decision_function(rows), atol=atol)
        np.testing.assert_array_equal(model.predict(rows), supervised.predict(rows))


def test_more_classes_and_names() -> None:
    rows, labels = make_blobs(60, centers=3, cluster_std=1.5, random_state=3)
    names = np.array(["a", "b", "c"])[labels]
    given = np.where(np.arange(60) < 12, names, "none")
    model = _semi(unlabeled="none", safe=False).fit(rows, given)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.score(rows, names) > 0.95
    assert (model.transduction_[:12] == names[:12]).all() and model.uses_unlabeled_


def test_gaps_of_a_column_are_rows_without_a_label() -> None:
    text = np.where(GIVEN < 0, None, np.array(["no", "yes"], object)[GIVEN])
    number = np.where(GIVEN < 0, np.nan, GIVEN)
    plain = _semi(safe=False).fit(X, GIVEN)
    for y in (text, number):
        model = _semi(safe=False).fit(X, y)
        np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    assert _semi(safe=False).fit(X, text).classes_.tolist() == ["no", "yes"]


def test_rows_of_a_file(tmp_path) -> None:
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=np.where(GIVEN < 0, "unknown", GIVEN.astype(str)))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    source = tithe.open_dataset(tmp_path / "rows.csv", target="y", scale="none")
    model = _semi(unlabeled="unknown", safe=False).fit(source)
    assert model.classes_.tolist() == ["0", "1"] and model.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_allclose(model.decision_function(frame), _semi(safe=False).fit(X, GIVEN).decision_function(X))
    with pytest.raises(ValueError, match="come with the rows of a source"):
        _semi().fit(source, GIVEN)


@pytest.mark.parametrize("kind", ["text", "number"])
def test_gaps_of_a_file_are_rows_without_a_label(tmp_path, kind: str) -> None:
    import pandas as pd

    names = ["no", "yes"] if kind == "text" else [-1, 1]  # -1 is a class unless it is what unlabeled says
    target = pd.Series(np.array(names, object)[GIVEN], dtype="object" if kind == "text" else "Int64").mask(GIVEN < 0)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=target)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    plain = _semi(safe=False).fit(X, GIVEN)
    for name in ("rows.csv", "rows.parquet"):
        source = tithe.open_dataset(tmp_path / name, target="y", scale="none", missing_target="keep")
        model = _semi(safe=False, unlabeled=None).fit(source)
        assert model.classes_.tolist() == names
        np.testing.assert_array_equal(model.decision_function(frame), plain.decision_function(X))
        np.testing.assert_array_equal(model.transduction_, np.array(names)[(plain.transduction_ == 1).astype(int)])
        with pytest.warns(UserWarning, match="80 others were left out.*missing_target='keep'"):
            dropped = _semi(unlabeled=None).fit(tithe.open_dataset(tmp_path / name, target="y", scale="none"))
        assert not dropped.uses_unlabeled_ and len(dropped.transduction_) == 10


def test_constraints_hold() -> None:
    must, cannot = [(20, 21), (21, 22)], [(22, 23)]
    for safe in (True, False):
        for options in ({}, {"coreset_size": 40}):
            found = _semi(must_link=must, cannot_link=cannot, balance=0.05, safe=safe, **options).fit(X, GIVEN)
            labels = found.transduction_
            assert labels[20] == labels[21] == labels[22] != labels[23]
            assert abs(labels[GIVEN < 0].mean() - 0.5) <= 0.05 + 1.0 / 80
            np.testing.assert_array_equal(labels[LABELLED], Y[LABELLED])


def test_the_supervised_machine_is_kept_where_unlabelled_rows_mislead() -> None:
    # two long clusters that each hold both classes: labels follow the other column
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.choice([-4.0, 4.0], 120) + 0.2 * rng.normal(size=120), rng.uniform(-1.0, 1.0, 120)])
    labels = (rows[:, 1] > 0.0).astype(int)
    given = np.where(np.arange(120) < 16, labels, -1)
    safe = SemiSupervisedODMClassifier(random_state=0).fit(rows, given)
    assert not safe.uses_unlabeled_
    supervised = ODMClassifier(gamma=safe.machine_.gamma, random_state=0).fit(rows[:16], labels[:16])
    np.testing.assert_allclose(safe.decision_function(rows), supervised.decision_function(rows), atol=1e-9)


@pytest.mark.parametrize(("n_labels", "n_searches"), [(8, 8), (20, 20), (21, 5)])
def test_few_labels_are_left_out_one_by_one_and_many_in_parts(monkeypatch, n_labels: int, n_searches: int) -> None:
    rows, labels = make_blobs(30, centers=2, cluster_std=2.0, random_state=0)
    hidden: list[np.ndarray] = []
    search = UnlabeledRows.labels

    def counted(problem, codes, supervised, rng, *, thorough: bool):
        if not thorough:
            hidden.append(np.flatnonzero(codes[:n_labels] < 0))
        return search(problem, codes, supervised, rng, thorough=thorough)

    monkeypatch.setattr(UnlabeledRows, "labels", counted)
    _semi(kernel="linear").fit(rows, np.where(np.arange(30) < n_labels, labels, -1))
    assert len(hidden) == n_searches
    np.testing.assert_array_equal(np.sort(np.concatenate(hidden)), np.arange(n_labels))  # each of them once


def test_a_coreset_of_many_unlabelled_rows() -> None:
    rows, labels = make_moons(3000, noise=0.06, random_state=0)
    _, given = _few_labels(labels, 8)
    model = _semi(coreset_size=150, safe=False).fit(rows, given)
    assert model.machine_.margin_distribution_ is not None
    assert model.score(rows, labels) > 0.97 and (model.transduction_ == labels).mean() > 0.97
    assert "of 3000 rows" in str(model.certificate_)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_many_rows_take_features(kernel: str) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 1200)
    rows = rng.normal(size=(1200, 6)) + np.outer(2.0 * labels - 1.0, [1.5, 1.0, 0, 0, 0, 0])
    _, given = _few_labels(labels, 6)
    model = SemiSupervisedODMClassifier(kernel=kernel, coreset_size=500, safe=False, random_state=0).fit(rows, given)
    supervised = ODMClassifier(kernel=kernel, random_state=0).fit(rows[given >= 0], labels[given >= 0])
    assert model.score(rows, labels) > supervised.score(rows, labels)
    assert model.relaxed_bound_ is None and model.certificate_ is None


def test_weights_are_repeated_rows() -> None:
    weight = np.random.default_rng(0).integers(1, 3, 90)
    options = {"gamma": 5.0, "safe": False}
    weighted = _semi(**options).fit(X, GIVEN, weight)
    repeated = _semi(**options).fit(np.repeat(X, weight, axis=0), np.repeat(GIVEN, weight))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-4)


@pytest.mark.slow
def test_a_given_kernel_and_a_saved_model(tmp_path) -> None:
    K = rbf_kernel(X, gamma=5.0)
    named = _semi(gamma=5.0, safe=False).fit(X, GIVEN)
    for safe in (False, True):
        given = _semi(kernel="precomputed", safe=safe).fit(K, GIVEN)
        if not safe:
            np.testing.assert_allclose(given.decision_function(K), named.decision_function(X), atol=1e-6)
        tithe.save_model(given, tmp_path / "model.tithe")
        loaded = tithe.load_model(tmp_path / "model.tithe")
        np.testing.assert_array_equal(loaded.predict(K), given.predict(K))
        assert loaded.left_out_errors_ == given.left_out_errors_


def test_it_can_be_cross_validated() -> None:
    scores = cross_val_score(_semi(safe=False), X[LABELLED], Y[LABELLED], cv=2)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (np.full(90, -1), {}, "y holds no labels: every entry is -1"),
        (np.where(np.arange(90) < 5, 1, -1), {}, "only one class, 1"),
        (GIVEN, {"must_link": [tuple(LABELLED[[0, 5]].tolist())]}, "labels of rows .* contradict the links"),
        (GIVEN, {"cannot_link": [(1, 1)]}, "cannot_link links row 1 with itself"),
        (GIVEN, {"must_link": [(40, 41), (41, 40)]}, "twice"),
        (GIVEN[:80], {}, "X has 90 rows and y has 80"),
        (GIVEN, {"balance": 2.0}, "balance must be"),
        (GIVEN, {"lam_unlabeled": -1.0}, "lam_unlabeled must be"),
    ],
)
def test_what_cannot_be_is_refused(y, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SemiSupervisedODMClassifier(**options).fit(X, y)
