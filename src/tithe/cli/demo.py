"""``tithe demo``: the whole journey on data that comes with scikit-learn."""

from __future__ import annotations

import click

from tithe.cli.messages import Command
from tithe.cli.progress import steps
from tithe.cli.text import print_table


@click.command(cls=Command)
@click.option("-o", "--output", type=click.Path(file_okay=False), default="demo-report", show_default=True)
@click.option("-k", "--clusters", type=click.IntRange(min=2), default=16, show_default=True, help="Colours to find.")
@click.option("-m", "--size", type=click.IntRange(min=10), default=1000, show_default=True, help="Pixels to keep.")
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
def demo(output: str, clusters: int, size: int, seeds: int) -> None:
    """Compress, fit, certify and compare on the pixels of two photographs; write a report folder.

    \b
    Example:
      tithe demo -k 32 -m 2000 -o report
    """
    with steps() as step:
        from tithe.report.comparison.page import text_rows
        from tithe.report.demo import run_demo

        parts, page = run_demo(output, n_clusters=clusters, coreset_size=size, seeds=seeds, progress=step)
    for title, (comparison, certificate) in parts.items():
        print_table(f"{title} {comparison.n_rows:,} pixels, medians of {seeds} seeds", *text_rows(comparison))
        click.echo(f"{comparison.recommendation}\n{certificate}")
    click.echo("The first run also compiled the kernels, ten seconds or so of CPU; later ones read them from a cache.")
    click.echo(f"Report: {page}")
