"""The harness tells apart every way in which a call can end."""

import os
import time

import pytest
from harness import Pool, table

from tithe.core.errors import FileFormatError


def end_as_told(data: bytes) -> None:
    if data == b"refuse":
        raise FileFormatError("damaged")
    if data == b"decode":
        b"\xff".decode()
    if data == b"die":
        os.abort()
    if data == b"hang":
        time.sleep(60)
    if data == b"take":
        bytes(b"x" * (64 << 20))
    if data == b"grow":
        bytearray(4 << 30)


@pytest.mark.slow
def test_every_end_is_told_apart_and_the_pool_goes_on():
    inputs = [b"good", b"refuse", b"decode", b"die", b"hang", b"good"]
    with Pool(end_as_told, seconds=0.5, n_workers=1) as pool:
        outcomes = pool.run(inputs)
    assert [outcome.kind for outcome in outcomes] == ["ok", "refused", "other", "death", "hang", "ok"]
    assert outcomes[1].detail == "FileFormatError: damaged" and "UnicodeDecodeError" in outcomes[2].detail
    assert table({"all": outcomes}).splitlines()[1].split()[:6] == ["all", "2", "1", "1", "1", "1"]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="a peak is measured anew on Linux only")
def test_memory_is_measured_for_each_input():
    with Pool(end_as_told, n_workers=1) as pool:
        grown = [outcome.grown_bytes for outcome in pool.run([b"good", b"take", b"good"])]
    assert grown[1] >= 63 << 20 and max(grown[0], grown[2]) < 8 << 20


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is limited on Linux only")
def test_memory_is_limited():
    with Pool(end_as_told, n_workers=1, memory=256 << 20) as pool:
        (outcome,) = pool.run([b"grow"])
    assert outcome.kind == "other" and "MemoryError" in outcome.detail


@pytest.mark.slow
def test_a_worker_that_fails_on_good_inputs_is_an_error():
    with Pool(end_as_told, warm=[b"refuse"]) as pool, pytest.raises(RuntimeError, match="damaged"):
        pool.run([b"good"])
