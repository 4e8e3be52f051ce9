"""What the status page makes of a status, in a real Chromium: words, ladder, chart, looks, keyboard, screen reader.

The page's files and written statuses come from a scripted origin; the page on the real proxy is in
`scenarios/test_status_page.py`.
"""

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from proxy_addon.settings import Settings
from tests.support.browser import Chromium, chromium
from tests.support.origin import Origin
from tests.support.status_origin import Told, host, status

ROOT = Path(__file__).parents[1]
NOW = 1_800_000_000.0
PHONE = {"width": 360, "height": 800}
LONG = ".".join(("a" * 63, "b" * 63, "c" * 63, "d" * 61))
BUSY = status(
    host("down.example", 5, waiting=9, paused_until=NOW + 125, last_stall={"error": "connection_timeout", "at": NOW}),
    host("polite.example", 1, waiting=2, blocked_until=NOW + 240),
    host("shop.example", 3, waiting=41, last_stall={"error": "http_response_timeout", "at": NOW - 20}),
    host("floor.example", 0, floor_s=5, pace_s=5),
    host("small.example", 0, waiting=4, in_flight_limit=2, next_slot_at=0, next_slot_in_s=0),
    waiting=56,
    healthy_hosts=214,
)

ANSWERS = [
    (status(), "Nothing is slow.", "Nothing was asked for in the last 10 minutes."),
    (
        status(healthy_hosts=1),
        "Nothing is slow.",
        "1 host was asked in the last 10 minutes, and nothing is held back.",
    ),
    (
        status(host("a.example", 3, last_stall={"error": "http_status_5xx", "at": NOW - 300}), waiting=1),
        "1 host is being paced; 1 request waits.",
        "a.example is asked once every 15 s since it answered with a server error 5 min ago; next request in 15 s.",
    ),
    (
        status(host("a.example", 2, paused_until=NOW + 125), host("b.example"), waiting=1_234),
        "2 hosts are being paced; 1,234 requests wait.",
        "a.example is paused: nothing is sent to it until 08:02:05, for another 2 min 5 s.",
    ),
    (
        status(host("a.example", 1, blocked_until=NOW + 60, last_stall={"error": "rate_limited", "at": NOW - 9})),
        "1 host is being paced; nothing waits.",
        "a.example asked to be left alone until 08:01:00, for another 60 s. "
        "The last time it was asked, it answered 429, too many requests 9 s ago.",
    ),
    (
        status(host("a.example", 0, floor_s=2.5, pace_s=2.5, next_slot_at=NOW + 2.5)),
        "1 host is being paced; nothing waits.",
        "a.example is asked once every 2.5 s, as an operator has set it; next request in 3 s.",
    ),
    (
        status(host("a.example", 0, pace_s=0.25, next_slot_at=0)),
        "1 host is being paced; nothing waits.",
        "a.example is asked once every 0.25 s, as its own quota bears no more; the next request may go at once.",
    ),
    (
        status(host("a.example", 0, in_flight_limit=2, waiting=1), waiting=1),
        "No host is being paced; 1 request waits.",
        "a.example is asked at most 2 at a time; 1 request waits for one of them to end.",
    ),
    (
        status(host("a.example", 0, waiting=3), waiting=3),
        "No host is being paced; 3 requests wait.",
        "a.example has recovered; its requests go out step by step.",
    ),
]
"""What the page is told, its headline, and the sentence below."""


@pytest.fixture(scope="module")
def running() -> Iterator[Chromium]:
    with chromium() as browser:
        yield browser


def show(page: Page, origin: Origin) -> None:
    """Open the page, and wait until it has drawn what it was told."""
    page.goto(origin.url())
    expect(page.locator("#connection")).to_have_text("Live")


def plain(text: str) -> str:
    """With ordinary spaces, also where a line must not be broken."""
    return text.replace("\u00a0", " ")


def names(page: Page) -> list[str]:
    return page.locator(".host .name").all_text_contents()


def rung_of(page: Page, name: str) -> str:
    """The label of the rung that a host stands on."""
    rung = page.locator(".rung", has=page.get_by_text(name, exact=True))
    return plain(rung.locator(".pace").inner_text()).split(",")[0].strip()


def sideways(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def violations(page: Page) -> list[str]:
    return [f"{v['id']}: {v['nodes'][0]['html']}" for v in Axe().run(page).response["violations"]]


def test_the_page_answers_in_words_why_it_is_slow(running: Chromium) -> None:
    with Told(*(told for told, _, _ in ANSWERS)) as origin, running.page(timezone_id="UTC") as page:
        page.clock.install(time=0)
        page.clock.pause_at(10)
        show(page, origin)
        for number, (_, headline, because) in enumerate(ANSWERS):
            if number:
                origin.tell_next()
            expect(page.locator("#because")).to_have_text(because)
            expect(page.get_by_role("heading", level=1)).to_have_text(headline)


def test_each_host_stands_on_its_rung_with_its_line_and_what_it_is_held_by(running: Chromium) -> None:
    with Told(BUSY) as origin, running.page(timezone_id="UTC") as page:
        page.clock.install(time=0)
        page.clock.pause_at(10)
        show(page, origin)
        labels = [plain(text).split(",")[0].strip() for text in page.locator(".pace").all_inner_texts()]
        assert labels == ["60 s", "30 s", "15 s", "5 s", "2 s", "0 s"]
        rungs = {name: rung_of(page, name) for name in names(page)}
        assert rungs == {
            "down.example": "60 s",
            "shop.example": "15 s",
            "polite.example": "2 s",
            "floor.example": "0 s",
            "small.example": "0 s",
        }
        shop = page.locator(".host", has_text="shop.example")
        expect(shop.locator(".reason")).to_have_text("It gave no answer in time 20 s ago")
        expect(shop.locator(".waiting")).to_have_text("41 waiting")
        expect(shop.locator(".dots i")).to_have_count(20)
        expect(shop.locator(".next")).to_have_text("next in 15 s")
        tags = [plain(tag) for tag in page.locator(".tags").all_text_contents() if tag]
        assert tags == ["paused until 08:02:05", "blocked until 08:04:00", "floor 5 s"]
        expect(page.locator("#healthy")).to_have_text("214 healthy hosts, asked without any wait")
        assert page.title() == "(4) Paceproxy"
        # Ten seconds later, by the page's own clock: nothing new has come.
        page.clock.run_for(10_000)
        expect(shop.locator(".next")).to_have_text("next in 5 s")
        expect(shop.locator(".reason")).to_have_text("It gave no answer in time 30 s ago")


def test_a_host_above_the_ladder_of_this_process_stands_on_its_top_rung(running: Chromium) -> None:
    far = {**host("far.example"), "rung": 9}
    with Told(status(far, ladder=[0, 2, 5])) as origin, running.page() as page:
        show(page, origin)
        assert rung_of(page, "far.example") == "5 s"


def test_the_chart_says_in_words_and_as_a_table_what_it_draws(running: Chromium) -> None:
    recent = {
        "step_s": 10,
        "until": NOW,
        "served": [0] * 54 + [10, 20, 0, 0, 0, 1],
        "failed": [0] * 59 + [2],
        "saved": [0] * 55 + [5] + [0] * 4,
        "waited_s": [0] * 55 + [90.5] + [0] * 4,
    }
    with Told(status(recent=recent)) as origin, running.page(timezone_id="UTC") as page:
        show(page, origin)
        words = "5 requests were served after a stall: without another attempt they would have failed. "
        expect(page.get_by_role("img", name=words + "All requests together waited 91 s.")).to_be_visible()
        assert [page.locator(f"#{part}").inner_text() for part in ("served", "saved", "failed")] == ["31", "5", "2"]
        heights = {
            part: [
                float(bar.get_attribute("height") or "") for bar in page.locator(f"#chart .{part} rect").all()[54:56]
            ]
            for part in ("served", "saved")
        }
        # The peak is 20, of them 15 without a stall; as high as the chart but for a little.
        assert heights == {"served": [45.0, 67.5], "saved": [0.0, 22.5]}
        page.get_by_text("As a table").click()
        first = page.locator("#minutes tr").first.locator("td").all_text_contents()
        assert [plain(cell) for cell in first] == ["07:59:00", "31", "5", "2", "91 s"]
        expect(page.locator("#minutes tr")).to_have_count(10)


def test_hostile_names_are_text_that_can_neither_turn_nor_widen_the_page(running: Chromium) -> None:
    hostile = ("<img src=x onerror=alert(1)>", "\u202eelpmaxe.pohs", "xn--mnchen-3ya.de", LONG)
    shown = [hostile[0], "\\u{202e}elpmaxe.pohs", *hostile[2:]]
    with Told(status(*map(host, hostile)), status(host(hostile[1]))) as origin, running.page(viewport=PHONE) as page:
        show(page, origin)
        assert names(page) == shown
        expect(page.locator("#because")).to_contain_text(hostile[0])
        assert page.locator("img").count() == 0
        for name in shown:
            page.get_by_role("button", name=f"Change {name}", exact=True).click()
            expect(page.get_by_role("dialog", name=name, exact=True)).to_be_visible()
            assert sideways(page) == 0
            page.keyboard.press("Escape")
        running.keep(page, "hostile-names")
        origin.tell_next()
        expect(page.locator("#because")).to_contain_text(shown[1])


def test_of_five_hundred_hosts_the_worst_are_shown_and_the_rest_on_demand(running: Chromium) -> None:
    hosts = [host(f"host-{n:03}.example", 5 - n // 100) for n in range(500)]
    with Told(status(*hosts)) as origin, running.page() as page:
        show(page, origin)
        assert names(page) == [f"host-{n:03}.example" for n in range(24)]
        rest = [text for text in page.locator(".rest").all_text_contents() if text]
        assert rest == ["and 76 hosts more on this rung", *["and 100 hosts more on this rung"] * 4]
        page.get_by_role("button", name="Show all 500 hosts").click()
        assert len(names(page)) == 500
        assert not any(page.locator(".rest").all_text_contents())
        page.get_by_label("Find a host").fill("HOST-49")
        expect(page.locator("#found")).to_have_text("10 of 500 hosts shown.")
        assert names(page) == [f"host-{n}.example" for n in range(490, 500)]
        running.keep(page, "filtered")
        page.get_by_label("Find a host").fill("")
        page.get_by_role("button", name="Show only the worst 24").click()
        expect(page.locator(".host")).to_have_count(24)
        running.keep(page, "many")


def test_an_update_takes_neither_focus_nor_place_from_the_user(running: Chromium) -> None:
    hosts = [host(f"host-{n:02}.example", 3) for n in range(20)]
    rest = [one for one in hosts if one["host"] != "host-15.example"]
    told = (
        status(*hosts),
        # Five worse ones come, and the user's host climbs to the rung above.
        status(*(host(f"new-{n}.example", 5) for n in range(5)), host("host-15.example", 4), *rest),
        status(*rest),
    )
    with Told(*told) as origin, running.page(viewport={"width": 1280, "height": 500}) as page:
        show(page, origin)
        button = page.get_by_role("button", name="Change host-15.example")
        button.focus()
        top = button.evaluate("node => node.getBoundingClientRect().top")
        assert 0 < top < 500
        origin.tell_next()
        expect(page.locator(".host", has_text="new-4.example")).to_be_attached()
        expect(button).to_be_focused()
        assert rung_of(page, "host-15.example") == "30 s"
        assert abs(button.evaluate("node => node.getBoundingClientRect().top") - top) < 2
        # Its host leaves: a neighbour gets the focus, so that the user need not begin anew at the top of the page.
        origin.tell_next()
        expect(button).to_have_count(0)
        expect(page.locator("#ladder-title")).to_be_focused()


def test_a_screen_reader_is_told_of_news_and_not_of_every_change(running: Chromium) -> None:
    told = (
        status(host("a.example", waiting=1), waiting=1),
        status(host("a.example", waiting=2), waiting=2),
        status(host("b.example"), host("a.example", waiting=2), waiting=2),
    )
    with Told(*told) as origin, running.page() as page:
        page.clock.install(time=0)
        show(page, origin)
        page.clock.fast_forward(11_000)
        announcer = page.locator("#announcer")
        origin.tell_next()
        expect(page.get_by_role("heading", level=1)).to_have_text("1 host is being paced; 2 requests wait.")
        expect(announcer).to_have_text("")
        origin.tell_next()
        expect(announcer).to_have_text("2 hosts are being paced.")
        live = page.locator("[role=status], [role=alert], [aria-live]")
        assert {node.get_attribute("id") for node in live.all()} == {
            *(None, "found", "announcer", "operator-done", "operator-error")
        }


def test_a_store_that_is_down_is_told(running: Chromium) -> None:
    with Told(status(), status(store_up=False)) as origin, running.page() as page:
        show(page, origin)
        notice = page.get_by_text("The store does not work.")
        expect(notice).to_be_hidden()
        origin.tell_next()
        expect(notice).to_be_visible()
        running.keep(page, "store-down")


def test_the_page_can_be_read_by_everybody_light_and_dark(running: Chromium) -> None:
    with Told(BUSY) as origin, running.page(color_scheme="light", timezone_id="UTC") as page:
        show(page, origin)
        running.keep(page, "light")
        assert violations(page) == []
        page.emulate_media(color_scheme="dark")
        running.keep(page, "dark")
        page.get_by_role("button", name="Change shop.example").click()
        running.keep(page, "dark-operator")
        assert violations(page) == []


def test_on_a_phone_nothing_has_to_be_moved_sideways(running: Chromium) -> None:
    with Told(BUSY) as origin, running.page(viewport=PHONE) as page:
        show(page, origin)
        running.keep(page, "phone")
        assert sideways(page) == 0
        page.get_by_text("As a table").click()
        page.get_by_role("button", name="Change shop.example").click()
        running.keep(page, "phone-operator")
        assert sideways(page) == 0
        dialog = page.get_by_role("dialog")
        assert dialog.evaluate("node => node.scrollWidth - node.clientWidth") == 0


def test_with_reduced_motion_nothing_moves(running: Chromium) -> None:
    moving = "getComputedStyle(document.querySelector('.bar'), '::before').transitionDuration"
    with Told(BUSY) as origin, running.page() as page:
        show(page, origin)
        assert page.evaluate(moving) == "1s"
        page.emulate_media(reduced_motion="reduce")
        assert page.evaluate(moving) == "0s"


def test_without_javascript_the_page_names_the_command(running: Chromium) -> None:
    with Told(status()) as origin, running.page(java_script_enabled=False) as page:
        page.goto(origin.url())
        expect(page.get_by_text("This page needs JavaScript.")).to_be_visible()
        expect(page.locator("#no-script code")).to_have_text("paceproxy status")


def test_the_built_wheel_brings_the_page_along(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (wheel,) = tmp_path.glob("*.whl")
    prefix = "proxy_addon/admin/page/"
    packed = {name.removeprefix(prefix) for name in zipfile.ZipFile(wheel).namelist() if name.startswith(prefix)}
    assert packed == {
        *("index.html", "page.css", "icon.svg"),
        *("page.js", "asking.js", "chart.js", "elements.js", "ladder.js", "operator.js", "words.js"),
    }


def test_the_documentation_has_the_buttons_and_the_default_address_of_the_page(running: Chromium) -> None:
    text = (ROOT / "docs" / "status-page.md").read_text()
    with Told(BUSY) as origin, running.page() as page:
        show(page, origin)
        page.get_by_role("button", name="Change shop.example").click()
        buttons = page.get_by_role("dialog").get_by_role("button").all_inner_texts()
        assert re.findall(r"(?m)^\| ([A-Z]\w+(?: \w+)?) \|", text) == [name for name in buttons if name]
    assert f"`http://{Settings().admin}/`" in text
    (picture,) = re.findall(r"\]\((images/.*\.png)\)", text)
    assert 0 < (ROOT / "docs" / picture).stat().st_size < 150_000
