"""Prometheus's own tool, which knows best what Prometheus takes."""

import subprocess

from tests.support.programs import find


def run(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run promtool. Where there is none the test is skipped, but in CI it fails."""
    promtool = find("promtool", package="prometheus")
    return subprocess.run([promtool, *arguments], input=given, capture_output=True, check=False, timeout=60)
