"""Prometheus's own tool, which knows best what Prometheus takes."""

import os
import shutil
import subprocess

import pytest


def run(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run promtool. Where there is none the test is skipped, but in CI it fails."""
    promtool = shutil.which("promtool")
    if promtool is None:
        reason = "promtool is not on PATH: install Debian's package prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return subprocess.run([promtool, *arguments], input=given, capture_output=True, check=False, timeout=60)
