"""Figures of matplotlib: every function takes ``ax=None`` and returns the axes that it has drawn on."""

from typing import TYPE_CHECKING, Any

from tithe.core.registry import registered_attribute
from tithe.plot.figures import k_curve as k_curve
from tithe.plot.figures import polish_curve as polish_curve
from tithe.plot.figures import projection as projection
from tithe.plot.figures import quality_by_size as quality_by_size
from tithe.plot.figures import quality_by_time as quality_by_time
from tithe.plot.figures import weights as weights

if TYPE_CHECKING:
    from tithe.dictionary.plot import atoms as atoms
    from tithe.odm.plot import margins as margins
    from tithe.odm.plot import two_boundaries as two_boundaries
    from tithe.online.plot import k_over_time as k_over_time
else:

    def __getattr__(name: str) -> Any:
        """The figures that families, and other packages, register."""
        return registered_attribute("plot", __name__, name)
