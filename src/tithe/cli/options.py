"""Options that commands share, those of objectives and learners among them, and where passes over the rows run."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

import click

from tithe.cli.main import Command
from tithe.core.params import CORESET_SIZE, Boolean, Constraint, OneOf, Option
from tithe.core.registry import names, resolve

_OBJECTIVE = "kmeans"  # unless another is named


if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only since click 8.2


class Value(ParamType):
    """A number or a word that a constraint accepts; ``keep_integers`` numbers stay integers."""

    def __init__(self, constraint: Constraint, *, name: str = "NUMBER", keep_integers: bool = True) -> None:
        self.name, self._constraint, self._keep_integers = name, constraint, keep_integers

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        number = value
        for kind in (int, float) if self._keep_integers else (float,):
            try:
                number = kind(value)
                break
            except ValueError:
                continue
        if not self._constraint.accepts(number):
            self.fail(f"{value!r} is not {self._constraint}.", param, ctx)
        return number


SIZE = Value(CORESET_SIZE, name="ROWS|FRACTION")
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
POSITIVE = click.FloatRange(0, min_open=True)
_SIZE_HELP = "Rows to keep, or a fraction of them. [default: the learner's; of a build, chosen for --eps]"
size_option = click.option("-m", "--size", type=SIZE, help=_SIZE_HELP)
seed_option = click.option("--seed", type=click.IntRange(min=0), default=0)
jobs_option = click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Threads; each holds a leaf of the data. [default: all cores]"
)
promise_option = click.option(
    "--promise",
    type=click.Choice(["fit", "costs"]),
    default="fit",
    help="What --eps is about: a fit on the coreset, or the cost of any solution, which takes far more rows.",
)


def _as_labels(context: Any, param: Any, text: str | None) -> tuple[int | str, ...] | None:
    """Labels as they stand in a column: whole numbers, if all of them are."""
    if text is None:
        return None
    labels = [name.strip() for name in text.split(",")]
    return tuple(map(int, labels)) if all(name.lstrip("-").isdigit() for name in labels) else tuple(labels)


def as_parameters(context: Any, param: Any, texts: Any) -> dict[Any, Any]:
    """``NAME=VALUE`` as parameters; a value that is no Python literal is a text."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.")
        values[name] = as_literal(value)
    return values


def as_literal(text: str) -> Any:
    """The Python literal; else the text itself."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _as_class_weight(context: Any, param: Any, text: str | None) -> Any:
    if text is None or text == "balanced":
        return text
    parts = as_parameters(context, param, [part.strip() for part in text.split(",")])
    return {as_literal(label): weight for label, weight in parts.items()}


class_weight_option = click.Option(
    ["--class-weight"],
    metavar="balanced|A=NUMBER,...",
    callback=_as_class_weight,
    help="Weights of classes: of LABEL=NUMBER those not named have 1. Chances are then no longer those of the rows.",
)


def parameter_options(cls: Any) -> list[click.Option]:
    """The options that an objective or a learner declares."""
    return [as_click(cls, option) for option in cls.options]


def as_click(cls: Any, option: Option) -> click.Option:
    """The option with the default of the constructor of the class."""
    flags = option.flags or (f"--{option.parameter.replace('_', '-')}",)
    default = signature(cls).parameters[option.parameter].default
    if isinstance(option.constraint, Boolean):
        flags = (f"{flags[0]}/--no-{flags[0].removeprefix('--')}",)
        return click.Option([*flags, option.parameter], default=default, help=option.help)
    words = option.constraint.values if isinstance(option.constraint, OneOf) else ("NUMBER",)
    name = "|".join(word for word in words if word is not None)
    kind = Value(option.constraint, name=name, keep_integers=not isinstance(default, float))
    return click.Option([*flags, option.parameter], type=kind, default=default, help=option.help)


class ObjectiveCommand(Command):
    """A command with ``--objective``, and with the options that the objective named there declares."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._objective = click.Option(
            ["--objective"],
            type=click.Choice(names("objective")),
            default=_OBJECTIVE,
            help="What the coreset must preserve. Each has options of its own: --objective NAME --help.",
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for i, arg in enumerate(args):
            name = args[i + 1] if arg == "--objective" and i + 1 < len(args) else arg.partition("--objective=")[2]
            if name in names("objective"):
                ctx.meta[__name__] = name
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        cls = resolve("objective", ctx.meta.get(__name__, _OBJECTIVE))
        options = [self._objective, *parameter_options(cls)]
        if cls.target == "class":
            text = "All classes, where they cannot be looked up beforehand."
            options.append(click.Option(["--classes"], metavar="A,B,...", callback=_as_labels, help=text))
        return [*options, *super().get_params(ctx)]


def construction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--construction`` and ``--calibrate``."""
    command = click.option("--calibrate/--no-calibrate", default=True, help="Adjust weights to exact totals.")(command)
    known = click.Choice(["auto", *names("construction")])
    return click.option("--construction", type=known, default="auto", help="How rows are chosen.")(command)


construction_parameters_option = click.option(
    "--construction-option",
    "construction_parameters",
    metavar="NAME=VALUE",
    multiple=True,
    callback=as_parameters,
    help="A parameter of the construction, as in Python: eps=0.1 of rings, for example. May be given several times.",
)


def made_constructions(asked: Sequence[str], parameters: Mapping[str, Any]) -> list[Any]:
    """The names, with an instance in place of each whose construction has some of the parameters.

    A parameter that none of them has is a mistake.
    """
    known = {name: _parameters_of(name) for name in asked if name != "auto" and parameters}
    for parameter in parameters:
        if not any(parameter in own for own in known.values()):
            listed = [f"{name} has {', '.join(own) or 'none'}" for name, own in known.items()]
            have = "; ".join(listed) or "name the construction first"
            raise click.UsageError(f"--construction-option {parameter}: there is no such parameter ({have}).")
    return [_made(name, {key: parameters[key] for key in parameters if key in known.get(name, ())}) for name in asked]


def _parameters_of(name: str) -> list[str]:
    """The parameters of a construction; its other fields hold what it learned from rows."""
    return [field.name for field in fields(resolve("construction", name)) if field.init and field.compare]


def _made(name: str, parameters: dict[str, Any]) -> Any:
    if not parameters:
        return name
    try:
        return resolve("construction", name)(**parameters)
    except (TypeError, ValueError) as error:  # which may name a parameter that is an option of the objective as well
        raise click.UsageError(f"--construction-option of {name}: {error}") from error


def with_construction_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """`construction_options` and ``--construction-option``; the command gets the construction with its parameters."""

    @wraps(command)
    def gathered(**options: Any) -> Any:
        parameters = options.pop("construction_parameters", {})
        if "construction" in options:  # not every learner has one
            (options["construction"],) = made_constructions([options["construction"]], parameters)
        return command(**options)

    return construction_options(construction_parameters_option(gathered))


_CONNECT_SECONDS = 10


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--engine`` and ``--scheduler``, for Spark also ``--master``."""
    command = click.option(
        "--scheduler",
        "--master",
        "scheduler",
        metavar="ADDRESS",
        help="tcp://host:port of Dask; local[2], spark://host:port, yarn or sc://host:port of Spark. "
        "[default: a cluster on this machine, for this run]",
    )(command)
    return click.option(
        "--engine",
        type=click.Choice(["threads", "dask", "spark"]),
        default="threads",
        help="Where rows are read: in threads, or by the workers of a Dask or Spark cluster, which must see the files.",
    )(command)


@contextmanager
def running_engine(engine: str, scheduler: str | None, jobs: int | None) -> Iterator[Any]:
    """The engine that was asked for. A cluster that it needs is started, and ended with the block."""
    if engine == "threads":
        if scheduler is not None:
            raise click.UsageError("--scheduler and --master are for --engine dask and --engine spark.")
        from tithe.engines.threads import ThreadEngine

        yield ThreadEngine(jobs)
        return
    if engine == "spark":
        with _spark_session(scheduler, jobs) as session:
            from tithe.engines import SparkEngine

            yield SparkEngine(session)
        return
    try:
        from tithe.engines.dask import DaskEngine
    except ImportError as error:
        raise click.UsageError(f"--engine dask: {error}") from error
    with ExitStack() as stack:
        yield DaskEngine(_connected(stack, scheduler, jobs))


@contextmanager
def _spark_session(master: str | None, jobs: int | None) -> Iterator[Any]:
    """A session of Spark at a master, or on this machine with a process for each core; it ends with the block."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise click.UsageError("--engine spark needs Spark: pip install 'tithe[spark]', and Java 17.") from error
    from tithe.core.parallel import available_threads

    if master is not None and jobs is not None:
        raise click.UsageError("--jobs is for this machine: the executors of a cluster have their own cores.")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tithe")
    if master is not None and master.startswith("sc://"):
        session = builder.remote(master).getOrCreate()
    else:
        local = f"local[{jobs or available_threads()}]"
        quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        session = builder.master(master or local).config(map=quiet).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _connected(stack: ExitStack, scheduler: str | None, jobs: int | None) -> Any:
    """A client of the cluster at an address, or of one on this machine with a process for each core."""
    from distributed import Client, LocalCluster

    from tithe.core.parallel import available_threads

    if scheduler is None:
        n_workers = jobs or available_threads()
        cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR")
        return stack.enter_context(Client(stack.enter_context(cluster)))
    if jobs is not None:
        raise click.UsageError("--jobs is for this machine: the workers of a cluster have their own threads.")
    try:
        return stack.enter_context(Client(scheduler, timeout=_CONNECT_SECONDS))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"There is no Dask scheduler at {scheduler!r}: {error}") from error
