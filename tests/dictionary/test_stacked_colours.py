"""Patches that hold all colours of a place, and the parameters that `ImageDenoiser` passes on."""

from __future__ import annotations

import numpy as np
import pytest

from tithe import load_model, save_model
from tithe.core.data import concat
from tithe.dictionary import ImageDenoiser
from tithe.dictionary.patches import PatchSource
from tithe.dictionary.pictures import as_colors, atoms_picture
from tithe.dictionary.solver import stacked_cosines


@pytest.fixture
def picture() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.kron(rng.uniform(50, 200, size=(5, 6, 3)), np.ones((8, 8, 1)))


def denoiser(**options) -> ImageDenoiser:
    options = {"n_components": 40, "coreset_size": 400, "max_iter": 3, "refine_iter": 0, "patch_size": 6} | options
    return ImageDenoiser(20.0, data_range=255.0, random_state=0, **options)


def test_rows_of_stacked_colours() -> None:
    """They are the colours of a patch, each less its mean, but for the rotation to planes and back."""
    image = np.random.default_rng(0).integers(0, 256, size=(14, 11, 3), dtype=np.uint8)
    source = PatchSource(image, patch_size=4, stacked=True)
    assert (source.n_rows, source.n_features) == (11 * 8, 48)
    rows = concat([task() for task in source.tasks(leaf_rows=30)])
    colours = as_colors(np.moveaxis(rows.X.reshape(-1, 3, 16).astype(float), 1, 2))
    want = np.array([image[y : y + 4, x : x + 4].reshape(16, 3) for y in range(11) for x in range(8)], float)
    want -= want.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(colours, want, atol=1e-3)
    some = source.sample(40, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(some.X, rows.X[some.row_ids()])
    assert source.identity != PatchSource(image, patch_size=4).identity


def test_stacked_colours_are_denoised(picture, tmp_path) -> None:
    noisy = (picture + 20 * np.random.default_rng(1).normal(size=picture.shape)).astype(np.float32)
    model = denoiser(colours="stacked").fit(noisy)
    assert model.components_.shape == (40, 108)
    better = model.denoise(noisy)
    assert np.std(better - picture) < 0.5 * np.std(noisy - picture)
    save_model(model, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").denoise(noisy), better)
    assert atoms_picture(model.components_).shape[2:] == (3,)
    with pytest.raises(ValueError, match="stacked colours need pictures in colour"):
        model.denoise(noisy[..., 0])
    with pytest.raises(ValueError, match="colours='planes'"):
        model.inpaint(noisy, np.zeros(noisy.shape[:2], bool))


def test_stacked_patches_of_a_grey_picture_are_its_patches(picture) -> None:
    noisy = picture[..., 0] + 20 * np.random.default_rng(1).normal(size=picture.shape[:2])
    a, b = (denoiser(colours=name).fit(noisy).denoise(noisy) for name in ("planes", "stacked"))
    np.testing.assert_array_equal(a, b)


def test_averages_of_stacked_patches(picture) -> None:
    """x = (lambda y + sum of the coded patches) / (lambda + count), by brute force in the planes."""
    rng = np.random.default_rng(1)
    noisy = (picture[:14, :12] + 20 * rng.normal(size=(14, 12, 3))).astype(np.float64)
    model = denoiser(colours="stacked", n_components=20).fit(noisy)
    total, count = np.zeros_like(noisy), np.zeros((*noisy.shape[:2], 1))
    for y in range(14 - 5):
        for x in range(12 - 5):
            patch = noisy[y : y + 6, x : x + 6].reshape(1, 6, 6, 3)
            rows = PatchSource(patch[0], patch_size=6, stacked=True).sample(1, rng=rng).X
            rest = rows - model.learner_.reconstruct(rows)
            total[y : y + 6, x : x + 6] += patch[0] - as_colors(np.moveaxis(rest.reshape(3, 6, 6), 0, 2))
            count[y : y + 6, x : x + 6] += 1
    weight = 30.0 / 20.0
    np.testing.assert_allclose(model.denoise(noisy), (weight * noisy + total) / (weight + count), atol=2e-3)


def test_cosines_of_stacked_planes() -> None:
    for k in (3, 10, 100):
        atoms = stacked_cosines(k, 4)
        np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1.0)
        assert atoms.shape == (k, 48) and (np.count_nonzero(atoms.reshape(k, 3, 16).any(axis=2), axis=1) == 1).all()


def test_parameters_of_the_draw_and_the_search(picture) -> None:
    noisy = picture[..., 0] + 20 * np.random.default_rng(1).normal(size=picture.shape[:2])
    learner = denoiser(variant="plain").fit(noisy).learner_
    assert learner.variant == "plain" and learner.certificate_ is None
    with pytest.raises(ValueError, match="colours"):
        denoiser(colours="both").fit(noisy)
