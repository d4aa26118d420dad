"""Noise that was cut off at black and white."""

from __future__ import annotations

import numpy as np
import pytest

from tithe import load_model, save_model
from tithe.core.parallel import limit_threads
from tithe.dictionary import ImageDenoiser
from tithe.dictionary.noise import ClippedNoise, find_clipping, kept_variance, moments, psnr
from tithe.dictionary.patches import Coder, PatchSource, averaged
from tithe.dictionary.pictures import Planes


def stairs(colours: bool = False) -> np.ndarray:
    """From black to white, with an edge: (96, 120) in 0..255."""
    image = np.repeat(np.linspace(0, 255, 12).repeat(10)[None], 96, axis=0)
    image[48:] = 255 - image[48:]
    return np.stack([image, image[::-1], 0.2 * image], axis=2) if colours else image


def saved(clean: np.ndarray, sigma: float) -> np.ndarray:
    return (clean + sigma * np.random.default_rng(2).normal(size=clean.shape)).clip(0, 255).round().astype(np.uint8)


def denoiser(sigma: float | None = 50.0, **options) -> ImageDenoiser:
    return ImageDenoiser(sigma, **{"n_components": 64, "coreset_size": 2000, "random_state": 0, **options})


def test_moments_are_those_of_many_numbers(rng) -> None:
    z = rng.normal(size=400_000)
    for low, high in ((-8.0, 8.0), (0.0, 8.0), (-0.5, 0.7), (-8.0, -1.0), (-3.0, 1.0)):
        mean, variance = moments(np.array(low), np.array(high))
        assert mean == pytest.approx(z.clip(low, high).mean(), abs=0.01)
        assert variance == pytest.approx(z.clip(low, high).var(), abs=0.01)
    assert kept_variance(np.zeros(1), np.zeros(1))[0] == pytest.approx(1.0)
    cut = z.clip(-0.3, 1.2)
    shares = (np.array([(cut == end).mean()]) for end in (-0.3, 1.2))
    assert kept_variance(*shares)[0] == pytest.approx(cut.var(), abs=0.01)


@pytest.mark.parametrize(("black", "white"), [(True, True), (True, False), (False, True)])
def test_averages_are_undone(rng, black, white) -> None:
    noise = ClippedNoise(40.0, 255.0, black=black, white=white)
    x = np.array([0.0, 10.0, 60.0, 128.0, 200.0, 250.0, 255.0])
    y = (x[:, None] + 40 * rng.normal(size=(7, 200_000))).clip(0 if black else None, 255 if white else None)
    np.testing.assert_allclose(noise.undone(y.mean(axis=1)), x, atol=0.8)
    np.testing.assert_allclose(noise.variance(y.mean(axis=1)), y.var(axis=1) / 1600, atol=0.02)


@pytest.mark.parametrize("colours", [False, True])
def test_a_saved_picture_gains_and_an_array_is_left_alone(colours) -> None:
    clean = stairs(colours)
    noisy = saved(clean, 50.0)
    model = denoiser()
    better = psnr(model.fit_denoise(noisy), clean, largest=255)
    assert model.clipped_ == (True, True)
    assert better > psnr(denoiser(clipped=False).fit_denoise(noisy), clean, largest=255) + 2.0
    whole = clean + 50 * np.random.default_rng(2).normal(size=clean.shape)
    left = denoiser(data_range=255).fit(whole)
    assert left.clipped_ == (False, False)
    np.testing.assert_array_equal(left.denoise(whole), denoiser(data_range=255, clipped=False).fit_denoise(whole))
    told = denoiser(data_range=255, clipped=True).fit_denoise(noisy.astype(np.float32))
    assert psnr(told, clean, largest=255) == pytest.approx(better, abs=0.3)


def test_16_bits_are_8_bits_with_more(tmp_path) -> None:
    clean = stairs()
    noisy = saved(clean, 50.0)
    model = denoiser(50.0 * 257).fit(noisy.astype(np.uint16) * np.uint16(257))
    assert model.clipped_ == (True, True)
    deep = model.denoise(noisy.astype(np.uint16) * np.uint16(257))
    assert np.abs(deep / 257 - denoiser().fit_denoise(noisy)).mean() < 1.0
    save_model(model, tmp_path / "model.tithe")
    again = load_model(tmp_path / "model.tithe")
    np.testing.assert_array_equal(again.denoise(noisy.astype(np.uint16) * np.uint16(257)), deep)


def test_saturation_without_noise_is_no_clipped_noise(rng) -> None:
    burnt = np.clip(1.8 * stairs() - 100, 0, 255).round().astype(np.uint8)  # large parts black and white
    weak_in_the_dark = (4.0 * rng.poisson(stairs() / 4.0)).clip(0, 255).astype(np.uint8)
    grey = saved(0.3 * stairs() + 90, 15.0)  # far from both ends
    for image, sigma in ((burnt, 3.0), (burnt, 20.0), (grey, 15.0), (np.zeros((64, 64), np.uint8), 30.0)):
        assert find_clipping(Planes(image), sigma, "auto", None) is None
    result = find_clipping(Planes(weak_in_the_dark), 20.0, "auto", None)
    assert result is None or not result.black


def test_patches_have_noise_of_one_strength() -> None:
    clean = np.repeat(np.linspace(0, 255, 160)[None], 160, axis=0)
    noise = ClippedNoise(40.0, 255.0, black=True, white=True)
    source = PatchSource(saved(clean, 40.0), clipping=noise)
    X, energy, strength = source.lines(0, 0, len(source.tops))
    spread = X.std(axis=1).reshape(153, 153).mean(axis=0)
    assert spread.min() > 36 and spread.max() < 44
    np.testing.assert_allclose(energy, (X.astype(float) ** 2).sum(axis=1), rtol=1e-5)
    assert strength.min() < 0.65
    rng = np.random.default_rng(0)
    some = source.sample(300, rng=rng)
    np.testing.assert_allclose(some.X, X[some.row_ids()], atol=1e-4)
    assert source.identity != PatchSource(source.planes).identity


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.bits
def test_stripes_and_threads_change_no_bit(dtype) -> None:
    noisy = saved(stairs(colours=True), 50.0).astype(dtype)
    model = denoiser(clipped=True, data_range=255).fit(noisy)
    noise = ClippedNoise(50.0, 255.0, black=True, white=True)
    for step in (1, 3):
        source = PatchSource(noisy, step=step, clipping=noise)
        results = []
        for stripe, threads in ((1000, 1), (1, 2), (7, 3)):
            with limit_threads(threads):
                coder = Coder(model.components_, 32, model._target(64))
                results.append(
                    np.concatenate([part for _, part in averaged(source, coder, 1.2, stripe=stripe)], axis=1)
                )
        assert all(np.array_equal(results[0], other) for other in results[1:])


def test_bad_option() -> None:
    for bad in ("maybe", None, 1, np.array([True, False])):
        with pytest.raises(ValueError, match="clipped must be"):
            denoiser(clipped=bad).fit(stairs())
    assert find_clipping(Planes(saved(stairs(), 50.0)), 50.0, np.False_, None) is None
