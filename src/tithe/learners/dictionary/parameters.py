"""The parameters of `KSVD`: what they may be, which of them the command line offers, and what follows from them."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from tithe.core.params import Boolean, Constraint, OneOf, Option, RealNumber, WholeNumber, check_params
from tithe.learners.base import CoresetLearner
from tithe.learners.dictionary.rows import MEANS
from tithe.objectives.dictionary import REFERENCE_OPTIONS, DictionaryObjective
from tithe.solvers.ksvd import VARIANTS, Coding

_MIN_AUTO_ROWS, _AUTO_ROWS_PER_ATOM = 5000, 100  # kept of rows that do not come as one array

CONSTRAINTS: dict[str, Constraint] = {
    "n_components": OneOf(None) | WholeNumber(least=1),
    "n_nonzero_coefs": OneOf(None) | WholeNumber(least=1),
    "tol": OneOf(None) | RealNumber(least=0.0),
    "max_iter": WholeNumber(least=1),
    "center": OneOf(*MEANS),
    "coding": OneOf("omp", "lasso"),
    "alpha": RealNumber(least=0.0),
    "positive": Boolean(),
    "exact_update": Boolean(),
    "variant": OneOf(*VARIANTS),
    "n_init": WholeNumber(least=1),
    "refine_iter": WholeNumber(),
}


def _option(parameter: str, text: str, *flags: str) -> Option:
    return Option(parameter, CONSTRAINTS[parameter], text, flags)


OPTIONS = (
    _option("n_components", "Atoms. [default: one for each column]", "-k", "--atoms"),
    _option("n_nonzero_coefs", "Atoms of a row. [default: a tenth of the columns]"),
    _option("tol", "Squared error at which a row takes no more atoms."),
    _option("center", "What is subtracted from rows: nothing, the mean row, or a row's own mean."),
    _option("max_iter", "Iterations on the coreset."),
    _option("refine_iter", "Iterations after that, on more rows."),
    _option("n_init", "Searches, of which the best is kept."),
    _option("variant", "What an iteration does."),
    *REFERENCE_OPTIONS,
)


class DictionaryParameters(CoresetLearner):
    """How rows are coded and drawn, and how many are kept, by the parameters of `KSVD`."""

    n_components: int | None
    n_nonzero_coefs: int | None
    tol: float | None
    coding: str
    alpha: float
    positive: bool
    center: str
    include_reference: bool

    options = OPTIONS
    _constraints = CONSTRAINTS

    def _check_options(self) -> None:
        check_params(self, self._constraints)
        if self.positive and self.center != "none":
            raise ValueError("positive=True needs center='none': rows without their means have negative entries.")
        if self.include_reference and self.coding == "lasso":
            raise ValueError("include_reference=True needs coding='omp'.")
        DictionaryObjective(positive=self.positive, **self._drawing())
        self._check_names()

    def _objective(self) -> DictionaryObjective:
        coding = self._pursuit()
        return DictionaryObjective(
            n_components=self._n_atoms(), n_nonzero_coefs=coding.n_nonzero, positive=coding.positive, **self._drawing()
        )

    def _drawing(self) -> dict[str, Any]:
        """The parameters of the objective that have the same names here."""
        return {name: getattr(self, name) for name in ("reference", "n_reference", "beta", "include_reference")}

    def _coding(self) -> Coding:
        """How rows are coded, with a reference among the atoms if it is included."""
        coding = self._pursuit()
        if not self.include_reference:
            return coding
        return replace(coding, n_reference=self._objective().n_included(self.n_features_in_))

    def _pursuit(self) -> Coding:
        """How rows are coded. More atoms per row than there are atoms or columns are refused."""
        d, k, n_nonzero = self.n_features_in_, self._n_atoms(), self.n_nonzero_coefs
        if self.coding == "lasso":
            return Coding(n_nonzero=min(k, max(1, d // 10)), penalty=float(self.alpha), positive=bool(self.positive))
        if n_nonzero is None:
            n_nonzero = min(k, d if self.tol is not None else max(1, d // 10))
        elif n_nonzero > min(d, k):
            raise ValueError(f"n_nonzero_coefs={n_nonzero} is more than the {k} atoms or the {d} columns.")
        return Coding(n_nonzero=int(n_nonzero), target=float(self.tol or 0.0), positive=bool(self.positive))

    def _n_atoms(self) -> int:
        return self.n_features_in_ if self.n_components is None else int(self.n_components)

    def planned(self, n_rows: int | None, n_features: int) -> tuple[Any, int | float]:
        learner = copy(self)
        learner.n_features_in_ = n_features  # the objective depends on it, and it is not known before a fit
        return super(DictionaryParameters, learner).planned(n_rows, n_features)

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return max(_MIN_AUTO_ROWS, _AUTO_ROWS_PER_ATOM * self._n_atoms())

    def _size(self, n_rows: int | None, n_features: int) -> int:
        k, size = self._n_atoms(), super()._size(n_rows, n_features)
        if size < k:
            advice = "ask for some hundred rows per atom."
            raise ValueError(f"coreset_size={self.coreset_size} keeps {size} rows, fewer than {k} atoms: {advice}")
        return size
