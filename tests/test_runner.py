"""The command from start to exit code: what it prints, what it makes, what it refuses, and how it ends.

What SIGTERM does to requests, case by case, is in `tests/scenarios/test_shutdown.py`.
"""

import logging
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

import certifi
import pytest

from proxy_addon.cli import main
from tests.support.behaviours import late, respond, silent
from tests.support.clients import RawClient, curl
from tests.support.origin import Origin
from tests.support.proxy import REAL_COMMAND, Paceproxy
from tests.support.waiting import until

_GUARD_S = 60.0
LOGGERS = ("mitmproxy", "aiosqlite", "asyncio", "tornado", "hpack")
"""Those whose level the command sets."""


class Refused(Protocol):
    def __call__(self, confdir: Path, *flags: str, **environment: str) -> str: ...


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Iterator[Refused]:
    """What the command says when it ends with exit code 2: one line on standard error, without its prefix.

    It runs in this process, since a process of its own takes a second to start.
    """
    root = logging.getLogger()
    loggers = [root, *(logging.getLogger(name) for name in LOGGERS)]
    handlers, levels = list(root.handlers), [one.level for one in loggers]

    def run(confdir: Path, *flags: str, **environment: str) -> str:
        assert main([*flags, *defaults(confdir, flags, environment)], environ=environment) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("paceproxy: ")
        assert err.count("\n") == 1, err
        return err.removeprefix("paceproxy: ").rstrip("\n")

    yield run
    root.handlers[:] = handlers
    for one, level in zip(loggers, levels, strict=True):
        one.setLevel(level)


def defaults(confdir: Path, flags: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The flags for a free port, rows in memory and this confdir, where neither flags nor variables say otherwise."""
    values = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0", "--store": "memory:", "--confdir": str(confdir)}
    given = {*flags, *(f"--{name.removeprefix('PACE_').lower()}" for name in environment)}
    return [part for flag, value in values.items() if flag not in given for part in (flag, value)]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def taken_port() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


# --- what it prints


def test_it_prints_what_a_user_needs_and_two_lines_to_export(refused: Refused, confdir: Path) -> None:
    with Paceproxy(confdir=confdir, command=REAL_COMMAND) as proxy:
        url, ca = proxy.url, f"{confdir}/mitmproxy-ca-cert.pem"
        bundle = f"{confdir}/paceproxy-ca-bundle.pem"
        first, *others = proxy.log.splitlines()
        assert re.fullmatch(rf"paceproxy \d+\.\d+\.\d+\S*: proxy listening at {url}", first)
        assert others == [
            f"admin listening at http://127.0.0.1:{proxy.admin_port} (status page, /metrics, /healthz, /readyz)",
            f"CA certificate: {ca}",
            "For a crawler in another shell:",
            f"  export HTTP_PROXY={url} HTTPS_PROXY={url} http_proxy={url} https_proxy={url}",
            f"  export SSL_CERT_FILE={bundle} REQUESTS_CA_BUNDLE={bundle} CURL_CA_BUNDLE={bundle}"
            f" NODE_EXTRA_CA_CERTS={bundle} NODE_USE_ENV_PROXY=1",
        ]
        assert Path(ca).read_text().startswith("-----BEGIN CERTIFICATE-----")


def test_what_it_prints_to_export_works(confdir: Path, secure_origin: Origin) -> None:
    with Paceproxy("--upstream-ca", str(secure_origin.ca), confdir=confdir) as proxy:
        exports = "\n".join(line for line in proxy.log.splitlines() if line.startswith("  export "))
        script = f"{exports}\nunset NO_PROXY no_proxy\ncurl -q -sS -m 30 {secure_origin.url('/', host='localhost')}"
        answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=_GUARD_S)
    assert (answer.stdout, answer.stderr) == ("ok", "")


@pytest.mark.parametrize(
    ("listen", "url"),
    [("0.0.0.0:0", "http://127.0.0.1:"), (":0", "http://127.0.0.1:")],
)
def test_an_address_that_cannot_be_dialled_is_printed_as_one_that_can(confdir: Path, listen: str, url: str) -> None:
    with Paceproxy("--listen", listen, "--allow", "127.0.0.0/8", "--admin", "off", confdir=confdir) as proxy:
        assert f": proxy listening at {url}{proxy.port}, and at every other address of this machine\n" in proxy.log
        assert "admin" not in proxy.log


# --- what it makes


def test_folders_and_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    confdir, state = tmp_path / "new" / "confdir", tmp_path / "new" / "state"
    store = state / "paceproxy" / "hosts.sqlite3"
    before = os.umask(0)
    try:
        with Paceproxy("--store", f"sqlite:///{store}", confdir=confdir, command=REAL_COMMAND):
            pass
    finally:
        os.umask(before)
    assert (mode(confdir), mode(confdir / "mitmproxy-ca.pem"), mode(confdir / "mitmproxy-ca.p12")) == (
        0o700,
        0o600,
        0o600,
    )
    assert "PRIVATE KEY" in (confdir / "mitmproxy-ca.pem").read_text()
    assert "PRIVATE KEY" not in (confdir / "mitmproxy-ca-cert.pem").read_text()
    assert (mode(store.parent), mode(store)) == (0o700, 0o600)


def test_a_folder_that_is_there_already_stays_as_it_is(confdir: Path) -> None:
    confdir.chmod(0o755)
    authority = (confdir / "mitmproxy-ca.pem").read_bytes() if (confdir / "mitmproxy-ca.pem").exists() else None
    with Paceproxy(confdir=confdir):
        assert mode(confdir) == 0o755
        assert authority in (None, (confdir / "mitmproxy-ca.pem").read_bytes())


def test_certificates_are_added_to_the_usual_authorities_and_not_put_in_their_place(
    confdir: Path, tmp_path: Path, secure_origin: Origin
) -> None:
    ours = tmp_path / "ours.pem"
    ours.write_text("# Unsere Stelle für Prüfungen\n" + secure_origin.ca.read_text().rstrip("\n"), encoding="utf-8")
    with Paceproxy("--upstream-ca", str(ours), confdir=confdir, environment={"TMPDIR": str(tmp_path)}) as proxy:
        assert curl(proxy.url, secure_origin.url("/"), ca=proxy.ca).answer.status == 200
        [bundle] = tmp_path.glob("paceproxy-*.pem")
        assert mode(bundle) == 0o600
        text = bundle.read_text()
    usual = Path(certifi.where()).read_text()
    assert text.startswith(usual)
    assert secure_origin.ca.read_text().strip() in text.removeprefix(usual)
    assert not bundle.exists()


# --- options of mitmproxy


def test_options_of_mitmproxy_have_their_effect(confdir: Path, origin: Origin) -> None:
    with Paceproxy("--set", "body_size_limit=10", confdir=confdir) as proxy:
        answers = [curl(proxy.url, origin.url("/"), "--data-binary", "x" * size).answer for size in (10, 11)]
    assert [answer.status for answer in answers] == [200, 413]
    assert len(origin.requests) == 1


def test_no_option_makes_it_dial_before_a_request(confdir: Path, origin: Origin) -> None:
    options = ("--set", "connection_strategy=eager", "--set", "rawtcp=true")
    with Paceproxy(*options, confdir=confdir) as proxy, RawClient(proxy.port) as client:
        assert client.connect(origin.host).status == 200
        client.send(b"\0\1\2 this is no HTTP\r\n\r\n")
        assert b"200" not in client.rest()
    assert origin.connections == []


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (
            "http2_ping_keepaliv=1",
            "set names no option of mitmproxy that is loaded, got http2_ping_keepaliv=*** (--set); "
            "did you mean http2_ping_keepalive?",
        ),
        (
            "anticache=true",
            "set names no option of mitmproxy that is loaded, got anticache=*** (--set); "
            "see `mitmdump --options` for those of its core",
        ),
        (
            "pace_window=4",
            "set names no option of mitmproxy that is loaded, got pace_window=*** (--set); use --window",
        ),
        (
            "http2_ping_keepalive=s3cret",
            "set gives http2_ping_keepalive a value that mitmproxy refuses, got http2_ping_keepalive=*** (--set); "
            "correct it",
        ),
        (
            "listen_host=0.0.0.0",
            "set names an option that a setting stands for, got listen_host=*** (--set); use --listen",
        ),
        (
            "mode=regular@0.0.0.0:0",
            "set gives mode a value that opens the proxy to everybody, on 0.0.0.0:0 (--set); "
            "add --htpasswd FILE or --allow 10.0.0.0/8, or listen on a loopback address",
        ),
        (
            "mode=upstream:http://127.0.0.1:1",
            "set gives mode a value that is a setting, upstream (--set); use --upstream",
        ),
        ("server=false", "set leaves the proxy without a listener (--set); leave out server=false"),
    ],
)
def test_an_option_that_cannot_be_is_one_line_and_exit_code_2(
    refused: Refused, confdir: Path, option: str, line: str
) -> None:
    assert refused(confdir, "--set", option) == line


# --- what it refuses


def test_what_it_refuses_ends_the_process_with_exit_code_2_and_one_line(confdir: Path) -> None:
    with closing(taken_port()) as taken:
        flags = ("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        command = [sys.executable, "-m", "proxy_addon", *flags, *defaults(confdir, flags, {})]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_GUARD_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"paceproxy: listen cannot be listened on: .+\n", ended.stderr)


def test_an_access_log_that_cannot_be_written_is_one_line_and_exit_code_2(
    refused: Refused, confdir: Path, tmp_path: Path
) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "none"
    os.mkfifo(pipe)
    assert refused(confdir, "--access-log", str(pipe)) == (
        f"access_log cannot be written: nobody reads that pipe, got {pipe} (--access-log); "
        "give the path of a file that this user may write, - for standard output, or off"
    )
    # Not even root may write it.
    assert refused(confdir, "--access-log", "/proc/sys/kernel/osrelease") == (
        "access_log cannot be written: Permission denied, got /proc/sys/kernel/osrelease (--access-log); "
        "give the path of a file that this user may write, - for standard output, or off"
    )
    assert refused(confdir, PACE_ACCESS_LOG=str(folder / "access.log")) == (
        f"access_log must be in a folder that exists, got {folder}/access.log (PACE_ACCESS_LOG); "
        "give the path of a file in a folder that exists, - for standard output, or off"
    )


def test_a_port_in_use_is_one_line_and_exit_code_2(refused: Refused, confdir: Path) -> None:
    with closing(taken_port()) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refused(confdir, "--listen", address) == (
            f"listen cannot be listened on: Address already in use, got {address} (--listen); "
            "stop what uses it, or give another address, or 127.0.0.1:0 for any free port"
        )
        assert refused(confdir, "--admin", address) == (
            f"admin cannot be listened on: Address already in use, got {address} (--admin); "
            "give another address, 127.0.0.1:0 for any free port, or off"
        )


def test_a_name_that_does_not_resolve_is_no_address(refused: Refused, confdir: Path) -> None:
    line = refused(confdir, "--listen", "nobody.invalid:0", "--allow", "127.0.0.1")
    assert line.startswith("listen cannot be listened on: ")
    assert line.endswith(
        ", got nobody.invalid:0 (--listen); stop what uses it, or give another address, "
        "or 127.0.0.1:0 for any free port"
    )


def no_database(file: Path) -> None:
    file.write_text("no database, but a text of some length " * 10)


def others_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def newer_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE host (x)")
        connection.execute("PRAGMA application_id = 1348559717")
        connection.execute("PRAGMA user_version = 4")


@pytest.mark.parametrize(
    ("make", "problem", "remedy"),
    [
        (no_database, "is not a SQLite database", "move it away, or give another path"),
        (others_database, "belongs to another program", "give another path"),
        (
            newer_database,
            "was made by another version of paceproxy (schema 4, not 3)",
            "use that version, or give another path",
        ),
        (Path.mkdir, "is not a file", "give the path of a file, such as paceproxy.db in that folder"),
    ],
)
def test_a_store_that_cannot_be_opened_is_one_line_and_exit_code_2(
    refused: Refused, confdir: Path, tmp_path: Path, make: Callable[[Path], None], problem: str, remedy: str
) -> None:
    make(tmp_path / "hosts.db")
    line = refused(confdir, PACE_STORE=f"sqlite:///{tmp_path}/hosts.db")
    assert line == f"store {problem}, got sqlite:///{tmp_path}/hosts.db (PACE_STORE); {remedy}"


def test_a_confdir_that_cannot_be_made_is_one_line_and_exit_code_2(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = refused(tmp_path / "file" / "confdir")
    assert line == (
        f"confdir cannot be used: Not a directory, got {tmp_path}/file/confdir (--confdir); "
        "give a folder that can be written to"
    )


@pytest.mark.parametrize("content", ["", "no key", "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"])
def test_an_authority_that_cannot_be_used_is_one_line_and_exit_code_2(
    refused: Refused, tmp_path: Path, content: str
) -> None:
    (tmp_path / "mitmproxy-ca.pem").write_text(content)
    assert refused(tmp_path) == (
        f"confdir holds a certificate authority that cannot be used, got {tmp_path} (--confdir); "
        "correct or remove its mitmproxy-ca.pem; without one a new authority is made"
    )


# --- how it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_proxy_ends_at_once(confdir: Path, number: signal.Signals) -> None:
    # A drain that waits for its time runs into the guard of `wait`.
    with Paceproxy("--drain", "600", confdir=confdir) as proxy:
        proxy.process.send_signal(number)
        assert proxy.wait() == 0
        until(lambda: "Draining: requests in hand have 600 s." in proxy.log, "the log was read to its end")


def test_sigint_finishes_what_comes_in_time_and_refuses_the_rest(confdir: Path, origin: Origin) -> None:
    origin.script = {
        "/slow": late(0.5, respond(200, b"slow")),
        "/blocked": respond(429, fields=[("Retry-After", "100")]),
    }
    with (
        Origin({"/sick": [respond(503), respond(200, b"well")]}) as soon_well,
        Paceproxy("--drain", "2", "--ladder", "0,0.5,100", confdir=confdir) as proxy,
        RawClient(proxy.port) as slow,
        RawClient(proxy.port) as sick,
        RawClient(proxy.port) as blocked,
        RawClient(proxy.port) as unsent,
    ):
        slow.get(origin.url("/slow"))
        origin.wait_for(lambda o: o.hits("/slow"))
        sick.get(soon_well.url("/sick"))
        blocked.get(origin.url("/blocked"))
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=origin.host)
        unsent.get(origin.url("/unsent"))
        proxy.wait_for_metric("paceproxy_waiting_requests", 3)
        proxy.process.send_signal(signal.SIGINT)
        answers = {
            name: client.answer()
            for name, client in {"slow": slow, "sick": sick, "blocked": blocked, "unsent": unsent}.items()
        }
        assert proxy.wait() == 0
    assert {name: answer.status for name, answer in answers.items()} == {
        "slow": 200,
        "sick": 200,
        "blocked": 503,
        "unsent": 503,
    }
    assert answers["sick"].body == b"well"
    assert "received-status=429" in answers["blocked"].proxy_status
    for refused in ("blocked", "unsent"):
        assert 80 <= int(answers[refused].values("Retry-After")[0]) <= 100
    assert [answer.values("Connection") for answer in answers.values()] == [["close"]] * 4
    assert origin.hits("/unsent") == 0


@pytest.mark.parametrize("numbers", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)])
def test_a_second_signal_ends_it_whichever_it_is(
    confdir: Path, origin: Origin, numbers: Sequence[signal.Signals]
) -> None:
    origin.mode = silent()
    first, second = numbers
    with Paceproxy("--drain", "600", confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/silent"))
        origin.wait_for(lambda o: o.hits("/silent"))
        proxy.process.send_signal(first)
        until(lambda: "Draining" in proxy.log, "it drained")
        assert proxy.process.poll() is None
        proxy.process.send_signal(second)
        assert proxy.wait() == 0


def test_while_it_drains_it_is_alive_and_not_ready(confdir: Path, origin: Origin) -> None:
    origin.mode = silent()
    with Paceproxy("--drain", "600", confdir=confdir) as proxy, RawClient(proxy.port) as client:
        client.get(origin.url("/silent"))
        origin.wait_for(lambda o: o.hits("/silent"))
        assert proxy.get("/readyz")[0] == 200
        proxy.process.send_signal(signal.SIGTERM)
        until(lambda: proxy.get("/readyz")[0] == 503, "it was not ready any more")
        assert "draining" in proxy.get("/readyz")[1]
        assert proxy.get("/healthz")[0] == 200
        proxy.process.send_signal(signal.SIGTERM)
        assert proxy.wait() == 0


def test_authorities_of_origins_need_a_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert refused(tmp_path, "--upstream-ca", certifi.where()) == (
        "upstream_ca needs a folder for temporary files: No such file or directory (--upstream-ca);"
        " make /tmp writable, or name a folder that is by the variable TMPDIR"
    )
