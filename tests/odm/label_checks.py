"""Whether labels obey all constraints, for tests."""

from __future__ import annotations

import numpy as np

from tithe.odm.solvers.labelings import Assignments, Labelings


def holds(allowed: Labelings | Assignments, labels: np.ndarray) -> bool:
    """Whether labels (n,), signs or class numbers, obey links, given labels and the bounds of the sizes."""
    if isinstance(allowed, Labelings):
        groups = allowed.groups
        first = np.zeros(allowed.n_groups)
        first[groups.group] = groups.sign * labels
        known = groups.fixed != 0.0
        tied = np.array_equal(groups.sign * first[groups.group], labels)
        return tied and bool((first[known] == groups.fixed[known]).all()) and allowed._balanced(first[allowed.free])
    chosen = np.zeros(allowed.n_groups, np.int64)
    chosen[allowed.group] = labels
    known = allowed.fixed >= 0
    tied = (chosen[allowed.group] == labels).all() and (chosen[known] == allowed.fixed[known]).all()
    return bool(tied) and allowed._holds(chosen)
