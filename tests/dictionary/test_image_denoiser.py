"""Denoising: what theory says exactly, what pictures say roughly, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from tithe import load_model, save_model
from tithe.core.parallel import limit_threads
from tithe.dictionary import ImageDenoiser
from tithe.dictionary import denoiser as module
from tithe.dictionary.noise import data_range, psnr
from tithe.dictionary.patches import Coder, PatchSource, averaged
from tithe.dictionary.pictures import Planes


@pytest.fixture(scope="module")
def clean() -> np.ndarray:
    """Flat pieces, a slope and stripes: (96, 120) in 0..255."""
    rng = np.random.default_rng(5)
    image = np.kron(rng.uniform(40, 220, size=(8, 10)), np.ones((12, 12)))
    image[60:, :50] = np.linspace(30, 200, 50)
    image[:40, 70:] += 25 * np.sign(np.sin(np.arange(50) / 3.0))
    return image


def noisy_of(clean: np.ndarray, sigma: float) -> np.ndarray:
    return clean + sigma * np.random.default_rng(9).normal(size=clean.shape)


def denoiser(sigma: float | None, **options) -> ImageDenoiser:
    few = {"n_components": 100, "coreset_size": 2000, "max_iter": 5, "random_state": 0, "data_range": 255}
    return ImageDenoiser(sigma, **{**few, **options})


@pytest.mark.parametrize(
    "sigma", [pytest.param(10, marks=pytest.mark.slow), 25, pytest.param(50, marks=pytest.mark.slow)]
)
def test_noise_goes(clean, sigma) -> None:
    noisy = noisy_of(clean, sigma)
    model = denoiser(sigma)
    gain = psnr(model.fit_denoise(noisy), clean, largest=255) - psnr(noisy, clean, largest=255)
    assert gain > 6.0
    assert 0.0 < model.n_atoms_mean_ < 10.0
    assert set(model.seconds_) == {"noise", "reducing", "learning", "coding"}


def test_colour_and_types(clean) -> None:
    colour = np.stack([clean, clean[::-1], 255 - clean], axis=2).clip(0, 255)
    for image, sigma in (
        (noisy_of(colour, 20).clip(0, 255).astype(np.uint8), 20.0),
        ((noisy_of(colour, 20).clip(0, 255) * 257).astype(np.uint16), 20.0 * 257),
        ((noisy_of(colour, 20) / 255).astype(np.float32), 20.0 / 255),
    ):
        largest = data_range(image)
        result = ImageDenoiser(sigma, n_components=100, coreset_size=2000, max_iter=5, random_state=0).fit_denoise(
            image
        )
        assert result.dtype == image.dtype and result.shape == image.shape
        truth = colour * (largest / 255)
        assert psnr(result, truth, largest=largest) > psnr(image, truth, largest=largest) + 5


@pytest.mark.parametrize("value", [0, 7, 255])
@pytest.mark.parametrize("colours", [False, True])
def test_a_constant_picture_stays(value, colours) -> None:
    image = np.full((30, 40, 3) if colours else (30, 40), value, np.uint8)
    for sigma in (25.0, None):
        model = denoiser(sigma, n_components=16)
        np.testing.assert_array_equal(model.fit_denoise(image), image)
    odd = np.full(image.shape, 0.1 + value)
    np.testing.assert_allclose(denoiser(25.0, n_components=16).fit_denoise(odd), odd, rtol=1e-6)


def test_little_noise_returns_the_picture(clean) -> None:
    clean = clean[30:70, 30:80]
    distance = [np.abs(denoiser(s, n_components=64).fit_denoise(clean) - clean).max() for s in (1.0, 0.1, 1e-3, 1e-6)]
    assert distance[0] > distance[1] > distance[2] and distance[3] < 1e-5
    np.testing.assert_array_equal(denoiser(0.0).fit_denoise(clean), clean)
    whole = clean.clip(0, 255).astype(np.uint8)
    np.testing.assert_array_equal(denoiser(1e-3).fit_denoise(whole), whole)


def test_the_average_is_what_the_formula_says(clean) -> None:
    noisy = noisy_of(clean, 20)[:30, :25].astype(np.float32)
    model = denoiser(20.0, n_components=64).fit(noisy)
    target = 64 * (1.15 * 20.0) ** 2
    number, count = np.zeros(noisy.shape), np.zeros(noisy.shape)
    for y in range(23):
        for x in range(18):
            patch = noisy[y : y + 8, x : x + 8].reshape(1, 64).astype(np.float64)
            mean = patch.mean()
            coder = Coder(model.components_, 32, target)
            row = (patch - mean).astype(np.float32)
            rest = coder(row.copy(), (row.astype(float) ** 2).sum(axis=1))
            number[y : y + 8, x : x + 8] += (mean + row - rest).reshape(8, 8)
            count[y : y + 8, x : x + 8] += 1
    own = 30.0 / 20.0
    np.testing.assert_allclose(model.denoise(noisy), (own * noisy + number) / (own + count), atol=2e-4)


@pytest.mark.bits
def test_stripes_and_threads_change_no_bit(clean) -> None:
    colour = noisy_of(np.stack([clean, clean.T.copy().repeat(2, axis=1)[:96, :120], clean], axis=2), 25)
    model = denoiser(25.0).fit(colour)
    for step in (1, 3):
        source = PatchSource(Planes(colour), patch_size=8, step=step)
        whole = None
        for stripe, threads in ((1000, 1), (1, 1), (2, 2), (7, 3), (20, 2)):
            with limit_threads(threads):
                coder = Coder(model.components_, 32, model._target(64))
                parts = [part for _, part in averaged(source, coder, 1.2, stripe=stripe)]
            taken = np.concatenate(parts, axis=1)
            assert taken.shape == (3, 96, 120)
            whole = taken if whole is None else whole
            np.testing.assert_array_equal(taken, whole)


@pytest.mark.bits
def test_fit_has_the_same_bits_on_any_number_of_threads(clean) -> None:
    noisy = noisy_of(clean, 25)
    with limit_threads(1):
        one = denoiser(25.0, engine="serial").fit(noisy)
    two = denoiser(25.0).fit(noisy)
    np.testing.assert_array_equal(one.components_, two.components_)
    np.testing.assert_array_equal(one.denoise(noisy), two.denoise(noisy))


def test_colour_is_its_planes_one_by_one(clean) -> None:
    """The three planes are pictures of their own; with the same atoms nothing else may come out."""
    colour = noisy_of(np.stack([clean, clean[::-1], 255 - clean], axis=2), 20)
    model = denoiser(20.0).fit(colour)
    planes = Planes(colour)
    alone = [model.denoise(planes.read(p, 0, planes.height)) for p in range(3)]
    taken = np.stack([planes.read(p, 0, planes.height) - alone[p] for p in range(3)])
    np.testing.assert_allclose(model.denoise(colour), planes.changed(0, taken.astype(float)), atol=1e-3)


def test_a_grey_picture_in_colour_stays_grey(clean) -> None:
    grey = np.repeat(noisy_of(clean, 20)[..., None], 3, axis=2)
    result = denoiser(20.0).fit_denoise(grey)
    np.testing.assert_allclose(result[..., 0], result[..., 1], atol=1e-9)
    np.testing.assert_allclose(result[..., 0], result[..., 2], atol=1e-9)


def test_steps_cost_little(clean) -> None:
    noisy = noisy_of(clean, 25)
    every, some = (psnr(denoiser(25.0, step=s).fit_denoise(noisy), clean, largest=255) for s in (1, 2))
    assert every - 1.0 < some <= every + 0.1


def test_reconstruct_comes_nearer_with_more_atoms(clean) -> None:
    model = denoiser(0.0).fit(clean)
    error = []
    for model.n_nonzero_coefs in (1, 4, 16):
        error.append(np.abs(model.reconstruct(clean) - clean).mean())
    assert error[0] > error[1] > error[2]
    assert model.certify(clean).value >= 0.0


def test_all_patches_are_no_worse_than_a_coreset(clean) -> None:
    noisy = noisy_of(clean, 25)
    few, every = (psnr(denoiser(25.0, coreset_size=m).fit_denoise(noisy), clean, largest=255) for m in (2000, None))
    assert few > every - 0.5


def test_polish_sees_more_patches(clean, monkeypatch) -> None:
    """Atoms from more patches hold less of their noise; those that all patches were learned from stay."""
    noisy = noisy_of(clean, 25)
    rough, polished = (denoiser(25.0, coreset_size=500, refine_iter=p).fit(noisy) for p in (0, 6))
    quality = [psnr(m.denoise(noisy), clean, largest=255) for m in (rough, polished)]
    assert quality[1] > quality[0] + 0.05
    for size in (None, 10**6):
        one, other = (denoiser(25.0, coreset_size=size, refine_iter=p).fit(noisy) for p in (0, 6))
        np.testing.assert_array_equal(one.components_, other.components_)
    monkeypatch.setattr(module, "_REFINE_PATCHES", 400)  # no more than were kept
    np.testing.assert_array_equal(rough.components_, denoiser(25.0, coreset_size=500).fit(noisy).components_)


PICTURES_ONLY = {
    "check_n_features_in": "a picture has no columns",
    "check_n_features_in_after_fitting": "a picture has no columns",
    "check_estimators_dtypes": "the type of a pixel says which value is white: other types are refused",
    "check_dtype_object": "the type of a pixel says which value is white: other types are refused",
    "check_complex_data": "it is refused, in words about pictures",
    "check_estimators_empty_data_messages": "it is refused, in words about pictures",
    "check_fit2d_1sample": "it is refused, in words about pictures",
    "check_fit2d_1feature": "it is refused, in words about pictures",
}


@parametrize_with_checks(
    [
        ImageDenoiser(
            0.5, patch_size=2, n_components=3, coreset_size=50, max_iter=1, refine_iter=0, n_nonzero_coefs=2,
            random_state=0,
        )
    ],
    expected_failed_checks=lambda _: PICTURES_ONLY,
)  # fmt: skip
def test_scikit_learn_checks_with_rows_as_a_picture(estimator, check) -> None:
    check(estimator)


def test_conventions(clean, tmp_path) -> None:
    model = denoiser(25.0, gain=1.2)
    assert clone(model).get_params() == model.get_params()
    noisy = noisy_of(clean, 25)
    seen: list[tuple[int, int, int]] = []
    result = model.fit_denoise(noisy, progress=lambda *at: seen.append(at))
    assert seen[0][0] == 1 and seen[-1] == (2, seen[-1][1], 89 * 113)
    save_model(model, tmp_path / "model.tithe")
    np.testing.assert_array_equal(load_model(tmp_path / "model.tithe").denoise(noisy), result)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sigma": -1.0}, "sigma must be"),
        ({"sigma": np.nan}, "sigma must be"),
        ({"sigma": np.inf}, "sigma must be"),
        ({"sigma": "much"}, "sigma must be"),
        ({"sigma": 1e300}, "rescale the picture"),
        ({"patch_size": 1, "n_nonzero_coefs": 1}, "at least 2"),
        ({"gain": 0.0}, "gain must be"),
        ({"patch_size": 2.5}, "patch_size must be"),
        ({"patch_size": 500}, "smaller patch_size"),
        ({"n_nonzero_coefs": 65}, "64 pixels of a patch"),
        ({"n_components": 20_000, "coreset_size": None}, "ask for fewer"),
        ({"coreset_size": 50}, "fewer than n_components"),
        ({"coreset_size": 1.5}, "coreset_size"),
        ({"step": 9}, "gaps"),
        ({"refine_iter": -1}, "refine_iter must be"),
        ({"data_range": 0}, "data_range must be"),
        ({"construction": "best"}, "best"),
    ],
)
def test_what_cannot_be_is_refused(clean, options, says) -> None:
    with pytest.raises(ValueError, match=says):
        denoiser(**{"sigma": 25.0, **options}).fit_denoise(clean)


def test_too_small_to_estimate() -> None:
    with pytest.raises(ValueError, match="give sigma"):
        ImageDenoiser(n_components=4).fit(np.zeros((12, 12)))
