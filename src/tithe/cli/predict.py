"""``tithe predict``: a model from a file, rows from files, predictions to a file."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tithe.cli.messages import Command
from tithe.cli.options import jobs_option, make_engine
from tithe.cli.progress import Stop
from tithe.cli.sources import SourceOptions, check_apart, source_options
from tithe.cli.text import Stopped, print_table
from tithe.core.progress import ProgressBar

_ENDINGS = (".csv", ".parquet", ".pq")


@click.command(cls=Command)
@click.argument("model", type=click.Path(dir_okay=False))
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), required=True, help="A .parquet or .csv file to write."
)
@click.option("--proba", is_flag=True, help="Add the probability of every class.")
@source_options
@jobs_option
def predict(model, where, how, output, proba, jobs):  # type: ignore[no-untyped-def]
    """Predict with MODEL, a file that tithe fit or save_model wrote: row_id and prediction for every row.

    The columns that the model was fitted on are looked up by name; others, such as the target, are left alone. Text is
    encoded as it was for the fit: give the same --categories.

    \b
    Example:
      tithe predict result/model.skops 'new/*.parquet' --proba -o predictions.parquet
    """
    if Path(output).suffix.lower() not in _ENDINGS:
        raise click.UsageError(f"{output!r}: predictions are written as .parquet or .csv.")
    from sklearn.utils import get_tags

    from tithe.core.files import check_output
    from tithe.core.passes import DataPass
    from tithe.storage.models import load_model

    check_output(output)
    check_apart(output, where)
    fitted = load_model(model)
    if get_tags(fitted).estimator_type not in ("classifier", "regressor", "clusterer"):
        raise ValueError(f"{model!r} holds a {type(fitted).__name__}, which predicts nothing.")
    if proba and not hasattr(fitted, "predict_proba"):
        raise click.UsageError(f"--proba: {type(fitted).__name__} has no predict_proba.")
    names = getattr(fitted, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    if how["columns"] is None and names is not None:
        how["columns"] = _columns_of(names, how["categories"])
    try:
        with Stop() as stop:
            source = how.open(where)
            arrange = _arrangement(source, names, fitted.n_features_in_, how)
            with ProgressBar(source.n_rows, "predicting") as reading:
                progress = stop.after_leaves(reading) if source.replayable else reading
                data = DataPass(source, make_engine(jobs), progress)
                n_rows = _write(output, fitted, data, arrange, proba=proba)
    except KeyboardInterrupt:
        raise Stopped("Stopped; nothing was written.") from None
    print_table(output, ["", ""], [["rows", f"{n_rows:,}"], ["model", type(fitted).__name__]])


def _columns_of(names: list[str], categories: str) -> list[str]:
    """The columns of a table that became these features, by the way text was encoded."""
    mark = {"error": None, "onehot": "=", "hash": "#"}[categories]
    plain = names if mark is None else [name.split(mark)[0] for name in names]
    return list(dict.fromkeys(plain))


def _arrangement(source: Any, names: list[str] | None, n_features: int, how: SourceOptions) -> Callable[[Any], Any]:
    """A function that brings the columns of the source into the order of the model; refuses columns that do not fit."""
    columns = source.feature_names
    if names is None or columns is None or columns == names:
        if source.n_features != n_features:
            raise ValueError(
                f"The model was fitted on {n_features} columns and these rows have {source.n_features}. "
                "Name those to use with --columns."
            )
        return lambda X: X
    position = {name: j for j, name in enumerate(names)}
    unknown = [name for name in columns if name not in position]
    if unknown:
        raise ValueError(f"The model was not fitted on {unknown[0]!r}. Its columns are {', '.join(names[:10])}, ...")
    missing = set(names) - set(columns)
    if how["categories"] != "onehot" and missing:
        raise ValueError(f"The rows have no column {sorted(missing)[0]!r}, which the model was fitted on.")
    import numpy as np
    from scipy import sparse

    # text values that do not occur in these rows have a column of zeros
    positions = [position[name] for name in columns]
    ones = np.ones(len(columns), np.float32)
    selection = sparse.csr_matrix((ones, (np.arange(len(columns)), positions)), shape=(len(columns), n_features))
    return lambda X: X @ selection if sparse.issparse(X) else np.ascontiguousarray(X @ selection)


def _write(output: str, model: Any, data: Any, arrange: Callable[[Any], Any], *, proba: bool) -> int:
    """Predict and write leaf by leaf; returns the number of rows."""
    import pyarrow as pa

    from tithe.core.files import replacing

    def table(block: Any) -> Any:
        X = arrange(block.X)
        columns = {"row_id": block.row_ids(), "prediction": model.predict(X)}
        if proba:
            chances = model.predict_proba(X)
            columns |= {f"probability_{c}": chances[:, j] for j, c in enumerate(model.classes_)}
        return pa.table(columns)

    writer = None
    with replacing(output) as temporary, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they were compared above
        try:
            for batch in data.each(table):
                writer = writer or _writer(temporary, Path(output).suffix.lower(), batch.schema)
                writer.write_table(batch)
        finally:
            if writer is not None:
                writer.close()
    return int(data.n_rows)


def _writer(path: Path, ending: str, schema: Any) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    if ending == ".csv":
        return pyarrow.csv.CSVWriter(path, schema)
    return pyarrow.parquet.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
