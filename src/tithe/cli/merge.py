"""``tithe merge``: the coreset files of several sites to one."""

from __future__ import annotations

from typing import Any

import click

from tithe.cli.messages import Command
from tithe.cli.options import Value, construction_options, seed_option
from tithe.cli.text import print_table
from tithe.core.params import CORESET_SIZE


@click.command(cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="Parquet or .csv file to write.")
@click.option(
    "-m",
    "--size",
    type=Value(CORESET_SIZE, name="ROWS|FRACTION"),
    help="Rows to keep, or a fraction of the rows that all sites stand for. [default: all rows of the coresets]",
)
@construction_options
@click.option("--allow-repeated", is_flag=True, help="Accept the same coreset twice; its rows then count twice.")
@seed_option
def merge(  # type: ignore[no-untyped-def]
    files, output, size, construction, calibrate, allow_repeated, seed
):  # fmt: skip
    """Merge coresets of sites that share no rows into one file.

    Each FILE was written by tithe build at one site. Without -m all of their rows are kept, with -m they are reduced
    again. Features, objective and classes must be the same at all sites: --schema-from of tithe build sees to the
    features, and --pilot-from also makes exact totals add up. Give each site a seed of its own.

    \b
    Example:
      tithe build rows1.parquet -k 20 -m 5000 --seed 1 -o site1.parquet
      tithe build rows2.parquet -k 20 -m 5000 --seed 2 --pilot-from site1.parquet -o site2.parquet
      tithe merge site1.parquet site2.parquet -m 5000 -o all.parquet
      tithe fit kmeans all.parquet -k 20 -o result
    """
    from tithe.core.files import check_output
    from tithe.reduce.merge import merge_coresets
    from tithe.storage.coresets import free_names, load_schema, save_coreset, saved_feature_names

    for file in files:
        check_output(output, beside=file)
    coreset = merge_coresets(
        files,
        coreset_size=size,
        construction=construction,
        calibrate=calibrate,
        allow_repeated=allow_repeated,
        random_state=seed,
    )
    names = free_names(saved_feature_names(files[0]) or [])
    save_coreset(coreset, output, feature_names=names, schema=load_schema(files[0]))
    print_table(output, ["", ""], _about(coreset))
    print_sites(coreset)


def _about(coreset: Any) -> list[list[str]]:
    rows = [
        ["rows", f"{len(coreset):,}"],
        ["stands for", f"{coreset.n_seen:,} rows of weight {coreset.weight_seen:,.6g}"],
        ["weight kept", f"{coreset.weights().sum() / coreset.weight_seen:.6f}"],
        ["effective sample size", f"{coreset.effective_size:,.0f}"],
    ]
    return rows + [
        [name.replace("_", " "), str(coreset.provenance[name])] for name in _NOTES if name in coreset.provenance
    ]


_NOTES = ("construction", "totals", "calibrated_to")


def print_sites(coreset: Any) -> None:
    """A table of the sites of a coreset; nothing if it was not merged."""
    if not coreset.sites:
        return
    import numpy as np

    kept = np.bincount(coreset.site_rows()[0], minlength=len(coreset.sites))
    rows = [
        [str(number), site.name, f"{site.n_seen:,}", f"{site.weight_seen:,.6g}", f"{site.n_kept:,}", f"{n_kept:,}"]
        for number, (site, n_kept) in enumerate(zip(coreset.sites, kept, strict=True))
    ]
    print_table("Sites", ["site", "name", "rows", "weight", "rows of its coreset", "of them kept"], rows)
