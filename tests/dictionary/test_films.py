"""Films as rows, their scenes and key frames, and the commands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import adjusted_rand_score

from tithe import CoresetKMeans, FileFormatError
from tithe.cli.main import main
from tithe.dictionary import KSVD, Film, find_scenes, key_frames
from tithe.dictionary.scenes import coded_errors

SHAPE = (36, 64)


def run(*arguments: object) -> int:
    try:
        main([str(a) for a in arguments])
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def small_film(order: list[int], lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Frames (n, h, w, 3) uint8 of smooth scenes with a thing that moves and light that changes, and their scenes."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] / np.array(SHAPE)[:, None, None]
    backs = {}
    for scene in sorted(set(order)):
        a, b, p = rng.uniform(-3, 3, (4, 1)), rng.uniform(-3, 3, (4, 1)), rng.uniform(0, 6.3, (4, 3))
        waves = np.sin(6.3 * (a[..., None] * y + b[..., None] * x)[..., None] + p[:, None, None, :])
        backs[scene] = 120 + 30 * waves.sum(axis=0)
    frames, labels = [], []
    for scene, length in zip(order, lengths, strict=True):
        for _ in range(length):
            i = len(frames)
            thing = ((y - (0.01 * i) % 1) ** 2 + (x - (0.02 * i) % 1) ** 2 < 0.02)[..., None]
            picture = backs[scene] * (1 + 0.1 * np.sin(i / 15)) + 70 * thing + 3 * rng.normal(size=(*SHAPE, 1))
            frames.append(picture.clip(0, 255).astype(np.uint8))
            labels.append(scene)
    return np.stack(frames), np.array(labels)


def write_all(folder: Path, frames: np.ndarray) -> dict[str, Path]:
    """The frames as files of every kind."""
    images = [Image.fromarray(frame) for frame in frames]
    (folder / "frames").mkdir()
    for i, image in enumerate(images):
        image.save(folder / "frames" / f"shot{i}.png")
    kinds = {"folder": folder / "frames", "pattern": folder / "frames" / "shot*.png"}
    for ending in ("tif", "png", "webp"):
        kinds[ending] = folder / f"film.{ending}"
        first, *others = [Image.fromarray(frame) for frame in frames]
        options = {"lossless": True} if ending == "webp" else {}
        first.save(kinds[ending], save_all=True, append_images=others, **options)
    return kinds


def test_frames_of_every_kind_of_file_are_the_same_rows(tmp_path) -> None:
    frames = small_film([0, 1], [7, 5])[0]
    rows = frames.reshape(12, -1).astype(np.float32)
    for kind, where in write_all(tmp_path, frames).items():
        film = Film(where, color=True)
        assert (film.n_rows, film.n_features, film.shape) == (12, 36 * 64 * 3, (36, 64, 3)), kind
        np.testing.assert_array_equal(film.frames([11, 2, 2]).reshape(3, -1), rows[[11, 2, 2]])
        leaves = [task() for task in film.tasks(1, 5)]
        np.testing.assert_array_equal(np.concatenate([leaf.X for leaf in leaves]), rows[5:])
        np.testing.assert_array_equal(np.concatenate([leaf.row_ids() for leaf in leaves]), np.arange(5, 12))
        drawn = film.sample(4, rng=np.random.default_rng(0))
        np.testing.assert_array_equal(drawn.X, rows[drawn.row_ids()])
    grey = Film(tmp_path / "frames", size=(9, 16))
    small = np.asarray(Image.fromarray(frames[3]).convert("L").resize((16, 9), Image.Resampling.BOX))
    np.testing.assert_array_equal(grey.frames([3])[0], small)
    assert grey.name_of(10) == "shot10.png" and Film(tmp_path / "film.tif").name_of(10) == "film.tif[10]"


def test_videos(tmp_path) -> None:
    av = pytest.importorskip("av")
    frames = small_film([0, 1], [7, 5])[0]
    with av.open(str(tmp_path / "film.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.height, stream.width, stream.pix_fmt = *SHAPE, "bgr0"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    film = Film(tmp_path / "film.mkv", color=True)
    assert (film.n_rows, film.rate, film.count()) == (None, 25.0, 12)
    np.testing.assert_array_equal(film.frames([11, 2]), frames[[11, 2]])
    assert find_scenes(film).cuts.tolist() == [7]
    assert CoresetKMeans(2, random_state=0).fit(film).cluster_weights_.tolist() in ([7.0, 5.0], [5.0, 7.0])
    (tmp_path / "cut.mkv").write_bytes((tmp_path / "film.mkv").read_bytes()[:300])
    with pytest.raises(FileFormatError, match="whole video"):
        Film(tmp_path / "cut.mkv").count()


def test_pictures_of_16_bits_and_turned_ones(tmp_path) -> None:
    deep = (np.arange(12).reshape(3, 4) * 257 * 20).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "1.png")
    np.testing.assert_allclose(Film(tmp_path / "1.png").frames([0])[0], deep / 257.0)
    np.testing.assert_allclose(Film(tmp_path / "1.png", color=True).frames([0])[0, ..., 2], deep / 257.0)
    turned = Image.fromarray((deep // 257).astype(np.uint8))
    about = Image.Exif()
    about[0x0112] = 6
    turned.save(tmp_path / "2.png", exif=about)
    film = Film(tmp_path / "2.png")
    np.testing.assert_array_equal(film.frames([0])[0], np.rot90(deep // 257, -1))


def test_what_is_no_film_is_refused(tmp_path) -> None:
    frames = small_film([0], [3])[0]
    Image.fromarray(frames[0]).save(tmp_path / "1.png")
    Image.fromarray(frames[1][:20]).save(tmp_path / "2.png")
    with pytest.raises(ValueError, match="size"):
        Film(tmp_path).frames([1])
    assert Film(tmp_path, size=(5, 8)).frames([0, 1]).shape == (2, 5, 8)
    with pytest.raises(ValueError, match="2 frames"):
        Film(tmp_path, size=(5, 8)).frames([2])
    (tmp_path / "3.png").write_bytes((tmp_path / "1.png").read_bytes()[:900])
    with pytest.raises(FileFormatError, match=r"3\.png"):
        find_scenes(Film(tmp_path, size=(5, 8)))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("words")
    with pytest.raises(FileNotFoundError, match="no picture"):
        Film(tmp_path / "text")
    with pytest.raises(FileFormatError, match=r"a\.txt"):
        Film(tmp_path / "text" / "a.txt")
    with pytest.raises(FileNotFoundError):
        Film(tmp_path / "none.png")


@pytest.fixture(scope="module")
def film_file(tmp_path_factory) -> tuple[Path, np.ndarray]:
    frames, labels = small_film([0, 1, 2, 0, 3, 1, 2], [20, 30, 12, 25, 9, 15, 20])
    frames[40] = 255  # a flash
    path = tmp_path_factory.mktemp("films") / "film.tif"
    Image.fromarray(frames[0]).save(path, save_all=True, append_images=[Image.fromarray(f) for f in frames[1:]])
    return path, labels


def test_cuts_and_scenes_that_come_back(film_file) -> None:
    path, labels = film_file
    found = find_scenes(Film(path))
    assert found.cuts.tolist() == (np.flatnonzero(np.diff(labels)) + 1).tolist()
    assert adjusted_rand_score(labels, found.labels) == 1.0
    assert [shot.scene for shot in found.shots] == [0, 1, 2, 0, 3, 1, 2]
    assert labels[found.key_frames].tolist() == [0, 1, 2, 3] and found.weights.tolist() == [45, 45, 32, 9]
    assert len(find_scenes(Film(path), n_scenes=2).key_frames) == 2
    assert len(find_scenes(Film(path), same=1e3).key_frames) == 1


def test_single_pictures_are_scenes(tmp_path) -> None:
    frames, _ = small_film([0, 1, 2, 0, 1], [1] * 5)
    for i, frame in enumerate(frames):
        Image.fromarray(frame).save(tmp_path / f"{i}.png")
    assert find_scenes(Film(tmp_path)).labels.tolist() == [0, 1, 2, 0, 1]
    assert find_scenes(Film(tmp_path / "0.png")).labels.tolist() == [0]


def test_key_frames_stand_for_all(film_file) -> None:
    """One of each scene; weights are numbers of frames; the error is what a computation by hand gives."""
    path, labels = film_file
    film = Film(path, size=(18, 32))
    found = key_frames(film, 5)  # four scenes and a flash
    assert set(labels[found.numbers]) == {0, 1, 2, 3} and 40 in found.numbers
    assert found.weights.sum() == len(labels) and (found.weights == np.bincount(found.labels)).all()
    X = film.frames(range(len(labels))).reshape(len(labels), -1).astype(np.float64)
    nearest, pursued = coded_errors(film, found.numbers, found.labels, n_nonzero_coefs=5)
    assert nearest == pytest.approx(np.mean((X - X[found.numbers[found.labels]]) ** 2), rel=1e-5)
    best = np.linalg.lstsq(X[found.numbers].T, X.T, rcond=None)[0]
    assert pursued == pytest.approx(np.mean((X.T - X[found.numbers].T @ best) ** 2), rel=1e-3)
    assert len(key_frames(film, 1000).numbers) <= len(labels)


def test_learners_read_a_film_as_they_read_its_rows(film_file) -> None:
    film = Film(film_file[0], size=(18, 32))
    X = film.frames(range(film.n_rows)).reshape(film.n_rows, -1)
    model = CoresetKMeans(4, random_state=0).fit(film)
    assert model.inertia_ == pytest.approx(CoresetKMeans(4, random_state=0).fit(X).inertia_, rel=0.05)
    atoms = KSVD(6, n_nonzero_coefs=2, max_iter=4, coreset_size=60, random_state=0).fit(film)
    assert atoms.coreset_.n_seen == len(X)
    assert (
        atoms.certify(film).value == pytest.approx(atoms.certify(X).value, rel=1e-6)
        and atoms.certify(X).value < np.var(X) / 5
    )


def test_commands(film_file, tmp_path, capsys) -> None:
    path, labels = film_file
    out = [*("-o", tmp_path / "found.json"), *("--sheet", tmp_path / "sheet.png")]
    assert run("scenes", path, *out) == 0
    assert "131 frames, 7 shots, 4 scenes" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [shot["scene"] for shot in found["shots"]] == [0, 1, 2, 0, 3, 1, 2] and len(found["key_frames"]) == 4
    assert Image.open(tmp_path / "sheet.png").mode == "RGB"
    assert run("keyframes", path, "-n", 5, "--size", "18x32", *out) == 0
    text = capsys.readouterr().out
    assert "5 key frames of 131 frames" in text and "made from up to 3 key frames" in text
    found = json.loads((tmp_path / "found.json").read_text())
    assert sum(found["weights"]) == len(labels) and found["psnr"]["up_to_3"] > found["psnr"]["nearest"] > 20
    assert run("keyframes", path, "--size", "huge") == 2
    assert run("scenes", tmp_path / "none.png") == 2
    assert run("scenes", path, "--sheet", path) == 2
