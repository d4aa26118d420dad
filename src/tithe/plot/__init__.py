"""Figures of matplotlib: every function takes ``ax=None`` and returns the axes that it has drawn on."""

from tithe.plot.boundaries import two_boundaries as two_boundaries
from tithe.plot.comparison import quality_by_size as quality_by_size
from tithe.plot.comparison import quality_by_time as quality_by_time
from tithe.plot.coresets import projection as projection
from tithe.plot.coresets import weights as weights
from tithe.plot.curves import k_curve as k_curve
from tithe.plot.curves import k_over_time as k_over_time
from tithe.plot.curves import polish_curve as polish_curve
from tithe.plot.dictionaries import atoms as atoms
from tithe.plot.margins import margins as margins
