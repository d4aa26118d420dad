"""K-SVD on all rows or on a coreset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, check_is_fitted

from tithe.certify import Certificate
from tithe.certify.held_out import mean_certificate
from tithe.core.checkpoint import Checkpoint
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.params import Boolean, Constraint, OneOf, RealNumber, WholeNumber, check_params, check_value
from tithe.core.passes import DataPass
from tithe.core.progress import Progress
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Optional, Sizes, check_fields, expect
from tithe.kernels.sampling import sample_rows
from tithe.learners.base import CoresetLearner, limits_threads
from tithe.learners.bases import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, available_if
from tithe.learners.dictionary.centring import MEANS, Centring, offset
from tithe.learners.lazy_fit import FittedAttribute
from tithe.learners.stored import FLOATS
from tithe.objectives.dictionary import DictionaryObjective
from tithe.solvers.ksvd import Coding, cosine_atoms, data_atoms, learn_dictionary, unit
from tithe.sources.mapped import MappedSource

_ROWS = 1 << 15  # signals coded at a time: their codes are kept as pairs only so long
_LEAST_ROWS, _ROWS_PER_ATOM = 5000, 100  # kept of rows that are never in memory together, if nothing is said
_REFINE_ROWS = 80_000  # rows that atoms are refined on
_LARGEST = 1e150  # squares of larger numbers overflow
_LARGEST_SINGLE = 1e35  # of the length of a row: codes in single precision may be some hundred times as large


class KSVD(CoresetLearner, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Dictionary learning by K-SVD, on all rows or on a small weighted share of them.

    Finds k unit atoms D (k, d) and codes a_i of at most T nonzero entries with small
    sum_i u_i |y_i - a_i D|^2 over the rows y_i. Each iteration codes all rows by orthogonal matching
    pursuit and then fits every atom to the rows that use it (Aharon, Elad and Bruckstein 2006). With a
    ``coreset_size`` it learns from that many rows only (Feldman, Feigin and Sochen 2013).

    Parameters
    ----------
    n_components : int, optional
        k. By default as many as there are columns.
    n_nonzero_coefs : int, optional
        T. By default a tenth of the columns, and at least one; with ``tol`` all columns.
    tol : float, optional
        A row takes atoms until its squared error is this or less (and no more than ``n_nonzero_coefs``).
    max_iter : int
        Iterations. The best dictionary met is kept.
    coreset_size : int, float or None
        Rows to learn from, or a fraction of the rows. With no more rows than this, all are used. None: all, and of
        rows that are never in memory together, 100 for each atom and at least 5,000. Every atom should be used
        often: some ``100 * n_components / n_nonzero_coefs`` rows are the least.
    construction, engine
        See `build_coreset`.
    initial : {"data", "dct"} or array (k, d)
        Where the search starts: random rows, the overcomplete cosine transform, or given atoms.
    center : {"none", "global", "row"}
        What is taken out of the rows before they are coded: nothing, the mean row, or each row's own mean.
    coding : {"omp", "lasso"}
        Lasso codes minimise |y - a D|^2 / 2 + ``alpha`` |a|_1; ``n_nonzero_coefs`` and ``tol`` do not matter then.
    alpha : float
        Penalty of lasso codes.
    positive : bool
        Atoms and codes are not negative. Meant for rows >= 0 and ``center="none"``.
    exact_update : bool
        Each atom becomes the best one for its users (a singular value decomposition) rather than one step nearer
        to it.
    refine_iter : int
        Iterations after those on a coreset, on up to 80,000 rows drawn uniformly: few rows find the atoms, more make
        them sharp. Two iterations on 20,000 rows bring the atoms of 5,000 rows 1.8 times as near to planted ones (the
        median atom), and 1.4 to 1.7 times where all planted atoms point the same way.
    n_jobs : int or None
        Threads. None uses those that the process has; -1 as well.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : array (k, d)
        The atoms: unit rows, the largest entry of each positive.
    objective_curve_ : array (n_iter_ + 1,)
        Mean squared error of an entry at the start and after each iteration, all rows coded anew; on a coreset
        it is the coreset's estimate, see ``certify``; then that of the rows of ``refine_iter``.
    mean_ : array (d,) or None
        The row that was taken out, where ``center="global"``.
    coreset_ : Coreset or None
        What was learned from; None where that was all rows of an array because no size was given.
    best_iter_ : int
        The iteration whose atoms were kept: that of the smallest error, with ``tol`` that whose codes need the fewest
        atoms, and with lasso codes that of the smallest penalised error.
    n_iter_, n_features_in_ : int

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

    calibrate = False  # it does not lower the error of the dictionary: see DictionaryObjective

    mean_: Array | None
    coreset_ = FittedAttribute[Coreset | None]()
    components_ = FittedAttribute[Array](Floats("k", "d", dtypes=FLOATS))
    objective_curve_ = FittedAttribute[Array](Floats("rounds", least=0.0))
    best_iter_ = FittedAttribute[int]()
    n_iter_ = FittedAttribute[int]()

    _constraints: ClassVar[dict[str, Constraint]] = {
        "n_components": OneOf(None) | WholeNumber(least=1),
        "n_nonzero_coefs": OneOf(None) | WholeNumber(least=1),
        "tol": OneOf(None) | RealNumber(least=0.0),
        "max_iter": WholeNumber(least=1),
        "center": OneOf(*MEANS),
        "coding": OneOf("omp", "lasso"),
        "alpha": RealNumber(least=0.0),
        "positive": Boolean(),
        "exact_update": Boolean(),
        "refine_iter": WholeNumber(),
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_nonzero_coefs: int | None = None,
        tol: float | None = None,
        max_iter: int = 40,
        coreset_size: int | float | None = None,
        construction: Any = "auto",
        initial: Any = "data",
        center: str = "none",
        coding: str = "omp",
        alpha: float = 1.0,
        positive: bool = False,
        exact_update: bool = False,
        refine_iter: int = 0,
        engine: Any = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_nonzero_coefs = n_nonzero_coefs
        self.tol = tol
        self.max_iter = max_iter
        self.coreset_size = coreset_size
        self.construction = construction
        self.initial = initial
        self.center = center
        self.coding = coding
        self.alpha = alpha
        self.positive = positive
        self.exact_update = exact_update
        self.refine_iter = refine_iter
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # -- learning ------------------------------------------------------------------------------

    @limits_threads
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Learn the atoms.

        Parameters
        ----------
        X : array or frame of shape (n, d), or a source
            A source (`open_dataset`) is read leaf by leaf, and learned from through a coreset.
        y : ignored
        sample_weight : array of shape (n,), optional
            A row of weight two counts as two rows.
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        """
        self._check_options()
        rows = self._signals(X, sample_weight, reset=True)
        self._start_fit()
        self._coding()
        data = self._passes(rows, progress)
        self.mean_ = offset(data, self.center)
        seed = as_seed(self.random_state)
        self._learn(self._training_rows(data, seed, checkpoint), data, seed)
        if self.refine_iter > 0 and self.coreset_ is not None and not self.coreset_.is_whole:
            self._refine_on_sample(rows, seed)
        return self

    @available_if(lambda learner: learner.center != "global")
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Take in more rows, which need not be kept; atoms are learned when they are asked for.

        In which pieces rows come makes no difference. Up to ``coreset_size`` rows are all used, as `fit` would use
        them; of more, a `CoresetStream` keeps a coreset. The first call after a `fit` starts anew. Not there with
        ``center="global"``: the mean of all rows would be needed before the first is drawn.

        Parameters
        ----------
        X : array or frame of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
        """
        return self._push(_dense(X), None, sample_weight)

    def _refuse_polish(self) -> None:
        if self.refine_iter > 0:
            raise ValueError(
                f"refine_iter={self.refine_iter} needs rows at hand, and those of partial_fit are gone: set it to 0, "
                "and call refine() with other rows."
            )

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        self._coding()
        self.mean_ = None
        return Centring(self.center)(_not_too_large(block))

    def _objective(self) -> DictionaryObjective:
        coding = self._coding()
        return DictionaryObjective(
            n_components=self._n_atoms(), n_nonzero_coefs=coding.n_nonzero, positive=coding.positive
        )

    def _training_rows(self, data: DataPass, seed: int, checkpoint: Checkpoint | None) -> Block:
        """The rows to learn from, without their means: all that carry weight, or a coreset."""
        centring, rows = Centring(self.center, self.mean_), data.rows
        data = data.over(centring(rows) if isinstance(rows, Block) else MappedSource(rows, centring))
        if self.coreset_size is not None or not isinstance(data.rows, Block):
            return self._reduce(data, self._objective(), seed, checkpoint=checkpoint)
        weight = data.rows.sample_weight
        return data.rows if weight is None or weight.all() else data.rows.take(np.flatnonzero(weight))

    def _learn(self, coreset: Block, data: DataPass | None, seed: int) -> None:
        start = self._given_start()
        if start is None:
            start = data_atoms(coreset.X, self._n_atoms(), rng_for(seed, "start"), positive=bool(self.positive))
        atoms, curve, self.best_iter_ = learn_dictionary(
            coreset.X,
            coreset.sample_weight,
            start,
            self._coding(),
            max_iter=self.max_iter,
            rng=rng_for(seed, "solve"),
            exact=bool(self.exact_update),
        )
        self.coreset_ = coreset if isinstance(coreset, Coreset) else None
        self.components_ = np.ascontiguousarray(atoms, dtype=coreset.X.dtype)
        self.objective_curve_ = np.asarray(curve) / self.n_features_in_
        self.n_iter_ = len(curve) - 1

    def refine(self, X: Any, sample_weight: Any = None, *, n_iter: int) -> Self:
        """Go on from the atoms that there are, for some iterations on other rows: few rows find, more make sharp.

        ``objective_curve_`` and ``n_iter_`` go on too; ``coreset_`` stays what the atoms were found from.
        """
        check_is_fitted(self)
        check_value("n_iter", n_iter, WholeNumber(least=1))
        return self._refine(self._signals(X, sample_weight, reset=False), n_iter, as_seed(self.random_state))

    def _refine_on_sample(self, rows: Any, seed: int) -> None:
        rng = rng_for(seed, "draw")
        more = sample_rows(rows, _REFINE_ROWS, rng) if isinstance(rows, Block) else rows.sample(_REFINE_ROWS, rng=rng)
        self._refine(more, self.refine_iter, seed)

    def _refine(self, rows: Block, n_iter: int, seed: int) -> Self:
        rows = Centring(self.center, self.mean_)(rows)
        atoms, curve, best = learn_dictionary(
            rows.X,
            rows.sample_weight,
            self.components_,
            self._coding(),
            max_iter=n_iter,
            rng=rng_for(seed, "refine"),
            exact=bool(self.exact_update),
        )
        self.components_ = np.ascontiguousarray(atoms, dtype=self.components_.dtype)
        self.objective_curve_ = np.append(self.objective_curve_, np.asarray(curve[1:]) / self.n_features_in_)
        self.best_iter_ = self.n_iter_ + best
        self.n_iter_ += n_iter
        return self

    # -- using what was learned ----------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Codes (n, k) of the rows, dense. Where that is too much memory, see ``encode``."""
        rows = self._for_coding(X)
        codes = np.zeros((len(rows), len(self.components_)), self.components_.dtype)
        for at, chosen, values, _ in self._coded(rows):
            i, t = np.nonzero(chosen >= 0)
            codes[at.start + i, chosen[i, t]] = values[i, t]
        return codes

    def encode(self, X: Any) -> sparse.csr_matrix:
        """Codes (n, k) of the rows as a CSR matrix: what ``transform`` gives, without its zeros."""
        rows = self._for_coding(X)
        counts, columns, entries = [np.zeros(1, np.int64)], [], []
        for _, chosen, values, _ in self._coded(rows):
            used = chosen >= 0
            counts.append(used.sum(axis=1))
            columns.append(chosen[used])
            entries.append(values[used])
        parts = (np.concatenate(entries), np.concatenate(columns), np.cumsum(np.concatenate(counts)))
        codes = sparse.csr_matrix(parts, shape=(len(rows), len(self.components_)))
        codes.sort_indices()
        return codes

    def inverse_transform(self, codes: Any) -> Array:
        """Rows (n, d) that the codes, dense or CSR, stand for.

        A row's own mean (``center="row"``) is not part of its code and stays out: see ``reconstruct``.
        """
        check_is_fitted(self)
        codes = check_array(codes, accept_sparse="csr", dtype=[np.float64, np.float32])
        if codes.shape[1] != len(self.components_):
            raise ValueError(f"codes have {codes.shape[1]} columns, and there are {len(self.components_)} atoms.")
        rows: Array = codes @ self.components_
        return rows if self.mean_ is None else rows + self.mean_.astype(rows.dtype)

    def reconstruct(self, X: Any) -> Array:
        """The rows as their codes represent them, means put back: (n, d)."""
        check_is_fitted(self)
        block = self._signals(X, None, reset=False)
        rest = np.empty_like(block.X, dtype=self.components_.dtype)
        rows = self._without_means(block)
        for at, _, _, residual in self._coded(rows, with_residual=True):
            rest[at] = residual
        return block.X - rest

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the mean squared error of an entry of ``X``."""
        return -self.certify(X, sample_weight=sample_weight).value

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """Mean squared error of an entry on rows that were not learned from, and how sure that is.

        ``X`` is rows or a source; rows that were not seen in training make it an honest estimate for all
        rows of their kind. ``coreset_error`` compares the error that training ended with.
        """
        check_is_fitted(self)
        given = X if isinstance(X, Source) else self._signals(X, sample_weight, reset=False)
        if isinstance(given, Block) and given.sample_weight is not None:  # squares of any weights must be numbers
            given = replace(given, sample_weight=given.sample_weight / given.sample_weight.max())
        every = DataPass(given, self.engine)
        scale = float(self.objective_curve_[0]) or 1.0  # and so must those of errors
        sums = every.total(lambda block: self._error_sums(block, scale))
        return mean_certificate(sums, scale, every.n_rows, float(self.objective_curve_[self.best_iter_]))

    def _error_sums(self, block: Block, scale: float) -> Array:
        coding, u = self._coding(), block.weights()
        error = coding(self._without_means(block), self.components_)[2] / block.n_features / scale
        return np.array([np.add.reduce(v) for v in (u, u * error, u * u, u * u * error, u * u * error * error)])

    def _for_coding(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._without_means(self._signals(X, None, reset=False))

    def _without_means(self, block: Block) -> Array:
        """The rows as they are coded: without means and in the precision of the atoms."""
        rows: Array = Centring(self.center, self.mean_)(_not_too_large(block, self.components_.dtype)).X
        return rows.astype(self.components_.dtype, copy=False)

    def _coded(self, rows: Array, *, with_residual: bool = False) -> Iterator[tuple[slice, Array, Array, Any]]:
        coding = self._coding()
        for start in range(0, len(rows), _ROWS):
            at = slice(start, min(len(rows), start + _ROWS))
            chosen, values, _, residual = coding(rows[at], self.components_, with_residual=with_residual)
            yield at, chosen, values, residual

    # -- checks --------------------------------------------------------------------------------

    def _check_solution(self, sizes: Sizes) -> None:
        check_fields(self, {"mean_": Optional(Floats("d"))}, sizes=sizes)
        expect(sizes["k"] == self._n_atoms(), "there are more or fewer atoms than the parameters say")
        expect(self.best_iter_ < sizes["rounds"], "the best round is not there")
        expect(self.center != "global" or self.mean_ is not None, "the mean of all rows is missing")

    @property
    def _n_features_out(self) -> int:
        """For `get_feature_names_out`, which need not learn the atoms first."""
        check_is_fitted(self)
        return len(self.components_) if self._fitted_values else self._n_atoms()

    def _signals(self, X: Any, sample_weight: Any, *, reset: bool) -> Any:
        rows = self._given(_dense(X), None, sample_weight, reset=reset)
        return _not_too_large(rows) if isinstance(rows, Block) else rows

    def _n_atoms(self) -> int:
        return self.n_features_in_ if self.n_components is None else int(self.n_components)

    def _check_options(self) -> None:
        check_params(self, self._constraints)
        if self.positive and self.center != "none":
            raise ValueError("positive=True needs center='none': rows without their means have negative entries.")
        self._check_names()

    def _coding(self) -> Coding:
        """How rows are coded; more atoms than there are, or than columns, are refused."""
        d, k, most = self.n_features_in_, self._n_atoms(), self.n_nonzero_coefs
        if self.coding == "lasso":
            return Coding(n_nonzero=min(k, max(1, d // 10)), penalty=float(self.alpha), positive=bool(self.positive))
        if most is None:
            most = min(k, d if self.tol is not None else max(1, d // 10))
        elif most > min(d, k):
            raise ValueError(
                f"n_nonzero_coefs={most} is more than the {k} atoms or the {d} columns: no row can use it."
            )
        return Coding(n_nonzero=int(most), target=float(self.tol or 0.0), positive=bool(self.positive))

    def _given_start(self) -> Array | None:
        """The atoms to start from, None if they are to come from the rows."""
        d, k = self.n_features_in_, self._n_atoms()
        if isinstance(self.initial, str):
            if self.initial not in ("data", "dct"):
                raise ValueError(f"initial must be 'data', 'dct' or an array of atoms, got {self.initial!r}.")
            return None if self.initial == "data" else _not_negative(cosine_atoms(k, d), self.positive)
        start = check_array(self.initial, dtype=np.float64, input_name="initial")
        if start.shape != (k, d):
            raise ValueError(f"initial has shape {start.shape}, expected ({k}, {d}): one row an atom.")
        if len(unit(start)) < k:
            raise ValueError("initial has rows of zeros, which cannot be atoms.")
        return _not_negative(unit(start), self.positive)

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return max(_LEAST_ROWS, _ROWS_PER_ATOM * self._n_atoms())

    def _size(self, n_rows: int | None, n_features: int) -> int:
        k = self._n_atoms()
        size = super()._size(n_rows, n_features)
        if size < k:
            raise ValueError(
                f"coreset_size={self.coreset_size} keeps {size} rows, fewer than {k} atoms: ask for some hundred rows "
                "an atom."
            )
        return size

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _dense(X: Any) -> Any:
    if sparse.issparse(X):
        raise TypeError("Sparse data was passed, and signals are dense: convert it with X.toarray() if it fits.")
    return X


def _not_too_large(block: Block, dtype: Any = None) -> Block:
    """The block, if it can be coded in that precision, or else in its own."""
    largest = max(float(block.X.max()), -float(block.X.min()))
    if largest > _LARGEST / block.X.size**0.5:
        raise ValueError("The squares of X are too large to be added up in double precision. Rescale X.")
    if (dtype or block.X.dtype) == np.float32 and largest > _LARGEST_SINGLE / block.n_features**0.5:
        raise ValueError("X is too large to be coded in single precision. Rescale X, or give it as float64.")
    return block


def _not_negative(atoms: Array, positive: bool) -> Array:
    return np.abs(atoms) if positive else atoms
