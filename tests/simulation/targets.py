"""What Paceproxy promises of each kind of site, and which of it a crawl has missed.

Rule: figures of one crawl in, words out. A promise for patient clients alone is not held against others: nobody can
hide an outage of five minutes from a client that waits for one.
"""

from tests.simulation.judge import Judged
from tests.simulation.scenarios import HEALTHY, SICK

_TOP_PACE_S = 60.0
_PATIENT = "plain-patient"
_OVERLOADED = {"shop-pool", "shop-503", "slow-start", *SICK}
_OUTAGES = {"outage", "outage-small"}
_WAITED_OUT = {*_OUTAGES, "rate-limit", "flaky"}
_LONG_CRAWL = 40
"""Pages for each of the crawler's slots from which on a limit that has to be learned is to cost nothing."""


def missed(crawl: Judged) -> list[str]:
    """In words; empty where everything is as promised. Cases:

    1. a host that more in flight harms: every page, at most 1.25 x oracle, at most 2% of the requests in vain;
    2. one that has to be waited out, and a client that does: every page, at most 1.3 x oracle, and after an outage one
       top pace;
    3. `poison`: every page that can be had within 1.1 x oracle, the end of the crawl at most 30 s later;
    4. `blackhole`: the crawl ends;
    5. `mixed-fleet`: the healthy hosts at most 1.05 x as long as without a proxy;
    6. a healthy host: every page, and in at most 1.05 x the time without a proxy; in a short crawl, at most four page
       times later.
    """
    name, words = crawl.scenario, []
    pages = crawl.got == crawl.can
    if name in _OVERLOADED:
        words += (
            _unless(pages, "pages")
            + _unless(crawl.ratio <= 1.25, "time")
            + _unless(crawl.in_vain_share <= 0.02, "vain")
        )
    elif name in _WAITED_OUT and crawl.client == _PATIENT:
        more_s = _TOP_PACE_S if name in _OUTAGES else 0.0
        words += _unless(pages, "pages") + _unless(crawl.makespan <= 1.3 * crawl.oracle + more_s, "time")
    elif name == "poison":
        in_time = crawl.page_ratio <= 1.1 and crawl.makespan <= 1.1 * crawl.oracle + 30
        words += _unless(pages, "pages") + _unless(in_time, "time")
    elif name == "blackhole":
        words += _unless(crawl.cut == 0, "end")
    elif name == "mixed-fleet":
        all_came = crawl.healthy_got == crawl.healthy_asked
        words += _unless(all_came and (crawl.healthy_to_direct or 0.0) <= 1.05, "healthy hosts")
    elif name in HEALTHY and crawl.to_direct is not None and crawl.later_pages is not None:
        is_long = crawl.asked >= _LONG_CRAWL * crawl.parallel
        words += _unless(pages, "pages")
        words += _unless(crawl.to_direct <= 1.05 if is_long else crawl.later_pages <= 4, "time")
    return words


def _unless(kept: bool, word: str) -> list[str]:
    return [] if kept else [word]
