"""What stands between the clients of this environment and the pages they want: findings, from facts that are handed in.

Pure. The facts are gathered by `commands/doctor.py`; which client reads which variable is in `client_variables.py`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import SplitResult

from proxy_addon.client_variables import CLIENTS, Way, authority, way

_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")


class Grade(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """It stops some clients, and not others."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, in words for a person: what is so, and what to do."""

    grade: Grade
    text: str


def ways(url: SplitResult, environ: Mapping[str, str]) -> dict[str, Way]:
    """How each client goes to this URL, by its name."""
    host = (url.hostname or "").rstrip(".")
    return {client.name: way(client, scheme=url.scheme, host=host, environ=environ) for client in CLIENTS}


def proxying(found: Mapping[str, Way]) -> list[Finding]:
    """Who is proxied, by which variable; who is not, and why."""
    proxied, direct = _grouped(found, proxied=True), _grouped(found, proxied=False)
    findings = [
        Finding(Grade.OK, f"Proxied to {masked(example.proxy)} by {example.variable}: {', '.join(names)}.")
        for example, names in proxied
    ]
    if len({example.proxy for example, _ in proxied}) > 1:
        findings.append(
            Finding(Grade.PROBLEM, "The variables name different proxies. Give all of them the same: paceproxy env.")
        )
    if not proxied:
        # One remedy for all, whatever it is that each of them lacks.
        whys = "; ".join(f"{example.why} ({', '.join(names)})" for example, names in direct)
        text = f'No client is proxied: {whys}. In the shell of your crawler: eval "$(paceproxy env)".'
        return [Finding(Grade.PROBLEM, text)]
    return findings + [
        Finding(Grade.NOTE, f"Not proxied: {', '.join(names)}: {example.why}. To change that, {example.remedy}.")
        for example, names in direct
    ]


def proxy_of(found: Mapping[str, Way]) -> str | None:
    """The proxy that most clients take; None where none takes one."""
    names = [one.proxy for one in found.values() if one.proxy]
    return max(names, key=names.count) if names else None


def files(found: Mapping[str, Way], environ: Mapping[str, str]) -> dict[str, str]:
    """The files whose certificates the proxied clients trust, by the variable that names them."""
    named = (authority(client, environ) for client in CLIENTS if found[client.name].proxy)
    return {variable: environ[variable] for variable in named if variable is not None}


def trusting(found: Mapping[str, Way], environ: Mapping[str, str], refusals: Mapping[str, str | None]) -> list[Finding]:
    """Who trusts the proxy's authority, and who does not. `refusals` says for each variable why a client that goes by
    it does not trust what the proxy shows; None: it does."""
    trusted: dict[str, list[str]] = {}
    findings: list[Finding] = []
    unset: dict[str, list[str]] = {}
    for client in CLIENTS:
        if not found[client.name].proxy:
            continue
        variable = authority(client, environ)
        if not client.authorities:
            findings.append(Finding(Grade.NOTE, f"{client.name} reads no variable for certificates. {client.without}"))
        elif variable is None:
            unset.setdefault(client.authorities[0], []).append(client.name)
        elif refusals[variable] is None:
            trusted.setdefault(variable, []).append(client.name)
    results = [
        Finding(Grade.OK, f"{', '.join(names)}: trust the proxy's authority by {variable}.")
        for variable, names in trusted.items()
    ]
    results += [
        Finding(
            Grade.PROBLEM,
            f"{variable}={environ[variable]} does not make clients trust the proxy: {reason}. "
            f"Set it to the bundle that paceproxy env prints.",
        )
        for variable, reason in refusals.items()
        if reason is not None
    ]
    grade = Grade.NOTE if trusted else Grade.PROBLEM
    results += [
        Finding(
            grade,
            f"{', '.join(names)}: no trust in the proxy's authority, since {variable} is not set. "
            f"Set it to the bundle that paceproxy env prints.",
        )
        for variable, names in unset.items()
    ]
    return results + findings


def masked(proxy: str) -> str:
    """What names a proxy, without user and password: also where it is no URL, or where a password holds a `/`.

    Whatever stands before the last `@` may be one, and what is left says enough.
    """
    _, at, place = proxy.rpartition("@")
    scheme = _SCHEME.match(proxy)
    return f"{scheme[0] if scheme else ''}{place}" if at else proxy


def _grouped(found: Mapping[str, Way], *, proxied: bool) -> Iterable[tuple[Way, list[str]]]:
    """The clients that go the same way, with it."""
    groups: dict[Way, list[str]] = {}
    for name, one in found.items():
        if bool(one.proxy) is proxied:
            groups.setdefault(one, []).append(name)
    return list(groups.items())
