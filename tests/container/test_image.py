"""The image itself: built as its recipe says, run as an engine would run it, and crawled through.

It takes minutes, and root, buildah and debootstrap; so it runs only when it is asked for:

    TEST_IMAGE=/var/tmp/paceproxy-image pytest tests/container -n 0

The folder keeps the base, which stands in for python:3.13-slim (`stand_in_base.sh` says what it is).
"""

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy_addon import __version__
from proxy_addon.client_environment import client_environment
from tests.support.behaviours import respond
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.waiting import until

ROOT = Path(__file__).parent.parent.parent
RUN = (sys.executable, str(Path(__file__).with_name("run_image.py")))
UID = 10001
_BUILD_S = 1200.0
_GUARD_S = 60.0

pytestmark = pytest.mark.skipif("TEST_IMAGE" not in os.environ, reason="it takes minutes: set TEST_IMAGE to a folder")


@dataclass(frozen=True, slots=True)
class Image:
    root: Path
    """Where it is unpacked."""
    environment: Mapping[str, str]
    command: Sequence[str]
    health: Sequence[str]


def run(*command: str, timeout_s: float = _BUILD_S) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-4000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def base() -> str:
    for program in ("buildah", "debootstrap"):
        assert shutil.which(program), f"{program} is not on PATH: install Debian's package {program}"
    return run(str(ROOT / "tests/container/stand_in_base.sh"), f"{os.environ['TEST_IMAGE']}/base").splitlines()[-1]


@contextmanager
def built(base: str, tag: str, *options: str) -> Iterator[Image]:
    name = f"localhost/paceproxy:{tag}"
    # Docker's format: OCI's has no health check.
    building = ("buildah", "bud", "--format", "docker", "--isolation", "chroot", "--build-arg", f"PYTHON_IMAGE={base}")
    run(*building, *options, "--tag", name, ".")
    config = json.loads(run("buildah", "inspect", "--type", "image", name))["Docker"]["config"]
    container = run("buildah", "from", name)
    try:
        yield Image(
            root=Path(run("buildah", "mount", container)),
            environment=dict(item.split("=", 1) for item in config["Env"]),
            command=config["Entrypoint"],
            health=config["Healthcheck"]["Test"][1:],
        )
    finally:
        run("buildah", "rm", container)


@pytest.fixture(scope="module")
def image(base: str) -> Iterator[Image]:
    with built(base, __version__, "--layers") as image:
        yield image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty one that belongs to the image's user, where that user can reach it."""
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    os.chown(data, UID, UID)
    return data


def started(image: Image, data: Path, *options: str, **environment: str) -> tuple[str, ...]:
    """The command that runs the image; the proxy's flags may follow."""
    variables = [part for item in {**image.environment, **environment}.items() for part in ("-e", "=".join(item))]
    return (*RUN, *options, *variables, str(image.root), str(data), "--", *image.command)


def test_not_told_whom_to_serve_it_ends_with_the_remedy(image: Image, folder: Path) -> None:
    done = subprocess.run(
        started(image, folder, "--net"), capture_output=True, text=True, check=False, timeout=_GUARD_S
    )
    assert done.returncode == 2
    assert "add --htpasswd FILE or --allow" in done.stderr


def test_as_an_engine_starts_it_its_health_check_passes_and_sigterm_ends_it(image: Image, folder: Path) -> None:
    command = (*started(image, folder, "--net"), "--allow", "10.0.0.0/8")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            until(lambda: health(image, children(running.pid)) == (0, "alive\n", ""), "it was healthy", _GUARD_S)
            running.send_signal(signal.SIGTERM)
            said, _ = running.communicate(timeout=10)
        finally:
            running.kill()
    assert running.returncode == 0
    assert "proxy listening at http://127.0.0.1:8080, and at every other address of this machine" in said


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def health(image: Image, pids: list[int]) -> tuple[int, str, str] | None:
    """What its health check says, run in its place, as an engine does; None where it has not begun."""
    if not pids:
        return None
    there = ("nsenter", "--target", str(pids[0]), "--mount", "--net", "--pid", "--root", "--setuid", str(UID))
    settings = [f"{name}={value}" for name, value in image.environment.items()]
    command = (*there, "--setgid", str(UID), "env", "-i", *settings, *image.health)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_GUARD_S)
    return done.returncode, done.stdout, done.stderr


def test_a_crawl_goes_through_it_on_a_read_only_root(
    image: Image, folder: Path, tmp_path: Path, origin: Origin, secure_origin: Origin
) -> None:
    trust = tmp_path / "trust"
    trust.mkdir()
    os.chown(trust, UID, UID)
    (folder / "origin.pem").write_bytes(secure_origin.ca.read_bytes())
    (folder / "origin.pem").chmod(0o644)
    origin.script = {"/": [respond(503), respond(503), respond(200, b"ok")]}
    flags = ("--store", image.environment["PACE_STORE"], "--confdir", "/data/ca", "--ca-bundle", "/trust/ca.pem")
    command = started(image, folder, "--trust", str(trust))
    with Paceproxy("--upstream-ca", "/data/origin.pem", "--ladder", "0,0.2", *flags, command=command) as proxy:
        variables = client_environment(proxy.url, str(trust / "ca.pem"))
        for url in (origin.url("/"), secure_origin.url("/", host="localhost")):
            done = subprocess.run(
                ["curl", "-q", "-sS", "-m", "30", url],
                env={"PATH": os.environ["PATH"], **variables},
                capture_output=True,
                text=True,
                check=False,
                timeout=_GUARD_S,
            )
            assert (done.stdout, done.stderr) == ("ok", "")
        assert proxy.metric("paceproxy_attempts_total", outcome="stall") == 2
        assert proxy.metric("paceproxy_store_up") == 1
        status = Path(f"/proc/{children(proxy.process.pid)[0]}/status").read_text()
    assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}" in status
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert (folder / "hosts.sqlite3").is_file()
    assert stat.S_IMODE((folder / "ca" / "mitmproxy-ca.pem").stat().st_mode) == 0o600
    assert [path.name for path in trust.iterdir()] == ["ca.pem"]
    assert {path.name for path in folder.iterdir()} <= {
        "ca", "origin.pem", "hosts.sqlite3", "hosts.sqlite3-shm", "hosts.sqlite3-wal"
    }  # fmt: skip


def test_nothing_to_install_or_to_build_with_is_in_it(image: Image) -> None:
    found = [
        str(path)
        for name in ("pip", "pip3", "ensurepip", "hatchling", "gcc", "cc", "make", "pip-*.dist-info")
        for top in ("opt", "usr")
        for path in (image.root / top).rglob(name)
        # pip's own completions and the like are in Debian's folder of documentation.
        if "share" not in path.parts
    ]
    assert found == []


def test_the_same_sources_make_the_same_layer(base: str, image: Image) -> None:
    with built(base, "again", "--no-cache") as again:
        assert digest(again.root / "opt") == digest(image.root / "opt")


def digest(top: Path) -> dict[str, str]:
    """Mode, time and content of everything below."""
    seen = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        seen[str(path.relative_to(top))] = (
            f"{status.st_mode:o} {int(status.st_mtime)} {hashlib.sha256(content).hexdigest()}"
        )
    return seen
