"""Who does the work: one leaf after the other, or several at once."""

from tithe.core.contracts import Engine as Engine
from tithe.engines.serial import SerialEngine as SerialEngine
from tithe.engines.threads import ThreadEngine as ThreadEngine
