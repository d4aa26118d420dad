"""``tithe cluster --odm``: clusters by margins, with links between rows."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import click

from tithe.cli.links import links_among, read_links
from tithe.cli.progress import Stop
from tithe.cli.sources import check_folder
from tithe.cli.text import Stopped, print_table
from tithe.core.progress import seconds_text


def cluster_by_margins(
    where: Any, how: Any, output: str, *, n_clusters: int, links: str | None, balance: float, seed: int
) -> None:
    """Cluster the rows of files, and write the folder."""
    check_folder(output)
    must, cannot = read_links(links)
    from tithe.core.data import concat
    from tithe.fit.base import note_columns
    from tithe.odm.clustering import ODMClustering
    from tithe.report.labels import LabelRun, write_labels

    start = time.perf_counter()
    try:
        with Stop():
            source = how.open(where)
            block = concat([task() for task in source.tasks()])
            pairs = [links_among(kind, block.row_ids()) for kind in (must, cannot)]
            model = ODMClustering(
                n_clusters, balance=balance, must_link=pairs[0], cannot_link=pairs[1], random_state=seed
            )
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="X does not have valid feature names")
                model.fit(block.X, sample_weight=block.sample_weight)
                note_columns(model, source, reset=True)
                run = LabelRun(
                    files=list(where),
                    n_rows=len(block),
                    n_must_link=len(must),
                    n_cannot_link=len(cannot),
                    seconds=time.perf_counter() - start,
                    parameters={**model.get_params(), "must_link": len(must), "cannot_link": len(cannot)},
                )
                results = write_labels(output, model, block, run)
    except KeyboardInterrupt:
        raise Stopped("Stopped; nothing was written.") from None
    sizes = ", ".join(f"{weight:g}" for weight in results["cluster_weights"])
    rows = [
        ["rows", f"{results['n_rows']:,}"],
        ["rows that were clustered", f"{results['n_clustered']:,}"],
        ["links", f"{len(must)} together, {len(cannot)} apart"],
        ["weights of the clusters", sizes],
        ["time", seconds_text(results["seconds"])],
    ]
    print_table(output, ["", ""], rows)
    if model.certificate_ is not None:
        click.echo(str(model.certificate_))
    click.echo(f"Report: {Path(output) / 'report.html'}")
