"""An exception on purpose in each of our modules: the client gets a 500 that says so, and nothing is left behind."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.behaviours import respond
from tests.support.clients import curl
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.waiting import until

COMMAND = Path(__file__).parents[1] / "support" / "faulty_command.py"

# What is called for every request, and what only for one whose first attempt stalled.
EVERY_REQUEST = (
    "hosts:host_key",
    "window:window_s",
    "retry:classify",
    "engine:Engine.accept",
    "engine:Engine.grant",
    "engine:Engine.sending",
    "engine:Engine.settle",
    "engine:Engine.first_byte",
    "grants:Grants.grant",
    "grants:Grants.limits",
    "grants:Grants.end",
    "host_local:Hosts.__getitem__",
    "rate_limits:quota_s",
    "host_local:Host.note_served",
    "pacing:Pacer.accept",
    "pacing:Pacer.prepare",
    "pacing:Pacer.grant",
    "pacing:Pacer.sending",
    "pacing:Pacer.replied",
    "pacing:Pacer.first_byte",
    "layer:PacedHttpLayer.start_attempt",
    "layer:PacedHttpLayer.find_origin",
    "layer:PacedHttpLayer.get_connection",
    "layer:PacedHttpLayer.register_connection",
    "origins:make_origin",
    "stream:PacedHttpStream.make_server_connection",
    "stream:PacedHttpStream._begin",
    "stream:PacedHttpStream.settle",
    "stream:PacedHttpStream.judge",
    "holding:Holding.hold_or_judge",
    "holding:Holding.state_hold_body",
    "pacing:Pacer.hold_s",
    "loops:leads_back",
    "border:Border.start_attempt",
    "border:Border.arm_at",
    "dial:PacedConnectionHandler._open",
    "http1:PacedHttp1Client.send",
    "http1:PacedHttp1Client.read_headers",
)
STALLED_REQUEST = (
    "ladder:step",
    "ladder:claim",
    "reading:read",
    "ladder:pace_s",
    "ladder:slot_at",
    "outcomes:Outcomes._after_stall",
    "retry:may_send_again",
    "rate_limits:asked_s",
    "host_local:Host.note_stalled",
    "line:Line.enter",
    "line:Line.head",
    "line:Line.closed",
    "line:Line.wake_rested",
    "rows:Rows.change",
    "rows:Rows.get",
    "store.memory:MemoryStore.swap",
    "grants:Grants.enter",
    "dispatch:Dispatch._run",
    "dispatch:Dispatch._turn",
    "dispatch:Dispatch._write",
    "dispatch:Dispatch._claim",
    "engine:Engine.hold",
    "pacing:Pacer.hold",
    "addon:Paceproxy.pace_hold",
    "answers:annotate",
    "answers:proxy_status",
    "stream:PacedHttpStream._send_request",
    "stream:PacedHttpStream._hold",
)
# What writes the answer: whether the client has a part of it already is not known.
WRITING = ("http1_server:PacedHttp1Server.send",)
# What may fail without any harm to a request.
HARMLESS = ("metrics:Metrics.observe", "engine:Engine.close", "pacing:Pacer.close")


@dataclass(frozen=True, slots=True)
class Rigged:
    proxy: Paceproxy
    fault: Path


@pytest.fixture(scope="module")
def rigged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rigged]:
    fault = tmp_path_factory.mktemp("fault") / "armed"
    fault.write_text("")
    targets = ",".join((*EVERY_REQUEST, *STALLED_REQUEST, *WRITING, *HARMLESS))
    command = (sys.executable, str(COMMAND), str(fault), targets)
    with Paceproxy("--ladder", "0,0.05", "--pause-after", "0", "--drain", "1", command=command, crashes=True) as proxy:
        yield Rigged(proxy, fault)


@pytest.fixture
def origin() -> Iterator[Origin]:
    # One for each test: a host of its own.
    with Origin() as origin:
        yield origin


def ask(rigged: Rigged, origin: Origin, armed: str) -> tuple[int, str]:
    rigged.fault.write_text(armed)
    answer = curl(rigged.proxy.url, origin.url("/page"), "--max-time", "10").answer
    until(lambda: rigged.fault.read_text() == "", f"{armed} was called", 10)
    return answer.status, answer.proxy_status


def nothing_is_left(rigged: Rigged) -> None:
    def empty() -> bool:
        now = rigged.proxy.metrics()
        return (now.value("paceproxy_waiting_requests"), now.value("paceproxy_attempts_in_flight")) == (0, 0)

    until(empty, "nobody waited and nothing was in flight", 10)


@pytest.mark.parametrize("target", EVERY_REQUEST)
def test_a_fault_while_a_healthy_host_is_asked_is_a_500(rigged: Rigged, origin: Origin, target: str) -> None:
    status, proxy_status = ask(rigged, origin, target)
    assert (status, "error=proxy_internal_error" in proxy_status) == (500, True)
    nothing_is_left(rigged)
    assert ask(rigged, origin, "")[0] == 200


@pytest.mark.parametrize("target", STALLED_REQUEST)
def test_a_fault_while_a_stall_is_waited_out_is_a_500(rigged: Rigged, origin: Origin, target: str) -> None:
    origin.script = {"/page": [respond(503), respond()]}
    status, proxy_status = ask(rigged, origin, target)
    assert (status, "error=proxy_internal_error" in proxy_status) == (500, True)
    nothing_is_left(rigged)
    assert ask(rigged, origin, "")[0] == 200


@pytest.mark.parametrize("target", WRITING)
def test_a_fault_while_the_answer_is_written_ends_the_connection(rigged: Rigged, origin: Origin, target: str) -> None:
    assert ask(rigged, origin, target) == (0, "")
    nothing_is_left(rigged)
    assert ask(rigged, origin, "")[0] == 200


@pytest.mark.parametrize("target", HARMLESS)
def test_a_fault_where_only_is_counted_costs_no_answer(rigged: Rigged, origin: Origin, target: str) -> None:
    assert ask(rigged, origin, target)[0] == 200
    assert ask(rigged, origin, "")[0] == 200


def test_nothing_is_sent_to_an_origin_when_the_grant_fails(rigged: Rigged, origin: Origin) -> None:
    assert ask(rigged, origin, "engine:Engine.grant")[0] == 500
    assert origin.requests == []
