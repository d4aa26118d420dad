"""A page about forgotten rows."""

from __future__ import annotations

import os

from tithe.core.files import replacing
from tithe.odm.incremental import IncrementalODMClassifier
from tithe.report.html import render


def write_unlearning(path: str | os.PathLike[str], model: IncrementalODMClassifier) -> None:
    """Write the certificate of all rows that a model has forgotten as a page that works offline.

    It names the ids of these rows, and holds no value of any row.
    """
    if model.unlearning_ is None:
        raise ValueError("The model has forgotten no rows: there is nothing to certify.")
    page = render(
        "unlearning.html",
        said=model.unlearning_,
        learner=type(model).__name__,
        parameters={**model.get_params(), "cost of a row of weight one": model.cost_},
        figures={},
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf8")
