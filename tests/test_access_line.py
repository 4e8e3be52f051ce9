"""What a line of the access log says, and that nothing a client sends can make it anything but one line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon.access_line import access_line
from proxy_addon.model import ErrorName, Outcome
from tests.support.requests_ended import ended


def read(*, query: bool = True, **changes: Any) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(access_line(ended(**changes), query=query))
    return line


def test_a_line_says_everything_in_this_order() -> None:
    assert access_line(ended(), query=True) == (
        '{"accepted_at":"2027-01-15T08:00:00.000000Z","sent_at":"2027-01-15T08:00:02.500000Z",'
        '"first_byte_at":"2027-01-15T08:00:02.750000Z","done_at":"2027-01-15T08:00:03.000000Z",'
        '"duration_s":3.000000,"waited_s":2.250000,"attempts_s":0.500000,"body_s":0.250000,'
        '"client":"192.0.2.7","method":"GET","url":"https://shop.example/item?id=7","host":"shop.example",'
        '"status":200,"outcome":"served","error":null,"attempts":2,"stalls":1,"rung":1,"body_bytes":1234}\n'
    )


def test_what_there_was_not_is_null() -> None:
    line = read(sent_at=None, first_byte_at=None, status=None, outcome=Outcome.ABANDONED, error=ErrorName.RATE_LIMITED)
    assert (line["sent_at"], line["first_byte_at"], line["status"]) == (None, None, None)
    assert (line["outcome"], line["error"]) == ("abandoned", "rate_limited")
    assert (line["attempts_s"], line["body_s"]) == (0.75, 0.0)


def test_without_the_query_a_url_ends_before_it() -> None:
    for url in ("https://shop.example/item", "https://shop.example/item?", "https://shop.example/item?a=1?b#c"):
        assert read(query=False, url=url)["url"] == "https://shop.example/item"
    assert read(query=False, url="https://shop.example/item#token=1?")["url"] == "https://shop.example/item"


def test_users_and_passwords_never_appear() -> None:
    assert read(url="http://me:secret@shop.example/")["url"] == "http://[redacted]@shop.example/"
    assert read(url="http://a.example/save/http://me:s@b.example/")["url"] == (
        "http://a.example/save/http://[redacted]@b.example/"
    )
    assert read(url="https://blog.example/@me?mail=you@c.example")["url"] == (
        "https://blog.example/@me?mail=you@c.example"
    )


def test_what_is_not_printable_ascii_is_percent_encoded_as_it_came() -> None:
    assert read(url='http://a.example/\n\x1b\x7f "\\é\udcff%41')["url"] == (
        "http://a.example/%0A%1B%7F%20%22%5C%C3%A9%FF%41"
    )
    assert read(method="G\x00T", host="b\u2028", client="fe80::1%eth0")["method"] == "G%00T"
    assert read(host="b\u2028")["host"] == "b%E2%80%A8"


def test_a_long_url_is_cut_and_marked() -> None:
    start = "http://a.example/"
    whole = start + "x" * (8000 - len(start))
    assert read(url=whole)["url"] == whole
    assert read(url=whole + "y")["url"] == whole + "…"
    # The mark cannot come from a URL.
    assert read(url=start + "…")["url"] == start + "%E2%80%A6"


@pytest.mark.parametrize(
    ("duration_s", "waited_s", "first_byte_at", "parts"),
    [
        (1.0000004, 0.3333333, None, ["1.000000", "0.333333", "0.666667", "0.000000"]),
        # The clock was set: back and ahead while the body came.
        (3.0, 1.0, 1_800_000_004.0, ["3.000000", "1.000000", "2.000000", "0.000000"]),
        (3.0, 1.0, 1_700_000_000.0, ["3.000000", "1.000000", "0.000000", "2.000000"]),
        (0.0, 0.0000009, 1_800_000_003.0, ["0.000000", "0.000000", "0.000000", "0.000000"]),
    ],
)
def test_the_parts_of_the_duration_add_up(
    duration_s: float, waited_s: float, first_byte_at: float | None, parts: list[str]
) -> None:
    event = ended(duration_s=duration_s, waited_s=waited_s, first_byte_at=first_byte_at)
    line = json.loads(access_line(event, query=True), parse_float=str)
    assert [line[name] for name in ("duration_s", "waited_s", "attempts_s", "body_s")] == parts


@given(st.text(), st.text(), st.text(), st.text(), st.booleans())
def test_whatever_comes_is_one_printable_line_of_json(
    url: str, method: str, host: str, client: str, query: bool
) -> None:
    text = access_line(ended(url=url, method=method, host=host, client=client), query=query)
    assert text.endswith("}\n")
    assert text[:-1].isascii()
    assert text[:-1].isprintable()
    assert list(json.loads(text))[:4] == ["accepted_at", "sent_at", "first_byte_at", "done_at"]


def test_no_line_is_as_long_as_what_containers_break() -> None:
    far = "é" * 9000
    event = ended(
        url=far, method=far, host=far, client=far, status=599, error=ErrorName.DESTINATION_IP_UNROUTABLE, rung=99
    )
    assert 8500 < len(access_line(event, query=True)) < 16_384
