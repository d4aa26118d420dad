"""Coresets of the folds of a search, and the time that it took to build them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tithe.core.data import Coreset
from tithe.learners.search.folds import Fold
from tithe.learners.search.scoring import Scoring
from tithe.sources.arrays import plain_weights


class RecordedFolds:
    """Passes folds on, and records their coresets and the seconds spent on building them.

    Before the first fold, it warns if there are weights and the score takes none.
    """

    def __init__(self, folds: Iterator[Fold], scoring: Scoring, *, with_train_score: bool) -> None:
        self.coresets: list[Coreset] = []
        self.seconds = 0.0
        self._folds, self._scoring, self._with_train_score = folds, scoring, with_train_score

    def __iter__(self) -> Iterator[Fold]:
        while True:
            start = time.perf_counter()
            fold = next(self._folds, None)
            self.seconds += time.perf_counter() - start
            if fold is None:
                return
            if not self.coresets:
                train_weight = fold.coreset.sample_weight if self._with_train_score else None
                self._scoring.uses(fold.held_out.sample_weight, plain_weights(train_weight))
            self.coresets.append(fold.coreset)
            yield fold
