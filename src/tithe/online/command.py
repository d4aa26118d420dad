"""``tithe online``: clusters of a stream, of which nobody says how many there are."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import click

from tithe.cli.main import Command, Stop, Stopped, command_line, print_run
from tithe.cli.options import seed_option
from tithe.cli.screen import say
from tithe.cli.sources import SourceOptions, checked_output, refuse_other, source_options
from tithe.core.progress import LINE_SECONDS

_BATCH_ROWS = 500  # rows between two updates of the view, and between two checks whether to stop
_BARS = " ▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 60  # characters of a curve


@click.command(cls=Command)
@click.argument("where", metavar="STREAM...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@click.option("--max-clusters", type=click.IntRange(min=1), default=20)
@click.option("--preset", type=click.Choice(["practical", "theory"]), default="practical")
@click.option(
    "--many-centers", is_flag=True, help="Many centres for rows that fill a region, as those of sensors often do."
)
@click.option("--half-life", type=click.FloatRange(min=0, min_open=True), metavar="ROWS", help="Fade older rows.")
@click.option(
    "--summary-size",
    type=click.IntRange(min=1),
    default=1000,
    help="Rows of the past that are kept.",
)
@source_options
@seed_option
@click.option("--resume", is_flag=True, help="Go on with the model in OUTPUT: rows are added to it.")
def online(where: Sequence[str], how: SourceOptions, output: str, resume: bool, **options: Any) -> None:
    """Cluster rows as they come; the number of clusters follows the stream.

    STREAM is - for standard input, or files, read in their order. On a terminal the number of clusters, the loss and
    the speed are shown as they change. The stream may end, or be stopped with Ctrl-C, at any time: the folder
    OUTPUT gets model.tithe, report.html and results.json of the rows so far, and --resume goes on from there. The same
    happens if a row of standard input cannot be read. If a file has an error, nothing is written.

    \b
    Example:
      cat today.csv | tithe online - --half-life 5000 -o clusters
    """
    if how["weight"] is not None:
        raise click.UsageError("Rows of a stream all count the same: --weight is not for online clustering.")
    output = checked_output(output, where)
    from tithe.fit.base import note_columns
    from tithe.online.report import online_run

    model = _resumed(output, options) if resume else _new_model(output, options)
    start = time.perf_counter()
    with Stop() as stop:
        source = how.open(where, live=True, schema=model.schema_)
        if resume:
            note_columns(model, source, reset=False)
            with suppress(AttributeError):  # rows are arrays from here on, and have no names
                del model.feature_names_in_
        with View(model.n_rows_ if resume else 0) as view:
            stopped, refused = _take(source, model, stop, view)
        stop.idle()
        if refused is not None and (source.replayable or not view.n_rows):
            raise refused
        if not view.n_rows:
            raise Stopped("Stopped before any row came.") if stopped else ValueError("There are no rows.")
        note_columns(model, source, reset=True)
        run = online_run(
            model,
            files=how.plain_names(where),
            n_rows=view.n_rows,
            seconds=time.perf_counter() - start,
            parameters=model.get_params(),
        )
        numbers = run.write(output)
    print_run(output, run, numbers)
    advice = f"the model is in {output}. Later rows are added with: {command_line('--resume')}"
    if refused is not None:  # what came through a pipe does not come again
        raise ValueError(f"{refused}\nOf the {view.n_rows:,} rows taken before, {advice}")
    if stopped:
        raise Stopped(f"Stopped; {advice}")


@click.command(
    cls=Command,
    hidden=True,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def cluster(arguments: tuple[str, ...]) -> None:
    """The former name of other commands."""
    raise click.UsageError(
        "There is no tithe cluster any more. It is `tithe online` for a stream, `tithe fit odm-clustering` for "
        "clusters by margins, and `tithe fit kmeans` for a known number of clusters."
    )


def _new_model(output: str, options: dict[str, Any]) -> Any:
    from tithe.online.paco import PACO

    if (Path(output) / "model.tithe").exists():
        raise ValueError(f"{output!r} holds a model already: go on with it (--resume), or name another folder.")
    others = {name: value for name, value in options.items() if name not in ("many_centers", "seed")}
    scale = "centers" if options["many_centers"] else "clusters"
    return PACO(**others, scale=scale, random_state=options["seed"])


def _resumed(output: str, options: dict[str, Any]) -> Any:
    """The model as it was left; options that say something else about it are refused."""
    from tithe.online.paco import PACO
    from tithe.storage.models import load_model

    model = load_model(Path(output) / "model.tithe")
    if not isinstance(model, PACO):
        raise ValueError(f"The model in {output!r} is no online clustering.")
    held = {**model.get_params(), "many_centers": model.scale == "centers", "seed": model.random_state}
    refuse_other(f"The model in {output}", {name: held[name] for name in options}, options)
    return model


def _take(source: Any, model: Any, stop: Stop, view: View) -> tuple[bool, ValueError | None]:
    """Take all rows; returns whether it was stopped before the end, and the error of a row that was refused."""
    try:
        for rows in _batches(source, stop):
            model.partial_fit(rows)
            view.show(model, len(rows))
    except KeyboardInterrupt:
        return True, None
    except ValueError as error:
        return False, error
    return False, None


def _batches(source: Any, stop: Stop) -> Iterator[Any]:
    """Rows as they come, in small batches; an interruption is possible in between."""
    tasks = source.tasks()
    while True:
        with stop.waiting():
            task = next(tasks, None)
            block = None if task is None else task()
        if block is None:
            return
        for at in range(0, len(block), _BATCH_ROWS):
            with stop.waiting():
                rows = block.X[at : at + _BATCH_ROWS]
            yield rows.toarray() if hasattr(rows, "toarray") else rows


class View:
    """Clusters over time, loss and speed, on standard error: a live view on a terminal, else a line now and then."""

    def __init__(self, n_before: int) -> None:
        self.n_rows, self._n_before = 0, n_before
        self._live: Any = None
        self._start = self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True)
        if console.is_terminal:
            self._live = Live(console=console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, model: Any, n_rows: int) -> None:
        self.n_rows += n_rows
        now = time.monotonic()
        if self._live is None and now - self._last_line < LINE_SECONDS:
            return
        history, speed = model.history_, self.n_rows / max(now - self._start, 1e-9)
        recent = history["loss"][-_BATCH_ROWS:].mean()
        n_rows = self._n_before + self.n_rows
        about = f"{n_rows:,} rows, {model.n_clusters_} clusters, loss {recent:.4g}, {speed:,.0f} rows/s"
        if self._live is None:
            self._last_line = now
            say(about, err=True)
            return
        from rich.text import Text

        curves = f"clusters {curve(history['k'])}\nloss     {curve(history['loss'], clip=3.0)}"
        self._live.update(Text(f"{curves}\n{about}"))


def curve(values: Any, *, clip: float = math.inf) -> str:
    """Numbers over time as a line of bars, the last ones to the right; means where there are many.

    Values above ``clip`` times the median are cut off: the first losses are far larger than those that follow.
    """
    import numpy as np

    if len(values) > _CURVE_WIDTH:
        edges = np.linspace(0, len(values), _CURVE_WIDTH + 1).astype(int)[:-1]
        values = np.add.reduceat(values, edges) / np.diff(np.append(edges, len(values)))
    top = max(min(float(np.max(values)), clip * float(np.median(values))), 1e-300)
    return "".join(_BARS[round(8 * min(1.0, float(value) / top))] for value in values)
