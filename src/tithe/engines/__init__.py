"""Engines, which run the work on leaves: one after another, several at a time, or on a cluster."""

from typing import TYPE_CHECKING

from tithe.core.lazy import lazy_names
from tithe.core.passes import Engine as Engine
from tithe.core.passes import SerialEngine as SerialEngine
from tithe.engines.spark import SparkEngine as SparkEngine
from tithe.engines.threads import ThreadEngine as ThreadEngine

if TYPE_CHECKING:
    from tithe.engines.dask import DaskEngine as DaskEngine
else:
    __getattr__, _ = lazy_names(__name__, {"DaskEngine": "tithe.engines.dask"})  # which needs Dask
