from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from figures import check_figure

import tithe
from tithe.core.data import Block
from tithe.core.registry import names, resolve
from tithe.plot.axes import few_log_ticks, new_axes


def _line(method: str, size: int, excess: float) -> dict:
    numbers = {"quality": 0.9, "held_out_loss": 0.2, "excess": excess, "distortion": 0.1, "seconds": size / 1000}
    ranges = {f"{name}_{end}": value * factor for name, value in numbers.items() for end, factor in _ENDS.items()}
    is_sample = method.startswith("weighted uniform")
    return {"method": method, "is_sample": is_sample, "size": size, "rows": size, **numbers, **ranges}


_ENDS = {"low": 0.5, "high": 2.0}
COMPARISON = SimpleNamespace(
    table=[_line("all rows", 9000, 0.0)]
    + [_line(name, size, 1.0 / size) for name in ("weighted uniform", "calibrated rings") for size in (10, 100)],
    tol=0.01,
    quality="accuracy",
)
CURVE = SimpleNamespace(curve={2: 9.0, 4: 3.0, 8: 2.5}, k=4)
CORESET = Block(X=np.random.default_rng(0).normal(size=(40, 3)), sample_weight=np.arange(1.0, 41.0))


FIGURES = {
    "quality_by_size": (COMPARISON,),
    "quality_by_time": (COMPARISON,),
    "projection": (CORESET, np.random.default_rng(1).normal(size=(200, 3))),
    "k_curve": (CURVE,),
    "weights": (CORESET,),
    "polish_curve": (SimpleNamespace(objective_curve_=[3.0, 2.0, 1.9]),),
}


def test_every_figure_is_here() -> None:
    figures = {
        name for name, thing in vars(tithe.plot).items() if getattr(thing, "__module__", "").startswith("tithe.plot.")
    }
    assert {*FIGURES} == figures
    for name in names("plot"):  # those of families, whose tests draw them
        assert getattr(tithe.plot, name) is resolve("plot", name)


@pytest.mark.parametrize("name", FIGURES)
def test_figures_return_the_axes_and_no_legend_lies_over_the_data(name: str) -> None:
    check_figure(getattr(tithe.plot, name), *FIGURES[name])


def test_without_axes_a_figure_of_pyplot_is_made() -> None:
    import matplotlib.pyplot as plt

    axes = tithe.plot.weights(CORESET)
    assert plt.gcf() is axes.figure
    plt.close(axes.figure)


def test_areas_are_weights() -> None:
    areas = tithe.plot.projection(CORESET, ax=new_axes(5, 5)[1]).collections[0].get_sizes()
    np.testing.assert_allclose(areas / areas.max(), CORESET.weights() / 40.0)


def test_bands_are_from_the_smallest_to_the_largest() -> None:
    axes = tithe.plot.quality_by_size(COMPARISON, ax=new_axes(5, 3)[1])
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.5 / 100, 2.0 / 10))
    assert axes.get_yscale() == "log"


def test_no_legend_of_a_page_is_cut_off() -> None:
    largest = _line("weighted uniform, the largest affordable", 5000, 0.0)
    comparison = SimpleNamespace(**vars(COMPARISON) | {"table": [largest, *COMPARISON.table[1:]]})
    for plot, options in (("quality_by_size", {"value": "quality"}), ("quality_by_time", {})):
        figure, axes = new_axes(5.4, 4.0)
        getattr(tithe.plot, plot)(comparison, ax=axes, **options)
        figure.draw_without_rendering()
        assert axes.get_legend().get_window_extent().x1 <= figure.bbox.x1


def test_values_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="value must be one of"):
        tithe.plot.quality_by_size(COMPARISON, value="speed", ax=new_axes(5, 3)[1])


def test_what_a_notebook_shows() -> None:
    X = np.random.default_rng(0).normal(size=(500, 2))
    coreset = tithe.build_coreset(X, objective="kmeans", coreset_size=50, random_state=0)
    assert "<td>50 of 500 (10.00%)</td>" in coreset._repr_html_() or "of 500" in coreset._repr_html_()
    distortion = tithe.distortion(X, coreset, "kmeans", queries={"<b>": [X[:8]]})
    assert "&lt;b&gt;" in distortion._repr_html_() and repr(distortion).startswith("Distortion(worst=")
    stream = tithe.CoresetStream("kmeans", coreset_size=50, window=70_000, random_state=0).push(X)
    assert "the last 70,000 rows" in stream._repr_html_() and "<td>500</td>" in stream._repr_html_()
    model = tithe.CoresetKMeans(3, random_state=0).fit(X)
    certificate = model.certificate_
    assert certificate.sentence in repr(certificate) and "exact" in certificate._repr_html_()
    assert "CoresetKMeans" in model._repr_html_()


def test_ticks_of_log_scales_are_few_plain_numbers() -> None:
    axes = tithe.plot.weights(CORESET)
    axes.figure.canvas.draw()
    assert all(float(text.get_text().replace(",", "")) > 0.0 for text in axes.get_xticklabels())
    assert len(axes.xaxis.get_minorticklocs()) == 0
    for low, high in ((1.0, 40.0), (31.0, 44.0), (14.0, 80.0), (0.02, 70.0), (1e-9, 1e9)):
        axes = new_axes(5, 3)[1]
        axes.set(xscale="log", xlim=(low, high))
        few_log_ticks(axes.xaxis)
        assert 2 <= sum(low <= tick <= high for tick in axes.get_xticks()) <= 6


def test_figures_of_few_rows() -> None:
    one = Block(X=np.ones((1, 4)), sample_weight=np.array([9.0]))
    assert tithe.plot.projection(one).get_xlabel() == "first principal component"
    assert tithe.plot.projection(Block(X=np.ones((3, 1)))).get_ylabel() == ""
