"""How users say what becomes of the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tithe.core.params import Boolean, Constraint, OneOf, WholeNumber, check_params

SCALES = ("standard", "robust", "none")
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
    scale: str = "standard"
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
