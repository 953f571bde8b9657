"""Fetching a page: its bytes and name, the limits, and what every failure becomes."""

from __future__ import annotations

import datetime
import gzip
import ipaddress
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from psycopg import Connection

import worker.exchange
from pipelines.errors import GristmillError, PermanentError, RetryableError, UnavailableError
from tests.fakes.web_server import Answer, Call, WebServer, web_server
from worker.content import content_of
from worker.fetch import Page, fetched, page_name
from worker.ledger import Ledger
from worker.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    # No test waits for that long: it is what a machine that stands still for a while may take.
    return Settings(home=tmp_path, fetch_seconds=30, max_bytes=100_000, fetch_allow=("127.0.0.0/8",))


def fetch(answer: Callable[[Call], Answer], settings: Settings, path: str = "/") -> tuple[Page, bytes, WebServer]:
    with web_server(answer) as server:
        with fetched(f"http://127.0.0.1:{server.port}{path}", settings) as page:
            content = page.path.read_bytes()
        assert not page.path.exists()
        return page, content, server


def failure(answer: Callable[[Call], Answer], settings: Settings) -> GristmillError:
    with pytest.raises(GristmillError) as caught:
        fetch(answer, settings)
    assert list((settings.home / "spool").iterdir()) == []
    return caught.value


def test_a_page(settings: Settings) -> None:
    def answer(call: Call) -> Answer:
        return Answer(body=b"<p>Hello</p>", headers={"Content-Type": "Text/HTML; charset=utf-8"})

    page, content, server = fetch(answer, settings, "/a/report?x=1")
    assert content == b"<p>Hello</p>"
    assert (page.name, page.content_type) == ("report.html", "text/html")
    assert page.url == f"http://127.0.0.1:{server.port}/a/report?x=1"
    [call] = server.calls
    assert (call.method, call.path, call.headers["host"]) == ("GET", "/a/report?x=1", f"127.0.0.1:{server.port}")
    assert not {"cookie", "authorization", "referer"} & call.headers.keys()


def test_the_worker_takes_the_page_as_content(settings: Settings, database: Connection[Any]) -> None:
    with web_server(lambda call: Answer(body=b"# Notice", headers={"Content-Type": "text/markdown"})) as server:
        url = f"http://127.0.0.1:{server.port}/notice"
        Ledger(database).record("wiki:7", kind="url", location=url)
        claim = Ledger(database).claim()
        assert claim is not None
        with content_of(claim, settings) as content:
            assert (content.path.read_bytes(), content.name, content.place) == (b"# Notice", "notice.md", url)
        assert not content.path.exists()


@pytest.mark.parametrize(
    ("url", "disposition", "content_type", "name"),
    [
        ("http://a.test/x/report.pdf", None, "application/pdf", "report.pdf"),
        ("http://a.test/x/report.pdf?download=1", None, "application/octet-stream", "report.pdf"),
        ("http://a.test/index.php", None, "text/html", "index.php.html"),
        ("http://a.test/", None, "text/html", "a.test.html"),
        ("http://a.test", None, "", "a.test"),
        ("http://a.test/get", 'attachment; filename="Rapport 1.docx"', "", "Rapport 1.docx"),
        ("http://a.test/get", "attachment; filename*=UTF-8''%C3%A9t%C3%A9.pdf", "", "été.pdf"),
        ("http://a.test/get", 'attachment; filename="été.pdf"', "", "été.pdf"),
        ("http://a.test/get", 'attachment; filename="../../etc/passwd"', "text/plain", "passwd.txt"),
        ("http://a.test/get", 'attachment; filename="C:\\\\dir\\\\a.txt"', "", "a.txt"),
        ("http://a.test/get", 'attachment; filename=".."', "text/plain", "get.txt"),
        ("http://a.test/get", "attachment", "text/markdown", "get.md"),
        ("http://a.test/get", "; ;=;filename", "text/plain", "get.txt"),
        ("http://a.test/%2e%2e%2fsecret.txt", None, "", "secret.txt"),
        ("http://a.test/a%00b.txt", None, "", "a_b.txt"),
        ("http://a.test/" + "a" * 300 + ".pdf", None, "", "a" * 116 + ".pdf"),
    ],
)
def test_names(url: str, disposition: str | None, content_type: str, name: str) -> None:
    assert page_name(url, disposition, content_type) == name


def test_redirects_are_followed(settings: Settings) -> None:
    def answer(call: Call) -> Answer:
        step = int(call.path.removeprefix("/"))
        return Answer(302, headers={"Location": str(step + 1)}) if step < 5 else Answer(body=b"there")

    page, content, server = fetch(answer, settings, "/0")
    assert content == b"there"
    assert page.url.endswith("/5")
    assert len(server.calls) == 6


def test_but_not_for_ever(settings: Settings) -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Answer:
        calls.append(call)
        return Answer(302, headers={"Location": "/again"})

    assert failure(answer, settings).code == "fetch_unusable"
    assert len(calls) == 6


@pytest.mark.parametrize(
    ("status", "headers", "kind", "code"),
    [
        (404, {}, PermanentError, "fetch_gone"),
        (410, {}, PermanentError, "fetch_gone"),
        (401, {}, PermanentError, "fetch_denied"),
        (403, {}, PermanentError, "fetch_denied"),
        (400, {}, PermanentError, "fetch_unusable"),
        (451, {}, PermanentError, "fetch_unusable"),
        (204, {}, PermanentError, "fetch_unusable"),
        (304, {}, PermanentError, "fetch_unusable"),
        (302, {}, PermanentError, "fetch_unusable"),
        (302, {"Location": "http://[/"}, PermanentError, "fetch_refused"),
        (200, {"Content-Encoding": "br"}, PermanentError, "fetch_unusable"),
        (408, {}, RetryableError, "fetch_failed"),
        (500, {}, RetryableError, "fetch_failed"),
        (502, {}, RetryableError, "fetch_failed"),
        (429, {}, UnavailableError, "fetch_unavailable"),
        (503, {}, UnavailableError, "fetch_unavailable"),
    ],
)
def test_what_an_answer_becomes(
    status: int, headers: dict[str, str], kind: type[GristmillError], code: str, settings: Settings
) -> None:
    error = failure(lambda call: Answer(status, headers=headers), settings)
    assert (type(error), error.code) == (kind, code)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("120", 120, 120),
        ("99999999999999", 86_400, 86_400),
        ("in an hour", 3500, 3600),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
    ],
)
def test_the_wait_that_a_server_asks_for(text: str, low: float, high: float, settings: Settings) -> None:
    if text == "in an hour":  # told now, not when the tests were collected
        text = format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1), usegmt=True)
    error = failure(lambda call: Answer(503, headers={"Retry-After": text}), settings)
    assert isinstance(error, UnavailableError)
    assert error.retry_after is not None
    assert low <= error.retry_after <= high


@pytest.mark.parametrize("text", ["soon", "-5", "", "²", "Wed, 99 Oct 2015"])
def test_a_wait_that_nobody_understands(text: str, settings: Settings) -> None:
    error = failure(lambda call: Answer(429, headers={"Retry-After": text}), settings)
    assert isinstance(error, UnavailableError)
    assert error.retry_after is None


def test_too_large_by_its_own_word(settings: Settings) -> None:
    error = failure(lambda call: Answer(body=b"", headers={"Content-Length": "100001"}), settings)
    assert error.code == "too_large"


def test_too_large_without_a_word(settings: Settings) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 10_000
            yield bytes(10_000)

    assert failure(lambda call: Answer(body=endless()), settings).code == "too_large"
    assert sent < 20_000_000, "the server was cut off, save for what the sockets held"


def test_exactly_as_large_as_allowed(settings: Settings) -> None:
    assert len(fetch(lambda call: Answer(body=bytes(100_000)), settings)[1]) == 100_000


@pytest.mark.parametrize("packed", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 100_000])
def test_unpacked(packed: Callable[[bytes], bytes], size: int, settings: Settings) -> None:
    plain = b"a" * size
    headers = {"Content-Encoding": "gzip" if packed is gzip.compress else "deflate"}
    assert fetch(lambda call: Answer(body=packed(plain), headers=headers), settings)[1] == plain


def test_a_bomb(settings: Settings) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < settings.max_bytes
    error = failure(lambda call: Answer(body=bomb, headers={"Content-Encoding": "gzip"}), settings)
    assert error.code == "too_large"


@pytest.mark.parametrize("body", [b"not packed at all", gzip.compress(os.urandom(5000))[:-9]])
def test_a_damaged_body(body: bytes, settings: Settings) -> None:
    error = failure(lambda call: Answer(body=body, headers={"Content-Encoding": "gzip"}), settings)
    assert (type(error), error.code) == (RetryableError, "fetch_failed")


def test_a_trickle_ends_with_the_time(settings: Settings) -> None:
    enough = threading.Event()

    def trickle() -> Iterator[bytes]:
        while not enough.wait(0.05):
            yield b"a"

    began = time.monotonic()
    error = failure(lambda call: Answer(body=trickle()), settings.model_copy(update={"fetch_seconds": 0.5}))
    enough.set()
    assert (type(error), error.code) == (RetryableError, "fetch_failed")
    assert time.monotonic() - began < settings.fetch_seconds


def test_nobody_listens(settings: Settings) -> None:
    with socket.socket() as taken:  # a port that is let go may be another server's a moment later
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        with pytest.raises(RetryableError, match="cannot be reached"), fetched(url, settings):
            pass


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of its own authority for `secure.test`, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "secure.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("secure.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def test_tls_is_to_the_name_not_the_address(
    settings: Settings, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is checked against the host though the connection goes to an address."""
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda socket, name, context: names.append(name)

    def loopback(host: str, port: int) -> Sequence[str]:
        return [str(ipaddress.IPv4Address("127.0.0.1"))]

    with web_server(lambda call: Answer(body=b"secret garden"), tls=context) as server:
        url = f"https://secure.test:{server.port}/"
        with pytest.raises(PermanentError) as caught, fetched(url, settings, resolve=loopback):
            pass
        assert caught.value.code == "fetch_untrusted"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        worker.exchange._trust.cache_clear()
        try:
            with fetched(url, settings, resolve=loopback) as page:
                assert page.path.read_bytes() == b"secret garden"
            with (
                pytest.raises(PermanentError) as caught,
                fetched(url.replace("secure", "other"), settings, resolve=loopback),
            ):
                pass
            assert caught.value.code == "fetch_untrusted"
        finally:
            worker.exchange._trust.cache_clear()
    assert names == ["secure.test", "secure.test", "other.test"]
    assert [call.headers["host"] for call in server.calls] == [f"secure.test:{server.port}"]
