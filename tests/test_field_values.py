"""Header field values: structured fields by the test vectors of the HTTP working group, and hostile lengths.

Decimals and dates are tested where they get a meaning, in `test_rate_limits.py` and `test_window.py`.
"""

import base64
import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from http_sf.types import DisplayString, Token
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http

from proxy_addon.answers import Course, annotate
from proxy_addon.field_values import structured_dictionary, structured_list
from proxy_addon.model import Reply
from proxy_addon.rate_limits import quota_s
from tests.support.examples import FIXED

FILES = sorted((Path(__file__).parent / "data/structured-field-tests").glob("*.json"))
"""Lists of vectors, each with `raw` (lines), `header_type`, and `expected` or `must_fail`; with `can_fail` a parser may
refuse it."""

READ_AS_A_LIST = {"trailing space"}
"""Items that must fail, but are valid as a list of one member, which may end in a tab (RFC 9651 §4.2.1)."""


def plain(value: Any) -> Any:
    """A parsed value in the form in which the vectors write it."""
    match value:
        case (first, dict() as parameters):
            return [plain(first), [[key, plain(of_key)] for key, of_key in parameters.items()]]
        case list():
            return [plain(member) for member in value]
        case dict():
            return [[key, plain(member)] for key, member in value.items()]
        case Decimal():
            return float(value)
        case Token():
            return {"__type": "token", "value": str(value)}
        case DisplayString():
            return {"__type": "displaystring", "value": str(value)}
        case bytes():
            return {"__type": "binary", "value": base64.b32encode(value).decode()}
        case datetime():
            return {"__type": "date", "value": int(value.timestamp())}
        case _:
            return value


def parsed(lines: list[str], kind: str) -> str | None:
    """What we make of these lines, as JSON. An item is read as we read items: as a list of one member."""
    found: Any = structured_dictionary(lines) if kind == "dictionary" else structured_list(lines)
    if kind == "item" and found is not None:
        found = found[0] if len(found) == 1 else None
    return None if found is None else json.dumps(plain(found))


def agrees(vector: dict[str, Any]) -> bool:
    found = parsed(vector["raw"], vector["header_type"])
    if vector.get("must_fail"):
        return found is None or vector["name"] in READ_AS_A_LIST
    return found == json.dumps(vector["expected"]) or bool(vector.get("can_fail") and found is None)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_structured_fields_are_read_as_the_working_groups_vectors_say(file: Path) -> None:
    vectors = json.loads(file.read_text())

    assert vectors
    assert [vector for vector in vectors if not agrees(vector)] == []


def test_our_member_of_proxy_status_is_readable_after_whatever_the_vectors_hold() -> None:
    vectors = [v for file in FILES for v in json.loads(file.read_text()) if v["header_type"] == "list"]
    for vector in vectors:
        response = http.Response.make(200)
        response.headers.set_all("Proxy-Status", vector["raw"])
        annotate(response, Course(attempts=2, waited_s=2.0, rung=1))
        *theirs, ours = json.loads(parsed(response.headers.get_all("Proxy-Status"), "list") or "[null]")

        assert ours[0] == {"__type": "token", "value": "paceproxy"}, vector
        if not vector.get("must_fail"):
            assert theirs == vector["expected"], vector

    assert len(vectors) > 100


def test_all_vectors_are_there() -> None:
    assert sum(len(json.loads(file.read_text())) for file in FILES) == 1_580


@pytest.mark.parametrize("name", ["number", "number-generated"])
def test_a_rate_limit_accepts_the_numbers_that_the_vectors_accept(name: str) -> None:
    """As its `t`: by what comes out at the end. Spaces and commas would be the list's."""
    (file,) = (file for file in FILES if file.stem == name)
    vectors = json.loads(file.read_text())
    numbers = [v for v in vectors if v["header_type"] == "item" and not set(" ,") & set(v["raw"][0])]
    wrong = []
    for vector in numbers:
        wait_s = quota_s(Reply(200, (("RateLimit", f'"default";r=0;t={vector["raw"][0]}'),)), now=0)
        number = -1 if vector.get("must_fail") else vector["expected"][0]
        if wait_s != (None if number < 0 else min(number, 1e10)):
            wrong.append((vector, wait_s))

    assert len(numbers) > 10
    assert wrong == []


@pytest.mark.parametrize("parse", [structured_list, structured_dictionary])
@FIXED
@given(lines=st.lists(st.text(max_size=30) | st.text('":;=,()@%?\\ a1-.*\udcff', max_size=30), max_size=3))
def test_what_is_no_structured_field_is_none_and_no_error(parse: Any, lines: list[str]) -> None:
    found = parse(lines)

    assert found is None or isinstance(found, list | dict)
