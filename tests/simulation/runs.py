"""One crawl to be made and judged, as it is asked for; it can be handed to another process."""

from dataclasses import dataclass, replace
from functools import lru_cache

from proxy_addon.settings import SETTINGS, Settings
from tests.simulation.crawl import CLIENTS, Crawl, crawl
from tests.simulation.judge import Judged, judge
from tests.simulation.scenarios import ALL, HEALTHY, SEED
from tests.simulation.site_model import Scenario, override

DIRECT = "direct"
"""Before a client's name: it asks the site directly."""


@dataclass(frozen=True, slots=True)
class Run:
    """A crawl. None is the scenario's own value."""

    scenario: str
    client: str = "plain"
    """One of `CLIENTS`; with `direct-` before it, without the engine."""
    parallel: int | None = None
    seed: int = SEED
    settings: tuple[tuple[str, str], ...] = ()
    """By name, as text."""
    changes: tuple[str, ...] = ()
    """To the scenario, `NAME=VALUE`."""
    pages_per_slot: int | None = None
    """Of hosts that are well: so many pages for each of the crawler's slots."""
    round_trip_s: float = 0.0

    @property
    def policy(self) -> str:
        """The settings that are not the defaults, for a table."""
        return " ".join(f"{name}={value}" for name, value in self.settings)

    @property
    def site(self) -> Scenario:
        """The scenario as this crawl meets it. Raises `ValueError` where there is no such."""
        if self.scenario not in ALL:
            raise ValueError(f"there is no scenario {self.scenario!r}; there are {', '.join(ALL)}")
        client = self.client.removeprefix(f"{DIRECT}-")
        if client not in CLIENTS:
            raise ValueError(f"there is no client {client!r}; there are {', '.join(CLIENTS)}")
        scenario = ALL[self.scenario]
        if self.parallel is not None:
            scenario = replace(scenario, parallel=self.parallel)
        if self.pages_per_slot is not None and self.scenario in HEALTHY:
            scenario = replace(scenario, pages=self.pages_per_slot * scenario.parallel)
        return CLIENTS[client](override(scenario, self.changes))

    @property
    def made_settings(self) -> Settings | None:
        """None: there is no proxy. Raises `ValueError`, or `SettingError`, where there are no such."""
        if self.client.startswith(f"{DIRECT}-"):
            return None
        for name, _ in self.settings:
            if name not in SETTINGS:
                raise ValueError(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
        values: dict[str, str] = {"store": "memory:", **dict(self.settings)}
        return Settings.model_validate(values)


def run(wanted: Run) -> Judged:
    """Make the crawl and judge it."""
    return judged(wanted, crawl(wanted.site, wanted.seed, wanted.made_settings, round_trip_s=wanted.round_trip_s))


def judged(wanted: Run, crawled: Crawl) -> Judged:
    """Judge it; where the site is well, beside the same crawl without a proxy."""
    site, direct = wanted.site, None
    if wanted.scenario in HEALTHY or site.sick:
        direct = _directly(site, wanted.seed, wanted.round_trip_s)
    return judge(site, wanted.client, wanted.seed, crawled, policy=wanted.policy, direct=direct)


@lru_cache(maxsize=16)
def _directly(site: Scenario, seed: int, round_trip_s: float) -> Crawl:
    return crawl(site, seed, None, round_trip_s=round_trip_s)
