"""``tithe demo``: rare groups that a random sample loses and a coreset keeps, on generated data."""

from __future__ import annotations

import click

from tithe.cli.messages import Command
from tithe.cli.progress import steps
from tithe.cli.text import print_table


@click.command(cls=Command)
@click.option("-o", "--output", type=click.Path(file_okay=False), default="demo-report", show_default=True)
@click.option(
    "--rows", type=click.IntRange(min=10_000), default=1_000_000, show_default=True, help="Payments to generate."
)
@click.option("-m", "--size", type=click.IntRange(min=100), default=1000, show_default=True, help="Payments to keep.")
def demo(output: str, rows: int, size: int) -> None:
    """Look for rare groups among a million generated payments in 1,000 of them; write a report folder.

    A coreset, random samples of the same size and fits on all rows are compared by what they find and by their time.

    \b
    Example:
      tithe demo -o report
      tithe demo --rows 5000000 -m 2000 -o report
    """
    if size >= rows:
        raise click.UsageError(f"--size {size} keeps all of the {rows:,} payments: ask for fewer.")
    with steps() as step:
        from tithe.report.demo import run_demo, table_rows

        results, page = run_demo(output, n_rows=rows, coreset_size=size, progress=step)
    titles, lines = table_rows(results)
    title = f"Rare groups in {rows:,} payments, medians of {results.methods[0]['n_fits']} draws"
    print_table(title, titles, [[text for _, _, text in line] for line in lines])
    for sentence in (*results.sentences(), results.in_short):
        click.echo(sentence)
    click.echo(f"What was done, the picture, and what to do next: {page}")
