"""What commands show: tables that fit the terminal, sentences, one JSON object, or nothing."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from tithe.core.progress import seconds_text

STDOUT = "-"  # as the name of a file to write
_WIDTH = 120  # of a table in a pipe or a file, which have no width of their own
_LONGEST_WORD = 24  # that is kept whole where it is no number
_NO_BREAK = "\N{NO-BREAK SPACE}"  # while a table is laid out


@dataclass
class Screen:
    """How one command speaks, and what it has said for ``--json``."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    to_stderr: bool = False  # standard output gets rows
    found: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def speaking(self, warn_at: Callable[[Any], Any]) -> Iterator[None]:
        """Print the one object at the end; say nothing but warnings and errors if quiet."""
        errors = sys.stderr
        warn_at(errors)
        with redirect_stderr(io.StringIO() if self.quiet else errors):
            yield
        if self.as_json:
            click.echo(json.dumps(self.found, indent=2))


def screen() -> Screen:
    """That of the running command."""
    context = click.get_current_context(silent=True)
    if context is None:
        return Screen()
    kept: Screen = context.meta.setdefault(__name__, Screen())
    return kept


def _set(context: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        setattr(context.meta.setdefault(__name__, Screen()), str(param.name), True)


def screen_options() -> list[click.Parameter]:
    """``--json``, ``-q`` and ``-v``, which all commands have."""
    texts = {
        ("--json", "as_json"): "Print one JSON object on standard output, in place of tables and sentences.",
        ("-q", "--quiet"): "Print warnings and errors only.",
        ("-v", "--verbose"): "Show where in the code an error comes from.",
    }
    return [
        click.Option([*names], is_flag=True, expose_value=False, callback=_set, help=text)
        for names, text in texts.items()
    ]


def say(text: str, *, err: bool = False) -> None:
    """A sentence, wrapped between words on a terminal."""
    now = screen()
    if err:
        click.echo(wrapped(text), err=True)
    elif now.as_json:
        now.found.setdefault("notes", []).append(text)
    elif not now.quiet:
        click.echo(wrapped(text), err=now.to_stderr)


def terminal_width() -> int | None:
    """Columns of the terminal; None where standard output is a pipe or a file."""
    if os.environ.get("COLUMNS", "").isdecimal() or sys.stdout.isatty():
        return max(20, shutil.get_terminal_size().columns)
    return None


def wrapped(text: str) -> str:
    """The lines of a text, cut between words only, where there is a terminal."""
    width = terminal_width()
    if width is None:
        return text
    cutter = textwrap.TextWrapper(width=width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(cutter.fill(line) for line in text.splitlines())


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, is_text: bool = False) -> None:
    """A table, the first column to the left and the others to the right, or all to the left if they are text.

    Columns that do not fit are left out, from the right: no number is cut. A table without names of columns is of
    facts.
    """
    now = screen()
    if now.as_json:
        if any(columns):
            now.found.setdefault("tables", []).append(
                {"title": title, "columns": [*columns], "rows": [*map(list, rows)]}
            )
        else:
            now.found.setdefault("output", title)
            now.found.setdefault("facts", {}).update((name, value) for name, value in rows)
    if now.as_json or now.quiet:
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def plain(text: str, *, whole: bool = False) -> Text:
        """Text from a file is shown as it is: no markup, no control characters."""
        shown = "".join(c if c.isprintable() else "?" for c in text)
        return Text(shown.replace(" ", _NO_BREAK) if whole else shown)

    width = terminal_width() or _WIDTH
    short = [max((len(row[i]) for row in rows), default=0) <= _LONGEST_WORD for i in range(len(columns))]
    whole = [any(columns) and not is_text and i > 0 and short[i] for i in range(len(columns))]
    least = [_least_width(name, [row[i] for row in rows], whole=whole[i]) for i, name in enumerate(columns)]
    n = len(columns)
    while n > 2 and sum(least[:n]) + 3 * n + 1 > width:
        n -= 1
    table = Table(box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns[:n]):
        side: Any = "left" if i == 0 or is_text else "right"
        table.add_column(plain(column), justify=side, overflow="fold", min_width=least[i])
    for row in rows:
        table.add_row(*(plain(text, whole=whole[i]) for i, text in enumerate(row[:n])))
    click.echo(wrapped(plain(title).plain), err=now.to_stderr)
    console = Console(width=width, stderr=now.to_stderr)
    with console.capture() as drawn:
        console.print(table)
    click.echo(drawn.get().replace(_NO_BREAK, " "), err=now.to_stderr, nl=False)
    if n < len(columns):
        say(f"Not shown, as there is no room: {', '.join(columns[n:])}.")


def _least_width(name: str, texts: Sequence[str], *, whole: bool) -> int:
    """The width in which no number of a column is cut, nor a word that is not very long."""
    words = [word for text in (name, *([] if whole else texts)) for word in text.split()]
    numbers = [word for word in words if any(c.isdigit() for c in word)]
    kept = [*map(len, numbers), *(min(len(word), _LONGEST_WORD) for word in words), *(map(len, texts) if whole else ())]
    return min(max(kept, default=1), 60)


# -- time ---------------------------------------------------------------------------------------


def process_begun() -> float:
    """When this process was started, as `time.time` counts; now, where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = float(Path("/proc/uptime").read_text().split()[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.time()
    return time.time() - max(0.0, age)


def time_waited(seconds: float, work: str) -> str:
    """All the time since the command was given, and its parts: ``seconds`` of ``work``, and the rest."""
    begun = screen_begun()
    total = max(seconds, time.time() - begun)
    screen().found.setdefault("seconds_waited", round(total, 3))
    return (
        f"{seconds_text(total)} ({work} {seconds_text(seconds)}, starting and writing {seconds_text(total - seconds)})"
    )


def screen_begun() -> float:
    """When the running command was given."""
    root = click.get_current_context().find_root().obj
    return time.time() if root is None else float(root.begun)


# -- rows on standard output --------------------------------------------------------------------


@contextmanager
def written(output: str) -> Iterator[str]:
    """The name of the file to write; of ``-`` a temporary one, whose rows go to standard output as CSV."""
    if output != STDOUT:
        yield output
        return
    if screen().as_json:
        raise click.UsageError("--json and -o - both want standard output: name a file.")
    screen().to_stderr = True
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.csv")
        yield str(file)
        with file.open("rb") as rows:
            sys.stdout.flush()
            shutil.copyfileobj(rows, sys.stdout.buffer)
            sys.stdout.buffer.flush()
