"""The judge of the origin's log must itself be able to find fault."""

import pytest

from tests.scenarios.spacing import Entry, too_soon

LADDER = (0, 1, 2)


def stall(at: float, retry_after_s: float = 0) -> Entry:
    return Entry(at, at, stalled=True, retry_after_s=retry_after_s)


def served(at: float) -> Entry:
    return Entry(at, at, stalled=False)


@pytest.mark.parametrize(
    "log",
    [
        pytest.param([served(0), served(0), stall(1)], id="nothing after the first stall"),
        pytest.param([stall(0), stall(1), stall(3), stall(5)], id="the ladder's own spacing"),
        pytest.param([stall(0), stall(0), served(2), served(3), served(3)], id="down again, then free"),
        pytest.param([stall(0, retry_after_s=5), served(5), served(5)], id="after Retry-After"),
        pytest.param([Entry(0, 9, stalled=True), stall(1), stall(2), stall(4)], id="a late time-out counts late"),
        pytest.param([stall(0), stall(0.995)], id="within the tolerance"),
        pytest.param([stall(0), Entry(0.9, 0.9, stalled=False, slack_s=0.1)], id="noticed late"),
        pytest.param([stall(0), Entry(0.5, 0.5, stalled=False, may_be_late=True), served(1)], id="a late attempt"),
        pytest.param([stall(1), Entry(1.5, 1.5, stalled=False, dialled_at=0.9)], id="dialled before the stall"),
    ],
)
def test_a_spacing_that_the_contract_allows_is_no_fault(log: list[Entry]) -> None:
    assert too_soon(log, LADDER, tolerance_s=0.02) == []


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        pytest.param(
            [stall(0), stall(0.9)],
            "0.900 s after a stall that asked for 1.000 s",
            id="after one stall",
        ),
        pytest.param(
            [stall(0), stall(1), stall(2.5)],
            "1.500 s after a stall that asked for 2.000 s",
            id="after two stalls",
        ),
        pytest.param(
            [stall(0), stall(0), served(2), served(2.5)],
            "0.500 s after a request, on rung 1 or above",
            id="on the way down",
        ),
        pytest.param(
            [stall(0), Entry(1, 1, stalled=False, may_lower=False), served(1.5)],
            "0.500 s after a request, on rung 1 or above",
            id="not served meanwhile",
        ),
        pytest.param(
            [stall(0), *(served(1 + n) for n in range(9)), stall(20), served(20.5)],
            "0.500 s after a stall that asked for 1.000 s",
            id="when it was well for a while",
        ),
        pytest.param(
            [stall(1), Entry(1.5, 1.5, stalled=False, dialled_at=1.1)],
            "0.500 s after a stall that asked for 1.000 s",
            id="dialled after the stall",
        ),
        pytest.param(
            [stall(0, retry_after_s=5), served(4)],
            "4.000 s after a stall that asked for 5.000 s",
            id="before Retry-After has passed",
        ),
    ],
)
def test_a_request_that_comes_too_soon_is_a_fault(log: list[Entry], fault: str) -> None:
    assert fault in too_soon(log, LADDER, tolerance_s=0.02)
