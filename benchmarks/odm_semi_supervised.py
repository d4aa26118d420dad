"""Few labels: `SemiSupervisedODMClassifier` beside the machine of the labelled rows and beside scikit-learn's methods.

    python benchmarks/odm_semi_supervised.py --data DIR [--names spambase ...] [--rows 400] [--labels 10 50 100]

Test accuracy on up to 2,000 other rows, columns standardised, means of the seeds. ``--rows`` rows are learnt from, of
which some have a label: at least two of each class, the others drawn at random. The tables: accuracy by set and number
of labels; means and mean ranks; and the sets on which unlabelled rows make the machine worse, with and without
``safe``.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from common import save, show
from tithe.odm import ODMClassifier, SemiSupervisedODMClassifier

SETS = (
    "australian diabetes german spambase phishing electricity eeg_eye_state occupancy_sensor higgs_subset skin_nonskin "
    "image_segments satimage pendigits"
)
TEST_ROWS = 2000
MIN_PER_CLASS = 2  # labels


class Supervised:
    """`ODMClassifier` on the labelled rows only."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> ODMClassifier:
        return ODMClassifier(random_state=0).fit(X[y >= 0], y[y >= 0])


METHODS: dict[str, Any] = {
    "labelled rows only": Supervised,
    "semi-supervised, safe": lambda: SemiSupervisedODMClassifier(random_state=0),
    "semi-supervised": lambda: SemiSupervisedODMClassifier(safe=False, random_state=0),
    "SelfTrainingClassifier": lambda: SelfTrainingClassifier(LogisticRegression(max_iter=1000)),
    "LabelSpreading": lambda: LabelSpreading(kernel="knn", n_neighbors=10),
}


def load(folder: Path, name: str, seed: int, rows: int) -> tuple[np.ndarray, ...]:
    """Rows to learn from, their classes, and the same for testing."""
    with np.load(folder / f"{name}.npz") as archive:
        X, y = archive["X"], np.unique(archive["y"], return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(len(y))[: rows + TEST_ROWS]
    X = StandardScaler().fit_transform(np.asarray(X[order], np.float64))
    return X[:rows], y[order[:rows]], X[rows:], y[order[rows:]]


def hidden(y: np.ndarray, n_labels: int, seed: int) -> np.ndarray:
    """y with -1 for all rows but ``n_labels``, or two of each class if that is more."""
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    chosen = np.concatenate([order[y[order] == k][:MIN_PER_CLASS] for k in np.unique(y)])
    others = order[~np.isin(order, chosen)]
    chosen = np.concatenate([chosen, others[: max(0, n_labels - len(chosen))]])
    given = np.full(len(y), -1)
    given[chosen] = y[chosen]
    return given


def accuracies(folder: Path, name: str, n_labels: int, n_rows: int, n_seeds: int) -> list[float]:
    totals = np.zeros((n_seeds, len(METHODS)))
    for seed in range(n_seeds):
        X, y, X_test, y_test = load(folder, name, seed, n_rows)
        given = hidden(y, n_labels, seed)
        for k, method in enumerate(METHODS.values()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                totals[seed, k] = np.mean(method().fit(X, given).predict(X_test) == y_test)
    return totals.mean(axis=0).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--names", nargs="*", default=SETS.split())
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--labels", type=int, nargs="*", default=[10, 50, 100])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for n_labels in options.labels:
        results: dict[str, list[float]] = {}
        for name in options.names:
            results[name] = accuracies(options.data, name, n_labels, options.rows, options.seeds)
            print(name, np.round(results[name], 3).tolist(), flush=True)
        values = np.array(list(results.values()))
        show(f"{n_labels} labels of {options.rows} rows: test accuracy", ["set", *METHODS], [
            [name, *(f"{value:.3f}" for value in row)] for name, row in results.items()
        ] + [
            ["mean", *(f"{value:.3f}" for value in values.mean(axis=0))],
            ["mean rank", *(f"{rank:.2f}" for rank in rankdata(-values, axis=1).mean(axis=0))],
        ])  # fmt: skip
        for k, kind in ((1, "safe"), (2, "not safe")):
            worse = [name for name, row in results.items() if row[k] < row[0] - 0.005]
            print(f"Unlabelled rows make it worse by half a point or more ({kind}): {', '.join(worse) or 'nowhere'}.\n")
        save(f"odm_semi_supervised_{n_labels}", {"methods": list(METHODS), "rows": options.rows, "accuracy": results})


if __name__ == "__main__":
    main()
