"""LightGBM from a folder of Parquet that is larger than the memory allowed: coresets beside its own two-round loading.

    python benchmarks/boosting_files.py [--rows 60000000] [--folder DIR] [--rounds 100] [--only METHOD,METHOD]

The folder is that of ``files.py``. Each method runs in a process of its own: a coreset of 2 % of the rows, the same
with leaf values from all rows, a uniform sample of as many rows, the largest uniform sample whose fit stays below 3 GB,
and LightGBM's two-round loading of all rows, which reads text: the folder as one CSV file, whose writing is not
counted. A method whose process takes more than 3 GB is ended: its seconds are those until then. Held-out rows are of
the same kind, in a file that no method reads. ``--only`` measures some methods and keeps the others' earlier figures.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
from sklearn.metrics import log_loss, roc_auc_score

from common import RESULTS, save, show
from files import COLUMNS, FILE_ROWS, generate
from tithe import CoresetEstimator, open_dataset

SHARE = 0.02
LARGEST = 4_000_000  # rows of a uniform sample whose fit stays below 3 GB
MOST_GB = 3.0
HELD_OUT = "held_out.parquet"


def trees(rounds: int) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=rounds, n_jobs=2, verbosity=-1, random_state=0)


def on_few_rows(folder: Path, rounds: int, **options: Any) -> Any:
    source = open_dataset(folder / "rows", target="y")
    return CoresetEstimator(trees(rounds), random_state=0, **options).fit(source)


def on_all_rows(folder: Path, rounds: int) -> Any:
    """LightGBM's own fit from text, which is read twice."""
    options = {"two_round": True, "header": True, "label_column": COLUMNS, "verbosity": -1}
    rows = lightgbm.Dataset(str(folder / "rows.csv"), params=options)
    learning = {"objective": "binary", "num_threads": 2, "seed": 0, **options}
    return lightgbm.train(learning, rows, num_boost_round=rounds)


def uniform(folder: Path, rounds: int, size: float) -> Any:
    return on_few_rows(folder, rounds, coreset_size=size, construction="uniform")


METHODS: dict[str, Callable[[Path, int], Any]] = {
    "coreset": lambda folder, rounds: on_few_rows(folder, rounds, coreset_size=SHARE),
    "coreset with leaves of all rows": lambda folder, rounds: on_few_rows(
        folder, rounds, coreset_size=SHARE, polish="leaves"
    ),
    "uniform": lambda folder, rounds: uniform(folder, rounds, SHARE),
    "largest uniform": lambda folder, rounds: uniform(folder, rounds, LARGEST),
    "two rounds of all rows": on_all_rows,
}


def run(method: str, folder: Path, rounds: int) -> dict[str, float]:
    """Seconds and peak memory of a fit in this process, and its scores on rows held out."""
    start = time.perf_counter()
    model = METHODS[method](folder, rounds)
    seconds, usage = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    X = pq.read_table(folder / HELD_OUT).to_pandas()
    y = X.pop("y").to_numpy()
    chance = model.predict(X) if isinstance(model, lightgbm.Booster) else model.predict_proba(X)[:, 1]
    return {
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak GB": usage.ru_maxrss * 1024 / 1e9,
        "log-loss": float(log_loss(y, chance)),
        "AUC": float(roc_auc_score(y, chance)),
    }


def measured(command: list[str]) -> dict[str, float]:
    """The figures of a process, or its seconds and memory when it took more than it may."""
    start, limit = time.perf_counter(), MOST_GB * 1e9
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            taken = re.search(r"VmHWM:\s*(\d+) kB", status.read_text() if status.exists() else "")
            if taken and int(taken[1]) * 1024 > limit:
                process.kill()
                return {"seconds": time.perf_counter() - start, "peak GB": int(taken[1]) * 1024 / 1e9}
            time.sleep(0.2)
        assert process.stdout is not None
        figures: dict[str, float] = json.loads(process.stdout.read().splitlines()[-1])
        return figures


def prepare(folder: Path, n_rows: int, methods: list[str]) -> None:
    """The rows, rows of the file after them as those held out, and the rows as text if they are read as such."""
    rows, held_out = folder / "rows", folder / HELD_OUT
    generate(rows, n_rows)
    if not held_out.exists():
        n_files = -(-n_rows // FILE_ROWS)
        with tempfile.TemporaryDirectory(dir=folder) as further:
            for path in sorted(rows.glob("*.parquet")):
                (Path(further) / path.name).symlink_to(path.resolve())  # these are not written again
            generate(Path(further), n_files * FILE_ROWS + 500_000)
            (Path(further) / f"part-{n_files:03d}.parquet").rename(held_out)
    text = folder / "rows.csv"
    if "two rounds of all rows" in methods and not text.exists():
        batches = pyarrow.dataset.dataset(rows).scanner(batch_size=100_000).to_reader()
        plain = pyarrow.csv.WriteOptions(quoting_header="none")  # LightGBM reads no quotes
        with pyarrow.csv.CSVWriter(text, batches.schema, write_options=plain) as writer:
            for batch in batches:
                writer.write_batch(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", default=",".join(METHODS))
    parser.add_argument("--method", choices=[*METHODS], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.method:
        print(json.dumps(run(arguments.method, arguments.folder, arguments.rounds)))
        return
    names = arguments.only.split(",")
    kept = RESULTS / "boosting_files.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    same = all(before.get(name) == getattr(arguments, name) for name in ("rows", "rounds"))
    found = before["methods"] if same else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        prepare(folder, arguments.rows, names)
        for name in names:
            command = [sys.executable, __file__, "--folder", str(folder), "--rounds", str(arguments.rounds)]
            found[name] = measured([*command, "--method", name])
            print(name, found[name], flush=True)
            save(
                "boosting_files", {"rows": arguments.rows, "rounds": arguments.rounds, "share": SHARE, "methods": found}
            )
    columns = ["seconds", "cpu", "peak GB", "log-loss", "AUC"]
    show(
        f"LightGBM, {arguments.rounds} rounds, {arguments.rows:,} rows",
        ["", *columns],
        [[name, *(figures.get(column, "-") for column in columns)] for name, figures in found.items()],
    )


if __name__ == "__main__":
    main()
