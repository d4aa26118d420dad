"""A hash of the exact bytes of a value, and a few rounded numbers that tell how far two values are apart."""

from __future__ import annotations

import hashlib
import json
import numbers
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

import numpy as np
from scipy import sparse

import tithe

# what a run writes but does not compute: times, bytes, paths, and sentences in plain English
PASSING = ("second", "time", "byte", "memory", "path", "file", "folder", "version", "speed", "rows_per", "_mb", "_gb")
PROSE = ("sentence", "text", "title", "note", "warning", "advice", "description", "words", "about")
CERTIFICATE = ("kind", "quantity", "value", "relative_excess", "coreset_error", "confidence", "interval", "bound")


class Digest(TypedDict):
    """``hash``: of all bytes. ``shape``: of all arrays. ``sum``: mean, root mean square and a weighted mean."""

    hash: str
    shape: str
    sum: list[float]


def digest(value: Any) -> Digest:
    """Of anything made of arrays, numbers, strings, coresets and certificates."""
    state, shapes, floats = hashlib.sha256(), [], []
    for name, leaf in leaves(value):
        state.update(f"{name}={leaf.dtype.str}{leaf.shape}".encode())
        state.update(_bytes(leaf))
        shapes.append("x".join(map(str, leaf.shape)) or "1")
        if leaf.dtype.kind in "fiub":
            floats.append(leaf.ravel().astype(np.float64))
    shape = shapes[0] if len(shapes) == 1 else f"{len(shapes)} values"
    if len(shapes) == 1 and leaf.dtype.kind == "U" and leaf.size == 1:
        shape = str(leaf)[:40]
    return {"hash": state.hexdigest()[:20], "shape": shape, "sum": _summary(floats)}


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Arrays inside a value, with their places; of classes of our own only what they show publicly."""
    if isinstance(value, tithe.Coreset):
        value = coreset_parts(value)
    elif isinstance(value, tithe.Certificate):
        value = {field: getattr(value, field) for field in CERTIFICATE}
    if sparse.issparse(value):
        value = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from leaves(value[key], f"{name}.{key}")
    elif isinstance(value, list | tuple) and not _is_array(value):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{name}[{i}]")
    elif value is None or isinstance(value, numbers.Number | str | list | tuple | np.ndarray | np.generic | bytes):
        yield name, _plain(value)
    else:
        yield name, np.array("an object")  # its class may move


def coreset_parts(coreset: tithe.Coreset) -> dict[str, Any]:
    """What a coreset is: rows, weights, ids, totals, pilot."""
    parts = {"X": coreset.X, "y": coreset.y, "sample_weight": coreset.sample_weight, "indices": coreset.indices}
    parts |= {"totals": coreset.totals, "pilot": coreset.pilot, "mean": coreset.mean, "n_seen": coreset.n_seen}
    return parts | {"weight_seen": coreset.weight_seen, "is_whole": coreset.is_whole}


def json_parts(results: Any) -> dict[str, Any]:
    """Of a JSON file: the names of its keys, and the values that every run computes again."""
    flat = dict(_flat(results, ""))
    kept = {k: v for k, v in flat.items() if not any(word in k.lower() for word in (*PASSING, *PROSE))}
    return {"keys": sorted(flat), "values": kept}


def shown(value: Any) -> Iterator[str]:
    """Lines of text, to be compared by ``diff``."""
    for name, leaf in leaves(value):
        yield f"{name or '.'} {json.dumps(leaf.tolist(), default=str)[:2000]}"


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key in value:
            yield from _flat(value[key], f"{name}.{key}")
    elif isinstance(value, list) and value and isinstance(value[0], dict | list):
        for i, inner in enumerate(value):
            yield from _flat(inner, f"{name}[{i}]")
    else:
        yield name, value


def _is_array(value: list[Any] | tuple[Any, ...]) -> bool:
    return bool(value) and all(isinstance(v, numbers.Number) and not isinstance(v, complex) for v in value)


def _plain(value: Any) -> np.ndarray:
    array = np.asarray("none" if value is None else value)
    return array.astype(str) if array.dtype.kind in "OS" else np.ascontiguousarray(array).reshape(array.shape)


def _bytes(array: np.ndarray) -> bytes:
    return "\0".join(array.ravel().tolist()).encode() if array.dtype.kind == "U" else array.tobytes()


def _summary(floats: list[np.ndarray]) -> list[float]:
    if not floats:
        return []
    x = np.concatenate(floats)
    x = x[np.isfinite(x)]
    if len(x) == 0:
        return []
    scale = float(np.max(np.abs(x))) or 1.0
    parts = (x.mean(), scale * np.sqrt(np.mean((x / scale) ** 2)), np.linspace(-1.0, 1.0, len(x)) @ x / len(x))
    return [float(f"{part:.6g}") for part in parts]
