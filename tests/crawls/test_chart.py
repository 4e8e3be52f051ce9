"""The chart of the incident, from literal records."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from tests.crawls.chart import Course, course, draw
from tests.crawls.records import Outcome
from tests.simulation.origins import Arrival
from tests.simulation.scenarios import SCENARIOS

SITE = replace(SCENARIOS["shop-pool"], pages=3)
_SVG = "{http://www.w3.org/2000/svg}"


def outcome(number: int, t0: float, t1: float, status: int | None = 200) -> Outcome:
    return Outcome(f"http://127.0.0.1:80/p/{number}", t0, t1, status, None if status else "TimeoutError", 1)


def arrival(at: float, finish: float | None, left: float | None = None) -> Arrival:
    return Arrival("127.0.0.1", "/p/0", at, busy=0, queued=0, in_flight=1, finish=finish, left=left)


BAD = course(
    [outcome(2, 0.5, 120.5, None), outcome(0, 0.5, 60.5), outcome(1, 0.5, 110.5, None)],
    [arrival(0.0, 60.0), arrival(0.0, 130.0, left=110.0), arrival(0.0, None, left=120.0)],
)
GOOD = course(
    [outcome(number, 0.0, 10.0 * (number + 1)) for number in range(3)],
    [arrival(0.0, 10.0), arrival(10.0, 20.0), arrival(20.0, 30.0)],
)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{_SVG}text")]


def test_a_course_counts_pages_and_failures_from_the_first_request() -> None:
    assert (
        Course(
            pages=[(0.0, 0), (60.0, 1)],
            failures=(110.0, 120.0),
            at_origin=[(0.0, 0), (0.0, 1), (0.0, 2), (0.0, 3), (60.0, 2), (130.0, 1)],
        )
        == BAD
    )
    assert (BAD.got, BAD.end, BAD.most_at_origin) == (1, 120.0, 3)


def test_a_request_that_follows_another_at_once_is_not_beside_it() -> None:
    assert GOOD.most_at_origin == 1


def test_the_chart_says_in_words_what_it_shows() -> None:
    root = ET.fromstring(draw(SITE, BAD, GOOD))
    assert root.get("role") == "img"
    labels = [root.find(f"*[@id='{name}']") for name in str(root.get("aria-labelledby")).split()]
    assert [element.text for element in labels if element is not None] == [
        "A crawl of a small shop, with and without Paceproxy",
        "Without Paceproxy: 1 of 3 pages and 2 failures in 120 s, up to 3 requests at the shop at once. "
        "With it: 3 of 3 pages in 30 s, up to 1 requests at once.",
    ]


def test_each_crawl_is_labelled_at_its_line() -> None:
    said = texts(draw(SITE, BAD, GOOD))
    assert "3 pages of a small shop, asked for 5 at a time" in said
    assert "without: 1 of 3, 2 failed" in said
    assert "with Paceproxy: 3 of 3 after 30 s" in said
    assert [text for text in said if "min" in text] == ["1 min", "2 min"] * 2


def test_every_failure_has_a_cross() -> None:
    marks = [path.get("class") for path in ET.fromstring(draw(SITE, BAD, GOOD)).iter(f"{_SVG}path")]
    assert (marks.count("mark without"), marks.count("mark with")) == (2, 0)


def test_a_page_that_comes_twice_as_late_is_twice_as_far_to_the_right() -> None:
    paths = list(ET.fromstring(draw(SITE, BAD, GOOD)).iter(f"{_SVG}path"))
    (line, _) = [str(path.get("d")) for path in paths if path.get("class") == "line with"]
    assert line == "M48.0 334.0H48.0V334.0H88.2V252.0H128.3V170.0H168.5V88.0H168.5"


def test_the_chart_is_legible_on_dark_paper() -> None:
    svg = draw(SITE, BAD, GOOD)
    assert "@media (prefers-color-scheme: dark)" in svg
    assert 'class="paper"' in svg  # its own, since the page's may be of the other kind
