"""Lines are written by themselves, soon and whole; a file that takes none holds nobody, and its troubles are told."""

import asyncio
import os
from pathlib import Path

import pytest

from proxy_addon import log_writer
from proxy_addon.log_writer import LogWriter
from tests.support.waiting import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


def test_a_line_is_written_without_another_and_the_last_ones_at_the_end(path: Path) -> None:
    writer = LogWriter(str(path))
    writer.start()
    writer.put(b"first\n")
    until(lambda: path.read_bytes() == b"first\n", "the line was written")
    writer.put(b"last\n")
    asyncio.run(writer.stop())
    assert path.read_bytes() == b"first\nlast\n"
    asyncio.run(writer.stop())


def test_one_that_was_not_started_can_be_stopped(path: Path) -> None:
    asyncio.run(LogWriter(str(path)).stop())
    assert not path.exists()


def test_lines_of_several_writers_stay_whole(path: Path) -> None:
    writers = [LogWriter(str(path)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for number in range(5000):
        for name, writer in zip("abc", writers, strict=True):
            writer.put(f"{name}{number:04}-{name * 90}\n".encode())
    for writer in writers:
        asyncio.run(writer.stop())
    lines = path.read_text().splitlines()
    for name in "abc":
        own = [line for line in lines if line.startswith(name)]
        assert own == [f"{name}{number:04}-{name * 90}" for number in range(5000)]
    assert len(lines) == 15_000


def test_a_file_that_cannot_be_written_is_told_once_and_gets_its_lines_later(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.symlink_to("/dev/full")
    writer = LogWriter(str(path), held_bytes=20)
    writer.start()
    writer.put(b"line 1\n")
    until(lambda: len(caplog.messages) == 1, "the trouble was told")
    writer.put(b"line 2\n")
    writer.put(b"line 3 is too much\n")
    writer.put(b"line 4 is too much\n")
    assert caplog.messages == [
        f"{path} cannot be written: No space left on device. "
        "Traffic goes on, and lines wait for it as far as there is room.",
        f"{path} takes no more lines, or too slowly: lines are lost.",
    ]
    path.unlink()
    until(lambda: len(caplog.messages) == 3, "its end was told")
    assert caplog.messages[2] == f"{path} is written again; 2 lines were lost."
    assert (path.read_bytes(), writer.lost) == (b"line 1\nline 2\n", 2)
    writer.put(b"line 5\n")
    asyncio.run(writer.stop())
    assert path.read_bytes() == b"line 1\nline 2\nline 5\n"
    assert len(caplog.messages) == 3


def test_a_pipe_that_is_read_slowly_is_no_trouble_while_there_is_room(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = LogWriter(str(path))
    writer.start()
    lines = [b"%099d\n" % number for number in range(2000)]
    for line in lines:
        writer.put(line)
    got = b""

    def read() -> bool:
        nonlocal got
        try:
            got += os.read(reader, 50_000)
        except BlockingIOError:
            return False
        return len(got) == 200_000

    until(read, "all lines came")
    asyncio.run(writer.stop())
    os.close(reader)
    assert (got, caplog.messages) == (b"".join(lines), [])


def test_what_could_not_be_written_at_the_end_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.symlink_to("/dev/full")
    writer = LogWriter(str(path))
    writer.start()
    writer.put(b"1\n")
    writer.put(b"2\n")
    asyncio.run(writer.stop())
    assert caplog.messages[-1] == f"{path} did not take the last 2 lines: they are lost."


def test_a_file_that_was_moved_is_let_go_without_a_line(path: Path) -> None:
    writer = LogWriter(str(path))
    writer.start()
    path.rename(path.with_suffix(".1"))
    until(path.exists, "it was opened anew")
    asyncio.run(writer.stop())


def test_it_looks_at_once_when_it_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "FLUSH_S", 3600.0)
    writer = LogWriter(str(path))
    writer.start()
    path.rename(path.with_suffix(".1"))
    writer.look()
    until(path.exists, "it was opened anew")
    writer.put(b"1\n")
    asyncio.run(writer.stop())
    assert path.read_bytes() == b"1\n"


def test_much_is_written_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "FLUSH_S", 3600.0)
    writer = LogWriter(str(path))
    writer.start()
    writer.put(b"x" * 40_000 + b"\n")
    writer.put(b"y" * 40_000 + b"\n")
    until(lambda: path.stat().st_size == 80_002, "a batch was written")
    asyncio.run(writer.stop())
