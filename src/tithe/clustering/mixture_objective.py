"""Mixtures of normal distributions: what a coreset must preserve, and the search for the best mixture on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle, islice
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from tithe.certify.cost import SteppedObjective
from tithe.clustering.kernels import assign, dz_seeds
from tithe.clustering.mixture_kernels import HARD, SOFT, mixture
from tithe.clustering.objective import StepEvaluation
from tithe.core.contracts import SensitivityObjective
from tithe.core.data import ROWS_PER_COLUMN, Array, Block, Moments, Rng, Scores, Survey
from tithe.core.parallel import single_blas_thread
from tithe.core.params import Constraint, OneOf, Option, RealNumber, WholeNumber, check_params
from tithe.core.state_checks import Floats, Optional, expect
from tithe.reduce.kernels import sample_rows

_STEPS_BETWEEN_SELECTIONS = 16  # steps of EM after which the worse half of the searches is dropped
_LAST_TOL = 0.1  # of tol, at which the last search ends: it passes plateaus, and costs little on a coreset
_COMPONENTS_SEARCHED = 160  # components times starts
_PARAMETERS_SEARCHED = 5000  # numbers of a mixture beyond which fewer searches are made
_STARTS = ("kmeans", "k-means++", "random", "random_from_data")
_AUTO_STARTS = ("kmeans", "random_from_data", "k-means++", "random_from_data")  # in turns: none is best on all data
_LLOYD_STEPS = 10  # of the k-means that a search starts from
_VANISHED = 1e-12  # share of the weight below which a component explains no row
_PILOT_ROWS_PER_CLUSTER = 100
_PILOT_COLUMN_ROWS = 1.0  # rows, per column, that the pooled covariance counts for in that of a pilot's cluster
_LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, kw_only=True, eq=False)
class Components:
    """A mixture, unpacked: weights (k,), means (k, d), covariances (k, d, d) or their diagonals (k, d)."""

    weights: Array
    means: Array
    covariances: Array

    @classmethod
    def of(cls, params: Array, d: int) -> Components:
        """From the rows (k, 1 + d + c) that an objective's parameters are: weight, mean and covariance."""
        k, c = len(params), params.shape[1] - 1 - d
        covariances = params[:, 1 + d :]
        return cls(
            weights=params[:, 0],
            means=np.ascontiguousarray(params[:, 1 : 1 + d]),
            covariances=covariances if c == d and d > 1 else covariances.reshape(k, d, d),
        )

    def packed(self) -> Array:
        k = len(self.weights)
        return np.column_stack([self.weights, self.means, self.covariances.reshape(k, -1)])

    def factors(self) -> Array:
        """Inverses of the lower Cholesky factors of the covariances: (k, d, d), or diagonals (k, 1, d)."""
        values = self.covariances
        if values.ndim == 2:
            if not (values > 0.0).all():
                raise _singular()
            diagonals: Array = 1.0 / np.sqrt(values)
            return diagonals[:, None, :]
        try:
            lower = np.linalg.cholesky(values)
        except np.linalg.LinAlgError:
            raise _singular() from None
        return np.array([np.ascontiguousarray(lapack.dtrtri(one, lower=1)[0]) for one in lower])

    def heights(self, factors: Array) -> Array:
        """The log of each weight and of the density at the mean: (k,)."""
        diagonals = factors[:, 0] if factors.shape[1] == 1 else np.einsum("kii->ki", factors)
        tiny = np.finfo(np.float64).tiny
        heights: Array = np.log(np.maximum(self.weights, tiny)) + np.log(diagonals).sum(axis=1)
        heights -= 0.5 * self.means.shape[1] * _LOG_2PI
        return heights


def _singular() -> ValueError:
    return ValueError(
        "The covariance of a component is not positive definite: its rows lie in fewer dimensions than there are "
        "columns. Raise reg_covar, or ask for fewer components."
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Search:
    """Where a search on weighted rows has come: ``value`` is the mean log-likelihood of a row at ``params``."""

    params: Array
    value: float = -np.inf
    converged: bool = False
    n_iter: int = 0


@dataclass(frozen=True, kw_only=True)
class GaussianMixtureObjective(SensitivityObjective, SteppedObjective[StepEvaluation]):
    """f(x) = -log sum_j pi_j N(x; mu_j, Sigma_j), which is negative where the density is above 1.

    Parameters
    ----------
    n_components : int
    covariance_type : {"full", "tied", "diag", "spherical"}
    reg_covar : float
        Added to every variance.
    n_init, max_iter, tol, init_params : int or None, int, float, str
        How `solve` searches: ``n_init`` starts (None: see `n_starts`) race by steps of EM, the better half going on
        after every few steps, until the mean log-likelihood rises by less than ``tol`` in a step. The winner goes on
        to a tenth of ``tol``, or for ``max_iter`` steps.

    Notes
    -----
    Parameters are an array (k, 1 + d + c), a row for each component: its weight, mean and covariance, c = d^2 for
    matrices and d for diagonals. So is the pilot, which has 2k components: the clusters of k-means on a sample of the
    rows, their covariances drawn towards that of all clusters. b is the largest component of row i at the pilot, W_b
    its weight, and g_i = f(x_i) - min_x f(x) over b, about half the squared Mahalanobis distance of the row from b.
    With G clusters rows are drawn with scores

        s_i = u_i [g_i / sum(u g) + 1 / W + 1 / (G W_b)],

    sensitivities of k-means in the metric of each cluster, which bound those of mixtures up to the ratio of the largest
    and the smallest variance allowed (Lucic, Faulkner, Krause and Feldman 2018).

    The moments, in each pilot cluster: 1, f, x - mu_b, its squares and products. With their totals a coreset has the
    log-likelihood of all rows, exactly, for every mixture that splits no pilot cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import Block
    >>> from tithe.objectives import GaussianMixtureObjective
    >>> rng = np.random.default_rng(0)
    >>> block = Block(X=np.concatenate([rng.normal(0.0, 1.0, (300, 1)), rng.normal(9.0, 2.0, (300, 1))]))
    >>> params = GaussianMixtureObjective(n_components=2).solve(block, rng=rng)
    >>> params[params[:, 1].argsort(), 1:].round().tolist()  # mean and variance, behind the weight
    [[-0.0, 1.0], [9.0, 3.0]]
    """

    n_components: int = 1
    covariance_type: Literal["full", "tied", "diag", "spherical"] = "full"
    reg_covar: float = 1e-6
    n_init: int | None = None
    max_iter: int = 100
    tol: float = 1e-3
    init_params: Literal["auto", "kmeans", "k-means++", "random", "random_from_data"] = "auto"

    name: ClassVar[str] = "gmm"
    signed: ClassVar[bool] = True
    totals_at_solution: ClassVar[bool] = True
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_components": WholeNumber(least=1),
        "covariance_type": OneOf("full", "tied", "diag", "spherical"),
        "reg_covar": RealNumber(least=0.0),
        "n_init": OneOf(None) | WholeNumber(least=1),
        "max_iter": WholeNumber(least=1),
        "tol": RealNumber(least=0.0),
        "init_params": OneOf("auto", *_STARTS),
    }
    options: ClassVar[tuple[Option, ...]] = (
        Option("n_components", constraints["n_components"], "Number of components.", ("-k", "--components")),
        Option("covariance_type", constraints["covariance_type"], "full, tied, diag or spherical."),
        Option("reg_covar", constraints["reg_covar"], "Added to every variance."),
    )

    def __post_init__(self) -> None:
        check_params(self, self.constraints)

    # -- parameters --------------------------------------------------------------------------

    @property
    def has_matrices(self) -> bool:
        """Whether a covariance is a matrix, not a diagonal."""
        return self.covariance_type in ("full", "tied")

    def n_parameters(self, d: int) -> int:
        """Numbers that a mixture of rows with d columns is described by, as BIC counts them."""
        k = self.n_components
        matrix = d * (d + 1) // 2
        covariances = {"full": k * matrix, "tied": matrix, "diag": k * d, "spherical": k}[self.covariance_type]
        return k - 1 + k * d + covariances

    def n_starts(self, d: int) -> int:
        """The number of starts that None stands for: 16 to 32, or at least 4 where steps are expensive."""
        if self.n_components == 1:
            return 1
        usual = int(np.clip(_COMPONENTS_SEARCHED // self.n_components, 16, 32))
        return max(4, usual * _PARAMETERS_SEARCHED // max(_PARAMETERS_SEARCHED, self.n_parameters(d)))

    def evaluate(
        self, block: Block, params: Array, *, mode: int = 0, with_chances: bool = False
    ) -> tuple[Array, Array, Array, Array]:
        """`mixture_kernels.mixture` of the rows of a block."""
        refuse_sparse(block.X)
        with single_blas_thread():
            parts = Components.of(params, block.n_features)
            factors = parts.factors()
            heights = parts.heights(factors)
        weight = block.sample_weight
        return mixture(block.X, heights, parts.means, factors, weight=weight, mode=mode, with_chances=with_chances)

    def maximised(self, params: Array, sums: Array, d: int) -> Array:
        """The M step: the parameters (k, 1 + d + c) from the sums of an E step at ``params``.

        A component that explains no row keeps its mean and covariance.
        """
        old, count = Components.of(params, d), sums[:, 0]
        total = count.sum()
        alive = count > _VANISHED * total
        inverse = np.divide(1.0, count, out=np.zeros_like(count), where=alive)[:, None]
        step = sums[:, 2 : 2 + d] * inverse
        if not self.has_matrices:
            covariances = np.maximum(sums[:, 2 + d : 2 + 2 * d] * inverse - step * step, 0.0) + self.reg_covar
            if self.covariance_type == "spherical":
                covariances[:] = covariances.mean(axis=1, keepdims=True)
        else:
            covariances = second_moments(sums, d) * inverse[:, :, None] - step[:, :, None] * step[:, None, :]
            if self.covariance_type == "tied":
                covariances[:] = np.einsum("k,kab->ab", np.where(alive, count, 0.0), covariances) / total
            diagonals = np.einsum("kii->ki", covariances)
            diagonals[:] = np.maximum(diagonals, 0.0) + self.reg_covar
        keep = ~alive if self.covariance_type != "tied" else np.zeros_like(alive)
        covariances[keep] = old.covariances[keep].reshape(-1, *covariances.shape[1:])
        return Components(weights=count / total, means=old.means + step, covariances=covariances).packed()

    # -- what a coreset needs ----------------------------------------------------------------

    def pilot(self, block: Block, *, rng: Rng) -> Array:
        """2k components from k-means on a sample of the rows, and the covariances of its clusters."""
        refuse_sparse(block.X)
        sample = sample_rows(block, max(5000, 2 * _PILOT_ROWS_PER_CLUSTER * self.n_components), rng)
        scale = _scales(sample)
        rows = Block(X=np.ascontiguousarray(sample.X / scale), sample_weight=sample.sample_weight)
        with single_blas_thread():
            seeds = dz_seeds(rows.X, 2 * self.n_components, weight=rows.sample_weight, rng=rng)
            labels = assign(rows.X, _lloyd(rows, seeds, 3))[0]
        labels = np.unique(labels, return_inverse=True)[1]  # clusters that lost all rows are left out
        return self._of_shares(sample, _by_label(labels, labels.max() + 1), pooled=_PILOT_COLUMN_ROWS)

    def _of_shares(self, block: Block, shares: Shares, *, pooled: float = 0.0) -> Array:
        """The mixture whose components have these shares of the rows: for each, which rows, and their shares.

        The covariance of all components together counts for ``pooled`` rows per column in that of each of them.
        """
        d, weight, k = block.n_features, block.weights(), len(shares)
        mean = weight @ block.X / weight.sum()
        gap = block.X - mean
        count, means = np.empty(k), np.empty((k, d))
        second = np.empty((k, d, d) if self.has_matrices else (k, d))
        for j, (which, chances) in enumerate(shares):
            share, rows = weight[which] * chances, gap[which]
            count[j] = max(share.sum(), 1e-300)
            means[j] = share @ rows / count[j]
            rows = rows - means[j]
            second[j] = (share[:, None] * rows).T @ rows if self.has_matrices else share @ (rows * rows)
        extra = pooled * d * weight.sum() / len(block)
        ndim = (slice(None), *[None] * (second.ndim - 1))
        whole = second.sum(axis=0) / count.sum()
        covariances = (second + extra * whole) / (count + extra)[ndim]
        if self.covariance_type == "tied":
            covariances[:] = whole
        if self.covariance_type == "spherical":
            covariances[:] = covariances.mean(axis=1, keepdims=True)
        diagonals = np.einsum("kii->ki", covariances) if self.has_matrices else covariances
        diagonals += self.reg_covar
        return Components(weights=count / count.sum(), means=mean + means, covariances=covariances).packed()

    def survey(self, block: Block, pilot: Array) -> Survey:
        """Losses, largest components and totals (p, q) of the moments."""
        densities, labels, sums, _ = self.evaluate(block, pilot, mode=HARD)
        return Survey(cost=-densities, labels=labels, totals=sums, pilot=pilot)

    def check_pilot(self, pilot: Array, totals: Array | None, block: Block) -> None:
        sizes = {"d": block.n_features}
        d = sizes["d"]
        Floats("p", 1 + d + (d * d if self.has_matrices else d)).check("pilot", pilot, sizes)
        expect(sizes["p"] > 0 and (pilot[:, 0] >= 0.0).all(), "a pilot has no components, or negative weights")
        Components.of(pilot, d).factors()
        columns = 2 + 2 * d + (d * (d - 1) // 2 if self.has_matrices else 0)
        Optional(Floats("p", columns, contiguous=False)).check("totals", totals, sizes)

    def sensitivity(self, block: Block, survey: Survey) -> Scores:
        """The scores of the class docstring."""
        assert survey.pilot is not None
        parts = Components.of(survey.pilot, block.n_features)
        count, loss = survey.totals[:, 0], survey.totals[:, 1]
        present = count > 0.0
        with single_blas_thread():
            least = -parts.heights(parts.factors()) - np.log(len(count))  # of f where the component is the largest one
        excess = float((loss - count * least)[present].sum())
        slope = 1.0 / excess if excess > 0.0 else 0.0
        inverse = np.divide(1.0, count, out=np.zeros_like(count), where=present)
        base = 1.0 / count.sum() + inverse / present.sum() - slope * least
        return Scores(cost=survey.cost, labels=survey.labels, slope=slope, base=base, weight=block.sample_weight)

    def moments(self, block: Block, pilot: Array) -> Moments:
        """(n, q) for the few rows that were drawn, or fewer columns where there are too few rows for all."""
        d = block.n_features
        densities, labels, _, _ = self.evaluate(block, pilot)
        least = ROWS_PER_COLUMN * len(np.unique(labels))
        values = [np.ones(len(block)), -densities]
        gap = block.X - Components.of(pilot, d).means[labels]
        if len(block) >= least * (2 + d):
            values.append(gap)
        if len(block) >= least * (2 + 2 * d):
            values.append(gap * gap)
        if self.has_matrices and len(block) >= least * (2 + 2 * d + d * (d - 1) // 2):
            a, b = np.tril_indices(d, -1)
            values.append(gap[:, a] * gap[:, b])
        return Moments(values=np.column_stack(values), groups=labels, n_basic=2)

    # -- what a learner needs ----------------------------------------------------------------

    def cost(self, block: Block, params: Array) -> Array:
        """Minus the log density of each row: (n,)."""
        return -self.evaluate(block, params)[0]

    def solve(self, block: Block, *, rng: Rng, init: Array | None = None) -> Array:
        """The mixture (k, 1 + d + c) that is found from ``init``, or the best of several searches."""
        return self.race(block, self.starts(block, rng) if init is None else [init]).params

    def starts(self, block: Block, rng: Rng, *, means: Array | None = None) -> list[Array]:
        """Where searches start: ``n_init`` mixtures (k, 1 + d + c), or the one with given ``means``."""
        refuse_sparse(block.X)
        if means is None:
            kinds = _AUTO_STARTS if self.init_params == "auto" else (self.init_params,)
            n_starts = self.n_starts(block.n_features) if self.n_init is None else self.n_init
            scaled = replace(block, X=np.ascontiguousarray(block.X / _scales(block)), mean=None)
            with single_blas_thread():
                return [self._start(block, scaled, kind, rng) for kind in islice(cycle(kinds), n_starts)]
        scale = _scales(block)
        labels = assign(np.ascontiguousarray(block.X / scale), means / scale)[0]
        start = self._of_shares(block, _by_label(labels, self.n_components))
        start[:, 1 : 1 + block.n_features] = means
        return [start]

    def _start(self, block: Block, scaled: Block, kind: str, rng: Rng) -> Array:
        k, weight = self.n_components, block.weights()
        if kind == "random":
            chances = rng.random((len(block), k))
            chances /= chances.sum(axis=1, keepdims=True)
            return self._of_shares(block, [(slice(None), column) for column in chances.T])
        if kind == "random_from_data":
            size = min(k, len(block))
            centers = scaled.X[rng.choice(len(block), size, replace=False, p=weight / weight.sum())]
        else:
            centers = dz_seeds(scaled.X, k, weight=weight, rng=rng, n_trials=2 + int(np.log(k)))
        if kind == "kmeans":
            centers = _lloyd(scaled, centers, _LLOYD_STEPS)
        labels = assign(scaled.X, np.asarray(centers, np.float64))[0]
        return self._of_shares(block, _by_label(labels, k))

    def race(self, block: Block, starts: list[Array]) -> Search:
        """The best that is found by searches from several starts, of which the worse half ends after every few steps.

        A start that leads to a singular covariance is left out; if all do, ValueError.
        """
        runs, failure = [Search(params=start) for start in starts], None
        with single_blas_thread():
            while runs:
                going = []
                last = len(runs) == 1
                stage, least = (self.max_iter, _LAST_TOL * self.tol) if last else (_STEPS_BETWEEN_SELECTIONS, self.tol)
                if last and runs[0].n_iter < self.max_iter:  # it goes on from where it ended by tol
                    runs = [replace(runs[0], converged=False, value=-np.inf)]
                for run in runs:
                    try:
                        going.append(self.climb(block, run, min(stage, self.max_iter - run.n_iter), least))
                    except ValueError as error:
                        failure = error
                runs = sorted(going, key=lambda run: -run.value)[: (len(going) + 1) // 2]
                if last and runs:
                    return runs[0]
        assert failure is not None
        raise failure

    def climb(self, block: Block, run: Search, steps: int, least: float) -> Search:
        """The search after some more steps of EM, or until one gains less than ``least``; the best on the way."""
        if run.converged:
            return run
        total, d, gained = block.total_weight, block.n_features, np.inf
        params, best = run.params, run
        for number in range(run.n_iter + 1, run.n_iter + steps + 1):
            densities, _, sums, _ = self.evaluate(block, params, mode=SOFT)
            value = -float(sums[:, 1].sum()) / total
            gained = value - best.value
            if not np.isfinite(value):
                raise ValueError("Rows are too far from all components for numbers of float64: scale the columns.")
            if gained > 0.0 or number == 1:
                best = Search(params=params, value=value, n_iter=number)
            if gained < least:
                return replace(best, converged=True, n_iter=number)
            params = self._revived(block, self.maximised(params, sums, d), sums, densities)
        n_iter = run.n_iter + steps
        return replace(best, params=params, n_iter=n_iter, converged=n_iter == self.max_iter and gained < self.tol)

    def _revived(self, block: Block, params: Array, sums: Array, densities: Array) -> Array:
        """The parameters with components that explain no row moved to the rows that are explained worst."""
        vanished = np.flatnonzero(sums[:, 0] <= _VANISHED * block.total_weight)
        if not len(vanished):
            return params
        worst = np.argsort(densities, kind="stable")[: len(vanished)]
        params = params.copy()
        whole = self._of_shares(block, [(slice(None), np.ones(len(block)))])[0]
        params[vanished] = whole
        params[vanished, 1 : 1 + block.n_features] = block.X[worst]
        params[vanished, 0] = 1.0 / len(block)
        params[:, 0] /= params[:, 0].sum()
        return params

    def evaluate_for_step(self, block: Block, params: Array, *, last: bool = False) -> StepEvaluation:
        """One pass over the block: its loss, and the sums of an E step unless it is the ``last`` pass."""
        densities, _, sums, _ = self.evaluate(block, params, mode=0 if last else SOFT)
        total = densities.sum() if block.sample_weight is None else block.sample_weight @ densities
        return StepEvaluation(labels=None, total=-float(total), sums=sums)

    def step(self, evaluation: StepEvaluation, params: Array) -> tuple[Array, float]:
        """The parameters after a step of EM, and what EM's own bound on the loss falls by: the loss falls by more."""
        sums, d = evaluation.sums, self._n_columns(params)
        assert sums is not None
        moved = self.maximised(params, sums, d)
        try:
            return moved, self._bound(params, moved, sums, d) - self._bound(params, params, sums, d)
        except ValueError:  # a singular covariance
            return params, 0.0

    def _n_columns(self, params: Array) -> int:
        columns = params.shape[1]
        d: int = round((math.sqrt(4 * columns - 3) - 1) / 2) if self.has_matrices else (columns - 1) // 2
        return d

    def _bound(self, params: Array, other: Array, sums: Array, d: int) -> float:
        """The expected log-likelihood of ``other`` under the shares that ``sums`` were made with, at ``params``."""
        parts, means = Components.of(other, d), Components.of(params, d).means
        with single_blas_thread():
            factors = parts.factors()
            heights = parts.heights(factors)
        step = parts.means - means
        first = sums[:, 2 : 2 + d]
        if self.has_matrices:
            cross = first[:, :, None] * step[:, None, :]
            outer = sums[:, 0, None, None] * (step[:, :, None] * step[:, None, :])
            second = second_moments(sums, d) - cross - cross.transpose(0, 2, 1) + outer
            squares = np.einsum("kab,kac,kcb->k", factors, factors, second, optimize=True)
        else:
            second = sums[:, 2 + d : 2 + 2 * d] - 2.0 * first * step + sums[:, :1] * step * step
            squares = (factors[:, 0] ** 2 * second).sum(axis=1)
        return float(sums[:, 0] @ heights - 0.5 * squares.sum())


Shares = list[tuple[Any, Array]]


def _by_label(labels: Array, k: int) -> Shares:
    """The rows of each of k clusters, each of which is wholly its own."""
    ends = np.cumsum(np.bincount(labels, minlength=k))[:-1]
    return [(which, np.ones(len(which))) for which in np.split(np.argsort(labels, kind="stable"), ends)]


def refuse_sparse(X: Any) -> None:
    """Refuse a sparse matrix, whose covariances would be dense."""
    if sparse.issparse(X):
        raise ValueError("A Gaussian mixture takes no sparse X: use X.toarray() if the rows fit into memory.")


def second_moments(sums: Array, d: int) -> Array:
    """The sums of squares and products as symmetric matrices (k, d, d)."""
    matrices: Array = sums[:, _places_of_products(d)]
    return matrices.reshape(-1, d, d)


@lru_cache(maxsize=16)
def _places_of_products(d: int) -> Array:
    """The columns of sums that hold the products of two columns of rows: (d * d,)."""
    places = np.empty((d, d), np.intp)
    a, b = np.tril_indices(d, -1)
    places[a, b] = places[b, a] = 2 + 2 * d + np.arange(len(a))
    places[np.arange(d), np.arange(d)] = 2 + d + np.arange(d)
    return places.ravel()


def _scales(block: Block) -> Array:
    """The deviation of each column, 1 where a column is constant: (d,)."""
    weight = block.weights()
    mean = weight @ block.X / weight.sum()
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.sqrt(weight @ np.square(block.X - mean) / weight.sum())
    if not np.isfinite(spread).all():
        raise ValueError("The values of X are so large that their squares are no numbers: scale the columns.")
    scales: Array = np.where(spread > 1e-10 * np.abs(mean), spread, 1.0)
    return scales


def _lloyd(block: Block, centers: Array, steps: int) -> Array:
    """Some steps of k-means from these centers."""
    for _ in range(steps):
        sums = assign(block.X, centers, weight=block.sample_weight, with_sums=True)[2]
        assert sums is not None
        centers = centers + np.divide(sums[:, 4:], sums[:, :1], out=np.zeros_like(centers), where=sums[:, :1] > 0.0)
    return centers
