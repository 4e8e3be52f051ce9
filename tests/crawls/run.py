"""One run: the origin, the proxy, the crawl, and the judge, each crawl and origin in a process of its own."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tests.crawls.contenders import Contender
from tests.crawls.crawl import OWN_DRIVERS
from tests.crawls.judge import judge
from tests.crawls.proxies import Ours, process, running, tail
from tests.crawls.records import Outcome, read_lines, read_outcomes, write_lines
from tests.crawls.results import Conditions, Probe, Result
from tests.crawls.shop import LISTENING
from tests.crawls.versions import version_of
from tests.simulation.origins import Arrival
from tests.simulation.scenarios import ALL, SEED, Scenario, override
from tests.support.waiting import until

PROBED_PAGES = 8

_START_LIMIT_S = 20.0
_SLACK_S = 60.0
"""What a crawl may take beyond its cap, to start and to stop."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is to be run."""

    scenario: str
    contender: Contender
    changes: tuple[str, ...] = ()
    """Of the scenario, as `NAME=VALUE`."""
    scale: float | None = None
    """Real seconds per simulated one; None: the scenario's own."""
    seed: int = SEED
    peers: Path = Path()
    """The folder that `setup.sh` made."""
    kept: Path | None = None
    """Where to leave the crawl's outcomes and the origin's log."""

    @property
    def site(self) -> Scenario:
        """The scenario as it is run."""
        site = override(ALL[self.scenario], self.changes)
        return replace(site, scale=self.scale or site.scale)

    def conditions(self, *, load: float) -> Conditions:
        """For the record. `load`: the machine's average over the last minute."""
        proxy = self.contender.proxy
        options = proxy.options if isinstance(proxy, Ours) else {}
        return Conditions(
            scenario=self.scenario,
            contender=self.contender.label,
            changes=tuple(sorted(self.changes)),
            options=tuple(sorted(f"{name}={value}" for name, value in options.items())),
            scale=self.site.scale,
            seed=self.seed,
            load=round(load, 1),
            tool=version_of(self.contender, self.peers),
            date=datetime.now(UTC).date().isoformat(),
        )


def run(trial: Trial) -> Result:
    """Run it, and judge. Raises `RuntimeError`, `OSError` or `AssertionError` where it could not be run."""
    site = trial.site
    with tempfile.TemporaryDirectory(prefix="crawl-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # squid, no longer root, must get to its own folder
        (folder / "proxy").mkdir()
        with shop(trial, folder) as port:
            proxy = trial.contender.proxy
            serving = running(proxy, scale=site.scale, folder=folder / "proxy", peers=trial.peers) if proxy else None
            with serving or nullcontext() as url:
                outcomes = _crawl(trial, trial.contender.driver, port, folder, proxy=url)
                load, _, _ = os.getloadavg()
                probe = None
                if site.probe_after:
                    time.sleep(site.probe_after * site.scale)
                    probe = _probe(trial, port, folder)
        log = [Arrival(**line) for line in read_lines(folder / "shop.jsonl")]
    arrivals = [arrival for arrival in log if not arrival.path.startswith("/probe/")]
    if trial.kept:
        trial.kept.mkdir(parents=True, exist_ok=True)
        write_lines(trial.kept / "shop.jsonl", arrivals)
        write_lines(trial.kept / "crawl.jsonl", outcomes)
    return Result(trial.conditions(load=load), judge(site, trial.seed, outcomes, arrivals), probe)


@contextmanager
def shop(trial: Trial, folder: Path) -> Iterator[int]:
    """The origin's port, while it runs. Its log is `shop.jsonl` in the folder, whole at the end."""
    said = folder / "shop.log"
    command = [sys.executable, "-m", "tests.crawls.shop", "--log", str(folder / "shop.jsonl")]
    command += ["--scenario", trial.scenario, "--seed", str(trial.seed), *_changes(trial)]
    with process(command, said) as started:

        def listens() -> bool:
            if started.poll() is not None:
                raise RuntimeError(f"the origin ended with exit code {started.returncode}: {tail(said)}")
            return LISTENING in said.read_text()

        until(listens, "the origin listened", _START_LIMIT_S)
        yield int(said.read_text().partition(LISTENING)[2].split()[0])
        if started.poll() is not None:
            raise RuntimeError(f"the origin ended with exit code {started.returncode}: {tail(said)}")


def _probe(trial: Trial, port: int, folder: Path) -> Probe:
    outcomes = _crawl(trial, "plain-1", port, folder, prefix="probe", more=(f"pages={PROBED_PAGES}",))
    times = [outcome.t1 - outcome.t0 for outcome in outcomes if outcome.got]
    return Probe(PROBED_PAGES, len(times), round(sum(times) / len(times), 2) if times else None)


def _crawl(
    trial: Trial,
    driver: str,
    port: int,
    folder: Path,
    *,
    proxy: str | None = None,
    prefix: str = "p",
    more: tuple[str, ...] = (),
) -> list[Outcome]:
    out, said = folder / f"{prefix}.jsonl", folder / f"{prefix}.log"
    python = sys.executable if driver in OWN_DRIVERS else str(trial.peers / "venv/bin/python")
    command = [python, "-m", "tests.crawls.crawl", "--driver", driver, "--scenario", trial.scenario]
    command += ["--port", str(port), "--prefix", prefix, "--out", str(out), *_changes(trial, more)]
    if proxy:
        command += ["--proxy", proxy]
    with process(command, said) as started:
        try:
            started.wait(trial.site.cap * trial.site.scale + _SLACK_S)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"the crawl did not stop: {tail(said)}") from error
    if not out.exists():
        raise RuntimeError(f"the crawl ended with exit code {started.returncode}: {tail(said)}")
    return read_outcomes(out)


def _changes(trial: Trial, more: tuple[str, ...] = ()) -> list[str]:
    """The arguments that make an origin's or a crawl's scenario the trial's."""
    changes = (*trial.changes, f"scale={trial.site.scale}", *more)
    return [part for pair in changes for part in ("--set", pair)]
