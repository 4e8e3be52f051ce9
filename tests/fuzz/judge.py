"""Whether the proxy kept its promises in one round, from what the origins sent and what the clients got.

It knows the contract and nothing of the proxy's code. Where the logs leave a doubt it asks for less.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.fuzz.crowd import End, Got, upload_of
from tests.fuzz.lag import Lag
from tests.fuzz.origin import Sent
from tests.fuzz.plan import BEFORE_HEAD, HARMLESS, IN_HEAD, INVALID_HEAD, Fault, Protocol
from tests.fuzz.setup import ATTEMPT_TIMEOUT_S, HOLD_REQUEST_BYTES, LADDER_S, RETRY_AFTER_CAP_S, WINDOW_S
from tests.scenarios.spacing import Entry, too_soon

TOLERANCE_S = 0.02
"""Of the pace, within one process."""

_SAFE_TO_REPEAT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_OWN_STATUSES = frozenset({"408", "502", "503", "504"})
_NOT_ABOUT_LOAD = frozenset({501, 505, 508, 511})


def faults(gots: Sequence[Got], sent: Sequence[Sent], *, lag: Lag) -> list[str]:
    """What was wrong, in whole sentences. `lag`: by how much events may have come late on this machine."""
    lag_s = lag.worst_s
    by_number: dict[int, list[Sent]] = {}
    for one in sent:
        by_number.setdefault(one.number, []).append(one)
    found = []
    for got in gots:
        mine = by_number.get(got.number, [])
        found += [
            f"request {got.number}: {fault}"
            for fault in (*_answer_faults(got, mine, lag_s), *_origin_faults(got, mine, lag_s))
        ]
    for secure in (False, True):
        found += _pace_faults(gots, [s for s in sent if s.request.secure is secure], lag)
    return found


# --- what the client got


def _answer_faults(got: Got, sent: Sequence[Sent], lag_s: float) -> Iterator[str]:
    match got.end:
        case End.FAULTY:
            yield f"what came is no answer: {got.note}"
        case End.CLOSED if not got.excused:
            yield f"the connection ended without an answer ({got.note})"
        case End.CUT if all(one.complete for one in sent):
            yield f"the answer was cut short, though the origin's never was ({got.note})"
        case End.CUT if not got.was_reset:
            yield f"the answer was cut short without a reset: to some clients that is its end ({got.note})"
        case End.ANSWERED:
            yield from _content_faults(got, sent)
    good = [one for one in sent if _must_arrive(got, one)]
    if _came_in_time(lag_s) and good and got.end is not End.LEFT and not got.excused:
        one = good[-1]
        body = b"" if got.ask.method == "HEAD" else one.body
        if (got.end, got.status, got.body) != (End.ANSWERED, one.reply.status, body):
            yield f"the origin's good answer of {one.reply.status} to hit {one.hit} did not arrive, but {_shown(got)}"


def _came_in_time(lag_s: float) -> bool:
    """No time-out can have struck only since this machine was busy with other things."""
    return lag_s < ATTEMPT_TIMEOUT_S / 4


def _must_arrive(got: Got, one: Sent) -> bool:
    if one.complete is not True or one.reply.fault not in HARMLESS:
        return False
    if one.reply.status == 409 and got.ask.keyed and _may_repeat(got):
        return False  # "In progress": it is asked again.
    return not _is_stall(got, one) or not _may_repeat(got)


def _content_faults(got: Got, sent: Sequence[Sent]) -> Iterator[str]:
    lengths, codings = got.values("content-length"), got.values("transfer-encoding")
    if len(lengths) > 1 or (lengths and codings):
        yield f"the length of its answer is said more than once: {lengths}, {codings}"
    if codings and got.client.protocol is Protocol.HTTP_1_0:
        yield "a client of HTTP/1.0 got chunks"
    ours = [value for value in got.values("proxy-status") if "error=" in value or "received-status=" in value]
    if ours:
        if str(got.status) not in _OWN_STATUSES and not any(one.reply.status == got.status for one in sent):
            yield f"an answer of the proxy's own has status {got.status}: {ours}"
        if got.ask.method != "HEAD" and not got.body.startswith((b"paceproxy: ", b"The body cannot be read")):
            yield f"an answer of the proxy's own has this text: {got.body[:100]!r}"
        return
    body = got.body
    for one in sent:
        whole = b"" if got.ask.method == "HEAD" else one.body
        if one.complete is not False and one.reply.status == got.status and body == whole:
            return
    yield f"its answer is none that the origin gave it: {_shown(got)}, fields {got.fields}"


def _shown(got: Got) -> str:
    status = ", ".join(got.values("proxy-status"))
    return f"{got.end} {got.status} {got.body[:40]!r} ({len(got.body)} bytes) {got.note} [{status}]"


# --- what the origin got


def _may_repeat(got: Got) -> bool:
    return (got.ask.method in _SAFE_TO_REPEAT or got.ask.keyed) and not _is_streamed(got)


def _is_streamed(got: Got) -> bool:
    return len(upload_of(got.number, got.ask, got.client.protocol)) > HOLD_REQUEST_BYTES


def _origin_faults(got: Got, sent: Sequence[Sent], lag_s: float) -> Iterator[str]:
    if len(sent) > 1 and not _may_repeat(got):
        yield f"{got.ask.method} reached the origin {len(sent)} times"
    for before, after in pairwise(sent):
        if _came_in_time(lag_s) and _must_arrive(got, before) and before.told_at < after.request.at:
            yield f"it was sent again after a good answer of {before.reply.status} to hit {before.hit}"
    upload = upload_of(got.number, got.ask, got.client.protocol)
    for one in sent:
        if one.request.method != got.ask.method:
            yield f"its method became {one.request.method}"
        if one.request.whole and one.request.body != upload:
            yield f"its body of {len(upload)} bytes became one of {len(one.request.body)}: {one.request.body[:40]!r}"
        if got.ask.keyed and one.request.values("Idempotency-Key") != [f'"{got.number}"']:
            yield f"its Idempotency-Key became {one.request.values('Idempotency-Key')}"
        if one.request.values("Pace-Window") or one.request.values("Proxy-Authorization"):
            yield "a field of the proxy's own reached the origin"


# --- the pace


def _pace_faults(gots: Sequence[Got], sent: Sequence[Sent], lag: Lag) -> list[str]:
    by_number = {got.number: got for got in gots}
    log = [_entry(by_number[one.number], one, lag) for one in sent]
    if not any(entry.stalled for entry in log):
        return []
    return [f"the pace was broken: {fault}" for fault in too_soon(log, LADDER_S, tolerance_s=TOLERANCE_S)]


def _entry(got: Got, one: Sent, lag: Lag) -> Entry:
    stalled = _surely_climbs(got, one)
    told_at = one.told_at or one.request.done_at or one.request.at
    slack_s = max(lag.around(at) for at in (one.opened_at, one.request.at, told_at))
    return Entry(
        one.request.at,
        told_at,
        stalled=stalled,
        retry_after_s=_surely_asked_s(one) if stalled and one.reply.fault in HARMLESS else 0.0,
        may_lower=not stalled and not _surely_no_step(got, one),
        dialled_at=None if one.reused else one.opened_at - slack_s,
        may_be_late=one.hit == 1 and _window_closed(got, one),
        slack_s=slack_s,
    )


def _window_closed(got: Got, one: Sent) -> bool:
    """The moment is one for a late attempt: the end of a request's window that was never sent."""
    window_s = WINDOW_S
    if got.ask.window is not None and got.ask.window.replace(".", "").isdigit():
        window_s = min(window_s, float(got.ask.window))
    return one.request.at - got.sent_at >= window_s - 0.05


def _surely_climbs(got: Got, one: Sent) -> bool:
    """The first stall of a request always does; of others there may be evidence that the page is at fault."""
    if one.hit > 1 or got.end is End.LEFT or one.request.done_at is None:
        return False
    return _is_stall(got, one)


def _surely_no_step(got: Got, one: Sent) -> bool:
    """Whatever it did, the host was not served."""
    return got.end is not End.LEFT and (_is_stall(got, one) or one.reply.fault in BEFORE_HEAD | IN_HEAD | INVALID_HEAD)


def _is_stall(got: Got, one: Sent) -> bool:
    """Whether it must be one, whoever asked and whenever."""
    reply = one.reply
    if reply.fault in BEFORE_HEAD | IN_HEAD:
        if one.reused:
            return False
        if reply.fault in (Fault.SILENT, Fault.HEAD_STOPS):
            # Where it may not be sent again the stall is counted earlier than the connection ends.
            return _may_repeat(got) and one.told_at - one.request.at >= ATTEMPT_TIMEOUT_S
        return True
    if reply.fault not in HARMLESS:
        return False
    return reply.status == 429 or (500 <= reply.status <= 599 and reply.status not in _NOT_ABOUT_LOAD)


def _surely_asked_s(one: Sent) -> float:
    waits = [float(value) for value in one.reply.retry_after if value.replace(".", "").isdigit() and value.isascii()]
    return min(max(waits, default=0.0), RETRY_AFTER_CAP_S)
