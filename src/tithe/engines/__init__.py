"""Engines, which run the work on leaves: one after another, several at a time, or on a cluster."""

from typing import TYPE_CHECKING, Any

from tithe.core.passes import Engine as Engine
from tithe.core.passes import SerialEngine as SerialEngine
from tithe.engines.spark import SparkEngine as SparkEngine
from tithe.engines.threads import ThreadEngine as ThreadEngine

if TYPE_CHECKING:
    from tithe.engines.dask import DaskEngine as DaskEngine


def __getattr__(name: str) -> Any:
    if name != "DaskEngine":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tithe.engines.dask import DaskEngine  # which needs Dask

    return DaskEngine
