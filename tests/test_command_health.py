"""`paceproxy health`: what it asks, and what it says."""

import socket
from contextlib import closing

import pytest

from proxy_addon.cli import main
from tests.support.ports import greeting_port, mute_port, refusing_port
from tests.support.proxy import Paceproxy


def health(*arguments: str, **environment: str) -> int:
    return main([*arguments], environ=environment)


def test_a_running_proxy_is_alive_and_ready(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing_port() as nobody, Paceproxy() as proxy:
        # Where a client would be led by the environment.
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{nobody}")
        assert health("--admin", f"127.0.0.1:{proxy.admin_port}", "health") == 0
        assert health("health", "--ready", PACE_ADMIN=f"127.0.0.1:{proxy.admin_port}") == 0
        assert capsys.readouterr().out == "alive\nready\n"


def test_one_that_listens_on_all_interfaces_is_asked_through_loopback(capsys: pytest.CaptureFixture[str]) -> None:
    with Paceproxy("--admin", ":0") as proxy:
        for host in ("", "0.0.0.0", "[::]"):
            assert health("health", PACE_ADMIN=f"{host}:{proxy.admin_port}") == 0
    assert capsys.readouterr().out == "alive\n" * 3


def test_without_an_admin_address_the_proxys_own_must_take_connections(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        assert health("health", PACE_ADMIN="off", PACE_LISTEN=f"127.0.0.1:{port}") == 0
    assert capsys.readouterr().out == "takes connections\n"
    with refusing_port() as port:
        assert health("health", PACE_ADMIN="off", PACE_LISTEN=f"127.0.0.1:{port}") == 1
    assert capsys.readouterr().err == (
        f"paceproxy: no answer at http://127.0.0.1:{port}: Connection refused; "
        "start the proxy, or give the --listen that it has\n"
    )


def test_a_proxy_that_does_not_run_is_told_with_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    with refusing_port() as port:
        assert health("health", PACE_ADMIN=f"127.0.0.1:{port}") == 1
    assert capsys.readouterr() == (
        "",
        f"paceproxy: no answer at http://127.0.0.1:{port}: Connection refused; "
        "start the proxy, or give the --admin that it has\n",
    )


def test_a_proxy_that_hangs_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with mute_port() as port:
        assert health("health", "--timeout", "0.1", PACE_ADMIN=f"127.0.0.1:{port}") == 1
    assert f"no answer at http://127.0.0.1:{port}: timed out;" in capsys.readouterr().err


def test_what_says_that_it_is_not_ready_is_not_well(capsys: pytest.CaptureFixture[str]) -> None:
    draining = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 20\r\n\r\nnot ready: draining\n"
    with greeting_port(draining) as port:
        assert health("health", "--ready", PACE_ADMIN=f"127.0.0.1:{port}") == 1
    assert capsys.readouterr().err == f"paceproxy: http://127.0.0.1:{port}/readyz says 503: not ready: draining\n"


def test_what_speaks_no_http_is_not_well(capsys: pytest.CaptureFixture[str]) -> None:
    with greeting_port(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        assert health("health", PACE_ADMIN=f"127.0.0.1:{port}") == 1
    assert f"no answer at http://127.0.0.1:{port}: what listens there does not speak HTTP;" in capsys.readouterr().err


def test_a_stranger_at_the_address_writes_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with greeting_port(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n\x1b[2Jhello") as port:
        assert health("health", PACE_ADMIN=f"127.0.0.1:{port}") == 1
    assert capsys.readouterr().err.endswith("/healthz says 404: ?[2Jhello\n")


def test_wrong_settings_are_told_as_the_proxy_itself_tells_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert health("health", PACE_ADMIN="nowhere") == 2
    assert "(PACE_ADMIN)" in capsys.readouterr().err


def test_it_need_not_know_whom_the_proxy_serves(capsys: pytest.CaptureFixture[str]) -> None:
    with refusing_port() as port:
        assert health("health", PACE_LISTEN=":8080", PACE_ADMIN=f"127.0.0.1:{port}") == 1
    assert "Connection refused" in capsys.readouterr().err
