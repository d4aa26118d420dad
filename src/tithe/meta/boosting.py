"""Coresets for tree ensembles: rows drawn by the size of the gradient of the learner's loss at a boosted pilot."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from tithe.core.contracts import Construction, Objective
from tithe.core.data import Array, Block, Rng, Survey
from tithe.core.labels import LabelledObjective
from tithe.core.parallel import over_parts
from tithe.core.params import Constraint, OneOf, RealNumber, Target, check_params
from tithe.core.seeding import hashed
from tithe.core.state_checks import Floats, Instance, Integer, Integers, Optional, Storable, expect
from tithe.meta.kernels import add_trees, gradients
from tithe.reduce.draws import MIN_DRAWS_OF_A_CLASS, Uniform, draw_rows
from tithe.reduce.kernels import sample_rows

LOSSES = ("log_loss", "squared_error", "absolute_error", "quantile", "poisson", "gamma")  # in the order of the kernels
_LOG_LINK = ("poisson", "gamma")
_SHARE = 0.5  # of the draw that follows the gradients at the most; the rest is uniform
_LITTLE, _ENOUGH = 1.25, 1.45  # worth of a row with that share at which none, and all, of it is used
_SOFTENED = 0.1  # weight of the squared variance of a label beside its squared gradient
_PILOT_ROWS = 10_000
_QUERY_ROWS = 1000
_PILOT_COLUMNS = 512  # of sparse rows: those with the most entries
_MAX_ROUNDS, _MIN_ROUNDS, _MAX_TREES = 15, 3, 300  # of each half; fewer rounds where there are many classes
_CHUNK_ROWS = 16_384
_SURELY = 1.2  # draws for each row that must be kept: the scores that are raised raise their sum
WORTH_IT = 2.0  # the foretold worth of a row below which a uniform sample does as well


@dataclass(frozen=True, kw_only=True, eq=False)
class BoostedPilot(Storable):
    """Two crude boosted models, each of one half of a sample; a row gets the margins of the half it is not in.

    So a margin never comes from a model that has seen the label. A hash of its id says which half a row belongs to.

    Parameters
    ----------
    key : int
        Of the hash.
    n_features : int
        Columns of the rows.
    base : (2, K)
        Margins before the trees of each half: of K classes, of the second of two classes, or of a regression.
    n_first : int
        Trees of the first half.
    starts, output : (T + 1,) and (T,)
        The first node of each tree, and the margin that it adds to.
    column, threshold, gap_left, left, right, value : (nodes,)
        A row goes left if its column is at most the threshold. ``left`` and ``right`` are -1 for leaves.
    """

    key: Annotated[int, Integer(most=2**64 - 1)]
    n_features: Annotated[int, Integer(least=1, size="d")]
    base: Annotated[Array, Floats(2, "k", empty=False)]
    n_first: Annotated[int, Integer()]
    starts: Annotated[Array, Integers(("t", 1), least=0)]
    output: Annotated[Array, Integers("t", least=0, below="k")]
    column: Annotated[Array, Integers("nodes", least=0, below="d")]
    threshold: Annotated[Array, Floats("nodes", finite=False)]
    gap_left: Annotated[Array, Integers("nodes", least=0, below=2, dtypes=("uint8",))]
    left: Annotated[Array, Integers("nodes", least=-1)]
    right: Annotated[Array, Integers("nodes", least=-1)]
    value: Annotated[Array, Floats("nodes")]

    def check_relations(self) -> None:
        ends, nodes = np.repeat(self.starts[1:], np.diff(self.starts)), np.arange(len(self.left))
        expect(self.starts[0] == 0 and (np.diff(self.starts) > 0).all() and self.n_first < len(self.starts), "no trees")
        expect(self.starts[-1] == len(nodes), "nodes belong to no tree")
        for child in (self.left, self.right):  # children come after their node, so that every walk ends
            expect(((child == -1) | ((child > nodes) & (child < ends))).all(), "nodes are no tree")
        expect(np.array_equal(self.left == -1, self.right == -1), "a node has one child")

    @classmethod
    def of(cls, block: Block, objective: BoostingObjective, *, rng: Rng, n_rows: int = _PILOT_ROWS) -> Self:
        """The pilot of a sample of the rows."""
        sample = sample_rows(block, n_rows, rng)
        key = int(rng.integers(2**64, dtype=np.uint64))
        second = _half_of(sample, key) == 1
        halves = [_fitted_half(sample.take(np.flatnonzero(second == half)), objective) for half in (False, True)]
        trees = [tree for _, trees in halves for tree in trees]
        sizes = np.array([len(nodes) for _, nodes in trees], np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        nodes = np.concatenate([nodes for _, nodes in trees] or [_no_nodes()])
        leaf, offset = nodes["is_leaf"].astype(bool), np.repeat(starts[:-1], sizes)
        return cls(
            key=key,
            n_features=block.n_features,
            base=np.array([base for base, _ in halves]),
            n_first=len(halves[0][1]),
            starts=starts,
            output=np.array([output for output, _ in trees], np.int64),
            column=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
            threshold=np.where(leaf, 0.0, nodes["num_threshold"]),
            gap_left=nodes["missing_go_to_left"].astype(np.uint8),
            left=np.where(leaf, -1, nodes["left"] + offset).astype(np.int64),
            right=np.where(leaf, -1, nodes["right"] + offset).astype(np.int64),
            value=np.ascontiguousarray(nodes["value"]),
        )

    def margins(self, block: Block) -> Array:
        """Margins of rows: (n, K)."""
        half, X, column = _half_of(block, self.key), block.X, self.column
        if sparse.issparse(X):
            used, column = np.unique(column, return_inverse=True)
            X = X[:, used].toarray()
        margins: Array = self.base[1 - half]
        trees = (self.output, column, self.threshold, self.gap_left, self.left, self.right, self.value)
        n_trees = len(self.output)
        for part, (first, last) in enumerate(((self.n_first, n_trees), (0, self.n_first))):
            add_trees(X, np.flatnonzero(half == part), first, last, self.starts, *trees, margins)
        return margins


def _half_of(block: Block, key: int) -> Array:
    return (hashed(block.row_ids(), key) >> np.uint64(63)).astype(np.int64)


def _no_nodes() -> Array:
    names = ("value", "feature_idx", "num_threshold", "missing_go_to_left", "left", "right", "is_leaf")
    return np.empty(0, [(name, np.float64) for name in names])


def _fitted_half(block: Block, objective: BoostingObjective) -> tuple[Array, list[tuple[int, Array]]]:
    """Margins before the trees (K,), and the trees: the margin that each adds to, and its nodes."""
    n_margins, y = objective.n_margins, objective.target_numbers(block)
    rare = float(np.log(0.5 / max(1, len(block))))  # of what no row of the half has
    base = np.zeros(n_margins)
    if objective.loss != "log_loss":
        if len(block) == 0 or (y == y[0]).all():
            value = float(y[0]) if len(block) else 0.0
            base[0] = value if objective.loss not in _LOG_LINK else (np.log(value) if value > 0.0 else rare)
            return base, []
        options = {"quantile": objective.level} if objective.loss == "quantile" else {}
        model = _boosted(HistGradientBoostingRegressor(loss=objective.loss, **options), block, y, 1)
        base[:] = np.ravel(model._baseline_prediction)
        return base, [(0, tree.nodes) for (tree,) in model._predictors]
    present, codes = np.unique(y, return_inverse=True)
    if len(present) < 2:
        base[:] = rare
        if n_margins == 1:
            base[0] = rare if len(present) == 0 or present[0] == 0 else -rare
        else:
            base[present] = 0.0
        return base, []
    model = _boosted(HistGradientBoostingClassifier(), block, codes, len(present))
    start = np.ravel(model._baseline_prediction)
    if n_margins == 1:
        return start, [(0, tree.nodes) for (tree,) in model._predictors]
    share = np.bincount(codes, weights=block.weights()) / block.total_weight
    outputs, level = present, float(np.log(share).mean())  # what a margin of zero is a probability of
    if len(present) == 2:
        outputs, start, level = present[1:], np.array([0.0, start[0]]), float(np.log(share[0]))
    base[:] = rare - level
    base[present] = start
    return base, [(int(k), tree.nodes) for trees in model._predictors for k, tree in zip(outputs, trees, strict=True)]


def _boosted(model: Any, block: Block, y: Array, n_classes: int) -> Any:
    """The model fitted on half of a sample. Its sums are added up in one thread, so that they have the same bits."""
    n_trees = n_classes if n_classes > 2 else 1
    model.set_params(
        max_iter=max(_MIN_ROUNDS, min(_MAX_ROUNDS, _MAX_TREES // n_trees)),
        learning_rate=0.3,
        max_leaf_nodes=15,
        l2_regularization=1.0,
        min_samples_leaf=min(20, max(3, len(block) // 50)),
        early_stopping=False,
        random_state=0,
    )
    counts, weight = _times_drawn(block.sample_weight), block.sample_weight
    if counts is not None:
        at, weight = np.repeat(np.arange(len(block)), counts), None
        block, y = block.take(at), y[at]
    X, kept = block.X, None
    if sparse.issparse(X):
        entries = np.bincount(X.indices, minlength=X.shape[1])
        kept = np.sort(np.argsort(-entries, kind="stable")[:_PILOT_COLUMNS])
        X = X[:, kept].toarray()
    with threadpool_limits(1, user_api="openmp"):
        model.fit(X, y, sample_weight=None if weight is None else weight * (len(block) / weight.sum()))
    if kept is not None:
        for trees in model._predictors:
            for tree in trees:
                tree.nodes["feature_idx"] = kept[tree.nodes["feature_idx"]]
    return model


def _times_drawn(weight: Array | None) -> Array | None:
    """How often each row was drawn, if weights tell no more; the quantiles of scikit-learn take long with weights."""
    if weight is None or not weight.any():
        return None
    counts = weight / weight[weight > 0.0].min()
    whole = np.rint(counts)
    is_whole = np.allclose(counts, whole, rtol=1e-9, atol=0.0) and whole.sum() <= 2 * len(weight)
    return whole.astype(np.int64) if is_whole else None


@dataclass(frozen=True, kw_only=True)
class BoostingObjective(LabelledObjective, Objective[BoostedPilot]):
    """The loss of a tree ensemble, f(x, y) = loss(F(x), y), for draws by its gradient at a crude pilot F.

    Weights are not calibrated: the leaves of the trees to come are not those of the pilot, and calibrated weights were
    no better.

    Parameters
    ----------
    loss : {"log_loss", "squared_error", "absolute_error", "quantile", "poisson", "gamma"}
        That of the learner. F is the logarithm of the mean for the last two. With ``"log_loss"``, y holds classes.
    level : float
        The quantile.
    classes : tuple or None
        Labels, as in `LogisticObjective`; only with ``"log_loss"``.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe import build_coreset
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))
    >>> y = np.abs(X).sum(axis=1) > 4
    >>> coreset = build_coreset(X, y, objective="boosting", coreset_size=400, random_state=0)
    >>> len(coreset) <= 400, bool(coreset.y.mean() > 2 * y.mean())
    (True, True)
    """

    loss: str = "log_loss"
    level: float = 0.5

    name: ClassVar[str] = "boosting"
    best_construction: ClassVar[str] = "pilot_gradient"
    calibrates: ClassVar[bool] = False
    target: ClassVar[Target] = "class"
    constraints: ClassVar[dict[str, Constraint]] = {
        "loss": OneOf(*LOSSES),
        "level": RealNumber(above=0.0, below=1.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_params(self, self.constraints)

    @property
    def lacks_classes(self) -> bool:
        return self.loss == "log_loss" and self.classes is None

    @property
    def n_classes(self) -> int:
        return super().n_classes if self.loss == "log_loss" else 0

    @property
    def n_margins(self) -> int:
        """Margins of a row: one for each class, but only one for two classes."""
        return self.n_classes if self.n_classes > 2 else 1

    def for_rows(self, block: Block) -> Self:
        return super().for_rows(block) if self.loss == "log_loss" else self

    def codes(self, block: Block) -> Array | None:  # type: ignore[override]
        return super().codes(block) if self.loss == "log_loss" else None

    def target_numbers(self, block: Block) -> Array:
        """Class numbers, or numbers as float64: (n,)."""
        codes = self.codes(block)
        if codes is not None:
            return codes
        if block.y is None:
            raise ValueError("A regression needs a target for every row: give y.")
        return block.y.astype(np.float64, copy=False)

    def solve(self, block: Block, *, rng: Rng, init: BoostedPilot | None = None) -> BoostedPilot:
        return BoostedPilot.of(block, self, rng=rng, n_rows=len(block))

    def random_params(self, block: Block, *, n_bases: int, rng: Rng) -> list[BoostedPilot]:
        """Models of small samples."""
        return [BoostedPilot.of(block, self, rng=rng, n_rows=_QUERY_ROWS) for _ in range(n_bases)]

    def cost(self, block: Block, params: BoostedPilot) -> Array:
        return self.gradients(block, params)[0]

    def gradients(self, block: Block, pilot: BoostedPilot) -> tuple[Array, Array, Array]:
        """Losses, squared gradients and sizes of gradients at the pilot, all (n,); see `PilotGradient`."""
        y, n, kind = self.target_numbers(block), len(block), LOSSES.index(self.loss)
        loss, square, size = np.empty(n), np.empty(n), np.empty(n)

        def run(first: int, last: int) -> None:
            for start in range(first * _CHUNK_ROWS, min(n, last * _CHUNK_ROWS), _CHUNK_ROWS):
                at = slice(start, min(n, start + _CHUNK_ROWS))
                margins = pilot.margins(block.cut(at.start, at.stop))
                gradients(margins, y[at], kind, self.level, _SOFTENED, loss[at], square[at], size[at])

        over_parts(run, -(-n // _CHUNK_ROWS), serial=n <= _CHUNK_ROWS)
        return loss, square, size


@dataclass(frozen=True, kw_only=True)
class PilotGradient(Construction[BoostingObjective]):
    """p_i = u_i (a s_i / mean(s) + 1 - a), s_i the size of the gradient of the loss at a boosted pilot.

    The pilot is two histogram gradient boostings of fifteen rounds, each on half of 10,000 rows drawn uniformly. With
    classes s^2 = sum_k g_k^2 + 0.1 (p_k (1 - p_k))^2, g_k = p_k - [y = k]; two classes have one g. For regressions
    s = |g|. A row with m p_i >= 1 is kept. Each class gets about ten draws, or all of its rows if they are fewer.

    ``row_worth`` in the provenance is R = sum(u g^2) / sum(u g^2 / (a s / mean(s) + 1 - a)): about as many uniform rows
    would have the same variance of the gradient at the pilot. Trees gain less: about R / 2 for R from 3 to 10. Below 2
    a uniform sample does as well. The share a is 0.5 where R is then 1.45 or more, and falls to 0 where it is 1.25: the
    labels are noise there, and weights that differ would cost more than the draw gains. With a share of 0.7 trees of
    6,000 rows are as good, and those of 300 rows worse: they are wrong at other rows than the pilot.

    Examples
    --------
    >>> import numpy as np
    >>> import tithe
    >>> X = np.random.default_rng(0).normal(size=(4000, 2))
    >>> options = {"objective": "boosting", "construction": "pilot_gradient"}
    >>> coreset = tithe.build_coreset(X, X[:, 0] > 2, coreset_size=100, random_state=0, **options)
    >>> len(coreset) <= 100, coreset.provenance["row_worth"] > 2
    (True, True)
    """

    fitted: Annotated[BoostedPilot | None, Optional(Instance(BoostedPilot))] = field(
        default=None, repr=False, compare=False
    )
    name: ClassVar[str] = "pilot_gradient"
    requires: ClassVar[tuple[type[Objective], ...]] = (BoostingObjective,)

    def check_columns(self, n_features: int, objective: BoostingObjective) -> None:
        if self.fitted is not None:
            same = self.fitted.n_features == n_features and self.fitted.base.shape[1] == objective.n_margins
            expect(same, "a pilot is of other columns or classes")

    def prepare(self, block: Block, objective: BoostingObjective, *, rng: Rng) -> Self:
        return replace(self, fitted=BoostedPilot.of(block, objective, rng=rng))

    def reduce(
        self,
        block: Block,
        objective: BoostingObjective,
        size: int,
        *,
        pilot: Array | None,
        survey: Survey | None,
        rng: Rng,
    ) -> Block:
        fitted = BoostedPilot.of(block, objective, rng=rng) if self.fitted is None else self.fitted
        weight = block.weights()
        _, square, gradient = objective.gradients(block, fitted)
        score, worth = _scores(weight, square, gradient, _SHARE)
        share = _SHARE * min(1.0, max(0.0, (worth - _LITTLE) / (_ENOUGH - _LITTLE)))
        if share == 0.0:
            drawn = Uniform().reduce(block, objective, size, pilot=pilot, survey=survey, rng=rng)
            return replace(drawn, notes={"row_worth": 1.0})
        if share < _SHARE:
            score, worth = _scores(weight, square, gradient, share)
        drawn = draw_rows(block, _with_every_class(weight * score, objective.codes(block), size), size, rng)
        return replace(drawn, notes={"row_worth": round(worth, 3)})


def _scores(weight: Array, square: Array, gradient: Array, share: float) -> tuple[Array, float]:
    """Scores of rows of which a share follows the gradients, and what a row drawn by them is worth."""
    mean = float(weight @ gradient) / float(weight.sum())
    if not 0.0 < mean < np.inf:
        return np.ones(len(weight)), 1.0
    score = share * gradient / mean + (1.0 - share)
    total, left = float(weight @ square), float(weight @ (square / score))
    return score, total / left if 0.0 < left < np.inf else 1.0


def _with_every_class(score: Array, codes: Array | None, size: int) -> Array:
    """The scores; those of a class that would get too few draws are raised."""
    if codes is None:
        return score
    totals, rows = np.bincount(codes, weights=score), np.bincount(codes[score > 0.0], minlength=codes.max() + 1)
    present = max(1, int((totals > 0.0).sum()))
    draws = np.minimum(np.minimum(MIN_DRAWS_OF_A_CLASS, rows), size // (2 * present))
    least = _SURELY * draws / size * totals.sum()
    factor = np.where(totals > 0.0, np.maximum(1.0, least / np.where(totals > 0.0, totals, 1.0)), 1.0)
    return score if (factor == 1.0).all() else score * factor[codes]


def worth_in_words(worth: float) -> str:
    """What ``row_worth`` means.

    >>> worth_in_words(4.2), worth_in_words(1.3)
    ('a row of this coreset is worth up to 4 random ones', 'a random sample would do as well')
    """
    return (
        f"a row of this coreset is worth up to {worth:.0f} random ones"
        if worth >= WORTH_IT
        else ("a random sample would do as well")
    )
