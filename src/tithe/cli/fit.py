"""``tithe fit``: from files to a model with a certificate, in a folder."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click

from tithe.cli.common import (
    LABELLED,
    Size,
    bytes_text,
    check_apart,
    clusters_option,
    jobs_option,
    make_engine,
    make_objective,
    margin_options,
    penalty_option,
    print_table,
    saying_how_to_go_on,
    seconds_text,
    seed_option,
    skipped_rows,
    source_options,
)
from tithe.cli.plan import checkpoint_options, earlier_run, plan_table
from tithe.cli.progress import Reading, Stop, peak_memory, stoppable

_GOALS = {"kmeans": "kmeans", "kmedians": "kmedian", "logistic": "logistic", "odm": "margin"}  # what each preserves
LEARNERS = tuple(_GOALS)
_AUTO_PASSES = {"kmeans": 4, "kmedians": 4, "logistic": 6, "odm": 6}  # about, with --polish auto


class Polish(click.ParamType):
    """A number of rounds, or "auto"."""

    name = "ROUNDS|auto"

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        if value == "auto" or (isinstance(value, int) and value >= 0):
            return value
        if isinstance(value, str) and value.isdigit():
            return int(value)
        self.fail(f"{value!r} is neither a number of rounds nor 'auto'.", param, ctx)


@click.command()
@click.argument("learner", type=click.Choice(LEARNERS))
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@click.option("-m", "--size", type=Size(), help="Rows to keep, or a fraction. [default: 5000; classes: 10,000 or more]")
@clusters_option
@penalty_option
@margin_options
@click.option("--polish", type=Polish(), default=0, show_default=True, help="Passes that improve the solution.")
@click.option(
    "--tol",
    type=click.FloatRange(min=0, min_open=True),
    default=1e-4,
    show_default=True,
    help="Logistic, odm: excess loss at which --polish auto stops.",
)
@source_options
@seed_option
@jobs_option
@checkpoint_options
def fit(  # type: ignore[no-untyped-def]
    learner, where, how, output, size, polish, tol, seed, jobs, checkpoint, every, resume, dry_run, **goals,
):  # fmt: skip
    """Reduce files, fit a model on what is kept, and certify it in a second pass over the files.

    SOURCE is a file, a folder, a pattern in quotes, or several of these. The folder OUTPUT gets coreset.parquet,
    model.skops, report.html and results.json.

    \b
    Example:
      tithe fit kmeans data/ -k 20 --categories onehot -o result
      tithe fit logistic 'data/*.parquet' --target y --polish auto -o result
      tithe fit odm 'data/*.parquet' --target y --lam 1000 --polish auto -o result
    """
    output = str(Path(output))
    _check_folder(output)
    check_apart(output, where)
    if _GOALS[learner] in LABELLED:
        how.check_labels(where)
    from tithe.report.fit_report import write_fit
    from tithe.storage.checkpoint import remove_state

    checkpoint = checkpoint or f"{output}.checkpoint"
    with Stop() as stop:
        source = how.open(where)
        options = {"polish": polish, "engine": make_engine(jobs), "random_state": seed}
        model = _learner(learner, size, tol, options, **goals)
        if dry_run:
            goal = make_objective(_GOALS[learner], **goals)
            _print_plan(source, model, goal, where, output, learner, polish, jobs, seed)
            return
        earlier = earlier_run(checkpoint, resume)
        second = "certifying" if polish == 0 else "polishing"
        with (
            saying_how_to_go_on(checkpoint),
            Reading(source.n_rows, "reducing", second, done=earlier.n_rows) as reading,
        ):
            watched = stoppable(source, stop, progress=reading, checkpoint=checkpoint, resume=resume, every=every)
            seconds = _fitted(model, watched)
            stop.idle()
            reading.say("writing")
            results = write_fit(output, model, _facts(model, learner, where, how, source, seconds))
        remove_state(checkpoint)
    print_table(output, ["", ""], _about(results))
    click.echo(str(model.certificate_ or "There is no certificate: the rows came only once."))
    click.echo(f"Report: {Path(output) / 'report.html'}")


def _check_folder(output: str) -> None:
    """Refuse, before anything is read, a folder that cannot be written to."""
    folder = Path(output)
    if folder.is_file():
        raise NotADirectoryError(f"{output!r} is a file; a folder is needed.")
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder.parent)!r} to write {folder.name!r} into.")
    with tempfile.TemporaryFile(dir=folder if folder.is_dir() else folder.parent):
        pass


def _learner(
    name: str, size: Any, tol: float, options: dict[str, Any], *, clusters: int, inverse_penalty: float, **margin: Any
) -> Any:
    from tithe import CoresetKMeans, CoresetKMedians, CoresetLogisticRegression, LinearODMClassifier

    if size is not None:
        options["coreset_size"] = size
    if name == "logistic":
        return CoresetLogisticRegression(C=inverse_penalty, tol=tol, **options)
    if name == "odm":
        return LinearODMClassifier(**margin, tol=tol, **{"coreset_size": "auto", **options})
    return (CoresetKMeans if name == "kmeans" else CoresetKMedians)(clusters, **options)


def _fitted(model: Any, source: Any) -> float:
    """Fit, and say how long it took."""
    from time import perf_counter

    start = perf_counter()
    model.fit(source)
    model.set_params(engine="auto")  # threads of this machine are no business of the model
    return perf_counter() - start


def _facts(model: Any, learner: str, where: Any, how: dict[str, Any], source: Any, seconds: float) -> Any:
    from tithe.report.fit_report import Fit

    n_skipped = skipped_rows(source, model.coreset_) if how["bad_rows"] == "skip" else 0
    options = {name: value for name, value in how.items() if value is not None and name != "limits"}
    return Fit(
        learner=learner,
        files=list(where),
        n_skipped=n_skipped,
        seconds=seconds,
        peak_bytes=peak_memory(),
        parameters={**model.get_params(), **options},
    )


def _about(results: dict[str, Any]) -> list[list[str]]:
    skipped = [["bad rows, skipped", f"{results['n_skipped']:,}"]] if results["n_skipped"] else []
    return [
        ["rows", f"{results['n_rows']:,}"],
        *skipped,
        ["rows kept", f"{results['rows_kept']:,} ({results['rows_kept'] / results['n_rows']:.2%})"],
        ["effective sample size", f"{results['effective_sample_size']:,.0f}"],
        ["time", seconds_text(results["seconds"])],
        ["peak memory", bytes_text(results["peak_bytes"])],
    ]


def _print_plan(
    source: Any, model: Any, goal: Any, where: Any, output: str, learner: str, polish: Any, jobs: int | None, seed: int
) -> None:
    size = model.coreset_size
    if size == "auto":
        from tithe.learners.base import auto_size

        size = auto_size(source.n_rows, source.n_features)
    plan = plan_table(
        source,
        goal,
        where,
        construction="auto",
        size=size,
        why="asked for, or the default",
        calibrate=True,
        seed=seed,
        jobs=jobs,
        passes=_AUTO_PASSES[learner] if polish == "auto" else 2 + polish + (goal.name in LABELLED),
    )
    print_table(f"{output}: not written, this is a dry run", ["", ""], plan)
