"""The command, or mitmdump, in a process of its own, forked from one that has imported all it needs.

Importing mitmproxy takes a second of CPU, and there are more than a hundred starts in a run of the tests. What is
forked has imported and done nothing else: the command itself begins in the new process, with its own arguments,
environment and output. What the interpreter reads at its own start, such as `PYTHONDEVMODE`, has no effect.

A stem process forks, for each command, a parent that waits for it: it tells the pid, and the exit code in the end.
"""

import atexit
import fcntl
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NoReturn, TextIO

_LONGEST_MESSAGE_BYTES = 1 << 17
PACEPROXY = "proxy_addon.cli:main"
MITMDUMP = "mitmproxy.tools.main:mitmdump"
_IMPORTED = (
    "mitmproxy.tools.dump",
    "mitmproxy.tools.main",
    "proxy_addon.runner",
    "proxy_addon.store.memory",
    "proxy_addon.store.sqlite",
    # What the commands import besides.
    "proxy_addon.bottom_line",
    "proxy_addon.commands.doctor",
    "proxy_addon.commands.run",
    "proxy_addon.commands.status",
    "proxy_addon.crawl_summary",
)


class ForkedProcess:
    """A program with these arguments, environment and standard descriptors; else like a `subprocess.Popen` of it.

    With `own_terminal` it begins a session on the terminal that is its standard input.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        own_terminal: bool = False,
        program: str = PACEPROXY,
    ) -> None:
        self._told, told_end = os.pipe()
        message = json.dumps([program, list(arguments), dict(environment), own_terminal]).encode()
        try:
            socket.send_fds(_stem(), [message], [stdin, stdout, stderr, told_end])
        finally:
            os.close(told_end)
        self.pid = self._told_number()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = self._told_number()
            os.close(self._told)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; `subprocess.TimeoutExpired` where that does not come."""
        if self.returncode is None:
            select.select([self._told], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("forked", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _told_number(self) -> int:
        """Each number is written at once, and the next one only at the end of the command."""
        told = os.read(self._told, 100)
        assert told, "the stem process is gone"
        return int(told)


class ForkedCommand(ForkedProcess):
    """`paceproxy` with nothing to read, and a pipe for all that it writes."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        output, output_end = os.pipe()
        with open(os.devnull) as nothing:
            try:
                super().__init__(arguments, environment, stdin=nothing.fileno(), stdout=output_end, stderr=output_end)
            finally:
                os.close(output_end)
        self.stdout: TextIO = open(output, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115


def run_forked(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    given: str = "",
    timeout: float,
    program: str = PACEPROXY,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, like `subprocess.run`, with standard input, output and error apart."""
    # Files and not pipes: they take any amount while nobody reads.
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
        files[0].write(given)
        files[0].seek(0)
        stdin, stdout, stderr = (file.fileno() for file in files)
        process = ForkedProcess(arguments, environment, stdin=stdin, stdout=stdout, stderr=stderr, program=program)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        for written in files[1:]:
            written.seek(0)
        return subprocess.CompletedProcess([program, *arguments], code, files[1].read(), files[2].read())


@functools.cache
def _stem() -> socket.socket:
    """The connection to the stem process, which is started when it is first asked for."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-u", "-m", __name__, str(theirs.fileno())]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


def _begin_new_processes(asked: socket.socket) -> tuple[str, list[str]] | None:
    """Fork for as long as somebody asks. Returns None in the stem process, in each new one program and arguments."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the parents
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, _LONGEST_MESSAGE_BYTES, 4)
        if not message:
            return None
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            *standard, told = descriptors
            if (child := os.fork()) == 0:
                os.close(told)
                break
            _tell_of(child, standard, told)
        for descriptor in descriptors:
            os.close(descriptor)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    program, arguments, environment, own_terminal = json.loads(message)
    if own_terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    return program, arguments


def _tell_of(child: int, standard: Sequence[int], told: int) -> NoReturn:
    """Be the parent of a command."""
    try:
        for descriptor in standard:
            os.close(descriptor)
        os.write(told, b"%d" % child)
        _, status = os.waitpid(child, 0)
        os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
    finally:
        os._exit(0)


if __name__ == "__main__":
    for name in _IMPORTED:
        importlib.import_module(name)
    # Whoever looks through what was imported copies it, page by page: in a fork nobody needs to.
    gc.collect()
    gc.freeze()
    new = _begin_new_processes(socket.socket(fileno=int(sys.argv[1])))
    if new is not None:
        module, _, function = new[0].partition(":")
        sys.argv = [function, *new[1]]
        try:
            code = getattr(importlib.import_module(module), function)()
        except SystemExit as end:
            code = end.code
        gc.collect()  # so that what was never awaited is told of, as at any exit
        gc.freeze()
        # As multiprocessing ends a fork. To take apart all that was imported would cost more than the command itself.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
