"""Is a draw by priority the same for any partitions? Rows, weights and totals, for several cuts and orders.

python benchmarks/priority.py [--rows 120000] [--size 1000]

Each row has a score s at a pilot and a number u in (0, 1) that is a hash of its id. The rows with the largest s / u are
kept, with weights max(1, tau / s), tau the largest s / u that is left out (Duffield, Lund and Thorup, 2007). Partitions
are drawn from one by one and merged by taking the largest again. Compared are the ids of the rows, their weights
before calibration, and the totals that they would be calibrated to, with those of one partition. The last line takes
the pilot from another sample of the same rows, as another cut of a table into partitions would.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from common import save, show
from tithe import Block
from tithe.objectives import KMeansObjective, LogisticObjective

SAMPLE_ROWS = 5000


def hashed(ids: np.ndarray) -> np.ndarray:
    """A number in (0, 1) for each id (the finaliser of splitmix64)."""
    z = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


class Draw:
    """Scores at a pilot, with the cost of all rows as a sample tells it."""

    def __init__(self, objective: Any, sample: Block, n_rows: int, size: int) -> None:
        self._objective, self._n_rows, self._size = objective, n_rows, size
        self._pilot = objective.pilot(sample, rng=np.random.default_rng(1))
        self._cost = objective.cost(sample, self._pilot).sum() * n_rows / len(sample)

    def of(self, parts: list[Block]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids in ascending order, weights and totals."""
        ids, scores, priorities = np.empty(0, np.int64), np.empty(0), np.empty(0)
        totals: Any = 0.0
        for part in parts:
            totals = totals + self._objective.survey(part, self._pilot).totals
            score = self._objective.cost(part, self._pilot) / self._cost + 1.0 / self._n_rows
            ids = np.concatenate([ids, part.row_ids()])
            scores = np.concatenate([scores, score])
            priorities = np.concatenate([priorities, score / hashed(part.row_ids())])
            largest = np.lexsort((ids, -priorities))[: self._size + 1]
            ids, scores, priorities = ids[largest], scores[largest], priorities[largest]
        order = np.argsort(ids[: self._size])
        return ids[order], np.maximum(1.0, priorities[self._size] / scores[order]), totals


def compared(objective: Any, dtype: Any, n_rows: int, size: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n_rows, 6)) + 4 * rng.integers(0, 5, size=(n_rows, 1))).astype(dtype)
    y = (X[:, 0] + rng.logistic(size=n_rows) > 8).astype(np.int32)

    def block(ids: np.ndarray) -> Block:
        return Block(X=np.ascontiguousarray(X[ids]), y=y[ids], indices=ids)

    def draw(seed: int) -> Draw:
        sample = block(np.sort(np.random.default_rng(seed).choice(n_rows, SAMPLE_ROWS, replace=False)))
        return Draw(objective, sample, n_rows, size)

    in_order, shuffled = np.arange(n_rows), rng.permutation(n_rows)
    expected = draw(2).of([block(in_order)])
    cases = {
        "7 partitions": (2, in_order, 7),
        "64 partitions": (2, in_order, 64),
        "16 partitions, shuffled": (2, shuffled, 16),
        "pilot of another sample": (3, in_order, 1),
    }
    results = []
    for name, (seed, order, n_parts) in cases.items():
        ids, weights, totals = draw(seed).of([block(part) for part in np.array_split(order, n_parts)])
        results.append(
            {
                "case": f"{objective.name}, {np.dtype(dtype).name}, {name}",
                "rows in common": len(np.intersect1d(ids, expected[0])) / size,
                "same weights": bool(np.array_equal(weights, expected[1])),
                "same totals": bool(np.array_equal(totals, expected[2])),
                "totals, relative": float(np.abs(totals - expected[2]).max() / np.abs(expected[2]).max()),
            }
        )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--size", type=int, default=1000)
    asked = parser.parse_args()
    results = [
        result
        for objective in (KMeansObjective(n_clusters=5), LogisticObjective(classes=(0, 1)))
        for dtype in (np.float32, np.float64)
        for result in compared(objective, dtype, asked.rows, asked.size)
    ]
    show(
        f"{asked.size} of {asked.rows:,} rows by priority, beside one partition",
        list(results[0]),
        [list(result.values()) for result in results],
    )
    save("priority", {"rows": asked.rows, "size": asked.size, "cases": results})


if __name__ == "__main__":
    main()
