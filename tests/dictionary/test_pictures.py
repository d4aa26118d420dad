"""Picture files: 16 bits as they are, modes of all kinds, and damage."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tithe.core.errors import FileFormatError
from tithe.dictionary import pictures
from tithe.dictionary.pictures import Picture, read_picture, write_picture

HEAD = b"\x89PNG\r\n\x1a\n"


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(values: np.ndarray, kind: int, *more: bytes, interlaced: bool = False) -> bytes:
    """A PNG of 16 bits, by another way than ours: no filters, and interlaced if wanted."""
    height, width = values.shape[:2]
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [values[y::dy, x::dx] for y, x, dy, dx in passes] if interlaced else [values]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for part in parts if part.size for row in part)
    head = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, interlaced)
    return HEAD + chunk(b"IHDR", head) + b"".join(more) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff(values: np.ndarray, order: str, planar: int = 1) -> bytes:
    """A TIFF of 16-bit colours, not compressed."""
    height, width, channels = values.shape
    raw = (values if planar == 1 else values.transpose(2, 0, 1)).astype(order + "u2").tobytes()
    bits = struct.pack(f"{order}3H", 16, 16, 16)
    strips = [8 + len(bits)] if planar == 1 else [8 + len(bits) + 2 * height * width * c for c in range(3)]
    lists = struct.pack(f"{order}{len(strips)}I", *strips)
    sizes = struct.pack(f"{order}{len(strips)}I", *[len(raw) // len(strips)] * len(strips))
    at = 8 + len(bits) + len(raw)
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, 8), (259, 3, 1, 1), (262, 3, 1, 2)]
    entries += [(273, 4, len(strips), strips[0] if planar == 1 else at), (277, 3, 1, channels), (278, 4, 1, height)]
    entries += [(279, 4, len(strips), len(raw) if planar == 1 else at + len(lists)), (284, 3, 1, planar)]
    lines = b"".join(
        struct.pack(f"{order}HHI", tag, kind, n)
        + (struct.pack(f"{order}HH", value, 0) if kind == 3 and n == 1 else struct.pack(f"{order}I", value))
        for tag, kind, n, value in entries
    )
    more = b"" if planar == 1 else lists + sizes
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, at + len(more))
    return head + bits + raw + more + struct.pack(f"{order}H", len(entries)) + lines + bytes(4)


@pytest.fixture
def colours(rng) -> np.ndarray:
    return rng.integers(0, 65536, size=(13, 21, 4), dtype=np.uint16)


@pytest.mark.parametrize("ending", [".png", ".tif"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_16_bits_come_back_as_they_were(colours, tmp_path, monkeypatch, ending, channels) -> None:
    monkeypatch.setattr(pictures, "_STRIP_BYTES", 400)  # several strips of a TIFF
    pixels = colours[..., 0] if channels < 3 else colours[..., :3]
    alpha = colours[..., 3] if channels in (2, 4) else None
    profile = b"what the colours mean"
    notes = write_picture(tmp_path / f"a{ending}", Picture(pixels=pixels, alpha=alpha, profile=profile))
    back = read_picture(tmp_path / f"a{ending}")
    if ending == ".tif" and channels == 2:
        assert notes == ["grey with alpha became colour in .tif"]
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    else:
        assert notes == []
    np.testing.assert_array_equal(back.pixels, pixels)
    assert back.pixels.dtype == np.uint16 and back.profile == profile and back.notes == []
    if alpha is None:
        assert back.alpha is None
    else:
        np.testing.assert_array_equal(back.alpha, alpha)
        assert back.alpha.dtype == np.uint16


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("kind", "channels"), [(2, 3), (6, 4), (4, 2)])
def test_16_bit_png_of_others(colours, tmp_path, interlaced, kind, channels) -> None:
    values = colours[..., :channels]
    (tmp_path / "a.png").write_bytes(png(values, kind, interlaced=interlaced))
    back = read_picture(tmp_path / "a.png")
    np.testing.assert_array_equal(back.pixels, values[..., 0] if channels == 2 else values[..., :3])
    assert (back.alpha is None) == (channels == 3) and back.notes == []


def test_16_bit_tiff_of_others(colours, tmp_path) -> None:
    for order in "<>":
        (tmp_path / "a.tif").write_bytes(tiff(colours[..., :3], order))
        np.testing.assert_array_equal(read_picture(tmp_path / "a.tif").pixels, colours[..., :3])
        (tmp_path / "a.tif").write_bytes(tiff(colours[..., :3], order, planar=2))
        with pytest.raises(FileFormatError, match="separate planes"):
            read_picture(tmp_path / "a.tif")


def test_pillow_reads_the_higher_bytes_of_what_we_write(colours, tmp_path) -> None:
    for ending in (".png", ".tif"):
        write_picture(tmp_path / f"a{ending}", Picture(pixels=colours[..., :3], alpha=colours[..., 3]))
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / f"a{ending}")), colours >> 8)


def test_one_colour_stands_for_transparency(colours, tmp_path) -> None:
    values = colours[..., :3]
    values[2:5, 3:9] = (7, 300, 65535)
    (tmp_path / "a.png").write_bytes(png(values, 2, chunk(b"tRNS", struct.pack(">3H", 7, 300, 65535))))
    clear = np.zeros(values.shape[:2], bool)
    clear[2:5, 3:9] = True
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png").alpha, np.where(clear, 0, 65535))
    grey = values[..., 1].copy()
    (tmp_path / "b.png").write_bytes(png(grey, 0, chunk(b"tRNS", struct.pack(">H", 300))))
    back = read_picture(tmp_path / "b.png")
    np.testing.assert_array_equal(back.alpha, np.where(grey == 300, 0, 65535))
    assert write_picture(tmp_path / "c.png", back) == []
    np.testing.assert_array_equal(read_picture(tmp_path / "c.png").alpha, back.alpha)


def test_16_bits_are_turned_upright(colours, tmp_path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    (tmp_path / "a.png").write_bytes(png(colours[..., :3], 2, chunk(b"eXIf", turned.tobytes()[6:])))
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png").pixels, np.rot90(colours[..., :3], -1))


def test_other_modes(tmp_path) -> None:
    grey = np.arange(12 * 9, dtype=np.uint8).reshape(12, 9)
    image = Image.fromarray(grey)
    image.save(tmp_path / "clear.png", transparency=5)
    clear = read_picture(tmp_path / "clear.png")
    np.testing.assert_array_equal(clear.pixels, grey)  # grey, as it was
    np.testing.assert_array_equal(clear.alpha, np.where(grey == 5, 0, 255))
    image.point(lambda v: v % 3 * 127).convert("P").save(tmp_path / "palette.png", transparency=127)
    palette = read_picture(tmp_path / "palette.png")
    assert palette.pixels.shape == (12, 9, 3) and (palette.alpha == 0).sum() == (grey % 3 == 1).sum()
    Image.fromarray(grey > 40).save(tmp_path / "bits.png")
    bits = read_picture(tmp_path / "bits.png")
    np.testing.assert_array_equal(bits.pixels, np.where(grey > 40, 255, 0))
    assert bits.notes == ["black and white became grey"]
    Image.merge("CMYK", [image] * 4).save(tmp_path / "cmyk.tif", icc_profile=b"of inks")
    assert read_picture(tmp_path / "cmyk.tif").profile is None  # it says nothing of red, green and blue
    (tmp_path / "deep.ppm").write_bytes(b"P6 9 9 65535\n" + bytes(9 * 9 * 6))
    assert read_picture(tmp_path / "deep.ppm").notes == ["16-bit colours were read with 8 bits"]


def test_damaged_files_are_refused(colours, tmp_path) -> None:
    whole = png(colours[..., :3], 2)
    huge = HEAD + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**30, 2**30, 16, 2, 0, 0, 0)) + whole[33:]
    broken = bytearray(whole)
    broken[60] ^= 1
    lies = whole[:33] + chunk(b"IDAT", b"no zlib") + chunk(b"IEND", b"")
    other_sum = whole[:-16] + bytes(4) + whole[-12:]
    for data in (whole[:500], whole[:-12], bytes(broken), other_sum, huge, lies, whole[:33], b""):
        (tmp_path / "a.png").write_bytes(data)
        with pytest.raises(FileFormatError, match=r"a\.png' is not a (whole )?picture"):
            read_picture(tmp_path / "a.png")
    write_picture(tmp_path / "a.tif", Picture(pixels=colours[..., :3]))
    (tmp_path / "a.tif").write_bytes((tmp_path / "a.tif").read_bytes()[:900])
    with pytest.raises(FileFormatError):
        read_picture(tmp_path / "a.tif")


@pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("ending", [".png", ".tif", ".gif", ".bmp", ".jpg", ".webp"])
def test_damage_of_any_kind_has_one_error(colours, tmp_path, ending) -> None:
    path = tmp_path / f"a{ending}"
    pixels = colours[..., :3] if ending in (".png", ".tif") else (colours[..., :3] >> 8).astype(np.uint8)
    write_picture(path, Picture(pixels=pixels))
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(60):
        spoiled = bytearray(whole[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.3 else whole)
        for at in rng.integers(len(spoiled), size=3):
            spoiled[at] = rng.integers(256)
        path.write_bytes(spoiled)
        try:
            read_picture(path)
        except FileFormatError as error:
            assert str(path) in str(error)
