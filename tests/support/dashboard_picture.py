"""Draws the panels of a Grafana dashboard as one SVG, from what a Prometheus has seen, where there is no Grafana.

It knows the panels' places, titles, units and legends, and draws numbers, lines and tables in the plainest way; it does
not look like Grafana, and says so in the picture. How the data come about does not belong here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

WIDTH = 1200
_CELL = WIDTH / 24
_ROW = 24.0
_GAP = 4.0
_COLOURS = (
    "#7eb26d",
    "#eab839",
    "#6ed0e0",
    "#ef843c",
    "#e24d42",
    "#1f78c1",
    "#ba43a9",
    "#705da0",
    "#508642",
    "#cca300",
)
_NAMED = {"green": "#56a64b", "yellow": "#e0b400", "orange": "#ff780a", "red": "#e02f44"}


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a chart: its name, and (Unix time, value), oldest first."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The names of the columns, and the rows, ready to be read."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


type Data = float | Sequence[Line] | Table


def formatted(value: float, unit: str) -> str:
    """A number as a person reads it; units are named as in Grafana."""
    match unit:
        case "s":
            return f"{value * 1000:.3g} ms" if 0 < value < 1 else f"{value:.3g} s"
        case "percentunit":
            return f"{value * 100:.3g} %"
        case "reqps" | "ops":
            return f"{value:.3g}/s"
        case "bytes":
            return f"{value / 2**20:.3g} MiB"
        case _:
            return f"{value:.4g}"


def draw(panels: Sequence[Mapping[str, Any]], data: Callable[[Mapping[str, Any]], Data], *, says: str) -> str:
    """The picture. `panels` are those of the dashboard's JSON, rows too; `says` stands above it."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _ROW + 64
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" font-family="sans-serif"'
        f' font-size="11" fill="#333"><rect width="{WIDTH}" height="{height:g}" fill="#f4f5f5"/>',
        _text(8, 24, says, size=14, weight="bold"),
    ]
    for panel in panels:
        at = panel["gridPos"]
        x, y = at["x"] * _CELL + _GAP, at["y"] * _ROW + 36 + _GAP
        width, tall = at["w"] * _CELL - 2 * _GAP, at["h"] * _ROW - 2 * _GAP
        parts.append(f'<svg x="{x:g}" y="{y:g}" width="{width:g}" height="{tall:g}">')
        if panel["type"] == "row":
            parts.append(_text(4, 14, panel["title"], size=14, weight="bold"))
        else:
            parts.append(f'<rect width="{width:g}" height="{tall:g}" rx="2" fill="#fff" stroke="#ddd"/>')
            parts.append(_text(8, 17, panel["title"], size=12, weight="bold"))
            parts.append(_panel(panel, data(panel), width, tall))
        parts.append("</svg>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Mapping[str, Any], found: Data, width: float, height: float) -> str:
    defaults = panel["fieldConfig"]["defaults"]
    match found:
        case Table():
            return _table(found, width)
        case float():
            steps = defaults["thresholds"]["steps"]
            colour = [step["color"] for step in steps if step["value"] is None or found >= step["value"]][-1]
            number = f"{found:.0f}" if defaults["unit"] == "short" else formatted(found, defaults["unit"])
            return _text(width / 2, height - 18, number, size=34, anchor="middle", fill=_NAMED[colour])
        case []:
            return _text(width / 2, height / 2 + 8, "nothing in this time", anchor="middle", fill="#777")
        case _:
            return _chart(found, defaults["unit"], width, height)


def _chart(lines: Sequence[Line], unit: str, width: float, height: float) -> str:
    left, right, top, bottom = 58.0, 12.0, 30.0, 26.0 + 15 * math.ceil(len(lines) / 3)
    times = [at for line in lines for at, _ in line.points]
    first, last = min(times), max(times)
    step = _round_step(max((value for line in lines for _, value in line.points), default=0.0) / 3)
    most = step * max(1, math.ceil(max(value for line in lines for _, value in line.points) / step - 1e-9))

    def place(at: float, value: float) -> tuple[float, float]:
        return (
            left + (width - left - right) * (at - first) / ((last - first) or 1),
            height - bottom - (height - top - bottom) * value / most,
        )

    parts = []
    for number in range(round(most / step) + 1):
        _, y = place(first, number * step)
        parts.append(f'<path d="M{left:g} {y:.1f}H{width - right:g}" stroke="#e6e6e6"/>')
        parts.append(_text(left - 6, y + 4, formatted(number * step, unit), anchor="end", size=10))
    for ago in (last - first, (last - first) / 2, 0.0):
        x, y = place(last - ago, 0)
        anchor = "start" if ago == last - first else "middle" if ago else "end"
        parts.append(_text(x, y + 14, f"{ago:.0f} s ago" if ago else "now", anchor=anchor, size=10))
    for i, line in enumerate(lines):
        colour = _COLOURS[i % len(_COLOURS)]
        parts.append(f'<path d="{_path(line, place)}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        x, y = left + (i % 3) * (width - left) / 3, height - bottom + 28 + 15 * (i // 3)
        parts.append(f'<rect x="{x:g}" y="{y - 6:g}" width="12" height="4" fill="{colour}"/>')
        parts.append(_text(x + 17, y, f"{line.name}: {formatted(line.points[-1][1], unit)}", size=10))
    return "".join(parts)


def _path(line: Line, place: Callable[[float, float], tuple[float, float]]) -> str:
    """Straight from point to point, but not over a gap: where there are no data there is no line."""
    step_s = min((later - at for (at, _), (later, _) in pairwise(line.points)), default=0.0)
    before = -math.inf
    parts = []
    for at, value in line.points:
        x, y = place(at, value)
        parts.append(f"{'M' if at - before > 1.5 * step_s else 'L'}{x:.1f} {y:.1f}")
        before = at
    return "".join(parts)


def _table(table: Table, width: float) -> str:
    left = [8 + i * (width - 16) / len(table.columns) for i in range(len(table.columns))]
    lines = [_text(x, 38, name, weight="bold") for x, name in zip(left, table.columns, strict=True)]
    for number, row in enumerate(table.rows):
        lines += [_text(x, 57 + 18 * number, cell) for x, cell in zip(left, row, strict=True)]
    return "".join(lines)


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, and not less than this."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least - 1e-12) if least > 0 else 1.0


def _text(x: float, y: float, text: str, *, size: int = 11, weight: str = "", anchor: str = "", fill: str = "") -> str:
    style = "".join(
        f' {name}="{value}"'
        for name, value in (("font-weight", weight), ("text-anchor", anchor), ("fill", fill))
        if value
    )
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}"{style}>{escape(text)}</text>'
