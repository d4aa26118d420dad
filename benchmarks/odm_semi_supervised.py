"""Few labels: `SemiSupervisedODMClassifier` beside the machine of the labelled rows and beside scikit-learn's methods.

    python benchmarks/odm_semi_supervised.py --data DIR [--names spambase ...] [--rows 300] [--labels 10 50 100]

Test accuracy on up to 2,000 other rows, columns standardised, means of ``--seeds``. ``--rows`` rows are learned from,
some of them with a label: at least two of each class, the others drawn at random. The tables: accuracy by set and
number of labels; means and mean ranks; and what unlabelled rows bring, with and without ``safe``, and the sets on which
they make the machine worse. A run with the defaults takes some ten minutes.

``--large`` measures one fit of 100,000 unlabelled rows of Covertype and 500 labelled ones instead: processor time,
beside that of one supervised linear fit on as many rows as are kept, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from common import save, show
from tithe.odm import LinearODMClassifier, ODMClassifier, SemiSupervisedODMClassifier

SETS = (
    "australian diabetes german spambase phishing electricity eeg_eye_state occupancy_sensor higgs_subset skin_nonskin "
    "image_segments satimage pendigits"
)
TEST_ROWS = 2000
MIN_PER_CLASS = 2  # labels
LARGE_ROWS, LARGE_LABELS = 100_000, 500


METHODS = ("labelled rows only", "semi-supervised, safe", "semi-supervised", "SelfTrainingClassifier", "LabelSpreading")


def predictions(X: np.ndarray, given: np.ndarray, X_test: np.ndarray) -> list[np.ndarray]:
    """What each method predicts."""
    labelled = given >= 0
    safe = SemiSupervisedODMClassifier(random_state=0).fit(X, given)
    # where the safe one uses unlabelled rows, it is the same machine as without this choice
    semi = safe if safe.uses_unlabeled_ else SemiSupervisedODMClassifier(safe=False, random_state=0).fit(X, given)
    models = (
        ODMClassifier(random_state=0).fit(X[labelled], given[labelled]),
        safe,
        semi,
        SelfTrainingClassifier(LogisticRegression(max_iter=1000)).fit(X, given),
        LabelSpreading(kernel="knn", n_neighbors=10).fit(X, given),
    )
    return [model.predict(X_test) for model in models]


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


def accuracies(folder: Path, name: str, n_labels: int, n_rows: int, n_seeds: int) -> np.ndarray:
    """Test accuracy of each method, by seed: (seeds, methods)."""
    values = np.zeros((n_seeds, len(METHODS)))
    for seed in range(n_seeds):
        X, y, X_test, y_test = load(folder, name, seed, n_rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values[seed] = [np.mean(labels == y_test) for labels in predictions(X, hidden(y, n_labels, seed), X_test)]
    return values


def differences(results: dict[str, np.ndarray]) -> dict[str, Any]:
    """What unlabelled rows bring, in points of accuracy; names the sets where they make it worse."""
    summary: dict[str, Any] = {}
    for k, kind in ((1, "safe"), (2, "not safe")):
        gains = {name: 100.0 * (values[:, k] - values[:, 0]) for name, values in results.items()}
        means = np.array([gain.mean() for gain in gains.values()])
        error = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else np.nan
        print(f"Unlabelled rows ({kind}): {means.mean():+.2f} points of accuracy (standard error {error:.2f}).")
        worse = [f"{name} {gain.mean():+.1f} (seeds {gain.round(1).tolist()})" for name, gain in gains.items()]
        worse = [text for text, gain in zip(worse, gains.values(), strict=True) if gain.mean() < -0.5]
        print(f"  Worse by half a point or more: {', '.join(worse) or 'nowhere'}.\n")
        by_set = {name: float(gain.mean()) for name, gain in gains.items()}
        summary[kind] = {"mean": float(means.mean()), "standard error": float(error), "sets": by_set}
    return summary


def processor_time(work: Any, times: int) -> float:
    """The median of some runs, after a first one that may compile."""
    work()
    seconds = []
    for _ in range(times):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def large(folder: Path) -> None:
    with np.load(folder / "covtype.npz") as archive:
        order = np.random.default_rng(0).permutation(len(archive["y"]))[: LARGE_ROWS + LARGE_LABELS]
        X, y = archive["X"][order].astype(np.float64), (archive["y"][order] == 2).astype(int)
    X = StandardScaler().fit_transform(X)
    given = np.where(np.arange(len(y)) < LARGE_LABELS, y, -1)
    rows = []
    for kernel in ("linear", "rbf"):
        model = SemiSupervisedODMClassifier(kernel=kernel, random_state=0)
        seconds = processor_time(lambda model=model: model.fit(X, given), 3)
        n = len(model.sample_indices_)
        options = {"mu": model.mu, "theta": model.theta, "random_state": 0}
        linear = processor_time(lambda n=n, options=options: LinearODMClassifier(**options).fit(X[:n], y[:n]), 9)
        by_kernel = ODMClassifier(kernel="linear", **options)
        with_kernel = processor_time(lambda n=n, machine=by_kernel: machine.fit(X[:n], y[:n]), 3)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        accuracy = np.mean(model.transduction_[LARGE_LABELS:] == y[LARGE_LABELS:])
        rows.append([kernel, n, seconds, seconds / linear, seconds / with_kernel, memory, float(accuracy)])
    names = ["kernel", "rows kept", "seconds", "/ LinearODMClassifier", "/ ODMClassifier(linear)", "GB", "accuracy"]
    show(f"{LARGE_ROWS:,} unlabelled rows, {LARGE_LABELS} labels", names, rows)
    sizes = {"unlabelled": LARGE_ROWS, "labels": LARGE_LABELS}
    save("odm_semi_supervised_large", {**sizes, "fits": [dict(zip(names, row, strict=True)) for row in rows]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--names", nargs="*", default=SETS.split())
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--labels", type=int, nargs="*", default=[10, 50, 100])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    if options.large:
        large(options.data)
        return
    for n_labels in options.labels:
        results: dict[str, np.ndarray] = {}
        for name in options.names:
            results[name] = accuracies(options.data, name, n_labels, options.rows, options.seeds)
            print(name, results[name].mean(axis=0).round(3).tolist(), flush=True)
        means = np.array([values.mean(axis=0) for values in results.values()])
        show(f"{n_labels} labels of {options.rows} rows: test accuracy", ["set", *METHODS], [
            *([name, *(f"{value:.3f}" for value in row)] for name, row in zip(results, means, strict=True)),
            ["mean", *(f"{value:.3f}" for value in means.mean(axis=0))],
            ["mean rank", *(f"{rank:.2f}" for rank in rankdata(-means.round(4), axis=1).mean(axis=0))],
        ])  # fmt: skip
        summary: dict[str, Any] = {"methods": METHODS, "rows": options.rows, "points": differences(results)}
        summary["mean"] = dict(zip(METHODS, means.mean(axis=0).tolist(), strict=True))
        summary["accuracy"] = {name: values.tolist() for name, values in results.items()}
        save(f"odm_semi_supervised_{n_labels}", summary)


if __name__ == "__main__":
    main()
