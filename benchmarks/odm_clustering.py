"""Clusters: `ODMClustering` beside k-means, spectral clustering and Gaussian mixtures, without and with links.

    python benchmarks/odm_clustering.py --data DIR [--names spambase ...] [--rows 200] [--links 0 1 5 10]

Agreement of clusters with classes on ``--rows`` rows of each set with two classes, columns standardised, and on
generated moons and rings; means of ``--seeds``. Accuracy is that of the best matching of clusters and classes; ARI and
NMI are scikit-learn's. ``--links`` are pairs of rows as a share of the rows, in per cent: must-links within classes and
cannot-links between them, drawn at random; only `ODMClustering` uses them (and COP-k-means, if the package
``active-semi-supervised-clustering`` is installed). The last line of a table is the mean rank by ARI. A run with the
defaults takes some ten minutes.
"""

from __future__ import annotations

import argparse
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from common import save, show
from tithe.odm import ODMClustering

SETS = (
    "moons rings australian diabetes german spambase phishing electricity eeg_eye_state occupancy_sensor higgs_subset "
    "skin_nonskin"
)
COP_TRIES = 3


def load(folder: Path, name: str, n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if name == "moons":
        return make_moons(n_rows, noise=0.06, random_state=seed)
    if name == "rings":
        return make_circles(n_rows, noise=0.05, factor=0.4, random_state=seed)
    with np.load(folder / f"{name}.npz") as archive:
        X, y = archive["X"], archive["y"]
    rows = np.random.default_rng(seed).permutation(len(y))[:n_rows]
    return StandardScaler().fit_transform(np.asarray(X[rows], np.float64)), (y[rows] == y.max()).astype(int)


def drawn_links(y: np.ndarray, percent: float, seed: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Distinct pairs of rows, those within a class and those between classes."""
    rng, pairs = np.random.default_rng([seed, 2]), set()
    while len(pairs) < round(percent / 100 * len(y)):
        i, j = sorted(rng.choice(len(y), 2, replace=False).tolist())
        pairs.add((i, j))
    return [p for p in sorted(pairs) if y[p[0]] == y[p[1]]], [p for p in sorted(pairs) if y[p[0]] != y[p[1]]]


def methods(must: Any, cannot: Any) -> dict[str, Any]:
    links = {"must_link": must or None, "cannot_link": cannot or None, "random_state": 0}
    chosen = {
        "ODMClustering": lambda X: ODMClustering(**links).fit(X).labels_,
        "with an intercept": lambda X: ODMClustering(fit_intercept=True, lam=1000.0, **links).fit(X).labels_,
        "k-means": lambda X: KMeans(2, n_init=10, random_state=0).fit_predict(X),
        "spectral": lambda X: SpectralClustering(2, affinity="nearest_neighbors", random_state=0).fit_predict(X),
        "mixture": lambda X: GaussianMixture(2, n_init=5, reg_covar=1e-3, random_state=0).fit_predict(X),
    }
    return (
        chosen if find_spec("active_semi_clustering") is None else {**chosen, "COP-k-means": cop_k_means(must, cannot)}
    )


def cop_k_means(must: Any, cannot: Any) -> Any:
    """k-means that obeys the links, the cheapest of some tries; a single cluster where no try obeys them."""
    with np.errstate():  # the package makes NumPy raise errors everywhere
        from active_semi_clustering.exceptions import ClusteringNotFoundException, EmptyClustersException
        from active_semi_clustering.semi_supervised.pairwise_constraints.copkmeans import COPKMeans

    def cluster(X: np.ndarray) -> np.ndarray:
        np.random.seed(0)  # noqa: NPY002 (it takes random numbers from there)
        best, labels = np.inf, np.zeros(len(X), int)
        for _ in range(COP_TRIES):
            try:
                model = COPKMeans(2).fit(X, ml=must, cl=cannot)
            except (ClusteringNotFoundException, EmptyClustersException):
                continue
            cost = float(np.square(X - model.cluster_centers_[model.labels_]).sum())
            if cost < best:
                best, labels = cost, model.labels_
        return labels

    return cluster


def agreement(y: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    same = float(np.mean(labels == y))
    return max(same, 1.0 - same), adjusted_rand_score(y, labels), normalized_mutual_info_score(y, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--names", nargs="*", default=SETS.split())
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--links", type=float, nargs="*", default=[0, 1, 5, 10])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for percent in options.links:
        results: dict[str, dict[str, list[float]]] = {}
        for name in options.names:
            scores: dict[str, list[tuple[float, float, float]]] = {}
            for seed in range(options.seeds):
                X, y = load(options.data, name, options.rows, seed)
                for method, cluster in methods(*drawn_links(y, percent, seed)).items():
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        scores.setdefault(method, []).append(agreement(y, cluster(X)))
            results[name] = {method: np.mean(values, axis=0).tolist() for method, values in scores.items()}
            print(name, {method: round(values[1], 3) for method, values in results[name].items()}, flush=True)
        columns = list(next(iter(results.values())))
        ari = np.array([[row[method][1] for method in columns] for row in results.values()])
        ranks = rankdata(-ari.round(3), axis=1).mean(axis=0)
        show(f"{percent:g} % of links: accuracy / ARI / NMI", ["set", *columns], [
            *([name, *(" / ".join(f"{v:.2f}" for v in row[m]) for m in columns)] for name, row in results.items()),
            ["mean ARI", *(f"{value:.3f}" for value in ari.mean(axis=0))],
            ["mean rank", *(f"{rank:.2f}" for rank in ranks)],
        ])  # fmt: skip
        save(f"odm_clustering_{percent:g}", {"rows": options.rows, "agreement": results})


if __name__ == "__main__":
    main()
