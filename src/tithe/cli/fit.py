"""``tithe fit``: from files, or a coreset file, to a model with a certificate, in a folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from inspect import cleandoc, signature
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import click

from tithe.cli.main import Command, RegisteredGroup, Stop, print_run, quiet_about_names, resume_hint
from tithe.cli.options import (
    SHARE,
    as_click,
    as_parameters,
    class_weight_option,
    engine_options,
    jobs_option,
    parameter_options,
    running_engine,
    seed_option,
    size_option,
    with_construction_parameters,
)
from tithe.cli.predict import write_predictions
from tithe.cli.screen import print_table, say
from tithe.cli.size import checkpoint_options, choose_size, earlier_run, print_plan
from tithe.cli.sources import (
    STDIN,
    TABLE_OPTIONS,
    SourceOptions,
    check_classes,
    checked_output,
    force_option,
    names_of_rows,
    refuse_given,
    skipped_rows,
    source_options,
)
from tithe.core.params import MOST_CLASSES, POLISH, Option, Target, resolve_size
from tithe.core.progress import ProgressBar
from tithe.core.registry import names, resolve
from tithe.rows.uses import Watch, announce_unlike

if TYPE_CHECKING:  # a command that only shows its options need not load these
    from tithe.certify import Certificate
    from tithe.core.contracts import Source
    from tithe.core.data import Block
    from tithe.fit.base import CoresetLearner
    from tithe.report.run import Run
    from tithe.report.scores import HeldOut

_SHARE = 0.05  # of the rows that are held out by default
_MAX_HELD_OUT = 1_000_000  # rows that are held out by default: more make no score better known
_MIN_HELD_OUT = 20  # with fewer a score would say nothing, and all rows are learned from
_NOT_OF_CORESETS = (
    *("size", "eps", "holdout", "target", "weight", "row_id", *TABLE_OPTIONS),
    *("resume", "checkpoint", "dry_run", "errors"),
)


# estimators by a short name: the dotted name without Classifier or Regressor, and parameters that keep them quiet
_ENSEMBLES: dict[str, tuple[str, dict[str, Any]]] = {
    "catboost": ("catboost.CatBoost", {"verbose": False, "allow_writing_files": False}),
    "hgb": ("sklearn.ensemble.HistGradientBoosting", {}),
    "hist-gradient-boosting": ("sklearn.ensemble.HistGradientBoosting", {}),
    "lightgbm": ("lightgbm.LGBM", {"verbosity": -1}),
    "random-forest": ("sklearn.ensemble.RandomForest", {}),
    "xgboost": ("xgboost.XGB", {}),
}

_parameter_option = click.Option(
    ["-p", "--parameter", "estimator_parameters"],
    multiple=True,
    callback=as_parameters,
    metavar="NAME=VALUE",
    help="A parameter of the estimator.",
)


class LearnerGroup(RegisteredGroup):
    """One command for each registered learner, with the options that its class declares."""

    def names(self) -> list[str]:
        return sorted({*names("learner"), *_ENSEMBLES})

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        try:
            return self.registered(name)
        except ValueError as error:
            raise click.UsageError(f"{error} Or an installed estimator: sklearn.naive_bayes.GaussianNB.") from error

    def registered(self, name: str) -> click.Command:
        from sklearn.base import ClassifierMixin, RegressorMixin

        if name in names("fit"):
            command: click.Command = resolve("fit", name)
            return command
        if name in _ENSEMBLES:
            return _ensemble_command(name)
        if "." in name:
            cls, options = partial(installed_estimator, name), [_parameter_option, class_weight_option]
            summary, target = f"{name}, an installed estimator, on a coreset.", "--target y "
        else:
            cls = resolve("learner", name)
            options = parameter_options(cls)
            if "class_weight" in signature(cls).parameters:
                options.append(class_weight_option)
            target = "--target y " if issubclass(cls, (ClassifierMixin, RegressorMixin)) else ""
            if "polish" in signature(cls).parameters:
                options.append(as_click(cls, Option("polish", POLISH, "Passes that improve the solution, or auto.")))
            summary = cleandoc((cls.__doc__ or "").strip().partition("\n\n")[0])
        assert _fit.callback is not None
        example = f"tithe fit {name} rows.csv {target}-o result"
        return LearnerCommand(
            name,
            params=[*options, *(param for param in _fit.params if _takes(cls, str(param.name)))],
            callback=partial(_fit.callback, name=name, cls=cls),
            help=f"{summary}\n\n{cleandoc(_fit.help or '')}\n\n\b\nExample:\n  {example}",
            short_help=summary,
        )


def _takes(cls: Any, name: str) -> bool:
    """Whether a learner takes an option of `tithe fit`: not all are drawn by a construction, or predict classes."""
    if name == "errors":
        from tithe.linear.learner import CoresetLinearModel

        return not isinstance(cls, partial) and issubclass(cls, CoresetLinearModel)
    if isinstance(cls, partial):
        return True
    if name == "many_classes":
        from sklearn.base import ClassifierMixin

        return issubclass(cls, ClassifierMixin)
    if name == "construction_parameters":
        name = "construction"
    return name not in ("construction", "calibrate") or name in signature(cls).parameters


def _ensemble_command(name: str) -> click.Command:
    """The command of an ensemble of trees, which is a classifier or a regressor according to the target."""
    summary = f"{_ENSEMBLES[name][0]}Classifier or Regressor, on a coreset."
    task = click.Option(
        ["--task"],
        type=click.Choice(["classes", "numbers"]),
        help="What the target holds. By default: classes if it is text, true or false, or whole numbers of at most "
        f"{MOST_CLASSES} values.",
    )
    options = [_parameter_option, task, class_weight_option]
    if name != "random-forest":
        text = "Share of the rows kept that the number of rounds is chosen on; 0 takes n_estimators as it is."
        share = click.FloatRange(0, 1, max_open=True)
        options.append(click.Option(["--early-stopping"], type=share, default=0.2, help=text))
    if name in ("lightgbm", "xgboost"):
        text = "Splits from the rows kept, values of the leaves from all rows, if that is better on rows held out."
        options.append(click.Option(["--polish"], type=click.Choice(["leaves"]), help=text))
    assert _fit.callback is not None
    return LearnerCommand(
        name,
        params=[*options, *(param for param in _fit.params if param.name != "errors")],
        callback=partial(_fit.callback, name=name, cls=installed_estimator),
        help=f"{summary}\n\n{cleandoc(_fit.help or '')}",
        short_help=summary,
    )


def named_ensemble(name: str, task: str) -> tuple[str, dict[str, Any]]:
    """The dotted name of an estimator, of an ensemble for the task, and parameters that keep it quiet."""
    if name not in _ENSEMBLES:
        return name, {}
    stem, quiet = _ENSEMBLES[name]
    return f"{stem}{'Classifier' if task == 'classes' else 'Regressor'}", quiet


def _ensemble(name: str, where: Sequence[str], how: SourceOptions, options: dict[str, Any]) -> dict[str, Any]:
    """The options of `installed_estimator` for an ensemble of trees: with its dotted name in place of the task."""
    task = options.pop("task") or _task_of(where, how)
    dotted, quiet = named_ensemble(name, task)
    say(f"{dotted}: the target holds {task}.", err=True)
    return {**options, "name": dotted, "estimator_parameters": {**quiet, **options["estimator_parameters"]}}


def _task_of(where: Sequence[str], how: SourceOptions) -> str:
    """Whether the target holds classes or numbers, by a look at some rows."""
    from tithe.core.labels import holds_classes
    from tithe.core.seeding import rng_for
    from tithe.storage.coresets import is_coreset_file, load_coreset

    if len(where) == 1 and is_coreset_file(where[0]):
        y = load_coreset(where[0]).y
    else:
        how.check_target(where, "class")
        source = how.open(where, quiet=True)
        if not source.replayable:
            raise click.UsageError("These rows come only once, so nobody can look at them first: give --task.")
        y = source.sample(None, rng=rng_for(0, "task")).y
    return "classes" if y is None or holds_classes(y) else "numbers"


class LearnerCommand(Command):
    """The command of a learner. ``tithe fit odm --semi`` says that the learner is called odm-semi."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            other = f"{self.name}-{error.option_name.lstrip('-')}"
            if other not in names("learner"):
                raise
            raise click.UsageError(f"{error.option_name} is no option: it is `tithe fit {other}`.", ctx) from error


@click.group(cls=LearnerGroup)
def fit() -> None:
    """Reduce files, fit a model on what is kept, and certify it in more passes over the files.

    NAME may also be the dotted name of an installed estimator whose fit takes sample_weight. The options of a learner:
    tithe fit NAME --help.

    \b
    Example:
      tithe fit kmeans data/ -k 20 -o result
      tithe fit logistic 'data/*.parquet' --target y -o result
      tithe fit ridge 'data/*.parquet' --target price --alpha 10 -o result
      tithe fit lightgbm 'data/*.parquet' --target y -p learning_rate=0.05 -o result
      tithe fit sklearn.naive_bayes.GaussianNB data/ --target y --predict new.csv -o result
    """


@click.command()
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@force_option
@size_option
@click.option(
    "--eps",
    type=SHARE,
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
@with_construction_parameters
@click.option(
    "--many-classes",
    is_flag=True,
    help="Take a target of hundreds of values or of many numbers as classes.",
)
@click.option(
    "--errors", is_flag=True, help="Standard errors and intervals of the coefficients, in a pass or more over all rows."
)
@click.option("--keep-rows", is_flag=True, help="Keep the coreset in model.tithe too, to go on from it in Python.")
@source_options
@seed_option
@jobs_option
@engine_options
@checkpoint_options
def _fit(  # type: ignore[no-untyped-def]
    name, cls, where, how, output, size, eps, holdout, test, new, keep_rows, seed, jobs, engine, scheduler,
    checkpoint, checkpoint_every, resume, dry_run, force, many_classes=False, errors=False, **parameters,
):  # fmt: skip
    """SOURCE is a file, a folder, a pattern in quotes, a URL, or several of these; or one coreset that tithe build or
    tithe merge wrote. The folder OUTPUT gets coreset.parquet, model.tithe, report.html and results.json.
    """
    output = checked_output(output, where, force=force or dry_run)
    if errors and STDIN in where:
        raise click.UsageError("--errors reads all rows again, and those of standard input come only once.")
    if size is not None:
        parameters["coreset_size"] = size
        if eps is not None:
            raise click.UsageError("Give --size or --eps, not both.")
    if new is not None:
        how.format_of([new])  # it must be there before the work begins
    if name in _ENSEMBLES:
        parameters = _ensemble(name, where, how, parameters)
    # estimators of other libraries know weights of rows
    class_weight = parameters.pop("class_weight", None) if name in _ENSEMBLES or "." in name else None
    model = cls(random_state=seed, **parameters)
    if class_weight is not None and _target_of(model) != "class":
        raise click.UsageError(f"--class-weight is for classes, and {name} predicts none.")
    from tithe.storage.coresets import is_coreset_file

    if len(where) == 1 and is_coreset_file(where[0]):
        run = fit_coreset(model, name, where[0], how, test=test, keep_rows=keep_rows, jobs=jobs)
        _finish(output, run, run.write(output), new, how, jobs)
        return
    how.check_target(where, _target_of(model))
    from tithe.core.progress import Checkpoint
    from tithe.storage.checkpoint import remove_state

    checkpoint = checkpoint or f"{output}.checkpoint"
    with Stop() as stop, running_engine(engine, scheduler, jobs) as runs_on:
        source = how.open(where)
        if _target_of(model) == "class" and not many_classes:
            check_classes(source, how["target"])
        scored = ScoredRows.of(source, holdout, test, how, seed, has_classes=_target_of(model) == "class")
        if class_weight is not None:
            scored = scored.weighted_by_class(class_weight, runs_on)
        n_before, held_size = (0, None) if dry_run else earlier_run(checkpoint, resume)
        why = "asked for, or the default" if eps is None else _choose_size(model, scored, eps, seed, held_size)
        if dry_run:
            _print_plan(source, model, where, output, jobs, seed, scored, why)
            return
        second = "certifying" if model.polish == 0 else "polishing"
        with resume_hint(checkpoint), ProgressBar(source.n_rows, "reducing", second, done=n_before) as reading:
            start = perf_counter()
            # a pipe is waited for, and can be stopped at any time
            progress = stop.after_leaves(reading) if source.replayable else reading
            state = Checkpoint(checkpoint, checkpoint_every, resume)
            model.set_params(engine=runs_on).fit(scored.training, checkpoint=state, progress=progress)
            reading.describe("scoring")
            held_out = scored.scores(model, name, runs_on, stop)
            certificate = scored.certificate(model, held_out)
            if held_out is not None and scored.can_be_learned(model, held_out):
                model.fit(scored.source, progress=progress)
                held_out = replace(held_out, learned_later=True)
            if errors:
                learned_later = held_out is not None and held_out.learned_later
                model.infer(scored.source if learned_later else scored.training)
            model.set_params(engine="auto")  # the model must not depend on the threads of this machine, or a cluster
            seconds = perf_counter() - start
            stop.idle()
            reading.describe("writing")
            kept: dict[str, Any] = {"certificate": certificate, "keep_rows": keep_rows}
            run = _run_of(model, name, where, how, scored, held_out, seconds, **kept)
            numbers = run.write(output)
        remove_state(checkpoint)
    _finish(output, run, numbers, new, how, jobs)


def _finish(output: str, run: Run, numbers: dict[str, Any], new: str | None, how: SourceOptions, jobs: Any) -> None:
    """Write predictions if they are asked for, and say what was done."""
    unlike = write_predictions_beside(output, run.model, new, how, jobs)
    if unlike:
        from tithe.report.run import write_numbers

        numbers["test_columns"] += unlike
        write_numbers(output, numbers)
    print_run(output, run, numbers)
    # names of people or things are learned from like any other text
    texts = ",".join(column["column"] for column in numbers["columns"] if column["kind"].split(",")[0] == "text")
    if texts:
        option = f"--exclude {shlex.quote(texts)}"
        say(f"Words of {texts} were learned from. If they only name the rows, leave them out: {option}")


def write_predictions_beside(
    output: str, model: Any, new: str | None, how: SourceOptions, jobs: int | None
) -> list[dict[str, Any]]:
    """Write predictions for the rows of the file ``new``, if there is one, into the folder of a run.

    Returns the columns in which they are unlike the rows that the model was fitted on.
    """
    if new is None:
        return []
    plain = SourceOptions(how | {"target": None, "weight": None})
    file, proba = str(Path(output) / "predictions.parquet"), hasattr(model, "predict_proba")
    watch = Watch()
    with Stop() as stop:
        rows = write_predictions(file, model, [new], plain, stop, proba=proba, jobs=jobs, watch=watch)
    print_table(file, ["", ""], rows)
    return _unusual(watch, new)


def _unusual(watch: Watch, file: str | None) -> list[dict[str, Any]]:
    """The columns with something to count among the rows of a file, for ``results.json``."""
    from tithe.rows.stores import plain_name

    return [{"file": plain_name(str(file)), **column} for column in watch.unusual()]


def _choose_size(model: CoresetLearner, scored: ScoredRows, eps: float, seed: int, earlier: int | None) -> str:
    """Set the number of rows to keep; returns the reason for it."""
    goal, _ = model.planned(scored.training.n_rows, scored.training.n_features)
    size, why = choose_size(scored.training, goal, None, eps=eps, promise="fit", seed=seed, earlier=earlier)
    model.coreset_size = size
    say(f"{size:,} rows are kept, {why}.", err=True)
    return why


def _target_of(model: Any) -> Target:
    """The kind of y that the learner needs."""
    from sklearn.base import is_classifier
    from sklearn.utils import get_tags

    if not get_tags(model).target_tags.required:
        return None
    return "class" if is_classifier(model) else "number"


def _run_of(
    model: CoresetLearner,
    learner: str,
    where: Sequence[str],
    how: SourceOptions,
    scored: ScoredRows,
    held_out: HeldOut | None,
    seconds: float,
    *,
    certificate: Certificate | None,
    keep_rows: bool,
) -> Run:
    from tithe.report.run import coreset_run

    is_apart = held_out is not None and scored.held_out is not None and not held_out.learned_later
    n_held_out = held_out.n_rows if held_out is not None and is_apart else 0
    run = coreset_run(
        model,
        learner=learner,
        files=how.plain_names(where),
        n_skipped=skipped_rows(scored.source, model.coreset_, how, n_held_out=n_held_out),
        n_held_out=n_held_out,
        held_out=held_out,
        certificate=certificate,
        row_names=names_of_rows(scored.source, how["row_id"], _typical_rows(model)),
        seconds=seconds,
        parameters={**model.get_params(), **how.given()},
        keep_rows=keep_rows,
    )
    return _with_test_columns(run, scored)


def _with_test_columns(run: Run, scored: ScoredRows | None) -> Run:
    """The run with the columns in which the rows that it was scored on are unlike those learned from."""
    found = [] if scored is None else _unusual(scored.watch, scored.test)
    return replace(run, results={**run.results, "test_columns": found})


def _typical_rows(model: CoresetLearner) -> list[int]:
    """Ids of the rows that stand for clusters."""
    rows = [cluster["typical_row"] for cluster in model.summary().get("clusters", [])]
    return [row for row in rows if row is not None]


def _print_plan(
    source: Source,
    model: CoresetLearner,
    where: Any,
    output: str,
    jobs: int | None,
    seed: int,
    scored: ScoredRows,
    why: str,
) -> None:
    from tithe.reduce.plan import Plan

    goal, size = model.planned(source.n_rows, source.n_features)
    rounds = model.usual_rounds if isinstance(model.polish, str) else model.polish
    passes = 2 + rounds + (_target_of(model) == "class") + (scored.held_out is not None)
    kept = resolve_size(size, source.n_rows)
    plan = Plan.of(goal, model.construction, kept, calibrate=model.calibrate, seed=seed)
    print_plan(output, source, plan, where, why=why, jobs=jobs, passes=passes)


# -- the rows that a model is scored on --------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ScoredRows:
    """All rows, those to learn from, and those to score on: ``held_out``, those of the file ``test``, or none.

    ``words`` says which rows are held out.
    """

    source: Source
    training: Source
    how: SourceOptions
    held_out: Source | Block | None = None
    words: str = ""
    test: str | None = None
    watch: Watch = field(default_factory=Watch)  # over the rows of ``test``

    @classmethod
    def of(
        cls,
        source: Source,
        share: float | None,
        test: str | None,
        how: SourceOptions,
        seed: int,
        *,
        has_classes: bool = False,
    ) -> Self:
        """``has_classes``: the target is a class, and rows of rare classes are all learned from."""
        if test is not None:
            from tithe.rows.paths import find_files

            if share:
                raise click.UsageError("Give --holdout or --test, not both.")
            find_files([test], how["format"])  # it must be there before the work begins
            return cls(source=source, training=source, how=how, test=test)
        if not source.replayable and share:
            raise click.UsageError("--holdout: rows that come only once are not read again. Use --test FILE.")
        share = usual_share(source.n_rows) if share is None else share
        if not share or not source.replayable:
            return cls(source=source, training=source, how=how)
        from tithe.certify.held_out import held_out_split
        from tithe.rows.leaves import SplitSource

        learned, apart = held_out_split(source, share, seed, has_classes=has_classes)
        return cls(
            source=source,
            training=SplitSource(source, learned),
            how=how,
            held_out=SplitSource(source, apart),
            words=f"{100 * share:.3g} % of all, chosen by a hash of their ids",
        )

    def weighted_by_class(self, class_weight: Any, engine: Any) -> Self:
        """The same with weights of classes for the rows to learn from; those to score on stay as they are."""
        from tithe.fit.labels import weighted_by_class
        from tithe.rows.leaves import MappedSource

        training = weighted_by_class(self.training, class_weight, engine)
        assert isinstance(training, MappedSource)
        return replace(self, training=training, source=MappedSource(self.source, training.change))

    def can_be_learned(self, model: CoresetLearner, scores: HeldOut | None) -> bool:
        """Whether a fit to all rows takes no longer than that to the others: none is left out by a coreset.

        So few rows are missed most, and with many the second fit would take as long as the first.
        """
        if scores is None or self.held_out is None:
            return False
        n_rows = model.coreset_.n_seen + scores.n_rows
        _, size = model.planned(n_rows, self.source.n_features)
        return bool(size >= n_rows)

    def test_rows(self, model: Any) -> Source:
        """The rows of the file ``test``, with the features that the model was fitted on."""
        from tithe.fit.base import note_columns
        from tithe.fit.results import table_schema

        rows: Source = self.how.open([str(self.test)], schema=table_schema(model), watch=self.watch)
        note_columns(model, rows, reset=False)
        return rows

    def certificate(self, model: CoresetLearner, scores: HeldOut | None) -> Certificate | None:
        """The model's; of an estimator of another library its score on the rows held out, in one more pass."""
        from tithe.certify.held_out import MIN_ROWS_TO_CERTIFY
        from tithe.core.errors import NoRowsError
        from tithe.meta.estimator import CoresetEstimator

        certified: Certificate | None = model.certificate_
        if not isinstance(model, CoresetEstimator) or scores is None or scores.n_rows < MIN_ROWS_TO_CERTIFY:
            return certified
        rows = self.held_out if self.test is None else self.test_rows(model)
        try:
            return model.certify(rows) if hasattr(model, "score") else certified
        except NoRowsError:  # they were learned from
            return certified

    def scores(self, model: Any, learner: str, engine: Any, stop: Stop) -> HeldOut | None:
        """The scores, in one pass over the rows; None if there are no rows to score on."""
        from tithe.core.data import Block
        from tithe.core.errors import NoRowsError
        from tithe.core.passes import DataPass
        from tithe.report.run import report_of
        from tithe.rows.stores import plain_name

        rows, words = self.held_out, self.words
        if self.test is not None:
            rows, words = self.test_rows(model), f"those of {plain_name(self.test)}"
        if rows is None:
            return None
        can_stop = not isinstance(rows, Block) and rows.replayable
        data = DataPass(rows, engine, stop.after_leaves(lambda *counts: None) if can_stop else None)
        try:
            with quiet_about_names():  # the columns are those of the fit
                scores = report_of(learner).held_out(model, data, words)
            announce_unlike(self.watch.columns)
            return scores
        except NoRowsError:
            return None


def usual_share(n_rows: int | None) -> float:
    """The share of the rows that are held out by default."""
    if n_rows is None:
        return _SHARE
    return min(_SHARE, _MAX_HELD_OUT / n_rows) if n_rows * _SHARE >= _MIN_HELD_OUT else 0.0


# -- a coreset file, whose rows and weights are learned from without the rows that they stand for


def fit_coreset(
    model: CoresetLearner,
    name: str,
    file: str,
    how: SourceOptions,
    *,
    test: str | None,
    keep_rows: bool,
    jobs: int | None,
) -> Run:
    """Fit to the rows of a coreset file, and score on those of ``test``; returns the run."""
    from sklearn.utils import get_tags

    from tithe.engines.threads import ThreadEngine
    from tithe.fit.base import fit_on_saved_coreset
    from tithe.fit.results import table_schema
    from tithe.report.run import coreset_run
    from tithe.storage.coresets import load_coreset, load_schema

    why = f"{file} is a coreset, which has its own weights, target and features. See tithe merge -m"
    refuse_given(_NOT_OF_CORESETS, why)
    if model.polish not in ("auto", 0):
        raise click.UsageError(f"--polish reads all rows, and {file} is a coreset without the others.")
    coreset = load_coreset(file)
    if coreset.y is None and get_tags(model).target_tags.required:
        raise ValueError(f"{file} has no target: build it with --target.")
    start = perf_counter()
    fit_on_saved_coreset(model, coreset, load_schema(file))
    model.engine = "auto"  # the model must not depend on the threads of this machine
    held_out, certificate, scored = None, model.certificate_, None
    if test is not None:
        schema = table_schema(model)
        target = None if coreset.y is None or schema is None else schema.target
        reading = SourceOptions(how | {"target": target})
        rows = reading.open([test], schema=schema)
        with Stop() as stop:
            scored = ScoredRows(source=rows, training=rows, how=reading, test=test)
            held_out = scored.scores(model, name, ThreadEngine(jobs), stop)
            certificate = scored.certificate(model, held_out)
    run = coreset_run(
        model,
        learner=name,
        files=[file],
        n_skipped=0,
        n_held_out=0,
        held_out=held_out,
        certificate=certificate,
        row_names=_names_at_sites(coreset, _typical_rows(model)),
        seconds=perf_counter() - start,
        parameters=model.get_params(),
        keep_rows=keep_rows,
    )
    return _with_test_columns(run, scored)


def _names_at_sites(coreset: Any, rows: list[int]) -> dict[int, str]:
    """Site and row id there of some rows of a coreset; empty if it is of one site."""
    if not coreset.sites:
        return {}
    numbered = zip(coreset.row_ids().tolist(), *map(list, coreset.site_rows()), strict=True)
    names = {row: f"{coreset.sites[number].name}, row {row_id}" for row, number, row_id in numbered}
    return {row: names[row] for row in rows}


# -- estimators of other libraries -------------------------------------------------------------


def installed_estimator(name: str, *, estimator_parameters: dict[str, Any], random_state: int, **options: Any) -> Any:
    """The estimator with this dotted name, sklearn.naive_bayes.GaussianNB for example, on a coreset."""
    from tithe.meta.estimator import CoresetEstimator
    from tithe.meta.other_estimators import check_learns_from_coresets

    module, _, attribute = name.rpartition(".")
    try:
        estimator = getattr(import_module(module), attribute)(**estimator_parameters)
        check_learns_from_coresets(estimator)
    except (ImportError, AttributeError, TypeError) as error:
        raise click.UsageError(f"There is no estimator {name!r}: {error}") from error
    if "random_state" in estimator.get_params() and "random_state" not in estimator_parameters:
        estimator.set_params(random_state=random_state)
    polish = options.pop("polish", None) or 0
    aside = _SHARE if polish else 0.0  # the rows that the command holds out must not decide which leaves are kept
    return CoresetEstimator(estimator, validation_fraction=aside, polish=polish, random_state=random_state, **options)
