"""Labelings: exact oracles against all labelings listed, and errors that name what cannot hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from label_checks import holds

from tithe.odm.solvers.labelings import Assignments, Balance, Labelings, checked_links, linked_groups

NONE = np.empty((0, 2), np.int64)


def _links(*pairs):
    return np.array(pairs, np.int64).reshape(-1, 2)


def _random_labelings(rng):
    """Random links, labels and counts that do not contradict each other, and what they mean for one y."""
    n = int(rng.integers(3, 9))
    truth = rng.choice([-1.0, 1.0], n)
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    pairs = pairs[rng.random(len(pairs)) < 0.15]
    same = truth[pairs[:, 0]] == truth[pairs[:, 1]]
    labels = np.where(rng.random(n) < 0.2, truth, 0.0)
    count = rng.integers(0, 4, n).astype(float) if rng.random() < 0.5 else np.ones(n)
    total = float(count @ truth)
    balance = Balance(count=count, least=total - rng.integers(0, 3), most=total + rng.integers(0, 3))

    def allowed(y):
        linked = (y[pairs[same]][:, 0] == y[pairs[same]][:, 1]).all() and (y[pairs[~same]].sum(axis=1) == 0).all()
        return linked and (y[labels != 0] == labels[labels != 0]).all() and balance.least <= count @ y <= balance.most

    return Labelings(linked_groups(pairs[same], pairs[~same], labels), balance), allowed, n


def test_the_best_labeling_is_that_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        labelings, allowed, n = _random_labelings(rng)
        every = [np.array(y) for y in itertools.product([-1.0, 1.0], repeat=n) if allowed(np.array(y))]
        assert len(every) == len(list(labelings.every()))
        assert all(holds(labelings, y) for y in every)
        c = rng.normal(size=n)
        best = labelings.best(c)
        assert allowed(best) and holds(labelings, best)
        assert c @ best == pytest.approx(max(c @ y for y in every), abs=1e-12)


def test_labelings_that_break_a_constraint_do_not_hold() -> None:
    labelings = Labelings(
        linked_groups(_links((0, 1)), _links((1, 2)), np.array([0, 0, 0, 1.0])), Balance.of_clusters(np.ones(4), 0.5)
    )
    assert holds(labelings, np.array([1.0, 1.0, -1.0, 1.0]))
    for y in ([1, -1, 1, 1], [1, 1, 1, 1], [1, 1, -1, -1], [-1, -1, 1, -1]):
        assert not holds(labelings, np.array(y, float))


def test_fractional_weights_are_balanced_and_nearly_best() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        n = 9
        weight, c = rng.uniform(0.5, 2.0, n), rng.normal(size=n) + 0.5
        balance = Balance.of_clusters(weight, 0.3)
        labelings = Labelings(linked_groups(NONE, NONE, np.zeros(n)), balance)
        best = labelings.best(c)
        assert abs(weight @ best) <= 0.3 * weight.sum() * (1 + 1e-9)
        largest = max(c @ y for y in labelings.every())
        assert largest - 2.0 * np.abs(c).max() <= c @ best <= largest + 1e-12


def test_an_odd_number_of_rows_may_differ_by_one() -> None:
    labelings = Labelings(linked_groups(NONE, NONE, np.zeros(5)), Balance.of_clusters(np.ones(5), 0.0))
    assert abs(labelings.best(np.ones(5)).sum()) == 1


def test_a_quadratic_function_of_labels_is_that_of_the_groups() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        labelings, _, n = _random_labelings(rng)
        H = rng.normal(size=(n, n))
        H = H @ H.T
        G, c, constant = labelings.contract(H)
        t = rng.choice([-1.0, 1.0], len(c))
        y = labelings.rows(t)
        assert y @ H @ y == pytest.approx(t @ G @ t + 2 * c @ t + constant)
        start = next(iter(labelings.every()))
        better = labelings.exchange(H, start)
        assert holds(labelings, better) and better @ H @ better >= start @ H @ start - 1e-9


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(0, 0)], "links row 0 with itself"),
        ([(0, 5)], "names row 5, but rows are numbered from 0 to 4"),
        ([(-1, 2)], "names row -1"),
        ([(1, 2), (2, 1)], r"holds the pair \(1, 2\) twice"),
        ([0, 1, 2], "pairs of row numbers"),
        ([(0.0, 1.0)], "whole numbers"),
    ],
)
def test_bad_links_are_refused(pairs, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_links(pairs, 5, "must_link")


def test_a_contradiction_names_its_cycle() -> None:
    with pytest.raises(
        ValueError, match=r"along the rows (4 - 0|0 - 1|1 - 2|2 - 4|0 - 4|4 - 2|2 - 1|1 - 0) - "
    ) as error:
        linked_groups(_links((0, 1), (1, 2), (2, 4)), _links((4, 0), (3, 0)), np.zeros(5))
    rows = [int(row) for row in str(error.value).split("along the rows ")[1].split(".")[0].split(" - ")]
    assert rows[0] == rows[-1] and set(rows) == {0, 1, 2, 4}
    with pytest.raises(ValueError, match="labels of rows 0 and 2 contradict the links along the rows 0 - 1 - 2"):
        linked_groups(_links((0, 1), (1, 2)), NONE, np.array([1.0, 0.0, -1.0]))


def test_an_impossible_balance_names_the_counts() -> None:
    tied = linked_groups(_links(*((0, k) for k in range(1, 9))), NONE, np.zeros(10))
    with pytest.raises(ValueError, match=r"10 together, may differ by -3 to 3.* differ by at least 8"):
        Labelings(tied, Balance.of_clusters(np.ones(10), 0.3))


def test_assignments_of_more_classes_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(3)
    for _ in range(15):
        n, k = 6, 3
        labels = np.array([1, -1, -1, -1, -1, -1])
        assignments = Assignments(
            k,
            must_link=_links((1, 2)),
            cannot_link=_links((2, 3), (3, 4)),
            labels=labels,
            count=np.ones(n),
            least=np.ones(k),
            most=np.full(k, 3.0),
        )
        cost = rng.normal(size=(n, k))
        every = [np.array(y) for y in itertools.product(range(k), repeat=n)]
        allowed = [
            y
            for y in every
            if y[0] == 1 and y[1] == y[2] and y[2] != y[3] and y[3] != y[4] and np.bincount(y, minlength=k).min() >= 1
            and np.bincount(y).max() <= 3
        ]  # fmt: skip
        assert len(allowed) == sum(holds(assignments, y) for y in every)
        best = assignments.cheapest(cost)
        smallest = min(cost[np.arange(n), y].sum() for y in allowed)
        assert cost[np.arange(n), best].sum() == pytest.approx(smallest)


def test_impossible_assignments_are_refused() -> None:
    def make(must, cannot, labels=(-1, -1, -1, -1), least=1.0):
        return Assignments(
            3,
            must_link=must,
            cannot_link=cannot,
            labels=np.array(labels),
            count=np.ones(4),
            least=np.full(3, least),
            most=np.full(3, 4.0),
        )

    with pytest.raises(ValueError, match=r"contradict each other.*rows"):
        make(_links((0, 1), (1, 2)), _links((0, 2)))
    with pytest.raises(ValueError, match="rows 0 and 2, whose labels differ"):
        make(_links((0, 1), (1, 2)), NONE, labels=(0, -1, 1, -1))
    with pytest.raises(ValueError, match="6 pairs in cannot_link"):
        make(NONE, _links(*itertools.combinations(range(4), 2))).cheapest(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="3 clusters of 2"):
        make(NONE, NONE, least=2.0).cheapest(np.zeros((4, 3)))
