"""Small good files of every format, ways to damage them, and small files that stand for very much."""

from __future__ import annotations

import gzip
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import damaged_bytes
from PIL import Image

# -- good inputs -------------------------------------------------------------------------------


def _table() -> pa.Table:
    rng = np.random.default_rng(1)
    columns = {"a": rng.normal(size=40), "b": rng.integers(0, 99, 40), "t": rng.choice(["red", "blue", "a b"], 40)}
    return pa.table({**columns, "y": rng.integers(0, 2, 40)})


def text_file(delimiter: str = ",") -> bytes:
    rows = [map(str, row.values()) for row in _table().to_pylist()]
    return "\n".join(delimiter.join(row) for row in [("a", "b", "t", "y"), *rows]).encode() + b"\n"


def libsvm_file() -> bytes:
    rng = np.random.default_rng(2)
    rows = (f"{i % 2} " + " ".join(f"{j}:{rng.normal():.4f}" for j in range(1, 9, 1 + i % 3)) for i in range(40))
    return "\n".join(rows).encode() + b" # note\n"


def npy_file(values: Any = None) -> bytes:
    written = io.BytesIO()
    np.save(written, np.random.default_rng(3).normal(size=(40, 3)) if values is None else values)
    return written.getvalue()


def npz_file(X: bytes) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", X)
        archive.writestr("y.npy", npy_file(np.arange(40)))
    return written.getvalue()


def parquet_file(**how: Any) -> bytes:
    written = io.BytesIO()
    pq.write_table(_table(), written, row_group_size=15, **how)
    return written.getvalue()


def arrow_file(**how: Any) -> bytes:
    written = io.BytesIO()
    with pa.ipc.new_stream(written, _table().schema, options=pa.ipc.IpcWriteOptions(**how)) as writer:
        writer.write_table(_table(), max_chunksize=15)
    return written.getvalue()


def coded_arrow_file() -> bytes:
    coded = _table().set_column(2, "t", _table()["t"].combine_chunks().dictionary_encode())
    written = io.BytesIO()
    with pa.ipc.new_stream(written, coded.schema) as writer:
        writer.write_table(coded)
    return written.getvalue()


def picture_file(format: str, mode: str, **how: Any) -> bytes:
    written = io.BytesIO()
    shape = (12, 17, len(Image.new(mode, (1, 1)).getbands()))
    values = np.random.default_rng(4).integers(0, 256, shape, dtype=np.uint8)
    if mode == "I;16":
        image = Image.fromarray(values[..., 0].astype(np.uint16) * 200)
    else:
        image = Image.fromarray(values[..., 0] if shape[2] == 1 else values, "L" if mode == "P" else mode).convert(mode)
    image.save(written, format, **how)
    return written.getvalue()


# -- damage that knows the format --------------------------------------------------------------

_PIECES = (b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b'"', b'""', b"\r", b"\r\n", b"\n", b"\xef\xbb\xbf")
_PIECES += (b",", b"\t", b":", b"#", b" ", b"qid:1 ")
_VALUES = (b"1e400", b"-1e400", b"nan", b"inf", b"-inf", b"", b"text", b"9" * 400, b"2147483647", b"4294967297")
_VALUES += (b"-1", b"0x1f", b"1_0", "\u0663".encode(), b"+1", b" 7 ", b"NA", b"1e", b"true", b"2024-01-01")
_VALUES += (b"9223372036854775808", b"\xff\xfe")
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")


def damaged_text(text: bytes, rng: np.random.Generator) -> bytes:
    for _ in range(1 + int(rng.integers(4))):
        way = int(rng.integers(4))
        at = int(rng.integers(len(text) + 1))
        if way == 0:
            text = text[:at] + _one_of(_PIECES, rng) + text[at:]
        elif way == 1 and (numbers := list(_NUMBER.finditer(text))):
            for number in sorted(rng.choice(len(numbers), 1 + int(rng.integers(3))))[::-1]:
                start, stop = numbers[number].span()
                text = text[:start] + _one_of(_VALUES, rng) + text[stop:]
        elif way == 2:
            rows = text.split(b"\n")
            row = int(rng.integers(len(rows)))
            rows[row:row] = [_one_of(rows, rng)] * int(rng.integers(3))
            text = b"\n".join(rows)
        else:
            text = damaged_bytes(text, rng)
    return text


def _one_of(things: Any, rng: np.random.Generator) -> Any:
    return things[int(rng.integers(len(things)))]


_DESCRS = ("'<f8'", "'<f4'", "'|O'", "'<f99'", "'<c16'", "[('a', '<f8')]", "'<f8', 3", "'(9999,)f8'", "'V0'")
_SHAPES = ("(40, 3)", "(3, 40)", "(2**62, 3)", f"({2**62}, 4)", f"(1, {10**40})", "(-1, 3)", "(40, 3, 1)", "()")
_SHAPES += ("[40, 3]", "(40.0, 3)", "('a', 3)", "(" * 300, "-" * 5000 + "1", "(0, 3)", f"({2**63}, 0)")


def damaged_npy(rng: np.random.Generator) -> bytes:
    whole = npy_file()
    length = struct.unpack("<H", whole[8:10])[0]
    header, content = whole[10 : 10 + length], whole[10 + length :]
    way = int(rng.integers(4))
    if way == 0:
        return damaged_bytes(whole, rng)
    if way == 1:
        header = damaged_text(header, rng)
    else:
        descr, shape = _one_of(_DESCRS, rng), _one_of(_SHAPES, rng)
        order = _one_of(["False", "True", "None", "2"], rng)
        header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    if way == 3:
        return b"\x93NUMPY" + bytes([_one_of([1, 2, 3, 9], rng), 0]) + rng.bytes(4) + header + content
    return b"\x93NUMPY\x02\0" + struct.pack("<I", len(header)) + header + content


def damaged_npz(rng: np.random.Generator) -> bytes:
    return damaged_bytes(npz_file(npy_file()), rng) if rng.random() < 0.5 else npz_file(damaged_npy(rng))


def damaged_parquet(rng: np.random.Generator) -> bytes:
    whole = _one_of(parquet_files(), rng)
    length = int.from_bytes(whole[-8:-4], "little")
    way = int(rng.integers(4))
    if way == 0:
        return damaged_bytes(whole, rng)
    if way == 1:
        false = _one_of([0, 1, length - 1, length + 1, 2**31 - 1, 2**32 - 1], rng)
        return whole[:-8] + struct.pack("<I", false) + whole[-4:]
    footer = len(whole) - 8 - length
    return _changed(whole, *((footer, len(whole) - 8) if way == 2 else (4, footer)), rng)


def _changed(data: bytes, start: int, stop: int, rng: np.random.Generator) -> bytes:
    """A copy with a few bytes between ``start`` and ``stop`` replaced."""
    raw = bytearray(data)
    for at in rng.integers(start, stop, 1 + int(rng.integers(4))):
        raw[at] = int(_one_of([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))], rng))
    return bytes(raw)


@cache
def parquet_files() -> list[bytes]:
    return [
        parquet_file(compression="snappy"),
        parquet_file(compression="zstd", use_dictionary=False),
        parquet_file(compression="none", data_page_version="2.0"),
        parquet_file(compression="gzip", use_byte_stream_split=["a"], use_dictionary=["t"]),
        parquet_file(compression="none", use_dictionary=False, column_encoding={"b": "DELTA_BINARY_PACKED"}),
    ]


def damaged_picture(rng: np.random.Generator) -> bytes:
    whole = _one_of(picture_files(), rng)
    if whole.startswith(b"\x89PNG") and rng.random() < 0.5:  # checksums that fit, so that the damage is seen
        parts, at = [whole[:8]], 8
        while at < len(whole):
            size = struct.unpack(">I", whole[at : at + 4])[0]
            kind, content = whole[at + 4 : at + 8], whole[at + 8 : at + 8 + size]
            if content and rng.random() < 0.4:
                content = damaged_bytes(content, rng)
            parts += [struct.pack(">I", len(content)), kind, content, struct.pack(">I", zlib.crc32(kind + content))]
            at += size + 12
        return b"".join(parts)
    if rng.random() < 0.3:
        return _changed(whole, 0, min(120, len(whole)), rng)
    return damaged_bytes(whole, rng)


@cache
def picture_files() -> list[bytes]:
    kinds = [("PNG", "L"), ("PNG", "RGB"), ("PNG", "RGBA"), ("PNG", "I;16"), ("PNG", "P"), ("TIFF", "RGB")]
    kinds += [("TIFF", "I;16"), ("JPEG", "RGB"), ("GIF", "P"), ("BMP", "RGB"), ("WEBP", "RGB"), ("PPM", "L")]
    return [*(picture_file(*kind) for kind in kinds), picture_file("TIFF", "RGB", compression="tiff_lzw")]


def damaged_packed(text: bytes, pack: Callable[[bytes], bytes], rng: np.random.Generator) -> bytes:
    return damaged_bytes(pack(text), rng) if rng.random() < 0.2 else pack(damaged_text(text, rng))


def packed_gzip(text: bytes) -> bytes:
    return gzip.compress(text, 1, mtime=0)


def packed_zip(*members: bytes) -> bytes:
    """An archive of tables."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for i, member in enumerate(members):
            archive.writestr(f"{i}.csv", member)
    return written.getvalue()


@cache
def arrow_streams() -> list[bytes]:
    return [arrow_file(), arrow_file(compression="zstd"), coded_arrow_file()]


def damaged_stream(rng: np.random.Generator) -> bytes:
    whole = _one_of(arrow_streams(), rng)
    return damaged_bytes(whole, rng) if rng.random() < 0.3 else _changed(whole, 0, len(whole), rng)


# -- small inputs that stand for much ----------------------------------------------------------


def _endless(start: bytes, piece: bytes, times: int = 256) -> bytes:
    """Compressed text, two gigabytes of it: a start, then the same piece again and again."""
    repeated = gzip.compress(piece * (2**23 // len(piece)), 6, mtime=0)
    return gzip.compress(start, mtime=0) + repeated * times


def text_bombs() -> list[bytes]:
    wide, wider = (b",".join([b"y", *(b"c%d" % i for i in range(n))]) for n in (1000, 150_000))
    return [
        b"a,y\n" + b"1," * 2**24,
        wide + b"\n" + b"1," * 1000 + b"1\n",
        wider + b"\n" + b"1," * 150_000 + b"1\n",
        b"," * 10**6 + b"\n1\n",
        b"a,y\n" + b"1,2\n\xff,3\n" * 9999,
        b"a,y\n" + b"1,2\r3,4\n5,6\n" * 999,
        b"a,y\n" + b'"1\n' * 9999,
        b'"' * 10**6,
        b"\r" * 10**6,
        b"a,y\n" + b"1" * 2**23 + b",2\n3,4\n",
        b"a,y\r1,2\r3,4\r",
    ]


def gzip_bombs() -> list[bytes]:
    row = b"1," + b" " * 10**6 + b"2\n"
    return [
        *(_endless(b"a,y\n1,2\n", piece) for piece in (b"1", b"\n", b"\r\n", b",", b'"', b"\0")),
        *(_endless(b"", piece) for piece in (b"a", b"\n", b"a,", b'"')),
        _endless(b"a,y\n", row, 4),
    ]


def zip_bombs() -> list[bytes]:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for start, piece in ((b"a,y\n1,2\n", b"1"), (b"a,y\n1,2\n", b"\n")):
            with archive.open(f"{piece.hex()}.csv", "w") as member:
                member.write(start)
                for _ in range(64):
                    member.write(piece * 2**20)
    return [written.getvalue(), packed_zip(*[b""] * 999), *map(packed_zip, text_bombs())]


def libsvm_bombs() -> list[bytes]:
    numbers = (2**31 - 1, 2**31, 2**22, 2**22 + 1, 2**63, 2**64 + 1, 10**30, -1, -(2**40))
    rows = [b"1 1:2 %d:1\n" % number for number in numbers]
    return [*rows, b"1\n" * 9999, b"1 " * 2**21, b"1 1:1\n" + b" " * 2**25, b"1:1 " * 9999, b"#" * 2**25, b"\0" * 2**20]


def npy_bombs() -> list[bytes]:
    zeros = b"\x93NUMPY\x01\0" + struct.pack("<H", 118)
    shapes = ((2**27, 8), (4, 2**32), (2**61, 8), (2**60, 16), (0, 99), (99, 0))
    headers = (f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}" for shape in shapes)
    return [zeros + header.encode().ljust(117) + b"\n" for header in headers]


def npz_bombs() -> list[bytes]:
    header = npy_bombs()[0]
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
        member.write(header)
        for _ in range(16):
            member.write(bytes(2**24))
    return [written.getvalue(), *(npz_file(bomb) for bomb in npy_bombs())]


def picture_bombs() -> list[bytes]:
    def png(width: int, height: int, bits: int, colour: int, rows: int) -> bytes:
        packer = zlib.compressobj(1)
        line = bytes(1 + width * bits * {0: 1, 2: 3, 6: 4}[colour] // 8)
        content = b"".join(packer.compress(line) for _ in range(rows)) + packer.flush()
        head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
        parts = [(b"IHDR", head), (b"IDAT", content), (b"IEND", b"")]
        packed = (struct.pack(">I", len(c)) + kind + c + struct.pack(">I", zlib.crc32(kind + c)) for kind, c in parts)
        return b"\x89PNG\r\n\x1a\n" + b"".join(packed)

    sizes = [(13_000, 13_000, 8, 2, 3000), (6600, 6600, 8, 2, 6600), (9000, 9000, 16, 6, 99), (2**31 - 1, 1, 8, 2, 0)]
    return [png(*size) for size in sizes]


def parquet_bombs() -> list[bytes]:
    constant = io.BytesIO()
    pq.write_table(pa.table({"a": np.zeros(2**20), "y": np.zeros(2**20, np.int8)}), constant)
    return [constant.getvalue()]
