"""The command ``tithe``, and what its commands share: errors in the words of options, tables, progress, signals."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from tithe.core.progress import Progress
from tithe.core.registry import names, resolve
from tithe.core.version import __version__

if TYPE_CHECKING:  # a command that only shows its options need not load it
    from tithe.report.run import Run
    from tithe.report.tables import ResultTable

_CALLERS_MISTAKES = (
    *(ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError),
    ConnectionError,  # a store that is not there, or broke off
)


class RegisteredGroup(click.Group):
    """A group of the commands that are registered. What cannot be loaded is missing from the list."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        listed = []
        for name in self.names():
            try:
                self.registered(name)
            except ValueError:  # of a package that is not whole: an error only where it is named
                continue
            listed.append(name)
        return listed

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return self.registered(name) if name in self.names() else None

    def names(self) -> list[str]:
        return names("command")

    def registered(self, name: str) -> click.Command:
        """The command of this name; ValueError if it cannot be loaded."""
        command: click.Command = resolve("command", name)
        return command


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=RegisteredGroup, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="tithe")
def cli() -> None:
    """Keep a small weighted share of your data, learn from that, and get a certificate of what it cost you.

    \b
    Example:
      tithe build rows.parquet -k 20 -m 5000 -o coreset.parquet
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: 0 done, 2 the caller's mistake, 1 anything else."""
    try:
        args = sys.argv[1:] if arguments is None else arguments
        cli.main(args=args, prog_name="tithe", standalone_mode=False, obj=args)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        sys.exit(1)
    except Stopped as stopped:
        click.echo(str(stopped), err=True)
        sys.exit(1)
    except _CALLERS_MISTAKES as error:
        click.echo(f"tithe: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        click.echo(f"tithe: {error}", err=True)
        sys.exit(1)


# -- what commands say, and how they stop -------------------------------------------------------

_PYTHON_NAMES = {"size": "coreset_size", "seed": "random_state", "jobs": "n_jobs"}  # where an option has another name
_VALUE = r"(?:'([^']*)'|\"([^\"]*)\"|\w+\(([^()]*)\)|(\[[^\]]*\]|\([^()]*\)|\.\.\.)|([\w.+-]*\w))?"
_WRITTEN = ("output", "checkpoint", "keep_leaves")  # options that name a file or folder to write
_BARE = r"(?![\w='(.]|\.\w)"


class Command(click.Command):
    """A command whose errors and warnings name its options."""

    def invoke(self, ctx: click.Context) -> Any:
        _refuse_urls(ctx)
        with _warnings_in_options(ctx):
            try:
                return super().invoke(ctx)
            except ValueError as error:
                raise ValueError(in_options(str(error), ctx)) from error


def _refuse_urls(ctx: click.Context) -> None:
    """Refuse to write to a URL, before any work is done."""
    for param in ctx.command.get_params(ctx):
        value = ctx.params.get(str(param.name))
        if param.name in _WRITTEN and isinstance(value, str) and "://" in value:
            raise click.UsageError(
                f"{_flag(param.opts)}: {value!r} is a URL. Results are written to this machine: name a file or folder."
            )


@contextmanager
def _warnings_in_options(ctx: click.Context) -> Iterator[None]:
    """Print warnings as one line each, without the place in the code."""

    def show(message: Warning | str, *details: Any, **more: Any) -> None:
        click.echo(f"tithe: {in_options(str(message), ctx)}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def in_options(message: str, ctx: click.Context | None = None) -> str:
    """The message with the options of the running command in place of parameters."""
    ctx = click.get_current_context() if ctx is None else ctx
    for param in ctx.command.get_params(ctx):
        if isinstance(param, click.Option) and param.name:
            message = _replaced(message, _PYTHON_NAMES.get(param.name, param.name), param)
    # a message that names both has the option twice now
    return re.sub(r"(--[\w-]+(?: [^\s()]+)?) \(\1\)", r"\1", message)


def _replaced(message: str, name: str, option: click.Option) -> str:
    flag = _flag(option.opts)

    def with_value(match: re.Match[str]) -> str:
        quoted, double_quoted, call, _, word = match.groups()
        value = quoted or double_quoted or call or word
        if option.is_flag and value in ("True", "False"):
            return flag if value == "True" or not option.secondary_opts else _flag(option.secondary_opts)
        return f"{flag} {value}" if value else flag

    message = re.sub(rf"(?<![\w.-]){name}={_VALUE}", with_value, message)
    return re.sub(rf"(?<![\w.'-]){name}{_BARE}", flag, message) if "_" in name else message


def _flag(names: list[str]) -> str:
    """The longest form of an option."""
    return max(names, key=len)


_MAX_COLUMNS, _MAX_ROWS = 10, 10  # of a table on a terminal


class Stopped(Exception):
    """Someone asked the command to stop; the message says how to go on."""


def command_line(*more: str) -> str:
    """The command as it was given, with the options ``more`` added."""
    arguments = list(click.get_current_context().find_root().obj or ())
    return shlex.join(["tithe", *arguments, *(option for option in more if option not in arguments)])


@contextmanager
def resume_hint(checkpoint: str) -> Iterator[None]:
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
    return Path(checkpoint, "state.tithe").exists()


@contextmanager
def all_or_nothing() -> Iterator[Stop]:
    """A block that can be interrupted, and writes nothing then."""
    try:
        with Stop() as stop:
            yield stop
    except KeyboardInterrupt:
        raise Stopped("Stopped; nothing was written.") from None


@contextmanager
def quiet_about_names() -> Iterator[None]:
    """Columns were compared before this block, in which rows are arrays: scikit-learn need not warn of that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield


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


def coreset_facts(coreset: Any) -> list[list[str]]:
    """The rows of a table about a coreset."""
    return [
        ["rows kept", f"{len(coreset):,}"],
        ["stands for", f"{coreset.n_seen:,} rows of weight {coreset.weight_seen:,.6g}"],
        ["weight kept", f"{coreset.weights().sum() / coreset.weight_seen:.6f}"],
        ["effective sample size", f"{coreset.effective_size:,.0f}"],
    ]


def print_worth(coreset: Any) -> None:
    """What a row that was drawn for boosted trees is foretold to be worth; nothing of other coresets."""
    worth = coreset.provenance.get("row_worth")
    if worth is None:
        return
    from tithe.meta.boosting import worth_in_words

    click.echo(f"By the gradients of a pilot, {worth_in_words(worth)}.")


def print_run(output: str, run: Run, numbers: dict[str, Any]) -> None:
    """What a run has written into a folder; ``numbers`` are those of ``results.json``."""
    print_table(output, ["", ""], [list(fact) for fact in run.all_facts()])
    for in_short, text in run.sentences:
        click.echo(in_options(f"{in_short} {text}".strip()))
    _print_tables(table for table in run.tables if table.on_terminal)
    # what was done to each column is on the page, and in tithe inspect
    print_result_tables({**run.shown(numbers), "columns": []}, most=_MAX_ROWS)
    click.echo(f"Report: {Path(output) / 'report.html'}")


def print_result_tables(results: Mapping[str, Any], *, most: int) -> None:
    """The coefficients or clusters among the results, at most so many of each."""
    from tithe.report.tables import result_tables

    _print_tables(result_tables(results, most=most))


def _print_tables(tables: Iterable[ResultTable]) -> None:
    for table in tables:
        if len(table.columns) > _MAX_COLUMNS:
            click.echo(f"{table.title} of {len(table.columns) - 1} classes: see the report.")
            continue
        print_table(table.title, table.columns, table.rows, is_text=table.is_text)
        if table.note:
            click.echo(table.note)


@contextmanager
def steps() -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on standard error.

    Call what it gives with the number of steps done, that of all, and the name of the step that begins.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description:<36}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def step(n_done: int, n_steps: int, name: str) -> None:
            progress.update(task, description=name, completed=n_done, total=n_steps)

        yield step


class Stop:
    """Ctrl-C and SIGTERM, handled only when no step is half done.

    A signal that comes within work is remembered, and ``KeyboardInterrupt`` is raised by `waiting` when the work
    next waits for rows, or by `after_leaves` when the next leaf is done. Outside of work it is raised at once. A
    second signal ends the process.
    """

    def __init__(self) -> None:
        self._stop_requested = self._working = False
        self._old_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
            self._old_handlers = {number: signal.signal(number, self._ask) for number in heard}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: Any) -> None:
        if not self._working:
            raise KeyboardInterrupt
        if self._stop_requested:
            sys.exit(1)  # not KeyboardInterrupt, on which a state would be written
        self._stop_requested = True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Interruptions are raised within this block; work follows it."""
        self._working = False
        if self._stop_requested:
            raise KeyboardInterrupt
        yield
        self._working = True

    def after_leaves(self, progress: Progress) -> Progress:
        """A progress callback that also raises an interruption after a leaf."""

        def report(n_passes: int, n_leaves: int, n_rows: int) -> None:
            progress(n_passes, n_leaves, n_rows)
            with self.waiting():
                pass

        return report

    def idle(self) -> None:
        """The work is done: from here on interruptions are raised at once."""
        self._working = False
