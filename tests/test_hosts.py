"""The pacing key of a request: section "Words" of the contract, and cases 29 and 30 of users' reports."""

import socket
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon.hosts import host_key, keys_of
from tests.support.examples import FIXED


@pytest.mark.parametrize(
    ("scheme", "host", "port", "key"),
    [
        ("http", "shop.example", 80, "shop.example"),
        ("https", "shop.example", 443, "shop.example"),
        ("http", "shop.example", 443, "shop.example:443"),
        ("https", "shop.example", 80, "shop.example:80"),
        ("http", "shop.example", 8080, "shop.example:8080"),
        ("https", "shop.example", 8080, "shop.example:8080"),
        ("http", "shop.example", 0, "shop.example:0"),
        ("ftp", "shop.example", 80, "shop.example:80"),
        ("", "shop.example", 443, "shop.example"),
        ("", "shop.example", 80, "shop.example"),
        ("", "shop.example", 22, "shop.example:22"),
    ],
)
def test_the_port_is_left_out_where_it_is_the_schemes_own(scheme: str, host: str, port: int, key: str) -> None:
    assert host_key(scheme, host, port) == key


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("SHOP.Example", "shop.example"),
        ("shop.example.", "shop.example"),
        ("Shop.Example.", "shop.example"),
        ("localhost", "localhost"),
        ("my_shop.example", "my_shop.example"),
        ("-shop-.example", "-shop-.example"),
        ("www.shop.example", "www.shop.example"),
    ],
)
def test_a_name_is_in_lower_case_without_the_roots_dot(host: str, key: str) -> None:
    assert host_key("http", host, 80) == key


@pytest.mark.parametrize(
    "host", ["BÜCHER.example", "bücher.example", "xn--bcher-kva.example", "xn--bcher-kva.example."]
)
def test_all_spellings_of_an_international_name_are_one_host(host: str) -> None:
    assert host_key("http", host, 80) == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("XN--BCHER-KVA.Example", "xn--bcher-kva.example"),
        ("BüCHER.DE", "xn--bcher-kva.de"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("bücher\u3002example\uff0e", "xn--bcher-kva.example"),
        ("ΣΊΣΥΦΟΣ.example", "xn--kxa6akbbkh.example"),
        ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
        ("☃.example", "xn--n3h.example"),
        ("my_bücher.example", "xn--my_bcher-95a.example"),
        ("shop\u00ad.example", "shop.example"),
        ("\u212aino.example", "kino.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("STRA\u1e9eE.example", "xn--strae-oqa.example"),
        ("Gro\u00dfe-Stra\u00dfe.B\u00fccher.example", "xn--groe-strae-73ag.xn--bcher-kva.example"),
        ("\u03c3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2.example", "xn--kxa6ajbbmh.example"),
        # Not an A-label of anything: a name all the same.
        ("xn--zzzzzzzz.example", "xn--zzzzzzzz.example"),
    ],
)
def test_a_name_is_encoded_as_it_is_looked_up(host: str, key: str) -> None:
    assert host_key("https", host, 443) == key


@pytest.mark.parametrize(
    "label", ["xn--bcher-kva", "xn--n3h", "xn--r8jz45g", "xn--kxa6akbbkh", "xn--80akhbyknj4f", "xn--mgbh0fb"]
)
def test_an_a_label_that_mitmproxy_has_decoded_is_found_again(label: str) -> None:
    decoded = label.encode("ascii").decode("idna")

    assert decoded != label
    assert host_key("http", f"{decoded}.example", 80) == f"{label}.example"


@pytest.mark.parametrize("host", ["::1", "[::1]", "0:0:0:0:0:0:0:1", "[0:0:0:0:0:0:0:1]", "0000::0001", "::0.0.0.1"])
def test_all_spellings_of_an_ipv6_address_are_one_host(host: str) -> None:
    assert host_key("http", host, 8000) == "[::1]:8000"


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("2001:DB8:0:0:1:0:0:1", "[2001:db8::1:0:0:1]"),
        ("2001:db8::", "[2001:db8::]"),
        ("::", "[::]"),
        ("::ffff:192.0.2.1", "[::ffff:192.0.2.1]"),
        ("::FFFF:c000:201", "[::ffff:192.0.2.1]"),
        ("64:ff9b::192.0.2.1", "[64:ff9b::c000:201]"),
        ("fe80::1%eth0", "[fe80::1%eth0]"),
        ("[FE80:0::1%25ETH0]", "[fe80::1%eth0]"),
        ("fe80::1%25", "[fe80::1%25]"),
        ("fe80::1%a b", "[fe80::1%a%20b]"),
    ],
)
def test_an_ipv6_address_is_canonical_and_in_brackets(host: str, key: str) -> None:
    assert host_key("https", host, 443) == key


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1.", "192.0.2.1"),
        ("\uff11\uff19\uff12.0.2.1", "192.0.2.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1", "127.0.0.1"),
        ("127.0.65535", "127.0.255.255"),
        ("0x7F.0.0.1", "127.0.0.1"),
        ("0177.0.0.1.", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("127.0.0.01", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("4294967295", "255.255.255.255"),
    ],
)
def test_all_spellings_of_an_ipv4_address_are_one_host(host: str, key: str) -> None:
    assert host_key("http", host, 80) == key


@pytest.mark.parametrize(
    "host", ["4294967296", "256.0.0.1", "1.2.65536", "1.2.3.4.5", "08.0.0.1", "1..2", "1.2.3.a", "0xg", "1a"]
)
def test_what_only_looks_like_an_ipv4_address_is_a_name(host: str) -> None:
    assert host_key("http", host, 80) == host


_NUMBER = st.one_of(
    st.integers(0, 300).map(str),
    st.integers(0, 2**33).map(str),
    st.integers(0, 300).map(oct).map(lambda text: text.replace("0o", "0")),
    st.integers(0, 2**33).map(hex),
    st.sampled_from(["08", "00", "0x", "09.1"]),
)


@FIXED
@given(host=st.lists(_NUMBER, min_size=1, max_size=5).map(".".join))
def test_an_ipv4_address_is_read_as_the_system_reads_it(host: str) -> None:
    try:
        address = socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        address = host
    assert host_key("http", host, 80) == address


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("", ""),
        (".", ""),
        ("..", ""),
        ("a..b.Example", "a..b.example"),
        (".shop.example", ".shop.example"),
        ("ü..Example", "%c3%bc..example"),
        ("x" * 64 + ".Example", "x" * 64 + ".example"),
        ("ü" * 60 + ".Example", "%c3%bc" * 60 + ".example"),
        ("a%20b.Example", "a%20b.example"),
        ("%C3%BC.example", "%c3%bc.example"),
        ("a%20ü", "xn--a%20-3ra"),
        ("a b", "a%20b"),
        ("a\r\nSet-Cookie: b", "a%0d%0aset-cookie%3a%20b"),
        ("ü\x01", "xn--%01-dha"),
        ("\udcff.example", "%ed%b3%bf.example"),
        ("*.example", "*.example"),
        ("user@shop.example", "user%40shop.example"),
        ("shop.example:81", "shop.example%3a81"),
        ("[shop.example]", "%5bshop.example%5d"),
        ("[::1", "%5b%3a%3a1"),
        ("::1.", "%3a%3a1"),
        ("1::2::3", "1%3a%3a2%3a%3a3"),
        ("::1%", "%3a%3a1%"),
        ("[]", "%5b%5d"),
    ],
)
def test_a_name_that_cannot_be_one_is_made_printable_and_never_raises(host: str, key: str) -> None:
    assert host_key("http", host, 80) == key


def test_a_broken_name_is_never_taken_for_another_host_with_a_port() -> None:
    assert host_key("http", "shop.example:8080", 80) != host_key("http", "shop.example", 8080)
    assert host_key("http", "[::1]:8080", 80) != host_key("http", "::1", 8080)


_HOSTS = st.one_of(
    st.text(max_size=80),
    st.text(alphabet="abÜß.:[]%0125\u3002\u00ad\udcff\x00 ", max_size=40),
    st.ip_addresses(v=6).map(str),
    st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)


@FIXED
@given(host=_HOSTS, port=st.integers(0, 65535), scheme=st.sampled_from(["http", "https"]))
def test_any_text_has_a_key_of_printable_ascii_in_lower_case(host: str, port: int, scheme: str) -> None:
    key = host_key(scheme, host, port)

    assert set(key) <= set(string.ascii_lowercase + string.digits + "-._~!$&'()*+,;=%:[]")
    assert not key.partition(":")[0].endswith(".")


@FIXED
@given(host=_HOSTS)
def test_case_and_the_roots_dot_never_make_another_host(host: str) -> None:
    key = host_key("http", host, 80)

    assert host_key("http", key, 80) == key
    assert host_key("http", key.upper(), 80) == key
    assert key.startswith("[") or host_key("http", key + ".", 80) == key


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Shop.Example.", ("shop.example",)),
        ("shop.example:8080", ("shop.example:8080",)),
        ("SHOP.example:443", ("shop.example:443", "shop.example")),
        ("shop.example:080", ("shop.example:80", "shop.example")),
        ("b\u00fccher.example", ("xn--bcher-kva.example",)),
        ("[0:0::1]:3128", ("[::1]:3128",)),
        ("[::1]:80", ("[::1]:80", "[::1]")),
        ("[::1]", ("[::1]",)),
        ("::1", ("[::1]",)),
        ("::80", ("[::80]",)),
        ("127.1:8080", ("127.0.0.1:8080",)),
        (" a.example ", ("a.example",)),
        ("", ("",)),
        (":80", (":80", "")),
        ("a:b", ("a%3ab",)),
        ("https://a.example/x", ("https%3a%2f%2fa.example%2fx",)),
    ],
)
def test_what_a_person_calls_a_host_is_found(text: str, keys: tuple[str, ...]) -> None:
    assert keys_of(text) == keys
