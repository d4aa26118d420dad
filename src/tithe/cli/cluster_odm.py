"""``tithe cluster --odm``: clusters by margins, with links between rows."""

from __future__ import annotations

import csv
import time
import warnings
from pathlib import Path
from typing import Any

import click

from tithe.cli.progress import Stop
from tithe.cli.text import Stopped, print_table
from tithe.core.progress import seconds_text

_KINDS = {"must": "must", "must-link": "must", "1": "must", "cannot": "cannot", "cannot-link": "cannot", "-1": "cannot"}


def read_links(path: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Pairs that must be together and pairs that must not, from lines such as ``3,17,must`` or ``3,17,cannot``."""
    links: dict[str, list[tuple[int, int]]] = {"must": [], "cannot": []}
    with open(path, newline="", encoding="utf8") as file:
        for number, row in enumerate(csv.reader(file), 1):
            cells = [cell.strip() for cell in row]
            if not any(cells) or (number == 1 and not cells[0].lstrip("-").isdigit()):
                continue  # an empty line, or the names of the columns
            kind = _KINDS.get(cells[2].lower()) if len(cells) == 3 else None
            if kind is None or not all(cell.lstrip("-").isdigit() for cell in cells[:2]):
                raise ValueError(
                    f"Line {number} of {path!r} is not a link: write two row numbers, from 0 on, and must or cannot, "
                    "such as 3,17,must."
                )
            links[kind].append((int(cells[0]), int(cells[1])))
    return links["must"], links["cannot"]


def cluster_by_margins(
    where: Any, how: Any, output: str, *, n_clusters: int, links: str | None, balance: float, seed: int
) -> None:
    """Cluster the rows of files, and write the folder."""
    folder = Path(output)
    if folder.is_file():
        raise NotADirectoryError(f"{output!r} is a file; a folder is needed.")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder.parent)!r} to write {folder.name!r} into.")
    must, cannot = read_links(links) if links else ([], [])
    from tithe.core.data import concat
    from tithe.learners.base import note_columns
    from tithe.learners.odm.clustering import ODMClustering
    from tithe.report.labels import LabelRun, write_labels

    model = ODMClustering(
        n_clusters, balance=balance, must_link=must or None, cannot_link=cannot or None, random_state=seed
    )
    start = time.perf_counter()
    try:
        with Stop():
            source = how.open(where)
            block = concat([task() for task in source.tasks()])
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
                results = write_labels(output, model, block.X, run)
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
    click.echo(f"Report: {folder / 'report.html'}")
