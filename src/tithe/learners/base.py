"""What every learner on a coreset shares."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from tithe.build import reduce_source, resolve_size
from tithe.core.data import Array, Block, Coreset
from tithe.core.registry import make
from tithe.core.seeding import rng_for
from tithe.kernels.labels import encode_labels
from tithe.sources.arrays import ArraySource, as_block


class CoresetLearner:
    """Checking rows, reducing them, and remembering which were kept.

    Subclasses have the parameters ``coreset_size``, ``construction``, ``calibrate`` and ``engine``.
    """

    def _checked(self, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block:
        """A checked block; names and number of columns are noted (reset) or compared."""
        block = as_block(X, y, sample_weight)
        validate_data(self, X if hasattr(X, "shape") else block.X, reset=reset, skip_check_array=True)
        return block

    def _reduce(self, block: Block, objective: Any, seed: int, **other: Any) -> Coreset:
        """A coreset by the learner's options, or by others."""
        options = {"construction": self.construction, "calibrate": self.calibrate}  # type: ignore[attr-defined]
        return reduce_source(
            ArraySource(block),
            objective=objective,
            coreset_size=self._size(block),
            engine=self.engine,  # type: ignore[attr-defined]
            random_state=int(rng_for(seed, "reduce").integers(2**62)),
            **{**options, **other},
        )

    def _check_names(self) -> None:
        """Refuse unknown names at once, not only when there are rows enough to need them."""
        for kind, name in (("construction", self.construction), ("engine", self.engine)):  # type: ignore[attr-defined]
            if not (isinstance(name, str) and name == "auto"):
                make(kind, name)
        if not isinstance(self.calibrate, (bool, np.bool_)):  # type: ignore[attr-defined]
            raise ValueError(f"calibrate must be True or False, got {self.calibrate!r}.")  # type: ignore[attr-defined]

    def _size(self, block: Block) -> int:
        return resolve_size(self.coreset_size, len(block))  # type: ignore[attr-defined]

    @property
    def sample_indices_(self) -> Array:
        """Positions in the training data of the rows that were kept."""
        return self.coreset_.row_ids()  # type: ignore[attr-defined,no-any-return]


# rows kept by coreset_size="auto": at the least, for each column, and one in so many up to a limit
_LEAST, _PER_COLUMN, _ONE_IN, _MOST = 10_000, 20, 100, 50_000


def auto_size(n_rows: int, n_features: int) -> int:
    """Rows that ``coreset_size="auto"`` keeps for a linear model."""
    return max(_LEAST, _PER_COLUMN * (n_features + 1), min(n_rows // _ONE_IN, _MOST))


def encoded_classes(y: Array) -> tuple[Array, Array]:
    """The classes in y and the number of each row's class (n,) int32; what cannot be a class is refused."""
    if y.dtype.kind not in "biu":  # whole numbers need no second look, which would sort them
        check_classification_targets(y)
    return encode_labels(y)


def all_rows(block: Block, objective: str) -> Coreset:
    """A coreset that is the data itself: what small data gets."""
    keep = np.flatnonzero(block.weights() > 0)
    rows = block.take(keep, block.weights()[keep])
    return Coreset(
        X=rows.X,
        y=rows.y,
        sample_weight=rows.sample_weight,
        indices=rows.row_ids(),
        n_seen=len(block),
        weight_seen=block.total_weight,
        provenance={"objective": objective, "construction": "all", "calibrated": 0},
    )
