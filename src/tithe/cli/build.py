"""``tithe build``: rows in files to a coreset in a file."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from tithe.cli.main import Stop, Stopped, print_worth, resume_hint
from tithe.cli.options import (
    SHARE,
    ObjectiveCommand,
    engine_options,
    jobs_option,
    promise_option,
    running_engine,
    seed_option,
    size_option,
    with_construction_parameters,
)
from tithe.cli.screen import STDOUT, print_table, screen, time_waited, written
from tithe.cli.size import checkpoint_options, choose_size, earlier_run, print_plan
from tithe.cli.sources import (
    STDIN,
    TABLE_FORMATS,
    TABLE_OPTIONS,
    SourceOptions,
    check_apart,
    check_coreset_name,
    refuse_given,
    skipped_rows,
    source_options,
)
from tithe.core.progress import ProgressBar, bytes_text, peak_memory
from tithe.core.registry import resolve


@click.command(cls=ObjectiveCommand)
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="Parquet or .csv file; -: CSV.")
@size_option
@click.option("--eps", type=SHARE, default=0.05, help="The error for which a size is chosen, without -m.")
@promise_option
@with_construction_parameters
@source_options
@click.option(
    "--schema-from",
    metavar="FILE",
    help="Make the same features of the columns as this coreset or model has, so that coresets can be merged.",
)
@click.option(
    "--pilot-from",
    metavar="FILE",
    help="Take totals at the pilot of this coreset, with its features: totals of sites add up when they are merged.",
)
@seed_option
@jobs_option
@engine_options
@checkpoint_options
@click.option("--check/--no-check", default=False, help="Measure its error in one more pass.")
def build(  # type: ignore[no-untyped-def]
    where, how, output, size, eps, promise, objective, construction, calibrate, schema_from, pilot_from, seed, jobs,
    engine, scheduler, checkpoint, checkpoint_every, resume, dry_run, check, **parameters,
):  # fmt: skip
    """Reduce files to a small weighted file: Parquet, or CSV if its name ends in .csv.

    SOURCE is a file (.parquet, .csv, .npy, ...), a folder, a pattern in quotes, a URL of one (s3://, gs://, abfs://,
    https://, file://), several of these, or - for standard input. Files need not fit into memory. A run that was
    stopped, or killed, goes on with --resume.

    \b
    Example:
      tithe build rows.parquet -k 20 -m 5000 --weight w -o coreset.parquet
      tithe build rows.parquet -k 20 --eps 0.01 --promise fit -o coreset.parquet
      tithe build 'data/*.parquet' --objective logistic --target y -m 0.01 -o coreset.parquet
      zcat rows.csv.gz | tithe build - -m 5000 -o coreset.parquet
      tithe build rows2.parquet -k 20 -m 5000 --seed 2 --pilot-from site1.parquet -o site2.parquet
      tithe build data/ -k 20 -m 5000 --engine dask --scheduler tcp://10.0.0.1:8786 -o coreset.parquet
    """
    if check and STDIN in where:
        raise click.UsageError("--check reads the rows once more, and those of standard input come only once.")
    from tithe.core.files import check_output
    from tithe.core.params import resolve_size
    from tithe.core.progress import Checkpoint
    from tithe.reduce.plan import Plan, build_coreset
    from tithe.storage.checkpoint import remove_state
    from tithe.storage.coresets import free_names, save_coreset

    check_coreset_name(output)
    if output != STDOUT:
        check_output(output)
        check_apart(output, where)
    goal = resolve("objective", objective)(**parameters)
    schema, pilot = shared_with(where, how, schema_from=schema_from, pilot_from=pilot_from)
    if pilot is not None:
        goal = _with_pilot(goal, pilot, str(pilot_from))
    how.check_target(where, goal.target)
    checkpoint = checkpoint or f"{'coreset' if output == STDOUT else output}.checkpoint"
    options = {"construction": construction, "calibrate": calibrate}
    with Stop() as stop, running_engine(engine, scheduler, jobs) as runs_on:
        source = how.open(where, schema=schema)
        if dry_run:
            size, why = choose_size(source, goal, size, eps=eps, promise=promise, seed=seed)
            plan = Plan.of(goal, size=resolve_size(size, source.n_rows), seed=seed, **options)
            print_plan(output, source, plan, where, why=why, jobs=jobs, passes=1 + check)
            return
        n_before, held_size = earlier_run(checkpoint, resume)
        with resume_hint(checkpoint), ProgressBar(source.n_rows, "reducing", done=n_before) as reading:
            reading.describe("choosing a size")
            size, why = choose_size(source, goal, size, eps=eps, promise=promise, seed=seed, earlier=held_size)
            start = perf_counter()
            coreset = build_coreset(
                source,
                objective=goal,
                coreset_size=size,
                pilot=None if pilot is None else pilot.pilot,
                engine=runs_on,
                random_state=seed,
                checkpoint=Checkpoint(checkpoint, checkpoint_every, resume),
                # a pipe is waited for, and can be stopped at any time
                progress=stop.after_leaves(reading) if source.replayable else reading,
                **options,
            )
            seconds = perf_counter() - start
            stop.idle()
            names = source.feature_names
            feature_names = None if names is None else free_names(names)
            with written(output) as place:
                save_coreset(coreset, place, feature_names=feature_names, schema=source.schema)
        remove_state(checkpoint)
        rows = _about(coreset, source, size, why, seconds, n_before, how)
        if check:
            rows.append(_checked(source, coreset, goal, runs_on, seed, stop, output))
    screen().found |= {"n_rows": coreset.n_seen, "rows_kept": len(coreset), "seconds": seconds}
    print_table(output, ["", ""], rows)
    print_worth(coreset)


def _about(
    coreset: Any, source: Any, size: int | float, why: str, seconds: float, n_before: int, how: SourceOptions
) -> list[list[str]]:
    rows = [["rows", f"{coreset.n_seen:,}"]]
    n_drawn = size if isinstance(size, int) else round(size * coreset.n_seen)
    if coreset.is_whole:
        why = "all rows"
    elif len(coreset) < n_drawn:
        why = f"{n_drawn:,} {why}; rows drawn more than once are kept once"
    n_skipped = skipped_rows(source, coreset, how)
    if n_skipped:
        rows.append(["rows left out (bad, or without a target)", f"{n_skipped:,}"])
    return [
        *rows,
        ["rows kept", f"{len(coreset):,} ({len(coreset) / coreset.n_seen:.2%}; {why})"],
        ["construction", str(coreset.provenance["construction"])],
        ["effective sample size", f"{coreset.effective_size:,.0f}"],
        ["weight kept", f"{coreset.weights().sum() / coreset.weight_seen:.6f}"],
        ["time", time_waited(seconds, "reducing")],
        ["speed", f"{(coreset.n_seen - n_before) / seconds:,.0f} rows/s"],
        ["peak memory", bytes_text(peak_memory())],
    ]


def _checked(source: Any, coreset: Any, goal: Any, engine: Any, seed: int, stop: Stop, output: str) -> list[str]:
    """One more pass: the exact error of the coreset."""
    from tithe.certify.gap import ConvexObjective, certify_gap
    from tithe.core.passes import DataPass
    from tithe.core.seeding import rng_for
    from tithe.reduce.distortion import distortion, random_queries

    try:
        with ProgressBar(source.n_rows, "checking") as reading:
            progress = stop.after_leaves(reading)
            if isinstance(goal, ConvexObjective):
                goal = goal.for_rows(coreset)
                params = goal.solve(coreset, rng=rng_for(seed, "solve"))
                gap = certify_gap(goal, DataPass(source, engine, progress), params, coreset)
                return ["excess loss of a fit on it", f"{gap.relative_excess:.2g} ({gap.kind})"]
            sample = source.sample(None, rng=rng_for(seed, "queries"))
            queries = {"random": random_queries(sample, goal, n_bases=2, seed=seed + 1)}
            middle, largest = distortion(
                source, coreset, goal, queries=queries, engine=engine, progress=progress
            ).summary()["random"]
            return ["distortion, random solutions", f"median {middle:.4f}, max {largest:.4f}"]
    except KeyboardInterrupt:
        raise Stopped(f"Stopped while it was checked; {output} itself is whole.") from None


def shared_with(
    where: Sequence[str], how: SourceOptions, *, schema_from: str | None, pilot_from: str | None
) -> tuple[Any, Any]:
    """The schema that ``--schema-from`` or ``--pilot-from`` names, and the coreset with the pilot; None where none."""
    if schema_from is not None and pilot_from is not None:
        raise click.UsageError("--pilot-from takes the schema of its file as well: leave --schema-from out.")
    file = schema_from or pilot_from
    if file is None:
        return None, None
    if not Path(file).is_file():
        raise FileNotFoundError(f"There is no file {file!r}.")
    schema = _schema_of(file)
    is_table = how.format_of(where) in TABLE_FORMATS
    if schema is None and (is_table or schema_from is not None):
        raise ValueError(f"{file} has no schema: its rows did not come from a table.")
    if schema is not None:
        if not is_table:
            raise ValueError(f"{file} has a schema, which is for tables (Parquet, CSV, Arrow): these rows are none.")
        refuse_given(TABLE_OPTIONS, f"the schema of {file} says how columns become features")
    if pilot_from is None:
        return schema, None
    from tithe.storage.coresets import load_coreset

    coreset = load_coreset(pilot_from)
    if coreset.pilot is None:
        raise ValueError(f"{pilot_from} has no pilot: it holds all rows, or none was needed. Take a reduced one.")
    return schema, coreset


def _schema_of(file: str) -> Any:
    """The schema in a coreset or a model; None if it has none."""
    from tithe.fit.results import table_schema

    if zipfile.is_zipfile(file):
        from tithe.storage.models import load_model

        return table_schema(load_model(file))
    from tithe.storage.coresets import load_schema

    return load_schema(file)


def _with_pilot(objective: Any, coreset: Any, file: str) -> Any:
    """The objective of the coreset with the pilot, which must be the one that was asked for."""

    earlier = coreset.objective
    if earlier is None:
        return objective
    if earlier.name != objective.name:
        raise ValueError(f"{file} was built for {earlier.name!r}, not for {objective.name!r}.")
    ours, theirs = objective.record(), earlier.record()
    for name, value in ours.items():
        if value != theirs[name] and not (name == "classes" and value is None):
            raise ValueError(f"{file} was built with {name}={theirs[name]!r}, not with {name}={value!r}.")
    return earlier
