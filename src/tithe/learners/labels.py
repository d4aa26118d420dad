"""The target of supervised learners: classes and their numbers, for rows at hand and rows of a source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tithe.core.data import Array, Block
from tithe.core.passes import DataPass
from tithe.kernels.labels import distinct_labels
from tithe.objectives.labels import LabelledObjective


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodeLabels:
    """Class numbers in place of labels, and the weights of classes in the weights of rows."""

    classes: Array
    factors: Array | None = None

    def __call__(self, block: Block) -> Block:
        codes = LabelledObjective(classes=tuple(self.classes.tolist())).codes(block)
        if self.factors is None:
            return replace(block, y=codes)
        weight = self.factors[codes] if block.sample_weight is None else block.sample_weight * self.factors[codes]
        return replace(block, y=codes, sample_weight=weight, mean=None)


def finite_target(block: Block) -> Block:
    """The block itself; a y that is not finite is refused."""
    if block.y is not None and not np.isfinite(block.y.astype(np.float64)).all():
        raise ValueError("Input y contains NaN or infinity.")
    return block


def known_classes(source: Any, engine: Any) -> Array:
    """All labels of a source in ascending order.

    What the source itself knows, or one look at all rows; those of its first rows where they come only once.
    """
    try:
        if source.replayable:
            if callable(getattr(source, "classes", None)):
                return np.asarray(source.classes())
            return np.unique(
                np.concatenate(DataPass(source, engine).total(lambda leaf: [distinct_labels(_target(leaf))]))
            )
        return distinct_labels(_target(source.sample(None, rng=np.random.default_rng(0))))
    except TypeError as error:
        raise ValueError(f"y holds labels of different kinds, or gaps, which cannot be sorted: {error}.") from error


def _target(block: Block) -> Array:
    if block.y is None:
        raise ValueError("The source gives no y: name its target, for example open_source(path, target=...).")
    return block.y


def class_masses(source: Any, n_classes: int, engine: Any) -> Array:
    """The weight of the rows of each class, y holding their numbers, in one look: (n_classes,)."""

    def masses(leaf: Block) -> Array:
        assert leaf.y is not None
        return np.bincount(leaf.y, weights=leaf.weights(), minlength=n_classes)

    found: Array = DataPass(source, engine).total(masses)
    return found
