"""What is decided before the work begins: rows to keep (``tithe size``), where to resume, and what a run will take."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tithe.cli.options import EPS, ObjectiveCommand, make_objective, promise_option, seed_option
from tithe.cli.sources import source_options
from tithe.cli.terminal import print_table
from tithe.core.progress import Checkpoint, bytes_text, memory, seconds_text

if TYPE_CHECKING:  # a command that only shows its options need not load these
    from tithe.core.contracts import Source

DEFAULT_SIZE = 5000  # rows to keep where no size can be measured
_LEAF_COPIES = 2.5  # a leaf as it is read, as rows, and what is computed for each row (measured)
_PROBE_BYTES = 2**20  # bytes of text from which the length of its lines is estimated
_GZIP = b"\x1f\x8b"


def checkpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--checkpoint``, ``--checkpoint-every``, ``--resume``, ``--dry-run``."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Say what it would take, and write nothing."),
        click.option(
            "--resume", is_flag=True, help="Go on where an earlier run was stopped: the same result, bit by bit."
        ),
        checkpoint_every_option,
        click.option(
            "--checkpoint", type=click.Path(file_okay=False), help="Folder for the state. [default: OUTPUT.checkpoint]"
        ),
    ):
        command = option(command)
    return command


checkpoint_every_option = click.option(
    "--checkpoint-every",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0),
    default=Checkpoint.every,
    help="0: after each leaf.",
)


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """The state of an earlier run: the rows it had read, and the size of its coreset."""

    n_rows: int = 0
    size: int | None = None


def earlier_run(checkpoint: str, resume: bool) -> Earlier:
    """Look for an earlier run, and say what is going to happen to it."""
    from tithe.core.data import Coreset
    from tithe.reduce.plan import Plan
    from tithe.storage.checkpoint import load_state

    if os.path.isfile(checkpoint):
        raise NotADirectoryError(f"{checkpoint!r} is a file; a checkpoint is a folder.")
    if not resume:
        if os.path.isdir(checkpoint):
            click.echo(f"Starting anew; --resume would have gone on from {checkpoint}.", err=True)
        return Earlier()
    state = load_state(checkpoint, missing_ok=True)
    if state is None:
        click.echo(f"There is no checkpoint in {checkpoint}: starting from the beginning.", err=True)
        return Earlier()
    n_rows = sum(node.n_seen for node in state.rows.values() if isinstance(node, Coreset))
    click.echo(f"Going on from {checkpoint}, after {n_rows:,} rows.", err=True)
    plan = state.objects.get("plan")
    return Earlier(n_rows=n_rows, size=plan.size if isinstance(plan, Plan) else None)


def choose_size(
    source: Source,
    goal: Any,
    size: int | float | None,
    *,
    eps: float,
    promise: str,
    seed: int,
    earlier: Earlier | None = None,
) -> tuple[int | float, str]:
    """The number of rows to keep, and the reason for it. ``promise``: see `propose_size`."""
    if size is not None:
        return size, "asked for"
    if earlier is not None and earlier.size is not None:
        return earlier.size, "as in the earlier run"
    if goal.name == "generic" or goal.signed:
        return DEFAULT_SIZE, "nothing can be measured for this objective"
    if not source.replayable:
        raise click.UsageError("Rows that come only once cannot be measured beforehand: give the size with -m.")
    from tithe import propose_size

    proposed, measured = propose_size(source, objective=goal, eps=eps, promise=promise, random_state=seed)
    return proposed, f"for an error of {eps:g}: {limit_text(measured, promise)}"


def limit_text(limit: float, promise: str) -> str:
    """What `propose_size` has measured, in words."""
    if limit == 0.0:
        return "none, as these are all rows"
    if promise == "fit":
        return f"a fit on it costs at most {limit:.2g} more in 95 % of draws"
    return f"at most {limit:.2g} in 95 % of draws, for queries like those tried"


def plan_table(
    source: Source,
    goal: Any,
    where: Sequence[str],
    *,
    construction: str,
    size: int | float,
    why: str,
    calibrate: bool,
    seed: int,
    jobs: int | None,
    passes: int,
) -> list[list[str]]:
    """The rows of a table of what a run would take, measured by reading and reducing one leaf."""
    from tithe.core.parallel import available_threads
    from tithe.core.params import resolve_size

    if not source.replayable:
        raise click.UsageError("A dry run reads rows, and standard input can be read only once.")
    n_kept = resolve_size(size, source.n_rows)
    opening, seconds, first_rows = _one_leaf(source, goal, construction, n_kept, calibrate=calibrate, seed=seed)
    baseline, jobs = memory(), jobs or available_threads()  # by now all is loaded and compiled
    held = jobs * source.row_bytes * first_rows * _LEAF_COPIES
    n_rows = _rows_about(source, where) if source.n_rows is None else source.n_rows
    about = "" if source.n_rows is not None else "about "
    n_leaves = None if n_rows is None else -(-n_rows // max(1, first_rows))
    waves = 0 if n_leaves is None else n_leaves / min(jobs, n_leaves)  # one after the other
    levels = 20 if n_leaves is None else n_leaves.bit_length()
    held += n_kept * (source.row_bytes + 24) * (levels + 2 * jobs)
    return [
        ["rows", "not known beforehand" if n_rows is None else f"{about}{n_rows:,}"],
        ["columns", f"{source.n_features:,}"],
        ["bytes on disk", "not known" if source.n_bytes is None else bytes_text(source.n_bytes)],
        ["leaves", "not known beforehand" if n_leaves is None else f"{about}{n_leaves:,}"],
        ["rows to keep", f"{n_kept:,} ({why})"],
        ["passes over the data", f"{passes}, and a sample"],
        ["peak memory, about", bytes_text(baseline + held)],
        [
            "time, about",
            "not known beforehand" if n_leaves is None else seconds_text(opening + passes * waves * seconds),
        ],
    ]


def _rows_about(source: Source, where: Sequence[str]) -> int | None:
    """The number of rows of text files, estimated from the length of their first lines; None if they are compressed."""
    from tithe.rows.paths import find_files

    first = find_files(list(where), "auto")[0][0]
    with first.open() as file:
        lines = file.read(_PROBE_BYTES)
    n_lines = lines.count(b"\n")
    if lines.startswith(_GZIP) or not n_lines:
        return None
    return int((source.n_bytes or 0) * n_lines / len(lines))


def _one_leaf(
    source: Source, goal: Any, construction: str, size: int, *, calibrate: bool, seed: int
) -> tuple[float, float, int]:
    """Seconds to take a sample and learn from it, to read and reduce the first leaf, and its rows."""
    from time import perf_counter

    import numpy as np

    from tithe.core.parallel import limit_threads, single_blas_thread
    from tithe.core.seeding import rng_for
    from tithe.reduce.plan import Plan, leaf_rows_for

    with single_blas_thread(), limit_threads(1):
        task = next(source.tasks(leaf_rows=max(source.leaf_rows, leaf_rows_for(size))))
        leaf = task()
        start = perf_counter()
        sample = source.sample(None, rng=rng_for(seed, "look"))
        labelled = leaf.y is not None and sample.y is not None and goal.lacks_classes
        classes = np.unique(np.concatenate([leaf.y, sample.y])) if labelled else None
        plan = Plan.of(goal, construction, size, calibrate=calibrate, seed=seed)
        reducer = plan.start(sample, n_rows=source.n_rows, classes=classes)
        opening = perf_counter() - start
        reducer.leaf(leaf, (0, 0))  # the first time compiles
        begun = perf_counter()
        reducer.leaf(task(), (0, 0))
        return opening, perf_counter() - begun, len(leaf)


if TYPE_CHECKING:  # a command that only shows its options need not load these
    from tithe.core.contracts import Objective, Source


@click.command(cls=ObjectiveCommand)
@click.option("--eps", type=EPS, default=0.1)
@click.option("--delta", type=EPS, default=0.1)
@promise_option
@click.option("-d", "--features", type=click.IntRange(min=1), help="Number of columns, if no data is given.")
@click.option(
    "-n",
    "--rows",
    type=click.IntRange(min=1),
    default=1_000_000,
    help="Rows, for rings and nets, if no data is given.",
)
@click.option("-m", "--size", "n_kept", type=click.IntRange(min=1), help="Also print the error of this number of rows.")
@click.option(
    "--total-sensitivity",
    type=click.FloatRange(min=0.0, min_open=True),
    help="For logistic and margin, if no data is given.",
)
@click.option(
    "--reference-factor",
    type=click.FloatRange(min=1.0),
    help="For dictionary: sizes for dictionaries that cost at least 1 / NUMBER of the reference. [default: 1 / EPS]",
)
@click.option("--data", metavar="SOURCE", help="Measure on a sample of this file, folder or pattern (the pilot rule).")
@source_options
@seed_option
def size(  # type: ignore[no-untyped-def]
    objective, eps, delta, promise, features, rows, n_kept, total_sensitivity, reference_factor, data, how, seed,
    **parameters,
):  # fmt: skip
    """Rows for a relative error EPS with probability 1 - DELTA.

    Formulas of theorems are cautious by orders of magnitude. They are for clusterings, logistic regression, margins and
    dictionaries, and for the costs of all solutions. With --data trial coresets are measured as well.

    \b
    Example:
      tithe size -k 20 --eps 0.05 --data rows.parquet
      tithe size -k 20 --features 10 -m 5000
      tithe size --objective logistic --target y --data 'data/*.parquet'
    """
    from tithe.theory.sizes import known_theorems, needs_total_sensitivity

    goal = make_objective(objective, parameters)
    theorems = known_theorems(goal)
    measured = needs_total_sensitivity(goal)
    _check_options(goal, data, total_sensitivity, reference_factor, theorems, measured=measured)
    table, is_estimate = [], False
    if data is not None:
        how.check_target([data], goal.target)
        source = how.open([data])
        if not source.replayable:
            raise click.UsageError("--data is sampled from all files; standard input can be read only once.")
        table.append(_measured_row(source, goal, eps, promise, seed))
        features = source.n_features
        if measured and total_sensitivity is None:
            total_sensitivity, is_estimate = _measured_total(source, goal, seed)
        elif not measured:
            rows = _rows_of(source, how["weight"] is not None, rows)
    if features is None:
        raise click.UsageError("Give the number of columns with --features, or files with --data.")
    terms = {"n_features": features, "n_rows": rows}
    if measured:
        terms["total_sensitivity"] = total_sensitivity
    if reference_factor is not None:
        theorems = [{**t, "reference_factor": reference_factor} if "reference_factor" in t else t for t in theorems]
    terms_of = [{**terms, **theorem} for theorem in theorems]
    rows_of_theorems, assumptions = _theorem_rows(goal, eps, delta, terms_of, n_kept, is_estimate=is_estimate)
    table += rows_of_theorems
    columns = ["rows", "by", "how"]
    if n_kept is not None:
        columns.append(f"eps of {n_kept:,}")
        table = [[*row, ""][: len(columns)] for row in table]
    about = "".join(f"{name} = {value:g}, " for name, value in parameters.items() if isinstance(value, (int, float)))
    print_table(f"{objective}, {about}eps = {eps}, delta = {delta}", columns, table)
    if data is not None:
        click.echo(f"Take {table[0][0]}, which is measured. Theorems hold for the worst rows there can be.")
    _print_meaning(eps, promise, assumptions)


def _check_options(
    goal: Objective,
    data: str | None,
    total_sensitivity: float | None,
    reference_factor: float | None,
    theorems: list[dict[str, Any]],
    *,
    measured: bool,
) -> None:
    """Options that do not go together, or that lack another, are the caller's mistake."""
    if data is None and not theorems:
        raise click.UsageError(f"For {goal.name} the size is measured: give files with --data.")
    if total_sensitivity is not None and not measured:
        raise click.UsageError(f"--total-sensitivity is for logistic and margin, not for {goal.name}.")
    if reference_factor is not None and not any("reference_factor" in theorem for theorem in theorems):
        raise click.UsageError(f"--reference-factor is for no theorem about {goal.name}.")
    if data is None and measured and total_sensitivity is None:
        raise click.UsageError(f"For {goal.name} give files with --data, or a number with --total-sensitivity.")


def _print_meaning(eps: float, promise: str, assumptions: list[str]) -> None:
    """What sizes assume, and what an error of eps means for a solution."""
    for assumption in assumptions:
        click.echo(f"Sizes are proved if {assumption}.")
    if promise == "costs":
        factor = (1.0 + eps) / (1.0 - eps)
        click.echo(
            f"If no solution has a larger relative error than {eps:g}, the best one on the coreset costs at most "
            f"{factor:.4g} times the smallest cost."
        )


def _measured_row(source: Source, goal: Objective, eps: float, promise: str, seed: int) -> list[str]:
    """The row of the table for trial coresets."""
    from tithe import propose_size

    proposed, limit = propose_size(source, objective=goal, eps=eps, promise=promise, random_state=seed)
    return [f"{proposed:,}", "pilot rule", f"error: {limit_text(limit, promise)}"]


def _measured_total(source: Source, goal: Objective, seed: int) -> tuple[float, bool]:
    """The total sensitivity, and whether it was estimated on a sample."""
    from tithe.theory.sizes import SAMPLE_ROWS, measured_total_sensitivity

    total = measured_total_sensitivity(source, objective=goal, random_state=seed)
    return total, source.n_rows is None or source.n_rows > SAMPLE_ROWS


def _rows_of(source: Source, weighted: bool, default: int) -> int:
    """n_rows of the theorems."""
    from tithe.theory.sizes import rows_of_equal_weight

    return rows_of_equal_weight(source) if weighted else source.n_rows or default


def _theorem_rows(
    goal: Objective,
    eps: float,
    delta: float,
    theorems: list[dict[str, Any]],
    n_kept: int | None,
    *,
    is_estimate: bool,
) -> tuple[list[list[str]], list[str]]:
    """A row of the table for each theorem, and what those that are proved assume."""
    from tithe.theory.sizes import eps_for, theoretical_size

    table, assumptions = [], []
    for terms in theorems:
        bound = theoretical_size(goal, eps, delta, **terms)
        kind, total = "proved" if bound.proved else "formula", bound.total_sensitivity
        how = f"{bound.formula}, S = {total:.4g}"
        if is_estimate:
            kind, how = "estimate", f"{how} of a sample, which is often too small"
        elif bound.proved and bound.assumption:
            assumptions.append(bound.assumption)
        if terms["construction"] == "rings":
            how += f": {round(bound.size / total):,} draws each"
        row = [f"{bound.size:,}", f"{terms['construction']}, {kind}", how]
        if n_kept is not None:
            error = eps_for(goal, n_kept, delta, **terms)
            row.append("none" if math.isinf(error) else f"{error:.3g}")
        table.append(row)
    return table, list(dict.fromkeys(assumptions))
