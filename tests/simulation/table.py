"""The figures of crawls as tables in Markdown: one row a crawl, or one for the same crawl over many seeds."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from tests.simulation.judge import Judged
from tests.simulation.targets import missed


def table(crawls: Sequence[Judged]) -> str:
    """One row for each crawl."""
    return _table([_row(crawl) for crawl in crawls])


def summary(crawls: Iterable[Judged]) -> str:
    """One row for each scenario, parallelism, client and policy: median and worst over the seeds."""
    groups: dict[tuple[str, int, str, str], list[Judged]] = {}
    for crawl in crawls:
        groups.setdefault((crawl.scenario, crawl.parallel, crawl.client, crawl.policy), []).append(crawl)
    return _table([_summary(group) for group in groups.values()])


def _row(crawl: Judged) -> dict[str, str]:
    over = ">" if crawl.cut else ""
    ratio = f"{over}{crawl.ratio:.2f}"
    return {
        "scenario": crawl.scenario,
        "P": str(crawl.parallel),
        "client": crawl.client,
        "settings": crawl.policy,
        "asked": str(crawl.asked),
        "got": str(crawl.got),
        "failed": str(crawl.failed),
        "longest run of failures": str(crawl.streak),
        "makespan s": f"{over}{crawl.makespan:.1f}",
        # Quickly giving up is no merit.
        "÷ oracle": f"({ratio})" if crawl.got < crawl.can else ratio,
        "last page ÷ oracle": f"{crawl.page_ratio:.2f}",
        "÷ unlimited": _number(crawl.to_direct),
        "page times later": _number(crawl.later_pages, 1),
        "origin got": str(crawl.received),
        "in vain": str(crawl.in_vain),
        "abandoned": str(crawl.abandoned),
        "errors": str(crawl.errored),
        "while saturated": str(crawl.saturated),
        "most in flight": str(crawl.most_in_flight),
        "longest wait s": f"{crawl.longest_wait:.1f}",
        "misses": ", ".join(missed(crawl)),
        "gap s, least/median": f"{_number(crawl.least_gap)}/{_number(crawl.median_gap)}",
        "also": crawl.also,
    }


def _summary(group: Sequence[Judged]) -> dict[str, str]:
    first, failed = group[0], [crawl.seed for crawl in group if crawl.is_failure]
    return {
        "scenario": first.scenario,
        "P": str(first.parallel),
        "client": first.client,
        "settings": first.policy,
        "seeds": str(len(group)),
        "seeds that fail": " ".join([str(len(failed)), *([_listed(failed)] if failed else [])]),
        "got, least of": f"{min(crawl.got for crawl in group)}/{max(crawl.can for crawl in group)}",
        "misses": _misses(group),
        "÷ oracle": _over(group, lambda crawl: crawl.ratio),
        "last page ÷ oracle": _over(group, lambda crawl: crawl.page_ratio),
        "÷ unlimited": _over(group, lambda crawl: crawl.to_direct),
        "page times later": _over(group, lambda crawl: crawl.later_pages, places=1),
        "healthy hosts ÷ unlimited": _over(group, lambda crawl: crawl.healthy_to_direct),
        "in vain %": _over(group, lambda crawl: 100 * crawl.in_vain_share, places=1),
        "run of failures": _over(group, lambda crawl: crawl.streak, places=0),
        "most in flight": _over(group, lambda crawl: crawl.most_in_flight, places=0),
        "longest wait s": _over(group, lambda crawl: crawl.longest_wait, places=1),
    }


def _listed(seeds: Sequence[int]) -> str:
    """A few of them, to look at."""
    return f"({', '.join(map(str, seeds[:3]))}{', …' if len(seeds) > 3 else ''})"


def _misses(group: Sequence[Judged]) -> str:
    """What was promised and not kept, and over how many seeds."""
    counts = Counter(word for crawl in group for word in missed(crawl))
    return ", ".join(f"{word} {count}" for word, count in counts.items())


def _over(group: Sequence[Judged], figure: Callable[[Judged], float | None], places: int = 2) -> str:
    """Median and worst."""
    figures = [found for crawl in group if (found := figure(crawl)) is not None]
    if not figures:
        return ""
    return f"{median(figures):.{places}f}/{max(figures):.{places}f}"


def _number(value: float | None, places: int = 2) -> str:
    return "" if value is None else f"{value:.{places}f}"


def _table(rows: Sequence[dict[str, str]]) -> str:
    """Columns in which no row has anything are left out."""
    if not rows:
        return ""
    heads = [head for head in rows[0] if any(row[head] for row in rows)]
    cells = [heads, *([row[head] for head in heads] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(heads))]
    cells.insert(1, ["-" * width for width in widths])
    lines = (" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(f"| {line} |" for line in lines)
