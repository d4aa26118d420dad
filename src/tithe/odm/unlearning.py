"""Certificates of forgotten rows: that a model is the one which was never given them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tithe.core.state_checks import Each, Integer, Number, Storable

_MAX_IDS = 10  # ids that a sentence names


@dataclass(frozen=True, kw_only=True)
class Unlearning(Storable):
    """What is proved of a model from which rows were removed.

    Parameters
    ----------
    row_ids : tuple of int
        The rows that were forgotten, since the first fit and in this order. Rows that came back are not among them.
    n_rows : int
        Rows that the model holds.
    gap : float
        Upper bound of the objective, on the rows held, minus its minimum; rounding included.
    tolerance : float
        A decision value differs at most by this from that of the model trained without the forgotten rows: the root of
        2 ``gap`` k(x, x), with the largest k(x, x) of the rows held, and of any row if ``for_all_rows``.
    for_all_rows : bool
        Whether k(x, x) is the same for all x, as for the Gaussian kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.odm import IncrementalODMClassifier
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> machine = IncrementalODMClassifier().partial_fit(X, X[:, 0] > 0)
    >>> machine.forget([7, 12]).unlearning_.row_ids
    (7, 12)
    >>> machine.unlearning_.tolerance < 1e-3
    True
    """

    row_ids: Annotated[tuple[int, ...], Each(Integer(), least=1)]
    n_rows: int
    gap: Annotated[float, Number(least=0.0)]
    tolerance: Annotated[float, Number(least=0.0)]
    for_all_rows: bool

    def __str__(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        """The certificate in words."""
        n = len(self.row_ids)
        named = ", ".join(map(str, self.row_ids[:_MAX_IDS])) + (", ..." if n > _MAX_IDS else "")
        which = f"The row with id {named} was" if n == 1 else f"The {n} rows with ids {named} were"
        where = "No decision value" + ("" if self.for_all_rows else " of a row within the range of those held")
        return (
            f"{which} forgotten: this is the model that training on the other {self.n_rows} rows alone gives. {where} "
            f"differs from that model's by more than {self.tolerance:.1e}, which is proved by a duality gap of "
            f"{self.gap:.1e}, rounding included. The model, and every file saved from it from now on, holds neither "
            "the values of these rows nor their labels or weights; their ids are kept to say so. What was fixed with "
            "the first batch stays as it was: the width of the kernel unless it was given as a number, the cost of a "
            "row, and how columns became numbers. Files and copies made earlier are not covered: delete them."
        )
