"""Labelings of rows that obey links, given labels and a balance, and the best of them for a linear function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse.csgraph import breadth_first_order, connected_components

from tithe.core.data import Array
from tithe.odm.kernels.signs import exchange_signs

MAX_LISTED_GROUPS = 16  # free groups up to which all labelings are listed
_GRID = 1 << 14  # parts into which fractional weights are rounded where only a search over sums can be feasible
_MAX_EXCHANGES = 5  # changes of one or two groups, for each group
_MAX_EXCHANGED = 100  # groups that may be changed two at a time


def checked_links(pairs: Any, n_rows: int, name: str) -> Array:
    """Pairs of row numbers (p, 2). Links of a row with itself, rows out of range and pairs named twice are refused."""
    links = np.asarray([] if pairs is None else pairs)
    if links.size == 0:
        return np.empty((0, 2), np.int64)
    if links.ndim != 2 or links.shape[1] != 2:
        raise ValueError(
            f"{name} must be pairs of row numbers, an array of shape (p, 2), got one of shape {links.shape}."
        )
    if links.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold row numbers, which are whole numbers, got {links.dtype}.")
    links = links.astype(np.int64)
    outside = (links < 0) | (links >= n_rows)
    if outside.any():
        raise ValueError(f"{name} names row {links[outside][0]}, but rows are numbered from 0 to {n_rows - 1}.")
    itself = links[:, 0] == links[:, 1]
    if itself.any():
        raise ValueError(f"{name} links row {links[itself][0, 0]} with itself.")
    ordered, counts = np.unique(np.sort(links, axis=1), axis=0, return_counts=True)
    if (counts > 1).any():
        first, second = ordered[counts > 1][0].tolist()
        raise ValueError(f"{name} holds the pair ({first}, {second}) twice. Name every pair once.")
    return links


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Rows that are tied to each other: y_i = sign_i t_g, t_g in {-1, 1} unknown or ``fixed`` for each group g."""

    group: Array
    sign: Array
    fixed: Array


def linked_groups(must_link: Array, cannot_link: Array, labels: Array) -> Groups:
    """The groups of rows tied by links; ``labels`` (n,) hold 1, -1, or 0 if unknown. Contradictions are refused."""
    n, graph = len(labels), _signed_links(must_link, cannot_link, len(labels))
    component = connected_components(graph, directed=False)[1]
    torn = np.flatnonzero(component[:n] == component[n:])
    if len(torn):
        cycle = _path(graph, torn[0], torn[0] + n)
        while len(cycle) > 3 and cycle[1] == cycle[-2]:  # the way to the cycle and back
            cycle = cycle[1:-1]
        raise ValueError(
            "must_link and cannot_link contradict each other: no labels obey the links along the rows "
            f"{' - '.join(map(str, cycle))}. Remove one of them."
        )
    _, first, number = np.unique(np.minimum(component[:n], component[n:]), return_index=True, return_inverse=True)
    leaders = np.sort(first)
    group = np.searchsorted(leaders, first[number])
    sign = np.where(component[:n] == component[leaders][group], 1.0, -1.0)
    fixed, labelled = np.zeros(len(leaders)), np.flatnonzero(labels)
    fixed[group[labelled]] = (labels * sign)[labelled]
    wrong = labelled[(labels * sign)[labelled] != fixed[group[labelled]]]
    if len(wrong):
        tied = labelled[group[labelled] == group[wrong[0]]]
        other = tied[(labels * sign)[tied] != (labels * sign)[wrong[0]]][0]
        path = _path(graph, wrong[0], other if sign[wrong[0]] == sign[other] else other + n)
        raise ValueError(
            f"The labels of rows {wrong[0]} and {other} contradict the links along the rows "
            f"{' - '.join(map(str, path))}. Remove a link or a label."
        )
    return Groups(group=group, sign=sign, fixed=fixed)


def _signed_links(must_link: Array, cannot_link: Array, n_rows: int) -> Any:
    """A graph (2 n, 2 n) of statements: node i is y_i = 1, node n + i is y_i = -1, and links join equivalent ones."""
    same, apart = must_link.T, cannot_link.T
    first = np.concatenate([same[0], same[0] + n_rows, apart[0], apart[0] + n_rows])
    second = np.concatenate([same[1], same[1] + n_rows, apart[1] + n_rows, apart[1]])
    return sparse.csr_array((np.ones(len(first)), (first, second)), shape=(2 * n_rows, 2 * n_rows))


def _path(graph: Any, first: int, last: int) -> list[int]:
    """The rows on a shortest way between two statements."""
    before = breadth_first_order(graph, last, directed=False)[1]
    path = [first]
    while path[-1] != last:
        path.append(before[path[-1]])
    return [int(node) % (graph.shape[0] // 2) for node in path]


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Bounds of sum_i count_i y_i. Rows that are not counted, such as labelled ones, have a count of 0."""

    count: Array
    least: float
    most: float

    @classmethod
    def of_clusters(cls, weight: Array, share: float) -> Balance:
        """|sum_i s_i y_i| <= share W; where an odd total allows no less, 1 is allowed."""
        most = share * float(weight.sum())
        if _whole(weight):
            most = max(float(np.floor(most * (1.0 + 1e-12))), float(weight.sum()) % 2.0)
        return cls(count=weight, least=-most, most=most)


def _whole(values: Array) -> bool:
    return bool((values == np.round(values)).all()) and float(np.abs(values).sum()) < 2.0**31


class Labelings:
    """The set of all y in {-1, 1}^n that obey links, given labels, and the bounds of a balance if there is one."""

    def __init__(self, groups: Groups, balance: Balance | None) -> None:
        self.groups = groups
        self.balance = balance = balance or Balance(count=np.zeros(len(groups.group)), least=0.0, most=0.0)
        self.n_groups = len(groups.fixed)
        self.free = np.flatnonzero(groups.fixed == 0.0)
        size = self._sums(balance.count)
        offset = float(size @ groups.fixed)
        self._size = size[self.free]
        # sums of fractional weights are not exact
        slack = 0.0 if _whole(balance.count) else 1e-9 * float(np.abs(balance.count).sum())
        self._least, self._most = balance.least - offset - slack, balance.most - offset + slack
        self._whole = _whole(self._size)
        self.best(np.zeros(len(groups.group)))  # raises where no labeling is balanced

    def _sums(self, values: Array) -> Array:
        """Sums of sign_i values_i over each group."""
        return np.bincount(self.groups.group, weights=self.groups.sign * values, minlength=self.n_groups)

    def rows(self, t: Array) -> Array:
        """The labels (n,) for unknowns t of the free groups."""
        every = self.groups.fixed.copy()
        every[self.free] = t
        return np.asarray(self.groups.sign * every[self.groups.group])

    def _balanced(self, t: Array) -> bool:
        return self._least <= float(self._size @ t) <= self._most

    def cheapest(self, losses: Array) -> Array:
        """Class numbers (n,) with the smallest sum of ``losses`` (n, 2)."""
        return (self.best(losses[:, 0] - losses[:, 1]) > 0.0).astype(np.int64)

    def best(self, c: Array) -> Array:
        """A labeling with the largest c . y: exact where counts of the balance are whole, else within one group."""
        gain = self._sums(c)[self.free]
        t = np.where(gain >= 0.0, 1.0, -1.0)
        return self.rows(t if self._balanced(t) else self._balanced_best(gain, t))

    def _balanced_best(self, gain: Array, t: Array) -> Array:
        total = float(self._size @ t)
        direction = -1.0 if total > self._most else 1.0
        bound = self._most if direction < 0.0 else self._least
        movable = np.flatnonzero(direction * self._size * t < 0.0)
        loss, step = np.abs(gain[movable]), 2.0 * np.abs(self._size[movable])
        order = np.argsort(loss / step, kind="stable")
        reached = total + direction * np.cumsum(step[order])
        enough = np.flatnonzero(direction * (reached - bound) >= 0.0)
        if len(enough):
            flips = order[: enough[0] + 1]
            same_size = float(step.max(initial=0.0)) == float(step.min(initial=np.inf))
            result = t.copy()
            result[movable[flips]] *= -1.0
            # the bound is reached exactly, or all steps are equal: no other choice loses less
            if self._balanced(result) and (not self._whole or same_size or reached[enough[0]] == bound):
                return result
        return self._search_sums(gain)

    def _search_sums(self, gain: Array) -> Array:
        """The best t by dynamic programming over the sums that groups can reach, group by group."""
        if self._whole:
            size = self._size.astype(np.int64)
        else:
            size = np.round(self._size * (_GRID / np.abs(self._size).sum())).astype(np.int64)
        turn = np.where(size < 0, -1.0, 1.0)
        size, gain = np.abs(size), gain * turn
        last = int(size.sum())
        values = np.full(2 * last + 1, -np.inf)  # the largest gain of the groups so far for each sum from -last to last
        values[last] = 0.0
        chosen = np.empty((len(size), len(values)), bool)
        for k, (b, g) in enumerate(zip(size.tolist(), gain.tolist(), strict=True)):
            plus, minus = np.full(len(values), -np.inf), np.full(len(values), -np.inf)
            plus[b:] = values[: len(values) - b] + g
            minus[: len(values) - b] = values[b:] - g
            chosen[k] = plus >= minus
            values = np.where(chosen[k], plus, minus)
        scale = 1.0 if self._whole else _GRID / np.abs(self._size).sum()
        sums = np.arange(-last, last + 1)
        allowed = (sums >= np.ceil(scale * self._least)) & (sums <= np.floor(scale * self._most)) & np.isfinite(values)
        if not allowed.any():
            raise self._infeasible(sums[np.isfinite(values)] / scale)
        t, at = np.empty(len(size)), int(np.where(allowed, values, -np.inf).argmax())
        for k in range(len(size) - 1, -1, -1):
            t[k] = 1.0 if chosen[k, at] else -1.0
            at -= int(t[k]) * int(size[k])
        t *= turn
        if not self._balanced(t):
            raise self._infeasible(np.array([float(self._size @ t)]))
        return t

    def _infeasible(self, reached: Array) -> ValueError:
        total = float(self.balance.count.sum())
        offset = self.balance.most - self._most
        nearest = float(np.abs(np.asarray(reached) + offset).min())
        return ValueError(
            f"No labels obey the balance: the sizes of the two clusters, {total:g} together, may differ by "
            f"{self.balance.least:g} to {self.balance.most:g}, and links and labels tie rows so that they differ by at "
            f"least {nearest:g}. Allow a larger difference, or remove links."
        )

    def contract(self, H: Array) -> tuple[Array, Array, float]:
        """y^T H y as t^T G t + 2 c . t + constant in the unknowns t of the free groups: (G, c, constant)."""
        groups = self.groups
        members = sparse.csr_array((groups.sign, (groups.group, np.arange(len(H)))), shape=(self.n_groups, len(H)))
        G = members @ (members @ H).T
        fixed = G @ groups.fixed
        return G[np.ix_(self.free, self.free)], fixed[self.free], float(groups.fixed @ fixed)

    def centred_sizes(self) -> tuple[Array, float]:
        """The balance as |a . (t, 1)| <= h for the unknowns t of the free groups: (a, h)."""
        return np.append(self._size, -0.5 * (self._least + self._most)), 0.5 * (self._most - self._least)

    def exchange(self, H: Array, y: Array) -> Array:
        """y after changes of one group, or of two, as long as one of them makes y^T H y larger."""
        G, c, _ = self.contract(H)
        t = np.zeros(self.n_groups)
        t[self.groups.group] = self.groups.sign * y
        t = t[self.free]
        if len(t):
            smallest = 1e-12 * float(np.abs(G).sum())
            n_moves = _MAX_EXCHANGES * len(t)
            exchange_signs(G, c, t, self._size, self._least, self._most, _MAX_EXCHANGED, n_moves, smallest)
        return self.rows(t)

    def every(self) -> Iterator[Array]:
        """All labelings, for few free groups."""
        k = len(self.free)
        for number in range(1 << k):
            t = np.where((number >> np.arange(k)) & 1, 1.0, -1.0)
            if self._balanced(t):
                yield self.rows(t)


_MAX_SECONDS = 60.0  # of one integer program; the best assignment so far is taken then


class Assignments:
    """Labels 0 to k - 1 of n rows that obey links (p, 2), given labels, and bounds on the sizes of the classes.

    ``labels`` (n,) are -1 where they are not known. A row adds its ``count`` (n,), its weight or 0, to the size of its
    class, and sizes lie between ``least`` (k,) and ``most`` (k,).
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

    def _holds(self, chosen: Array) -> bool:
        sizes = np.bincount(chosen, weights=self.size, minlength=self.n_classes)
        sized = bool((sizes >= self.least).all() and (sizes <= self.most).all())
        return sized and not (chosen[self.apart[:, 0]] == chosen[self.apart[:, 1]]).any()

    def cheapest(self, losses: Array) -> Array:
        """Labels (n,) with the smallest sum of ``losses`` (n, k)."""
        total = np.column_stack(
            [np.bincount(self.group, weights=column, minlength=self.n_groups) for column in losses.T]
        )
        chosen = np.where(self.fixed >= 0, self.fixed, total.argmin(axis=1))
        if not self._holds(chosen):
            chosen = self._program(total)
        return np.asarray(chosen[self.group])

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
