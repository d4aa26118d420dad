"""NumPy's own files: ``.npy`` is memory-mapped, ``.npz`` is read at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.core.parallel import column_sums
from tithe.rows.blocks import good_rows, row_of
from tithe.rows.columns import ColumnSelection, Numbered
from tithe.rows.leaves import SAMPLE_ROWS, check_any_row_good, nonempty_sample, usual_leaf_rows
from tithe.rows.paths import DataFile, identity_of, no_rows
from tithe.rows.stores import ACCESS_ERRORS, Limits

_RUN = 8  # neighbouring rows that a sample takes together from data that may not be in memory
_RUN_BYTES = 2**28  # of all data, from which on it does


class _Arrays:
    """The arrays of one file: X, and target and weights if there are any."""

    def __init__(self, file: DataFile, choice: ColumnSelection, limits: Limits) -> None:
        self.file = file
        self._choice = choice
        is_npy = file.plain_path.lower().endswith(".npy")
        if is_npy and not file.is_local:
            raise ValueError(
                f"{file.plain_path!r}: .npy files are mapped into memory, and must be files of this machine. Copy it "
                "here first, or save the rows as Parquet."
            )
        self._held = None if is_npy else _read_npz(file, choice, limits)
        X, y, weight = self.get()
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise ValueError(f"{file.path!r} holds {X.dtype} of shape {X.shape}; rows of numbers are wanted.")
        for name, values in ((choice.target, y), (choice.weight, weight)):
            if values is not None and values.shape != (len(X),):
                raise ValueError(f"{file.path!r}: {name!r} has shape {values.shape}, X has {len(X)} rows.")
        if weight is not None and weight.dtype.kind not in "fiub":
            raise ValueError(f"{file.path!r}: the weights {choice.weight!r} are not numeric.")
        self.shape, self.dtype = X.shape, X.dtype

    def get(self) -> tuple[Array, Array | None, Array | None]:
        if self._held is not None:
            return self._held
        self.file.check()
        try:
            return np.load(self.file.path, mmap_mode="r", allow_pickle=False), None, None
        except Exception as error:  # NumPy has Python's own parser read the header, which fails in many ways
            raise FileFormatError(f"{self.file.path!r} is not a whole .npy file: {error}") from error


def _read_npz(file: DataFile, choice: ColumnSelection, limits: Limits) -> tuple[Any, Any, Any]:
    wanted = ["X", *(n for n in (choice.target, choice.weight) if n)]
    try:
        with file.open() as stream, np.load(stream, allow_pickle=False) as archive:
            missing = [n for n in wanted if n not in archive.files]
            names = ", ".join(archive.files)
            if not missing:
                for member in archive.zip.infolist():
                    if member.filename.removesuffix(".npy") in wanted:
                        member_name = f"{file.path!r}: {member.filename!r}"
                        limits.check_unpacked(member_name, member.file_size, min(member.compress_size, file.size))
            arrays = {} if missing else {name: archive[name] for name in wanted}
            strange = [name for name, values in arrays.items() if not isinstance(values, np.ndarray)]
            if strange:  # NumPy gives the bytes of what is no array
                raise FileFormatError(f"{file.path!r}: {strange[0]!r} is no array.")
    except (FileFormatError, *ACCESS_ERRORS):
        raise
    except Exception as error:  # zipfile raises its own kinds for damaged archives
        raise FileFormatError(f"{file.path!r} is not a whole .npz file: {error}") from error
    if missing:
        raise ValueError(f"{file.path!r} has no array {missing[0]!r}; it has {names}.")
    return arrays["X"], arrays.get(str(choice.target)), arrays.get(str(choice.weight))


class NumpySource(Source):
    """Rows of ``.npy`` or ``.npz`` files under one another.

    X is float32 where that holds every value exactly, else float64; a leaf that needs no
    conversion and lies within one file is a view of it.
    """

    def __init__(self, files: Sequence[DataFile], choice: ColumnSelection, format: str, limits: Limits) -> None:
        if format == "npy" and (choice.target is not None or choice.weight is not None):
            raise ValueError("A .npy file holds rows alone: use .npz, .csv or .parquet for a target or weights.")
        if choice.columns is not None:
            raise ValueError(f"columns cannot be chosen: the columns of a .{format} file have no names.")
        self._choice, self._files = choice, list(files)
        self._arrays = [_Arrays(file, choice, limits) for file in files]
        first = self._arrays[0]
        for arrays in self._arrays:
            if arrays.shape[1] != first.shape[1]:
                raise ValueError(
                    f"{first.file.path!r} has {first.shape[1]} columns and {arrays.file.path!r} has {arrays.shape[1]}."
                )
        self._starts = np.cumsum([0, *(arrays.shape[0] for arrays in self._arrays)])
        self.n_rows = int(self._starts[-1])
        self.n_features = int(first.shape[1])
        if not self.n_rows or not self.n_features:
            raise no_rows(files)
        exact = all(np.can_cast(arrays.dtype, np.float32, casting="safe") for arrays in self._arrays)
        self._dtype = np.dtype(np.float32 if exact else np.float64)
        self.feature_names = Numbered(self.n_features)
        self.row_bytes = self.n_features * self._dtype.itemsize
        self.n_bytes = sum(file.size for file in files)
        self.identity = identity_of(format, files, asdict(choice), self.n_rows)
        self.leaf_rows = usual_leaf_rows(self.row_bytes)

    def n_leaves(self, leaf_rows: int | None = None) -> int:
        return -(-int(self._starts[-1]) // (self.leaf_rows if leaf_rows is None else leaf_rows))

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on."""
        n_rows, size = int(self._starts[-1]), self.leaf_rows if leaf_rows is None else leaf_rows
        starts = range(first * size, n_rows, size)
        tasks = (partial(self._load, start, min(start + size, n_rows)) for start in starts)
        if first or self._choice.bad_rows != "skip":
            return tasks
        return check_any_row_good(tasks, self, self._files)

    def _load(self, start: int, stop: int) -> Block:
        return self._block(np.arange(start, stop))

    def _block(self, ids: Array) -> Block:
        """The rows with these ids, which ascend."""
        X: list[Array] = []
        y: list[Array] = []
        weight: list[Array] = []
        for number in range(len(self._arrays)):
            first, after = self._starts[number : number + 2]
            start, stop = np.searchsorted(ids, (first, after))
            if start == stop:
                continue
            inside = ids[start:stop] - first
            at = slice(inside[0], inside[-1] + 1) if inside[-1] - inside[0] + 1 == len(inside) else inside
            for values, taken in zip(self._arrays[number].get(), (X, y, weight), strict=True):
                if values is not None:
                    taken.append(values[at])
        rows = np.ascontiguousarray(_under_one_another(X), self._dtype)
        target = _plain_target(_under_one_another(y)) if y else None
        weights = _under_one_another(weight).astype(np.float64) if weight else None
        missing_y = None
        if target is not None and target.dtype.kind == "f" and not self._choice.keeps_gaps:
            missing_y = np.isnan(target)
        return good_rows(
            rows,
            target,
            weights,
            ids,
            locate=self._locate,
            name_of=str,
            choice=self._choice,
            finite=bool(np.isfinite(column_sums(rows)).all()),
            missing_y=missing_y,
        )

    def _locate(self, row_id: int) -> str:
        number = int(np.searchsorted(self._starts, row_id, side="right")) - 1
        return row_of(self._files[number].path, int(row_id - self._starts[number]))

    def classes(self) -> Array:
        """All values of the target, in ascending order."""
        if self._choice.target is None:
            raise ValueError("There is no target: name its array, target=... (--target).")
        values = np.concatenate([np.unique(_plain_target(arrays.get()[1])) for arrays in self._arrays])
        classes: Array = np.unique(values)
        return classes[~np.isnan(classes)] if classes.dtype.kind == "f" else classes

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` rows (None: 65,536) from anywhere; a few neighbours together where the data is large."""
        n = int(self._starts[-1])
        size = min(n, SAMPLE_ROWS if size is None else size)
        run = 1 if n * self.row_bytes < _RUN_BYTES else _RUN
        starts = run * np.sort(rng.choice(-(-n // run), -(-size // run), replace=False))
        ids = (starts[:, None] + np.arange(run)).ravel()
        return nonempty_sample(self._block(ids[ids < n][:size]), self, self._files, size)


def _under_one_another(parts: Sequence[Array]) -> Array:
    return np.asarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def _plain_target(y: Any) -> Array:
    values: Array = np.asarray(y)
    return values.astype(object) if values.dtype.kind in "US" else values
