"""Which defaults of `LinearODMClassifier` do not trail those of scikit-learn's `LinearSVC`.

    python benchmarks/odm_defaults.py --data DIR [--rows 3000] [--splits 3]

Test accuracy, medians of the splits, on every labelled set in the folder, columns as they are and standardised. The
candidates are all of a grid of lam, mu and theta. The last table leaves one set out at a time: the candidate with the
best mean difference on the others, and how it does on the set left out.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from common import save, show
from tithe import LinearODMClassifier

GRID = tuple(itertools.product((1e3, 1e4, 1e5), (0.05, 0.2, 0.5), (0.2, 0.5, 0.8)))
NAMES = (
    "australian diabetes german spambase phishing electricity eeg_eye_state occupancy_sensor higgs_subset a9a covtype "
    "w8a skin_nonskin reuters image_segments satimage pendigits shuttle letter"
)


def load(folder: Path, name: str, most: int) -> tuple[Any, np.ndarray]:
    with np.load(folder / f"{name}.npz") as archive:
        y = archive["y"]
        if "indptr" in archive.files:
            indices = archive["indices"].astype(np.int32)
            values = np.ones(len(indices)) if archive["all_ones"] else archive["data"].astype(np.float64)
            X = sparse.csr_matrix((values, indices, archive["indptr"]), shape=tuple(archive["shape"]))
        else:
            X = np.ascontiguousarray(archive["X"], np.float64)
    some = np.random.default_rng(0).permutation(len(y))[:most]
    return X[some], y[some]


def accuracies(X: Any, y: np.ndarray, splits: int, standardise: bool) -> dict[str, float]:
    """Medians by candidate, and of LinearSVC."""
    found: dict[str, list[float]] = {}
    for seed in range(splits):
        rows, test, labels, truth = train_test_split(X, y, test_size=0.4, random_state=seed)
        if standardise:
            scaler = StandardScaler().fit(rows)
            rows, test = scaler.transform(rows), scaler.transform(test)
        models: dict[str, Any] = {"LinearSVC": LinearSVC()}
        models |= {label(c): LinearODMClassifier(*c, tol=1e-3, max_iter=200, random_state=0) for c in GRID}
        for name, model in models.items():
            found.setdefault(name, []).append(model.fit(rows, labels).score(test, truth))
    return {name: float(np.median(values)) for name, values in found.items()}


def label(candidate: tuple[float, float, float]) -> str:
    return "{:g} {:g} {:g}".format(*candidate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--names", nargs="*", default=NAMES.split())
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results: dict[str, dict[str, float]] = {}
    for name in options.names:
        X, y = load(options.data, name, options.rows)
        for standardise in (False,) if sparse.issparse(X) else (False, True):
            key = f"{name}{', standardised' if standardise else ''}"
            results[key] = accuracies(X, y, options.splits, standardise)
    names = [label(candidate) for candidate in GRID]
    gaps = np.array([[found[name] - found["LinearSVC"] for name in names] for found in results.values()])
    order = np.argsort(-gaps.mean(axis=0))
    rows = [[names[j], *(100 * v for v in (gaps[:, j].mean(), gaps[:, j].min(), gaps[:, j].max()))] for j in order]
    show("Points of accuracy above LinearSVC", ["lam, mu, theta", "mean", "worst", "best"], rows)
    default = label(tuple(LinearODMClassifier().get_params()[name] for name in ("lam", "mu", "theta")))  # type: ignore[arg-type]
    by_set = [[key, found["LinearSVC"], found[default]] for key, found in results.items() if default in found]
    show("As they come", ["set", "LinearSVC", f"LinearODMClassifier ({default})"], by_set)
    sets = np.array([key.split(",")[0] for key in results])
    left_out = []
    for name in dict.fromkeys(sets):
        best = int(gaps[sets != name].mean(axis=0).argmax())
        left_out.append([name, names[best], 100 * float(gaps[sets == name, best].mean())])
    show("Chosen on the other sets", ["set left out", "chosen", "points above LinearSVC"], left_out)
    save("odm_defaults", {"accuracy": results, "left_out": left_out})


if __name__ == "__main__":
    main()
