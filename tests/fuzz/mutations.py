"""Well-formed files that lie: arrays of other shapes, types or values, and JSON with fields removed or retyped."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Rng = np.random.Generator
Files = dict[str, bytes]

_TEXTS = (
    "x",
    "",
    "auto",
    "-1",
    "null",
    "[]",
    "{}",
    "NaN",
    "Infinity",
    "1e999",
    '"x"',
    "true",
    "2.5",
    "7",
    "4611686018427387904",
)
_VALUES = (
    None,
    True,
    -1,
    0,
    1,
    2,
    7,
    2**31,
    2**62,
    2**64,
    10**30,
    -(2**63),
    0.5,
    -1.0,
    1e308,
    [],
    {},
    [1, 2],
    {"a": 1},
)
_NUMBERS = (-1, -2, 0, 1, 3, 2**15, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63))
_FLOATS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e-320, 1e300, -1e300, 1e19)
_DTYPES = (
    "float64",
    "float32",
    "float16",
    ">f8",
    "int64",
    "int32",
    "int8",
    "uint8",
    "uint64",
    "bool",
    "complex128",
    "U3",
)


def zipped(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def unzipped(data: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


# -- arrays ----------------------------------------------------------------------------------------


def changed_array(array: np.ndarray, rng: Rng) -> np.ndarray:
    """Another shape, type or order, or other values here and there."""
    way = int(rng.integers(8))
    if way == 0:
        if array.dtype.kind == "V":
            return np.frombuffer(array.tobytes(), np.uint8)
        return array.astype(pick(rng, _DTYPES)) if array.dtype.kind in "biuf" else array.astype("U")
    if way == 1:
        return _reshaped(array, rng)
    if way == 2 and array.ndim:
        return np.delete(array, int(rng.integers(max(1, array.shape[0]))) if len(array) else [], axis=0)
    if way == 3 and array.ndim:
        return np.concatenate([array, array[-1:]])
    if way == 4 and array.ndim == 2:
        return np.asfortranarray(array) if rng.random() < 0.5 else array[:, :-1]
    return _revalued(array, rng)


def _reshaped(array: np.ndarray, rng: Rng) -> np.ndarray:
    shapes = [(-1,), (1, -1), (-1, 1), (*array.shape, 1), array.shape[::-1]]
    if array.size == 0:
        return np.zeros(pick(rng, [(), (0,), (0, 0), (2, 3)]), array.dtype)
    return pick(rng, [array.reshape(pick(rng, shapes)), array.ravel()[:0], np.asarray(array.ravel()[0])])


def _revalued(array: np.ndarray, rng: Rng) -> np.ndarray:
    changed = array.copy()
    if not changed.size:
        return changed
    places = rng.integers(changed.size, size=1 + int(rng.integers(3)))
    if rng.random() < 0.2:
        places = np.arange(changed.size)
    with np.errstate(all="ignore"):
        if changed.dtype.kind == "f":
            changed.flat[places] = pick(rng, _FLOATS)
        elif changed.dtype.kind in "iu":
            limits = np.iinfo(changed.dtype)
            changed.flat[places] = min(max(pick(rng, _NUMBERS), limits.min), limits.max)
        elif changed.dtype.kind in "US":
            changed.flat[places] = "?"
    return changed


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def changed_npy(data: bytes, rng: Rng) -> bytes:
    return npy(changed_array(np.load(io.BytesIO(data), allow_pickle=False), rng))


# -- JSON ------------------------------------------------------------------------------------------


def _places(thing: Any) -> list[tuple[Any, Any]]:
    """Every item of every dict and list, as the container and its key."""
    found: list[tuple[Any, Any]] = []
    keys = thing.keys() if isinstance(thing, dict) else range(len(thing)) if isinstance(thing, list) else ()
    for key in list(keys):
        found.append((thing, key))
        found.extend(_places(thing[key]))
    return found


def changed_json(thing: Any, rng: Rng, *, may: Callable[[Any, Any], bool] = lambda holder, key: True) -> Any:
    """A field removed, retyped, huge or negative, or one that stands in the place of another."""
    thing = json.loads(json.dumps(thing))
    places = [(holder, key) for holder, key in _places(thing) if may(holder, key)]
    for _ in range(1 + int(rng.integers(2))):
        holder, key = pick(rng, places)
        way = rng.random()
        try:
            if way < 0.15:
                del holder[key]
            elif way < 0.3:
                other, place = pick(rng, places)
                holder[key] = json.loads(json.dumps(other[place]))
            else:
                holder[key] = pick(rng, _TEXTS if isinstance(holder[key], str) and rng.random() < 0.8 else _VALUES)
        except LookupError:  # removed before
            continue
    return thing


# -- files -----------------------------------------------------------------------------------------


def _is_content(holder: Any, key: Any) -> bool:
    """What a file says, not how it is read: ids and names of classes are for the byte mutations."""
    return key not in ("__id__", "__module__", "__class__", "__loader__", "is_json", "protocol", "_skops_version")


def _is_value(holder: Any, key: Any) -> bool:
    """What a file says, not the kind of a value or the name of a class, which stands first in a list."""
    return not (isinstance(holder, dict) and len(holder) == 1) and not str(holder[key]).startswith("tithe.")


def changed_skops(data: bytes, rng: Rng) -> bytes:
    """A model of another library with one array or one field of its schema changed."""
    files = unzipped(data)
    arrays = [name for name in files if name.endswith(".npy")]
    if arrays and rng.random() < 0.5:
        name = pick(rng, arrays)
        files[name] = changed_npy(files[name], rng)
    else:
        may = _is_content if rng.random() < 0.9 else lambda holder, key: True
        files["schema.json"] = json.dumps(changed_json(json.loads(files["schema.json"]), rng, may=may)).encode()
    return zipped(files)


def changed_file(data: bytes, rng: Rng) -> bytes:
    """A file of ours with an array, a value or a model of another library changed, or one of its members removed."""
    files = unzipped(data)
    name = "values.json" if rng.random() < 0.5 else pick(rng, list(files))
    if name == "values.json":
        may = _is_value if rng.random() < 0.9 else lambda holder, key: True
        files[name] = json.dumps(changed_json(json.loads(files[name]), rng, may=may)).encode()
    elif rng.random() < 0.1:
        del files[name]
    else:
        files[name] = (changed_npy if name.endswith(".npy") else changed_skops)(files[name], rng)
    return zipped(files)


def changed_state(data: bytes, rng: Rng) -> bytes:
    """A checkpoint, as a zip of its folder, with one file changed."""
    files = unzipped(data)
    name = pick(rng, [n for n in files if n.endswith((".tithe", ".json"))])
    if name.endswith(".json"):
        files[name] = json.dumps(changed_json(json.loads(files[name]), rng)).encode()
    else:
        files[name] = changed_file(files[name], rng)
    return zipped(files)


def changed_coreset(data: bytes, rng: Rng) -> bytes:
    """A Parquet file with a column or the metadata changed."""
    table = pq.read_table(io.BytesIO(data))
    about = json.loads(table.schema.metadata[b"tithe"])
    if rng.random() < 0.6:
        about = changed_json(about, rng)
    else:
        at = int(rng.integers(table.num_columns))
        name, column = table.column_names[at], table.column(at)
        if rng.random() < 0.2:
            table = table.remove_column(at)
        elif rng.random() < 0.2:
            table = table.rename_columns(
                [*table.column_names[:at], pick(rng, table.column_names), *table.column_names[at + 1 :]]
            )
        elif not pa.types.is_list(column.type):
            values = changed_array(column.to_numpy(), rng).ravel()
            values = np.resize(values, table.num_rows) if values.size else np.zeros(table.num_rows)
            if values.dtype.kind not in "c" and values.dtype.isnative and values.dtype != np.float16:
                table = table.set_column(at, name, pa.array(values))
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({b"tithe": json.dumps(about).encode()}), out, compression="zstd")
    return out.getvalue()
