"""Programs that a test needs and that do not come with Python packages."""

import os
import shutil
from typing import NoReturn

import pytest


def find(name: str, *, package: str) -> str:
    """The path of a program. Where there is none the test is skipped, but in CI it fails."""
    path = shutil.which(name)
    if path is None:
        miss(f"{name} is not on PATH: install Debian's package {package}")
    return path


def miss(reason: str) -> NoReturn:
    """What the test needs is not there."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
