"""``tithe size``: how many rows to keep."""

from __future__ import annotations

import click

from tithe.cli.common import make_objective, print_table


@click.command()
@click.option(
    "--objective",
    type=click.Choice(["kmeans", "kmedian"]),
    default="kmeans",
    show_default=True,
    help="What to preserve.",
)
@click.option("-k", "--clusters", type=click.IntRange(min=1), default=8, show_default=True, help="Number of clusters.")
@click.option("--eps", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.1, show_default=True)
@click.option("--delta", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.1, show_default=True)
@click.option("-d", "--features", type=click.IntRange(min=1), help="Number of columns, if no data is given.")
@click.option("-n", "--rows", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Rows, for rings.")
@click.option("--data", type=click.Path(dir_okay=False), help="Measure on this file as well (the pilot rule).")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def size(objective, clusters, eps, delta, features, rows, data, seed):  # type: ignore[no-untyped-def]
    """Rows that suffice for a relative error EPS with probability 1 - DELTA.

    Theorems are cautious by orders of magnitude; with --data a pilot coreset is measured instead.

    \b
    Example:
      tithe size -k 20 --eps 0.05 --data rows.parquet
    """
    from tithe.metrics import size_for

    goal = make_objective(objective, clusters)
    table = []
    if data is not None:
        from tithe.sizing import propose_size
        from tithe.sources.arrays import as_matrix
        from tithe.sources.files import read_rows

        X = as_matrix(read_rows(data)[0])
        rows, features = X.shape
        proposed, measured = propose_size(X, objective=goal, eps=eps, random_state=seed)
        table.append([f"{proposed:,}", "pilot rule", f"a pilot coreset measured a distortion of {measured:.4f}"])
    if features is None:
        raise click.UsageError("Give the number of columns with --features, or a file with --data.")
    for construction, queries in (
        ("sensitivity", "one"),
        ("sensitivity", "all"),
        ("lightweight", "all"),
        ("rings", "one"),
    ):
        bound = size_for(goal, eps, delta, n_features=features, construction=construction, queries=queries, n_rows=rows)
        table.append([f"{bound.size:,}", f"{construction}, theorem", bound.formula])
    print_table(f"{objective}, k = {clusters}, eps = {eps}, delta = {delta}", ["rows", "by", "how"], table)
