"""What fitted kernel machines do: they score rows by their kernels with the support vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tithe.core.data import Array
from tithe.fit.collections import lazy_on_collections
from tithe.fit.tables import checked_block
from tithe.odm.solvers.kernel_functions import KernelFunction, kernel_scores


class KernelRows:
    """A learner with a kernel: rows may be sparse, or a kernel matrix that is precomputed."""

    kernel: Any

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = self.kernel != "precomputed"
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


class KernelMachine(KernelRows):
    """A mixin for machines f(x) = sum of ``dual_coef_`` times k(x_i, x) over the support vectors, + ``intercept_``."""

    degree: float
    coef0: float
    classes_: Array
    support_: Array
    support_vectors_: Any
    dual_coef_: Array
    intercept_: Array
    _gamma: float
    _centre: Array | None
    _single: bool

    @property
    def coef_(self) -> Array:
        """Weights of the columns: (1, d) for two classes, else (K, d)."""
        if self.kernel != "linear":
            raise AttributeError(f"coef_ exists only with kernel='linear', not with kernel={self.kernel!r}.")
        weights: Array = (self.support_vectors_.T @ self.dual_coef_.T).T
        return weights

    def summary(self) -> dict[str, Any]:
        """The classes, and the number of support vectors, which are training rows."""
        return {"classes": self.classes_.tolist(), "support_vectors": len(self.support_)}

    @lazy_on_collections
    def decision_function(self, X: Any) -> Array:
        """The scores f: (n,) for two classes, else (n, K)."""
        check_is_fitted(self)
        rows = checked_block(self, X, reset=False).X
        if self.kernel == "precomputed":
            scores = np.asarray(rows[:, self.support_] @ self.dual_coef_.T)
        else:
            scores = kernel_scores(self._fitted_kernel(), rows, self.support_vectors_, self.dual_coef_)
        scores = scores + self.intercept_
        return scores[:, 0] if len(self.dual_coef_) == 1 else scores

    def _fitted_kernel(self) -> KernelFunction:
        return KernelFunction(
            kernel=self.kernel,
            gamma=self._gamma,
            degree=self.degree,
            coef0=self.coef0,
            centre=self._centre,
            dtype=np.float32 if self._single else np.float64,
        )

    @lazy_on_collections
    def predict(self, X: Any) -> Array:
        """The class of each row."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: Array = self.classes_[np.minimum(codes, len(self.classes_) - 1)]  # there may be one class so far
        return labels
