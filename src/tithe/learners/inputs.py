"""Checks of the rows that a learner is given: columns of a source, and rows that can be read only once."""

from __future__ import annotations

from typing import Any

import numpy as np

from tithe.certify import polish_rounds
from tithe.core.contracts import Source
from tithe.core.data import Block


def check_no_extra_arrays(source: Source, *arrays: Any) -> Source:
    """Return the source. Arrays beside it are refused, because y and weights come with its rows."""
    if any(array is not None for array in arrays):
        raise ValueError("y and weights come with the rows of a source: open_dataset(path, target=..., weight=...).")
    return source


def note_columns(learner: Any, source: Source, *, reset: bool) -> None:
    """Store (``reset``) or compare names and number of a source's columns, as `validate_data` does for arrays."""
    names = None if source.feature_names is None else np.asarray(source.feature_names, dtype=object)
    if reset:
        learner.n_features_in_ = source.n_features
        learner.__dict__.pop("feature_names_in_", None)
        if names is not None:
            learner.feature_names_in_ = names
    elif source.n_features != learner.n_features_in_:
        raise ValueError(
            f"X has {source.n_features} features, but {type(learner).__name__} is expecting "
            f"{learner.n_features_in_} features as input."
        )
    elif names is not None and not np.array_equal(names, getattr(learner, "feature_names_in_", names)):
        raise ValueError("The feature names should match those that were passed during fit: the source has others.")


def can_read_again(rows: Block | Source, polish: Any) -> bool:
    """Whether the rows can be read once more. If not, a ``polish`` that was asked for is refused."""
    if isinstance(rows, Block) or rows.replayable:
        return True
    refuse_polish(polish)
    return False


def refuse_polish(polish: Any) -> None:
    """Refuse ``polish`` for rows that can be read only once."""
    if not (isinstance(polish, str) and polish == "auto") and polish_rounds(polish)[0] > 0:
        raise ValueError(
            f"polish={polish} reads all rows again, and these can be read only once. Leave polish at 'auto', which "
            "then means none, or set it to 0."
        )
