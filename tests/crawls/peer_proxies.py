"""How the proxies that people use today are set up for a run in scaled time: their configurations and commands.

Every time constant is multiplied by the time scale. Starting and stopping is in `proxies.py`.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

type Setup = Callable[[int, float, Path, Path], list[str]]
"""From a port, the time scale, an empty folder for the proxy's files, and the folder of `setup.sh`: its command."""

_ENVOY_TYPES = "type.googleapis.com/envoy.extensions."


def _mitmdump(port: int, scale: float, folder: Path, peers: Path) -> list[str]:
    options = ["--set", f"confdir={folder}", "--set", "connection_strategy=lazy"]
    # Stock, as it is installed beside ours.
    mitmdump = str(Path(sys.executable).with_name("mitmdump"))
    return [mitmdump, "-q", "--listen-host", "127.0.0.1", "-p", str(port), *options]


def _squid(port: int, scale: float, folder: Path, peers: Path) -> list[str]:
    folder.chmod(0o777)  # it gives up root
    (folder / "squid.conf").write_text(squid_conf(port, scale, folder))
    squid = shutil.which("squid", path=f"{os.environ['PATH']}:/usr/sbin") or "squid"
    return [squid, "-N", "-f", str(folder / "squid.conf")]


def squid_conf(port: int, scale: float, folder: Path) -> str:
    """Without a cache; its time-outs are whole seconds, at least one."""

    def scaled(seconds: float) -> str:
        return f"{max(1, round(seconds * scale))} seconds"

    return f"""\
http_port 127.0.0.1:{port}
http_access allow localhost
http_access deny all
cache deny all
cache_mem 8 MB
access_log none
cache_log {folder}/cache.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
pinger_enable off
netdb_filename none
shutdown_lifetime 0 seconds
connect_timeout {scaled(60)}
read_timeout {scaled(900)}
forward_timeout {scaled(240)}
request_timeout {scaled(300)}
"""


def _envoy(port: int, scale: float, folder: Path, peers: Path, *, adaptive: bool = False) -> list[str]:
    (folder / "envoy.json").write_text(json.dumps(envoy_conf(port, scale, adaptive=adaptive)))
    envoy, conf = str(peers / "venv/bin/envoy"), str(folder / "envoy.json")
    return [envoy, "-c", conf, "--use-dynamic-base-id", "--concurrency", "1", "-l", "error"]


def _envoy_adaptive(port: int, scale: float, folder: Path, peers: Path) -> list[str]:
    return _envoy(port, scale, folder, peers, adaptive=True)


def envoy_conf(port: int, scale: float, *, adaptive: bool) -> dict[str, Any]:
    """A dynamic forward proxy whose routes retry; `adaptive` adds its filter of adaptive concurrency."""

    def scaled(seconds: float) -> str:
        return f"{max(seconds * scale, 0.001):.3f}s"

    names = {"name": "dns", "dns_lookup_family": "V4_ONLY"}
    http = f"{_ENVOY_TYPES}filters.http."
    forward = {"@type": f"{http}dynamic_forward_proxy.v3.FilterConfig", "dns_cache_config": names}
    filters: list[dict[str, Any]] = [
        {"name": "dfp", "typed_config": forward},
        {"name": "router", "typed_config": {"@type": f"{http}router.v3.Router"}},
    ]
    if adaptive:
        gradient = {
            "sample_aggregate_percentile": {"value": 90},
            "concurrency_limit_params": {"concurrency_update_interval": scaled(0.1)},
            "min_rtt_calc_params": {"jitter": {"value": 10}, "interval": scaled(60), "request_count": 50},
        }
        adapt = {
            "@type": f"{http}adaptive_concurrency.v3.AdaptiveConcurrency",
            "gradient_controller_config": gradient,
            "enabled": {"default_value": True, "runtime_key": "ac.enabled"},
        }
        filters.insert(0, {"name": "ac", "typed_config": adapt})
    retry = {
        "retry_on": "5xx,reset,connect-failure,retriable-status-codes",
        "retriable_status_codes": [429],
        "num_retries": 3,
        "retry_back_off": {"base_interval": scaled(1), "max_interval": scaled(30)},
        "rate_limited_retry_back_off": {
            "reset_headers": [{"name": "Retry-After", "format": "SECONDS"}],
            "max_interval": "300s",
        },
    }
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "dfp", "timeout": "0s", "retry_policy": retry}}]
    manager = {
        "@type": f"{_ENVOY_TYPES}filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "http_filters": filters,
        "stream_idle_timeout": "0s",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
    }
    listener = {
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
    }
    cluster = {
        "name": "dfp",
        "lb_policy": "CLUSTER_PROVIDED",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [{"max_retries": 1000}]},  # its default is 3 at a time
        "cluster_type": {
            "name": "dfp",
            "typed_config": {
                "@type": f"{_ENVOY_TYPES}clusters.dynamic_forward_proxy.v3.ClusterConfig",
                "dns_cache_config": names,
            },
        },
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _gate(port: int, scale: float, folder: Path, peers: Path) -> list[str]:
    return [sys.executable, "-m", "tests.crawls.gate", str(port), "2"]


PEER_PROXIES: Mapping[str, Setup] = MappingProxyType(
    {"mitmdump": _mitmdump, "squid": _squid, "envoy": _envoy, "envoy-ac": _envoy_adaptive, "gate-2": _gate}
)
