from __future__ import annotations

import inspect
import runpy
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from reference_pages import public_names
from sklearn.base import BaseEstimator

import tithe
from tithe.core import registry


@pytest.mark.parametrize("name", [n for n in tithe.__all__ if n != "__version__"])
def test_public_names_import_and_are_documented(name: str) -> None:
    import tithe.reduce.plan
    import tithe.report.run

    thing = getattr(tithe, name)
    assert callable(thing)
    assert (thing.__doc__ or "").strip()


def test_every_public_name_has_an_example_that_runs() -> None:
    """Pytest runs the doctests of all modules; here it is checked that each name has one, on its own docstring."""
    public = public_names()
    assert {"tithe", "tithe.odm", "tithe.objectives", "tithe.testing"} <= {*public}
    assert "DaskEngine" in public["tithe.engines"] or find_spec("distributed") is None
    lacking = [
        f"{module}.{name}"
        for module, names in public.items()
        for name in names
        if ">>> " not in (getattr(import_module(module), name).__doc__ or "")
    ]
    assert lacking == []


@pytest.mark.parametrize("package", [name for name in dir(tithe) if name not in tithe.__all__])
def test_public_packages_name_documented_things(package: str) -> None:
    module = getattr(tithe, package)
    names = public_names()[f"tithe.{package}"]
    assert names and all((getattr(module, name).__doc__ or "").strip() for name in names)
    assert not {*names} & {*tithe.__all__}


def test_the_root_holds_what_most_users_need_and_every_other_name_one_place() -> None:
    assert len(tithe.__all__) - len(["__version__"]) <= 28
    for kind in ("objective", "construction", "engine"):
        for name in registry.names(kind):
            try:
                cls = registry.resolve(kind, name)
            except ImportError as error:  # an engine that is not installed for everyone
                assert f"pip install 'tithe[{name}]'" in str(error)
                continue
            assert getattr(getattr(tithe, f"{kind}s"), cls.__name__) is cls


def test_no_estimator_has_more_parameters_than_can_be_overlooked() -> None:
    for module, names in public_names().items():
        for cls in (getattr(import_module(module), name) for name in names):
            if isinstance(cls, type) and issubclass(cls, BaseEstimator):
                assert len(inspect.signature(cls).parameters) <= 18, cls


def test_import_is_lazy() -> None:
    code = "import sys, tithe; print([m for m in ('numpy', 'numba', 'sklearn') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.slow
def test_every_module_imports_without_what_only_posix_has() -> None:
    code = """
import pkgutil, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None  # an import of it raises ImportError
import tithe
modules = [module.name for module in pkgutil.walk_packages(tithe.__path__, "tithe.")]
for module in modules:
    try:
        __import__(module)
    except ImportError as error:  # an engine of a package that is not installed
        assert "pip install 'tithe[" in str(error), error
from tithe.core.progress import memory, peak_memory
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


def test_the_benchmark_of_first_use_finds_every_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    cold = import_module("cold")
    for name, module in cold.MODULES.items():
        assert hasattr(import_module(module), name)


def test_the_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["tithe", "--version"])
    runpy.run_module("tithe", run_name="__main__")
    assert tithe.__version__ in capsys.readouterr().out
