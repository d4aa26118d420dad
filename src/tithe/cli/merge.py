"""``tithe merge``: the coreset files of several sites to one; ``tithe inspect``: what a file of ours holds."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tithe.cli.main import Command, coreset_facts, print_result_tables, print_worth
from tithe.cli.options import SIZE, construction_options, seed_option
from tithe.cli.screen import STDOUT, print_table, say, written
from tithe.cli.sources import check_coreset_name, on_this_machine

_NOTES = ("construction", "totals", "calibrated_to")


@click.command(cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="Parquet or .csv file; -: CSV.")
@click.option("-m", "--size", type=SIZE, help="Rows to keep, or a fraction of those of all sites. [default: all kept]")
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

    check_coreset_name(output)
    for file in files if output != STDOUT else ():
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
    with written(output) as place:
        save_coreset(coreset, place, feature_names=names, schema=load_schema(files[0]))
    notes = [[name.replace("_", " "), str(note)] for name, note in coreset.provenance.items() if name in _NOTES]
    print_table(output, ["", ""], coreset_facts(coreset) + notes)
    print_sites(coreset)


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


_MAX_ROWS = 20  # of a table of results
_MAX_NAMES = 20  # of columns
_TABLES = ("cluster_weights", "clusters", "centers", "coefficients", "standard_errors", "atoms")  # shown as tables


@click.command(cls=Command)
@click.argument("file", type=click.Path(dir_okay=False))
def inspect(file: str) -> None:
    """Show what FILE, a coreset or a model, holds and how it was made. FILE may be a URL.

    \b
    Example:
      tithe inspect coreset.parquet
      tithe inspect result/model.tithe
    """
    with on_this_machine(file) as path:
        if not Path(path).is_file():
            raise FileNotFoundError(f"There is no file {file!r}.")
        if zipfile.is_zipfile(path):
            _inspect_model(path, file)
        else:
            _inspect_coreset(path, file)


def _inspect_coreset(file: str, title: str) -> None:
    import numpy as np

    from tithe.storage.coresets import load_coreset, load_schema, saved_feature_names

    coreset = load_coreset(file)
    low, middle, high = np.quantile(coreset.weights(), [0.0, 0.5, 1.0])
    rows = [
        *coreset_facts(coreset),
        ["columns", f"{coreset.n_features}{' and y' if coreset.y is not None else ''} ({coreset.X.dtype})"],
        ["weights", f"{low:.4g} to {high:.4g}, median {middle:.4g}"],
    ]
    if coreset.objective is not None:
        rows.append(["made for", f"{coreset.objective!r}"])
    rows += [
        [name, f"{value:.4g}" if isinstance(value, float) else str(value)] for name, value in coreset.provenance.items()
    ]
    print_table(title, ["", ""], rows)
    print_worth(coreset)
    print_sites(coreset)
    print_scorer(coreset, saved_feature_names(file) or [])
    _print_columns(load_schema(file))


def print_scorer(coreset: Any, names: Sequence[str]) -> None:
    """The largest coefficients of what scores new rows, if the coreset has it."""
    if coreset.scorer is None:
        return
    named, r2 = coreset.scorer.named_coefficients(names)
    title = f"What makes a row matter, by a linear regression with R² = {r2:.2f}"
    print_table(title, ["column", "coefficient"], [[name, f"{value:.4g}"] for name, value in named[:_MAX_ROWS]])


def _inspect_model(file: str, title: str) -> None:
    from tithe.fit.base import Described
    from tithe.fit.results import table_schema
    from tithe.storage.models import load_model, model_about

    model, about = load_model(file), model_about(file)
    inside = f"yes, {about['n_rows']:,} in coresets and streams" if about.get("rows", True) else "none"
    rows = [
        ["model", " ".join(repr(model).split())],  # with the parameters that are not the defaults
        ["written by", f"tithe {about.get('tithe', '(an unknown version)')}"],
        ["training rows inside", inside],
        ["columns", _columns(model)],
    ]
    summary = model.summary() if isinstance(model, Described) else {}
    rows += [[name.replace("_", " "), _fact(summary[name])] for name in summary if name not in _TABLES]
    print_table(title, ["", ""], rows)
    print_result_tables(summary, most=_MAX_ROWS)
    _print_columns(table_schema(model))
    if isinstance(model, Described) and model.certificate_ is not None:
        say(str(model.certificate_))


def _print_columns(schema: Any) -> None:
    """What each column of the table is and what is done with it."""
    from tithe.report.tables import described_columns

    print_result_tables({"columns": described_columns(schema)}, most=_MAX_ROWS)


def _columns(model: Any) -> str:
    from tithe.fit.base import Described

    if not isinstance(model, Described):
        return "unknown"
    names = model.feature_names
    if names is None:
        return f"{model.n_encoded_:,}, without names"
    shown = ", ".join(str(name) for name in names[:_MAX_NAMES])
    return f"{len(names):,}: {shown}{', ...' if len(names) > _MAX_NAMES else ''}"


def _fact(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(_fact, value)) if isinstance(value, list) else str(value)
