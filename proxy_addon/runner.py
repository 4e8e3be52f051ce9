"""The embedded runner: a mitmproxy master with only the addons that a pacing proxy needs, from start to exit code.

A full `mitmdump` spends most of its time on dispatching hooks to addons that are of no use here. Which settings exist
is in `settings.py`, what happens to a request in `addon.py`.
"""

import asyncio
import ipaddress
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path

import certifi
import click
from mitmproxy import certs, exceptions, master, options
from mitmproxy.addons import core, next_layer, proxyserver, tlsconfig, upstream_auth
from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode, UpstreamMode

from proxy_addon import __version__, logs
from proxy_addon.access import PasswordFile
from proxy_addon.addon import Paceproxy, os_error_text
from proxy_addon.clock import SystemClock
from proxy_addon.collector import Collector
from proxy_addon.setting_places import Address
from proxy_addon.setting_sources import flag
from proxy_addon.settings import SETTINGS, SettingError, Settings
from proxy_addon.signals import Signals

logger = logging.getLogger(__name__)

CA_NAME = "mitmproxy-ca-cert.pem"
"""What mitmproxy calls the certificate of its authority, in the confdir."""
_OWN_SETTINGS = {
    "confdir": "confdir",
    "listen_host": "listen",
    "listen_port": "listen",
    "http2": "http2",
    "ssl_insecure": "ssl_insecure",
    "ssl_verify_upstream_trusted_ca": "upstream_ca",
}
"""Options of mitmproxy that are not for `--set`, by the setting that is checked and announced in their place."""


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. Raises `SettingError` where it cannot start."""
    logs.configure(settings.log_level)
    with ExitStack() as undo:
        return asyncio.run(_serve(settings, undo))


async def _serve(settings: Settings, undo: ExitStack) -> int:
    signals = Signals()
    signals.install()
    confdir = _prepare_confdir(settings)
    _check_authority(confdir)
    proxy = master.Master(options.Options())
    clock = SystemClock()
    addon = Paceproxy(settings, clock)
    listeners = proxyserver.Proxyserver()
    proxy.addons.add(core.Core(), listeners, next_layer.NextLayer(), tlsconfig.TlsConfig())
    if settings.htpasswd is not None:
        proxy.addons.add(PasswordFile(settings.htpasswd, clock))
    if settings.upstream is not None or settings.reverse is not None:
        proxy.addons.add(upstream_auth.UpstreamAuth())
    proxy.addons.add(addon)
    try:
        _set_options(proxy.options, settings, confdir, undo)
        await addon.start()
        await _listen(listeners, settings)
        # First: who reads that it listens may send a signal at once.
        signals.serving(proxy, listeners, addon, settings.drain)
        _announce(settings, listeners.listen_addrs(), addon.admin_address, confdir)
        collector = Collector(clock, held=lambda: addon.engine.waiting, ended=lambda: addon.engine.ended)
        collecting = asyncio.get_running_loop().create_task(collector.run())
        await proxy.run()
        collecting.cancel()
    except asyncio.CancelledError:
        if not signals.came_at_start:
            raise
    finally:
        await addon.stop()
    return 0


def _prepare_confdir(settings: Settings) -> Path:
    """The folder of the CA, for its owner's eyes only where we make it."""
    confdir = Path(settings.confdir).expanduser()
    try:
        confdir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(confdir, os.W_OK | os.X_OK) and not (confdir / "mitmproxy-ca.pem").exists():
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        raise SettingError(
            "confdir",
            f"cannot be used: {error.strerror}",
            value=settings.confdir,
            remedy="give a folder that can be written to",
        ) from error
    return confdir


def _check_authority(confdir: Path) -> None:
    """Refuse a CA that mitmproxy could not use: it logs that, and goes on without one."""
    if not (confdir / "mitmproxy-ca.pem").exists():
        return
    try:
        certs.CertStore.from_store(confdir, "mitmproxy", key_size=2048)
    except TypeError:
        # The key is encrypted, and is opened by `--set cert_passphrase=…`.
        return
    except (OSError, ValueError, IndexError) as error:
        raise SettingError(
            "confdir",
            "holds a certificate authority that cannot be used",
            value=str(confdir),
            remedy="correct or remove its mitmproxy-ca.pem; without one a new authority is made",
        ) from error


def _set_options(opts: options.Options, settings: Settings, confdir: Path, undo: ExitStack) -> None:
    """What the settings mean to mitmproxy; then what the user sets by `--set`."""
    listen = settings.listen_address
    values: dict[str, object] = {
        "confdir": str(confdir),
        "listen_host": listen.host,
        "listen_port": listen.port,
        "http2": settings.http2,
        "http3": False,
        "ssl_insecure": settings.ssl_insecure,
    }
    if settings.upstream_url is not None:
        parent = settings.upstream_url
        values["mode"] = [f"upstream:{parent}"]
        if parent.user:
            values["upstream_auth"] = f"{parent.user}:{parent.password}"
    if settings.reverse_url is not None:
        values["mode"] = [f"reverse:{settings.reverse_url}"]
    if settings.upstream_ca is not None:
        values["ssl_verify_upstream_trusted_ca"] = undo.enter_context(_bundle(settings.upstream_ca))
    opts.update(**values)
    for item in settings.set:
        name = item.partition("=")[0]
        if name in _OWN_SETTINGS:
            remedy = f"use {flag(_OWN_SETTINGS[name])}"
            raise SettingError("set", "names an option that a setting stands for", value=item, remedy=remedy)
        if name not in opts:
            close = get_close_matches(name, opts.keys(), n=1)
            remedy = f"did you mean {close[0]}?" if close else "see `mitmdump --options` for those of its core"
            if (own := name.removeprefix("pace_")) in SETTINGS:
                remedy = f"use {flag(own)}"
            raise SettingError("set", "names no option of mitmproxy that is loaded", value=item, remedy=remedy)
        try:
            opts.set(item)
        except exceptions.OptionsError as error:
            # Without mitmproxy's own words: they repeat the value, which may hold a password.
            raise SettingError(
                "set", f"gives {name} a value that mitmproxy refuses", value=item, remedy="correct it"
            ) from error
    _check_modes(opts, settings)


def _check_modes(opts: options.Options, settings: Settings) -> None:
    """Refuse what `--set mode=…` must not do: be an open proxy, or what a setting is there for."""
    for spec in opts.mode:
        mode = ProxyMode.parse(spec)
        if isinstance(mode, UpstreamMode | ReverseMode) and not (settings.upstream or settings.reverse):
            raise SettingError(
                "set", f"gives mode a value that is a setting, {mode.type_name}", remedy=f"use --{mode.type_name}"
            )
        address = Address(mode.listen_host(opts.listen_host), mode.listen_port(opts.listen_port) or 0)
        if not address.is_loopback and not settings.htpasswd and not settings.allow:
            raise SettingError(
                "set",
                f"gives mode a value that opens the proxy to everybody, on {address}",
                remedy="add --htpasswd FILE or --allow 10.0.0.0/8, or listen on a loopback address",
            )


@contextmanager
def _bundle(path: str) -> Iterator[str]:
    """A file with the usual authorities and the user's, for as long as the proxy runs."""
    with tempfile.NamedTemporaryFile("w", prefix="paceproxy-", suffix=".pem", encoding="ascii") as bundle:
        bundle.write(Path(certifi.where()).read_text(encoding="ascii"))
        bundle.write("\n" + Path(path).expanduser().read_text(encoding="utf-8").encode("ascii", "replace").decode())
        bundle.flush()
        yield bundle.name


async def _listen(listeners: proxyserver.Proxyserver, settings: Settings) -> None:
    # It logs a failure in words of its own, over several lines.
    with _silent("mitmproxy.addons.proxyserver", "mitmproxy.proxy.mode_servers"):
        listening = await listeners.setup_servers()
    if listening:
        if not listeners.listen_addrs():
            raise SettingError("set", "leaves the proxy without a listener", remedy="leave out server=false")
        return
    errors = [server.last_exception for server in listeners.servers if server.last_exception]
    raise SettingError(
        "listen",
        f"cannot be listened on: {_reason(errors[0] if errors else None)}",
        value=settings.listen,
        remedy="stop what uses it, or give another address, or 127.0.0.1:0 for any free port",
    )


def _reason(error: BaseException | None) -> str:
    # mitmproxy and asyncio raise it anew, with texts of their own.
    while isinstance(error, OSError) and isinstance(error.__cause__, OSError):
        error = error.__cause__
    return os_error_text(error) if isinstance(error, OSError) else str(error)


@contextmanager
def _silent(*names: str) -> Iterator[None]:
    """These loggers say nothing meanwhile."""
    loggers = [logging.getLogger(name) for name in names]
    for one in loggers:
        one.disabled = True
    try:
        yield
    finally:
        for one in loggers:
            one.disabled = False


def _announce(
    settings: Settings, addresses: Sequence[tuple[str, int]], admin: tuple[str, int] | None, confdir: Path
) -> None:
    """What a user needs to know, and the two lines to export."""
    # Every client knows IPv4.
    address = min(addresses, key=lambda address: ":" in address[0])
    url, ca = _url(address), confdir / CA_NAME
    everywhere = ipaddress.ip_address(address[0].partition("%")[0]).is_unspecified
    also = ", and at every other address of this machine" if everywhere else ""
    click.echo(f"paceproxy {__version__}: proxy listening at {url}{also}")
    if admin is not None:
        click.echo(f"admin listening at {_url(admin)} (/metrics, /healthz, /readyz)")
    if settings.reverse_url is not None:
        click.echo(f"Ask {url} for what you asked {settings.reverse_url} for; it takes no proxy settings.")
        return
    if settings.htpasswd is not None:
        url = url.replace("http://", "http://USER:PASSWORD@")
    click.echo(f"CA certificate: {ca}")
    click.echo("For a crawler in another shell:")
    click.echo(f"  export HTTP_PROXY={url} HTTPS_PROXY={url} http_proxy={url} https_proxy={url}")
    click.echo(f"  export SSL_CERT_FILE={ca} REQUESTS_CA_BUNDLE={ca} CURL_CA_BUNDLE={ca} NODE_EXTRA_CA_CERTS={ca}")


def _url(address: tuple[str, int]) -> str:
    """Where a client on this machine reaches it."""
    ip = ipaddress.ip_address(address[0].partition("%")[0])
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
    return f"http://{f'[{ip}]' if ip.version == 6 else ip}:{address[1]}"
