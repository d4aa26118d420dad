"""``tithe fit``: from files to a model with a certificate, in a folder."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from inspect import cleandoc, signature
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from tithe.cli.engines import engine_options, running_engine
from tithe.cli.fit_coreset import fit_coreset, is_coreset
from tithe.cli.fit_semi import run_either, semi_options
from tithe.cli.installed import installed_estimator, parameter_option
from tithe.cli.messages import Command, in_options
from tithe.cli.options import (
    EPS,
    Value,
    default_of,
    jobs_option,
    parameter_options,
    seed_option,
    size_option,
)
from tithe.cli.plan import Earlier, checkpoint_options, choose_size, earlier_run, plan_table
from tithe.cli.predict import write_predictions
from tithe.cli.progress import Stop
from tithe.cli.row_ids import names_of_rows
from tithe.cli.scored import ScoredRows
from tithe.cli.sources import SourceOptions, check_apart, check_folder, skipped_rows, source_options
from tithe.cli.text import print_result_tables, print_table, saying_how_to_go_on
from tithe.core.params import POLISH, Target
from tithe.core.progress import ProgressBar, bytes_text, peak_memory, seconds_text
from tithe.core.registry import names, resolve

_MAX_ROWS = 10  # of a table of results on the terminal


class LearnerGroup(click.Group):
    """One command for each registered learner, with the options that its class declares."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return names("learner")

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        run = _fit.callback
        assert run is not None
        if "." in name:
            return Command(
                name,
                params=[parameter_option, *_fit.params],
                callback=partial(run, name=name, cls=partial(installed_estimator, name)),
                help=f"{name}, an installed estimator, on a coreset.\n\n{cleandoc(_fit.help or '')}",
            )
        try:
            cls = resolve("learner", name)
        except ValueError as error:
            raise click.UsageError(f"{error} Or an installed estimator: sklearn.naive_bayes.GaussianNB.") from error
        summary = (cls.__doc__ or "").strip().partition("\n\n")[0]
        callback, more = partial(run, name=name, cls=cls), []
        if name in names("semi_supervised"):
            semi_cls = resolve("semi_supervised", name)
            callback, more = partial(run_either, run, name, cls, semi_cls), semi_options(cls, semi_cls)
        return Command(
            name,
            params=[*parameter_options(cls), *_polish_option(cls), *more, *_fit.params],
            callback=callback,
            help=f"{cleandoc(summary)}\n\n{cleandoc(_fit.help or '')}",
            short_help=summary,
        )


def _polish_option(cls: Any) -> list[click.Option]:
    """``--polish``, of a learner that has this parameter."""
    if "polish" not in signature(cls).parameters:
        return []
    return [
        click.Option(
            ["--polish"],
            type=Value(POLISH, name="ROUNDS|auto"),
            default=default_of(cls, "polish"),
            show_default=True,
            help="Passes that improve the solution.",
        )
    ]


@click.group(cls=LearnerGroup)
def fit() -> None:
    """Reduce files, fit a model on what is kept, and certify it in more passes over the files.

    NAME may also be the dotted name of an installed estimator whose fit takes sample_weight. The options of a learner:
    tithe fit NAME --help.

    \b
    Example:
      tithe fit kmeans data/ -k 20 -o result
      tithe fit logistic 'data/*.parquet' --target y -o result
      tithe fit odm 'data/*.parquet' --target y --lam 1000 -o result
      tithe fit ksvd signals.npy -k 50 --n-nonzero-coefs 3 -o result
      tithe fit odm rows.csv --target y --semi --links pairs.csv -o result
      tithe fit sklearn.ensemble.HistGradientBoostingClassifier data/ --target y --predict new.csv -o result
    """


@click.command()
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@size_option
@click.option(
    "--eps",
    type=EPS,
    help="Keep as many rows as a fit takes that costs at most this share more than one on all rows, in 95 % of draws, "
    "without passes that improve it. Measured on a sample.",
)
@click.option(
    "--holdout",
    type=click.FloatRange(0, 1, max_open=True),
    help="Share of the rows that are not learned from, to score the model on. Where no coreset is needed for so few "
    "rows, the model is fitted again afterwards, to all of them. [default: 0.05; 0 with --test]",
)
@click.option("--test", metavar="FILE", help="Score the model on the rows of this file, folder or pattern.")
@click.option("--predict", "new", metavar="FILE", help="Write predictions.parquet for the rows of this file, too.")
@click.option("--keep-rows", is_flag=True, help="Keep the coreset in model.skops too, to go on from it in Python.")
@source_options
@seed_option
@jobs_option
@engine_options
@checkpoint_options
def _fit(  # type: ignore[no-untyped-def]
    name, cls, where, how, output, size, eps, holdout, test, new, keep_rows, seed, jobs, engine, scheduler,
    checkpoint, checkpoint_every, resume, dry_run, **parameters,
):  # fmt: skip
    """SOURCE is a file, a folder, a pattern in quotes, a URL, or several of these; or one coreset that tithe build or
    tithe merge wrote. The folder OUTPUT gets coreset.parquet, model.skops, report.html and results.json.
    """
    output = str(Path(output))
    check_folder(output)
    check_apart(output, where)
    if size is not None:
        parameters["coreset_size"] = size
        if eps is not None:
            raise click.UsageError("Give --size or --eps, not both.")
    if new is not None:
        how.format_of([new])  # it must be there before the work begins
    model = cls(random_state=seed, **parameters)
    if is_coreset(where):
        options = {"output": output, "test": test, "keep_rows": keep_rows, "jobs": jobs}
        results, held_out = fit_coreset(model, name, where[0], how, **options)
        _predict(output, model, new, how, jobs)
        _say(output, model, results, held_out)
        return
    how.check_target(where, _target_of(model))
    from tithe.core.progress import Checkpoint
    from tithe.report.fit_report import write_fit
    from tithe.storage.checkpoint import remove_state

    checkpoint = checkpoint or f"{output}.checkpoint"
    with Stop() as stop, running_engine(engine, scheduler, jobs) as runs_on:
        source = how.open(where)
        scored = ScoredRows.of(source, holdout, test, how, seed, has_classes=_target_of(model) == "class")
        earlier = Earlier() if dry_run else earlier_run(checkpoint, resume)
        why = "asked for, or the default" if eps is None else _choose_size(model, scored, eps, seed, earlier)
        if dry_run:
            _print_plan(source, model, where, output, jobs, seed, scored, why)
            return
        second = "certifying" if model.polish == 0 else "polishing"
        with (
            saying_how_to_go_on(checkpoint),
            ProgressBar(source.n_rows, "reducing", second, done=earlier.n_rows) as reading,
        ):
            start = perf_counter()
            # a pipe is waited for, and can be stopped at any time
            progress = stop.after_leaves(reading) if source.replayable else reading
            state = Checkpoint(checkpoint, checkpoint_every, resume)
            model.set_params(engine=runs_on).fit(scored.training, checkpoint=state, progress=progress)
            reading.describe("scoring")
            held_out = scored.scores(model, runs_on, stop)
            if scored.can_be_learned(model, held_out):
                model.fit(source, progress=progress)
                held_out = replace(held_out, learned_later=True)
            model.set_params(engine="auto")  # the model must not depend on the threads of this machine, or a cluster
            seconds = perf_counter() - start
            stop.idle()
            reading.describe("writing")
            facts = _facts(model, name, where, how, scored, held_out, seconds)
            results = write_fit(output, model, facts, rows=keep_rows)
        remove_state(checkpoint)
    _predict(output, model, new, how, jobs)
    _say(output, model, results, held_out)


def _predict(output: str, model: Any, new: str | None, how: SourceOptions, jobs: int | None) -> None:
    """Write predictions for the rows of the file ``new``, if there is one."""
    if new is None:
        return
    plain = SourceOptions(how | {"target": None, "weight": None})
    file, proba = str(Path(output) / "predictions.parquet"), hasattr(model, "predict_proba")
    with Stop() as stop:
        print_table(file, ["", ""], write_predictions(file, model, [new], plain, stop, proba=proba, jobs=jobs))


def _choose_size(model: Any, scored: ScoredRows, eps: float, seed: int, earlier: Earlier) -> str:
    """Set the number of rows to keep; returns the reason for it."""
    goal, _ = model.planned(scored.training.n_rows, scored.training.n_features)
    size, why = choose_size(scored.training, goal, None, eps=eps, promise="fit", seed=seed, earlier=earlier)
    model.set_params(coreset_size=size)
    click.echo(f"{size:,} rows are kept, {why}.", err=True)
    return why


def _say(output: str, model: Any, results: dict[str, Any], held_out: Any) -> None:
    print_table(output, ["", ""], _about(results))
    click.echo(_said_of_certificate(model))
    click.echo(_said_of_scores(held_out))
    if results["not_saved"] is not None:
        click.echo(f"There is no model.skops: {results['not_saved']} Predictions: --predict FILE.")
    print_result_tables({**results, "columns": []}, most=_MAX_ROWS)  # columns are told by the page and tithe inspect
    for sentence in _said_of_texts(results["columns"]):
        click.echo(sentence)
    click.echo(f"Report: {Path(output) / 'report.html'}")


def _said_of_certificate(model: Any) -> str:
    from tithe.meta.estimator import CoresetEstimator

    if isinstance(model, CoresetEstimator):
        return "There is no certificate for estimators of other libraries."
    certificate = model.certificate_
    if certificate is None:
        return in_options("There is no certificate: the rows cannot be read again.")
    return in_options(f"{certificate.in_short} {certificate}")


def _said_of_scores(held_out: Any) -> str:
    if held_out is None:
        return "There are no scores: no rows were held out. See --holdout and --test."
    return f"{held_out} A certificate is about the rows learned from."


def _target_of(model: Any) -> Target:
    """The kind of y that the learner needs."""
    from sklearn.base import is_classifier
    from sklearn.utils import get_tags

    if not get_tags(model).target_tags.required:
        return None
    return "class" if is_classifier(model) else "number"


def _facts(
    model: Any, learner: str, where: Any, how: SourceOptions, scored: ScoredRows, held_out: Any, seconds: float
) -> Any:
    from tithe.report.fit_report import Fit
    from tithe.rows.urls import plain_name

    is_apart = held_out is not None and scored.held_out is not None and not held_out.learned_later
    n_held_out = held_out.n_rows if is_apart else 0
    n_skipped = skipped_rows(scored.source, model.coreset_, how, n_held_out=n_held_out)
    options = {name: value for name, value in how.items() if value is not None and name != "limits"}
    clusters = model.summary().get("clusters", [])
    shown = [cluster["typical_row"] for cluster in clusters if cluster["typical_row"] is not None]
    return Fit(
        learner=learner,
        files=[plain_name(name) for name in where],
        n_skipped=n_skipped,
        n_held_out=n_held_out,
        held_out=None if held_out is None else held_out.as_dict(),
        row_names=names_of_rows(scored.source, how["row_id"], shown),
        seconds=seconds,
        peak_bytes=peak_memory(),
        parameters={name: _as_plain(value) for name, value in {**model.get_params(), **options}.items()},
    )


def _as_plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str, list, tuple)) else repr(value)


def _said_of_texts(columns: list[dict[str, str]]) -> list[str]:
    """A sentence on columns of text, since names of people or things are learned from like any other text.

    >>> _said_of_texts([{"column": "name", "kind": "text, 3 gaps in 90 rows"}, {"column": "age", "kind": "number"}])
    ['Words of name were learned from. If they only name the rows, leave them out: --exclude name']
    """
    names = ",".join(column["column"] for column in columns if column["kind"].split(",")[0] == "text")
    if not names:
        return []
    option = f"--exclude {shlex.quote(names)}"
    return [f"Words of {names} were learned from. If they only name the rows, leave them out: {option}"]


def _about(results: dict[str, Any]) -> list[list[str]]:
    skipped = (
        [["rows left out (bad, or without a target)", f"{results['n_skipped']:,}"]] if results["n_skipped"] else []
    )
    return [
        ["rows learned from", f"{results['n_rows']:,}"],
        ["rows held out", f"{results['n_held_out']:,}"],
        *skipped,
        ["rows kept", f"{results['rows_kept']:,} ({results['rows_kept'] / results['n_rows']:.2%})"],
        ["effective sample size", f"{results['effective_sample_size']:,.0f}"],
        ["time", seconds_text(results["seconds"])],
        ["peak memory", bytes_text(results["peak_bytes"])],
    ]


def _print_plan(
    source: Any, model: Any, where: Any, output: str, jobs: int | None, seed: int, scored: ScoredRows, why: str
) -> None:
    goal, size = model.planned(source.n_rows, source.n_features)
    rounds = model.usual_rounds if model.polish == "auto" else model.polish
    plan = plan_table(
        source,
        goal,
        where,
        construction="auto",
        size=size,
        why=why,
        calibrate=True,
        seed=seed,
        jobs=jobs,
        passes=2 + rounds + (_target_of(model) == "class") + scored.n_passes,
    )
    print_table(f"{output}: not written, this is a dry run", ["", ""], plan)
