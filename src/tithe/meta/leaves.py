"""New values for the leaves of boosted trees from all rows, which need not fit into memory; the splits stay."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import log_loss, mean_gamma_deviance, mean_poisson_deviance, mean_squared_error
from sklearn.pipeline import Pipeline

from tithe.core.data import Array, Block
from tithe.core.passes import DataPass
from tithe.meta.kernels import leaf_sums
from tithe.meta.other_estimators import NumberedClasses, last_step, library_of

_BYTES = 2**29  # of the leaf numbers that are held at once: more take fewer passes
_CHUNK_ROWS = 2**18
_TINY = 1e-16
KINDS = ("log_loss", "squared_error", "poisson", "gamma")  # in the order of the kernel
_LOSSES = {
    **dict.fromkeys(("binary", "multiclass", "softmax", "binary:logistic", "multi:softprob"), "log_loss"),
    **dict.fromkeys(
        ("regression", "regression_l2", "l2", "mean_squared_error", "mse", "reg:squarederror"), "squared_error"
    ),
    **dict.fromkeys(("poisson", "count:poisson"), "poisson"),
    **dict.fromkeys(("gamma", "reg:gamma"), "gamma"),
}
# parameters, with the values with which a leaf has the value -rate G / (H + lambda)
_PLAIN: dict[str, tuple[Any, ...]] = {
    "boosting_type": ("gbdt", "gbrt", "goss"),
    "booster": (None, "gbtree"),
    "class_weight": (None,),
    "is_unbalance": (False,),
    "linear_tree": (False,),
    "max_delta_step": (None, 0),
    "monotone_constraints": (None,),
    "multi_strategy": (None, "one_output_per_tree"),
    "num_parallel_tree": (None, 1),
    "path_smooth": (0,),
    "reg_sqrt": (False,),
    "scale_pos_weight": (None, 1),
}


def leaf_obstacle(estimator: Any) -> str | None:
    """Why leaves cannot get their values from all rows; None if they can."""
    _, learner = last_step(estimator)
    if library_of(learner) not in _FORESTS:
        return f"{type(learner).__name__} is none of LightGBM's and XGBoost's learners"
    options = learner.get_params()
    for name, plain in _PLAIN.items():
        if name in options and options[name] not in plain:
            return f"{name}={options[name]!r} changes how leaves get their values"
    objective = options.get("objective")
    if objective is not None and objective not in _LOSSES:
        return f"leaves of the objective {objective!r} are no ratio of sums"
    return None


def refitted_leaves(
    estimator: Any, data: DataPass, rows_of: Callable[[Block], Any], labels: Array | None, *, copy: bool = True
) -> Any:
    """A fitted estimator whose leaves have the values that its library would give them on all rows.

    Tree by tree, a leaf gets -rate G / (H + lambda), G and H the sums of first and second derivatives of the loss over
    its rows at the trees before. A pass over the rows takes the leaves of as many trees as memory for 0.5 GB of leaf
    numbers allows; the margins, targets and weights of all rows are held.

    Parameters
    ----------
    estimator : LightGBM's or XGBoost's, or a pipeline that ends with one
    data : DataPass
        y holds class numbers for classifiers, whose ``labels`` these are.
    rows_of : callable
        The rows of a block as the estimator takes them.
    copy : bool
        Whether the estimator itself is left as it is.
    """
    fitted = deepcopy(estimator) if copy else estimator
    learner = fitted.estimator_ if isinstance(fitted, NumberedClasses) else fitted
    steps: list[Any] = []
    while isinstance(learner, Pipeline):
        steps.append(learner[:-1])
        learner = learner[-1]
    forest = _FORESTS[library_of(learner)](learner)
    numbers = None if labels is None else _numbers_of(labels, fitted.classes_)

    def inputs(block: Block) -> Any:
        X = rows_of(block)
        for step in steps:
            X = step.transform(X)
        return X

    y, weight = _targets(data, numbers)
    margins = np.tile(forest.start(y, None if _is_one(weight) else weight), (len(y), 1))
    n_together = max(1, _BYTES // (forest.number_type.itemsize * forest.n_outputs * max(1, len(y))))
    values = []
    for first in range(0, forest.n_rounds, n_together):
        last = min(forest.n_rounds, first + n_together)
        leaves, at = np.empty(((last - first) * forest.n_outputs, len(y)), forest.number_type), 0
        for part in data.each(partial(_leaves_of, forest, inputs, first, last)):
            leaves[:, at : at + part.shape[1]] = part
            at += part.shape[1]
        for number in range(last - first):
            trees = leaves[number * forest.n_outputs : (number + 1) * forest.n_outputs]
            values.append(_round(forest, first + number, trees, margins, y, weight))
    forest.set_values([value for of_round in values for value in of_round])
    return fitted


def _numbers_of(labels: Array, known: Array) -> Array:
    """The number of each label among those that the estimator knows; -1 for others."""
    numbers = np.minimum(np.searchsorted(known, labels), len(known) - 1)
    return np.where(known[numbers] == labels, numbers, -1)


def _leaves_of(forest: _Forest, inputs: Callable[[Block], Any], first: int, last: int, block: Block) -> Array:
    leaves = forest.leaves(inputs(block), first, last)
    return np.ascontiguousarray(leaves.reshape(len(block), -1).T.astype(forest.number_type))


def _targets(data: DataPass, numbers: Array | None) -> tuple[Array, Array | None]:
    """Targets and weights of all rows, in few bytes; a row of a class that the estimator does not know has no weight.

    Weights that are all the same are one number that is read for each row.
    """

    def of(block: Block) -> tuple[Array, Array | None]:
        assert block.y is not None
        weight = block.sample_weight
        if numbers is None:
            return block.y.astype(np.float64, copy=False), _as_one(weight)
        y = numbers[block.y]
        if (y < 0).any():
            weight = block.weights() * (y >= 0)
        return np.maximum(y, 0).astype(np.min_scalar_type(len(numbers))), _as_one(weight)

    parts = list(data.each(of))
    weights = [weight for _, weight in parts]
    y = np.concatenate([y for y, _ in parts])
    if all(weight is None for weight in weights):
        return y, None
    held = [np.broadcast_to(1.0, len(part)) if weight is None else weight for part, weight in parts if len(part)]
    if all(_is_one(weight) and weight[0] == held[0][0] for weight in held):
        return y, np.broadcast_to(held[0][:1], len(y))
    return y, np.concatenate(held)


def _as_one(weight: Array | None) -> Array | None:
    """Weights; if they are all the same, one number that is read for each row."""
    same = weight is not None and len(weight) > 0 and bool((weight == weight[0]).all())
    return np.broadcast_to(weight[:1].copy(), len(weight)) if weight is not None and same else weight


def _is_one(weight: Array | None) -> bool:
    return weight is not None and weight.strides == (0,)


def _round(forest: _Forest, number: int, leaves: Array, margins: Array, y: Array, weight: Array | None) -> list[Array]:
    """The values of the leaves of the trees of one round, which are added to the margins."""
    sizes = forest.sizes[number * forest.n_outputs : (number + 1) * forest.n_outputs]
    sums, kind = np.zeros((forest.n_outputs, 3, max(sizes))), KINDS.index(forest.loss)
    chunks = [slice(at, min(len(y), at + _CHUNK_ROWS)) for at in range(0, len(y), _CHUNK_ROWS)]
    for at in chunks:
        u = np.ones(at.stop - at.start) if weight is None else np.ascontiguousarray(weight[at])
        target = y[at].astype(np.float64, copy=False)
        leaf_sums(kind, forest.multiclass_scale, margins[at], target, u, leaves, at.start, sums)
    values = []
    for k, size in enumerate(sizes):
        G, H, mass = sums[k, :, :size]
        G = np.sign(G) * np.maximum(np.abs(G) - forest.alpha, 0.0)
        value = forest.rate * np.clip(-G / np.maximum(H + forest.lam, _TINY), -forest.most, forest.most)
        value[forest.least > H] = 0.0
        old = forest.old_values(number * forest.n_outputs + k)
        values.append(np.where(mass > 0.0, value, old if number else old - forest.baked[k]))
        for at in chunks:
            margins[at, k] += values[-1][leaves[k, at]]
    return values


def mean_loss(estimator: Any, X: Any, y: Array, weight: Array | None) -> float:
    """The loss that the trees of a fitted estimator lower, on rows with labels."""
    if is_classifier(estimator):
        known = np.isin(y, estimator.classes_)
        chance = np.clip(estimator.predict_proba(X)[known], np.finfo(np.float64).eps, 1.0)
        chance /= chance.sum(axis=1, keepdims=True)
        some = None if weight is None else weight[known]
        return float(log_loss(y[known], chance, sample_weight=some, labels=estimator.classes_))
    metrics = {"poisson": mean_poisson_deviance, "gamma": mean_gamma_deviance}
    _, learner = last_step(estimator)
    metric = metrics.get(_FORESTS[library_of(learner)].loss_of(learner), mean_squared_error)
    return float(metric(y, estimator.predict(X), sample_weight=weight))


# -- the trees of the libraries ----------------------------------------------------------------


class _Forest(ABC):
    """Trees whose leaves can be found and set. ``n_outputs`` trees make a round; ``sizes`` are numbers of leaves.

    ``baked`` is what the leaves of the first round hold besides their own values.
    """

    n_rounds: int
    n_outputs: int
    sizes: list[int]
    alpha: float
    lam: float
    rate: float
    baked: Array
    least: float  # second derivatives of a leaf with a value
    most: float = np.inf  # value of a leaf, before the learning rate
    multiclass_scale: float = 2.0

    def __init__(self, learner: Any) -> None:
        self.learner, self.loss = learner, self.loss_of(learner)

    @property
    def number_type(self) -> np.dtype[Any]:
        return np.min_scalar_type(max(self.sizes))

    @staticmethod
    @abstractmethod
    def loss_of(learner: Any) -> str: ...

    @abstractmethod
    def start(self, y: Array, weight: Array | None) -> Array:
        """Margins before the first tree: (K,)."""

    @abstractmethod
    def leaves(self, X: Any, first: int, last: int) -> Array:
        """The leaf of each row in the trees of some rounds: (n, trees)."""

    @abstractmethod
    def old_values(self, tree: int) -> Array: ...

    @abstractmethod
    def set_values(self, values: list[Array]) -> None: ...


class _LightGBM(_Forest):
    def __init__(self, learner: Any) -> None:
        super().__init__(learner)
        self.booster, options = learner.booster_, learner.get_params()
        self.n_rounds, self.n_outputs = self.booster.current_iteration(), self.booster.num_model_per_iteration()
        texts = re.findall(r"^leaf_value=(.+)$", self.booster.model_to_string(), re.MULTILINE)
        self.old = [np.array(text.split(), np.float64) for text in texts]
        self.sizes = [len(values) for values in self.old]
        self.alpha, self.lam = float(options["reg_alpha"]), float(options["reg_lambda"])
        self.rate, self.least = float(options["learning_rate"]), float(options["min_child_weight"])
        self.multiclass_scale = self.n_outputs / max(1, self.n_outputs - 1)
        self.averages = bool(options.get("boost_from_average", True))

    @staticmethod
    def loss_of(learner: Any) -> str:
        return _LOSSES[learner.objective_]

    def start(self, y: Array, weight: Array | None) -> Array:
        """The best constant, which LightGBM adds to the leaves of the first round."""
        self.baked = np.zeros(self.n_outputs)
        if self.averages and self.loss != "log_loss":
            mean = float(np.average(y, weights=weight))
            self.baked[0] = mean if self.loss == "squared_error" else np.log(mean)
        elif self.averages:
            share = np.bincount(y, weight, max(2, self.n_outputs)) / (len(y) if weight is None else weight.sum())
            share = np.maximum(share, 1e-15)
            self.baked[:] = np.log(share) if self.n_outputs > 1 else np.log(share[1] / share[0])
        return self.baked

    def leaves(self, X: Any, first: int, last: int) -> Array:
        leaves: Array = self.learner.predict(X, pred_leaf=True, start_iteration=first, num_iteration=last - first)
        return leaves

    def old_values(self, tree: int) -> Array:
        return self.old[tree]

    def set_values(self, values: list[Array]) -> None:
        for tree, value in enumerate(values):
            baked = self.baked[tree] if tree < self.n_outputs else 0.0
            for leaf, one in enumerate(value + baked):
                self.booster.set_leaf_output(tree, leaf, float(one))


class _XGBoost(_Forest):
    def __init__(self, learner: Any) -> None:
        super().__init__(learner)
        self.booster = learner.get_booster()
        self.model = json.loads(bytes(self.booster.save_raw("json")))
        self.trees = self.model["learner"]["gradient_booster"]["model"]["trees"]
        self.n_rounds = self.booster.num_boosted_rounds()
        self.n_outputs = len(self.trees) // self.n_rounds
        self.baked = np.zeros(self.n_outputs)
        self.sizes = [int(tree["tree_param"]["num_nodes"]) for tree in self.trees]
        options = json.loads(self.booster.save_config())["learner"]["gradient_booster"]["tree_train_param"]
        self.alpha, self.lam = float(options["reg_alpha"]), float(options["reg_lambda"])
        self.rate, self.least = float(options["learning_rate"]), float(options["min_child_weight"])
        self.most = float(options["max_delta_step"]) or np.inf

    @staticmethod
    def loss_of(learner: Any) -> str:
        return _LOSSES[learner.objective]

    def start(self, y: Array, weight: Array | None) -> Array:
        base = json.loads(self.model["learner"]["learner_model_param"]["base_score"])
        score = np.broadcast_to(np.asarray(base, np.float64), (self.n_outputs,))
        if self.loss == "log_loss":
            return np.log(score / (1.0 - score)) if self.n_outputs == 1 else score
        return score if self.loss == "squared_error" else np.log(score)

    def leaves(self, X: Any, first: int, last: int) -> Array:
        from xgboost import DMatrix

        rows = DMatrix(X, missing=self.learner.missing, enable_categorical=True)  # XGBoost 3.0 does not pass that on
        leaves: Array = self.booster[first:last].predict(rows, pred_leaf=True)
        return leaves.reshape(rows.num_row(), -1)

    def old_values(self, tree: int) -> Array:
        return np.array(self.trees[tree]["split_conditions"], np.float64)

    def set_values(self, values: list[Array]) -> None:
        for tree, value in zip(self.trees, values, strict=True):
            leaf = np.array(tree["left_children"]) < 0
            tree["split_conditions"] = np.where(leaf, value, tree["split_conditions"]).tolist()
            tree["base_weights"] = np.where(leaf, value / self.rate, tree["base_weights"]).tolist()
        self.booster.load_model(bytearray(json.dumps(self.model).encode()))


_FORESTS: dict[str, type[_Forest]] = {"lightgbm": _LightGBM, "xgboost": _XGBoost}
