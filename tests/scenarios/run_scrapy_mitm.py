"""The independent check: Scrapy's own tests of crawling through a MITM proxy, with mitmdump and with ours.

    python tests/scenarios/run_scrapy_mitm.py

It fetches Scrapy's source distribution, makes a virtual environment with what its tests need (both kept in
`build/scrapy-mitm`), and runs `tests/test_downloader_handler_*.py -k Mitm` three times: with mitmdump, with
our addon in mitmdump, and with our command. Scrapy finds each by the variable MITMDUMP. Exit code 0 if ours
pass every test that mitmdump passes. It needs the network, and two minutes for the first run, so it is no part
of the default test run. Run it with the interpreter of an environment in which this project is installed.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_SCRAPY = "2.19.0"
"""Another version may call mitmdump with arguments that the wrapper does not know."""
_REQUIREMENTS = (
    "Twisted[http2]",
    "aiohttp",
    "httpx2[http2,socks]",
    "pexpect",
    "psutil",
    "pyftpdlib>=2.0.1",
    "pygments",
    "pytest==9.1.1",  # 9.2 warns of a fixture in Scrapy 2.19.0, and there warnings are errors
    "pytest-rerunfailures",
    "pytest-timeout",
    "pytest-twisted>=1.14.3",
    "sybil>=1.3.0",
)
"""Of Scrapy's tox.ini, what these tests import."""
_HERE = Path(__file__).resolve().parent
_WORK = _HERE.parents[1] / "build" / "scrapy-mitm"
_TIMEOUT_S = 900


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scrapy", default=_SCRAPY, help=f"Scrapy's version ({_SCRAPY})")
    parser.add_argument("--work", type=Path, default=_WORK, help=f"folder for what it makes ({_WORK})")
    parser.add_argument("--only", help="run one of the three, by its name")
    options = parser.parse_args()
    source = _fetch(options.scrapy, options.work)
    python = _environment(options.scrapy, options.work, source)
    results = {
        name: _run(command, options.work, source, python)
        for name, command in _commands(options.work).items()
        if options.only in (None, name)
    }
    for name, outcomes in results.items():
        counts = Counter(outcomes.values())
        _say(f"{name}: {', '.join(f'{counts[kind]} {kind}' for kind in sorted(counts))}")
    return _compare(results)


def _commands(work: Path) -> dict[str, Path]:
    """Every proxy as an executable: MITMDUMP names a file, without arguments."""
    mitmdump = Path(sys.executable).with_name("mitmdump")
    addon = _HERE.parents[1] / "proxy_addon" / "addon.py"
    lines = {
        "mitmdump": [str(mitmdump)],
        # Scrapy starts several at once, which cannot all have the one admin address.
        "mitmdump with our addon": [
            *(str(mitmdump), "-s", str(addon)),
            *("--set", "pace_admin=off", "--set", "pace_store=memory:"),
        ],
        "paceproxy": [sys.executable, str(_HERE / "mitmdump_wrapper.py")],
    }
    return {name: _executable(work / name.replace(" ", "-"), line) for name, line in lines.items()}


def _executable(path: Path, line: list[str]) -> Path:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(line)} "$@"\n')
    path.chmod(0o755)
    return path


def _fetch(version: str, work: Path) -> Path:
    """Scrapy's source distribution, unpacked; fetched only once."""
    source = work / f"scrapy-{version}"
    if not source.exists():
        work.mkdir(parents=True, exist_ok=True)
        download = ["download", "--no-deps", "--no-binary", "scrapy", "--dest", str(work), f"scrapy=={version}"]
        subprocess.run([sys.executable, "-m", "pip", *download], check=True)
        with tarfile.open(work / f"scrapy-{version}.tar.gz") as archive:
            archive.extractall(work, filter="data")
    return source


def _environment(version: str, work: Path, source: Path) -> Path:
    """The interpreter of an environment with Scrapy and what its tests need; made only once."""
    folder = work / f"venv-{version}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", str(source), *_REQUIREMENTS], check=True)
        ready.touch()
    return python


def _run(command: Path, work: Path, source: Path, python: Path) -> dict[str, str]:
    """Run the tests with one proxy: the outcome of each by its name."""
    report = work / f"{command.name}.xml"
    report.unlink(missing_ok=True)
    tests = sorted(str(path) for path in (source / "tests").glob("test_downloader_handler_*.py"))
    arguments = ["-k", "Mitm", "-p", "no:cacheprovider", "-q", f"--junitxml={report}", *tests]
    subprocess.run(
        [str(python), "-m", "pytest", *arguments],
        cwd=source,
        env=_environ({"MITMDUMP": str(command)}),
        check=False,  # Failures are what is counted; a run without a report raises below.
        timeout=_TIMEOUT_S,
    )
    return {
        f"{case.get('classname')}::{case.get('name')}": _outcome(case)
        for case in ET.parse(report).getroot().iter("testcase")
    }


def _outcome(case: ET.Element) -> str:
    for kind, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if case.find(kind) is not None:
            return outcome
    return "passed"


def _compare(results: Mapping[str, Mapping[str, str]]) -> int:
    """Say which tests mitmdump passes and ours do not; the exit code."""
    reference = results.get("mitmdump", {})
    bad = {
        f"{name}: {test}: {outcome}"
        for name, outcomes in results.items()
        for test, outcome in outcomes.items()
        if outcome != "passed" and (reference.get(test, outcome) == "passed" or outcome == "failed")
    }
    for line in sorted(bad):
        _say(line)
    missing = [name for name, outcomes in results.items() if "passed" not in outcomes.values()]
    return 1 if bad or missing or not results else 0


def _environ(more: Mapping[str, str]) -> dict[str, str]:
    """Ours, without a proxy: the tests set their own."""
    return {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")} | dict(more)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
