"""The model of the sites, and the oracle, against figures that were measured before there was this code."""

from dataclasses import replace

import pytest

from tests.simulation.oracle import Best, healthy_oracle, oracle
from tests.simulation.scenarios import ALL, SCENARIOS
from tests.simulation.site_model import Job, Pool, override, page_cost, poisoned, urls


@pytest.mark.parametrize(
    ("name", "makespan", "pages", "how"),
    [
        ("shop-pool", 51.5, 31, "always 2 in flight"),
        ("shop-503", 51.5, 31, "always 2 in flight"),
        ("outage", 347.7, 120, "not one request during the outage"),
        ("outage-small", 302.9, 30, "not one request during the outage"),
        ("rate-limit", 55.3, 60, "each request the moment its token is there"),
        ("slow-start", 169.0, 80, "as many in flight as cores are left"),
        ("poison", 30.0, 147, "P in flight, bad pages asked once"),
        ("flaky", 30.2, 150, "retries at once, P in flight"),
        ("mixed-fleet", 93.5, 200, "healthy hosts at once, the sick one when it is back"),
        ("healthy", 4.0, 200, "P in flight"),
    ],
)
def test_the_oracle_of_a_scenario_is_known(name: str, makespan: float, pages: int, how: str) -> None:
    best = oracle(SCENARIOS[name])
    assert (round(best.makespan, 1), best.pages, best.how) == (makespan, pages, how)


@pytest.mark.parametrize(
    ("name", "parallel", "makespan", "how"),
    [
        # Pages are counted in lulls, and by the cores that there are at the moment.
        ("bursty", 2, 73.4, "P in flight"),
        ("recovering", 20, 142.2, "as many in flight as cores are left"),
        # 600 s of work in 5 slots: the sick host is back long before its turn.
        ("mixed-fleet", 5, 118.1, "healthy hosts at once, the sick one when it is back"),
        # What does not thrash is as good with more in flight than it has cores.
        ("cores-8", 20, 12.6, "always 16 in flight"),
        ("database", 20, 10.4, "always 4 in flight"),
    ],
)
def test_the_oracle_of_a_further_site_is_known(name: str, parallel: int, makespan: float, how: str) -> None:
    best = oracle(replace(ALL[name], parallel=parallel))
    assert (round(best.makespan, 1), best.pages, best.how) == (makespan, ALL[name].pages * ALL[name].hosts, how)


def test_of_a_black_hole_nothing_can_be_had() -> None:
    how = "one client timeout: nothing can be had, one try is the least it takes to know"
    assert oracle(SCENARIOS["blackhole"]) == Best(56.0, 0, how)


def test_the_healthy_hosts_of_a_fleet_have_an_oracle_of_their_own() -> None:
    assert round(healthy_oracle(SCENARIOS["mixed-fleet"]), 1) == 15.6


def test_a_page_costs_the_same_each_time_and_not_the_same_as_another() -> None:
    shop = SCENARIOS["shop-pool"]
    assert [round(page_cost(shop, 3, f"/p/{number}"), 3) for number in (0, 1, 0)] == [2.112, 1.988, 2.112]


def test_the_bad_pages_are_as_many_as_the_share_says() -> None:
    bad = [number for number in range(150) if poisoned(SCENARIOS["poison"], 3, f"/p/{number}")]
    assert bad == [27, 122, 147]


def test_the_pages_of_several_hosts_are_asked_for_in_turn() -> None:
    fleet = urls(SCENARIOS["mixed-fleet"], 8080)
    assert fleet[:2] == ["http://127.0.1.1:8080/p/0", "http://127.0.1.2:8080/p/0"]
    assert fleet[20] == "http://127.0.1.1:8080/p/1"
    assert len(fleet) == 200


def test_workers_beyond_the_cores_share_them_and_heat_the_machine_up() -> None:
    pool = Pool(SCENARIOS["shop-pool"])
    for _ in range(7):
        pool.submit(Job(3.3))
    assert (len(pool.busy), len(pool.queue)) == (6, 1)
    pool.advance(10.0)
    assert round(pool.heat, 3) == 1.814
    assert round(pool.busy[0].left, 3) == 1.212


def test_a_pool_with_free_cores_cools() -> None:
    pool = Pool(SCENARIOS["shop-pool"])
    pool.heat = 5.0
    pool.submit(Job(100.0))
    pool.advance(10.0)
    assert round(pool.heat, 3) == 2.5


def test_cores_that_dwindle_are_what_is_left_of_them() -> None:
    pool = Pool(SCENARIOS["slow-start"])
    pool.advance(30.0)
    assert round(pool.cores(), 3) == 3.0
    pool.advance(90.0)
    assert pool.cores() == 1.0


def test_a_scenario_can_be_changed_by_name() -> None:
    changed = override(SCENARIOS["shop-pool"], ["workers=4", "full=429", "cost=1.5"])
    assert (changed.workers, changed.full, changed.cost) == (4, "429", 1.5)


def test_a_name_that_a_scenario_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="a scenario has no 'worker'; it has name, about, pages"):
        override(SCENARIOS["shop-pool"], ["worker=4"])
