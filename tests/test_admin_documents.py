"""The JSON documents, from literal snapshots."""

import json
from dataclasses import replace

from proxy_addon.admin.documents import host_document, host_documents, lasting, status_document
from proxy_addon.admin.history import History
from proxy_addon.model import ErrorName, HostState, HostView, LastStall, Snapshot

AT = 1_800_000_000.0
WELL = HostView("well.example", HostState(), 0.0, 0, 0, None)
SLOW = HostView(
    host="shop.example",
    state=HostState(rung=3, next_slot_at=AT + 4.25, stalls_in_a_row=2),
    pace_s=15.0,
    waiting=7,
    in_flight=1,
    last_stall=LastStall(ErrorName.HTTP_RESPONSE_TIMEOUT, AT - 20.0),
    in_flight_limit=4,
)


def snapshot(*hosts: HostView) -> Snapshot:
    return Snapshot(hosts=hosts, waiting=7, in_flight=1, store_up=True, at=AT, healthy_hosts=12)


def names(*hosts: HostView) -> list[object]:
    return [document["host"] for document in host_documents(snapshot(*hosts))]


def test_a_slow_host_is_told_with_all_that_holds_it() -> None:
    assert host_document(SLOW, at=AT) == {
        "host": "shop.example",
        "rung": 3,
        "pace_s": 15.0,
        "floor_s": 0.0,
        "waiting": 7,
        "in_flight": 1,
        "in_flight_limit": 4,
        "next_slot_in_s": 4.25,
        "next_slot_at": 1_800_000_004.25,
        "blocked_until": None,
        "paused_until": None,
        "stalls_in_a_row": 2,
        "last_stall": {"error": "http_response_timeout", "at": 1_799_999_980.0},
    }


def test_the_next_slot_comes_when_nothing_holds_the_host_any_more() -> None:
    row = HostState(rung=1, next_slot_at=AT + 2, blocked_until=AT + 30, paused_until=AT - 5)
    document = host_document(replace(SLOW, state=row, paused_until=AT + 60), at=AT)
    assert (document["next_slot_in_s"], document["next_slot_at"]) == (60.0, AT + 60)
    assert (document["blocked_until"], document["paused_until"]) == (AT + 30, AT + 60)


def test_a_block_and_a_pause_that_are_over_are_none() -> None:
    row = HostState(rung=1, next_slot_at=AT - 9, blocked_until=AT, paused_until=AT - 1)
    document = host_document(replace(SLOW, state=row, paused_until=AT - 1), at=AT)
    assert (document["blocked_until"], document["paused_until"], document["next_slot_in_s"]) == (None, None, 0.0)


def test_hosts_are_shown_that_are_held_back_or_waited_for_and_no_others() -> None:
    limited = replace(WELL, host="limited.example", in_flight_limit=4)
    waited_for = replace(limited, host="waited.example", waiting=1)
    floor = HostView("floor.example", HostState(floor_s=5.0), 5.0, 0, 0, None, floor_s=5.0)
    blocked = HostView("blocked.example", HostState(blocked_until=AT + 9), 0.0, 0, 0, None)
    paused = replace(WELL, host="paused.example", state=HostState(operator_paused_until=AT + 9), paused_until=AT + 9)
    assert names(WELL, limited, waited_for, floor, blocked, paused, SLOW) == [
        "paused.example",
        "blocked.example",
        "shop.example",
        "waited.example",
        "floor.example",
    ]


def test_the_worst_come_first_and_the_name_decides_among_equals() -> None:
    higher = replace(SLOW, host="higher.example", state=HostState(rung=4), waiting=0)
    longer = replace(SLOW, host="longer.example", waiting=8)
    slower = replace(SLOW, host="slower.example", pace_s=16.0)
    first = replace(SLOW, host="a.example")
    assert names(SLOW, first, slower, longer, higher) == [
        "higher.example",
        "longer.example",
        "slower.example",
        "a.example",
        "shop.example",
    ]


def test_the_status_is_json_with_the_process_the_hosts_and_the_last_minutes() -> None:
    about = {"version": "1", "listening": ["http://127.0.0.1:8080"], "ca_certificate": None, "ladder": (0.0, 2.0)}
    status = json.loads(
        json.dumps(status_document(snapshot(WELL, SLOW), about=about, recent=History().document(now=AT)))
    )
    assert list(status) == [
        *("version", "listening", "ca_certificate", "ladder", "at", "hosts"),
        *("healthy_hosts", "waiting", "in_flight", "store_up", "recent"),
    ]
    assert status["ladder"] == [0, 2]
    assert [host["host"] for host in status["hosts"]] == ["shop.example"]
    assert (status["healthy_hosts"], status["waiting"], status["in_flight"], status["store_up"]) == (12, 7, 1, True)


def test_time_that_goes_by_is_no_change_but_the_end_of_a_block_is() -> None:
    def status(now: Snapshot) -> dict[str, object]:
        return lasting(status_document(now, about={}, recent=History().document(now=now.at)))

    blocked = replace(SLOW, state=HostState(rung=1, blocked_until=AT + 30))
    before = status(snapshot(blocked))
    assert status(replace(snapshot(blocked), at=AT + 29)) == before
    assert status(replace(snapshot(blocked), at=AT + 30)) != before
    assert status(snapshot(replace(blocked, waiting=8))) != before
    assert status(replace(snapshot(blocked), store_up=False)) != before
