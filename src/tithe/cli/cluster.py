"""``tithe cluster``: online clustering of a stream, with an unknown number of clusters; or clusters by margins."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import click

from tithe.cli.messages import Command
from tithe.cli.options import seed_option
from tithe.cli.progress import Stop
from tithe.cli.sources import check_apart, refuse_given, source_options
from tithe.cli.text import Stopped, command_line, print_table
from tithe.core.progress import LINE_SECONDS, peak_memory, seconds_text

_BATCH_ROWS = 500  # rows between two updates of the view, and between two checks whether to stop
_BARS = " ▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 60  # characters of a curve


@click.command(cls=Command)
@click.argument("where", metavar="STREAM...", nargs=-1, required=True)
@click.option("--online", is_flag=True, help="Row by row, each predicted before it is seen.")
@click.option("--odm", is_flag=True, help="By margins: clusters of any shape, links, and a proved bound.")
@click.option("-k", "--clusters", type=click.IntRange(min=2), default=2, show_default=True, help="With --odm.")
@click.option("--links", type=click.Path(exists=True, dir_okay=False), help="With --odm: lines such as 3,17,must.")
@click.option(
    "--balance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.3,
    show_default=True,
    help="With --odm: the share of the rows by which two clusters may differ.",
)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@click.option("--max-clusters", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--preset", type=click.Choice(["practical", "theory"]), default="practical", show_default=True)
@click.option(
    "--many-centers", is_flag=True, help="Many centres for rows that fill a region, as those of sensors often do."
)
@click.option("--half-life", type=click.FloatRange(min=0, min_open=True), metavar="ROWS", help="Fade older rows.")
@click.option(
    "--summary-size",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Rows of the past that are kept.",
)
@source_options
@seed_option
@click.option("--resume", is_flag=True, help="Go on with the model in OUTPUT: rows are added to it.")
def cluster(  # type: ignore[no-untyped-def]
    where,
    how,
    output,
    online,
    odm,
    clusters,
    links,
    balance,
    resume,
    max_clusters,
    preset,
    many_centers,
    half_life,
    summary_size,
    seed,
):
    """Cluster rows as they come; the number of clusters follows the stream.

    STREAM is - for standard input, or files, read in their order. On a terminal the number of clusters, the loss and
    the speed are shown as they change. The stream may end, or be stopped with Ctrl-C, at any time: the folder
    OUTPUT gets model.skops, report.html and results.json of the rows so far, and --resume goes on from there. The same
    happens if a row of standard input cannot be read. If a file has an error, nothing is written.

    With --odm, rows of files are clustered by margins instead, all at once; a file of links names pairs of rows that
    must or cannot be in one cluster. OUTPUT gets labels.parquet, model.skops, report.html and results.json.

    \b
    Example:
      cat today.csv | tithe cluster - --online --half-life 5000 -o clusters
      tithe cluster rows.parquet --odm --links pairs.csv -o clusters
    """
    if odm:
        refuse_given(
            ("online", "resume", "max_clusters", "preset", "many_centers", "half_life", "summary_size"),
            "--odm has no such option",
        )
        from tithe.cli.cluster_odm import cluster_by_margins

        check_apart(output, where)
        cluster_by_margins(where, how, output, n_clusters=clusters, links=links, balance=balance, seed=seed)
        return
    refuse_given(("clusters", "links", "balance"), "they are for --odm")
    if not online:
        raise click.UsageError("Say --online or --odm. Where the number of clusters is known: tithe fit kmeans.")
    if how["weight"] is not None:
        raise click.UsageError("Rows of a stream all count the same: --weight is not for online clustering.")
    check_apart(output, where)
    parameters = {
        "max_clusters": max_clusters,
        "preset": preset,
        "scale": "centers" if many_centers else "clusters",
        "half_life": half_life,
        "summary_size": summary_size,
        "random_state": seed,
    }
    _cluster_online(where, how, str(Path(output)), parameters, resume=resume)


def _cluster_online(where: Any, how: Any, output: str, parameters: dict[str, Any], *, resume: bool) -> None:
    from tithe.fit.base import note_columns

    model = _resumed(output, parameters) if resume else _new_model(output, parameters)
    start = time.perf_counter()
    with Stop() as stop:
        source = how.open(where, live=True, schema=vars(model).get("schema_"))
        if resume:
            note_columns(model, source, reset=False)
            model.__dict__.pop("feature_names_in_", None)  # rows are arrays from here on, and have none
        with View(model.n_rows_ if resume else 0) as view:
            stopped, refused = _take(source, model, stop, view)
        stop.idle()
        if refused is not None and (source.replayable or not view.n_rows):
            raise refused
        if not view.n_rows:
            raise Stopped("Stopped before any row came.") if stopped else ValueError("There are no rows.")
        note_columns(model, source, reset=True)
        results = _write(output, model, where, view.n_rows, time.perf_counter() - start)
    _say_goodbye(output, results)
    advice = f"the model is in {output}. Later rows are added with: {command_line('--resume')}"
    if refused is not None:  # what came through a pipe does not come again
        raise ValueError(f"{refused}\nOf the {view.n_rows:,} rows taken before, {advice}")
    if stopped:
        raise Stopped(f"Stopped; {advice}")


def _new_model(output: str, parameters: dict[str, Any]) -> Any:
    from tithe.online.paco import PACO

    folder = Path(output)
    if folder.is_file():
        raise NotADirectoryError(f"{output!r} is a file; a folder is needed.")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder.parent)!r} to write {folder.name!r} into.")
    if (folder / "model.skops").exists():
        raise ValueError(f"{output!r} holds a model already: go on with it (--resume), or name another folder.")
    return PACO(**parameters)


def _resumed(output: str, options: dict[str, Any]) -> Any:
    """The model as it was left; options that say something else about it are refused."""
    from tithe.online.paco import PACO
    from tithe.storage.models import load_model

    model = load_model(Path(output) / "model.skops")
    if not isinstance(model, PACO):
        raise ValueError(f"The model in {output!r} is no online clustering.")
    context, parameters = click.get_current_context(), model.get_params()
    for name, value in options.items():
        option = "seed" if name == "random_state" else name
        is_given = context.get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE
        if is_given and parameters[name] != value:
            raise click.UsageError(f"The model in {output} has {option} = {parameters[name]}, not {value}.")
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


def _write(output: str, model: Any, where: Any, n_rows: int, seconds: float) -> dict[str, Any]:
    from tithe.report.online import OnlineRun, write_online
    from tithe.rows.urls import plain_name

    run = OnlineRun(
        files=[plain_name(name) for name in where],
        n_rows=n_rows,
        seconds=seconds,
        peak_bytes=peak_memory(),
        parameters=model.get_params(),
    )
    return write_online(output, model, run)


def _say_goodbye(output: str, results: dict[str, Any]) -> None:
    rows = [
        ["rows so far", f"{results['rows_so_far']:,}"],
        ["clusters", f"{results['n_clusters']}"],
        ["loss of a row, on average", f"{results['cumulative_loss'] / results['rows_so_far']:,.6g}"],
        ["time", f"{seconds_text(results['seconds'])}, {results['n_rows'] / results['seconds']:,.0f} rows/s"],
    ]
    print_table(output, ["", ""], rows)
    click.echo(f"Report: {Path(output) / 'report.html'}")


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
            click.echo(about, err=True)
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
