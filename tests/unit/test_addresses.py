"""Which URLs and addresses are refused, and how an operator opens some."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.errors import ConfigurationError, PermanentError, RetryableError
from worker.addresses import Boundary, check_url, is_public, parse_url

PUBLIC = Boundary.of(())


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://example.org", "https://example.org"),
        ("HTTPS://Example.ORG:443/A", "https://example.org/A"),
        ("http://example.org:80/a?b=c#d", "http://example.org/a?b=c"),
        ("http://example.org./a", "http://example.org/a"),
        ("http://example.org:8080/a", "http://example.org:8080/a"),
        ("http://example.org/a b?q=é", "http://example.org/a%20b?q=%C3%A9"),
        ("http://bücher.example/ü", "http://xn--bcher-kva.example/%C3%BC"),
        ("http://93.184.216.34/", "http://93.184.216.34/"),
        ("http://[2606:4700::1]/", "http://[2606:4700::1]/"),
        ("http://wiki_1.example.org/", "http://wiki_1.example.org/"),
    ],
)
def test_one_document_has_one_spelling(url: str, normal: str) -> None:
    assert str(parse_url(url)) == normal
    assert str(parse_url(normal)) == normal


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "//example.org/",
        "http:example.org",
        "http://",
        "http:///path",
        "file:///etc/passwd",
        "gopher://example.org/",
        "ftp://example.org/",
        "javascript://example.org/%0aalert(1)",
        "unix:///var/run/docker.sock",
        "http://user@example.org/",
        "http://user:password@example.org/",
        "http://example.org\\@127.0.0.1/",
        "http://example.org:22/",
        "http://example.org:0/",
        "http://example.org:-1/",
        "http://example.org:65536/",
        "http://example.org:80:90/",
        "http://2130706433/",
        "http://017700000001/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0x7f.0x0.0x0.0x1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://127.0.0.1.1/",
        "http://①②⑦.⓪.⓪.①/",
        "http://１２７.０.０.１/",
        "http://ｌｏｃａｌｈｏｓｔ/",
        "http://%31%32%37.0.0.1/",
        "http://exa mple.org/",
        "http://a..b/",
        "http://.example.org/",
        "http://[fe80::1%25eth0]/",
        "http://[::1",
        "http://[1:2]/",
        "http://example.org/\r\nHost: other",
        "http://example.org/\x00",
        " http://example.org/",
        "http://" + "a" * 64 + ".org/",
        "http://example.org/" + "a" * 2048,
        "http://example.org/" + "é" * 1000,
    ],
)
def test_refused_by_form(url: str) -> None:
    with pytest.raises(PermanentError) as caught:
        check_url(url)
    assert caught.value.code == "fetch_refused"


@given(st.text())
@example("http://\ud800/")
@example("http://[::ffff:1.2.3.4]\u3002/")
@example("http://xn--/")
@example("http://ǆ.example/")
def test_any_text_is_a_url_or_refused(text: str) -> None:
    for url in (text, "http://" + text, "http://example.org/" + text):
        try:
            normal = str(parse_url(url))
        except PermanentError as error:
            assert error.code == "fetch_refused"
        else:
            assert str(parse_url(normal)) == normal


CLOSED = [
    *["0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.9.9.9"],
    *["169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1"],
    *["192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.255"],
    *["240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16", "192.0.0.192"],
    *["::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"],
    *["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "2002:7f00:1::", "2002:a00:1::1"],
    *["2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "3fff::1", "100::1", "fc00::1", "fd00:ec2::254"],
    *["fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "4000::1", "5f00::1"],
    *["2606:4700::5efe:7f00:1", "2606:4700::200:5efe:a00:1"],
]
OPEN = [
    *["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "93.184.216.34", "100.63.255.255", "100.128.0.0"],
    *["126.255.255.255", "128.0.0.1", "169.253.0.1", "172.15.255.255", "172.32.0.0", "192.167.0.1", "223.255.255.255"],
    *["2606:4700:4700::1111", "2a00:1450:4001::200e", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808"],
    *["2002:808:808::1", "2606:4700::200:5efe:808:808"],
]


@pytest.mark.parametrize("address", CLOSED)
def test_closed(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", OPEN)
def test_open(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@given(st.ip_addresses())
def test_whatever_python_calls_private_is_closed(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped.is_private or mapped.is_loopback or mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified:
        assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_an_embedded_address_decides(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for base in (0xFFFF << 32, 0x64FF9B << 96, 0x2002 << 112):
        shift = 80 if base >> 112 == 0x2002 else 0
        assert is_public(ipaddress.IPv6Address(base | number << shift)) == is_public(address)


@pytest.mark.parametrize(
    ("allow", "host", "address", "allowed"),
    [
        (["10.1.0.0/16"], "wiki.test", "10.1.2.3", True),
        (["10.1.0.0/16"], "wiki.test", "10.2.2.3", False),
        (["10.1.0.0/16"], "wiki.test", "::ffff:10.1.2.3", True),
        (["127.0.0.1"], "127.0.0.1", "127.0.0.1", True),
        (["127.0.0.1"], "wiki.test", "127.0.0.2", False),
        (["[::1]"], "wiki.test", "::1", True),
        (["fd00::/8"], "wiki.test", "fd00::5", True),
        (["Wiki.Test."], "wiki.test", "10.9.9.9", True),
        (["wiki.test"], "other.test", "10.9.9.9", False),
        (["wiki.test"], "sub.wiki.test", "10.9.9.9", False),
        (["0.0.0.0/0", "::/0", "wiki.test"], "wiki.test", "169.254.169.254", False),
        (["0.0.0.0/0", "::/0"], "wiki.test", "::ffff:169.254.169.254", False),
        (["0.0.0.0/0", "::/0"], "wiki.test", "64:ff9b::a9fe:a9fe", False),
        (["fd00::/8"], "wiki.test", "fd00:ec2::254", False),
    ],
)
def test_what_an_operator_opens(allow: list[str], host: str, address: str, allowed: bool) -> None:
    assert Boundary.of(allow).allows(host, ipaddress.ip_address(address)) is allowed


@pytest.mark.parametrize("entry", ["10.1.2.3/16", "300.0.0.1", "http://wiki.test", "a b", "", "*.test", "1.2.3.4/99"])
def test_an_entry_that_means_nothing_stops_the_start(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="GRISTMILL_FETCH_ALLOW"):
        Boundary.of([entry])


def test_one_bad_address_of_a_host_closes_it() -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        return ["93.184.216.34", "10.0.0.1"]

    with pytest.raises(PermanentError) as caught:
        PUBLIC.addresses_of("mixed.test", 80, seconds=1, resolve=resolve)
    assert caught.value.code == "fetch_refused"
    assert "10.0.0.1" not in str(caught.value), "the answer must not map the inside"


def test_a_literal_is_not_resolved() -> None:
    def resolve(host: str, port: int) -> Sequence[str]:
        raise AssertionError("asked")

    assert PUBLIC.addresses_of("93.184.216.34", 80, seconds=1, resolve=resolve) == ["93.184.216.34"]


def test_no_answer_and_a_silent_name_server_are_worth_another_try() -> None:
    silent = threading.Event()

    def nothing(host: str, port: int) -> Sequence[str]:
        return []

    def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    def hangs(host: str, port: int) -> Sequence[str]:
        silent.wait(20)
        return ["93.184.216.34"]

    for resolve in (nothing, unknown, hangs):
        with pytest.raises(RetryableError) as caught:
            PUBLIC.addresses_of("some.test", 80, seconds=0.05, resolve=resolve)
        assert caught.value.code == "fetch_failed"
    silent.set()
