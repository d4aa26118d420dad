"""What is stored on disk, made small, and what is done with it after it was read: for workers of the harness."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from mutations import unzipped, zipped
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import tithe
from tithe import Checkpoint, CoresetStream, build_coreset, save_coreset
from tithe.core.contracts import Source
from tithe.core.data import Block
from tithe.dictionary import KSVD, ImageDenoiser
from tithe.objectives import KMeansObjective, LogisticObjective
from tithe.odm import (
    IncrementalODMClassifier,
    LabelSearch,
    LinearODMClassifier,
    ODMClassifier,
    ODMClustering,
    SemiSupervisedODMClassifier,
)
from tithe.online import PACO
from tithe.storage.coresets import load_coreset
from tithe.storage.models import load_model, save_model

_rng = np.random.default_rng(0)
X = _rng.normal(size=(120, 3)) + 4.0 * _rng.integers(3, size=(120, 1))
Y = (X[:, 0] + _rng.normal(size=120) > 4.0).astype(int)
NAMES = np.array(["a", "b", "c"])[np.clip(X[:, 0] / 4.0, 0, 2).astype(int)]
PICTURE = _rng.integers(0, 255, size=(12, 12)).astype(np.uint8)
SEED = {"random_state": 0}
KMEANS = KMeansObjective(n_clusters=3, n_init=2)


# -- models ----------------------------------------------------------------------------------------


def _streamed(model: Any, *labels: Any, **options: Any) -> Any:
    model.partial_fit(X[:70], *(y[:70] for y in labels), **options)
    return model.partial_fit(X[70:], *(y[70:] for y in labels))


def _with_leaves(model: Any) -> Any:
    """A learner whose stream has reduced leaves: those of its own size would need 65,536 rows."""
    model.stream_ = CoresetStream(model._objective(), coreset_size=40, leaf_size=50, **SEED).push(X)
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "kmeans": lambda: tithe.CoresetKMeans(3, coreset_size=40, n_init=2, **SEED).fit(X),
    "kmeans stream": lambda: _with_leaves(_streamed(tithe.CoresetKMeans(3, coreset_size=40, n_init=2, **SEED))),
    "kmedians": lambda: tithe.CoresetKMedians(3, coreset_size=40, n_init=2, **SEED).fit(X),
    "mixture": lambda: tithe.CoresetGaussianMixture(2, coreset_size=40, n_init=2, **SEED).fit(X),
    "mixture stream": lambda: _streamed(tithe.CoresetGaussianMixture(2, covariance_type="tied", **SEED)),
    "logistic": lambda: tithe.CoresetLogisticRegression(coreset_size=60, **SEED).fit(X, NAMES),
    "logistic stream": lambda: _streamed(tithe.CoresetLogisticRegression(coreset_size=60, **SEED), Y, classes=[0, 1]),
    "linear margin": lambda: LinearODMClassifier(coreset_size=60, **SEED).fit(X, Y),
    "kernel margin": lambda: ODMClassifier(**SEED).fit(X, NAMES),
    "incremental margin": lambda: _streamed(IncrementalODMClassifier(), Y).forget([3, 80]),
    "margin clusters": lambda: ODMClustering(coreset_size=40, must_link=[(0, 1)], **SEED).fit(X),
    "margin few labels": lambda: SemiSupervisedODMClassifier(
        safe=False, coreset_size=60, search=LabelSearch(max_cuts=1), **SEED
    ).fit(X, np.where(np.arange(120) % 6, -1, Y)),
    "dictionary": lambda: KSVD(4, n_nonzero_coefs=1, coreset_size=60, max_iter=2, center="global", **SEED).fit(X),
    "dictionary stream": lambda: _streamed(KSVD(4, n_nonzero_coefs=1, coreset_size=60, max_iter=2, **SEED)),
    "denoiser": lambda: ImageDenoiser(
        5, patch_size=3, n_components=12, coreset_size=50, max_iter=2, refine_iter=0, **SEED
    ).fit(PICTURE),
    "estimator": lambda: tithe.CoresetEstimator(LogisticRegression(), coreset_size=60, **SEED).fit(X, Y),
    "forest": lambda: tithe.CoresetEstimator(RandomForestClassifier(3, **SEED), coreset_size=60, **SEED).fit(X, Y),
    "boosting": lambda: tithe.CoresetEstimator(
        HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5, categorical_features=[1], **SEED),
        coreset_size=60,
        **SEED,
    ).fit(np.column_stack([X[:, 0], np.arange(120) % 4, X[:, 2]]), Y),
    "search": lambda: tithe.CoresetSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2, coreset_size=40, **SEED).fit(
        X, Y
    ),
    "search stream": lambda: _streamed(
        tithe.CoresetSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2, coreset_size=40, **SEED), X[:, 1]
    ),
}


def model_files() -> list[bytes]:
    return [_saved(make()) for make in MODELS.values()]


def _saved(model: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, Path(folder) / "model.tithe", rows=True)
        return (Path(folder) / "model.tithe").read_bytes()


def use_model(data: bytes) -> None:
    """Load a model, ask it about rows, let it learn more, and ask again."""
    with _file(data, "model.tithe") as path:
        model = load_model(path)
    if isinstance(model, ImageDenoiser):
        model.denoise(PICTURE)
        model.reconstruct(PICTURE)
        return
    for _ in range(2):
        for method in ("predict", "transform", "predict_proba", "decision_function"):
            if hasattr(type(model), method) and hasattr(model, method):
                getattr(model, method)(X[:5])
        if isinstance(model, IncrementalODMClassifier) and "_rows" in vars(model):
            model.update(X[:9], Y[:9], forget=model.row_ids_[:3])
        if not hasattr(model, "partial_fit") or "stream_" not in vars(model):
            return
        y = Y if hasattr(model, "classes_") or hasattr(model, "_labels") else X[:, 1]
        model.partial_fit(X[:60], y[:60])


# -- online clustering -----------------------------------------------------------------------------

PACOS: dict[str, Callable[[], Any]] = {
    "birth and death": lambda: PACO(4, summary_size=30, **SEED).partial_fit(X),
    "paper": lambda: PACO(4, kernel="paper", summary_size=30, half_life=50.0, **SEED).partial_fit(X),
    "symmetric": lambda: PACO(3, kernel="symmetric", preset="theory", n_samples=5, **SEED).partial_fit(X[:20]),
    "radius": lambda: PACO(3, radius=40.0, summary_size=None, **SEED).partial_fit(X[:20]),
}


def paco_files() -> list[bytes]:
    return [_saved(make()) for make in PACOS.values()]


def use_paco(data: bytes) -> None:
    with _file(data, "model.tithe") as path:
        model = load_model(path)
    for _ in range(2):
        model.predict(X[:5])
        assert len(model.cluster_centers_) == model.n_clusters_
        model.history_, model.summary_  # noqa: B018 - computed when they are asked for
        model.partial_fit(X[:40])


def paco_states() -> list[bytes]:
    return [_folder(lambda path, make=make: make().checkpoint(path)) for make in list(PACOS.values())[:2]]


# -- coresets --------------------------------------------------------------------------------------


def coreset_files() -> list[bytes]:
    from scipy import sparse

    coresets = [
        tithe.build_coreset(X, objective=KMEANS, coreset_size=30, **SEED),
        tithe.build_coreset(X, Y, objective=LogisticObjective(), coreset_size=30, **SEED),
        tithe.build_coreset(sparse.csr_matrix(X * (X > 1)), objective=KMEANS, coreset_size=30, **SEED),
    ]
    return [_written(partial(save_coreset, coreset), "coreset.parquet") for coreset in coresets]


def use_coreset(data: bytes) -> None:
    with _file(data, "coreset.parquet") as path:
        coreset = load_coreset(path)
    if coreset.n_features == 3:
        KMEANS.solve(coreset, rng=np.random.default_rng(0))
    str(coreset.effective_size), repr(coreset)  # weights beyond squares may have no effective size, but no error either


# -- checkpoints -----------------------------------------------------------------------------------


def stream_states() -> list[bytes]:
    """Checkpoints of streams, the first with its leaves."""
    return [
        _folder(_checkpoint_with_leaves),
        _folder(lambda path: _push(CoresetStream(LogisticObjective(), **_SMALL), Y).checkpoint(path)),
        _folder(lambda path: _push(CoresetStream(KMEANS, "uniform", window=60, **_SMALL)).checkpoint(path)),
        _folder(lambda path: _merged().checkpoint(path)),
    ]


_SMALL: dict[str, Any] = {"coreset_size": 20, "leaf_size": 30, **SEED}


def _push(stream: CoresetStream, y: Any = None) -> CoresetStream:
    return stream.push(X[:110], None if y is None else y[:110])


def _checkpoint_with_leaves(path: Path) -> None:
    stream = _push(CoresetStream(KMEANS, keep_leaves=path.parent / "leaves", **_SMALL))
    stream.forget([40])
    stream.checkpoint(path)


def _merged() -> CoresetStream:
    stream = CoresetStream(KMEANS, half_life=None, **_SMALL).push(X[:70])
    return stream.merge(stream.fork(random_state=1).push(X[70:]))


def use_stream(data: bytes) -> None:
    with _unpacked(data) as folder:
        leaves = folder / "leaves"
        try:
            stream = CoresetStream.resume(folder / "state", keep_leaves=leaves if leaves.is_dir() else None)
        except FileNotFoundError as error:  # documented: it names a folder of leaves that is not there
            if "leaves of this stream" not in str(error):
                raise
            return
        y = Y if isinstance(stream.plan.objective, LogisticObjective) else None
        stream.coreset()
        stream.push(X[:40], None if y is None else y[:40])
        stream.coreset()
        if stream._folders.store is not None:
            stream.forget([5, 35])
            stream.coreset()
        stream.checkpoint(folder / "state")


def use_paco_state(data: bytes) -> None:
    with _unpacked(data) as folder:
        model = PACO.resume(folder / "state")
        model.predict(X[:5])
        model.partial_fit(X[:40])
        model.checkpoint(folder / "state")


class Leaves(Source):
    """A source whose leaves are in memory, which stops on the way if it is told to."""

    identity = "rows of a test"

    def __init__(self, stop: int | None = None) -> None:
        block = Block(X=X, y=Y, indices=np.arange(len(X)))
        self.leaves = [block.cut(a, b) for a, b in pairwise(range(0, len(X) + 1, 30))]
        self.n_rows, self.n_features, self.stop = len(X), X.shape[1], stop

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        for number, leaf in list(enumerate(self.leaves))[first:]:
            yield partial(self._load, number, leaf)

    def _load(self, number: int, leaf: Block) -> Block:
        if number == self.stop:
            raise KeyboardInterrupt
        return leaf

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        return self.leaves[0]


def _build(checkpoint: Path, objective: str, stop: int | None = None) -> Any:
    state = Checkpoint(checkpoint, resume=stop is None)
    wanted = KMEANS if objective == "kmeans" else LogisticObjective(classes=(0, 1))
    return build_coreset(
        Leaves(stop), objective=wanted, coreset_size=20, engine="serial", random_state=0, checkpoint=state
    )


def build_states() -> list[bytes]:
    return [_folder(partial(_stopped, objective)) for objective in ("kmeans", "logistic")]


def _stopped(objective: str, path: Path) -> None:
    try:
        _build(path, objective, stop=3)
    except KeyboardInterrupt:
        return


def use_build(data: bytes) -> None:
    with _unpacked(data) as folder:
        state = b"LogisticObjective" if b"LogisticObjective" in data else b""
        _build(folder / "state", "logistic" if state else "kmeans")


# -- files and folders as bytes --------------------------------------------------------------------


class _file:
    """A file that holds the data, as long as it is used."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / self._name
        path.write_bytes(self._data)
        return path

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()


class _unpacked:
    """A folder with the files of an archive, as long as it is used."""

    def __init__(self, data: bytes) -> None:
        self._files = unzipped(data)

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        for name, data in self._files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()


def _written(save: Callable[[Path], Any], name: str) -> bytes:
    with _file(b"", name) as path:
        path.unlink()
        save(path)
        return path.read_bytes()


def _folder(write: Callable[[Path], Any]) -> bytes:
    """The archive of a folder with a checkpoint in ``state``, and whatever is beside it."""
    with _unpacked(zipped({})) as root:
        write(root / "state")
        return zipped(
            {
                str(p.relative_to(root)): p.read_bytes()
                for p in sorted(root.rglob("*"))
                if p.is_file() and p.stat().st_size
            }
        )
