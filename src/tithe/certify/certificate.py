"""Certificates: what learning from a coreset cost, as a number with a stated meaning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from tithe.core.data import grouped, html_facts
from tithe.core.state_checks import Number, Optional, Storable, expect

Kind = Literal["bound", "exact", "estimate"]
Quantity = Literal["cost", "excess_loss", "log_likelihood", "score", "mse"]
USEFUL_BOUND = 0.5  # share of the loss: a larger bound tells the reader nothing
_TINY = 1e-6  # share of the loss: smaller excesses are the same to a reader
USEFUL_BESIDE_ESTIMATE = 0.1  # the same where there is an estimate as well
_NOT_KNOWN = (
    "By how much it exceeds the loss of a fit on all rows is not known: polish it further, or ask for a larger "
    "coreset_size."
)

_NEW_ROWS = "It is about rows like these: others may be predicted better or worse."
_NOT_SAID: dict[Quantity, str] = {
    "excess_loss": "Neither is it said that the features hold what matters, nor how well new rows are predicted.",
    "cost": "Whether other solutions would cost less is not said, nor whether other features would serve better.",
    "log_likelihood": "Whether another mixture would fit better is not said, nor whether other features would.",
    "score": _NEW_ROWS,
    "mse": _NEW_ROWS,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate(Storable):
    """What it cost to learn from a coreset, measured on all rows or on rows that were held out.

    Parameters
    ----------
    kind : {"bound", "exact", "estimate"}
        A bound is proved, an exact value was computed on all rows, an estimate states its confidence.
    quantity : {"cost", "excess_loss", "log_likelihood", "score", "mse"}
        What ``value`` is: the cost of a clustering, the loss in excess of that of a fit on all rows, the mean
        log-likelihood of a row, the score of an estimator, or a mean squared error.
    value : float
        The number certified.
    relative_excess : float or None
        Of an excess loss: ``value`` divided by the loss. None for other quantities.
    coreset_error : float or None
        Of a cost, score or mean squared error: the relative error of the same number on the coreset. It is negative
        where the coreset's number is too low. Of a log-likelihood, which may have either sign: the error itself. None
        for excess losses.
    confidence : float or None
        Of an estimate; None otherwise.
    interval : (float, float) or None
        Where the value lies with that confidence.
    bound : float or None
        A proved upper bound on the value, if one is known.
    n_rows : int
        Rows it was measured on.
    passes : int
        Times that each of them was read.
    sentence : str
        The same in words. `in_short` says what it is compared with, and `at_length` what it does not say.
    compared_on : str
        The rows on which an excess is told, in words.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetKMeans
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> certificate = CoresetKMeans(n_clusters=3, coreset_size=200, random_state=0).fit(X).certificate_
    >>> certificate.kind, certificate.quantity, certificate.n_rows
    ('exact', 'cost', 2000)
    >>> print(certificate.sentence[:25])
    The centres explain about
    """

    kind: Kind
    quantity: Quantity
    value: float
    relative_excess: float | None = None
    coreset_error: float | None = None
    confidence: Annotated[float | None, Optional(Number(least=0.0, most=1.0))] = None
    interval: tuple[float, float] | None = None
    bound: float | None = None
    n_rows: int
    passes: int
    sentence: str
    compared_on: str = "all rows"

    def __str__(self) -> str:
        return f"{self.in_short} {self.at_length}"

    @property
    def in_short(self) -> str:
        """One sentence: of an excess what it is compared with, else all that was measured.

        >>> bound_certificate(200.0, 0.02, 1000, passes=1).in_short[:51]
        'The solution is at most 0.01 % worse than the best '
        """
        if self.quantity != "excess_loss":
            return self.sentence
        best = f"the best fit of the same model to {self.compared_on}, on the same features"
        most = self._largest_excess()
        worse = above_the_best(most, 1.0)
        if not (math.isfinite(worse) and (self.kind == "exact" or most <= USEFUL_BOUND)):
            return f"How much worse the solution is than {best}, is not known."
        if worse < _TINY:
            return f"There is no measurable difference to {best}{self._how_sure()}."
        excess = percent(worse) if self.kind == "exact" else _at_most(worse)
        return f"The solution is {excess} worse than {best}{self._how_sure()}."

    @property
    def at_length(self) -> str:
        """What follows `in_short`: the numbers, if they are not told yet, and what the certificate does not say.

        >>> print(bound_certificate(200.0, 0.02, 1000, passes=1).at_length[:53])
        The loss, penalty included, is 200 on all 1,000 rows.
        """
        numbers = f"{self.sentence} " if self.quantity == "excess_loss" else ""
        return numbers + _NOT_SAID[self.quantity]

    def _largest_excess(self) -> float:
        """The largest excess, as a share of the loss, that the certificate leaves possible."""
        assert self.relative_excess is not None
        if self.kind != "estimate" or self.interval is None or self.value <= 0.0:
            return self.relative_excess
        return self.relative_excess * (self.interval[1] / self.value)

    def _how_sure(self) -> str:
        if self.kind == "estimate":
            return "" if self.confidence is None else f", with {100.0 * self.confidence:.0f} % confidence"
        return ": this is proved" if self.kind == "bound" else ""

    def __repr__(self) -> str:
        return f"Certificate({self.kind} {self.quantity}={grouped(self.value)}, n_rows={self.n_rows:,})\n{self}"

    def _repr_html_(self) -> str:
        facts = {"what it says": str(self), "kind": self.kind, self.quantity.replace("_", " "): grouped(self.value)}
        if self.relative_excess is not None:
            facts["share of the loss"] = percent(self.relative_excess)
        if self.interval is not None and self.confidence is not None:
            low, high = self.interval
            facts[f"{100.0 * self.confidence:.0f} % interval"] = f"{grouped(low)} to {grouped(high)}"
        if self.bound is not None:
            facts["proved bound"] = grouped(self.bound)
        return html_facts("Certificate", {**facts, "rows": f"{self.n_rows:,}", "passes": str(self.passes)})

    def check_relations(self) -> None:
        excess = self.quantity == "excess_loss"
        expect((self.relative_excess is not None) == excess, "relative_excess belongs to an excess loss")
        expect((self.coreset_error is None) == excess, "coreset_error belongs to a cost, score or error")


def excess_certificate(
    loss: float,
    excess: float,
    interval: tuple[float, float],
    bound: float,
    n_rows: int,
    *,
    confidence: float,
    passes: int,
) -> Certificate:
    """A certificate of an estimate of how far the loss exceeds that of a fit on all rows."""
    about, low, high, most = (above_the_best(value, loss) for value in (excess, *interval, bound))
    said = _NOT_KNOWN
    if math.isfinite(about):
        proved = f", provably by {_at_most(most)}" if _share(bound, loss) <= USEFUL_BESIDE_ESTIMATE else ""
        sure = f"{100.0 * confidence:.0f} %"
        if about < _TINY and high < _TINY:
            said = f"It exceeds the loss of a fit on all rows by {percent(high)} ({sure} confidence){proved}."
        else:
            least = percent(low) if low >= _TINY else "0 %"
            between = f"{least} to {percent(high)}" if math.isfinite(high) else f"at least {least}"
            middle = percent(about) if about < _TINY else f"about {percent(about)}"
            said = f"It exceeds the loss of a fit on all rows by {middle} ({sure}: {between}){proved}."
    certain: dict[str, Any] = {"confidence": confidence, "interval": interval}
    return _of_excess("estimate", loss, said, excess, bound=bound, n_rows=n_rows, passes=passes, **certain)


def exact_excess_certificate(loss: float, excess: float, bound: float, n_rows: int, *, passes: int) -> Certificate:
    """A certificate of how far the loss exceeds that of a fit on all rows, which is known exactly."""
    above = above_the_best(excess, loss)
    if above < _TINY:
        said = "That of a fit on all rows is the same, up to rounding."
    elif math.isfinite(above):
        said = f"It exceeds the loss of a fit on all rows by {percent(above)}: exactly, up to rounding."
    else:
        said = f"The loss of a fit on all rows is {grouped(loss - excess, 8)}: exactly, up to rounding."
    return _of_excess("exact", loss, said, excess, bound=bound, n_rows=n_rows, passes=passes)


def rounding_certificate(loss: float, n_rows: int, *, passes: int) -> Certificate:
    """A certificate of a loss that is nothing but rounding, so that no fit is better."""
    said = "That is rounding: no fit is better."
    return _of_excess("exact", loss, said, 0.0, bound=0.0, n_rows=n_rows, passes=passes)


def bound_certificate(loss: float, bound: float, n_rows: int, *, passes: int) -> Certificate:
    """A certificate of a proved bound on the excess of the loss over its minimum."""
    if _share(bound, loss) <= USEFUL_BOUND:
        said = f"It exceeds the loss of a fit on all rows provably by {_at_most(above_the_best(bound, loss))}."
    else:
        said = _NOT_KNOWN
    return _of_excess("bound", loss, said, bound, bound=bound, n_rows=n_rows, passes=passes)


def _of_excess(kind: Kind, loss: float, said: str, value: float, *, n_rows: int, **options: Any) -> Certificate:
    sentence = f"The loss, penalty included, is {grouped(loss, 8)} on all {n_rows:,} rows. {said}"
    return Certificate(
        kind=kind,
        quantity="excess_loss",
        value=value,
        relative_excess=_share(value, loss),
        n_rows=n_rows,
        sentence=sentence,
        **options,
    )


def _share(excess: float, loss: float) -> float:
    """An excess as a share of the loss. Nothing but no excess at all is a share of a loss that is not positive."""
    if loss > 0.0:
        return excess / loss
    return 0.0 if excess <= 0.0 else math.inf


def above_the_best(excess: float, loss: float) -> float:
    """The excess as a share of the smallest loss, ``loss - excess``; infinite if that may be zero."""
    if excess <= 0.0:
        return _share(excess, loss)
    return excess / (loss - excess) if loss > excess else math.inf


def percent(share: float) -> str:
    """A share in per cent, with two digits, or as a whole number from 100 % on. What nobody measures has no digits.

    >>> percent(0.0123), percent(3.6e-7), percent(0.0), percent(12345.0)
    ('1.2 %', 'less than 0.0001 %', '0 %', '1,234,500 %')
    """
    value = 100.0 * share
    if 0.0 < share < _TINY:
        return f"less than {100.0 * _TINY:g} %"
    return f"{value:,.0f} %" if 99.5 <= abs(value) < 1e15 else f"{value:.2g} %"


def _at_most(share: float) -> str:
    return percent(share) if 0.0 < share < _TINY else f"at most {percent(share)}"


def share_of_all(share: float) -> str:
    """A share in per cent: one digit after the point, more where it would be told as nothing or as all.

    >>> share_of_all(0.1234), share_of_all(0.00002), share_of_all(0.99963), share_of_all(1.0), share_of_all(0.0)
    ('12.3 %', '0.002 %', '99.96 %', '100.0 %', '0.0 %')
    """
    rest = min(share, 1.0 - share)
    digits = 1 if rest >= 0.0005 or rest <= 1e-12 else min(9, -math.floor(math.log10(rest)) - 2)
    return f"{100.0 * share:.{digits}f} %"
