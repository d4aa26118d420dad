"""``tithe inspect``: what a coreset file holds and how it came about."""

from __future__ import annotations

import click

from tithe.cli.messages import Command
from tithe.cli.text import print_table


@click.command(cls=Command)
@click.argument("file", type=click.Path(dir_okay=False))
def inspect(file: str) -> None:
    """Show what the coreset in FILE stands for and how it was made.

    \b
    Example:
      tithe inspect coreset.parquet
    """
    import numpy as np

    from tithe.storage.coresets import load_coreset

    coreset = load_coreset(file)
    low, middle, high = np.quantile(coreset.weights(), [0.0, 0.5, 1.0])
    rows = [
        ["rows", f"{len(coreset):,}"],
        ["stands for", f"{coreset.n_seen:,} rows of weight {coreset.weight_seen:,.6g}"],
        ["columns", f"{coreset.n_features}{' and y' if coreset.y is not None else ''} ({coreset.X.dtype})"],
        ["weights", f"{low:.4g} to {high:.4g}, median {middle:.4g}"],
        ["effective sample size", f"{coreset.effective_size:,.0f}"],
    ]
    rows += [
        [name, f"{value:.4g}" if isinstance(value, float) else str(value)] for name, value in coreset.provenance.items()
    ]
    print_table(file, ["", ""], rows)
