"""``tithe compare``: few rows or all, side by side, and which to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tithe.cli.engines import engine_options, running_engine
from tithe.cli.options import ObjectiveCommand, Value, jobs_option, make_objective, seed_option
from tithe.cli.progress import steps
from tithe.cli.sources import check_apart, check_folder, source_options
from tithe.cli.text import print_table
from tithe.core.params import CORESET_SIZE, POLISH
from tithe.core.registry import names


def _as_sizes(context: Any, param: Any, text: str | None) -> list[int | float] | None:
    """Rows, fractions or percentages, separated by commas."""
    if text is None:
        return None
    sizes: list[int | float] = []
    for part in (part.strip() for part in text.split(",")):
        number = part.removesuffix("%")
        try:
            size = int(number) if part == number and number.isdecimal() else float(number)
        except ValueError:
            raise click.BadParameter(f"{part!r} is no number of rows, fraction or percentage.") from None
        size = size / 100.0 if part != number else size
        if not CORESET_SIZE.accepts(size):
            raise click.BadParameter(f"{part!r} is not {CORESET_SIZE}, or a percentage.")
        sizes.append(size)
    return sizes


def _as_constructions(context: Any, param: Any, text: str) -> list[str]:
    known = ["auto", *names("construction")]
    asked = [part.strip() for part in text.split(",")]
    for name in asked:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}.")
    return asked


@click.command(cls=ObjectiveCommand)
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@click.option(
    "--sizes",
    metavar="A,B,...",
    callback=_as_sizes,
    help="Rows to keep: numbers, fractions or percentages. [default: 0.1%,1%,5%]",
)
@click.option(
    "--constructions",
    metavar="A,B,...",
    default="auto,uniform",
    callback=_as_constructions,
    show_default=True,
    help="How rows are chosen. A plain random sample is always compared as well.",
)
@click.option("--calibrate/--no-calibrate", default=True, show_default=True, help="Adjust weights to exact totals.")
@click.option(
    "--polish",
    type=Value(POLISH, name="ROUNDS|auto"),
    default=0,
    show_default=True,
    help="Passes that improve each solution, on lines of their own.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Draws of each kind.")
@click.option(
    "--holdout",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="Share of the rows that nothing is learned from, to judge by.",
)
@click.option(
    "--tol",
    type=click.FloatRange(0, min_open=True),
    default=0.01,
    show_default=True,
    help="Excess loss that is taken as harmless, as a share of the loss.",
)
@click.option(
    "--full-seconds",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Time for fits on all rows. If it is too little, the largest sample takes their place.",
)
@click.option(
    "--memory",
    metavar="GB",
    type=click.FloatRange(0, min_open=True),
    help="For the rows: if they take more, they stay in their files. [default: a quarter of what is available]",
)
@source_options
@seed_option
@jobs_option
@engine_options
def compare(  # type: ignore[no-untyped-def]
    where, how, output, sizes, objective, constructions, calibrate, polish, repeats, holdout, tol, full_seconds, memory,
    seed, jobs, engine, scheduler, **parameters,
):  # fmt: skip
    """Fit on coresets, on random samples and on all rows, and recommend one of them.

    SOURCE is a file, a folder, a pattern in quotes, a URL, or several of these. The folder OUTPUT gets report.html,
    results.json and table.csv.

    \b
    Example:
      tithe compare rows.csv -k 20 -o comparison
      tithe compare data/ --objective logistic --target y --sizes 0.1%,1%,5% -o comparison
      tithe compare rows.parquet --objective ridge --target price --constructions auto,leverage -o comparison
    """
    output = str(Path(output))
    check_folder(output)
    check_apart(output, where)
    goal = make_objective(objective, parameters)
    how.check_target(where, goal.target)
    with running_engine(engine, scheduler, jobs) as runs_on:
        from tithe.report.comparison.compare import compare as run_comparison
        from tithe.report.comparison.page import text_rows

        source = how.open(where)
        with steps() as step:
            result = run_comparison(
                source,
                objective=goal,
                sizes=sizes,
                constructions=constructions,
                calibrate=calibrate,
                polish=polish,
                n_repeats=repeats,
                holdout=holdout,
                tol=tol,
                full_seconds=full_seconds,
                memory=None if memory is None else max(1, int(1e9 * memory)),
                engine=runs_on,
                random_state=seed,
                progress=step,
            )
        page = result.write(output)
    title = f"{objective} on {result.n_rows:,} rows, {result.n_held_out:,} held out"
    print_table(title, *text_rows(result))
    for note in filter(None, (result.reference_note, result.draw_note)):
        click.echo(note)
    click.echo(str(result.recommendation))
    click.echo(f"Report: {page}")
