"""`paceproxy run`: real commands with a proxy of their own, without a terminal and on one."""

import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.behaviours import respond
from tests.support.command_run import (
    ROWS,
    CommandOnTerminal,
    OnTerminal,
    arguments,
    environment,
    from_the_start,
    run,
)
from tests.support.origin import Origin
from tests.support.waiting import until

_GUARD_S = 60.0
FAST = ("--ladder", "0,0.2,60")
"""One stall costs a fifth of a second, two a minute."""

CLIENTS = """
import asyncio, sys, aiohttp, requests

async def fetch(url):
    async with aiohttp.ClientSession(trust_env=True) as session, session.get(url) as response:
        return await response.text()

for url in sys.argv[1:]:
    print("requests", requests.get(url, timeout=30).text)
    print("aiohttp", asyncio.run(fetch(url)))
"""


def on_terminal(confdir: Path, *command: str, flags: tuple[str, ...] = (), **further: str) -> CommandOnTerminal:
    return CommandOnTerminal(arguments(confdir, command, flags), environment(**{"TERM": "xterm", **further}))


# --- what the command gets


def test_clients_come_through_the_proxy_and_trust_it(
    confdir: Path, tmp_path: Path, origin: Origin, secure_origin: Origin
) -> None:
    urls = [origin.url("/"), secure_origin.url("/", host="localhost")]
    (tmp_path / "clients.py").write_text(CLIENTS)
    script = 'curl -q -sS -m 30 "$1"; echo; curl -q -sS -m 30 "$2"; echo; exec "$3" "$4" "$1" "$2"'
    done = run(
        confdir,
        ["--", "sh", "-c", script, "sh", *urls, sys.executable, str(tmp_path / "clients.py")],
        # The origin's authority, as a user has it who crawls without us.
        environ={"SSL_CERT_FILE": str(secure_origin.ca)},
    )
    assert done.stdout.splitlines() == ["ok", "ok", *["requests ok", "aiohttp ok"] * 2], done.stderr
    assert done.returncode == 0
    assert len(origin.requests) == len(secure_origin.requests) == 3
    assert re.fullmatch(
        r"paceproxy: status at http://127\.0\.0\.1:\d+/\npaceproxy: 6 requests: 6 served\n", done.stderr
    )


def test_the_commands_environment_is_the_users_and_what_leads_to_the_proxy(confdir: Path, origin: Origin) -> None:
    users = {
        "NO_PROXY": "intranet.example",
        "ALL_PROXY": "socks5://127.0.0.1:1",
        "HTTPS_PROXY": "http://me:secret@127.0.0.1:1",
        "CURL_CA_BUNDLE": "/nonexistent/own.pem",
        "OWN": "it's",
    }
    done = run(confdir, ["sh", "-c", 'env; cat "$CURL_CA_BUNDLE"; exit 7'], environ=users)
    assert done.returncode == 7
    got = dict(re.findall(r"^([A-Za-z_]+)=(.*)$", done.stdout, re.MULTILINE))
    proxies = {got[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
    bundles = {got[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")}
    assert re.fullmatch(r"\{'http://127\.0\.0\.1:\d+'\}", str(proxies))
    assert len(bundles) == 1
    assert (got["NO_PROXY"], got["ALL_PROXY"], got["OWN"]) == ("intranet.example", "socks5://127.0.0.1:1", "it's")
    assert got["NODE_USE_ENV_PROXY"] == "1"
    assert "no_proxy" not in got
    assert (confdir / "mitmproxy-ca-cert.pem").read_text().strip() in done.stdout
    assert done.stdout.count("BEGIN CERTIFICATE") > 50
    assert not Path(bundles.pop()).exists()
    assert re.sub(r":\d+/\n", ":PORT/\n", done.stderr).splitlines() == [
        "paceproxy: CURL_CA_BUNDLE names /nonexistent/own.pem, which cannot be read (No such file or directory): it is"
        " left out",
        "paceproxy: status at http://127.0.0.1:PORT/",
        "paceproxy: HTTPS_PROXY is http://***@127.0.0.1:1, which the proxy does not go through; --upstream is for that",
        "paceproxy: ALL_PROXY is socks5://127.0.0.1:1, which the proxy does not go through; --upstream is for that",
        "paceproxy: no request came through the proxy; does the command read HTTP_PROXY? NO_PROXY is intranet.example",
    ]


def test_the_users_own_authority_is_in_the_bundle_and_trusted_for_origins_and_quiet_is_quiet(
    confdir: Path, tmp_path: Path, secure_origin: Origin
) -> None:
    done = run(
        confdir,
        [
            "--quiet",
            "sh",
            "-c",
            'cat "$NODE_EXTRA_CA_CERTS"; curl -q -sS -m 30 "$1"; cat',
            "sh",
            secure_origin.url("/"),
        ],
        environ={"REQUESTS_CA_BUNDLE": str(secure_origin.ca)},
        given="the command's",
    )
    assert secure_origin.ca.read_text().strip() in done.stdout
    assert done.stdout.endswith("\nokthe command's")
    assert done.stderr == ""


# --- what it says in the end


def test_the_summary_tells_what_waiting_was_good_for(confdir: Path, origin: Origin) -> None:
    origin.script = {
        "/once": [respond(503), respond(body=b"well")],
        "/busy": respond(429, fields=[("Retry-After", "90")]),
    }
    script = 'curl -q -sS -m 30 "$1/once"; curl -q -sS -m 30 -H "Pace-Window: 5" -o /dev/null "$1/busy"'
    done = run(confdir, ["sh", "-c", script, "sh", origin.url("")], "--climb", "stall", *FAST)
    assert (done.returncode, done.stdout) == (0, "well")
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"paceproxy: status at \S+", lines[0])
    assert lines[1:3] == [
        "paceproxy: 2 requests: 1 served, 1 not served in time",
        "paceproxy: 1 of them would have failed without it",
    ]
    assert re.fullmatch(
        rf"paceproxy: still slow: {origin.host}, rung 1, a request every 0\.2 s, blocked until \d\d:\d\d:\d\d",
        lines[-1],
    )


# --- exit codes and signals


def test_a_command_that_is_not_there_is_told_as_a_shell_does(confdir: Path) -> None:
    done = run(confdir, ["no-such-command"])
    assert (done.returncode, done.stdout, done.stderr) == (127, "", "paceproxy: no-such-command: not found\n")


RECORD = """
import os, signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, lambda number, frame: os.write(1, signal.Signals(number).name.encode() + b"\\n"))
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN  # which is Python's own doing
os.write(1, b"ready\\n")
while sys.stdin.readline():
    pass
subprocess.run(["curl", "-q", "-sS", *sys.argv[1:]])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_signals_go_to_the_command_which_the_proxy_outlives(confdir: Path, tmp_path: Path, origin: Origin) -> None:
    (tmp_path / "record.py").write_text(RECORD)
    with subprocess.Popen(
        from_the_start(confdir, [sys.executable, str(tmp_path / "record.py"), origin.url("/")]),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            process.send_signal(number)
            assert process.stdout.readline() == f"{number.name}\n"
        process.stdin.close()
        assert process.stdout.read() == "ok"
        assert process.wait(_GUARD_S) == 128 + signal.SIGKILL


# --- on a terminal


def test_ctrl_c_reaches_the_command_once(confdir: Path, tmp_path: Path) -> None:
    (tmp_path / "record.py").write_text(RECORD)
    with on_terminal(confdir, sys.executable, str(tmp_path / "record.py"), "--version") as terminal:
        terminal.wait_for("ready")
        terminal.press("\x03")
        terminal.wait_for("SIGINT")
        terminal.press("\x1c")
        terminal.wait_for("SIGQUIT")
        terminal.press("\x04")
        assert terminal.wait() == 128 + signal.SIGKILL
        assert terminal.written.count(b"SIGINT") == 1
        assert terminal.written.count(b"SIGQUIT") == 1


def test_ctrl_z_stops_it_and_fg_goes_on(confdir: Path) -> None:
    line = " ".join(f"'{word}'" for word in from_the_start(confdir, ["cat"]))
    with OnTerminal(["bash", "--norc", "--noprofile", "-i"], environment(TERM="xterm", PS1="$ ", LINE=line)) as shell:
        shell.press('eval "$LINE"\n')
        shell.wait_for("status at")
        shell.press("one\n")
        until(lambda: shell.shown().count("one") == 2, "cat had answered", _GUARD_S)
        shell.press("\x1a")
        shell.wait_for("Stopped")
        shell.press("echo in the $((1+1))nd shell\n")
        shell.wait_for("in the 2nd shell")
        shell.press("fg\n")
        until(lambda: shell.written.count(b"proxy_addon") >= 2, "it was told to go on", _GUARD_S)
        shell.press("two\n")
        until(lambda: shell.everything().count("two") == 2, "cat had answered", _GUARD_S)
        shell.press("\x04")
        shell.wait_for("no request came through")
        shell.press("echo code=$?; exit\n")
        shell.wait_for("code=0")


CRAWL = """
i=0
curl -q -sS -m 30 "$1/slow" &
while [ ! -e "$2" ]; do i=$((i + 1)); printf 'page %d of ' $i; printf 'the crawl\\n'; sleep 0.02; done
wait
echo "pages: $i"
"""


def test_the_progress_stays_out_of_the_commands_way(confdir: Path, tmp_path: Path, origin: Origin) -> None:
    origin.script = {"/slow": [respond(503), respond(body=b"")]}
    enough = tmp_path / "enough"
    flags = ("--ladder", "0,1,60", "--climb", "stall")
    command = ["sh", "-c", CRAWL, "sh", origin.url(""), str(enough)]
    with on_terminal(confdir, *command, flags=flags) as terminal:
        terminal.wait_for("1 slow host")
        shown = terminal.shown()
        assert shown[-1].startswith(f"paceproxy: 1 slow host, 1 waiting | {origin.host} rung 1 (1 s), 1 waiting")
        assert all(re.fullmatch(r"page \d+ of( the crawl)?|page|", line) for line in shown[-6:-2]), shown
        origin.wait_for(lambda origin: origin.hits("/slow") == 2)
        enough.touch()
        assert terminal.wait() == 0
        lines = [line for line in terminal.everything() if line]
        # All that it wrote is there, in order, each once.
        (count,) = (int(line.removeprefix("pages: ")) for line in lines if line.startswith("pages: "))
        pages = [line for line in lines if line.startswith("page ")]
        assert pages == [f"page {number} of the crawl" for number in range(1, count + 1)]
        assert "paceproxy: 1 of them would have failed without it" in lines
        # Gone, and the whole terminal is given back.
        assert not any("slow host," in line for line in terminal.shown())
        assert terminal.written.rindex(b"\x1b[r") > terminal.written.rindex(b"\x1b[1;%dr" % (ROWS - 1))


def test_the_progress_follows_the_size_of_the_terminal_and_has_no_colour_where_nobody_wants_it(
    confdir: Path, origin: Origin
) -> None:
    origin.script = {"/slow": [respond(503), respond(body=b"well")]}
    flags = ("--ladder", "0,2,60", "--climb", "stall")
    with on_terminal(confdir, "curl", "-q", "-sS", origin.url("/slow"), flags=flags, NO_COLOR="1") as terminal:
        terminal.wait_for("1 slow host")
        terminal.resize(ROWS + 4)
        until(lambda: terminal.shown()[-1].startswith("paceproxy: 1 slow host"), "it was at the bottom", _GUARD_S)
        assert "".join(terminal.shown()).count("slow host,") == 1
        assert terminal.wait() == 0
        assert "well" in "".join(terminal.shown())
        assert not re.search(rb"\x1b\[[0-9;]*[34][0-9]m", terminal.written)


def test_the_commands_exit_code_counts_though_nobody_can_read_what_is_said(confdir: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            from_the_start(confdir, ["sh", "-c", "echo alive; exit 3"]),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=_GUARD_S,
        )
    assert (done.returncode, done.stdout) == (3, "alive\n")


def test_a_file_without_certificates_is_named(confdir: Path) -> None:
    done = run(confdir, ["true"], environ={"SSL_CERT_FILE": "/dev/null"})
    assert done.returncode == 0
    assert done.stderr.startswith(
        "paceproxy: SSL_CERT_FILE names /dev/null, which holds no certificates: it is left out\n"
    )
