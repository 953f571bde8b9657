"""Requests to web servers, each guarded and none too soon after the one before it to the same host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx

from pipelines.errors import RetryableError, UnavailableError
from worker.addresses import Resolve, resolve
from worker.connectors.contract import Surroundings
from worker.connectors.web.canonical import host_of
from worker.exchange import Deadline
from worker.fetch import MAX_REDIRECTS, Reply, request, too_many_redirects

MOST_FAILURES = 3


@dataclass
class _Host:
    """What is known of a host in this run.

    Attributes:
        last: when the last request to it was over.
        delay: that it asks for, in seconds.
        failures: requests in a row that it left unanswered.
        closed: why it is left alone for the rest of the run.
    """

    last: datetime | None = None
    delay: float = 0.0
    failures: int = 0
    closed: RetryableError | None = None


class Client:
    """One request at a time, for one run and one thread.

    A host that asks to wait, or leaves `MOST_FAILURES` requests in a row unanswered, gets no more of them in this run;
    others do.

    Attributes:
        bytes_in: bytes received so far, headers included.
        requests: requests sent so far.
    """

    def __init__(self, surroundings: Surroundings, *, agent: str, delay: float, resolve: Resolve = resolve) -> None:
        self.bytes_in = 0
        self.requests = 0
        self._around = surroundings
        self._agent = agent
        self._delay = delay
        self._resolve = resolve
        self._hosts: dict[str, _Host] = {}

    def slow_down(self, url: httpx.URL, delay: float) -> None:
        """Leave at least so many seconds between two requests to the host of this address."""
        self._host(url).delay = delay

    def request(
        self,
        url: httpx.URL,
        path: Path,
        *,
        validators: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
        cut: bool = False,
    ) -> Reply:
        """As `worker.fetch.request`, after a wait that politeness may ask for.

        Raises:
            PermanentError: as there.
            RetryableError: as there, and for a host that is left alone; with `retry_after` where it told a time.
            FencedError: the run ends.
        """
        host = self._host(url)
        if host.closed is not None:
            raise RetryableError(
                host.closed.code, host.closed.cause, host.closed.remedy, retry_after=host.closed.retry_after
            ) from host.closed
        self._pause(host)
        settings = self._around.settings
        self.requests += 1
        before = self.bytes_in
        try:
            reply = request(
                url,
                path,
                settings,
                Deadline(settings.fetch_seconds),
                validators=validators,
                agent=self._agent,
                max_bytes=max_bytes,
                cut=cut,
                resolve=self._resolve,
                received=self._count,
            )
        except RetryableError as error:
            raise self._failed(host, error, answered=self.bytes_in > before) from error
        finally:
            host.last = self._around.clock()
            if self.bytes_in > before:
                host.failures = 0
        return reply

    def read(
        self,
        url: httpx.URL,
        path: Path,
        *,
        validators: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
        cut: bool = False,
    ) -> Reply:
        """As `request`, with up to `MAX_REDIRECTS` redirects followed; for lists, whose own address means little."""
        for _ in range(MAX_REDIRECTS + 1):
            reply = self.request(url, path, validators=validators, max_bytes=max_bytes, cut=cut)
            if reply.location is None:
                return reply
            url = reply.location
        raise too_many_redirects(url)

    def _pause(self, host: _Host) -> None:
        if host.last is None:
            return
        left = max(self._delay, host.delay) - (self._around.clock() - host.last).total_seconds()
        if left > 0:
            self._around.wait(left)

    def _failed(self, host: _Host, error: RetryableError, *, answered: bool) -> RetryableError:
        """The error as one of this request, never of the whole run: other hosts may be well."""
        host.failures = 0 if answered else host.failures + 1
        told = RetryableError(error.code, error.cause, error.remedy, retry_after=error.retry_after)
        asks_to_wait = isinstance(error, UnavailableError) and error.retry_after is not None
        if asks_to_wait or host.failures >= MOST_FAILURES:
            host.closed = told
        return told

    def _count(self, size: int) -> None:
        self.bytes_in += size

    def _host(self, url: httpx.URL) -> _Host:
        return self._hosts.setdefault(host_of(url), _Host())
