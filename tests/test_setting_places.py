"""Addresses, URLs, files and folders."""

import os
from pathlib import Path

import pytest
import trustme
from mitmproxy.net import server_spec
from mitmproxy.utils.htpasswd import HtpasswdFile

from proxy_addon.setting_kinds import BadValue
from proxy_addon.setting_places import (
    Address,
    Folder,
    HttpUrl,
    Listener,
    NewFile,
    ReadableFile,
    StoreUrl,
    Url,
    check_certificates,
    check_htpasswd,
    mask_credentials,
    parse_address,
    parse_url,
)
from proxy_addon.store import open_store

BCRYPT = "$2b$04$7Y7M29sQhhy6nG6Z7iDdXu5NXPVRwwxgSi4ComtxGB94ouzz0PRKu"
SHA1 = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g="
APACHE_MD5 = "$apr1$A6PXrXcM$wSAjPt1kVxpVmPzzLWvz0/"
UNREADABLE = Path("/proc/self/mem")
PLACE_FORMS = "must be a URL with a host and a port from 1 to 65535"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("[0:0::1]:8080", Address("::1", 8080)),
        ("[fe80::1%eth0]:80", Address("fe80::1%eth0", 80)),
        (":8080", Address("", 8080)),
        ("8080", Address("127.0.0.1", 8080)),
        (" proxy-1.example.org:65535 ", Address("proxy-1.example.org", 65535)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must end in a port from 0 to 65535"),
        ("localhost", "must end in a port from 0 to 65535"),
        ("localhost:", "must end in a port from 0 to 65535"),
        ("localhost:http", "must end in a port from 0 to 65535"),
        ("localhost:65536", "must end in a port from 0 to 65535"),
        ("localhost:-1", "must end in a port from 0 to 65535"),
        ("-1", "must end in a port from 0 to 65535"),
        ("localhost:٨٠", "must end in a port from 0 to 65535"),
        ("localhost: 80", "must end in a port from 0 to 65535"),
        ("::1:8080", "must have brackets around an IPv6 address"),
        ("[::g]:8080", "must have an IPv6 address in its brackets"),
        ("[127.0.0.1]:80", "must have an IPv6 address in its brackets"),
        ("http://localhost:80", "must have brackets around an IPv6 address"),
        ("a b:80", "must have the name or address of a host before its port"),
        ("*:80", "must have the name or address of a host before its port"),
        ("user@host:80", "must have the name or address of a host before its port"),
    ],
)
def test_what_is_no_address_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_address(text)
    assert caught.value.problem == problem


@pytest.mark.parametrize("text", ["127.0.0.1:8080", "[::1]:8080", ":8080", "localhost:0"])
def test_an_address_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1.2.3",
        "::1",
        "::ffff:127.0.0.1",
        "localhost",
        "LocalHost.",
        "proxy.localhost",
        "ip6-localhost",
    ],
)
def test_only_this_machine_can_reach_a_loopback_address(host: str) -> None:
    assert Address(host, 8080).is_loopback


@pytest.mark.parametrize(
    "host",
    [
        "",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "::ffff:10.0.0.1",
        "fe80::1",
        "example.org",
        "localhost.example.org",
        "127.1",
        "0",
    ],
)
def test_what_others_may_reach_is_not_loopback(host: str) -> None:
    assert not Address(host, 8080).is_loopback


@pytest.mark.parametrize(
    ("value", "text"), [("8080", "127.0.0.1:8080"), (8080, "127.0.0.1:8080"), (" [0::1]:80", "[::1]:80")]
)
def test_a_listener_is_an_address(value: object, text: str) -> None:
    assert Listener().parse(value) == text


@pytest.mark.parametrize("value", ["off", "OFF", False])
def test_a_listener_may_be_off_only_where_that_is_said(value: object) -> None:
    assert Listener(may_be_off=True).parse(value) == "off"
    with pytest.raises(BadValue):
        Listener().parse(value)


@pytest.mark.parametrize("value", [True, None, 80.5, ["127.0.0.1:80"]])
def test_a_listener_is_text_or_a_port(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be an address and a port$"):
        Listener(may_be_off=True).parse(value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://parent:3128", Url("http", "parent", 3128)),
        ("http://parent", Url("http", "parent", 80)),
        ("HTTPS://Parent/", Url("https", "parent", 443)),
        ("https://[::1]:8443", Url("https", "::1", 8443)),
        ("http://10.0.0.1:1", Url("http", "10.0.0.1", 1)),
        ("http://user:password@parent:3128", Url("http", "parent", 3128, "user", "password")),
        ("http://user@parent:3128", Url("http", "parent", 3128, "user", "")),
        ("http://us%40er:p%2F%3A%40@parent", Url("http", "parent", 80, "us@er", "p/:@")),
        ("http://user:p:q@r@parent", Url("http", "parent", 80, "user", "p:q@r")),
    ],
)
def test_a_url_is_scheme_host_port_and_perhaps_a_user(text: str, url: Url) -> None:
    assert parse_url(text) == url


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("parent:3128", "must begin with http:// or https://"),
        ("//parent:3128", "must begin with http:// or https://"),
        ("socks5://parent:1080", "must begin with http:// or https://"),
        ("ftp://parent", "must begin with http:// or https://"),
        ("", "must begin with http:// or https://"),
        ("http://", PLACE_FORMS),
        ("http://:3128", PLACE_FORMS),
        ("http://parent:0", PLACE_FORMS),
        ("http://parent:", PLACE_FORMS),
        ("http://parent:65536", PLACE_FORMS),
        ("http://parent:port", PLACE_FORMS),
        ("http://[::g]", PLACE_FORMS),
        ("http://[::1", PLACE_FORMS),
        ("http://parent/path", "must end after its host and port"),
        ("http://parent?query", "must end after its host and port"),
        ("http://parent/#", "must end after its host and port"),
        ("http://pa rent", "must have no spaces and no control characters"),
        ("http://parent\r\nX: y", "must have no spaces and no control characters"),
        ("http://bücher.example", "must have a valid host name"),
        ("http://par\\ent", "must have a valid host name"),
        ("http://-parent", "must have a valid host name"),
        ("http://@parent", "must have a user, without a colon, before its @"),
        ("http://:password@parent", "must have a user, without a colon, before its @"),
        ("http://us%3Aer:password@parent", "must have a user, without a colon, before its @"),
        ("http://user:pass%0Aword@parent", "must have no control characters in its user and password"),
    ],
)
def test_what_is_no_url_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_url(text)
    assert caught.value.problem == problem


@pytest.mark.parametrize(
    ("url", "text"),
    [(Url("http", "parent", 80, "user", "secret"), "http://parent:80"), (Url("https", "::1", 1), "https://[::1]:1")],
)
def test_a_url_is_written_without_its_user_and_in_the_form_that_mitmproxy_reads(url: Url, text: str) -> None:
    assert str(url) == text
    assert server_spec.parse(text, "http") == (url.scheme, (url.host, url.port))


def test_a_url_does_not_show_its_password() -> None:
    assert "secret" not in repr(Url("http", "parent", 80, "user", "secret"))


def test_only_a_parent_proxy_may_have_a_user() -> None:
    assert HttpUrl(credentials=True).parse(" http://user:password@parent ") == "http://user:password@parent"
    assert HttpUrl().parse("http://origin") == "http://origin"
    with pytest.raises(BadValue, match=r"^must have no user and no password$"):
        HttpUrl().parse("http://user:password@origin")
    with pytest.raises(BadValue, match=r"^must be a URL$"):
        HttpUrl().parse(3128)


@pytest.mark.parametrize("text", ["memory:", "sqlite:///hosts.sqlite3", "sqlite:////var/lib/a b%20c?d#e"])
def test_a_store_is_taken_as_it_stands(text: str) -> None:
    assert StoreUrl().parse(text) == text
    open_store(text)


def test_the_home_folder_in_a_store_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert StoreUrl().parse("sqlite:///~/hosts.sqlite3") == "sqlite:////home/me/hosts.sqlite3"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "must be memory: or sqlite:///PATH"),
        ("memory", "must be memory: or sqlite:///PATH"),
        ("hosts.sqlite3", "must be memory: or sqlite:///PATH"),
        ("sqlite://hosts.sqlite3", "must be memory: or sqlite:///PATH"),
        ("sqlite:///", "must be memory: or sqlite:///PATH"),
        ("sqlite:///a\0b", "must be memory: or sqlite:///PATH"),
        ("postgres://host/db", "must be memory: or sqlite:///PATH"),
        (None, "must be memory: or sqlite:///PATH"),
        (5, "must be memory: or sqlite:///PATH"),
        ("sqlite:///:memory:", "must name a file"),
        ("sqlite:////var/lib/", "must name a file"),
        ("sqlite:////var/lib/..", "must name a file"),
        ("sqlite:///.", "must name a file"),
        ("sqlite:///~", "must name a file"),
        ("sqlite:///~nobody-of-this-name/hosts.sqlite3", "must name a file"),
    ],
)
def test_what_is_no_store_is_refused(value: object, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me/")
    with pytest.raises(BadValue) as caught:
        StoreUrl().parse(value)
    assert caught.value.problem == problem


def test_a_file_may_be_given_relative_to_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users").write_text(f"me:{BCRYPT}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ReadableFile(check_htpasswd).parse("~/users") == str(tmp_path / "users")


@pytest.mark.parametrize("value", ["", "a\0b", 5, None, ["a"]])
def test_a_path_is_text(value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be a path$"):
        ReadableFile(check_htpasswd).parse(value)
    with pytest.raises(BadValue, match=r"^must be a path$"):
        Folder().parse(value)


def test_a_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"^must be a file that exists$"):
        ReadableFile(check_htpasswd).parse(str(tmp_path / "none"))
    with pytest.raises(BadValue, match=r"^must be a file$"):
        ReadableFile(check_htpasswd).parse(str(tmp_path))


def test_a_pipe_is_not_read_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadValue, match=r"^must be a file$"):
        ReadableFile(check_htpasswd).parse(str(tmp_path / "pipe"))


def test_a_file_that_cannot_be_looked_for_is_refused_with_the_systems_reason(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"^must be readable \(File name too long\)$"):
        ReadableFile(check_htpasswd).parse(str(tmp_path / ("a" * 300)))
    with pytest.raises(BadValue, match=r"^must be readable \(File name too long\)$"):
        Folder().parse(str(tmp_path / ("a" * 300)))


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs Linux's /proc: permissions do not stop root")
def test_a_file_that_cannot_be_read_is_refused_with_the_systems_reason() -> None:
    for kind in (ReadableFile(check_htpasswd), ReadableFile(check_certificates)):
        with pytest.raises(BadValue, match=r"^must be readable \(Input/output error\)$"):
            kind.parse(str(UNREADABLE))


def test_a_folder_need_not_exist_but_must_not_be_a_file(tmp_path: Path) -> None:
    assert Folder().parse(str(tmp_path)) == str(tmp_path)
    assert Folder().parse(str(tmp_path / "later")) == str(tmp_path / "later")
    (tmp_path / "file").touch()
    with pytest.raises(BadValue, match=r"^must be a folder$"):
        Folder().parse(str(tmp_path / "file"))


def test_a_password_file_that_passes_is_one_that_mitmproxy_reads(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(f"# staff\n\n me:{BCRYPT} \nyou:{SHA1}\n")
    check_htpasswd(path)
    users = HtpasswdFile.from_file(path)
    assert [users.check_password(user, "password") for user in ("me", "you", "she")] == [True, True, False]
    assert [users.check_password(user, "guess") for user in ("me", "you", "she")] == [False, False, False]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "must name at least one user"),
        ("# nobody\n", "must name at least one user"),
        ("me\n", "must have USER:HASH in line 1"),
        (f"me:{BCRYPT}\n:{SHA1}\n", "must have USER:HASH in line 2"),
        ("me:secret\n", "must have a bcrypt or {SHA} hash in line 1"),
        (f"me:{APACHE_MD5}\n", "must have a bcrypt or {SHA} hash in line 1"),
        (f"me:{BCRYPT[:-1]}\n", "must have a bcrypt or {SHA} hash in line 1"),
        (f"me:{BCRYPT.replace('$04$', '$99$')}\n", "must have a bcrypt or {SHA} hash in line 1"),
        ("me:{SHA}W6ph\n", "must have a bcrypt or {SHA} hash in line 1"),
        ("me:{SHA}!\n", "must have a bcrypt or {SHA} hash in line 1"),
        ("me:{SHA}é\n", "must have a bcrypt or {SHA} hash in line 1"),
    ],
)
def test_a_password_file_with_which_nobody_could_log_in_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadValue) as caught:
        check_htpasswd(path)
    assert (caught.value.problem, caught.value.remedy) == (problem, "make it with `htpasswd -B -c FILE USER`")


def test_a_password_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(b"\xff\xfe")
    with pytest.raises(BadValue, match=r"^must be a text file in UTF-8$"):
        ReadableFile(check_htpasswd).parse(str(tmp_path / "users"))


def test_certificates_are_pem(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    assert ReadableFile(check_certificates).parse(str(tmp_path / "ca.pem")) == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    "content", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_a_file_without_a_certificate_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(content)
    with pytest.raises(BadValue, match=r"^must hold certificates$"):
        ReadableFile(check_certificates).parse(str(tmp_path / "ca.pem"))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://user:secret@parent:3128", "http://***@parent:3128"),
        ("http://user:se@cret@parent", "http://***@parent"),
        ("user:secret@parent", "***@parent"),
        ("http://user:secret", "http://***"),
        ("user:secret", "***"),
        ("secret://user:secret://x@parent", "secret://***@parent"),
        ("user:secret@http://parent", "***@http://parent"),
        ("http://parent:3128/", "http://parent:3128/"),
        ("http://[::1]:3128", "http://[::1]:3128"),
        ("parent", "parent"),
        ("sqlite:////var/lib/a:b", "sqlite:////var/lib/a:b"),
        ("memory:", "memory:"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_user_and_password(text: str, masked: str) -> None:
    assert mask_credentials(text) == masked
    assert HttpUrl().mask(text) == masked
    assert StoreUrl().mask(text) == masked


def test_a_file_to_be_written_may_be_new_but_its_folder_must_be_there(tmp_path: Path) -> None:
    assert NewFile().parse(str(tmp_path / "new.pem")) == str(tmp_path / "new.pem")
    (tmp_path / "old.pem").write_text("")
    assert NewFile().parse(str(tmp_path / "old.pem")) == str(tmp_path / "old.pem")
    with pytest.raises(BadValue, match="must be a file, not a folder"):
        NewFile().parse(str(tmp_path))
    with pytest.raises(BadValue, match="must be in a folder that exists"):
        NewFile().parse(str(tmp_path / "none" / "new.pem"))
    with pytest.raises(BadValue, match="must be reachable"):
        NewFile().parse(str(tmp_path / ("a" * 300) / "new.pem"))
