"""The values that everybody speaks in: states, outcomes, replies, decisions, events. Frozen, without behaviour.

No I/O, no time, no mitmproxy. The words are those of the glossary in the README ("Words").
"""

from dataclasses import dataclass
from enum import StrEnum

IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
"""RFC 9110 §9.2.2."""


class Outcome(StrEnum):
    """A reply classified; for a request: its last one, or `unsent`."""

    SERVED = "served"
    STALL = "stall"
    FAILURE = "failure"
    ABANDONED = "abandoned"
    """The client left."""
    UNSENT = "unsent"
    """Of a request only: it was answered without ever having been sent."""


class ErrorName(StrEnum):
    """Why an attempt was not served. The RFC 9209 §2.3 proxy error types, and four names of ours where it has none."""

    HTTP_RESPONSE_TIMEOUT = "http_response_timeout"
    CONNECTION_TIMEOUT = "connection_timeout"
    CONNECTION_TERMINATED = "connection_terminated"
    CONNECTION_REFUSED = "connection_refused"
    HTTP_RESPONSE_INCOMPLETE = "http_response_incomplete"
    DNS_TIMEOUT = "dns_timeout"
    DNS_ERROR = "dns_error"
    TLS_CERTIFICATE_ERROR = "tls_certificate_error"
    TLS_ALERT_RECEIVED = "tls_alert_received"
    TLS_PROTOCOL_ERROR = "tls_protocol_error"
    HTTP_PROTOCOL_ERROR = "http_protocol_error"
    HTTP_REQUEST_TIMEOUT = "http_request_timeout"
    HTTP_REQUEST_ERROR = "http_request_error"
    DESTINATION_UNAVAILABLE = "destination_unavailable"
    DESTINATION_IP_PROHIBITED = "destination_ip_prohibited"
    DESTINATION_IP_UNROUTABLE = "destination_ip_unroutable"
    PROXY_INTERNAL_RESPONSE = "proxy_internal_response"
    PROXY_INTERNAL_ERROR = "proxy_internal_error"
    PROXY_LOOP_DETECTED = "proxy_loop_detected"
    HTTP_STATUS_5XX = "http_status_5xx"
    """Ours: a status 500-599 that speaks of load."""
    RATE_LIMITED = "rate_limited"
    """Ours: status 429."""
    HTTP_STATUS = "http_status"
    """Ours: a further status that the setting `stalls` names."""
    IN_PROGRESS = "in_progress"
    """Ours: 409 to a request with an `Idempotency-Key`."""


@dataclass(frozen=True, slots=True)
class HostState:
    """A host's row: what holds its requests back, a limit that was found out, or both. Times are Unix seconds, 0 where
    there is none."""

    rung: int = 0
    next_slot_at: float = 0.0
    blocked_until: float = 0.0
    """The origin said so (`Retry-After`, or a quota that is used up)."""
    stalled_at: float = 0.0
    """The last stall."""
    counted_at: float = 0.0
    """The stall that began the last incident: what was sent before it counts towards the pause no more."""
    stalls_in_a_row: int = 0
    paused_until: float = 0.0
    """We gave up for a while. In the past and not 0: the host is probing."""
    pauses: int = 0
    """Pauses in a row, for their growing length."""
    quota_pace_s: float = 0.0
    """The pace never goes below this many seconds: so much time a page takes, by the quotas of the host. Each page
    makes it a little shorter."""
    in_flight_limit: int = 0
    """How many attempts in flight the host bears, as far as a process has found out."""
    limited_at: float = 0.0
    """When it has found out."""
    floor_s: float = 0.0
    """Nor does the pace go below this many seconds, since an operator wants it so. Only an operator takes it away."""
    operator_paused_until: float = 0.0
    """An operator wants nothing sent until then. It says nothing of the host's health."""
    operated_at: float = 0.0
    """When an operator last decided on the two fields above: of two rows of a host, the later decision holds."""
    resumed_at: float = 0.0
    """When an operator last resumed the host: trouble from before that does not count any more."""
    version: int = 0
    """The store's number of the write; 0 for a row not yet written."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What one attempt brought back: a response head (`status`), or an error (`error`)."""

    status: int | None = None
    fields: tuple[tuple[str, str], ...] = ()
    """The response's header fields in order, names as they came. Empty for an error."""
    error: ErrorName | None = None
    details: str = ""
    """For people: what went wrong, without internal addresses."""
    reused: bool = False
    """The attempt went over a connection that had carried a request before."""
    charged: bool = True
    """False: it is the fault of a parent proxy or of ourselves, and no host is charged for it."""


@dataclass(frozen=True, slots=True)
class LastStall:
    """A host's last stall, for people."""

    error: ErrorName
    at: float


@dataclass(frozen=True, slots=True)
class HostView:
    """One host that has a row, waiters, or a limit that somebody has met, at a moment."""

    host: str
    state: HostState
    pace_s: float
    waiting: int
    in_flight: int
    last_stall: LastStall | None
    in_flight_limit: int | None = None
    """How many attempts this process may have in flight; None: any number, or so far nobody has met the limit."""
    floor_s: float = 0.0
    """The least pace that an operator has set; 0: none."""
    paused_until: float = 0.0
    """The end of its pause, ours or an operator's, whichever is later (Unix seconds); 0: there is none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine at a moment. `hosts` holds every host that there is something to say of, in no order."""

    hosts: tuple[HostView, ...]
    waiting: int
    """Requests held now, over all hosts."""
    in_flight: int
    """Attempts on their way now, over all hosts."""
    store_up: bool
    at: float
    """Unix seconds."""
    healthy_hosts: int = 0
    """How many hosts that nothing holds back were asked for something in the last 10 minutes, from this process. It
    remembers so many hosts and no more (`host_local.HOSTS_REMEMBERED`): a wider crawl is counted up to there."""


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt got its outcome. `duration_s` runs from the grant to the head or the error."""

    host: str
    outcome: Outcome
    error: ErrorName | None
    duration_s: float


@dataclass(frozen=True, slots=True)
class RequestEnded:
    """A request got its final answer, or its client left. Exactly one for each request accepted.

    The four marks are Unix seconds; `sent_at` and `first_byte_at` belong to the attempt that answered and are None
    where there was none.
    """

    host: str
    client: str
    """The address that it came from, without the port."""
    outcome: Outcome
    error: ErrorName | None
    attempts: int
    waited_s: float
    """Held before its attempts, all together."""
    rung: int
    """The rung at which the attempt that answered was granted."""
    accepted_at: float
    sent_at: float | None
    first_byte_at: float | None
    done_at: float
    duration_s: float
    """From acceptance to the end of the answer."""
    window_s: float
    """How long it might have kept trying."""
    gave_up: bool
    """Its client left while it waited: held, or with its request sent and nothing of the answer there."""
    room_s: float = 0.0
    """The part of `waited_s` in which nothing but the limit of attempts in flight held it."""
    method: str = ""
    url: str = ""
    """What it asked for, without user and password."""
    status: int | None = None
    """Of the response that its client got, whoever made it; None where it got no head."""
    body_bytes: int = 0
    """How much of that response's body its client was sent, as it was passed on."""
    stalls: int = 0
    """How many of its attempts stalled."""

    @property
    def was_saved(self) -> bool:
        """Whether it was served although it stalled: it would have failed without the proxy."""
        return self.outcome is Outcome.SERVED and self.stalls > 0


@dataclass(frozen=True, slots=True)
class Redialled:
    """A kept-alive connection had ended as a request went out, which is sent again at once.

    Whether the origin has read it the first time, nobody but the origin knows: it is no attempt.
    """

    host: str


@dataclass(frozen=True, slots=True)
class RetryAfterCapped:
    """An origin asked for a longer wait than `retry_after_cap`."""

    host: str
    asked_s: float


@dataclass(frozen=True, slots=True)
class HostPaused:
    """A host is left alone for a while."""

    host: str
    until: float
    stalls_in_a_row: int
    error: ErrorName


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store raised an error. `first` is True when it worked before."""

    message: str
    first: bool


@dataclass(frozen=True, slots=True)
class StoreRecovered:
    """The store works again."""

    down_s: float


type Event = AttemptEnded | RequestEnded | Redialled | RetryAfterCapped | HostPaused | StoreFailed | StoreRecovered
