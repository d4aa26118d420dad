"""The demonstration: rare groups of payments that a random sample loses and a coreset keeps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tithe.clustering.learners import CoresetKMeans
from tithe.core.data import Array
from tithe.core.files import making_folder, replacing
from tithe.report.comparison.recommend import time_text
from tithe.report.figures import rare_groups
from tithe.report.html import render
from tithe.report.payments import N_GROUPS, N_RARE, Payments, generated_payments
from tithe.storage.coresets import save_coreset
from tithe.storage.models import save_model

CORESET, SAMPLE, ALL_TITHE, ALL_SKLEARN = "coreset", "random sample", "all rows, tithe", "all rows, scikit-learn"
_N_DRAWS = 5
_WARM_UP_ROWS, _WARM_UP_SIZE = 4000, 400
Step = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fit:
    """A fitted model, the number of rows that it learned from, its seconds, and which rare groups it found."""

    model: Any
    rows: int
    seconds: float
    found: Array

    @property
    def n_found(self) -> int:
        return int(self.found.sum())


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The results of the demonstration.

    Parameters
    ----------
    n_rows, n_kept, n_rare : int
        Payments, how many of them the coreset and the random sample hold, and rare groups among them.
    methods : list of dict
        A row for each method, the coreset first: ``method``, ``rows`` learned from and ``n_fits``; medians over the
        fits of the rare ``groups`` found, of ``seconds`` and of ``cost``, the sum of squared distances of all payments
        from their centres; ``fewest_groups`` and ``most_groups``; ``times_as_long`` as the coreset; ``excess``, the
        share by which the cost is above the lowest of the methods.
    in_short, certificate : str
        The certificate of the fit on the coreset that the picture shows.
    seconds : float
        Of the whole demonstration, compilation and figures included.
    """

    n_rows: int
    n_kept: int
    n_rare: int
    methods: list[dict[str, Any]]
    in_short: str
    certificate: str
    seconds: float

    def sentences(self) -> list[str]:
        """The results in words."""
        by_name = {line["method"]: line for line in self.methods}
        coreset = by_name[CORESET]
        sentences = [
            f"From a coreset of {self.n_kept:,} of {self.n_rows:,} payments, k-means found {coreset['groups']} of the "
            f"{self.n_rare} rare groups, in {time_text(coreset['seconds'])}.",
            f"From a random sample of the same size it found {by_name[SAMPLE]['groups']}.",
        ]
        for method, solver in ((ALL_SKLEARN, "scikit-learn's k-means"), (ALL_TITHE, "tithe's own")):
            line = by_name[method]
            sentences.append(
                f"On all rows, {solver} found {line['groups']} in {time_text(line['seconds'])}: the coreset is "
                f"{speed_text(line['times_as_long'])}."
            )
        return sentences


def speed_text(times_as_long: float) -> str:
    """How much faster something is than what takes so many times as long.

    >>> speed_text(12.4), speed_text(1.96), speed_text(0.8)
    ('12 times faster', '2.0 times faster', 'not faster')
    """
    if times_as_long < 1.05:
        return "not faster"
    return f"{times_as_long:.{0 if times_as_long >= 9.5 else 1}f} times faster"


def _excess_text(excess: float) -> str:
    return f"+{100.0 * excess:,.{0 if excess >= 0.1 else 1}f} %"


# columns of the table, the fields of `Demo.methods` that they show, and how
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("learned from", "method", str),
    ("rare groups found", "groups", str),
    ("time", "seconds", time_text),
    ("times as long", "times_as_long", "{:.2g}".format),
    ("excess cost", "excess", _excess_text),
    ("rows", "rows", "{:,}".format),
    ("fewest", "fewest_groups", str),
    ("most", "most_groups", str),
)


def table_rows(demo: Demo) -> tuple[list[str], list[list[tuple[str, Any, str]]]]:
    """The titles of the table, and its cells: the field, its value and the text that shows it."""
    rows = [[(field, line[field], form(line[field])) for _, field, form in _COLUMNS] for line in demo.methods]
    return [title for title, _, _ in _COLUMNS], rows


def run_demo(
    folder: str | Path, *, n_rows: int = 1_000_000, coreset_size: int = 1000, progress: Step | None = None
) -> tuple[Demo, Path]:
    """Look for rare groups of payments in a coreset, in random samples and in all rows; write a report.

    Returns the results and the path of the page.
    """
    start = time.perf_counter()
    n_steps, steps = 2 * _N_DRAWS + 4, iter(range(2 * _N_DRAWS + 4))

    def step(name: str) -> None:
        if progress is not None:
            progress(next(steps), n_steps, name)

    step("compiling")
    payments = generated_payments(n_rows)
    _coreset_fit(coreset_size=_WARM_UP_SIZE).fit(payments.X[:_WARM_UP_ROWS])
    fits: dict[str, list[_Fit]] = {}
    for seed in range(_N_DRAWS):
        for name, options in ((CORESET, {}), (SAMPLE, {"construction": "uniform", "calibrate": False})):
            step(name)
            model = _coreset_fit(coreset_size=coreset_size, random_state=seed, **options)
            fits.setdefault(name, []).append(_fitted(model, payments, coreset_size))
    step(ALL_TITHE)
    fits[ALL_TITHE] = [_fitted(_coreset_fit(coreset_size=n_rows), payments, n_rows)]
    step(ALL_SKLEARN)
    fits[ALL_SKLEARN] = [_fitted(_sklearn_fit(), payments, n_rows)]
    step("writing")
    shown = {name: _typical(fits[name]) for name in (SAMPLE, CORESET)}
    certificate = shown[CORESET].model.certificate_
    demo = Demo(
        n_rows=n_rows,
        n_kept=coreset_size,
        n_rare=N_RARE,
        methods=_summaries(fits),
        in_short=certificate.in_short,
        certificate=str(certificate),
        seconds=time.perf_counter() - start,
    )
    return demo, _write(Path(folder), demo, payments, shown)


def _coreset_fit(**options: Any) -> CoresetKMeans:
    return CoresetKMeans(N_GROUPS, **{"random_state": 0, **options})


def _sklearn_fit() -> Any:
    from sklearn.cluster import KMeans

    return KMeans(N_GROUPS, random_state=0)


def _fitted(model: Any, payments: Payments, rows: int) -> _Fit:
    start = time.perf_counter()
    model.fit(payments.X)
    seconds = time.perf_counter() - start
    return _Fit(model=model, rows=rows, seconds=seconds, found=payments.rare_found(model.labels_))


def _typical(fits: list[_Fit]) -> _Fit:
    """The fit that found the median number of groups."""
    return sorted(fits, key=lambda fit: fit.n_found)[len(fits) // 2]


def _summaries(fits: dict[str, list[_Fit]]) -> list[dict[str, Any]]:
    costs = {name: float(np.median([fit.model.inertia_ for fit in fits[name]])) for name in fits}
    seconds = {name: float(np.median([fit.seconds for fit in fits[name]])) for name in fits}
    return [
        {
            "method": name,
            "rows": fits[name][0].rows,
            "n_fits": len(fits[name]),
            "groups": _typical(fits[name]).n_found,
            "fewest_groups": min(fit.n_found for fit in fits[name]),
            "most_groups": max(fit.n_found for fit in fits[name]),
            "seconds": seconds[name],
            "times_as_long": seconds[name] / seconds[CORESET],
            "cost": costs[name],
            "excess": costs[name] / min(costs.values()) - 1.0,
        }
        for name in fits
    ]


def _write(folder: Path, demo: Demo, payments: Payments, shown: dict[str, _Fit]) -> Path:
    """Write ``index.html``, ``results.json``, ``coreset.parquet`` and ``model.skops``; returns the page's path."""
    model = shown[CORESET].model
    figures = {}
    for name, fit in shown.items():
        caption = f"{name.capitalize()}: {fit.n_found} of {demo.n_rare} rare groups found"
        figures[caption] = rare_groups(payments, fit.model.coreset_, fit.found)
    titles, rows = table_rows(demo)
    page = render(
        "demo.html",
        demo=demo,
        sentences=demo.sentences(),
        seconds=time_text(demo.seconds),
        titles=titles,
        rows=rows,
        n_groups=N_GROUPS,
        figures=figures,
    )
    with making_folder(folder):
        for name, text in (("index.html", page), ("results.json", json.dumps(asdict(demo), indent=2) + "\n")):
            with replacing(folder / name) as path:
                path.write_text(text, encoding="utf8")
        save_coreset(model.coreset_, folder / "coreset.parquet", feature_names=["amount", "distance"])
        save_model(model, folder / "model.skops")
    return folder / "index.html"
