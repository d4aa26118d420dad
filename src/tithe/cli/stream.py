"""``tithe stream``: a coreset of rows that keep coming."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tithe.cli.common import (
    STDIN,
    Stopped,
    check_apart,
    classes_option,
    command_line,
    make_objective,
    objective_options,
    print_table,
    seed_option,
    source_options,
)
from tithe.cli.outset import checkpoint_every_option
from tithe.cli.progress import Reading, Stop
from tithe.core.registry import names


@click.command()
@click.argument("where", metavar="[SOURCE]...", nargs=-1)
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="Parquet file to write.")
@click.option("-m", "--size", type=click.IntRange(min=1), default=5000, show_default=True, help="Rows to keep.")
@objective_options
@classes_option
@click.option(
    "--construction",
    type=click.Choice(["auto", *names("construction")]),
    default="auto",
    show_default=True,
    help="How rows are chosen.",
)
@click.option("--calibrate/--no-calibrate", default=True, show_default=True, help="Adjust weights to exact totals.")
@source_options
@seed_option
@click.option("--leaf-size", type=click.IntRange(min=1), help="Rows that are kept raw. [default: 65,536 or more]")
@click.option("--window", type=click.IntRange(min=1), metavar="ROWS", help="Forget what is older than so many rows.")
@click.option("--half-life", type=click.FloatRange(min=0, min_open=True), metavar="ROWS", help="Fade older rows.")
@click.option("--keep-leaves", type=click.Path(file_okay=False), metavar="DIR", help="Keep all rows, to be forgotten.")
@click.option(
    "--checkpoint", type=click.Path(file_okay=False), help="Folder for the state. [default: OUTPUT.checkpoint]"
)
@checkpoint_every_option
@click.option("--write-every", type=click.IntRange(min=1), metavar="ROWS", help="Write OUTPUT that often meanwhile.")
@click.option("--resume", is_flag=True, help="Go on with the stream in the checkpoint: rows are added to it.")
@click.option("--forget", type=click.Path(dir_okay=False), metavar="FILE", help="Row ids to delete, one a line.")
def stream(where, how, output, checkpoint, every, write_every, resume, forget, keep_leaves, **options):  # type: ignore[no-untyped-def]
    """Take rows as they come, and keep a coreset of all of them, or of the last ones.

    SOURCE is - for standard input, or files. Input may end, or be stopped with Ctrl-C, at any time: the state is
    written to the checkpoint and the coreset to OUTPUT. Later rows go on from there with --resume.

    \b
    Example:
      cat today.csv | tithe stream - -k 20 --window 1000000 -o coreset.parquet
      tithe stream -o coreset.parquet --resume --forget ids.txt
    """
    if not where and not (resume and forget):
        raise click.UsageError("Give a SOURCE of rows, or --resume with --forget to delete some.")
    if forget and not resume:
        raise click.UsageError("--forget deletes rows of a stream that is there already: it needs --resume.")
    from tithe.persist import check_output

    check_output(output)
    check_apart(output, where)
    if where and not resume and options["objective"] == "logistic":
        how.check_labels(where)
    checkpoint = checkpoint or f"{output}.checkpoint"
    with Stop() as stop:
        running = _resumed(checkpoint, keep_leaves, options) if resume else None
        if running is not None and forget:
            click.echo(f"{running.forget(_row_ids(forget)):,} rows were forgotten.", err=True)
        feature_names, stopped, source = None, False, None
        if where:
            source = how.open(where, live=True)
            feature_names = getattr(source, "feature_names", None)
        feature_names = _agreed_names(feature_names, output if resume else None)
        if running is None:
            running = _new(source, checkpoint, keep_leaves, options)
        keeper = _Keeper(running, output, checkpoint, feature_names, every=every, write_every=write_every)
        if source is not None:
            stopped = _take(source, keeper, stop)
        stop.idle()
        if not running.n_rows:
            raise (
                Stopped("Stopped before any row came.")
                if stopped
                else ValueError("There are no rows: the input is empty.")
            )
        keeper.checkpoint()
        coreset = keeper.write()
    _say_goodbye(coreset, running.n_rows, where, output, checkpoint, stopped=stopped)


class _Keeper:
    """Writes state and coreset every so often."""

    def __init__(
        self, running: Any, output: str, folder: str, names: Any, *, every: float, write_every: int | None
    ) -> None:
        self.running = running
        self._output, self._folder, self._names = output, folder, names
        self._every, self._write_every = every, write_every
        self._last, self._written = time.monotonic(), running.n_rows

    def after_push(self) -> None:
        if time.monotonic() - self._last >= self._every:
            self.checkpoint()
        if self._write_every is not None and self.running.n_rows - self._written >= self._write_every:
            self.write()

    def checkpoint(self) -> None:
        self.running.checkpoint(self._folder)
        self._last = time.monotonic()

    def write(self) -> Any:
        from tithe.persist import save_coreset

        coreset = self.running.coreset()
        save_coreset(coreset, self._output, feature_names=self._names)
        self._written = self.running.n_rows
        return coreset


def _take(source: Any, keeper: _Keeper, stop: Stop) -> bool:
    """Push all that comes; whether it was stopped before the end."""
    running, before = keeper.running, keeper.running.n_rows
    n_rows = 0
    try:
        with Reading(source.n_rows, "streaming") as reading:
            for number, block in enumerate(_blocks(source, stop), 1):
                # ids count the rows of the input, bad ones included
                running.push(block.X, block.y, block.sample_weight, row_ids=before + block.row_ids())
                n_rows += len(block)
                reading(1, number, n_rows)
                keeper.after_push()
    except KeyboardInterrupt:
        return True
    return False


def _blocks(source: Any, stop: Stop) -> Iterator[Any]:
    """The rows as they come; an interruption does no harm while they are waited for."""
    tasks = source.tasks()
    while True:
        with stop.waiting():
            task = next(tasks, None)
            block = None if task is None else task()
        if block is None:
            return
        if len(block):
            yield block


def _new(source: Any, checkpoint: str, keep_leaves: str | None, options: dict[str, Any]) -> Any:
    from tithe.stream import CoresetStream

    if Path(checkpoint).exists():
        raise ValueError(f"{checkpoint!r} is there already: go on with it (--resume), or name another (--checkpoint).")
    goal = make_objective(*(options[name] for name in ("objective", "clusters", "inverse_penalty", "classes")))
    if getattr(goal, "classes", ()) is None and source.replayable:  # else those of the first leaf
        goal = replace(goal, classes=tuple(source.classes().tolist()))
    return CoresetStream(
        goal,
        options["construction"],
        coreset_size=options["size"],
        leaf_size=options["leaf_size"],
        calibrate=options["calibrate"],
        window=options["window"],
        half_life=options["half_life"],
        keep_leaves=keep_leaves,
        random_state=options["seed"],
    )


def _resumed(checkpoint: str, keep_leaves: str | None, options: dict[str, Any]) -> Any:
    """The stream as it was left; options that say something else about it are refused."""
    from tithe.stream import CoresetStream

    running = CoresetStream.resume(checkpoint, keep_leaves=keep_leaves)
    plan = running.plan
    held = {
        "size": plan.size,
        "objective": plan.objective.name,
        "clusters": getattr(plan.objective, "n_clusters", None),
        "inverse_penalty": getattr(plan.objective, "C", None),
        "calibrate": plan.calibrate,
        "seed": plan.seed,
        "leaf_size": running.leaf_size,
        "window": running.window,
        "half_life": plan.half_life,
    }
    context = click.get_current_context()
    for name, value in held.items():
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and options[name] != value:
            raise click.UsageError(f"The stream in {checkpoint} has {name} = {value}, not {options[name]}.")
    return running


def _row_ids(file: str) -> Any:
    import numpy as np

    if not Path(file).is_file():
        raise FileNotFoundError(f"There is no file {file!r}.")
    try:
        return np.array([int(line) for line in Path(file).read_text().split()], np.int64)
    except ValueError as error:
        raise ValueError(f"{file!r} must hold whole numbers, one a line: {error}") from error


def _agreed_names(names: list[str] | None, earlier: str | None) -> list[str] | None:
    """Names of the columns: those of the source, which must be those of the coreset written before."""
    from tithe.persist import coreset_metadata, free_names

    names = None if names is None else free_names(names)
    if earlier is None or not Path(earlier).is_file():
        return names
    import pyarrow.parquet as pq

    before = [str(name) for name in coreset_metadata(pq.read_schema(earlier), earlier)["features"]]
    if names is not None and names != before:
        raise ValueError(
            f"The columns are not those of {earlier!r}: {', '.join(names[:5])}, not {', '.join(before[:5])}."
        )
    return before


def _say_goodbye(
    coreset: Any, n_rows: int, where: Sequence[str], output: str, checkpoint: str, *, stopped: bool
) -> None:
    rows = [
        ["rows so far", f"{n_rows:,}"],
        ["stands for", f"{coreset.n_seen:,} rows of weight {coreset.weight_seen:,.6g}"],
        ["rows kept", f"{len(coreset):,}"],
        ["effective sample size", f"{coreset.effective_size:,.0f}"],
    ]
    print_table(output, ["", ""], rows)
    how = f"the state is in {checkpoint}. "
    if STDIN in where:
        how += f"Later rows are added with: {command_line('--resume')}"
    else:
        how += f"It holds the rows up to number {n_rows:,}; give later ones, and only these, with --resume."
    if stopped:
        raise Stopped(f"Stopped; {how}")
    click.echo(how[0].upper() + how[1:], err=True)
