"""One HTTP request to an address that somebody else gave us: to a checked address, within a deadline.

The host is resolved once, all its addresses are checked, and the connection is made to one of those very addresses,
so an answer of the name server that changes in between changes nothing. `Host` and the name in TLS stay the host.
Proxies named in the environment are not used: they would resolve again.
"""

from __future__ import annotations

import email.utils
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import httpcore
import httpx

from pipelines.errors import PermanentError, RetryableError
from worker.addresses import Boundary, Resolve, resolve
from worker.settings import Settings

CONNECT_SECONDS = 10.0
MOST_RETRY_AFTER = 86_400.0

Received = Callable[[int], None]
"""Told how many bytes came in, headers included, as they come."""


class Deadline:
    """A moment by which something has to be over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left.

        Raises:
            httpcore.TimeoutException: none are.
        """
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise httpcore.ReadTimeout("the time is up")
        return seconds


class _TimedStream(httpcore.NetworkStream):
    """A stream whose every read and write ends by the deadline, so that a trickle of bytes cannot hold us."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline, received: Received | None) -> None:
        self._stream = stream
        self._deadline = deadline
        self._received = received

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, self._deadline.left())
        if self._received is not None:
            self._received(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left())
        return _TimedStream(secured, self._deadline, self._received)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _GuardedBackend(httpcore.NetworkBackend):
    """Opens connections inside the boundary only."""

    def __init__(
        self, boundary: Boundary, deadline: Deadline, resolve: Resolve, received: Received | None = None
    ) -> None:
        self._boundary = boundary
        self._deadline = deadline
        self._resolve = resolve
        self._received = received
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = self._boundary.addresses_of(host, port, seconds=self._deadline.left(), resolve=self._resolve)
        last: Exception | None = None
        for address in addresses:
            try:
                stream = self._plain.connect_tcp(address, port, min(self._deadline.left(), CONNECT_SECONDS))
                return _TimedStream(stream, self._deadline, self._received)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        raise httpcore.ConnectError(f"{host} cannot be connected to") from last

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        raise httpcore.UnsupportedProtocol("sockets of this machine are not reached by URL")


@cache
def _trust() -> ssl.SSLContext:
    """Certificates trusted: those of `SSL_CERT_FILE` or `SSL_CERT_DIR` where set, else the bundle of certifi."""
    return httpx.create_ssl_context()


@contextmanager
def exchange(
    method: str,
    url: httpx.URL,
    settings: Settings,
    deadline: Deadline,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    resolve: Resolve = resolve,
    received: Received | None = None,
) -> Iterator[httpcore.Response]:
    """Send one request and give its answer, whose body is read as a stream inside the `with`. No redirect is followed.

    Args:
        url: as `worker.addresses.parse_url` gives it.
        deadline: of the whole exchange, the body included.
        resolve: how host names become addresses.
        received: counts what comes in.

    Raises:
        PermanentError: `fetch_refused`, or `fetch_untrusted` where the certificate does not hold.
        RetryableError: `fetch_failed`: no connection, no answer in time, or not HTTP.
    """
    sent = {
        "Host": url.netloc.decode("ascii"),
        "User-Agent": f"gristmill/{version('gristmill')}",
        "Connection": "close",
        **(headers or {}),
    }
    if content is not None:
        sent["Content-Length"] = str(len(content))
    target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    backend = _GuardedBackend(Boundary.of(settings.fetch_allow), deadline, resolve, received)
    trust = _trust() if url.scheme == "https" else None
    try:
        with (
            httpcore.ConnectionPool(ssl_context=trust, network_backend=backend, max_connections=1) as pool,
            pool.stream(method, target, headers=list(sent.items()), content=content) as response,
        ):
            yield response
    except httpcore.TimeoutException as error:
        raise RetryableError("fetch_failed", f"{url.host} did not answer in time", "try again later") from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        certificate = _certificate_error(error)
        if certificate is not None:
            raise PermanentError(
                "fetch_untrusted",
                f"the certificate of {url.host} does not hold: {certificate.verify_message}",
                "have it renewed, or name its authority in SSL_CERT_FILE, then: gristmill retry",
            ) from error
        raise RetryableError(
            "fetch_failed", f"{url.host} cannot be reached: {error or type(error).__name__}", "try again later"
        ) from error


def _certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error
        error = error.__cause__ or error.__context__
    return None


def headers(response: httpcore.Response, name: str) -> list[str]:
    """All headers of that name, as text: UTF-8 where it is, else Latin-1."""
    wanted = name.lower().encode("ascii")
    found: list[str] = []
    for key, value in response.headers:
        if key.lower() == wanted:
            try:
                found.append(value.decode("utf-8"))
            except UnicodeDecodeError:
                found.append(value.decode("latin-1"))
    return found


def header(response: httpcore.Response, name: str) -> str | None:
    """The first header of that name, as `headers` gives them."""
    return next(iter(headers(response, name)), None)


def retry_after(response: httpcore.Response) -> float | None:
    """Seconds that the other side asks us to wait, at most a day; None where it does not say."""
    text = (header(response, "retry-after") or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MOST_RETRY_AFTER)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return min(max((when - datetime.now(UTC)).total_seconds(), 0.0), MOST_RETRY_AFTER)
