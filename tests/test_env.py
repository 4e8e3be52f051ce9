"""`paceproxy env`: variables that a shell, Docker and Kubernetes take as they are meant, and what it refuses."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from proxy_addon.ca_bundle import join
from proxy_addon.cli import main
from proxy_addon.client_environment import client_environment
from proxy_addon.shell_syntax import SYNTAXES
from tests.support.forked import run_forked
from tests.support.origin import Origin
from tests.support.programs import find
from tests.support.proxy import Paceproxy
from tests.support.waiting import until

_GUARD_S = 60.0
_HOSTILE = """it's "$HOME" `id` \\ #1; & \u2018typographic\u2019 é $(id)"""
NAMES = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"]
FILES = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"]


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A confdir as a proxy leaves it, which was started once."""
    (tmp_path / "mitmproxy-ca-cert.pem").write_text(_certificate("T3Vycw=="))
    return tmp_path


def _certificate(content: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n"


def printed(capsys: pytest.CaptureFixture[str], *args: str, **environ: str) -> str:
    assert main(args, environ=environ) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *args: str, **environ: str) -> str:
    assert main(args, environ=environ) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line.removeprefix("paceproxy: ")


def in_sh(script: str) -> dict[str, str]:
    """The environment that a shell has after this script, which it begins with none."""
    done = subprocess.run(["sh", "-c", f"{script}\nenv -0"], env={}, capture_output=True, check=True, timeout=_GUARD_S)
    return dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if line)


# --- the variables


def test_a_shell_gets_the_variables_of_the_proxy_that_the_settings_name(
    authority: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "--listen", "127.0.0.1:8181", "env", PACE_CONFDIR=str(authority))
    variables = in_sh(text)
    bundle = f"{authority}/paceproxy-ca-bundle.pem"
    assert {name: variables[name] for name in NAMES} == dict.fromkeys(NAMES, "http://127.0.0.1:8181")
    assert {name: variables[name] for name in FILES} == dict.fromkeys(FILES, bundle)
    assert variables["NODE_USE_ENV_PROXY"] == "1"
    assert not {"NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"} & variables.keys()
    assert "T3Vycw==" in Path(bundle).read_text()
    assert stat.S_IMODE(Path(bundle).stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        (":8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("proxy.lan:8080", "http://proxy.lan:8080"),
    ],
)
def test_the_address_is_one_that_can_be_dialled(
    listen: str, url: str, authority: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "--allow", "10.0.0.0/8", "--listen", listen, "--confdir", str(authority), "env")
    assert in_sh(text)["https_proxy"] == url


def test_where_a_password_is_asked_for_there_is_a_place_for_it(
    authority: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (authority / "users").write_text("me:$2y$05$abcdefghijklmnopqrstuuN2Yp1pC4WYqjJYQX1pXlyGIYoH2eQ6K\n")
    text = printed(capsys, "--htpasswd", str(authority / "users"), "--confdir", str(authority), "env")
    assert in_sh(text)["HTTP_PROXY"] == "http://USER:PASSWORD@127.0.0.1:8080"
    assert "# It asks for a password: put a user of your htpasswd file in place of USER:PASSWORD." in text
    given = printed(capsys, "--confdir", str(authority), "env", "--proxy", "http://me:se%40cret@127.0.0.1:1/")
    assert in_sh(given)["HTTP_PROXY"] == "http://me:se%40cret@127.0.0.1:1"
    assert "# The proxy at http://127.0.0.1:1. " in given
    assert "asks for a password" not in given


def test_a_path_for_clients_elsewhere_needs_no_authority_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "--confdir", str(tmp_path / "none"), "env", "--ca-bundle", "/etc/ca.pem")
    assert in_sh(text)["CURL_CA_BUNDLE"] == "/etc/ca.pem"
    assert not (tmp_path / "none").exists()


# --- who reads them


def test_sh_takes_a_value_as_it_is() -> None:
    variables = client_environment(_HOSTILE, "/a b\nc.pem")
    assert in_sh(SYNTAXES["sh"].write(variables, ["a comment"])).items() >= variables.items()


def test_docker_gets_a_line_for_each_variable(authority: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--confdir", str(authority), "env", "--shell", "docker", "--ca-bundle", "/it's/a $b.pem")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        *(f"{name}=http://127.0.0.1:8080" for name in NAMES),
        *(f"{name}=/it's/a $b.pem" for name in FILES),
        "NODE_USE_ENV_PROXY=1",
    ]
    assert "# Mount the file of certificates where the container looks for it, read-only: /it's/a $b.pem" in text
    assert "# 127.0.0.1 is the container's own: the proxy must be in the same pod, or share its network." in text
    there = printed(capsys, "env", "--shell", "docker", "--ca-bundle", "/ca.pem", "--proxy", "http://172.17.0.1:8080")
    assert "own" not in there


def test_kubernetes_gets_a_list_for_a_containers_env() -> None:
    text = SYNTAXES["k8s"].write(client_environment(_HOSTILE, "/ca: #.pem"), ["a comment"])
    env = YAML(typ="safe").load(text)["env"]
    values = {one["name"]: one["value"] for one in env}
    assert list(values) == [*NAMES, *FILES, "NODE_USE_ENV_PROXY"]
    assert values["NODE_USE_ENV_PROXY"] == "1"
    assert values["SSL_CERT_FILE"] == "/ca: #.pem"
    # Kubernetes makes one $ of two, and would put another variable in place of $(id).
    assert values["HTTP_PROXY"].replace("$$", "$") == _HOSTILE
    assert "$$(id)" in values["HTTP_PROXY"]


def test_powershell_gets_single_quotes_doubled() -> None:
    text = SYNTAXES["powershell"].write({"A": "it's \u2018$x\u2019 `n"}, ["a comment"])
    assert text == "# a comment\n$env:A = 'it''s \u2018\u2018$x\u2019\u2019 `n'"


def test_fish_takes_a_value_as_it_is() -> None:
    text = SYNTAXES["fish"].write({"A": _HOSTILE}, ["a comment"])
    assert text.splitlines()[1].startswith("set -gx A 'it\\'s \"$HOME\" `id` \\\\ #1;")
    fish = find("fish", package="fish")
    done = subprocess.run([fish, "-c", f"{text}\nenv -0"], capture_output=True, check=True, timeout=_GUARD_S)
    assert f"A={_HOSTILE}" in done.stdout.decode().split("\0")


# --- what it refuses


def test_a_folder_without_an_authority_is_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "--confdir", str(tmp_path), "env") == (
        f"confdir: {tmp_path} holds no certificate authority (mitmproxy-ca-cert.pem) yet; start the proxy once, or say"
        " with --confdir which folder it has, or with --ca-bundle where clients have its certificates"
    )


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            ["--listen", "127.0.0.1:0", "env"],
            "listen has port 0, which is any free port; say which it got: --proxy http://127.0.0.1:PORT",
        ),
        (
            ["--reverse", "https://example.org", "env"],
            "reverse: clients need no variables; they ask the proxy for what they asked https://example.org:443 for",
        ),
        (
            ["env", "--proxy", "socks5://me:secret@h:1"],
            "--proxy must begin with http:// or https://, got socks5://***@h:1;"
            " give a URL such as http://127.0.0.1:3128",
        ),
        (
            ["env", "--shell", "docker", "--ca-bundle", "/a\nb"],
            "SSL_CERT_FILE holds a line break, which no file for docker --env-file can hold;"
            " give another with --ca-bundle",
        ),
        (["--listen", "8080x", "env"], "listen must end in a port from 0 to 65535, got 8080x (--listen);"
         " give HOST:PORT, [IPV6]:PORT or PORT, such as 127.0.0.1:8080"),
        (["env", "--shell", "tcsh"], "Invalid value for '--shell': 'tcsh' is not one of 'sh', 'fish', 'powershell',"
         " 'docker', 'k8s'; see paceproxy env --help"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_and_exit_code_2(
    args: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, *args) == line


# --- the bundle


def test_a_bundle_that_is_up_to_date_is_left_alone_and_an_old_one_renewed(
    authority: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = authority / "paceproxy-ca-bundle.pem"
    printed(capsys, "--confdir", str(authority), "env")
    first = bundle.stat().st_ino
    printed(capsys, "--confdir", str(authority), "env")
    assert bundle.stat().st_ino == first
    bundle.write_text("old")
    printed(capsys, "--confdir", str(authority), "env")
    assert "T3Vycw==" in bundle.read_text()
    assert sorted(path.name for path in authority.iterdir()) == [
        "mitmproxy-ca-cert.pem",
        "paceproxy-ca-bundle.pem",
    ]


def test_where_the_bundle_cannot_be_kept_env_says_so(authority: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (authority / "paceproxy-ca-bundle.pem").mkdir()
    line = refused(capsys, "--confdir", str(authority), "env")
    assert line.endswith(
        "cannot be used (Is a directory); run this as the user that runs the proxy, or say with --ca-bundle where"
        " clients have its certificates"
    )
    assert sorted(path.name for path in authority.iterdir()) == ["mitmproxy-ca-cert.pem", "paceproxy-ca-bundle.pem"]


def test_where_the_bundle_cannot_be_kept_the_proxy_starts_and_names_its_certificate_alone(tmp_path: Path) -> None:
    (tmp_path / "paceproxy-ca-bundle.pem").mkdir()
    with Paceproxy(confdir=tmp_path) as proxy:
        until(lambda: "NODE_USE_ENV_PROXY" in proxy.log, "it had told how to use it")
        assert f" CURL_CA_BUNDLE={tmp_path}/mitmproxy-ca-cert.pem " in proxy.log
        assert f"The bundle of certificates for clients cannot be kept in {tmp_path} (Is a directory)" in proxy.log


def test_an_authority_of_ones_own_may_be_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nCCCC\n-----END PRIVATE KEY-----\n"
    (tmp_path / "mitmproxy-ca.pem").write_text(key + _certificate("T3Vycw=="))
    printed(capsys, "--confdir", str(tmp_path), "env")
    text = (tmp_path / "paceproxy-ca-bundle.pem").read_text()
    assert "T3Vycw==" in text
    assert "CCCC" not in text


def test_certificates_are_joined_each_once_without_what_stands_between_them() -> None:
    one, two = _certificate("AAAA"), _certificate("BBBB")
    key = "-----BEGIN PRIVATE KEY-----\nCCCC\n-----END PRIVATE KEY-----\n"
    assert join([f"# Prüfung\n{one}{key}", f"{two}{one}", two.replace("\n", "\r\n"), ""]) == one + two


def test_the_bundle_of_a_proxy_that_runs_has_the_systems_certificates_and_ours(
    confdir: Path, secure_origin: Origin
) -> None:
    with Paceproxy("--upstream-ca", str(secure_origin.ca), confdir=confdir) as proxy:
        text = (confdir / "paceproxy-ca-bundle.pem").read_text()
        command = ["curl", "-q", "-sS", "-m", "30", secure_origin.url("/", host="localhost")]
        variables = client_environment(proxy.url, f"{confdir}/paceproxy-ca-bundle.pem")
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_GUARD_S, check=False)
    assert (done.stdout, done.stderr) == ("ok", "")
    assert proxy.ca.read_text().strip() in text
    assert text.count("BEGIN CERTIFICATE") > 50
    assert "PRIVATE" not in text


# --- the bundle in a folder of its own


def test_a_folder_shared_with_clients_has_the_bundle_before_the_proxy_is_ready_and_nothing_else(
    tmp_path: Path, confdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "ca.pem"
    with Paceproxy("--ca-bundle", str(bundle), confdir=confdir) as proxy:
        text = bundle.read_text()
        until(lambda: "NODE_USE_ENV_PROXY" in proxy.log, "it had told how to use it")
        assert f" CURL_CA_BUNDLE={bundle} " in proxy.log
    assert [path.name for path in tmp_path.iterdir()] == ["ca.pem"]
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o644
    assert proxy.ca.read_text().strip() in text
    assert "PRIVATE" not in text
    assert f"export CURL_CA_BUNDLE={bundle}\n" in printed(
        capsys, "--confdir", str(confdir), "--ca-bundle", str(bundle), "env"
    )


def test_a_bundle_that_cannot_be_written_where_clients_wait_for_it_ends_the_start(tmp_path: Path) -> None:
    # A folder's rights do not hold for root, but nobody can write a file here.
    flags = ["--listen", "127.0.0.1:0", "--admin", "off", "--store", "memory:"]
    flags += ["--confdir", str(tmp_path), "--ca-bundle", "/proc/ca.pem"]
    done = run_forked(flags, os.environ, timeout=_GUARD_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("paceproxy: ca_bundle cannot be written: ")
    assert done.stderr.endswith(
        ", got /proc/ca.pem (--ca-bundle); give a file in a folder that this user can write to\n"
    )
