from __future__ import annotations

import pytest


@pytest.fixture
def small_leaves(monkeypatch) -> None:
    """Few rows make many leaves."""
    for room in ("batches", "leaves"):
        monkeypatch.setattr(f"tithe.sources.{room}.LEAF_ROWS", 1000)
