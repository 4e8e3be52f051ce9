"""The command `paceproxy` on a machine whose name server knows `shop.test`, which is this machine.

Some clients go past their proxy for `localhost` and the addresses of loopback, whatever the environment says. And only
the proxy can resolve this name: a page from there came through it.
"""

import socket
import sys
from typing import Any

from proxy_addon import cli

NAME = "shop.test"

_system = socket.getaddrinfo


def look_up(host: Any, *arguments: Any, **named: Any) -> Any:
    return _system("127.0.0.1" if host == NAME else host, *arguments, **named)


if __name__ == "__main__":
    socket.getaddrinfo = look_up
    sys.exit(cli.main(sys.argv[1:]))
