"""Results and the files that keep them: one line for each run, the last one for the same conditions.

A file is sorted, so that a run that is repeated changes its own line and no other.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.crawls.judge import Verdict
from tests.crawls.records import read_lines, write_lines
from tests.simulation.scenarios import ALL, Scenario, override

STORED = Path(__file__).with_name("results")
"""The results that the README tells of."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What was run, and where."""

    scenario: str
    contender: str
    changes: tuple[str, ...]
    """Of the scenario, as `NAME=VALUE`, in order of name."""
    scale: float
    """Real seconds per simulated one."""
    seed: int
    options: tuple[str, ...] = ()
    """Settings of Paceproxy that were changed, as `NAME=VALUE`."""
    load: float = 0.0
    """The machine's load average over the last minute, at the end of the crawl."""
    tool: str = ""
    """Name and version of what was judged."""
    date: str = ""

    def site(self) -> Scenario:
        """The scenario as it was run."""
        return override(ALL[self.scenario], self.changes)


@dataclass(frozen=True, slots=True)
class Probe:
    """Pages asked for directly, one by one, a while after the crawl: is the host well again?"""

    asked: int
    got: int
    page_s: float | None
    """The mean time of those that came, in simulated seconds."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one run."""

    conditions: Conditions
    verdict: Verdict
    probe: Probe | None = None

    @property
    def key(self) -> tuple[int, str, tuple[str, ...], tuple[str, ...], int]:
        """What makes it another run than others, in the order of the tables."""
        was = self.conditions
        return list(ALL).index(was.scenario), was.contender, was.changes, was.options, was.seed


def as_line(result: Result) -> dict[str, Any]:
    """A result as JSON can say it."""
    return {
        **asdict(result.conditions),
        "verdict": asdict(result.verdict),
        "probe": asdict(result.probe) if result.probe else None,
    }


def from_line(line: dict[str, Any]) -> Result:
    """The result that `as_line` made a line of."""
    conditions = {name: value for name, value in line.items() if name not in ("verdict", "probe")}
    for name in ("changes", "options"):
        conditions[name] = tuple(conditions[name])
    verdict = line["verdict"] | {"errors": tuple(line["verdict"]["errors"])}
    return Result(Conditions(**conditions), Verdict(**verdict), Probe(**line["probe"]) if line["probe"] else None)


def read(path: Path) -> list[Result]:
    """The results of a file; none where there is no file."""
    return [from_line(line) for line in read_lines(path)] if path.exists() else []


def keep(path: Path, results: Iterable[Result]) -> None:
    """Add results to a file; each takes the place of the one that was got under the same conditions."""
    known = {result.key: result for result in [*read(path), *results]}
    write_lines(path, [as_line(known[key]) for key in sorted(known)])
