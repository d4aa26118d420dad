"""``tithe score``: how much new rows matter, by what a coreset has learned, and a one-pass draw of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tithe.cli.main import Command, all_or_nothing
from tithe.cli.merge import print_scorer
from tithe.cli.options import seed_option
from tithe.cli.predict import table_writer
from tithe.cli.screen import print_table, say
from tithe.cli.sources import (
    TABLE_ENDINGS,
    TABLE_FORMATS,
    TABLE_OPTIONS,
    check_apart,
    on_this_machine,
    refuse_given,
    source_options,
)
from tithe.core.progress import ProgressBar


@click.command(cls=Command)
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--with", "file", metavar="CORESET", required=True, help="Built with --construction rdsf.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="Parquet or .csv file to write.")
@click.option(
    "-m",
    "--size",
    type=click.IntRange(min=1),
    help="Also draw rows in this one pass: about so many for every growth of their number by a factor of 2.7. The "
    "weight of a row that is not kept is 0.",
)
@source_options
@seed_option
def score(where, how, file, output, size, seed):  # type: ignore[no-untyped-def]
    """Score new rows with the regression in CORESET: row_id and sensitivity, 1 for a row that matters as all do.

    Rows of a classification need their --target. A random share of 1 % is scored exactly as well, and there is a
    warning if the regression has drifted.

    \b
    Example:
      tithe build rows.parquet --objective logistic --target y --construction rdsf -m 5000 -o coreset.parquet
      tithe score new.parquet --target y --with coreset.parquet -m 1000 -o scores.parquet
    """
    from tithe.core.files import check_output
    from tithe.storage.coresets import load_coreset, load_schema, saved_feature_names

    if Path(output).suffix.lower() not in TABLE_ENDINGS:
        raise click.UsageError(f"{output!r}: scores are written as .parquet or .csv.")
    check_output(output)
    check_apart(output, where)
    with on_this_machine(file) as path:
        coreset, schema, names = load_coreset(path), load_schema(path), saved_feature_names(path) or []
    if coreset.scorer is None:
        raise ValueError(f"{file} cannot score rows: build it with --construction rdsf.")
    if coreset.scorer.objective.classes is not None and how["target"] is None:
        raise click.UsageError("A row is scored together with its class: give --target.")
    if schema is not None:
        refuse_given(TABLE_OPTIONS, f"the schema of {file} says how columns become features")
    elif how.format_of(where) in TABLE_FORMATS:
        how |= {"scale": "none", "impute": "none", "columns": how.get("columns") or names}
    with all_or_nothing() as stop:
        source = how.open(where, schema=schema)
        with ProgressBar(source.n_rows, "scoring") as reading:
            progress = stop.after_leaves(reading) if source.replayable else reading
            n_rows, n_kept, drift = _write(output, coreset.scorer, source, progress, size, seed)
    kept = [] if size is None else [["rows kept", f"{n_kept:,}"]]
    print_table(output, ["", ""], [["rows", f"{n_rows:,}"], *kept])
    print_scorer(coreset, names)
    if drift is not None:
        say(drift, err=True)


def _write(
    output: str, scorer: Any, source: Any, progress: Any, size: int | None, seed: int
) -> tuple[int, int, str | None]:
    """Score leaf by leaf; returns the number of rows, of those kept, and what is to be said of a drift."""
    import numpy as np
    import pyarrow as pa

    from tithe.core.files import replacing
    from tithe.core.passes import DataPass

    inclusion, writer, n_kept = scorer.stream(size or 1, seed), None, 0
    with replacing(output) as temporary:
        try:
            for leaf in DataPass(source, "serial", progress).each(_leaf):
                kept, weights = inclusion.include(leaf)
                columns = {"row_id": leaf.row_ids(), "sensitivity": scorer.score(leaf)}
                if size is not None:
                    columns["weight"] = np.zeros(len(leaf))
                    columns["weight"][kept] = weights
                table = pa.table(columns)
                writer = writer or table_writer(temporary, Path(output).suffix.lower(), table.schema)
                writer.write_table(table)
                n_kept += int(kept.sum())
        finally:
            if writer is not None:
                writer.close()
    return inclusion.n_seen_, n_kept, inclusion.drift_text if inclusion.drifted else None


def _leaf(leaf: Any) -> Any:
    return leaf
