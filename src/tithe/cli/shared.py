"""What a build takes from an earlier coreset or model, so that its own coreset can be merged with others."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tithe.cli.sources import TABLE_FORMATS, TABLE_OPTIONS, SourceOptions, refuse_given


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The objective, with the classes of the earlier coreset, its schema and its pilot; None where not shared."""

    objective: Any
    schema: Any = None
    pilot: Any = None


def shared_with(
    objective: Any, where: Sequence[str], how: SourceOptions, *, schema_from: str | None, pilot_from: str | None
) -> Shared:
    """What ``--schema-from`` and ``--pilot-from`` name. A pilot is of the features of its file: both are shared."""
    if schema_from is not None and pilot_from is not None:
        raise click.UsageError("--pilot-from takes the schema of its file as well: leave --schema-from out.")
    file = schema_from or pilot_from
    if file is None:
        return Shared(objective=objective)
    if not Path(file).is_file():
        raise FileNotFoundError(f"There is no file {file!r}.")
    schema = _schema_of(file)
    is_table = how.format_of(where) in TABLE_FORMATS
    if schema is None and (is_table or schema_from is not None):
        raise ValueError(f"{file} has no schema: its rows did not come from a table.")
    if schema is not None:
        if not is_table:
            raise ValueError(f"{file} has a schema, which is for tables (Parquet, CSV, Arrow): these rows are none.")
        refuse_given(TABLE_OPTIONS, f"the schema of {file} says how columns become features")
    if pilot_from is None:
        return Shared(objective=objective, schema=schema)
    return _with_pilot(objective, schema, pilot_from)


def _schema_of(file: str) -> Any:
    """The schema in a coreset or a model; None if it has none."""
    if zipfile.is_zipfile(file):
        from tithe.storage.models import load_model

        return vars(load_model(file)).get("schema_")
    from tithe.storage.coresets import load_schema

    return load_schema(file)


def _with_pilot(objective: Any, schema: Any, file: str) -> Shared:
    from tithe.core.objective_json import parameters_of
    from tithe.storage.coresets import load_coreset

    coreset = load_coreset(file)
    if coreset.pilot is None:
        raise ValueError(f"{file} has no pilot: it holds all rows, or none was needed. Take one that was reduced.")
    earlier = coreset.objective
    if earlier is None:
        return Shared(objective=objective, schema=schema, pilot=coreset.pilot)
    if earlier.name != objective.name:
        raise ValueError(f"{file} was built for {earlier.name!r}, not for {objective.name!r}.")
    ours, theirs = parameters_of(objective), parameters_of(earlier)
    for name, value in ours.items():
        if value != theirs[name] and not (name == "classes" and value is None):
            raise ValueError(f"{file} was built with {name}={theirs[name]!r}, not with {name}={value!r}.")
    return Shared(objective=earlier, schema=schema, pilot=coreset.pilot)
