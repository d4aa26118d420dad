"""Figures of reports, written as SVG: no drawing library is loaded, and they follow the width and colours of a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

MAIN, SECOND, DIM = "var(--mark, #2f5d9b)", "var(--second, #6f9bd1)", "var(--dim, #8a8f98)"
_WIDTH, _TEXT, _LETTER = 480.0, 13, 7.0  # of a figure, of its letters, and from one letter to the next, in pixels
_TICKS, _LONGEST = 5, 52  # ticks that are wanted on an axis, and letters of a text


@dataclass(frozen=True)
class Scale:
    """Numbers along an axis."""

    low: float
    high: float
    log: bool = False
    percent: bool = False

    def at(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return min(max((value - low) / (high - low), -0.05), 1.05) if high != low else 0.5

    def ticks(self) -> list[float]:
        """Three to ten round numbers."""
        if not self.log or self.high < 6.0 * self.low:
            return _round_numbers(self.low, self.high)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
            step = 1 + len(decades) // 9
            found = [f * 10.0**n for n in decades[::step] for f in factors]
            inside = [value for value in found if self.low <= value * (1 + 1e-9) and value <= self.high * (1 + 1e-9)]
            if len(inside) >= _TICKS - 1:
                break
        return inside

    def text(self, value: float) -> str:
        return f"{100.0 * value:,.6g} %" if self.percent else f"{value:,.6g}"


def _round_numbers(low: float, high: float) -> list[float]:
    rough = (high - low) / _TICKS
    if not rough > 0.0 or not math.isfinite(rough):
        return [low]
    unit = 10.0 ** math.floor(math.log10(rough))
    step = unit * next(f for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * unit >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def around(*values: Sequence[float], percent: bool = False) -> Scale:
    """A scale with room for all values that are finite."""
    finite = [v for part in values for v in part if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    room = 0.04 * (high - low) or max(abs(high), 1.0)
    return Scale(low - room, high + room, percent=percent)


@dataclass
class Figure:
    """Lines, bands and bars in a frame with axes; what is drawn later lies above."""

    x: Scale
    y: Scale
    x_label: str
    y_label: str
    height: float = 300.0
    names: Sequence[str] = ()  # of places along y: 0, 1, 2, ... from the top, in place of numbers
    _parts: list[str] = field(default_factory=list)
    _legend: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        texts = self.names or [self.y.text(value) for value in self.y.ticks()]
        self._left = 16.0 + _LETTER * max(map(len, texts), default=1) + (0.0 if self.names else 1.6 * _TEXT)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        top, bottom = 2.2 * _TEXT, self.height - 3.6 * _TEXT
        along, up = self.x.at(x), self.y.at(y)
        return self._left + along * (_WIDTH - self._left - 24.0), bottom - up * (bottom - top)

    def _points(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        places = [self._at(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y)]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)

    def line(
        self, xs: Sequence[float], ys: Sequence[float], colour: str = MAIN, *, label: str = "", dashed: bool = False,
        marked: bool = False,
    ) -> None:  # fmt: skip
        """A line through points, which may be marked."""
        points, dashes = self._points(xs, ys), ' stroke-dasharray="6 4"' if dashed else ""
        style = f'fill="none" stroke-width="2" style="stroke:{colour}"'
        self._parts.append(f'<polyline points="{points}" {style}{dashes}/>')
        for point in points.split() if marked else ():
            x, y = point.split(",")
            self._parts.append(f'<circle cx="{x}" cy="{y}" r="3.5" style="fill:{colour}"/>')
        if label:
            self._legend.append((label, f'<line x2="22" {style}{dashes}/>'))

    def band(
        self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], opacity: float, label: str
    ) -> None:
        """What lies between two lines."""
        points, style = (
            self._points([*xs, *xs[::-1]], [*low, *high[::-1]]),
            f'style="fill:{SECOND}" opacity="{opacity}"',
        )
        self._parts.append(f'<polygon points="{points}" {style}/>')
        self._legend.append((label, f'<rect y="-6" width="22" height="12" {style}/>'))

    def bar(self, x0: float, x1: float, y0: float, y1: float) -> None:
        """A rectangle with these corners."""
        (a, b), (c, d) = self._at(x0, y0), self._at(x1, y1)
        size = f'x="{min(a, c):.1f}" y="{min(b, d):.1f}" width="{abs(c - a):.1f}" height="{abs(d - b):.1f}"'
        self._parts.append(f'<rect {size} style="fill:{MAIN}"/>')

    def svg(self) -> str:
        """The figure, for a page."""
        return (
            f'<svg viewBox="0 0 {_WIDTH:g} {self.height:g}" role="img" font-size="{_TEXT}" fill="currentColor" '
            f'font-family="system-ui, sans-serif">{self._frame()}{"".join(self._parts)}{self._key()}</svg>'
        )

    def _frame(self) -> str:
        (left, bottom), (right, top) = self._at(self.x.low, self.y.low), self._at(self.x.high, self.y.high)
        edge = 'stroke="currentColor" stroke-width="1"'
        parts = [f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" {edge} opacity="0.6"/>']
        for value in self.x.ticks():
            at = self._at(value, self.y.low)[0]
            parts.append(f'<path d="M{at:.1f} {top:.1f}V{bottom:.1f}" {edge} opacity="0.12"/>')
            parts.append(_text(self.x.text(value), at, bottom + 1.5 * _TEXT, "middle"))
        named = [(float(i), name) for i, name in enumerate(self.names)]
        for value, text in named or [(value, self.y.text(value)) for value in self.y.ticks()]:
            at = self._at(self.x.low, value)[1]
            if not self.names:
                parts.append(f'<path d="M{left:.1f} {at:.1f}H{right:.1f}" {edge} opacity="0.12"/>')
            parts.append(_text(text, left - 8.0, at + 0.35 * _TEXT, "end"))
        parts.append(_text(self.x_label, (left + right) / 2, self.height - 0.6 * _TEXT, "middle"))
        if self.y_label:
            turned = f'transform="rotate(-90 {_TEXT} {(top + bottom) / 2:.1f})"'
            parts.append(_text(self.y_label, _TEXT, (top + bottom) / 2, "middle", turned))
        return "".join(parts)

    def _key(self) -> str:
        """What lines and bands are, above the frame."""
        parts, at = [], self._left
        for label, sign in self._legend:
            parts.append(f'<g transform="translate({at:.1f} {_TEXT})">{sign}</g>')
            parts.append(_text(label, at + 28.0, 1.35 * _TEXT, "start"))
            at += 46.0 + _LETTER * len(label)
        return "".join(parts)


def _text(text: str, x: float, y: float, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(_short(text))}</text>'


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def named_bars(names: Sequence[str], values: Sequence[float], label: str) -> str:
    """A bar for each name, from the top."""
    shown = [name if len(name) <= 26 else f"{name[:23]}..." for name in names]
    places = Scale(len(shown) - 0.4, -0.6)
    figure = Figure(around([0.0], values), places, label, "", height=80.0 + 20.0 * len(shown), names=shown)
    for i, value in enumerate(values):
        if math.isfinite(value):
            figure.bar(0.0, value, i + 0.36, i - 0.36)
    figure.line([0.0, 0.0], [len(shown) - 0.4, -0.6], DIM)
    return figure.svg()


def histogram(edges: Sequence[float], counts: Sequence[float], x_label: str, y_label: str) -> str:
    """Bars between edges, which are positive and stand on a log scale."""
    scale = Scale(edges[0], edges[-1], log=True)
    figure = Figure(scale, Scale(0.0, max(1.0, *counts) * 1.05), x_label, y_label, height=240.0)
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if count:
            figure.bar(low, high, 0.0, count)
    return figure.svg()
