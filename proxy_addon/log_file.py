"""A file that whole lines are appended to, perhaps by several processes, and that may be moved away any time.

Everything here may block, and belongs on a thread of its own (`log_writer.py`).
"""

import os
import select
import stat

STANDARD_OUTPUT = "-"


class LogFile:
    """A file, a pipe or a device; or standard output. Opened by the first `follow`."""

    def __init__(self, path: str) -> None:
        """`path` may be `STANDARD_OUTPUT`."""
        self.path = path
        self._fd: int | None = None
        self._is_regular = False
        self._rest = b""
        """Of a line that a pipe has taken in part."""

    def follow(self) -> None:
        """Open it where it is not open, or where its path has become that of another file, or of none. Raises OSError;
        then it is not open."""
        if self._fd is not None and self.path != STANDARD_OUTPUT and self._is_moved():
            self.close()
        if self._fd is None:
            self._fd = self._open()
            self._is_regular = stat.S_ISREG(os.fstat(self._fd).st_mode)

    def append(self, lines: bytes) -> tuple[int, OSError | None]:
        """Append whole lines. Returns how many bytes of them are settled: all of them, or whole lines, and the
        error that kept the others out."""
        assert self._fd is not None, "follow it first"
        done = 0
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._fd, self._rest) :]
            while done < len(lines):
                end = len(lines) if self._is_regular else _end_of_piece(lines, done)
                done += os.write(self._fd, lines[done:end])
        except OSError as error:
            return self._settle_torn_line(self._fd, lines, done), error
        return done, None

    def close(self) -> None:
        """Harmless when it is not open."""
        fd, self._fd, self._rest = self._fd, None, b""
        if fd is not None:
            os.close(fd)

    def _open(self) -> int:
        if self.path == STANDARD_OUTPUT:
            return os.dup(1)
        # Without O_NONBLOCK a pipe that nobody reads would keep us here. Whoever wants others to read the file makes
        # it before us: the mode of one that exists stays.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY
        return os.open(self.path, flags, 0o600)

    def _is_moved(self) -> bool:
        assert self._fd is not None
        try:
            there = os.stat(self.path)
        except OSError:
            return True  # What is wrong with the path, opening it tells.
        ours = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    def _settle_torn_line(self, fd: int, lines: bytes, done: int) -> int:
        """Where a line was taken in part, see to it that the next one begins where a line begins."""
        whole = lines.rfind(b"\n", 0, done) + 1
        if whole == done:
            return done
        end = lines.index(b"\n", done) + 1
        if not self._is_regular:
            self._rest = lines[done:end]
        # A full disk. What it has taken goes again, to be written whole once there is room; but where another
        # process has written behind it, the line is given up.
        elif os.fstat(fd).st_size == (size := os.lseek(fd, 0, os.SEEK_CUR)):
            os.ftruncate(fd, size - (done - whole))
            return whole
        return end


def _end_of_piece(lines: bytes, start: int) -> int:
    """The end of as many whole lines as a pipe takes at once, so that nobody else's get in between; or of one that is
    longer."""
    most = start + select.PIPE_BUF
    if len(lines) <= most:
        return len(lines)
    return lines.rfind(b"\n", start, most) + 1 or lines.index(b"\n", most) + 1
