"""What the proxy tells its user when it has started: where it is, and the two lines for a crawler's shell."""

import ipaddress
import logging
import shlex
from functools import partial
from pathlib import Path

import click

from proxy_addon import __version__
from proxy_addon.ca_bundle import CA_NAME, bundle_path, keep_bundle
from proxy_addon.client_environment import PROXY_VARIABLES, client_environment
from proxy_addon.embedded import EmbeddedProxy
from proxy_addon.local_address import local_address
from proxy_addon.log_file import STANDARD_OUTPUT
from proxy_addon.setting_places import Address
from proxy_addon.settings import Settings

logger = logging.getLogger(__name__)


def announce(proxy: EmbeddedProxy) -> None:
    """Print it: to standard output, unless that is the access log's."""
    say = partial(click.echo, err=proxy.settings.access_log == STANDARD_OUTPUT)
    settings, ca = proxy.settings, proxy.confdir / CA_NAME
    address = preferred(proxy.addresses)
    url = local_url(address)
    everywhere = ipaddress.ip_address(address[0].partition("%")[0]).is_unspecified
    also = ", and at every other address of this machine" if everywhere else ""
    say(f"paceproxy {__version__}: proxy listening at {url}{also}")
    if proxy.admin_address is not None:
        say(f"admin listening at {local_url(proxy.admin_address)} (status page, /metrics, /healthz, /readyz)")
    if settings.reverse_url is not None:
        say(f"Ask {url} for what you asked {settings.reverse_url} for; it takes no proxy settings.")
        return
    if settings.htpasswd is not None:
        url = url.replace("http://", "http://USER:PASSWORD@")
    variables = {
        name: shlex.quote(value)
        for name, value in client_environment(url, str(_bundle(settings, proxy.confdir))).items()
    }
    say(f"CA certificate: {ca}")
    say("For a crawler in another shell:")
    first = " ".join(f"{name}={value}" for name, value in variables.items() if name in PROXY_VARIABLES)
    second = " ".join(f"{name}={value}" for name, value in variables.items() if name not in PROXY_VARIABLES)
    say(f"  export {first}")
    say(f"  export {second}")


def preferred(addresses: list[tuple[str, int]]) -> tuple[str, int]:
    """The one of them to tell: every client knows IPv4."""
    return min(addresses, key=lambda address: ":" in address[0])


def local_url(address: tuple[str, int]) -> str:
    """Where a client on this machine reaches it."""
    return f"http://{local_address(Address(address[0].partition('%')[0], address[1]))}"


def _bundle(settings: Settings, confdir: Path) -> Path:
    """The bundle for clients, brought up to date; in a folder where it cannot be, our certificate alone."""
    try:
        return keep_bundle(bundle_path(settings, confdir), confdir)
    except OSError as error:
        logger.warning(
            "The bundle of certificates for clients cannot be kept in %s (%s): with our certificate alone they trust "
            "nothing that they reach without the proxy. Make the folder writable (confdir).",
            confdir,
            error.strerror or error,
        )
        return confdir / CA_NAME
