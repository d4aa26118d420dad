from __future__ import annotations

import numpy as np

from tithe.rows.batches import BatchSource


def test_sources_sample(rng: np.random.Generator) -> None:
    X = np.arange(200.0).reshape(100, 2)
    stream = BatchSource([X[:60], X[60:]], leaf_size=50)
    assert set(stream.sample(10, rng=rng).row_ids()) <= set(range(50))
    assert [len(task()) for task in stream.tasks()] == [50, 50]
