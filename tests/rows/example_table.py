"""A table with every kind of column, as texts of a CSV file and with types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa


def typed_table(n_rows: int = 200, seed: int = 0) -> pa.Table:
    """Columns with types, gaps as nulls; values that CSV writes without loss."""
    rng = np.random.default_rng(seed)
    start = datetime(2021, 3, 1, tzinfo=UTC)
    stamps = [start + timedelta(hours=int(h)) for h in rng.integers(0, 20_000, n_rows)]
    columns: dict[str, Any] = {
        "customer_id": rng.permutation(n_rows) + 1000,
        "age": _with_gaps(rng.integers(18, 90, n_rows).tolist(), rng),
        "income": np.round(np.exp(rng.normal(10, 1, n_rows)), 2).tolist(),
        "mass": (rng.normal(size=n_rows) * 1e30).tolist(),
        "colour": _with_gaps(rng.choice(["red", "green", "blue"], n_rows, p=[0.6, 0.3, 0.1]).tolist(), rng),
        "member": _with_gaps(rng.choice([True, False], n_rows).tolist(), rng),
        "joined": stamps,
        "born": _with_gaps([(start - timedelta(days=int(d))).date() for d in rng.integers(0, 9000, n_rows)], rng),
        "remark": [
            " ".join(rng.choice(["good", "bad", "late", "fast", "cheap", "ok"], 4)) + f" {i % 40}"
            for i in range(n_rows)
        ],
        "country": ["AT"] * n_rows,
        "nothing": pa.nulls(n_rows, pa.float64()),
        "place": [f"place{i}" for i in rng.integers(0, 40, n_rows)],
    }
    return pa.table(columns)


def _with_gaps(values: list[Any], rng: np.random.Generator) -> list[Any]:
    return [None if gap else value for value, gap in zip(values, rng.random(len(values)) < 0.1, strict=True)]


def text_table(table: pa.Table, gap: str = "") -> pa.Table:
    """The same table as the texts that a CSV file would hold."""
    return pa.table({name: [_text(v, gap) for v in table.column(name).to_pylist()] for name in table.column_names})


def _text(value: Any, gap: str) -> str:
    if value is None:
        return gap
    return repr(value) if isinstance(value, float) else str(value)
