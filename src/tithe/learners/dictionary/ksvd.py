"""K-SVD on all rows or on a coreset."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.certify import Certificate
from tithe.certify.held_out import exact_mean_certificate
from tithe.core.data import Array, Block, Coreset
from tithe.core.errors import warn_caller
from tithe.core.params import WholeNumber, check_value
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Floats, Optional, Sizes, check_fields, expect
from tithe.learners.base import limits_threads
from tithe.learners.bases import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, available_if
from tithe.learners.dictionary.fitted import FittedDictionary
from tithe.learners.dictionary.parameters import DictionaryParameters
from tithe.learners.dictionary.rows import Centring, check_dense, check_magnitude, initial_atoms, offset, sampled
from tithe.learners.fitted import FLOATS, FittedAttribute
from tithe.solvers.ksvd import REFINING, VARIANTS, Learned, Variant, learn_dictionary
from tithe.sources.mapped import MappedSource

_REFINE_ROWS = 80_000  # rows of an iteration of refine_iter
_MAX_LAST_ROWS, _MAX_LAST_NUMBERS = 300_000, 32_000_000  # of the last one
_CERTIFICATE_ROWS = 10_000  # rows that the error of atoms from a coreset is estimated on


class KSVD(FittedDictionary, DictionaryParameters, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
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
    reference, n_reference, beta
        The rough dictionary D0 that rows are drawn by, its number of vectors, and the share of the draws that is
        uniform: see `DictionaryObjective`.
    include_reference : bool
        Keep the vectors of D0 as the first atoms; ``beta=0`` needs it.
    initial : {"data", "dct"} or array (k, d)
        Where the search starts: random rows, the overcomplete cosine transform, or given atoms.
    n_init : int
        Searches from different random rows, of which the best on the rows learned from is kept.
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
    variant : {"accelerated", "plain"}
        "plain" updates each atom once after each coding: with ``exact_update=True`` the textbook's K-SVD, else its fast
        approximation (Rubinstein, Zibulevsky and Elad 2008). "accelerated" updates it four times, moves it on by half
        the step, and at times gives up the least useful atom for a split of another one.
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
        atoms per row, with lasso codes the one with the smallest penalised error.
    certificate_ : Certificate or None
        The mean squared error of an entry: exact if all rows were learned from, else an estimate from up to 10,000 of
        all rows, drawn uniformly. None after `partial_fit` and `refine`, and for rows that can be read only once.
    n_iter_, n_features_in_ : int

    Notes
    -----
    Where a coreset pays: on patches of pictures, where few rows hold most of the error. Dictionaries of 16 x 16 patches
    that are drawn by their error have about half the error on all patches of those drawn uniformly with weights on a
    cartoon, and some per cent less on photographs (``benchmarks/dictionary_paper.py``). Noisy patches, and signals that
    are all alike, such as sums of random atoms, gain nothing: there ``construction="uniform"`` leads to a dictionary as
    good, without a pass over the data.

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
    certificate_ = FittedAttribute[Certificate | None]()

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_nonzero_coefs: int | None = None,
        tol: float | None = None,
        max_iter: int = 40,
        coreset_size: int | float | None = None,
        construction: Any = "auto",
        reference: str = "constant",
        n_reference: int | None = None,
        beta: float = 0.1,
        include_reference: bool = False,
        initial: Any = "data",
        n_init: int = 1,
        center: str = "none",
        coding: str = "omp",
        alpha: float = 1.0,
        positive: bool = False,
        exact_update: bool = False,
        variant: str = "accelerated",
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
        self.reference = reference
        self.n_reference = n_reference
        self.beta = beta
        self.include_reference = include_reference
        self.initial = initial
        self.n_init = n_init
        self.center = center
        self.coding = coding
        self.alpha = alpha
        self.positive = positive
        self.exact_update = exact_update
        self.variant = variant
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
        if self.coreset_ is not None and not self.coreset_.is_whole:
            self._refine_on_more(rows, seed)
            if isinstance(rows, Block) or rows.replayable:
                self.certificate_ = self._error_on(sampled(rows, _CERTIFICATE_ROWS, rng_for(seed, "certify")))
        return self

    @limits_threads
    def fit_drawn(self, coreset: Coreset) -> Self:
        """Learn the atoms from a coreset that was drawn for `DictionaryObjective`, and do not keep it.

        A reference that is included is the one that the coreset was drawn by. There is no certificate.
        """
        self._check_options()
        rows = self._signals(coreset.X, coreset.sample_weight, reset=True)
        self._start_fit()
        self._coding()
        self.mean_ = offset(DataPass(rows), self.center)
        rows = Centring(self.center, self.mean_)(rows)
        drawn = replace(coreset, X=rows.X, sample_weight=rows.sample_weight)
        self._learn(drawn, None, as_seed(self.random_state))
        self.coreset_ = None
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

    def _training_rows(self, data: DataPass, seed: int, checkpoint: Checkpoint | None) -> Block:
        """The centred rows to learn from: all with a positive weight, or a coreset."""
        centring, rows = Centring(self.center, self.mean_), data.rows
        data = data.over(centring(rows) if isinstance(rows, Block) else MappedSource(rows, centring))
        if self.coreset_size is not None or not isinstance(data.rows, Block):
            return self._reduce(data, self._objective(), seed, checkpoint=checkpoint)
        weight = data.rows.sample_weight
        return data.rows if weight is None or weight.all() else data.rows.take(np.flatnonzero(weight))

    def _learn(self, coreset: Block, data: DataPass | None, seed: int) -> None:
        searches = (self._search(coreset, seed, number) for number in range(self._n_searches()))
        best = min(searches, key=attrgetter("price"))
        self.best_iter_ = best.best_number
        self.coreset_ = coreset if isinstance(coreset, Coreset) else None
        self.components_ = np.ascontiguousarray(best.atoms, dtype=coreset.X.dtype)
        self.objective_curve_ = np.asarray(best.curve) / self.n_features_in_
        self.n_iter_ = len(best.curve) - 1
        is_whole = data is not None and (not isinstance(coreset, Coreset) or coreset.is_whole)
        self.certificate_ = exact_mean_certificate(self._training_error(), len(coreset)) if is_whole else None

    def _search(self, coreset: Block, seed: int, number: int) -> Learned:
        place, k = () if number == 0 else (number,), self._n_atoms()
        rng = rng_for(seed, "start", *place)
        start = initial_atoms(self.initial, coreset.X, k, positive=bool(self.positive), rng=rng)
        start = self._objective().with_reference(start, coreset, rng_for(seed, "reference"))
        return self._iterate(coreset, start, self.max_iter, rng_for(seed, "solve", *place), VARIANTS[self.variant])

    def _n_searches(self) -> int:
        """`n_init`, or 1 from atoms that are always the same."""
        from_rows = isinstance(self.initial, str) and self.initial == "data"
        if self.n_init > 1 and not from_rows:
            warn_caller(f"initial is not 'data': one search is made from it, not n_init={self.n_init}.", RuntimeWarning)
        return int(self.n_init) if from_rows else 1

    def refine(self, X: Any, sample_weight: Any = None, *, n_iter: int) -> Self:
        """Improve the atoms by ``n_iter`` more iterations on other rows, as a rule more than in the coreset.

        ``objective_curve_`` and ``n_iter_`` are continued; ``coreset_`` stays the same.
        """
        check_is_fitted(self)
        check_value("n_iter", n_iter, WholeNumber(least=1))
        self.certificate_ = None
        rows = self._signals(X, sample_weight, reset=False)
        return self._refine(rows, n_iter, rng_for(as_seed(self.random_state), "refine"), VARIANTS[self.variant])

    def _refine_on_more(self, rows: Any, seed: int) -> None:
        """The iterations of ``refine_iter``, each on other rows, the last on the most."""
        last_size = max(_REFINE_ROWS, min(_MAX_LAST_ROWS, _MAX_LAST_NUMBERS // self.n_features_in_))
        for left in range(self.refine_iter - 1, -1, -1):
            sample = sampled(rows, _REFINE_ROWS if left else last_size, rng_for(seed, "draw", left))
            self._refine(sample, 1, rng_for(seed, "refine", left), REFINING)

    def _refine(self, rows: Block, n_iter: int, rng: np.random.Generator, variant: Variant) -> Self:
        learned = self._iterate(Centring(self.center, self.mean_)(rows), self.components_, n_iter, rng, variant)
        self.components_ = np.ascontiguousarray(learned.atoms, dtype=self.components_.dtype)
        self.objective_curve_ = np.append(self.objective_curve_, np.asarray(learned.curve[1:]) / self.n_features_in_)
        self.best_iter_ = self.n_iter_ + learned.best_number
        self.n_iter_ += len(learned.curve) - 1
        return self

    def _iterate(self, rows: Block, atoms: Array, n_iter: int, rng: np.random.Generator, variant: Variant) -> Learned:
        options: dict[str, Any] = {"exact": bool(self.exact_update), "variant": variant}
        return learn_dictionary(rows.X, rows.sample_weight, atoms, self._coding(), max_iter=n_iter, rng=rng, **options)

    def _adopt_coreset(self, coreset: Coreset, feature_names: Array | None) -> None:
        super()._adopt_coreset(replace(coreset, X=Centring(self.center, self.mean_)(coreset).X), feature_names)

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
