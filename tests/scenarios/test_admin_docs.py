"""What `docs/admin.md` says of the admin address is true: its commands are run, its names compared."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy_addon.settings import Settings
from tests.support.clients import RawClient
from tests.support.json_api import ask
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy

TEXT = (Path(__file__).parents[2] / "docs" / "admin.md").read_text("utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.replace("\\\n", "").splitlines()]
CURL = [command for command in COMMANDS if command.startswith("curl ")]


@pytest.fixture(scope="module")
def proxy(confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy(confdir=confdir) as running:
        yield running


@pytest.fixture
def host(proxy: Paceproxy, origin: Origin) -> str:
    """One that the proxy has been asked for."""
    with RawClient(proxy.port) as client:
        client.get(origin.url("/"))
        assert client.answer().status == 200
    return origin.host


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_there_are_commands_to_run() -> None:
    assert (len(CURL), len(COMMANDS)) == (7, 9)


@pytest.mark.parametrize("command", CURL)
def test_a_command_does_what_it_says(proxy: Paceproxy, host: str, tmp_path: Path, command: str) -> None:
    here = command.replace("127.0.0.1:9464", f"127.0.0.1:{proxy.admin_port}").replace("shop.example", host)
    done = run(here.replace("curl ", "curl -q -sS --noproxy '*' ", 1), tmp_path)
    if "/api/events" in command:
        assert done.returncode == 28, "it ends by --max-time"
        event, data = done.stdout.splitlines()[:2]
        assert event == "event: status"
        answer: Any = json.loads(data.removeprefix("data: "))
    else:
        assert (done.returncode, done.stderr) == (0, "")
        answer = json.loads(done.stdout)
    assert "error" not in answer


def test_the_token_is_made_as_it_says(tmp_path: Path) -> None:
    make, start = COMMANDS[-2:]
    assert run(make, tmp_path).returncode == 0
    assert start == "paceproxy --admin 0.0.0.0:9464 --admin-token-file admin.token"
    assert Settings(admin_token_file=str(tmp_path / "admin.token"))


def test_every_key_is_told_of(proxy: Paceproxy, host: str) -> None:
    table = TEXT.partition("A host:\n")[2].partition("\n`/api/hosts` lists")[0]
    told = [key for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(ask(proxy.admin_port, "GET", f"/api/hosts/{host}")[1])
    (status,) = re.findall(r"^`/api/status` has .*?\n\n", TEXT, re.MULTILINE | re.DOTALL)
    document = ask(proxy.admin_port, "GET", "/api/status")[1]
    assert set(re.findall(r"`(\w+)`", status)) == {*document, *document["recent"]}


def test_every_path_is_there_and_no_other_is_shown(proxy: Paceproxy, host: str) -> None:
    paths = re.findall(r"`(/[^`]*)`", TEXT.partition("| path |")[2].partition("\n\n")[0])
    for path in paths:
        if path != "/api/events":
            assert proxy.get(path.replace("NAME", host))[0] == 200
    shown = re.findall(r"^  (/\S*)  ", proxy.get("/nothing")[1], re.MULTILINE)
    assert sorted(shown) == sorted(paths)
