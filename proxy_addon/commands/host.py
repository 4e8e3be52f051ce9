"""`paceproxy host NAME ACTION`: resume a host, pause it, or set its floor, at a proxy that runs."""

import click

from proxy_addon.admin_client import AdminError, client_of
from proxy_addon.clock import SystemClock
from proxy_addon.commands import CommandError, Invocation
from proxy_addon.setting_kinds import decimal

_REFUSED = 1
_USUAL_PAUSE_S = 600.0


@click.command("host")
@click.argument("name")
@click.argument("action", type=click.Choice(["resume", "pause", "floor"]))
@click.argument("seconds", required=False)
@click.option("--admin", metavar="HOST:PORT", help="The proxy's admin address; else by the settings.")
@click.option(
    "--admin-token-file", metavar="FILE", help="The token, where the proxy asks for one; else by the settings."
)
@click.pass_obj
def command(
    invocation: Invocation, name: str, action: str, seconds: str | None, admin: str | None, admin_token_file: str | None
) -> int:
    """Change how the proxy treats the host NAME, as `paceproxy status` shows it.

    \b
      paceproxy host shop.example resume        forget its trouble, and ask it at once
      paceproxy host shop.example pause 1800    send it nothing for half an hour (without SECONDS: 10 minutes)
      paceproxy host shop.example floor 5       never ask it more often than every 5 s
      paceproxy host shop.example floor 0       take that away again

    Exit code 1 if no proxy answers, or it refuses.
    """
    if not name.strip():
        raise CommandError("NAME must be a host as paceproxy status shows it, got an empty one")
    change: dict[str, object] = {"action": action}
    if (given := _seconds(action, seconds)) is not None:
        change["seconds"] = given
    loaded = invocation.load_beside(flags={"admin": admin, "admin_token_file": admin_token_file})
    with loaded.named():
        client = client_of(loaded.settings)
    try:
        host = client.change(name, change)
    except AdminError as error:
        raise CommandError(str(error), _REFUSED) from error
    # Only here, since it brings rich.
    from proxy_addon.status_text import host_line

    click.echo(host_line(host, now=SystemClock().now()))
    return 0


def _seconds(action: str, text: str | None) -> float | None:
    if action == "resume":
        if text is not None:
            raise CommandError(f"resume takes no SECONDS, got {text!r}; leave them out")
        return None
    if text is None:
        if action == "floor":
            raise CommandError("floor needs SECONDS, such as floor 5; floor 0 takes it away")
        return _USUAL_PAUSE_S
    number = decimal(text)
    if number is None:
        raise CommandError(f"SECONDS must be decimal seconds, got {text!r}; give for instance {action} 5")
    return number
