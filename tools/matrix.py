"""Run the tests on every Python that can be had, with the lowest and the newest versions of what tithe needs.

Each row of the table is an environment of its own, made by uv from PyPI in ``.matrix/`` with a compilation cache of its
own. A Python that is neither installed nor can be downloaded is a row that says so. Rows after a failure still run.

    python tools/matrix.py                            # every row; an hour or more on two cores
    python tools/matrix.py --only 3.11-lowest         # some rows
    python tools/matrix.py --quick                    # the lowest versions, tests that hang on those of other packages
    python tools/matrix.py --fits                     # the lowest versions of what tithe needs: a few fits, in seconds
    python tools/matrix.py --python /opt/py/bin/python3.14    # an interpreter that is not on the path
    python tools/matrix.py -- tests/reduce/test_build.py     # what follows -- goes to pytest
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".matrix"
LOWEST_PYTHON = "3.11"
PYTHONS = (LOWEST_PYTHON, "3.12", "3.13", "3.14")
SHOWN = ("numpy", "numba", "scikit-learn", "scipy", "pyarrow")
HEADER = ("environment", "python", *SHOWN, "passed", "failed", "skipped", "seconds")


@dataclass(frozen=True)
class Environment:
    """A Python and the way in which versions are chosen."""

    python: str
    versions: str

    @property
    def name(self) -> str:
        return f"{self.python}-{self.versions}"


# numpy has its own row: wheels of everything else are built against some version of it
ENVIRONMENTS = (
    Environment(LOWEST_PYTHON, "lowest"),
    Environment(LOWEST_PYTHON, "lowest-numpy"),
    *(Environment(python, "newest") for python in PYTHONS),
)
QUICK = ("tests/rows/test_encoding.py", "tests/storage/test_other_libraries.py")  # what hangs on many packages
LEFT_OUT = "river ; sys_platform == 'none'"  # only tests need it, and it asks for a newer numpy than tithe does


class CannotBeHad(Exception):
    """The environment cannot be made here."""


def main() -> int:
    arguments = parsed()
    FOLDER.mkdir(exist_ok=True)
    if arguments.fits:
        return few_fits(arguments.uv, arguments.python)
    if arguments.quick:
        arguments.only, arguments.pytest = ["3.11-lowest"], [*QUICK, *arguments.pytest]
    rows, good = [HEADER], True
    for environment in ENVIRONMENTS:
        if arguments.only and environment.name not in arguments.only:
            continue
        print(f"== {environment.name}", flush=True)
        try:
            python = make_environment(environment, arguments.uv, arguments.python)
        except CannotBeHad as error:
            rows.append((environment.name, f"not run: {error}"))
            good = arguments.quick  # which is no row of the table, but a part of the tests of any machine
            continue
        row = run_tests(environment, python, arguments.pytest)
        good = good and row[-3] == "0"
        rows.append(row)
    print()
    print(table(rows))
    return 0 if good else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[e.name for e in ENVIRONMENTS], help="a row to run")
    parser.add_argument("--quick", action="store_true", help="a few tests with the lowest versions")
    parser.add_argument("--fits", action="store_true", help="a few fits with the lowest versions")
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help="an interpreter to use")
    parser.add_argument("--uv", default=shutil.which("uv", path=Path(sys.executable).parent) or "uv", metavar="PATH")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest")
    return parser.parse_args()


def few_fits(uv: str, given: list[str]) -> int:
    """Fits where nothing but the lowest versions of what tithe needs is installed.

    The loops run as Python: to compile them takes longer than all else. Where PyPI cannot be reached it says so.
    """
    try:
        python = make_environment(Environment(LOWEST_PYTHON, "lowest"), uv, given, extras=())
    except CannotBeHad as error:
        print(f"not run: {error}")
        return 0
    command = [python, ROOT / "tools" / "few_fits.py"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, check=False).returncode


def make_environment(environment: Environment, uv: str, given: list[str], extras: tuple[str, ...] = ("dev",)) -> Path:
    """The interpreter of a new environment in which tithe is installed, and what its tests need."""
    folder = FOLDER / "-".join((environment.name, *extras))
    checked(uv, "venv", "--quiet", "--clear", "--python", interpreter(environment.python, uv, given), folder)
    python = folder / "bin" / "python"
    install = (uv, "pip", "install", "--quiet", "--python", python)
    wanted = ["--only-binary", ":all:", "-r", ROOT / "pyproject.toml"]
    wanted += [part for extra in extras for part in ("--extra", extra)]
    if environment.versions.startswith("lowest"):
        left_out = FOLDER / "left-out.txt"
        left_out.write_text(LEFT_OUT)
        wanted += ["--overrides", left_out]
    if environment.versions == "lowest":
        wanted += ["--resolution", "lowest-direct"]
    elif environment.versions == "lowest-numpy":
        wanted += [f"numpy=={lowest_numpy(uv)}"]
    checked(*install, *wanted)
    checked(*install, "--no-deps", "--editable", ROOT)
    return python


def lowest_numpy(uv: str) -> str:
    """The lowest numpy that pyproject.toml allows."""
    lines = checked(
        *(uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--python-version", LOWEST_PYTHON),
        *("--only-binary", ":all:", "--resolution", "lowest", ROOT / "pyproject.toml"),
    ).splitlines()
    return next(line.partition("==")[2].split()[0] for line in lines if line.startswith("numpy=="))


def interpreter(version: str, uv: str, given: list[str]) -> str:
    """A Python of this version: one that was given, is installed, or that uv can download."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [*given, shutil.which(f"python{version}"), *glob.glob(f"{pyenv}/versions/{version}.*/bin/python")]
    for candidate in candidates:
        if candidate and version_of(candidate) == version:
            return candidate
    try:
        checked(uv, "python", "install", "--quiet", version)
        return checked(uv, "python", "find", "--quiet", "--managed-python", version).strip()
    except CannotBeHad:
        raise CannotBeHad(f"no Python {version} is installed, and none can be downloaded") from None


def version_of(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def checked(*command: str | Path) -> str:
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CannotBeHad(str(error)) from None
    if done.returncode:
        print(done.stderr, file=sys.stderr, flush=True)
        raise CannotBeHad((done.stderr.strip().splitlines() or ["?"])[-1].strip())
    return done.stdout


def run_tests(environment: Environment, python: Path, arguments: list[str]) -> tuple[str, ...]:
    """A row of the table; pytest's own output goes to a file beside the environment."""
    results, log = (FOLDER / f"{environment.name}.{ending}" for ending in ("xml", "log"))
    results.unlink(missing_ok=True)
    workers = ["-n", "2", "--dist", "worksteal"]
    command = [python, "-m", "pytest", *workers, "-p", "no:cacheprovider", f"--junitxml={results}", *arguments]
    setting = {"NUMBA_CACHE_DIR": str(FOLDER / f"{environment.name}-numba"), "OPENBLAS_NUM_THREADS": "1"}
    start = time.monotonic()
    with open(log, "w") as file:
        subprocess.run(command, cwd=ROOT, env=os.environ | setting, stdout=file, stderr=subprocess.STDOUT, check=False)
    seconds = f"{time.monotonic() - start:.0f}"
    counts = counted(results)
    print(f"   passed {counts[0]}, failed {counts[1]}, skipped {counts[2]}; see {log.relative_to(ROOT)}", flush=True)
    code = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    versions = checked(python, "-c", code, *SHOWN).split()
    number = checked(python, "-c", "import platform; print(platform.python_version())").strip()
    return (environment.name, number, *versions, *counts, seconds)


def counted(results: Path) -> tuple[str, str, str]:
    """Tests that passed, that failed (or could not start), and that were skipped."""
    if not results.exists():
        return "0", "all", "0"
    suite = ElementTree.parse(results).getroot()[0]
    tests, failures, errors, skipped = (int(suite.get(k, 0)) for k in ("tests", "failures", "errors", "skipped"))
    passed = tests - failures - errors - skipped
    return str(passed), str(failures + errors) if passed else "all", str(skipped)  # no test ran: that is no success


def table(rows: list[tuple[str, ...]]) -> str:
    """Columns of equal width; a row that is short is only as wide as it is."""
    widths = [max(len(row[i]) for row in rows if len(row) == len(HEADER)) for i in range(len(HEADER))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
