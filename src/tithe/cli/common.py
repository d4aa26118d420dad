"""Options, tables and progress that commands share. Heavy imports stay inside functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click


def objective_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--objective``, ``--clusters`` and ``--penalty``."""
    command = click.option(
        "-C",
        "--penalty",
        "inverse_penalty",
        type=click.FloatRange(min=0.0, min_open=True),
        default=1.0,
        show_default=True,
        help="Logistic: inverse strength of the penalty.",
    )(command)
    command = click.option(
        "-k", "--clusters", type=click.IntRange(min=1), default=8, show_default=True, help="Number of clusters."
    )(command)
    return click.option(
        "--objective",
        type=click.Choice(["kmeans", "kmedian", "logistic", "generic"]),
        default="kmeans",
        show_default=True,
        help="What the coreset must preserve.",
    )(command)


def make_objective(name: str, clusters: int, inverse_penalty: float = 1.0) -> Any:
    """The objective that the options describe."""
    from tithe.core.registry import resolve

    options: dict[str, Any] = {"generic": {}, "logistic": {"C": inverse_penalty}}.get(name, {"n_clusters": clusters})
    return resolve("objective", name)(**options)


class Size(click.ParamType):
    """A number of rows, or a fraction of them."""

    name = "ROWS|FRACTION"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | float:
        if isinstance(value, (int, float)):
            return value
        try:
            return int(value)
        except ValueError:
            pass
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number of rows nor a fraction between 0 and 1.", param, ctx)


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table, the first column to the left and the others to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def plain(text: str) -> Text:
        """Text that a file brought along is shown, never obeyed: no markup, no control characters."""
        return Text("".join(c if c.isprintable() else "?" for c in text))

    table = Table(title=plain(title), title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    console = Console()
    if not console.is_terminal:  # a pipe or file has no width of its own
        console = Console(width=120)
    console.print(table)


@contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error; call what it gives with the name of the step that begins."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        started = False

        def step(name: str) -> None:
            nonlocal started
            progress.update(task, description=name, advance=1 if started else 0)
            started = True

        yield step
