"""`paceproxy health`: asks a running proxy whether it is well, for probes that are a command, such as a container's.

It reads the same settings as the proxy, and so must be told them in the same way: by the environment or the file of
settings where the two do not share flags. Whether a host is slow does not belong here: the proxy is well then.
"""

import http.client
import socket

import click

from proxy_addon.commands import CommandError, Invocation
from proxy_addon.local_address import local_address
from proxy_addon.setting_places import Address
from proxy_addon.terminal_text import one_line

_NOT_WELL = 1
_LONGEST_SHOWN = 200
"""Characters of what the proxy says: it stays one readable line, also where something else listens."""


@click.command("health")
@click.option("--ready", is_flag=True, help="Ask whether it takes requests: neither starting nor about to end.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=4.0, metavar="SECONDS", show_default=True
)
@click.pass_obj
def command(invocation: Invocation, ready: bool, timeout_s: float) -> int:
    """Exit code 0 if the proxy is well, 1 with a line that says why if it is not.

    \b
      paceproxy health
      paceproxy --admin 127.0.0.1:9464 health --ready

    It asks the admin address. Where there is none (--admin off), whether the proxy's own takes connections.
    """
    settings = invocation.load_beside().settings
    if settings.admin_address is None:
        click.echo(_connect(local_address(settings.listen_address), timeout_s))
    else:
        click.echo(_ask(local_address(settings.admin_address), "/readyz" if ready else "/healthz", timeout_s))
    return 0


def _ask(address: Address, path: str, timeout_s: float) -> str:
    """What it says. Unlike most clients, this one knows no proxy variables."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        said = one_line(response.read(_LONGEST_SHOWN).decode("ascii", "replace"))
    except OSError as error:
        raise _no_answer(address, "admin", error.strerror or str(error)) from error
    except http.client.HTTPException as error:
        raise _no_answer(address, "admin", "what listens there does not speak HTTP") from error
    finally:
        connection.close()
    if response.status != 200:
        raise CommandError(f"http://{address}{path} says {response.status}: {said}", _NOT_WELL)
    return said


def _connect(address: Address, timeout_s: float) -> str:
    try:
        socket.create_connection((address.host, address.port), timeout_s).close()
    except OSError as error:
        raise _no_answer(address, "listen", error.strerror or str(error)) from error
    return "takes connections"


def _no_answer(address: Address, setting: str, reason: str) -> CommandError:
    return CommandError(
        f"no answer at http://{address}: {reason}; start the proxy, or give the --{setting} that it has", _NOT_WELL
    )
