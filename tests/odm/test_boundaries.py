from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib import image
from sklearn.svm import SVC

from tithe.odm import LinearODMClassifier
from tithe.odm.plot import _ellipse, geometric_margins, two_boundaries
from tithe.plot.axes import drawn


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(4)
    y = np.repeat(["left", "right"], 25)
    X = rng.normal(size=(50, 2)) * [0.6, 2.0] + np.where(y == "left", -2.5, 2.5)[:, None] * [1.0, 0.0]
    models = {"smallest": SVC(kernel="linear", C=1e6).fit(X, y), "ODM": LinearODMClassifier(1e4, 1.0, 0.0).fit(X, y)}
    return models, X, y


def test_margins_are_distances_from_the_line(problem) -> None:
    models, X, y = problem
    for model in models.values():
        (a, b), c = model.coef_[0], float(model.intercept_[0])
        distance = np.array([(a * x + b * z + c) / np.hypot(a, b) for x, z in X]) * np.where(y == "right", 1.0, -1.0)
        margins = geometric_margins(model, X, y)
        assert margins.quantiles[0] == pytest.approx(distance.min())
        assert (margins.mean, margins.variance) == pytest.approx((distance.mean(), distance.var()))
    # each is the best at what it optimises
    smallest, odm = (geometric_margins(model, X, y) for model in models.values())
    assert smallest.quantiles[0] > odm.quantiles[0]
    assert odm.variance / odm.mean**2 < smallest.variance / smallest.mean**2


def test_the_figure_shows_every_line(problem) -> None:
    models, X, y = problem
    normals = [([-2.5, 0.0], np.diag([0.36, 4.0])), ([2.5, 0.0], np.diag([0.36, 4.0]))]
    one = {"smallest": models["smallest"]}
    pictures = [
        image.imread(io.BytesIO(drawn(two_boundaries, some, X, y, normals=normals, height=6.0)))
        for some in (one, models)
    ]
    assert pictures[0].shape[1] > 600 and pictures[0].std() > 0.02
    second = np.array([0xD5, 0x8A, 0x3C]) / 255
    lines = [np.all(np.abs(picture[..., :3] - second) < 0.02, axis=-1).sum() for picture in pictures]
    assert lines[0] == 0 and lines[1] > 200, "a boundary has its own colour"


def test_an_ellipse_is_two_standard_deviations_wide() -> None:
    mean, covariance = np.array([1.0, -2.0]), np.array([[4.0, 1.0], [1.0, 2.0]])
    gap = _ellipse(mean, covariance) - mean[:, None]
    np.testing.assert_allclose(np.einsum("in,ij,jn->n", gap, np.linalg.inv(covariance), gap), 4.0)


def test_other_problems_are_refused(problem) -> None:
    models, X, y = problem
    with pytest.raises(ValueError, match="two columns"):
        two_boundaries(models, X[:, :1], y)
    with pytest.raises(ValueError, match="two classes"):
        two_boundaries(models, X, np.arange(50) % 3)
    two_boundaries(models, X, y.tolist(), normals=[([0.0, 0.0], np.diag([1.0, 0.0]))])  # a flat ellipse is a line
    three = LinearODMClassifier().fit(X, np.arange(50) % 3)
    with pytest.raises(ValueError, match="linear classifier of two classes"):
        geometric_margins(three, X, y)
