"""``tithe predict``: a model from a file, rows from files, predictions to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tithe.cli.main import Command, Stop, all_or_nothing, quiet_about_names
from tithe.cli.options import jobs_option
from tithe.cli.screen import STDOUT, print_table, written
from tithe.cli.sources import (
    TABLE_ENDINGS,
    TABLE_FORMATS,
    TABLE_OPTIONS,
    RowIds,
    SourceOptions,
    check_apart,
    on_this_machine,
    refuse_given,
    source_options,
    spread,
)
from tithe.core.progress import ProgressBar
from tithe.rows.uses import Watch, announce_unlike


@click.command(cls=Command)
@click.argument("model", type=click.Path(dir_okay=False))
@click.argument("where", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="Parquet or .csv file; -: CSV.")
@click.option("--proba", is_flag=True, help="Add the probability of every class or component.")
@source_options
@jobs_option
def predict(model, where, how, output, proba, jobs):  # type: ignore[no-untyped-def]
    """Predict with MODEL, a file that tithe fit or save_model wrote: row_id and prediction for every row.

    Of a dictionary the codes are written: row_id, and a column for each atom. row_id counts the rows from 0; --row-id
    names a column that is written beside it.

    The columns that the model was fitted on are looked up by name, in whatever order and file format; others, such as
    the target, are left alone. Numbers are scaled, gaps filled and text is encoded as for the fit. A row that cannot be
    read stops the command; with --bad-rows skip its prediction is empty.

    \b
    Example:
      tithe predict result/model.tithe 'new/*.parquet' --proba -o predictions.parquet
    """
    from tithe.fit.results import table_schema

    if output != STDOUT and Path(output).suffix.lower() not in TABLE_ENDINGS:
        raise click.UsageError(f"{output!r}: predictions are written as .parquet or .csv.")
    from sklearn.base import TransformerMixin

    from tithe.core.files import check_output
    from tithe.storage.models import load_model

    if output != STDOUT:
        check_output(output)
        check_apart(output, where)
    with on_this_machine(model) as path:
        fitted = load_model(path)
    if not _predicts(fitted) and not isinstance(fitted, TransformerMixin):
        raise ValueError(f"{model!r} holds a {type(fitted).__name__}, which predicts nothing.")
    if proba and not hasattr(fitted, "predict_proba"):
        raise click.UsageError(f"--proba: {type(fitted).__name__} has no predict_proba.")
    if table_schema(fitted) is not None:
        refuse_given(TABLE_OPTIONS, "the model knows what becomes of each column")
    else:
        refuse_given(
            ("scale", "impute", "dates", "na"), "the model was fitted on numbers as they are, without a schema"
        )
    with written(output) as place, all_or_nothing() as stop:
        rows = write_predictions(place, fitted, where, how, stop, proba=proba, jobs=jobs)
    print_table(output, ["", ""], [*rows, ["model", type(fitted).__name__]])


def write_predictions(
    output: str,
    fitted: Any,
    where: Sequence[str],
    how: SourceOptions,
    stop: Stop,
    *,
    proba: bool,
    jobs: int | None,
    watch: Watch | None = None,
) -> list[list[str]]:
    """Write the predictions of a model for the rows of files; says how many there are.

    ``watch`` counts what is unlike the rows that the model was fitted on.
    """
    from tithe.core.passes import DataPass
    from tithe.engines.threads import ThreadEngine
    from tithe.fit.results import table_schema

    schema = table_schema(fitted)
    if schema is None:
        _take_numbers(how, fitted, where)
    watch = watch or Watch()
    source = how.open(where, schema=schema, watch=watch)
    if source.n_features != fitted.n_encoded_:
        raise ValueError(
            f"The model was fitted on {fitted.n_encoded_} columns and these rows have {source.n_features}. "
            "Name those to use with --columns."
        )
    with ProgressBar(source.n_rows, "predicting") as reading:
        progress = stop.after_leaves(reading) if source.replayable else reading
        data = DataPass(source, ThreadEngine(jobs), progress)
        row_ids = None if how["row_id"] is None else RowIds(source, how["row_id"])
        n_rows, n_empty = _write(output, fitted, data, row_ids, proba=proba, skips=how["bad_rows"] == "skip")
    empty = [["bad rows, without a prediction", f"{n_empty:,}"]] if n_empty else []
    announce_unlike(watch.columns)
    unlike = [[repr(column.name), column.counted] for column in watch.columns if column.counted]
    return [["rows", f"{n_rows:,}"], *empty, *unlike]


def _take_numbers(how: SourceOptions, model: Any, where: Sequence[str]) -> None:
    """Read numbers as they are: the model was not fitted on a table, so it has no schema."""
    from tithe.fit.results import known_names

    if how.format_of(where) not in TABLE_FORMATS:
        return
    how |= {"scale": "none", "impute": "none"}
    names = known_names(model)
    if how.get("columns") is None and names is not None:
        how["columns"] = names


def _write(output: str, model: Any, data: Any, row_ids: RowIds | None, *, proba: bool, skips: bool) -> tuple[int, int]:
    """Predict and write leaf by leaf; returns how many rows there are, and how many have no prediction."""
    import pyarrow as pa
    from sklearn.base import is_classifier

    from tithe.core.files import replacing

    def table(block: Any) -> Any:
        columns = {"row_id": block.row_ids(), **_answers(model, block.X)} if len(block) else {}
        if proba and len(block):
            chances = model.predict_proba(block.X)
            classes = model.classes_ if is_classifier(model) else range(chances.shape[1])  # else components
            columns |= {f"probability_{c}": chances[:, j] for j, c in enumerate(classes)}
        return pa.table(columns)

    writer, n_rows, n_empty = None, 0, 0
    with replacing(output) as temporary, quiet_about_names():
        try:
            for batch in data.each(table):
                if not batch.num_rows:
                    continue
                whole = _with_empty_rows(batch, n_rows, batch.column("row_id")[-1].as_py() + 1)
                named = whole if row_ids is None else row_ids.added_to(whole)
                writer = writer or table_writer(temporary, Path(output).suffix.lower(), named.schema)
                writer.write_table(named)
                n_rows, n_empty = n_rows + whole.num_rows, n_empty + whole.num_rows - batch.num_rows
            n_all = data.rows.count() if skips else None
            if writer is not None and n_all is not None and n_all > n_rows:
                empty = _with_empty_rows(batch.slice(0, 0), n_rows, n_all)
                writer.write_table(empty if row_ids is None else row_ids.added_to(empty))
                n_rows, n_empty = n_all, n_empty + n_all - n_rows
        finally:
            if writer is not None:
                writer.close()
    return n_rows, n_empty


def _answers(model: Any, X: Any) -> dict[str, Any]:
    """A column of predictions; of a model that only transforms, as a dictionary does, its columns."""
    if _predicts(model):
        return {"prediction": model.predict(X)}
    return dict(zip(model.get_feature_names_out(), model.transform(X).T, strict=True))


def _predicts(model: Any) -> bool:
    from sklearn.utils import get_tags

    return get_tags(model).estimator_type in ("classifier", "regressor", "clusterer", "density_estimator")


def _with_empty_rows(table: Any, first: int, last: int) -> Any:
    """The table with a row for each id from ``first`` to before ``last``; rows that were left out have only an id."""
    if table.num_rows == last - first:
        return table
    import numpy as np
    import pyarrow as pa

    taken = spread(table, table.column("row_id").to_numpy() - first, last - first)
    return taken.set_column(0, table.schema.field("row_id"), pa.array(np.arange(first, last)))


def table_writer(path: Path, ending: str, schema: Any) -> Any:
    """Writes tables of this schema to a file, one after another."""
    import pyarrow.csv
    import pyarrow.parquet

    if ending == ".csv":
        return pyarrow.csv.CSVWriter(path, schema)
    return pyarrow.parquet.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
