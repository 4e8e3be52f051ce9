"""`paceproxy doctor URL`: what stands between this shell's clients and a page, found out by asking, in words.

What is judged is in `diagnosis.py`, what is asked in `proxy_probe.py`.
"""

from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

import click

from proxy_addon import diagnosis, proxy_probe
from proxy_addon.admin_client import AdminError, client_of
from proxy_addon.commands import CommandError, Invocation
from proxy_addon.diagnosis import Finding, Grade
from proxy_addon.hosts import host_key
from proxy_addon.proxy_probe import NoAnswer
from proxy_addon.setting_places import Address
from proxy_addon.settings import Settings
from proxy_addon.status_text import host_reason

_PROBLEMS = 1
"""Exit code: something is wrong."""
_BAD_REQUEST = 400
_PROXY_AUTHENTICATION_REQUIRED = 407


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
        click.echo(f"{label} {finding.text}")
        if finding.grade is Grade.PROBLEM:
            worst = _PROBLEMS
    return worst


def _parsed(url: str) -> SplitResult:
    place = urlsplit(url)
    with suppress(ValueError):  # A port that is no number.
        if place.scheme in ("http", "https") and place.hostname and place.port != 0:
            return place
    raise CommandError(f"{diagnosis.masked(url)!r} is no URL of a page; give one such as https://shop.example/")


def _findings(place: SplitResult, invocation: Invocation, admin: str | None) -> Iterator[Finding]:
    environ = invocation.environ
    settings = invocation.load_beside(flags={"admin": admin}).settings
    found = diagnosis.ways(place, environ)
    yield from diagnosis.proxying(found)
    named = diagnosis.proxy_of(found) or f"http://{_reachable(settings.listen_address)}"
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    shown = diagnosis.masked(proxy.geturl())
    if proxy.scheme != "http":
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
    host, port = place.hostname or "", place.port or (443 if place.scheme == "https" else 80)
    yield _on_the_host(settings, host_key(place.scheme, host, port))
    authorities = None
    if place.scheme == "https":
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
    except AdminError as failure:
        return Finding(Grade.NOTE, f"Whether the host is slow cannot be told: {failure}.")
    slow = next((one for one in status.hosts if one.host == host), None)
    if slow is None:
        return Finding(Grade.OK, f"{host} is not slow.")
    return Finding(Grade.NOTE, f"The host is slow. {host_reason(slow, now=status.at)}.")


def _on_the_page(proxy: SplitResult, place: SplitResult, authorities: str | None) -> Iterator[Finding]:
    url = diagnosis.masked(place.geturl())
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


def _reachable(address: Address) -> Address:
    """One of this machine for an address that only a listener can use."""
    return Address({"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host), address.port)
