"""What the parameters of an estimator, an objective or a construction may be, said as data.

A class lists, for each of its parameters, the kinds of values that are allowed::

    _constraints = {
        "n_clusters": WholeNumber(least=1),
        "tol": RealNumber(least=0.0),
        "polish": OneOf("auto") | WholeNumber(),
        "n_jobs": OneOf(None) | WholeNumber(least=1),
    }

`check_params` refuses every other value, with a message that names the parameter, what it must be, and what was
given. What depends on two parameters at once, or on the rows, is checked by the class itself.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


class Constraint(ABC):
    """A kind of value. Constraints are joined by ``|``: a value of any of the kinds is allowed."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether the value is of this kind."""

    def __or__(self, other: Constraint) -> Constraint:
        return _AnyOf(self, other)


@dataclass(frozen=True)
class _AnyOf(Constraint):
    first: Constraint
    second: Constraint

    def accepts(self, value: Any) -> bool:
        return self.first.accepts(value) or self.second.accepts(value)

    def __str__(self) -> str:
        return f"{self.first} or {self.second}"


@dataclass(frozen=True)
class WholeNumber(Constraint):
    """An integer of at least ``least`` and at most ``most``; booleans are not accepted."""

    least: int = 0
    most: int | None = None

    def accepts(self, value: Any) -> bool:
        is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return is_whole and self.least <= int(value) and (self.most is None or int(value) <= self.most)

    def __str__(self) -> str:
        return f"a whole number of at least {self.least}" + ("" if self.most is None else f" and at most {self.most:,}")


@dataclass(frozen=True)
class RealNumber(Constraint):
    """A number within bounds: ``least`` and ``most`` are allowed themselves, ``above`` and ``below`` are not."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    finite: bool = True

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        number = float(value)
        if math.isinf(number):
            return number > 0.0 and not self.finite
        return self.least <= number <= self.most and self.above < number < self.below

    def __str__(self) -> str:
        named = (("of at least", self.least), ("of at most", self.most), ("above", self.above), ("below", self.below))
        bounds = " and ".join(f"{words} {bound:g}" for words, bound in named if not math.isinf(bound))
        text = "a positive number" if bounds == "above 0" else f"a number {bounds}" if bounds else "a finite number"
        return text if self.finite else f"{text} or infinity"


@dataclass(frozen=True)
class Boolean(Constraint):
    """True or False, of Python or NumPy."""

    def accepts(self, value: Any) -> bool:
        import numpy as np  # the command line reads constraints before it loads anything heavy

        return isinstance(value, (bool, np.bool_))

    def __str__(self) -> str:
        return "True or False"


class OneOf(Constraint):
    """One of a few texts, or None."""

    def __init__(self, *values: str | None) -> None:
        self.values = values

    def accepts(self, value: Any) -> bool:
        return (value is None or isinstance(value, str)) and value in self.values

    def __str__(self) -> str:
        words = [repr(value) for value in self.values]
        return " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}"


@dataclass(frozen=True)
class Instance(Constraint):
    """An object of a class; ``words`` say it to a person."""

    kind: type | tuple[type, ...]
    words: str

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self.kind)

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True)
class Function(Constraint):
    """Anything that can be called."""

    def accepts(self, value: Any) -> bool:
        return callable(value)

    def __str__(self) -> str:
        return "a callable"


@dataclass(frozen=True)
class Option:
    """A parameter that a command line offers as well. Its default is that of the constructor.

    ``flags`` say how it is written, such as ``("-k", "--clusters")``; by default ``--`` and the parameter's name.
    """

    parameter: str
    constraint: Constraint
    help: str
    flags: tuple[str, ...] = ()


Target = Literal["class", "number"] | None  # what y must hold; None where none is needed
MOST_CLASSES = 20  # values of whole numbers in a target that are taken for classes

# what the learners on a coreset have in common
CORESET_SIZE = WholeNumber(least=1) | RealNumber(above=0.0, below=1.0)
POLISH = OneOf("auto") | WholeNumber()
ENCODE = OneOf("auto", "strict") | Boolean()


def check_params(holder: object, constraints: Mapping[str, Constraint]) -> None:
    """Raise ValueError for the first parameter that violates its constraint."""
    for name, constraint in constraints.items():
        check_value(name, getattr(holder, name), constraint)


def check_value(name: str, value: Any, constraint: Constraint) -> None:
    """Raise ValueError, naming the parameter and what it must be, for a value that violates its constraint."""
    if not constraint.accepts(value):
        raise ValueError(f"{name} must be {constraint}, got {value!r}.")


def resolve_size(coreset_size: Any, n_rows: int | None) -> int:
    """Rows to keep: an integer of at least 1, or a fraction in (0, 1) of ``n_rows``."""
    check_value("coreset_size", coreset_size, CORESET_SIZE)
    if isinstance(coreset_size, numbers.Integral):
        return int(coreset_size)
    if n_rows is None:
        raise ValueError("coreset_size must be an integer here: the number of rows is not known beforehand.")
    return max(1, round(float(coreset_size) * n_rows))
