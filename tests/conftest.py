"""Shared problems. Tests need no data but what they make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs

from tithe import Block
from tithe.rows import stores

os.environ.pop("COLUMNS", None)  # commands under test print to no terminal, whatever runs the tests


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def skewed() -> Block:
    """60,000 rows: three large clusters, five small ones far away, a few wild rows."""
    rng = np.random.default_rng(3)
    sizes = (30_000, 20_000, 9_000, 400, 300, 200, 60, 37)
    centers = rng.normal(scale=3.0, size=(8, 6))
    centers[3:] *= 8.0
    X = np.concatenate([c + rng.normal(size=(n, 6)) for c, n in zip(centers, sizes, strict=True)])
    X = np.concatenate([X, rng.normal(scale=120.0, size=(3, 6))])
    return Block(X=np.ascontiguousarray(X[rng.permutation(len(X))]))


@pytest.fixture
def small_leaves(monkeypatch) -> None:
    """Few rows make many leaves."""
    for module in ("reduce.plan", "rows.leaves"):
        monkeypatch.setattr(f"tithe.{module}.LEAF_ROWS", 1000)


@pytest.fixture
def bucket(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder that stands in for a bucket of S3."""
    folder = tmp_path / "store" / "bucket"
    folder.mkdir(parents=True)
    system = fs.SubTreeFileSystem(str(folder.parent), fs.LocalFileSystem())
    monkeypatch.setattr(stores, "_file_system", lambda location: (system, None, location.authority))
    stores._store.cache_clear()
    yield folder
    stores._store.cache_clear()
