"""Results as tables in Markdown. Pure: results in, text out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from tests.crawls.results import Result
from tests.simulation.scenarios import SCENARIOS

_COLUMNS: Mapping[str, Callable[[Result], object]] = MappingProxyType(
    {
        "driver": lambda result: " ".join([result.conditions.contender, *result.conditions.options]),
        "asked": lambda result: result.verdict.asked,
        "got": lambda result: result.verdict.got,
        "failed": lambda result: result.verdict.failed,
        "longest run of failures": lambda result: result.verdict.streak,
        "makespan s": lambda result: _makespan(result),
        "÷ oracle": lambda result: _ratio(result),
        "origin got": lambda result: result.verdict.received,
        "wasted": lambda result: result.verdict.wasted,
        "abandoned": lambda result: result.verdict.abandoned,
        "errors": lambda result: result.verdict.errored,
        "while saturated": lambda result: result.verdict.saturated,
        "gap s, least/median": lambda result: f"{result.verdict.least_gap}/{result.verdict.median_gap}",
        "also": lambda result: also(result),
    }
)


def all_columns(results: Iterable[Result]) -> str:
    """One line for each result, with everything that was judged."""
    rows = [list(_COLUMNS)] + [[str(show(result)) for show in _COLUMNS.values()] for result in results]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(_padded(row, widths))} |" for row in rows)


def overview(results: Sequence[Result], names: Mapping[str, str], cell: Callable[[Result], str]) -> str:
    """Contenders by scenarios. `names`: what to call each contender, in the order of the rows; others are left out."""
    cells = {(result.conditions.contender, result.conditions.scenario): cell(result) for result in results}
    scenarios = [name for name in SCENARIOS if any(scenario == name for _, scenario in cells)]
    rows = [["", *scenarios], ["---"] * (1 + len(scenarios))]
    for contender, name in names.items():
        if any(contender == known for known, _ in cells):
            rows.append([name, *(cells.get((contender, scenario), "") for scenario in scenarios)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def in_short(result: Result) -> str:
    """Pages got, time by the oracle's, requests in vain. `early`: gave up before the oracle was done."""
    verdict = result.verdict
    got = f"{verdict.got}/{verdict.can}"
    if not verdict.can:
        got = "hangs" if verdict.cut else "none"
    lines = [
        got if verdict.has_all else f"**{got}**",
        _ratio(result) if verdict.has_all or verdict.ratio > 1 else "early",
        str(verdict.wasted),
    ]
    if (times := _healthy_ratio(result)) is not None:
        lines.append(f"others {times:.2f}")
    return "<br>".join(lines)


def also(result: Result) -> str:
    """What else there is to say of a result."""
    verdict, notes = result.verdict, list(result.verdict.errors)
    if (times := _healthy_ratio(result)) is not None:
        pages = verdict.asked - result.conditions.site().pages
        took = f"{verdict.healthy_makespan:.1f} s (x{times:.2f})"
        notes.insert(0, f"healthy hosts {verdict.healthy_got}/{pages} in {took}")
    if verdict.cut:
        notes.append(f"{verdict.cut} pages still open when stopped")
    if result.probe:
        after = f"{result.conditions.site().probe_after:.0f} s later {result.probe.got}/{result.probe.asked}"
        notes.append(after if result.probe.page_s is None else f"{after}, {result.probe.page_s:.1f} s a page")
    return "; ".join(notes)


def _healthy_ratio(result: Result) -> float | None:
    """The makespan of the healthy hosts by their oracle's, where one of several is sick."""
    verdict = result.verdict
    if verdict.healthy_makespan is None or verdict.healthy_oracle is None:
        return None
    return verdict.healthy_makespan / verdict.healthy_oracle


def _makespan(result: Result) -> str:
    return f"{'>' if result.verdict.cut else ''}{result.verdict.makespan:.1f}"


def _ratio(result: Result) -> str:
    """In brackets where pages are missing: giving up quickly is no merit."""
    shown = f"{result.verdict.ratio:.2f}"
    return f"{'>' if result.verdict.cut else ''}{shown if result.verdict.has_all else f'({shown})'}"


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [text.ljust(width) for text, width in zip(row, widths, strict=True)]
