"""What reports of dictionaries hold besides: how well rows that were not learned from are coded."""

from __future__ import annotations

from typing import Any

from tithe.core.passes import DataPass
from tithe.report.run import LearnerReport
from tithe.report.scores import HeldOut


class DictionaryReport(LearnerReport):
    """The mean squared error of rows held out, in place of the scores of a classifier or a regressor."""

    def held_out(self, model: Any, data: DataPass, rows: str) -> HeldOut | None:
        certificate = model.certify(data.rows)
        scores = {"mse": certificate.value, "training_mse": model.summary()["mean_squared_error"]}
        return HeldOut(rows=rows, n_rows=certificate.n_rows, scores=scores)
