"""Lines on their way to a file: held in memory, and written by a thread of their own.

Nothing that a disk does, or fails to do, holds whoever has a line to write; what cannot be written waits, and what is
too much then is lost and counted. Each trouble is told in the log once, and so is its end.
"""

import asyncio
import logging
import threading
from collections import deque

from proxy_addon.log_file import LogFile

logger = logging.getLogger(__name__)

FLUSH_S = 0.5
"""A line waits no longer for others to be written along with it. The file is looked after as often."""
BATCH_BYTES = 65536
"""So much is written at once, without waiting for more."""
HELD_BYTES = 8 * 1024 * 1024
"""So much waits at most: some 20,000 lines, a minute of a busy proxy."""
STOP_S = 3.0
"""How long the last lines may take at the end."""


class LogWriter:
    """Writes lines to one file. All but `_run` and what it calls belongs on the thread that made it."""

    def __init__(self, path: str, *, held_bytes: int = HELD_BYTES) -> None:
        self._file = LogFile(path)
        self._most_bytes = held_bytes
        self._lock = threading.Lock()
        """Over the lines, and what is counted of them."""
        self._lines: deque[bytes] = deque()
        self._held_bytes = 0
        self._lost = 0
        """Since the last time that all was well."""
        self._lost_ever = 0
        self._wake = threading.Event()
        self._ending = False
        self._trouble: OSError | None = None
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> int:
        """How many lines there was no room for, all together."""
        return self._lost_ever

    def start(self) -> None:
        """Open the file. Raises OSError."""
        self._file.follow()
        # A daemon: a file server that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Have this line written soon. Never waits for the file, never raises."""
        with self._lock:
            fits = self._held_bytes + len(line) <= self._most_bytes
            if fits:
                self._lines.append(line)
                self._held_bytes += len(line)
            else:
                self._lost += 1
                self._lost_ever += 1
            is_first_lost = not fits and self._lost == 1
            is_batch = self._held_bytes >= BATCH_BYTES
        if is_batch:
            self._wake.set()
        if is_first_lost:
            logger.warning("%s takes no more lines, or too slowly: lines are lost.", self._file.path)

    def look(self) -> None:
        """Look now whether the file was moved away, and go on in a new one then."""
        self._wake.set()

    async def stop(self) -> None:
        """Write what there is, and end. Harmless when it was not started."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._ending = True
        self._wake.set()
        await asyncio.to_thread(thread.join, STOP_S)
        with self._lock:
            left = len(self._lines)
        if left or thread.is_alive():
            logger.warning("%s did not take the last %d lines: they are lost.", self._file.path, left)

    def _run(self) -> None:
        ending = False
        while not ending:
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            ending = self._ending  # Looked at before the writing: what came before it is written.
            trouble = self._write()
            # A pipe that is full for the moment is no trouble as long as there is room for the lines.
            if not isinstance(trouble, BlockingIOError):
                self._tell(trouble)
        self._file.close()

    def _write(self) -> OSError | None:
        """All lines, as far as they go."""
        try:
            self._file.follow()
        except OSError as trouble:
            return trouble
        while batch := self._batch():
            done, error = self._file.append(batch)
            self._settle(done)
            if error is not None:
                return error
        return None

    def _batch(self) -> bytes:
        with self._lock:
            lines, size = [], 0
            for line in self._lines:
                size += len(line)
                lines.append(line)
                if size >= BATCH_BYTES:
                    break
        return b"".join(lines)

    def _settle(self, done: int) -> None:
        with self._lock:
            self._held_bytes -= done
            while done > 0:
                done -= len(self._lines.popleft())

    def _tell(self, trouble: OSError | None) -> None:
        if trouble is not None and self._trouble is None:
            logger.error(
                "%s cannot be written: %s. Traffic goes on, and lines wait for it as far as there is room.",
                self._file.path,
                trouble.strerror or trouble,
            )
        if trouble is None and (self._trouble is not None or self._lost):
            with self._lock:
                lost, self._lost = self._lost, 0
            logger.warning("%s is written again; %d lines were lost.", self._file.path, lost)
        self._trouble = trouble
