"""Engines, which run the work on leaves: one leaf after another, or several at a time."""

from tithe.core.contracts import Engine as Engine
from tithe.core.passes import SerialEngine as SerialEngine
from tithe.engines.threads import ThreadEngine as ThreadEngine
