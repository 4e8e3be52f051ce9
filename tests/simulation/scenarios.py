"""The sites that a crawl is tried on, by name.

Rule: `SCENARIOS` are those of the incident and its kin, measured with many crawlers and never changed, so that figures
can be compared. Beside them are hosts that are well, where no pacing should show, and further sick ones.
"""

from dataclasses import replace

from tests.simulation.site_model import FOREVER, SEED, Scenario, override, urls

__all__ = ["ALL", "HEALTHY", "SCENARIOS", "SEED", "SICK", "Scenario", "override", "urls"]

_SHOP = Scenario(
    name="shop-pool",
    about="the incident: 6 workers, 2 cores; thrash above 2 in flight; a full pool says nothing",
    pages=31,
    scale=0.02,
    cost=3.3,
    jitter=0.4,
    workers=6,
    probe_after=120,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in [
        _SHOP,
        replace(_SHOP, name="shop-503", about="the same shop, but a full pool answers 503 at once", full="503"),
        Scenario(
            name="outage",
            about="healthy 30 s, 503 for 5 minutes, healthy again",
            pages=120,
            scale=0.02,
            cost=2,
            dead_from=30,
            dead_to=330,
        ),
        Scenario(
            name="outage-small",
            about="the same outage 2 s into a small crawl of a fast host",
            pages=30,
            scale=0.02,
            cost=0.5,
            dead_from=2,
            dead_to=302,
        ),
        Scenario(
            name="rate-limit",
            about="token bucket 1 request/s, burst 5; 429 + Retry-After, seconds and date form in turn",
            pages=60,
            scale=0.25,
            cost=0.3,
            rate=1,
            cap=400,
        ),
        Scenario(
            name="slow-start",
            about="pool whose 5 cores dwindle to 1 in the first minute",
            pages=80,
            scale=0.02,
            cost=3.3,
            workers=8,
            cores=5,
            cores_end=1,
            cores_fall=60,
        ),
        Scenario(
            name="poison",
            about="2% of the pages always answer 500, the rest is fine",
            pages=150,
            scale=0.1,
            poison=0.02,
        ),
        Scenario(
            name="blackhole",
            about="accepts every connection and never answers",
            pages=30,
            scale=0.02,
            dead_to=FOREVER,
            dead_how="silent",
        ),
        Scenario(
            name="flaky",
            about="10% of requests answer 503 at random",
            pages=150,
            scale=0.1,
            flaky=0.10,
        ),
        Scenario(
            name="mixed-fleet",
            about="20 hosts, 10 pages each; host 7 is silent for its first 90 s",
            pages=10,
            scale=0.2,
            parallel=40,
            cost=3,
            cap=400,
            hosts=20,
            sick=7,
            dead_to=90,
            dead_how="silent",
        ),
        Scenario(
            name="healthy",
            about="a fast, healthy host: no pacing should show",
            pages=200,
            scale=0.5,
            cost=0.1,
            cap=120,
        ),
    ]
}

_STEADY = Scenario(name="slow-steady", about="", pages=200, scale=0.1, cost=5.0, cap=7200)
_CORES = replace(_STEADY, cost=0.5, jitter=0.4, heat_up=0.0, backlog=1000, step=0.02)

HEALTHY = {
    scenario.name: scenario
    for scenario in [
        SCENARIOS["healthy"],
        replace(_STEADY, about="5 s a page, however many are in flight"),
        replace(
            _STEADY,
            name="heavy-tailed",
            about="2% of the pages are 100 times slower than the rest, whatever the load",
            cost=0.1,
            slow_share=0.02,
            slow_times=100,
        ),
        replace(
            _STEADY,
            name="lognormal",
            about="page times are lognormal around 0.2 s, sigma 1, whatever the load",
            cost=0.2,
            spread=1.0,
        ),
        replace(
            _STEADY,
            name="bursty",
            about="every 10 to 30 s all pages get 5 times slower, or fast again, whatever the load",
            cost=0.5,
            lull_times=5,
        ),
        replace(_STEADY, name="cdn", about="0.1 s a page, 200 in parallel are nothing to it", cost=0.1, jitter=0.5),
        replace(_STEADY, name="cdn-even", about="the same, and every page takes the same", cost=0.1, jitter=0.05),
        replace(
            _CORES, name="cores-8", about="8 cores, 16 workers, no thrash: beyond 8 they share", cores=8, workers=16
        ),
        replace(
            _CORES, name="cores-32", about="32 cores, 64 workers, no thrash: beyond 32 they share", cores=32, workers=64
        ),
        replace(
            _CORES,
            name="database",
            about="4 servers, first come first served; more in flight brings nothing and harms nothing",
            cost=0.2,
            cores=4,
            workers=4,
        ),
    ]
}
"""Hosts that are well: a crawl should take no longer than without a proxy."""

SICK = {
    scenario.name: scenario
    for scenario in [
        replace(_SHOP, name="shop-4", about="the shop with 4 cores, 12 workers", cores=4, workers=12, pages=62),
        replace(_SHOP, name="shop-8", about="the shop with 8 cores, 24 workers", cores=8, workers=24, pages=124),
        replace(
            _SHOP,
            name="shop-slow-page",
            about="a faster shop, 2% of whose pages are 30 times slower",
            pages=150,
            cost=0.6,
            slow_share=0.02,
            slow_times=30,
        ),
        replace(
            _SHOP,
            name="recovering",
            about="the shop while its cores go from 1 to 6, within 2 minutes",
            pages=150,
            cores=1,
            cores_end=6,
            cores_fall=120,
            workers=12,
        ),
        replace(_SHOP, name="shop-200", about="the shop, and a crawl of 200 pages", pages=200),
        replace(_SHOP, name="fast-shop", about="the shop with pages of 0.3 s", pages=300, cost=0.3, step=0.02),
    ]
}
"""Hosts that more in flight harms, beside those of `SCENARIOS`."""

ALL = SCENARIOS | HEALTHY | SICK
