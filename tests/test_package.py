from __future__ import annotations

import subprocess
import sys

import pytest

import tithe


@pytest.mark.parametrize("name", [n for n in tithe.__all__ if n != "__version__"])
def test_public_names_import_and_are_documented(name: str) -> None:
    import tithe.reduce.build
    import tithe.report.html

    thing = getattr(tithe, name)
    assert callable(thing)
    assert (thing.__doc__ or "").strip()


def test_import_is_lazy() -> None:
    code = "import sys, tithe; print([m for m in ('numpy', 'numba', 'sklearn') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_every_module_imports_without_what_only_posix_has() -> None:
    code = """
import pkgutil, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None  # an import of it raises ImportError
import tithe
modules = [module.name for module in pkgutil.walk_packages(tithe.__path__, "tithe.")]
for module in modules:
    __import__(module)
from tithe.cli.progress import memory, peak_memory
assert memory() > 0 and peak_memory() == 0
print(len(modules))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tithe.nothing  # noqa: B018
    assert "CoresetKMeans" in dir(tithe)
