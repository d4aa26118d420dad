from __future__ import annotations

import numpy as np

from tithe.sources.arrays import ArraySource, as_block
from tithe.sources.batches import BatchSource


def test_sources_sample(rng: np.random.Generator) -> None:
    X = np.arange(200.0).reshape(100, 2)
    source = ArraySource(as_block(X))
    some = source.sample(10, rng=rng)
    np.testing.assert_array_equal(some.X, X[some.row_ids()])
    assert len(source.sample(None, rng=rng)) == len(source.sample(500, rng=rng)) == 100
    stream = BatchSource([X[:60], X[60:]], leaf_size=50)
    assert set(stream.sample(10, rng=rng).row_ids()) <= set(range(50))
    assert [len(task()) for task in stream.tasks()] == [50, 50]
