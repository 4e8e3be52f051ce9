"""The limit of open files, in a process of its own: it cannot be lowered again."""

import subprocess
import sys

_LIMITS = """
import resource
from proxy_addon.open_files import raise_limit

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""


def test_it_may_open_as_many_files_as_the_system_lets_it() -> None:
    done = subprocess.run([sys.executable, "-c", _LIMITS], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n"
