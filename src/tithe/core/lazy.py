"""Packages whose names are imported when they are first used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def imported_names(package: str) -> dict[str, str]:
    """The module of each name that the code of a package imports under ``if TYPE_CHECKING``.

    Type checkers and editors follow these imports. Python does not run them: it has `lazy_names` in their place.
    """
    with open(str(sys.modules[package].__file__), encoding="utf-8") as file:
        code = ast.parse(file.read())
    conditions = (node for node in code.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = (node for condition in conditions for node in condition.body if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package, from the module that each of its names is in."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules[name]
        value = import_module(f"{package}.{name}") if module == package else getattr(import_module(module), name)
        setattr(import_module(package), name, value)  # found without this function from now on
        return value

    return get, lambda: sorted(modules)
