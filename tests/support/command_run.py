"""`paceproxy run` as a user starts it, without a terminal or on one: a process of its own."""

import os
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

from tests.support.forked import ForkedProcess, run_forked
from tests.support.proxy import REAL_COMMAND
from tests.support.waiting import until

_GUARD_S = 60.0
COLUMNS, ROWS = 100, 12
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Begin a session on the terminal that is standard input, and become the program."""


def environment(**further: str) -> dict[str, str]:
    """A user's environment without proxies and settings."""
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(Path.cwd()), **further}


def arguments(confdir: Path, command: Sequence[str], flags: Sequence[str] = ()) -> list[str]:
    """`paceproxy` is to `run` this, with rows in memory."""
    return ["--confdir", str(confdir), "--store", "memory:", *flags, "run", *command]


def from_the_start(confdir: Path, command: Sequence[str]) -> list[str]:
    """The same as a whole command line, for a process that is no fork."""
    return [*REAL_COMMAND, *arguments(confdir, command)]


def run(
    confdir: Path, command: Sequence[str], *flags: str, environ: Mapping[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, with standard input, output and error apart."""
    return run_forked(
        arguments(confdir, command, flags), {**environment(), **(environ or {})}, given=given, timeout=_GUARD_S
    )


class OnTerminal:
    """A program on a terminal of its own, whose screen can be looked at and whose keys can be pressed."""

    def __init__(self, program: Sequence[str], environ: Mapping[str, str]) -> None:
        self._program = program
        self._environ = environ
        self._screen = pyte.HistoryScreen(COLUMNS, ROWS, history=1000, ratio=0.01)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.written = b""
        """All that has come, before the terminal made a screen of it."""

    def __enter__(self) -> Self:
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, (ROWS, COLUMNS))
        try:
            self._process = self._start(slave)
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note("--- the screen ---\n" + "\n".join(self.everything()))
        self._process.kill()
        self._process.wait(_GUARD_S)
        # The end of the last who has the terminal open is the end of the reading.
        self._reader.join(_GUARD_S)
        os.close(self._master)

    def _start(self, terminal: int) -> subprocess.Popen[bytes] | ForkedProcess:
        return subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *self._program],
            env=self._environ,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, rows: int) -> None:
        with self._lock:
            self._screen.resize(rows, COLUMNS)
        termios.tcsetwinsize(self._master, (rows, COLUMNS))

    def shown(self) -> list[str]:
        """The lines on the screen, from the top."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def everything(self) -> list[str]:
        """What has scrolled past at the top, and what is on the screen."""
        with self._lock:
            past = ["".join(line[x].data for x in range(COLUMNS)).rstrip() for line in self._screen.history.top]
        return past + self.shown()

    def wait_for(self, text: str) -> None:
        until(lambda: any(text in line for line in self.everything()), f"the terminal showed {text!r}", _GUARD_S)

    def wait(self) -> int:
        """Wait for the program's end; its exit code, or minus the signal."""
        code = self._process.wait(_GUARD_S)
        self._reader.join(_GUARD_S)
        return code

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                # Linux: nobody has the terminal open any more.
                return
            if not data:
                return
            with self._lock:
                self.written += data
                self._stream.feed(data)


class CommandOnTerminal(OnTerminal):
    """`paceproxy` with these arguments, as a fork, on a terminal of its own."""

    def _start(self, terminal: int) -> ForkedProcess:
        return ForkedProcess(
            self._program, self._environ, stdin=terminal, stdout=terminal, stderr=terminal, own_terminal=True
        )
