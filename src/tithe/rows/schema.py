"""The schema of a table: what each column is and how rows of the table become rows of X.

Frames become Arrow tables (`frame_table`), and rows of X become frames again (`frame_view`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from importlib.util import find_spec
from itertools import accumulate, groupby
from numbers import Real
from typing import Annotated, Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from scipy import sparse

from tithe.core.data import Array
from tithe.core.errors import FileFormatError
from tithe.core.state_checks import Each, Instance, Integer, Number, Optional, Storable, Text, expect
from tithe.rows.encodings import (
    BooleanEncoding,
    CategoryEncoding,
    ColumnEncoding,
    DateEncoding,
    DenseEncoding,
    NumberEncoding,
    PlacedEncoding,
    TimeEncoding,
    VectorEncoding,
    WordsEncoding,
)
from tithe.rows.interleave import interleave, sparse_rows
from tithe.rows.uses import ColumnUse as ColumnUse
from tithe.rows.uses import ColumnWatch as ColumnWatch
from tithe.rows.uses import uses_as_html, uses_as_text
from tithe.rows.values import is_date, is_span, one_array, plain_numbers, value_type


def frame_table(frame: Any) -> pa.Table:
    """A frame as an Arrow table, without its index. Columns of mixed Python objects become text.

    >>> import pandas as pd
    >>> frame_table(pd.DataFrame({"a": [1, "?"], "b": [1.5, None]})).to_pydict()
    {'a': ['1', '?'], 'b': [1.5, None]}
    """
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        return frame
    named = nw.from_native(frame, eager_only=True)
    return pa.table([_array(series) for series in named.iter_columns()], names=[str(name) for name in named.columns])


def _array(series: Any) -> Any:
    if series.implementation.is_polars():
        return series.to_arrow()
    native = series.to_native()
    try:
        values = pa.array(native, from_pandas=True)
        if series.dtype != nw.Object or not _is_misread(native, values.type):
            return values
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # the last of whole numbers above 2**63
        pass
    except pa.ArrowNotImplementedError as error:
        raise _no_feature(series.name, native.dtype) from error
    if any(isinstance(value, (complex, np.complexfloating)) for value in native):
        raise _no_feature(series.name, "complex")
    missing = series.is_null().to_list()
    return pa.array([None if gap else str(value) for value, gap in zip(native, missing, strict=True)], pa.string())


def _no_feature(name: Any, kind: Any) -> ValueError:
    split = ", or make columns of its real and its imaginary part" if "complex" in str(kind) else ""
    return ValueError(
        f"Column {str(name)!r} holds values of the type {kind}, which are no features. Drop it from the frame{split}."
    )


def _is_misread(native: Any, type_: pa.DataType) -> bool:
    """Whether Arrow takes Python objects of several types for dates or times: 1.5 for 1970, a moment for its day."""
    if not (is_date(type_) or is_span(type_)):
        return False
    kinds = set(map(type, native))
    if any(issubclass(kind, Real) and not issubclass(kind, np.timedelta64) for kind in kinds) and any(
        isinstance(value, Real) and not isinstance(value, np.timedelta64) and value == value for value in native
    ):
        return True
    moments = [value for value in native if isinstance(value, datetime) and value == value]  # pandas' NaT is not
    if pa.types.is_date(type_):
        return bool(moments)
    return len({value.tzinfo is None for value in moments}) > 1


WIDEST_DENSE = 1000  # features; with more, rows are mostly zeros and X is sparse

_USUAL_WORDS = 30  # of a text
_MOST_VIEWED = 32  # columns of a frame that hashed values or words become

MOST_RARE = 20_000  # values of a category without a feature of their own, or words of a text, that are noted

_FORMAT = 1
_FAR = 0.5  # of the range of the training rows: what lies farther beyond it is far outside
_ROUNDING = 1e-13  # relative to the centre and the spread of a column: what is less is zero
_MAX_NAMES_SHOWN = 30  # columns that a message names
_DTYPES = ("float32", "float64")


_KINDS: dict[str, type[ColumnEncoding]] = {
    kind.kind: kind
    for kind in (
        NumberEncoding,
        VectorEncoding,
        BooleanEncoding,
        DateEncoding,
        TimeEncoding,
        CategoryEncoding,
        WordsEncoding,
    )
}


@dataclass(frozen=True, kw_only=True)
class Column(Storable):
    """One column of a table.

    Parameters
    ----------
    name : str
    what : str
        What the column holds, for people: ``"number"``, ``"category"``, ``"identifier"``.
    encoding : ColumnEncoding or None
        How it becomes features. None: it is left out.
    n_gaps, n_distinct : int
        Gaps and different values among the rows that the schema was learned from.
    n_odd, odd_value : int, str
        Of the gaps, those that are text which is no number or date, and one of them.
    least, most : float or None
        The range of numbers, dates (days since 1970), times and all numbers of vectors among these rows.
    rare : tuple of int
        The CRC-32 of the values of a category that have no feature of their own, or of the words of a text, so that new
        ones can be told; none if there are more than `MOST_RARE`.
    loss : str
        What is lost of the column, or taken in another way than it is written; empty if nothing is.
    doubt : str
        What is uncertain about how it is read; empty if nothing is.
    note : str
        What users should know of it, although nothing is lost: that it alone predicts the target.
    """

    name: str
    what: str
    encoding: ColumnEncoding | None = None
    n_gaps: int = 0
    n_distinct: int = 0
    n_odd: int = 0
    odd_value: str = ""
    least: Annotated[float | None, Optional(Number())] = None
    most: Annotated[float | None, Optional(Number())] = None
    rare: Annotated[tuple[int, ...], Each(Integer(most=2**32 - 1))] = ()
    loss: str = ""
    doubt: str = ""
    note: str = ""

    @property
    def width(self) -> int:
        return 0 if self.encoding is None else self.encoding.width

    @property
    def is_constant(self) -> bool:
        """Whether it is left out and had one value in all rows that the schema was learned from."""
        return self.encoding is None and self.n_distinct == 1 and not self.n_gaps

    def to_json(self) -> dict[str, Any]:
        encoding = None if self.encoding is None else self.encoding.to_json()
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"encoding": encoding}

    def use(self, n_rows: int) -> ColumnUse:
        """What becomes of the column, of which ``n_rows`` rows were looked at."""
        if self.encoding is None:
            doubt = self.doubt if self.is_constant else ""  # why its values were taken as one
            return ColumnUse(self.name, "left out", 0, self.what, "; ".join(filter(None, (self.loss, doubt))) or None)
        note = self.note or None
        losses = [text for text in (self.doubt, self.loss) if text]
        if self.n_odd:
            losses.append(
                f"{self.n_odd:,} of {n_rows:,} values, such as {self.odd_value!r}, are not readable and became gaps"
            )
        gaps = f", {self.n_gaps:,} gaps" if self.n_gaps else ""
        loss = "; ".join(losses) or None
        return ColumnUse(self.name, self.encoding.use, self.width, self.encoding.describe() + gaps, loss, note)

    def watch(self, values: Any, na: Sequence[str]) -> ColumnWatch:
        """What the values are that those which the column was learned from were not."""
        assert self.encoding is not None
        all_noted = (
            bool(self.rare) or len(self.encoding.known) >= self.n_distinct
        )  # else there were more than are noted
        faults = self.encoding.faults(values, na, frozenset(self.rare) if all_noted else None)
        outside = 0
        if faults.numbers is not None and self.least is not None and self.most is not None:
            far = far_outside(faults.numbers, self.least, self.most)
            outside = int(np.count_nonzero(far if far.ndim == 1 else far.any(axis=1)))
        had_gaps = self.n_gaps > 0
        return ColumnWatch(self.name, len(values), faults.gaps, faults.unreadable, faults.unseen, outside, had_gaps)

    def accepts(self, values: Any, na: Sequence[str]) -> bool:
        """Whether values can be encoded: none are where text was, if they are dates or numbers with fractions."""
        assert self.encoding is not None
        if not self.encoding.accepts(values.type):
            return False
        if not isinstance(self.encoding, PlacedEncoding) or not (
            is_date(value_type(values.type)) or _has_fractions(values)
        ):
            return True
        return self.encoding.may_hold(values, na, frozenset(self.rare))


def far_outside(numbers: Array, least: Any, most: Any) -> Array:
    """Whether numbers lie beyond a range by more than half of it."""
    margin = _FAR * (most - least)
    far: Array = (numbers < least - margin) | (numbers > most + margin)
    return far


def _has_fractions(values: Any) -> bool:
    """Whether there are numbers that are not whole, and no categories, which may be any numbers."""
    if not (pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)):
        return False
    numbers = plain_numbers(values)
    present = numbers[np.isfinite(numbers)]
    return bool((present != np.floor(present)).any())


def _encoding_from_json(data: Any) -> ColumnEncoding:
    """What `ColumnEncoding.to_json` gave. Raises `FileFormatError` for anything else."""
    expect(isinstance(data, dict), "the encoding of a column is no object")
    kind = _KINDS.get(str(data.get("kind")))
    if kind is None:
        raise FileFormatError(f"{data.get('kind')!r} is no kind of column that this version of tithe knows")
    return kind.from_record({name: _frozen(value) for name, value in data.items() if name != "kind"})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _column_from_json(data: Any) -> Column:
    expect(isinstance(data, dict), "a column of the schema is no object")
    encoding = data.get("encoding")
    data = {name: _frozen(value) for name, value in data.items()}
    return Column.from_record({**data, "encoding": None if encoding is None else _encoding_from_json(encoding)})


@dataclass(frozen=True, kw_only=True)
class TableSchema(Storable):
    """What each column of a table is, and how its rows become rows of X. Learned by `learn_schema`.

    Parameters
    ----------
    columns : tuple of Column
        Those that become features, in the order of the features, and those that are left out.
    target, weight, row_id : str or None
        Columns that are no features.
    dtype : {"float32", "float64"}
        The type of X: float32 where that held every number exactly.
    na : tuple of str
        Values that are gaps besides the usual ones.
    n_rows : int
        Rows that the schema was learned from.
    """

    columns: Annotated[tuple[Column, ...], Each(Instance(Column), least=1)]
    target: str | None = None
    weight: str | None = None
    row_id: str | None = None
    dtype: Annotated[str, Text(_DTYPES)] = "float64"
    na: tuple[str, ...] = ()
    n_rows: int = 0

    def check_relations(self) -> None:
        names = [column.name for column in self.columns]
        expect(len(set(names)) == len(names), "a column stands in the schema twice")
        expect(self.n_features > 0, "no column of the schema is a feature")
        special = {self.target, self.weight, self.row_id}
        expect(not special & {column.name for column in self.used}, "target, weight or row id is a feature")

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without what is cached

    def same_features(self, other: TableSchema) -> bool:
        """Whether both schemas make the same features of the rows that they were learned from."""
        return self.comparable_encodings() == other.comparable_encodings() and self.na == other.na

    def comparable_encodings(self) -> list[tuple[str, ColumnEncoding]]:
        """The columns that become features and how, without what would fill the gaps of columns that have none."""
        made = []
        for column in self.used:
            encoding = column.encoding
            assert encoding is not None
            if isinstance(encoding, DenseEncoding) and not column.n_gaps and encoding.fill is not None:
                encoding = replace(encoding, fill=0.0)
            made.append((column.name, encoding))
        return made

    # -- what it says ----------------------------------------------------------------------------

    def uses(self) -> tuple[ColumnUse, ...]:
        """What becomes of each column; target, weight and row id are not among them."""
        return tuple(column.use(self.n_rows) for column in self.columns)

    def losses(self) -> tuple[str, ...]:
        """What is lost of the columns, or taken in another way than it is written: a sentence for each such column."""
        return tuple(f"{use.name!r}: {use.loss}." for use in self.uses() if use.loss is not None)

    def notes(self) -> tuple[str, ...]:
        """What users should know although nothing is lost, such as a column that alone predicts the target."""
        return tuple(f"{use.name!r}: {use.note}." for use in self.uses() if use.note is not None)

    def watch(self, table: Any) -> tuple[ColumnWatch, ...]:
        """For each column that is used, what the rows of an Arrow table have in it that the training rows had not.

        >>> import pyarrow as pa
        >>> from tithe.rows.learn import learn_schema
        >>> schema = learn_schema(pa.table({"age": [20, 30, 50], "colour": ["red", "blue", "red"]}))
        >>> age, colour = schema.watch(pa.table({"age": ["41", "old", "2000"], "colour": ["red", None, "green"]}))
        >>> age.gaps, age.unreadable, age.outside, colour.gaps, colour.unseen
        (1, 1, 1, 1, 1)
        """
        pairs = zip(self.used, self._arrays(table), strict=True)
        return tuple(column.watch(values, self.na) for column, values in pairs)

    def __repr__(self) -> str:
        lines = [uses_as_text(self.uses()), *(f"Lost: {loss}" for loss in self.losses())]
        lines += [f"Note: {note}" for note in self.notes()]
        special = [("target", self.target), ("weight", self.weight), ("row id", self.row_id)]
        lines += [f"{what.capitalize()}: {name}" for what, name in special if name is not None]
        return f"TableSchema: {len(self.used)} columns, {self.n_features:,} features\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        return uses_as_html(self.uses())

    @cached_property
    def used(self) -> list[Column]:
        """The columns that become features."""
        return [column for column in self.columns if column.encoding is not None]

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers that stay as they are."""
        return all(
            isinstance(column.encoding, NumberEncoding)
            and not (column.encoding.form or column.encoding.marked)
            and (column.encoding.center, column.encoding.spread) == (0.0, 1.0)
            for column in self.columns
        )

    @property
    def reads(self) -> list[str]:
        """The names of the columns that become features."""
        return [column.name for column in self.used]

    @cached_property
    def n_features(self) -> int:
        return sum(column.width for column in self.columns)

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the features, all different."""
        names: dict[str, None] = {}
        for column in self.used:
            for name in column.encoding.names(column.name):  # type: ignore[union-attr]
                while name in names:
                    name += "_"
                names[name] = None
        return list(names)

    @cached_property
    def first_features(self) -> list[int]:
        """The number of the first feature of each column that is used."""
        return [0, *accumulate(column.width for column in self.used[:-1])]

    @cached_property
    def day_features(self) -> frozenset[int]:
        """The features that count days since 1970."""
        firsts = zip(self.first_features, self.used, strict=True)
        return frozenset(first for first, column in firsts if column.encoding.kind == "date")  # type: ignore[union-attr]

    @property
    def sparse(self) -> bool:
        """Whether X is a CSR matrix."""
        return self.n_features > WIDEST_DENSE and not all(isinstance(c.encoding, DenseEncoding) for c in self.used)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of X, about."""
        size = np.dtype(self.dtype).itemsize
        if not self.sparse:
            return self.n_features * size
        dense = sum(column.width for column in self.used if isinstance(column.encoding, DenseEncoding))
        n_texts = sum(isinstance(column.encoding, WordsEncoding) for column in self.used)
        return (dense + len(self.used) + _USUAL_WORDS * n_texts) * (size + 4) + 4

    def column_of(self, feature: int) -> str:
        """The name of the column that a feature comes from."""
        ends = np.cumsum([column.width for column in self.used])
        return self.used[int(np.searchsorted(ends, feature, side="right"))].name

    def describe(self) -> list[tuple[str, str, str]]:
        """For each column its name, what it is, and what is done with it."""
        rows = []
        for column in self.columns:
            gaps = f", {column.n_gaps:,} gaps in {self.n_rows:,} rows" if column.n_gaps else ""
            gaps += f", of them {column.n_odd:,} such as {column.odd_value!r}" if column.n_odd else ""
            done = "left out" if column.encoding is None else column.encoding.describe()
            rows.append((column.name, column.what + gaps, done))
        special = [("target", self.target), ("weight", self.weight), ("row id", self.row_id)]
        return [*rows, *((name, what, "no feature") for what, name in special if name is not None)]

    def original_units(self, X: Array) -> Array:
        """Points in the space of X, such as centres of clusters, with numbers and dates in the units of their columns.

        Other features stay as they are: that of a value of a category is its share.
        """
        points = np.array(X, np.float64)
        if points.ndim != 2 or points.shape[1] != self.n_features:
            raise ValueError(f"Points have {self.n_features} features, got an array of shape {points.shape}.")
        return self.in_units(points, 0)

    def in_units(self, points: Array, first: int) -> Array:
        """The features from number ``first`` on (n, k) in the units of their columns."""
        last = first + points.shape[1]
        centers, factors = self._scaling[:, first:last]
        units: Array = points / factors + centers
        for place, column in zip(self.first_features, self.used, strict=True):
            if first <= place < last and isinstance(column.encoding, NumberEncoding):
                units[:, place - first] = column.encoding.drawn_out(units[:, place - first])
        units[np.abs(units) < _ROUNDING * (np.abs(centers) + 1.0 / factors)] = 0.0
        return units

    # -- rows ------------------------------------------------------------------------------------

    def encode(self, batch: Any) -> Any:
        """The rows of an Arrow record batch or table as X: a C-ordered array, or CSR if there are very many features.

        Columns may stand in any order and have other types that hold the same values; more columns do no harm.
        A value of a category that the schema does not know is one of the others. Raises ValueError, which names the
        column, if one is missing or of a type that does not fit.
        """
        if self.sparse:
            return self.encode_sparse(batch)
        X = np.empty((batch.num_rows, self.n_features), self.dtype)
        self.encode_into(batch, X)
        return X

    def encode_into(self, batch: Any, out: Array) -> bool:
        """Write the rows of a batch into a C-ordered array of their size; False if a value is not finite."""
        finite = True
        first = 0
        arrays = zip(self.used, self._arrays(batch), strict=True)
        for is_dense, run in groupby(arrays, lambda pair: isinstance(pair[0].encoding, DenseEncoding)):
            pairs = list(run)
            if is_dense:  # neighbours are written together
                finite &= self._write_dense(pairs, out, first)
            else:
                at = first
                for column, values in pairs:
                    part = out[:, at : at + column.width]
                    with _naming(column):
                        column.encoding.encode(values, self.na, part)  # type: ignore[union-attr]
                    at += column.width
                finite = finite and bool(np.isfinite(out[:, first:at]).all())
            first += sum(column.width for column, _ in pairs)
        return finite

    @cached_property
    def _scaling(self) -> Array:
        """The centre of every feature and the factor that follows: (2, n_features)."""
        pairs = [pair for column in self.used for pair in column.encoding.scaling]  # type: ignore[union-attr]
        centers, spreads = np.array(pairs).T
        return np.stack([centers, 1.0 / spreads])

    def _write_dense(self, pairs: Sequence[tuple[Column, Any]], out: Array, first: int) -> bool:
        last = first + sum(column.width for column, _ in pairs)
        centers, factors = self._scaling[:, first:last]
        as_they_are = not centers.any() and bool((factors == 1).all())
        for trusted in (True, False):
            columns: list[Array] = []
            for column, values in pairs:
                with _naming(column):
                    columns += column.encoding.columns(values, self.na, trusted=trusted)  # type: ignore[union-attr]
            if interleave(columns, out, 0, first, None if as_they_are else (centers, factors)):
                return True
        return False

    def encode_sparse(self, batch: Any) -> Any:
        """The rows of a batch as a CSR matrix."""
        parts: list[Any] = []
        for column, values in zip(self.used, self._arrays(batch), strict=True):
            with _naming(column):
                parts.append(column.encoding.entries(values, self.na))  # type: ignore[union-attr]
        return sparse_rows(parts, self.first_features, (batch.num_rows, self.n_features), np.dtype(self.dtype))

    def _arrays(self, batch: Any) -> Iterator[Any]:
        """The columns that become features, in the order of the features."""
        names = batch.schema.names
        times = Counter(names)
        for column in self.used:
            n_found = times[column.name]
            if n_found != 1:
                shown = ", ".join(names[:_MAX_NAMES_SHOWN]) + ", ..." * (len(names) > _MAX_NAMES_SHOWN)
                fault = (
                    f"There is no column {column.name!r}" if not n_found else f"{n_found} columns are {column.name!r}"
                )
                raise ValueError(f"{fault}. The columns are {shown}.")
            values = one_array(batch.column(column.name))
            if not column.accepts(values, self.na):
                raise ValueError(
                    f"Column {column.name!r} is {values.type}, but it held values of another type when the schema was "
                    f"learned: {column.what}."
                )
            yield values

    # -- JSON ------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The schema as plain dicts, lists, texts and numbers."""
        return {
            "format": _FORMAT,
            "columns": [column.to_json() for column in self.columns],
            "target": self.target,
            "weight": self.weight,
            "row_id": self.row_id,
            "dtype": self.dtype,
            "na": list(self.na),
            "n_rows": self.n_rows,
        }

    @classmethod
    def from_json(cls, data: Any) -> TableSchema:
        """What `to_json` gave, checked. Raises `FileFormatError` for anything else."""
        expect(isinstance(data, dict), "a schema is no object")
        Integer(least=1).check("the format of a schema", data.get("format"), {})
        if data["format"] > _FORMAT:
            raise FileFormatError(f"a schema has format {data['format']}, newer than this version of tithe reads")
        Each(Instance(dict), least=1).check("the columns of a schema", data.get("columns"), {})
        Each(Text()).check("the gaps of a schema", data.get("na"), {})
        columns, na = tuple(map(_column_from_json, data["columns"])), tuple(data["na"])
        others = {name: data.get(name) for name in ("target", "weight", "row_id", "dtype", "n_rows")}
        return cls.from_record({"columns": columns, "na": na, **others})


@contextmanager
def _naming(column: Column) -> Iterator[None]:
    """A ValueError inside gets the name of the column."""
    try:
        yield
    except ValueError as error:  # those of Arrow are too
        raise ValueError(f"Column {column.name!r} {error}.") from error


def can_view() -> bool:
    """Whether pandas is installed, whose frames have categories."""
    return find_spec("pandas") is not None


def frame_view(schema: TableSchema, X: Any) -> Any:
    """A pandas frame of the columns that a schema made the rows of X from.

    Numbers and dates have the units of their columns, and NaN where a gap was filled and marked. A category is one
    column of pandas categories; a gap, or a value that has no feature, has none. Words, and values that were hashed,
    are numbers as in X, added up to at most 32 columns. So the frame is the same whatever the rows were read from.
    """
    import pandas as pd

    X = X.tocsc() if sparse.issparse(X) else X
    frame: dict[str, Any] = {}
    for first, column in zip(schema.first_features, schema.used, strict=True):
        features = X[:, first : first + column.width]
        if isinstance(column.encoding, DenseEncoding):
            dense = features.toarray() if sparse.issparse(features) else features
            frame |= _viewed_numbers(column, schema.in_units(np.array(dense, np.float64), first))
        else:
            frame |= _viewed_values(column, features)
    return pd.DataFrame(frame, index=pd.RangeIndex(X.shape[0]))


def _viewed_numbers(column: Column, features: Array) -> dict[str, Any]:
    assert isinstance(column.encoding, DenseEncoding)
    names = column.encoding.names(column.name)
    if column.encoding.marked:
        gaps, names = features[:, -1] > 0, names[:-1]
        features = np.where(gaps[:, None], np.nan, features[:, :-1])
    return dict(zip(names, features.T, strict=True))


def _viewed_values(column: Column, features: Any) -> dict[str, Any]:
    import pandas as pd

    encoding = column.encoding
    assert encoding is not None
    names = encoding.names(column.name)
    if not isinstance(encoding, CategoryEncoding) or encoding.n_hashes:
        n_hashes = len(names) - (isinstance(encoding, CategoryEncoding) and encoding.gaps == "mark")
        n_viewed = min(_MOST_VIEWED, n_hashes)
        places = [*(np.arange(n_hashes) % n_viewed), *range(n_viewed, n_viewed + len(names) - n_hashes)]
        folding = sparse.csr_matrix((np.ones(len(names)), (np.arange(len(names)), places)))
        folded = sparse.csr_matrix(features) @ folding
        return dict(zip([*names[:n_viewed], *names[n_hashes:]], folded.toarray().T, strict=True))
    n_values = len(encoding.values) + encoding.other
    values = [name.removeprefix(f"{column.name}=") for name in names[:n_values]]
    present = sparse.coo_matrix(features[:, :n_values])
    codes = np.full(features.shape[0], -1)
    codes[present.row[present.data > 0]] = present.col[present.data > 0]
    return {column.name: pd.Categorical.from_codes(codes, values)}
