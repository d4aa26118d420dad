"""The picture of the README, from the example of rare groups, and the costs that stand below it.

python benchmarks/picture.py
"""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib

from common import save

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "_static" / "rare_groups.png"


def main() -> None:
    matplotlib.use("agg")
    example = runpy.run_path(str(ROOT / "examples" / "plot_1_rare_groups.py"))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    # 900 pixels: text stays readable where a phone shows it 360 pixels wide
    example["figure"].savefig(PICTURE, dpi=160, metadata={"Software": None})
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")
    cost, least = example["cost"], float(example["on_all_rows"].inertia_)
    fits = {"sample": example["on_sample"], "coreset": example["on_coreset"], "all_rows": example["on_all_rows"]}
    results = {name: float(cost(fit.cluster_centers_)) / least for name, fit in fits.items()}
    save("picture", {**results, "found": {name: example["n_found"](f.cluster_centers_) for name, f in fits.items()}})


if __name__ == "__main__":
    main()
