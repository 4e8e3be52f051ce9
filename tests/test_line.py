"""The line of one host: who is next, who rests, whose window closes. Against a trivial model as well."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from proxy_addon.line import Line, Waiter
from tests.support.examples import FIXED


def enter(
    line: Line[str],
    name: str,
    *,
    now: float,
    not_before: float = 0.0,
    for_page: float | None = None,
    window_s: float = 600.0,
    closes: float = 1e9,
) -> Waiter[str]:
    entered = Waiter(name, window_s, closes, for_page)
    line.enter(entered, now=now, not_before=not_before)
    return entered


def served(line: Line[str]) -> list[str]:
    """Everybody in line, in order; the line is empty of them then."""
    order = []
    while (head := line.head()) is not None:
        order.append(head.item)
        line.leave(head)
    return order


# --- the order


def test_an_empty_line_has_nothing_to_say() -> None:
    line: Line[str] = Line()
    assert (len(line), line.in_line, line.head(), line.rests_until(), line.closes_at()) == (0, 0, None, None, None)
    assert line.closed(now=math.inf) is None
    line.wake_rested(now=math.inf)
    assert line.head() is None


def test_with_equal_windows_first_come_is_first_served() -> None:
    line: Line[str] = Line()
    for number, name in enumerate("abc"):
        enter(line, name, now=float(number))
    assert served(line) == ["a", "b", "c"]


def test_those_who_come_at_the_same_moment_keep_their_order() -> None:
    line: Line[str] = Line()
    names = [f"{number:03}" for number in range(100)]
    for name in names:
        enter(line, name, now=5.0)
    assert served(line) == names


def test_someone_with_a_short_window_goes_ahead_of_a_batch_but_not_for_ever() -> None:
    line: Line[str] = Line()
    enter(line, "batch at 0", now=0.0, window_s=600)
    enter(line, "spinner at 554", now=554.0, window_s=45)
    enter(line, "spinner at 555", now=555.0, window_s=45)
    enter(line, "spinner at 556", now=556.0, window_s=45)
    # Virtual deadlines: 600, 599, 600 and later than the batch, 601.
    assert served(line) == ["spinner at 554", "batch at 0", "spinner at 555", "spinner at 556"]


def test_the_full_window_counts_not_what_is_left_of_it() -> None:
    line: Line[str] = Line()
    enter(line, "fresh", now=100.0, window_s=600, closes=700.0)
    enter(line, "retry", now=101.0, window_s=600, closes=110.0)
    # A retried request re-enters at the back, however soon its window closes.
    assert served(line) == ["fresh", "retry"]


def test_looking_at_the_head_does_not_move_it() -> None:
    line: Line[str] = Line()
    first = enter(line, "a", now=0.0)
    assert line.head() is first
    assert line.head() is first
    assert (len(line), line.in_line) == (1, 1)


# --- resting


def test_a_resting_waiter_is_not_in_line_until_its_rest_is_over() -> None:
    line: Line[str] = Line()
    resting = enter(line, "a", now=0.0, not_before=5.0)
    assert (resting.resting, len(line), line.in_line, line.head(), line.rests_until()) == (True, 1, 0, None, 5.0)
    line.wake_rested(now=4.999)
    assert (line.in_line, line.head()) == (0, None)
    line.wake_rested(now=5.0)
    assert (resting.resting, len(line), line.in_line, line.head(), line.rests_until()) == (False, 1, 1, resting, None)


@pytest.mark.parametrize("not_before", [-1.0, 0.0, 10.0])
def test_a_rest_that_is_over_already_is_none(not_before: float) -> None:
    line: Line[str] = Line()
    assert enter(line, "a", now=10.0, not_before=not_before) is line.head()


def test_who_has_rested_stands_where_the_end_of_the_rest_puts_it_however_late_it_is_woken() -> None:
    line: Line[str] = Line()
    enter(line, "rests until 5", now=0.0, not_before=5.0)
    enter(line, "rests until 3", now=1.0, not_before=3.0)
    enter(line, "came at 4", now=4.0)
    enter(line, "came at 6", now=6.0)
    line.wake_rested(now=100.0)
    assert served(line) == ["rests until 3", "came at 4", "rests until 5", "came at 6"]


def test_a_page_ends_the_rests_of_those_who_were_sent_before_it() -> None:
    line: Line[str] = Line()
    enter(line, "patient", now=0.0, not_before=20.0)
    enter(line, "later", now=0.0, not_before=20.0, for_page=3.0)
    enter(line, "earlier", now=0.0, not_before=20.0, for_page=1.0)
    assert not line.end_rests(now=5.0, page_sent=1.0)
    assert line.end_rests(now=6.0, page_sent=3.0)
    assert not line.end_rests(now=6.0, page_sent=3.0)

    assert (line.in_line, line.rests_until()) == (1, 20.0)
    assert served(line) == ["earlier"]
    line.wake_rested(now=20.0)
    assert served(line) == ["patient", "later"]


def test_who_is_woken_by_a_page_stands_where_the_page_puts_it() -> None:
    line: Line[str] = Line()
    enter(line, "woken", now=0.0, not_before=20.0, for_page=0.0)
    enter(line, "before", now=4.9)
    line.end_rests(now=5.0, page_sent=1.0)
    enter(line, "after", now=5.1)
    line.wake_rested(now=20.0)
    assert served(line) == ["before", "woken", "after"]


def test_the_next_rest_to_end_is_told() -> None:
    line: Line[str] = Line()
    later, sooner = (enter(line, name, now=0.0, not_before=until) for name, until in (("a", 9.0), ("b", 7.0)))
    assert line.rests_until() == 7.0
    line.leave(sooner)
    assert line.rests_until() == 9.0
    line.leave(later)
    assert line.rests_until() is None


# --- leaving


def test_the_next_one_is_at_the_head_when_the_head_leaves() -> None:
    line: Line[str] = Line()
    first, second = enter(line, "a", now=0.0), enter(line, "b", now=1.0)
    line.leave(first)
    assert line.head() is second
    assert (first.gone, len(line), line.in_line) == (True, 1, 1)


def test_leaving_twice_is_leaving_once() -> None:
    line: Line[str] = Line()
    first = enter(line, "a", now=0.0)
    enter(line, "b", now=1.0)
    line.leave(first)
    line.leave(first)
    assert (len(line), line.in_line) == (1, 1)


def test_who_leaves_while_resting_never_comes_into_the_line() -> None:
    line: Line[str] = Line()
    resting = enter(line, "a", now=0.0, not_before=5.0)
    line.leave(resting)
    assert (len(line), line.in_line) == (0, 0)
    line.wake_rested(now=10.0)
    assert (len(line), line.in_line, line.head()) == (0, 0, None)


def test_the_middle_of_the_line_can_leave() -> None:
    line: Line[str] = Line()
    waiters = [enter(line, name, now=0.0) for name in "abcde"]
    for left in waiters[1:4]:
        line.leave(left)
    assert served(line) == ["a", "e"]


# --- windows


def test_the_window_that_closes_first_is_told_whoever_it_belongs_to() -> None:
    line: Line[str] = Line()
    enter(line, "in line", now=0.0, closes=20.0)
    resting = enter(line, "resting", now=0.0, not_before=50.0, closes=10.0)
    assert line.closes_at() == 10.0
    assert line.closed(now=9.999) is None
    assert line.closed(now=10.0) is resting
    assert line.closed(now=10.0) is resting  # it stays until it is taken out
    line.leave(resting)
    assert (line.closed(now=10.0), line.closes_at()) == (None, 20.0)


def test_windows_close_in_the_order_of_their_ends() -> None:
    line: Line[str] = Line()
    for name, closes in (("a", 30.0), ("b", 10.0), ("c", 20.0), ("d", 10.0)):
        enter(line, name, now=0.0, closes=closes)
    closed = []
    while (found := line.closed(now=math.inf)) is not None:
        closed.append(found.item)
        line.leave(found)
    assert closed == ["b", "d", "c", "a"]


# --- size


def test_those_who_left_are_not_kept_for_ever() -> None:
    line: Line[str] = Line()
    staying = enter(line, "stays", now=0.0, closes=1.0)
    for number in range(10_000):
        line.leave(enter(line, "in line", now=float(number + 1), closes=1e9))
        line.leave(enter(line, "resting", now=0.0, not_before=1e9, closes=1e9))
    # The head and the next window are at the top all the time: nothing falls out by itself.
    assert max(len(line._order), len(line._resting), len(line._closing)) <= 66
    assert (len(line), line.head(), line.closed(now=1.0)) == (1, staying, staying)


def test_a_full_line_keeps_its_order_while_most_of_it_leaves() -> None:
    line: Line[str] = Line()
    waiters = [enter(line, str(number), now=float(number)) for number in range(1_000)]
    for number, leaving in enumerate(waiters):
        if number % 100:
            line.leave(leaving)
    assert served(line) == ["0", "100", "200", "300", "400", "500", "600", "700", "800", "900"]


# --- a model


@dataclass(slots=True, eq=False)
class Expected:
    """A waiter as the model knows it."""

    waiter: Waiter[str]
    number: int
    due: float
    """Since when it is in line, or when its rest is over."""
    resting: bool
    for_page: float | None = None


class Lines(RuleBasedStateMachine):
    """The line, and a plain list that is sorted anew for each question."""

    def __init__(self) -> None:
        super().__init__()
        self.line: Line[str] = Line()
        self.present: list[Expected] = []
        self.left: list[Waiter[str]] = []
        self.now = 0.0
        self.number = 0

    @rule(
        rest=st.sampled_from([-1.0, 0.0, 1.0, 2.0, 5.0]),
        window=st.sampled_from([0.0, 3.0, 10.0]),
        left_s=st.sampled_from([0.0, 1.0, 3.0, 10.0]),
        many=st.sampled_from([1, 1, 1, 40]),
        sent_s=st.none() | st.sampled_from([0.0, 1.0, 2.0]),
    )
    def come(self, rest: float, window: float, left_s: float, many: int, sent_s: float | None) -> None:
        for_page = None if sent_s is None else self.now - sent_s
        for _ in range(many):
            self.number += 1
            entered = Waiter(str(self.number), window, self.now + left_s, for_page)
            self.line.enter(entered, now=self.now, not_before=self.now + rest)
            self.present.append(Expected(entered, self.number, self.now + max(0.0, rest), rest > 0, for_page))

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 4.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def wake(self) -> None:
        self.line.wake_rested(now=self.now)
        for one in self.present:
            one.resting = one.resting and one.due > self.now

    @rule(sent_s=st.sampled_from([0.0, 0.5, 3.0]))
    def page(self, sent_s: float) -> None:
        ended = False
        for one in self.present:
            if one.resting and one.for_page is not None and one.for_page < self.now - sent_s:
                one.resting, one.due, ended = False, self.now, True
        assert self.line.end_rests(now=self.now, page_sent=self.now - sent_s) is ended

    @precondition(lambda self: self.present)
    @rule(data=st.data(), share=st.sampled_from([0.0, 0.9]))
    def leave(self, data: st.DataObject, share: float) -> None:
        for _ in range(max(1, int(len(self.present) * share))):
            index = data.draw(st.integers(0, len(self.present) - 1)) if not share else len(self.present) // 2
            gone = self.present.pop(index).waiter
            self.line.leave(gone)
            self.left.append(gone)

    @precondition(lambda self: self.left)
    @rule()
    def leave_again(self) -> None:
        self.line.leave(self.left[-1])

    @invariant()
    def agree(self) -> None:
        in_line = [one for one in self.present if not one.resting]
        resting = [one for one in self.present if one.resting]
        assert (len(self.line), self.line.in_line) == (len(self.present), len(in_line))
        head = min(in_line, key=lambda one: (one.due + one.waiter.window_s, one.number), default=None)
        assert self.line.head() is (head.waiter if head else None)
        assert self.line.rests_until() == min((one.due for one in resting), default=None)
        assert self.line.closes_at() == min((one.waiter.closes for one in self.present), default=None)
        closed = min(self.present, key=lambda one: (one.waiter.closes, one.number), default=None)
        if closed is not None and closed.waiter.closes > self.now:
            closed = None
        assert self.line.closed(now=self.now) is (closed.waiter if closed else None)


def test_a_line_does_what_a_sorted_list_does() -> None:
    run_state_machine_as_test(Lines, settings=FIXED)
