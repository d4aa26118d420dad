"""Files that are well formed and lie are refused before any of their numbers is used."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from tithe import CoresetKMeans, CoresetLogisticRegression, CoresetStream
from tithe.core.data import Block
from tithe.core.errors import FileFormatError
from tithe.core.state_checks import Floats, Integer, Integers, Labels, check_fields
from tithe.dictionary import KSVD
from tithe.objectives import KMeansObjective
from tithe.odm import ODMClassifier
from tithe.online import PACO
from tithe.reduce.stream import StreamState
from tithe.storage.models import load_model, save_model
from tithe.storage.values import packed, unpacked

X = np.random.default_rng(0).normal(size=(60, 2))
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def paco() -> bytes:
    return packed(PACO(3, summary_size=20, random_state=0).partial_fit(X))


def _set(array: str, place: Any, value: Any) -> Callable[[Any], None]:
    def lie(chain: Any) -> None:
        owner, _, name = array.rpartition(".")
        getattr(getattr(chain, owner) if owner else chain, name)[place] = value

    return lie


LIES = {
    "more rows than room": _set("state", 0, 10**9),
    "fewer rows than held": _set("state", 0, 3),
    "negative rows": _set("state", 0, -1),
    "more centres than room": _set("state", 1, 4),
    "no centres": _set("state", 1, 0),
    "an anchor out of range": _set("state", 2, 8),
    "labels out of range": _set("past.labels", (0, 0), 7),
    "a weight that is no number": _set("past.columns", (0, 0), np.nan),
    "levels out of range": lambda chain: chain.draws[4].__setitem__((3, 0), 10**6),
    "a leaf that is never full": lambda chain: setattr(
        chain.past.stream,
        "state",
        replace(chain.past.stream.state, rows=replace(chain.past.stream.state.rows, leaf_size=21)),
    ),
    "centres of another width": lambda chain: setattr(chain, "centers", np.zeros((3, 5))),
    "centres of another type": lambda chain: setattr(chain, "centers", chain.centers.astype(np.float32)),
    "centres column by column": lambda chain: setattr(chain, "centers", np.asfortranarray(np.ones((3, 2)))),
    "counters that are texts": lambda chain: setattr(chain, "state", np.array(["a", "b", "c"])),
    "a history of other rows": lambda chain: setattr(chain.history, "n_rows", 10**6),
    "no past": lambda chain: setattr(chain, "past", None),
    "anchors that are no array": lambda chain: setattr(chain, "draws", (1, 2, 3, 4, 5)),
    "a radius that never grows": lambda chain: setattr(chain, "radius", 1e-320),
}


@pytest.mark.parametrize("name", LIES)
def test_a_chain_that_lies_is_refused(paco: bytes, name: str) -> None:
    model = unpacked(paco)
    LIES[name](model._chain)
    with pytest.raises(FileFormatError):
        unpacked(packed(model))


def test_what_does_not_lie_is_read(paco: bytes) -> None:
    model, again = unpacked(paco), unpacked(paco)
    assert np.array_equal(model.partial_fit(X).cluster_centers_, again.partial_fit(X).cluster_centers_)


MODEL_LIES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "centres": (lambda: CoresetKMeans(2, random_state=0).fit(X), {"cluster_centers_": np.zeros((2, 3))}),
    "columns": (lambda: CoresetKMeans(2, random_state=0).fit(X), {"n_features_in_": 2**40}),
    "classes": (lambda: CoresetLogisticRegression(random_state=0).fit(X, Y), {"classes_": np.array([0, 0])}),
    "coefficients": (lambda: CoresetLogisticRegression(random_state=0).fit(X, Y), {"coef_": [[1.0, 2.0]]}),
    "support": (lambda: ODMClassifier(random_state=0).fit(X, Y), {"dual_coef_": np.zeros((1, 3))}),
    "parameters": (lambda: KSVD(2, n_nonzero_coefs=1, random_state=0).fit(X), {"n_nonzero_coefs": {}}),
    "vectors": (lambda: ODMClassifier(random_state=0).fit(X, Y), {"support_vectors_": X[:1].copy()}),
}


@pytest.mark.parametrize("name", MODEL_LIES)
def test_a_model_that_lies_is_refused(tmp_path, name: str) -> None:
    make, lies = MODEL_LIES[name]
    model = make()
    save_model(model, tmp_path / "model.tithe")
    load_model(tmp_path / "model.tithe")
    for name, value in lies.items():
        setattr(model, name, value)
    save_model(model, tmp_path / "model.tithe")
    with pytest.raises(FileFormatError):
        load_model(tmp_path / "model.tithe")


def test_a_missing_attribute_is_refused() -> None:
    model = CoresetKMeans(2, random_state=0).fit(X)
    del model.cluster_centers_
    with pytest.raises(FileFormatError, match="cluster_centers_"):
        unpacked(packed(model))


STREAM_LIES: dict[str, Callable[[StreamState], StreamState]] = {
    "rows of a node": lambda state: replace(state, tree=replace(state.tree, slots=state.rows.parts)),
    "leaves": lambda state: replace(state, tree=replace(state.tree, n_leaves=1)),
    "leaf size": lambda state: replace(state, rows=replace(state.rows, leaf_size=0)),
    "next row": lambda state: replace(state, rows=replace(state.rows, next_row=3)),
    "no reducer": lambda state: replace(state, reducer=None),
    "columns of what waits": lambda state: replace(
        state, rows=replace(state.rows, parts=(Block(X=X[:3, :1], indices=np.arange(3)),))
    ),
    "pilot": lambda state: replace(state, reducer=replace(state.reducer, pilot=np.zeros((4, 9)))),
    "size": lambda state: replace(state, plan=replace(state.plan, size=-5)),
    "window": lambda state: replace(state, window="all"),
    "deletions": lambda state: replace(state, times_forgotten=-1),
}


@pytest.mark.parametrize("name", STREAM_LIES)
def test_a_stream_that_lies_is_refused(tmp_path, name: str) -> None:
    stream = CoresetStream(KMeansObjective(n_clusters=2), coreset_size=10, leaf_size=25, random_state=0).push(X)
    unpacked(packed(stream))
    stream.state = STREAM_LIES[name](stream.state)
    with pytest.raises(FileFormatError):
        unpacked(packed(stream))


def test_a_model_file_does_not_say_where_a_stream_writes(tmp_path) -> None:
    stream = CoresetStream(KMeansObjective(n_clusters=2), coreset_size=10, random_state=0).push(X)
    stream.checkpoint(tmp_path / "state")
    assert unpacked(packed(stream))._folders.checkpoint is None


def test_columns_of_a_sparse_row_out_of_bounds_are_refused() -> None:
    rows = sparse.csr_matrix(np.eye(3))
    good = packed(Block(X=rows))
    assert len(unpacked(good)) == 3
    rows.indices[1] = 77
    with pytest.raises(FileFormatError):
        unpacked(packed(Block(X=rows)))


def test_an_archive_that_grows_when_it_is_read_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", b"\0" * 10_000_000)
    with pytest.raises(FileFormatError, match="larger than the file"):
        unpacked(file.getvalue())


def test_an_array_that_promises_more_than_it_has_is_refused_before_memory_is_taken() -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**40, 8)})
    with pytest.raises(FileFormatError, match="another size"):
        unpacked(_file_of({"array": 0}, {"arrays/0.npy": header.getvalue() + b"\0" * 64}))


def _file_of(value: Any, members: dict[str, bytes] | None = None) -> bytes:
    """A file of ours with these values, whatever they are."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("values.json", json.dumps({"format": 1, "about": {}, "value": value}))
        for name, data in (members or {}).items():
            archive.writestr(name, data)
    return file.getvalue()


def test_sizes_agree_over_a_table() -> None:
    table = {"k": Integer(least=1, size="k"), "a": Floats("k", "d"), "b": Integers("d", least=0, below="k")}
    good = {"k": 2, "a": np.zeros((2, 3)), "b": np.array([0, 1, 1])}
    assert check_fields(good, table) == {"k": 2, "d": 3}
    for wrong in ({"k": 3}, {"a": np.zeros((2, 2))}, {"b": np.array([0, 1, 2])}, {"a": None}, {"k": True}):
        with pytest.raises(FileFormatError):
            check_fields({**good, **wrong}, table)
    with pytest.raises(FileFormatError, match="has no b"):
        check_fields({"k": 2, "a": good["a"]}, table)


def test_values_too_deep_are_refused() -> None:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(FileFormatError, match="deeply"):
        unpacked(_file_of(deep))
    with pytest.raises(FileFormatError, match="label"):
        Labels(2, distinct=True).check("labels", np.array(["a", "a"]), {})


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"record": ["os.system", {"command": "true"}]}, "not a type of tithe"),
        ({"record": ["tithe.core.files.replacing", {}]}, "not a type of tithe"),
        ({"record": ["tithe.core.contracts.Objective", {}]}, "not a type of tithe"),
        ({"record": ["tithe.core.data.Site", {"name": "a"}]}, "has no n_seen"),
        ({"record": ["tithe.reduce.draws.Uniform", {"more": 1}]}, "unknown value 'more'"),
        ({"pickle": 0}, "no kind of value"),
        ({"tuple": [], "array": 0}, "two kinds"),
    ],
)
def test_only_records_of_our_classes_with_their_own_values_are_read(value: Any, fault: str) -> None:
    with pytest.raises(FileFormatError, match=fault):
        unpacked(_file_of(value))
