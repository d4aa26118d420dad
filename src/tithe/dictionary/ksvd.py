"""K-SVD on a calibrated coreset of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from operator import attrgetter
from typing import Annotated, Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, check_is_fitted

from tithe.certify import Certificate
from tithe.certify.held_out import exact_mean_certificate, mean_certificate
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.parallel import column_means, column_sums
from tithe.core.params import Boolean, Constraint, OneOf, Option, RealNumber, WholeNumber, check_params, check_value
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Optional, Sometimes, expect
from tithe.dictionary.objective import REFERENCE, REFERENCE_OPTIONS, DictionaryObjective, Reference, ReferenceKind
from tithe.dictionary.pursuit_kernels import Codes
from tithe.dictionary.solver import (
    REFINING,
    VARIANTS,
    Coding,
    Learned,
    Variant,
    cosine_atoms,
    data_atoms,
    learn_dictionary,
    unit,
)
from tithe.fit.base import FLOATS, CoresetLearner, FittedAttribute, limits_threads
from tithe.fit.bases import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, available_if
from tithe.fit.collections import lazy_on_collections
from tithe.fit.results import MAX_BARS, BarChart, column_names
from tithe.reduce.kernels import sample_rows
from tithe.rows.leaves import MappedSource

_CHUNK_ROWS = 1 << 15  # rows coded at a time, which limits the memory for their codes
_MAX_VALUE = 1e150  # squares of larger numbers overflow in double precision
_MAX_SINGLE_NORM = 1e35  # of a row in single precision: entries of its code may be some hundred times as large
_MIN_AUTO_ROWS, _AUTO_ROWS_PER_ATOM = 5000, 100  # kept of rows that do not come as one array
_REFINE_ROWS = 80_000  # rows of an iteration of refine_iter
_MAX_LAST_ROWS, _MAX_LAST_NUMBERS = 300_000, 32_000_000  # of the last one
_CERTIFICATE_ROWS = 10_000  # rows that the error of atoms from a coreset is estimated on

CONSTRAINTS: dict[str, Constraint] = {
    "n_components": OneOf(None) | WholeNumber(least=1),
    "n_nonzero_coefs": OneOf(None) | WholeNumber(least=1),
    "tol": OneOf(None) | RealNumber(least=0.0),
    "max_iter": WholeNumber(least=1),
    "center": OneOf("none", "global", "row"),
    "alpha": OneOf(None) | RealNumber(least=0.0),
    "positive": Boolean(),
    "reference": REFERENCE,
    "variant": OneOf(*VARIANTS),
    "n_init": WholeNumber(least=1, most=1000),
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
    REFERENCE_OPTIONS[0],
)


@dataclass(frozen=True, eq=False)
class RowCoder:
    """Codes rows: takes out their means, and finds a sparse combination of the atoms (k, d) for what is left."""

    atoms: Array
    coding: Coding
    centering: Centering

    def centered(self, block: Block) -> Array:
        """The rows without their means, in the precision of the atoms."""
        rows: Array = self.centering(check_magnitude(block, self.atoms.dtype)).X
        return rows.astype(self.atoms.dtype, copy=False)

    def chunks(self, block: Block, *, with_residual: bool = False) -> Iterator[Codes]:
        """The codes of the rows, as `Coding` returns them."""
        rows = self.centered(block)
        for start in range(0, len(rows), _CHUNK_ROWS):
            yield self.coding(rows[start : start + _CHUNK_ROWS], self.atoms, with_residual=with_residual)

    def error_sums(self, block: Block, scale: float) -> Array:
        """Sums of u, u e, u^2, u^2 e and u^2 e^2 for weights u and squared errors e of an entry, in units of scale."""
        u = block.weights()
        e = self.coding(self.centered(block), self.atoms)[2] / block.n_features / scale
        return np.array([np.add.reduce(v) for v in (u, u * e, u * u, u * u * e, u * u * e * e)])


@dataclass(frozen=True, eq=False)
class Centering:
    """Subtracts ``offset`` (d,) from each row, or the mean of the row if there is no offset."""

    mean: str
    offset: Array | None = None

    def __call__(self, block: Block) -> Block:
        if self.mean == "none":
            return block
        mean = block.X.mean(axis=1, keepdims=True) if self.offset is None else self.offset.astype(block.X.dtype)
        return replace(block, X=block.X - mean, mean=None)


def offset(data: DataPass, mean: str) -> Array | None:
    """The mean row (d,) if ``mean`` is "global", else None. Takes one pass over a source."""
    if mean != "global":
        return None
    rows = data.rows
    if isinstance(rows, Block):
        return column_means(rows)
    if not rows.replayable:
        raise ValueError(
            "center='global' needs the mean of all rows before the first is drawn, and these can be read only once. "
            "Use center='row' or 'none'."
        )
    sums: Array = data.total(lambda leaf: np.append(column_sums(leaf.X, leaf.sample_weight), leaf.total_weight))
    return np.asarray(sums[:-1] / sums[-1])


def sampled(rows: Any, size: int, rng: np.random.Generator) -> Block:
    """About ``size`` rows of a block or a source, drawn uniformly."""
    sample: Block = sample_rows(rows, size, rng) if isinstance(rows, Block) else rows.sample(size, rng=rng)
    return sample


def check_dense(X: Any) -> Any:
    if sparse.issparse(X):
        raise TypeError("Sparse data was passed, and signals are dense: convert it with X.toarray() if it fits.")
    return X


def check_magnitude(block: Block, dtype: Any = None) -> Block:
    """Refuse values too large to be coded in the precision ``dtype``, by default that of the block."""
    largest = max(float(block.X.max()), -float(block.X.min()))
    if largest > _MAX_VALUE / block.X.size**0.5:
        raise ValueError("The squares of X are too large to be added up in double precision. Rescale X.")
    if (dtype or block.X.dtype) == np.float32 and largest > _MAX_SINGLE_NORM / block.n_features**0.5:
        raise ValueError("X is too large to be coded in single precision. Rescale X, or give it as float64.")
    return block


def initial_atoms(initial: Any, X: Array, n_atoms: int, *, positive: bool, rng: np.random.Generator) -> Array:
    """The atoms (k, d) that K-SVD starts from: drawn from the rows X, of the cosine transform, or those given."""
    n_features = X.shape[1]
    if isinstance(initial, str):
        if initial not in ("data", "dct"):
            raise ValueError(f"initial must be 'data', 'dct' or an array of atoms, got {initial!r}.")
        if initial == "data":
            return data_atoms(X, n_atoms, rng, positive=positive)
        atoms = cosine_atoms(n_atoms, n_features)
    else:
        given = check_array(initial, dtype=np.float64, input_name="initial")
        if given.shape != (n_atoms, n_features):
            raise ValueError(f"initial has shape {given.shape}, expected ({n_atoms}, {n_features}): one atom per row.")
        atoms = unit(given)
        if len(atoms) < n_atoms:
            raise ValueError("initial has rows of zeros, which cannot be atoms.")
    return np.abs(atoms) if positive else atoms


@dataclass(eq=False, repr=False)
class KSVD(CoresetLearner, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Dictionary learning by K-SVD, on all rows or on a coreset.

    Finds k unit atoms D (k, d) and codes a_i of at most T nonzero entries with small sum_i u_i |y_i - a_i D|^2 over
    the rows y_i. Each iteration codes all rows by orthogonal matching pursuit, then fits each atom to the rows that
    use it (Aharon, Elad and Bruckstein 2006). ``coreset_size`` limits the rows (Feldman, Feigin and Sochen 2013).

    Parameters
    ----------
    n_components : int, optional
        The number k of atoms. By default the number of columns.
    n_nonzero_coefs : int, optional
        The number T of atoms in a code. By default a tenth of the columns, and at least one; with ``tol`` all columns.
    tol : float, optional
        Atoms are added to the code of a row until its squared error is at most ``tol`` (or there are
        ``n_nonzero_coefs``).
    max_iter : int
        Iterations. The best dictionary of all iterations is kept.
    coreset_size : int, float or None
        Rows to learn from, or a fraction of the rows. If there are no more rows than this, all are used. None uses
        all rows of an array; of a source or of `partial_fit`, it keeps 100 rows for each atom and at least 5,000.
        Each atom should be used often: keep at least some ``100 * n_components / n_nonzero_coefs`` rows.
    construction, engine
        See `build_coreset`.
    reference : {"constant", "mean_line", "mean_point", "singular", "kmeans", "ksvd", "projective"}, array or Reference
        The rough dictionary D0 that rows are drawn by; an array (r, d) is one's own. A `Reference` also says how many
        vectors it has, which share of the draws is uniform, and whether its vectors are kept as the first atoms.
    initial : {"data", "dct"} or array (k, d)
        Where the search starts: random rows, the overcomplete cosine transform, or given atoms.
    n_init : int
        Searches from different random rows, of which the best on the rows learned from is kept.
    center : {"none", "global", "row"}
        What is subtracted from the rows before they are coded: nothing, the mean row, or each row's own mean.
    alpha : float, optional
        With a number, rows are coded by the lasso, which minimizes |y - a D|^2 / 2 + ``alpha`` |a|_1;
        ``n_nonzero_coefs`` and ``tol`` are not used then. By default they are coded by orthogonal matching pursuit.
    positive : bool
        Atoms and codes are not negative. For rows >= 0; needs ``center="none"``.
    variant : {"accelerated", "exact", "plain", "textbook"}
        "textbook" replaces each atom, after each coding, by the best one for the rows that use it, found by a singular
        value decomposition. "plain" makes one step towards it (Rubinstein, Zibulevsky and Elad 2008). "accelerated"
        makes four steps, moves the atom on by half of them, and at times gives up the least useful atom for a split of
        another one; "exact" does so with the best atoms.
    refine_iter : int
        Iterations after those on a coreset, which make the atoms more accurate: on 80,000 rows drawn uniformly, the
        last on up to 300,000, without extrapolation.
    n_jobs : int or None
        Threads. None and -1 use all threads of the process.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : array (k, d)
        The atoms: unit rows, the largest entry of each positive.
    objective_curve_ : array of shape (``n_iter_`` + 1,)
        Mean squared error of an entry at the start and after each iteration, on the rows learned from: all rows, the
        coreset (an estimate, see ``certify``), then those of ``refine_iter``.
    mean_ : array (d,) or None
        The mean row, if ``center="global"``.
    coreset_ : Coreset or None
        The rows learned from. None if all rows of an array were used because no size was given.
    best_iter_ : int
        The iteration whose atoms were kept: the one with the smallest error, with ``tol`` the one with the fewest
        atoms per row, with ``alpha`` the one with the smallest penalised error.
    certificate_ : Certificate or None
        The mean squared error of an entry: exact if all rows were learned from, else an estimate from up to 10,000 of
        all rows, drawn uniformly. None after `partial_fit` and `refine`, and for rows that can be read only once.
    n_iter_, n_features_in_ : int

    Notes
    -----
    There is no parameter ``encode``: `encode` is the method that gives codes. Frames become rows as with
    ``encode="auto"`` elsewhere: those of numbers as they are, others by a schema (``schema_``). For another way, give
    the rows as `open_dataset` opens them.

    A coreset pays where few rows hold most of the error. Dictionaries of 16 x 16 patches of a cartoon that are drawn by
    their error have about half the error on all patches of those drawn uniformly with weights, those of photographs
    some per cent less (``benchmarks/dictionary_paper.py``). Noisy patches, and signals that are all alike, such as sums
    of random atoms, gain nothing: there ``construction="uniform"`` is as good, without a pass over the data.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.dictionary import KSVD
    >>> rng = np.random.default_rng(0)
    >>> atoms = np.eye(6)[:4] + 0.3 * rng.normal(size=(4, 6))
    >>> codes = rng.normal(size=(3000, 4)) * (rng.random((3000, 4)) < 0.3)
    >>> X = codes @ atoms
    >>> model = KSVD(n_components=4, n_nonzero_coefs=2, coreset_size=500, random_state=0).fit(X)
    >>> model.transform(X).shape, int((model.transform(X) != 0).sum(axis=1).max())
    ((3000, 4), 2)
    """

    n_components: int | None = None
    _: KW_ONLY
    n_nonzero_coefs: int | None = None
    tol: float | None = None
    max_iter: int = 40
    coreset_size: int | float | None = None
    construction: Any = "auto"
    reference: Reference | ReferenceKind | Array = "constant"
    initial: Any = "data"
    n_init: int = 1
    center: str = "none"
    alpha: float | None = None
    positive: bool = False
    variant: str = "accelerated"
    refine_iter: int = 0
    engine: Any = "auto"
    n_jobs: int | None = None
    verbose: int = 0
    random_state: Any = None

    options = OPTIONS
    _constraints = CONSTRAINTS
    calibrate = False  # calibration does not lower the error of the dictionary: see DictionaryObjective

    _uses_target = False
    mean_: Annotated[Array | None, Sometimes(Optional(Floats("d")))] = field(init=False)
    coreset_ = FittedAttribute[Coreset | None](holds_rows=True)
    components_ = FittedAttribute[Array](Floats("k", "d", dtypes=FLOATS))
    objective_curve_ = FittedAttribute[Array](Floats("rounds", least=0.0))
    best_iter_ = FittedAttribute[int]()
    n_iter_ = FittedAttribute[int]()
    certificate_ = FittedAttribute[Certificate | None]()

    # -- learning ------------------------------------------------------------------------------

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        if reset:
            self._coding()
            self.mean_ = offset(data, self.center)
        return data

    def _reduce_and_learn(
        self, data: DataPass, seed: int, context: None, checkpoint: Checkpoint | None
    ) -> dict[str, Any]:
        rows = data.rows
        values = self._learn(self._training_rows(data, seed, checkpoint), data, seed, context)
        if values["coreset_"] is None or values["coreset_"].is_whole:
            return values
        self._fitted_values = values  # more iterations and the certificate start from this solution
        self._refine_on_more(rows, seed)
        if isinstance(rows, Block) or rows.replayable:
            self.certificate_ = self._error_on(sampled(rows, _CERTIFICATE_ROWS, rng_for(seed, "certify")))
        return self._fitted_values

    @limits_threads
    def fit_drawn(self, coreset: Coreset) -> Self:
        """Learn the atoms from a coreset that was drawn for `DictionaryObjective`, which gives no certificate."""
        self._check_options()
        rows = self._validate_rows(coreset.X, None, coreset.sample_weight, reset=True)
        assert isinstance(rows, Block)
        self._start_fit()
        self._prepare(DataPass(rows), reset=True)
        rows = Centering(self.center, self.mean_)(rows)
        drawn = replace(coreset, X=rows.X, sample_weight=rows.sample_weight)
        self._fitted_values = {**self._learn(drawn, None, as_seed(self.random_state), None), "coreset_": None}
        return self

    @available_if(lambda learner: learner.center != "global")
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows, which need not be kept. `solve` learns the atoms, and so does `transform` if it was not called.

        The result does not depend on how rows are split into batches. Up to ``coreset_size`` rows are all used, as in
        `fit`; beyond that a `CoresetStream` keeps a coreset. The first call after a `fit` starts anew. Not available
        with ``center="global"``, which needs the mean of all rows before the first row is drawn.
        """
        return self._push(check_dense(X), None, sample_weight)

    def _refuse_polish(self) -> None:
        if self.refine_iter > 0:
            advice = "set it to 0, and call refine() with other rows."
            raise ValueError(f"refine_iter={self.refine_iter} reads rows again, and partial_fit keeps none: {advice}")

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        self._coding()
        self.mean_ = None
        return Centering(self.center)(check_magnitude(block))

    def _training_rows(self, data: DataPass, seed: int, checkpoint: Checkpoint | None) -> Block:
        """The centered rows to learn from: all with a positive weight, or a coreset."""
        centering, rows = Centering(self.center, self.mean_), data.rows
        data = data.over(centering(rows) if isinstance(rows, Block) else MappedSource(rows, centering))
        if self.coreset_size is not None or not isinstance(data.rows, Block):
            return self._reduce(data, self._objective(), seed, checkpoint=checkpoint)
        weight = data.rows.sample_weight
        return data.rows if weight is None or weight.all() else data.rows.take(np.flatnonzero(weight))

    def _learn(self, coreset: Block, data: DataPass | None, seed: int, context: None) -> dict[str, Any]:
        searches = (self._search(coreset, seed, number) for number in range(self._n_searches()))
        best = min(searches, key=attrgetter("price"))
        curve = np.asarray(best.curve) / self.n_encoded_
        is_whole = data is not None and (not isinstance(coreset, Coreset) or coreset.is_whole)
        error = float(curve[best.best_number])
        return {
            "best_iter_": best.best_number,
            "coreset_": coreset if isinstance(coreset, Coreset) else None,
            "components_": np.ascontiguousarray(best.atoms, dtype=coreset.X.dtype),
            "objective_curve_": curve,
            "n_iter_": len(best.curve) - 1,
            "certificate_": exact_mean_certificate(error, len(coreset)) if is_whole else None,
        }

    def _search(self, coreset: Block, seed: int, number: int) -> Learned:
        place, k = () if number == 0 else (number,), self._n_atoms()
        rng = rng_for(seed, "start", *place)
        start = initial_atoms(self.initial, coreset.X, k, positive=bool(self.positive), rng=rng)
        start = self._objective().with_reference(start, coreset, rng_for(seed, "reference"))
        return self._iterate(coreset, start, self.max_iter, rng_for(seed, "solve", *place), VARIANTS[self.variant])

    def _n_searches(self) -> int:
        from_rows = isinstance(self.initial, str) and self.initial == "data"
        if self.n_init > 1 and not from_rows:
            warn_caller(f"initial is not 'data': one search is made from it, not n_init={self.n_init}.", RuntimeWarning)
        return int(self.n_init) if from_rows else 1

    def refine(self, X: Any, sample_weight: Any = None, *, n_iter: int) -> Self:
        """Improve the atoms, and continue their curve, by more iterations on other rows than those of ``coreset_``."""
        self.solve()
        check_value("n_iter", n_iter, WholeNumber(least=1))
        self.certificate_ = None
        rows = self._validate_rows(X, None, sample_weight, reset=False)
        assert isinstance(rows, Block)
        return self._refine(rows, n_iter, rng_for(as_seed(self.random_state), "refine"), VARIANTS[self.variant])

    def _refine_on_more(self, rows: Any, seed: int) -> None:
        """The iterations of ``refine_iter``, each on other rows, the last on the most."""
        last_size = max(_REFINE_ROWS, min(_MAX_LAST_ROWS, _MAX_LAST_NUMBERS // self.n_encoded_))
        refining = replace(REFINING, exact=VARIANTS[self.variant].exact)
        for left in range(self.refine_iter - 1, -1, -1):
            sample = sampled(rows, _REFINE_ROWS if left else last_size, rng_for(seed, "draw", left))
            self._refine(sample, 1, rng_for(seed, "refine", left), refining)

    def _refine(self, rows: Block, n_iter: int, rng: np.random.Generator, variant: Variant) -> Self:
        learned = self._iterate(Centering(self.center, self.mean_)(rows), self.components_, n_iter, rng, variant)
        self.components_ = np.ascontiguousarray(learned.atoms, dtype=self.components_.dtype)
        self.objective_curve_ = np.append(self.objective_curve_, np.asarray(learned.curve[1:]) / self.n_encoded_)
        self.best_iter_ = self.n_iter_ + learned.best_number
        self.n_iter_ += len(learned.curve) - 1
        return self

    def _iterate(self, rows: Block, atoms: Array, n_iter: int, rng: np.random.Generator, variant: Variant) -> Learned:
        how: dict[str, Any] = {"max_iter": n_iter, "rng": rng, "variant": variant}
        return learn_dictionary(rows.X, rows.sample_weight, atoms, self._coding(), **how)

    def _adopt_coreset(self, coreset: Coreset, feature_names: Array | None) -> None:
        super()._adopt_coreset(replace(coreset, X=Centering(self.center, self.mean_)(coreset).X), feature_names)

    # -- parameters ----------------------------------------------------------------------------

    def _check_options(self) -> None:
        check_params(self, self._constraints)
        if self.positive and self.center != "none":
            raise ValueError("positive=True needs center='none': rows without their means have negative entries.")
        reference = Reference.of(self.reference)
        if reference.include and self.alpha is not None:
            raise ValueError("Reference(include=True) needs alpha=None: codes of the lasso may be worse than its own.")
        reference.objective(positive=self.positive)
        self._check_names()

    def _objective(self) -> DictionaryObjective:
        coding = self._pursuit()
        return Reference.of(self.reference).objective(
            n_components=self._n_atoms(), n_nonzero_coefs=coding.n_nonzero, positive=coding.positive
        )

    def _coding(self) -> Coding:
        """How rows are coded, with a reference among the atoms if it is included."""
        coding = self._pursuit()
        if not Reference.of(self.reference).include:
            return coding
        return replace(coding, n_reference=self._objective().n_included(self.n_encoded_))

    def _pursuit(self) -> Coding:
        """How rows are coded. More atoms per row than there are atoms or columns are refused."""
        d, k, n_nonzero = self.n_encoded_, self._n_atoms(), self.n_nonzero_coefs
        if self.alpha is not None:
            return Coding(n_nonzero=min(k, max(1, d // 10)), penalty=float(self.alpha), positive=bool(self.positive))
        if n_nonzero is None:
            n_nonzero = min(k, d if self.tol is not None else max(1, d // 10))
        elif n_nonzero > min(d, k):
            raise ValueError(f"n_nonzero_coefs={n_nonzero} is more than the {k} atoms or the {d} columns.")
        return Coding(n_nonzero=int(n_nonzero), target=float(self.tol or 0.0), positive=bool(self.positive))

    def _n_atoms(self) -> int:
        return self.n_encoded_ if self.n_components is None else int(self.n_components)

    def planned(self, n_rows: int | None, n_features: int) -> tuple[Any, int | float]:
        learner = copy(self)
        learner.n_encoded_ = n_features  # the objective depends on it, and it is not known before a fit
        return super(KSVD, learner).planned(n_rows, n_features)

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return max(_MIN_AUTO_ROWS, _AUTO_ROWS_PER_ATOM * self._n_atoms())

    def _size(self, n_rows: int | None, n_features: int) -> int:
        k, size = self._n_atoms(), super()._size(n_rows, n_features)
        if size < k:
            advice = "ask for some hundred rows per atom."
            raise ValueError(f"coreset_size={self.coreset_size} keeps {size} rows, fewer than {k} atoms: {advice}")
        return size

    # -- codes ---------------------------------------------------------------------------------

    @lazy_on_collections
    def transform(self, X: Any) -> Array:
        """Codes (n, k) of the rows, dense. If they do not fit into memory, use ``encode``."""
        return np.asarray(self.encode(X).toarray())

    def encode(self, X: Any) -> sparse.csr_matrix:
        """Codes (n, k) of the rows as a CSR matrix: those of ``transform`` without the zeros."""
        rows = self._rows_to_code(X)
        parts = [sparse.csr_matrix((0, len(self.components_)), dtype=self.components_.dtype)]
        for chosen, values, _, _ in self._coder().chunks(rows):
            used = chosen >= 0
            first = np.concatenate([[0], np.count_nonzero(used, axis=1).cumsum()])
            parts.append(sparse.csr_matrix((values[used], chosen[used], first), (len(used), len(self.components_))))
        codes = sparse.vstack(parts, format="csr")
        codes.sort_indices()
        return codes

    def inverse_transform(self, codes: Any) -> Array:
        """The rows (n, d) that codes, dense or CSR, represent.

        A row's own mean (``center="row"``) is not part of its code and is not added: see ``reconstruct``.
        """
        self.solve()
        codes = check_array(codes, accept_sparse="csr", dtype=[np.float64, np.float32])
        if codes.shape[1] != len(self.components_):
            raise ValueError(f"codes have {codes.shape[1]} columns, and there are {len(self.components_)} atoms.")
        rows: Array = codes @ self.components_
        return rows if self.mean_ is None else rows + self.mean_.astype(rows.dtype)

    def reconstruct(self, X: Any) -> Array:
        """The rows as their codes represent them, with their means: (n, d)."""
        rows = self._rows_to_code(X)
        residuals = [codes[3] for codes in self._coder().chunks(rows, with_residual=True)]
        return np.asarray(rows.X - np.concatenate(residuals))

    def _rows_to_code(self, X: Any) -> Block:
        self.solve()
        block = self._validate_rows(X, reset=False)
        assert isinstance(block, Block)
        return block

    def _coder(self) -> RowCoder:
        return RowCoder(self.components_, self._coding(), Centering(self.center, self.mean_))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the mean squared error of an entry of ``X``."""
        return -self.certify(X, sample_weight=sample_weight).value

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """Mean squared error of an entry on ``X``, rows or a source, with its confidence interval.

        It is an unbiased estimate for rows that were not in the training data. ``coreset_error`` is that of training.
        """
        self.solve()
        return self._error_on(self._validate_rows(X, None, sample_weight, reset=False))

    def _error_on(self, rows: Block | Source) -> Certificate:
        if isinstance(rows, Block) and rows.sample_weight is not None:  # squares of weights must not overflow
            rows = replace(rows, sample_weight=rows.sample_weight / rows.sample_weight.max())
        data, coder = DataPass(rows, self.engine), self._coder()
        scale = float(self.objective_curve_[0]) or 1.0  # squares of errors must not overflow either
        sums = data.total(lambda block: coder.error_sums(block, scale))
        return mean_certificate(sums, scale, data.n_rows, float(self.objective_curve_[self.best_iter_]))

    # -- what reports say --------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """The error at the end of training, and of each atom its largest entries and the share of the rows using it."""
        self.solve()
        names, shares = column_names(self), self._shares()
        atoms = []
        for i, atom in enumerate(np.asarray(self.components_, np.float64)):
            largest = np.argsort(-np.abs(atom), kind="stable")[:MAX_BARS]
            entries = {names[j]: float(atom[j]) for j in largest}
            atoms.append({"atom": i, "share": None if shares is None else float(shares[i]), "entries": entries})
        return {"mean_squared_error": float(self.objective_curve_[self.best_iter_]), "atoms": atoms}

    def charts(self) -> list[BarChart]:
        """The share of the rows that use each atom."""
        self.solve()
        shares = self._shares()
        if shares is None:
            return []
        return [BarChart.of_largest("atoms", range(len(shares)), shares, "share of the rows that use it, by weight")]

    def _shares(self) -> Array | None:
        """The share of the weight of the coreset's rows that use each atom; None if there is no coreset."""
        rows = (self._fitted_values or {}).get("coreset_")  # it may not have been saved
        if not isinstance(rows, Coreset):
            return None
        chosen = self._coding()(rows.X, np.asarray(self.components_))[0]
        weight = np.broadcast_to(rows.weights()[:, None], chosen.shape)
        used = chosen >= 0
        shares: Array = np.bincount(chosen[used], weights=weight[used], minlength=len(self.components_))
        shares /= rows.weights().sum()
        return shares

    # -- checks --------------------------------------------------------------------------------

    def check_relations(self) -> None:
        super().check_relations()
        if self._is_behind:
            return
        expect(len(self.components_) == self._n_atoms(), "the number of atoms is not that of the parameters")
        expect(self.best_iter_ < len(self.objective_curve_), "the best iteration is missing")
        expect(self.center != "global" or self.mean_ is not None, "the mean of all rows is missing")

    @property
    def _n_features_out(self) -> int:
        """For `get_feature_names_out`, which needs no solution."""
        check_is_fitted(self)
        return len(self.components_) if self._fitted_values else self._n_atoms()

    def _validate_rows(self, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block | Source:
        rows = super()._validate_rows(check_dense(X), None, sample_weight, reset=reset)
        return check_magnitude(rows) if isinstance(rows, Block) else rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
