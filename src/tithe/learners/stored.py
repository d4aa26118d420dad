"""What must hold of learners that were read from a file, before they predict or go on learning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse

from tithe.certify import Certificate
from tithe.core.data import Coreset
from tithe.core.state_checks import (
    Anything,
    Check,
    Each,
    Flag,
    Floats,
    Instance,
    Integer,
    Integers,
    Labels,
    Number,
    Optional,
    Parts,
    Sizes,
    check_fields,
    expect,
)
from tithe.reduce.stream import CoresetStream

_FLOATS = ("float64", "float32")
_COLUMNS: dict[str, Check] = {"n_features_in_": Integer(least=1, size="d"), "feature_names_in_": Labels("d")}
_ALL: dict[str, Check] = {
    "coreset_": Optional(Instance(Coreset)),
    "certificate_": Optional(Instance(Certificate)),
    "labels_": Integers("rows", dtypes=("int32", "int64"), least=0),
    "n_iter_": Integer(),
    "n_passes_": Integer(),
    "_seed": Integer(most=2**64),
}
_METHODS = ("predict", "predict_proba", "decision_function", "transform")


def check_learner(learner: Any, table: dict[str, Check], *, optional: Iterable[str] = (), stream: Any = None) -> Sizes:
    """Columns, coreset and stream of a learner, and the attributes of its solution, which ``table`` names.

    Where there is a solution all of them must be there but those that are ``optional``. There may be none before a
    fit, and where rows were pushed that it does not know yet.
    """
    values = attributes_of(learner)
    if "n_features_in_" not in values:
        expect(not any(name in values for name in table), "a solution has no columns")
        return {}
    sizes = check_fields(values, _COLUMNS, optional=("feature_names_in_",))
    check_fields(values, _ALL, optional=_ALL, sizes=sizes)
    coreset = values.get("coreset_")
    expect(coreset is None or coreset.n_features == sizes["d"], "a coreset is of other columns")
    if "stream_" in values:
        check_fields(values, {"stream_": Instance(stream or CoresetStream), "_seed": Integer(most=2**64)})
        if stream is None:
            _check_stream_of(learner, sizes["d"])
    is_behind = "stream_" in values and learner._fitted_values is None
    check_fields(values, table, optional=table if is_behind else optional, sizes=sizes)
    return sizes


def attributes_of(learner: Any) -> dict[str, Any]:
    """All attributes that are stored with a learner, fitted ones included; none of them is computed."""
    values = learner.__dict__.get("_fitted_values")
    expect(values is None or isinstance(values, dict), "fitted attributes are no attributes")
    return {**learner.__dict__, **(values or {})}


def _check_stream_of(learner: Any, d: int) -> None:
    """Whether a learner's stream is one of its columns, and of what it learns."""
    like = learner.stream_.state.rows.like
    expect(like is not None and like.n_features == d, "a stream is of other columns")
    wanted, held = learner._objective(), learner.stream_.plan.objective
    same = type(wanted) is type(held) and wanted.classes == held.classes
    expect(same, "a stream is for another learner")
    n_classes = wanted.n_classes
    for block in [*learner.stream_.state.rows.parts, *learner.stream_.state.tree.slots] if n_classes else []:
        numbers = block.y is not None and block.y.dtype.kind in "iu"
        expect(numbers and block.y.min() >= 0 and block.y.max() < n_classes, "rows have no number of a class")


def probe(estimator: Any, d: int) -> None:
    """Ask an estimator of another package about one row: whatever is wrong with it comes to light here."""
    row = np.zeros((1, d))
    for method in _METHODS:
        if hasattr(estimator, method):
            answer = getattr(estimator, method)(row)
            expect(len(answer) == 1 if isinstance(answer, np.ndarray) else sparse.issparse(answer), f"{method} fails")


def check_clusterer(learner: Any) -> None:
    """Centres, and what they cost."""
    table: dict[str, Check] = {
        "cluster_centers_": Floats("k", "d", dtypes=_FLOATS),
        "coreset_": Instance(Coreset),
        "certificate_": Anything(),
        "inertia_": Number(),
        "cost_curve_": Each(Number()),
        "n_iter_": Integer(),
    }
    sizes = check_learner(learner, table)
    expect(sizes.get("k", 1) > 0, "there are no centres")


def check_linear_classifier(
    learner: Any, more: dict[str, Check] | None = None, *, optional: Iterable[str] = ()
) -> None:
    """Classes, coefficients and intercepts: one row for two classes, else one a class."""
    if "n_features_in_" not in learner.__dict__:
        check_learner(learner, {"coef_": Anything()})
        return
    sizes = check_fields(learner, {"classes_": Labels("classes", distinct=True)})
    expect(sizes["classes"] >= 2, "there are fewer than two classes")
    rows = 1 if sizes["classes"] == 2 else sizes["classes"]
    table: dict[str, Check] = {
        "coef_": Floats(rows, "d", dtypes=_FLOATS),
        "intercept_": Floats(rows, dtypes=_FLOATS),
        "certificate_": Anything(),
        "loss_curve_": Each(Number()),
        "n_iter_": Integer(),
        "coreset_": Optional(Instance(Coreset)),
        **(more or {}),
    }
    check_learner(learner, table, optional=("coreset_", *optional))


def check_linear_regressor(learner: Any, more: dict[str, Check] | None = None) -> None:
    """Coefficients and an intercept."""
    table: dict[str, Check] = {
        "coef_": Floats("d", dtypes=_FLOATS),
        "intercept_": Number(),
        "certificate_": Anything(),
        "loss_curve_": Each(Number()),
        "n_iter_": Integer(),
        "coreset_": Instance(Coreset),
        **(more or {}),
    }
    check_learner(learner, table)


def check_margins(learner: Any) -> None:
    """What machines have besides: the distribution of margins, and probabilities that were calibrated."""
    from tithe.learners.odm.base import MarginDistribution

    table: dict[str, Check] = {
        "margin_distribution_": Instance(MarginDistribution),
        "norm_": Number(least=0.0),
        "gap_": Number(least=0.0, finite=False),
        "support_": Integers("support", least=0),
        "dual_coef_": Floats("machines", "support", dtypes=_FLOATS, contiguous=False),
    }
    values = attributes_of(learner)
    check_fields(values, table, optional=table)
    calibrated = values.get("calibrated_")
    if calibrated is not None:
        expect(callable(getattr(calibrated, "predict_proba", None)), "probabilities cannot be asked for")
        probe(calibrated, int(learner.n_features_in_))


def check_kernel_machine(learner: Any) -> None:
    """Support vectors, the coefficients of each, and the kernel that they are compared by."""
    own = learner.__dict__
    if "n_features_in_" not in own:
        expect("support_" not in own, "a solution has no columns")
        return
    sizes = check_fields(learner, _COLUMNS, optional=("feature_names_in_",))
    check_fields(learner, {"classes_": Labels("classes", distinct=True)}, sizes=sizes)
    expect(sizes["classes"] >= 2, "there are fewer than two classes")
    machines = 1 if sizes["classes"] == 2 else sizes["classes"]
    table: dict[str, Check] = {
        "support_": Integers("support", least=0),
        "dual_coef_": Floats(machines, "support"),
        "intercept_": Floats(machines),
        "_gamma": Number(least=0.0),
        "_centre": Optional(Floats("d")),
        "_single": Flag(),
        "n_iter_": Integer(),
        "objective_curve_": Each(Number()),
        "support_vectors_": Anything(),
        "_weighted": Integers("kept", least=0),
    }
    check_fields(learner, table, optional=("_weighted",), sizes=sizes)
    vectors = learner.support_vectors_
    from tithe.solvers.odm.kernel_functions import KERNELS

    expect(callable(learner.kernel) or learner.kernel in KERNELS, "there is no such kernel")
    if learner.kernel == "precomputed":
        expect(learner.support_.max(initial=0) < sizes["d"], "support vectors are out of range")
    elif sparse.issparse(vectors):
        expect(vectors.shape == (sizes["support"], sizes["d"]), "support vectors are of other columns")
    else:
        expect(learner._centre is not None, "a mean is missing")
        check_fields(learner, {"support_vectors_": Floats("support", "d", dtypes=_FLOATS)}, sizes=sizes)
    check_margins(learner)


def check_dictionary(learner: Any) -> None:
    """Atoms, and what was taken off the rows before they were learned."""
    table: dict[str, Check] = {
        "components_": Floats("k", "d", dtypes=_FLOATS),
        "error_": Floats("rounds", least=0.0),
        "best_iter_": Integer(),
        "n_iter_": Integer(),
        "coreset_": Anything(),
        "mean_": Optional(Floats("d")),
    }
    sizes = check_learner(learner, table)
    if "components_" in attributes_of(learner):
        expect(sizes["k"] == learner._n_atoms(), "there are more or fewer atoms than the parameters say")
        expect(learner.best_iter_ < sizes["rounds"], "the best round is not there")
        expect(learner.mean != "global" or learner.mean_ is not None, "the mean of all rows is missing")


def check_denoiser(learner: Any) -> None:
    """Atoms of patches, and the noise they were learned from."""
    from tithe.learners.dictionary.ksvd import KSVD

    if not any(name in learner.__dict__ for name in ("components_", "learner_", "sigma_", "clipped_", "coreset_")):
        return
    learner._check()
    table: dict[str, Check] = {
        "components_": Floats(int(learner.n_components), int(learner.patch_size) ** 2, dtypes=_FLOATS),
        "learner_": Instance(KSVD),
        "sigma_": Number(least=0.0),
        "clipped_": Parts(Flag(), Flag()),
        "coreset_": Instance(Coreset),
        "seconds_": Instance(dict),
    }
    check_fields(learner, table)
    expect(learner.learner_.__dict__.get("n_features_in_") == learner.patch_size**2, "atoms are of other patches")


def check_coreset_estimator(learner: Any) -> None:
    """The estimator inside is of any package: it is asked about one row."""
    table: dict[str, Check] = {
        "estimator_": Anything(),
        "coreset_": Instance(Coreset),
        "validation_indices_": Optional(Integers("aside", least=0)),
        "_aside": Optional(Parts(Integer(most=2**64), Number(least=0.0, most=1.0))),
    }
    check_fields(learner, {"_labels": Optional(Labels("classes", distinct=True))}, optional=("_labels",))
    sizes = check_learner(learner, table)
    if "estimator_" in attributes_of(learner):
        probe(learner.estimator_, sizes["d"])


def check_search(learner: Any) -> None:
    """What a search found, and streams of its folds."""
    from tithe.learners.search.folds import FoldStreams

    values = attributes_of(learner)
    check_fields(learner, {"_labels": Optional(Labels("classes", distinct=True))}, optional=("_labels",))
    table: dict[str, Check] = {"cv_results_": Instance(dict), "coresets_": Each(Instance(Coreset))}
    sizes = check_learner(learner, table, stream=FoldStreams)
    if "best_estimator_" in values:
        probe(values["best_estimator_"], sizes["d"])
    else:
        expect("cv_results_" not in values or not learner.refit, "the best estimator is missing")
    if "stream_" in values:
        like = learner.stream_.streams[-1].state.rows.like
        expect(like is not None and like.n_features == sizes["d"], "a stream is of other columns")
