"""What every learner on a coreset shares."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import validate_data

from tithe.certify import polish_rounds
from tithe.core.checkpoint import Checkpoint
from tithe.core.contracts import Objective, Source
from tithe.core.data import Array, Block, Coreset
from tithe.core.parallel import limit_threads, single_blas_thread
from tithe.core.params import Option, WholeNumber
from tithe.core.passes import DataPass
from tithe.core.progress import Progress
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import Sizes, Storable
from tithe.learners.charts import BarChart
from tithe.learners.lazy_fit import FittedAttribute, LazyFitMixin
from tithe.learners.stored import check_learner
from tithe.objectives.generic import GenericObjective
from tithe.objectives.labels import LabelledObjective
from tithe.reduce.build import reduce_rows, resolve_size
from tithe.reduce.plan import Plan
from tithe.reduce.stream import CoresetStream
from tithe.sources.arrays import as_block, check_weights

Method = TypeVar("Method", bound=Callable[..., Any])


def opened(source: Source, *others: Any) -> Source:
    """The source; whatever else comes with its rows is refused."""
    if any(other is not None for other in others):
        raise ValueError("y and weights come with the rows of a source: open_dataset(path, target=..., weight=...).")
    return source


def note_columns(learner: Any, source: Source, *, reset: bool) -> None:
    """Names and number of a source's columns are noted (reset) or compared, as `validate_data` does for arrays."""
    names = None if source.feature_names is None else np.asarray(source.feature_names, dtype=object)
    if reset:
        learner.n_features_in_ = source.n_features
        learner.__dict__.pop("feature_names_in_", None)
        if names is not None:
            learner.feature_names_in_ = names
    elif source.n_features != learner.n_features_in_:
        raise ValueError(
            f"X has {source.n_features} features, but {type(learner).__name__} is expecting "
            f"{learner.n_features_in_} features as input."
        )
    elif names is not None and not np.array_equal(names, getattr(learner, "feature_names_in_", names)):
        raise ValueError("The feature names should match those that were passed during fit: the source has others.")


def limits_threads(method: Method) -> Method:
    """Run a method of a learner on ``n_jobs`` threads."""

    @functools.wraps(method)
    def limited(learner: CoresetLearner, *args: Any, **options: Any) -> Any:
        n_jobs = learner.n_jobs
        if n_jobs is not None and not (WholeNumber(least=1).accepts(n_jobs) or n_jobs == -1):
            raise ValueError(f"n_jobs must be None, -1 or a whole number of at least 1, got {n_jobs!r}.")
        with limit_threads(None if n_jobs == -1 else n_jobs):
            return method(learner, *args, **options)

    return cast(Method, limited)


class CoresetLearner(LazyFitMixin, Storable):
    """Checking rows, reducing them, and remembering which were kept.

    Subclasses have the parameters ``coreset_size``, ``construction``, ``calibrate``, ``engine``, ``n_jobs``,
    ``verbose`` and ``random_state``, and most have ``polish``. What makes a new one, `partial_fit` included:

    - a `FittedAttribute` for every attribute of a solution;
    - ``_check_options()`` refuses wrong parameters before a row is read;
    - ``_objective()`` is what a coreset has to preserve;
    - ``_prepare_batch(block, classes)`` makes of checked rows what a stream takes, such as class numbers for labels;
    - ``_learn(coreset, data, seed)`` sets the attributes; ``data`` gives passes over all rows, to polish and certify
      on, or is None where they are gone.
    """

    options: ClassVar[tuple[Option, ...]] = ()  # parameters that `tithe fit` offers besides those of all learners
    usual_rounds: ClassVar[int] = 3  # of polish="auto", for a plan

    # how a fit is watched is no metadata of the rows, which pipelines and searches would route
    __metadata_request__fit = {"checkpoint": UNUSED, "progress": UNUSED}

    coreset_size: Any
    construction: Any
    calibrate: bool
    polish: Any
    engine: Any
    n_jobs: int | None
    verbose: int
    random_state: Any

    n_features_in_: int
    feature_names_in_: Array
    coreset_ = FittedAttribute[Any]()
    stream_: CoresetStream
    _seed: int

    _check_options: Callable[[], Any]
    _objective: Callable[..., Any]
    _prepare_batch: Callable[[Block, Any], Block]
    _learn: Callable[..., None]

    def _checked(self, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block:
        """A checked block; names and number of columns are noted (reset) or compared."""
        if isinstance(X, Source):
            raise ValueError(
                "The rows of a source do not all fit here: ask leaf by leaf, [model.predict(task().X) for task in "
                "source.tasks()], or on the command line with tithe predict."
            )
        block = as_block(X, y, sample_weight)
        validate_data(self, X if hasattr(X, "shape") else block.X, reset=reset, skip_check_array=True)
        return block

    def _passes(self, rows: Block | Source, progress: Progress | bool | None) -> DataPass:
        """Passes over the rows, shown where ``verbose`` or the caller asks for it."""
        return DataPass(rows, self.engine, bool(self.verbose) or None if progress is None else progress)

    def _given(self, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block | Source:
        """A checked block, or the source that X is."""
        if not isinstance(X, Source):
            return self._checked(X, y, sample_weight, reset=reset)
        note_columns(self, opened(X, y, sample_weight), reset=reset)
        return X

    @limits_threads
    def _push(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """What `partial_fit` does: rows into the stream, the first ones into a new one; the solution waits."""
        first = not self._is_streaming
        if first:
            self._check_options()
            self._refuse_polish()
        checked = self._checked(X, y, reset=first)
        weight = check_weights(sample_weight, len(checked))  # which may all be zero in a piece
        block = self._prepare_batch(replace(checked, sample_weight=weight, mean=None), classes)
        if not first and self._objective() != self.stream_.plan.objective:
            raise ValueError(
                "The parameters have changed since the first call to partial_fit, and rows were reduced for the old "
                "ones. Set them back, or start anew with a clone."
            )
        stream = self._new_stream() if first else self.stream_
        stream.push(block.X, block.y, block.sample_weight)
        self.stream_ = stream
        self._fitted_values = None
        return self

    def _refuse_polish(self) -> None:
        """Rows that come to `partial_fit` are gone afterwards."""
        refuse_polish(self.polish)

    def _new_stream(self) -> CoresetStream:
        self._seed = as_seed(self.random_state)
        return CoresetStream(
            self._objective(),
            self.construction,
            coreset_size=self._size(None, self.n_features_in_),
            calibrate=self.calibrate,
            random_state=int(rng_for(self._seed, "reduce").integers(2**62)),
        )

    @limits_threads
    def _fit_from_stream(self) -> None:
        with single_blas_thread():
            self._learn(self.stream_.coreset(), None, self._seed)

    def _reduce(
        self, data: DataPass, objective: Any, seed: int, *, checkpoint: Checkpoint | None = None, **other: Any
    ) -> Coreset:
        """A coreset of the rows, by the learner's options or by others; all rows where they are few."""
        rows = data.rows
        size = self._size(data.n_expected, rows.n_features)
        if isinstance(rows, Block) and len(rows) <= size:
            return all_rows(rows, objective.name)
        options = {"construction": self.construction, "calibrate": self.calibrate, **other}
        plan = Plan.of(objective, size=size, seed=int(rng_for(seed, "reduce").integers(2**62)), **options)
        return reduce_rows(data, plan, checkpoint=checkpoint)

    def _adopt_coreset(self, coreset: Coreset, feature_names: Array | None) -> None:
        """Note that the rows of the last fit were a coreset of others, which are gone."""
        values = self._fitted_values or {}
        values.pop("labels_", None)
        if "certificate_" in values:  # not every learner has one
            values["certificate_"] = None
        self.coreset_ = coreset
        if feature_names is not None:
            self.feature_names_in_ = feature_names

    def planned(self, n_rows: int | None, n_features: int) -> tuple[Any, int | float]:
        """The objective that a coreset will preserve and its size, as far as they are known before a row is read."""
        automatic = self.coreset_size is None or self.coreset_size == "auto"
        size = self._auto_size(n_rows, n_features) if automatic else self.coreset_size
        return self._unlabelled_objective(), size

    def _unlabelled_objective(self) -> Any:
        """The objective before classes are known."""
        return self._objective()

    def summary(self) -> dict[str, Any]:
        """What a report says about the solution: numbers, texts and lists of them, by name."""
        return {}

    def charts(self) -> list[BarChart]:
        """What a report shows of the solution."""
        return []

    def _check_state(self) -> None:
        sizes = check_learner(self, sizes=self._known_sizes())
        if self._fitted_values:
            self._check_solution(sizes)

    def _known_sizes(self) -> Sizes:
        """Sizes that checks of fitted attributes refer to, when a learner was read from a file."""
        return {}

    def _check_solution(self, sizes: Sizes) -> None:
        """Refuse fitted attributes that do not fit together, when a learner was read from a file."""

    def _check_names(self) -> None:
        """Refuse unknown names at once, not only when there are rows enough to need them."""
        for kind, name in (("construction", self.construction), ("engine", self.engine)):
            if not (isinstance(name, str) and name == "auto"):
                make(kind, name)
        if not isinstance(self.calibrate, (bool, np.bool_)):
            raise ValueError(f"calibrate must be True or False, got {self.calibrate!r}.")

    def _size(self, n_rows: int | None, n_features: int) -> int:
        """Rows to keep; ``n_rows`` is None where it is not known beforehand."""
        if self.coreset_size is None or (isinstance(self.coreset_size, str) and self.coreset_size == "auto"):
            return self._auto_size(n_rows, n_features)
        return resolve_size(self.coreset_size, n_rows)

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        """Rows that ``coreset_size="auto"`` keeps."""
        return MIN_AUTO_ROWS

    @property
    def sample_indices_(self) -> Array:
        """Positions in the training data of the rows that were kept."""
        return self.coreset_.row_ids()  # type: ignore[no-any-return]


def can_read_again(rows: Block | Source, polish: Any) -> bool:
    """Whether there can be another pass over the rows; if not, polish is refused if it was asked for."""
    if isinstance(rows, Block) or rows.replayable:
        return True
    refuse_polish(polish)
    return False


def refuse_polish(polish: Any) -> None:
    """Of rows that are gone once they were read."""
    if not (isinstance(polish, str) and polish == "auto") and polish_rounds(polish)[0] > 0:
        raise ValueError(
            f"polish={polish} looks at all rows again, and these can be read only once. Leave polish at 'auto', which "
            "then means none, or set it to 0."
        )


MIN_AUTO_ROWS = 5000  # kept by coreset_size="auto", unless a learner knows better
# rows kept by coreset_size="auto": at the least, for each column, and one in so many up to a limit
_LEAST, _PER_COLUMN, _ONE_IN, _MOST = 10_000, 20, 100, 50_000


def auto_size(n_rows: int | None, n_features: int) -> int:
    """Rows that ``coreset_size="auto"`` keeps for a linear model; without the share of the rows where n is unknown."""
    return max(_LEAST, _PER_COLUMN * (n_features + 1), min((n_rows or 0) // _ONE_IN, _MOST))


def objective_for(wanted: str | Objective, n_classes: int) -> Objective:
    """An objective by name or as it is; y holds numbers below ``n_classes``, or is not a class where that is 0."""
    if isinstance(wanted, str) and wanted == GenericObjective.name:
        return GenericObjective(n_classes=n_classes)
    objective: Objective = make("objective", wanted)
    if n_classes and isinstance(objective, LabelledObjective):
        return replace(objective, classes=tuple(range(n_classes)))
    return objective


def all_rows(block: Block, objective: str) -> Coreset:
    """A coreset that is the data itself: what small data gets."""
    keep = np.flatnonzero(block.weights() > 0)
    rows = block.take(keep, block.weights()[keep])
    return Coreset(
        X=rows.X,
        y=rows.y,
        sample_weight=rows.sample_weight,
        indices=rows.row_ids(),
        n_seen=len(block),
        weight_seen=block.total_weight,
        is_whole=True,
        provenance={"objective": objective, "construction": "all", "calibrated": 0},
    )
