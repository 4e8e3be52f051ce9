"""A command as our child on the same terminal: how it is started, what it is told of signals, and how it ended.

It stays in our process group, so that Ctrl-C, Ctrl-Z, `fg`, pipes and reading from the terminal are as without us.
What the terminal sends to the whole group it therefore has already; everything else is passed on.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""What a shell's exit code is for a command that it cannot start."""

_SIGNALS = frozenset(
    {
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGTSTP,
        signal.SIGCONT,
        signal.SIGWINCH,
    }
)
_OF_THE_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH})
"""What its keys, and a change of its size, send to all of the group in the foreground."""
_SI_KERNEL = 0x80
"""Linux, siginfo(7): it came from the kernel, and so from the terminal, and not by kill(2)."""


@dataclass(frozen=True, slots=True)
class Received:
    """A signal to us."""

    number: int
    from_terminal: bool
    """All of our process group has it."""


class NotStartedError(Exception):
    """The command cannot be started. `str()` is one line; `exit_code` is what a shell's would be."""

    def __init__(self, name: str, error: OSError) -> None:
        reason = "not found" if isinstance(error, FileNotFoundError) else (error.strerror or str(error))
        super().__init__(f"{name}: {reason}")
        self.exit_code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


class SignalWatch:
    """Signals to this process, told of on the event loop with whether the terminal sent them.

    Between `block` and its end none of them has any other effect, in no thread that is started meanwhile.
    """

    def __init__(self) -> None:
        self._before: set[int] = set()
        self._ended = False

    @contextmanager
    def block(self) -> Iterator[None]:
        """Hold them all back; at the end they are as they were."""
        self._before = set(signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS))
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    @property
    def mask(self) -> set[int]:
        """What was blocked before: what a child should have blocked."""
        return self._before

    @contextmanager
    def told_to(self, receive: Callable[[Received], None]) -> Iterator[None]:
        """Tell `receive` of each signal, those that have come since `block` included."""
        loop = asyncio.get_running_loop()

        def watch() -> None:
            while True:
                received = _next_signal()
                if self._ended:
                    return
                loop.call_soon_threadsafe(receive, received)

        thread = threading.Thread(target=watch, name="signals", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended = True
            assert thread.ident is not None
            # To this thread alone, and without any effect but to wake it.
            signal.pthread_kill(thread.ident, signal.SIGCONT)
            thread.join()


def _next_signal() -> Received:
    """Wait for one of those that are blocked."""
    if not hasattr(signal, "sigwaitinfo"):
        # macOS does not say who sent it: when we are in the foreground, most probably a key.
        number = int(signal.sigwait(_SIGNALS))
        return Received(number, number in _OF_THE_TERMINAL and in_foreground(2))
    info = signal.sigwaitinfo(_SIGNALS)
    return Received(info.si_signo, info.si_signo in _OF_THE_TERMINAL and info.si_code == _SI_KERNEL)


def in_foreground(terminal: int) -> bool:
    """Whether this descriptor is the terminal to whose foreground we belong."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False


def stop_as_told() -> None:
    """Stop, as if SIGTSTP were not blocked; returns when we are continued."""
    # To this thread alone, or the one that waits for signals would have it. A process group without a shell to
    # continue it is not stopped by it, as it should be.
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})


class Child:
    """A command that has been started."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], *, mask: set[int]) -> None:
        """Raises `NotStartedError`. It begins with these signals blocked, and with none ignored by us."""
        # Python ignores these two; a command expects them to end it. What else is ignored (nohup) stays so.
        ours = [signal.SIGPIPE, signal.SIGXFSZ]
        try:
            self._pid = os.posix_spawnp(command[0], list(command), dict(environ), setsigmask=mask, setsigdef=ours)
        except OSError as error:
            raise NotStartedError(command[0], error) from error
        self.ended = False

    def tell(self, received: Received) -> None:
        """Pass a signal on, unless it has it already or has ended."""
        if self.ended:
            return
        with suppress(ProcessLookupError):
            if received.from_terminal and os.getpgid(self._pid) == os.getpgrp():
                return
            os.kill(self._pid, received.number)

    async def wait(self) -> int:
        """Its exit code, as a shell reports it: 128 and the signal's number where one has ended it."""
        code = os.waitstatus_to_exitcode(await asyncio.to_thread(self._reap))
        return 128 - code if code < 0 else code

    def _reap(self) -> int:
        # As the first process of a container we are the parent of all whose parent has ended, and bury them, too.
        whom = -1 if os.getpid() == 1 else self._pid
        while True:
            ended, status = os.waitpid(whom, 0)
            if ended == self._pid:
                break
        # At once: the number may soon be another process's.
        self.ended = True
        return status
