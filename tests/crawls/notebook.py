"""Where a crawler notes what its user sees, in simulated seconds since the first page was sent."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.crawls.records import Outcome, write_lines


@dataclass(slots=True)
class Notebook:
    """The outcomes of one crawl. May be used by several threads."""

    scale: float
    """Real seconds per simulated one: every time constant of a crawler is multiplied by it."""
    proxy: str | None
    """The URL of the proxy to go through."""
    monotonic: Callable[[], float] = time.monotonic
    """Real seconds."""
    _zero: float | None = None
    _first: dict[str, float] = field(default_factory=dict)
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def begun(self) -> bool:
        return self._zero is not None

    def begin(self, url: str) -> None:
        """A page is sent. Only its first time counts."""
        with self._lock:
            self._first.setdefault(url, self._now())

    def end(
        self, url: str, status: int | None = None, *, error: BaseException | str | None = None, tries: int | None = None
    ) -> None:
        """The user knows what became of a page. Only the first time counts."""
        name = type(error).__name__ if isinstance(error, BaseException) else error
        with self._lock:
            now = self._now()
            first = self._first.get(url, now)
            self._outcomes.setdefault(url, Outcome(url, first, now, status, name, tries))

    def save(self, path: Path) -> None:
        """Write what is known so far; the file is whole or not there."""
        part = path.with_name(f"{path.name}.part")
        with self._lock:
            write_lines(part, self._outcomes.values())
            part.replace(path)

    def _now(self) -> float:
        if self._zero is None:
            self._zero = self.monotonic()
            return 0.0
        return (self.monotonic() - self._zero) / self.scale
