"""Films: cuts, recurring scenes and key frames beside the known ones, and dictionaries of whole frames.

    python benchmarks/scenes.py --data DIR

Two films are made, of which every cut and every scene is known, and written as videos: one generated (smooth
backgrounds, things that move in front of them, light that changes, noise), and one of real photographs that a camera
pans over and zooms into, each coming back at other times. The paper (Feldman, Feigin and Sochen 2013) closes with films
as an application: frames are signals of very high dimension. A coreset of frames is kept, and K-SVD that starts from
frames of it finds the atoms; the error is that of all frames, coded with three atoms. Memory is that of a process of
its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.metrics import adjusted_rand_score

from common import save, show
from tithe.dictionary import KSVD, Film, find_scenes, key_frames
from tithe.dictionary.scenes import coded_errors

H, W = 180, 320
N_SCENES = 12
K, T = 24, 3
RATE = 25


def shots_of(n_frames: int, n_scenes: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """(scene, frames) of shots that follow one another, scenes recurring, none after itself."""
    shots: list[tuple[int, int]] = [(scene, int(rng.integers(25, 150))) for scene in range(n_scenes)]
    while sum(length for _, length in shots) < n_frames:
        scene = int(rng.integers(n_scenes))
        if scene != shots[-1][0]:
            shots.append((scene, int(rng.integers(25, 150))))
    return shots


def generated(n_frames: int, seed: int) -> Iterator[tuple[int, np.ndarray]]:
    """(scene, frame) of a film of smooth backgrounds and moving things."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:H, :W].astype(np.float32)
    scenes = []
    for _ in range(N_SCENES):
        waves = rng.uniform(0.2, 3.0, size=(6, 2)) * rng.choice([-1, 1], size=(6, 2))
        phases = rng.uniform(0, 6.3, size=(6, 3))
        back = sum(
            np.sin(6.3 * (a * y / H + b * x / W)[..., None] + p) for (a, b), p in zip(waves, phases, strict=True)
        )
        things = rng.uniform((0, 0, -0.8, -1.5, 8, -80), (H, W, 0.8, 1.5, 30, 80), size=(3, 6))
        scenes.append((120 + 25 * back.astype(np.float32), things))
    number = 0
    for scene, length in shots_of(n_frames, N_SCENES, rng):
        back, things = scenes[scene]
        for _ in range(length):
            picture = back * (1 + 0.1 * np.sin(number / 40.0))
            for top, left, down, right, radius, shade in things:
                cy, cx = (top + down * number) % H, (left + right * number) % W
                picture = picture + (shade * ((y - cy) ** 2 + (x - cx) ** 2 < radius**2))[..., None]
            yield scene, noisy(picture, rng)
            number += 1


def photographs(n_frames: int, seed: int, folder: Path) -> Iterator[tuple[int, np.ndarray]]:
    """(scene, frame) of a film that pans over photographs and zooms into them."""
    rng = np.random.default_rng(seed)
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".png"))
    pictures = []
    for path in paths:
        with Image.open(path) as image:
            image.draft("RGB", (3 * W, 3 * H))
            pictures.append(image.convert("RGB").resize((2 * W, 2 * H), Image.Resampling.BOX))
    number = 0
    for scene, length in shots_of(n_frames, len(pictures), rng):
        share = rng.uniform(0.65, 0.95, size=2)  # of the picture that is seen, at the start and at the end
        corner = [rng.uniform(0, 1 - s, size=2) for s in share]
        for i in range(length):
            at = i / length
            s = (1 - at) * share[0] + at * share[1]
            left, top = ((1 - at) * corner[0] + at * corner[1]) * (2 * W, 2 * H)
            box = (left, top, left + s * 2 * W, top + s * 2 * H)
            frame = np.asarray(pictures[scene].resize((W, H), Image.Resampling.BILINEAR, box=box), np.float32)
            yield scene, noisy(frame * (1 + 0.05 * np.sin(number / 30.0)), rng)
            number += 1


def noisy(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    noise = rng.normal(size=(*picture.shape[:2], 1)).astype(np.float32)
    return (picture + 3 * noise).clip(0, 255).astype(np.uint8)


def write(path: Path, frames: Iterator[tuple[int, np.ndarray]]) -> np.ndarray:
    """Write the frames as a video, and return the scene of each."""
    import av

    labels = []
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=RATE)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = W, H, "yuv420p", 4_000_000
        for label, frame in frames:
            labels.append(label)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return np.array(labels)


def measure(path: Path, labels: np.ndarray) -> dict[str, Any]:
    """Scenes and key frames of a film, beside those that are known."""
    film, n_scenes = Film(path), len(np.unique(labels))
    start = time.process_time(), time.perf_counter()
    found = find_scenes(film)
    seconds = time.process_time() - start[0], time.perf_counter() - start[1]
    cuts, known = set(found.cuts.tolist()), set((np.flatnonzero(np.diff(labels)) + 1).tolist())
    keys = key_frames(film, n_scenes)
    return {
        "frames": len(labels),
        "scenes": n_scenes,
        "shots": len(known) + 1,
        "ari": adjusted_rand_score(labels, found.labels),
        "found_scenes": len(found.key_frames),
        "cuts_found": len(cuts & known),
        "cuts_wrong": len(cuts - known),
        "scenes_with_a_key_frame": len(np.unique(labels[keys.numbers])),
        "scenes_with_a_typical_frame": len(np.unique(labels[found.key_frames])),
        "cpu_seconds": seconds[0],
        "seconds": seconds[1],
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def dictionaries(path: Path, size: int) -> list[dict[str, Any]]:
    """The error of all frames coded with three of 24 atoms, which are frames or were learned from some or all."""
    film = Film(path)
    every = film.sample(film.count(), rng=np.random.default_rng(0)).X
    rows = []
    for way in ("key frames", "coreset", "weighted uniform", "all frames"):
        start = time.process_time()
        if way == "key frames":
            keys = key_frames(film, K)
            error, kept = coded_errors(film, keys.numbers, keys.labels, n_nonzero_coefs=T)[1], K
        else:
            model = KSVD(K, n_nonzero_coefs=T, max_iter=6, random_state=0)
            if way != "all frames":
                model.set_params(coreset_size=size, construction="auto" if way == "coreset" else "uniform")
            model.fit(every if way == "all frames" else film)
            kept = len(every) if model.coreset_ is None else len(model.coreset_)
            error = model.certify(every).value
        seconds = time.process_time() - start
        psnr = 10 * np.log10(255**2 / error)
        rows.append({"way": way, "frames": kept, "cpu_seconds": seconds, "error": error, "psnr": psnr})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with images/")
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        path, labels = map(Path, arguments.measure)
        print(json.dumps(measure(path, np.load(labels))))
        return
    films: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        makers = {"generated": generated(arguments.frames, 10)}
        if arguments.data is not None:
            makers["photographs"] = photographs(arguments.frames // 4, 11, arguments.data / "images")
        for name, frames in makers.items():
            path, labels = Path(folder, f"{name}.mkv"), Path(folder, f"{name}.npy")
            np.save(labels, write(path, frames))
            command = [sys.executable, __file__, "--measure", str(path), str(labels)]
            films[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        short = Path(folder, "short.mkv")
        write(short, generated(1500, 10))
        coded = dictionaries(short, arguments.size)
    show(
        f"films of {H} x {W}: scenes beside the known ones",
        ["film", "frames", "shots", "scenes", "ARI", "cuts found", "wrong", "key frames in", "CPU s", "peak GB"],
        [
            [n, f["frames"], f["shots"], f["scenes"], f["ari"], f["cuts_found"], f["cuts_wrong"],
             f["scenes_with_a_key_frame"], f["cpu_seconds"], f["peak_bytes"] / 1e9]
            for n, f in films.items()
        ],
    )  # fmt: skip
    show(
        f"frames coded with {T} of {K} atoms",
        ["atoms from", "frames", "CPU s", "error", "PSNR"],
        [[row["way"], row["frames"], row["cpu_seconds"], row["error"], row["psnr"]] for row in coded],
    )
    save("scenes", {"films": films, "dictionaries": coded, "size": arguments.size})


if __name__ == "__main__":
    main()
