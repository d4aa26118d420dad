"""`ODMClassifierCV` beside `sklearn.svm.SVC`, tuned in the same processor time: test accuracy on held-out rows.

    python benchmarks/odm_search.py --data DIR [--sets australian,...] [--rows 600] [--seeds 3] [--candidates 24]

Each set is split into up to ``--rows`` training rows and up to 4,000 test rows, stratified, by each seed; columns are
standardised on the training rows. `ODMClassifierCV` tries ``--candidates`` of its default space. SVC then tries
candidates drawn at random, log-uniformly (C in 2^-4 ... 2^12, gamma in 2^-4 ... 2^4 times its default), in five
stratified folds as `RandomizedSearchCV` does, until it has used as much processor time. Both refit the best.

The tables, of sets with two classes and with more, have the test accuracies, the difference and its standard error over
seeds, and the numbers of candidates; the lines below the mean difference over the sets, its standard error, and the
sets won and lost.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from common import save, show
from tithe.odm import ODMClassifierCV

OPEN_SETS = (
    "australian", "diabetes", "german", "spambase", "phishing", "eeg_eye_state", "electricity", "occupancy_sensor",
    "skin_nonskin", "a9a", "w8a", "higgs_subset", "covtype", "image_segments", "satimage", "pendigits", "letter",
    "shuttle", "covtype_10",
)  # fmt: skip
EMBEDDED = {"breast_cancer": datasets.load_breast_cancer, "digits": datasets.load_digits, "wine": datasets.load_wine}
TEST_ROWS = 4000
MIN_CLASS_ROWS = 10
FOLDS = 5


def load(folder: Path, name: str) -> tuple[Any, np.ndarray]:
    if name in EMBEDDED:
        return EMBEDDED[name](return_X_y=True)
    if name == "covtype_10":  # the numeric columns alone
        X, y = load(folder, "covtype")
        return X[:, :10], y
    with np.load(folder / f"{name}.npz") as archive:
        y = archive["y"]
        if "indptr" in archive.files:
            indices = archive["indices"].astype(np.int32)
            values = np.ones(len(indices)) if archive["all_ones"] else archive["data"].astype(np.float64)
            return sparse.csr_matrix((values, indices, archive["indptr"]), shape=tuple(archive["shape"])), y
        return archive["X"], (y == 2).astype(int) if name == "covtype" else y


def split(X: Any, y: np.ndarray, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows, dense and standardised; rare classes are left out."""
    chosen = np.random.default_rng(seed).permutation(len(y))[: 3 * (n_rows + TEST_ROWS)]
    classes, counts = np.unique(y[chosen], return_counts=True)
    shares = counts / len(chosen) * n_rows
    chosen = chosen[np.isin(y[chosen], classes[shares >= MIN_CLASS_ROWS])]
    n_train = min(n_rows, int(0.6 * len(chosen)))
    n_test = min(TEST_ROWS, len(chosen) - n_train)
    train, test = train_test_split(chosen, train_size=n_train, test_size=n_test, stratify=y[chosen], random_state=seed)
    parts = [X[rows].toarray() if sparse.issparse(X) else np.asarray(X[rows], np.float64) for rows in (train, test)]
    scaler = StandardScaler().fit(parts[0])
    return scaler.transform(parts[0]), y[train], scaler.transform(parts[1]), y[test]


def tuned_svc(X: np.ndarray, y: np.ndarray, seconds: float, seed: int) -> tuple[SVC, int, float]:
    """The best of as many random candidates as fit into the time, fitted on all rows; their number and the time."""
    rng, start = np.random.default_rng(seed), time.process_time()
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    scale = 1.0 / (X.shape[1] * X.var())
    best: tuple[float, SVC] | None = None
    n = 0
    while best is None or time.process_time() - start < seconds:
        machine = SVC(C=2.0 ** rng.uniform(-4, 12), gamma=scale * 2.0 ** rng.uniform(-4, 4), max_iter=1_000_000)
        score = float(cross_val_score(machine, X, y, cv=folds).mean())
        best = (score, machine) if best is None or score > best[0] else best
        n += 1
    return best[1].fit(X, y), n, time.process_time() - start


def one_split(X: Any, y: np.ndarray, n_rows: int, seed: int, candidates: int) -> dict[str, Any]:
    train, labels, test, truth = split(X, y, n_rows, seed)
    start = time.process_time()
    search = ODMClassifierCV(candidates, random_state=seed, n_jobs=1).fit(train, labels)
    seconds = time.process_time() - start
    svc, n_tried, svc_seconds = tuned_svc(train, labels, seconds, seed)
    return {
        "odm": search.score(test, truth),
        "svc": svc.score(test, truth),
        "odm held-out score": search.best_score_,
        "odm params": search.best_params_,
        "svc params": {"C": svc.C, "gamma": svc.gamma},
        "odm seconds": seconds,
        "svc seconds": svc_seconds,
        "svc candidates": n_tried,
        "rows": len(labels),
        "classes": len(np.unique(labels)),
    }


def report(results: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    table, means = [], []
    for name, runs in results.items():
        gain = np.array([run["odm"] - run["svc"] for run in runs])
        means.append(float(gain.mean()))
        table.append(
            [
                name,
                runs[0]["rows"],
                runs[0]["classes"],
                float(np.mean([run["odm"] for run in runs])),
                float(np.mean([run["svc"] for run in runs])),
                means[-1],
                float(gain.std(ddof=1) / len(gain) ** 0.5) if len(gain) > 1 else float("nan"),
                float(np.mean([run["odm seconds"] for run in runs])),
                float(np.mean([run["svc candidates"] for run in runs])),
            ]
        )
    columns = ["set", "rows", "classes", "ODM", "SVC", "difference", "error", "seconds each", "SVC candidates"]
    show("Test accuracy, tuned in the same processor time", columns, table)
    gains = np.array(means)
    error = gains.std(ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
    accuracies = [float(np.mean([row[k] for row in table])) for k in (3, 4)]
    print(f"mean over {len(gains)} sets: ODM {accuracies[0]:.4f}, SVC {accuracies[1]:.4f}")
    print(f"mean difference {gains.mean():+.4f}, standard error {error:.4f}")
    print(f"sets won {(gains > 0).sum()}, lost {(gains < 0).sum()}")
    summary = {"ODM": accuracies[0], "SVC": accuracies[1], "difference": float(gains.mean()), "error": float(error)}
    return {**summary, "sets": len(gains), "won": int((gains > 0).sum()), "lost": int((gains < 0).sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join([*OPEN_SETS, *EMBEDDED]))
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--candidates", type=int, default=24)
    options = parser.parse_args()
    results: dict[str, list[dict[str, Any]]] = {}
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    for n_classes in (2, 3):  # kernels are compiled once and kept on disk
        ODMClassifierCV(4, n_jobs=1).fit(X, np.arange(80) % n_classes)
    for name in options.sets.split(","):
        X, y = load(options.data, name)
        results[name] = [one_split(X, y, options.rows, seed, options.candidates) for seed in range(options.seeds)]
        print(name, [(round(r["odm"], 4), round(r["svc"], 4)) for r in results[name]], flush=True)
    by_classes: dict[str, dict[str, list[dict[str, Any]]]] = {"two classes": {}, "more classes": {}}
    for name, runs in results.items():
        by_classes["two classes" if runs[0]["classes"] == 2 else "more classes"][name] = runs
    summaries = {kind: report(part) for kind, part in by_classes.items() if part}
    options_used = {"rows": options.rows, "seeds": options.seeds, "candidates": options.candidates}
    save("odm_search", {**options_used, **summaries, "sets": results})


if __name__ == "__main__":
    warnings.simplefilter("ignore", ConvergenceWarning)
    main()
