"""The settings: one declaration each, from which come the flag, the environment variable, the key of the YAML file,
the mitmproxy option and the tables in the documentation.

Here is what there is to set. Which values go together is in `setting_conflicts.py`, how a kind of value is read in
`setting_kinds.py`, `setting_lists.py` and `setting_places.py`, where values come from in `setting_sources.py`.
"""

import os
from collections.abc import Iterable
from functools import cached_property
from ipaddress import ip_network
from types import MappingProxyType
from typing import Annotated, Any, Self

from platformdirs import user_state_path
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from proxy_addon.setting_about import About, Documented, Group
from proxy_addon.setting_conflicts import find_conflict
from proxy_addon.setting_kinds import (
    BadValue,
    Choice,
    Count,
    CountOrWord,
    Kind,
    Seconds,
    Size,
    Switch,
    to_text,
)
from proxy_addon.setting_lists import (
    DEFAULT,
    STALL_NAMES,
    Denied,
    HostNames,
    Ladder,
    Network,
    Networks,
    Options,
    Ports,
    Stalls,
)
from proxy_addon.setting_logs import LogPlace
from proxy_addon.setting_places import (
    OFF,
    Address,
    Folder,
    HttpUrl,
    Listener,
    NewFile,
    ReadableFile,
    StoreUrl,
    Url,
    check_certificates,
    check_htpasswd,
    parse_address,
    parse_url,
)
from proxy_addon.setting_tokens import check_token

_LONGEST_SHOWN = 200
"""Characters of a value in a message: it stays one readable line."""


class SettingError(Exception):
    """A setting that cannot be used as it is. `str()` is one printable line, and holds no credential.

    `setting`: its name in `Settings`, or what was taken for one. `value`: as it was given, None where it does not
    matter. `source`: how the user spelled it (`--window`, `PACE_WINDOW`, `paceproxy.yaml:12`); None until it is known.
    """

    def __init__(
        self, setting: str, problem: str, *, value: str | None = None, remedy: str, source: str | None = None
    ) -> None:
        super().__init__(setting, problem)
        self.setting = setting
        self.problem = problem
        self.value = None if value is None else _displayed(setting, value)
        self.remedy = remedy
        self.source = source

    def __str__(self) -> str:
        value = "" if self.value is None else f", got {self.value}"
        source = "" if self.source is None else f" ({self.source})"
        line = " ".join(f"{self.setting} {self.problem}{value}{source}; {self.remedy}".split())
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def _default_store() -> str:
    # The folder is made by whoever opens the store.
    return f"sqlite:///{user_state_path('paceproxy') / 'hosts.sqlite3'}"


def _default_confdir() -> str:
    # mitmproxy's own, so that whoever trusts its certificates trusts ours.
    return os.path.expanduser("~/.mitmproxy")


class Settings(BaseModel):
    """Every setting, valid in itself and with the others. Made from bad values it raises `SettingError`.

    Durations are seconds, sizes bytes. None means that there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    listen: Annotated[str, Group.LISTENING, Listener()] = "127.0.0.1:8080"
    """Where clients reach the proxy; port 0 is any free one. Anything but loopback needs htpasswd or allow."""
    htpasswd: Annotated[str | None, Group.LISTENING, ReadableFile(check_htpasswd)] = None
    """Ask clients for a user and a password out of this file (htpasswd -B)."""
    allow: Annotated[tuple[str, ...], Group.LISTENING, Networks()] = ()
    """Addresses and networks that clients may come from; empty: all."""
    admin: Annotated[str, Group.LISTENING, Listener(may_be_off=True)] = "127.0.0.1:9464"
    """Where the status page, /metrics, /healthz and /readyz are; off: nowhere."""
    admin_names: Annotated[tuple[str, ...], Group.LISTENING, HostNames()] = ()
    """Further host names under which the admin address may be asked, such as that of a container."""
    admin_token_file: Annotated[str | None, Group.LISTENING, ReadableFile(check_token)] = None
    """A file with the token without which nothing can be changed at the admin address. Anything but loopback needs it
    for that."""
    http2: Annotated[bool, Group.LISTENING, Switch()] = False
    """Speak HTTP/2 with clients too. An origin that does not then gets one connection per request."""

    window: Annotated[float, Group.REQUESTS, Seconds(zero=True)] = 600.0
    """How long a request may keep trying, from when it was accepted; 0: none is held. A request may ask for less:
    Pace-Window: 45."""
    attempt_timeout: Annotated[float, Group.REQUESTS, Seconds()] = 30.0
    """How long an origin may take from the last byte of a request to the head of its reply."""
    connect_timeout: Annotated[float, Group.REQUESTS, Seconds()] = 10.0
    """How long TCP and TLS may take."""
    max_attempts: Annotated[int, Group.REQUESTS, Count(zero=True)] = 0
    """How often a request is sent at most; 0: as often as its window allows."""
    page_fault_after: Annotated[int, Group.REQUESTS, Count(zero=True)] = 4
    """While the host serves other pages, a status 500 is given to the client at this stall of its request: it is the
    page's own fault. 0: never, and no other stall either."""
    page_fault_after_other: Annotated[int, Group.REQUESTS, Count()] = 6
    """The same for any other stall but a status 429."""
    hold_request: Annotated[int, Group.REQUESTS, Size()] = 1048576
    """A request body up to this length is kept, to be sent again; a longer one is streamed and sent once."""
    keep_reply: Annotated[int, Group.REQUESTS, Size()] = 16384
    """How much is kept of the body of a reply that may yet be the last."""
    hold_body: Annotated[int, Group.REQUESTS, Size()] = 262144
    """How much of a response's body is held back, so that one that breaks off can be asked for again; 0: nothing."""
    hold_time: Annotated[float, Group.REQUESTS, Seconds(zero=True)] = 2.0
    """For how long it is held back, at most."""
    hold_time_healthy: Annotated[float, Group.REQUESTS, Seconds(zero=True)] = 0.2
    """The same where the host is not slow."""
    body_timeout: Annotated[float, Group.REQUESTS, Seconds(zero=True)] = 60.0
    """How long an upload, or the body of a response, may make no progress; 0: as long as it likes. Event streams and
    upgrades may be silent."""
    idle_reuse: Annotated[float, Group.REQUESTS, Seconds(zero=True)] = 1.0
    """A request that is not idempotent never uses a connection that was idle for longer."""

    ladder: Annotated[tuple[float, ...], Group.PACING, Ladder()] = (0.0, 2.0, 5.0, 15.0, 30.0, 60.0)
    """Seconds between two attempts to one host, by rung: 0, then values that never decrease."""
    stalls: Annotated[frozenset[str], Group.PACING, Stalls()] = frozenset(STALL_NAMES) - {"connection_refused"}
    """What is waited out and makes the host slower. connection_refused and status codes (403) can be added."""
    climb: Annotated[str, Group.PACING, Choice(("incident", "stall"))] = "incident"
    """What makes a host slower by a rung: stall: every stall; incident: a time-out, or of errors that come together
    the first, but neither a rare one of a host that serves nor a 429 that says when to come back, which sets a pace."""
    in_flight: Annotated[int | str, Group.PACING, CountOrWord(("learn", "off"), most=10_000)] = "learn"
    """How many attempts may be in flight to one host, from this process, in parallel; the others wait in line. learn:
    as many as the host bears, found out as it goes; off: any number. An attempt is in flight until its reply is there,
    or begins to flow to the client."""
    retry_after_cap: Annotated[float, Group.PACING, Seconds()] = 300.0
    """A Retry-After, or a quota that is used up, blocks a host for this long at most."""
    forgive_after: Annotated[float, Group.PACING, Seconds(zero=True)] = 1800.0
    """A host that has had no stall for so long starts afresh; 0: never."""
    abandon_stall_after: Annotated[float, Group.PACING, Seconds(zero=True)] = 5.0
    """A host that was silent for as long to clients that left, one or several, gets slower; 0: never."""
    store: Annotated[str, Group.PACING, StoreUrl(), Documented("sqlite:///~/.local/state/paceproxy/hosts.sqlite3")] = (
        Field(default_factory=_default_store)
    )
    """Where slow hosts are remembered: sqlite:///PATH on a local disk, which several processes may share (an absolute
    PATH makes four slashes: sqlite:////var/lib/pace.db), or memory:."""

    pause_after: Annotated[int, Group.PAUSE, Count(zero=True)] = 10
    """After so many stalls in a row a host is left alone for a while; 0: never."""
    pause_per_request: Annotated[int, Group.PAUSE, Count()] = 3
    """How many stalls of one request count towards that: a single page does not pause its host."""
    pause: Annotated[float, Group.PAUSE, Seconds()] = 120.0
    """How long it is left alone; twice as long each further time."""
    pause_max: Annotated[float, Group.PAUSE, Seconds()] = 900.0
    """How long it is left alone at most."""

    upstream: Annotated[str | None, Group.ORIGINS, HttpUrl(credentials=True)] = None
    """The parent proxy that everything goes through: http://user:password@host:3128."""
    reverse: Annotated[str | None, Group.ORIGINS, HttpUrl()] = None
    """Be a reverse proxy to this origin, so that clients need no proxy settings."""
    egress_deny: Annotated[tuple[str, ...], Group.ORIGINS, Denied()] = (DEFAULT,)
    """Addresses and networks that are never connected to; off: none. default is 169.254.0.0/16, fe80::/10,
    fd00:ec2::254, 100.100.100.200 and 168.63.129.16, and loopback too when listening beyond loopback."""
    tunnel_ports: Annotated[tuple[int, ...], Group.ORIGINS, Ports()] = ()
    """Ports where, after CONNECT, anything may pass: it is not looked at, only the CONNECT is paced. Elsewhere only
    TLS and HTTP pass."""
    upstream_ca: Annotated[str | None, Group.ORIGINS, ReadableFile(check_certificates)] = None
    """PEM certificates to trust for TLS to origins and to the parent proxy, besides the usual ones."""
    ssl_insecure: Annotated[bool, Group.ORIGINS, Switch()] = False
    """Do not verify the certificates of origins and of the parent proxy."""

    confdir: Annotated[str, Group.PROCESS, Folder(), Documented("~/.mitmproxy")] = Field(
        default_factory=_default_confdir
    )
    """The folder of our certificate authority, which is made if there is none."""
    ca_bundle: Annotated[str | None, Group.PROCESS, NewFile()] = None
    """Where to write the certificates that clients must trust, the system's and ours, before the proxy is ready: in a
    folder that can be shared, without the authority's key. Not given, it is paceproxy-ca-bundle.pem in confdir."""
    drain: Annotated[float, Group.PROCESS, Seconds(zero=True)] = 25.0
    """How long requests in hand may go on after SIGTERM."""
    set: Annotated[tuple[str, ...], Group.PROCESS, Options()] = ()
    """An option of mitmproxy; may be given several times."""
    access_log: Annotated[str, Group.PROCESS, LogPlace()] = "off"
    """Where to write a line of JSON for each request: a file, which may be moved away any time, or - for standard
    output; off: nowhere."""
    access_log_query: Annotated[bool, Group.PROCESS, Switch()] = True
    """Write URLs there with their query, which may hold secrets; false: without."""
    log_level: Annotated[str, Group.PROCESS, Choice(("debug", "info", "warning", "error"))] = "info"
    """The least important messages that are logged: debug, info, warning or error."""

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: object, info: ValidationInfo) -> object:
        name = str(info.field_name)
        kind = SETTINGS[name].kind
        if value is None and cls.model_fields[name].default is None:
            return None
        try:
            return kind.parse(value)
        except BadValue as error:
            remedy = error.remedy or kind.remedy.format(default=SETTINGS[name].default)
            raise SettingError(name, error.problem, value=to_text(value), remedy=remedy) from error

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if conflict := find_conflict(self):
            value = SETTINGS[conflict.setting].kind.show(getattr(self, conflict.setting))
            raise SettingError(conflict.setting, conflict.problem, value=value, remedy=conflict.remedy)
        return self

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            text = to_text(value)
            masked = SETTINGS[name].kind.mask(text) if name else text
            yield name, value if masked == text else masked

    @cached_property
    def listen_address(self) -> Address:
        return parse_address(self.listen)

    @cached_property
    def admin_address(self) -> Address | None:
        """None: there is to be none."""
        return None if self.admin == OFF else parse_address(self.admin)

    @cached_property
    def allow_networks(self) -> tuple[Network, ...]:
        return tuple(ip_network(network) for network in self.allow)

    @cached_property
    def upstream_url(self) -> Url | None:
        """With user and password, which its `str()` leaves out."""
        return None if self.upstream is None else parse_url(self.upstream)

    @cached_property
    def reverse_url(self) -> Url | None:
        return None if self.reverse is None else parse_url(self.reverse)


def _about(field: FieldInfo) -> About:
    group, kind, *documented = field.metadata
    default = documented[0].default if documented else _written(kind, field.default)
    # The declaration's own docstring.
    return About(group, kind, " ".join(str(field.description).split()), default)


def _written(kind: Kind[Any], default: object) -> str:
    return "" if default is None else kind.show(default)


SETTINGS: MappingProxyType[str, About] = MappingProxyType(
    {name: _about(field) for name, field in Settings.model_fields.items()}
)
"""What there is to say about each setting, by name; in the order of their declaration."""


def _displayed(name: str, value: str) -> str:
    masked = SETTINGS[name].kind.mask(value) if name in SETTINGS else value
    return masked if len(masked) <= _LONGEST_SHOWN else f"{masked[:_LONGEST_SHOWN]}..."
