"""`config/compose.yaml` and what it mounts: by the published schema, and by what no schema knows."""

import ipaddress
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from proxy_addon.setting_sources import load
from tests.support import promtool

CONFIG = Path(__file__).parents[1] / "config"
FILE = CONFIG / "compose.yaml"
COMPOSE: dict[str, Any] = YAML(typ="safe").load(FILE.read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_it_is_a_compose_file_by_the_published_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_nothing_is_published_beyond_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:9464:9464", "127.0.0.1:9090:9090", "127.0.0.1:3000:3000"]
    assert all(service.get("network_mode") in (None, "none") for service in SERVICES.values())


@pytest.mark.parametrize("name", list(SERVICES))
def test_every_image_has_a_version(name: str) -> None:
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"])


def test_the_proxys_settings_exist_and_can_be_used() -> None:
    environment: dict[str, str] = SERVICES["paceproxy"]["environment"]
    settings = load({"listen": ":8080"}, {**environment, "PACE_CA_BUNDLE": ""}).settings
    assert settings.allow_networks == (ipaddress.ip_network("172.30.87.0/24"),)
    assert settings.admin_names == ("paceproxy",)
    assert settings.admin_address is not None
    assert settings.admin_address.port == 9464
    assert COMPOSE["networks"]["crawl"]["ipam"]["config"] == [{"subnet": "172.30.87.0/24"}]


def test_the_crawler_trusts_the_bundle_and_cannot_read_the_key() -> None:
    crawler, proxy = SERVICES["crawler"], SERVICES["paceproxy"]
    assert crawler["volumes"] == ["trust:/trust:ro"]
    assert crawler["environment"]["CURL_CA_BUNDLE"] == proxy["environment"]["PACE_CA_BUNDLE"]
    assert crawler["environment"]["https_proxy"] == crawler["environment"]["http_proxy"] == "http://paceproxy:8080"
    assert crawler["depends_on"] == {"paceproxy": {"condition": "service_healthy"}}
    assert "PACE_CONFDIR" not in proxy["environment"]  # so that the key stays in /data


def test_the_proxy_has_the_time_to_drain() -> None:
    assert SERVICES["paceproxy"]["stop_grace_period"] == "40s"
    assert load({}, {}).settings.drain + 10 <= 40


def test_every_file_that_is_mounted_exists_and_every_volume_is_declared() -> None:
    sources = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert all((CONFIG / source).exists() for source in sources if source.startswith("."))
    assert {source for source in sources if not source.startswith(".")} == set(COMPOSE["volumes"])


def test_prometheus_takes_its_configuration_with_the_rules_and_scrapes_the_proxy() -> None:
    file = CONFIG / "prometheus" / "prometheus.yaml"
    done = promtool.run("check", "config", str(file))
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert b"9 rules found" in done.stdout
    (job,) = YAML(typ="safe").load(file.read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["paceproxy:9464"]}]


def test_without_containers_the_documented_commands_make_prometheus_scrape_the_proxy(tmp_path: Path) -> None:
    page = (CONFIG.parent / "docs" / "monitoring.md").read_text("utf-8")
    (commands,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    rewrite, serve = commands.splitlines()
    shutil.copytree(CONFIG / "prometheus", tmp_path / "config" / "prometheus")
    subprocess.run(rewrite, shell=True, cwd=tmp_path, check=True, timeout=60)
    (file,) = re.findall(r"--config\.file=(\S+)", serve)
    done = promtool.run("check", "config", str(tmp_path / file))
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    assert b"9 rules found" in done.stdout
    (job,) = YAML(typ="safe").load((tmp_path / file).read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [str(load({}, {}).settings.admin_address)]}]


def test_grafana_finds_prometheus_and_the_dashboard_without_a_hand() -> None:
    provisioning = CONFIG / "grafana" / "provisioning"
    (source,) = YAML(typ="safe").load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", "http://prometheus:9090", True)
    (provider,) = YAML(typ="safe").load((provisioning / "dashboards" / "paceproxy.yaml").read_text())["providers"]
    mounts = SERVICES["grafana"]["volumes"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in mounts
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (CONFIG / "grafana" / "dashboards" / Path(home).name).is_file()
    assert Path(home).parent == Path(provider["options"]["path"])
