"""Logistic regression on a coreset, polished and certified on all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning

from tithe.certify import bound_certificate
from tithe.core.data import Array, Block, grouped
from tithe.core.errors import warn_caller
from tithe.core.passes import DataPass
from tithe.core.seeding import as_seed, rng_for
from tithe.fit.collections import lazy_on_collections
from tithe.linear.learner import CORESET_TOL_RATIO, TOLERANCE, CoresetLinearClassifier, LinearFit
from tithe.linear.logistic_objective import LogisticObjective
from tithe.linear.posterior import Posterior, sample_posterior


class CoresetLogisticRegression(CoresetLinearClassifier):
    """Logistic regression (L2) on a calibrated coreset, polished and certified on all rows.

    Minimises sum_i u_i (-ln P(y_i | x_i)) + |coefficients|^2 / (2 C), the intercept free: the same as
    `sklearn.linear_model.LogisticRegression`, in a few passes over the data instead of hundreds.
    Two classes have one row of coefficients; more are fitted together (softmax), one row each.

    Parameters
    ----------
    C : float
        Inverse strength of the penalty. With infinity there is no penalty. The loss then has no minimum if the
        classes can be separated: there is a warning, and the certificate only says that the loss is not negative.
    coreset_size : int, float or "auto"
        Rows to learn from, or a fraction of the rows. ``"auto"``: the largest of 10,000, 20 for each column, and one
        in 100 of the rows up to 50,000. If there are no more rows than this, all are used. With this and
        ``construction`` and ``polish`` at ``"auto"``, Newton's method on all rows in memory takes the place of a
        coreset where it is quicker: where columns and classes are few. ``coreset_`` then has uniform rows, and its
        ``provenance["fitted"]`` is ``"all rows"``.
    construction, calibrate, engine
        See `build_coreset`. ``"auto"`` is `Influence`.
    polish : int or "auto"
        Rounds of descent over all rows after the fit on the calibrated coreset, each accepted only if the loss falls.
        ``"auto"``: until the certificate says that the loss is within ``tol`` of the smallest possible; calibration is
        skipped if the first fit is that good.
    tol : float
        The relative excess loss at which ``polish="auto"`` stops. Each round reads the data once and divides the
        excess by about ten. A number of rounds is made whatever ``tol`` is. With either, there is a
        `ConvergenceWarning` if the certificate does not say that the excess is at most ``tol``.
    fit_intercept : bool
    class_weight : dict, "balanced" or None
        As in scikit-learn.
    max_iter : int
        Maximum number of rounds of the fit on the coreset.
    warm_start : bool
        Start where the last fit ended, if it had the same columns and classes.
    n_jobs : int or None
        Threads. None and -1 use all threads of the process.
    verbose : int
        Above 0, passes over the data are shown on standard error.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    coef_, intercept_ : arrays (1, d) and (1,) for two classes, else (K, d) and (K,)
        In the precision of the rows, as in scikit-learn. All sums are in double precision.
    classes_ : array (K,)
    certificate_ : Certificate or None
        How far the loss on all training rows is from the smallest possible: a bound, or an estimate with its
        confidence and a (looser) bound. None if the rows could be read only once: see ``certify``.
    objective_curve_ : list of float
        Loss on all rows, penalty included, after each step. It never rises. The estimate from the coreset if the rows
        could be read only once.
    n_passes_ : int
        Passes over the training rows: to reduce them, and for every step and certificate.
    n_iter_ : int
        Steps on all rows.
    coreset_ : Coreset
        Its y holds class numbers.
    sample_indices_ : array
        Positions in the training data of the rows of the coreset.
    stream_ : CoresetStream or None
        After `partial_fit`: the stream that keeps the coreset.
    sensitivity_model_ : SensitivityModel
        With ``construction="regressed"``: predicts the sensitivity of new rows.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import CoresetLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] + rng.logistic(size=100_000) > 0, "yes", "no")
    >>> model = CoresetLogisticRegression(coreset_size=2000, random_state=0).fit(X, y)
    >>> model.coef_.round(1).tolist()
    [[1.0, -2.0, 0.5]]
    >>> model.certificate_.relative_excess < 1e-4
    True

    Rows that come in batches and are not kept:

    >>> model = CoresetLogisticRegression(coreset_size=2000, random_state=0)
    >>> for at in range(0, 100_000, 10_000):
    ...     model = model.partial_fit(X[at : at + 10_000], y[at : at + 10_000], classes=["no", "yes"])
    >>> model.solve().coef_.round(1).tolist()
    [[1.0, -2.0, 0.5]]
    >>> model.certify(X, y).relative_excess < 1e-3
    True
    """

    options = (*LogisticObjective.options, TOLERANCE)
    _takes_newton = True

    def __init__(
        self,
        C: float = 1.0,
        *,
        coreset_size: int | float | str = "auto",
        construction: Any = "auto",
        calibrate: bool = True,
        polish: int | str = "auto",
        tol: float = 1e-4,
        fit_intercept: bool = True,
        class_weight: Any = None,
        max_iter: int = 200,
        warm_start: bool = False,
        engine: Any = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        encode: bool | str = "auto",
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.coreset_size = coreset_size
        self.construction = construction
        self.calibrate = calibrate
        self.polish = polish
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.engine = engine
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.encode = encode
        self.random_state = random_state

    def _completed(self, fit: LinearFit, data: DataPass | None) -> LinearFit:
        """The fit, with a warning and no more than a bound if the loss has no minimum."""
        assert fit.coreset is not None
        if not self._has_no_minimum(DataPass(fit.coreset) if data is None else data, fit.params):
            return fit
        warn_caller(
            "The classes can be separated, and without a penalty (C=inf) the loss has no minimum: coefficients "
            "grow with every round. Set a finite C.",
            ConvergenceWarning,
        )
        if fit.certificate is None:
            return fit
        loss, n_rows = fit.curve[-1], fit.certificate.n_rows  # the infimum of the loss is 0
        certificate = replace(
            bound_certificate(loss, loss, n_rows, passes=fit.certificate.passes + 1),
            sentence=f"The loss is {grouped(loss, 8)} on all {n_rows:,} rows. Without a penalty there is no smallest "
            "one where classes can be separated.",
        )
        return replace(fit, certificate=certificate)

    def _attributes(self, params: Array, dtype: Any) -> dict[str, Any]:
        return {name: values.astype(dtype) for name, values in super()._attributes(params, dtype).items()}

    def _has_no_minimum(self, data: DataPass, params: Array) -> bool:
        """Whether there is no penalty and each row's class is the most likely one, so that no minimum exists."""
        if not np.isinf(self.C):
            return False
        objective = self._objective()

        def worst(block: Block) -> float:
            return float(objective.cost(block, params)[block.weights() > 0.0].max(initial=0.0))

        return bool(max(data.each(worst)) < np.log(2.0))

    def _objective(self, classes: tuple[int, ...] | None = None) -> LogisticObjective:
        return LogisticObjective(
            C=self.C,
            fit_intercept=self.fit_intercept,
            classes=tuple(range(len(self.classes_))) if classes is None else classes,
            max_iter=self.max_iter,
            tol=CORESET_TOL_RATIO * self.tol,
        )

    def posterior(
        self, X: Any = None, y: Any = None, sample_weight: Any = None, *, n_samples: int = 1000, random_state: Any = 0
    ) -> Posterior:
        """The posterior of the parameters given these rows, or the coreset: see `Posterior`.

        The prior of coefficients is normal with mean 0 and variance C, that of intercepts is flat.
        """
        rows: Block
        if X is None:
            rows = self.solve().coreset_
        else:
            checked = self.solve()._validate_rows(X, y, sample_weight, reset=False)
            if not isinstance(checked, Block):
                raise ValueError("A posterior needs rows in memory: leave X out for that of the coreset.")
            rows = self._prepare_block(checked, reset=False)
        return sample_posterior(self._objective(), rows, n_samples, rng_for(as_seed(random_state), "posterior"))

    @lazy_on_collections
    def predict_proba(self, X: Any) -> Array:
        """(n, K), in the order of ``classes_``; a column ``probability`` of a Spark DataFrame."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            return np.column_stack([expit(-margins), expit(margins)])
        probabilities: Array = softmax(margins, axis=1)
        return probabilities

    @lazy_on_collections
    def predict_log_proba(self, X: Any) -> Array:
        """(n, K), without underflow of small probabilities."""
        margins = self.decision_function(X)
        scores = np.column_stack([np.zeros_like(margins), margins]) if margins.ndim == 1 else margins
        logs: Array = log_softmax(scores, axis=1)
        return logs
