"""Makes the picture of the README from the example of rare groups: python tools/picture.py."""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "_static" / "rare_groups.png"


def main() -> None:
    matplotlib.use("agg")
    figure = runpy.run_path(str(ROOT / "examples" / "plot_1_rare_groups.py"))["figure"]
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=100, metadata={"Software": None})
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
