"""``tithe fit odm-semi`` and ``tithe fit odm-clustering``: rows of which only some are labelled, or none."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

import click
import numpy as np

from tithe.cli.fit import ScoredRows, usual_share, write_predictions_beside
from tithe.cli.main import Command, all_or_nothing, print_run, quiet_about_names
from tithe.cli.options import jobs_option, parameter_options, seed_option, size_option
from tithe.cli.sources import SourceOptions, checked_output, force_option, names_of_rows, source_options
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, concat
from tithe.core.seeding import key_of, uniform_of
from tithe.fit.base import note_columns
from tithe.odm.clustering import ODMClustering
from tithe.odm.report import clustering_run, semi_supervised_run
from tithe.odm.semi_supervised import SemiSupervisedODMClassifier, encoded_partly
from tithe.rows.leaves import MappedSource

_KINDS = {"must": "must", "must-link": "must", "1": "must", "cannot": "cannot", "cannot-link": "cannot", "-1": "cannot"}
_MIN_LABELS = 2  # of a class that stay when others are held out
Pairs = list[tuple[int, int]]
_links_option = click.option(
    "--links", type=click.Path(exists=True, dir_okay=False), help="Lines such as 3,17,must or 3,17,cannot."
)


@click.command("odm-semi", cls=Command)
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@force_option
@click.option("--unlabeled", metavar="VALUE", help="What the target of rows without a label holds, besides gaps.")
@_links_option
@size_option
@click.option(
    "--holdout",
    type=click.FloatRange(0, 1, max_open=True),
    help="Share of the labelled rows that are not learned from, to score the model on. [default: 0.05; 0 with --test]",
)
@click.option("--test", metavar="FILE", help="Score the model on the rows of this file, folder or pattern.")
@click.option("--predict", "new", metavar="FILE", help="Write predictions.parquet for the rows of this file, too.")
@source_options
@seed_option
@jobs_option
def fit_partly_labeled(  # type: ignore[no-untyped-def]
    where, how, output, force, unlabeled, links, size, holdout, test, new, seed, jobs, **parameters
):
    """A margin machine that also learns from rows with a gap in the target, where that helps.

    All rows are held in memory. A file of links names pairs of rows that must or cannot be of one class. The folder
    OUTPUT gets labels.parquet, model.tithe, report.html and results.json.

    \b
    Example:
      tithe fit odm-semi rows.csv --target y --links pairs.csv -o result
    """
    output = checked_output(output, where, force=force)
    linked = Links.read(links)
    for path in (new, test):
        if path is not None:
            how.format_of([path])  # it must be there before the work begins
    how.check_target(where, "class")
    if size is not None:
        parameters["coreset_size"] = size
    start = perf_counter()
    with all_or_nothing() as stop, quiet_about_names():
        source = how.open(where, missing_target="keep")
        rows = PartlyLabeledRows.of_labels(source, unlabeled, holdout, test, how, linked, seed)
        block = rows.block
        parameters |= {"unlabeled": rows.unlabeled, "random_state": seed}
        model = SemiSupervisedODMClassifier(**parameters, **linked.among(block.row_ids()))
        model.fit(block.X, block.y, block.sample_weight)
        note_columns(model, source, reset=True)
        n_all, n_held_out = source.count(), 0 if rows.held_out is None else len(rows.held_out)
        run = semi_supervised_run(
            model,
            block,
            rows.codes >= 0,
            held_out=rows.scores(model, "odm-semi", "serial", stop),
            n_held_out=n_held_out,
            n_skipped=None if n_all is None else n_all - len(block) - n_held_out,
            row_names=names_of_rows(source, how["row_id"], block.row_ids().tolist()),
            links=linked.counts,
            learner="odm-semi",
            files=how.plain_names(where),
            seconds=perf_counter() - start,
            parameters={**model.get_params(), **{name[2:]: n for name, n in linked.counts.items()}, **how.given()},
        )
        numbers = run.write(output)
    write_predictions_beside(output, model, new, how, jobs)
    print_run(output, run, numbers)


fit_partly_labeled.params[:0] = parameter_options(SemiSupervisedODMClassifier)


@click.command("odm-clustering", cls=Command)
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder to write.")
@force_option
@click.option("-k", "--clusters", type=click.IntRange(min=2), default=2)
@click.option(
    "--balance",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.3,
    help="The share of the rows by which two clusters may differ.",
)
@_links_option
@source_options
@seed_option
def fit_clusters(
    where: Sequence[str],
    how: SourceOptions,
    output: str,
    force: bool,
    clusters: int,
    balance: float,
    links: str | None,
    seed: int,
) -> None:
    """Clusters of any shape, by margins, with a proved bound.

    All rows are held in memory. A file of links names pairs of rows that must or cannot be in one cluster. The folder
    OUTPUT gets labels.parquet, model.tithe, report.html and results.json.

    \b
    Example:
      tithe fit odm-clustering rows.parquet -k 2 --links pairs.csv -o clusters
    """
    output = checked_output(output, where, force=force)
    linked = Links.read(links)
    start = perf_counter()
    with all_or_nothing(), quiet_about_names():
        source = how.open(where)
        block = concat([task() for task in source.tasks()])
        model = ODMClustering(clusters, balance=balance, **linked.among(block.row_ids()), random_state=seed)
        model.fit(block.X, sample_weight=block.sample_weight)
        note_columns(model, source, reset=True)
        run = clustering_run(
            model,
            block,
            links=linked.counts,
            learner="odm-clustering",
            files=how.plain_names(where),
            seconds=perf_counter() - start,
            parameters={**model.get_params(), **{name[2:]: n for name, n in linked.counts.items()}},
        )
        numbers = run.write(output)
    print_run(output, run, numbers)


@dataclass(frozen=True, kw_only=True)
class Links:
    """Pairs of row numbers of a file that must be together, and pairs that must not."""

    must: Pairs
    cannot: Pairs

    @classmethod
    def read(cls, path: str | None) -> Self:
        """The links in lines such as ``3,17,must`` or ``3,17,cannot``."""
        links: dict[str, Pairs] = {"must": [], "cannot": []}
        if path is None:
            return cls(**links)
        with open(path, newline="", encoding="utf8") as file:
            for number, row in enumerate(csv.reader(file), 1):
                cells = [cell.strip() for cell in row]
                if not any(cells) or (number == 1 and not cells[0].lstrip("-").isdigit()):
                    continue  # an empty line, or the names of the columns
                kind = _KINDS.get(cells[2].lower()) if len(cells) == 3 else None
                if kind is None or not all(cell.lstrip("-").isdigit() for cell in cells[:2]):
                    raise ValueError(
                        f"Line {number} of {path!r} is not a link: write two row numbers, from 0 on, and must or "
                        "cannot, such as 3,17,must."
                    )
                links[kind].append((int(cells[0]), int(cells[1])))
        return cls(**links)

    @property
    def counts(self) -> dict[str, int]:
        return {"n_must_link": len(self.must), "n_cannot_link": len(self.cannot)}

    def among(self, row_ids: Array) -> dict[str, Any]:
        """The links as positions among the rows with these ids, which ascend; None where there are no links."""
        return {"must_link": _positions(self.must, row_ids), "cannot_link": _positions(self.cannot, row_ids)}


def _positions(links: Pairs, row_ids: Array) -> Pairs | None:
    if not links:
        return None
    n_rows = int(row_ids[-1]) + 1
    pairs = np.array(links)
    if len(row_ids) < n_rows:  # some rows were left out
        at = np.minimum(np.searchsorted(row_ids, pairs), len(row_ids) - 1)
        lost = pairs[(row_ids[at] != pairs) & (pairs >= 0) & (pairs < n_rows)]
        if len(lost):
            raise ValueError(f"A link names row {lost[0]}, which was left out as a bad row. Remove the link.")
        pairs = np.where((pairs >= 0) & (pairs < n_rows), at, pairs)
    return [(int(i), int(j)) for i, j in pairs]


@dataclass(frozen=True, kw_only=True)
class PartlyLabeledRows(ScoredRows):
    """Rows in memory of which some are labelled: ``block`` to learn from, and labelled ones to score on.

    ``codes`` are the class numbers of ``block``, -1 without a label. ``unlabeled`` is what y holds for rows without a
    label besides gaps, None if it holds nothing else.
    """

    block: Block
    codes: Array
    unlabeled: Any
    held_out: Block | None = None

    @classmethod
    def of_labels(
        cls,
        source: Source,
        unlabeled: str | None,
        share: float | None,
        test: str | None,
        how: SourceOptions,
        links: Links,
        seed: int,
    ) -> Self:
        """Read the rows. A share of the labelled ones is held out, except for linked ones."""
        if test is not None and share:
            raise click.UsageError("Give --holdout or --test, not both.")
        block = concat([task() for task in source.tasks()])
        assert block.y is not None  # a target is asked for
        value = None if unlabeled is None else _as_label(unlabeled, block.y)
        codes = encoded_partly(block.y, value, block.weights())[1]
        if share is None:
            share = 0.0 if test is not None else usual_share(int((codes >= 0).sum()))
        ids = block.row_ids()
        chosen = (codes >= 0) & (uniform_of(ids, key_of(seed, "held out")) < share)
        chosen &= ~np.isin(ids, np.array(links.must + links.cannot, np.int64).ravel())
        remaining = np.bincount(codes[(codes >= 0) & ~chosen], minlength=codes.max() + 1)
        chosen &= remaining[codes] >= _MIN_LABELS  # there may be no other rows of a class to learn from
        return cls(
            source=source,
            training=source,
            how=how,
            held_out=block.take(np.flatnonzero(chosen)) if chosen.any() else None,
            words=f"{100 * share:.3g} % of the labelled ones, chosen by a hash of their ids",
            test=test,
            block=block.take(np.flatnonzero(~chosen)),
            codes=codes[~chosen],
            unlabeled=value,
        )

    def test_rows(self, model: Any) -> Source:
        """The rows of the file ``test`` that have a label."""
        rows = super().test_rows(model)
        return rows if self.unlabeled is None else MappedSource(rows, self._labeled)

    def _labeled(self, block: Block) -> Block:
        return block.take(np.flatnonzero(block.y != self.unlabeled))


def _as_label(text: str, y: Array) -> Any:
    """A value of the target as y holds it: a text among texts, else a number. A column of numbers holds no texts."""
    if any(isinstance(label, str) for label in y.tolist()):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None  # a text in a column of numbers is a gap
