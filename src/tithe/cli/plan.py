"""What is decided before the work begins: the number of rows to keep, where to resume, and what a run will take."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

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
    show_default=True,
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
    if goal.name == "generic":
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
