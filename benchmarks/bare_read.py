"""All columns of a folder of Parquet to C-ordered NumPy arrays, with pyarrow and NumPy alone.

python benchmarks/bare_read.py FOLDER plain|fast

``plain``: a row group at a time, pyarrow's own threads, `np.column_stack`. ``fast``: two threads with a file each,
copied in blocks of rows that stay in the cache. For `benchmarks/files.py`, in a process of its own.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def read(path: Path, *, fast: bool) -> None:
    file = pq.ParquetFile(path)
    names = [name for name in file.schema_arrow.names if name != "y"]
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=names, use_threads=not fast)
        columns = [column.to_numpy() for column in table.columns]
        if not fast:
            np.column_stack(columns)
            continue
        X = np.empty((table.num_rows, len(names)), columns[0].dtype)
        for start in range(0, len(X), 2048):
            for j, column in enumerate(columns):
                X[start : start + 2048, j] = column[start : start + 2048]


def main() -> None:
    folder, how = Path(sys.argv[1]), sys.argv[2]
    with ThreadPoolExecutor(2 if how == "fast" else 1) as pool:
        list(pool.map(lambda path: read(path, fast=how == "fast"), sorted(folder.glob("*.parquet"))))


if __name__ == "__main__":
    main()
