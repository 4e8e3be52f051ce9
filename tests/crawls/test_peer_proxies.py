"""The peers' time constants are multiplied by the time scale."""

import json
from pathlib import Path

from tests.crawls.peer_proxies import envoy_conf, squid_conf


def test_squids_time_outs_are_scaled_to_whole_seconds_and_never_to_none() -> None:
    lines = squid_conf(3128, 0.02, Path("/tmp/squid")).splitlines()
    assert "http_port 127.0.0.1:3128" in lines
    assert "read_timeout 18 seconds" in lines
    assert "connect_timeout 1 seconds" in lines


def test_envoys_back_off_is_scaled() -> None:
    conf = json.dumps(envoy_conf(8080, 0.02, adaptive=False))
    assert '"retry_back_off": {"base_interval": "0.020s", "max_interval": "0.600s"}' in conf
    assert "AdaptiveConcurrency" not in conf


def test_envoys_adaptive_concurrency_is_scaled() -> None:
    conf = json.dumps(envoy_conf(8080, 0.1, adaptive=True))
    assert '"concurrency_update_interval": "0.010s"' in conf
    assert '"interval": "6.000s", "request_count": 50' in conf
