"""``tithe denoise``, ``inpaint``, ``compress`` and ``decompress``: pictures by dictionaries of their own patches."""

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


# -- missing pixels --------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("source", metavar="IN", type=click.Path(dir_okay=False))
@click.argument("mask", metavar="MASK", type=click.Path(dir_okay=False))
@click.argument("output", metavar="OUT", type=click.Path(dir_okay=False))
@click.option("--patch", type=click.IntRange(min=2), default=8, help="Side of a patch in pixels.")
@click.option("-k", "--atoms", type=click.IntRange(min=1), default=256, help="Atoms to learn.")
@click.option("-m", "--size", type=click.IntRange(min=1), default=10_000, help="Patches to keep.")
@click.option("--nonzero", type=click.IntRange(min=1), default=5, help="Most atoms of a patch.")
@click.option("--reference", type=click.Path(dir_okay=False), help="The whole picture, to compare with.")
@limit_option
@seed_option
def inpaint(source, mask, output, patch, atoms, size, nonzero, reference, limits, seed):  # type: ignore[no-untyped-def]
    """Fill in pixels of the picture IN that are missing, and write it to OUT.

    MASK is a picture of the same size that is black where a pixel is known, and anything else where it is missing. A
    dictionary is learned from the picture's own patches, which are coded by their known pixels.

    \b
    Example:
      tithe inpaint scratched.png scratches.png whole.png
    """
    from tithe.core.files import check_output
    from tithe.dictionary import ImageDenoiser
    from tithe.dictionary.noise import psnr
    from tithe.dictionary.pictures import check_picture_name, read_picture, write_picture

    for path in (source, mask, *([reference] if reference else [])):
        check_output(output, beside=path if Path(path).exists() else None)
    picture, holes = read_picture(source, limits), read_picture(mask, limits).pixels
    check_picture_name(output, picture.pixels.shape)
    whole = None if reference is None else _reference(reference, picture.pixels, limits)
    missing = holes.any(axis=2) if holes.ndim == 3 else holes > 0
    if missing.shape != picture.pixels.shape[:2]:
        raise ValueError(f"{mask!r} is {_size(holes)} and the picture is {_size(picture.pixels)}: they do not match.")
    if not missing.any():
        raise ValueError(f"{mask!r} is black: no pixel is missing.")
    model = ImageDenoiser(
        patch_size=patch, n_components=atoms, coreset_size=size, n_nonzero_coefs=nonzero, random_state=seed
    )
    pixels = model.fit_inpaint(picture.pixels, missing)
    notes = write_picture(output, replace(picture, pixels=pixels))
    about = [["picture", _size(pixels)], ["missing", f"{missing.sum():,} pixels, {missing.mean():.1%}"]]
    if whole is not None:
        about.append(["PSNR of the missing pixels", f"{psnr(pixels[missing][None], whole[missing][None]):.2f} dB"])
    print_table(output, ["", ""], about)
    for note in (*(f"{source}: {n}" for n in picture.notes), *(f"{output}: {n}" for n in notes)):
        click.echo(f"Note: {note}.")


# -- compression -----------------------------------------------------------------------------------


@click.command(cls=Command)
@click.argument("source", metavar="IN", type=click.Path(dir_okay=False))
@click.argument("output", metavar="OUT", type=click.Path(dir_okay=False))
@click.option("--step", type=click.FloatRange(min=0, min_open=True), default=16.0, help="Grey levels: quality.")
@click.option("--patch", type=click.IntRange(min=2), default=8, help="Side of a patch in pixels.")
@click.option("-k", "--atoms", type=click.IntRange(min=1), default=128, help="Atoms to learn, kept in the file.")
@click.option("-m", "--size", type=click.IntRange(min=1), default=10_000, help="Patches to learn from.")
@limit_option
@seed_option
def compress(source, output, step, patch, atoms, size, limits, seed):  # type: ignore[no-untyped-def]
    """Write the picture IN as sparse codes in a dictionary of its own patches, and the dictionary.

    A larger --step makes a smaller file and a coarser picture. JPEG is better and everywhere: the file shows what the
    codes are worth, with the PSNR of a JPEG of at most the same size beside it.

    \b
    Example:
      tithe compress in.png small.tpic --step 24
      tithe decompress small.tpic out.png
    """
    from tithe.core.files import check_output, replacing
    from tithe.dictionary import ImageDenoiser
    from tithe.dictionary.noise import psnr
    from tithe.dictionary.pictures import read_picture

    check_output(output, beside=source if Path(source).exists() else None)
    picture = read_picture(source, limits)
    model = ImageDenoiser(sigma=0, patch_size=patch, n_components=atoms, coreset_size=size, random_state=seed)
    encoded = model.fit(picture.pixels).encode(picture.pixels, step=step)
    data = encoded.to_bytes()
    with replacing(output) as temporary:
        temporary.write_bytes(data)
    n_pixels = picture.pixels.shape[0] * picture.pixels.shape[1]
    about = [
        ["picture", _size(picture.pixels)],
        ["bytes", f"{len(data):,}"],
        ["bits per pixel", f"{8 * len(data) / n_pixels:.3f}"],
        ["atoms of a patch, on average", f"{encoded.counts.mean():.3f}"],
        ["PSNR", f"{psnr(encoded.decode(), picture.pixels):.2f} dB"],
    ]
    beside = _jpeg_psnr(picture.pixels, len(data))
    about += [] if beside is None else [["PSNR of a JPEG of at most these bytes", f"{beside:.2f} dB"]]
    print_table(output, ["", ""], about)
    lost = [
        name
        for name, part in (("alpha channel", picture.alpha), ("colour profile", picture.profile))
        if part is not None
    ]
    for note in (*picture.notes, *(f"the {name} was dropped" for name in lost)):
        click.echo(f"Note: {source}: {note}.")


@click.command(cls=Command)
@click.argument("source", metavar="IN", type=click.Path(dir_okay=False))
@click.argument("output", metavar="OUT", type=click.Path(dir_okay=False))
@limit_option
def decompress(source, output, limits):  # type: ignore[no-untyped-def]
    """Write the picture that tithe compress has packed into IN to OUT.

    \b
    Example:
      tithe decompress small.tpic out.png
    """
    from tithe.core.errors import FileFormatError
    from tithe.core.files import check_output
    from tithe.dictionary import EncodedPicture
    from tithe.dictionary.pictures import Picture, check_picture_name, write_picture
    from tithe.rows.stores import check_regular

    check_output(output, beside=source if Path(source).exists() else None)
    check_regular(source)
    try:
        encoded = EncodedPicture.from_bytes(Path(source).read_bytes(), limits)
    except FileFormatError as error:
        raise FileFormatError(f"{source!r}: {error}") from error
    if not encoded.dtype.startswith("uint"):
        raise ValueError(f"{source!r} holds {encoded.dtype}, which no picture file does: use EncodedPicture.decode.")
    check_picture_name(output, encoded.shape)
    pixels = encoded.decode()
    notes = write_picture(output, Picture(pixels=pixels))
    print_table(output, ["", ""], [["picture", _size(pixels)]])
    for note in notes:
        click.echo(f"Note: {output}: {note}.")


def _jpeg_psnr(pixels: Any, n_bytes: int) -> float | None:
    """The best PSNR of a JPEG of at most so many bytes; None where there is none, as for 16 bits."""
    import io

    import numpy as np
    from PIL import Image

    from tithe.dictionary.noise import psnr

    if pixels.dtype != np.uint8 or max(pixels.shape) > 65535:
        return None
    best = None
    for subsampling in (0, 2) if pixels.ndim == 3 else (0,):
        low, high = 0, 100  # the largest quality that fits, by bisection
        while high - low > 1:
            quality, buffer = (low + high) // 2, io.BytesIO()
            Image.fromarray(pixels).save(buffer, "JPEG", quality=quality, subsampling=subsampling, optimize=True)
            if buffer.tell() > n_bytes:
                high = quality
                continue
            low = quality
            with Image.open(buffer) as image:
                best = max(best or 0.0, psnr(np.asarray(image), pixels))
    return best
