"""`paceproxy status` and `paceproxy host`, asked of a real proxy: what they print, and what they do."""

import json
import math
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy_addon import admin_client
from proxy_addon.cli import main
from tests.support.clients import RawClient
from tests.support.json_api import change
from tests.support.origin import Origin
from tests.support.ports import greeting_port, refusing_port
from tests.support.proxy import REAL_COMMAND, Paceproxy
from tests.support.waiting import until

TOKEN = "0123456789abcdef0123"
CALLS = (["status"], ["status", "--json"], ["status", "--watch"], ["host", "a", "resume"])


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def running(confdir: Path, token_file: Path) -> Iterator[Paceproxy]:
    with Paceproxy("--admin-token-file", str(token_file), confdir=confdir) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Paceproxy, origin: Origin) -> Iterator[Paceproxy]:
    """With a host that is well and known: the origin."""
    with RawClient(running.port) as client:
        client.get(origin.url("/"))
        assert client.answer().status == 200
    yield running
    for back in ({"action": "floor", "seconds": 0}, {"action": "resume"}):
        assert change(running.admin_port, origin.host, back, Authorization=f"Bearer {TOKEN}")[0] == 200


def command(proxy: Paceproxy, *arguments: str) -> int:
    return main([*arguments], environ={"PACE_ADMIN": f"127.0.0.1:{proxy.admin_port}"})


def test_a_host_is_paused_shown_and_resumed_from_the_command_line(
    proxy: Paceproxy,
    origin: Origin,
    token_file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The commands go to the proxy directly, whatever the environment would lead a client to.
    monkeypatch.setenv("http_proxy", proxy.url)
    token = ("--admin-token-file", str(token_file))
    assert command(proxy, "host", origin.host, "pause", "60.5", *token) == 0
    assert capsys.readouterr().out.startswith(f"{origin.host}: rung 0, no pace, paused until ")
    assert command(proxy, "host", origin.host, "floor", "7", *token) == 0
    assert f"{origin.host}: rung 0, every 7 s (floor 7 s), paused until " in capsys.readouterr().out
    assert command(proxy, "status") == 0
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if line.strip().startswith(origin.host))
    assert "rung 0, every 7 s (floor 7 s)" in line
    assert "paused until " in line
    assert "1 host is slow or held; " in printed
    assert "\x1b" not in printed
    # As a setting, before the command's name.
    assert command(proxy, *token, "host", origin.host, "resume") == 0
    assert capsys.readouterr().out == f"{origin.host}: rung 0, every 7 s (floor 7 s), 0 waiting\n"


def test_as_json_it_is_exactly_the_list_of_the_api(
    proxy: Paceproxy, origin: Origin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(proxy, "status", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []
    change(proxy.admin_port, origin.host, {"action": "floor", "seconds": 5}, Authorization=f"Bearer {TOKEN}")
    assert command(proxy, "status", "--json") == 0
    (host,) = json.loads(capsys.readouterr().out)
    assert sorted(host) == [
        *("blocked_until", "floor_s", "host", "in_flight", "in_flight_limit", "last_stall", "next_slot_at"),
        *("next_slot_in_s", "pace_s", "paused_until", "rung", "stalls_in_a_row", "waiting"),
    ]
    assert (host["host"], host["floor_s"]) == (origin.host, 5)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["never.example", "resume"], 1, "The proxy has not been asked for the host 'never.example'"),
        (["HOST", "pause", "0"], 1, "a pause must be from 0.001 to 86400 seconds (a day), got 0.0"),
        (
            ["HOST", "floor", "4000"],
            1,
            "a floor must be 0 (none) or from 0.001 to 3600 seconds between two attempts, got 4000.0",
        ),
        (["HOST", "pause", "1m"], 2, "SECONDS must be decimal seconds, got '1m'; give for instance pause 5"),
        (["HOST", "pause", "nan"], 2, "SECONDS must be decimal seconds, got 'nan'"),
        (["HOST", "floor"], 2, "floor needs SECONDS, such as floor 5"),
        (["HOST", "resume", "5"], 2, "resume takes no SECONDS, got '5'"),
        (["HOST", "stop"], 2, "'stop' is not one of 'resume', 'pause', 'floor'"),
        (["HOST"], 2, "Missing argument"),
        (["", "resume"], 2, "NAME must be a host as paceproxy status shows it, got an empty one"),
        (["\udcff\x1b", "resume"], 1, "The proxy has not been asked for the host "),
    ],
)
def test_what_cannot_be_done_to_a_host_is_told_in_a_line(
    proxy: Paceproxy,
    origin: Origin,
    token_file: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    given = [origin.host if argument == "HOST" else argument for argument in arguments]
    assert command(proxy, "host", "--admin-token-file", str(token_file), *given) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert said in printed.err


def test_without_the_token_nothing_is_changed_and_the_remedy_told(
    proxy: Paceproxy, origin: Origin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(proxy, "host", origin.host, "pause") == 1
    assert capsys.readouterr().err == (
        "paceproxy: A change needs a token; send Authorization: Bearer and the content of the proxy's "
        "admin_token_file.\n"
    )


@pytest.mark.parametrize(
    "arguments", [["status"], ["status", "--json"], ["status", "--watch"], ["host", "a", "resume"]]
)
def test_where_no_proxy_answers_one_line_says_what_to_do(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with refusing_port() as port:
        assert main([*arguments, "--admin", f"127.0.0.1:{port}"], environ={}) == 1
    assert capsys.readouterr().err == (
        f"paceproxy: no proxy answers at http://127.0.0.1:{port} (Connection refused); start paceproxy, or give the "
        "--admin address that it has announced\n"
    )


@pytest.mark.parametrize(
    "arguments", [["status"], ["status", "--json"], ["status", "--watch"], ["host", "a", "resume"]]
)
def test_another_server_there_is_not_believed(
    arguments: list[str], origin: Origin, capsys: pytest.CaptureFixture[str]
) -> None:
    with greeting_port(b"220 mail.example ESMTP\r\n") as mail:
        for port in (origin.port, mail):
            assert main([*arguments, "--admin", f"127.0.0.1:{port}"], environ={}) == 1
            assert f"what answers at http://127.0.0.1:{port} is not the admin address" in capsys.readouterr().err


HOST = {
    "host": "a.example",
    "rung": 1,
    "pace_s": 2.0,
    "floor_s": 0.0,
    "waiting": 3,
    "next_slot_at": 1010.0,
    "blocked_until": None,
    "paused_until": None,
    "last_stall": {"error": "rate_limited", "at": 990.0},
}
STATUS = {"at": 1000.0, "hosts": [HOST], "healthy_hosts": 1, "waiting": 3, "in_flight": 0, "store_up": True}


def answering(status: object, media_type: str = "application/json") -> bytes:
    """A whole response of a server that says this, whatever it is asked."""
    body = json.dumps(status)
    return f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("next_slot_at", value) for value in (1e300, math.nan, math.inf, -1.0)),
        *(("paused_until", value) for value in (1e300, math.nan, 10**30)),
        *(("pace_s", value) for value in (math.nan, math.inf, -1.0)),
        *(("rung", value) for value in (-1, 0.5, math.nan)),
    ],
)
def test_numbers_that_no_proxy_sends_are_not_believed(
    name: str, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    with greeting_port(answering({**STATUS, "hosts": [{**HOST, name: value}]})) as port:
        assert main(["status", "--admin", f"127.0.0.1:{port}"], environ={}) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "is not the admin address of this version" in printed.err


def test_hostile_names_do_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = {**HOST, "host": "\x1b[2Ja\u202e\x07b", "last_stall": {"error": "\x1b]0;x\x07", "at": 990.0}}
    with greeting_port(answering({**STATUS, "hosts": [hostile]})) as port:
        assert main(["status", "--admin", f"127.0.0.1:{port}"], environ={}) == 0
    printed = capsys.readouterr().out
    assert "?[2Ja??b" in printed
    assert "?]0;x?" in printed
    assert not set(printed) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize("arguments", CALLS)
def test_an_answer_without_end_is_not_read_to_its_end(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "MAX_ANSWER_BYTES", 1000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: "
    with greeting_port(head + b"x" * 2000) as port:
        assert main([*arguments, "--admin", f"127.0.0.1:{port}"], environ={}) == 1
        assert f"what answers at http://127.0.0.1:{port} is not the admin address" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["status"], ["status", "--json"], ["host", "a", "resume"]])
def test_an_answer_that_does_not_come_is_given_up(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 0.05)
    with greeting_port(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 O") as port:
        assert main([*arguments, "--admin", f"127.0.0.1:{port}"], environ={}) == 1
        assert f"no proxy answers at http://127.0.0.1:{port} (" in capsys.readouterr().err


@pytest.mark.parametrize("admin", ["off", "127.0.0.1:0"])
def test_an_address_that_says_nothing_is_refused(admin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"], environ={"PACE_ADMIN": admin}) == 2
    assert capsys.readouterr().err == (
        f"paceproxy: admin must say where the running proxy has its admin address, got {admin} (PACE_ADMIN); "
        "give the address that it has announced, such as 127.0.0.1:9464\n"
    )


def test_watched_on_a_terminal_it_is_drawn_anew_until_interrupted(proxy: Paceproxy, origin: Origin) -> None:
    terminal, inside = pty.openpty()
    with ExitStack() as stack:
        screen = stack.enter_context(os.fdopen(terminal, "rb", buffering=0))
        watching = stack.enter_context(
            subprocess.Popen(
                [*REAL_COMMAND, "status", "--watch", "--admin", f"127.0.0.1:{proxy.admin_port}"],
                stdin=subprocess.DEVNULL,
                stdout=inside,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
            )
        )
        stack.callback(watching.kill)
        os.close(inside)
        seen = b""

        def shows(text: str) -> bool:
            nonlocal seen
            seen += screen.read(65536)
            return text.encode() in seen

        until(lambda: shows("No host is slow"), "the status was drawn", 30)
        change(proxy.admin_port, origin.host, {"action": "floor", "seconds": 5}, Authorization=f"Bearer {TOKEN}")
        until(lambda: shows(origin.host), "the slow host was drawn")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0
        assert b"Traceback" not in seen


def test_watched_as_json_each_change_is_a_line_and_the_proxys_end_is_told(confdir: Path, origin: Origin) -> None:
    with Paceproxy(confdir=confdir) as ending:
        with RawClient(ending.port) as client:
            client.get(origin.url("/"))
            assert client.answer().status == 200
        watching = subprocess.Popen(
            [*REAL_COMMAND, "status", "--watch", "--json", "--admin", f"127.0.0.1:{ending.admin_port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with watching:
            assert watching.stdout is not None
            assert watching.stderr is not None
            assert watching.stdout.readline() == "[]\n"
            change(ending.admin_port, origin.host, {"action": "floor", "seconds": 5})
            hosts = next(hosts for line in watching.stdout if (hosts := json.loads(line)))
            assert hosts[0]["host"] == origin.host
            ending.stop()
            assert watching.wait(20) == 1
            assert watching.stderr.read() == (
                f"paceproxy: the proxy at http://127.0.0.1:{ending.admin_port} has ended; start it again\n"
            )
