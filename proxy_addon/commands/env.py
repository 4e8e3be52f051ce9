"""`paceproxy env`: the variables by which clients find a proxy that runs already, and trust it, ready for a shell."""

from pathlib import Path

import click

from proxy_addon.ca_bundle import CA_NAME, bundle_path, confdir_path, keep_bundle
from proxy_addon.client_environment import client_environment
from proxy_addon.commands import CommandError, Invocation
from proxy_addon.local_address import local_address
from proxy_addon.setting_kinds import BadValue
from proxy_addon.setting_places import Address, HttpUrl, parse_url
from proxy_addon.settings import Settings
from proxy_addon.shell_syntax import SYNTAXES, Syntax

_PLACEHOLDER = "USER:PASSWORD"


@click.command("env")
@click.option(
    "--shell", type=click.Choice(list(SYNTAXES)), default="sh", show_default=True, help="For whom to write them."
)
@click.option(
    "--proxy", metavar="URL", help="Where clients reach the proxy; else where it listens by the settings (--listen)."
)
@click.option(
    "--ca-bundle", metavar="PATH", help="Where clients have the file of certificates; else where it is on this machine."
)
@click.pass_obj
def command(invocation: Invocation, shell: str, proxy: str | None, ca_bundle: str | None) -> int:
    """Print the variables by which clients find a proxy that runs already, and trust it.

    The certificates are those of this system and of the proxy's authority, in one file that stays, beside the
    authority (--confdir).

    \b
      eval "$(paceproxy env)"
      paceproxy env --shell fish | source
      paceproxy env --shell docker --proxy http://172.17.0.1:8080 > proxy.env
      paceproxy --config paceproxy.yaml env --shell k8s --ca-bundle /etc/paceproxy/ca.pem
    """
    settings = invocation.load_beside().settings
    syntax = SYNTAXES[shell]
    url = _listening(settings) if proxy is None else _given(proxy)
    bundle = str(_kept(settings)) if ca_bundle is None else ca_bundle
    call = f"paceproxy env --shell {shell}"
    comments = [f"The proxy at {_without_user(url)}. Use: {syntax.use.format(command=call)}"]
    comments += _remarks(syntax, url, bundle)
    try:
        click.echo(syntax.write(client_environment(url, bundle), comments))
    except ValueError as error:
        raise CommandError(f"{error}; give another with --ca-bundle") from error
    return 0


def _listening(settings: Settings) -> str:
    """Where a client on this machine reaches the proxy that these settings start."""
    if settings.reverse_url is not None:
        raise CommandError(
            f"reverse: clients need no variables; they ask the proxy for what they asked {settings.reverse_url} for"
        )
    address = settings.listen_address
    if address.port == 0:
        raise CommandError("listen has port 0, which is any free port; say which it got: --proxy http://127.0.0.1:PORT")
    user = f"{_PLACEHOLDER}@" if settings.htpasswd is not None else ""
    return f"http://{user}{local_address(address)}"


def _given(proxy: str) -> str:
    kind = HttpUrl(credentials=True)
    try:
        return kind.parse(proxy).rstrip("/")
    except BadValue as error:
        raise CommandError(f"--proxy {error.problem}, got {kind.mask(proxy)}; {error.remedy or kind.remedy}") from error


def _without_user(url: str) -> str:
    return str(parse_url(url))


def _kept(settings: Settings) -> Path:
    """The bundle that the proxy has written at its start, brought up to date."""
    confdir = confdir_path(settings).absolute()
    bundle = bundle_path(settings, confdir)
    try:
        return keep_bundle(bundle, confdir)
    except FileNotFoundError as error:
        raise CommandError(
            f"confdir: {confdir} holds no certificate authority ({CA_NAME}) yet; start the proxy once, or say with"
            " --confdir which folder it has, or with --ca-bundle where clients have its certificates"
        ) from error
    except OSError as error:
        if bundle.is_file():
            # Of a proxy that runs as somebody else.
            return bundle
        raise CommandError(
            f"confdir: {error.filename or bundle} cannot be used ({error.strerror or error}); run this as the user"
            " that runs the proxy, or say with --ca-bundle where clients have its certificates"
        ) from error


def _remarks(syntax: Syntax, url: str, bundle: str) -> list[str]:
    """What the variables do not do by themselves."""
    remarks = []
    if f"//{_PLACEHOLDER}@" in url:
        remarks.append(f"It asks for a password: put a user of your htpasswd file in place of {_PLACEHOLDER}.")
    if syntax.elsewhere:
        remarks.append(f"Mount the file of certificates where the container looks for it, read-only: {bundle}")
        parsed = parse_url(url)
        if Address(parsed.host, parsed.port).is_loopback:
            remarks.append(
                f"{parsed.host} is the container's own: the proxy must be in the same pod, or share its network."
            )
    return remarks
