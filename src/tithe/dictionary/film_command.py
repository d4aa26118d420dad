"""``tithe scenes`` and ``tithe keyframes``: what a film shows, and the frames that stand for it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tithe.cli.main import Command
from tithe.cli.options import seed_option
from tithe.cli.screen import print_table, say
from tithe.cli.sources import limit_option
from tithe.core.progress import ProgressBar

if TYPE_CHECKING:  # only what is run need be loaded
    from tithe.dictionary.films import Film

_MOST_SHOTS = 30  # that are listed
_film_argument = click.argument("where", metavar="FILM...", nargs=-1, required=True)
_output_option = click.option("-o", "--output", type=click.Path(dir_okay=False), help="JSON file for what was found.")
_sheet_option = click.option("--sheet", type=click.Path(dir_okay=False), help="Picture of the key frames to write.")


@click.command(cls=Command)
@_film_argument
@click.option("-k", "--scenes", "n_scenes", type=click.IntRange(min=1), help="Number of scenes, if it is known.")
@click.option(
    "--same", type=click.FloatRange(min=0, min_open=True), default=7.0, help="Difference below which scenes are one."
)
@_output_option
@_sheet_option
@limit_option
def scenes(where, n_scenes, same, output, sheet, limits):  # type: ignore[no-untyped-def]
    """Find the cuts of FILM, and the scenes that come back.

    FILM is a video (which needs PyAV), an animated picture, a TIFF of several frames, or pictures: a folder of them, a
    pattern, or files.

    \b
    Example:
      tithe scenes film.mp4 --sheet scenes.png
      tithe scenes 'frames/*.png' -o scenes.json
    """
    from tithe.dictionary.scenes import find_scenes

    film = _opened(where, output, sheet, limits)
    with ProgressBar(film.n_rows, "frames") as reading:
        found = find_scenes(film, n_scenes=n_scenes, same=same, progress=reading)
    print_table(
        f"{len(found.labels):,} frames, {len(found.shots):,} shots, {len(found.key_frames):,} scenes",
        ["scene", "shots", "frames", "share", "key frame"],
        [
            [str(i), f"{sum(shot.scene == i for shot in found.shots):,}", f"{weight:,}",
             f"{weight / len(found.labels):.1%}", _named(film, int(key))]
            for i, (weight, key) in enumerate(zip(found.weights, found.key_frames, strict=True))
        ],
    )  # fmt: skip
    print_table(
        "shots",
        ["from", "to", "scene"],
        [[_named(film, s.start), _named(film, s.stop - 1), str(s.scene)] for s in found.shots[:_MOST_SHOTS]],
    )
    if len(found.shots) > _MOST_SHOTS:
        say(f"... and {len(found.shots) - _MOST_SHOTS:,} shots more: -o FILE has all.")
    answer = {
        "frames": len(found.labels),
        "frames_per_second": film.rate,
        "shots": [{"start": s.start, "stop": s.stop, "scene": s.scene} for s in found.shots],
        "key_frames": found.key_frames.tolist(),
    }
    captions = [f"{i}: {weight:,} frames" for i, weight in enumerate(found.weights)]
    _write(film, found.key_frames, captions, answer, output, sheet)


@click.command(cls=Command)
@_film_argument
@click.option("-n", "--frames", "n", type=click.IntRange(min=1), default=20, help="Most frames to choose.")
@click.option("--size", metavar="HEIGHTxWIDTH", help="Size at which errors are measured. [default: the film's]")
@click.option("--nonzero", type=click.IntRange(min=1), default=3, help="Key frames that one frame is made from.")
@_output_option
@_sheet_option
@limit_option
@seed_option
def keyframes(where, n, size, nonzero, output, sheet, limits, seed):  # type: ignore[no-untyped-def]
    """Choose frames of FILM that stand for all of them, and say for how many each does.

    FILM is as in tithe scenes. The error is that of all frames if each is shown as its key frame, or made from several
    of them: the key frames are then a dictionary.

    \b
    Example:
      tithe keyframes film.mp4 -n 20 --sheet keyframes.png
    """
    from tithe.dictionary.scenes import coded_errors, key_frames

    film = _opened(where, output, sheet, limits, size)
    with ProgressBar(None, "frames") as reading:
        found = key_frames(film, n, random_state=seed, progress=reading)
        errors = coded_errors(film, found.numbers, found.labels, n_nonzero_coefs=nonzero, progress=reading)
    print_table(
        f"{len(found.numbers)} key frames of {len(found.labels):,} frames",
        ["key frame", "stands for", "share"],
        [
            [_named(film, int(number)), f"{weight:,}", f"{weight / len(found.labels):.1%}"]
            for number, weight in zip(found.numbers, found.weights, strict=True)
        ],
    )
    psnr = [None if error == 0.0 else float(10.0 * math.log10(255.0**2 / error)) for error in errors]
    ways = ["each frame as its key frame", f"each frame made from up to {nonzero} key frames"]
    table = [[way, "no error" if p is None else f"{p:.2f} dB"] for way, p in zip(ways, psnr, strict=True)]
    print_table(f"all frames of {film.shape[1]} x {film.shape[0]}, in grey", ["", "PSNR"], table)
    answer = {
        "frames": len(found.labels),
        "frames_per_second": film.rate,
        "key_frames": found.numbers.tolist(),
        "weights": found.weights.tolist(),
        "psnr": {"nearest": psnr[0], f"up_to_{nonzero}": psnr[1]},
    }
    captions = [f"{int(k)}: {int(w):,} frames" for k, w in zip(found.numbers, found.weights, strict=True)]
    _write(film, found.numbers, captions, answer, output, sheet)


def _opened(where: Sequence[str], output: str | None, sheet: str | None, limits: Any, size: str | None = None) -> Film:
    """The film, after what is to be written was checked."""
    from tithe.core.files import check_output
    from tithe.dictionary.films import Film
    from tithe.dictionary.pictures import check_picture_name

    for target in filter(None, (output, sheet)):
        for path in where:
            check_output(target, beside=path if Path(path).is_file() else None)
    if sheet is not None:
        check_picture_name(sheet)
    sides = None
    if size is not None:
        height, cross, width = size.lower().partition("x")
        if not (cross and height.isdecimal() and width.isdecimal() and int(height) and int(width)):
            raise click.UsageError(f"--size: {size!r} is not HEIGHTxWIDTH, such as 90x160.")
        sides = int(height), int(width)
    return Film(list(where), size=sides, limits=limits)


def _named(film: Film, number: int) -> str:
    """A frame by its number, and its time or its file."""
    if film.rate:
        seconds = number / film.rate
        return f"{number} ({int(seconds // 60)}:{seconds % 60:05.2f})"
    return f"{number} ({film.name_of(number)})"


def _write(
    film: Film, numbers: Any, captions: list[str], answer: dict[str, Any], output: str | None, sheet: str | None
) -> None:
    from tithe.core.files import replacing
    from tithe.dictionary.pictures import Picture, write_picture
    from tithe.dictionary.scenes import contact_sheet

    if output is not None:
        with replacing(output) as temporary:
            temporary.write_text(json.dumps(answer, indent=2) + "\n")
    if sheet is not None:
        write_picture(sheet, Picture(pixels=contact_sheet(film, numbers, captions)))
