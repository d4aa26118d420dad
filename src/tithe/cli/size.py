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
    from tithe.core.contracts import Objective, Source


@click.command(cls=ObjectiveCommand)
@click.option("--eps", type=EPS, default=0.1, show_default=True)
@click.option("--delta", type=EPS, default=0.1, show_default=True)
@promise_option
@click.option("-d", "--features", type=click.IntRange(min=1), help="Number of columns, if no data is given.")
@click.option(
    "-n",
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Rows, for rings and nets, if no data is given.",
)
@click.option("-m", "--size", "n_kept", type=click.IntRange(min=1), help="Also print the error of this number of rows.")
@click.option(
    "--total-sensitivity",
    type=click.FloatRange(min=0.0, min_open=True),
    help="For logistic and margin, if no data is given.",
)
@click.option(
    "--reference-factor",
    type=click.FloatRange(min=1.0),
    help="For dictionary: sizes for dictionaries that cost at least 1 / NUMBER of the reference. [default: 1 / EPS]",
)
@click.option("--data", metavar="SOURCE", help="Measure on a sample of this file, folder or pattern (the pilot rule).")
@source_options
@seed_option
def size(  # type: ignore[no-untyped-def]
    objective,
    eps,
    delta,
    promise,
    features,
    rows,
    n_kept,
    total_sensitivity,
    reference_factor,
    data,
    how,
    seed,
    **parameters,
):
    """Rows for a relative error EPS with probability 1 - DELTA.

    Formulas of theorems are cautious by orders of magnitude. They are for clusterings, logistic regression, margins and
    dictionaries, and for the costs of all solutions. With --data trial coresets are measured as well.

    \b
    Example:
      tithe size -k 20 --eps 0.05 --data rows.parquet
      tithe size -k 20 --features 10 -m 5000
      tithe size --objective logistic --target y --data 'data/*.parquet'
    """
    from tithe.theory.sizes import known_theorems, needs_total_sensitivity

    goal = make_objective(objective, parameters)
    theorems = known_theorems(goal)
    measured = needs_total_sensitivity(goal)
    _check_options(goal, data, total_sensitivity, reference_factor, measured=measured, has_theorems=bool(theorems))
    table, is_estimate = [], False
    if data is not None:
        how.check_target([data], goal.target)
        source = how.open([data])
        if not source.replayable:
            raise click.UsageError("--data is sampled from all files; standard input can be read only once.")
        table.append(_measured_row(source, goal, eps, promise, seed))
        features = source.n_features
        if measured and total_sensitivity is None:
            total_sensitivity, is_estimate = _measured_total(source, goal, seed)
        elif not measured:
            rows = _rows_of(source, how["weight"] is not None, rows)
    if features is None:
        raise click.UsageError("Give the number of columns with --features, or files with --data.")
    terms = {"n_features": features, "n_rows": rows}
    if measured:
        terms["total_sensitivity"] = total_sensitivity
    if reference_factor is not None:
        theorems = [{**t, "reference_factor": reference_factor} if "reference_factor" in t else t for t in theorems]
    terms_of = [{**terms, **theorem} for theorem in theorems]
    rows_of_theorems, assumptions = _theorem_rows(goal, eps, delta, terms_of, n_kept, is_estimate=is_estimate)
    table += rows_of_theorems
    columns = ["rows", "by", "how"]
    if n_kept is not None:
        columns.append(f"eps of {n_kept:,}")
        table = [[*row, ""][: len(columns)] for row in table]
    about = "".join(f"{name} = {value:g}, " for name, value in parameters.items() if isinstance(value, (int, float)))
    print_table(f"{objective}, {about}eps = {eps}, delta = {delta}", columns, table)
    if data is not None:
        click.echo(f"Take {table[0][0]}, which is measured. Theorems hold for the worst rows there can be.")
    _print_meaning(eps, promise, assumptions)


def _check_options(
    goal: Objective,
    data: str | None,
    total_sensitivity: float | None,
    reference_factor: float | None,
    *,
    measured: bool,
    has_theorems: bool,
) -> None:
    """Options that do not go together, or that lack another, are the caller's mistake."""
    if data is None and not has_theorems:
        raise click.UsageError(f"For {goal.name} the size is measured: give files with --data.")
    if total_sensitivity is not None and not measured:
        raise click.UsageError(f"--total-sensitivity is for logistic and margin, not for {goal.name}.")
    if reference_factor is not None and goal.name != "dictionary":
        raise click.UsageError(f"--reference-factor is for dictionary, not for {goal.name}.")
    if data is None and measured and total_sensitivity is None:
        raise click.UsageError(f"For {goal.name} give files with --data, or a number with --total-sensitivity.")


def _print_meaning(eps: float, promise: str, assumptions: list[str]) -> None:
    """What sizes assume, and what an error of eps means for a solution."""
    for assumption in assumptions:
        click.echo(f"Sizes are proved if {assumption}.")
    if promise == "costs":
        factor = (1.0 + eps) / (1.0 - eps)
        click.echo(
            f"If no solution has a larger relative error than {eps:g}, the best one on the coreset costs at most "
            f"{factor:.4g} times the smallest cost."
        )


def _measured_row(source: Source, goal: Objective, eps: float, promise: str, seed: int) -> list[str]:
    """The row of the table for trial coresets."""
    from tithe import propose_size

    proposed, limit = propose_size(source, objective=goal, eps=eps, promise=promise, random_state=seed)
    return [f"{proposed:,}", "pilot rule", f"error: {limit_text(limit, promise)}"]


def _measured_total(source: Source, goal: Objective, seed: int) -> tuple[float, bool]:
    """The total sensitivity, and whether it was estimated on a sample."""
    from tithe.theory.sizes import SAMPLE_ROWS, measured_total_sensitivity

    total = measured_total_sensitivity(source, objective=goal, random_state=seed)
    return total, source.n_rows is None or source.n_rows > SAMPLE_ROWS


def _rows_of(source: Source, weighted: bool, default: int) -> int:
    """n_rows of the theorems."""
    from tithe.theory.sizes import rows_of_equal_weight

    return rows_of_equal_weight(source) if weighted else source.n_rows or default


def _theorem_rows(
    goal: Objective,
    eps: float,
    delta: float,
    theorems: list[dict[str, Any]],
    n_kept: int | None,
    *,
    is_estimate: bool,
) -> tuple[list[list[str]], list[str]]:
    """A row of the table for each theorem, and what those that are proved assume."""
    from tithe.theory.sizes import eps_for, theoretical_size

    table, assumptions = [], []
    for terms in theorems:
        bound = theoretical_size(goal, eps, delta, **terms)
        kind, total = "proved" if bound.proved else "formula", bound.total_sensitivity
        how = f"{bound.formula}, S = {total:.4g}"
        if is_estimate:
            kind, how = "estimate", f"{how} of a sample, which is often too small"
        elif bound.proved and bound.assumption:
            assumptions.append(bound.assumption)
        if terms["construction"] == "rings":
            how += f": {round(bound.size / total):,} draws each"
        row = [f"{bound.size:,}", f"{terms['construction']}, {kind}", how]
        if n_kept is not None:
            error = eps_for(goal, n_kept, delta, **terms)
            row.append("none" if math.isinf(error) else f"{error:.3g}")
        table.append(row)
    return table, list(dict.fromkeys(assumptions))
