"""Films and folders of pictures as rows: a frame is a row of grey levels or colours, read leaf by leaf."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tithe.core.contracts import Source
from tithe.core.data import Array, Block
from tithe.core.errors import FileFormatError
from tithe.core.params import Boolean, WholeNumber, check_value
from tithe.rows.leaves import InMemoryTask, usual_leaf_rows
from tithe.rows.paths import DataFile, find_files, identity_of
from tithe.rows.stores import Limits, check_regular

VIDEOS = (".mp4", ".m4v", ".mkv", ".webm", ".mov", ".avi", ".mpg", ".mpeg", ".wmv", ".flv", ".ogv", ".ts")
_ONE_FRAME = (".jpg", ".jpeg", ".bmp", ".ppm", ".pgm")  # no need to open a file to know how many it has
_ANIMATED = (".gif", ".png", ".apng", ".webp")  # of which a frame is the change of the one before
_SAMPLE_FRAMES = 2048
_SAMPLE_BYTES = 2**28  # of all frames of a sample
_DEEP = 257.0  # 65535 / 255


class _Reel(NamedTuple):
    """A file and the number of its frames, which is not known of a video before it was read."""

    file: DataFile
    n_frames: int | None


class Film(Source):
    """The frames of films and pictures as rows (n, height * width), or (n, height * width * 3) in colour, of float32.

    Values are 0 (black) to 255. Frames are read leaf by leaf, so a film need not fit into memory, and are what
    `CoresetKMeans`, `KSVD` and `build_coreset` take in place of an array.

    Parameters
    ----------
    where : path, pattern, folder, or list of these
        Pictures of any kind that Pillow reads; files of several frames (TIFF, animated GIF, PNG, WebP); videos, which
        need PyAV (``pip install 'tithe[video]'``). The files of a folder or pattern are in the order of their names,
        numbers in names counting as numbers: ``frame9.png`` comes before ``frame10.png``.
    size : (int, int), optional
        Height and width that frames are scaled to; by default those of the first. Without it, all must have the same.
    color : bool
        Whether a row has red, green and blue of each pixel, or its grey level.
    limits : Limits, optional
        What a file may ask for.

    Attributes
    ----------
    shape : tuple
        (height, width), or (height, width, 3).
    n_rows : int or None
        The number of frames; None for videos, see `count`.
    rate : float or None
        Frames in a second, of a single video.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from PIL import Image
    >>> from tithe.dictionary import Film
    >>> folder = tempfile.TemporaryDirectory()
    >>> for i in range(12):
    ...     Image.fromarray(np.full((18, 32), 20 * i, np.uint8)).save(Path(folder.name, f"{i}.png"))
    >>> film = Film(folder.name, size=(9, 16))
    >>> film.n_rows, film.n_features, film.frames([2, 10])[:, 0, 0]
    (12, 144, array([ 40., 200.], dtype=float32))
    >>> folder.cleanup()
    """

    def __init__(
        self, where: Any, *, size: tuple[int, int] | None = None, color: bool = False, limits: Limits | None = None
    ) -> None:
        check_value("color", color, Boolean())
        for side in size or ():
            check_value("size", side, WholeNumber(least=1))
        self.color, self._limits = color, limits or Limits()
        files = find_files(_picture_files(where), "film")[0]
        self.rate: float | None = None
        self._reels: list[_Reel] = []
        first = None
        for file in files:
            reel, seen = self._opened(file, len(files) == 1)
            self._reels.append(reel)
            first = first or seen or self._opened(file, True)[1]
        assert first is not None
        height, width = first if size is None else (int(size[0]), int(size[1]))
        self._scaled = size is not None
        self.shape: tuple[int, ...] = (height, width, 3) if color else (height, width)
        counts = [reel.n_frames for reel in self._reels]
        # frames that can be read only one after another come in one stream of leaves
        self._in_order = any(reel.n_frames is None or _is_animated(reel) for reel in self._reels)
        self._starts = np.cumsum([0, *(count or 0 for count in counts)])
        self.n_rows = None if None in counts else int(self._starts[-1])
        self._n_frames = self.n_rows
        self.n_features = int(np.prod(self.shape))
        self.row_bytes = 4 * self.n_features
        self.leaf_rows = usual_leaf_rows(self.row_bytes)
        self.n_bytes = sum(file.size for file in files)
        self.identity = identity_of("film", files, {"shape": list(self.shape)}, self.n_rows)

    def scaled(self, size: tuple[int, int], *, color: bool) -> Film:
        """The same frames at another size."""
        return Film([reel.file.path for reel in self._reels], size=size, color=color, limits=self._limits)

    def frames(self, numbers: Sequence[int] | Array) -> Array:
        """The frames of these numbers, in this order: (n, height, width) or (n, height, width, 3)."""
        order = np.unique(np.asarray(numbers, np.int64))
        found = self._rows(order)
        if len(found) < len(order) or (len(order) and order[0] < 0):
            raise ValueError(f"Frame {order[-1]} was asked for, and the film has {self.count():,} frames.")
        return found[np.searchsorted(order, numbers)].reshape(-1, *self.shape)

    def name_of(self, number: int) -> str:
        """The file of a frame, and the frame's number in it where the file has several."""
        at = int(np.searchsorted(self._starts, number, side="right")) - 1 if self.n_rows is not None else 0
        reel = self._reels[min(at, len(self._reels) - 1)]
        return reel.file.name if reel.n_frames == 1 else f"{reel.file.name}[{number - int(self._starts[at])}]"

    # -- as a source of rows -------------------------------------------------------------------

    def count(self) -> int:
        """The number of frames; videos are read for it once."""
        if self._n_frames is None:
            self._n_frames = sum(1 for _ in self._stream())
        return self._n_frames

    def n_leaves(self, leaf_rows: int | None = None) -> int | None:
        if self._in_order or self.n_rows is None:
            return None
        return -(-self.n_rows // (leaf_rows or self.leaf_rows))

    def tasks(self, first: int = 0, leaf_rows: int | None = None) -> Iterator[Callable[[], Block]]:
        """Loaders of the leaves from number ``first`` on; those of films that are decoded in order hold their rows."""
        size = leaf_rows or self.leaf_rows
        if not self._in_order:
            assert self.n_rows is not None
            for start in range(first * size, self.n_rows, size):
                yield partial(self._load, start, min(start + size, self.n_rows))
            return
        numbered = ((number, row) for number, row in enumerate(self._stream()) if number >= first * size)
        for _, group in groupby(numbered, key=lambda pair: pair[0] // size):
            numbers, rows = zip(*group, strict=True)
            yield InMemoryTask(Block(X=np.stack(rows), indices=np.array(numbers, np.int64)))
            del rows

    def sample(self, size: int | None, *, rng: np.random.Generator) -> Block:
        """``size`` frames from anywhere (None: up to 2,048)."""
        size = min(_SAMPLE_FRAMES, max(1, _SAMPLE_BYTES // self.row_bytes)) if size is None else size
        n = self.count()
        ids = np.sort(rng.choice(n, min(n, size), replace=False))
        return Block(X=self._rows(ids), indices=ids)

    def _load(self, start: int, stop: int) -> Block:
        ids = np.arange(start, stop)
        return Block(X=self._rows(ids), indices=ids)

    def _rows(self, ids: Array) -> Array:
        """The frames with these numbers, which ascend, as rows; without those after the last frame."""
        if self._in_order:
            wanted, rows = iter([*ids.tolist(), -1]), []
            number = next(wanted)
            for at, row in enumerate(self._stream()):
                if at == number:
                    rows.append(row)
                    number = next(wanted)
                if number < 0:
                    break
        else:
            rows = []
            for reel, start in zip(self._reels, self._starts, strict=False):
                inside = ids[(ids >= start) & (ids < start + (reel.n_frames or 0))] - start
                rows.extend(self._of_picture(reel.file, inside.tolist()) if len(inside) else ())
        return np.stack(rows) if rows else np.empty((0, self.n_features), np.float32)

    # -- reading -------------------------------------------------------------------------------

    def _stream(self) -> Iterator[Array]:
        """All frames in order, as rows."""
        for reel in self._reels:
            if reel.n_frames is None:
                yield from self._of_video(reel.file)
            else:
                yield from self._of_picture(reel.file, range(reel.n_frames))

    def _opened(self, file: DataFile, looks: bool) -> tuple[_Reel, tuple[int, int] | None]:
        """A file with its number of frames, and its height and width if it was opened for that."""
        name = file.path.lower()
        if name.endswith(VIDEOS):
            with _video(file) as (_, stream):
                self.rate = None if stream.average_rate is None else float(stream.average_rate)
                return _Reel(file, None), (stream.height, stream.width)
        if name.endswith(_ONE_FRAME) and not looks:
            return _Reel(file, 1), None
        with _picture(file) as image:
            count = 1 if name.endswith(_ONE_FRAME) else getattr(image, "n_frames", 1)
            turned = image.getexif().get(_ORIENTATION, 1) > 4
            return _Reel(file, count), (image.width, image.height) if turned else (image.height, image.width)

    def _of_picture(self, file: DataFile, numbers: Iterable[int]) -> Iterator[Array]:
        with _picture(file) as image:
            self._limits.check_unpacked("a frame", image.width * image.height * 4, file.size)
            for number in numbers:
                if number or image.tell():
                    image.seek(number)
                elif self._scaled:  # a JPEG is decoded at a half, a quarter or an eighth where that is enough
                    image.draft(None, (max(self.shape[:2]),) * 2)
                yield self._row(_upright(image), file)

    def _of_video(self, file: DataFile) -> Iterator[Array]:
        height, width = self.shape[:2]
        with _video(file) as (container, stream):
            stream.thread_type = "AUTO"
            for frame in container.decode(stream):
                if not self._scaled and (frame.height, frame.width) != (height, width):
                    raise self._other_size(file, frame.height, frame.width)
                form = "rgb24" if self.color else "gray"
                pixels = frame.reformat(width, height, form, interpolation="AREA").to_ndarray()
                yield pixels.astype(np.float32).ravel()

    def _row(self, image: Any, file: DataFile) -> Array:
        from PIL import Image

        if image.mode in ("I", "F") or image.mode.startswith("I;16"):
            values = np.asarray(image).astype(np.float32)
            image = Image.fromarray(values if image.mode == "F" else values / np.float32(_DEEP))
        else:
            image = image.convert("RGB" if self.color else "L")
        height, width = self.shape[:2]
        if image.size != (width, height):
            if not self._scaled:
                raise self._other_size(file, image.height, image.width)
            image = image.resize((width, height), Image.Resampling.BOX)
        pixels = np.asarray(image, np.float32)
        if not np.isfinite(pixels).all():
            raise FileFormatError(f"{file.path!r} has pixels that are NaN or infinite.")
        return np.repeat(pixels.ravel(), 3) if self.color and pixels.ndim == 2 else pixels.ravel()

    def _other_size(self, file: DataFile, height: int, width: int) -> ValueError:
        return ValueError(
            f"{file.path!r} is {width} x {height} and the first frame {self.shape[1]} x {self.shape[0]}: give a size "
            "to scale all frames to."
        )


_ORIENTATION = 0x0112  # tag of EXIF


def _is_animated(reel: _Reel) -> bool:
    return reel.n_frames != 1 and reel.file.path.lower().endswith(_ANIMATED)


def _picture_files(where: Any) -> list[str]:
    """The files that paths, patterns and folders stand for, those of each folder or pattern in natural order."""
    from PIL import Image

    Image.init()
    readable = {ending for ending, form in Image.EXTENSION.items() if form in Image.OPEN} | set(VIDEOS)
    asked = [where] if isinstance(where, (str, os.PathLike)) else list(where)
    files: list[str] = []
    for one in (str(os.fspath(path)) for path in asked):
        if os.path.isdir(one):
            found = [str(path) for path in Path(one).iterdir() if path.suffix.lower() in readable and path.is_file()]
            if not found:
                raise FileNotFoundError(f"There is no picture or film in the folder {one!r}.")
        elif glob.has_magic(one) and not os.path.exists(one):
            found = glob.glob(one, recursive=True)
            if not found:
                raise FileNotFoundError(f"No file matches {one!r}.")
        else:
            found = [one]
        files += sorted((path for path in found if not Path(path).name.startswith(".")), key=_natural)
    return files


def _natural(path: str) -> list[Any]:
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path)]


@contextmanager
def _picture(file: DataFile) -> Iterator[Any]:
    """A picture file, opened; damage found in it meanwhile is an error that names it."""
    from PIL import Image, UnidentifiedImageError

    check_regular(file.path)
    try:
        with Image.open(file.path) as image:
            yield image
    except UnidentifiedImageError as error:
        raise FileFormatError(f"{file.path!r} is neither a picture nor a film: {error}") from error
    except (ValueError, PermissionError, FileNotFoundError):
        raise
    except Exception as error:  # the decoders of damaged files raise many kinds of errors
        raise FileFormatError(f"{file.path!r} is not a whole picture file: {error}") from error


@contextmanager
def _video(file: DataFile) -> Iterator[tuple[Any, Any]]:
    """A video file and its stream of pictures."""
    check_regular(file.path)
    try:
        import av
    except ImportError as error:
        raise ValueError(f"{file.path!r}: videos need PyAV: pip install 'tithe[video]'.") from error
    try:
        with av.open(file.path) as container:
            if not container.streams.video:
                raise FileFormatError(f"{file.path!r} has no pictures.")
            yield container, container.streams.video[0]
    except av.FFmpegError as error:
        raise FileFormatError(f"{file.path!r} is not a whole video: {error}") from error


def _upright(image: Any) -> Any:
    """The frame rotated as its EXIF data says."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image) if image.getexif().get(_ORIENTATION, 1) != 1 else image
