"""Whole runs, small ones: an origin, a crawl, a proxy, and the verdict."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.crawls.contenders import PEERS, Contender
from tests.crawls.proxies import ROOT, Command, Ours
from tests.crawls.records import read_lines, read_outcomes
from tests.crawls.run import Trial, run


def test_a_plain_crawl_of_a_healthy_host_gets_every_page(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = run(Trial("healthy", PEERS["plain"], ("pages=10",), scale=0.2, kept=kept))
    verdict = result.verdict
    assert (verdict.asked, verdict.got, verdict.received, verdict.wasted) == (10, 10, 10, 0)
    assert result.probe is None
    assert result.conditions.tool.startswith("aiohttp 3.")
    assert sorted(outcome.status or 0 for outcome in read_outcomes(kept / "crawl.jsonl")) == [200] * 10
    assert len(read_lines(kept / "shop.jsonl")) == 10


def test_a_crawl_through_ours_is_in_scaled_time() -> None:
    # In real seconds each attempt would take 20 s, and here it takes 0.2 s. By default there would be others.
    options = {"attempt-timeout": "20", "max_attempts": "1"}
    ours = Contender("paceproxy-plain-patient", "plain-patient", Ours(options, command=None))
    result = run(Trial("blackhole", ours, ("pages=2", "cap=1500"), scale=0.01))
    verdict = result.verdict
    assert (verdict.got, verdict.cut, verdict.errors, verdict.received) == (0, 0, ("2x 504",), 2)
    assert verdict.makespan >= 20.0
    assert result.conditions.options == ("attempt-timeout=20", "max_attempts=1")


def test_a_shop_is_probed_a_while_after_the_crawl_directly() -> None:
    gate = Contender("gate-1", "plain", Command(f"{sys.executable} -m tests.crawls.gate {{port}} 1"))
    result = run(Trial("shop-pool", gate, ("pages=3", "cost=0.5", "probe_after=1"), scale=0.02))
    assert (result.verdict.got, result.verdict.received) == (3, 3)
    assert result.probe is not None
    assert (result.probe.asked, result.probe.got) == (8, 8)


def test_a_crawl_is_stopped_at_the_cap() -> None:
    verdict = run(Trial("blackhole", PEERS["plain-patient"], ("pages=6", "cap=20"), scale=0.01)).verdict
    assert (verdict.cut, verdict.got, verdict.received, verdict.abandoned) == (6, 0, 5, 5)


def test_a_proxy_that_does_not_start_is_told_of_with_what_it_said() -> None:
    broken = Contender("broken", "plain", Command(f"{sys.executable} -c 'raise SystemExit(\"no such thing\")'"))
    with pytest.raises(RuntimeError, match="it ended with exit code 1: no such thing"):
        run(Trial("healthy", broken, ("pages=1",)))


def test_peers_that_are_not_installed_are_told_of_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"venv/bin/python is not there; `sh tests/crawls/setup\.sh` installs"):
        run(Trial("healthy", PEERS["scrapy"], ("pages=1",), peers=tmp_path))


def test_the_process_of_a_crawl_needs_nothing_of_ours() -> None:
    # It runs in environments that hold another crawler and nothing else.
    foreign = {"aiohttp", "crawlee", "mitmproxy", "proxy_addon", "pydantic", "scrapy", "urllib3"}
    code = f"import sys, tests.crawls.crawl; print(sorted({foreign!r} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"
