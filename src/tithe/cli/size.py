"""``tithe size``: how many rows to keep."""

from __future__ import annotations

import click

from tithe.cli.options import EPS, ObjectiveCommand, make_objective, promise_option, seed_option
from tithe.cli.plan import limit_text
from tithe.cli.sources import source_options
from tithe.cli.text import print_table

_FORMULAS = (("sensitivity", "one"), ("sensitivity", "all"), ("lightweight", "all"), ("rings", "one"))


@click.command(cls=ObjectiveCommand)
@click.option("--eps", type=EPS, default=0.1, show_default=True)
@click.option("--delta", type=EPS, default=0.1, show_default=True)
@promise_option
@click.option("-d", "--features", type=click.IntRange(min=1), help="Number of columns, if no data is given.")
@click.option("-n", "--rows", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Rows, for rings.")
@click.option("--data", metavar="SOURCE", help="Measure on a sample of this file, folder or pattern (the pilot rule).")
@source_options
@seed_option
def size(objective, eps, delta, promise, features, rows, data, how, seed, **parameters):  # type: ignore[no-untyped-def]
    """Rows for a relative error EPS with probability 1 - DELTA.

    Formulas of theorems are cautious by orders of magnitude, and those here are for clusterings and for the costs of
    all solutions; with --data trial coresets are measured instead.

    \b
    Example:
      tithe size -k 20 --eps 0.05 --data rows.parquet
      tithe size --objective logistic --target y --data 'data/*.parquet'
    """
    from tithe.objectives.clustering import ClusteringObjective

    goal = make_objective(objective, parameters)
    has_formulas = isinstance(goal, ClusteringObjective)
    if data is None and not has_formulas:
        raise click.UsageError(f"For {objective} the size is measured: give files with --data.")
    if data is not None:
        how.check_target([data], goal.target)
    table = []
    if data is not None:
        from tithe import propose_size

        source = how.open([data])
        if not source.replayable:
            raise click.UsageError("--data is sampled from all files; standard input can be read only once.")
        rows, features = source.n_rows or rows, source.n_features
        proposed, measured = propose_size(source, objective=goal, eps=eps, promise=promise, random_state=seed)
        table.append([f"{proposed:,}", "pilot rule", f"error: {limit_text(measured, promise)}"])
    if features is None:
        raise click.UsageError("Give the number of columns with --features, or files with --data.")
    for construction, queries in _FORMULAS if has_formulas else ():
        from tithe.reduce.sizing import theoretical_size

        bound = theoretical_size(
            goal, eps, delta, n_features=features, construction=construction, queries=queries, n_rows=rows
        )
        table.append([f"{bound.size:,}", f"{construction}, formula", bound.formula])
    about = "".join(f"{name} = {value:g}, " for name, value in parameters.items() if isinstance(value, (int, float)))
    print_table(f"{objective}, {about}eps = {eps}, delta = {delta}", ["rows", "by", "how"], table)
