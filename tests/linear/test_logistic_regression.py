from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from tithe import Block, CoresetLogisticRegression, load_model, save_model
from tithe.constructions import Influence, Regressed, Uniform
from tithe.core.parallel import limit_threads
from tithe.objectives import LogisticObjective


def problem(n: int = 20_000, d: int = 5, n_classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(0.5, 3.0, d)
    margins = X @ rng.normal(size=(d, n_classes)) / 2 + rng.normal(size=n_classes)
    return X, (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)


def loss(model, X, y, weight=None) -> tuple[float, float]:
    """The model's loss on all rows, and the smallest there is."""
    classes = tuple(model.classes_.tolist())
    objective = LogisticObjective(classes=classes, C=model.C, fit_intercept=model.fit_intercept)
    block = Block(X=X, y=np.asarray(y), sample_weight=weight)
    params = np.column_stack([model.coef_, model.intercept_])
    best = objective.solve(block, rng=np.random.default_rng(0))
    return objective.evaluate(block, params).value, objective.evaluate(block, best).value


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("layout", ["dense", "csr", "float32"])
def test_polished_fit_is_the_full_fit(n_classes: int, layout: str) -> None:
    X, y = problem(n_classes=n_classes)
    rows = {"dense": X, "csr": sparse.csr_matrix(X), "float32": X.astype(np.float32)}[layout]
    model = CoresetLogisticRegression(coreset_size=1000, tol=1e-6, random_state=0).fit(rows, y)
    results, best = loss(model, X, y)
    assert results <= best * (1 + 3e-6)
    full = LogisticRegression(tol=1e-8, max_iter=2000).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(rows), full.predict_proba(X), atol=0.01)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(rows)), model.predict_proba(rows), rtol=1e-6)
    assert model.decision_function(rows).shape == ((len(X),) if n_classes == 2 else (len(X), n_classes))
    assert np.mean(model.predict(rows) == full.predict(X)) > 0.995
    assert model.objective_curve_ == sorted(model.objective_curve_, reverse=True)
    assert model.objective_curve_[-1] == pytest.approx(results, rel=1e-6)
    assert model.n_passes_ <= 12 and len(model.sample_indices_) <= 1000


@pytest.mark.slow
def test_the_certificate_holds_on_two_hundred_problems() -> None:
    """After one round of polish: the bound is never violated, the estimate is within a factor of two nearly always."""
    rng = np.random.default_rng(7)
    close = covered = said = 0
    for trial in range(200):
        n, d, n_classes = int(rng.integers(300, 1500)), int(rng.integers(1, 7)), 2 if trial % 4 else 3
        X, y = problem(n, d, n_classes, seed=trial)
        y[:n_classes] = np.arange(n_classes)
        weight = rng.exponential(size=n) if trial % 2 else None
        model = CoresetLogisticRegression(
            C=10.0 ** rng.uniform(-2, 2),
            coreset_size=max(60, n // 4),
            polish=1,
            fit_intercept=bool(trial % 3),
            random_state=trial,
        ).fit(X, y, sample_weight=weight)
        results, best = loss(model, X, y, weight)
        gap, slack = results - best, 1e-12 * best
        certificate = model.certificate_
        assert certificate.bound is not None and gap <= certificate.bound + slack
        if certificate.kind == "bound":
            assert certificate.value == certificate.bound
        close += 0.5 * gap - slack <= certificate.value <= 2.0 * gap + slack
        if certificate.interval is not None:
            said += 1
            covered += certificate.interval[0] - slack <= gap <= certificate.interval[1] + slack
    assert close >= 180
    assert covered >= 0.9 * said


def test_certify_on_other_rows_says_how_far_they_are_from_their_own_best() -> None:
    X, y = problem(seed=1)
    model = CoresetLogisticRegression(coreset_size=1000, random_state=0).fit(X[:15_000], y[:15_000])
    certificate = model.certify(X[15_000:], y[15_000:])
    results, best = loss(model, X[15_000:], y[15_000:])
    assert certificate.value == pytest.approx(results - best, rel=0.3)
    assert certificate.bound is not None and certificate.bound >= results - best
    assert certificate.n_rows == 5000 and certificate.passes == 1 and "5,000 rows" in certificate.sentence
    again = model.certify(X[:15_000], y[:15_000])
    assert again.value == pytest.approx(model.certificate_.value, rel=0.2)


def test_polish_stops_on_the_certificate_and_more_rounds_never_hurt() -> None:
    X, y = problem(60_000, 8)
    fits = [CoresetLogisticRegression(coreset_size=800, polish=p, random_state=3).fit(X, y) for p in (0, 1, 3)]
    losses = [m.objective_curve_[-1] for m in fits]
    assert losses == sorted(losses, reverse=True)
    loose, tight = (
        CoresetLogisticRegression(coreset_size=800, tol=tol, random_state=3).fit(X, y) for tol in (0.1, 1e-9)
    )
    assert len(loose.objective_curve_) == 1 < len(tight.objective_curve_)
    assert tight.certificate_.relative_excess < 1e-9


def test_calibration_beats_the_same_rows_without_it_and_a_uniform_draw() -> None:
    X, y = problem(50_000, 6)
    excess: dict[str, list[float]] = {}
    for seed in range(5):
        for name, options in {
            "uniform": {"construction": "uniform", "calibrate": False},
            "plain": {"calibrate": False},
            "default": {},
        }.items():
            model = CoresetLogisticRegression(coreset_size=500, polish=0, random_state=seed, **options).fit(X, y)
            results, best = loss(model, X, y)
            excess.setdefault(name, []).append(results / best - 1)
    middle = {name: np.median(values) for name, values in excess.items()}
    assert middle["default"] < 0.1 * middle["uniform"] and middle["default"] < 0.2 * middle["plain"]


def test_small_data_is_fitted_exactly() -> None:
    X, y = problem(400, 3, 3)
    ours = CoresetLogisticRegression(C=0.3).fit(X, y)
    theirs = LogisticRegression(C=0.3, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.certificate_.relative_excess < 1e-8 and len(ours.coreset_) == 400


@pytest.mark.parametrize("weights", [{0: 1.0, 1: 5.0}, {1: 3.0}, "balanced"])
def test_class_weights_as_in_scikit_learn(weights) -> None:
    X, y = problem(3000, 3)
    u = np.random.default_rng(0).exponential(size=3000)
    ours = CoresetLogisticRegression(class_weight=weights, coreset_size=3000).fit(X, y, sample_weight=u)
    if weights == "balanced":  # by the weights of the rows; scikit-learn counts rows
        mass = np.bincount(y, u)
        weights = dict(enumerate(mass.sum() / (2 * mass)))
    theirs = LogisticRegression(class_weight=weights, tol=1e-10, max_iter=1000).fit(X, y, sample_weight=u)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-6)


def test_integer_weights_equal_repeated_rows_after_polish() -> None:
    X, y = problem(8000, 3)
    u = np.random.default_rng(0).integers(0, 4, 8000)
    options = {"coreset_size": 600, "tol": 1e-8, "random_state": 0}
    weighted = CoresetLogisticRegression(**options).fit(X, y, sample_weight=u)
    repeated = CoresetLogisticRegression(**options).fit(np.repeat(X, u, axis=0), np.repeat(y, u))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-3)
    assert weighted.objective_curve_[-1] == pytest.approx(repeated.objective_curve_[-1], rel=1e-7)


@pytest.mark.bits
def test_same_seed_and_any_number_of_threads_give_the_same_bits() -> None:
    X, y = problem(60_000, 4)
    results = []
    for n in (1, 2):
        with limit_threads(n):
            results.append(CoresetLogisticRegression(coreset_size=700, random_state=5).fit(X, y))
    assert (
        np.array_equal(results[0].coef_, results[1].coef_)
        and results[0].objective_curve_ == results[1].objective_curve_
    )
    other = CoresetLogisticRegression(coreset_size=700, polish=0, random_state=6).fit(X, y)
    assert not np.array_equal(other.coef_, results[0].coef_)


def test_warm_start_goes_on_where_the_last_fit_ended() -> None:
    X, y = problem(5000, 4)
    cold = CoresetLogisticRegression(C=2.0, coreset_size=5000).fit(X, y)
    warm = CoresetLogisticRegression(C=1.0, coreset_size=5000, warm_start=True).fit(X, y)
    warm.set_params(C=2.0).fit(X, y)
    np.testing.assert_allclose(warm.coef_, cold.coef_, rtol=1e-6)
    warm.fit(X[:, :2], y)
    assert warm.coef_.shape == (1, 2)


def test_frames_strings_and_saving(tmp_path) -> None:
    X, y = problem(4000, 3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    names = np.array(["no", "yes"])[y]
    model = CoresetLogisticRegression(coreset_size=500, random_state=0).fit(frame, names)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"] and set(model.predict(frame)) <= {"no", "yes"}
    assert model.score(frame, names) > 0.7
    save_model(model, tmp_path / "m.tithe")
    again = load_model(tmp_path / "m.tithe")
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert again.certificate_ == model.certificate_


def test_regressed_sensitivities_are_kept_and_saved(tmp_path) -> None:
    X, y = problem(6000, 3)
    model = CoresetLogisticRegression(coreset_size=500, construction=Regressed(), random_state=0).fit(X, y)
    score = model.sensitivity_model_.score(X[:10], y[:10])
    assert score.shape == (10,) and (score >= 1).all()
    named = CoresetLogisticRegression(coreset_size=500, construction="rdsf", random_state=0).fit(X, y + 1)
    assert np.array_equal(named.sensitivity_model_.score(X[:10], y[:10] + 1), score)
    kept, weight = named.sensitivity_model_.stream(50, random_state=0).include(X[:0], y[:0])
    assert len(kept) == len(weight) == 0
    assert model.coreset_.provenance["r2"] == model.sensitivity_model_.r2_  # the one that chose the rows, not another
    save_model(model, tmp_path / "m.tithe")
    assert np.array_equal(load_model(tmp_path / "m.tithe").sensitivity_model_.score(X[:10], y[:10]), score)


# -- what breaks careless code -----------------------------------------------------------------


def test_perfectly_separable_rows_have_a_finite_solution() -> None:
    X, _ = problem(20_000, 3)
    y = (X[:, 0] > 0.1).astype(int)
    model = CoresetLogisticRegression(coreset_size=1000, random_state=0).fit(X, y)
    results, best = loss(model, X, y)
    assert results <= best * (1 + 1e-3) and model.score(X, y) > 0.995


def test_rare_positives_survive() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 3))
    y = np.zeros(200_000, int)
    y[:20] = 1
    X[:20] += 3.0
    order = rng.permutation(len(y))
    X, y = X[order], y[order]
    model = CoresetLogisticRegression(coreset_size=1000, random_state=0).fit(X, y)
    assert model.coreset_.y is not None and model.coreset_.y.sum() >= 10
    results, best = loss(model, X, y)
    assert results <= best * (1 + 2e-4)


def test_constant_duplicate_and_huge_columns() -> None:
    X, y = problem(20_000, 3)
    odd = np.column_stack([X, np.ones(len(X)), X[:, 0], X[:, 1] * 1e30, np.zeros(len(X))])
    model = CoresetLogisticRegression(coreset_size=1500, random_state=0).fit(odd, y)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    assert model.score(odd, y) == pytest.approx(LogisticRegression(max_iter=1000).fit(X, y).score(X, y), abs=0.003)
    assert model.coef_[0, -1] == 0.0


@pytest.mark.parametrize("size", [1000, 5000])
def test_columns_far_from_the_origin_are_no_matter(size: int) -> None:
    """The intercept is free, so a shift of the columns changes nothing: not the loss, not the certificate."""
    X, y = problem(5000, 4)
    near, far = (CoresetLogisticRegression(coreset_size=size, random_state=0).fit(X + s, y) for s in (0.0, 1e8))
    assert far.objective_curve_[-1] == pytest.approx(near.objective_curve_[-1], rel=1e-4)
    assert far.certificate_.relative_excess < 1e-4


@pytest.mark.parametrize("scale", [1e80, 1e-80])
def test_scales_of_any_size(scale: float) -> None:
    X, y = problem(5000, 4)
    model = CoresetLogisticRegression(C=1e300, coreset_size=1000, tol=1e-3, random_state=0).fit(X * scale, y)
    assert np.isfinite(model.certificate_.value) and np.isfinite(model.coef_).all()


def test_scales_whose_squares_overflow_are_refused() -> None:
    X, y = problem(5000, 4)
    with pytest.raises(ValueError, match="Rescale"):
        CoresetLogisticRegression(coreset_size=1000).fit(X * 1e200, y)


def test_data_far_from_the_origin_and_out_of_scale() -> None:
    X, y = problem(20_000, 3)
    model = CoresetLogisticRegression(coreset_size=2000, random_state=0).fit(1e3 * X + 1e6, y)
    results, best = loss(model, 1e3 * X + 1e6, y)
    assert results <= best * (1 + 1e-3) and model.certificate_.bound is not None
    assert results - best <= model.certificate_.bound * (1 + 1e-6) + 1e-9 * best


def test_more_columns_than_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 300))
    y = (X[:, 0] > 0).astype(int)
    model = CoresetLogisticRegression().fit(X, y)
    assert model.score(X, y) == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        small = CoresetLogisticRegression(coreset_size=40, random_state=0).fit(X, y)
    assert small.score(X, y) > 0.8 and np.isfinite(small.coef_).all()


def test_a_class_missing_from_a_uniform_draw_is_recovered() -> None:
    X, y = problem(30_000, 3)
    y = np.where(np.arange(len(y)) < 6, 2, y)
    model = CoresetLogisticRegression(coreset_size=300, construction=Uniform(), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert model.predict_proba(X).shape == (30_000, 3) and np.isfinite(model.coef_).all()


def test_a_class_of_ten_rows_survives_a_uniform_draw() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100_000, 5))
    y = np.zeros(100_000, int)
    y[rng.permutation(100_000)[:10]] = 1
    model = CoresetLogisticRegression(construction="uniform", coreset_size=2000, random_state=1).fit(X, y)
    results, best = loss(model, X, y)
    assert results <= best * (1 + 1e-3)


def test_rows_of_no_weight_are_as_good_as_absent_where_few_stand_for_all(monkeypatch) -> None:
    monkeypatch.setattr("tithe.linear.objective._CURVATURE_WORK", 10_000)  # a curvature from a few of the rows
    X, y = problem(3000, 6)
    weight = (np.arange(3000) % 2).astype(float)
    some = CoresetLogisticRegression().fit(X, y, sample_weight=weight)
    plain = CoresetLogisticRegression().fit(X[1::2], y[1::2])
    np.testing.assert_allclose(some.coef_, plain.coef_, rtol=1e-3, atol=1e-4)


def test_too_few_rounds_are_said_to_be() -> None:
    X, y = problem(3000, 4)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter=1"):
        model = CoresetLogisticRegression(max_iter=1).fit(X, y)
    results, best = loss(model, X, y)
    assert model.certificate_.interval is not None
    assert model.certificate_.interval[0] <= results - best <= model.certificate_.interval[1]


@pytest.mark.parametrize("polish", [1, 0])
def test_warnings_point_at_the_line_that_called_fit(polish) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    size = 200 if polish == 1 else 3000  # polish on all rows, or a fit on all rows
    model = CoresetLogisticRegression(max_iter=1, tol=1e-300, coreset_size=size, polish=polish, random_state=0)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, X[:, 0] + rng.normal(size=3000) > 0)
    assert {warning.filename for warning in caught} == {__file__}


def test_a_coreset_of_fewer_rows_than_coefficients_is_polished_all_the_same() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 60)) * (rng.random((4000, 60)) < 0.02) * 10.0
    y = (X @ rng.normal(size=60) + rng.logistic(size=4000) > 0).astype(int)
    model = CoresetLogisticRegression(coreset_size=15, tol=1e-9, random_state=0).fit(X, y)
    results, best = loss(model, X, y)
    assert results <= best * (1 + 1e-9)


def test_what_polish_does_not_reach_is_said() -> None:
    """More coefficients than a curvature is kept for, and far fewer rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 1001))
    y = (X @ rng.normal(size=1001) > 0).astype(int)
    with pytest.warns(ConvergenceWarning, match="larger coreset_size"):
        model = CoresetLogisticRegression(C=100.0, coreset_size=15, tol=1e-12, random_state=0).fit(X, y)
    assert model.certificate_.kind == "bound" and model.certificate_.interval is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C must be"),
        ({"tol": 0.0}, "tol must be"),
        ({"polish": -1}, "polish must be"),
        ({"coreset_size": 0}, "coreset_size"),
        ({"construction": "nonsense"}, "nonsense"),
        ({"construction": "lightweight", "coreset_size": 50}, "mean_pilot"),
        ({"construction": "rings", "coreset_size": 50}, "assign"),
        ({"class_weight": "heavy"}, "class_weight"),
        ({"class_weight": {5: 1.0}}, "not a class"),
        ({"class_weight": {0: -1.0}}, "Class weights"),
        ({"class_weight": {0: 0.0}}, "no row of positive weight"),
        ({"class_weight": {0: None}}, "Class weights"),
        ({"calibrate": "yes"}, "calibrate"),
        ({"fit_intercept": "no"}, "fit_intercept"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": "a"}, "max_iter"),
    ],
)
def test_bad_options(options, message) -> None:
    X, y = problem(300, 2)
    with pytest.raises(ValueError, match=message):
        CoresetLogisticRegression(**options).fit(X, y)


def test_bad_rows() -> None:
    X, y = problem(300, 2)
    model = CoresetLogisticRegression(construction=Influence())
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, np.zeros(300))
    with pytest.raises(ValueError, match="requires y"):
        model.fit(X, None)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.fit(np.where(X[0, 0] == X, np.nan, X), y)
    with pytest.raises(ValueError, match="Negative"):
        model.fit(X, y, sample_weight=-np.ones(300))
    with pytest.raises(ValueError, match="label type"):
        model.fit(X, X[:, 0])
    fitted = model.fit(X, y)
    with pytest.raises(ValueError, match="not among the 2 classes"):
        fitted.certify(X, y + 1)


def test_many_different_numbers_are_told_to_be_taken_for_classes() -> None:
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="y holds 120 different numbers"):
        CoresetLogisticRegression(max_iter=1).fit(rng.normal(size=(240, 1)), np.arange(240) % 120)


@pytest.mark.parametrize("separated", [False, True])
def test_all_rows_of_many_classes_are_fitted_by_newtons_method(separated: bool) -> None:
    """Among them classes of which uniform rows have next to none, and classes that hardly overlap."""
    X, y = problem(30_000, 4, 5)
    y[y == 4] = 0
    y[::3000] = 4
    if separated:
        X[:, 1] += 12.0 * (y % 3)
    model = CoresetLogisticRegression(tol=1e-6, random_state=0).fit(X, y)
    assert model.coreset_.provenance["fitted"] == "all rows"
    found, best = loss(model, X, y)
    assert found <= best * (1 + 1e-6)
    low, high = model.certificate_.interval
    assert low <= found - best + 1e-9 * best and found - best <= high + 1e-9 * best


@pytest.mark.parametrize("n_classes", [2, 3])
def test_sparse_coefficients_predict_and_are_saved(n_classes, tmp_path) -> None:
    """Columns that never occur have no coefficient: `sparsify` keeps the others, with the same decisions."""
    rng = np.random.default_rng(0)
    X = sparse.random(500, 40, density=0.2, random_state=0, format="csr")
    X = sparse.hstack([X, sparse.csr_matrix((500, 400))], format="csr")
    model = CoresetLogisticRegression().fit(X, rng.integers(n_classes, size=500))
    dense = model.coef_
    decisions = {"sparse rows": model.decision_function(X), "rows": model.decision_function(X.toarray())}
    assert model.sparsify() is model and model.coef_.nnz == 40 * len(dense)
    for path in (None, tmp_path / "model.tithe"):
        if path is not None:
            save_model(model, path)
            model = load_model(path)
        np.testing.assert_allclose(model.decision_function(X), decisions["sparse rows"], atol=1e-12)
        np.testing.assert_allclose(model.decision_function(X.toarray()), decisions["rows"], atol=1e-12)
        assert model.summary()["coefficients"] and model.charts()
    np.testing.assert_array_equal(model.densify().coef_, dense)


@pytest.mark.parametrize("spread", [1e-3, 1e-4])
def test_an_excess_is_right_where_two_columns_are_nearly_the_same(spread: float) -> None:
    """The curvature of few rows is taken in double precision where single precision does not tell a direction."""
    rng = np.random.default_rng(0)
    Z = np.column_stack([rng.normal(size=(20_000, 3)), np.ones(20_000)])
    y = Z[:, 0] + 0.5 * Z[:, 2] + rng.logistic(size=len(Z)) > 0
    turn = np.eye(4)
    turn[1, 2], turn[2, 2] = 1.0, spread  # the same scores from columns of which two are nearly the same
    model = CoresetLogisticRegression(C=1e9, tol=1e-6, random_state=0).fit((Z @ turn)[:, :3], y)
    theta, inverse = np.append(model.coef_[0], model.intercept_), np.linalg.inv(turn)
    penalty = inverse.T @ np.diag([1e-9, 1e-9, 1e-9, 0.0]) @ inverse

    def loss(u: np.ndarray) -> float:
        return float(np.logaddexp(0.0, np.where(y, -1.0, 1.0) * (Z @ u)).sum() + 0.5 * u @ penalty @ u)

    best = np.zeros(4)
    for _ in range(20):
        chance = 1.0 / (1.0 + np.exp(-Z @ best))
        curvature = (Z * (chance * (1.0 - chance))[:, None]).T @ Z + penalty
        best -= np.linalg.solve(curvature, Z.T @ (chance - y) + penalty @ best)
    excess = loss(turn @ theta) / loss(best) - 1.0
    assert model.certificate_.relative_excess == pytest.approx(excess, rel=0.1, abs=1e-12)
