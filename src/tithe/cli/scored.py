"""The rows that `tithe fit` scores a model on: some that are held out, or those of another file."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tithe.cli.progress import Stop
from tithe.cli.sources import SourceOptions

if TYPE_CHECKING:  # a command that only shows its options need not load these
    from tithe.core.contracts import Source
    from tithe.report.scores import HeldOut

_SHARE = 0.05  # of the rows that are held out by default
_MAX_ROWS = 1_000_000  # that are held out by default: more make no score better known
_MIN_ROWS = 20  # with fewer a score would say nothing, and all rows are learned from


@dataclass(frozen=True, kw_only=True)
class ScoredRows:
    """All rows, those to learn from, and those to score on: ``held_out``, those of the file ``test``, or none."""

    source: Source
    training: Source
    how: SourceOptions
    held_out: Source | None = None
    share: float = 0.0
    test: str | None = None

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
    ) -> ScoredRows:
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
        from tithe.rows.mapped import SplitSource

        learned, apart = held_out_split(source, share, seed, has_classes=has_classes)
        return cls(
            source=source,
            training=SplitSource(source, learned),
            how=how,
            held_out=SplitSource(source, apart),
            share=share,
        )

    @property
    def n_passes(self) -> int:
        """Passes over the rows of the fit that the scores take."""
        return int(self.held_out is not None)

    def can_be_learned(self, model: Any, scores: HeldOut | None) -> bool:
        """Whether a fit to all rows takes no longer than that to the others: none is left out by a coreset.

        So few rows are missed most, and with many the second fit would take as long as the first.
        """
        if scores is None or self.held_out is None:
            return False
        n_rows = model.coreset_.n_seen + scores.n_rows
        _, size = model.planned(n_rows, self.source.n_features)
        return bool(size >= n_rows)

    def scores(self, model: Any, engine: Any, stop: Stop) -> HeldOut | None:
        """The scores, in one pass over the rows; None if there are no rows to score on."""
        from tithe.core.errors import NoRowsError
        from tithe.core.passes import DataPass
        from tithe.fit.base import note_columns
        from tithe.report.scores import held_out_scores
        from tithe.rows.urls import plain_name

        rows = self.held_out if self.test is None else self.how.open([self.test], schema=vars(model).get("schema_"))
        if rows is None:
            return None
        note_columns(model, rows, reset=False)
        words = (
            f"those of {plain_name(self.test)}"
            if self.test
            else f"{100 * self.share:.3g} % of all, chosen by a hash of their ids"
        )
        data = DataPass(rows, engine, stop.after_leaves(lambda *counts: None) if rows.replayable else None)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they were compared above
            try:
                return held_out_scores(model, data, words)
            except NoRowsError:
                return None


def usual_share(n_rows: int | None) -> float:
    """The share of the rows that are held out by default."""
    if n_rows is None:
        return _SHARE
    return min(_SHARE, _MAX_ROWS / n_rows) if n_rows * _SHARE >= _MIN_ROWS else 0.0
