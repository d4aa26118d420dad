"""``tithe fit`` on a coreset file: its rows and weights are learned from, without the rows that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import click

from tithe.cli.options import make_engine
from tithe.cli.progress import Stop
from tithe.cli.scored import ScoredRows
from tithe.cli.sources import TABLE_OPTIONS, SourceOptions, refuse_given
from tithe.core.progress import peak_memory

_REFUSED = ("size", "eps", "holdout", "target", "weight", "row_id", *TABLE_OPTIONS, "resume", "checkpoint", "dry_run")


def is_coreset(where: Sequence[str]) -> bool:
    """Whether the rows are to come from one coreset file."""
    from tithe.storage.coresets import is_coreset_file

    return len(where) == 1 and is_coreset_file(where[0])


def fit_coreset(
    model: Any, name: str, file: str, how: SourceOptions, *, output: str, test: str | None, keep_rows: bool, jobs: Any
) -> tuple[dict[str, Any], Any]:
    """Fit, score on the rows of ``test`` and write; returns the results and the scores."""
    from sklearn.utils import get_tags

    from tithe.fit.from_coreset import fit_on_saved_coreset
    from tithe.report.fit_report import Fit, write_fit
    from tithe.storage.coresets import load_coreset, load_schema

    refuse_given(_REFUSED, f"{file} is a coreset, which has its own weights, target and features. See tithe merge -m")
    if model.polish not in ("auto", 0):
        raise click.UsageError(f"--polish reads all rows, and {file} is a coreset: the others are not at hand.")
    coreset = load_coreset(file)
    if coreset.y is None and get_tags(model).target_tags.required:
        raise ValueError(f"{file} has no target: build it with --target.")
    start = perf_counter()
    fit_on_saved_coreset(model, coreset, load_schema(file))
    model.set_params(engine="auto")  # the model must not depend on the threads of this machine
    held_out = None
    if test is not None:
        with Stop() as stop:
            target = _target_name(model, coreset)
            reading = SourceOptions(how | {"target": target})
            rows = reading.open([test], schema=vars(model).get("schema_"))
            scored = ScoredRows(source=rows, training=rows, how=reading, test=test)
            held_out = scored.scores(model, make_engine(jobs), stop)
    facts = Fit(
        learner=name,
        files=[file],
        n_skipped=0,
        n_held_out=0,
        held_out=None if held_out is None else held_out.as_dict(),
        row_names=_names_of_typical_rows(model, coreset),
        seconds=perf_counter() - start,
        peak_bytes=peak_memory(),
        parameters={key: value if _is_plain(value) else repr(value) for key, value in model.get_params().items()},
    )
    return write_fit(output, model, facts, rows=keep_rows), held_out


def _names_of_typical_rows(model: Any, coreset: Any) -> dict[int, str]:
    """Site and row id there of the rows that stand for clusters; empty if the coreset is of one site."""
    if not coreset.sites:
        return {}
    names = {}
    for row, number, row_id in zip(coreset.row_ids().tolist(), *map(list, coreset.site_rows()), strict=True):
        names[row] = f"{coreset.sites[number].name}, row {row_id}"
    clusters = model.summary().get("clusters", [])
    return {row: names[row] for row in (cluster["typical_row"] for cluster in clusters) if row is not None}


def _target_name(model: Any, coreset: Any) -> str | None:
    """The column of the target in the table that the coreset came from."""
    schema = vars(model).get("schema_")
    return None if coreset.y is None or schema is None else schema.target


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, tuple))
