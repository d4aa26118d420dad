from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, f1_score, log_loss, r2_score
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import tithe
from tithe import Block, compare, open_dataset
from tithe.objectives import KMeansObjective, LeastSquaresObjective, LogisticObjective
from tithe.report.compare import Judge, Runner, _limit_of_excess
from tithe.report.compared_learner import ComparedLearner
from tithe.report.comparison import PHASES, Comparison
from tithe.rows.schema import frame_table


@pytest.fixture(scope="module", autouse=True)
def _no_further_draws() -> Iterator[None]:
    """Only the sizes asked for are drawn, each as often as asked for: what follows from them has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tithe.report.compare._MAX_TRIALS", 0)
        yield


@pytest.fixture(scope="module")
def rare() -> Comparison:
    """Two clusters, one of 12 far rows, which a small sample misses."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(3000, 2)), rng.normal(300.0, 1.0, size=(12, 2))])
    return compare(X, objective=KMeansObjective(n_clusters=2), sizes=[40, 100], n_repeats=3, polish=1)


def test_a_rare_group_is_kept_by_a_coreset_and_missed_by_a_sample(rare: Comparison) -> None:
    by_name = {(line["method"], line["size"]): line for line in rare.table}
    assert by_name["calibrated sensitivity", 100]["excess_high"] < 0.05
    assert by_name["weighted uniform", 40]["excess_high"] > 1.0
    assert by_name["calibrated sensitivity", 100]["quality"] < 1.1 * rare.table[0]["quality"]
    assert rare.table[0]["method"] == "all rows" and rare.table[0]["size"] == rare.n_rows
    assert rare.n_rows + rare.n_held_out == 3012
    assert str(rare.recommendation) in repr(rare) and str(rare.recommendation) in rare._repr_html_()


def test_the_table_holds_medians_and_ranges_of_the_runs(rare: Comparison) -> None:
    assert len(rare.runs) == 3 + 2 * 3 * 3 * 2  # two sizes, three methods, three repeats, polished or not
    for line in rare.table:
        runs = [run for run in rare.runs if (run["method"], run["size"]) == (line["method"], line["size"])]
        assert line["n_repeats"] == len(runs) == 3
        excess = [run["excess"] for run in runs]
        assert (line["excess_low"], line["excess"], line["excess_high"]) == tuple(np.quantile(excess, [0, 0.5, 1]))
        seconds = [sum(run[f"seconds_{phase}"] for phase in PHASES) for run in runs]
        assert line["seconds"] == pytest.approx(np.median(seconds))
        assert line["rows"] <= line["size"] and 0 < line["effective_size"] <= line["rows"] * (1 + 1e-12)
    polished = [run for run in rare.runs if run["polished"]]
    plain = [run for run in rare.runs if not run["polished"] and run["size"] < rare.n_rows]
    for before, after in zip(plain, polished, strict=True):
        assert after["excess"] <= before["excess"] and after["seconds"] > before["seconds"]


class _Page(HTMLParser):
    """The numbers of a page: the value and the text of every data element, by row."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[list[tuple[str, float, str]]] = []
        self._open: tuple[str, float] | None = None

    def handle_starttag(self, tag, attributes) -> None:
        given = dict(attributes)
        if tag == "tr":
            self.lines.append([])
        if tag == "data":
            self._open = (given["class"], float(given["value"]))

    def handle_data(self, text: str) -> None:
        if self._open is not None:
            self.lines[-1].append((*self._open, text))
            self._open = None


def test_the_page_the_json_and_the_csv_hold_the_same_numbers(rare: Comparison, tmp_path) -> None:
    page = rare.write(tmp_path / "out")
    text = page.read_text()
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    parser = _Page()
    parser.feed(text)
    lines = parser.lines[1:]
    assert len(lines) == len(results["table"]) == len(rare.table)
    titles, shown = rare.text_rows()
    for numbers, expected, printed in zip(lines, results["table"], shown, strict=True):
        assert len(numbers) == 11
        for name, value, words in numbers:
            assert value == expected[name]
            if name == "excess":
                assert words == printed[titles.index("excess loss")]
    assert results["recommendation"]["text"] == str(rare.recommendation)
    assert str(rare.recommendation).split(":")[0] in text
    table = list(csv.DictReader(io.StringIO((tmp_path / "out" / "table.csv").read_text())))
    for line, expected in zip(table, results["table"], strict=True):
        assert {name: str(value) for name, value in expected.items()} == line
    assert rare.to_frame()["excess"].tolist() == [line["excess"] for line in results["table"]]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"report.html", "results.json", "table.csv"}
    # the page needs nothing else, and has rules for phone, print and dark
    assert "http" not in text.split("base64")[0] and "<script" not in text and "<link" not in text
    assert text.count("data:image/png;base64,") == 3
    for words in ("width=device-width", "prefers-color-scheme: dark", "@media print", "max-width: 40rem"):
        assert words in text


def test_nothing_is_left_if_a_file_cannot_be_written(rare: Comparison, tmp_path, monkeypatch) -> None:
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Comparison, "_page", lambda comparison: "a page")
    rare.write(tmp_path / "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    monkeypatch.setattr("tithe.core.files.os.fsync", full)
    for folder in ("out", "new"):
        with pytest.raises(OSError, match="No space left"):
            rare.write(tmp_path / folder)
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    assert not (tmp_path / "new").exists()


def _rows(n: int = 600):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 3))
    return X, X @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=n), rng.integers(1, 4, n).astype(float)


@pytest.mark.parametrize("objective", ["logistic", "margin", "ridge", "huber", "poisson", "kmedian"])
def test_every_objective_with_weights(objective: str) -> None:
    X, score, weight = _rows()
    y = {"logistic": np.where(score > 0, "yes", "no"), "margin": score > 0, "poisson": np.floor(np.exp(score / 3))}
    target = None if objective == "kmedian" else y.get(objective, score)
    result = compare(X, target, sample_weight=weight, objective=objective, sizes=[0.2], n_repeats=1)
    full, sample, coreset, _ = result.table
    assert full["excess"] == 0.0 and sample["size"] == round(0.2 * result.n_rows)
    assert 0.0 <= coreset["excess"] < 0.2 and coreset["distortion"] < 1.0
    if objective != "kmedian":
        assert coreset["excess"] < sample["excess"] and 0.1 < full["quality"] <= 1.0


def test_quality_is_what_scikit_learn_says() -> None:
    X, score, weight = _rows()
    held_out = Block(X=X[400:], y=score[400:], sample_weight=weight[400:])
    model = Ridge(alpha=1.0).fit(X[:400], score[:400])
    params = np.append(model.coef_, model.intercept_)[None]
    quality, loss = Judge(LeastSquaresObjective(), held_out).scores(params)
    assert quality == pytest.approx(r2_score(score[400:], model.predict(X[400:]), sample_weight=weight[400:]), abs=1e-6)
    assert loss > 0.0
    for labels in (score > 0, np.digitize(score, [-1, 1])):
        numbers = labels.astype(np.int32)
        classifier = LogisticRegression().fit(X[:400], numbers[:400])
        params = np.column_stack([classifier.coef_, classifier.intercept_])
        rows = Block(X=X[400:], y=numbers[400:], sample_weight=weight[400:])
        objective = LogisticObjective(classes=tuple(range(numbers.max() + 1)))
        expected = classifier.score(X[400:], numbers[400:], sample_weight=weight[400:])
        assert Judge(objective, rows).scores(params)[0] == pytest.approx(expected)


def test_rows_that_do_not_fit_into_memory(small_leaves) -> None:
    X, score, _ = _rows(3000)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(colour=np.where(X[:, 0] > 0, "red", "blue"))
    frame["label"] = np.where(score > 0, "yes", "no")
    source = open_dataset(frame, target="label")
    n_bytes = 1000 * (source.row_bytes + 24)
    result = compare(source, objective="logistic", sizes=[100], n_repeats=1, memory=n_bytes, constructions=["auto"])
    whole = compare(source, objective="logistic", sizes=[100], n_repeats=1, constructions=["auto"])
    assert result.table[0]["method"] == "weighted uniform, the largest affordable"
    assert result.table[0]["size"] == 1000 and result.reference == "the best solution of any method"
    assert whole.table[0]["method"] == "all rows"
    assert (result.n_rows, result.n_held_out) == (whole.n_rows, whole.n_held_out)
    assert result.table[0]["quality"] == pytest.approx(whole.table[0]["quality"], abs=0.03)
    assert (
        f"no fit on all {result.n_rows:,} rows" in result.reference_note
        and "sample of 1,000 rows" in result.reference_note
    )
    assert result.reference_note in result.to_html() and whole.reference_note == ""


def test_a_loss_of_rounding_errors_is_none() -> None:
    X = np.random.default_rng(0).normal(size=(1000, 2))
    result = compare(X, np.full(1000, 0.1), objective="ridge", sizes=[100], n_repeats=1)
    assert {line["excess"] for line in result.table} == {0.0} and {line["quality"] for line in result.table} == {1.0}


def test_a_loss_of_zero_and_one_that_is_infinite() -> None:
    X = np.repeat(np.eye(3), [400, 200, 3], axis=0)
    result = compare(X, objective=KMeansObjective(n_clusters=3), sizes=[9], n_repeats=2)
    assert result.table[0]["excess"] == 0.0 and {line["excess_high"] for line in result.table} == {0.0, np.inf}
    assert "Infinity" not in result.to_json() and json.loads(result.to_json())["table"][1]["excess_high"] is None
    assert "inf" in repr(result) and str(result.recommendation)


def test_a_fit_on_all_rows_that_takes_too_long_is_one_on_a_sample() -> None:
    X, score, _ = _rows(12_000)
    result = compare(X, score, objective="ridge", sizes=[200], n_repeats=1, full_seconds=1e-9)
    assert result.table[0]["size"] == 5000 and result.table[0]["is_sample"]
    assert min(line["excess"] for line in result.table) == 0.0


def test_frames_with_text_and_progress() -> None:
    X, score, _ = _rows(400)
    frame = pd.DataFrame(X).assign(colour=np.where(X[:, 0] > 0, "red", "blue")).rename(columns=str)
    seen: list[tuple[int, int, str]] = []
    result = compare(
        frame, score, objective="ridge", sizes=[0.2], n_repeats=1, progress=lambda *step: seen.append(step)
    )
    assert result.n_features > 3
    assert [column["column"] for column in result.columns] == ["0", "1", "2", "colour"]
    page = result.to_html()
    assert "Columns of the table" in page and "<td>colour</td>" in page
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][2] == "measuring" and seen[-1][0] == seen[-1][1] - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": [600]}, "keeps all of the"),
        ({"sizes": [4]}, "fewer rows than the 8 clusters"),
        ({"sizes": []}, "at least one"),
        ({"sizes": [1.5]}, "sizes must be"),
        ({"holdout": 0.01}, "too few to judge by"),
        ({"tol": 0.0}, "tol must be"),
        ({"n_repeats": 0}, "n_repeats must be"),
        ({"objective": "nothing"}, "nothing"),
        ({"constructions": ["influence"]}, "needs an objective"),
        ({"objective": "generic"}, "no model to fit"),
        ({"objective": "logistic"}, "needs a class"),
        ({"objective": "ridge"}, "needs a number"),
        ({"class_weight": "balanced"}, "class_weight is for classes"),
    ],
)
def test_mistakes_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(_rows(500)[0], **{"objective": "kmeans", "n_repeats": 1, **options})


def test_files_and_rows_that_come_once_are_refused() -> None:
    with pytest.raises(ValueError, match="open_dataset"):
        compare("rows.csv", objective="kmeans")
    reader = tithe.rows.batches.BatchSource(iter([np.ones((5, 2))]), leaf_size=10)
    with pytest.raises(ValueError, match="come only once"):
        compare(reader, objective="kmeans")


def test_a_class_without_weight_is_refused_and_one_that_a_sample_misses_is_not_guessed_at() -> None:
    X, score, _ = _rows(6000)
    y = np.where(score > 0, "yes", "no")
    with pytest.raises(ValueError, match="no row of positive weight"):
        compare(X, y, sample_weight=(y == "yes").astype(float), objective="logistic", sizes=[100])
    y = y.astype(object)
    y[:3] = "rare"
    result = compare(X, y, objective="logistic", sizes=[60], n_repeats=2, constructions=["auto"])
    sample = result.table[1]
    assert sample["quality"] > 0.8 and sample["excess_high"] < 5.0


def test_a_target_that_is_no_class_is_refused_before_any_fit(monkeypatch) -> None:
    X = np.random.default_rng(0).normal(size=(2600, 2))
    options = {"objective": "logistic", "n_repeats": 1, "constructions": ["uniform"], "announce": pytest.fail}
    monkeypatch.setattr(Runner, "warm_up", pytest.fail)
    for n_classes, name in ((250, int), (140, str)):
        y = np.array([name(i % n_classes) for i in range(2600)])
        for given in ({}, {"objective": None, "learner": LogisticRegression()}):
            with pytest.raises(ValueError, match=rf"y has {n_classes} different values in 2,600 rows.*many_classes"):
                compare(X, y, **options | given)
        with pytest.raises(ValueError, match=f"sizes=26 keeps fewer rows than the {n_classes} classes"):
            compare(X, y, many_classes=True, sizes=[26], **options)


def test_many_classes_are_learned_if_they_are_meant() -> None:
    X, y = np.random.default_rng(0).normal(size=(3000, 1)), np.arange(3000) % 110
    options = {"learner": GaussianNB(), "n_repeats": 1, "many_classes": True, "constructions": ["uniform"]}
    assert {line["size"] for line in compare(X, y, **options).table[1:]} >= {
        135
    }  # one with fewer rows than classes is not


def test_a_page_of_losses_that_are_all_infinite() -> None:
    X = np.repeat([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [1e3, 1e3]], [2000, 2000, 2000, 1], axis=0)
    objective = KMeansObjective(n_clusters=4)
    result = compare(X, objective=objective, sizes=[60], n_repeats=2, constructions=["uniform"], random_state=1)
    assert {line["excess"] for line in result.table[1:]} == {np.inf}
    assert "a loss where the best fit has none" in str(result.recommendation) and "infinite" in result.to_html()


def test_rounding_is_told_from_losses_of_every_kind() -> None:
    X = np.random.default_rng(0).normal(size=(2000, 4))
    constant = compare(X, np.full(2000, 3.0), objective="poisson", sizes=[100], n_repeats=1)
    assert {line["excess"] for line in constant.table} == {0.0}
    goal = tithe.objectives.DictionaryObjective(n_components=6, n_nonzero_coefs=4)
    exact = compare(X, objective=goal, sizes=[100], n_repeats=1)
    assert {line["excess"] for line in exact.table} == {0.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": 0.1}, "sizes must be None or a list"),
        ({"constructions": "auto"}, "constructions must be a list"),
        ({"memory": "1GB"}, "memory must be"),
        ({"memory": -1}, "memory must be"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(np.eye(90), objective="kmeans", **options)
    with pytest.raises(ValueError, match="open_dataset"):
        compare(Path("rows.csv"), objective="kmeans")


def test_a_uniform_draw_in_the_place_of_another_is_told() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 60))
    y = X[:, 0] + rng.normal(size=3000) > 0
    result = compare(X, y, objective="logistic", sizes=[30], n_repeats=3, constructions=["auto"])
    drawn = [line["drawn_uniformly"] for line in result.table]
    assert drawn == [False, False, True]
    assert "30 rows by calibrated influence" in result.draw_note and result.draw_note in result.to_html()


def test_the_target_says_what_is_compared() -> None:
    X, score, _ = _rows(600)
    options = {"sizes": [100], "n_repeats": 1, "constructions": ["uniform"]}
    for y, objective in ((None, "kmeans"), (score, "least_squares"), (score > 0, "logistic")):
        assert compare(X, y, **options).objective == objective


def test_any_estimator_is_judged_on_rows_held_out() -> None:
    X, score, _ = _rows(3000)
    options = {"sizes": [200], "n_repeats": 2}
    numbers = compare(X, score, learner=DecisionTreeRegressor(max_leaf_nodes=8), **options)
    assert numbers.objective == "DecisionTreeRegressor" and numbers.quality == "R²"
    assert "polish" not in str(numbers.recommendation) and "distortion" not in repr(numbers)
    labels = np.where(score > 1.0, "b", "a")
    classes = compare(X, labels, learner=DecisionTreeClassifier(max_leaf_nodes=8), **options)
    for result in (numbers, classes):
        lowest = min(run["held_out_loss"] for run in result.runs if run["size"] == result.n_rows)
        assert result.table[0]["method"] == "all rows"
        assert all(run["excess"] == pytest.approx(run["held_out_loss"] / lowest - 1) for run in result.runs)
    with pytest.raises(ValueError, match="not both"):
        compare(X, score, objective="ridge", learner=DecisionTreeRegressor(), **options)
    with pytest.raises(ValueError, match="leave polish at 0"):
        compare(X, score, learner=DecisionTreeRegressor(), polish=1, **options)


class KeepsWhatItGets(HistGradientBoostingClassifier):
    """Boosted trees that keep the rows that they learned from."""

    def fit(self, X, y, sample_weight=None):
        self.rows_ = X
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("as_source", [False, True])
def test_learners_get_rows_of_tables_as_a_coreset_estimator_gives_them(as_source: bool) -> None:
    rng = np.random.default_rng(0)
    words = rng.choice([f"word{i}" for i in range(1500)], (3000, 8))
    frame = pd.DataFrame({"a": rng.normal(size=3000), "city": rng.choice(["Bern", "Rome"], 3000)})
    frame["note"] = [" ".join(of_row) for of_row in words]
    frame.loc[::7, "a"] = np.nan
    y = np.where(frame["a"].fillna(0.0) + rng.normal(size=3000) > 0, "late", "on time")
    rows = (open_dataset(frame.assign(y=y), target="y"),) if as_source else (frame, y)
    options = {"sizes": [300], "n_repeats": 1, "constructions": ["uniform"]}
    for learner in (GaussianNB(), HistGradientBoostingClassifier(max_iter=5)):
        assert compare(*rows, learner=learner, **options).table[0]["quality"] > 0.5
    source = open_dataset(frame)
    assert source.schema.sparse
    trees = ComparedLearner(estimator=KeepsWhatItGets(max_iter=5)).for_schema(source.schema)
    X = source.schema.encode(frame_table(frame))
    got = trees.fit(Block(X=X, y=(y == "late").astype(np.int32)), rng).rows_
    assert got["city"].dtype == "category" and got["a"].isna().sum() == frame["a"].isna().sum()


@pytest.mark.parametrize("labels", [("no", "yes"), ("yes", "no")])
def test_a_rare_class_has_its_scores_and_accuracy_its_baseline(rng: np.random.Generator, labels) -> None:
    X, names = rng.normal(size=(2000, 2)), tuple(sorted(labels))
    y = np.where(rng.random(2000) < 1 / (1 + np.exp(3 - 2 * X[:, 0])), labels[1], labels[0])
    objective = LogisticObjective(classes=names)
    held_out = Block(X=X, y=y, sample_weight=rng.random(2000))
    params = objective.solve(Block(X=X, y=y), rng=rng)
    model, judge = LogisticRegression().fit(X, y), Judge(objective, held_out, labels=names)
    happened, options = y == labels[1], {"sample_weight": held_out.weights()}
    chance = model.predict_proba(X)[:, names.index(labels[1])]
    found = judge.event_scores(params)
    assert found["average_precision"] == pytest.approx(average_precision_score(happened, chance, **options), rel=1e-3)
    assert found["f1"] == pytest.approx(f1_score(happened, model.predict(X) == labels[1], **options), rel=1e-2)
    baseline = 1 - np.average(happened, weights=held_out.weights())
    assert f"Always to say {labels[0]} has an accuracy of {baseline:.4g}" in judge.baseline_note
    assert judge.scores(params)[1] == pytest.approx(log_loss(y, model.predict_proba(X), **options), rel=1e-3)


@pytest.mark.parametrize("as_source", [False, True])
def test_weights_of_classes_are_of_fits_and_losses(rng: np.random.Generator, as_source: bool) -> None:
    X = rng.normal(size=(3000, 2))
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(4 - 1.5 * X[:, 0])), "late", "on time")
    rows = (open_dataset(pd.DataFrame(X, columns=["a", "b"]).assign(y=y), target="y", scale="none"),)
    rows, options = rows if as_source else (X, y), {"sizes": [1000], "n_repeats": 1, "constructions": ["auto"]}
    for given in ({"objective": "logistic"}, {"learner": LogisticRegression()}):
        plain, balanced, by_hand = (
            compare(*rows, class_weight=weight, **given, **options)
            for weight in (None, "balanced", {"late": np.mean(y == "on time") / np.mean(y == "late")})
        )
        for result in (balanced, by_hand):  # rare events are found more often, and more rows are taken for them
            assert (
                result.table[0]["f1"] > plain.table[0]["f1"] and result.table[0]["quality"] < plain.table[0]["quality"]
            )
            assert result.table[0]["excess"] == 0.0 and "class weights" in repr(result)
        assert balanced.table[0]["f1"] == pytest.approx(by_hand.table[0]["f1"], abs=0.03)
        assert balanced.table[0]["held_out_loss"] > 2 * plain.table[0]["held_out_loss"]  # that of rare rows counts
    assert balanced.to_dict()["parameters"] == {"class_weight": "balanced"} and plain.to_dict()["parameters"] == {}
    weighted = LogisticRegression(class_weight="balanced").fit(X, y)
    ours = compare(X, y, learner=LogisticRegression(), class_weight="balanced", **options).table[0]
    assert ours["f1"] == pytest.approx(f1_score(y == "late", weighted.predict(X) == "late"), abs=0.1)


def test_it_says_what_it_takes_and_can_be_stopped_with_what_it_has(monkeypatch) -> None:
    X, said, run = _rows(2000)[0], [], Runner.run
    options = {"objective": KMeansObjective(n_clusters=2), "sizes": [60, 100], "n_repeats": 3, "announce": said.append}

    def stop_at(number: int) -> None:
        runs_before = iter(range(100))

        def stopped(runner: Runner, *given):
            if next(runs_before) == number:
                raise KeyboardInterrupt
            return run(runner, *given)

        monkeypatch.setattr(Runner, "run", stopped)

    stop_at(8)  # after three methods at two sizes, and two methods of the next round
    result = compare(X, **options)
    assert "on all 1," in said[0] and "the others on 60 to 100" in said[0] and "about" in said[0]
    assert [line["n_repeats"] for line in result.table[1:]] == [1] * 6
    note = "Stopped after 2 of 6 rounds"
    assert note in result.stopped_note and note in repr(result) and note in result.to_html()
    stop_at(1)
    with pytest.raises(KeyboardInterrupt):  # nothing to compare yet
        compare(X, **options)


def test_a_size_that_was_not_asked_for_is_drawn_before_it_is_recommended(monkeypatch) -> None:
    monkeypatch.setattr("tithe.report.compare._MAX_TRIALS", 20)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    y = X @ [1.0, -1.0, 2.0] + rng.normal(size=4000)
    result = compare(X, y, objective="ridge", sizes=[20], n_repeats=2, full_seconds=1e9)
    advice = result.recommendation
    advised = next(x for x in result.table if (x["method"], x["size"]) == (advice.method, advice.size))
    assert advice.tried and 20 < advice.size <= 0.9 * result.n_rows and advised["n_repeats"] == 8
    assert advised["excess_high"] <= advised["excess_limit"] <= result.tol and result.table[0]["n_repeats"] == 1


def test_fits_on_all_rows_that_differ_are_as_many_as_the_draws_that_they_are_compared_with(monkeypatch) -> None:
    monkeypatch.setattr("tithe.report.compare._MAX_TRIALS", 20)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 2))
    result = compare(X, objective=KMeansObjective(n_clusters=9), sizes=[200], n_repeats=1, full_seconds=1e9)
    advice = result.recommendation
    advised = next(x for x in result.table if (x["method"], x["size"]) == (advice.method, advice.size))
    assert result.table[0]["n_repeats"] == advised["n_repeats"] == 4


def test_the_limit_of_an_excess_holds_in_19_of_20_draws() -> None:
    rng = np.random.default_rng(0)
    for freedom in (2, 10):  # the excess of a fit is a sum of squares of normal errors
        draws = rng.chisquare(freedom, size=(4000, 21))
        assert np.mean([few[-1] <= _limit_of_excess(list(few[:-1])) for few in draws]) > 0.95
    assert _limit_of_excess([0.5]) == 0.5 and _limit_of_excess([0.5, np.inf]) == np.inf
