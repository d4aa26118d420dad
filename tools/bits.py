"""Run the tests marked ``bits`` as they would run on older CPUs, side by side.

OpenBLAS and LLVM choose their code by the CPU. A promise of equal bits that was only tested on one kind of CPU may
be false on the next, so these tests also run with the code for Haswell (AVX2, no AVX-512) and for any x86-64.

    python tools/bits.py [--quick] [arguments of pytest]

``--quick`` runs those whose bits hang on how BLAS cuts a product into tiles (correlations and codes of dictionaries),
on the logistic sweep, and on the order of sums in builds. What compiles long is left to a run without it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".venv" / "numba"
QUICK = (
    "tests/dictionary/test_correlations.py",
    "tests/linear/test_logistic_sweep.py",
    "tests/reduce/test_build.py",
    "-k",
    "not True-float64",
)
# without NUMBA_CPU_FEATURES numba would still use every instruction of this machine
SETTINGS = {
    "haswell": {"OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""},
    "generic": {"OPENBLAS_CORETYPE": "Nehalem", "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}


def main() -> int:
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"bits: these settings are of x86-64, this machine is {platform.machine()}; nothing was run")
        return 0
    start = time.monotonic()
    arguments = [*QUICK, *sys.argv[2:]] if sys.argv[1:2] == ["--quick"] else sys.argv[1:]
    running = {name: started(name, arguments) for name in SETTINGS if can_run(name)}
    good = True
    for name, process in running.items():
        output, _ = process.communicate()
        print(f"== bits as on {name}: {time.monotonic() - start:.0f} s\n{output}", flush=True)
        good = good and process.returncode == 0
    return 0 if good else 1


def can_run(name: str) -> bool:
    """Whether this machine has the instructions; where the system does not say so, it is tried."""
    flags = Path("/proc/cpuinfo")
    if name != "haswell" or not flags.exists() or {"avx2", "fma"} <= set(flags.read_text().split()):
        return True
    print("== bits as on haswell: not run, this CPU has no AVX2")
    return False


def started(name: str, arguments: list[str]) -> subprocess.Popen[str]:
    # one process each, no workers: two settings keep two cores busy, and two workers would compile everything twice
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "bits and not slow", *arguments]
    setting = SETTINGS[name] | {"NUMBA_CACHE_DIR": str(CACHE / name)}
    return subprocess.Popen(
        command, cwd=ROOT, env=os.environ | setting, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


if __name__ == "__main__":
    sys.exit(main())
