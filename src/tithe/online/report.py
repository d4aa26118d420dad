"""What a run of online clustering says: clusters over the stream, and the regret."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tithe.clustering.objective import KMeansObjective
from tithe.core.data import Array
from tithe.core.seeding import rng_for
from tithe.online.paco import PACO
from tithe.report.run import MODEL, Run
from tithe.report.svg import DIM, Figure, Scale, around
from tithe.storage.models import model_bytes

_REGRET = "Regret over the stream"
_REGRET_NOTE = (
    "How much more all rows so far have cost than with the best fixed centres. Where the curve is flat, rows are "
    "assigned as well as with these; where it rises, clusters are still being learned, or have changed."
)


def online_run(model: PACO, **facts: Any) -> Run:
    """The run of a clusterer; ``n_rows`` and ``seconds`` do not count the earlier runs that it resumed."""
    history, best = model.history_, hindsight(model)
    loss, acceptance = float(history["cumulative_loss"][-1]), float(history["acceptance"].mean())
    text = (
        "Every row was assigned to a cluster when it came, before it was learned from. On average its squared distance "
        f"from the centre was {loss / model.n_rows_:.4g}."
    )
    in_hindsight = []
    if best is not None:
        text += (
            f" With the best {model.n_clusters_} fixed centres, which are known only afterwards, it would have been "
            f"about {best[-1] / model.n_rows_:.4g}."
        )
        in_hindsight = [("of the best centres in hindsight (estimate)", f"{best[-1] / model.n_rows_:,.6g}")]
    return Run(
        learner="online",
        model=model,
        title=f"{model.n_clusters_} clusters after {model.n_rows_:,} rows",
        sentences=[("", text)],
        facts=[
            ("rows so far", f"{model.n_rows_:,}"),
            ("rows of this run", f"{facts['n_rows']:,}, {facts['n_rows'] / facts['seconds']:,.0f} rows/s"),
            ("clusters", str(model.n_clusters_)),
            ("loss of a row, on average", f"{loss / model.n_rows_:,.6g}"),
            *in_hindsight,
            ("accepted steps", f"{100 * acceptance:.1f} %"),
            ("radius", f"{model.radius_:.6g}, doubled {len(history['restarts'])} times"),
        ],
        results={
            "n_clusters": model.n_clusters_,
            "cumulative_loss": loss,
            "hindsight_loss": None if best is None else float(best[-1]),
            "acceptance": acceptance,
            "radius": model.radius_,
            "restarts": history["restarts"],
            "centers": model.cluster_centers_.tolist(),
        },
        figures=_figures(history, best),
        notes={_REGRET: _REGRET_NOTE},
        footer="<code>model.tithe</code> can be resumed, <code>results.json</code> holds these numbers.",
        model_file=model_bytes(model, rows=True),  # --resume goes on from it
        without_table=("centers",),
        last=MODEL,  # a run that was killed before it was there can be started again
        **facts,
    )


def hindsight(model: PACO) -> Array | None:
    """The cumulative loss of the best fixed centres of this number, on the rows held; None with a half-life."""
    if model.half_life is not None:
        return None
    past = model.summary_
    objective = KMeansObjective(n_clusters=model.n_clusters_)
    centers = objective.solve(past, rng=rng_for(0, "hindsight"))
    loss = past.weights() * objective.cost(past, centers)
    order = np.argsort(past.row_ids(), kind="stable")
    cumulative = np.concatenate([[0.0], loss[order].cumsum()])
    return np.asarray(cumulative[np.searchsorted(past.row_ids()[order], model.history_["row"])])


def _figures(history: dict[str, Array], best: Array | None) -> dict[str, str]:
    """By caption: the number of clusters over the stream, and the regret, or the loss where no regret is known."""
    rows, k = history["row"].tolist(), history["k"].tolist()
    along = Scale(0.0, rows[-1])
    clusters = Figure(along, Scale(0.0, max(k) + 1.0), "rows", "clusters", height=240.0)
    steps = [0, *rows]  # a number holds from the row before to its own
    clusters.line([row for pair in pairwise(steps) for row in pair], [n for n in k for _ in range(2)])
    loss = history["cumulative_loss"] - (0.0 if best is None else best)
    label = "cumulative loss" if best is None else "loss above that in hindsight"
    losses = Figure(along, around([0.0], loss.tolist()), "rows", label, height=240.0)
    losses.line([0.0, rows[-1]], [0.0, 0.0], DIM)
    losses.line(rows, loss.tolist())
    caption = "Loss over the stream" if best is None else _REGRET
    return {"Clusters over the stream": clusters.svg(), caption: losses.svg()}
