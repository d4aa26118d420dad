"""IncrementalODMClassifier: rows, ids, classes, errors, files and certificates."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from tithe import load_model, save_model
from tithe.core.errors import FileFormatError, RowsNotSavedError
from tithe.core.parallel import limit_threads
from tithe.odm import IncrementalODMClassifier, ODMClassifier
from tithe.odm.solvers.path import ExactMachine, kernel_product

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)) + 1.5
Y = np.where(((X - 1.5) ** 2).sum(axis=1) + RNG.normal(size=120) < 2.5, "in", "out")


def machine(**options) -> IncrementalODMClassifier:
    return IncrementalODMClassifier(**{"lam": 100.0, "gamma": 0.4, **options})


def fresh(ids, cost, **options) -> np.ndarray:
    """Decision values of a machine fitted to these rows with this cost of a row."""
    lam = cost * 0.8**2 * len(ids)
    model = ODMClassifier(**{"lam": lam, "gamma": 0.4, "tol": 1e-12, **options}).fit(X[ids], Y[ids])
    return model.decision_function(X)


def state_of(model) -> dict:
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in vars(model).items()}


def assert_unchanged(model, before: dict, scores: np.ndarray | None = None) -> None:
    after = vars(model)
    assert after.keys() == before.keys()
    for name, value in before.items():
        same = np.array_equal(after[name], value) if isinstance(value, np.ndarray) else after[name] is value
        assert same, name
    if scores is not None:
        np.testing.assert_array_equal(model.decision_function(X), scores)


# -- equal to a fit --------------------------------------------------------------------------------


def test_a_fit_equals_that_of_odm_classifier() -> None:
    model = machine().fit(X, Y)
    np.testing.assert_allclose(model.decision_function(X), fresh(np.arange(120), model.cost_), atol=1e-8)
    assert model.lam_ == pytest.approx(100.0) and model.row_ids_.tolist() == list(range(120))
    assert np.abs(model.margins(X, Y)).mean() > 0.5 and model.score(X, Y) > 0.8 and not hasattr(model, "predict_proba")


@settings(max_examples=15, deadline=None, derandomize=True)
@given(steps=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.booleans()), min_size=1, max_size=6))
def test_any_sequence_of_batches_equals_a_fit(steps) -> None:
    rng = np.random.default_rng(len(steps))
    model = machine().partial_fit(X[:30], Y[:30])
    for n_added, n_removed, together in steps:
        free = np.setdiff1d(np.arange(120), model.row_ids_)
        added = rng.choice(free, min(n_added, len(free)), replace=False)
        removed = rng.choice(model.row_ids_, min(n_removed, len(model.row_ids_) - 10), replace=False)
        if together and len(added):
            model.update(X[added], Y[added], row_ids=added, forget=removed)
        else:
            model.forget(removed)
            if len(added):
                model.partial_fit(X[added], Y[added], row_ids=added)
    np.testing.assert_allclose(model.decision_function(X), fresh(model.row_ids_, model.cost_), rtol=0, atol=1e-7)


def test_weights_count_as_rows_and_zero_weights_as_none() -> None:
    weight = np.array([2.0, 0.0, 1.0, 3.0] * 5)
    twice = np.repeat(np.arange(20), weight.astype(int))
    weighted = machine().partial_fit(X[:20], Y[:20], sample_weight=weight)
    repeated = machine().partial_fit(X[twice], Y[twice])
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), rtol=0, atol=1e-9)
    assert len(weighted.row_ids_) == 15 and 1 not in weighted.row_ids_
    for model in (weighted, repeated):
        model.partial_fit(X[20:40], Y[20:40])
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), rtol=0, atol=1e-9)


def test_rescaling_equals_a_fit_with_lam() -> None:
    model = machine().partial_fit(X[:20], Y[:20]).partial_fit(X[20:], Y[20:])
    assert model.lam_ == pytest.approx(600.0)
    usual = machine().fit(X, Y).decision_function(X)
    np.testing.assert_allclose(model.rescale().decision_function(X), usual, atol=1e-9)
    other = machine(lam=7.0).fit(X, Y).decision_function(X)
    np.testing.assert_allclose(model.rescale(7.0).decision_function(X), other, atol=1e-9)
    assert model.lam_ == pytest.approx(7.0)
    with pytest.raises(ValueError, match="lam must be"):
        model.rescale(-1.0)
    with pytest.raises(ValueError, match="no rows"):
        model.forget(model.row_ids_).rescale()


@pytest.mark.parametrize("kernel", ["linear", "poly", "laplacian", lambda A, B: (A @ B.T + 1.0) ** 2])
def test_other_kernels_and_no_intercept(kernel) -> None:
    options = {"kernel": kernel, "fit_intercept": False}
    model = machine(**options).partial_fit(X[:60], Y[:60]).update(X[60:], Y[60:], forget=np.arange(10))
    expected = fresh(np.arange(10, 120), model.cost_, **options)
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=0, atol=1e-7)


def test_sparse_rows_and_dense_ones() -> None:
    dense = machine().partial_fit(X[:60], Y[:60])
    csr = machine().partial_fit(sparse.csr_matrix(X[:60]), Y[:60])
    for model in (dense, csr):
        model.partial_fit(sparse.csr_matrix(X[60:90]), Y[60:90]).partial_fit(X[90:], Y[90:]).forget([3, 100])
    assert sparse.issparse(csr.support_vectors_) and not sparse.issparse(dense.support_vectors_)
    np.testing.assert_allclose(csr.decision_function(X), dense.decision_function(X), rtol=0, atol=1e-10)


@pytest.mark.bits
def test_threads_do_not_change_the_bits() -> None:
    scores = []
    for n_threads in (1, 3):
        with limit_threads(n_threads):
            model = machine().partial_fit(X[:100], Y[:100]).partial_fit(X[100:], Y[100:]).forget([1, 2])
            scores.append(model.decision_function(X))
    np.testing.assert_array_equal(*scores)


# -- classes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("in", "out"), ("out", "in")])
def test_the_second_class_may_come_late_and_vanish_and_return(order) -> None:
    first, second = (np.flatnonzero(label == Y) for label in order)
    model = machine().partial_fit(X[first], Y[first], row_ids=first)
    assert model.classes_.tolist() == [order[0]] and (model.predict(X) == order[0]).all()
    model.partial_fit(X[second], Y[second], row_ids=second)
    both = model.decision_function(X)
    np.testing.assert_allclose(both, fresh(np.arange(120), model.cost_), rtol=0, atol=1e-8)
    assert model.classes_.tolist() == ["in", "out"] and model.score(X, Y) > 0.8
    model.forget(second)
    assert (model.predict(X[first]) == order[0]).mean() > 0.9 and len(model.row_ids_) == len(first)
    model.partial_fit(X[second], Y[second], row_ids=second)
    np.testing.assert_allclose(model.decision_function(X), both, rtol=0, atol=1e-9)


def test_everything_can_be_forgotten_and_given_again() -> None:
    model = machine().partial_fit(X[:50], Y[:50])
    before = model.decision_function(X)
    model.forget(np.arange(50))
    assert len(model.row_ids_) == 0 and not model.decision_function(X).any() and model.gap_ == 0.0
    model.partial_fit(X[:50], Y[:50], row_ids=np.arange(50))
    np.testing.assert_allclose(model.decision_function(X), before, rtol=0, atol=1e-9)
    assert model.unlearning_ is None  # all of them are back


def test_classes_can_be_named_beforehand() -> None:
    model = machine().partial_fit(X[:1], Y[:1], classes=["in", "out"])
    assert model.classes_.tolist() == ["in", "out"]
    with pytest.raises(ValueError, match="leaves out 'in'"):
        model.partial_fit(X[:1], ["out"], classes=["out", "third"])
    with pytest.raises(ValueError, match="leaves out 'third'"):
        machine().partial_fit(X[:1], ["third"], classes=["in", "out"])


# -- mistakes leave the model as it was ------------------------------------------------------------

MISTAKES = {
    "an unknown id": (lambda m: m.forget([5, 999]), "no row with id 999"),
    "an id twice": (lambda m: m.forget([5, 5]), "Row id 5 is given more than once"),
    "ids that are no integers": (lambda m: m.forget([0.5]), "must be integers"),
    "a negative id": (lambda m: m.forget([-1]), "between 0 and"),
    "a third class": (lambda m: m.partial_fit(X[:2], ["in", "other"]), "Only binary classification"),
    "labels of another kind": (lambda m: m.partial_fit(X[:2], [0, 1]), "another kind"),
    "a gap": (lambda m: m.partial_fit([[1.0, np.nan, 0.0]], ["in"]), "NaN"),
    "another number of columns": (lambda m: m.partial_fit(X[:2, :2], Y[:2]), "2 features"),
    "a taken id": (lambda m: m.partial_fit(X[:2], Y[:2], row_ids=[200, 7]), "Row id 7 is already taken"),
    "too few ids": (lambda m: m.partial_fit(X[:2], Y[:2], row_ids=[200]), "1 row_ids for 2 rows"),
    "no y": (lambda m: m.partial_fit(X[:2], None), "requires y"),
    "too much memory": (lambda m: m.partial_fit(np.repeat(X, 3, 0), np.repeat(Y, 3)), "cache_size=1 allows .250 rows"),
    "a mistake in one half": (lambda m: m.update(X[:2], ["in", "third"], forget=[1]), "binary"),
    "a negative weight": (lambda m: m.partial_fit(X[:1], Y[:1], sample_weight=[-1.0]), "Negative"),
    "an overflow": (lambda m: m.partial_fit([[1e300, 0.0, 0.0]], ["in"], row_ids=[300]), "Rescale"),
    "a fit of one class": (lambda m: m.fit(X[:2], ["in", "in"]), "only one class"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_changes_nothing(name: str) -> None:
    wrong, message = MISTAKES[name]
    model = machine(cache_size=1).partial_fit(X[:100], Y[:100])
    before, scores = state_of(model), model.decision_function(X)
    with pytest.raises(ValueError, match=message):
        wrong(model)
    assert_unchanged(model, before, scores)
    model.partial_fit(X[100:], Y[100:]).forget([0])
    np.testing.assert_allclose(model.decision_function(X), fresh(np.arange(1, 120), model.cost_), rtol=0, atol=1e-8)


def test_a_mistake_in_the_first_batch_leaves_no_model() -> None:
    model = machine()
    with pytest.raises(ValueError, match="Only binary"):
        model.partial_fit(X[:3], ["a", "b", "c"])
    assert vars(model) == vars(machine())
    with pytest.raises(ValueError, match="fitted"):
        model.forget([1])


def test_parameters_of_the_machine_are_fixed_by_the_first_batch() -> None:
    model = machine().partial_fit(X[:50], Y[:50]).set_params(theta=0.5)
    with pytest.raises(ValueError, match=r"theta was 0.2 for the first rows"):
        model.forget([1])
    model.fit(X, Y)


def test_gamma_comes_from_the_first_batch() -> None:
    model = machine(gamma="scale").partial_fit(X[:50], Y[:50]).partial_fit(10.0 * X[50:], Y[50:])
    assert model._gamma == pytest.approx(1.0 / (3 * X[:50].var()))


@pytest.mark.parametrize("where", ["prepare", "apply"])
def test_an_interruption_leaves_a_whole_model(where: str, monkeypatch) -> None:
    model = machine().partial_fit(X[:100], Y[:100])
    before, scores = state_of(model), model.decision_function(X)
    original = getattr(ExactMachine, where)

    def interrupted(*args, **options):
        if where == "prepare":
            original(*args, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **options)

    monkeypatch.setattr(ExactMachine, where, interrupted)
    # what is started in the background of a script ignores the signal, and Python leaves it so
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            model.update(X[100:], Y[100:], forget=[1, 2, 3])
    finally:
        signal.signal(signal.SIGINT, earlier)
    monkeypatch.undo()
    if where == "prepare":
        assert_unchanged(model, before, scores)
        model.update(X[100:], Y[100:], forget=[1, 2, 3])
    expected = fresh(np.setdiff1d(np.arange(120), [1, 2, 3]), model.cost_)  # whole: all of the change, or nothing
    np.testing.assert_allclose(model.decision_function(X), expected, rtol=0, atol=1e-8)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.bits
def test_a_resumed_machine_goes_on_to_the_last_bit(tmp_path) -> None:
    unbroken = machine(gamma="scale").partial_fit(X[:70], Y[:70]).forget([3, 4])
    save_model(unbroken, tmp_path / "model.tithe", rows=True)
    resumed = load_model(tmp_path / "model.tithe")
    for model in (unbroken, resumed):
        model.partial_fit(X[70:71], Y[70:71]).update(X[71:90], Y[71:90], forget=[0, 70]).forget([5]).rescale()
        model.partial_fit(X[90:], Y[90:])
    np.testing.assert_array_equal(resumed.decision_function(X), unbroken.decision_function(X))
    assert resumed.unlearning_ == unbroken.unlearning_ and resumed.row_ids_.tolist() == unbroken.row_ids_.tolist()


def test_without_rows_a_model_predicts_and_cannot_go_on(tmp_path) -> None:
    model = machine().partial_fit(X, Y).forget([4])
    save_model(model, tmp_path / "model.tithe")
    loaded = load_model(tmp_path / "model.tithe")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.unlearning_ == model.unlearning_
    for wrong in (lambda: loaded.forget([1]), lambda: loaded.partial_fit(X, Y), lambda: loaded.row_ids_):
        with pytest.raises(RowsNotSavedError):
            wrong()


LIES = {
    "a side": lambda m: m._rows.machine.rows.side.__setitem__(0, 7),
    "a sign": lambda m: m._rows.machine.rows.sign.__setitem__(0, 0.5),
    "a cost": lambda m: m._rows.machine.rows.cost.__setitem__(0, 0.0),
    "a multiplier": lambda m: m._rows.machine.rows.gamma.__setitem__(0, np.nan),
    "a label": lambda m: m._rows.held.y.__setitem__(0, -m._rows.held.y[0]),
    "an id": lambda m: m._rows.held.indices.__setitem__(0, 5),
    "a band": lambda m: setattr(m._rows.machine.rows, "theta", 0.5),
    "coefficients": lambda m: setattr(m, "dual_coef_", np.zeros((1, 3))),
    "rows": lambda m: setattr(m, "_rows", replace(m._rows, held=m._rows.held.take(np.arange(5)))),
    "classes": lambda m: setattr(m, "classes_", np.array(["a", "b", "c"])),
}


@pytest.mark.parametrize("name", LIES)
def test_a_file_that_lies_is_refused(name: str, tmp_path) -> None:
    model = machine().partial_fit(X[:20], Y[:20])
    LIES[name](model)
    save_model(model, tmp_path / "model.tithe", rows=True)
    with pytest.raises(FileFormatError):
        load_model(tmp_path / "model.tithe")


# -- certificates ----------------------------------------------------------------------------------


def test_the_certificate_holds_against_a_machine_that_never_saw_the_rows() -> None:
    model = machine().partial_fit(X, Y)
    assert model.unlearning_ is None
    model.forget([7, 30]).forget([5])
    said = model.unlearning_
    assert said.row_ids == (7, 30, 5) and said.n_rows == 117 and 0.0 < said.tolerance < 1e-7
    kept = np.setdiff1d(np.arange(120), [5, 7, 30])
    never = machine(lam=model.lam_).fit(X[kept], Y[kept])
    difference = np.abs(model.decision_function(X) - never.decision_function(X)).max()
    assert difference <= said.tolerance + never.error_bound(X).max()
    np.testing.assert_allclose(model.error_bound(X), said.tolerance)
    assert "ids 7, 30, 5 were forgotten" in str(said) and f"more than {said.tolerance:.1e}" in str(said)


def test_the_bound_shows_a_machine_that_is_not_exact() -> None:
    model = machine().partial_fit(X, Y)
    exact = model.decision_function(X)
    rows = model._rows.machine.rows
    rows.gamma[:10] *= 1.01
    rows.margin = rows.sign * kernel_product(model._rows.machine.kernel, rows.coefficients())
    model.dual_coef_ = rows.coefficients()[rows.gamma != 0.0][None]
    model.intercept_ = model.dual_coef_.sum(axis=1)
    difference = np.abs(model.decision_function(X) - exact)
    assert difference.max() > 1e-4 and (difference <= model.error_bound(X)).all()


@pytest.mark.parametrize("first", [1, 60])
def test_no_byte_of_a_forgotten_row_is_saved(first: int, tmp_path) -> None:
    model = machine().partial_fit(X[:first], Y[:first], classes=["in", "out"])
    model.partial_fit(X[first:], Y[first:]).forget([0, 100])
    save_model(model, tmp_path / "model.tithe", rows=True)
    data = (tmp_path / "model.tithe").read_bytes()
    for row, remains in ((0, False), (100, False), (1, True)):
        values = [value.tobytes() for value in X[row]] + [value.astype(np.float32).tobytes() for value in X[row]]
        assert any(value in data for value in values) == remains
