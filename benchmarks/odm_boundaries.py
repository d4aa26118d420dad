"""The largest smallest margin beside the best distribution of margins: a picture, and how often each is right.

    python benchmarks/odm_boundaries.py [--trials 200] [--rows 15]

Two long normal clouds of the same shape, a few rows of each. A support vector machine without errors has the largest
smallest margin; `LinearODMClassifier(mu=1, theta=0)` the best distribution. Their error on the clouds themselves is
known in closed form. Trials whose rows cannot be told apart by a line are drawn again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.svm import SVC

from common import save, show
from tithe.odm import LinearODMClassifier
from tithe.odm.plot import geometric_margins, two_boundaries
from tithe.plot.axes import drawn

TURN = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
COVARIANCE = TURN @ np.diag([0.36, 6.25]) @ TURN.T
MEANS = (TURN @ [-1.6, 0.0], TURN @ [1.6, 0.0])
HARD = 1e6  # C of a support vector machine that allows no errors
PICTURE = Path(__file__).parents[1] / "docs" / "_static" / "papers" / "margin_boundaries.png"
PICTURE_SEED = 12  # with 15 rows of each class, both errors are near their means over many trials


def rows(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.concatenate([rng.multivariate_normal(mean, COVARIANCE, size=n) for mean in MEANS])
    return X, np.repeat([0, 1], n)


def models(X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    return {
        "largest smallest margin": SVC(kernel="linear", C=HARD).fit(X, y),
        "best distribution": LinearODMClassifier(lam=1e4, mu=1.0, theta=0.0).fit(X, y),
    }


def error(model: Any) -> float:
    """The share of both clouds on the wrong side of the line."""
    coef, intercept = np.asarray(model.coef_)[0], float(model.intercept_[0])
    deviation = np.sqrt(coef @ COVARIANCE @ coef)
    wrong = [norm.cdf(sign * (coef @ mean + intercept) / deviation) for sign, mean in zip((1, -1), MEANS, strict=True)]
    return float(np.mean(wrong))


def trial(rng: np.random.Generator, n: int) -> dict[str, dict[str, float]]:
    while True:
        X, y = rows(rng, n)
        fitted = models(X, y)
        if fitted["largest smallest margin"].score(X, y) == 1.0:
            break
    outcome = {}
    for name, model in fitted.items():
        margins = geometric_margins(model, X, y)
        outcome[name] = {
            "smallest": margins.quantiles[0],
            "mean": margins.mean,
            "variance": margins.variance,
            "semi_variance": margins.semi_variance,
            "error": error(model),
        }
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rows", type=int, default=15, help="of each class")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    trials = [trial(rng, arguments.rows) for _ in range(arguments.trials)]
    names, keys = list(trials[0]), list(next(iter(trials[0].values())))
    means = {name: {key: float(np.mean([t[name][key] for t in trials])) for key in keys} for name in names}
    errors = np.array([[t[name]["error"] for name in names] for t in trials])
    gain = errors[:, 0] - errors[:, 1]
    show(
        f"means of {arguments.trials} trials of 2 x {arguments.rows} rows; margins are distances",
        ["boundary", "smallest margin", "mean", "variance", "semi-variance", "error on the clouds"],
        [[name, *means[name].values()] for name in names],
    )
    print(f"\nbest distribution errs less in {np.mean(gain > 0):.0%} of the trials, by {gain.mean():.4f} on average")
    print(f"(standard error {gain.std() / len(gain) ** 0.5:.4f}); no line errs less than {norm.cdf(-1.6 / 0.6):.4f}.")
    X, y = rows(np.random.default_rng(PICTURE_SEED), arguments.rows)
    normals = [(mean, COVARIANCE) for mean in MEANS]
    PICTURE.write_bytes(drawn(two_boundaries, models(X, y), X, y, normals=normals, width=6.0, height=5.4))
    save("odm_boundaries", {"trials": arguments.trials, "rows": arguments.rows, "means": means})


if __name__ == "__main__":
    main()
