"""The sites whose coresets were merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tithe.core.state_checks import Integer, Number, Storable, check_fields, expect


@dataclass(frozen=True, slots=True, kw_only=True)
class Site(Storable):
    """A place that shares no rows with others, whose coreset was merged with theirs (`tithe.merge_coresets`).

    Parameters
    ----------
    name : str
        The file of its coreset, or its number.
    n_seen, weight_seen : int, float
        Rows and weight that its coreset represents.
    n_kept : int
        Rows of its coreset before the merge.
    first_row : int
        What was added to its row ids, so that they differ from those of other sites.
    fingerprint : str
        A hash of its coreset, by which it is known if it is given again.
    """

    name: str
    n_seen: int
    weight_seen: float
    n_kept: int
    first_row: int
    fingerprint: str

    def _check_state(self) -> None:
        weight = Number(least=float(np.finfo(np.float64).tiny))
        check_fields(self, {"n_seen": Integer(least=1), "weight_seen": weight, "n_kept": Integer(least=1)})


def check_sites(sites: Sequence[Site], n_seen: int) -> None:
    """Raise `FileFormatError` unless the sites of a coreset from a file fit together and stand for ``n_seen`` rows."""
    if not sites:
        return
    first = [site.first_row for site in sites]
    expect(first[0] == 0 and sorted(set(first)) == first, "row ids of sites are not kept apart")
    expect(sum(site.n_seen for site in sites) == n_seen, "its sites have other rows than it stands for")
