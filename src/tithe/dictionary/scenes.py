"""Scenes and key frames of films, found in small copies of all frames."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import cdist, squareform

from tithe.core.data import Array, Block
from tithe.core.params import OneOf, RealNumber, WholeNumber, check_value
from tithe.core.passes import DataPass
from tithe.core.progress import Progress
from tithe.dictionary.films import Film
from tithe.dictionary.solver import Coding, unit

_SEEN = (36, 64)  # height and width that frames are read at
_CELL = 4  # pixels along a side of a cell, whose means are what frames are compared by
_N_MEANS = 3 * (_SEEN[0] // _CELL) * (_SEEN[1] // _CELL)  # 432: 9 x 16 cells in three colours
_QUANTILES = np.linspace(1 / 32, 31 / 32, 16)  # of the colours, and of the contrast in cells
_CONTRAST = 2.0  # how much contrast counts beside colours
_WINDOW = 12  # frames on either side that a jump is compared with
_MIN_JUMP, _SURE_JUMP = 6.0, 40.0  # grey levels: below the first no jump is a cut, from the second on each is
_JUMP_RATIO = 4.0  # to the jumps around, above which one is a cut
_LOOKS, _ALL_LOOKS = 8, 2000  # frames that stand for a shot when it is compared with others, and for all shots
_FLAT = 4.0  # standard deviation of the cells below which a frame shows nothing
_CHUNK = 4096  # frames that are worked on at a time
_MOST_LIGHT = 1.25  # by which the light of a scene may differ
_TILE_HEIGHT, _CAPTION, _GAP = 108, 14, 4  # pixels of a contact sheet


class Shot(NamedTuple):
    """Frames ``start`` to ``stop`` (not included) between two cuts, and the number of their scene."""

    start: int
    stop: int
    scene: int


@dataclass(frozen=True, eq=False)
class Scenes:
    """The shots of a film in order, and the scenes that they belong to, numbered as they first appear.

    ``labels`` (n,) has the scene of each frame, ``key_frames`` the most typical frame of each scene.
    """

    shots: tuple[Shot, ...]
    labels: Array
    key_frames: Array

    @property
    def cuts(self) -> Array:
        """The first frame of each shot but the first."""
        return np.array([shot.start for shot in self.shots[1:]], np.int64)

    @property
    def weights(self) -> Array:
        """The number of frames of each scene."""
        return np.bincount(self.labels, minlength=len(self.key_frames))


@dataclass(frozen=True, eq=False)
class KeyFrames:
    """Frames that stand for all: their ``numbers`` in order, how many frames each stands for, and which (n,)."""

    numbers: Array
    weights: Array
    labels: Array


def find_scenes(
    film: Film, *, n_scenes: int | None = None, same: float = 7.0, progress: Progress | bool | None = None
) -> Scenes:
    """Cut a film into shots, and find those that show the same scene.

    Frames are compared by the mean colours of 9 x 16 cells. The jump d(s, t) is the median over the cells of the
    difference in grey levels (0 to 255), so that things that move or appear in less than half of a picture make none.
    There is a cut before frame t if d(t - 1, t), d(t - 2, t) and d(t - 1, t + 1) are all larger than 6, and either
    four times what is usual in the 12 frames on either side, or 40: a flash of a single frame is no cut, nor is a fast
    motion that goes on. A scene that slowly fades into another is not seen to change.

    Two frames look as different as sqrt(d q), with q the root mean square difference of the quantiles of their colours
    and of the contrast within cells, which a camera that pans or zooms changes little; two shots as the most similar of
    up to 8 frames of each, after light that differs by up to a quarter was made equal. Shots with an average difference
    below ``same`` are one scene. Memory: 496 bytes for each frame, and a few leaves of frames.

    Parameters
    ----------
    film : Film
    n_scenes : int, optional
        The number of scenes, if it is known: ``same`` is then not used.
    same : float
        The difference, in grey levels, below which shots show the same scene.
    progress
        As in `build_coreset`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from PIL import Image
    >>> from tithe.dictionary import Film, find_scenes
    >>> rng = np.random.default_rng(0)
    >>> scenes = rng.integers(0, 255, size=(3, 9, 16)).astype(np.uint8)
    >>> frames = [Image.fromarray(scenes[i]) for i in (0, 0, 0, 1, 1, 1, 0, 0, 2, 2)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     frames[0].save(Path(folder, "film.tif"), save_all=True, append_images=frames[1:])
    ...     found = find_scenes(Film(Path(folder, "film.tif")))
    >>> found.labels, found.cuts
    (array([0, 0, 0, 1, 1, 1, 0, 0, 2, 2]), array([3, 6, 8]))
    """
    check_value("n_scenes", n_scenes, OneOf(None) | WholeNumber(least=1))
    check_value("same", same, RealNumber(above=0.0))
    seen = _seen(film, progress)
    small = seen[:, :_N_MEANS]
    edges = [0, *_cuts(small).tolist(), len(small)]
    spans = list(pairwise(edges))
    n_looks = max(1, min(_LOOKS, _ALL_LOOKS // len(spans)))
    scene_of = _scenes_of([_looks(seen[start:stop], n_looks) for start, stop in spans], n_scenes, same)
    labels = np.repeat(scene_of, np.diff(edges))
    keys = [_most_typical(small, np.flatnonzero(labels == scene)) for scene in range(scene_of.max() + 1)]
    shots = tuple(Shot(*span, int(scene)) for span, scene in zip(spans, scene_of, strict=True))
    return Scenes(shots, labels, np.array(keys))


def key_frames(film: Film, n: int = 20, *, random_state: Any = 0, progress: Progress | bool | None = None) -> KeyFrames:
    """At most ``n`` frames that stand for all frames of a film, each for those that are nearest to it.

    k-means on a coreset of small copies (9 x 16 cells, in colour) finds n groups; of each the frame nearest to the
    mean is taken, which of its frames has the smallest sum of squared distances from the others.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from PIL import Image
    >>> from tithe.dictionary import Film, key_frames
    >>> scenes = np.random.default_rng(0).integers(0, 255, size=(2, 9, 16)).astype(np.uint8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for i in range(10):
    ...         Image.fromarray(scenes[int(i > 6)]).save(Path(folder, f"{i}.png"))
    ...     found = key_frames(Film(folder), 2)
    >>> found.numbers, found.weights
    (array([0, 7]), array([7, 3]))
    """
    from tithe.clustering.learners import CoresetKMeans

    check_value("n", n, WholeNumber(least=1))
    small = _seen(film, progress)[:, :_N_MEANS].astype(np.float32)
    n_different = len(np.unique(small, axis=0)) if len(small) <= 50 * n else n
    model = CoresetKMeans(min(n, n_different), random_state=random_state).fit(small)
    centers = model.cluster_centers_
    nearest = model.predict(small)
    groups = (np.flatnonzero(nearest == i) for i in range(len(centers)))
    numbers = np.sort([_nearest(small, members, centers[i]) for i, members in enumerate(groups) if len(members)])
    labels = np.concatenate(
        [cdist(small[i : i + _CHUNK], small[numbers]).argmin(axis=1) for i in range(0, len(small), _CHUNK)]
    )
    return KeyFrames(numbers, np.bincount(labels, minlength=len(numbers)), labels)


def coded_errors(
    film: Film, numbers: Array, labels: Array, *, n_nonzero_coefs: int = 3, progress: Progress | bool | None = None
) -> tuple[float, float]:
    """Mean squared error of a pixel, at the size of the film, if frames are made from those of these numbers.

    First each as the one that ``labels`` (n,) name, then as the best sum of at most ``n_nonzero_coefs`` of them, which
    orthogonal matching pursuit finds: a dictionary whose atoms are frames.
    """
    frames = film.frames(numbers).reshape(len(numbers), -1)
    atoms = unit(frames.astype(np.float64)).astype(np.float32)
    coding = Coding(n_nonzero=min(n_nonzero_coefs, len(atoms)))
    sums, n_rows = np.zeros(2), 0

    def errors(block: Block) -> Array:
        copied = block.X - frames[labels[block.row_ids()]]
        pursued = coding(block.X, atoms)[2] if len(atoms) else np.einsum("ij,ij->i", block.X, block.X)
        return np.array([np.einsum("ij,ij->i", copied, copied, dtype=np.float64).sum(), pursued.sum(), len(block)])

    for part in DataPass(film, progress=progress).each(errors):
        sums += part[:2]
        n_rows += int(part[2])
    copied, pursued = sums / (n_rows * film.n_features)
    return float(copied), float(pursued)


def contact_sheet(film: Film, numbers: Array, captions: list[str], *, columns: int | None = None) -> Array:
    """Frames side by side with captions below: (height, width, 3) uint8."""
    from PIL import Image, ImageDraw

    height = min(_TILE_HEIGHT, film.shape[0])
    width = max(1, round(height * film.shape[1] / film.shape[0]))
    tiles = film.scaled((height, width), color=True).frames(numbers).round().astype(np.uint8)
    across = columns or max(1, min(len(tiles), 1000 // (width + _GAP)))
    down = -(-len(tiles) // across)
    tall, wide = height + _CAPTION + _GAP, width + _GAP
    sheet = Image.new("RGB", (across * wide + _GAP, down * tall + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (tile, caption) in enumerate(zip(tiles, captions, strict=True)):
        top, left = _GAP + (i // across) * tall, _GAP + (i % across) * wide
        sheet.paste(Image.fromarray(tile), (left, top))
        draw.text((left, top + height + 1), caption, fill="black")
    return np.asarray(sheet)


def _seen(film: Film, progress: Progress | bool | None = None) -> Array:
    """What is kept of each frame, from one pass: mean colours of its cells, and quantiles: (n, 496) uint8."""
    rows = DataPass(film.scaled(_SEEN, color=True), progress=progress)
    return np.concatenate(list(rows.each(_summaries)))


def _summaries(block: Block) -> Array:
    """Mean colours of cells, and quantiles of colours and contrast: (n, 432 + 64) uint8."""
    n, (down, across) = len(block), _SEEN
    cells = block.X.reshape(n, down // _CELL, _CELL, across // _CELL, _CELL, 3)
    means = cells.mean(axis=(2, 4)).reshape(n, -1)
    contrast = cells.mean(axis=5).std(axis=(2, 4)).reshape(n, -1)
    colors = np.quantile(block.X.reshape(n, -1, 3), _QUANTILES, axis=1).transpose(1, 0, 2).reshape(n, -1)
    contrasts = np.quantile(_CONTRAST * contrast, _QUANTILES, axis=1).T
    seen = np.rint(np.concatenate([means, colors, contrasts], axis=1)).clip(0, 255)
    return np.asarray(seen.astype(np.uint8))


# -- cuts ------------------------------------------------------------------------------------------


def _cuts(small: Array) -> Array:
    """The numbers of the frames that a shot begins with, without the first."""
    n = len(small)
    if n == 1:
        return np.zeros(0, np.int64)
    jump = np.full(n + 1, np.inf)  # before each frame
    jump[1:n] = _jumps(small, 1)
    across = _jumps(small, 2)  # from t to t + 2
    jump[2:n] = np.minimum(jump[2:n], across)
    jump[1 : n - 1] = np.minimum(jump[1 : n - 1], across)
    padded = np.pad(jump[1:n], _WINDOW, mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * _WINDOW + 1)
    usual = np.quantile(around, 0.25, axis=1)  # half of the frames around may be cuts
    is_cut = (jump[1:n] > _MIN_JUMP) & ((jump[1:n] > _JUMP_RATIO * usual) | (jump[1:n] > _SURE_JUMP))
    return np.flatnonzero(is_cut) + 1


def _jumps(small: Array, lag: int) -> Array:
    """How far each frame is from the one that comes ``lag`` later."""
    starts = range(0, max(1, len(small) - lag), _CHUNK)
    return np.concatenate(
        [_apart(small[i : min(i + _CHUNK, len(small) - lag)], small[i + lag : i + lag + _CHUNK]) for i in starts]
    )


def _apart(a: Array, b: Array) -> Array:
    """The median over the cells of the difference of frames (..., 432), in grey levels."""
    gap = (a.astype(np.float32) - b).reshape(-1, _N_MEANS // 3, 3)
    return np.asarray(np.median(np.sqrt(np.mean(gap * gap, axis=-1)), axis=-1))


# -- scenes ----------------------------------------------------------------------------------------


def _looks(frames: Array, n_looks: int) -> Array:
    """Frames at even distances in a shot: dull ones only if there are no others."""
    shown = frames[frames[:, :_N_MEANS].std(axis=1) >= _FLAT]
    frames = shown if len(shown) else frames
    return frames[np.unique(np.linspace(0, len(frames) - 1, n_looks).round().astype(np.int64))]


def _scenes_of(looks: list[Array], n_scenes: int | None, same: float) -> Array:
    """The scene of each shot, numbered as they first appear."""
    if len(looks) == 1:
        return np.zeros(1, np.int64)
    rows = np.concatenate(looks).astype(np.float32)
    first = np.cumsum([0, *(len(shot) for shot in looks[:-1])])
    light = rows[:, :_N_MEANS].mean(axis=1) + 1.0
    nearest = np.empty((len(rows), len(looks)))
    for i, row in enumerate(rows):
        others = rows * np.clip(light[i] / light, 1.0 / _MOST_LIGHT, _MOST_LIGHT)[:, None]
        jump = _apart(row[:_N_MEANS], others[:, :_N_MEANS])
        gap = row[_N_MEANS:] - others[:, _N_MEANS:]
        nearest[i] = np.minimum.reduceat(np.sqrt(jump * np.sqrt(np.mean(gap * gap, axis=1))), first)
    distance = np.minimum.reduceat(nearest, first, axis=0)
    distance = np.minimum(distance, distance.T)
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(distance, checks=False), "average")
    number = fcluster(tree, *((same, "distance") if n_scenes is None else (n_scenes, "maxclust")))
    _, first_at, label = np.unique(number, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first_at))[label]


def _most_typical(small: Array, members: Array) -> int:
    return _nearest(small, members, small[members].mean(axis=0))


def _nearest(small: Array, members: Array, center: Array) -> int:
    return int(members[cdist(center[None], small[members]).argmin()])
