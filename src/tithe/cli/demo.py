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
    with steps(7 * seeds + 2) as step:
        step("loading")
        from tithe.report.demo import run_demo

        comparison, classified, page = run_demo(
            output, n_clusters=clusters, coreset_size=size, seeds=seeds, progress=step
        )
    rows = [
        [
            m.name,
            f"{m.rows:,}",
            f"{m.cost_ratio:.4f}",
            f"{m.passes:,.0f}",
            f"{m.coreset_error:+.2%}",
            f"{m.distortion:.4f}",
        ]
        for m in comparison.methods
    ]
    print_table(
        f"{comparison.title}: {comparison.n_rows:,} pixels, medians of {seeds} seeds",
        ["method", "rows kept", "cost / best full", "passes", "coreset error", "distortion"],
        rows,
    )
    click.echo(comparison.certificate)
    print_table(
        f"{classified.title} {classified.n_rows:,} pixels, medians of {seeds} seeds",
        ["method", "rows kept", "excess loss", "passes"],
        [[m.name, f"{m.rows:,}", f"{m.excess:.1e}", f"{m.passes:,.0f}"] for m in classified.methods],
    )
    click.echo(classified.certificate)
    click.echo("The first run also compiled the kernels, ten seconds or so of CPU; later ones read them from a cache.")
    click.echo(f"Report: {page}")
