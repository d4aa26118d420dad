"""What the parameters of `KSVD` may be, and which of them the command line offers."""

from __future__ import annotations

from tithe.core.params import Boolean, Constraint, OneOf, Option, RealNumber, WholeNumber
from tithe.learners.dictionary.rows import MEANS
from tithe.objectives.dictionary import REFERENCE_OPTIONS
from tithe.solvers.ksvd import VARIANTS

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
