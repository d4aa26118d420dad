"""Patches as a source: the same rows as brute force, whatever the leaves."""

from __future__ import annotations

import numpy as np
import pytest

from tithe import Checkpoint, build_coreset
from tithe.core.data import concat
from tithe.core.parallel import limit_threads
from tithe.dictionary import KSVD
from tithe.dictionary.patch_kernels import add_patches, cut_patches
from tithe.dictionary.patches import PatchSource, corners, covers
from tithe.dictionary.pictures import Planes, as_pixels
from tithe.objectives import DictionaryObjective


def brute_force(plane: np.ndarray, side: int, step: int = 1) -> np.ndarray:
    tops = sorted({*range(0, plane.shape[0] - side + 1, step), plane.shape[0] - side})
    lefts = sorted({*range(0, plane.shape[1] - side + 1, step), plane.shape[1] - side})
    return np.array([plane[y : y + side, x : x + side].ravel() for y in tops for x in lefts])


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_a_source_gives_all_patches_in_order(rng, step) -> None:
    image = rng.integers(0, 256, size=(23, 31), dtype=np.uint8)
    source = PatchSource(image, patch_size=5, step=step, centered=False)
    rows = concat([task() for task in source.tasks()])
    np.testing.assert_array_equal(rows.X, brute_force(image, 5, step))
    np.testing.assert_array_equal(rows.row_ids(), np.arange(source.n_rows))


def test_centred_patches_have_no_mean_and_planes_follow_one_another(rng) -> None:
    image = rng.integers(0, 256, size=(20, 17, 3), dtype=np.uint8)
    source = PatchSource(image, patch_size=4)
    rows = concat([task() for task in source.tasks()]).X
    assert np.abs(rows.mean(axis=1)).max() < 1e-5 and len(rows) == 3 * 17 * 14
    luma = brute_force(image.sum(axis=2) / np.sqrt(3.0), 4)
    np.testing.assert_allclose(rows[: len(luma)], luma - luma.mean(axis=1, keepdims=True), atol=1e-3)


def test_leaves_samples_and_left_out_patches_agree(rng) -> None:
    image = rng.integers(0, 256, size=(40, 33, 3), dtype=np.uint8)
    image[:20] = 9
    source = PatchSource(image, patch_size=8, above=1.0)
    every = concat([task() for task in PatchSource(image, patch_size=8).tasks()])
    leaves = [task() for task in source.tasks(leaf_rows=100)]
    kept = concat(leaves)
    assert 0 < len(kept) < len(every) == source.n_rows and len(leaves) > 3
    np.testing.assert_array_equal(kept.X, every.X[kept.row_ids()])
    later = [task() for task in source.tasks(3, leaf_rows=100)]
    np.testing.assert_array_equal(later[0].X, leaves[3].X)
    some = source.sample(500, rng=rng)
    np.testing.assert_array_equal(some.X, every.X[some.row_ids()])


def test_a_coreset_and_a_dictionary_come_from_the_source(rng, tmp_path) -> None:
    image = rng.integers(0, 256, size=(300, 300), dtype=np.uint8)
    source = PatchSource(image, patch_size=6)
    assert source.identity != PatchSource(image + 1, patch_size=6).identity
    coreset = build_coreset(source, objective=DictionaryObjective(), coreset_size=400, random_state=0)
    assert len(coreset) <= 400 and round(coreset.weights().sum()) == source.n_rows
    checkpoint = Checkpoint(tmp_path / "state", every=0.0)
    kept = build_coreset(
        source, objective=DictionaryObjective(), coreset_size=400, random_state=0, checkpoint=checkpoint
    )
    np.testing.assert_array_equal(kept.X, coreset.X)
    assert (tmp_path / "state").is_dir()
    assert KSVD(20, coreset_size=400, max_iter=1, random_state=0).fit(source).components_.shape == (20, 36)


@pytest.mark.parametrize(("length", "side", "step"), [(9, 3, 1), (9, 3, 2), (10, 4, 3), (8, 8, 8), (17, 8, 8)])
def test_counts_by_brute_force(length, side, step) -> None:
    starts = corners(length, side, step)
    count = np.zeros(length, int)
    for start in starts:
        count[start : start + side] += 1
    np.testing.assert_array_equal(covers(length, side, starts), count)
    assert count.min() >= 1


@pytest.mark.bits
def test_patches_put_back_cover_each_pixel_as_often_as_counted(rng) -> None:
    plane = rng.normal(size=(30, 700)).astype(np.float32)
    tops, lefts = corners(30, 8, 2), corners(700, 8, 3)
    top, left = np.repeat(tops, len(lefts)), np.tile(lefts, len(tops))
    results = []
    for threads in (1, 2, 5):
        with limit_threads(threads):
            X, energy = cut_patches(plane, top, left, 8, centered=False)
            total = np.zeros(plane.shape)
            add_patches(X, tops, lefts, 8, total)
            results.append(total)
    count = np.multiply.outer(covers(30, 8, tops), covers(700, 8, lefts))
    np.testing.assert_allclose(results[0], count * plane, rtol=1e-12)
    np.testing.assert_allclose(energy, (X.astype(float) ** 2).sum(axis=1), rtol=1e-12)
    assert all(np.array_equal(results[0], other) for other in results[1:])


def test_planes_are_orthonormal_and_grey_has_one(rng) -> None:
    image = rng.integers(0, 65536, size=(12, 9, 3), dtype=np.uint16)
    planes = Planes(image)
    read = np.stack([planes.read(p, 0, 12) for p in range(3)])
    np.testing.assert_allclose((read.astype(float) ** 2).sum(axis=0), (image.astype(float) ** 2).sum(axis=2), rtol=1e-5)
    assert np.abs(planes.changed(0, read)).max() < 0.05
    grey = Planes(np.repeat(image[..., :1], 3, axis=2))
    assert not grey.read(1, 0, 12).any() and not grey.read(2, 0, 12).any()


@pytest.mark.parametrize("dtype", [">u2", ">f4", ">f8"])
def test_any_byte_order(rng, dtype) -> None:
    image = rng.integers(0, 256, size=(20, 17)).astype(dtype)
    np.testing.assert_array_equal(Planes(image).read(0, 0, 20), image.astype(np.float32))
    assert Planes(image).image.dtype.isnative


def test_pixels_stay_within_their_type() -> None:
    np.testing.assert_array_equal(as_pixels(np.array([-3.0, 1.6, 300.0]), np.uint8), [0, 2, 255])
    assert as_pixels(np.array([-3.0]), np.float32)[0] == -3.0


@pytest.mark.parametrize(
    ("image", "options", "says"),
    [
        (np.zeros((5, 30)), {}, "smaller patch_size"),
        (np.zeros((30, 30)), {"step": 9}, "leaves gaps"),
        (np.zeros((30, 30)), {"patch_size": 0}, "patch_size must be"),
        (np.zeros((30, 30, 4)), {}, "alpha"),
        (np.zeros((30, 30), bool), {}, "uint8, uint16"),
        (np.zeros((0, 30)), {}, "no pixels"),
        (np.full((30, 30), 1e20), {}, "Rescale"),
        (np.full((30, 30), 1e-20), {}, "no larger than 1e-20.*Rescale"),
        (np.zeros((30, 30, 1)), {}, "last axis"),
        (np.zeros((30, 30, 2)), {}, "alpha"),
        (np.zeros((30, 30), np.int32), {}, "uint8, uint16"),
        (np.where(np.eye(30, k=2), np.nan, 1.0), {}, "row 0 and column 2"),
    ],
)
def test_bad_pictures_are_refused(image, options, says) -> None:
    with pytest.raises(ValueError, match=says):
        PatchSource(image, **options)
