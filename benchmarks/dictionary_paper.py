"""The experiments of Feldman, Feigin and Sochen (2013), "Learning Big (Image) Data via Coresets for Dictionaries".

    python benchmarks/dictionary_paper.py --data DIR                  # everything, as published; hours
    python benchmarks/dictionary_paper.py --only synthetic --trials 3 --max-n 40000

- synthetic (figures 2 and 3a): planted atoms of 11 numbers of signals, 40 iterations of plain K-SVD on all, 120 on
  5,000 drawn by error and drawn uniformly, 40 on the former, and our own variant with refinement; distance, its
  variance, ratio of times. ``--max-n 1000000`` adds the number of signals that the paper ran once.
- sizes (figure 3b): log10 of the distance by the size of the coreset, 500,000 signals.
- noise (figure 4): a photograph with noise of sigma 50, 10,000 patches, 256 atoms; PSNR and seconds with variances.
- references (figure 5): 16 x 16 patches, grey and stacked colours, 100 atoms, five a patch; patches drawn by their
  error at the constant or at 1, 2, ... singular vectors, which are kept among the atoms or not.
- uniform (figure 6): size and time against the error on all patches, drawn by error and drawn uniformly.

The uniform draws are weighted, and have the same reference among their atoms. Times are processor seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from common import save, show
from dictionary import K, T, planted, quality
from tithe import build_coreset
from tithe.core.data import Block, Coreset
from tithe.dictionary import KSVD, ImageDenoiser, Reference
from tithe.dictionary.noise import psnr
from tithe.dictionary.patches import PatchSource
from tithe.dictionary.pictures import as_colors

Image.MAX_IMAGE_PIXELS = None
NUMBERS = [585, 1170, 2340, 4690, 9375, 18_750, 37_500, 75_000, 150_000, 300_000, 500_000, 1_000_000]
SIZES = [1000, 2000, 5000, 10_000, 20_000, 50_000]
PICTURES = [
    "scarlet_tree_cartoon_15mp.png",
    "colosseum_8mp.jpg",
    "dandelion_16mp.jpg",
    "mountain_8mp.jpg",
    "nuthatch_20mp.jpg",
]
PATCH_ATOMS, PATCH_NONZERO, PATCH_SIDE = 100, 5, 16


def cpu(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def moments(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "variance": statistics.variance(values) if len(values) > 1 else 0.0}


# -- planted atoms -----------------------------------------------------------------------------------


def learners(size: int, scale: float) -> dict[str, KSVD]:
    """The methods compared; ``scale`` shortens all iterations."""

    def ksvd(max_iter: int, **options: Any) -> KSVD:
        return KSVD(K, n_nonzero_coefs=T, max_iter=max(1, round(scale * max_iter)), **options)

    return {
        "all": ksvd(40, variant="plain"),
        "coreset": ksvd(120, variant="plain", coreset_size=size),
        "coreset_40": ksvd(40, variant="plain", coreset_size=size),
        "uniform": ksvd(120, variant="plain", coreset_size=size, construction="uniform"),
        "refined": ksvd(60, coreset_size=size, refine_iter=2),
        "refined_uniform": ksvd(60, coreset_size=size, refine_iter=2, construction="uniform"),
    }


def synthetic(numbers: list[int], trials: int, size: int, low: float, scale: float) -> list[dict[str, Any]]:
    """Figures 2 and 3a: distance to the planted atoms and processor time, by the number of signals."""
    for model in learners(size, 0.01).values():
        model.fit(planted(6000, low, 0)[0])  # compiled code is read in
    results = []
    for n in numbers:
        runs: dict[str, list[tuple[float, float, float]]] = {}
        for trial in range(trials):
            X, atoms = planted(n, low, 1000 + trial)
            for name, model in learners(size, scale).items():
                fitted, seconds = cpu(lambda m=model, X=X, s=trial: m.set_params(random_state=s).fit(X))
                _, distance, share = quality(X[:1000], atoms, fitted.components_)
                runs.setdefault(name, []).append((distance, share, seconds))
        row: dict[str, Any] = {"n": n, "trials": trials}
        for name, values in runs.items():
            distances, shares, seconds_of = (list(column) for column in zip(*values, strict=True))
            row[name] = {"distance": moments(distances), "found": statistics.fmean(shares)}
            row[name] |= {"seconds": statistics.fmean(seconds_of)}
        for name in runs:
            row[name]["times_as_fast"] = row["all"]["seconds"] / row[name]["seconds"]
            row[name]["distance_to_all"] = row[name]["distance"]["mean"] / row["all"]["distance"]["mean"]
        results.append(row)
    names = list(runs)
    show(
        f"distance to planted atoms in ({low:g}, 1): mean, and variance below; {trials} trials",
        ["n", *names],
        [[f"{r['n']:,}", *(r[name]["distance"]["mean"] for name in names)] for r in results]
        + [[f"{r['n']:,}, variance", *(r[name]["distance"]["variance"] for name in names)] for r in results],
    )
    show(
        "processor time of all rows over that of the others",
        ["n", *names[1:]],
        [[f"{r['n']:,}", *(r[name]["times_as_fast"] for name in names[1:])] for r in results],
    )
    return results


def sizes(n: int, trials: int, low: float, scale: float) -> list[dict[str, Any]]:
    """Figure 3b: the distance by the size of the coreset."""
    ways = ("coreset", "uniform")
    distances: dict[tuple[int, str], list[float]] = {(size, way): [] for size in SIZES for way in ways}
    for trial in range(trials):
        X, atoms = planted(n, low, 1000 + trial)
        for size, way in distances:
            model = learners(size, scale)[way].set_params(random_state=trial).fit(X)
            distances[size, way].append(quality(X[:1000], atoms, model.components_)[1])
    results = [{"size": m, "n": n, "trials": trials} | {w: moments(distances[m, w]) for w in ways} for m in SIZES]
    title = f"log10 of the distance to planted atoms in ({low:g}, 1), {n:,} signals, {trials} trials"
    show(title, ["size", "coreset", "uniform"], [
        [f"{r['size']:,}", *(float(np.log10(r[way]["mean"])) for way in ("coreset", "uniform"))] for r in results
    ])  # fmt: skip
    return results


# -- pictures ----------------------------------------------------------------------------------------


def noise(path: Path, runs: int, crop: int | None, sigma: float = 50.0) -> dict[str, Any]:
    """Figure 4: a photograph in grey with noise, several runs."""
    clean = np.asarray(Image.open(path).convert("L"))
    if crop is not None:
        top, left = (max(0, (length - crop) // 2) for length in clean.shape)
        clean = clean[top : top + crop, left : left + crop]
    ways: dict[str, dict[str, Any]] = {
        "coreset, as published": {"max_iter": 40, "refine_iter": 0, "variant": "plain"},
        "uniform, as published": {"max_iter": 40, "refine_iter": 0, "variant": "plain", "construction": "uniform"},
        "coreset, the default": {},
        "uniform, the default": {"construction": "uniform"},
    }
    results: dict[str, Any] = {"picture": path.name, "pixels": clean.size, "runs": runs}
    table = []
    for way, options in ways.items():
        after, seconds = [], []
        for seed in range(runs):
            noisy = (clean + sigma * np.random.default_rng(seed).normal(size=clean.shape)).astype(np.float32)
            before = psnr(noisy, clean, largest=255)
            model = ImageDenoiser(sigma, data_range=255.0, random_state=seed, coreset_size=10_000, **options)
            model.fit(noisy)
            seconds.append(model.seconds_["reducing"] + model.seconds_["learning"])
            after.append(psnr(np.clip(model.denoise(noisy), 0, 255), clean, largest=255))
        results[way] = {"before": before, "after": moments(after), "seconds": moments(seconds)}
        table.append([way, before, *moments(after).values(), *moments(seconds).values()])
    columns = ["way", "dB before", "after", "variance", "seconds to learn (wall)", "variance"]
    show(f"{path.name}, {clean.size / 1e6:.1f} megapixels, sigma {sigma:g}, {runs} runs", columns, table)
    return results


PLAIN = Reference("constant")
INCLUDED = Reference("constant", beta=0.0, include=True)  # as published


def patch_source(path: Path, *, colours: bool, max_patches: int) -> PatchSource:
    """Patches of a grid of the picture, with their means; stacked colours if wanted. At most about ``max_patches``."""
    image = np.asarray(Image.open(path).convert("RGB" if colours else "L"))
    step = PATCH_SIDE
    fewer = max(1, int(np.ceil((image.shape[0] // step) * (image.shape[1] // step) / max_patches)))
    image = image[: image.shape[0] // fewer] if fewer > 1 else image
    return PatchSource(image, patch_size=PATCH_SIDE, step=step, centered=False, stacked=colours)


def learned(
    rows: Block,
    size: int | None,
    iterations: int,
    seed: int,
    *,
    reference: Reference = PLAIN,
    construction: str = "sensitivity",
) -> KSVD:
    """Plain K-SVD on a coreset of the patches, with the reference among the atoms if it is to be included."""
    goal = reference.objective(n_components=PATCH_ATOMS, n_nonzero_coefs=PATCH_NONZERO)
    options: dict[str, Any] = {"n_nonzero_coefs": PATCH_NONZERO, "max_iter": iterations, "random_state": seed}
    model = KSVD(PATCH_ATOMS, variant="plain", reference=reference, **options)
    if size is None:
        return model.fit(rows.X)
    few: Coreset = build_coreset(
        rows.X, objective=goal, construction=construction, coreset_size=size, calibrate=False, random_state=seed
    )
    return model.fit_drawn(few)


def prepared(path: Path, colours: bool, arguments: argparse.Namespace) -> tuple[Block, dict[str, Any]]:
    """All patches, and what a dictionary of all of them costs and takes."""
    source = patch_source(path, colours=colours, max_patches=arguments.max_patches)
    rows = source.sample(source.n_rows, rng=np.random.default_rng(0))
    if colours:  # red, green and blue, of which the constant is grey
        planes = np.moveaxis(rows.X.reshape(len(rows), 3, -1), 1, 2)
        rows = Block(X=np.ascontiguousarray(np.moveaxis(as_colors(planes), 2, 1)).reshape(len(rows), -1))
    every, seconds = cpu(lambda: learned(rows, None, arguments.iterations, 0, reference=INCLUDED))
    about = {"picture": path.name, "colours": colours, "patches": len(rows), "d": rows.n_features}
    return rows, about | {"error_all": -every.score(rows.X), "seconds_all": seconds}


def references(folder: Path, names: list[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Figure 5: the error by the number of vectors of D0, kept among the atoms or not."""
    ways: dict[str, dict[str, Any]] = {"uniform": {"construction": "uniform"}}
    for count in (0, 1, 2, 5, 10, 20):
        reference = Reference("singular", count) if count else PLAIN
        ways[f"{count}"] = {"reference": replace(reference, beta=0.0, include=True)}
        ways[f"{count}, left out"] = {"reference": reference}
    results = []
    for name in names:
        for colours in arguments.colours:
            rows, about = prepared(folder / name, colours, arguments)
            ratios = {}
            for way, options in ways.items():
                errors = [
                    -learned(rows, arguments.size, 3 * arguments.iterations, s, **options).score(rows.X)
                    for s in range(arguments.seeds)
                ]
                ratios[way] = statistics.median(errors) / about["error_all"]
            results.append({**about, "size": arguments.size, "seeds": arguments.seeds, "ratios": ratios})
    title = f"error on all patches / that of a dictionary of all, {arguments.size:,} patches, by vectors of D0"
    show(title, ["picture", *ways], [[f"{r['picture']}, d = {r['d']}", *r["ratios"].values()] for r in results])
    return results


def uniform(folder: Path, names: list[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Figure 6: error and time of a coreset and of a uniform draw, beside all patches."""
    results, table = [], []
    for name in names:
        for colours in arguments.colours:
            rows, about = prepared(folder / name, colours, arguments)
            for size in arguments.patch_sizes:
                row: dict[str, Any] = {**about, "size": size, "seeds": arguments.seeds}
                for way in ("sensitivity", "uniform"):
                    options = {"reference": INCLUDED, "construction": way}
                    more = 3 * arguments.iterations
                    runs = [
                        cpu(lambda s=s, rows=rows, m=size, o=options, more=more: learned(rows, m, more, s, **o))
                        for s in range(arguments.seeds)
                    ]
                    row[way] = {
                        "error": statistics.median(-model.score(rows.X) for model, _ in runs) / about["error_all"],
                        "speed": about["seconds_all"] / statistics.median(seconds for _, seconds in runs),
                    }
                a, b = row["sensitivity"], row["uniform"]
                row["coreset_to_uniform"] = a["error"] / b["error"]
                results.append(row)
                cells = [a["error"], b["error"], row["coreset_to_uniform"], a["speed"], b["speed"]]
                table.append([f"{name}, d = {about['d']}, {size:,} of {about['patches']:,}", *cells])
    columns = ["picture", "coreset / all", "uniform / all", "coreset / uniform", "speed-up", "of uniform"]
    show(f"patches of {PATCH_SIDE} x {PATCH_SIDE}, medians of {arguments.seeds} seeds", columns, table)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with images/; without it pictures are left out")
    parser.add_argument("--only", choices=["synthetic", "sizes", "noise", "references", "uniform"])
    parser.add_argument("--trials", type=int, default=50, help="of planted atoms")
    parser.add_argument("--max-n", type=int, default=500_000)
    parser.add_argument("--min-n", type=int, default=0)
    parser.add_argument("--coreset-size", type=int, default=5000)
    parser.add_argument("--low", type=float, nargs="+", default=[-1.0, 0.0], help="lower ends of entries of atoms")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the published iterations on planted atoms")
    parser.add_argument("--runs", type=int, default=10, help="of the noisy photograph")
    parser.add_argument("--photograph", default="dandelion_16mp.jpg")
    parser.add_argument("--crop", type=int, help="side of the part of it that is used")
    parser.add_argument("--pictures", nargs="+", default=PICTURES)
    parser.add_argument("--colours", type=int, nargs="+", default=[0, 1], help="0: grey, 1: stacked colours")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=40, help="on all patches; three times as many on a coreset")
    parser.add_argument("--size", type=int, default=2000, help="patches drawn, of the table of references")
    parser.add_argument("--patch-sizes", type=int, nargs="+", default=[500, 1000, 2000, 5000])
    parser.add_argument("--max-patches", type=int, default=250_000)
    parser.add_argument("--name", help="of the file of results. [default: dictionary_paper, and the part]")
    arguments = parser.parse_args()
    arguments.colours = [bool(value) for value in arguments.colours]
    only, options = arguments.only, {k: str(v) if isinstance(v, Path) else v for k, v in vars(arguments).items()}
    results: dict[str, Any] = {"options": {k: v for k, v in options.items() if k != "data"}}
    numbers = [n for n in NUMBERS if arguments.min_n <= n <= arguments.max_n]
    for low in arguments.low:
        if only in (None, "synthetic"):
            args = (numbers, arguments.trials, arguments.coreset_size, low, arguments.scale)
            results[f"synthetic {low:g}"] = synthetic(*args)
        if only in (None, "sizes"):
            results[f"sizes {low:g}"] = sizes(arguments.max_n, arguments.trials, low, arguments.scale)
    if arguments.data is not None:
        folder = arguments.data / "images"
        if only in (None, "noise"):
            results["noise"] = noise(folder / arguments.photograph, arguments.runs, arguments.crop)
        if only in (None, "references"):
            results["references"] = references(folder, arguments.pictures, arguments)
        if only in (None, "uniform"):
            results["uniform"] = uniform(folder, arguments.pictures, arguments)
    save(arguments.name or "dictionary_paper" + (f"_{only}" if only else ""), results)


if __name__ == "__main__":
    main()
