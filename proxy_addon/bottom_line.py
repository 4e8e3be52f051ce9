"""The last line of a terminal on which another program writes: kept out of its way by a scroll region, as apt does.

What is in the region scrolls past above; nothing that the other program writes line by line touches ours. The terminal
may become another's at any moment: we write only while we are in the foreground and the terminal reads by line, so a
program that has the whole screen, or a prompt, is left alone.
"""

import os
import termios
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text

from proxy_addon.child import in_foreground

_LEAST_ROWS = 5
"""A smaller terminal has no line to spare."""

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_MAKE_ROOM = "\x1bD\x1b[A"
"""A line down, and up again: on the last line all scrolls up by one. The column stays."""
_ERASE = "\x1b[2K"


class BottomLine:
    """Shows one line at the bottom of the terminal that is standard error, or does nothing where there is none.

    Nothing else in the process may write in the middle of one of our writes; each is a single one.
    """

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._console = Console(stderr=True, highlight=False)
        self._terminal: int | None = None
        self._size: os.terminal_size | None = None
        """Of the terminal as the region was made for it; None: there is none."""
        if os.isatty(descriptor) and not self._console.is_dumb_terminal:
            with suppress(OSError):
                # Opened anew, so that not waiting is a matter of ours alone: who stops the output with Ctrl-S must not
                # stop the proxy.
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._terminal = os.open(os.ttyname(descriptor), flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None

    def show(self, text: str) -> None:
        """Put this there, cut off at the edge; an empty text takes the line away."""
        if self._terminal is None or not in_foreground(self._terminal):
            return
        try:
            size = os.get_terminal_size(self._terminal)
        except OSError:
            return
        if not text or size.lines < _LEAST_ROWS or not self._reads_by_line():
            self.hide()
            return
        before = ""
        if self._size != size:
            before = f"{self._end_of_region()}{_MAKE_ROOM}{_SAVE}\x1b[1;{size.lines - 1}r{_RESTORE}"
        if self._write(f"{before}{_SAVE}\x1b[{size.lines};1H{_ERASE}{self._styled(text, size.columns)}{_RESTORE}"):
            self._size = size

    def hide(self) -> None:
        """Take the line away, and give the whole terminal back."""
        if self._size is not None and self._terminal is not None and in_foreground(self._terminal):
            self._write(self._end_of_region())
            self._size = None

    def _end_of_region(self) -> str:
        if self._size is None:
            return ""
        return f"{_SAVE}\x1b[r\x1b[{self._size.lines};1H{_ERASE}{_RESTORE}"

    def _styled(self, text: str, columns: int) -> str:
        # One less: in the last column some terminals begin a new line.
        line = Text(text, style="reverse", no_wrap=True, overflow="ellipsis", end="")
        line.truncate(columns - 1, overflow="ellipsis")
        with self._console.capture() as written:
            self._console.print(line, end="", width=columns)
        return written.get()

    def _reads_by_line(self) -> bool:
        assert self._terminal is not None
        try:
            return bool(termios.tcgetattr(self._terminal)[3] & termios.ICANON)
        except termios.error:
            # It is gone.
            return False

    def _write(self, text: str) -> bool:
        assert self._terminal is not None
        try:
            os.write(self._terminal, text.encode())
        except OSError:
            # Its output is stopped: the next time. Or it is gone, and there is none.
            return False
        return True
