"""Engines, which run the work on leaves: one leaf after another, or several at a time."""

from tithe.core.engine import Engine as Engine
from tithe.core.engine import SerialEngine as SerialEngine
from tithe.engines.spark import SparkEngine as SparkEngine
from tithe.engines.threads import ThreadEngine as ThreadEngine
