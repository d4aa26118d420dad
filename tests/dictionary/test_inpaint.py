"""Missing pixels, and the masked pursuit that fills them in."""

from __future__ import annotations

import numpy as np
import pytest

from tithe.core.parallel import limit_threads
from tithe.dictionary import ImageDenoiser
from tithe.dictionary.noise import psnr
from tithe.dictionary.patch_kernels import complete_rows


def waves(shape: tuple[int, int]) -> np.ndarray:
    y, x = np.mgrid[: shape[0], : shape[1]]
    return 120 + 50 * np.sin(x / 5.0) + 40 * np.cos((x + y) / 7.0) + 0.3 * y


def denoiser(**options) -> ImageDenoiser:
    few = {"sigma": 0.0, "n_components": 64, "coreset_size": 2000, "max_iter": 5, "random_state": 0}
    return ImageDenoiser(**{**few, **options})


def test_masked_pursuit_equals_least_squares_on_the_chosen_atoms(rng) -> None:
    """One atom: the best of all by brute force, together with a constant, on the known entries."""
    atoms = rng.normal(size=(20, 25))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    X, known = rng.normal(size=(40, 25)), rng.random((40, 25)) < 0.7
    outcome = complete_rows(X, known.astype(np.uint8), atoms, n_nonzero=1)
    for row, mask, result in zip(X, known, outcome, strict=True):
        best = None
        for atom in atoms:
            both = np.stack([np.ones(25), atom], axis=1)
            x, *_ = np.linalg.lstsq(both[mask], row[mask], rcond=None)
            error = ((row[mask] - both[mask] @ x) ** 2).sum()
            if best is None or error < best[0]:
                best = error, both @ x
        np.testing.assert_allclose(result, best[1], atol=1e-9)


@pytest.mark.bits
def test_rows_of_few_atoms_are_completed_exactly(rng) -> None:
    atoms = rng.normal(size=(12, 64))
    atoms -= atoms.mean(axis=1, keepdims=True)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    codes = np.zeros((3000, 12))
    codes[np.arange(3000), rng.integers(12, size=3000)] = 3.0
    codes[np.arange(3000), rng.integers(12, size=3000)] += 2.0
    X = codes @ atoms + rng.normal(size=(3000, 1))
    known = rng.random(X.shape) < 0.8
    spoiled = np.where(known, X, 1e6)
    results = []
    for threads in (1, 3):
        with limit_threads(threads):
            results.append(complete_rows(spoiled, known.astype(np.uint8), atoms, n_nonzero=4))
    assert (np.abs(results[0] - X).max(axis=1) < 1e-6).mean() > 0.99
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("missing", [0.25, 0.6])
def test_missing_pixels_come_back(rng, missing) -> None:
    clean = waves((64, 80))
    mask = rng.random(clean.shape) < missing
    spoiled = np.where(mask, np.nan, clean)
    result = denoiser().fit_inpaint(spoiled, mask)
    np.testing.assert_array_equal(result[~mask], clean[~mask])
    assert psnr(result[mask], clean[mask], largest=255) > 30
    mean_filled = np.where(mask, clean[~mask].mean(), clean)
    assert psnr(result, clean, largest=255) > psnr(mean_filled, clean, largest=255) + 15


def test_a_hole_larger_than_a_patch_closes_from_its_edges() -> None:
    clean = waves((60, 60))
    mask = np.zeros(clean.shape, bool)
    mask[20:40, 22:44] = True
    hole = np.where(mask, 0.0, clean)
    results = [denoiser(random_state=seed).fit_inpaint(hole, mask) for seed in range(3)]
    assert np.isfinite(results).all()
    errors = [np.abs(result - clean)[mask].mean() for result in results]
    assert np.median(errors) < 0.45 * np.abs(clean[~mask].mean() - clean)[mask].mean()


def test_colour_of_8_bits(rng) -> None:
    grey = waves((50, 50)).clip(0, 255)
    clean = np.stack([grey, 255 - grey, grey / 2], axis=2).astype(np.uint8)
    mask = rng.random((50, 50)) < 0.4
    spoiled = clean.copy()
    spoiled[mask] = 0
    model = denoiser().fit(clean)
    result = model.inpaint(spoiled, mask)
    assert result.dtype == np.uint8 and psnr(result, clean) > 35
    np.testing.assert_array_equal(model.inpaint(clean, np.zeros((50, 50), bool)), clean)


def test_bad_masks() -> None:
    model = denoiser().fit(waves((40, 40)))
    for mask, says in (
        (np.zeros((4, 4), bool), "shape"),
        (np.zeros((40, 40)), "bool"),
        (np.ones((40, 40), bool), "nothing to fill"),
    ):
        with pytest.raises(ValueError, match=says):
            model.inpaint(waves((40, 40)), mask)
    image = waves((40, 40))
    image[3, 3] = np.nan
    with pytest.raises(ValueError, match="row 3 and column 3"):
        model.inpaint(image, np.eye(40, k=1, dtype=bool))
