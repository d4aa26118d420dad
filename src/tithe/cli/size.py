"""``tithe size``: how many rows to keep."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from tithe.cli.options import EPS, ObjectiveCommand, make_objective, promise_option, seed_option
from tithe.cli.plan import limit_text
from tithe.cli.sources import source_options
from tithe.cli.text import print_table

if TYPE_CHECKING:  # a command that only shows its options need not load these
    from tithe.core.contracts import Objective


@click.command(cls=ObjectiveCommand)
@click.option("--eps", type=EPS, default=0.1, show_default=True)
@click.option("--delta", type=EPS, default=0.1, show_default=True)
@promise_option
@click.option("-d", "--features", type=click.IntRange(min=1), help="Number of columns, if no data is given.")
@click.option("-n", "--rows", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Rows, for rings.")
@click.option("-m", "--size", "n_kept", type=click.IntRange(min=1), help="Also print the error of this number of rows.")
@click.option(
    "--total-sensitivity",
    type=click.FloatRange(min=0.0, min_open=True),
    help="For logistic and margin, if no data is given.",
)
@click.option("--data", metavar="SOURCE", help="Measure on a sample of this file, folder or pattern (the pilot rule).")
@source_options
@seed_option
def size(objective, eps, delta, promise, features, rows, n_kept, total_sensitivity, data, how, seed, **parameters):  # type: ignore[no-untyped-def]
    """Rows for a relative error EPS with probability 1 - DELTA.

    Formulas of theorems are cautious by orders of magnitude. They are for clusterings, logistic regression, margins and
    dictionaries, and for the costs of all solutions. With --data trial coresets are measured as well.

    \b
    Example:
      tithe size -k 20 --eps 0.05 --data rows.parquet
      tithe size -k 20 --features 10 -m 5000
      tithe size --objective logistic --target y --data 'data/*.parquet'
    """
    from tithe.reduce.theory import known_theorems, measured_total_sensitivity, needs_total_sensitivity

    goal = make_objective(objective, parameters)
    theorems = known_theorems(goal)
    if data is None and not theorems:
        raise click.UsageError(f"For {objective} the size is measured: give files with --data.")
    measured = needs_total_sensitivity(goal)
    if data is None and measured and total_sensitivity is None:
        raise click.UsageError(f"For {objective} give files with --data, or a number with --total-sensitivity.")
    table = []
    if data is not None:
        from tithe import propose_size

        how.check_target([data], goal.target)
        source = how.open([data])
        if not source.replayable:
            raise click.UsageError("--data is sampled from all files; standard input can be read only once.")
        rows, features = source.n_rows or rows, source.n_features
        proposed, limit = propose_size(source, objective=goal, eps=eps, promise=promise, random_state=seed)
        table.append([f"{proposed:,}", "pilot rule", f"error: {limit_text(limit, promise)}"])
        if measured and total_sensitivity is None:
            total_sensitivity = measured_total_sensitivity(source, objective=goal, random_state=seed)
    if features is None:
        raise click.UsageError("Give the number of columns with --features, or files with --data.")
    terms = {"n_features": features, "n_rows": rows}
    if measured:
        terms["total_sensitivity"] = total_sensitivity
    table += _theorem_rows(goal, eps, delta, [{**terms, **theorem} for theorem in theorems], n_kept)
    columns = ["rows", "by", "how"]
    if n_kept is not None:
        columns.append(f"eps of {n_kept:,}")
        table = [[*row, ""][: len(columns)] for row in table]
    about = "".join(f"{name} = {value:g}, " for name, value in parameters.items() if isinstance(value, (int, float)))
    print_table(f"{objective}, {about}eps = {eps}, delta = {delta}", columns, table)
    if promise == "costs":
        factor = (1.0 + eps) / (1.0 - eps)
        click.echo(
            f"If no solution has a larger relative error than {eps:g}, the best one on the coreset costs at most "
            f"{factor:.4g} times the smallest cost."
        )


def _theorem_rows(
    goal: Objective, eps: float, delta: float, theorems: list[dict[str, Any]], n_kept: int | None
) -> list[list[str]]:
    """A row of the table for each theorem."""
    from tithe.reduce.theory import eps_for, theoretical_size

    table = []
    for terms in theorems:
        bound = theoretical_size(goal, eps, delta, **terms)
        kind, total = "proved" if bound.proved else "formula", bound.total_sensitivity
        how = f"{bound.formula}, S = {total:.4g}"
        if terms["construction"] == "rings":
            how += f": {round(bound.size / total):,} draws each"
        row = [f"{bound.size:,}", f"{terms['construction']}, {kind}", how]
        if n_kept is not None:
            error = eps_for(goal, n_kept, delta, **terms)
            row.append("none" if math.isinf(error) else f"{error:.3g}")
        table.append(row)
    return table
