"""Which modules pytest leaves out: those of packages that are not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [
    f"src/tithe/engines/{module}.py"
    for module, package in (("dask", "distributed"), ("spark", "pyspark"))
    if find_spec(package) is None
]
