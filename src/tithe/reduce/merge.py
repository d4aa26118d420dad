"""Coresets of several sites become one, and how many rows each site should send."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.contracts import Construction, NearestObjective, Objective, SampledObjective
from tithe.core.data import Array, Block, Coreset, Site, concat
from tithe.core.errors import FileFormatError
from tithe.core.parallel import single_blas_thread
from tithe.core.params import OneOf, WholeNumber, check_value, resolve_size
from tithe.core.passes import DataPass
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import LARGEST
from tithe.reduce.calibration import calibrated
from tithe.reduce.draws import shared_out
from tithe.reduce.plan import Notes, Plan, reduce_rows
from tithe.rows.schema import TableSchema
from tithe.storage.coresets import load_coreset, saved_feature_names

Path = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One coreset to be merged. ``feature_names`` are known of files only."""

    name: str
    coreset: Coreset
    feature_names: list[str] | None = None
    schema: TableSchema | None = None


def as_parts(coresets: Sequence[Any]) -> list[Part]:
    """The coresets with names for messages: of files their last part, if these differ, of others a number."""
    if len(coresets) == 1 and isinstance(coresets[0], Sequence) and not isinstance(coresets[0], str):
        coresets = coresets[0]
    if not len(coresets):
        raise ValueError("merge_coresets takes at least one coreset, or paths of coreset files.")
    parts = []
    for number, given in enumerate(coresets, 1):
        if isinstance(given, Coreset):
            parts.append(Part(name=f"site {number}", coreset=given, schema=given.schema))
            continue
        if not isinstance(given, (str, os.PathLike)):
            raise ValueError(f"merge_coresets takes coresets or paths of coreset files, got {type(given).__name__}.")
        coreset, names = load_coreset(given), saved_feature_names(given)
        parts.append(Part(name=os.fspath(given), coreset=coreset, feature_names=names, schema=coreset.schema))
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
    for (what, ours), theirs in zip(_aspects(first.coreset).items(), _aspects(part.coreset).values(), strict=True):
        if ours != theirs:
            raise _differ(first, part, what, ours, theirs)


def _aspects(coreset: Coreset) -> dict[str, Any]:
    """What must be the same of all coresets, whatever they were built for."""
    y = coreset.y
    return {
        "numbers of columns": coreset.n_features,
        "kinds of rows": "sparse rows" if sparse.issparse(coreset.X) else "dense rows",
        "kinds of y": "no y" if y is None else "numbers" if y.dtype.kind in "biuf" else "text",
        "half-lives": coreset.half_life,
    }


def _check_objectives(first: Part, part: Part) -> None:
    """Compare the objectives, as far as they are known."""
    ours, theirs = first.coreset.objective, part.coreset.objective
    if ours is None or theirs is None or ours == theirs:
        return
    if ours.name != theirs.name:
        raise _differ(first, part, "objectives", ours.name, theirs.name)
    parameters = ours.record(), theirs.record()
    name = next(name for name, value in parameters[0].items() if value != parameters[1][name])
    values = (f"{name}={of_part[name]!r}" for of_part in parameters)
    advice = ""
    if name == "classes":
        advice = " Give all classes at each site: classes=(...) of the objective, --classes on the command line."
    raise ValueError(f"{_differ(first, part, f'{ours.name} objectives', *values)}{advice}")


def _check_schemas(first: Part, part: Part) -> None:
    """Compare how columns became features, as far as it is known."""
    ours, theirs = first.schema, part.schema
    if (first.feature_names is None or part.feature_names is None) and (ours is None or theirs is None):
        return
    how = (
        "Build all but the first with the schema of the first: tithe build --schema-from FILE, or "
        "open_dataset(..., schema=tithe.storage.coresets.load_schema(FILE))."
    )
    if (ours is None) != (theirs is None):
        words = ["no schema" if schema is None else "a schema" for schema in (ours, theirs)]
        raise ValueError(f"{_differ(first, part, 'kinds of sources', *words)} {how}")
    if ours is not None and theirs is not None and not ours.same_features(theirs):
        pairs = zip_longest(ours.comparable_encodings(), theirs.comparable_encodings())
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


@single_blas_thread()
def merge_coresets(
    *coresets: Coreset | Path | Sequence[Coreset | Path],
    coreset_size: int | float | None = None,
    objective: str | Objective | None = None,
    construction: str | Construction[Any] = "auto",
    calibrate: bool = True,
    allow_repeated: bool = False,
    random_state: Any = None,
) -> Coreset:
    """One coreset of all rows of several sites, from a coreset of each.

    Parameters
    ----------
    *coresets : Coreset or path, or one list of them
        One of each site, or the result of an earlier merge. Of files, the names of the columns and the schemas by
        which they became features are compared as well.
    coreset_size : int or float, optional
        The largest number of rows to keep, or a fraction of the rows that the coresets stand for. By default all rows
        of the coresets are kept.
    objective : str or objective, optional
        What the result must preserve; by default what the coresets were built for. It must be given if
        they do not say so: that holds for objectives that have no registered name.
    construction, calibrate : see `build_coreset`
        How rows are chosen if there are more than ``coreset_size``.
    allow_repeated : bool
        Accept the same coreset twice. By default it is an error: its rows would count twice.
    random_state : int, RandomState, Generator or None

    Returns
    -------
    Coreset
        ``sites`` says where its rows came from, `Coreset.site_rows` what row ids they have there.

    Notes
    -----
    Let site s have the rows P_s and the coreset S_s.

    *The union* of the S_s with the weights as they are is a coreset of the union of the P_s: costs are sums over
    rows, so if |cost(S_s, q) - cost(P_s, q)| <= eps cost(P_s, q) at each site, the sums of both sides over the sites
    satisfy it as well; draws that are unbiased stay so; and errors of different sites are independent if their seeds
    differ. Rows and weight that were seen add up exactly.

    *Totals* are sums over rows of moments at a pilot. Those of different pilots are sums of different functions and do
    not add up. There are two cases:

    - All sites used one pilot (``build_coreset(..., pilot=...)``). Then the sum of their totals is the exact total of
      all rows. It is kept, and a reduction to ``coreset_size`` is calibrated to it. A site whose coreset holds all of
      its rows may have any pilot or none: its totals are taken here.
    - Pilots differ, or the objective is not known. Then ``totals`` is None. The weights of each site still reproduce
      its own totals, so the union reproduces the sum over sites of every sum that calibration has made exact there:
      the count, class counts, and for k-means the sums of all columns and of the squared norms, which follow from
      totals at any pilot. A reduction is calibrated to the totals of the *union* at a new pilot. These are estimates
      for the rows themselves, but free of the error of the reduction. The new pilot is the attribute ``pilot``, so
      that the sites can use it when they build again.

    Calibration gives the weight of a pilot cluster from which no row was drawn to the rows of all others. With few rows
    at each site this bias adds up: let a coreset for k clusters have 20 k rows and more, or build it with
    ``calibrate=False``.

    *The reduction* draws rows of the union by their scores and weights them by w / (m p), which is unbiased for the
    union's cost and, by the law of iterated expectations, for that of all rows if the sites' draws were unbiased.
    Calibration then has a bias of order 1 / m as in `build_coreset`.

    ``provenance`` says which case it was. That two coresets with different rows come from the same data, built twice
    with other seeds, cannot be seen from them.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset, merge_coresets
    >>> from tithe.objectives import KMeansObjective
    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.normal(size=(n, 5)) for n in (20_000, 5_000)]
    >>> objective = KMeansObjective(n_clusters=3)
    >>> first = build_coreset(sites[0], objective=objective, coreset_size=500, random_state=0)
    >>> second = build_coreset(sites[1], objective=objective, coreset_size=500, random_state=1, pilot=first.pilot)
    >>> merged = merge_coresets([first, second], coreset_size=600, random_state=2)
    >>> len(merged) <= 600, merged.n_seen, round(merged.weights().sum()), merged.provenance["totals"]
    (True, 25000, 25000, 'of 2 sites, added up')
    """
    parts = as_parts(coresets)
    check_alike(parts, allow_repeated=allow_repeated)
    goal = _objective(parts, objective)
    union = _union(parts, goal)
    # the draws of sites that were given the same seed, and those of an earlier merge, must not be repeated here
    given = as_seed(random_state)
    seed = int(rng_for(given, "merge", int(fingerprint_of(union), 16) % 2**32).integers(2**62))
    size = len(union) if coreset_size is None else resolve_size(coreset_size, union.n_seen)
    if len(union) <= size:
        return _with_pilot(union, goal, seed)
    if goal is None:
        raise ValueError(
            "The coresets do not say which objective they were built for: it has no registered name, or they were "
            "written by an earlier version. merge_coresets(..., objective=...) takes it; without coreset_size all rows "
            "are kept, and none is needed."
        )
    merged = _reduced(union, Plan.of(goal, construction, size, calibrate=calibrate, seed=seed))
    return replace(merged, provenance={**merged.provenance, "seed": given}, schema=union.schema)


def _objective(parts: list[Part], given: str | Objective | None) -> Objective | None:
    """The objective of the coresets, with its classes; the one given if they do not know theirs."""
    known: Objective | None = next((p.coreset.objective for p in parts if p.coreset.objective is not None), None)
    if given is None:
        return known
    objective: Objective = make("objective", given)
    labels = [part.coreset.y for part in parts if part.coreset.y is not None]
    if objective.lacks_classes and labels:
        objective = objective.for_rows(Block(X=np.empty((sum(map(len, labels)), 0)), y=np.concatenate(labels)))
    if known not in (None, objective):
        raise ValueError(f"The coresets were built for {known!r}, not for {objective!r}.")
    return objective


# -- the union ---------------------------------------------------------------------------------------------------------


def _union(parts: list[Part], objective: Objective | None) -> Coreset:
    """All rows with their weights, and what can be said exactly of all that they stand for."""
    sites: list[Site] = []
    blocks = []
    next_row = 0
    for part in parts:
        coreset = part.coreset
        sites += sites_of(part, next_row)
        ids = coreset.row_ids() + next_row
        blocks.append(Block(X=coreset.X, y=coreset.y, sample_weight=coreset.weights(), indices=ids))
        next_row += max(coreset.last_row, int(coreset.row_ids().max(initial=0)), coreset.n_seen - 1) + 1
    if next_row > LARGEST:
        raise ValueError("The row ids of so many sites do not fit into 64 bits.")
    rows = concat(blocks)
    pilot, totals = _joint_totals([part.coreset for part in parts], objective)
    is_whole = all(part.coreset.is_whole for part in parts)
    return Coreset(
        X=rows.X,
        y=rows.y,
        sample_weight=rows.sample_weight,
        indices=rows.indices,
        n_seen=sum(part.coreset.n_seen for part in parts),
        weight_seen=math.fsum(part.coreset.weight_seen for part in parts),
        totals=totals,
        pilot=pilot,
        last_row=next_row - 1,
        is_whole=is_whole,
        objective=objective,
        half_life=parts[0].coreset.half_life,
        provenance=_notes(parts, objective, joined=totals is not None, is_whole=is_whole),
        sites=tuple(sites),
        schema=parts[0].schema,
    )


def _joint_totals(coresets: list[Coreset], objective: Objective | None) -> tuple[Array | None, Array | None]:
    """The pilot that all coresets share and the sum of their totals; None and None if there is no such pilot.

    The totals of a coreset that holds all of its rows can be taken at any pilot.
    """
    drawn = [coreset for coreset in coresets if not coreset.is_whole]
    pilot = drawn[0].pilot if drawn else None
    if pilot is None:
        return None, None
    total: Array | None = None
    for coreset in coresets:
        totals = coreset.totals if coreset.pilot is not None and np.array_equal(coreset.pilot, pilot) else None
        if totals is None and not coreset.is_whole:
            return None, None
        if not isinstance(objective, SampledObjective):
            return None, None  # it cannot be checked that totals are those of the same moments
        try:
            objective.check_pilot(pilot, totals, coreset)
        except ValueError as error:
            raise FileFormatError(f"The totals or the pilot of a coreset are damaged: {error}") from error
        totals = objective.survey(coreset, pilot).totals if totals is None else totals
        total = totals if total is None else total + totals
    return pilot, total


def _notes(parts: list[Part], objective: Objective | None, *, joined: bool, is_whole: bool) -> Notes:
    """The entries of the provenance."""
    before = [part.coreset.provenance for part in parts]
    constructions = {str(notes.get("construction", "?")) for notes in before}
    notes: Notes = {} if objective is None else {"objective": objective.name}
    notes["construction"] = constructions.pop() if len(constructions) == 1 else "several"
    n_sites = sum(max(1, len(part.coreset.sites)) for part in parts)
    if joined:
        # a stream that has forgotten rows says so in these words
        estimated = any("partly estimated" in str(notes.get("totals")) for notes in before)
        notes["totals"] = f"of {n_sites} sites, added up{', partly estimated' if estimated else ''}"
    elif not is_whole:
        notes["totals"] = f"of {n_sites} sites, not joined: they were not all taken at one pilot"
    return notes


def _with_pilot(union: Coreset, objective: Objective | None, seed: int) -> Coreset:
    """The union, with a new pilot if the sites share none: the sites can take totals at it when they build again."""
    if union.pilot is not None or not isinstance(objective, SampledObjective):
        return union
    rng = rng_for(seed, "pilot")
    pilot = objective.solve(union, rng=rng) if objective.totals_at_solution else objective.pilot(union, rng=rng)
    return replace(union, pilot=pilot)


# -- the reduction -----------------------------------------------------------------------------------------------------


def _reduced(union: Coreset, plan: Plan) -> Coreset:
    """Rows drawn from the union; calibrated to exact totals, if there are any, else to those of the union."""
    exact = union.totals is not None
    rows = Block(X=union.X, y=union.y, sample_weight=union.sample_weight, indices=union.indices)
    drawn = reduce_rows(DataPass(rows), replace(plan, calibrate=plan.calibrate and not exact))
    about = dict(union.provenance)
    about.pop("construction")
    if plan.calibrate:
        about["calibrated_to"] = "totals of all rows" if exact else "totals of the sites' coresets"
    drawn = replace(
        drawn,
        n_seen=union.n_seen,
        weight_seen=union.weight_seen,
        totals=union.totals,
        pilot=union.pilot if exact else drawn.pilot,
        last_row=union.last_row,
        half_life=union.half_life,
        provenance={**drawn.provenance, **about},
        sites=union.sites,
    )
    if not (exact and plan.calibrate):
        return drawn
    assert isinstance(plan.objective, SampledObjective)
    return calibrated(drawn, plan.objective)[0]


def site_sizes(
    coresets: Sequence[Coreset | Path], coreset_size: int, *, by: str = "cost", random_state: Any = None
) -> list[int]:
    """The sizes of coresets of several sites that have ``coreset_size`` rows together.

    Each site builds a small coreset first. One number of each decides how many rows it keeps when it builds again:
    with ``by="cost"`` that of its rows at its own pilot, as Balcan, Ehrlich and Liang (2013) share out draws for
    k-means and k-median. Their further points, the local centres with the weight that the draws leave, are not added:
    a part of these weights is negative.

    It is for sites that may send few rows. Coresets of the full size that `merge_coresets` reduces distort costs far
    less (`benchmarks/sites.py`).

    Parameters
    ----------
    coresets : list of Coreset or of paths
        One of each site.
    coreset_size : int
        Of all sites together; at least one row for each.
    by : {"cost", "weight"}
        ``"weight"``: in proportion to the weight of the rows, which is their number if they have none.
    random_state : int, RandomState, Generator or None
        For the pilot of a site whose coreset has none, since it holds all of its rows.

    Returns
    -------
    list of int

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> from tithe.theory import site_sizes
    >>> from tithe.objectives import KMeansObjective
    >>> rng = np.random.default_rng(0)
    >>> options = {"objective": KMeansObjective(n_clusters=3), "coreset_size": 200, "random_state": 0}
    >>> small = [build_coreset(scale * rng.normal(size=(5000, 2)), **options) for scale in (1.0, 3.0)]
    >>> sizes = site_sizes(small, 1000)
    >>> sum(sizes), 8 < sizes[1] / sizes[0] < 10
    (1000, True)
    """
    parts = as_parts(coresets)
    check_alike(parts, allow_repeated=True)
    check_value("coreset_size", coreset_size, WholeNumber(least=len(parts)))
    check_value("by", by, OneOf("cost", "weight"))
    if by == "weight":
        shares = np.array([part.coreset.weight_seen for part in parts])
    else:
        seed = as_seed(random_state)
        shares = np.array([_local_cost(part.coreset, seed, number) for number, part in enumerate(parts)])
    shares = shares if shares.sum() > 0.0 else np.ones(len(parts))
    return [int(size) for size in shared_out(shares, np.ones(len(parts), np.int64), coreset_size)]


def _local_cost(coreset: Coreset, seed: int, number: int) -> float:
    """The cost of the rows of a site at its own pilot, by its coreset, whose weights are calibrated to it."""
    objective = coreset.objective
    if not (isinstance(objective, NearestObjective) and isinstance(objective, SampledObjective)):
        raise ValueError("by='cost' is for coresets that were built for k-means or k-median: use by='weight'.")
    pilot = coreset.pilot
    if pilot is None:
        pilot = objective.pilot(coreset, rng=rng_for(seed, "pilot", number))
    return float(coreset.weights() @ objective.cost(coreset, pilot))
