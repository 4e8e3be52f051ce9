"""A file that lines are appended to: what happens to it meanwhile, and what is left of a line that has no room."""

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy_addon.log_file import LogFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file can grow beyond this size: as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_only_its_owner_can_read_a_file_that_is_made(path: Path) -> None:
    file = LogFile(str(path))
    file.follow()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.close()
    file.close()


def test_the_mode_and_the_lines_of_a_file_that_exists_stay(path: Path) -> None:
    path.write_bytes(b"old\n")
    path.chmod(0o640)
    file = LogFile(str(path))
    file.follow()
    assert file.append(b"new\n") == (4, None)
    file.close()
    assert path.read_bytes() == b"old\nnew\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_that_was_moved_or_deleted_is_opened_anew(path: Path) -> None:
    file = LogFile(str(path))
    file.follow()
    file.append(b"1\n")
    path.rename(path.with_suffix(".1"))
    file.append(b"2\n")
    file.follow()
    file.append(b"3\n")
    file.follow()
    path.unlink()
    file.follow()
    file.append(b"4\n")
    # As logrotate's `create` does.
    path.rename(path.with_suffix(".2"))
    path.touch()
    file.follow()
    file.append(b"5\n")
    file.close()
    assert path.with_suffix(".1").read_bytes() == b"1\n2\n"
    assert path.with_suffix(".2").read_bytes() == b"4\n"
    assert path.read_bytes() == b"5\n"


def test_a_folder_that_vanished_is_an_error_until_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    file = LogFile(str(folder / "access.log"))
    file.follow()
    (folder / "access.log").unlink()
    folder.rmdir()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            file.follow()
    folder.mkdir()
    file.follow()
    assert file.append(b"1\n") == (2, None)
    file.close()


def test_a_line_that_finds_no_room_leaves_nothing_of_itself(path: Path) -> None:
    file = LogFile(str(path))
    file.follow()
    with room_for(10):
        done, error = file.append(b"12345\n78901\n34567\n")
        assert (done, error is not None and error.strerror) == (6, "File too large")
        assert path.read_bytes() == b"12345\n"
        done, error = file.append(b"78901\n")
        assert (done, error is not None) == (0, True)
    assert file.append(b"78901\n34567\n") == (12, None)
    file.close()
    assert path.read_bytes() == b"12345\n78901\n34567\n"


def test_what_another_process_has_written_behind_a_torn_line_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile(str(path))
    file.follow()
    write = os.write

    def write_and_be_overtaken(fd: int, data: bytes) -> int:
        if len(data) == 12:
            written = write(fd, data[:9])
            with path.open("ab") as others:
                others.write(b"other\n")
            return written
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write_and_be_overtaken)
    done, error = file.append(b"12345\n78901\n")
    monkeypatch.undo()
    # The second line is given up, so that the next begins where a line begins.
    assert (done, error is not None) == (12, True)
    file.append(b"next\n")
    file.close()
    assert path.read_bytes() == b"12345\n789other\nnext\n"


def test_a_pipe_that_nobody_reads_is_an_error_and_no_hang(path: Path) -> None:
    os.mkfifo(path)
    file = LogFile(str(path))
    with pytest.raises(OSError, match="No such device or address"):
        file.follow()


def test_a_pipe_gets_whole_lines_at_once_and_may_be_full(path: Path) -> None:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = LogFile(str(path))
    file.follow()
    lines = b"".join(b"%06d\n" % number for number in range(20_000))
    done, error = file.append(lines)
    assert isinstance(error, BlockingIOError)
    assert 0 < done < len(lines)
    assert lines[done - 1 : done] == b"\n"
    got = b""
    while done < len(lines):
        got += os.read(reader, 1 << 20)
        more, error = file.append(lines[done:])
        done += more
    got += os.read(reader, 1 << 20)
    file.close()
    os.close(reader)
    assert (error, got) == (None, lines)


def test_a_line_that_a_pipe_takes_in_part_is_finished_before_the_next(path: Path) -> None:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = LogFile(str(path))
    file.follow()
    long = b"x" * 100_000 + b"\n"
    done, error = file.append(long)
    assert (done, isinstance(error, BlockingIOError)) == (len(long), True)
    assert file.append(b"1\n")[0] == 0
    got = os.read(reader, 1 << 20)
    assert 0 < len(got) < len(long)
    assert file.append(b"1\n") == (2, None)
    got += os.read(reader, 1 << 20)
    assert got == long + b"1\n"
    # Who reads it from here on gets no end of a line that somebody else got the beginning of.
    file.append(long)
    file.close()
    os.close(reader)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file.follow()
    file.append(b"2\n")
    file.close()
    assert os.read(reader, 1 << 20) == b"2\n"
    os.close(reader)


def test_standard_output_is_never_moved(capfd: pytest.CaptureFixture[str]) -> None:
    file = LogFile("-")
    file.follow()
    file.append(b"1\n")
    file.follow()
    file.append(b"2\n")
    file.close()
    assert capfd.readouterr().out == "1\n2\n"
