"""Options and tables that commands share. Heavy imports stay inside functions."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click

FORMATS = ("auto", "parquet", "csv", "libsvm", "npy", "npz", "arrow")
STDIN = "-"
LABELLED = ("logistic", "margin")  # objectives of rows with classes
_READING = ("format", "target", "weight", "categories", "bad_rows", "n_features", "limits")


class Stopped(Exception):
    """Someone asked the command to stop; the message says how to go on."""


def objective_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--objective``, ``--clusters``, ``--penalty`` and what `margin_options` gives."""
    command = penalty_option(clusters_option(margin_options(command)))
    return click.option(
        "--objective",
        type=click.Choice(["kmeans", "kmedian", *LABELLED, "generic"]),
        default="kmeans",
        show_default=True,
        help="What the coreset must preserve.",
    )(command)


clusters_option = click.option(
    "-k", "--clusters", type=click.IntRange(min=1), default=8, show_default=True, help="Number of clusters."
)
penalty_option = click.option(
    "-C",
    "--penalty",
    "inverse_penalty",
    type=click.FloatRange(min=0.0, min_open=True),
    default=1.0,
    show_default=True,
    help="Logistic: inverse strength of the penalty.",
)
classes_option = click.option(
    "--classes", metavar="A,B,...", help="Logistic, margin: all classes, where they cannot be looked up beforehand."
)


def margin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--lam``, ``--mu`` and ``--theta``."""
    for option in (
        click.option(
            "--theta",
            type=click.FloatRange(0.0, 1.0, max_open=True),
            default=0.8,
            show_default=True,
            help="Margin: half the width of the band in which margins cost nothing.",
        ),
        click.option(
            "--mu",
            type=click.FloatRange(0.0, 1.0),
            default=0.05,
            show_default=True,
            help="Margin: how much margins above the band count, beside those below.",
        ),
        click.option(
            "--lam",
            type=click.FloatRange(min=0.0, min_open=True),
            default=1000.0,
            show_default=True,
            help="Margin: how much margins count beside the penalty.",
        ),
    ):
        command = option(command)
    return command


seed_option = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
jobs_option = click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Threads; each holds a leaf of the data. [default: all cores]"
)
eps_option = click.option(
    "--eps",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="The error for which a size is chosen if none is given.",
)


def make_objective(
    name: str, *, clusters: int = 8, inverse_penalty: float = 1.0, classes: str | None = None, **margin: float
) -> Any:
    """The objective that the options describe; ``margin``: lam, mu and theta."""
    from tithe.core.registry import resolve

    labels = None if classes is None else _labels(classes)
    options: dict[str, Any] = {
        "generic": {},
        "logistic": {"C": inverse_penalty, "classes": labels},
        "margin": {**margin, "classes": labels},
    }.get(name, {"n_clusters": clusters})
    return resolve("objective", name)(**options)


def _labels(classes: str) -> tuple[int | str, ...]:
    """Labels as they stand in a column: whole numbers, if all of them are."""
    named = [name.strip() for name in classes.split(",")]
    return tuple(map(int, named)) if all(name.lstrip("-").isdigit() for name in named) else tuple(named)


def make_engine(jobs: int | None) -> Any:
    """Threads, as many as were asked for."""
    from tithe.engines.threads import ThreadEngine

    return ThreadEngine(jobs)


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


# -- where rows come from ----------------------------------------------------------------------


def skipped_rows(source: Any, coreset: Any) -> int:
    """Bad rows that were left out: of text files they are counted now, of a pipe those before the last good one."""
    n_rows = source.n_rows
    if n_rows is None:
        n_rows = source.count() if callable(getattr(source, "count", None)) else coreset.last_row + 1
    return int(n_rows - coreset.n_seen)


class SourceOptions(dict[str, Any]):
    """What `tithe.open_source` is asked for, apart from the place."""

    def open(self, where: Sequence[str], *, live: bool = False) -> Any:
        """The source: files, or what comes through standard input, ``live`` as soon as it comes."""
        import pyarrow as pa

        from tithe.sources.files import open_source

        # a command has the process for itself: half the page faults of Arrow's own pools, and no hoard (measured)
        pa.set_memory_pool(pa.system_memory_pool())
        if STDIN in where and len(where) > 1:
            raise click.UsageError("Standard input (-) stands alone: give files, or -.")
        return open_source(where[0] if len(where) == 1 else list(where), live=live, **self)

    def check_labels(self, where: Sequence[str]) -> None:
        """Refuse rows without classes, before they are read: libsvm rows bring theirs along."""
        if self["target"] is not None or self["format"] == "libsvm":
            return
        if STDIN not in where and self["format"] == "auto":
            from tithe.sources.paths import find_files

            if find_files(list(where), "auto")[1] == "libsvm":
                return
        raise click.UsageError("Classes are learned from a column of classes: name it with --target.")


def _as_limits(context: Any, param: Any, given: Sequence[str]) -> Any:
    """The limits that ``NAME=NUMBER`` describe; None where none is given."""
    if not given:
        return None
    from tithe.sources.limits import Limits

    names = list(Limits.__dataclass_fields__)
    values: dict[str, int] = {}
    for one in given:
        name, _, number = one.partition("=")
        if name not in names or not number.isdecimal():
            raise click.BadParameter(f"{one!r} is not NAME=NUMBER with a name among {', '.join(names)}.")
        values[name] = int(number)
    return Limits(**values)


limit_option = click.option(
    "--limit",
    "limits",
    multiple=True,
    callback=_as_limits,
    metavar="NAME=NUMBER",
    help="Raise a limit on what a file may ask for: row_bytes, columns or unpacked_bytes.",
)


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how rows are read; the command gets them as one argument, ``how``."""

    @wraps(command)
    def gathered(**options: Any) -> Any:
        columns = options.pop("columns")
        how = SourceOptions(
            columns=None if columns is None else [name.strip() for name in columns.split(",")],
            **{name: options.pop(name) for name in _READING},
        )
        if how["target"] is not None and how["target"] == how["weight"]:
            raise click.UsageError("--target and --weight name the same column.")
        return command(how=how, **options)

    found: Callable[..., Any] = gathered
    for option in (
        limit_option,
        click.option("--n-features", type=click.IntRange(min=1), help="Columns of libsvm rows. [default: those used]"),
        click.option(
            "--bad-rows",
            type=click.Choice(["error", "skip"]),
            default="error",
            show_default=True,
            help="Rows that miss a value, have one that is not finite, or cannot be parsed.",
        ),
        click.option(
            "--categories",
            type=click.Choice(["error", "onehot", "hash"]),
            default="error",
            show_default=True,
            help="What becomes of text: refused, a column a value, or hashed into a few columns.",
        ),
        click.option("--columns", metavar="A,B,C", help="Columns to use, in this order. [default: all]"),
        click.option("--weight", metavar="COLUMN", help="Column of weights."),
        click.option("--target", metavar="COLUMN", help="Column to carry along as y."),
        click.option(
            "--format", type=click.Choice(FORMATS), default="auto", show_default=True, help="auto goes by the names."
        ),
    ):
        found = option(found)
    return found


def check_apart(output: str, where: Sequence[str]) -> None:
    """Refuse an output that is among its own input, or would be the next time."""
    target = Path(os.path.abspath(output))
    for one in where:
        place = Path(os.path.abspath(one))
        if place.is_dir():
            within = target == place or place in target.parents
        elif place.is_file():
            within = target.exists() and target.samefile(place)
        else:
            within = target.match(str(place))
        if within and one != STDIN:
            raise ValueError(f"{output!r} is the input itself, or would be read as such: choose another place for it.")


# -- what was asked for, and how to go on ------------------------------------------------------


def command_line(*more: str) -> str:
    """The command as it was given, with some options added that are not there yet."""
    given = list(click.get_current_context().find_root().obj or ())
    return shlex.join(["tithe", *given, *(option for option in more if option not in given)])


@contextmanager
def saying_how_to_go_on(checkpoint: str) -> Iterator[None]:
    """Turn an interruption into a message that says what to do next; the same after a disk that was full."""
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


# -- tables ------------------------------------------------------------------------------------


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


def bytes_text(n_bytes: float) -> str:
    """A number of bytes for a person."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:,.0f} {unit}" if unit == "bytes" else f"{n_bytes:,.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:,.1f} TB"


def seconds_text(seconds: float) -> str:
    """A time for a person."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
