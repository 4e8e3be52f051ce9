"""The manifests for Kubernetes: what its schemas know, and what only we know."""

import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from proxy_addon import __version__
from proxy_addon.addon import HANG_UP_S, LAST_ANSWERS_S, STOP_S
from proxy_addon.admin.probes import probe_routes
from proxy_addon.cli import main
from proxy_addon.client_environment import client_environment
from proxy_addon.setting_sources import load
from proxy_addon.settings import SETTINGS, Settings

FOLDER = Path(__file__).parent.parent / "config" / "kubernetes"
WITH_PODS = ["crawler.yaml", "crawl-job.yaml"]
STANDARD = [*WITH_PODS, "network-policy.yaml"]
"""Those of Kubernetes itself, whose schemas are published with it."""


def read(name: str) -> Any:
    return YAML(typ="safe").load((FOLDER / name).read_text("utf-8"))


def pod(name: str) -> Any:
    return read(name)["spec"]["template"]["spec"]


def sidecar(name: str) -> Any:
    (container,) = pod(name)["initContainers"]
    return container


def crawler(name: str) -> Any:
    (container,) = pod(name)["containers"]
    return container


def variables(container: Any) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container["env"]}


def settings(name: str) -> Settings:
    return load({}, variables(sidecar(name))).settings


@pytest.fixture(autouse=True)
def _shared_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod's folder /trust is there, as far as the settings look."""
    is_dir = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda path: str(path) == "/trust" or is_dir(path))


def test_every_manifest_is_checked_here() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*STANDARD, "pod-monitor.yaml"}


@pytest.mark.parametrize("name", STANDARD)
def test_kubernetes_takes_it(name: str) -> None:
    validate = shutil.which("kubernetes-validate", path=sysconfig.get_path("scripts"))
    assert validate is not None, "there is no kubernetes-validate: pip install '.[test]'"
    done = subprocess.run(
        # The first release with sidecars by default was 1.29.
        [validate, "--strict", "--kubernetes-version", "1.31", str(FOLDER / name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", WITH_PODS)
def test_paceproxy_starts_before_the_crawler_and_ends_after_it(name: str) -> None:
    assert sidecar(name)["restartPolicy"] == "Always"
    assert sidecar(name)["startupProbe"]["httpGet"]["path"] == "/readyz"
    drained_s = settings(name).drain + LAST_ANSWERS_S + HANG_UP_S + STOP_S
    # The crawler's own 20 s come first.
    assert pod(name)["terminationGracePeriodSeconds"] >= 20 + drained_s


@pytest.mark.parametrize("name", WITH_PODS)
def test_no_container_can_write_to_its_root_or_gain_rights(name: str) -> None:
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    assert pod(name)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod(name)["automountServiceAccountToken"] is False
    for container in (sidecar(name), crawler(name)):
        context = container["securityContext"]
        assert context["runAsUser"] > 0
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", WITH_PODS)
def test_the_crawler_gets_the_certificates_and_never_the_key(name: str) -> None:
    mounted = {mount["name"]: mount for mount in crawler(name)["volumeMounts"]}
    assert mounted == {"trust": {"name": "trust", "mountPath": "/trust", "readOnly": True}}
    assert {mount["name"]: mount["mountPath"] for mount in sidecar(name)["volumeMounts"]} == {
        "data": "/data",
        "trust": "/trust",
    }
    assert settings(name).ca_bundle == "/trust/ca-bundle.pem"
    assert sidecar(name)["securityContext"]["runAsUser"] == pod(name)["securityContext"]["fsGroup"] == 10001
    # A user that could read the other's files would not need the folder.
    assert crawler(name)["securityContext"]["runAsUser"] != 10001


@pytest.mark.parametrize("name", WITH_PODS)
def test_the_crawlers_variables_are_those_that_the_command_prints(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert variables(crawler(name)) == client_environment(
        f"http://{settings(name).listen}", str(settings(name).ca_bundle)
    )
    assert main(["env", "--shell", "k8s", "--ca-bundle", "/trust/ca-bundle.pem"], environ={}) == 0
    assert YAML(typ="safe").load(capsys.readouterr().out)["env"] == crawler(name)["env"]


@pytest.mark.parametrize("name", WITH_PODS)
def test_settings_ports_and_probes_agree(name: str) -> None:
    assert {variable.removeprefix("PACE_").lower() for variable in variables(sidecar(name))} <= SETTINGS.keys()
    assert settings(name).listen_address.is_loopback
    admin = settings(name).admin_address
    assert admin is not None
    # Probes come to the pod's address.
    assert admin.host == ""
    assert sidecar(name)["ports"] == [{"name": "admin", "containerPort": admin.port}]
    paths = {route.path for route in probe_routes(lambda accept: (b"", ""), lambda: None)}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert sidecar(name)[probe]["httpGet"]["port"] == "admin"
        assert sidecar(name)[probe]["httpGet"]["path"] in paths
    annotations = read(name)["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(admin.port)
    assert annotations["prometheus.io/path"] in paths


@pytest.mark.parametrize("name", WITH_PODS)
def test_images_are_pinned_and_ours_is_of_this_version(name: str) -> None:
    assert sidecar(name)["image"].endswith(f"/paceproxy:{__version__}")
    tag = crawler(name)["image"].rpartition(":")[2]
    assert tag[:1].isdigit()
    assert sidecar(name).keys().isdisjoint({"command", "args"})


def test_both_examples_have_the_same_sidecar() -> None:
    assert sidecar("crawler.yaml") == sidecar("crawl-job.yaml")


def test_the_job_ends_with_its_crawler() -> None:
    assert pod("crawl-job.yaml")["restartPolicy"] == "Never"


def test_the_network_and_the_monitor_are_for_these_pods() -> None:
    selector = {"matchLabels": {"paceproxy": "sidecar"}}
    for name in WITH_PODS:
        assert read(name)["spec"]["template"]["metadata"]["labels"]["paceproxy"] == "sidecar"
    assert read("network-policy.yaml")["spec"]["podSelector"] == selector
    monitor = read("pod-monitor.yaml")
    assert monitor["kind"] == "PodMonitor"
    assert monitor["spec"]["selector"] == selector
    assert [(one["port"], one["path"]) for one in monitor["spec"]["podMetricsEndpoints"]] == [("admin", "/metrics")]
