"""Bounds on the sensitivities of a sample of the rows, which a regression learns from, and of new rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from tithe.constructions.cablr import find_radius
from tithe.core.contracts import BoundedObjective, ClusterBoundedObjective, ClusterSet, SensitivityObjective
from tithe.core.data import Array, Block, Rng, Scores
from tithe.core.state_checks import Integer, Number, Storable, check_fields, expect
from tithe.kernels.sampling import sample_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleBound(Storable, ABC):
    """What the bounds of new rows need of a sample of ``size`` rows and total weight ``weight``."""

    size: int
    weight: float

    def _check_state(self) -> None:
        check_fields(self, {"size": Integer(least=1), "weight": Number(least=0.0)})

    def of_new(self, block: Block, objective: Any) -> Array:
        """m of rows that were not in the sample, as if each were one more row of mean weight: (n,)."""
        # the mean weight is also that of a sample without weights, where it is 1
        rows = Block(X=block.X, y=block.y, sample_weight=np.full(len(block), self.weight / self.size))
        return self._bounds(rows, objective) * self.size

    @property
    def notes(self) -> dict[str, str | int | float]:
        """What a coreset says about the bounds in its provenance."""
        return {}

    @abstractmethod
    def _bounds(self, rows: Block, objective: Any) -> Array:
        """s of rows that have weights: (n,)."""

    @abstractmethod
    def check_columns(self, n_features: int, objective: Any) -> None:
        """Raise ValueError if a state from a file does not fit rows of ``n_features`` columns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterSampleBound(SampleBound):
    """Clusters with the exact means of the sample, and the radius within which their bound holds."""

    clusters: ClusterSet
    radius: float

    def _check_state(self) -> None:
        super()._check_state()
        check_fields(self, {"radius": Number(least=0.0)})

    @property
    def notes(self) -> dict[str, str | int | float]:
        return {"radius": self.radius}

    def _bounds(self, rows: Block, objective: ClusterBoundedObjective) -> Array:
        return objective.bound_of_new(rows, self.clusters, radius=self.radius)

    def check_columns(self, n_features: int, objective: ClusterBoundedObjective) -> None:
        self.clusters.check_columns(n_features, objective.n_classes)


@dataclass(frozen=True, kw_only=True, eq=False)
class PilotSampleBound(SampleBound):
    """The pilot that rows are scored at, and what the sample adds up to there."""

    pilot: Array
    totals: Array

    def _bounds(self, rows: Block, objective: SensitivityObjective) -> Array:
        survey = objective.survey(rows, self.pilot)
        return _values(objective.sensitivity_of_new(rows, survey, self.totals))

    def check_columns(self, n_features: int, objective: SensitivityObjective) -> None:
        label = None if objective.classes is None else np.array(objective.classes)[:1]
        row = Block(X=np.zeros((1, n_features)), y=label, sample_weight=np.ones(1))
        objective.check_pilot(self.pilot, None, row)
        bound = self._bounds(row, objective)
        expect(np.isfinite(bound).all(), "totals of a sample do not fit its pilot")


def bound_sample(
    block: Block,
    sample: Block,
    objective: BoundedObjective,
    *,
    n_clusters: int,
    radius: float | str,
    certified: bool,
    rng: Rng,
) -> tuple[Array, SampleBound]:
    """m of the rows of a sample of the block (n,), all of positive weight, and what the bounds of new rows need."""
    about: dict[str, Any] = {"size": len(sample), "weight": sample.total_weight}
    known: SampleBound
    if isinstance(objective, ClusterBoundedObjective):
        clustered = sample_rows(sample, 1000 * n_clusters, rng)
        clusters = objective.clusters(clustered, n_clusters, rng=rng)
        limit = find_radius(radius, block, clustered, clusters, objective, rng)
        bound = objective.cluster_bound(sample, clusters, radius=limit, certified=certified)
        known = ClusterSampleBound(clusters=objective.exact_clusters(sample, clusters), radius=limit, **about)
    else:
        assert isinstance(objective, SensitivityObjective)
        pilot = objective.pilot(block, rng=rng)
        survey = objective.survey(sample, pilot)
        bound = _values(objective.sensitivity(sample, survey))
        known = PilotSampleBound(pilot=pilot, totals=objective.sensitivity_totals(sample, survey), **about)
    # per unit of weight, and free of its scale: b s for rows of equal weight
    return bound * (sample.total_weight / sample.weights()), known


def _values(scores: Scores | Array) -> Array:
    return scores.at() if isinstance(scores, Scores) else scores
