"""``tithe fit NAME --semi``: a model of rows of which only some are labelled."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from tithe.cli.links import Links, links_among, read_links
from tithe.cli.options import default_of, parameter_options
from tithe.cli.predict import write_predictions
from tithe.cli.progress import Stop
from tithe.cli.row_ids import names_of_rows
from tithe.cli.scored import usual_share
from tithe.cli.sources import SourceOptions, check_apart, check_folder, refuse_given, source_options
from tithe.cli.text import Stopped, print_table
from tithe.core.progress import bytes_text, peak_memory, seconds_text

if TYPE_CHECKING:  # a command that only shows its options need not load these
    from tithe.core.data import Array, Block

_OTHER_FITS = (
    "eps",
    "polish",
    "keep_rows",
    "engine",
    "scheduler",
    "checkpoint",
    "checkpoint_every",
    "resume",
    "dry_run",
)
_MIN_LABELS = 2  # of a class that stay when others are held out


def semi_options(cls: Any, semi: Any) -> list[click.Option]:
    """``--semi``, and the options that the learner ``semi`` has besides those of ``cls``."""
    plain = {option.parameter for option in cls.options}
    other = [
        f"--{option.parameter} {default_of(semi, option.parameter):g}"
        for option in semi.options
        if option.parameter in plain and default_of(cls, option.parameter) != default_of(semi, option.parameter)
    ]
    return [
        click.Option(
            ["--semi"],
            is_flag=True,
            help="Learn from rows with a gap in the target, too. All rows are held in memory. OUTPUT gets "
            "labels.parquet in place of a coreset, and --holdout is a share of the labelled rows. "
            f"Defaults: {', '.join(other)}.",
        ),
        click.Option(["--unlabelled"], metavar="VALUE", help="With --semi: what the target of such rows holds, too."),
        click.Option(
            ["--links"],
            type=click.Path(exists=True, dir_okay=False),
            help="With --semi: lines such as 3,17,must or 3,17,cannot.",
        ),
        *_only_with_semi(option for option in parameter_options(semi) if option.name not in plain),
    ]


def _only_with_semi(options: Any) -> list[click.Option]:
    """The options, with a help that says so."""
    changed = list(options)
    for option in changed:
        option.help = f"With --semi: {option.help[0].lower()}{option.help[1:]}"
    return changed


def run_either(run: Any, name: str, cls: Any, semi_cls: Any, *, semi: bool, **options: Any) -> Any:
    """Run the fit of the learner ``cls`` or, with ``--semi``, that of ``semi_cls``; refuse options of the other."""
    context = click.get_current_context()
    plain, partly = ({option.parameter for option in kind.options} for kind in (cls, semi_cls))
    if not semi:
        refuse_given((*sorted(partly - plain), "links", "unlabelled"), "it is for --semi")
        left_out = {*(partly - plain), "links", "unlabelled"}
        return run(name=name, cls=cls, **{key: value for key, value in options.items() if key not in left_out})
    refuse_given((*sorted(plain - partly), *_OTHER_FITS), "--semi has no such option")
    given = {key for key in partly if context.get_parameter_source(key) is click.core.ParameterSource.COMMANDLINE}
    unused = {*plain, *partly, *_OTHER_FITS}
    others = {key: value for key, value in options.items() if key not in unused}
    return _fit_semi(name=name, cls=semi_cls, parameters={key: options[key] for key in sorted(given)}, **others)


@source_options
def _fit_semi(  # type: ignore[no-untyped-def]
    name, cls, parameters, where, how, output, size, holdout, test, new, links, unlabelled, seed, jobs
):
    """Fit to the rows of files, and write the folder."""
    output = str(Path(output))
    check_folder(output)
    check_apart(output, where)
    must, cannot = read_links(links)
    for path in (new, test):
        if path is not None:
            how.format_of([path])  # it must be there before the work begins
    how.check_target(where, "class")
    if size is not None:
        parameters = {**parameters, "coreset_size": size}
    warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they are those of the source
    start = perf_counter()
    try:
        with Stop():
            rows = PartlyLabelledRows.of(
                how.open(where, missing_target="keep"), unlabelled, holdout, test, must + cannot, seed
            )
            ids = rows.training.row_ids()
            pairs = {"must_link": links_among(must, ids), "cannot_link": links_among(cannot, ids)}
            model = cls(**parameters, **pairs, unlabeled=rows.unlabeled, random_state=seed)
            labelled = rows.fit(model)
            held_out = rows.scores(model, how)
            results = _write(output, model, rows, labelled, held_out, name, where, how, perf_counter() - start)
    except KeyboardInterrupt:
        raise Stopped("Stopped; nothing was written.") from None
    if new is not None:
        plain = SourceOptions(how | {"target": None, "weight": None})
        file = str(Path(output) / "predictions.parquet")
        with Stop() as stop:
            print_table(file, ["", ""], write_predictions(file, model, [new], plain, stop, proba=False, jobs=jobs))
    _say(output, model, results, held_out)


@dataclass(frozen=True, kw_only=True)
class PartlyLabelledRows:
    """Rows of files in memory: those to learn from, and labelled ones to score on.

    ``unlabeled`` is what y holds for rows without a label besides gaps, None if it holds nothing else.
    """

    source: Any
    training: Block
    held_out: Block | None
    share: float
    unlabeled: Any
    test: str | None

    @classmethod
    def of(
        cls, source: Any, unlabelled: str | None, share: float | None, test: str | None, links: Links, seed: int
    ) -> PartlyLabelledRows:
        """Read the rows. A share of the labelled ones is held out, but for linked ones."""
        import numpy as np

        from tithe.core.data import concat
        from tithe.core.seeding import key_of, uniform_of
        from tithe.odm.partial_labels import encoded_partly

        if test is not None and share:
            raise click.UsageError("Give --holdout or --test, not both.")
        block = concat([task() for task in source.tasks()])
        assert block.y is not None  # a target is asked for
        value = None if unlabelled is None else _as_label(unlabelled, block.y)
        codes = encoded_partly(block.y, value, block.weights())[1]
        if share is None:
            share = 0.0 if test is not None else usual_share(int((codes >= 0).sum()))
        ids = block.row_ids()
        chosen = (codes >= 0) & (uniform_of(ids, key_of(seed, "held out")) < share)
        chosen &= ~np.isin(ids, np.array(links, np.int64).ravel())
        remaining = np.bincount(codes[(codes >= 0) & ~chosen], minlength=codes.max() + 1)
        chosen &= remaining[codes] >= _MIN_LABELS  # there may be no other rows of a class to learn from
        parts = [block.take(np.flatnonzero(mask)) for mask in (~chosen, chosen)]
        held_out = parts[1] if chosen.any() else None
        return cls(source=source, training=parts[0], held_out=held_out, share=share, unlabeled=value, test=test)

    def fit(self, model: Any) -> Array:
        """Fit the model; returns which rows have a label that was given."""
        from tithe.fit.base import note_columns
        from tithe.odm.partial_labels import encoded_partly

        block = self.training
        assert block.y is not None
        model.fit(block.X, block.y, block.sample_weight)
        note_columns(model, self.source, reset=True)
        labelled: Array = encoded_partly(block.y, model.unlabeled, block.weights())[1] >= 0
        return labelled

    def scores(self, model: Any, how: SourceOptions) -> Any:
        """The scores on labelled rows that were held out, or on those of another file; None if there are none."""
        from tithe.core.passes import DataPass
        from tithe.report.scores import held_out_scores

        rows, words = self.held_out, f"{100 * self.share:.3g} % of the labelled ones, chosen by a hash of their ids"
        if self.test is not None:
            rows, words = self._test_rows(model, how), f"those of {self.test}"
        return None if rows is None or not len(rows) else held_out_scores(model, DataPass(rows, "serial"), words)

    def _test_rows(self, model: Any, how: SourceOptions) -> Block:
        import numpy as np

        from tithe.core.data import concat
        from tithe.fit.base import note_columns

        source = how.open([str(self.test)], schema=vars(model).get("schema_"))
        note_columns(model, source, reset=False)
        block = concat([task() for task in source.tasks()])
        return block if self.unlabeled is None else block.take(np.flatnonzero(block.y != self.unlabeled))


def _as_label(text: str, y: Any) -> Any:
    """A value of the target as y holds it: a text among texts, else a number. A column of numbers holds no texts."""
    if y is None or any(isinstance(label, str) for label in y.tolist()):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None  # a text in a column of numbers is a gap


def _write(
    output: str,
    model: Any,
    rows: PartlyLabelledRows,
    labelled: Array,
    held_out: Any,
    name: str,
    where: Any,
    how: SourceOptions,
    seconds: float,
) -> dict[str, Any]:
    from tithe.report.partial_labels import PartlyLabelledFit, write_partly_labelled

    n_links = {kind: len(model.get_params()[kind] or ()) for kind in ("must_link", "cannot_link")}
    n_held_out = 0 if rows.held_out is None else len(rows.held_out)
    n_all = rows.source.count()
    options = {key: value for key, value in how.items() if value is not None and key != "limits"}
    fit = PartlyLabelledFit(
        learner=f"{name} --semi",
        files=list(where),
        n_skipped=None if n_all is None else n_all - len(rows.training) - n_held_out,
        n_held_out=n_held_out,
        held_out=None if held_out is None else held_out.as_dict(),
        row_names=names_of_rows(rows.source, how["row_id"], rows.training.row_ids().tolist()),
        n_must_link=n_links["must_link"],
        n_cannot_link=n_links["cannot_link"],
        seconds=seconds,
        peak_bytes=peak_memory(),
        parameters={**model.get_params(), **n_links, **options},
    )
    return write_partly_labelled(output, model, rows.training, labelled, fit)


def _say(output: str, model: Any, results: dict[str, Any], held_out: Any) -> None:
    from tithe.report.partial_labels import sentence_of

    skipped = [["bad rows left out", f"{results['n_skipped']:,}"]] if results["n_skipped"] else []
    rows = [
        ["rows learned from", f"{results['n_rows']:,}"],
        ["labelled", f"{results['n_labelled']:,}"],
        ["unlabelled", f"{results['n_unlabelled']:,}"],
        ["labelled rows held out", f"{results['n_held_out']:,}"],
        *skipped,
        ["rows kept", f"{results['rows_kept']:,}"],
        ["links", f"{results['n_must_link']} together, {results['n_cannot_link']} apart"],
        ["time", seconds_text(results["seconds"])],
        ["peak memory", bytes_text(results["peak_bytes"])],
    ]
    print_table(output, ["", ""], rows)
    click.echo(sentence_of(model, results["n_unlabelled"]))
    if model.certificate_ is not None:
        click.echo(str(model.certificate_))
    if held_out is not None:
        click.echo(str(held_out))
    click.echo(f"Report: {Path(output) / 'report.html'}")
