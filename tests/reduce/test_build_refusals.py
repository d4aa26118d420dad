"""What `build_coreset` refuses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from tithe import build_coreset
from tithe.objectives import KMeansObjective

KMEANS = KMeansObjective(n_clusters=4)


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(6000, 3)) + rng.choice([0.0, 9.0], (6000, 1))


@pytest.mark.parametrize("size", [0, -3, 1.5, 1.0, 0.0, "x", None, True, float("nan")])
def test_bad_sizes(X: np.ndarray, size: object) -> None:
    with pytest.raises(ValueError, match="coreset_size"):
        build_coreset(X, objective=KMEANS, coreset_size=size)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["dense", "float32", "csr", "pandas"])
def test_rows_that_are_not_finite(X: np.ndarray, bad: float, kind: str) -> None:
    X = X.astype(np.float32) if kind == "float32" else X.copy()
    X[123, 1] = bad
    rows = {"csr": sparse.csr_matrix(X), "pandas": pd.DataFrame(X)}.get(kind, X)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        build_coreset(rows, objective=KMEANS, coreset_size=100)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(6000, -1.0), "[Nn]egative"),
        (np.zeros(6000), "zero"),
        (np.ones(5), "shape|inconsistent"),
        (np.r_[np.nan, np.ones(5999)], "NaN"),
        (np.r_[np.inf, np.ones(5999)], "infinity"),
    ],
)
def test_bad_weights(X: np.ndarray, weight: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_coreset(X, sample_weight=weight, objective=KMEANS, coreset_size=100)


def test_bad_shapes_and_types(X: np.ndarray) -> None:
    for bad, message in (
        (np.zeros((0, 3)), "with 0 sample"),
        (np.zeros((3, 0)), "with 0 feature"),
        (np.zeros(3), "Expected 2D array, got 1D"),
        ("rows.csv", "got str. Files are opened with tithe.open_dataset"),
        (5, "got int"),
        (np.zeros((2, 2, 2)), "dim 3"),
    ):
        with pytest.raises(ValueError, match=message):
            build_coreset(bad, objective=KMEANS, coreset_size=10)
    with pytest.raises(ValueError, match="y has 5"):
        build_coreset(X, np.zeros(5), objective=KMEANS, coreset_size=10)
    with pytest.raises(ValueError, match="'name' is not numeric"):
        build_coreset(pd.DataFrame({"a": [1.0], "name": ["x"]}), objective=KMEANS, coreset_size=10, encode=False)
    with pytest.raises(ValueError, match="come in the batches"):
        build_coreset(iter([X]), np.zeros(6000), objective=KMEANS, coreset_size=10)


def test_bad_batches(X: np.ndarray) -> None:
    def build(batches) -> None:
        build_coreset(batches, objective=KMEANS, coreset_size=10)

    for empty in ([], iter([]), [np.zeros((0, 3))]):
        with pytest.raises(ValueError, match=r"empty|at least one|minimum"):
            build(empty)
    with pytest.raises(ValueError, match="Batch 1 has 2 columns"):
        build([X, X[:, :2]])
    with pytest.raises(ValueError, match=r"Batch 2: .*NaN"):
        build([X, X, np.full((2, 3), np.nan)])
    with pytest.raises(ValueError, match="Batch 1 has no y"):
        build([(X, np.zeros(6000)), X])
    with pytest.raises(ValueError, match="Batch 1 is float64, which does not fit"):
        build([X.astype(np.float32), X])
    with pytest.raises(ValueError, match="Batch 1 is sparse"):
        build([X, sparse.csr_matrix(X)])
    with pytest.raises(ValueError, match="Batch 1 has a y of"):
        build([(X, np.zeros(6000)), (X, np.full(6000, "a"))])
    with pytest.raises(ValueError, match="must be an integer here"):
        build_coreset(iter([X]), objective=KMEANS, coreset_size=0.1)


def test_unknown_names(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match="Did you mean 'kmeans'"):
        build_coreset(X, objective="kmean", coreset_size=10)
    with pytest.raises(ValueError, match="no construction"):
        build_coreset(X, objective=KMEANS, construction="magic", coreset_size=10)
    with pytest.raises(ValueError, match="no engine"):
        build_coreset(X, objective=KMEANS, engine="magic", coreset_size=10)
