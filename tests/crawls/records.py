"""What a crawl writes down of each page, and files of JSON lines.

Times are simulated seconds. What to make of the records is in `judge.py`. The standard library only: the processes of
other crawlers import this, too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the user saw of one page, after all that the crawler tried by itself."""

    url: str
    t0: float
    """When it was first sent."""
    t1: float
    """When the user knew."""
    status: int | None
    """None: no response came."""
    error: str | None
    """The name of the exception instead."""
    tries: int | None
    """As the crawler counts them; None: it does not say."""

    @property
    def got(self) -> bool:
        return self.status == 200


def write_lines(path: Path, records: "Iterable[DataclassInstance | Mapping[str, Any]]") -> None:
    """One record a line, in this order."""
    lines = (record if isinstance(record, Mapping) else asdict(record) for record in records)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file, as they were written."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def read_outcomes(path: Path) -> list[Outcome]:
    return [Outcome(**line) for line in read_lines(path)]
