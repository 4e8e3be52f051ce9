"""What the stored results say: the README's table, all tables, and the chart of the incident. Nothing is run here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.crawls import chart, results
from tests.crawls.contenders import NOTES
from tests.crawls.proxies import ROOT
from tests.crawls.records import read_lines, read_outcomes
from tests.crawls.results import STORED, Result
from tests.crawls.tables import all_columns, in_short, overview
from tests.simulation.oracle import oracle
from tests.simulation.origins import Arrival
from tests.simulation.scenarios import SCENARIOS, SEED

README = ROOT / "README.md"
BEGIN, END = "<!-- crawls -->\n", "<!-- /crawls -->"

INCIDENT = "shop-pool"

_IN_THE_README: Mapping[str, str] = MappingProxyType(
    {
        "plain": "a plain crawler",
        "plain-patient": "the same, patient",
        "scrapy": "Scrapy, AutoThrottle",
        "crawlee": "Crawlee",
        "urllib3": "urllib3 Retry",
        "envoy": "Envoy, retries",
        "squid": "Squid",
        "mitmdump": "mitmdump",
        "paceproxy-plain": "**Paceproxy**",
        "paceproxy-plain-patient": "**Paceproxy**, patient",
    }
)


def stored(folder: Path = STORED) -> list[Result]:
    """All results that are kept, in the order of the tables."""
    found = [result for path in sorted(folder.glob("*.jsonl")) for result in results.read(path)]
    places = {name: place for place, name in enumerate(NOTES)}
    return sorted(
        found, key=lambda result: (result.key[0], result.key[2:], places.get(result.conditions.contender, len(places)))
    )


def write() -> None:
    """Write everything anew from the stored results."""
    found = stored()
    README.write_text(with_table(README.read_text("utf-8"), readme_table(found)), "utf-8")
    (STORED / "tables.md").write_text(all_tables(found), "utf-8")
    (STORED / "incident.svg").write_text(incident(STORED / "kept"), "utf-8")


def with_table(readme: str, table: str) -> str:
    """The README with this between its markers."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no {BEGIN.strip()} … {END}")
    return f"{before}{begin}{table}\n{end}{after}"


def readme_table(found: Sequence[Result]) -> str:
    """Contenders by scenarios, in short, and how it was measured."""
    usual = [result for result in found if _is_usual(result) and result.conditions.contender in _IN_THE_README]
    return f"{overview(usual, _IN_THE_README, in_short)}\n\n{_measured(usual)}"


def all_tables(found: Sequence[Result]) -> str:
    """Every result with every column, by scenario."""
    usual = [result for result in found if _is_usual(result)]
    names = {name: f"`{name}`" for name in NOTES}
    parts = [
        "# Crawls: every result",
        "Written by `python -m tests.crawls report`; `../README.md` says what the columns mean.",
        "Pages got of those that could be had, makespan ÷ oracle, and requests that the origin got in vain:",
        overview(usual, names, in_short),
        _measured(found),
    ]
    conditions = dict.fromkeys((r.conditions.scenario, r.conditions.changes, r.conditions.seed) for r in found)
    for key in conditions:
        rows = [r for r in found if (r.conditions.scenario, r.conditions.changes, r.conditions.seed) == key]
        parts += [_section(rows), all_columns(rows)]
    parts += ["## What the drivers are set to", "\n".join(f"- `{name}`: {note}" for name, note in NOTES.items())]
    return "\n\n".join(parts) + "\n"


def incident(kept: Path) -> str:
    """The chart of the incident, from what the runs of a plain crawler left there with `--keep`."""

    def course(contender: str) -> chart.Course:
        folder = kept / f"{INCIDENT}--{contender}"
        if not folder.is_dir():
            raise ValueError(f"{folder} is not there; run the crawls with `-s {INCIDENT} --keep {kept}`")
        arrivals = [Arrival(**line) for line in read_lines(folder / "shop.jsonl")]
        return chart.course(read_outcomes(folder / "crawl.jsonl"), arrivals)

    return chart.draw(SCENARIOS[INCIDENT], course("plain"), course("paceproxy-plain"))


def _is_usual(result: Result) -> bool:
    return not result.conditions.changes and not result.conditions.options and result.conditions.seed == SEED


def _section(rows: Sequence[Result]) -> str:
    was = rows[0].conditions
    site, best = was.site(), oracle(was.site(), was.seed)
    title = " ".join([was.scenario, *was.changes, *([f"seed={was.seed}"] if was.seed != SEED else [])])
    return (
        f"## {title}\n\n{site.about}. {site.pages * site.hosts} pages, P = {site.parallel}, client time-out "
        f"{site.timeout:g} s. Oracle: {best.makespan:.1f} s, {best.pages} pages ({best.how})."
    )


def _measured(found: Sequence[Result]) -> str:
    """When, with what, and on how busy a machine."""
    dates = sorted({result.conditions.date for result in found})
    tools = dict.fromkeys(result.conditions.tool for result in found if result.conditions.tool)
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    load = max(result.conditions.load for result in found)
    return f"Measured {when}, load average up to {load}, one run each: {', '.join(tools)}."
