"""What all figures do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tithe.plot.axes import new_axes


def check_figure(plot: Callable[..., Any], *arguments: Any) -> None:
    """It returns the axes that it has drawn on, and no legend lies over the data."""
    figure, axes = new_axes(6.4, 3.6)
    assert plot(*arguments, ax=axes) is axes
    figure.draw_without_rendering()
    assert axes.has_data()
    legend = axes.get_legend()
    if legend is not None:
        box = legend.get_window_extent()
        assert box.y0 >= axes.get_window_extent().y1 - 1.0
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 + 1.0
