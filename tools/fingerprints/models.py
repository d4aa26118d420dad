"""What a fitted model is: its public attributes, and what its methods say about rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tithe

METHODS = ("predict", "decision_function", "predict_proba", "transform", "score_samples")
PASSING = ("time", "seconds")  # attributes that measure the run, not the solution


def fitted(model: Any, rows: Any = None, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Predictions for some rows, and attributes that end with an underscore (or only those in ``names``)."""
    parts: dict[str, Any] = {}
    for method in METHODS if rows is not None else ():
        answer = attempt(model, method, rows)
        if answer is not None:
            parts[method] = answer
    small: dict[str, Any] = {}
    for name in names or public_attributes(model):
        try:
            value = getattr(model, name)
        except AttributeError:
            continue
        if isinstance(value, dict):
            value = {k: v for k, v in value.items() if not any(word in str(k) for word in PASSING)}
        is_part = name.startswith(("coef", "intercept", "cluster_centers", "coreset_", "certificate", "components"))
        (parts if is_part and value is not None else small)[name] = value
    return parts | {"others": small}


def public_attributes(model: Any) -> list[str]:
    names = (n for n in dir(model) if n.endswith("_") and not n.startswith("_"))
    return sorted(n for n in names if not any(word in n for word in PASSING))


def attempt(model: Any, method: str, rows: Any) -> Any:
    """The answer of a method; nothing if the model has no such method."""
    try:
        return getattr(model, method)(rows)
    except AttributeError:
        return None


def saved(model: Any, rows: Any, folder: Path) -> dict[str, Any]:
    """What a model predicts once it was written and read again."""
    tithe.save_model(model, folder / "model.tithe")
    again = tithe.load_model(folder / "model.tithe")
    return {"loaded": {m: attempt(again, m, rows) for m in METHODS[:4]}}


def in_batches(model: Any, X: Any, y: Any = None, step: int = 700, **first: Any) -> Any:
    """A model that was given its rows by `partial_fit`."""
    for i in range(0, X.shape[0], step):
        batch = () if y is None else (np.asarray(y)[i : i + step],)
        model.partial_fit(X[i : i + step], *batch, **(first if i == 0 else {}))
    return model
