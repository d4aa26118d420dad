"""The base class of learners on a coreset: fitted attributes, checked rows, the template of fit, and `partial_fit`."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from inspect import getmembers_static
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar, cast, get_args, overload

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from tithe.certify import Certificate, polish_rounds
from tithe.core.contracts import Source
from tithe.core.data import Array, Block, Coreset, all_rows
from tithe.core.errors import RowsNotSavedError
from tithe.core.parallel import limit_threads, single_blas_thread
from tithe.core.params import ENCODE, Boolean, Constraint, Option, WholeNumber, check_params, check_value, resolve_size
from tithe.core.passes import DataPass
from tithe.core.progress import Checkpoint, Progress
from tithe.core.registry import make
from tithe.core.seeding import as_seed, rng_for
from tithe.core.state_checks import (
    Check,
    Each,
    Floats,
    Instance,
    Integer,
    Labels,
    Optional,
    Sometimes,
    Storable,
    Text,
    check_fields,
    check_of,
    expect,
    restore,
)
from tithe.fit.bases import ClassNamePrefixFeaturesOutMixin
from tithe.reduce.plan import Plan, reduce_rows
from tithe.reduce.stream import CoresetStream
from tithe.rows.arrays import as_block, as_rows, check_weights, is_frame, is_spark_frame
from tithe.rows.encode import encoded_rows, later_rows, ranges_of, refuse_other_width, watch_ranges
from tithe.rows.schema import TableSchema

if TYPE_CHECKING:
    from tithe.fit.results import BarChart

FLOATS = ("float64", "float32")
MIN_AUTO_ROWS = 5000  # of a learner that has no rule of its own
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


class StoredEstimator(Storable):
    """An estimator of ours. Its parameters are stored, and the attributes whose annotation has a check.

    All of these are there after a fit, but those that have a default in the class or a check `Sometimes`.
    """

    stores_fields = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name: see scikit-learn."""
        return super().get_params(deep)  # type: ignore[misc,no-any-return]

    def record(self) -> dict[str, Any]:
        record = {"parameters": self.get_params(deep=False), **super().record()}
        lost = [name for name in vars(self) if name.endswith("_") and name not in self.stored_checks()]
        if lost:
            raise ValueError(
                f"{type(self).__name__} has the attribute {lost[0]}, which a file would not keep: declare it with a "
                "check, or as a FittedAttribute."
            )
        return record

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        values = dict(record)
        parameters = values.pop("parameters", None)
        expect(isinstance(parameters, dict), f"{cls.__name__} has no parameters")
        estimator = cls(**parameters)
        checks, optional = cls.stored_checks(), cls.optional_values(values)
        if not any(name in values for name, check in checks.items() if not (check.is_optional or name in optional)):
            expect(not values, "there is a part of a solution")
            return estimator
        check_fields(values, checks, optional=optional, who=cls.__name__)
        schema = values.get("schema_")
        expect(schema is None or schema.n_features == values.get("n_encoded_"), "a schema has other features")
        restore(estimator, values)
        estimator.check_relations()
        return estimator

    @classmethod
    def optional_values(cls, record: Mapping[str, Any]) -> frozenset[str]:
        """The attributes that a fitted estimator may lack."""
        return frozenset(name for name in cls.stored_checks() if getattr(cls, name, cls) is not cls)


class Described(StoredEstimator):
    """A fitted model that describes itself in reports and to ``tithe inspect``."""

    n_encoded_: Annotated[int, Integer(least=1, size="d")]  # the features of X, which a schema made if there is one
    _encoded_names: Annotated[Array, Sometimes(Labels("d"))]
    schema_: Annotated[TableSchema | None, Optional(Instance(TableSchema))] = None  # of rows that came from a table
    certificate_: Certificate | None = None
    _ranges: Annotated[Array | None, Optional(Floats(2, "d"))] = None  # of the columns of a frame of numbers

    @property
    def frame_encoding(self) -> Any:
        """How frames become features: the parameter ``encode`` of learners that have it."""
        return self.get_params(deep=False).get("encode", "auto")

    @property
    def takes_gaps(self) -> bool:
        """Whether the learner makes something of the gaps in a frame of numbers."""
        return False

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the input."""
        return self.n_encoded_ if self.schema_ is None else len(self.schema_.reads)

    @n_features_in_.setter
    def n_features_in_(self, n_features: int) -> None:  # scikit-learn sets it
        self.n_encoded_ = n_features

    @property
    def feature_names_in_(self) -> Array:
        """The names of the columns of the input. There is none if these have no names."""
        return self._encoded_names if self.schema_ is None else np.asarray(self.schema_.reads, dtype=object)

    @feature_names_in_.setter
    def feature_names_in_(self, names: Array) -> None:
        self._encoded_names = names

    @feature_names_in_.deleter
    def feature_names_in_(self) -> None:
        del self._encoded_names

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features that the model was fitted on, encoded ones if it was a table; None without names."""
        names = getattr(self, "_encoded_names", None)
        return None if names is None else [str(name) for name in names]

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the features that the columns became; of a transformer, those of what it makes of them."""
        if isinstance(self, ClassNamePrefixFeaturesOutMixin):
            return ClassNamePrefixFeaturesOutMixin.get_feature_names_out(self, input_features)
        return np.asarray(self.feature_names or [f"x{j}" for j in range(self.n_encoded_)], dtype=object)

    def summary(self) -> dict[str, Any]:
        """Numbers, texts and lists of them for a report, by name."""
        return {}

    def charts(self) -> list[BarChart]:
        """Charts for a report."""
        return []


class FittedAttribute(Generic[T]):
    """A fitted attribute with its type: ``coef_ = FittedAttribute[Array]()``.

    It has the value that the last fit found. While rows of `partial_fit` wait for ``solve()``, reading it raises
    `NotFittedError`, which is also an AttributeError, so that ``hasattr`` is False. Reading never starts a fit.

    Parameters
    ----------
    check : Check or None
        The check of a value that was read from a file. By default it follows from the type.
    optional : bool
        Whether a fit may leave the attribute out.
    from_stream : bool
        False for attributes that only `fit` sets, such as labels of all rows. They are missing after `partial_fit`.
    holds_rows : bool
        Whether the value holds training rows, which a model file leaves out unless it is told to keep them.
    """

    _name: str

    def __init__(
        self,
        check: Check | None = None,
        *,
        optional: bool = False,
        from_stream: bool = True,
        holds_rows: bool = False,
    ) -> None:
        self._check, self.optional, self._from_stream = check, optional or not from_stream, from_stream
        self.holds_rows = holds_rows

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @property
    def check(self) -> Check:
        """The check of a value that was read from a file."""
        if self._check is None:
            (kind,) = get_args(self.__orig_class__)  # type: ignore[attr-defined]
            self._check = check_of(kind)
        return self._check

    @overload
    def __get__(self, learner: None, owner: type) -> Self: ...

    @overload
    def __get__(self, learner: StreamLearner, owner: type) -> T: ...

    def __get__(self, learner: StreamLearner | None, owner: type) -> Any:
        if learner is None:
            return self
        values = learner._fitted_values
        if values and self._name in values:
            return values[self._name]
        if self._name in learner._left_out:
            raise RowsNotSavedError(f"{owner.__name__} has no {self._name}")
        message = f"{owner.__name__!r} object has no attribute {self._name!r}"
        if values or (learner._is_behind and not self._from_stream):
            raise AttributeError(message)
        if learner._is_behind:
            raise NotFittedError(
                f"{message} yet: rows came by partial_fit since the last solution. Call solve(), or a method that "
                "needs the solution, such as predict(X), first."
            )
        raise NotFittedError(f"{message}: it is not fitted yet.")

    def __set__(self, learner: StreamLearner, value: T) -> None:
        learner._fitted_values = {**(learner._fitted_values or {}), self._name: value}

    def __delete__(self, learner: StreamLearner) -> None:
        values = dict(learner._fitted_values or {})
        if self._name not in values:
            raise AttributeError(self._name)
        del values[self._name]
        learner._fitted_values = values


@cache
def fitted_attributes(learner: type) -> dict[str, FittedAttribute[Any]]:
    """The fitted attributes that a class and its bases declare, by name."""
    return dict(getmembers_static(learner, lambda member: isinstance(member, FittedAttribute)))


class StreamLearner(StoredEstimator, ABC):
    """A learner with fitted attributes, and with a `partial_fit` that only takes rows.

    `partial_fit` pushes rows into ``stream_`` and sets ``_fitted_values`` to None; `solve` fits to all rows so far.
    `predict` and the other methods that need a solution call it. ``stream_`` is pickled too, so a copy can go on.
    """

    # a CoresetStream, or the streams of all folds; None unless rows came by `partial_fit`
    stream_: Annotated[Any, Instance(CoresetStream)] = None
    _seed: Annotated[int, Sometimes(Integer(most=2**64))]
    _fitted_values: dict[str, Any] | None = None
    # attributes that were not saved because they hold training rows
    _left_out: Annotated[tuple[str, ...], Each(Text())] = ()

    @abstractmethod
    def _solve_stream(self) -> dict[str, Any]:
        """All fitted attributes by name, for the rows in ``stream_``."""

    @classmethod
    def stored_checks(cls) -> Mapping[str, Check]:
        fitted = {name: attribute.check for name, attribute in fitted_attributes(cls).items()}
        return {**super().stored_checks(), **fitted}

    @classmethod
    def optional_values(cls, record: Mapping[str, Any]) -> frozenset[str]:
        """What need not be there: optional attributes, rows that were left out, and all while rows wait for `solve`."""
        attributes = fitted_attributes(cls)
        left_out = record.get("_left_out", ())
        for name in left_out:
            rows = name == "stream_" or (name in attributes and attributes[name].holds_rows)
            expect(rows, f"{name!r} cannot be left out")
        is_behind = "stream_" in record and not any(name in record for name in attributes)
        optional = {name for name, attribute in attributes.items() if attribute.optional or is_behind}
        declared = frozenset(super().stored_checks()) & super().optional_values(record)
        return declared | optional | set(left_out)

    @property
    def _is_behind(self) -> bool:
        """Whether rows have been pushed that the model was not fitted to yet."""
        return self.stream_ is not None and self._fitted_values is None

    def __sklearn_is_fitted__(self) -> bool:
        return self.stream_ is not None or bool(self._fitted_values)

    def solve(self) -> Self:
        """Fit to all rows that were passed to `partial_fit` so far, and set the fitted attributes.

        Nothing happens if the solution is that of these rows already. It takes as long as a fit on the coreset.
        Raises `NotFittedError` if there are no rows, or if these rows have no solution.
        """
        check_is_fitted(self)
        if self._is_behind:
            try:
                self._fitted_values = self._solve_stream()
            except Exception as error:
                raise NotFittedError(
                    f"{type(self).__name__} has no solution: the rows passed to partial_fit have none yet. {error}"
                ) from error
        return self

    def _start_fit(self) -> None:
        """Forget the rows and the solution of earlier calls."""
        if self.stream_ is not None:
            del self.stream_
        if self._left_out:
            del self._left_out
        self._fitted_values = {}

    def without_rows(self) -> Self:
        """A copy without coresets and stream. It predicts the same, and cannot go on with `partial_fit`."""
        if self._is_behind:
            try:
                self.solve()
            except NotFittedError as error:
                raise ValueError(f"{error} To save the rows themselves, set rows=True.") from error
        values = dict(self._fitted_values or {})
        names = [name for name, attribute in fitted_attributes(type(self)).items() if attribute.holds_rows]
        left_out = [name for name in names if values.get(name) is not None]
        left_out += ["stream_"] if self.stream_ is not None else []
        if not left_out:
            return self
        slim = copy(self)
        slim._fitted_values = {name: value for name, value in values.items() if name not in left_out}
        slim._left_out = (*self._left_out, *left_out)
        if self.stream_ is not None:
            del slim.stream_
        return slim

    def _refuse_lost_stream(self) -> None:
        """Refuse to go on with a stream that was not saved: its rows would silently be missing."""
        if "stream_" in self._left_out:
            raise RowsNotSavedError(f"{type(self).__name__} cannot go on with partial_fit (fit starts anew)")


class _HasJobs(Protocol):
    n_jobs: int | None


def limits_threads(method: Method) -> Method:
    """Run a method of a learner on ``n_jobs`` threads."""

    @functools.wraps(method)
    def limited(learner: _HasJobs, *args: Any, **options: Any) -> Any:
        n_jobs = learner.n_jobs
        if n_jobs is not None and not (WholeNumber(least=1).accepts(n_jobs) or n_jobs == -1):
            raise ValueError(f"n_jobs must be None, -1 or a whole number of at least 1, got {n_jobs!r}.")
        with limit_threads(None if n_jobs == -1 else n_jobs):
            return method(learner, *args, **options)

    return cast(Method, limited)


class CoresetLearner(StreamLearner, Described):
    """Checks rows, reduces them, learns from the coreset and stores both.

    Subclasses have the parameters ``coreset_size``, ``construction``, ``calibrate``, ``engine``, ``n_jobs``,
    ``verbose`` and ``random_state``, and most have ``polish``. A subclass defines:

    - a `FittedAttribute` for each fitted attribute;
    - ``_objective()``, which a coreset has to preserve;
    - ``_learn(coreset, data, seed, context)``, which returns the values of the fitted attributes by name. ``data``
      gives passes over all rows to polish and certify on, or is None if the rows cannot be read again.

    It may define ``_check_options()``, which refuses wrong parameters before a row is read; ``_prepare(data)``, which
    turns checked rows into those to reduce, such as class numbers for labels, and ``_prepare_batch(block, classes)``,
    which does so for the stream of `partial_fit`; and ``_context()``, what ``_learn`` needs of the fit before.
    """

    options: ClassVar[tuple[Option, ...]] = ()  # parameters of `tithe fit` besides those of all learners
    usual_rounds: ClassVar[int] = 3  # rounds that a plan expects of polish="auto"
    _constraints: ClassVar[dict[str, Constraint]] = {}
    _uses_target: ClassVar[bool] = True  # False for learners that ignore y

    # pipelines and searches must not route these as metadata of the rows
    __metadata_request__fit = {"checkpoint": UNUSED, "progress": UNUSED}

    coreset_size: Any
    construction: Any
    calibrate: bool = True
    polish: Any = 0  # of a learner without this parameter
    engine: Any
    n_jobs: int | None = None
    verbose: int = 0
    random_state: Any

    coreset_ = FittedAttribute[Any](holds_rows=True)

    @abstractmethod
    def _objective(self) -> Any:
        """The objective that a coreset has to preserve."""

    @abstractmethod
    def _learn(self, coreset: Any, data: DataPass | None, seed: int, context: Any) -> dict[str, Any]:
        """The fitted attributes by name. ``data`` is None if the rows cannot be read again."""

    # -- fit -----------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: Checkpoint | None = None,
        progress: Progress | bool | None = None,
    ) -> Self:
        """Reduce the rows, and fit on the coreset. With polish and certificate, which read all rows, if there are any.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d), a source, or a Dask collection or Spark DataFrame
            A source (`open_dataset`) is read leaf by leaf, once to reduce it and once for each pass of polish; a
            classifier's ``class_weight="balanced"`` takes one more pass. A source that cannot be read again is fitted
            without polish and certificate, and all classes must be among its first rows; if not, use `partial_fit`
            with ``classes``.
        y : array of shape (n,), of numbers for a regression, of any labels for a classifier; ignored by other learners
            That of a source comes with its rows.
        sample_weight : array of shape (n,), optional
            A row of weight two counts as two rows. Those of a source come with its rows.
        checkpoint, progress
            Keep the state of the reduction in a folder, and watch the passes over the data: see `build_coreset`.
        """
        return self._fit(X, y, sample_weight, self._context(), checkpoint, progress)

    @limits_threads
    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        context: Any,
        checkpoint: Checkpoint | None,
        progress: Progress | bool | None,
    ) -> Self:
        """The steps of every fit: check, read, reduce, learn."""
        self._check_options()
        rows = self._validate_rows(X, y, sample_weight, reset=True)
        self._note_ranges(X, rows)
        self._start_fit()
        data = self._prepare(self._passes(rows, progress), reset=True)
        self._fitted_values = self._reduce_and_learn(data, as_seed(self.random_state), context, checkpoint)
        return self

    def _note_ranges(self, X: Any, rows: Block | Source) -> None:
        """Store the ranges of the columns of a frame of numbers, which has no schema that knows them."""
        named = self.schema_ is None and is_frame(X) and self.feature_names is not None
        self._ranges = ranges_of(rows) if named else None

    def _context(self) -> Any:
        """What `_learn` needs of the fit before. It is asked for before anything changes."""
        return None

    def _prepare(self, data: DataPass, *, reset: bool) -> DataPass:
        """Passes over the rows as the objective reads them. With ``reset`` classes are stored, else they are known."""
        return data

    def _reduce_and_learn(
        self, data: DataPass, seed: int, context: Any, checkpoint: Checkpoint | None
    ) -> dict[str, Any]:
        """The fitted attributes by name."""
        again = can_read_again(data.rows, self.polish)
        coreset = self._reduce(data, self._objective(), seed, checkpoint=checkpoint)
        return self._learn(coreset, data if again else None, seed, context)

    def _reduce(
        self, data: DataPass, objective: Any, seed: int, *, checkpoint: Checkpoint | None = None, **options: Any
    ) -> Coreset:
        """A coreset of the rows, or all rows if they are no more than its size. ``options`` replace the learner's."""
        rows = data.rows
        size = self._size(data.n_expected, rows.n_features)
        if isinstance(rows, Block) and len(rows) <= size:
            return all_rows(rows, objective)
        options = {"construction": self.construction, "calibrate": self.calibrate, **options}
        plan = Plan.of(objective, size=size, seed=int(rng_for(seed, "reduce").integers(2**62)), **options)
        return reduce_rows(data, plan, checkpoint=checkpoint)

    def _passes(self, rows: Block | Source, progress: Progress | bool | None) -> DataPass:
        """Passes over the rows, with their progress shown if ``verbose`` or the caller asks for it."""
        return DataPass(rows, self.engine, bool(self.verbose) or None if progress is None else progress)

    def _validate_rows(self, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block | Source:
        """X as a checked block, or as the source that it is or becomes."""
        y = y if self._uses_target else None
        if not isinstance(X, np.ndarray):
            X, y, sample_weight = as_rows(X, y, sample_weight, schema=None if reset else self.schema_)
        if isinstance(X, Source):
            note_columns(self, check_no_extra_arrays(X, y, sample_weight), reset=reset)
            return X
        require_target(self, y is not None)
        return self._checked(X, y, sample_weight, reset=reset)

    def _checked(self, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block:
        """A checked block. Schema, names and number of columns are stored (``reset``) or compared."""
        if isinstance(X, Source):
            raise ValueError(
                "This method takes arrays, not sources. Go through a source leaf by leaf, [model.predict(task().X) for "
                "task in source.tasks()], or use tithe predict on the command line."
            )
        if not isinstance(X, np.ndarray) and is_spark_frame(X):
            raise ValueError("This method takes no Spark DataFrame: open it with open_dataset(frame, target=...).")
        block = checked_block(self, X, y, sample_weight, reset=reset)
        if self._ranges is not None and not reset and is_frame(X):
            watch_ranges(self.feature_names_in_, block, self._ranges)
        return block

    # -- partial_fit ---------------------------------------------------------------------------

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add rows, which need not be kept. `solve` computes the solution, and so does `predict` if it was not called.

        The result does not depend on how rows are split into batches. Up to ``coreset_size`` rows are all used, as in
        `fit`; beyond that a `CoresetStream` keeps a coreset. There is no polish and no certificate, because the rows
        are not kept: use `certify` on rows that you have. The first call after a `fit` starts anew.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n, d)
        y : array of shape (n,), of numbers for a regression; ignored by learners without a target
        sample_weight : array of shape (n,), optional
        """
        return self._push(X, y, sample_weight)

    @limits_threads
    def _push(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Push the rows of `partial_fit` into the stream. `solve` fits the model to them."""
        y = y if self._uses_target else None
        first = self.stream_ is None
        self._refuse_lost_stream()
        if first:
            self._check_options()
            self._refuse_polish()
            self._ranges = None  # later batches may go beyond the first
        require_target(self, y is not None)
        checked = self._checked(X, y, reset=first)
        weight = check_weights(sample_weight, len(checked))  # a batch may have zero weights only
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

    def _prepare_batch(self, block: Block, classes: Any) -> Block:
        """The rows of a batch as the stream takes them."""
        return block

    def _refuse_polish(self) -> None:
        """Refuse polish: the rows of `partial_fit` cannot be read again."""
        refuse_polish(self.polish)

    def _new_stream(self) -> CoresetStream:
        self._seed = as_seed(self.random_state)
        return CoresetStream(
            self._objective(),
            self.construction,
            coreset_size=self._size(None, self.n_encoded_),
            calibrate=self.calibrate,
            random_state=int(rng_for(self._seed, "reduce").integers(2**62)),
        )

    @limits_threads
    def _solve_stream(self) -> dict[str, Any]:
        with single_blas_thread():
            return self._learn(self.stream_.coreset(), None, self._seed, None)

    # -- rows of which only a coreset is left --------------------------------------------------

    def _fit_to_coreset(self, coreset: Coreset, labels: Array | None, schema: TableSchema | None) -> None:
        """Fit to the rows of a coreset with their weights."""
        size, self.coreset_size = self.coreset_size, len(coreset)
        y = coreset.y if coreset.y is None or labels is None else labels[coreset.y]
        self.fit(coreset.X, y, sample_weight=coreset.weights())
        self.coreset_size = size

    def _adopt_coreset(self, coreset: Coreset, feature_names: Array | None) -> None:
        """Say that the rows of the last fit were this coreset of other rows, which cannot be read again."""
        values = {**(self._fitted_values or {}), "coreset_": coreset}
        values.pop("labels_", None)
        if "certificate_" in values:  # not every learner has one
            values["certificate_"] = None
        self._fitted_values = values
        if feature_names is not None:
            self.feature_names_in_ = feature_names

    # -- sizes and checks ----------------------------------------------------------------------

    def planned(self, n_rows: int | None, n_features: int) -> tuple[Any, int | float]:
        """The objective and the size of the coreset, as far as they are known before a row is read."""
        automatic = self.coreset_size is None or self.coreset_size == "auto"
        size = self._auto_size(n_rows, n_features) if automatic else self.coreset_size
        return self._unlabelled_objective(), size

    def _unlabelled_objective(self) -> Any:
        """The objective before the classes are known."""
        return self._objective()

    def check_relations(self) -> None:
        """Refuse a solution from a file that is not one of this learner for its columns."""
        check_params(self, self._constraints)
        d, coreset, stream = self.n_encoded_, (self._fitted_values or {}).get("coreset_"), self.stream_
        expect(not isinstance(coreset, Coreset) or coreset.n_features == d, "a coreset has other columns")
        if stream is not None:
            self._check_stream(stream)

    def _check_stream(self, stream: CoresetStream) -> None:
        """Check that the stream has the columns and the objective of the learner."""
        like = stream.state.rows.like
        expect(like is not None and like.n_features == self.n_encoded_, "a stream has other columns")
        objective, stored = self._objective(), stream.plan.objective
        same = type(objective) is type(stored) and objective.classes == stored.classes
        expect(same, "a stream is for another learner")
        for block in [*stream.state.rows.parts, *stream.state.tree.slots] if objective.n_classes else []:
            y = np.zeros(0) if block.y is None else block.y
            numbers = y.dtype.kind in "iu" and y.min() >= 0 and y.max() < objective.n_classes
            expect(numbers, "rows have no class numbers")

    def _check_options(self) -> None:
        """Refuse wrong parameters before a row is read."""
        self._check_names()
        check_params(self, self._constraints)

    def _check_names(self) -> None:
        """Refuse unknown names even if the rows are too few to need them."""
        for kind, name in (("construction", self.construction), ("engine", self.engine)):
            if not (isinstance(name, str) and name == "auto"):
                make(kind, name)
        check_value("calibrate", self.calibrate, Boolean())
        check_value("encode", self.frame_encoding, ENCODE)

    def _size(self, n_rows: int | None, n_features: int) -> int:
        """Rows to keep. ``n_rows`` is None if it is not known beforehand."""
        if self.coreset_size is None or (isinstance(self.coreset_size, str) and self.coreset_size == "auto"):
            return self._auto_size(n_rows, n_features)
        return resolve_size(self.coreset_size, n_rows)

    def _auto_size(self, n_rows: int | None, n_features: int) -> int:
        """Rows that ``coreset_size="auto"`` keeps."""
        return MIN_AUTO_ROWS

    @property
    def sample_indices_(self) -> Array:
        """Positions in the training data of the rows of the coreset."""
        return self.coreset_.row_ids()  # type: ignore[no-any-return]


# -- the rows of learners --------------------------------------------------------------------------


def checked_block(learner: Any, X: Any, y: Any = None, sample_weight: Any = None, *, reset: bool) -> Block:
    """A checked block. Schema, names and number of columns are stored (``reset``) or compared.

    What becomes of a frame is up to the learner's ``encode``: see `encoded_rows`. Later frames are encoded alike.
    """
    schema = learner.schema_
    if reset:
        rows, schema = encoded_rows(X, learner.frame_encoding, y, takes_gaps=learner.takes_gaps)
    elif schema is not None and is_frame(X):
        rows = later_rows(schema, X)
    else:
        rows = X
    if schema is not None:
        block = as_block(rows, y, sample_weight)
        if not is_frame(X):
            check_n_features(learner, block.n_features)
            return block
    else:
        block = as_block(X, y, sample_weight)
        validate_data(learner, X if hasattr(X, "shape") else block.X, reset=reset, skip_check_array=True)
    if reset:
        set_schema(learner, schema)
    return block


def check_n_features(learner: Described, n_features: int) -> None:
    """Refuse rows with another number of features than those that the learner was fitted on."""
    if n_features == learner.n_encoded_:
        return
    name, schema = type(learner).__name__, learner.schema_
    if schema is None:
        raise ValueError(
            f"X has {n_features} features, but {name} is expecting {learner.n_encoded_} features as input."
        )
    refuse_other_width(schema, n_features, f"{name} was fitted on")


def block_of_rows(X: Any, y: Any = None, sample_weight: Any = None) -> tuple[Block, TableSchema | None]:
    """A checked block of an array or a frame, and the schema that a frame needs that holds more than numbers."""
    rows, schema = encoded_rows(X, "auto", y, takes_gaps=True)
    return as_block(rows, y, sample_weight), schema


def set_schema(learner: Described, schema: TableSchema | None) -> None:
    """Store a schema, and the names and number of its features."""
    learner.schema_ = schema
    if schema is not None:
        learner.n_encoded_ = schema.n_features
        learner._encoded_names = np.asarray(schema.feature_names, dtype=object)


def check_same_schema(learner: Described, source: Source) -> None:
    """Refuse a source whose columns became features in another way than those of the fit."""
    schema = learner.schema_
    if schema is not None and source.schema is not None and not schema.same_features(source.schema):
        raise ValueError(
            "The columns of this source became features by another schema than in the fit: scales or values differ. "
            "Open it with that of the model: open_dataset(..., schema=model.schema_)."
        )


def check_no_extra_arrays(source: Source, *arrays: Any) -> Source:
    """Return the source. Arrays beside it are refused, because y and weights come with its rows."""
    if any(array is not None for array in arrays):
        raise ValueError("y and weights come with the rows of a source: open it with target=... and weight=...")
    return source


def note_columns(learner: Described, source: Source, *, reset: bool) -> None:
    """Store (``reset``) or compare names and number of a source's columns, as `validate_data` does for arrays."""
    names = None if source.feature_names is None else np.asarray(source.feature_names, dtype=object)
    if reset:
        learner.n_encoded_ = source.n_features
        if names is not None:
            learner._encoded_names = names
        elif learner.feature_names is not None:
            del learner._encoded_names
        set_schema(learner, source.schema)
        return
    check_same_schema(learner, source)
    check_n_features(learner, source.n_features)
    known = learner.feature_names
    if names is not None and known is not None and not np.array_equal(names, known):
        raise ValueError("The feature names should match those that were passed during fit: the source has others.")


def require_target(learner: Any, given: bool, *, anyway: bool = False) -> None:
    """Refuse rows without y, which is ``given`` or not, if the learner needs one, or ``anyway``."""
    if not given and (anyway or learner.__sklearn_tags__().target_tags.required):
        raise ValueError(f"{type(learner).__name__} requires y to be passed, but the target y is None.")


# -- polish, and fits on a coreset that is there already -------------------------------------------


def can_read_again(rows: Block | Source, polish: Any) -> bool:
    """Whether the rows can be read once more. If not, a ``polish`` that was asked for is refused."""
    if isinstance(rows, Block) or rows.replayable:
        return True
    refuse_polish(polish)
    return False


def refuse_polish(polish: Any) -> None:
    """Refuse ``polish`` for rows that can be read only once."""
    if not (isinstance(polish, str) and polish == "auto") and polish_rounds(polish)[0] > 0:
        raise ValueError(
            f"polish={polish} reads all rows again, and these can be read only once. Leave polish at 'auto', which "
            "then means none, or set it to 0."
        )


def fit_on_coreset(
    learner: CoresetLearner,
    coreset: Coreset,
    labels: Array | None,
    feature_names: Array | None,
    schema: TableSchema | None = None,
) -> None:
    """Fit a learner on a coreset of all rows, which it does not reduce again. It has no certificate then.

    ``labels`` are those that the numbers in ``coreset.y`` stand for; None if y holds no classes.
    """
    learner._fit_to_coreset(coreset, labels, schema)
    learner._adopt_coreset(coreset, feature_names)


def fit_on_saved_coreset(learner: CoresetLearner, coreset: Coreset, schema: TableSchema | None) -> None:
    """Fit a learner on a coreset from a file. With its schema the learner takes rows of the original table."""
    labels = None
    if is_classifier(learner) and coreset.y is not None:
        labels, numbers = np.unique(coreset.y, return_inverse=True)
        coreset = replace(coreset, y=numbers, objective=with_classes(coreset.objective, range(len(labels))))
    fit_on_coreset(learner, coreset, labels, None, schema)
    set_schema(learner, schema)


def with_classes(objective: Any, classes: Sequence[Any]) -> Any:
    """The objective for rows with other names of their classes; None if it knows classes by number alone."""
    if objective is None or objective.n_classes == 0:
        return objective
    return replace(objective, classes=tuple(classes)) if objective.classes is not None and len(classes) else None
