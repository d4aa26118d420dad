"""The coresets that are merged, and what must agree among them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Coreset
from tithe.core.objective_json import parameters_of
from tithe.core.sites import Site
from tithe.storage.coresets import load_coreset, load_schema, saved_feature_names
from tithe.tables.schema import TableSchema

Path = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One coreset to be merged. ``feature_names`` and ``schema`` are known of files only."""

    name: str
    coreset: Coreset
    feature_names: list[str] | None = None
    schema: TableSchema | None = None

    @property
    def is_file(self) -> bool:
        return self.feature_names is not None


def as_parts(coresets: Sequence[Coreset | Path]) -> list[Part]:
    """The coresets with names for messages: of files their last part, if these differ, of others a number."""
    if isinstance(coresets, (str, os.PathLike, Coreset)) or not len(coresets):
        raise ValueError("merge_coresets takes a list of at least one coreset, or of paths of coreset files.")
    parts = []
    for number, given in enumerate(coresets, 1):
        if isinstance(given, Coreset):
            parts.append(Part(name=f"site {number}", coreset=given))
            continue
        if not isinstance(given, (str, os.PathLike)):
            raise ValueError(f"merge_coresets takes coresets or paths of coreset files, got {type(given).__name__}.")
        coreset = load_coreset(given)
        names, schema = saved_feature_names(given), load_schema(given)
        parts.append(Part(name=os.fspath(given), coreset=coreset, feature_names=names, schema=schema))
    short = [os.path.basename(part.name) for part in parts]
    return [replace(p, name=s) for p, s in zip(parts, short, strict=True)] if len(set(short)) == len(parts) else parts


def sites_of(part: Part, first_row: int) -> list[Site]:
    """The sites of a coreset, with row ids from ``first_row`` on: itself, unless it was merged from several."""
    coreset = part.coreset
    if coreset.sites:
        return [replace(site, first_row=site.first_row + first_row) for site in coreset.sites]
    return [
        Site(
            name=part.name,
            n_seen=coreset.n_seen,
            weight_seen=coreset.weight_seen,
            n_kept=len(coreset),
            first_row=first_row,
            fingerprint=fingerprint_of(coreset),
        )
    ]


def fingerprint_of(coreset: Coreset) -> str:
    """A hash of rows, weights, row ids and what they stand for."""
    X = coreset.X
    arrays = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    digest = blake2b(f"{coreset.n_seen} {coreset.weight_seen!r}".encode(), digest_size=16)
    for array in (*arrays, coreset.weights(), coreset.row_ids()):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_alike(parts: list[Part], *, allow_repeated: bool) -> None:
    """Raise ValueError, naming the difference, unless all coresets are of the same columns, objective and classes."""
    first = parts[0]
    for part in parts[1:]:
        _check_schemas(first, part)
        _check_rows(first, part)
        _check_objectives(first, part)
    if not allow_repeated:
        _refuse_repeated(parts)


def _differ(first: Part, part: Part, what: str, ours: Any, theirs: Any) -> ValueError:
    return ValueError(f"Coresets of different {what} cannot be merged: {first.name} has {ours}, {part.name} {theirs}.")


def _check_rows(first: Part, part: Part) -> None:
    ours, theirs = first.coreset, part.coreset
    if ours.n_features != theirs.n_features:
        raise _differ(first, part, "numbers of columns", ours.n_features, theirs.n_features)
    if sparse.issparse(ours.X) != sparse.issparse(theirs.X):
        words = ["sparse" if sparse.issparse(c.X) else "dense" for c in (ours, theirs)]
        raise _differ(first, part, "kinds of rows", f"{words[0]} rows", f"{words[1]} rows")
    kinds = ["no y" if c.y is None else "numbers" if c.y.dtype.kind in "biuf" else "text" for c in (ours, theirs)]
    if kinds[0] != kinds[1]:
        raise _differ(first, part, "kinds of y", *kinds)
    if ours.half_life != theirs.half_life:
        raise _differ(first, part, "half-lives", ours.half_life, theirs.half_life)


def _check_objectives(first: Part, part: Part) -> None:
    """Compare the objectives, as far as they are known."""
    ours, theirs = first.coreset.objective, part.coreset.objective
    if ours is None or theirs is None or ours == theirs:
        return
    if ours.name != theirs.name:
        raise _differ(first, part, "objectives", ours.name, theirs.name)
    parameters = parameters_of(ours), parameters_of(theirs)
    name = next(name for name, value in parameters[0].items() if value != parameters[1][name])
    values = (f"{name}={of_part[name]!r}" for of_part in parameters)
    advice = ""
    if name == "classes":
        advice = " Give all classes at each site: classes=(...) of the objective, --classes on the command line."
    raise ValueError(f"{_differ(first, part, f'{ours.name} objectives', *values)}{advice}")


def _check_schemas(first: Part, part: Part) -> None:
    """Compare how columns became features, as far as it is known."""
    if not (first.is_file and part.is_file):
        return
    ours, theirs = first.schema, part.schema
    how = (
        "Build all but the first with the schema of the first: tithe build --schema-from FILE, or "
        "open_dataset(..., schema=tithe.storage.coresets.load_schema(FILE))."
    )
    if (ours is None) != (theirs is None):
        words = ["no schema" if schema is None else "a schema" for schema in (ours, theirs)]
        raise ValueError(f"{_differ(first, part, 'kinds of sources', *words)} {how}")
    if ours is not None and theirs is not None and not ours.same_features(theirs):
        pairs = zip_longest(*[[(column.name, column.encoding) for column in schema.used] for schema in (ours, theirs)])
        differing = ((a or b)[0] for a, b in pairs if a != b)
        column = next(differing, "the list of values that are gaps")
        raise ValueError(
            f"The columns of {first.name} and {part.name} became features in different ways: {column} differs, since "
            f"each site learned scales and categories from its own rows. {how}"
        )
    for j, (name, other) in enumerate(zip(first.feature_names or (), part.feature_names or (), strict=False)):
        if name != other:
            raise _differ(first, part, "columns", f"{name!r} as column {j}", repr(other))


def _refuse_repeated(parts: list[Part]) -> None:
    known: dict[str, str] = {}
    for part in parts:
        for site in sites_of(part, 0):
            if site.fingerprint in known:
                raise ValueError(
                    f"{part.name} holds the same coreset as {known[site.fingerprint]}: its rows would count twice. "
                    "Leave one out, or say that it is meant so: allow_repeated=True."
                )
            known[site.fingerprint] = part.name
