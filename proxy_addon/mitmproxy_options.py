"""What the settings mean to mitmproxy as its options, and what the user may set there by `--set`.

Only for the proxy that we start ourselves: a user's own mitmproxy has its options from the user.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path

import certifi
from mitmproxy import exceptions, options
from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode, UpstreamMode

from proxy_addon.setting_places import Address
from proxy_addon.setting_sources import flag
from proxy_addon.settings import SETTINGS, SettingError, Settings

_OWN_SETTINGS = {
    "confdir": "confdir",
    "listen_host": "listen",
    "listen_port": "listen",
    "http2": "http2",
    "ssl_insecure": "ssl_insecure",
    "ssl_verify_upstream_trusted_ca": "upstream_ca",
}
"""Options of mitmproxy that are not for `--set`, by the setting that is checked and announced in their place."""


def set_options(opts: options.Options, settings: Settings, confdir: Path, undo: ExitStack) -> None:
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
        try:
            values["ssl_verify_upstream_trusted_ca"] = undo.enter_context(_bundle(settings.upstream_ca))
        except OSError as error:
            raise SettingError(
                "upstream_ca",
                f"needs a folder for temporary files: {error.strerror or error}",
                remedy="make /tmp writable, or name a folder that is by the variable TMPDIR",
            ) from error
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
