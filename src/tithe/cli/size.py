"""What is decided before the work begins: rows to keep (``tithe size``), where to resume, and what a run will take."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tithe.cli.options import POSITIVE, SHARE, ObjectiveCommand, promise_option, seed_option
from tithe.cli.screen import print_table, say
from tithe.cli.sources import source_options
from tithe.core.progress import Checkpoint, bytes_text, memory, seconds_text
from tithe.core.registry import resolve

if TYPE_CHECKING:  # a command that only shows its options need not load these
    from tithe.core.contracts import Source
    from tithe.reduce.plan import Plan

DEFAULT_SIZE = 5000  # rows to keep where no size can be measured
_LEAF_COPIES = 2.5  # a leaf as it is read, as rows, and what is computed for each row (measured)
_PROBE_BYTES = 2**20  # bytes of text from which the length of its lines is estimated
_GZIP = b"\x1f\x8b"


def checkpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--checkpoint``, ``--checkpoint-every``, ``--resume``, ``--dry-run``."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Say what it would take, and write nothing."),
        click.option("--resume", is_flag=True, help="Go on where a run was stopped: the same result, bit by bit."),
        checkpoint_every_option,
        checkpoint_option,
    ):
        command = option(command)
    return command


checkpoint_option = click.option(
    "--checkpoint", type=click.Path(file_okay=False), help="Folder for the state. [default: OUTPUT.checkpoint]"
)
checkpoint_every_option = click.option(
    "--checkpoint-every",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0),
    default=Checkpoint.every,
    help="0: after each leaf.",
)


def earlier_run(checkpoint: str, resume: bool) -> tuple[int, int | None]:
    """Look for an earlier run, and say what is going to happen to it: the rows it had read, and its size."""
    from tithe.storage.checkpoint import load_state

    if os.path.isfile(checkpoint):
        raise NotADirectoryError(f"{checkpoint!r} is a file; a checkpoint is a folder.")
    if not resume:
        if os.path.isdir(checkpoint):
            say(f"Starting anew; --resume would have gone on from {checkpoint}.", err=True)
        return 0, None
    state = load_state(checkpoint, missing_ok=True)
    if state is None:
        say(f"There is no checkpoint in {checkpoint}: starting from the beginning.", err=True)
        return 0, None
    is_build = state.about.get("kind") == "build"  # that of anything else is refused later
    plan, _, tree = state.state if is_build else (None, None, None)
    n_rows = tree.n_seen if tree is not None else 0
    say(f"Going on from {checkpoint}, after {n_rows:,} rows.", err=True)
    return n_rows, None if plan is None else plan.size


def choose_size(
    source: Source,
    goal: Any,
    size: int | float | None,
    *,
    eps: float,
    promise: str,
    seed: int,
    earlier: int | None = None,
) -> tuple[int | float, str]:
    """The number of rows to keep, and the reason for it. ``earlier``: that of an earlier run."""
    if size is not None:
        return size, "asked for"
    if earlier is not None:
        return earlier, "as in the earlier run"
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
        return f"a fit on it costs at most {100.0 * limit:.2g} % more than one on all rows, in 95 % of draws"
    return f"at most {limit:.2g} in 95 % of draws, for queries like those tried"


def print_plan(
    output: str, source: Source, plan: Plan, where: Sequence[str], *, why: str, jobs: int | None, passes: int
) -> None:
    """Print what a run would take, measured by reading and reducing one leaf."""
    from tithe.core.parallel import available_threads

    opening, seconds, first_rows, worth = _one_leaf(source, plan)
    baseline, jobs = memory(), jobs or available_threads()  # by now all is loaded and compiled
    n_rows = _rows_about(source, where) if source.n_rows is None else source.n_rows
    levels, rows, leaves, time = 20, *("not known beforehand",) * 3
    if n_rows is not None:
        n_leaves, about = -(-n_rows // max(1, first_rows)), "" if source.n_rows is not None else "about "
        levels, rows, leaves = n_leaves.bit_length(), f"{about}{n_rows:,}", f"{about}{n_leaves:,}"
        time = seconds_text(opening + passes * n_leaves / min(jobs, n_leaves) * seconds)
    held = jobs * source.row_bytes * first_rows * _LEAF_COPIES
    held += plan.size * (source.row_bytes + 24) * (levels + 2 * jobs)
    facts = {
        "rows": rows,
        "columns": f"{source.n_features:,}",
        "bytes on disk": "not known" if source.n_bytes is None else bytes_text(source.n_bytes),
        "leaves": leaves,
        "rows to keep": f"{plan.size:,} ({why})",
        "passes over the data": f"{passes}, and a sample",
        "peak memory, about": bytes_text(baseline + held),
        "time, about": time,
    }
    if worth is not None:
        facts["worth of a row"] = worth
    print_table(f"{output}: not written, this is a dry run", ["", ""], [[*fact] for fact in facts.items()])


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


def _one_leaf(source: Source, plan: Plan) -> tuple[float, float, int, str | None]:
    """Seconds to take a sample and learn from it, to read and reduce the first leaf, its rows, and their worth."""
    from time import perf_counter

    import numpy as np

    from tithe.core.parallel import limit_threads, single_blas_thread
    from tithe.core.seeding import rng_for
    from tithe.meta.boosting import worth_in_words
    from tithe.reduce.plan import leaf_rows_for

    if not source.replayable:
        raise click.UsageError("A dry run reads rows, and standard input can be read only once.")
    with single_blas_thread(), limit_threads(1):
        task = next(source.tasks(leaf_rows=max(source.leaf_rows, leaf_rows_for(plan.size))))
        leaf = task()
        start = perf_counter()
        sample = source.sample(None, rng=rng_for(plan.seed, "look"))
        labelled = leaf.y is not None and sample.y is not None and plan.objective.lacks_classes
        classes = np.unique(np.concatenate([leaf.y, sample.y])) if labelled else None
        reducer = plan.start(sample, n_rows=source.n_rows, classes=classes)
        opening = perf_counter() - start
        reduced = reducer.leaf(leaf, (0, 0))  # the first time compiles
        begun = perf_counter()
        reducer.leaf(task(), (0, 0))
        seconds = perf_counter() - begun
    worth = None if reduced is None else reduced.provenance.get("row_worth")
    return opening, seconds, len(leaf), worth_in_words(worth) if isinstance(worth, float) else None


@click.command(cls=ObjectiveCommand)
@click.option("--eps", type=SHARE, default=0.1)
@click.option("--delta", type=SHARE, default=0.1)
@promise_option
@click.option("-d", "--features", type=click.IntRange(min=1), help="Number of columns, if no data is given.")
@click.option("-n", "--rows", type=click.IntRange(min=1), default=1_000_000, help="For rings and nets without data.")
@click.option("-m", "--size", "n_kept", type=click.IntRange(min=1), help="Also print the error of this number of rows.")
@click.option("--queries", type=click.IntRange(min=1), help="Also the rows for so many solutions fixed beforehand.")
@click.option("--total-sensitivity", type=POSITIVE, help="For logistic and margin, if no data is given.")
@click.option(
    "--reference-factor",
    type=click.FloatRange(min=1.0),
    help="For dictionary: those that cost at least 1 / NUMBER of the reference. [default: 1 / EPS]",
)
@click.option("--theorems", is_flag=True, help="Sizes by theorems as well. Without --data they are all there is.")
@click.option("--data", metavar="SOURCE", help="Measure on a sample of this file, folder or pattern (the pilot rule).")
@source_options
@seed_option
def size(  # type: ignore[no-untyped-def]
    objective, eps, delta, promise, features, rows, n_kept, queries, total_sensitivity, reference_factor, theorems,
    data, how, seed, **parameters,
):  # fmt: skip
    """Rows for a relative error EPS with probability 1 - DELTA.

    With --data trial coresets are measured: by default what a fit on them loses. Formulas of theorems, with --theorems
    or without --data, are for the costs of all solutions, and cautious by orders of magnitude. They are for
    clusterings, logistic regression, margins and dictionaries.

    \b
    Example:
      tithe size -k 20 --eps 0.05 --data rows.parquet
      tithe size -k 20 --features 10 -m 5000
      tithe size --objective logistic --target y --data 'data/*.parquet'
    """
    from tithe import propose_size
    from tithe.theory import sizes

    goal = resolve("objective", objective)(**parameters)
    known, measured = sizes.known_theorems(goal), sizes.needs_total_sensitivity(goal)
    if data is None and not known:
        raise click.UsageError(f"For {goal.name} the size is measured: give files with --data.")
    if total_sensitivity is not None and not measured:
        raise click.UsageError(f"--total-sensitivity is for logistic and margin, not for {goal.name}.")
    if reference_factor is not None and not any("reference_factor" in theorem for theorem in known):
        raise click.UsageError(f"--reference-factor is for no theorem about {goal.name}.")
    if data is None and measured and total_sensitivity is None:
        raise click.UsageError(f"For {goal.name} give files with --data, or a number with --total-sensitivity.")
    # other options that only theorems read ask for them as well
    theorems = theorems or data is None or n_kept is not None or reference_factor is not None or queries is not None
    table, is_estimate = [], False
    if data is not None:
        how.check_target([data], goal.target)
        source = how.open([data])
        if not source.replayable:
            raise click.UsageError("--data is sampled from all files; standard input can be read only once.")
        proposed, limit = propose_size(source, objective=goal, eps=eps, promise=promise, random_state=seed)
        table.append([f"{proposed:,}", "pilot rule", limit_text(limit, promise)])
        features = source.n_features
        if theorems and measured and total_sensitivity is None:
            total_sensitivity = sizes.measured_total_sensitivity(source, objective=goal, random_state=seed)
            is_estimate = source.n_rows is None or source.n_rows > sizes.SAMPLE_ROWS
        elif theorems and not measured:
            rows = sizes.rows_of_equal_weight(source) if how["weight"] is not None else source.n_rows or rows
    if features is None:
        raise click.UsageError("Give the number of columns with --features, or files with --data.")
    terms = {"n_features": features, "n_rows": rows, "total_sensitivity": total_sensitivity}
    if reference_factor is not None:
        known = [{**t, "reference_factor": reference_factor} if "reference_factor" in t else t for t in known]
    if queries is not None:
        known += [{**theorem, "queries": queries} for theorem in known if theorem["queries"] == "one"]
    assumptions: dict[str, None] = {}  # each once, in their order
    for theorem in known if theorems else ():
        row, assumption = _theorem_row(goal, eps, delta, {**terms, **theorem}, n_kept, is_estimate=is_estimate)
        table.append(row)
        assumptions |= {f"Sizes are proved if {assumption}.": None} if assumption else {}
    columns = ["rows", "by", "how", *([] if n_kept is None else [f"eps of {n_kept:,}"])]
    about = "".join(f"{name} = {value:g}, " for name, value in parameters.items() if isinstance(value, (int, float)))
    print_table(
        f"{objective}, {about}eps = {eps}, delta = {delta}", columns, [[*row, ""][: len(columns)] for row in table]
    )
    if data is not None:
        worst = " Theorems hold for all solutions and the worst rows." if theorems else ""
        say(f"Take {table[0][0]}, which is measured.{worst}")
    for assumption in assumptions:
        say(assumption)
    if promise == "costs" or data is None:
        say(
            f"If no solution has a larger relative error than {eps:g}, the best one on the coreset costs at most "
            f"{(1.0 + eps) / (1.0 - eps):.4g} times the smallest cost."
        )


def _theorem_row(
    goal: Any, eps: float, delta: float, terms: dict[str, Any], n_kept: int | None, *, is_estimate: bool
) -> tuple[list[str], str]:
    """The row of the table for a theorem, and what it assumes if it is proved."""
    from tithe.theory import eps_for, theoretical_size

    bound = theoretical_size(goal, eps, delta, **terms)
    kind, how = "proved" if bound.proved else "formula", f"{bound.formula}, S = {bound.total_sensitivity:.4g}"
    if is_estimate:
        kind, how = "estimate", f"{how} of a sample, which is often too small"
    if terms["construction"] == "rings":
        how += f": {round(bound.size / bound.total_sensitivity):,} draws each"
    row = [f"{bound.size:,}", f"{terms['construction']}, {kind}", how]
    if n_kept is not None:
        error = eps_for(goal, n_kept, delta, **terms)
        row.append("none" if math.isinf(error) else f"{error:.3g}")
    return row, bound.assumption if kind == "proved" else ""
