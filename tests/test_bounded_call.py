"""A blocking call that is given up after a time."""

import threading

import pytest

from proxy_addon.bounded_call import within


def test_what_the_call_returns_is_returned() -> None:
    assert within(60, lambda: "page") == "page"


def test_what_the_call_raises_is_raised() -> None:
    def fail() -> None:
        raise LookupError("no such name")

    with pytest.raises(LookupError, match="no such name"):
        within(60, fail)


def test_a_call_that_does_not_end_is_given_up() -> None:
    release = threading.Event()
    try:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
            within(0.01, release.wait)
    finally:
        release.set()
