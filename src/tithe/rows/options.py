"""How users say what becomes of the columns of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tithe.core.params import Constraint, OneOf, WholeNumber, check_params

SCALES = ("standard", "robust", "none")
IMPUTATIONS = ("median", "mean", "zero", "none")
CATEGORIES = ("auto", "onehot", "hash", "error")
DATES = ("parts", "number", "drop", "error")

_CONSTRAINTS: dict[str, Constraint] = {
    "scale": OneOf(*SCALES),
    "impute": OneOf(*IMPUTATIONS),
    "categories": OneOf(*CATEGORIES),
    "n_hashes": WholeNumber(least=1),
    "max_categories": WholeNumber(least=1),
    "dates": OneOf(*DATES),
}


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How the columns of a table become features.

    Parameters
    ----------
    columns : sequence of str or None
        The columns to use, in this order. None: all but target, weight and row id, and but those that tell nothing:
        identifiers, constants and types that are no features.
    exclude : sequence of str
        Columns that are left out.
    scale : {"standard", "robust", "none"}
        Numbers are centred at their mean and divided by their standard deviation; or centred at their median and
        divided by their interquartile range / 1.349; or left as they are. With ``"none"``, columns of numbers are used
        even if they are constant or seem to be identifiers.
    impute : {"median", "mean", "zero", "none"}
        What a gap in a column of numbers is filled with. ``"none"``: a row with a gap is a bad row.
    categories : {"auto", "onehot", "hash", "error"}
        How columns of text are encoded: one feature for each frequent value, values hashed into ``n_hashes``
        features, or, by default, whichever of the two fits the column. ``"error"`` refuses text.
    n_hashes : int
        Features that a column of hashed values or words becomes.
    max_categories : int
        The most values of a column that have a feature of their own.
    dates : {"parts", "number", "drop", "error"}
        Dates become the days since 1970 and the sine and cosine of the time of year, week and day; or the days alone;
        or are left out; or are refused.
    na : sequence of str
        Values that are gaps besides the usual ones, in every column, such as ``"-999"``.
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    scale: str = "standard"
    impute: str = "median"
    categories: str = "auto"
    n_hashes: int = 32
    max_categories: int = 100
    dates: str = "parts"
    na: Sequence[str] = ()

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
        twice = [name for name, times in Counter(self.columns or ()).items() if times > 1]
        if twice:
            raise ValueError(f"Column {twice[0]!r} is asked for twice in columns.")
        both = [name for name in self.exclude if name in (self.columns or ())]
        if both:
            raise ValueError(f"Column {both[0]!r} is both in columns and in exclude.")
