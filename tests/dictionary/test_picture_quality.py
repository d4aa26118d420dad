"""Noise estimates, PSNR and SSIM."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import KDTree

from tithe.dictionary.noise import _from_flat_blocks, estimate_sigma, psnr, ssim


def smooth(shape: tuple[int, ...]) -> np.ndarray:
    y, x = np.mgrid[: shape[0], : shape[1]]
    image = 128 + 60 * np.sin(x / 17.0) * np.cos(y / 23.0) + 30 * (x > 100)
    return image if len(shape) == 2 else np.stack([image, 255 - image, 0.5 * image + 60], axis=2)


@pytest.mark.parametrize("shape", [(200, 240), (200, 240, 3)])
@pytest.mark.parametrize("sigma", [5.0, 10.0, 25.0, 50.0])
def test_noise_is_found_within_five_percent(rng, shape, sigma) -> None:
    noisy = smooth(shape) + sigma * rng.normal(size=shape)
    assert estimate_sigma(noisy) == pytest.approx(sigma, rel=0.05)
    assert estimate_sigma(noisy * 257) == pytest.approx(sigma * 257, rel=0.05)
    assert estimate_sigma(noisy.clip(0, 255).round().astype(np.uint8)) == pytest.approx(sigma, rel=0.05)


def test_dark_parts_where_noise_was_cut_off_do_not_count(rng) -> None:
    image = np.full((256, 256), 120.0)
    image[:, :150] = 2.0
    noisy = (image + 20 * rng.normal(size=image.shape)).clip(0, 255).round().astype(np.uint8)
    assert estimate_sigma(noisy) == pytest.approx(20.0, rel=0.06)


@pytest.mark.parametrize("level", [20.0, 235.0])
@pytest.mark.parametrize("colours", [False, True])
def test_noise_that_was_cut_off_everywhere_is_found(rng, level, colours) -> None:
    image = np.full((256, 256, 3) if colours else (256, 256), level)
    noisy = (image + 40 * rng.normal(size=image.shape)).clip(0, 255).round()
    assert estimate_sigma(noisy.astype(np.uint8)) == pytest.approx(40.0, rel=0.08)
    assert estimate_sigma((257 * noisy).astype(np.uint16)) == pytest.approx(257 * 40.0, rel=0.08)


def test_no_noise() -> None:
    assert estimate_sigma(np.full((64, 64), 9, np.uint8)) == 0.0


def dense_cartoon(side: int, *, cell: int, colours: bool = False) -> np.ndarray:
    """Flat cells of many shapes with dark outlines, about ``cell`` pixels wide, each of its own shade."""
    rng = np.random.default_rng(3)
    n_cells = (side // cell) ** 2
    centres, shades = rng.uniform(0, side, size=(n_cells, 2)), rng.uniform(20, 235, size=(n_cells, 3))
    distance, nearest = KDTree(centres).query(np.argwhere(np.ones((side, side))), k=2)
    pixels = shades[nearest[:, 0]]
    pixels[distance[:, 1] - distance[:, 0] < 2.0] = 10.0
    return pixels.reshape(side, side, 3) if colours else pixels[:, 0].reshape(side, side)


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("sigma", [5.0, 10.0, 25.0])
def test_noise_between_dense_edges_is_found(rng, sigma, colours) -> None:
    # hardly any block of 22 x 22 pixels is without an edge
    clean = dense_cartoon(256, cell=14, colours=colours)
    noisy = clean + sigma * rng.normal(size=clean.shape)
    assert estimate_sigma(noisy) == pytest.approx(sigma, rel=0.05)


@pytest.mark.parametrize(("shape", "tolerance"), [((1024, 1024), 0.01), ((512, 512, 3), 0.01), ((96, 96, 3), 0.05)])
def test_pure_noise_is_estimated_without_bias(rng, shape, tolerance) -> None:
    assert estimate_sigma(rng.normal(size=shape)) == pytest.approx(1.0, rel=tolerance)


@pytest.mark.parametrize("n_coefficients", [58, 64])
@pytest.mark.parametrize("flat", [0.05, 0.3, 1.0])
def test_blocks_with_more_than_noise_in_them_do_not_change_the_estimate(rng, n_coefficients, flat) -> None:
    n = 20_000
    n_flat = int(flat * n)
    squares = 9.0 * rng.chisquare(n_coefficients, size=n) / n_coefficients
    squares[n_flat:] += rng.uniform(9.0, 1000.0, size=n - n_flat)
    variance, error = _from_flat_blocks(squares, n_coefficients)
    assert abs(variance / 9.0 - 1.0) <= 4.0 * error
    assert error < 0.05


def test_the_standard_error_of_an_estimate_is_right(rng) -> None:
    runs = [_from_flat_blocks(rng.chisquare(58, size=1000) / 58, 58) for _ in range(300)]
    variances, errors = np.transpose(runs)
    assert np.std(variances) == pytest.approx(errors.mean(), rel=0.2)
    assert variances.mean() == pytest.approx(1.0, abs=0.005)


def test_noise_on_a_gradient_and_in_texture(rng) -> None:
    y, x = np.mgrid[:256, :256]
    gradient = 0.4 * x + 0.3 * y + 0.001 * x * y
    assert estimate_sigma(gradient + 5 * rng.normal(size=gradient.shape)) == pytest.approx(5.0, rel=0.03)
    # waves of 9 pixels all over, up to three times as strong as the noise
    texture = 128 + 15 * np.sin(2 * np.pi * (x + 0.4 * y) / 9) * np.cos(2 * np.pi * (y - 0.3 * x) / 11)
    assert estimate_sigma(texture + 5 * rng.normal(size=texture.shape)) == pytest.approx(5.0, rel=0.08)


def test_a_border_without_noise_does_not_count(rng) -> None:
    noisy = 100 + 10 * rng.normal(size=(320, 320))
    noisy[:16] = 128.0
    assert estimate_sigma(noisy) == pytest.approx(10.0, rel=0.03)


def test_psnr(rng) -> None:
    image = rng.integers(0, 256, size=(600, 20), dtype=np.uint8)
    assert psnr(image, image) == np.inf
    assert psnr(image + 50.0, image) == pytest.approx(20 * np.log10(255 / 50))
    with pytest.raises(ValueError, match="differ in shape"):
        psnr(image, image[1:])


def test_ssim_is_one_for_equal_pictures_and_refuses_tiny_ones(rng) -> None:
    image = rng.random((40, 50))
    assert ssim(image, image) == pytest.approx(1.0)
    assert ssim(image, 1 - image) < 0.0
    with pytest.raises(ValueError, match="smaller than the window"):
        ssim(image[:10], image[:10])


@pytest.mark.parametrize("shape", [(60, 80), (300, 33, 3)])
def test_ssim_agrees_with_scikit_image(rng, shape) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    image = smooth(shape).clip(0, 255).astype(np.uint8)
    other = (image + 20 * rng.normal(size=shape)).clip(0, 255).astype(np.uint8)
    theirs = metrics.structural_similarity(
        image, other, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255,
        channel_axis=2 if len(shape) == 3 else None,
    )  # fmt: skip
    assert ssim(image, other) == pytest.approx(theirs, abs=1e-4)
    assert psnr(image, other) == pytest.approx(metrics.peak_signal_noise_ratio(image, other), abs=1e-9)


def test_a_grey_picture_in_three_channels_has_noise() -> None:
    """Its colours are exactly zero; the noise of three equal channels adds up in their common plane."""
    grey = np.random.default_rng(0).normal(100.0, 10.0, size=(128, 128))
    assert estimate_sigma(np.stack([grey] * 3, axis=2)) == pytest.approx(np.sqrt(3.0) * estimate_sigma(grey), rel=1e-5)
