"""``tithe stream``: a coreset of rows that keep coming."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

import click

from tithe.cli.main import Stop, Stopped, command_line, coreset_facts
from tithe.cli.options import ObjectiveCommand, construction_options, seed_option
from tithe.cli.screen import print_table, say
from tithe.cli.size import checkpoint_every_option, checkpoint_option
from tithe.cli.sources import STDIN, SourceOptions, check_apart, check_coreset_name, refuse_other, source_options
from tithe.core.progress import ProgressBar
from tithe.core.registry import resolve


@click.command(cls=ObjectiveCommand)
@click.argument("where", metavar="[SOURCE]...", nargs=-1)
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="Parquet or .csv file to write.")
@click.option("-m", "--size", type=click.IntRange(min=1), default=5000, help="Rows to keep.")
@construction_options
@source_options
@seed_option
@click.option(
    "--leaf-size",
    type=click.IntRange(min=1),
    help="Rows that are kept raw. [default: 65,536 or more, or an eighth of --window]",
)
@click.option("--window", type=click.IntRange(min=1), metavar="ROWS", help="Keep only the last ROWS rows.")
@click.option("--half-life", type=click.FloatRange(min=0, min_open=True), metavar="ROWS", help="Fade older rows.")
@click.option("--keep-leaves", type=click.Path(file_okay=False), metavar="DIR", help="Keep all rows, to be forgotten.")
@checkpoint_option
@checkpoint_every_option
@click.option("--write-every", type=click.IntRange(min=1), metavar="ROWS", help="Write OUTPUT after ROWS rows, too.")
@click.option("--resume", is_flag=True, help="Go on with the stream in the checkpoint: rows are added to it.")
@click.option("--forget", type=click.Path(dir_okay=False), metavar="FILE", help="Row ids to delete, one a line.")
def stream(where, how, output, checkpoint, checkpoint_every, write_every, resume, forget, keep_leaves, **options):  # type: ignore[no-untyped-def]
    """Take rows as they come, and keep a coreset of all of them, or of the last ones.

    SOURCE is - for standard input, or files. Input may end, or be stopped with Ctrl-C, at any time: the state is
    written to the checkpoint and the coreset to OUTPUT. Later rows go on from there with --resume; where the same
    files are given again, those of their rows that are in already are skipped. The columns of a new stream from
    standard input are learned from its first 1,000 rows, which are waited for.

    \b
    Example:
      cat today.csv | tithe stream - -k 20 --window 1000000 -o coreset.parquet
      tithe stream -o coreset.parquet --resume --forget ids.txt
    """
    if not where and not (resume and forget):
        raise click.UsageError("Give a SOURCE of rows, or --resume with --forget to delete some.")
    if forget and not resume:
        raise click.UsageError("--forget deletes rows of a stream that is there already: it needs --resume.")
    from tithe.core.files import check_output, remove_leftovers

    check_coreset_name(output)
    check_output(output)
    check_apart(output, where)
    remove_leftovers(output)  # of a run that was killed: they hold rows, which may be forgotten now
    if where and not resume:
        how.check_target(where, resolve("objective", options["objective"]).target)
    checkpoint = checkpoint or f"{output}.checkpoint"
    with Stop() as stop:
        running = _resumed(checkpoint, keep_leaves, options) if resume else None
        deleted_ids = _row_ids(forget) if forget else None
        schema = _noted_schema(running, how)
        source = how.open(where, live=True, schema=schema) if where else None
        schema = schema if source is None else source.schema
        feature_names = _agreed_names(None if source is None else source.feature_names, output if resume else None)
        if running is None:
            running = _new_stream(source, checkpoint, keep_leaves, options)
        keeper = _Keeper(
            running=running,
            output=output,
            folder=checkpoint,
            names=feature_names,
            schema=schema,
            checkpoint_every=checkpoint_every,
            write_every=write_every,
            forgets=deleted_ids is not None,
        )
        if deleted_ids is not None:
            say(f"{running.forget(deleted_ids):,} rows were forgotten.", err=True)
            keeper.write()  # even if reading fails later, OUTPUT must not hold these rows
        stopped = source is not None and _take(source, keeper, stop, _Taken.of(source, where, how, running))
        stop.idle()
        if not running.n_rows:
            raise Stopped("Stopped before any row came.") if stopped else _no_rows(source, where, how)
        keeper.checkpoint()
        coreset = keeper.write()
    if coreset is None:
        say(
            f"No row is left: {output} was removed. The state is in {checkpoint}; later rows are added with --resume.",
            err=True,
        )
        return
    _print_summary(coreset, running.n_rows, where, output, checkpoint, stopped=stopped)


def _no_rows(source: Any, where: Sequence[str], how: SourceOptions) -> ValueError:
    from tithe.rows.paths import all_bad

    if how["bad_rows"] != "skip":
        return ValueError("There are no rows: the input is empty.")
    return all_bad(", ".join(where), source.count())


@dataclass(kw_only=True)
class _Keeper:
    """Writes state and coreset at intervals."""

    running: Any
    output: str
    folder: str
    names: Any
    schema: Any
    checkpoint_every: float
    write_every: int | None
    forgets: bool = False

    def __post_init__(self) -> None:
        if self.schema is not None:
            self.running.notes["schema"] = self.schema.to_json()  # later rows must become the same features
        self._last_checkpoint, self._written = time.monotonic(), self.running.n_rows

    def after_push(self) -> None:
        if time.monotonic() - self._last_checkpoint >= self.checkpoint_every:
            self.checkpoint()
        if self.write_every is not None and self.running.n_rows - self._written >= self.write_every:
            self.write()

    def checkpoint(self) -> None:
        self.running.checkpoint(self.folder)
        self._last_checkpoint = time.monotonic()

    def write(self) -> Any:
        """Write the coreset and return it; if all rows were forgotten, remove the file and return None."""
        from tithe.core.errors import NoRowsError
        from tithe.storage.coresets import save_coreset

        try:
            coreset = self.running.coreset()
        except NoRowsError:
            if not self.forgets:
                raise
            Path(self.output).unlink(missing_ok=True)
            return None
        save_coreset(coreset, self.output, feature_names=self.names, schema=self.schema)
        self._written = self.running.n_rows
        return coreset


@dataclass
class _Taken:
    """How far the files of a stream were read; it is part of a checkpoint, so that no row is taken twice."""

    files: str | None  # a name for the set of files; None: standard input, which cannot be read again
    n_files: int
    layout: list[Any]  # the identity of the source and the size of its leaves, which say where leaves begin
    first: int  # the id that row 0 of these files has in the stream
    n_rows: int = 0  # of the files, that are in already, bad rows included
    n_leaves: int = 0  # the same of leaves

    @classmethod
    def of(cls, source: Any, where: Sequence[str], how: SourceOptions, running: Any) -> Self:
        """Where to go on: after the rows that are in already, if these files begin with those of the earlier run."""
        if not source.replayable:
            return cls(None, 0, [], running.n_rows)
        from tithe.rows.paths import find_files, known_files

        files = find_files(list(where), how["format"])[0]
        current = cls(known_files(files), len(files), [source.identity, source.leaf_rows], running.n_rows)
        noted = running.notes.get("files")
        if noted is None:
            return current
        earlier = cls(**noted)
        if earlier.files != known_files(files[: earlier.n_files]):
            say(f"These files are others than before: all their rows follow the {current.first:,} so far.", err=True)
            return current
        say(f"{earlier.n_rows:,} rows of these files are in already, and are skipped.", err=True)
        n_leaves = earlier.n_leaves if earlier.layout == current.layout else 0
        return replace(current, first=earlier.first, n_rows=earlier.n_rows, n_leaves=n_leaves)

    def note(self, running: Any) -> None:
        """Store this in the notes of the stream; the next checkpoint writes it together with the rows."""
        if self.files is None:
            running.notes.pop("files", None)
        else:
            running.notes["files"] = asdict(self)


def _take(source: Any, keeper: _Keeper, stop: Stop, taken: _Taken) -> bool:
    """Push all rows that are not in yet; returns whether it was stopped before the end."""
    running, n_rows = keeper.running, 0
    try:
        with ProgressBar(source.n_rows, "streaming", done=taken.n_rows) as reading:
            for number, block in _blocks(source, stop, taken.n_leaves):
                ids = block.row_ids()  # they count the rows of the input, bad ones included
                fresh = block.cut(int(ids.searchsorted(taken.n_rows)), len(block))
                if len(fresh):
                    row_ids = taken.first + fresh.row_ids()
                    running.push(fresh.X, fresh.y, fresh.sample_weight, row_ids=row_ids)
                    taken.n_rows, taken.n_leaves = int(ids[-1]) + 1, number + 1
                    taken.note(running)
                n_rows += len(fresh)
                reading(1, number + 1, n_rows)
                keeper.after_push()
    except KeyboardInterrupt:
        return True
    return False


def _blocks(source: Any, stop: Stop, first: int) -> Iterator[tuple[int, Any]]:
    """The rows as they come, with the number of their leaf; an interruption is possible while they are waited for."""
    tasks = source.tasks(first)
    for number in count(first):
        with stop.waiting():
            task = next(tasks, None)
            block = None if task is None else task()
        if block is None:
            return
        if len(block):
            yield number, block


def _new_stream(source: Any, checkpoint: str, keep_leaves: str | None, options: dict[str, Any]) -> Any:
    from tithe.reduce.stream import CoresetStream

    if Path(checkpoint).exists():
        raise ValueError(f"{checkpoint!r} is there already: go on with it (--resume), or name another (--checkpoint).")
    name = options["objective"]
    goal = resolve("objective", name)(**{parameter: options[parameter] for parameter in _parameters(name)})
    if goal.lacks_classes and source.replayable:  # else those of the first leaf
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
    """The stream of the checkpoint; options that contradict it are refused."""
    from tithe.reduce.stream import CoresetStream

    running = CoresetStream.resume(checkpoint, keep_leaves=keep_leaves)
    plan = running.plan
    held = {
        "size": plan.size,
        "objective": plan.objective.name,
        **{option.parameter: attrgetter(option.parameter)(plan.objective) for option in plan.objective.options},
        "calibrate": plan.calibrate,
        "seed": plan.seed,
        "leaf_size": running.leaf_size,
        "window": running.window,
        "half_life": plan.half_life,
    }
    parameters = {name: None for name in _parameters(options["objective"]) if name != "classes"}
    refuse_other(f"The stream in {checkpoint}", {**parameters, **held}, options)
    return running


def _parameters(objective: str) -> list[str]:
    """Parameters of an objective that are options of the command."""
    cls = resolve("objective", objective)
    return [option.parameter for option in cls.options] + (["classes"] if cls.target == "class" else [])


def _row_ids(file: str) -> Any:
    import numpy as np

    if not Path(file).is_file():
        raise FileNotFoundError(f"There is no file {file!r}.")
    try:
        return np.array([int(line) for line in Path(file).read_text().split()], np.int64)
    except ValueError as error:
        raise ValueError(f"{file!r} must hold whole numbers, one a line: {error}") from error


def _noted_schema(running: Any, how: SourceOptions) -> Any:
    """The schema of the rows that a stream has taken so far; None if there is none. Other columns are refused."""
    if running is None or running.notes.get("schema") is None:
        return None
    from tithe.rows.schema import TableSchema

    schema = TableSchema.from_json(running.notes["schema"])
    if how.get("columns") not in (None, schema.reads):
        raise click.UsageError(f"--columns: the stream has {', '.join(schema.reads[:10])}, in this order.")
    return schema


def _agreed_names(names: Sequence[str] | None, earlier: str | None) -> list[str] | None:
    """Names of the columns: those of the source, which must be those of the coreset written before."""
    from tithe.storage.coresets import free_names, saved_feature_names

    names = None if names is None else free_names(list(names))
    if earlier is None or not Path(earlier).is_file():
        return names
    earlier_names = saved_feature_names(earlier)
    if earlier_names is None:
        return names
    if names is not None and names != earlier_names:
        raise ValueError(
            f"The columns are not those of {earlier!r}: {', '.join(names[:5])}, not {', '.join(earlier_names[:5])}."
        )
    return earlier_names


def _print_summary(
    coreset: Any, n_rows: int, where: Sequence[str], output: str, checkpoint: str, *, stopped: bool
) -> None:
    print_table(output, ["", ""], [["rows so far", f"{n_rows:,}"], *coreset_facts(coreset)])
    how = f"the state is in {checkpoint}. "
    if STDIN in where:
        how += f"Later rows are added with: {command_line('--resume')}"
    elif stopped:
        how += f"Go on with: {command_line('--resume')}"
    else:
        how += f"It holds the rows up to number {n_rows:,}; give later ones, and only these, with --resume."
    if stopped:
        raise Stopped(f"Stopped; {how}")
    say(how[0].upper() + how[1:], err=True)
