"""`paceproxy doctor URL`: what stands between this shell's clients and a page, found out by asking, in words.

What is judged is in `diagnosis.py`, what is asked in `proxy_probe.py`.
"""

from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import SplitResult, quote, urlsplit

import click

from proxy_addon import diagnosis, proxy_probe
from proxy_addon.admin_client import AdminError, client_of
from proxy_addon.commands import CommandError, Invocation
from proxy_addon.diagnosis import Finding, Grade
from proxy_addon.hosts import host_key
from proxy_addon.local_address import local_address
from proxy_addon.proxy_probe import NoAnswer
from proxy_addon.settings import SettingError, Settings
from proxy_addon.status_text import host_reason
from proxy_addon.terminal_text import one_line

_PROBLEMS = 1
"""Exit code: something is wrong."""
_BAD_REQUEST = 400
_PROXY_AUTHENTICATION_REQUIRED = 407
_USUAL_PORTS = {"http": 80, "https": 443}
_AS_IT_IS = "!#$%&'()*+,/:;=?@[]~"
"""What may stand in a path or a query, escapes that are there already included (RFC 3986, appendix A)."""


@click.command("doctor")
@click.argument("url")
@click.option("--admin", metavar="HOST:PORT", help="The proxy's admin address, if it is not the usual one.")
@click.pass_obj
def command(invocation: Invocation, url: str, admin: str | None) -> int:
    """Say what is wrong between the clients of this shell and URL.

    It sends one request through the proxy that the environment names (or that listens at the usual address) and looks
    at which clients would take it, whether they would trust it, and what it says of the host. The exit code is 1 where
    there is a problem.

    \b
      paceproxy doctor https://shop.example/
    """
    place = _parsed(url)
    colours = {Grade.OK: "green", Grade.NOTE: "yellow", Grade.PROBLEM: "red"}
    worst = 0
    for finding in _findings(place, invocation, admin):
        label = click.style(f"{finding.grade:<8}", fg=colours[finding.grade], bold=finding.grade is Grade.PROBLEM)
        click.echo(f"{label} {one_line(finding.text)}")
        if finding.grade is Grade.PROBLEM:
            worst = _PROBLEMS
    return worst


def _parsed(url: str) -> SplitResult:
    """The page's URL as a client writes it on the wire: in ASCII, without user, password and fragment, and with the
    pacing key for its authority."""
    with suppress(ValueError):  # A port that is no number, say.
        place = urlsplit(url)
        if place.scheme in ("http", "https") and place.hostname and place.port != 0:
            authority = host_key(place.scheme, place.hostname, place.port or _USUAL_PORTS[place.scheme])
            path, query = (quote(part, safe=_AS_IT_IS, errors="surrogateescape") for part in (place.path, place.query))
            return SplitResult(place.scheme, authority, path, query, "")
    raise CommandError(f"{diagnosis.masked(url)!r} is no URL of a page; give one such as https://shop.example/")


def _proxy_place(named: str) -> SplitResult | None:
    """The URL of a Paceproxy that a variable may name; None where this is none."""
    with suppress(ValueError):  # A port that is no number, a bracket that is left open.
        place = urlsplit(named if "://" in named else f"http://{named}")
        if place.scheme == "http" and place.hostname and place.port != 0:
            return place
    return None


def _findings(place: SplitResult, invocation: Invocation, admin: str | None) -> Iterator[Finding]:
    environ = invocation.environ
    settings = invocation.load_beside(flags={"admin": admin}).settings
    found = diagnosis.ways(place, environ)
    yield from diagnosis.proxying(found)
    named = diagnosis.proxy_of(found) or f"http://{local_address(settings.listen_address)}"
    proxy = _proxy_place(named)
    shown = diagnosis.masked(named if "://" in named else f"http://{named}")
    if proxy is None:
        yield Finding(Grade.PROBLEM, f"{shown} is no URL of a Paceproxy, which is reached by http://HOST:PORT.")
        return
    try:
        answer = proxy_probe.identify(proxy)
    except NoAnswer as failure:
        start = "Start it with paceproxy, or together with your crawler: paceproxy run -- COMMAND."
        yield Finding(Grade.PROBLEM, f"No proxy answers at {shown}: {failure}. {start}")
        return
    if answer.status == _PROXY_AUTHENTICATION_REQUIRED:
        yield Finding(Grade.PROBLEM, f"The proxy at {shown} wants to know who asks: http://USER:PASSWORD@HOST:PORT.")
        return
    if not answer.is_from_paceproxy:
        yield Finding(Grade.PROBLEM, f"What listens at {shown} is no Paceproxy: it answered {answer.status}.")
        return
    yield Finding(Grade.OK, f"A Paceproxy listens at {shown}.")
    yield _on_the_host(settings, place.netloc)
    authorities = None
    if place.scheme == "https":
        host, port = place.hostname or "", place.port or _USUAL_PORTS[place.scheme]
        try:
            refusals = {
                variable: proxy_probe.refuses_certificate(proxy, host, port, path)
                for variable, path in diagnosis.files(found, environ).items()
            }
        except NoAnswer as failure:
            yield Finding(Grade.PROBLEM, f"The proxy opens no tunnel to {host}:{port}: {failure}.")
            return
        yield from diagnosis.trusting(found, environ, refusals)
        authorities = next((environ[name] for name, reason in refusals.items() if reason is None), None)
    yield from _on_the_page(proxy, place, authorities)


def _on_the_host(settings: Settings, host: str) -> Finding:
    """Before the page is asked for: what comes of that may change it."""
    try:
        status = client_of(settings).status()
    except (AdminError, SettingError) as failure:
        return Finding(Grade.NOTE, f"Whether the host is slow cannot be told: {failure}.")
    slow = next((one for one in status.hosts if one.host == host), None)
    if slow is None:
        return Finding(Grade.OK, f"{host} is not slow.")
    return Finding(Grade.NOTE, f"The host is slow. {host_reason(slow, now=status.at)}.")


def _on_the_page(proxy: SplitResult, place: SplitResult, authorities: str | None) -> Iterator[Finding]:
    url = place.geturl()
    try:
        answer = proxy_probe.get(proxy, place, authorities)
    except NoAnswer as failure:
        yield Finding(Grade.PROBLEM, f"{url} brought no answer through the proxy: {failure}.")
        return
    said = f"{answer.status} {answer.reason}".strip()
    if answer.is_from_paceproxy:
        yield Finding(Grade.PROBLEM, f"{url} did not come: {said}, from the proxy itself: {answer.text}")
    elif answer.status >= _BAD_REQUEST:
        yield Finding(Grade.NOTE, f"{url} came: {said}, which is what the origin says, passed on as it is.")
    else:
        yield Finding(Grade.OK, f"{url} came: {said}.")
