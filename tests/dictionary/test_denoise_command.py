"""The command on files of all kinds, good and bad."""

from __future__ import annotations

import errno
import re

import numpy as np
import pytest
from PIL import Image

from tithe.cli.main import main
from tithe.dictionary.pictures import Picture, atoms_picture, read_picture, write_picture

FAST = ["-k", "32", "-m", "500", "--sigma", "15"]


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


@pytest.fixture
def clean() -> np.ndarray:
    y, x = np.mgrid[:48, :64]
    red = 100.0 + 60 * (x > 30) + y
    return np.stack([red, 220 - red, red / 2 + 40], axis=2).clip(0, 255).astype(np.uint8)


@pytest.fixture
def noisy(clean) -> np.ndarray:
    return (clean + 15 * np.random.default_rng(0).normal(size=clean.shape)).clip(0, 255).round().astype(np.uint8)


def test_a_picture_with_reference_and_atoms(clean, noisy, tmp_path, capsys) -> None:
    for name, pixels in (("in.png", noisy), ("clean.png", clean)):
        Image.fromarray(pixels).save(tmp_path / name)
    wanted = ["--reference", tmp_path / "clean.png", "--show", tmp_path / "atoms.png"]
    assert run("denoise", tmp_path / "in.png", tmp_path / "out.png", *FAST, *wanted) == 0
    out = capsys.readouterr().out
    before, after = map(float, re.search(r"PSNR\s+([\d.]+) -> ([\d.]+) dB", out).groups())
    assert after > before + 4
    for words in (
        "SSIM",
        "time for reducing",
        "time for learning",
        "time for coding",
        "peak memory",
        "atoms of a patch",
    ):
        assert words in out
    assert np.asarray(Image.open(tmp_path / "out.png")).shape == noisy.shape
    assert Image.open(tmp_path / "atoms.png").mode == "L"
    assert not list(tmp_path.glob(".*tmp"))


def test_noise_is_estimated(noisy, tmp_path, capsys) -> None:
    Image.fromarray(noisy).save(tmp_path / "in.png")
    assert run("denoise", tmp_path / "in.png", tmp_path / "out.jpg", "-k", 32, "-m", 500) == 0
    assert 13 < float(re.search(r"noise \(sigma\)\s+([\d.]+) \(estimated\)", capsys.readouterr().out).group(1)) < 17


def test_noise_that_was_cut_off(tmp_path, capsys) -> None:
    dark = np.full((96, 96), 10.0)
    dark[:, 60:] = 120.0
    noisy = (dark + 30 * np.random.default_rng(0).normal(size=dark.shape)).clip(0, 255).round().astype(np.uint8)
    Image.fromarray(noisy).save(tmp_path / "in.png")
    Image.fromarray(dark.astype(np.uint8)).save(tmp_path / "clean.png")
    found = {}
    for way in ("auto", "yes", "no"):
        wanted = ["--sigma", 30, "--clipped", way, "--reference", tmp_path / "clean.png"]
        assert run("denoise", tmp_path / "in.png", tmp_path / "out.png", *FAST, *wanted) == 0
        out = capsys.readouterr().out
        found[way] = float(re.search(r"PSNR\s+[\d.]+ -> ([\d.]+) dB", out).group(1))
        assert ("noise cut off at" in out) == (way != "no")
    assert min(found["auto"], found["yes"]) > found["no"] + 3


def test_modes_of_pictures(noisy, tmp_path, capsys) -> None:
    grey = Image.fromarray(noisy[..., 0])
    alpha = np.arange(48 * 64, dtype=np.uint8).reshape(48, 64)
    colour = Image.fromarray(noisy)
    with_alpha = colour.copy()
    with_alpha.putalpha(Image.fromarray(alpha))
    deep = Image.fromarray(noisy[..., 0].astype(np.uint16) * 257)
    for name, image in (
        ("grey.png", grey),
        ("palette.png", colour.quantize(64)),
        ("cmyk.tif", colour.convert("CMYK")),
        ("alpha.png", with_alpha),
        ("deep.png", deep),
    ):
        image.save(tmp_path / name)
        sigma = ["--sigma", 15 * 257] if name == "deep.png" else []
        assert run("denoise", tmp_path / name, tmp_path / "out.png", *FAST, *sigma) == 0, name
        result = read_picture(tmp_path / "out.png")
        assert result.pixels.shape == (noisy.shape[:2] if name in ("grey.png", "deep.png") else noisy.shape)
        assert result.pixels.dtype == (np.uint16 if name == "deep.png" else np.uint8)
        if name == "alpha.png":
            np.testing.assert_array_equal(result.alpha, alpha)
    assert "CMYK" in capsys.readouterr().out
    assert run("denoise", tmp_path / "alpha.png", tmp_path / "out.jpg", *FAST) == 0
    assert "alpha channel was dropped" in capsys.readouterr().out


def test_what_a_format_cannot_hold_is_said(tmp_path) -> None:
    pixels = np.full((4, 4, 3), 257 * 9 + 200, np.uint16)
    deep = Picture(pixels=pixels, alpha=pixels[..., 0], profile=b"icc")
    assert write_picture(tmp_path / "a.webp", deep) == ["16 bits became 8 in .webp"]
    assert write_picture(tmp_path / "a.jpg", deep)[0] == "the alpha channel was dropped: .jpg has none"
    back = read_picture(tmp_path / "a.jpg")
    assert back.pixels.max() == 10 and back.profile == b"icc"
    with pytest.raises(ValueError, match="at most 16383"):
        write_picture(tmp_path / "a.webp", Picture(pixels=np.zeros((1, 16384), np.uint8)))


def test_16_bit_colours_go_in_and_out(clean, tmp_path, capsys) -> None:
    rng = np.random.default_rng(0)
    noisy = (257 * (clean + 15 * rng.normal(size=clean.shape))).clip(0, 65535).round().astype(np.uint16)
    for ending in ("png", "tif"):
        given, out, truth = (tmp_path / f"{name}.{ending}" for name in ("in", "out", "clean"))
        write_picture(given, Picture(pixels=noisy))
        write_picture(truth, Picture(pixels=clean.astype(np.uint16) * np.uint16(257)))
        assert run("denoise", given, out, *FAST, "--sigma", 15 * 257, "--reference", truth) == 0
        said = capsys.readouterr().out
        assert "in colour of 16 bits" in said and "Note" not in said
        before, after = map(float, re.search(r"PSNR\s+([\d.]+) -> ([\d.]+) dB", said).groups())
        assert after > before + 4
        pixels = read_picture(out).pixels
        assert pixels.dtype == np.uint16 and len(np.unique(pixels % 256)) > 200


def test_frames_are_noted(tmp_path) -> None:
    frames = [Image.new("L", (9, 9), v) for v in (0, 90)]
    frames[0].save(tmp_path / "b.gif", save_all=True, append_images=frames[1:])
    assert "frames" in read_picture(tmp_path / "b.gif").notes[0]


def test_a_picture_is_turned_upright(noisy, tmp_path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(noisy).save(tmp_path / "a.jpg", exif=exif)
    assert read_picture(tmp_path / "a.jpg").pixels.shape == (64, 48, 3)


def test_bad_input_is_refused_with_code_2(noisy, tmp_path, capsys) -> None:
    good = tmp_path / "in.png"
    Image.fromarray(noisy).save(good)
    Image.fromarray(noisy[:5, :5]).save(tmp_path / "tiny.png")
    Image.fromarray(noisy[:20]).save(tmp_path / "other.png")
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "cut.png").write_bytes(good.read_bytes()[:3000])
    Image.fromarray(noisy).save(tmp_path / "whole.jpg", quality=95)
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "whole.jpg").read_bytes()[:2500])
    Image.fromarray(np.zeros((30, 30), np.float32)).save(tmp_path / "float.tif")
    out = tmp_path / "out.png"
    before = good.read_bytes()
    for arguments, says in (
        ((tmp_path / "missing.png", out), "no file"),
        ((tmp_path / "text.png", out), "not a picture"),
        ((tmp_path / "cut.png", out), "not a whole picture"),
        ((tmp_path / "cut.jpg", out), "not a whole picture"),
        ((tmp_path / "float.tif", out), "floating point"),
        ((tmp_path / "tiny.png", out, "--sigma", 5), "smaller patch_size"),
        ((tmp_path / "tiny.png", out), "give sigma|smaller patch_size"),
        ((good, good), "input itself"),
        ((good, tmp_path / "nowhere" / "out.png"), "no folder"),
        ((good, tmp_path / "out.xyz"), "picture format"),
        ((good, out, "--sigma", 0), "--sigma"),
        ((good, out, "--sigma", "nan"), "--sigma"),
        ((good, out, "--sigma", "much"), "--sigma"),
        ((good, out, "--show", out), "same file"),
        ((good, out, "--reference", tmp_path / "other.png"), "cannot be compared"),
        ((good, out, "-k", 8000, "-m", 9000), "ask for fewer"),
        ((good, out, "-k", 600, "-m", 500), "fewer than n_components"),
    ):
        assert run("denoise", *arguments) == 2, says
        assert re.search(says, capsys.readouterr().err.replace("\n", " ")), says
        assert not out.exists()
    assert good.read_bytes() == before


def test_pictures_smaller_than_the_window_of_ssim(noisy, tmp_path, capsys) -> None:
    Image.fromarray(noisy[:9, :40]).save(tmp_path / "in.png")
    wanted = ["-k", 8, "--reference", tmp_path / "in.png"]
    assert run("denoise", tmp_path / "in.png", tmp_path / "out.png", *FAST, *wanted) == 0
    out = capsys.readouterr().out
    assert "PSNR" in out and "SSIM" not in out


def test_a_full_disk_leaves_nothing_behind(noisy, tmp_path, monkeypatch, capsys) -> None:
    Image.fromarray(noisy).save(tmp_path / "in.png")
    (tmp_path / "out.png").write_bytes(b"as it was")

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    monkeypatch.setattr("tithe.dictionary.pictures.check_picture_name", lambda *a: None)
    assert run("denoise", tmp_path / "in.png", tmp_path / "out.png", *FAST) != 0
    assert "No space left" in capsys.readouterr().err
    assert (tmp_path / "out.png").read_bytes() == b"as it was"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.png", "out.png"]


def test_atoms_stand_side_by_side(rng) -> None:
    page = atoms_picture(rng.normal(size=(10, 16)))
    assert page.dtype == np.uint8 and page.shape == (3 * 22 + 2, 4 * 22 + 2)
    with pytest.raises(ValueError, match="no square"):
        atoms_picture(np.ones((2, 15)))
