"""The incident as a chart: what a crawl with and one without Paceproxy got, and what the shop had to bear meanwhile.

From the outcomes and the origin's log that a run leaves with `--keep`, to SVG: the same bytes for the same records.
Drawn for a phone's width, light and dark, and without colours it says the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from tests.crawls.records import Outcome
from tests.simulation.origins import Arrival
from tests.simulation.site_model import Scenario

_WIDTH, _HEIGHT = 560, 640
_LEFT, _RIGHT = 48, 530
_MINUTE_S = 60.0
_MARK = 4.5
"""Half the width of a failure's mark."""

_STYLE = """\
text { font: 19px -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.head { font-weight: 600 } .axis { font-size: 17px; fill: #59636e }
.paper { fill: #ffffff } .grid { stroke: #d1d9e0 } .limit { stroke: #59636e; stroke-dasharray: 2 4 }
.line { fill: none; stroke-width: 3; stroke-linejoin: round } .mark { fill: none; stroke-width: 2 }
.without { stroke: #bc4c00 } .with { stroke: #0969da } circle.with { fill: #0969da }
text.without { fill: #bc4c00; stroke: none } text.with { fill: #0969da; stroke: none }
.line.without { stroke-dasharray: 7 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .axis { fill: #9198a1 }
  .paper { fill: #0d1117 } .grid { stroke: #3d444d } .limit { stroke: #9198a1 }
  .without { stroke: #f0883e } .with { stroke: #58a6ff } circle.with { fill: #58a6ff }
  text.without { fill: #f0883e } text.with { fill: #58a6ff }
}
"""

type Side = Literal["without", "with"]
type Steps = Sequence[tuple[float, int]]
"""From each time on, this many."""


@dataclass(frozen=True, slots=True)
class Course:
    """How one crawl went; times in simulated seconds since its first page was sent."""

    pages: Steps
    """Got so far."""
    failures: tuple[float, ...]
    """When the user learnt of each page that did not come."""
    at_origin: Steps
    """Requests in the origin's hands, of clients that have left, too."""

    @property
    def got(self) -> int:
        return self.pages[-1][1]

    @property
    def end(self) -> float:
        return max([self.pages[-1][0], *self.failures])

    @property
    def most_at_origin(self) -> int:
        return max(count for _, count in self.at_origin)


def course(outcomes: Sequence[Outcome], arrivals: Sequence[Arrival]) -> Course:
    """The course of a crawl, from what its user saw and what its origin wrote down."""
    began = min((outcome.t0 for outcome in outcomes), default=0.0)
    ended = sorted((outcome.t1 - began, outcome.got) for outcome in outcomes)
    got = [at for at, is_got in ended if is_got]
    changes = [(arrival.at, 1) for arrival in arrivals]
    changes += [(arrival.finish, -1) for arrival in arrivals if arrival.finish is not None]
    return Course(
        pages=[(0.0, 0), *((at, number) for number, at in enumerate(got, 1))],
        failures=tuple(at for at, is_got in ended if not is_got),
        at_origin=_summed(changes),
    )


def _summed(changes: Iterable[tuple[float, int]]) -> Steps:
    """At one moment what ends is counted before what begins."""
    steps, count = [(0.0, 0)], 0
    for at, change in sorted(changes):
        count += change
        steps.append((at, count))
    return steps


@dataclass(frozen=True, slots=True)
class _Panel:
    """A frame with a scale: seconds to the right, a count upwards."""

    top: float
    bottom: float
    longest_s: float
    most: int

    def x(self, seconds: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * min(seconds, self.longest_s) / self.longest_s

    def y(self, count: float) -> float:
        return self.bottom - (self.bottom - self.top) * count / self.most

    def frame(self, counts: Iterable[int]) -> list[str]:
        """Horizontal lines at these counts, and minutes below."""
        parts = []
        for count in counts:
            y = self.y(count)
            parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_RIGHT}"/>')
            parts.append(_text(_LEFT - 8, y + 6, str(count), "axis", anchor="end"))
        for minute in range(int(self.longest_s / _MINUTE_S) + 1):
            label = f"{minute} min" if minute else "0"
            parts.append(_text(self.x(minute * _MINUTE_S), self.bottom + 24, label, "axis", anchor="middle"))
        return parts

    def line(self, steps: Steps, side: Side, until_s: float) -> str:
        path = "".join(f"H{self.x(at):.1f}V{self.y(count):.1f}" for at, count in steps if at <= until_s)
        start = f"M{self.x(0):.1f} {self.y(0):.1f}"
        return f'<path class="line {side}" d="{start}{path}H{self.x(until_s):.1f}"/>'


def draw(site: Scenario, without: Course, with_ours: Course) -> str:
    """The chart as SVG. The site has a pool; both courses are of crawls of it."""
    longest_s = max(without.end, with_ours.end, _MINUTE_S)
    most = max(without.most_at_origin, with_ours.most_at_origin)
    cores = round(site.cores)
    pages = _Panel(top=88, bottom=334, longest_s=longest_s, most=site.pages)
    load = _Panel(top=448, bottom=594, longest_s=longest_s, most=most)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" aria-labelledby="title told">',
        f'<title id="title">{escape("A crawl of a small shop, with and without Paceproxy")}</title>',
        f'<desc id="told">{escape(_told(site, without, with_ours))}</desc>',
        f"<style>\n{_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        _text(16, 34, f"{site.pages} pages of a small shop, asked for {site.parallel} at a time", "head"),
        _text(16, 62, "pages got (line) and pages failed (crosses)", "axis"),
        *pages.frame([*range(0, site.pages - 5, 10), site.pages]),
        *_course(pages, without, "without"),
        *_course(pages, with_ours, "with"),
        _text(16, 394, "requests in the shop's hands", "head"),
        _text(16, 422, f"beyond {cores}, each makes all of them slower", "axis"),
        *load.frame([0, cores, most]),
        f'<path class="limit" d="M{_LEFT} {load.y(cores):.1f}H{_RIGHT}"/>',
        load.line(without.at_origin, "without", without.end),
        load.line(with_ours.at_origin, "with", with_ours.end),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _course(panel: _Panel, crawl: Course, side: Side) -> list[str]:
    x, y = panel.x(crawl.end), panel.y(crawl.got)
    parts = [panel.line(crawl.pages, side, crawl.end)]
    for at in crawl.failures:
        so_far = sum(1 for got_at, _ in crawl.pages if got_at <= at) - 1
        parts.append(_cross(panel.x(at), panel.y(so_far), side))
    if not crawl.failures:
        parts.append(f'<circle class="{side}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
    name = "with Paceproxy" if side == "with" else "without"
    label = f"{name}: {crawl.got} of {panel.most}"
    if panel.x(crawl.end) < (_LEFT + _RIGHT) / 2:
        return [*parts, _text(x + 12, y + 24, f"{label} after {crawl.end:.0f} s", side)]
    label += f", {len(crawl.failures)} failed" if crawl.failures else ""
    # Above ours and below the other, so that they do not meet: ours does not get fewer pages.
    above = side == "with" and crawl.got < panel.most
    return [*parts, _text(_RIGHT, y - 16 if above else y + 30, label, side, anchor="end")]


def _told(site: Scenario, without: Course, with_ours: Course) -> str:
    """The chart in words."""

    def of(crawl: Course) -> str:
        failed = f" and {len(crawl.failures)} failures" if crawl.failures else ""
        return f"{crawl.got} of {site.pages} pages{failed} in {crawl.end:.0f} s, up to {crawl.most_at_origin} requests"

    return f"Without Paceproxy: {of(without)} at the shop at once. With it: {of(with_ours)} at once."


def _cross(x: float, y: float, side: Side) -> str:
    left, right, top, bottom = x - _MARK, x + _MARK, y - _MARK, y + _MARK
    strokes = f"M{left:.1f} {top:.1f}L{right:.1f} {bottom:.1f}M{left:.1f} {bottom:.1f}L{right:.1f} {top:.1f}"
    return f'<path class="mark {side}" d="{strokes}"/>'


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{where}>{escape(text)}</text>'
