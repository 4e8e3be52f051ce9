"""What became of the requests of the last ten minutes."""

from dataclasses import replace

import pytest

from proxy_addon.admin.history import STEPS, History
from proxy_addon.model import Outcome, Redialled
from tests.support.requests_ended import ended

NOW = 1_800_000_003.0
SERVED = ended(accepted_at=NOW, sent_at=NOW, first_byte_at=NOW, done_at=NOW, duration_s=0.0, waited_s=0.0, stalls=0)


def last(history: History, name: str, *, now: float = NOW) -> object:
    column = history.document(now=now)[name]
    assert isinstance(column, list)
    return column[-1]


def test_there_are_sixty_steps_of_ten_seconds_and_the_last_is_running() -> None:
    document = History().document(now=NOW)
    assert (document["step_s"], document["until"]) == (10, 1_800_000_010)
    assert document["served"] == document["failed"] == document["saved"] == [0] * 60
    assert document["waited_s"] == [0.0] * 60


@pytest.mark.parametrize(
    ("outcome", "served", "failed"),
    [
        (Outcome.SERVED, 1, 0),
        (Outcome.STALL, 0, 1),
        (Outcome.FAILURE, 0, 1),
        (Outcome.UNSENT, 0, 1),
        (Outcome.ABANDONED, 0, 0),
    ],
)
def test_a_request_counts_by_its_outcome_and_its_wait_always(outcome: Outcome, served: int, failed: int) -> None:
    history = History()
    history.observe(replace(SERVED, outcome=outcome, waited_s=1.25))
    history.observe(replace(SERVED, outcome=outcome, waited_s=0.5))
    assert (last(history, "served"), last(history, "failed")) == (2 * served, 2 * failed)
    assert last(history, "waited_s") == 1.75
    assert last(history, "saved") == 0


def test_a_page_that_came_after_a_stall_is_served_and_saved() -> None:
    history = History()
    history.observe(replace(SERVED, attempts=3, stalls=2))
    history.observe(replace(SERVED, attempts=3, stalls=2, outcome=Outcome.STALL))
    assert (last(history, "served"), last(history, "saved"), last(history, "failed")) == (1, 1, 1)


def test_a_request_stands_in_the_step_in_which_it_ended_until_that_is_ten_minutes_ago() -> None:
    history = History()
    history.observe(replace(SERVED, done_at=1_800_000_000.0))
    history.observe(replace(SERVED, done_at=1_800_000_009.999))
    history.observe(replace(SERVED, done_at=1_800_000_010.0))
    assert history.document(now=1_800_000_010.0)["served"] == [0] * 58 + [2, 1]
    assert history.document(now=1_800_000_599.0)["served"] == [2, 1] + [0] * 58
    assert history.document(now=1_800_000_600.0)["served"] == [1] + [0] * 59
    assert history.document(now=1_800_000_610.0)["served"] == [0] * 60


def test_it_keeps_no_more_than_it_shows_however_long_it_runs() -> None:
    history = History()
    for number in range(1000):
        history.observe(replace(SERVED, done_at=NOW + 10 * number))
    assert len(history._steps) == STEPS


def test_a_clock_that_is_set_back_loses_what_is_then_in_the_future() -> None:
    history = History()
    history.observe(SERVED)
    history.observe(replace(SERVED, done_at=NOW - 86_400))
    assert history.document(now=NOW - 86_400)["served"] == [0] * 59 + [1]
    assert len(history._steps) == 1


def test_other_events_say_nothing_of_requests() -> None:
    history = History()
    history.observe(Redialled("a.example"))
    assert last(history, "served") == 0
