"""K-SVD on all rows or on a coreset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_array, check_is_fitted

from tithe.certify import Certificate
from tithe.certify.held_out import mean_certificate
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.params import Boolean, Constraint, OneOf, RealNumber, WholeNumber, check_params, check_value
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Optional, Sizes, check_fields, expect
from tithe.kernels.sampling import sample_rows
from tithe.learners.base import CoresetLearner, limits_threads
from tithe.learners.bases import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, available_if
from tithe.learners.dictionary.rows import (
    MEANS,
    Centring,
    RowCoder,
    check_dense,
    check_magnitude,
    initial_atoms,
    offset,
)
from tithe.learners.fitted import FLOATS, FittedAttribute
from tithe.objectives.dictionary import DictionaryObjective
from tithe.solvers.ksvd import Coding, learn_dictionary
from tithe.sources.mapped import MappedSource

_MIN_AUTO_ROWS, _AUTO_ROWS_PER_ATOM = 5000, 100  # kept of rows that do not come as one array
_REFINE_ROWS = 80_000  # rows that atoms are refined on


class KSVD(CoresetLearner, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Dictionary learning by K-SVD, on all rows or on a coreset.

    Finds k unit atoms D (k, d) and codes a_i of at most T nonzero entries with small sum_i u_i |y_i - a_i D|^2 over
    the rows y_i. Each iteration codes all rows by orthogonal matching pursuit, then fits each atom to the rows that
    use it (Aharon, Elad and Bruckstein 2006). ``coreset_size`` limits the rows (Feldman, Feigin and Sochen 2013).

    Parameters
    ----------
    n_components : int, optional
        k. By default the number of columns.
    n_nonzero_coefs : int, optional
        T. By default a tenth of the columns, and at least one; with ``tol`` all columns.
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
    initial : {"data", "dct"} or array (k, d)
        Where the search starts: random rows, the overcomplete cosine transform, or given atoms.
    center : {"none", "global", "row"}
        What is subtracted from the rows before they are coded: nothing, the mean row, or each row's own mean.
    coding : {"omp", "lasso"}
        Lasso codes minimise |y - a D|^2 / 2 + ``alpha`` |a|_1; ``n_nonzero_coefs`` and ``tol`` are not used then.
    alpha : float
        Penalty of lasso codes.
    positive : bool
        Atoms and codes are not negative. For rows >= 0; needs ``center="none"``.
    exact_update : bool
        Each atom is replaced by the best one for the rows that use it (a singular value decomposition), instead of
        moving one step towards it.
    refine_iter : int
        Iterations after those on a coreset, on up to 80,000 rows drawn uniformly, which make the atoms more accurate.
        Two iterations on 20,000 rows bring the atoms of 5,000 rows 1.8 times as near to planted ones (the median
        atom), and 1.4 to 1.7 times if all planted atoms point the same way.
    n_jobs : int or None
        Threads. None and -1 use all threads of the process.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    components_ : array (k, d)
        The atoms: unit rows, the largest entry of each positive.
    objective_curve_ : array (n_iter_ + 1,)
        Mean squared error of an entry at the start and after each iteration, on the rows learned from: all rows, the
        coreset (an estimate, see ``certify``), then those of ``refine_iter``.
    mean_ : array (d,) or None
        The mean row, if ``center="global"``.
    coreset_ : Coreset or None
        The rows learned from. None if all rows of an array were used because no size was given.
    best_iter_ : int
        The iteration whose atoms were kept: the one with the smallest error, with ``tol`` the one with the fewest
        atoms per row, with lasso codes the one with the smallest penalised error.
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

    calibrate = False  # calibration does not lower the error of the dictionary: see DictionaryObjective

    mean_: Array | None
    coreset_ = FittedAttribute[Coreset | None](holds_rows=True)
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
            rng, n = rng_for(seed, "draw"), _REFINE_ROWS
            sample = sample_rows(rows, n, rng) if isinstance(rows, Block) else rows.sample(n, rng=rng)
            self._refine(sample, self.refine_iter, seed)
        return self

    @available_if(lambda learner: learner.center != "global")
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows, which need not be kept. The atoms are learned when an attribute is read.

        ``hasattr`` reads an attribute too: the first call after new rows takes as long as a fit.

        The result does not depend on how rows are split into batches. Up to ``coreset_size`` rows are all used, as in
        `fit`; beyond that a `CoresetStream` keeps a coreset. The first call after a `fit` starts anew. Not available
        with ``center="global"``, which needs the mean of all rows before the first row is drawn.

        Parameters
        ----------
        X : array or frame of shape (n, d)
        y : ignored
        sample_weight : array of shape (n,), optional
        """
        return self._push(check_dense(X), None, sample_weight)

    def _refuse_polish(self) -> None:
        if self.refine_iter > 0:
            advice = "set it to 0, and call refine() with other rows."
            raise ValueError(f"refine_iter={self.refine_iter} reads rows again, and partial_fit keeps none: {advice}")

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        self._coding()
        self.mean_ = None
        return Centring(self.center)(check_magnitude(block))

    def _objective(self) -> DictionaryObjective:
        k, coding = self._n_atoms(), self._coding()
        return DictionaryObjective(n_components=k, n_nonzero_coefs=coding.n_nonzero, positive=coding.positive)

    def _training_rows(self, data: DataPass, seed: int, checkpoint: Checkpoint | None) -> Block:
        """The centred rows to learn from: all with a positive weight, or a coreset."""
        centring, rows = Centring(self.center, self.mean_), data.rows
        data = data.over(centring(rows) if isinstance(rows, Block) else MappedSource(rows, centring))
        if self.coreset_size is not None or not isinstance(data.rows, Block):
            return self._reduce(data, self._objective(), seed, checkpoint=checkpoint)
        weight = data.rows.sample_weight
        return data.rows if weight is None or weight.all() else data.rows.take(np.flatnonzero(weight))

    def _learn(self, coreset: Block, data: DataPass | None, seed: int) -> None:
        k, positive, rng = self._n_atoms(), bool(self.positive), rng_for(seed, "start")
        start = initial_atoms(self.initial, coreset.X, k, positive=positive, rng=rng)
        atoms, curve, self.best_iter_ = self._iterate(coreset, start, self.max_iter, rng_for(seed, "solve"))
        self.coreset_ = coreset if isinstance(coreset, Coreset) else None
        self.components_ = np.ascontiguousarray(atoms, dtype=coreset.X.dtype)
        self.objective_curve_ = np.asarray(curve) / self.n_features_in_
        self.n_iter_ = len(curve) - 1

    def refine(self, X: Any, sample_weight: Any = None, *, n_iter: int) -> Self:
        """Improve the atoms by ``n_iter`` more iterations on other rows, as a rule more than in the coreset.

        ``objective_curve_`` and ``n_iter_`` are continued; ``coreset_`` stays the same.
        """
        check_is_fitted(self)
        check_value("n_iter", n_iter, WholeNumber(least=1))
        return self._refine(self._signals(X, sample_weight, reset=False), n_iter, as_seed(self.random_state))

    def _refine(self, rows: Block, n_iter: int, seed: int) -> Self:
        rows = Centring(self.center, self.mean_)(rows)
        atoms, curve, best = self._iterate(rows, self.components_, n_iter, rng_for(seed, "refine"))
        self.components_ = np.ascontiguousarray(atoms, dtype=self.components_.dtype)
        self.objective_curve_ = np.append(self.objective_curve_, np.asarray(curve[1:]) / self.n_features_in_)
        self.best_iter_ = self.n_iter_ + best
        self.n_iter_ += n_iter
        return self

    def _iterate(self, rows: Block, atoms: Array, n_iter: int, rng: np.random.Generator) -> tuple[Array, Any, int]:
        exact, weight = bool(self.exact_update), rows.sample_weight
        return learn_dictionary(rows.X, weight, atoms, self._coding(), max_iter=n_iter, rng=rng, exact=exact)

    # -- methods of a fitted dictionary --------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Codes (n, k) of the rows, dense. If they do not fit into memory, use ``encode``."""
        rows = self._rows_to_code(X)
        return self._coder().dense(rows)

    def encode(self, X: Any) -> sparse.csr_matrix:
        """Codes (n, k) of the rows as a CSR matrix: those of ``transform`` without the zeros."""
        rows = self._rows_to_code(X)
        return self._coder().sparse(rows)

    def inverse_transform(self, codes: Any) -> Array:
        """The rows (n, d) that codes, dense or CSR, represent.

        A row's own mean (``center="row"``) is not part of its code and is not added: see ``reconstruct``.
        """
        check_is_fitted(self)
        codes = check_array(codes, accept_sparse="csr", dtype=[np.float64, np.float32])
        if codes.shape[1] != len(self.components_):
            raise ValueError(f"codes have {codes.shape[1]} columns, and there are {len(self.components_)} atoms.")
        rows: Array = codes @ self.components_
        return rows if self.mean_ is None else rows + self.mean_.astype(rows.dtype)

    def reconstruct(self, X: Any) -> Array:
        """The rows as their codes represent them, with their means: (n, d)."""
        rows = self._rows_to_code(X)
        reconstructed: Array = rows.X - self._coder().residuals(rows)
        return reconstructed

    def _rows_to_code(self, X: Any) -> Block:
        check_is_fitted(self)
        block: Block = self._signals(X, None, reset=False)
        return block

    def _coder(self) -> RowCoder:
        centring = Centring(self.center, self.mean_)
        return RowCoder(atoms=self.components_, coding=self._coding(), centring=centring)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the mean squared error of an entry of ``X``."""
        return -self.certify(X, sample_weight=sample_weight).value

    def certify(self, X: Any, y: Any = None, sample_weight: Any = None) -> Certificate:
        """Mean squared error of an entry on ``X``, rows or a source, with its confidence interval.

        Use rows that were not in the training data: then it is an unbiased estimate for rows of this kind.
        ``coreset_error`` compares it with the error at the end of training.
        """
        check_is_fitted(self)
        rows = X if isinstance(X, Source) else self._signals(X, sample_weight, reset=False)
        if isinstance(rows, Block) and rows.sample_weight is not None:  # squares of weights must not overflow
            rows = replace(rows, sample_weight=rows.sample_weight / rows.sample_weight.max())
        data, coder = DataPass(rows, self.engine), self._coder()
        scale = float(self.objective_curve_[0]) or 1.0  # squares of errors must not overflow either
        sums = data.total(lambda block: coder.error_sums(block, scale))
        return mean_certificate(sums, scale, data.n_rows, float(self.objective_curve_[self.best_iter_]))

    # -- checks --------------------------------------------------------------------------------

    def _check_solution(self, sizes: Sizes) -> None:
        check_fields(self, {"mean_": Optional(Floats("d"))}, sizes=sizes)
        expect(sizes["k"] == self._n_atoms(), "the number of atoms is not that of the parameters")
        expect(self.best_iter_ < sizes["rounds"], "the best iteration is missing")
        expect(self.center != "global" or self.mean_ is not None, "the mean of all rows is missing")

    @property
    def _n_features_out(self) -> int:
        """For `get_feature_names_out`, which must not start a fit."""
        check_is_fitted(self)
        return len(self.components_) if self._fitted_values else self._n_atoms()

    def _signals(self, X: Any, sample_weight: Any, *, reset: bool) -> Any:
        rows = self._validate_rows(check_dense(X), None, sample_weight, reset=reset)
        return check_magnitude(rows) if isinstance(rows, Block) else rows

    def _n_atoms(self) -> int:
        return self.n_features_in_ if self.n_components is None else int(self.n_components)

    def _check_options(self) -> None:
        check_params(self, self._constraints)
        if self.positive and self.center != "none":
            raise ValueError("positive=True needs center='none': rows without their means have negative entries.")
        self._check_names()

    def _coding(self) -> Coding:
        """How rows are coded. More atoms per row than there are atoms or columns are refused."""
        d, k, n_nonzero = self.n_features_in_, self._n_atoms(), self.n_nonzero_coefs
        if self.coding == "lasso":
            return Coding(n_nonzero=min(k, max(1, d // 10)), penalty=float(self.alpha), positive=bool(self.positive))
        if n_nonzero is None:
            n_nonzero = min(k, d if self.tol is not None else max(1, d // 10))
        elif n_nonzero > min(d, k):
            raise ValueError(f"n_nonzero_coefs={n_nonzero} is more than the {k} atoms or the {d} columns.")
        return Coding(n_nonzero=int(n_nonzero), target=float(self.tol or 0.0), positive=bool(self.positive))

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        return max(_MIN_AUTO_ROWS, _AUTO_ROWS_PER_ATOM * self._n_atoms())

    def _size(self, n_rows: int | None, n_features: int) -> int:
        k = self._n_atoms()
        size = super()._size(n_rows, n_features)
        if size < k:
            advice = "ask for some hundred rows per atom."
            raise ValueError(f"coreset_size={self.coreset_size} keeps {size} rows, fewer than {k} atoms: {advice}")
        return size

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
