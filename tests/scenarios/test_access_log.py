"""The access log of the real command: one line for each request, through rotation, full disks and its end."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect as websocket_connect

from tests.support.behaviours import WebSocketEcho, respond, silent, truncated
from tests.support.clients import RawClient, curl
from tests.support.origin import Origin
from tests.support.proxy import REAL_COMMAND, Paceproxy
from tests.support.visit import Behaviour
from tests.support.waiting import until

_QUICK = ("--ladder", "0,0.1", "--in-flight", "off")
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text("ascii")
    assert not text or text.endswith("\n"), text[-100:]
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "access.log"


def test_each_request_has_one_line_however_it_ended(confdir: Path, log: Path) -> None:
    pages: dict[str, Behaviour | list[Behaviour]] = {
        "/?id=7": respond(200, b"hello"),
        "/sick": [respond(503), respond(503), respond(200, b"better")],
        "/missing": respond(404),
        "/cut": truncated(b"x" * 400_000, 500_000),
        "/silent": silent(),
        "/socket": WebSocketEcho(),
    }
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Origin(pages) as origin,
        Paceproxy(
            *("--access-log", str(log), "--tunnel-ports", str(listener.getsockname()[1])), *_QUICK, confdir=confdir
        ) as proxy,
    ):
        raw = f"127.0.0.1:{listener.getsockname()[1]}"
        host = f"127.0.0.1:{origin.port}"
        assert curl(proxy.url, origin.url("/?id=7"), "-A", "me", "-u", "user:secret").answer.status == 200
        assert curl(proxy.url, origin.url("/sick")).answer.status == 200
        assert curl(proxy.url, origin.url("/missing"), "--head").answer.status == 404
        with RawClient(proxy.port) as client:
            client.get(origin.url("/cut"))
            with pytest.raises(ConnectionResetError):
                client.rest()
        with RawClient(proxy.port) as client:
            client.get(origin.url("/silent"))
            origin.wait_for(lambda o: o.hits("/silent") == 1)
        proxy.assert_idle()
        assert curl(proxy.url, f"http://127.0.0.1:{proxy.admin_port}/").answer.status == 508
        with RawClient(proxy.port) as client:
            assert client.connect(raw).status == 200
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"220 mail.example\r\n")
                assert client.receive() == b"220 mail.example\r\n"
        with websocket_connect(origin.url("/socket").replace("http", "ws", 1), proxy=proxy.url) as websocket:
            websocket.send("hello")
            assert websocket.recv(timeout=10) == "echo:hello"
        until(lambda: len(lines(log)) == 8, "eight requests had their lines")
        ended = sum(proxy.metrics().by("paceproxy_requests_total", "outcome").values())
    assert ended == 8
    found = lines(log)
    names = ("method", "url", "status", "outcome", "error", "attempts", "stalls", "body_bytes")
    assert [tuple(line[name] for name in names) for line in found] == [
        ("GET", f"http://{host}/?id=7", 200, "served", None, 1, 0, 5),
        ("GET", f"http://{host}/sick", 200, "served", None, 3, 2, 6),
        ("HEAD", f"http://{host}/missing", 404, "served", None, 1, 0, 0),
        ("GET", f"http://{host}/cut", 200, "stall", "http_response_incomplete", 1, 0, 400_000),
        ("GET", f"http://{host}/silent", None, "abandoned", None, 1, 0, 0),
        ("GET", f"http://127.0.0.1:{proxy.admin_port}/", 508, "failure", "proxy_loop_detected", 1, 0, 109),
        ("CONNECT", raw, 200, "served", None, 1, 0, len(b"220 mail.example\r\n")),
        ("GET", f"http://{host}/socket", 101, "served", None, 1, 0, len(b"\x81\x0aecho:hello" + b"\x88\x02\x03\xe8")),
    ]
    assert {line["client"] for line in found} == {"127.0.0.1"}
    assert found[0]["host"] == host
    sick = found[1]
    assert sick["waited_s"] > 0.1
    assert sick["rung"] == 1
    assert sick["accepted_at"] < sick["sent_at"] < sick["first_byte_at"] <= sick["done_at"]
    # The wait and the attempts before it lie before the attempt that answered.
    assert sick["waited_s"] < sick["duration_s"]
    text = log.read_text()
    assert "secret" not in text
    assert "dXNlcjpzZWNyZXQ" not in text


def test_a_log_that_was_moved_goes_on_in_a_new_file_and_hup_ends_nothing(confdir: Path, log: Path) -> None:
    with Origin({"/": respond(200)}) as origin, Paceproxy("--access-log", str(log), confdir=confdir) as proxy:
        for number in range(3):
            curl(proxy.url, origin.url(f"/?{number}"))
            until(lambda: len(lines(log)) == 1, "the request had its line")
            log.rename(log.with_suffix(f".{number}"))
            if number:
                proxy.process.send_signal(signal.SIGHUP)
            until(log.exists, "a new file was opened")
        # It ends with what is written last.
        curl(proxy.url, origin.url("/?3"))
        proxy.stop()
    files = [log.with_suffix(".0"), log.with_suffix(".1"), log.with_suffix(".2"), log]
    assert [[line["url"][-2:] for line in lines(file)] for file in files] == [["?0"], ["?1"], ["?2"], ["?3"]]


def test_a_full_disk_holds_no_request_and_every_line_comes_whole_once_there_is_room(confdir: Path, log: Path) -> None:
    with (
        Origin({"/": respond(200)}) as origin,
        Paceproxy("--access-log", str(log), "--no-access-log-query", confdir=confdir) as proxy,
    ):
        _, hard = resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (1000, hard))
        urls = [origin.url(f"/?{number}") for number in range(10)]
        done = curl(proxy.url, urls[0], *[part for url in urls[1:] for part in ("-o", "/dev/null", url)])
        assert done.answer.status == 200
        until(lambda: "cannot be written: File too large" in proxy.log, "the trouble was told")
        assert 1 <= len(lines(log)) <= 3
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        until(lambda: "is written again; 0 lines were lost" in proxy.log, "its end was told")
        until(lambda: len(lines(log)) == 10, "all lines came")
        assert proxy.log.count("access.log") == 2
    assert {line["url"] for line in lines(log)} == {origin.url("/")}


def test_standard_output_has_nothing_but_lines(confdir: Path, tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    with Origin({"/": respond(200)}) as origin, out.open("w") as stdout, err.open("w") as stderr:
        flags = ("--access-log", "-", "--listen", "127.0.0.1:0", "--admin", "off", "--store", "memory:")
        command = [*REAL_COMMAND, *flags, "--confdir", str(confdir)]
        with subprocess.Popen(command, stdout=stdout, stderr=stderr) as process:
            try:
                until(lambda: "CURL_CA_BUNDLE" in err.read_text(), "it was ready", 60)
                url = err.read_text().partition("listening at ")[2].split()[0]
                assert curl(url, origin.url("/")).answer.status == 200
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0
            finally:
                process.kill()
    assert [line["url"] for line in lines(out)] == [origin.url("/")]


def test_a_terminal_that_closes_ends_a_proxy_that_takes_hup_for_its_log(confdir: Path, log: Path) -> None:
    said = log.with_suffix(".said")
    master, slave = os.openpty()
    flags = ("--access-log", str(log), "--listen", "127.0.0.1:0", "--admin", "off", "--store", "memory:")
    command = [sys.executable, "-c", _TAKE_TERMINAL, *REAL_COMMAND, *flags, "--confdir", str(confdir)]
    with said.open("w") as output:
        process = subprocess.Popen(command, stdin=slave, stdout=output, stderr=output, start_new_session=True)
    with process:
        try:
            os.close(slave)
            until(lambda: "CURL_CA_BUNDLE" in said.read_text(), "it was ready", 60)
            log.rename(log.with_suffix(".1"))
            process.send_signal(signal.SIGHUP)
            until(log.exists, "a signal that the terminal has not sent opened the log anew")
            os.close(master)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert "Draining" in said.read_text()
