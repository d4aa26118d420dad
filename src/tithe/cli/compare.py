"""``tithe compare``: few rows or all, side by side; ``tithe demo``: the same on generated data."""

from __future__ import annotations

from typing import Any

import click

from tithe.cli.main import Command, steps
from tithe.cli.options import (
    POSITIVE,
    SHARE,
    ObjectiveCommand,
    Value,
    class_weight_option,
    construction_parameters_option,
    engine_options,
    jobs_option,
    made_constructions,
    running_engine,
    seed_option,
)
from tithe.cli.screen import print_table, say
from tithe.cli.sources import SourceOptions, check_classes, checked_output, force_option, source_options, was_given
from tithe.core.params import CORESET_SIZE, POLISH, Target
from tithe.core.registry import names, resolve

_POLISH = Value(POLISH, name="ROUNDS|auto")


def _as_sizes(context: Any, param: Any, text: str | None) -> list[int | float] | None:
    """Rows, fractions or percentages, separated by commas."""
    if text is None:
        return None
    sizes: list[int | float] = []
    for part in (part.strip() for part in text.split(",")):
        number = part.removesuffix("%")
        try:
            size = int(number) if part == number and number.isdecimal() else float(number)
        except ValueError:
            raise click.BadParameter(f"{part!r} is no number of rows, fraction or percentage.") from None
        size = size / 100.0 if part != number else size
        if not CORESET_SIZE.accepts(size):
            raise click.BadParameter(f"{part!r} is not {CORESET_SIZE}, or a percentage.")
        sizes.append(size)
    return sizes


def _as_constructions(context: Any, param: Any, text: str) -> list[str]:
    known = ["auto", *names("construction")]
    asked = [part.strip() for part in text.split(",")]
    for name in asked:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}.")
    return asked


@click.command(cls=ObjectiveCommand, params=[class_weight_option])
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@force_option
@click.option(
    "--sizes",
    metavar="A,B,...",
    callback=_as_sizes,
    help="Rows to keep: numbers, fractions or percentages. [default: 0.1%,1%,5%]",
)
@click.option(
    "--constructions",
    metavar="A,B,...",
    default="auto,uniform",
    callback=_as_constructions,
    help="How rows are chosen. A plain random sample is always compared as well.",
)
@construction_parameters_option
@click.option(
    "--learner",
    metavar="NAME",
    help="In place of --objective: logistic, hist-gradient-boosting, lightgbm, random-forest, ..., or the dotted name "
    "of an installed estimator.",
)
@click.option("--many-classes", is_flag=True, help="Take a target of hundreds of values or of many numbers as classes.")
@click.option("--calibrate/--no-calibrate", default=True, help="Adjust weights to exact totals.")
@click.option("--polish", type=_POLISH, default=0, help="Passes that improve each solution, on lines of their own.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, help="Draws of each kind.")
@click.option("--holdout", type=SHARE, default=0.1, help="Share of the rows that nothing is learned from, to judge by.")
@click.option("--tol", type=POSITIVE, default=0.01, help="Excess loss that is harmless, as a share of the loss.")
@click.option("--full-seconds", type=POSITIVE, default=60.0, help="Time for fits on all rows, else on a large sample.")
@click.option(
    "--memory", metavar="GB", type=POSITIVE, help="Rows that take more stay in their files. [default: a quarter]"
)
@source_options
@seed_option
@jobs_option
@engine_options
def compare(  # type: ignore[no-untyped-def]
    where, how, output, force, sizes, objective, learner, many_classes, class_weight, constructions,
    construction_parameters, calibrate, polish, repeats, holdout, tol, full_seconds, memory, seed, jobs, engine,
    scheduler, **parameters,
):  # fmt: skip
    """Fit on coresets, on random samples and on all rows, and recommend one of them.

    SOURCE is a file, a folder, a pattern in quotes, a URL, or several of these. With --target and without --objective
    it is logistic regression for classes, and ridge regression for numbers. The folder OUTPUT gets report.html,
    results.json and table.csv. Ctrl-C ends it with what it has by then.

    \b
    Example:
      tithe compare rows.csv -k 20 -o comparison
      tithe compare data/ --target y --sizes 0.1%,1%,5% -o comparison
      tithe compare data/ --target y --learner hist-gradient-boosting -o comparison
      tithe compare rows.parquet --objective ridge --target price --constructions auto,leverage -o comparison
    """
    output = checked_output(output, where, force=force)
    constructions = made_constructions(constructions, construction_parameters)
    goal, target = _goal(how, objective, learner, parameters)
    how.check_target(where, target)
    with running_engine(engine, scheduler, jobs) as runs_on:
        from tithe.report.compare import compare as run_comparison

        source = how.open(where)
        model = None
        if learner is not None and goal is None:
            model = _estimator(learner, source, seed)
        if not many_classes and _is_classification(goal, model, source):
            check_classes(source, how["target"])
        with steps() as step:
            result = run_comparison(
                source,
                objective=goal,
                learner=model,
                sizes=sizes,
                constructions=constructions,
                calibrate=calibrate,
                polish=polish,
                n_repeats=repeats,
                class_weight=class_weight,
                many_classes=True,  # they were checked above, in the words of options
                holdout=holdout,
                tol=tol,
                full_seconds=full_seconds,
                memory=None if memory is None else max(1, int(1e9 * memory)),
                engine=runs_on,
                random_state=seed,
                progress=step,
                announce=lambda said: say(said, err=True),
            )
        page = result.write(output)
    title = f"{result.objective} on {result.n_rows:,} rows, {result.n_held_out:,} held out"
    print_table(title, *result.text_rows())
    for note in result.notes:
        say(note)
    say(str(result.recommendation))
    say(f"Report: {page}")


def _goal(how: SourceOptions, objective: str, learner: str | None, parameters: dict[str, Any]) -> tuple[Any, Target]:
    """The objective, None where the target or a learner decides; and the kind of target that it needs."""
    asked = was_given("objective")
    if learner is not None and asked:
        raise click.UsageError("Give --objective or --learner, not both.")
    if learner in names("objective"):
        goal = resolve("objective", learner)()
        return goal, goal.target
    if learner is not None:
        return None, "class"
    if asked or how["target"] is None:
        goal = resolve("objective", objective)(**parameters)
        return goal, goal.target
    for name in filter(was_given, parameters):
        raise click.UsageError(f"--{name.replace('_', '-')} is of --objective {objective}: name that, too.")
    return None, None


def _estimator(name: str, source: Any, seed: int) -> Any:
    """A new estimator: of an ensemble a classifier or a regressor, according to the target."""
    from tithe.cli.fit import installed_estimator, named_ensemble

    dotted, parameters = named_ensemble(name, "classes" if _target_holds_classes(source) else "numbers")
    return installed_estimator(dotted, estimator_parameters=parameters, random_state=seed).estimator


def _target_holds_classes(source: Any) -> bool:
    from tithe.core.labels import holds_classes
    from tithe.core.seeding import rng_for

    y = source.sample(None, rng=rng_for(0, "task")).y
    return y is not None and holds_classes(y)


def _is_classification(goal: Any, model: Any, source: Any) -> bool:
    from sklearn.base import is_classifier

    if model is not None:
        return bool(is_classifier(model))
    return _target_holds_classes(source) if goal is None else goal.target == "class"


@click.command(cls=Command)
@click.option("-o", "--output", type=click.Path(file_okay=False), default="demo-report")
@click.option("--rows", type=click.IntRange(min=10_000), default=1_000_000, help="Payments to generate.")
@click.option("-m", "--size", type=click.IntRange(min=100), default=1000, help="Payments to keep.")
def demo(output: str, rows: int, size: int) -> None:
    """Look for rare groups among a million generated payments in 1,000 of them; write a report folder.

    A coreset, random samples of the same size and fits on all rows are compared by what they find and by their time.

    \b
    Example:
      tithe demo -o report
      tithe demo --rows 5000000 -m 2000 -o report
    """
    if size >= rows:
        raise click.UsageError(f"--size {size} keeps all of the {rows:,} payments: ask for fewer.")
    with steps() as step:
        from tithe.report.demo import COLUMNS, run_demo
        from tithe.report.tables import text_rows

        results, page = run_demo(output, n_rows=rows, coreset_size=size, progress=step)
    title = f"Rare groups in {rows:,} payments, medians of {results.methods[0]['n_fits']} draws"
    print_table(title, *text_rows(COLUMNS, results.methods))
    for sentence in (*results.sentences(), results.in_short):
        say(sentence)
    say(f"What was done, the picture, and what to do next: {page}")
