"""What an operator asks for, read from JSON."""

import math

import pytest

from proxy_addon.admin.host_changes import BadChange, Floor, HostChange, Pause, Resume, parse_change


@pytest.mark.parametrize(
    ("body", "change", "told"),
    [
        (b'{"action": "resume"}', Resume(), "resumed"),
        (b' {"seconds": 600, "action": "pause"}\n', Pause(600.0), "paused for 600 s"),
        (b'{"action": "pause", "seconds": 0.5}', Pause(0.5), "paused for 0.5 s"),
        (b'{"action": "floor", "seconds": 5}', Floor(5.0), "given a floor of 5 s"),
        (b'{"action": "floor", "seconds": 0}', Floor(0.0), "given no floor any more"),
        # That these are not sensible the engine says.
        (b'{"action": "floor", "seconds": -1}', Floor(-1.0), "given a floor of -1 s"),
        (b'{"action": "pause", "seconds": 1e999}', Pause(math.inf), "paused for inf s"),
        (b'{"action": "pause", "seconds": 1' + b"0" * 400 + b"}", Pause(math.inf), "paused for inf s"),
        (b'{"action": "pause", "seconds": -1' + b"0" * 400 + b"}", Pause(-math.inf), "paused for -inf s"),
    ],
)
def test_a_change_is_read_and_told_in_words(body: bytes, change: HostChange, told: str) -> None:
    assert parse_change(body) == change
    assert str(change) == told


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "must be JSON: Expecting value at line 1, column 1"),
        (b"action=resume", "must be JSON: Expecting value"),
        (b'{"action": "resume"', "must be JSON: Expecting ',' delimiter"),
        (b'{"action": "resume"} {}', "must be JSON: Extra data"),
        (b"\xff\xfe", "must be JSON in UTF-8"),
        (b'{"action": "\xe4"}', "must be JSON in UTF-8"),
        (b"[" * 100_000, "must not be nested so deeply"),
        (b'{"action": "pause", "seconds": 1' + b"0" * 5000 + b"}", "must have shorter numbers"),
        (b"null", "must be a JSON object"),
        (b'["resume"]', "must be a JSON object"),
        (b"{}", "action must be resume, pause or floor"),
        (b'{"action": null}', "action must be resume, pause or floor"),
        (b'{"action": ["resume"]}', "action must be resume, pause or floor"),
        (b'{"action": "Resume"}', "action must be resume, pause or floor"),
        (b'{"action": "delete"}', "action must be resume, pause or floor"),
        (b'{"action": "resume", "seconds": 5}', '"seconds" is nothing that resume has'),
        (b'{"action": "pause", "seconds": 5, "host": "x"}', '"host" is nothing that pause has'),
        (b'{"action": "pause"}', "seconds must be a number, got null"),
        (b'{"action": "pause", "seconds": "600"}', 'seconds must be a number, got "600"'),
        (b'{"action": "pause", "seconds": true}', "seconds must be a number, got true"),
        (b'{"action": "floor", "seconds": [5]}', "seconds must be a number, got [5]"),
        (b'{"action": "floor", "seconds": NaN}', "NaN is no number in JSON"),
        (b'{"action": "floor", "seconds": -Infinity}', "-Infinity is no number in JSON"),
    ],
)
def test_what_is_no_change_is_refused_with_what_to_send(body: bytes, said: str) -> None:
    with pytest.raises(BadChange) as caught:
        parse_change(body)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300
