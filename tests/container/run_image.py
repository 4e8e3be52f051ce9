"""Runs a command in the unpacked image as a container engine would, where there is none. Needs root.

    python tests/container/run_image.py ROOT DATA [--trust FOLDER] [--net] [-e NAME=VALUE]... -- COMMAND ARGUMENT...

The command is process 1, runs as 10001, can gain no rights, and sees ROOT read-only; it can write to DATA, which it
sees as /data, and to FOLDER, which it sees as /trust. Its environment is what -e says. --net: it has a network of
its own. SIGTERM goes on to it; its exit code is ours, 128 and the number if a signal ended it.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

UID = 10001
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIGTERM_WAITS = {signal.SIGTERM}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--trust", type=Path)
    parser.add_argument("--net", action="store_true")
    parser.add_argument("-e", dest="environment", action="append", default=[])
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    _lay_out(given.root, {"data": given.data, "trust": given.trust, "dev": Path("/dev")})
    if given.net:
        os.unshare(os.CLONE_NEWNET)
        _run("ip", "link", "set", "lo", "up")
    os.unshare(os.CLONE_NEWPID)
    # Until there is somebody to send it on to.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGTERM_WAITS)
    child = os.fork()
    if child == 0:
        try:
            _become(given.root, dict(item.split("=", 1) for item in given.environment), given.command)
        finally:
            os._exit(126)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGTERM_WAITS)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _lay_out(root: Path, folders: dict[str, Path | None]) -> None:
    os.unshare(os.CLONE_NEWNS)
    _run("mount", "--make-rprivate", "/")
    for name in (*folders, "proc"):
        (root / name).mkdir(exist_ok=True)
    for name in ("hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    _run("mount", "--bind", str(root), str(root))
    _run("mount", "-o", "remount,bind,ro", str(root))
    for name, folder in folders.items():
        if folder is not None:
            _run("mount", "--bind", str(folder), str(root / name))
    for name in ("hosts", "resolv.conf"):
        _run("mount", "--bind", f"/etc/{name}", str(root / "etc" / name))


def _become(root: Path, environment: dict[str, str], command: list[str]) -> None:
    """Process 1. Does not return."""
    _run("mount", "-t", "proc", "proc", str(root / "proc"))
    libc = ctypes.CDLL(None, use_errno=True)
    os.chroot(root)
    os.chdir("/data")
    os.setgroups([])
    os.setgid(UID)
    os.setuid(UID)
    for option, value in ((_PR_SET_PDEATHSIG, signal.SIGKILL), (_PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGTERM_WAITS)
    os.execvpe(command[0], command, environment)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=60)


if __name__ == "__main__":
    sys.exit(main())
