"""The command `paceproxy` on a machine whose name server says nothing of the names that begin with `stuck`."""

import socket
import sys
import threading
from typing import Any

from proxy_addon import cli

_system = socket.getaddrinfo


def look_up(host: Any, *arguments: Any, **named: Any) -> Any:
    if str(host).startswith("stuck") and not named.get("flags", 0) & socket.AI_NUMERICHOST:
        threading.Event().wait()
    return _system(host, *arguments, **named)


if __name__ == "__main__":
    socket.getaddrinfo = look_up
    sys.exit(cli.main(sys.argv[1:]))
