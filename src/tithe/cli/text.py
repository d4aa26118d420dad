"""The output of commands: tables, and how to go on after a stop."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

_MAX_COLUMNS = 10  # of a table on a terminal


class Stopped(Exception):
    """Someone asked the command to stop; the message says how to go on."""


def command_line(*more: str) -> str:
    """The command as it was given, with the options ``more`` added."""
    arguments = list(click.get_current_context().find_root().obj or ())
    return shlex.join(["tithe", *arguments, *(option for option in more if option not in arguments)])


@contextmanager
def saying_how_to_go_on(checkpoint: str) -> Iterator[None]:
    """Turn an interruption, or an error of the file system, into a message that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if not _is_kept(checkpoint):
            raise Stopped(f"Stopped before anything was written down. Start again with: {command_line()}") from None
        raise Stopped(f"Stopped; the state is in {checkpoint}. Go on with: {command_line('--resume')}") from None
    except FileNotFoundError:
        raise
    except OSError:
        if _is_kept(checkpoint):
            click.echo(f"The state is in {checkpoint}. Go on with: {command_line('--resume')}", err=True)
        raise


def _is_kept(checkpoint: str) -> bool:
    return any(Path(checkpoint).glob("[0-9]" * 8))


def print_table(title: str, columns: list[str], rows: list[list[str]], *, is_text: bool = False) -> None:
    """A table, the first column to the left and the others to the right, or all to the left if they are text."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def plain(text: str) -> Text:
        """Text from a file is shown as it is: no markup, no control characters."""
        return Text("".join(c if c.isprintable() else "?" for c in text))

    table = Table(title=plain(title), title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 or is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    console = Console()
    if not console.is_terminal:  # a pipe or file has no width of its own
        console = Console(width=120)
    console.print(table)


def print_result_tables(results: Mapping[str, Any], *, most: int) -> None:
    """The coefficients or clusters among the results, at most so many of each."""
    from tithe.report.tables import result_tables

    for table in result_tables(results, most=most):
        if len(table.columns) > _MAX_COLUMNS:
            click.echo(f"{table.title} of {len(table.columns) - 1} classes: see the report.")
        else:
            print_table(table.title, table.columns, table.rows, is_text=table.is_text)
