"""The command ``tithe``, and what its commands share: errors in the words of options, progress, signals."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TextIO

import click

from tithe.cli.screen import print_table, process_begun, say, screen, screen_options, time_waited, wrapped
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

    \b
    Names are completed by bash after this line (zsh and fish: zsh_source, fish_source):
      eval "$(_TITHE_COMPLETE=bash_source tithe)"
    """


@dataclass(frozen=True)
class Invocation:
    """The arguments of a command, and when it was given."""

    arguments: list[str]
    begun: float


INTERRUPTED = 130  # what a shell expects of a command that Ctrl-C has stopped


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: 0 done, 2 the caller's mistake, 130 stopped, 1 anything else."""
    given = sys.argv[1:] if arguments is None else arguments
    begun = process_begun() if arguments is None else time.time()
    try:
        cli.main(args=given, prog_name="tithe", standalone_mode=False, obj=Invocation(given, begun))
    except click.ClickException as error:
        _fail(
            error.format_message(),
            2,
            error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "",
        )
    except (click.Abort, KeyboardInterrupt):
        _fail("Stopped.", INTERRUPTED)
    except Stopped as stopped:
        _fail(str(stopped), INTERRUPTED)
    except _CALLERS_MISTAKES as error:
        _fail(str(error), 2)
    except OSError as error:
        _fail(str(error), 1)


def _fail(message: str, code: int, command: str = "") -> NoReturn:
    click.echo(wrapped(f"tithe: {message}"), err=True)
    if command:
        click.echo(f"Options: {command} --help", err=True)
    sys.exit(code)


# -- what commands say, and how they stop -------------------------------------------------------

_PYTHON_NAMES = {"size": "coreset_size", "seed": "random_state", "jobs": "n_jobs"}  # where an option has another name
_VALUE = r"(?:'([^']*)'|\"([^\"]*)\"|\w+\(([^()]*)\)|(\[[^\]]*\]|\([^()]*\)|\.\.\.)|([\w.+-]*\w))?"
_WRITTEN = ("output", "checkpoint", "keep_leaves")  # options that name a file or folder to write
_BARE = r"(?![\w='(.]|\.\w)"


class Command(click.Command):
    """A command whose errors and warnings name its options, and whose help has them in groups."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *screen_options()]

    def invoke(self, ctx: click.Context) -> Any:
        _refuse_urls(ctx)
        now = screen()
        with warnings.catch_warnings(), now.speaking(lambda errors: _warn_in_options(ctx, errors)):
            try:
                return super().invoke(ctx)
            except Exception as error:
                if now.verbose:
                    traceback.print_exc()
                if isinstance(error, ValueError):
                    raise ValueError(in_options(str(error), ctx)) from error
                raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in groups, those of the command itself first."""
        records: dict[str, list[tuple[str, str]]] = {"Options": [], **{name: [] for name in _GROUPS}}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                group = next((name for name, members in _GROUPS.items() if param.name in members), "Options")
                records[group].append(record)
        for group, listed in records.items():
            if listed:
                with formatter.section(group):
                    formatter.write_dl(listed)


_GROUPS: dict[str, tuple[str, ...]] = {
    "Data": (
        *("format", "header", "delimiter", "n_features", "bad_rows", "limits", "test", "holdout", "new", "data"),
        *("schema_from", "pilot_from"),
    ),
    "Columns": (
        *("target", "weight", "row_id", "columns", "exclude", "scale", "impute", "categories", "dates", "na", "strict"),
        *("many_classes", "classes", "class_weight"),
    ),
    "Size": (
        *("size", "eps", "delta", "promise", "sizes", "construction", "construction_parameters", "constructions"),
        *("calibrate", "theorems", "features", "rows", "n_kept", "total_sensitivity", "reference_factor"),
    ),
    "Engine": (
        *("seed", "jobs", "engine", "scheduler", "checkpoint", "checkpoint_every", "resume", "dry_run", "memory"),
        "full_seconds",
    ),
    "Output": ("output", "force", "keep_rows", "check", "proba", "as_json", "quiet", "verbose", "help"),
}


def _refuse_urls(ctx: click.Context) -> None:
    """Refuse to write to a URL, before any work is done."""
    for param in ctx.command.get_params(ctx):
        value = ctx.params.get(str(param.name))
        if param.name in _WRITTEN and isinstance(value, str) and "://" in value:
            raise click.UsageError(
                f"{_flag(param.opts)}: {value!r} is a URL. Results are written to this machine: name a file or folder."
            )


def _warn_in_options(ctx: click.Context, errors: TextIO) -> None:
    """Print warnings as one line each, without the place in the code."""

    def show(message: Warning | str, *details: Any, **more: Any) -> None:
        click.echo(wrapped(f"tithe: {in_options(str(message), ctx)}"), file=errors)

    warnings.showwarning = show


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
    root = click.get_current_context().find_root().obj
    arguments = [] if root is None else root.arguments
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
            say(f"The state is in {checkpoint}. Go on with: {command_line('--resume')}", err=True)
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

    say(f"By the gradients of a pilot, {worth_in_words(worth)}.")


def print_run(output: str, run: Run, numbers: dict[str, Any]) -> None:
    """What a run has written into a folder; ``numbers`` are those of ``results.json``."""
    facts = {**dict(run.all_facts()), "time": time_waited(run.seconds, "learning and scoring")}
    now = screen()
    if now.as_json:
        now.found |= {"output": output, **numbers}
        return
    print_table(output, ["", ""], [list(fact) for fact in facts.items()])
    for in_short, text in run.sentences:
        say(in_options(f"{in_short} {text}".strip()))
    _print_tables(table for table in run.tables if table.on_terminal)
    # what was done to each column is on the page, and in tithe inspect
    print_result_tables({**run.shown(numbers), "columns": []}, most=_MAX_ROWS)
    say(f"Report: {Path(output) / 'report.html'}")


def print_result_tables(results: Mapping[str, Any], *, most: int) -> None:
    """The coefficients or clusters among the results, at most so many of each."""
    from tithe.report.tables import result_tables

    _print_tables(result_tables(results, most=most))


def _print_tables(tables: Iterable[ResultTable]) -> None:
    for table in tables:
        if len(table.columns) > _MAX_COLUMNS:
            say(f"{table.title} of {len(table.columns) - 1} classes: see the report.")
            continue
        print_table(table.title, table.columns, table.rows, is_text=table.is_text)
        if table.note:
            say(table.note)


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
            sys.exit(INTERRUPTED)  # not KeyboardInterrupt, on which a state would be written
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
