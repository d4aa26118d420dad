"""Whole frames of a film as signals: a few reference frames and what they make of all the others.

    python benchmarks/film.py

The paper (Feldman, Feigin and Sochen 2013) closes with signals of very high dimension. Here a film is made, frame by
frame: scenes of different length with smooth backgrounds, things that move in front of them, light that changes, and
noise. Frames (172,800 numbers each) are never all in memory; a coreset of them is kept, and K-SVD that starts from
frames of it finds the atoms. The error is that of all frames, coded with three atoms.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from common import save, show, timed
from tithe import Block
from tithe.core.contracts import Source
from tithe.dictionary import KSVD

H, W = 360, 480
LEAF = 32  # frames made at a time
K, T = 24, 3


class Film(Source):
    """A source of frames (n, H * W) float32, each made when it is asked for."""

    def __init__(self, n_frames: int, seed: int) -> None:
        self.n_rows = n_frames
        self.n_features = H * W
        self._seed = seed
        rng = np.random.default_rng(seed)
        lengths = np.array([0.4, 0.3, 0.2, 0.07, 0.03])  # the last scenes are short: easily missed
        self._ends = np.cumsum(np.rint(lengths * n_frames).astype(int))
        y, x = np.mgrid[:H, :W]
        self._at = y, x
        self._scenes = []
        for _ in lengths:
            waves = rng.uniform(0.2, 3.0, size=(6, 2)) * rng.choice([-1, 1], size=(6, 2))
            phases = rng.uniform(0, 6.3, size=6)
            back = sum(np.sin(6.3 * (a * y / H + b * x / W) + p) for (a, b), p in zip(waves, phases, strict=True))
            things = rng.uniform((0, 0, -1.5, -3, 15, -80), (H, W, 1.5, 3, 60, 80), size=(3, 6))
            self._scenes.append((120 + 25 * back, things))

    def frame(self, i: int) -> np.ndarray:
        number = min(int(np.searchsorted(self._ends, i, side="right")), len(self._scenes) - 1)
        back, things = self._scenes[number]
        y, x = self._at
        picture = back * (1 + 0.1 * np.sin(i / 40.0))
        for top, left, down, right, radius, shade in things:
            cy, cx = (top + down * i) % H, (left + right * i) % W
            picture = picture + shade * ((y - cy) ** 2 + (x - cx) ** 2 < radius**2)
        noise = np.random.default_rng((self._seed, i)).normal(size=(H, W))
        return (picture + 3 * noise).astype(np.float32).ravel()

    def _load(self, ids: np.ndarray) -> Block:
        return Block(X=np.stack([self.frame(int(i)) for i in ids]), indices=ids)

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        for start in range(first * LEAF, int(self.n_rows or 0), LEAF):
            yield partial(self._load, np.arange(start, min(int(self.n_rows or 0), start + LEAF)))

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        n = int(self.n_rows or 0)
        return self._load(np.sort(rng.choice(n, min(n, LEAF if size is None else size), replace=False)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=320)
    parser.add_argument("--size", type=int, default=64)
    arguments = parser.parse_args()
    film = Film(arguments.frames, seed=0)
    energy = float(np.mean([np.var(film.frame(i)) for i in range(0, arguments.frames, 16)]))
    options: dict[str, Any] = {"n_components": K, "n_nonzero_coefs": T, "max_iter": 6, "random_state": 0}
    rows, table = [], []
    for way in ("coreset", "weighted uniform", "all frames"):
        model = KSVD(**options)
        if way == "all frames":
            fit = partial(model.fit, film.sample(film.n_rows, rng=np.random.default_rng(0)).X)
        else:
            model.set_params(coreset_size=arguments.size, construction="auto" if way == "coreset" else "uniform")
            fit = partial(model.fit, film)
        _, seconds = timed(fit)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        error = model.certify(film).value
        kept = arguments.frames if model.coreset_ is None else len(model.coreset_)
        rows.append({"way": way, "frames": kept, "seconds": seconds, "error": error, "peak_bytes": peak})
        table.append([way, kept, seconds, error, error / energy, peak / 1e9])
    show(
        f"{arguments.frames} frames of {H} x {W} = {H * W:,} numbers, {K} atoms, {T} a frame (noise alone: 9)",
        ["learned from", "frames", "s", "error", "/ variance", "peak GB so far"],
        table,
    )
    save("film", {"frames": arguments.frames, "size": arguments.size, "runs": rows})


if __name__ == "__main__":
    main()
