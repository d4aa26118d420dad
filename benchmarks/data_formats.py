"""How the public files of ``data.toml`` become the arrays that the benchmarks read.

Every function of ``FORMATS`` takes the contents of its files, in the order of ``data.toml``, and returns named arrays.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import sparse
from scipy.io import loadmat
from sklearn.datasets import load_svmlight_file

Arrays = dict[str, np.ndarray]


def signs(positive: Any) -> np.ndarray:
    """1 where ``positive`` holds, otherwise -1 (int8)."""
    return np.where(np.asarray(positive, bool), 1, -1).astype(np.int8)


def libsvm(parts: list[bytes], columns: int, index_dtype: str = "uint16") -> Arrays:
    """Sparse rows of training and test rows as the parts of one CSR matrix; labels -1 and 1."""
    read = [load_svmlight_file(io.BytesIO(part), n_features=columns, dtype=np.float32) for part in parts]
    X = sparse.vstack([rows for rows, _ in read], format="csr")
    all_ones = bool(np.all(X.data == 1))
    return {
        "data": X.data[:1] if all_ones else X.data,
        "all_ones": np.array(all_ones),
        "indices": X.indices.astype(index_dtype),
        "indptr": X.indptr.astype(np.int32),
        "shape": np.array(X.shape, np.int64),
        "y": signs(np.concatenate([labels for _, labels in read]) > 0),
        "n_train": np.array(read[0][0].shape[0], np.int64),
    }


def table(
    parts: list[bytes],
    separator: str = ",",
    header: bool = True,
    first_column: int = 0,
    dtype: str = "float32",
    label_dtype: str = "int16",
    positive: Any = None,
    names: bool = False,
) -> Arrays:
    """Text tables, one below the other, whose last column is the label.

    With ``positive`` the labels are 1 where they equal it, otherwise -1; labels that are words become their places in
    the alphabet. With two parts ``n_train`` is the number of rows of the first.
    """
    frames = [pd.read_csv(io.BytesIO(part), sep=separator, header=0 if header else None) for part in parts]
    frame = pd.concat(frames, ignore_index=True)
    X, labels = frame.iloc[:, first_column:-1], frame.iloc[:, -1]
    if positive is not None:
        y = signs(labels == positive)
    elif pd.api.types.is_numeric_dtype(labels):
        y = labels.to_numpy(label_dtype)
    else:
        y = np.unique(labels.to_numpy(str), return_inverse=True)[1].astype(label_dtype)
    arrays = {"X": np.asfortranarray(X.to_numpy(dtype)), "y": y}
    if names:
        arrays["feature_names"] = np.array([str(name) for name in X.columns])
    if len(parts) > 1:
        arrays["n_train"] = np.array(len(frames[0]), np.int64)
    return arrays


def ubyte(parts: list[bytes]) -> Arrays:
    """Pictures and labels of training and test rows in the format of MNIST, each picture one row."""
    images, labels = [], []
    for pictures, numbers in zip(parts[::2], parts[1::2], strict=True):
        magic, n, height, width = np.frombuffer(pictures, ">i4", 4)
        if magic != 2051:
            raise ValueError(f"These are not pictures in the format of MNIST: they begin with {magic} instead of 2051.")
        images.append(np.frombuffer(pictures, np.uint8, offset=16).reshape(n, height * width))
        labels.append(np.frombuffer(numbers, np.uint8, offset=8))
    n_train = np.array(len(labels[0]), np.int64)
    return {"X": np.concatenate(images), "y": np.concatenate(labels), "n_train": n_train}


def matlab(parts: list[bytes]) -> Arrays:
    """``X`` (dense or sparse) and ``y`` of a MATLAB file; labels -1 and 1."""
    held = loadmat(io.BytesIO(parts[0]))
    X = held["X"].toarray() if sparse.issparse(held["X"]) else held["X"]
    return {"X": np.asfortranarray(X, np.float32), "y": signs(held["y"].ravel() > 0)}


def numpy_archive(parts: list[bytes], restore_integers: bool = False) -> Arrays:
    """``X`` and ``y`` of a NumPy archive with labels 0 and 1.

    With ``restore_integers`` the columns are standardised integers of which each of 0, 1, ..., 255 occurs: the rank of
    a value is the integer.
    """
    with np.load(io.BytesIO(parts[0])) as archive:
        X, y = archive["X"], signs(archive["y"] == 1)
    if not restore_integers:
        return {"X": np.asfortranarray(X, np.float32), "y": y}
    ranks = [np.unique(column, return_inverse=True)[1] for column in X.T]
    return {"X": np.asfortranarray(np.column_stack(ranks), np.uint8), "y": y}


def three_digits(X: np.ndarray) -> np.ndarray:
    """The values with three significant digits (float32)."""
    exact = X.astype(np.float64)
    exponents = np.floor(np.log10(np.where(exact == 0, 1, np.abs(exact))))
    scale = 10.0 ** (2 - exponents)
    return (np.round(exact * scale) / scale).astype(np.float32)


def higgs(parts: list[bytes]) -> Arrays:
    """Rows of four public parts of HIGGS, the first of each that agree in three significant digits.

    Three digits are all that the last part has. ``origin`` is the number of the part.
    """
    X_val, y_val, X_test, y_test = (np.load(io.BytesIO(part)) for part in parts[:4])
    label_last = pd.read_csv(io.BytesIO(parts[4]))
    label_first = [pd.read_csv(io.BytesIO(parts[5]), header=None), pd.read_csv(io.BytesIO(parts[6]))]
    blocks = [np.vstack([X_val, X_test]), label_last.iloc[:, :-1].to_numpy()]
    blocks += [frame.iloc[:, 1:].to_numpy() for frame in label_first]
    labels = [np.concatenate([y_val, y_test]), label_last.iloc[:, -1], *(frame.iloc[:, 0] for frame in label_first)]
    X = np.vstack([block.astype(np.float32) for block in blocks])
    kept = ~pd.DataFrame(three_digits(X)).duplicated().to_numpy()
    return {
        "X": np.asfortranarray(X[kept]),
        "y": signs(np.concatenate(labels) == 1)[kept],
        "origin": np.repeat(np.arange(4, dtype=np.uint8), [len(block) for block in blocks])[kept],
        "feature_names": np.array(label_last.columns[:-1], dtype=str),
    }


def flights(parts: list[bytes]) -> Arrays:
    """The first half of a Parquet file of flights: times as minutes since the first, airports as numbers."""
    whole = pq.read_table(io.BytesIO(parts[0]))
    half = whole.slice(0, whole.num_rows // 2)
    dates = half["date"].to_numpy()
    ends = {name: half[name].to_numpy().astype(str) for name in ("origin", "destination")}
    airports = np.unique(np.concatenate(list(ends.values())))
    return {
        "minute": ((dates - dates[0]) // np.timedelta64(1, "m")).astype(np.int32),
        "delay": half["delay"].to_numpy().astype(np.int16),
        "distance": half["distance"].to_numpy().astype(np.int16),
        **{name: np.searchsorted(airports, codes).astype(np.uint16) for name, codes in ends.items()},
        "airports": airports,
        "start": np.array(str(pd.Timestamp(dates[0]))),
    }


FORMATS = {
    function.__name__: function for function in (libsvm, table, ubyte, matlab, numpy_archive, higgs, flights)
}  # the names that data.toml uses
