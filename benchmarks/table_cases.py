"""The nine tables on which an encoding can mislead without a word: tithe beside a pipeline by hand and skrub.

Each row of `cases()` is one of them. Scores are of held-out rows; where a case is about what is said or kept, the row
is 1 if it is, and 0 if nothing is said. `benchmarks/tables.py` runs them.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import tithe
from tithe.cli.main import main as command

Case = dict[str, Any]
Pipeline = Callable[[pd.DataFrame], Any]  # of scikit-learn, by hand, for a frame


def _ran(*arguments: Any) -> tuple[int, str]:
    """The exit code of a command, and what it says."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            command([str(argument) for argument in arguments])
        except SystemExit as stop:
            return int(stop.code or 0), said.getvalue()
    return 0, said.getvalue()


def _warns(act: Callable[[], Any], *words: str) -> float:
    """Whether something that is done is refused, or warned of with some words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            act()
        except ValueError:
            return 1.0
    said = " ".join(str(warning.message) for warning in caught)
    return float(all(word in said for word in words))


def by_skrub(model: Any) -> Any:
    """The pipeline of skrub, which the tests need not have."""
    from skrub import tabular_pipeline

    return tabular_pipeline(model)


def _case(name: str, measure: str, tithe: float, by_hand: float | None = None, skrub: float | None = None) -> Case:
    others = {"by_hand": by_hand, "skrub": skrub}
    return {"case": name, "measure": measure, "tithe": tithe, **{k: v for k, v in others.items() if v is not None}}


def _odd_predictions(frame: pd.DataFrame, by_hand: Pipeline) -> list[Case]:
    """Numbers that are text in the rows to predict, and values of categories that were never seen."""
    y = frame.pop("late")
    train, test = frame[:2000], frame[2000:2400]
    models = [
        tithe.CoresetLogisticRegression(random_state=0),
        make_pipeline(by_hand(train), LogisticRegression(max_iter=1000)),
        by_skrub(LogisticRegression(max_iter=1000)),
    ]
    for model in models:
        model.fit(train, y[:2000])
    as_text = test.assign(distance="far")
    unseen = test.assign(carrier="new")
    told_of_text = [_warns(lambda m=m: m.predict(as_text), "distance") for m in models]
    told_of_unseen = [_warns(lambda m=m: m.predict(unseen), "carrier") for m in models]
    return [
        _case("4", "a column of numbers that is text is refused or named", *told_of_text),
        _case("4", "unseen categories are named", *told_of_unseen),
    ]


def _gap(frame: pd.DataFrame) -> list[Case]:
    """One NaN in a frame of numbers: it is refused, and the coefficients keep the units of the columns otherwise."""
    numbers = frame.select_dtypes("number").dropna()
    y = numbers.pop("price") > 2400
    gap = numbers.copy()
    gap.iloc[5, 0] = np.nan
    fits = [
        lambda rows: tithe.CoresetLogisticRegression(random_state=0).fit(rows, y),
        lambda rows: LogisticRegression(max_iter=1000).fit(rows, y),
        lambda rows: by_skrub(LogisticRegression(max_iter=1000)).fit(rows, y),
    ]
    told = [_warns(lambda fit=fit: fit(gap), "carat") for fit in fits]
    return [_case("5", "one gap among numbers is refused or named", *told)]


def _names(frame: pd.DataFrame, y: Any, by_hand: Pipeline) -> list[Case]:
    """`feature_names_in_` has the columns of the frame."""
    models = [
        tithe.CoresetLogisticRegression(random_state=0).fit(frame, y),
        make_pipeline(by_hand(frame), LogisticRegression(max_iter=1000)).fit(frame, y),
        by_skrub(LogisticRegression(max_iter=1000)).fit(frame, y),
    ]
    kept = [float(list(model.feature_names_in_) == list(frame)) for model in models]
    return [_case("6", "names of the input are those of the frame", *kept)]


def _rare(frame: pd.DataFrame, by_hand: Pipeline) -> list[Case]:
    """Flights that are three hours late: one in eighty."""
    y = frame.pop("very_late")
    train, test, y, y_test = train_test_split(frame, y, test_size=0.3, random_state=0, stratify=y)
    balanced = {"class_weight": "balanced"}
    models = [
        tithe.CoresetLogisticRegression(random_state=0, **balanced),
        make_pipeline(by_hand(train), LogisticRegression(max_iter=1000, **balanced)),
        by_skrub(LogisticRegression(max_iter=1000, **balanced)),
    ]
    precisions = []
    for model in models:
        model.fit(train, y)
        precisions.append(float(average_precision_score(y_test, model.predict_proba(test)[:, 1])))
    cases = [_case("7", "average precision of a rare event", *precisions)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train.assign(y=np.where(y, "very late", "other")).to_csv(folder / "a.csv", index=False)
        test.assign(y=np.where(y_test, "very late", "other")).to_csv(folder / "b.csv", index=False)
        options = ["--target", "y", "--class-weight", "balanced", "--test", folder / "b.csv", "-o", folder / "out"]
        _, said = _ran("fit", "logistic", folder / "a.csv", *options)
    words = ("average precision", "always", "alarms")
    is_said = float(all(word in said.lower() for word in words))
    return [*cases, _case("7", "the command says baseline, average precision and alarms", is_said)]


_FRESH = """
import sys
import numpy as np, pandas as pd, tithe
model, probabilities, rows = sys.argv[1:]
np.save(probabilities, tithe.load_model(model).predict_proba(pd.read_csv(rows)))
"""


def _saved_trees(frame: pd.DataFrame, y: Any) -> list[Case]:
    """Ensembles of trees are saved, and predict the same bits in another process; they have a certificate."""
    import lightgbm
    import xgboost

    trees = [
        lightgbm.LGBMClassifier(n_estimators=10, verbose=-1),
        xgboost.XGBClassifier(n_estimators=10),
        RandomForestClassifier(10, random_state=0),
        HistGradientBoostingClassifier(max_iter=10, random_state=0),
    ]
    same, certified = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame.to_csv(folder / "rows.csv", index=False)
        rows = pd.read_csv(folder / "rows.csv")
        for tree in trees:
            model = tithe.CoresetEstimator(tree, random_state=0).fit(rows, y)
            certified.append(model.certificate_ is not None)
            tithe.save_model(model, folder / "model.tithe")
            arguments = [folder / "model.tithe", folder / "p.npy", folder / "rows.csv"]
            subprocess.run([sys.executable, "-W", "ignore", "-c", _FRESH, *map(str, arguments)], check=True)
            same.append(np.array_equal(np.load(folder / "p.npy"), model.predict_proba(rows)))
    return [
        _case("8", "saved trees of four kinds predict the same bits in a fresh process", float(np.mean(same))),
        _case("8", "they have a certificate", float(np.mean(certified))),
    ]


def _compare(frame: pd.DataFrame) -> list[Case]:
    """`tithe compare` learns what the target asks for."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        file, out = Path(name, "rows.csv"), Path(name, "out")
        frame.to_csv(file, index=False)
        for target in ("late", "distance"):
            _ran("compare", file, "--target", target, "-o", out)
            found.append(json.loads((out / "results.json").read_text())["objective"])
    follows = float(found == ["logistic", "least_squares"])
    return [_case("9", "compare --target compares logistic and ridge regression", follows)]


def cases(flights: pd.DataFrame, diamonds: pd.DataFrame, by_hand: Pipeline, scored: dict[str, Case]) -> list[Case]:
    """All nine. ``flights`` have the column late; ``scored`` are the tables of the first three."""
    made = [_case("1", "log-loss, dates and amounts as they are written", *_scores(scored["flights_as_written"]))]
    made.append(_case("1", "log-loss, the same columns as ISO dates and numbers", *_scores(scored["flights"])))
    made.append(_case("2", "R2, a category of 142 values in 1,704 rows", *_scores(scored["gapminder"])))
    made.append(_case("3", "log-loss, an embedding with an id and a text", *_scores(scored["embedding"])))
    flights = flights.drop(columns="tailnum")
    small = flights.sample(3000, random_state=0).reset_index(drop=True)
    features, y = small.drop(columns=["late", "very_late"]), small["late"]
    made += _odd_predictions(small.drop(columns="very_late"), by_hand)
    made += _gap(diamonds.sample(3000, random_state=0))
    made += _names(features, y, by_hand)
    made += _rare(flights.sample(20_000, random_state=0).drop(columns="late"), by_hand)
    made += _saved_trees(features, y)
    made += _compare(small.drop(columns="very_late"))
    return made


def _scores(of_table: Case) -> list[float | None]:
    return [of_table["tithe"], of_table["by_hand"], of_table.get("skrub")]
