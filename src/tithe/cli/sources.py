"""How rows are read: the options of files and standard input, and the column that names the rows."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click

from tithe.cli.screen import say
from tithe.core.params import Target
from tithe.rows.uses import CATEGORIES, DATES, IMPUTATIONS, SCALES

FORMATS = ("auto", "parquet", "csv", "libsvm", "npy", "npz", "arrow")
STDIN = "-"
_READING_OPTIONS = (
    *("format", "target", "weight", "row_id", "scale", "impute", "categories", "dates", "strict"),
    *("bad_rows", "n_features", "delimiter", "header", "limits"),
)
_LISTS = ("columns", "exclude", "na")  # options that are several names
TABLE_FORMATS = ("parquet", "csv", "arrow")
TABLE_OPTIONS = ("columns", "exclude", "scale", "impute", "categories", "dates", "na", "strict")
_MOST_USES = 40  # columns whose use is shown


def skipped_rows(source: Any, coreset: Any, how: SourceOptions, *, n_held_out: int = 0) -> int:
    """The number of bad rows and rows without a target, which were left out; of a pipe, before the last good row."""
    if how["bad_rows"] != "skip" and how["target"] is None:
        return 0
    n_rows = source.count()
    return int((coreset.last_row + 1 if n_rows is None else n_rows) - coreset.n_seen - n_held_out)


class SourceOptions(dict[str, Any]):
    """The arguments of `tithe.open_dataset`, apart from the path."""

    def open(
        self,
        where: Sequence[str],
        *,
        live: bool = False,
        schema: Any = None,
        watch: Any = None,
        missing_target: str = "drop",
        quiet: bool = False,
    ) -> Any:
        """The source: files, or what comes through standard input, ``live`` as soon as it comes.

        ``schema`` says how the columns of a table become features, in place of the options about that, and ``watch``
        counts what is unlike the rows that it was learned from. ``missing_target`` says whether rows without a target
        are left out or kept. Unless ``quiet``, a table says what becomes of the columns.
        """
        import pyarrow as pa

        from tithe.rows.files import open_dataset

        # Arrow's own pools keep memory, and cause twice as many page faults (measured)
        pa.set_memory_pool(pa.system_memory_pool())
        if STDIN in where and len(where) > 1:
            raise click.UsageError("Standard input (-) stands alone: give files, or -.")
        if schema is None and self["weight"] is None:
            _refuse_coresets(where)
        options = {**self, "missing_target": missing_target}
        if schema is not None and self.format_of(where) in TABLE_FORMATS:
            options = {name: value for name, value in options.items() if name not in TABLE_OPTIONS}
            options |= {"schema": schema, "watch": watch}
        source = open_dataset(where[0] if len(where) == 1 else list(where), live=live, **options)
        if schema is None and source.schema is not None and not (quiet or source.schema.is_plain):
            _say_uses(source.schema.uses())
        return source

    def given(self) -> dict[str, Any]:
        """What was said about reading, for a report."""
        return {name: value for name, value in self.items() if value is not None and name != "limits"}

    @staticmethod
    def plain_names(where: Sequence[str]) -> list[str]:
        """The names of files, without the keys that a URL may hold."""
        from tithe.rows.stores import plain_name

        return [plain_name(name) for name in where]

    def format_of(self, where: Sequence[str]) -> str:
        """The format of the rows: what was said, or what the names of the files say."""
        if self["format"] != "auto":
            return str(self["format"])
        if STDIN in where:
            return "csv"
        from tithe.rows.paths import find_files

        return find_files(list(where), "auto")[1]

    def check_target(self, where: Sequence[str], target: Target) -> None:
        """Refuse rows without the y that is needed, before they are read: libsvm rows bring theirs along."""
        if target is None or self["target"] is not None or self.format_of(where) == "libsvm":
            return
        values = "classes" if target == "class" else "numbers"
        raise click.UsageError(f"This is learned from a column of {values}: name it with --target.")


def _say_uses(uses: Sequence[Any]) -> None:
    """What becomes of each column, on standard error; those that lose something are warned of as well."""
    from tithe.rows.uses import uses_as_text

    say(uses_as_text(uses[:_MOST_USES]), err=True)
    if len(uses) > _MOST_USES:
        say(f"... and {len(uses) - _MOST_USES:,} columns more.", err=True)


def refuse_given(options: Sequence[str], why: str) -> None:
    """Refuse options of the running command that were given."""
    for name in filter(was_given, options):
        raise click.UsageError(f"--{name.replace('_', '-')} cannot be given here: {why}.")


def refuse_other(what: str, held: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse options of the running command that were given and contradict what ``what`` was begun with."""
    for name in filter(was_given, held):
        if options[name] != held[name]:
            raise click.UsageError(f"{what} has {name} = {held[name]}, not {options[name]}.")


def was_given(option: str) -> bool:
    """Whether an option of the running command was given."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def _refuse_coresets(where: Sequence[str]) -> None:
    """Refuse coreset files as plain rows: their weights would be left out, or taken for a feature."""
    from tithe.storage.coresets import is_coreset_file

    for file in where:
        if is_coreset_file(file):
            raise ValueError(
                f"{file} is a coreset: its rows have weights. tithe merge reduces it further, and tithe fit learns "
                "from it. To read its columns as a table, name them: --weight sample_weight --exclude row_id."
            )


def _as_limits(context: Any, param: Any, texts: Sequence[str]) -> Any:
    """The limits that ``NAME=NUMBER`` describe; None where none is given."""
    if not texts:
        return None
    from tithe.rows.stores import Limits

    names = list(Limits.__dataclass_fields__)
    values: dict[str, int] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in names or not number.isdecimal():
            raise click.BadParameter(f"{text!r} is not NAME=NUMBER with a name among {', '.join(names)}.")
        values[name] = int(number)
    return Limits(**values)


limit_option = click.option(
    "--limit",
    "limits",
    multiple=True,
    callback=_as_limits,
    metavar="NAME=NUMBER",
    help="What a file may ask for: row_bytes, columns or unpacked_bytes.",
)


_table_options = (
    click.option("--na", metavar="A,B,C", help="Values that are gaps, besides ?, -, NA, n/a, null, nan."),
    click.option(
        "--dates",
        type=click.Choice(DATES),
        default="parts",
        help="Dates: days since 1970 and the time of year, week and day; only the days; left out; refused.",
    ),
    click.option(
        "--categories",
        type=click.Choice(CATEGORIES),
        default="auto",
        help="Text: a 0/1 feature for each frequent value, hashed into a few features, whichever fits, or refused.",
    ),
    click.option(
        "--impute", type=click.Choice(IMPUTATIONS), default="median", help="Gaps among numbers; none: a bad row."
    ),
    click.option(
        "--scale",
        type=click.Choice(SCALES),
        default="auto",
        help="Numbers: mean 0 and deviation 1, with or without long tails drawn in; by quartiles; or as they are.",
    ),
    click.option("--strict", is_flag=True, help="Stop if the encoding of a column loses something."),
    click.option("--exclude", metavar="A,B,C", help="Columns to leave out."),
    click.option("--columns", metavar="A,B,C", help="Columns to use, in this order. [default: all]"),
)


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how rows are read; the command gets them as one argument, ``how``."""

    @wraps(command)
    def gathered(**options: Any) -> Any:
        texts = {name: options.pop(name) for name in _LISTS}
        how = SourceOptions(
            {name: [part.strip() for part in text.split(",")] for name, text in texts.items() if text is not None},
            **{name: options.pop(name) for name in _READING_OPTIONS},
        )
        if how["target"] is not None and how["target"] == how["weight"]:
            raise click.UsageError("--target and --weight name the same column.")
        return command(how=how, **options)

    wrapped: Callable[..., Any] = gathered
    for option in (
        limit_option,
        click.option("--header/--no-header", default=None, help="Whether the first line of CSV names the columns."),
        click.option("--delimiter", metavar="CHARACTER", help="Of CSV; 'tab' is one. [default: what the rows have]"),
        click.option("--n-features", type=click.IntRange(min=1), help="Columns of libsvm rows. [default: those used]"),
        click.option(
            "--bad-rows", type=click.Choice(["error", "skip"]), default="error", help="Rows that cannot be read."
        ),
        *_table_options,
        click.option("--row-id", metavar="COLUMN", help="Column that names the rows; it is no feature."),
        click.option("--weight", metavar="COLUMN", help="Column of weights."),
        click.option("--target", metavar="COLUMN", help="Column to carry along as y."),
        click.option("--format", type=click.Choice(FORMATS), default="auto", help="auto goes by the names."),
    ):
        wrapped = option(wrapped)
    return wrapped


@contextmanager
def on_this_machine(path: str) -> Iterator[str]:
    """The path of a small file; of one that a URL names, that of a copy which is removed afterwards."""
    from tithe.rows.stores import access_to, local_path, parse_url, plain_name

    path = local_path(path)
    if parse_url(path) is None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, os.path.basename(plain_name(path)))
        with access_to(path).open(path)[0] as stream, open(copy, "wb") as file:
            shutil.copyfileobj(stream, file)
        yield copy


def check_classes(source: Any, target: str | None) -> None:
    """Refuse a target that is more likely a quantity, or a name of rows, than a class, by a look at some rows."""
    from tithe.core.labels import distinct_labels, seem_no_classes
    from tithe.core.seeding import rng_for

    y = source.sample(None, rng=rng_for(0, "task")).y
    if y is None:
        return
    labels, is_number = distinct_labels(y), y.dtype.kind in "iuf"
    if not seem_no_classes(labels, source.n_rows or len(y)):
        return
    values = "different numbers" if is_number else "different values"
    remedy = "For a quantity take a regression: tithe fit ridge, or --task numbers. " if is_number else ""
    raise click.UsageError(
        f"--target {target} has {len(labels):,} {values} in {len(y):,} rows, such as {labels.tolist()[0]!r}: each "
        f"would be a class. {remedy}To learn classes all the same: --many-classes."
    )


TABLE_ENDINGS = (".csv", ".parquet", ".pq")  # of the tables that are written


def check_coreset_name(output: str) -> None:
    """Refuse the name of a file in a format that is not written."""
    if Path(output).suffix.lower() not in ("", *TABLE_ENDINGS):
        raise click.UsageError(f"{output!r}: coresets are written as .parquet or .csv.")


force_option = click.option("--force", is_flag=True, help="Write into a folder that holds results already.")
_RESULTS = ("results.json", "report.html", "model.tithe")  # files by which a folder of results is known


def checked_output(output: str, where: Sequence[str], *, force: bool = True) -> str:
    """The name of the folder to write; refused, before anything is read, if it cannot be written or is read from.

    One with results is refused too, unless it is forced.
    """
    folder = Path(output)
    if output == STDIN:
        raise click.UsageError("-o - is for rows: this command writes a folder, so name one.")
    if folder.is_file():
        raise NotADirectoryError(f"{output!r} is a file; a folder is needed.")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder.parent)!r} to write {folder.name!r} into.")
    try:
        with tempfile.TemporaryFile(dir=folder if folder.is_dir() else folder.parent):
            pass
    except OSError as error:
        raise type(error)(f"{output!r} cannot be written: {error.strerror}.") from error
    held = [name for name in _RESULTS if (folder / name).exists()]
    if held and not force:
        raise click.UsageError(f"{output!r} holds results already ({held[0]}): --force writes over them.")
    check_apart(str(folder), where)
    return str(folder)


def check_apart(output: str, where: Sequence[str]) -> None:
    """Refuse an output that is part of the input, or would be in the next run."""
    from tithe.rows.stores import local_path

    target = Path(os.path.abspath(output))
    for name in map(local_path, where):
        path = Path(os.path.abspath(name))
        if path.is_dir():
            within = target == path or path in target.parents
        elif path.is_file():
            within = target.exists() and target.samefile(path)
        else:
            within = target.match(str(path))
        if within and name != STDIN:
            raise ValueError(f"{output!r} is the input itself, or would be read as such: choose another place for it.")


class RowIds:
    """The values of a column of files, handed out in the order of the rows. A row that could not be read has none.

    Parameters
    ----------
    source : Source
    name : str
    """

    def __init__(self, source: Any, name: str) -> None:
        if not source.replayable:
            raise click.UsageError("--row-id: rows that come only once are not read again. Save them to a file first.")
        self.name = name
        self._arrays = _all_positions(source, name)
        self._held: Any = None

    def take(self, n_rows: int) -> Any:
        """The values of the next rows, as an Arrow array."""
        import pyarrow as pa

        while self._held is None or len(self._held) < n_rows:
            following = next(self._arrays, None)
            if following is None:  # the last rows could not be read
                following = pa.nulls(n_rows, pa.string() if self._held is None else self._held.type)
            self._held = following if self._held is None else pa.concat_arrays([self._held, following])
        taken, self._held = self._held[:n_rows], self._held[n_rows:]
        return taken

    def added_to(self, table: Any) -> Any:
        """The table of the next rows with their ids beside the numbers of the rows, or in place of these."""
        if self.name == "row_id":
            return table.set_column(0, self.name, self.take(table.num_rows))
        if self.name in table.column_names:
            raise ValueError(f"There is a column {self.name!r} of results already: rename that of --row-id.")
        return table.add_column(1, self.name, self.take(table.num_rows))


def _all_positions(source: Any, name: str) -> Iterator[Any]:
    """The values of all rows, a null for each that could not be read."""
    import pyarrow as pa

    first = 0
    for ids, batch in source.numbered_batches([name]):
        if len(ids):
            values = batch.column(name)
            values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
            yield spread(values, ids - first, int(ids[-1]) + 1 - first)
            first = int(ids[-1]) + 1


def spread(values: Any, at: Any, n: int) -> Any:
    """Values, or rows of a table, at the places ``at`` among ``n``, and nulls elsewhere."""
    import numpy as np
    import pyarrow as pa

    places = np.full(n, -1)
    places[at] = np.arange(len(at))
    return values.take(pa.array(np.maximum(places, 0), mask=places < 0))


def names_of_rows(source: Any, name: str | None, row_ids: Sequence[int]) -> dict[int, str]:
    """The values of the column for some rows."""
    import numpy as np

    if name is None or not source.replayable:
        return {}
    wanted = np.array(sorted(row_ids), np.int64)
    names: dict[int, str] = {}
    for ids, batch in source.numbered_batches([name]):
        at = np.flatnonzero(np.isin(ids, wanted))
        names |= dict(zip(ids[at].tolist(), map(str, batch.column(name).take(at).to_pylist()), strict=True))
    return names
