"""The demonstration: rare groups of generated payments that a random sample loses and a coreset keeps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tithe.clustering.learners import CoresetKMeans
from tithe.core.data import Array, Coreset
from tithe.plot.axes import GREY, LINE_COLOURS, as_png, bare, legend_above, new_axes
from tithe.report.run import Content, render, write_folder
from tithe.report.tables import Column, html_table, time_text
from tithe.storage.coresets import write_coreset
from tithe.storage.models import model_bytes

CORESET, SAMPLE, ALL_TITHE, ALL_SKLEARN = "coreset", "random sample", "all rows, tithe", "all rows, scikit-learn"
_N_DRAWS = 5
_WARM_UP_ROWS, _WARM_UP_SIZE = 4000, 400
Step = Callable[[int, int, str], None]

# amount in euros, distance from home in kilometres: ordinary payments are small and near home
_ORDINARY = ((40, 30), (120, 60), (60, 130), (190, 40), (150, 150), (60, 230))
_ORDINARY_SHARES = (0.26, 0.22, 0.18, 0.15, 0.11, 0.08)
_RARE = (
    *((400, 80), (680, 60), (930, 150), (330, 320), (620, 330)),
    *((880, 480), (90, 560), (400, 640), (680, 760), (180, 880)),
)
_RARE_SHARES = (0.0002, 0.0004)  # of all payments: the smallest and the largest rare group
_MIN_RARE = 10  # payments of a rare group, however few there are in all
_SPREAD = 5.0  # standard deviation of a group, in euros and in kilometres
_MAX_ORDINARY = 4000  # ordinary payments that are drawn: more make no other picture
N_ORDINARY, N_RARE = len(_ORDINARY), len(_RARE)
N_GROUPS = N_ORDINARY + N_RARE


@dataclass(frozen=True, kw_only=True, eq=False)
class Payments:
    """Payments, and the group that each was generated from; the rare groups come last."""

    X: Array  # (n, 2) float32: amount in euros and distance from home in kilometres
    group: Array  # (n,), from 0 to 15: the rare groups are those from 6 on
    middles: Array  # (16, 2), where the groups lie

    @classmethod
    def generated(cls, n_rows: int, seed: int = 0) -> Payments:
        """Payments in random order."""
        rng = np.random.default_rng(seed)
        rare = np.maximum(_MIN_RARE, (n_rows * np.linspace(*_RARE_SHARES, N_RARE)).astype(int))
        ordinary = ((n_rows - rare.sum()) * np.array(_ORDINARY_SHARES)).astype(int)
        ordinary[0] += n_rows - rare.sum() - ordinary.sum()
        group = rng.permutation(np.repeat(np.arange(N_GROUPS), np.concatenate([ordinary, rare])))
        middles = np.array([*_ORDINARY, *_RARE], np.float32)
        X = middles[group] + np.float32(_SPREAD) * rng.standard_normal((n_rows, 2), np.float32)
        return cls(X=X, group=group, middles=middles)

    def rare_found(self, labels: Array) -> Array:
        """For each rare group whether some cluster holds most of it and, by more than half, nothing else: (10,)."""
        n_clusters = int(labels.max()) + 1
        counts = np.bincount(self.group * n_clusters + labels, minlength=N_GROUPS * n_clusters)
        counts = counts.reshape(N_GROUPS, n_clusters)
        largest = counts.max(axis=1)
        of_cluster = counts.sum(axis=0)[counts.argmax(axis=1)]
        found = (2 * largest > counts.sum(axis=1)) & (2 * largest > of_cluster)
        return np.asarray(found[N_ORDINARY:])


Fit = tuple[Any, float, Array]  # a fitted model, its seconds, and which rare groups it found


def _fitted(model: Any, payments: Payments) -> Fit:
    start = time.perf_counter()
    model.fit(payments.X)
    return model, time.perf_counter() - start, payments.rare_found(model.labels_)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The results of the demonstration.

    ``methods`` has a line for each method, the coreset first. Groups, seconds and cost are medians over its fits;
    ``excess`` is the share by which the cost is above the lowest. The certificate is that of the fit that is drawn.
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


COLUMNS: tuple[Column, ...] = (
    ("learned from", "method", str),
    ("rare groups found", "groups", str),
    ("time", "seconds", time_text),
    ("times as long", "times_as_long", "{:.2g}".format),
    ("excess cost", "excess", lambda excess: f"+{100.0 * excess:,.{0 if excess >= 0.1 else 1}f} %"),
    ("rows", "rows", "{:,}".format),
    ("fewest", "fewest_groups", str),
    ("most", "most_groups", str),
)


def run_demo(
    folder: str | Path, *, n_rows: int = 1_000_000, coreset_size: int = 1000, progress: Step | None = None
) -> tuple[Demo, Path]:
    """Look for rare groups of payments in a coreset, in random samples and in all rows; write a report.

    Returns the results and the path of the page.
    """
    from sklearn.cluster import KMeans

    start = time.perf_counter()
    models: list[tuple[str, Any]] = []
    for seed in range(_N_DRAWS):
        options: dict[str, Any] = {"coreset_size": coreset_size, "random_state": seed}
        models.append((CORESET, CoresetKMeans(N_GROUPS, **options)))
        models.append((SAMPLE, CoresetKMeans(N_GROUPS, construction="uniform", calibrate=False, **options)))
    models.append((ALL_TITHE, CoresetKMeans(N_GROUPS, coreset_size=n_rows, random_state=0)))
    models.append((ALL_SKLEARN, KMeans(N_GROUPS, random_state=0)))
    tell = progress or (lambda n_done, n_steps, name: None)
    tell(0, len(models) + 2, "compiling")
    payments = Payments.generated(n_rows)
    CoresetKMeans(N_GROUPS, coreset_size=_WARM_UP_SIZE, random_state=0).fit(payments.X[:_WARM_UP_ROWS])
    fits: dict[str, list[Fit]] = {}
    for i, (name, model) in enumerate(models, 1):
        tell(i, len(models) + 2, name)
        fits.setdefault(name, []).append(_fitted(model, payments))
    tell(len(models) + 1, len(models) + 2, "writing")
    # of each the fit that found the median number of groups
    shown = {name: sorted(fits[name], key=lambda fit: int(fit[2].sum()))[_N_DRAWS // 2] for name in (SAMPLE, CORESET)}
    certificate = shown[CORESET][0].certificate_
    demo = Demo(
        n_rows=n_rows,
        n_kept=coreset_size,
        n_rare=N_RARE,
        methods=_summaries(fits, {CORESET: coreset_size, SAMPLE: coreset_size}, n_rows),
        in_short=certificate.in_short,
        certificate=certificate.at_length,
        seconds=time.perf_counter() - start,
    )
    return demo, _write(Path(folder), demo, payments, shown)


def _summaries(fits: dict[str, list[Fit]], kept: dict[str, int], n_rows: int) -> list[dict[str, Any]]:
    costs = {name: float(np.median([model.inertia_ for model, _, _ in fits[name]])) for name in fits}
    seconds = {name: float(np.median([took for _, took, _ in fits[name]])) for name in fits}
    groups = {name: sorted(int(found.sum()) for _, _, found in fits[name]) for name in fits}
    return [
        {
            "method": name,
            "rows": kept.get(name, n_rows),
            "n_fits": len(fits[name]),
            "groups": groups[name][len(groups[name]) // 2],
            "fewest_groups": groups[name][0],
            "most_groups": groups[name][-1],
            "seconds": seconds[name],
            "times_as_long": seconds[name] / seconds[CORESET],
            "cost": costs[name],
            "excess": costs[name] / min(costs.values()) - 1.0,
        }
        for name in fits
    ]


def _write(folder: Path, demo: Demo, payments: Payments, shown: dict[str, Fit]) -> Path:
    """Write ``index.html``, ``results.json``, ``coreset.parquet`` and ``model.tithe``; returns the page's path."""
    model = shown[CORESET][0]
    figures = {
        f"{name.capitalize()}: {found.sum()} of {N_RARE} rare groups found": _figure(payments, fitted.coreset_, found)
        for name, (fitted, _, found) in shown.items()
    }
    page = render(
        "demo.html",
        demo=demo,
        sentences=demo.sentences(),
        seconds=time_text(demo.seconds),
        table=html_table(COLUMNS, demo.methods),
        n_groups=N_GROUPS,
        figures=figures,
    )
    contents: dict[str, Content] = {
        "index.html": page,
        "results.json": json.dumps(asdict(demo), indent=2) + "\n",
        "coreset.parquet": lambda path: write_coreset(model.coreset_, path, feature_names=["amount", "distance"]),
        "model.tithe": model_bytes(model),
    }
    write_folder(folder, contents)
    return folder / "index.html"


def _figure(payments: Payments, coreset: Coreset, found: Array) -> bytes:
    """Payments in grey, the rows kept of them in blue, and a ring around each rare group, which was found or lost."""
    figure, axis = new_axes(5.0, 5.0)
    ordinary = payments.X[payments.group < N_ORDINARY][:_MAX_ORDINARY]
    behind = np.concatenate([ordinary, payments.X[payments.group >= N_ORDINARY]])
    axis.scatter(*behind.T, s=4, color=GREY, alpha=0.3, linewidths=0)
    axis.scatter(*coreset.X.T, s=9, color=LINE_COLOURS[0], linewidths=0)
    axis.plot([], [], marker=".", color=LINE_COLOURS[0], linestyle="none", label="rows kept")
    middles, lost = payments.middles[N_ORDINARY:], LINE_COLOURS[1]
    for wanted, colour, line, label in ((True, LINE_COLOURS[2], "-", "rare group, found"), (False, lost, ":", "lost")):
        x, y = middles[found == wanted].T
        axis.scatter(x, y, s=520, facecolors="none", edgecolors=colour, linestyles=line, linewidths=2.0)
        axis.plot([], [], marker="o", markersize=8, markerfacecolor="none", color=colour, linestyle="none", label=label)
    axis.scatter(*middles[~found].T, s=60, marker="x", color=lost, linewidths=2.0)
    axis.set(xlim=(-40, 1040), ylim=(-40, 1040), xlabel="amount, euros", ylabel="distance from home, kilometres")
    bare(axis)
    legend_above(axis, columns=3)
    return as_png(figure)
