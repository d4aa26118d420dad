"""The target of supervised learners: classes and their numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor

from tithe.core.contracts import Objective, Source
from tithe.core.data import Array, Block
from tithe.core.labels import LabelledObjective, distinct_labels, refuse_gaps, unsortable
from tithe.core.labels import checked_classes as checked_classes
from tithe.core.labels import class_factors as class_factors
from tithe.core.labels import encoded_classes as encoded_classes
from tithe.core.labels import is_balanced as is_balanced
from tithe.core.labels import weights_by_class as weights_by_class
from tithe.core.passes import DataPass
from tithe.core.registry import make
from tithe.reduce.generic import GenericObjective
from tithe.rows.leaves import MappedSource

_MAX_LOGISTIC_CLASSES = 20  # a logistic regression of more takes long, and needs more rows


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodeLabels:
    """Replaces labels by class numbers, and multiplies weights by the ``factors`` of the classes."""

    classes: Array
    factors: Array | None = None

    def __call__(self, block: Block) -> Block:
        codes = LabelledObjective(classes=tuple(self.classes.tolist())).codes(block)
        if self.factors is None:
            return replace(block, y=codes)
        weight = self.factors[codes] if block.sample_weight is None else block.sample_weight * self.factors[codes]
        return replace(block, y=codes, sample_weight=weight, mean=None)


@dataclass(frozen=True, kw_only=True, eq=False)
class WeighClasses:
    """Multiplies the weights of rows by the ``factors`` of their classes; y keeps its labels."""

    classes: Array
    factors: Array

    def __call__(self, block: Block) -> Block:
        return replace(EncodeLabels(classes=self.classes, factors=self.factors)(block), y=block.y)


def weighted_by_class(source: Source, class_weight: Any, engine: Any) -> Source:
    """The source with weights times those of the classes, for estimators that know only weights of rows."""
    labels, numbered = with_class_numbers(DataPass(source, engine), classifier=True)
    assert labels is not None
    mass = class_masses(numbered, len(labels)) if is_balanced(class_weight) else None
    return MappedSource(source, WeighClasses(classes=labels, factors=class_factors(class_weight, labels, mass)))


def stream_classes(classes: Any, known: Array | None, *, first: bool) -> Array:
    """The classes of a stream: passed with the ``first`` batch or ``known`` from a fit. They must not change."""
    if classes is None:
        if known is None:
            raise ValueError("classes must be passed on the first call to partial_fit: all labels that will occur.")
        return known
    passed = np.unique(np.asarray(classes))
    if not first and known is not None and not np.array_equal(passed, known):
        raise ValueError(f"classes={classes!r} is not the same as on the first call to partial_fit.")
    return checked_classes(passed)


def finite_target(block: Block) -> Block:
    """Return the block. A y that is not finite is refused."""
    if block.y is not None:
        refuse_gaps(block.y.astype(np.float64, copy=False), block.row_ids())
    return block


def known_classes(data: DataPass) -> Array:
    """All labels of a source in ascending order.

    They come from the metadata of the source or from one pass over all rows. If the rows can be read only once, they
    are those of its first rows.
    """
    source = data.rows
    assert isinstance(source, Source)
    if not source.replayable:
        return _labels_in(source.sample(None, rng=np.random.default_rng(0)))
    classes = source.classes()
    if classes is None:
        of_leaves = np.concatenate(data.total(lambda leaf: [_labels_in(leaf)]))
        try:
            classes = np.unique(of_leaves)
        except TypeError as error:  # each leaf has one kind
            raise unsortable(of_leaves, None, error) from error
    return classes


def _labels_in(block: Block) -> Array:
    if block.y is None:
        raise ValueError("The source gives no y: name its column, target=...")
    try:
        return distinct_labels(block.y)
    except TypeError as error:
        raise unsortable(block.y, block.row_ids(), error) from error


def with_class_numbers(data: DataPass, *, classifier: bool) -> tuple[Array | None, DataPass]:
    """The labels (None for regression), and passes over the rows with class numbers in place of labels."""
    rows = data.rows
    if isinstance(rows, Block):
        if rows.y is None or not classifier:
            return None, data.over(finite_target(rows))
        labels, numbers = encoded_classes(rows.y)
        return labels, data.over(replace(rows, y=numbers))
    if not classifier:
        return None, data.over(MappedSource(rows, finite_target))
    labels = checked_classes(known_classes(data))
    return labels, data.over(MappedSource(rows, EncodeLabels(classes=labels)))


def batch_with_class_numbers(
    block: Block, classes: Any, known: Array | None, *, classifier: bool, first: bool
) -> tuple[Array | None, Block]:
    """The same for a batch of `partial_fit`. ``known`` are the labels of the batches before, or of a fit."""
    if not classifier:
        return None, finite_target(block)
    labels = stream_classes(classes, known, first=first)
    return labels, EncodeLabels(classes=labels)(block)


def has_target(rows: Block | Source) -> bool:
    """Whether rows come with a y. A row of a source is looked at."""
    return (rows if isinstance(rows, Block) else rows.sample(1, rng=np.random.default_rng(0))).y is not None


def class_masses(data: DataPass, n_classes: int) -> Array:
    """The weight of the rows of each class, y holding their numbers, in one pass: (n_classes,)."""

    def masses(leaf: Block) -> Array:
        assert leaf.y is not None
        return np.bincount(leaf.y, weights=leaf.weights(), minlength=n_classes)

    total: Array = data.total(masses)
    return total


def objective_for(objective: str | Objective, n_classes: int) -> Objective:
    """An objective, by name or as given, for a y of class numbers below ``n_classes``; 0 if y holds no classes."""
    if isinstance(objective, str) and objective == GenericObjective.name:
        return GenericObjective(n_classes=n_classes)
    made: Objective = make("objective", objective)
    if n_classes and isinstance(made, LabelledObjective):
        return replace(made, classes=tuple(range(n_classes)))
    return made


def usual_objective(estimator: Any, n_classes: int) -> str:
    """The name of the objective whose coresets serve an estimator best, as measured with boosted trees."""
    if is_classifier(estimator):
        return "logistic" if n_classes <= _MAX_LOGISTIC_CLASSES else GenericObjective.name
    return "least_squares" if is_regressor(estimator) else "generic"
