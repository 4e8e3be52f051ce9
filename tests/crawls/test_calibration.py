"""The shop's model still makes the incident."""

from dataclasses import replace

from tests.crawls.calibration import SHOP, incident, row


def test_the_shop_with_its_own_numbers_is_the_incident() -> None:
    came = incident(SHOP, seed=3)
    assert (came.pages, came.streak, round(came.makespan), round(came.recovery)) == (7, 24, 303, 117)


def test_two_in_flight_would_have_done_no_harm() -> None:
    assert incident(replace(SHOP, parallel=2), seed=3).pages == 31


def test_workers_that_stopped_for_clients_that_left_would_have_recovered_sooner() -> None:
    assert incident(SHOP, seed=3, frees_worker=True).recovery < 60  # seconds, instead of 117


def test_a_row_has_the_middle_and_the_range_of_its_seeds() -> None:
    assert row("patient", replace(SHOP, timeout=300), [1, 2]).startswith("| patient | 31 (31..31) | 0 (0..0) | ")
