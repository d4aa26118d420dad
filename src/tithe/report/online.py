"""The output of online clustering: the model, a page and the numbers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tithe.clustering.objective import KMeansObjective
from tithe.core.data import Array
from tithe.core.files import making_folder, replacing
from tithe.core.seeding import rng_for
from tithe.core.version import __version__
from tithe.online.paco import PACO
from tithe.report.figures import REGRET, online_figures
from tithe.report.html import render
from tithe.storage.models import model_bytes

_REGRET_NOTE = (
    "How much more all rows so far have cost than with the best fixed centres. Where the curve is flat, rows are "
    "assigned as well as with these; where it rises, clusters are still being learned, or have changed."
)


@dataclass(frozen=True, kw_only=True)
class OnlineRun:
    """Facts about a run; ``seconds`` and ``n_rows`` do not count the earlier runs that it resumed."""

    files: list[str]
    n_rows: int
    seconds: float
    peak_bytes: int
    parameters: dict[str, Any]


def hindsight(model: PACO) -> Array | None:
    """The cumulative loss of the best fixed centres, of the current number, at each row of the history.

    The centres are fitted, and their loss is estimated, on the rows that the model holds. None if the model has a
    half-life: no fixed centres are good for a stream that changes.
    """
    if model.half_life is not None:
        return None
    past = model.summary_
    objective = KMeansObjective(n_clusters=model.n_clusters_)
    centers = objective.solve(past, rng=rng_for(0, "hindsight"))
    loss = past.weights() * objective.cost(past, centers)
    order = np.argsort(past.row_ids(), kind="stable")
    cumulative = np.concatenate([[0.0], loss[order].cumsum()])
    losses: Array = cumulative[np.searchsorted(past.row_ids()[order], model.history_["row"])]
    return losses


def write_online(folder: str | Path, model: PACO, run: OnlineRun) -> dict[str, Any]:
    """Write ``results.json``, ``report.html`` and, last, ``model.skops``. Returns the results."""
    folder = Path(folder)
    history, best_losses = model.history_, hindsight(model)
    results = {
        **asdict(run),
        "tithe": __version__,
        "rows_so_far": model.n_rows_,
        "n_features": model.n_features_in_,
        "n_clusters": model.n_clusters_,
        "cumulative_loss": float(history["cumulative_loss"][-1]),
        "hindsight_loss": None if best_losses is None else float(best_losses[-1]),
        "acceptance": float(history["acceptance"].mean()),
        "radius": model.radius_,
        "restarts": history["restarts"],
        "centers": model.cluster_centers_.tolist(),
    }
    page = render(
        "online.html", run=results, figures=online_figures(history, best_losses), notes={REGRET: _REGRET_NOTE}
    )
    # what is entered last gets its name first, so the model is the last file: a run that was killed before it was
    # there can be started again
    with making_folder(folder), ExitStack() as stack:
        skops, html, numbers = (
            stack.enter_context(replacing(folder / name)) for name in ("model.skops", "report.html", "results.json")
        )
        skops.write_bytes(model_bytes(model, rows=True))  # --resume goes on from it
        html.write_text(page, encoding="utf8")
        numbers.write_text(json.dumps(results, indent=2) + "\n", encoding="utf8")
    return results
