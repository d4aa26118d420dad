"""More than two clusters or classes: the cheapest assignment that obeys links, given labels and bounds on sizes."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from tithe.core.data import Array
from tithe.odm.solvers.labelings import linked_groups

_MAX_SECONDS = 60.0  # of one integer program; the best assignment so far is taken then


class Assignments:
    """Labels 0 to k - 1 of n rows that obey links, given labels, and bounds on the sizes of the classes.

    Parameters
    ----------
    n_classes : int
    must_link, cannot_link : (p, 2)
    labels : (n,)
        -1 where the label is not known.
    count : (n,)
        What a row counts for in the sizes: its weight, or 0.
    least, most : (k,)
    """

    def __init__(
        self,
        n_classes: int,
        *,
        must_link: Array,
        cannot_link: Array,
        labels: Array,
        count: Array,
        least: Array,
        most: Array,
    ) -> None:
        self.n_classes = n_classes
        groups = linked_groups(must_link, np.empty((0, 2), np.int64), np.zeros(len(labels)))
        self.group, self.n_groups = groups.group, len(groups.fixed)
        self.fixed = np.full(self.n_groups, -1)
        for row in np.flatnonzero(labels >= 0):
            known = self.fixed[self.group[row]]
            if known not in (-1, labels[row]):
                other = np.flatnonzero((self.group == self.group[row]) & (labels == known))[0]
                raise ValueError(
                    f"must_link ties rows {other} and {row}, whose labels differ. Remove a link or a label."
                )
            self.fixed[self.group[row]] = labels[row]
        self.apart = self.group[cannot_link]
        together = np.flatnonzero(self.apart[:, 0] == self.apart[:, 1])
        if len(together):
            # the same links as an equation of signs name the rows along the cycle
            linked_groups(must_link, cannot_link[together], np.zeros(len(labels)))
        self.size = np.bincount(self.group, weights=count, minlength=self.n_groups)
        slack = 1e-9 * float(self.size.sum())
        self.least, self.most = least - slack, most + slack

    def holds(self, labels: Array) -> bool:
        """Whether labels (n,) obey all constraints."""
        chosen = np.zeros(self.n_groups, np.int64)
        chosen[self.group] = labels
        known = self.fixed >= 0
        tied = (chosen[self.group] == labels).all() and (chosen[known] == self.fixed[known]).all()
        return bool(tied) and self._holds(chosen)

    def _holds(self, chosen: Array) -> bool:
        sizes = np.bincount(chosen, weights=self.size, minlength=self.n_classes)
        sized = bool((sizes >= self.least).all() and (sizes <= self.most).all())
        return sized and not (chosen[self.apart[:, 0]] == chosen[self.apart[:, 1]]).any()

    def best(self, cost: Array) -> Array:
        """Labels with the smallest sum of ``cost`` (n, k)."""
        total = np.column_stack([np.bincount(self.group, weights=column, minlength=self.n_groups) for column in cost.T])
        chosen = np.where(self.fixed >= 0, self.fixed, total.argmin(axis=1))
        if not self._holds(chosen):
            chosen = self._program(total)
        labels: Array = chosen[self.group]
        return labels

    def _program(self, total: Array) -> Array:
        """The integer program: x[g, l] = 1 if group g has label l."""
        g, k = total.shape
        one_each = sparse.kron(sparse.eye_array(g), np.ones((1, k)), format="csr")
        sizes = sparse.kron(self.size[None], sparse.eye_array(k), format="csr")
        constraints = [LinearConstraint(one_each, 1, 1), LinearConstraint(sizes, self.least, self.most)]
        if len(self.apart):
            pair, count = np.arange(len(self.apart)), len(self.apart)
            both = sparse.csr_array((np.ones(2 * count), (np.tile(pair, 2), self.apart.T.ravel())), shape=(count, g))
            constraints.append(LinearConstraint(sparse.kron(both, sparse.eye_array(k), format="csr"), 0, 1))
        lower, upper = np.zeros((g, k)), np.ones((g, k))
        known = np.flatnonzero(self.fixed >= 0)
        upper[known] = 0.0
        lower[known, self.fixed[known]] = upper[known, self.fixed[known]] = 1.0
        scale = float(np.abs(total).max()) or 1.0
        solution = milp(
            (total / scale).ravel(),
            integrality=np.ones(g * k),
            bounds=Bounds(lower.ravel(), upper.ravel()),
            constraints=constraints,
            options={"time_limit": _MAX_SECONDS},
        )
        chosen = None if solution.x is None else solution.x.reshape(g, k).argmax(axis=1)
        if chosen is None or not self._holds(chosen):
            raise ValueError(
                f"No labels obey the constraints: {len(self.apart)} pairs in cannot_link, {g} groups of rows tied by "
                f"must_link with up to {self.size.max():g} rows each, and {k} clusters of "
                f"{max(self.least.min(), 0.0):g} to {self.most.max():g} rows each. Allow more different sizes, or "
                "remove links."
            )
        return np.asarray(chosen)
