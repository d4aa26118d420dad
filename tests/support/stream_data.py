"""A stream and its rows, for the tests of streams."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import sparse

from tithe import Block, Coreset, CoresetStream
from tithe.objectives import GenericObjective, KMeansObjective, KMedianObjective, LogisticObjective

KMEANS = KMeansObjective(n_clusters=3)
OBJECTIVES = {
    "kmeans": KMEANS,
    "kmedian": KMedianObjective(n_clusters=3),
    "logistic": LogisticObjective(classes=(0, 1)),
    "generic": GenericObjective(),
}


def make(objective=KMEANS, **options) -> CoresetStream:
    return CoresetStream(objective, **{"coreset_size": 300, "leaf_size": 1000, "random_state": 3, **options})


def feed(stream: CoresetStream, block: Block, cuts, *, ids: bool = False) -> CoresetStream:
    edges = [0, *sorted(cuts), len(block)]
    for a, b in itertools.pairwise(edges):
        part = block.cut(a, b)
        stream.push(part.X, part.y, part.sample_weight, row_ids=part.row_ids() if ids else None)
    return stream


def assert_same(a: Coreset, b: Coreset) -> None:
    assert np.array_equal(a.row_ids(), b.row_ids())
    left, right = (c.X.toarray() if sparse.issparse(c.X) else c.X for c in (a, b))
    assert np.array_equal(left, right)
    assert np.array_equal(a.weights(), b.weights())
    assert (a.y is None) == (b.y is None) and (a.y is None or np.array_equal(a.y, b.y))
    assert (a.totals is None) == (b.totals is None) and (a.totals is None or np.array_equal(a.totals, b.totals))
    assert (a.n_seen, a.weight_seen, a.key, a.last_row) == (b.n_seen, b.weight_seen, b.key, b.last_row)
