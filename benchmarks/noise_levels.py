"""Noise levels: how far estimates are from the noise that was put on pictures.

    python benchmarks/noise_levels.py --data DIR

Crops of every picture in images/, in colour and in grey, and a generated cartoon of dense cells with outlines, with
noise of sigma 5, 10, 25 and 50, as floats and cut off to 8 bits. "search" is `estimate_sigma`; "tenth" takes all blocks
to be flat but for the noise and is told by the one that a tenth of them lies below, in the wavelet band alone. Errors
are in per cent; of the crops of a picture that with the largest error is shown. Figures go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.spatial import KDTree

from common import save, show, timed
from tithe.dictionary import noise
from tithe.dictionary.pictures import Planes

Image.MAX_IMAGE_PIXELS = None
SIGMAS = (5, 10, 25, 50)
SIDE = 1000  # of crops
CELLS = 1300  # of the generated cartoon


def by_tenth(image: np.ndarray) -> float:
    """The noise if all blocks were flat, in the wavelet band."""
    wavelets, _, clipped = noise._blocks(Planes(image))
    usable = clipped <= max(noise._MAX_CLIPPED_SHARE, float(np.quantile(clipped, noise._START_SHARE)))
    return float(np.sqrt(min(noise._if_all_are_flat(squares[usable], noise._SIDE**2) for squares in wavelets)))


def crops(image: np.ndarray) -> list[np.ndarray]:
    """Two corners and the middle, or the whole of a small picture."""
    height, width = image.shape[:2]
    if height * width <= 1.5 * SIDE**2:
        return [image]
    corners = [(0, 0), ((height - SIDE) // 2, (width - SIDE) // 2), (height - SIDE, width - SIDE)]
    return [image[top : top + SIDE, left : left + SIDE] for top, left in corners]


def cartoon(side: int = 512) -> Image.Image:
    """Flat cells with dark outlines, so dense that few blocks have no edge."""
    rng = np.random.default_rng(0)
    centres, shades = rng.uniform(0, side, size=(CELLS, 2)), rng.uniform(20, 235, size=(CELLS, 3))
    distance, nearest = KDTree(centres).query(np.argwhere(np.ones((side, side))), k=2)
    colours = shades[nearest[:, 0]]
    colours[distance[:, 1] - distance[:, 0] < 2.0] = 20.0
    return Image.fromarray(colours.reshape(side, side, 3).astype(np.uint8))


def pictures(folder: Path) -> Iterator[tuple[str, Image.Image]]:
    for path in sorted(folder.iterdir()):
        yield path.name, Image.open(path)
    yield "generated cartoon", cartoon()


def measured(clean: np.ndarray, sigma: float, bits: bool) -> dict[str, Any]:
    """Errors of both estimates in per cent, and the seconds of the search."""
    noisy = clean + np.float32(sigma) * np.random.default_rng(sigma).standard_normal(clean.shape, dtype=np.float32)
    if bits:
        noisy = np.rint(np.clip(noisy, 0, 255)).astype(np.uint8)
    estimate, seconds = timed(lambda: noise.estimate_sigma(noisy))
    errors = {"tenth": by_tenth(noisy), "search": estimate}
    return {**{way: 100.0 * (value / sigma - 1.0) for way, value in errors.items()}, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with images/")
    folder = parser.parse_args().data / "images"
    results: dict[str, Any] = {}
    for bits in (False, True):
        rows, table = [], []
        for name, picture in pictures(folder):
            for mode in ("L",) if picture.mode == "L" else ("RGB", "L"):
                cells: list[str] = []
                parts = crops(np.asarray(picture.convert(mode)))
                for sigma in SIGMAS:
                    runs = [measured(part, sigma, bits) for part in parts]
                    rows += [
                        {"picture": name, "mode": mode, "crop": i, "sigma": sigma, **r} for i, r in enumerate(runs)
                    ]
                    cells += [f"{max((r[way] for r in runs), key=abs):.1f}" for way in ("tenth", "search")]
                table.append([f"{name}, {'grey' if mode == 'L' else 'colour'}", *cells])
        columns = ["picture", *(f"{way} {sigma}" for sigma in SIGMAS for way in ("tenth", "search"))]
        show(f"largest error in per cent, noise {'in 8 bits' if bits else 'not cut off'}", columns, table)
        summary: dict[str, Any] = {"estimates": len(rows), "seconds": sum(row["seconds"] for row in rows)}
        for way in ("tenth", "search"):
            errors = np.abs([row[way] for row in rows])
            summary[way] = {"mean": float(errors.mean()), **{f"above {p} %": int((errors > p).sum()) for p in (3, 10)}}
        print(summary)
        results["8 bits" if bits else "not cut off"] = {"columns": columns, "largest": table, "all": summary}
    save("noise_levels", results)


if __name__ == "__main__":
    main()
