"""The access log: one line for each request that has ended, never for an attempt. It listens to the engine's events.

What a line says is in `access_line.py`, how it gets to the file in `log_writer.py`. No decision belongs here.
"""

import errno
from collections.abc import Callable

from proxy_addon.access_line import access_line
from proxy_addon.log_writer import LogWriter
from proxy_addon.model import Event, RequestEnded
from proxy_addon.os_errors import os_error_text
from proxy_addon.setting_places import OFF
from proxy_addon.settings import SettingError, Settings


class AccessLog:
    """A listener; all of it on the event loop's thread."""

    def __init__(self, settings: Settings) -> None:
        self._path, self._query = settings.access_log, settings.access_log_query
        self._writer = None if self._path == OFF else LogWriter(self._path)

    @property
    def listeners(self) -> tuple[Callable[[Event], None], ...]:
        """Who is to be told of events: nobody where the log is off."""
        return () if self._writer is None else (self._observe,)

    @property
    def lost_lines(self) -> int:
        """How many there was no room for, since the start."""
        return 0 if self._writer is None else self._writer.lost

    def start(self) -> None:
        """Open it. Raises `SettingError`."""
        if self._writer is None:
            return
        try:
            self._writer.start()
        except OSError as error:
            problem = "nobody reads that pipe" if error.errno == errno.ENXIO else os_error_text(error)
            raise SettingError(
                "access_log",
                f"cannot be written: {problem}",
                value=self._path,
                remedy="give the path of a file that this user may write, - for standard output, or off",
            ) from error

    def reopen(self) -> None:
        """Go on in a new file, where the old one was moved away. That is noticed anyway; this is sooner."""
        if self._writer is not None:
            self._writer.look()

    async def stop(self) -> None:
        """Write what there is. Harmless when it was not started."""
        if self._writer is not None:
            await self._writer.stop()

    def _observe(self, event: Event) -> None:
        if self._writer is not None and isinstance(event, RequestEnded):
            self._writer.put(access_line(event, query=self._query).encode("ascii"))
