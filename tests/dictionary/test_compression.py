"""Pictures as codes in few bytes, and the commands that fill in and compress pictures."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from tithe import FileFormatError, Limits
from tithe.cli.main import main
from tithe.dictionary import EncodedPicture, ImageDenoiser


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    rng = np.random.default_rng(0)
    soft = gaussian_filter(rng.normal(size=(60, 77, 3)), (4, 4, 0)) * 600 + 128
    soft[20:40, 30:50] = 200
    return soft.clip(0, 255).astype(np.uint8)


def model(image: np.ndarray, **options: object) -> ImageDenoiser:
    return ImageDenoiser(sigma=0, n_components=80, max_iter=3, refine_iter=0, random_state=0, **options).fit(image)


@pytest.mark.parametrize("kind", ["grey", "colours", "16 bits", "floats"])
def test_a_smaller_step_is_a_better_picture_in_more_bytes(picture, kind: str) -> None:
    """The error stays below half the step, where there are enough atoms; sizes need not be those of patches."""
    scale = {"16 bits": 257.0, "floats": 1.0 / 255.0}.get(kind, 1.0)
    image = picture if kind == "colours" else picture[..., 0]
    image = (image * scale).astype({"16 bits": np.uint16, "floats": np.float32}.get(kind, np.uint8))
    sizes, errors = [], []
    fitted = model(image)
    for step in (40.0, 16.0, 6.0):
        encoded = fitted.encode(image, step=step * scale)
        data = encoded.to_bytes()
        assert encoded.bits_per_pixel == pytest.approx(8 * len(data) / (60 * 77))
        again = EncodedPicture.from_bytes(data).decode()
        assert again.shape == image.shape and again.dtype == image.dtype
        np.testing.assert_array_equal(again, fitted.decode(encoded))
        errors.append(np.mean((again / scale - image / scale) ** 2) ** 0.5)
        sizes.append(len(data))
        assert errors[-1] < 0.5 * step + 0.3
    assert sizes == sorted(sizes) and errors == sorted(errors, reverse=True)


def test_decoding_is_the_sum_of_the_atoms_by_hand(picture) -> None:
    encoded = model(picture[..., 0]).encode(picture[..., 0].astype(np.float64), step=10.0)
    atoms = encoded.atoms / np.linalg.norm(encoded.atoms.astype(float), axis=1, keepdims=True)
    at = np.concatenate([[0], np.cumsum(encoded.counts)])
    means = np.cumsum(encoded.mean_gaps) * 10.0 / 8
    number = 10 + 3  # the fourth patch of the second row of ten
    codes = slice(at[number], at[number + 1])
    patch = means[number] + (encoded.values[codes, None] * 10.0 * atoms[encoded.chosen[codes]]).sum(axis=0)
    np.testing.assert_allclose(encoded.decode()[8:16, 24:32], patch.reshape(8, 8), atol=1e-3)


def test_flat_and_tiny_pictures() -> None:
    fitted = model(np.random.default_rng(0).integers(0, 255, (40, 40)).astype(np.uint8))
    flat = np.full((3, 5), 77, np.uint8)
    encoded = fitted.encode(flat, step=4.0)
    assert len(encoded.values) == 0
    np.testing.assert_allclose(EncodedPicture.from_bytes(encoded.to_bytes()).decode(), flat, atol=1)
    with pytest.raises(ValueError, match="step"):
        fitted.encode(flat, step=0.0)
    with pytest.raises(ValueError, match="too small"):
        fitted.encode(flat, step=1e-12)


def test_damaged_files_are_refused(picture) -> None:
    """Cut anywhere or with any byte changed: an error that says so, or a picture of the same shape."""
    data = model(picture[..., 0]).encode(picture[..., 0], step=20.0).to_bytes()
    rng = np.random.default_rng(0)
    for length in rng.integers(0, len(data), 60):
        with pytest.raises(FileFormatError, match="tithe compress"):
            EncodedPicture.from_bytes(data[:length])
    for at in [*range(13, 260, 7), *rng.integers(0, len(data), 60)]:
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        with suppress(FileFormatError):
            EncodedPicture.from_bytes(bytes(changed)).decode()
    with pytest.raises(FileFormatError, match="unpacked_bytes"):
        EncodedPicture.from_bytes(data.replace(b"[60,77]", b"[9e9,9]"), Limits(unpacked_bytes=10**6))


def test_commands(picture, tmp_path, capsys) -> None:
    Image.fromarray(picture).save(tmp_path / "in.png")
    fast = ["-k", 32, "-m", 500]
    assert run("compress", tmp_path / "in.png", tmp_path / "a.tpic", "--step", 12, *fast) == 0
    text = capsys.readouterr().out
    found = float(re.search(r"PSNR\s+([\d.]+) dB", text)[1])
    assert "PSNR of a JPEG" in text and "bits per pixel" in text
    assert run("decompress", tmp_path / "a.tpic", tmp_path / "out.png") == 0
    error = np.mean((np.asarray(Image.open(tmp_path / "out.png"), float) - picture) ** 2)
    assert 10 * np.log10(255**2 / error) == pytest.approx(found, abs=0.01)
    assert run("decompress", tmp_path / "in.png", tmp_path / "out.png") == 2

    missing = np.random.default_rng(0).random(picture.shape[:2]) < 0.3
    Image.fromarray((missing * 255).astype(np.uint8)).save(tmp_path / "mask.png")
    Image.fromarray(np.where(missing[..., None], 0, picture)).save(tmp_path / "holes.png")
    files = [tmp_path / name for name in ("holes.png", "mask.png", "whole.png")]
    assert run("inpaint", *files, *fast, "--reference", tmp_path / "in.png") == 0
    psnr = float(re.search(r"PSNR of the missing pixels\s+([\d.]+) dB", capsys.readouterr().out)[1])
    whole = np.asarray(Image.open(tmp_path / "whole.png"), float)
    np.testing.assert_array_equal(whole[~missing], picture[~missing])
    error = np.mean((whole[missing] - picture[missing]) ** 2)
    assert 10 * np.log10(255**2 / error) == pytest.approx(psnr, abs=0.01) and psnr > 25
    Image.fromarray(np.zeros((60, 77), np.uint8)).save(tmp_path / "black.png")
    assert run("inpaint", files[0], tmp_path / "black.png", files[2], *fast) == 2
    Image.fromarray(np.ones((6, 7), np.uint8)).save(tmp_path / "small.png")
    assert run("inpaint", files[0], tmp_path / "small.png", files[2], *fast) == 2
