"""Files for tests of stores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def a_table(n_rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {"a": rng.normal(size=n_rows), "b": rng.exponential(size=n_rows), "c": rng.choice(["u", "v", "w"], n_rows)}
    )


def write_years(folder: Path, n_rows: int = 700) -> Path:
    """Parquet files in folders named by year."""
    for year in (2022, 2023, 2024):
        (folder / f"year={year}").mkdir(parents=True)
        name = folder / f"year={year}" / "part 1%20.parquet"
        pq.write_table(a_table(n_rows, year), name, row_group_size=300, compression="zstd")
    return folder
