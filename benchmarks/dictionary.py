"""Dictionary learning: pursuit and K-SVD beside their peers, through a coreset beside all rows, and on patches.

    python benchmarks/dictionary.py --data DIR

Signals follow the paper (Feldman, Feigin and Sochen 2013): d = 20, k = 50 planted atoms with uniform entries, three
atoms a signal with uniform coefficients, noise at 20 dB. The error of a dictionary is the mean squared error of an
entry when the signals are coded by three atoms of it, by the same pursuit for everybody; the distance is the mean
over the planted atoms of 1 - max |inner product|, and an atom counts as found if its own is below 0.01.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.decomposition import MiniBatchDictionaryLearning
from sklearn.linear_model import orthogonal_mp_gram

from common import save, show, timed
from tithe import build_coreset
from tithe.dictionary import KSVD, dictionary_distance
from tithe.dictionary.pursuit_kernels import pursue
from tithe.objectives import DictionaryObjective

D, K, T = 20, 50, 3
PHOTOGRAPHS = [
    "sk_camera.png",
    "mountain_8mp.jpg",
    "dandelion_16mp.jpg",
    "sk_grass.png",
    "scarlet_tree_cartoon_15mp.png",
]


def planted(n: int, low: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Signals (n, 20) and the atoms (50, 20) they are made of; entries of atoms are uniform in (low, 1)."""
    rng = np.random.default_rng(seed)
    atoms = rng.uniform(low, 1.0, size=(K, D))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    X = np.empty((n, D))
    for start in range(0, n, 100_000):
        rows = X[start : start + 100_000]
        used = np.argpartition(rng.random((len(rows), K)), T, axis=1)[:, :T]
        rows[:] = np.einsum("nt,ntd->nd", rng.uniform(-1.0, 1.0, size=(len(rows), T)), atoms[used])
    X += rng.normal(size=X.shape) * np.sqrt((X**2).mean() / 100.0)
    return X, atoms


def quality(X: np.ndarray, true: np.ndarray, outcome: np.ndarray) -> tuple[float, float, float]:
    """Error on (at most 100,000 of) the signals, distance to the planted atoms, share of them found."""
    gap = 1.0 - np.abs(true @ outcome.T).max(axis=1)
    error = float(pursue(X[:100_000], outcome, n_nonzero=T)[2].mean() / D)
    return error, dictionary_distance(outcome, true), float((gap < 0.01).mean())


def coding(n: int) -> dict[str, float]:
    """Batch-OMP beside scikit-learn's, n signals of dimension 64, 256 atoms, five a signal, float64."""
    rng = np.random.default_rng(0)
    atoms, X = rng.normal(size=(256, 64)), rng.normal(size=(n, 64))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    pursue(X[:1000], atoms, n_nonzero=5)
    ours = min(timed(lambda: pursue(X, atoms, n_nonzero=5))[1] for _ in range(3))
    codes, theirs = timed(lambda: orthogonal_mp_gram(atoms @ atoms.T, atoms @ X.T, n_nonzero_coefs=5))
    chosen, values, _, _ = pursue(X[:2000], atoms, n_nonzero=5)
    mine = np.zeros((2000, 256))
    np.put_along_axis(mine, chosen, values, axis=1)
    gap = float(np.abs(mine - codes.T[:2000]).max())
    show(
        f"{n:,} signals of dimension 64 coded by five of 256 atoms (largest difference of a coefficient: {gap:.1g})",
        ["method", "seconds", "ratio"],
        [["tithe pursue", ours, 1.0], ["sklearn orthogonal_mp_gram", theirs, theirs / ours]],
    )
    return {"tithe": ours, "scikit-learn": theirs, "ratio": theirs / ours}


def learners() -> dict[str, Callable[[np.ndarray, int], np.ndarray]]:
    """Ours and the peers that are installed: signals and seed to atoms."""

    def ours(max_iter: int) -> Callable[[np.ndarray, int], np.ndarray]:
        return lambda X, seed: KSVD(K, n_nonzero_coefs=T, max_iter=max_iter, random_state=seed).fit(X).components_

    def minibatch(X: np.ndarray, seed: int) -> np.ndarray:
        model = MiniBatchDictionaryLearning(
            K, alpha=0.1, batch_size=512, max_iter=20, transform_algorithm="omp", random_state=seed, n_jobs=2
        )
        return model.fit(X).components_

    def few(construction: str) -> Callable[[np.ndarray, int], np.ndarray]:
        model = KSVD(K, n_nonzero_coefs=T, max_iter=120, coreset_size=5000, construction=construction)
        return lambda X, seed: model.set_params(random_state=seed).fit(X).components_

    outcome: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
        "tithe KSVD, all rows, 20 iterations": ours(20),
        "tithe KSVD, all rows, 40 iterations": ours(40),
        "tithe KSVD, 5,000 rows, 120 iterations": few("auto"),
        "tithe KSVD, 5,000 uniform rows, 120 iterations": few("uniform"),
    }
    if importlib.util.find_spec("spams"):
        spams = importlib.import_module("spams")

        def train(**options: Any) -> Callable[[np.ndarray, int], np.ndarray]:
            return lambda X, seed: spams.trainDL(
                np.asfortranarray(X.T), K=K, numThreads=2, verbose=False, **options
            ).T.copy()

        outcome["spams trainDL, OMP"] = train(mode=3, lambda1=T, iter=1000)
        outcome["spams trainDL, lasso"] = train(mode=2, lambda1=0.15, iter=1000)
    if importlib.util.find_spec("ksvd"):
        ksvd = importlib.import_module("ksvd")
        outcome["ksvd (PyPI)"] = lambda X, seed: ksvd.ApproximateKSVD(K, transform_n_nonzero_coefs=T).fit(X).components_
    outcome["sklearn MiniBatchDictionaryLearning"] = minibatch
    return outcome


def peers(n: int, seeds: int) -> list[dict[str, Any]]:
    """Medians over seeds; every learner sees the same signals, one after the other."""
    rows = []
    for low in (-1.0, 0.0):
        true_error = []
        outcome: dict[str, list[tuple[float, ...]]] = {}
        for seed in range(seeds):
            X, atoms = planted(n, low, seed)
            true_error.append(quality(X, atoms, atoms)[0])
            for name, learn in learners().items():
                learn(X[:500], seed)  # compiled code is read in
                result, seconds = timed(lambda learn=learn, X=X, seed=seed: learn(X, seed))
                norms = np.linalg.norm(result, axis=1, keepdims=True)
                error, far, share = quality(
                    X, atoms, np.divide(result, norms, out=np.zeros_like(result), where=norms > 0)
                )
                outcome.setdefault(name, []).append((seconds, error, error / true_error[-1], far, share))
        best = np.median(true_error)
        title = f"{n:,} signals, atoms uniform in ({low:g}, 1), medians of {seeds} seeds; planted: {best:.4g}"
        middle = {
            name: [statistics.median(column) for column in zip(*runs, strict=True)] for name, runs in outcome.items()
        }
        columns = ["learner", "seconds", "error", "/ planted", "distance", "found"]
        show(title, columns, [[name, *values] for name, values in middle.items()])
        rows += [dict(zip(columns, (name, *values), strict=True)) | {"low": low} for name, values in middle.items()]
    return rows


def scaling(most: int, size: int, low: float) -> list[dict[str, Any]]:
    """All rows for 40 iterations beside few for 120, as in the paper, and for 60 and two of polish on more rows."""
    options: dict[str, dict[str, Any]] = {
        "all": {"max_iter": 40},
        "coreset": {"max_iter": 120, "coreset_size": size},
        "uniform": {"max_iter": 120, "coreset_size": size, "construction": "uniform"},
        "polished": {"max_iter": 60, "coreset_size": size, "refine_iter": 2},
        "uniform, polished": {"max_iter": 60, "coreset_size": size, "refine_iter": 2, "construction": "uniform"},
    }
    models = {name: KSVD(K, n_nonzero_coefs=T, random_state=0, **o) for name, o in options.items()}
    table, rows = [], []
    for n in [n for n in (most // 2**e for e in range(7, -1, -1)) if n > size]:
        X, atoms = planted(n, low, 0)
        row: dict[str, Any] = {"n": n}
        for name, model in models.items():
            seconds = min(process_seconds(lambda m=model, X=X: m.fit(X)) for _ in range(1 if name == "all" else 3))
            error, distance, share = quality(X, atoms, model.components_)
            row[name] = {"seconds": seconds, "error": error, "distance": distance, "found": share}
        rows.append(row)
        table += [
            [
                f"{n:,}, {name}",
                row["all"]["seconds"] / result["seconds"],
                result["distance"],
                result["distance"] / row["all"]["distance"],
                result["found"],
                result["error"] / row["all"]["error"],
            ]
            for name, result in row.items()
            if name != "n"
        ]
    show(
        f"all rows, 40 iterations, beside {size} rows, 120 iterations, or 60 and two of polish; atoms uniform in "
        f"({low:g}, 1); processor time",
        ["n, rows", "times as fast", "distance", "/ all", "found", "error / all"],
        table,
    )
    return rows


def process_seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def patches(path: Path, n: int, seed: int) -> np.ndarray:
    """n random 8 x 8 patches of a picture in grey, as rows."""
    Image.MAX_IMAGE_PIXELS = None
    grey = np.asarray(Image.open(path).convert("L"), np.float64)
    views = np.lib.stride_tricks.sliding_window_view(grey, (8, 8))
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, views.shape[0], n), rng.integers(0, views.shape[1], n)
    return views[rows, columns].reshape(n, 64)


def pictures(folder: Path, seeds: int) -> list[dict[str, Any]]:
    """Held-out error of dictionaries learned from 2,000 patches, drawn and weighted in several ways."""
    options = {"n_components": 100, "n_nonzero_coefs": 5}
    ways = [("uniform", "constant", False)]
    ways += [("sensitivity", name, False) for name in ("constant", "mean_line", "mean_point", "singular", "ksvd")]
    ways += [("sensitivity", "projective", False), ("uniform", "constant", True), ("sensitivity", "constant", True)]
    rows, table = [], []
    for name in PHOTOGRAPHS:
        X, held_out = patches(folder / name, 100_000, 0), patches(folder / name, 20_000, 1)
        errors: dict[Any, list[float]] = {way: [] for way in ways}
        for construction, reference, calibrate in ways:
            for seed in range(seeds):
                few = build_coreset(
                    X,
                    objective=DictionaryObjective(**options, reference=reference),
                    construction=construction,
                    coreset_size=2000,
                    calibrate=calibrate,
                    random_state=seed,
                )
                model = KSVD(**options, max_iter=20, random_state=seed).fit(few.X, sample_weight=few.sample_weight)
                errors[construction, reference, calibrate].append(-model.score(held_out))
        base = statistics.median(errors[ways[0]])
        ratios = [statistics.median(errors[way]) / base for way in ways]
        rows.append({"picture": name, "uniform": base, "ratios": dict(zip(map(str, ways), ratios, strict=True))})
        table.append([name, float(np.mean(X.std(axis=1) < 1.0)), base, *ratios[1:]])
    columns = [w[1] + (", cal." if w[2] else "") if w[0] != "uniform" else "uniform, cal." for w in ways[1:]]
    show(
        f"held-out error / that of a uniform sample, 2,000 of 100,000 patches, medians of {seeds} seeds",
        ["picture", "flat", "uniform", *columns],
        table,
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with images/; without it pictures are left out")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--signals", type=int, default=20_000)
    parser.add_argument("--coded", type=int, default=200_000)
    parser.add_argument("--max-n", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=5000)
    parser.add_argument("--only", choices=["coding", "peers", "scaling", "pictures"], help="one part alone")
    arguments = parser.parse_args()
    only = arguments.only
    results: dict[str, Any] = {}
    if only in (None, "coding"):
        results["coding"] = coding(arguments.coded)
    if only in (None, "peers"):
        results["peers"] = peers(arguments.signals, arguments.seeds)
    if only in (None, "scaling"):
        results["scaling"] = [scaling(arguments.max_n, arguments.size, low) for low in (-1.0, 0.0)]
    if only in (None, "pictures") and arguments.data is not None:
        results["pictures"] = pictures(arguments.data / "images", arguments.seeds)
    save("dictionary" if only is None else f"dictionary_{only}", results)


if __name__ == "__main__":
    main()
