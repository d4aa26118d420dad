"""``tithe denoise``: a picture without its noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from tithe.cli.main import Command
from tithe.cli.options import Value, seed_option
from tithe.cli.screen import print_table, say
from tithe.cli.sources import limit_option
from tithe.core.params import OneOf, RealNumber
from tithe.core.progress import ProgressBar, bytes_text, peak_memory, seconds_text


@click.command(cls=Command)
@click.argument("source", metavar="IN", type=click.Path(dir_okay=False))
@click.argument("output", metavar="OUT", type=click.Path(dir_okay=False))
@click.option(
    "--sigma",
    type=Value(OneOf("auto") | RealNumber(above=0.0), name="NUMBER|auto", keep_integers=False),
    default="auto",
    help="Noise in grey levels of the picture (0 to 255, or to 65535 for 16 bits).",
)
@click.option("--patch", type=click.IntRange(min=2), default=8, help="Side of a patch in pixels.")
@click.option(
    "--colours",
    type=click.Choice(["planes", "stacked"]),
    default="planes",
    help="Whether each colour plane has patches of its own, or a patch has all colours.",
)
@click.option("-k", "--atoms", type=click.IntRange(min=1), default=256, help="Atoms to learn.")
@click.option("-m", "--size", type=click.IntRange(min=1), default=10_000, help="Patches to keep.")
@click.option("--step", type=click.IntRange(min=1), default=1, help="Pixels between coded patches.")
@click.option(
    "--clipped",
    type=click.Choice(["auto", "yes", "no"]),
    default="auto",
    help="Whether noise was cut off at black and white, which is then undone.",
)
@click.option("--reference", type=click.Path(dir_okay=False), help="The same picture without noise, to compare with.")
@click.option("--show", type=click.Path(dir_okay=False), help="Picture of the atoms to write.")
@limit_option
@seed_option
def denoise(source, output, sigma, patch, colours, atoms, size, step, clipped, reference, show, limits, seed):  # type: ignore[no-untyped-def]
    """Take the noise out of the picture IN and write it to OUT.

    A dictionary is learned from a small weighted share of the picture's own patches; then all patches are coded in
    it and averaged. Colours are kept, and so is an alpha channel where OUT can hold one (.png, .tif, .webp).

    \b
    Example:
      tithe denoise in.jpg out.png --sigma auto
      tithe denoise in.png out.png --sigma 25 --reference clean.png --show dictionary.png
    """
    from tithe.core.files import check_output
    from tithe.dictionary import ImageDenoiser
    from tithe.dictionary.pictures import Picture, atoms_picture, check_picture_name, read_picture, write_picture

    for target in (output, *([show] if show else [])):
        for path in (source, *([reference] if reference else [])):
            check_output(target, beside=path if Path(path).exists() else None)
        check_picture_name(target)
    if show is not None and Path(show).absolute() == Path(output).absolute():
        raise click.UsageError("--show and OUT name the same file.")
    picture = read_picture(source, limits)
    check_picture_name(output, picture.pixels.shape)
    clean = None if reference is None else _reference(reference, picture.pixels, limits)
    model = ImageDenoiser(
        None if sigma == "auto" else sigma,
        patch_size=patch,
        colours=colours,
        n_components=atoms,
        coreset_size=size,
        step=step,
        clipped="auto" if clipped == "auto" else clipped == "yes",
        random_state=seed,
    )
    with ProgressBar(None, "learning", "coding") as reading:
        pixels = model.fit_denoise(picture.pixels, progress=reading)
        reading.describe("writing")
        notes = write_picture(output, replace(picture, pixels=pixels))
        if show is not None:
            write_picture(show, Picture(pixels=atoms_picture(model.components_)))
    print_table(output, ["", ""], _about(model, picture.pixels, pixels, clean))
    for note in (*(f"{source}: {n}" for n in picture.notes), *(f"{output}: {n}" for n in notes)):
        say(f"Note: {note}.")


def _reference(path: str, noisy: Any, limits: Any) -> Any:
    from tithe.dictionary.pictures import read_picture

    clean = read_picture(path, limits).pixels
    if clean.shape != noisy.shape or clean.dtype != noisy.dtype:
        raise ValueError(
            f"{path!r} is {_size(clean)} and the noisy picture is {_size(noisy)}: they cannot be compared."
        )
    return clean


def _size(pixels: Any) -> str:
    colours = "in colour" if pixels.ndim == 3 else "in grey"
    return f"{pixels.shape[1]} x {pixels.shape[0]} {colours} of {8 * pixels.dtype.itemsize} bits"


def _about(model: Any, noisy: Any, pixels: Any, clean: Any) -> list[list[str]]:
    ends = [end for end, is_cut in zip(("black", "white"), model.clipped_, strict=True) if is_cut]
    about = [
        ["picture", _size(noisy)],
        ["noise (sigma)", f"{model.sigma_:.4g}{' (estimated)' if model.sigma is None else ''}"],
        *([["noise cut off at", " and ".join(ends)]] if ends else []),
        ["patches learned from", f"{len(model.coreset_):,} of {model.coreset_.n_seen:,}"],
        ["atoms of a patch, on average", f"{model.n_atoms_mean_:.3f}"],
        *([f"time for {phase}", seconds_text(seconds)] for phase, seconds in model.seconds_.items()),
        ["peak memory", bytes_text(peak_memory())],
    ]
    if clean is not None:
        from tithe.dictionary.noise import WINDOW, psnr, ssim

        about.append(["PSNR", f"{psnr(noisy, clean):.2f} -> {psnr(pixels, clean):.2f} dB"])
        if min(clean.shape[:2]) >= WINDOW:
            about.append(["SSIM", f"{ssim(noisy, clean):.4f} -> {ssim(pixels, clean):.4f}"])
    return about
