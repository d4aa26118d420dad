"""PACO: online clustering whose number of clusters follows the rows."""

from __future__ import annotations

import copy
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar, Self
from uuid import uuid4

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from tithe.clustering.kernels import assign
from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError, RowsNotSavedError
from tithe.core.params import check_params
from tithe.core.seeding import as_seed
from tithe.core.state_checks import Anything, Each, Instance, Integers, Optional, Sometimes, expect
from tithe.fit.base import Described, checked_block
from tithe.fit.bases import BaseEstimator, ClusterMixin
from tithe.fit.collections import lazy_on_collections
from tithe.fit.results import named_values
from tithe.online.chain import CONSTRAINTS, PRESETS, TINY, Chain, FinishedChain, inverse_temperature
from tithe.online.kernels import LARGEST, SLACK
from tithe.rows.arrays import is_frame
from tithe.storage.checkpoint import clean_state, load_state, save_state


def regret_bounds(
    max_clusters: int, d: int, n_rows: int, radius: float, rate: float, eta: float, *, falling: bool
) -> Array:
    """What the expected loss of T rows can exceed that of the best k centres by, for k = 1 .. p: (p,).

    For draws from the quasi-posterior at a fixed inverse temperature lambda, rows within R, and centres within R, it is

        d k / (2 lambda) ln(4 R^2 / tau^2) + eta k / lambda + ln(p) / lambda + d T tau^2 / (d + 2) + lambda T C^2 / 2.

    C = (3 R)^2 bounds the loss of a centre in the ball of radius 2 R. The formula holds for every tau <= R: it compares
    with centres drawn uniformly within tau of the best ones, which costs d tau^2 / (d + 2) a row, at a divergence
    from the prior of d k ln(2 R / tau). tau^2 = (d + 2) / (2 lambda T), or R^2 if that is less, gives Corollary 1, and
    lambda = (d + 2) / (2 R^2 sqrt(T)) then Corollary 2. If lambda_t = lambda sqrt(T / t) is ``falling`` to lambda,
    the ``rate`` of the last row, with lambda_0 = lambda_1, the last term is lambda T C^2, since the sum of all
    lambda_{t-1} is at most 2 lambda T. With the lambda of Corollary 2 this is Corollary 3.
    """
    if rate == 0.0:
        return np.full(max_clusters, np.inf)
    k = np.arange(1.0, max_clusters + 1.0)
    square = min(radius**2, (d + 2) / (2.0 * rate * n_rows))
    divergence = 0.5 * d * k * math.log(4.0 * radius**2 / square) + eta * k + math.log(max_clusters)
    variance = (1.0 if falling else 0.5) * rate * n_rows * (3.0 * radius) ** 4
    return np.asarray(divergence / rate + d * n_rows * square / (d + 2) + variance)


def register_with_river(kind: type) -> None:
    """Let ``isinstance(model, river.base.Clusterer)`` hold if river is imported, which is not done here."""
    base = sys.modules.get("river.base")
    if base is not None and hasattr(base, "Clusterer"):  # not while river is being imported
        base.Clusterer.register(kind)


def in_order(names: Iterable[Any]) -> list[Any]:
    """Names of features in a fixed order."""
    return sorted(names, key=lambda name: (type(name).__name__, name if isinstance(name, (int, str)) else repr(name)))


@dataclass(eq=False, repr=False)
class PACO(ClusterMixin, Described, BaseEstimator):
    """PAC-Bayesian online clustering: each row is predicted by the nearest of k centres before it is seen.

    After t rows x_1 .. x_t the centres c = (c_1 .. c_k) that predict the next one are a draw, by a reversible-jump
    Markov chain, from the quasi-posterior

        rho(c) ~ exp(-lambda_t S_t(c)) prod_j b(c_j) exp(-eta k),    k <= p,  |c_j| <= 2 R,
        S_t(c) = sum_{s<=t} l(c, x_s) + (lambda_{s-1} / 2) (l(c, x_s) - l_s)^2,    l(c, x) = min_j |x - c_j|^2,

    where l_s is the loss at which row s was predicted, R the largest norm of a row, and b the uniform density in a
    ball of radius 2 R. For lambda_t = (d + 2) / (2 R^2 sqrt(t)), the preset ``"theory"``, the expected
    loss exceeds that of the best k centres in hindsight by O(k sqrt(T) ln T) (Li, Guedj and Loustau, *A quasi-Bayesian
    perspective to online clustering*, Electronic Journal of Statistics 2018). With this lambda the centres cost
    many times the possible minimum. The preset ``"practical"`` keeps S_t, but with a curb lambda_{s-1} of at most
    1 / (2 l_s), which makes a lower loss better for every row, and puts v, the variance within
    clusters in one direction as measured on the past, in the place of R^2: lambda_t = (d + 2) / (2 v sqrt(t)). A centre
    then has to save ``eta`` times what cutting the largest cluster, of share h, in two would save were it Gaussian:
    the penalty is eta (2 / pi) v h t lambda_t, and more where rows are few for their dimensions and cuts fit noise.
    The bound is not proved for it.

    Parameters
    ----------
    max_clusters : int
        p.
    preset : {"practical", "theory"}
        The temperatures and penalties above.
    n_samples : int, optional
        Steps of the chain after each row; 500, or 12 with the preset ``"practical"``, which takes a third of them
        after rows that are as near to a centre as most, since the law changes little then.
    kernel : {"birth_death", "symmetric", "paper"}
        What a step does. With ``"birth_death"`` a centre is added, removed or moved, which takes one pass over the
        past. ``"paper"`` proposes all centres at once, from Student distributions around a k-means solution of the
        past; it mixes badly, since the order of the centres must match. ``"symmetric"`` proposes the same in any order,
        for ``max_clusters`` up to 8.
    radius : float or "auto"
        The radius R. By default the norm of the first row that is not zero. Rows up to that one are predicted by a
        single centre at the origin, since the prior has no ball before. With a number, the first row is predicted by a
        draw from the prior.
    beyond_radius : {"restart", "error"}
        What to do with a row beyond the radius: double R as often as needed and continue with the same past, which
        ``history_`` records and the bound does not cover; or refuse the row.
    eta : float, optional
        The penalty of a centre; 1.25 with the preset ``"practical"`` (in units, see above), 1 with ``"theory"``.
        With 0 there is no best k, since one more centre never raises the loss. With the default a round cloud of rows
        is one cluster, whatever more centres would save. Values of 0.1 to 0.5 cover it with several centres, for a
        lower loss, but cut round clusters as well.
    scale : {"clusters", "centers"}
        Where v and h are measured with the preset ``"practical"``: at the clusters that lie apart, or at as many
        clusters as there are centres now, if those are more. With ``"centers"`` rows on curves and sheets get many
        centres, up to ``max_clusters``, and a lower loss; separate round clusters are found as before.
    horizon : int, optional
        The number of rows T to come: lambda = (d + 2) / (2 R^2 sqrt(T)) for every row, the paper's Algorithm 1. Without
        it lambda_t falls, as in its Algorithm 2. Of the preset ``"theory"`` only.
    inverse_temperature : float, optional
        lambda for every row, in place of ``horizon``.
    temperature : float
        What lambda is divided by.
    half_life : float, optional
        A row h rows ago has the weight 2^(-h / half_life) in S_t, and t is the weight of all rows: clusters can vanish
        and drift. With the preset ``"practical"`` the rows of a cluster that got no row for one and a half half-lives,
        but should have got a dozen by its share, count no more until it gets rows again. Its centre need not wait until
        the weights have faded. This is an extension; the bound holds without it.
    summary_size : int or None
        Rows of the past that are kept: all up to this number; then a coreset of this size for the old rows, with l_s
        and lambda_{s-1} as attributes, and up to as many of the latest rows. At least twice ``max_clusters``, better
        25 times: smaller summaries lose weight. None keeps all rows, so the time per row grows.
    encode : {"auto", "strict", True, False}
        How frames become features. ``"auto"``: numbers keep their units, and a frame with text, dates or lists is
        encoded (`open_dataset`); ``"strict"``: what is lost by that is an error. True: every frame is encoded, with
        numbers standardized and gaps filled. False: none is.
    random_state : int, RandomState, Generator or None

    Attributes
    ----------
    cluster_centers_ : array (k, d)
        The centres that predict the next row.
    n_clusters_ : int
    history_ : dict of arrays
        By ``row``: ``k``, the number of centres of its prediction, its ``loss``, the ``cumulative_loss``, and the
        ``acceptance`` of the chain's steps after it. From 65,536 rows on, an entry combines several rows. ``restarts``
        is a list of the number of rows before a row beyond the radius, and the new radius.
    radius_ : float
    n_rows_ : int
    summary_ : Block
        The rows of the past that are kept, with weights. Row ids are positions in the stream.
    labels_ : array (n,)
        After `fit`: the nearest of the last centres for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from tithe.online import PACO
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 2)) + 10.0 * rng.integers(3, size=(3000, 1))
    >>> model = PACO(random_state=0).partial_fit(X)
    >>> np.sort(model.cluster_centers_[:, 0]).round().tolist()
    [0.0, 10.0, 20.0]

    Notes
    -----
    It is a clusterer of river too: in its pipelines, and in ``river.evaluate.progressive_val_score``, rows are
    dictionaries. A new feature is 0 in earlier rows, and a missing one is 0.
    """

    max_clusters: int = 20
    _: KW_ONLY
    preset: str = "practical"
    n_samples: int | None = None
    kernel: str = "birth_death"
    radius: float | str = "auto"
    beyond_radius: str = "restart"
    eta: float | None = None
    scale: str = "clusters"
    horizon: int | None = None
    inverse_temperature: float | None = None
    temperature: float = 1.0
    half_life: float | None = None
    summary_size: int | None = 1000
    encode: bool | str = "auto"
    random_state: Any = None

    _constraints = CONSTRAINTS

    def __post_init__(self) -> None:
        register_with_river(type(self))

    labels_: Annotated[Array, Sometimes(Integers("n", dtypes=("int32",), least=0))] = field(init=False)
    # None before the first row
    _chain: Annotated[Chain | FinishedChain | None, Optional(Instance(Chain, FinishedChain))] = field(
        default=None, init=False
    )
    # of the features, once a row came as a dict
    _names: Annotated[list[Any] | None, Optional(Each(Anything(), length="d"))] = field(default=None, init=False)
    # the folder and the id of the last checkpoint
    _home: tuple[str | None, str] | None = field(default=None, init=False)

    # -- rows in -------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Start anew, take the rows one by one in their order, and label them by the last centres."""
        self._forget("_chain", "_home", "_names", "labels_", "schema_", "feature_names_in_")
        self.partial_fit(X)
        self.labels_ = self.predict(X)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Take rows one by one in their order, each predicted before it is seen.

        The result does not depend on how rows are split into batches, to the last bit. There are no weights.
        """
        options = self._options()
        rows = self._checked(X, reset=self._chain is None)
        self._take(rows, options)
        return self

    def _take(self, rows: Array, options: dict[str, Any]) -> None:
        chain = self._chain or Chain(options, rows.shape[1], as_seed(self.random_state))
        if isinstance(chain, FinishedChain):
            raise RowsNotSavedError("PACO cannot take more rows (fit starts anew)")
        chain.check_options(options)
        norms = np.abs(rows).max(axis=1)
        if norms.max() > 1.0 / TINY:
            raise ValueError(f"Row {int(norms.argmax())} of X has a value beyond {1.0 / TINY:.0e}: scale the rows.")
        if self.beyond_radius == "error":
            far = np.linalg.norm(rows, axis=1)
            if far.max() > chain.radius * SLACK:
                at = int(far.argmax())
                raise ValueError(f"Row {at} of X has norm {far[at]:g}, beyond the radius of {chain.radius:g}.")
        self._chain = chain
        self._forget("labels_")
        chain.widen(rows.shape[1])
        chain.take(rows)

    def _forget(self, *names: str) -> None:
        for name in names:
            with suppress(AttributeError):  # it may not be set
                delattr(self, name)

    # -- results -------------------------------------------------------------------------------

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The number of the nearest current centre of each row: (n,)."""
        check_is_fitted(self)
        return np.asarray(assign(self._checked(X, reset=False), self._chain_for("predict").current)[0])

    def __sklearn_is_fitted__(self) -> bool:
        return self._chain is not None

    @property
    def cluster_centers_(self) -> Array:
        return self._chain_for("cluster_centers_").current

    @property
    def n_clusters_(self) -> int:
        return len(self._chain_for("n_clusters_").current)

    @property
    def history_(self) -> dict[str, Any]:
        chain = self._chain_for("history_")
        return {**chain.history.as_dict(), "restarts": list(chain.restarts)}

    @property
    def radius_(self) -> float:
        return self._chain_for("radius_").radius

    @property
    def n_rows_(self) -> int:
        return self._chain_for("n_rows_").n_rows

    @property
    def summary_(self) -> Block:
        chain = self._chain_for("summary_")
        if isinstance(chain, FinishedChain):
            raise RowsNotSavedError("PACO has no summary_")
        return chain.past.block(chain.state, chain.n_rows)

    def regret_bound(self) -> Array:
        """By how much the expected loss so far can exceed that of the best k centres in hindsight: (max_clusters,).

        Entry k - 1 is for k centres within R, which bounds the norms of the rows, by the paper's Corollary 1 (fixed
        lambda), 2 (``horizon``, after as many rows) or 3 (lambda_t that falls): see `tithe.online.paco`. They are about
        exact draws from the quasi-posterior, which a chain of ``n_samples`` steps approximates, and so does a summary.
        """
        chain = self._chain_for("regret_bound")
        options = self._options()
        if isinstance(chain, Chain):  # what is left of one in a file does not know its options
            chain.check_options(options)
        if self.preset != "theory" or self.half_life is not None or self.radius == "auto" or chain.restarts:
            raise ValueError(
                "The regret is bounded for preset='theory' with half_life=None and a radius that no row was beyond."
            )
        d = self.n_encoded_
        rate = inverse_temperature(options, d, chain.radius, chain.n_rows)
        return regret_bounds(
            self.max_clusters, d, chain.n_rows, chain.radius, rate, options["eta"],
            falling=self.horizon is None and self.inverse_temperature is None,
        )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        """The number of rows so far, and the centres."""
        centers = named_values(self, self.cluster_centers_, np.arange(self.n_encoded_))
        return {"rows_so_far": self.n_rows_, "centers": centers}

    def _chain_for(self, name: str) -> Chain | FinishedChain:
        if self._chain is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r} before any row came")
        return self._chain

    # -- river ---------------------------------------------------------------------------------

    # what river's pipelines, checks and evaluations read besides
    _supervised = False
    _is_stochastic = False  # whether there is a parameter ``seed``: ours is ``random_state``
    _tags: ClassVar[set[str]] = set()
    _mutable_attributes: ClassVar[set[str]] = set()

    def learn_one(self, x: Mapping[Any, float]) -> None:
        """Take one row, a dict of values by feature name. river's pipelines call this.

        A feature that is missing is 0, and so is a new one in all rows before. The columns have the order of the frame
        that came first, then that of their names among those that came together.
        """
        options, names, first, columns = self._options(), self._names_of(x), self._chain is None, self.feature_names
        names = names + in_order(name for name in x if name not in names)
        self._take(self._one(x, names), options)
        self._names, self.n_encoded_ = names, len(names)
        if first or (columns is not None and len(names) > len(columns)):
            self._forget("feature_names_in_")
            if all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)  # frames are asked for the same order

    def predict_one(self, x: Mapping[Any, float]) -> int:
        """The number of the nearest centre of one row, 0 before the first. Unknown features are left out."""
        if self._chain is None:
            return 0
        gap = self._chain.current - self._one(x, self._names_of(x))
        return int(np.einsum("ij,ij->i", gap, gap).argmin())

    @property
    def centers(self) -> dict[int, dict[Any, float]]:
        """``cluster_centers_`` as river's clusterers give them: by number, and by the name of the feature."""
        names = self._names or self.feature_names or range(self.n_encoded_)
        rows = self.cluster_centers_.tolist()
        return {number: dict(zip(names, row, strict=True)) for number, row in enumerate(rows)}

    def _names_of(self, x: Mapping[Any, float]) -> list[Any]:
        """The known features in their order; those of ``x`` if rows had no names so far."""
        names = self._names or self.feature_names
        if names is not None:
            return names
        if self._chain is None:
            return []
        if len(x) != self.n_encoded_:
            raise ValueError(
                f"The row has {len(x)} features, those before it had {self.n_encoded_} without names: the first "
                "row with names must have as many."
            )
        return in_order(x)

    def _one(self, x: Mapping[Any, float], names: list[Any]) -> Array:
        return np.asarray(check_array([[x.get(name, 0.0) for name in names]], dtype=np.float64))

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Self:
        """A new estimator with the same parameters, except for ``new_params``; fitted, with ``include_attributes``."""
        copied: Self = copy.deepcopy(self) if include_attributes else clone(self)
        return copied.set_params(**(new_params or {}))

    def mutate(self, new_attrs: dict[str, Any]) -> None:
        """Refuse: parameters cannot be changed after the first rows."""
        if new_attrs:
            raise ValueError(f"No attribute can be changed, got {', '.join(new_attrs)}: make a clone with new_params.")

    def __or__(self, other: Any) -> Any:
        from river.compose import Pipeline

        return Pipeline(self, other)

    def __ror__(self, other: Any) -> Any:
        from river.compose import Pipeline

        return Pipeline(other, self)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}

    def _unit_test_skips(self) -> set[str]:
        return set()

    def _get_params(self) -> dict[str, Any]:
        return self.get_params(deep=False)

    @property
    def _raw_memory_usage(self) -> int:
        """Bytes of the rows held and of the history: river asks for them by this name."""
        return self._chain.nbytes if isinstance(self._chain, Chain) else 0

    # -- on disk -------------------------------------------------------------------------------

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to go on into the folder ``path``: whole, or not at all.

        As for a `CoresetStream`, the old state is kept until the new one is complete, and the state of another stream
        is not replaced. A resumed learner gives the same bits, also on another machine with a CPU of the same kind.
        """
        check_is_fitted(self)
        place, identity = self._home or (None, uuid4().hex)
        existing = load_state(path, missing_ok=True) if os.path.abspath(path) != place else None
        if existing is not None and existing.about.get("id") != identity:
            raise ValueError(f"{os.fspath(path)!r} holds the state of another run: give another folder, or remove it.")
        save_state(path, self, {"kind": "online", "id": identity})
        self._home = (os.path.abspath(path), identity)

    @classmethod
    def resume(cls, path: str | os.PathLike[str]) -> Self:
        """The learner as it was when `checkpoint` wrote it."""
        saved = load_state(path)
        assert saved is not None
        learner, identity = saved.state, saved.about.get("id")
        if not isinstance(learner, cls) or not isinstance(identity, str):
            raise FileFormatError(f"{os.fspath(path)!r} is not the checkpoint of an online clustering.")
        clean_state(path)
        learner._home = (os.path.abspath(path), identity)
        return learner

    def without_rows(self) -> Self:
        """A copy with the centres and the history alone. It predicts the same, and takes no more rows."""
        if not isinstance(self._chain, Chain):
            return self
        slim = copy.copy(self)
        slim._forget("labels_")
        chain = self._chain
        slim._chain = FinishedChain(
            centers=chain.current, history=chain.history, restarts=chain.restarts, n_rows=chain.n_rows,
            radius=float(chain.radius),
        )  # fmt: skip
        return slim

    def check_relations(self) -> None:
        chain = self._chain
        expect(chain is not None and chain.centers.shape[1] == self.n_encoded_, "a chain has other columns")

    def __setstate__(self, state: dict[str, Any]) -> None:
        register_with_river(type(self))
        super().__setstate__(state)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_home", None)  # a copy must not write where this one does
        return state

    # -- checks --------------------------------------------------------------------------------

    def _checked(self, X: Any, *, reset: bool) -> Array:
        if is_frame(X):
            X = checked_block(self, X, reset=reset).X
            return np.array(X.toarray() if hasattr(X, "toarray") else X, np.float64, order="C")
        rows: Array = validate_data(self, X, reset=reset, dtype=np.float64, order="C")
        return rows if rows.flags.writeable else rows.copy()  # kernels are compiled for writeable arrays

    def _options(self) -> dict[str, Any]:
        """The parameters, checked, and filled in where the preset decides."""
        check_params(self, self._constraints)
        options = self.get_params(deep=False)
        del options["random_state"], options["encode"]
        options |= {name: value for name, value in PRESETS[self.preset].items() if options[name] is None}
        if self.summary_size is not None and self.summary_size < 2 * self.max_clusters:
            least = 2 * self.max_clusters
            raise ValueError(f"summary_size={self.summary_size} is less than 2 * max_clusters: take at least {least}.")
        if self.radius != "auto" and not TINY <= float(self.radius) <= 1.0 / TINY:
            raise ValueError(f"radius must be between {TINY:g} and {1 / TINY:g}, got {self.radius!r}: scale the rows.")
        if self.radius == "auto" and self.beyond_radius == "error":
            raise ValueError("beyond_radius='error' needs a radius: name the largest norm that a row may have.")
        fixed = [name for name in ("horizon", "inverse_temperature") if options[name] is not None]
        if fixed and self.preset != "theory":
            raise ValueError(f"{fixed[0]} is of preset='theory', not of {self.preset!r}: name that preset.")
        if len(fixed) == 2:
            raise ValueError("Both horizon and inverse_temperature say what lambda is: give one of them.")
        if options["kernel"] == "symmetric" and self.max_clusters > LARGEST:
            raise ValueError(f"The symmetric kernel goes up to max_clusters={LARGEST}: take that, or birth_death.")
        return options
