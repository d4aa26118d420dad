"""Rows of checkpoints in NumPy's own format, which keeps every bit. Nothing is unpickled."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
from scipy import sparse

from tithe.core.data import Block, Coreset
from tithe.core.errors import FileFormatError
from tithe.core.loaded import check_loaded
from tithe.core.state_checks import expect

_ZIP_MAGIC = b"PK"


def rows_bytes(block: Block) -> bytes:
    """A block or coreset in NumPy's own format, every bit kept: for checkpoints, which only we read.

    Objective and sites, which a coreset has only when it is finished, are left out.
    """
    arrays: dict[str, Any] = {}
    if sparse.issparse(block.X):
        arrays |= {"data": block.X.data, "columns": block.X.indices, "offsets": block.X.indptr}
        arrays["shape"] = np.array(block.X.shape)
    else:
        arrays["X"] = block.X
    optional = {"y": block.y, "sample_weight": block.sample_weight, "indices": block.indices}
    if isinstance(block, Coreset):
        optional |= {"totals": block.totals, "pilot": block.pilot}
        about = {name: getattr(block, name) for name in ("n_seen", "weight_seen", "key", "last_row", "is_whole")}
        text = json.dumps({**about, "provenance": dict(block.provenance)})
        arrays["coreset"] = np.frombuffer(text.encode(), np.uint8)
    arrays |= {name: array for name, array in optional.items() if array is not None}
    if block.y is not None and block.y.dtype.kind == "O":
        labels = block.y.tolist()
        arrays |= {"y": np.array(labels), "y_was_object": np.array(True)}
        if arrays["y"].tolist() != labels or len({type(label) for label in labels}) > 1:
            raise ValueError("y holds values of different kinds, or text that ends in a null: it cannot be written.")
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def rows_from(data: bytes) -> Block:
    """What `rows_bytes` wrote."""
    try:
        check_uncompressed(data)
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = dict(file)
        if "X" in arrays:
            X = arrays["X"]
        else:
            X = sparse.csr_matrix((arrays["data"], arrays["columns"], arrays["offsets"]), shape=tuple(arrays["shape"]))
            X.check_format(full_check=True)
        y = arrays.get("y")
        if "y_was_object" in arrays and y is not None:
            y = y.astype(object)
        rows = {"X": X, "y": y, "sample_weight": arrays.get("sample_weight"), "indices": arrays.get("indices")}
        for name, array in rows.items():
            expect(array is None or array.shape[0] == X.shape[0], f"there are more or fewer {name} than rows")
        block = Block(**rows)
        if "coreset" in arrays:
            about = json.loads(arrays["coreset"].tobytes())
            about["key"] = tuple(about["key"])
            block = Coreset(**rows, totals=arrays.get("totals"), pilot=arrays.get("pilot"), **about)
        return check_loaded(block)  # type: ignore[no-any-return]
    except FileFormatError:
        raise
    except Exception as error:  # zipfile and the array format have their own kinds for damage
        raise FileFormatError(f"rows cannot be read: {error}") from error


def check_uncompressed(data: bytes) -> None:
    """Refuse an archive that takes more memory than it has bytes: we write none that is compressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
        stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
        expect(stored and sum(part.file_size for part in parts) <= len(data), "its parts are larger than the file")
        for part in parts:
            content = archive.read(part)
            if content.startswith(_ZIP_MAGIC):  # the arrays of a sparse matrix
                check_uncompressed(content)
