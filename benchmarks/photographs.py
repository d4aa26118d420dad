"""Photographs: dictionaries of patches through coresets, and what they make of noise.

    python benchmarks/photographs.py --data DIR

After the paper (Feldman, Feigin and Sochen 2013), section on images. First the error of dictionaries, all patches of a
grid coded with five atoms: size against error, time against error, drawn by error, drawn uniformly (both weighted, and
with three times the iterations, as in the paper) and learned from all; "polished" is the coreset's dictionary after
ten more iterations on 50,000 patches, as `ImageDenoiser` has it. Then noise of sigma 50 (14.15 dB) in whole
photographs, each in a process of its own whose memory is measured, and crops beside non-local means and BM3D where
these are installed. Figures go to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from common import RESULTS, save, show, timed
from tithe.dictionary import KSVD, ImageDenoiser
from tithe.dictionary.noise import estimate_sigma, psnr, ssim
from tithe.dictionary.patches import PatchSource
from tithe.objectives import DictionaryObjective
from tithe.reduce.plan import build_coreset

Image.MAX_IMAGE_PIXELS = None
POLISH = 50_000  # patches
CARTOON = "scarlet_tree_cartoon_15mp.png"
PICTURES = [
    CARTOON,
    "colosseum_8mp.jpg",
    "dandelion_16mp.jpg",
    "dragonfly_13mp.jpg",
    "mountain_8mp.jpg",
    "nuthatch_20mp.jpg",
]
K, T = 256, 5
MORE = 3  # times the iterations on a coreset: the paper has 40 on all columns and 120 on a coreset
GRID = 300_000  # patches that "all" may mean, so that learning from all of them ends
CROP = 512
PEER_SIGMAS = (25, 50)


def grey(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("L"))


def all_patches(image: np.ndarray) -> PatchSource:
    """Every patch of the finest grid that has no more than GRID of them."""
    step = next((s for s in range(1, 8) if (image.shape[0] // s) * (image.shape[1] // s) <= GRID), 8)
    return PatchSource(image, step=step)


# -- the error of dictionaries -------------------------------------------------------------------


def learned(source: PatchSource, size: int | None, construction: str, seed: int, iterations: int) -> KSVD:
    """K-SVD from the cosines, on a coreset of the patches or on all of them."""
    model = KSVD(K, n_nonzero_coefs=T, max_iter=iterations, initial="dct", random_state=seed)
    if size is None:
        return model.fit(source.sample(source.n_rows, rng=np.random.default_rng(0)).X)
    objective = DictionaryObjective(n_components=K, n_nonzero_coefs=T)
    few = build_coreset(
        source, objective=objective, construction=construction, coreset_size=size, calibrate=False, random_state=seed
    )
    return model.fit(few.X, sample_weight=few.sample_weight)


def errors(folder: Path, sizes: list[int], seeds: int, iterations: int) -> list[dict[str, Any]]:
    """For each picture: error of an entry over all patches, by size and way of drawing; medians over seeds."""
    results = []
    for name in PICTURES:
        source = all_patches(grey(folder / name))
        every = source.sample(source.n_rows, rng=np.random.default_rng(0)).X
        learned(source, 1000, "sensitivity", 0, 1)  # compiled code is read in
        full, seconds = timed(lambda source=source: learned(source, None, "", 0, iterations))
        best = -full.score(every)
        here: dict[str, Any] = {"picture": name, "patches": len(every), "step": source.step, "error_all": best}
        here |= {"seconds_all": seconds, "runs": []}
        table = []
        for size in sizes:
            middle = {}
            for way in ("sensitivity", "uniform"):
                runs = [
                    timed(
                        lambda s=s, source=source, size=size, way=way: learned(source, size, way, s, MORE * iterations)
                    )
                    for s in range(seeds)
                ]
                middle[way] = (
                    statistics.median(-model.score(every) for model, _ in runs),
                    min(run_seconds for _, run_seconds in runs),
                )
                if way == "sensitivity":
                    more = source.sample(POLISH, rng=np.random.default_rng(1)).X
                    polished = statistics.median(-model.refine(more, n_iter=10).score(every) for model, _ in runs)
            (a, t), (b, _) = middle["sensitivity"], middle["uniform"]
            here["runs"].append(
                {
                    "size": size,
                    "coreset": a,
                    "polished": polished,
                    "uniform": b,
                    "seconds": t,
                    "seconds_uniform": middle["uniform"][1],
                }
            )
            table.append([f"{size:,}", a / best, polished / best, b / best, a / b, t, seconds / t])
        title = (
            f"{name}: {len(every):,} patches (every {source.step} pixels), error from all {best:.4g} in {seconds:.1f} s"
        )
        show(
            title,
            ["size", "coreset / all", "polished / all", "uniform / all", "coreset / uniform", "s", "speed-up"],
            table,
        )
        results.append(here)
    return results


# -- noise ---------------------------------------------------------------------------------------


def with_noise(clean: np.ndarray, sigma: float, seed: int = 1) -> np.ndarray:
    """White noise on top, not cut off, as the paper counts its 14.15 dB: float32."""
    rng = np.random.default_rng(seed)
    noisy = np.empty(clean.shape, np.float32)
    for top in range(0, len(clean), 64):
        rows = clean[top : top + 64]
        noisy[top : top + 64] = rows + sigma * rng.normal(size=rows.shape)
    return noisy


def one_photograph(path: str, size: int | None, step: int, sigma: float, construction: str) -> None:
    """In a process of its own: denoise, and print figures as JSON."""
    import resource

    clean = np.asarray(Image.open(path).convert("RGB"))
    noisy = with_noise(clean, sigma)
    ImageDenoiser(sigma, n_components=64, coreset_size=500, max_iter=1).fit_denoise(noisy[:64, :64])  # compiled
    options: dict[str, Any] = {"coreset_size": size, "step": step, "construction": construction}
    model = ImageDenoiser(sigma, data_range=255.0, random_state=0, **options)
    result, seconds = timed(lambda: model.fit_denoise(noisy))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    np.clip(result, 0, 255, out=result)
    about = {
        "megapixels": clean.shape[0] * clean.shape[1] / 1e6,
        "before": psnr(noisy, clean, largest=255),
        "after": psnr(result, clean, largest=255),
        "ssim": ssim(result, clean, largest=255),
        "estimated": estimate_sigma(noisy),
        "atoms": model.n_atoms_mean_,
        "kept": len(model.coreset_),
        "of": model.coreset_.n_seen,
        "seconds": seconds,
        "phases": model.seconds_,
        "peak_bytes": peak,
    }
    print(json.dumps(about))


def whole(folder: Path, names: list[str], sigma: float, all_of: list[str]) -> list[dict[str, Any]]:
    """Whole photographs in colour, each in its own process."""
    rows, table = [], []
    for name in names:
        ways = [("coreset", 10_000, 1, "auto"), ("coreset, step 2", 10_000, 2, "auto")]
        ways.append(("uniform", 10_000, 1, "uniform"))
        if name in all_of:
            ways.append(("all patches", None, 1, "auto"))
        for way, size, step, construction in ways:
            command = [sys.executable, __file__, "--one", str(folder / name), str(size or 0), str(step), str(sigma)]
            command.append(construction)
            outcome = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows.append({"picture": name, "way": way, **outcome})
            cells = [outcome[key] for key in ("megapixels", "before", "after")] + [outcome["after"] - outcome["before"]]
            cells += [
                outcome["ssim"],
                outcome["seconds"],
                outcome["peak_bytes"] / 1e9,
                outcome["atoms"],
                outcome["estimated"],
            ]
            table.append([f"{name}, {way}", *cells])
            print(f"  {name}, {way}: {outcome['after']:.2f} dB in {outcome['seconds']:.0f} s", flush=True)
    columns = ["photograph", "MP", "dB before", "after", "gain", "SSIM", "s", "peak GB", "atoms", "sigma found"]
    show(f"whole photographs in colour, sigma = {sigma:g}", columns, table)
    return rows


def peers() -> dict[str, Any]:
    """Denoisers of pictures in 0..255, by name."""

    def ours(**options: Any) -> Any:
        return lambda noisy, sigma: ImageDenoiser(sigma, data_range=255.0, random_state=0, **options).fit_denoise(noisy)

    outcome = {
        "tithe, coreset": ours(),
        "tithe, weighted uniform": ours(construction="uniform"),
        "tithe, coreset, stacked colours": ours(colours="stacked"),
        "tithe, coreset, step 2": ours(step=2),
        "tithe, all patches": ours(coreset_size=None),
    }
    if importlib.util.find_spec("skimage"):
        means = importlib.import_module("skimage.restoration").denoise_nl_means

        def by_means(noisy: np.ndarray, sigma: float) -> np.ndarray:
            options = {"patch_size": 5, "patch_distance": 6, "fast_mode": True, "channel_axis": -1}
            return means(noisy / 255, h=0.6 * sigma / 255, sigma=sigma / 255, **options) * 255

        outcome["skimage denoise_nl_means"] = by_means
    if importlib.util.find_spec("bm3d"):  # not free for every use, so installed by hand
        bm3d = importlib.import_module("bm3d").bm3d_rgb
        outcome["bm3d"] = lambda noisy, sigma: bm3d(noisy.astype(np.float64), sigma)
    return outcome


def crops(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """The middle of photographs, beside the peers that are installed."""
    rows = []
    for sigma in PEER_SIGMAS:
        table = []
        for name in names:
            clean = np.asarray(Image.open(folder / name).convert("RGB"))
            top, left = (max(0, (length - CROP) // 2) for length in clean.shape[:2])
            clean = clean[top : top + CROP, left : left + CROP]
            noisy = with_noise(clean, sigma)
            for way, method in peers().items():
                result, seconds = timed(lambda method=method, noisy=noisy, sigma=sigma: method(noisy, sigma))
                result = np.clip(result, 0, 255)
                row = {"psnr": psnr(result, clean, largest=255), "ssim": ssim(result, clean, largest=255)}
                rows.append({"picture": name, "sigma": sigma, "way": way, "seconds": seconds, **row})
                table.append([f"{name}, {way}", row["psnr"], row["ssim"], seconds])
        show(f"crops of {CROP} x {CROP} in colour, sigma = {sigma}", ["photograph", "PSNR", "SSIM", "s"], table)
    return rows


# -- figures -------------------------------------------------------------------------------------


def draw(results: list[dict[str, Any]]) -> None:
    """Size against error and time against error, a panel a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    RESULTS.mkdir(exist_ok=True)
    for name, key, label in (("size", "size", "patches kept"), ("time", "seconds", "seconds to learn")):
        figure = Figure(figsize=(13, 7), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(2, 3).ravel()
        for axis, outcome in zip(axes, results, strict=False):
            runs = outcome["runs"]
            for way, colour in (("uniform", "#d58a3c"), ("coreset", "#2f5d9b")):
                times = "seconds_uniform" if way == "uniform" and key == "seconds" else key
                axis.plot(
                    [r[times] for r in runs],
                    [r[way] / outcome["error_all"] for r in runs],
                    "o-",
                    color=colour,
                    label=way,
                )
            axis.axhline(1.0, color="#8a8f98", label="all patches")
            if name == "time":
                axis.plot([outcome["seconds_all"]], [1.0], "s", color="#8a8f98")
            axis.set_xscale("log")
            axis.set_title(outcome["picture"], fontsize=9)
            axis.set_xlabel(label)
            axis.set_ylabel("error on all patches / learned from all")
        axes[0].legend()
        figure.savefig(RESULTS / f"photographs_{name}.png", dpi=120)
        print(f"written: benchmarks/results/photographs_{name}.png")


def main() -> None:
    if "--one" in sys.argv:
        path, size, step, sigma, construction = sys.argv[2:7]
        one_photograph(path, int(size) or None, int(step), float(sigma), construction)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with images/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 20_000, 40_000])
    parser.add_argument("--sigma", type=float, default=50.0)
    parser.add_argument(
        "--all-of", nargs="*", default=["dandelion_16mp.jpg"], help="photographs to learn from all patches of"
    )
    parser.add_argument("--only", choices=["errors", "whole", "crops"], help="one part alone")
    arguments = parser.parse_args()
    folder, only = arguments.data / "images", arguments.only
    results: dict[str, Any] = {}
    if only in (None, "errors"):
        results["errors"] = errors(folder, arguments.sizes, arguments.seeds, arguments.iterations)
        draw(results["errors"])
    if only in (None, "whole"):
        results["whole"] = whole(folder, PICTURES, arguments.sigma, arguments.all_of)
    if only in (None, "crops"):
        results["crops"] = crops(folder, ["sk_astronaut.png", "colosseum_8mp.jpg", "dragonfly_13mp.jpg"])
    save("photographs" if only is None else f"photographs_{only}", results)


if __name__ == "__main__":
    main()
