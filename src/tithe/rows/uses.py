"""What becomes of each column of a table: how users say it, and in words what a schema does and has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from operator import add
from threading import Lock
from typing import Any

from tithe.core.errors import EncodingWarning, warn_caller
from tithe.core.params import Boolean, Constraint, OneOf, WholeNumber, check_params

_MOST_SHOWN = 8  # losses in a warning
_COUNTS = ("gaps", "unreadable", "unseen", "outside")
SCALES = ("auto", "standard", "robust", "none")
MEASURED_SCALES = ("auto", "standard")  # by mean and deviation, which all rows tell better than a sample
IMPUTATIONS = ("median", "mean", "zero", "none")
CATEGORIES = ("auto", "onehot", "hash", "error")
DATES = ("parts", "number", "drop", "error")

_CONSTRAINTS: dict[str, Constraint] = {
    "scale": OneOf(*SCALES),
    "impute": OneOf(*IMPUTATIONS),
    "categories": OneOf(*CATEGORIES),
    "n_hashes": OneOf(None) | WholeNumber(least=1),
    "max_categories": WholeNumber(least=1),
    "dates": OneOf(*DATES),
    "strict": Boolean(),
}


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How the columns of a table become features: the options that `tithe.open_dataset` describes.

    With ``scale="none"``, columns of numbers are used even if they are constant or seem to be identifiers.
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    scale: str = "auto"
    impute: str = "median"
    categories: str = "auto"
    n_hashes: int | None = None
    max_categories: int = 10_000
    dates: str = "parts"
    na: Sequence[str] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        check_params(self, _CONSTRAINTS)
        for name in ("columns", "exclude", "na"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise ValueError(f"{name} is a list of {'values' if name == 'na' else 'names'}: {name}=[{value!r}].")
            if value is not None:
                object.__setattr__(self, name, tuple(str(item) for item in value))
        if self.columns is not None and not self.columns:
            raise ValueError("columns is empty: name at least one, or leave it out for all.")
        both = [name for name in self.exclude if name in (self.columns or ())]
        if both:
            raise ValueError(f"Column {both[0]!r} is both in columns and in exclude.")


@dataclass(frozen=True)
class ColumnUse:
    """What becomes of one column of a table.

    Parameters
    ----------
    name : str
    use : str
        ``"number"``, ``"yes/no"``, ``"date"``, ``"time"``, ``"category"``, ``"text"``, ``"vector"`` or ``"left out"``.
    features : int
        Features that it becomes.
    detail : str
        What it is or how it is encoded: ``"12 values, one-hot"``.
    loss : str or None
        What is lost of it, or taken in another way than it is written, in one sentence.
    note : str or None
        What users should know of it although nothing is lost.
    """

    name: str
    use: str
    features: int
    detail: str
    loss: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class ColumnWatch:
    """What some rows have in one column that those which the schema was learned from had not.

    Parameters
    ----------
    name : str
    rows : int
        Rows that were looked at.
    gaps : int
        Missing values, those that are not readable among them.
    unreadable : int
        Texts that are no number, date or truth where the column holds these, and numbers that are neither 0 nor 1 where
        it holds truth.
    unseen : int
        Values of a category that the schema does not know, and texts without a word that it knows.
    outside : int
        Numbers, vectors, dates and times beyond the range of the training rows by more than half of that range.
    had_gaps : bool
        Whether values were missing among the training rows, too.
    """

    name: str
    rows: int
    gaps: int = 0
    unreadable: int = 0
    unseen: int = 0
    outside: int = 0
    had_gaps: bool = False

    def __add__(self, other: ColumnWatch) -> ColumnWatch:
        counts = {name: getattr(self, name) + getattr(other, name) for name in ("rows", *_COUNTS)}
        return replace(self, **counts)

    @property
    def counted(self) -> str:
        """What there is to count, in words; empty if nothing is."""
        found = {
            "missing": self.gaps - self.unreadable,
            "not readable and became gaps": self.unreadable,
            "unknown to the model": self.unseen,
            "far outside the range of the training rows": self.outside,
        }
        return ", ".join(f"{n:,} {what}" for what, n in found.items() if n)

    @property
    def fault(self) -> str:
        """What is unlike the training rows, in one sentence; empty if nothing is."""
        known = self.had_gaps and not (self.unreadable or self.unseen or self.outside)
        return f"{self.name!r}: of {self.rows:,} values {self.counted}." if self.counted and not known else ""


class Watch:
    """What rows that are read have that the training rows had not, added up over all threads."""

    def __init__(self) -> None:
        self.columns: tuple[ColumnWatch, ...] = ()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[Watch], tuple[()]]:  # what another process counts stays there
        return Watch, ()

    def add(self, found: tuple[ColumnWatch, ...]) -> None:
        with self._lock:
            self.columns = tuple(map(add, self.columns, found)) if self.columns else found

    def unusual(self) -> list[dict[str, Any]]:
        """The columns with something to count, for ``results.json``."""
        return [asdict(column) for column in self.columns if column.counted]


def uses_as_text(uses: Iterable[ColumnUse]) -> str:
    """A table for the terminal.

    >>> print(uses_as_text([ColumnUse("age", "number", 1, "as it is"), ColumnUse("id", "left out", 0, "identifier")]))
    age  number    1  as it is
    id   left out  0  identifier
    """
    rows = [(use.name, use.use, f"{use.features:,}", use.detail) for use in uses]
    widths = [max(len(row[j]) for row in rows) for j in range(3)]
    return "\n".join(
        f"{name:<{widths[0]}}  {use:<{widths[1]}}  {features:>{widths[2]}}  {detail}".rstrip()
        for name, use, features, detail in rows
    )


def uses_as_html(uses: Iterable[ColumnUse]) -> str:
    """A table for notebooks. Text from files is shown, not obeyed."""
    head = "".join(f"<th>{title}</th>" for title in ("column", "use", "features", "how", "lost or to note"))
    cells = (
        (use.name, use.use, f"{use.features:,}", use.detail, "; ".join(filter(None, (use.loss, use.note))))
        for use in uses
    )
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
    return f'<div class="tithe"><table><tr>{head}</tr>{rows}</table></div>'


def announce(
    losses: Sequence[str], *, notes: Sequence[str] = (), strict: bool = False, switch: str = "strict=True"
) -> None:
    """Warn of what the encoding of a table loses, and of what is to note; raise ValueError if a loss is ``strict``.

    ``switch`` is what users write to have losses refused.
    """
    if notes:
        warn_caller(f"These columns need a look:\n{_shown(notes, 'notes')}", EncodingWarning)
    if not losses:
        return
    shown = _shown(losses, "losses")
    if strict:
        raise ValueError(f"{switch}, and the encoding of these columns loses something:\n{shown}")
    warn_caller(f"The encoding of these columns loses something ({switch} refuses it):\n{shown}", EncodingWarning)


def _shown(lines: Sequence[str], name: str) -> str:
    """A line for each of the first; how many more there are."""
    more = [f"and {len(lines) - _MOST_SHOWN} more: see schema.{name}()"] * (len(lines) > _MOST_SHOWN)
    return "\n".join(f"- {line}" for line in (*lines[:_MOST_SHOWN], *more))


def announce_unlike(columns: Iterable[ColumnWatch]) -> None:
    """Warn of rows that are unlike those which the model was fitted on."""
    faults = [column.fault for column in columns if column.fault]
    if faults:
        shown = "\n".join(f"- {fault}" for fault in faults[:_MOST_SHOWN])
        more = f"\n- and {len(faults) - _MOST_SHOWN} columns more" * (len(faults) > _MOST_SHOWN)
        warn_caller(f"These rows are unlike those that the model was fitted on:\n{shown}{more}", EncodingWarning)
