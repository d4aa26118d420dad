"""Estimators of other libraries: the weights, labels and rows of frames that they take, and their residuals."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Annotated, Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from scipy import sparse
from sklearn import get_config
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, get_routing_for_object

from tithe.core.data import Array, Block
from tithe.core.state_checks import Anything, Labels
from tithe.fit.base import Described, StoredEstimator, StreamLearner
from tithe.fit.bases import BaseEstimator, ClassifierMixin, available_if
from tithe.fit.collections import lazy_on_collections
from tithe.rows.arrays import is_frame
from tithe.rows.schema import TableSchema, can_view, frame_table, frame_view

_MOST_CATEGORIES = {"sklearn": 255}  # of a column, that histogram boosting takes
_WEIGHT = "sample_weight"
_PAIRWISE_OPTIONS = ("kernel", "metric", "affinity")


def last_step(estimator: Any) -> tuple[str, Any]:
    """The last step of a pipeline, or the estimator itself, with the prefix of its parameters.

    >>> from sklearn.linear_model import Ridge
    >>> last_step(Pipeline([("model", Ridge())]))
    ('model__', Ridge())
    """
    prefix = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return prefix, estimator


def takes_weights(estimator: Any, method: str) -> bool:
    """Whether ``fit`` or ``score`` of an estimator, or of the last step of a pipeline, uses weights."""
    _, learner = last_step(estimator)
    if not hasattr(learner, method):
        return False
    if _is_routed(estimator):
        return bool(get_routing_for_object(learner).consumes(method, [_WEIGHT]))
    return _WEIGHT in signature(getattr(learner, method)).parameters


def score_of(estimator: Any, X: Any, y: Any, sample_weight: Array | None) -> float:
    """The score of a fitted estimator, with the weights if it takes them."""
    weighted = sample_weight is not None and takes_weights(estimator, "score")
    return float(estimator.score(X, y, **({_WEIGHT: sample_weight} if weighted else {})))


def require_method(estimator: Any, method: str, *, needed_by: str) -> None:
    """Refuse an estimator of another library that lacks a method."""
    if not hasattr(estimator, method):
        raise ValueError(f"{needed_by} needs {method}(), which {type(estimator).__name__} does not have.")


def fit_arguments(estimator: Any, sample_weight: Array | None) -> dict[str, Array]:
    """Keyword arguments that pass the weights to ``estimator.fit``; none if there are no weights.

    A pipeline passes them to its last step and to each other step whose ``fit`` takes them. If metadata routing is
    enabled, pipelines and other meta-estimators route them as their steps request.
    """
    if sample_weight is None:
        return {}
    names = [_WEIGHT] if _is_routed(estimator) else _names(estimator)
    return dict.fromkeys(names, sample_weight)


def _names(estimator: Any) -> list[str]:
    if isinstance(estimator, Pipeline):
        return [f"{name}__{inner}" for name, step in estimator.steps for inner in _names(step)]
    return [_WEIGHT] if takes_weights(estimator, "fit") else []


def _is_routed(estimator: Any) -> bool:
    """Whether scikit-learn routes the weights."""
    enabled = get_config()["enable_metadata_routing"]
    return bool(enabled) and isinstance(get_routing_for_object(estimator), MetadataRouter)


def check_learns_from_coresets(estimator: Any) -> None:
    """Refuse an estimator that uses no weights, or that takes a precomputed kernel or distance matrix."""
    _, learner = last_step(estimator)
    name = type(learner).__name__ if not isinstance(learner, str) else repr(learner)
    where = f"The last step of the pipeline, {name}," if isinstance(estimator, Pipeline) else f"{name}.fit()"
    if not takes_weights(estimator, "fit"):
        if _is_routed(estimator):
            advice = "Request it: call set_fit_request(sample_weight=True) on the estimator that learns."
            raise ValueError(f"{where} requests no sample_weight, so it cannot learn from a coreset. {advice}")
        advice = (
            " If it hands weights to an inner estimator, enable metadata routing "
            "(sklearn.set_config(enable_metadata_routing=True)) and request sample_weight there."
            if isinstance(learner, MetaEstimatorMixin)
            else ""
        )
        raise ValueError(f"{where} takes no sample_weight, so it cannot learn from a coreset.{advice}")
    if _is_pairwise(estimator):
        raise ValueError(
            f"{type(estimator).__name__} takes a precomputed matrix of kernel values or distances, and a coreset is "
            "drawn from rows of features. Give it the rows, with a kernel or metric that it computes itself."
        )


def _is_pairwise(estimator: Any) -> bool:
    if get_tags(estimator).input_tags.pairwise:
        return True
    if isinstance(estimator, Pipeline):  # only the first step takes X; a later one may take a kernel of it
        return False
    # meta-estimators do not all pass the tag on
    options = estimator.get_params(deep=True).items()
    return any(
        isinstance(value, str) and value == "precomputed" and key.rpartition("__")[2] in _PAIRWISE_OPTIONS
        for key, value in options
    )


def takes_categories(estimator: Any) -> bool:
    """Whether an estimator treats gaps and categories of a frame itself, or looks up the columns of one by name.

    These are the boosted trees of scikit-learn, LightGBM, XGBoost and CatBoost, and pipelines that begin with a
    `sklearn.compose.ColumnTransformer`.
    """
    if isinstance(estimator, Pipeline):
        return isinstance(estimator.steps[0][1], ColumnTransformer)
    from_dtype = estimator.get_params(deep=False).get("categorical_features") == "from_dtype"
    return from_dtype or library_of(estimator) in ("lightgbm", "xgboost", "catboost")


def needs_dense_rows(estimator: Any, schema: TableSchema | None) -> bool:
    """Whether rows that a schema made sparse have to become dense for an estimator, which does not take them."""
    return schema is not None and schema.sparse and not get_tags(estimator).input_tags.sparse


def library_of(estimator: Any) -> str:
    """The package that defines an estimator, or that of a library of boosted trees that it inherits from."""
    packages = [kind.__module__.partition(".")[0] for kind in type(estimator).__mro__]
    return next((name for name in packages if name in ("lightgbm", "xgboost", "catboost")), packages[0])


def with_categories(estimator: Any, rows: Any) -> Any:
    """The estimator, set to take categories if the rows to fit it to have some and it must be told so."""
    if library_of(estimator) == "xgboost" and is_frame(rows):
        estimator.set_params(enable_categorical=True)
    if library_of(estimator) == "catboost" and is_frame(rows) and estimator.get_params().get("cat_features") is None:
        kinds = nw.from_native(rows, eager_only=True).schema.items()
        texts = [name for name, kind in kinds if kind == nw.String or kind == nw.Object]
        estimator.set_params(**({"cat_features": texts} if texts else {}))
    return estimator


# -- methods of the estimator inside a learner -------------------------------------------------


def if_inner_has(name: str) -> Callable[[Any], Any]:
    """A decorator of a method that is there only if the estimator inside has it."""

    def has(learner: OuterEstimator) -> bool:
        getattr(learner._inner(), name)
        return True

    return available_if(has)


def _passed_on(name: str) -> Any:
    def call(self: OuterEstimator, X: Any) -> Any:
        return self._call(name, X)

    call.__name__, call.__doc__ = name, f"``{name}`` of the fitted estimator."
    return if_inner_has(name)(lazy_on_collections(call))


class OuterEstimator(StreamLearner):
    """A learner with an estimator inside, whose methods it has too."""

    estimator: Any

    @property
    def takes_gaps(self) -> bool:
        """An estimator of another package gets gaps as they are, and refuses them itself if it takes none."""
        return self.estimator.takes_gaps if isinstance(self.estimator, Described) else True

    def framed(self, X: Any, *, reset: bool) -> Any:
        """An array with gaps as a frame, if the estimator takes gaps: they are then marked where rows are drawn.

        After a fit to such an array (``reset`` is False) every array becomes a frame.
        """
        if not (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind == "f" and can_view()):
            return X
        names = [f"x{i}" for i in range(X.shape[1])]
        if reset:
            first = self.estimator.steps[0][1] if isinstance(self.estimator, Pipeline) else self.estimator
            # CatBoost and LightGBM 4.6 do not say so
            takes_gaps = library_of(first) in ("catboost", "lightgbm") or get_tags(first).input_tags.allow_nan
            makes_one = takes_gaps and np.isnan(X).any()
        else:
            makes_one = list(getattr(self, "feature_names_in_", ())) == names
        if not makes_one:
            return X
        import pandas as pd

        return pd.DataFrame(X, columns=names)

    @abstractmethod
    def _inner(self) -> Any:
        """The fitted estimator; before a fit, the one that would be fitted."""

    @abstractmethod
    def _call(self, method: str, X: Any) -> Any:
        """What a method of the fitted estimator answers for rows."""

    predict = _passed_on("predict")
    predict_proba = _passed_on("predict_proba")
    predict_log_proba = _passed_on("predict_log_proba")
    decision_function = _passed_on("decision_function")
    score_samples = _passed_on("score_samples")
    transform = _passed_on("transform")

    @if_inner_has("inverse_transform")
    def inverse_transform(self, X: Any) -> Any:
        """``inverse_transform`` of the fitted estimator."""
        return self.solve()._inner().inverse_transform(X)


# -- labels and residuals ----------------------------------------------------------------------


class NumberedClasses(ClassifierMixin, StoredEstimator, BaseEstimator):
    """A classifier that takes only the numbers 0, 1, ... for classes, such as XGBoost's, with labels of any kind."""

    classes_: Annotated[Array, Labels("classes", distinct=True)]
    estimator_: Annotated[Any, Anything()]

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any, **params: Any) -> NumberedClasses:
        self.classes_ = np.unique(y)
        if "eval_set" in params:
            params["eval_set"] = [(rows, self._numbers(labels)) for rows, labels in params["eval_set"]]
        self.estimator_ = clone(self.estimator).fit(X, self._numbers(y), **params)
        return self

    def _numbers(self, labels: Any) -> Array:
        numbers: Array = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        unknown = np.flatnonzero(self.classes_[numbers] != np.asarray(labels))
        if len(unknown):
            raise ValueError(f"eval_set has the class {np.asarray(labels)[unknown[0]]!r}, which the coreset has not.")
        return numbers

    def predict(self, X: Any) -> Array:
        labels: Array = self.classes_[self.estimator_.predict(X)]
        return labels

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "estimator_":  # which is not there before the fit
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.estimator_, name)


def fitted_to_labels(estimator: Any, X: Any, y: Any, **params: Any) -> Any:
    """The estimator, fitted; with class numbers in place of labels if it refuses these."""
    try:
        return estimator.fit(X, y, **params)
    except ValueError:
        if not is_classifier(estimator) or np.array_equal(np.unique(y), np.arange(len(np.unique(y)))):
            raise
    return NumberedClasses(estimator).fit(X, y, **params)  # any other error is raised again


def residuals(estimator: Any, labels: Array | None, rows_of: Callable[[Block], Any], block: Block) -> Array:
    """Residuals (n, c) of a fitted estimator: of y, or of the indicator of each class but the first.

    ``labels`` are those of a classifier; y of the block then holds class numbers. ``rows_of`` gives the rows of a block
    as the estimator takes them.
    """
    assert block.y is not None
    residual: Array
    if labels is None:
        residual = (block.y - estimator.predict(rows_of(block)))[:, None]
        return residual
    indicators = np.equal.outer(labels[block.y], estimator.classes_)
    if hasattr(estimator, "predict_proba"):
        predicted = estimator.predict_proba(rows_of(block))
    else:
        predicted = np.equal.outer(estimator.predict(rows_of(block)), estimator.classes_)
    residual = (indicators[:, 1:] - predicted[:, 1:]).astype(np.float64)
    return residual


# -- rows of frames ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RowArguments:
    """Further arguments of ``fit`` or ``score``. Of one with a value for each of ``n_rows`` rows, a block has its own.

    >>> arguments = RowArguments(values={"years": np.array([1.0, 2.0, 3.0]), "epochs": 5}, n_rows=3)
    >>> arguments.of(Block(X=np.zeros((2, 1)), indices=np.array([0, 2])))
    {'years': array([1., 3.]), 'epochs': 5}
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    n_rows: int | None = None

    def of(self, block: Block) -> dict[str, Any]:
        return {name: self._of_rows(value, block) for name, value in self.values.items()}

    def _of_rows(self, value: Any, block: Block) -> Any:
        n = len(value) if isinstance(value, (list, tuple)) else (getattr(value, "shape", None) or (None,))[0]
        if n is None or n != self.n_rows:
            return value
        return rows_of(value if is_frame(value) or sparse.issparse(value) else np.asarray(value), block.row_ids())


NO_ARGUMENTS = RowArguments()


@dataclass(frozen=True, kw_only=True)
class OriginalRows:
    """What an estimator gets in place of numeric rows, and further arguments of its ``fit``.

    Parameters
    ----------
    frame : frame or None
        The frame that the numeric rows were made from; their ids are positions in it.
    schema : TableSchema or None
        If there is no frame: the schema by which numeric rows become a frame again. None: numeric rows are taken.
    dense : bool
        Whether numeric rows that are sparse become dense ones.
    library : str
        The library whose rules that frame follows: see `_as_taken_by`.
    fit_params : RowArguments
        Further arguments of ``fit``.
    """

    frame: Any = None
    schema: TableSchema | None = None
    dense: bool = False
    library: str = ""
    fit_params: RowArguments = NO_ARGUMENTS

    def for_learner(self, estimator: Any, schema: TableSchema | None, encode: Any = "auto") -> OriginalRows:
        """The same for an estimator, once the schema of the rows is known.

        One that treats gaps and categories itself gets frames by the schema, where there is no frame, or one with text,
        dates or lists, which it cannot take. Any other of scikit-learn gets such a frame as the numbers of the schema,
        and with ``encode=True`` every frame. A pipeline gets the frame as it is: it may encode it in its own way.
        """
        library = library_of(last_step(estimator)[1])
        catboost = library == "catboost"
        if catboost and self.frame is not None and estimator.get_params().get("cat_features") is not None:
            return self
        if schema is not None and takes_categories(estimator) and can_view():
            plain = self.frame is not None and (
                isinstance(estimator, Pipeline)
                or _is_plain(self.frame, categories=not catboost, at_most=_MOST_CATEGORIES.get(library))
            )
            if not plain:
                return replace(self, frame=None, schema=schema, library=library)
        elif schema is not None and self.frame is not None and (encode is True or self._is_foreign_to(estimator)):
            return replace(self, frame=None, dense=needs_dense_rows(estimator, schema))
        return replace(self, dense=needs_dense_rows(estimator, schema))

    def _is_foreign_to(self, estimator: Any) -> bool:
        """Whether an estimator of scikit-learn that encodes nothing itself gets a frame with more than numbers."""
        if isinstance(estimator, Pipeline) or library_of(estimator) != "sklearn":
            return False
        holds_others = any(hasattr(value, "fit") for value in estimator.get_params(deep=False).values())
        return not holds_others and not _is_plain(self.frame, categories=False)

    def of(self, block: Block) -> Any:
        """The original rows of a block."""
        if self.frame is not None:
            return rows_at(self.frame, block.row_ids())
        if self.schema is not None:
            return self._view(block.X)
        return block.X.toarray() if self.dense and sparse.issparse(block.X) else block.X

    def _view(self, X: Any) -> Any:
        assert self.schema is not None
        return _as_taken_by(self.library, frame_view(self.schema, X))

    def arguments(self, block: Block) -> dict[str, Any]:
        """Further arguments of ``fit``; frames of an ``eval_set`` become rows as those to learn from."""
        params = self.fit_params.of(block)
        if self.schema is not None and "eval_set" in params:
            params["eval_set"] = [(self._viewed(rows), labels) for rows, labels in params["eval_set"]]
        return params

    def _viewed(self, rows: Any) -> Any:
        assert self.schema is not None
        return self._view(self.schema.encode(frame_table(rows))) if is_frame(rows) else rows


def _as_taken_by(library: str, frame: Any) -> Any:
    """A pandas frame by the rules of a library.

    CatBoost takes categories as texts, gaps as the empty one. scikit-learn's histogram boosting takes at most 255
    categories: the numbers of more are numbers, which splits cut into ranges. LightGBM and XGBoost refuse some signs in
    the names of columns.
    """
    names = frame.select_dtypes("category").columns
    if library == "catboost":
        frame = frame.assign(**{name: frame[name].astype(object).where(frame[name].notna(), "") for name in names})
        return frame.astype(dict.fromkeys(names, str))
    most = _MOST_CATEGORIES.get(library)
    for name in names:
        if most is not None and len(frame[name].cat.categories) > most:
            codes = frame[name].cat.codes
            frame[name] = codes.astype(np.float64).where(codes >= 0)
    if library in ("lightgbm", "xgboost"):
        frame.columns = _plain_names([str(name) for name in frame.columns])
    return frame


def _plain_names(names: list[str]) -> list[str]:
    """The names with an underscore for each sign that is refused, and a number where two would be the same."""
    plain = [re.sub(r'[][{}<>",:]', "_", name) for name in names]
    if plain == names:
        return names
    return [name if plain.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(plain)]


def _is_plain(frame: Any, *, categories: bool = True, at_most: int | None = None) -> bool:
    """Whether a frame holds nothing but numbers, or ``at_most`` so many categories where these are allowed."""
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return False
    table = nw.from_native(frame, eager_only=True)
    others = (nw.Boolean, nw.Categorical, nw.Enum) if categories else (nw.Boolean,)
    if not all(kind.is_numeric() or kind in others for kind in table.schema.values()):
        return False
    named = [name for name, kind in table.schema.items() if kind in (nw.Categorical, nw.Enum)]
    return at_most is None or all(table[name].n_unique() <= at_most for name in named)


def rows_at(frame: Any, positions: Array) -> Any:
    """Some rows of a frame, as a frame of the same kind."""
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return frame.take(positions)
    return nw.from_native(frame, eager_only=True)[positions].to_native()


def rows_of(X: Any, positions: Array) -> Any:
    """Some rows of an array or a frame."""
    return rows_at(X, positions) if is_frame(X) else X[positions]


def columns_of(frame: Any) -> list[str]:
    """The names of the columns of a frame."""
    return [
        str(name) for name in (frame.schema.names if isinstance(frame, (pa.Table, pa.RecordBatch)) else frame.columns)
    ]


def selected(frame: Any, names: list[str]) -> Any:
    """The frame with these columns in this order. Raises ValueError if one is missing."""
    missing = [name for name in names if name not in columns_of(frame)]
    if missing:
        raise ValueError(f"The feature names should match those of the fit: there is no column {missing[0]!r}.")
    if columns_of(frame) == names:
        return frame
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return frame.select(names)
    return nw.from_native(frame, eager_only=True).select(names).to_native()
